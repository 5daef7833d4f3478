import gc
import warnings
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import fakes
import pytest
import torch
from states import assert_same_tree, trees_differ
from torch import nn

from s6mod import Learner
from s6mod.data import load
from s6mod.engine import capture
from s6mod.engine.checkpoint import read_state
from s6mod.engine.step import Inputs
from s6mod.errors import ConfigError
from s6mod.methods import Batch, Plan
from s6mod.runs.config import RunConfig
from s6mod.runs.execute import execute
from s6mod.runs.run import Run

assert fakes.Duo  # registers the method "duo"

S6MOD = {"name": "s6mod", "d_inner": 16, "num_patterns": 3, "noisy_gate": True}
SETTINGS = [
    ("er", None),
    ("er", S6MOD),
    ("er", {**S6MOD, "view": "fresh"}),
    ("er", {**S6MOD, "variant": "plus"}),
    ("duo", None),
    ("duo", S6MOD),
    ("ocm", None),
    ("ocm", {**S6MOD, "view": "fresh", "divergence": "qp"}),
    ("onpro", S6MOD),
    ("onpro", {**S6MOD, "variant": "plus"}),
    ("mose", S6MOD),
    ("finetune", None),
    ("er-ace", S6MOD),
    ("er-ace", {**S6MOD, "view": "fresh"}),
    ("scr", None),
    ("pcr", None),
    ("pcr", S6MOD),
    ("er-lwf", S6MOD),
    ("er-lwf", {**S6MOD, "view": "fresh"}),
    ("der", None),
    ("der", S6MOD),
    ("der", {**S6MOD, "view": "fresh"}),
    ("der++", None),
    ("der++", {**S6MOD, "view": "fresh"}),
    ("agem", None),
    ("agem", S6MOD),
    ("mir", None),
    ("mir", {**S6MOD, "view": "fresh"}),
    ("er-ccldc", None),
    ("er-ccldc", {**S6MOD, "view": "fresh", "beta": 0.0}),
    ("er-ace-ccldc", None),
    ("der++-ccldc", S6MOD),
    ("ocm-ccldc", S6MOD),
    ("onpro-ccldc", None),
    ("onpro-ccldc", {**S6MOD, "view": "fresh", "beta": 0.0}),
]


def learner(method, branch, capture, precision="auto", **options):
    return Learner(
        {"name": method, "network": {"width": 8}, "memory_batch": 24},
        branch,
        memory_size=60,
        engine={"device": "cuda", "capture": capture, "precision": precision, "deterministic": True},
        **{"num_classes": 10, **options},
    )


def batches(count, size=16):
    generator = torch.Generator().manual_seed(0)
    for position in range(count):
        x = torch.randint(0, 256, (10, 3, size, size), generator=generator, dtype=torch.uint8)
        yield position, x, torch.randint(0, 2 + 2 * (position // 15), (10,), generator=generator)


@pytest.mark.gpu
@pytest.mark.parametrize("branch", [None, S6MOD])
def test_captured_steps_by_sgd_in_a_network_that_was_brought_equal_eager_steps_to_the_bit(branch):
    module = nn.Sequential(nn.Conv2d(3, 8, 3, stride=4, padding=1), nn.BatchNorm2d(8), nn.ReLU())
    captured, eager = (
        Learner(
            {"name": "er", "memory_batch": 24, "optimizer": {"name": "sgd", "lr": 0.05}},
            branch,
            network=module,
            num_classes=10,
            memory_size=60,
            engine={"device": "cuda", "capture": capture, "deterministic": True},
        )
        for capture in ("auto", "off")
    )
    for _, x, y in batches(20):
        for one in (captured, eager):
            one.learn(x, y)
    assert captured.step.graphs
    assert_same_tree(captured.state_dict(), eager.state_dict())


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(("method", "branch"), SETTINGS)
def test_captured_steps_equal_eager_steps_to_the_bit(method, branch, precision):
    captured, eager = (learner(method, branch, capture, precision) for capture in ("auto", "off"))
    for position, x, y in batches(50):
        for one in (captured, eager):
            one.learn(x, y)
            if position % 15 == 14:
                one.end_task()
    assert len(captured.step.graphs) >= 1
    assert_same_tree(eager.state_dict(), captured.state_dict())


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("method", "branch"), [("er", S6MOD), ("duo", S6MOD), ("mose", S6MOD), ("er-ccldc", None), ("onpro", None)]
)
def test_captured_steps_with_an_average_equal_eager_steps_to_the_bit_and_learn_the_same(method, branch):
    captured, eager = (learner(method, branch, capture, average=0.9) for capture in ("auto", "off"))
    plain = learner(method, branch, "auto")
    for position, x, y in batches(40):
        for one in (captured, eager, plain):
            one.learn(x, y)
            if position % 15 == 14:
                one.end_task()
    assert len(captured.step.graphs) >= 1
    assert_same_tree(eager.state_dict(), captured.state_dict())
    learned = captured.state_dict()
    assert trees_differ(learned["average"], learned["peers"])
    assert_same_tree(plain.state_dict(), {name: part for name, part in learned.items() if name != "average"})


@pytest.mark.gpu
@pytest.mark.parametrize("branch", [None, {**S6MOD, "view": "fresh"}])
def test_a_learner_that_grows_is_captured_anew_and_equals_eager_steps_to_the_bit(branch, monkeypatch):
    captured, eager = (learner("er", branch, capture, average=0.9, num_classes=None) for capture in ("auto", "off"))
    for position, x, _ in batches(30):
        names = [f"class {position // 10 * 6 + n % 6}" for n in range(10)]  # the last ten batches find too few outputs
        for one in (captured, eager):
            if position == 20:
                with monkeypatch.context() as patch:
                    patch.setattr(one, "step", lambda inputs: pytest.fail("no room"))
                    with pytest.raises(pytest.fail.Exception):
                        one.learn(x, names)
                assert one.parts.capacity == 16
                assert one is eager or one.step.graphs  # it goes on with those
                one.learn(x, ["class 0"] * 10)
            one.learn(x, names)
    assert captured.parts.capacity == 32
    assert captured.step.graphs
    assert_same_tree(eager.state_dict(), captured.state_dict())


@pytest.mark.gpu
def test_steps_on_a_stream_of_the_callers_equal_those_on_the_default_stream_to_the_bit():
    beside, default = (learner("er", S6MOD, "auto") for _ in range(2))
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    for _, x, y in batches(20):
        default.learn(x, y)
        with torch.cuda.stream(stream):
            beside.learn(x.cuda(), y)
    torch.cuda.synchronize()
    assert len(beside.step.graphs) == len(default.step.graphs) >= 1
    assert_same_tree(default.state_dict(), beside.state_dict())


@pytest.mark.gpu
@pytest.mark.parametrize("capture", ["auto", "off"])
@pytest.mark.parametrize(("method", "branch"), SETTINGS)
def test_no_step_waits_for_the_device(method, branch, capture):
    one = learner(method, branch, capture)
    steps = list(batches(14))
    for _, x, y in steps[:12]:  # fill, warm up, capture
        one.learn(x, y)
    torch.cuda.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces that the mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        for _, x, y in steps[12:]:
            one.learn(x, y)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_device_stores_what_the_host_decided_however_far_it_runs_ahead(device):
    """Dozens of steps may wait on the device; the host's small tensors of each are gone by then."""
    cuda = device == "cuda"
    method = {"name": "er", "network": {"width": 64 if cuda else 2}, "memory_batch": 24}
    one = Learner(method, num_classes=10, memory_size=60, engine={"device": device})
    for _, x, y in batches(60, size=32 if cuda else 8):
        one.learn(y.to(torch.uint8)[:, None, None, None].expand_as(x), y)  # images that tell their label
    assert len(one.memory) == 60
    assert one.memory.device_labels[:60].tolist() == one.memory.labels.tolist()
    assert one.memory.images[:60, 0, 0, 0].tolist() == one.memory.labels.tolist()


@pytest.mark.gpu
@pytest.mark.parametrize("capture", ["auto", "off"])
def test_a_pinned_buffer_that_is_filled_anew_for_each_batch_is_learned_as_it_was(capture):
    method = {"name": "er", "network": {"width": 64}, "memory_batch": 24}
    one = Learner(method, num_classes=10, memory_size=60, engine={"device": "cuda", "capture": capture})
    images, labels = torch.empty((10, 3, 32, 32), dtype=torch.uint8).pin_memory(), torch.empty(10).long().pin_memory()
    for _, _, y in batches(60):
        images.copy_(y.to(torch.uint8)[:, None, None, None].expand_as(images))  # images that tell their label
        labels.copy_(y)
        one.learn(images, labels)
    assert one.memory.device_labels[:60].tolist() == one.memory.labels.tolist()
    assert one.memory.images[:60, 0, 0, 0].tolist() == one.memory.labels.tolist()


class Recorded:
    """Stands for a graph where there is no GPU."""

    def __init__(self, step, inputs, pool):
        self.terms = ("captured",)

    def replay(self, inputs):
        return self.terms


def small_inputs(size):
    rows = torch.arange(size)
    return Inputs(Batch(torch.zeros(size, 3, 8, 8, dtype=torch.uint8), rows), Plan({"replay": rows}), rows)


def test_batches_of_ever_new_sizes_are_captured_up_to_a_number_and_run_eagerly_from_there_on(monkeypatch):
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(capture, "_Recording", Recorded)
    monkeypatch.setattr(capture, "MOST_GRAPHS", 5)
    step = capture.CapturedStep(lambda inputs: ("eager",))
    for size in range(1, 11):
        for _ in range(5):
            terms = step._take(small_inputs(size))
        assert terms == (("captured",) if size <= 5 else ("eager",))
    assert len(step.graphs) == 5
    assert step._take(small_inputs(1)) == ("captured",)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("CUDA error: operation not permitted when stream is capturing\nand advice"), True),
        (torch.OutOfMemoryError("CUDA out of memory while capturing"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_a_step_that_cannot_be_captured_says_what_to_do_and_other_errors_pass(monkeypatch, error, told):
    no_gpu_is_asked(monkeypatch)

    def compute(inputs):
        raise error

    step = SimpleNamespace(engine=SimpleNamespace(device="cpu"), generators={}, compute=compute)
    with pytest.raises(ConfigError if told else type(error)) as caught:
        capture._Recording(step, small_inputs(2), None)
    if told:
        assert caught.value.__cause__ is error
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith("expected a step that reads nothing back from the device, got: CUDA error")
        assert str(caught.value).endswith("or set engine.capture=off")
    else:
        assert caught.value is error


def no_gpu_is_asked(monkeypatch):
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", SimpleNamespace)
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("collecting", [True, False])
def test_no_garbage_is_collected_while_a_step_is_captured(monkeypatch, collecting, fails):
    no_gpu_is_asked(monkeypatch)
    found = []

    def compute(inputs):
        found.append(gc.isenabled())
        if fails:
            raise RuntimeError("of its own")
        return ("ce",)

    step = SimpleNamespace(engine=SimpleNamespace(device="cpu"), generators={}, compute=compute)
    before = gc.isenabled()
    try:
        (gc.enable if collecting else gc.disable)()
        with pytest.raises(RuntimeError) if fails else nullcontext():
            capture._Recording(step, small_inputs(2), None)
        found.append(gc.isenabled())
    finally:
        (gc.enable if before else gc.disable)()
    assert found == [False, collecting]


@pytest.mark.gpu
def test_a_captured_learner_that_is_gone_breaks_no_capture(monkeypatch):
    thresholds = gc.get_threshold()
    gc.set_threshold(1_000_000)  # no garbage is collected for now
    try:
        gone, one = learner("er", None, "auto"), learner("er", None, "auto")
        for _, x, y in batches(10):
            gone.learn(x, y)
        assert gone.step.graphs
        gone.itself = gone
        del gone

        one.build((3, 16, 16))
        compute = one.step.eager.compute

        def littering(inputs):
            if torch.cuda.is_current_stream_capturing():
                gc.set_threshold(1)
                assert [[] for _ in range(1000)]
            return compute(inputs)

        monkeypatch.setattr(one.step.eager, "compute", littering)
        for _, x, y in batches(10):
            one.learn(x, y)
        assert one.step.graphs
    finally:
        gc.set_threshold(*thresholds)


@pytest.mark.gpu
def test_a_captured_learner_saved_and_loaded_goes_on_to_the_same_bits(tmp_path):
    straight, half = learner("er", S6MOD, "auto"), learner("er", S6MOD, "auto")
    for position, x, y in batches(30):
        straight.learn(x, y)
        if position == 17:
            half.save(tmp_path)
            half = Learner.load(tmp_path)
        half.learn(x, y)
    assert_same_tree(straight.state_dict(), half.state_dict())


@pytest.mark.gpu
@pytest.mark.parametrize(("method", "branch"), [("er", S6MOD), ("mose", None), ("ocm-ccldc", None)])
def test_predicting_by_statistics_of_the_memory_leaves_captured_steps_alone(method, branch):
    asked, silent = learner(method, branch, "auto", statistics="memory"), learner(method, branch, "auto")
    for _, x, y in batches(12):
        for one in (asked, silent):
            one.learn(x, y)
        asked.predict(x)
    assert len(asked.step.graphs) >= 1
    assert_same_tree(silent.state_dict(), asked.state_dict())
    stem, expected = (one.predictor().peers[0].network.stem for one in (asked, silent))
    sent = expected[0](asked.method.prepare(asked.memory.images[:60]))  # (60, C, 16, 16)
    torch.testing.assert_close(stem[1].running_mean, sent.mean((0, 2, 3)), atol=2e-3, rtol=2e-2)
    torch.testing.assert_close(stem[1].running_var, sent.var((0, 2, 3)), atol=2e-3, rtol=2e-2)


@pytest.mark.gpu
def test_runs_side_by_side_give_to_the_bit_what_each_gives_alone(tmp_path):
    digits = load("digits").to(torch.device("cuda"))
    configs = [
        RunConfig.parse(
            {
                "method": {"name": "er", "network": {"width": 8}, "memory_batch": 24},
                "branch": branch,
                "memory_size": 60,
                "seed": seed,
                "engine": {"device": "cuda", "deterministic": True},
            }
        )
        for seed, branch in enumerate((None, S6MOD, {"name": "confidence"}))
    ]

    def finals(where, groups):
        for group in groups:
            execute([partial(Run.begin, c, tmp_path / where / c.hash, digits) for c in group], at_once=3)
        return [read_state(tmp_path / where / c.hash / "checkpoint")[0] for c in configs]

    for alone, together in zip(finals("alone", [[c] for c in configs]), finals("together", [configs]), strict=True):
        assert_same_tree(alone["learner"], together["learner"])
        assert alone["cursor"]["rows"] == together["cursor"]["rows"]
        assert together["cursor"]["runs_at_once"] == 3


@pytest.mark.gpu
def test_the_first_run_of_a_process_tells_the_same_environment_as_the_next(tmp_path):
    digits, threads = load("digits"), torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        plain = {"method": {"name": "er", "network": {"width": 8}}, "engine": {"device": "cuda"}}
        first, second = (Run.begin(RunConfig.parse(plain), tmp_path / name, digits) for name in "ab")
        assert first.environment == second.environment
    finally:
        torch.set_num_threads(threads)
