import copy
import io
import multiprocessing
import pickle
import threading
from contextlib import nullcontext
from functools import cache
from itertools import pairwise
from multiprocessing import reduction
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from fakes import Duo
from states import assert_same_tree, trees_differ, write_state

import learners
from s6mod import Learner
from s6mod.data import load
from s6mod.engine.checkpoint import read_state
from s6mod.engine.step import Inputs, Ledger
from s6mod.errors import CheckpointError, ConfigError, InputError, ResourceError
from s6mod.methods import Batch, methods
from s6mod.networks import ResNet18

SMALL = {"network": {"width": 4}, "memory_batch": 12}
DIGITS = load("digits")


def batch(position, size=6, classes=range(10)):
    """A deterministic batch of 16x16 digits (small, for speed) of the given classes."""
    rows = torch.isin(DIGITS.train_labels, torch.tensor(list(classes))).nonzero().flatten()
    chosen = rows[torch.arange(position * size, (position + 1) * size) % len(rows)]
    return DIGITS.train_images[chosen][:, :, ::2, ::2], DIGITS.train_labels[chosen]


def small(method="er", branch=None, **options):
    options = {"num_classes": 10, "memory_size": 40, "seed": 3} | options
    if isinstance(branch, str):
        branch = {"name": branch}
    if branch and branch["name"] == "s6mod":
        branch = {"d_inner": 12, "num_patterns": 3, "state_dim": 4, "dt_rank": 3} | branch
    return Learner({"name": method, **SMALL}, branch, **options)


def run(learner, start, stop, boundary_every=5):
    for position in range(start, stop):
        learner.learn(*batch(position, classes=range(2 + 2 * (position // boundary_every))))
        if (position + 1) % boundary_every == 0:
            learner.end_task()
    return learner


SETTINGS = [("er", None), ("er", "s6mod"), ("er", "confidence"), ("duo", None), ("duo", "s6mod")]


@pytest.mark.parametrize(("method", "branch"), SETTINGS)
def test_saving_and_loading_at_any_step_changes_nothing(tmp_path, method, branch):
    straight, half = run(small(method, branch), 0, 9), small(method, branch)
    for begin, stop in pairwise((0, 0, 1, 2, 7)):
        run(half, begin, stop).save(tmp_path / str(stop))
        resumed = run(Learner.load(tmp_path / str(stop)), stop, 9)
        assert_same_tree(straight.state_dict(), resumed.state_dict())
        x, _ = batch(0, size=30)
        assert torch.equal(straight.scores(x)["head"], resumed.scores(x)["head"])


@pytest.mark.parametrize(("method", "branch"), [("er", "s6mod"), ("duo", None)])
def test_several_updates_for_each_batch_store_it_once_and_resume_to_the_bit(tmp_path, method, branch):
    straight = run(small(method, branch, updates=3, memory_size=100), 0, 4)
    stored = torch.cat([batch(position, classes=range(2))[0] for position in range(4)])
    assert torch.equal(straight.memory.images[: len(straight.memory)], stored)
    taken = {int(state["step"]) for state in straight.optimizer.state.values()}
    once = {int(state["step"]) for state in run(small(method, branch), 0, 4).optimizer.state.values()}
    assert max(taken) == 3 * max(once)

    run(small(method, branch, updates=3, memory_size=100), 0, 2).save(tmp_path / "half")
    resumed = run(Learner.load(tmp_path / "half"), 2, 4)
    assert_same_tree(straight.state_dict(), resumed.state_dict())


@pytest.mark.parametrize(("method", "branch"), SETTINGS)
def test_the_seed_decides_the_trajectory(method, branch):
    first, again, other = (run(small(method, branch, seed=seed), 0, 6).state_dict() for seed in (3, 3, 4))
    assert_same_tree(first, again)
    assert trees_differ(first, other)


@pytest.mark.parametrize("method", ["er", "duo"])
def test_a_branch_with_all_weights_at_zero_leaves_the_base_trajectory_to_the_bit(method):
    base = run(small(method), 0, 8).state_dict()
    zero = {"name": "s6mod", "weight_dr": 0.0, "alpha": 0.0, "beta": 0.0, "weight_z": 0.0, "noisy_gate": True}
    with_branch = run(small(method, zero), 0, 8)
    state = with_branch.state_dict()
    for number in base["peers"]:
        assert_same_tree(base["peers"][number]["network"], state["peers"][number]["network"])
    assert_same_tree(base["memory"], state["memory"])
    assert torch.equal(base["generators"]["method"], state["generators"]["method"])
    # ... and the branch ran: it met the classes and drew its noise.
    branch = with_branch.peers[0].branch
    assert branch.routing.seen.sum() == 4
    assert not torch.equal(base["generators"]["branch"], state["generators"]["branch"])


def test_a_branch_with_weight_changes_the_trajectory():
    base = run(small(), 0, 4).state_dict()["peers"]["0"]["network"]
    assert trees_differ(base, run(small("er", "s6mod"), 0, 4).state_dict()["peers"]["0"]["network"])
    assert trees_differ(base, run(small("er", "confidence"), 0, 4).state_dict()["peers"]["0"]["network"])


@pytest.mark.parametrize(
    ("option", "views"), [({"view": "shared"}, 1), ({"view": "fresh"}, 2), ({"variant": "plus"}, 2)]
)
def test_the_branch_adds_no_pass_of_the_backbone_and_the_shared_view_no_image(monkeypatch, option, views):
    learner = run(small("er", {"name": "s6mod", **option}), 0, 2)
    made = []
    trunk = ResNet18.trunk
    monkeypatch.setattr(ResNet18, "trunk", lambda self, x: made.append(len(x)) or trunk(self, x))
    learner.learn(*batch(2))
    assert made == [18 * views]  # 12 from memory and 6 from the stream


def test_the_optimiser_takes_large_parameters_first_and_is_saved_by_their_numbers_in_the_peers():
    learner = run(small("er", "s6mod"), 0, 3)
    sizes = [p.numel() for p in learner.optimizer.param_groups[0]["params"]]
    assert sizes == sorted(sizes, reverse=True)
    saved, parameters = learner.state_dict()["optimizer"], learner.peers[0].learned_parameters()
    assert list(saved) == [str(number) for number in range(len(parameters))]
    assert [saved[str(n)]["exp_avg"].shape for n in range(len(parameters))] == [p.shape for p in parameters]


def test_the_branch_of_plus_predicts_where_a_linear_head_would_and_needs_no_memory_for_it(monkeypatch):
    learner = run(small("er", {"name": "s6mod", "variant": "plus"}), 0, 4)
    x, _ = batch(4)
    assert (learner.primary, small("er", "s6mod").primary) == ("branch", "head")
    expected = learner.scores(x)["branch"].argmax(1)
    monkeypatch.setattr(type(learner.method), "reference", lambda *_: pytest.fail("no table here needs the memory"))
    learner._predictors = {}
    assert torch.equal(learner.predict(x), expected)


def test_a_method_that_predicts_by_nearest_means_goes_on_doing_so_with_plus():
    assert small("mose", {"name": "s6mod", "variant": "plus"}).primary == "ncm"


def test_gradients_of_l_diff_reach_the_base_head_and_the_branch():
    only = {"name": "s6mod", "weight_dr": 0.0, "alpha": 1.0, "beta": 0.0, "weight_z": 0.0}
    learner = run(small("er", only), 0, 2)
    images, labels = batch(2)
    plan = learner.method.plan(labels, learner.memory, learner.task, learner.host_generator)
    terms, _ = learner.step.losses(Inputs(Batch(images, labels), plan, slots=torch.full((6,), 40)))
    learner.optimizer.zero_grad()
    terms["branch/diff"].backward()
    gradients = {name: p.grad for name, p in learner.peers[0].named_parameters() if p.grad is not None}
    assert gradients["network.head.weight"].abs().sum() > 0
    assert gradients["network.stem.0.weight"].abs().sum() > 0
    assert gradients["branch.in_proj.weight"].abs().sum() > 0
    assert gradients["branch.A_log"].abs().sum() > 0


@pytest.mark.parametrize(("method", "branch"), SETTINGS)
def test_predicting_at_any_step_leaves_no_trace(method, branch):
    quiet, curious = small(method, branch), small(method, branch)
    for position in range(5):
        quiet.learn(*batch(position))
        curious.learn(*batch(position))
        curious.predict(batch(9, size=20)[0])
    assert_same_tree(quiet.state_dict(), curious.state_dict())


def test_predicting_from_other_threads_leaves_no_trace():
    quiet = run(small("er", "s6mod"), 0, 8)
    learner = run(small("er", "s6mod"), 0, 1)
    done = threading.Event()

    def ask():
        while not done.is_set():
            learner.predict(batch(9, size=20)[0])

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    run(learner, 1, 8)
    done.set()
    for thread in threads:
        thread.join()
    assert_same_tree(quiet.state_dict(), learner.state_dict())


CALLS = {
    "learn": lambda learner, folder: learner.learn(*batch(3)),
    "end_task": lambda learner, folder: learner.end_task(),
    "predict": lambda learner, folder: learner.predict(batch(0)[0]),
    "scores": lambda learner, folder: learner.scores(batch(0)[0]),
    "losses": lambda learner, folder: learner.losses(),
    "figures": lambda learner, folder: learner.figures(),
    "nbytes": lambda learner, folder: learner.nbytes,
    "state_dict": lambda learner, folder: learner.state_dict(),
    "load_state_dict": lambda learner, folder: learner.load_state_dict(small().state_dict(), None),
    "save": lambda learner, folder: learner.save(folder),
    "copy": lambda learner, folder: copy.copy(learner),
    "pickle": lambda learner, folder: pickle.dumps(learner),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_waits_for_that_of_another_thread(tmp_path, monkeypatch, name):
    learner = run(small("er", "s6mod"), 0, 3)
    inside, go_on, passes, forward = threading.Event(), threading.Event(), [], ResNet18.forward

    def held(network, x):
        passes.append(len(x))
        inside.set()
        go_on.wait(60)
        return forward(network, x)

    monkeypatch.setattr(ResNet18, "forward", held)
    first = threading.Thread(target=learner.predict, args=(batch(0)[0],))
    second = threading.Thread(target=CALLS[name], args=(learner, tmp_path))
    first.start()
    inside.wait(60)
    second.start()
    second.join(0.05)  # time enough to come in between
    waited = second.is_alive() and len(passes) == 1
    go_on.set()
    first.join()
    second.join()
    assert waited


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda learner: pickle.loads(pickle.dumps(learner))])
def test_a_copy_goes_its_own_way_and_waits_for_nobody(duplicate):
    learner = run(small("er", "s6mod"), 0, 3)
    with learner.turn:
        twin = duplicate(learner)
        other = threading.Thread(target=run, args=(twin, 3, 6))
        other.start()
        other.join()
    assert trees_differ(learner.state_dict(), twin.state_dict())
    assert_same_tree(run(learner, 3, 6).state_dict(), twin.state_dict())


def test_a_process_that_is_spawned_with_a_learner_needs_no_file_that_closes_before_it_is_there():
    files = []

    class Process:
        def duplicate_for_child(self, file):
            files.append(file)
            return file

    multiprocessing.context.set_spawning_popen(Process())
    try:
        reduction.ForkingPickler(io.BytesIO()).dump(run(small(), 0, 3))
    finally:
        multiprocessing.context.set_spawning_popen(None)
    assert files == []


def agrees(memory):
    """Whether every row has the label of its image, on the host and on the device; see ``telling``."""
    told = memory.images[: len(memory), 0, 0, 0].long()
    host, device = memory.labels[: len(memory)], memory.device_labels[: len(memory)]
    return torch.equal(told, host) and torch.equal(told, device)


def telling(position):
    """A batch whose images say their label."""
    x, y = batch(position)
    return y.to(torch.uint8)[:, None, None, None].expand_as(x).clone(), y


def told(learner, start, stop):
    for position in range(start, stop):
        learner.learn(*telling(position))
    return learner


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_nothing_can_be_asked_of_it_within_a_step(monkeypatch, tmp_path, call):
    learner = told(small(memory_size=20), 0, 8)
    step = learner.step

    def interrupted(inputs):  # as by a signal handler
        call(learner, tmp_path / "saved")
        return step(inputs)

    with monkeypatch.context() as patch:
        patch.setattr(learner, "step", interrupted)
        with pytest.raises(InputError, match=r"after learn\(\) .* set a flag"):
            told(learner, 8, 9)
    assert not (tmp_path / "saved").exists()
    assert agrees(learner.memory)
    call(learner, tmp_path / "saved")  # between two batches it can


@pytest.mark.parametrize("written", [(), ("images",), ("images", "device_labels")])
def test_an_interrupt_leaves_images_and_labels_in_agreement(monkeypatch, written):
    learner = told(small(memory_size=20), 0, 8)
    memory = learner.memory

    def store(rows, images, labels, values):
        for name, part in zip(written, (images, labels), strict=False):
            getattr(memory, name).index_copy_(0, rows, part)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(memory, "store", store)
    with pytest.raises(KeyboardInterrupt):
        told(learner, 8, 9)
    assert agrees(memory)
    assert memory.seen == (9 if written else 8) * 6
    assert agrees(told(learner, 9, 12).memory)


def test_memory_agrees_even_where_nothing_can_be_asked_of_the_device(monkeypatch):
    learner = told(small(memory_size=20), 0, 2)

    def fail(*_):
        raise torch.OutOfMemoryError("not enough")

    with monkeypatch.context() as patch:
        patch.setattr(learner, "step", fail)
        patch.setattr(learner.memory, "holds", fail)
        with pytest.raises(torch.OutOfMemoryError):
            told(learner, 2, 3)
    assert len(learner.memory) == 12
    assert agrees(told(learner, 3, 5).memory)


def test_what_was_predicted_before_a_failure_is_not_what_predicts_after_it(monkeypatch):
    learner, (x, _) = told(small(), 0, 3), batch(5)
    learner.scores(x)

    def fail(*_):  # the networks have learned by then
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(learner.ledger, "add", fail)
        with pytest.raises(KeyboardInterrupt):
            told(learner, 3, 4)
    assert_same_tree(learner.predictor()(x), learner.scores(x))


def test_a_first_batch_that_is_refused_says_nothing_about_later_ones():
    learner = learners.small("ocm")
    with pytest.raises(InputError):
        learner.learn(*learners.batch(0, (0,), size=1))
    assert_same_tree(
        learners.run(learner, 0, 3, side=16).state_dict(),
        learners.run(learners.small("ocm"), 0, 3, side=16).state_dict(),
    )


@pytest.mark.parametrize("method", ["er", "duo", "ocm"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.float16)])
def test_it_learns_whatever_mode_the_caller_is_in(mode, method):
    assert_same_tree(lived(method), lived(method, mode))


@cache
def lived(method, around=nullcontext):
    """The state of a learner that was made, saved and loaded in some mode, and then went on in none."""
    learner = learners.small(method, {"name": "s6mod"})
    with around(), TemporaryDirectory() as folder:  # where batches, networks, teachers and moments are made
        learners.run(learner, 0, 3)
        learner.save(folder)
        learner = learners.run(Learner.load(folder), 3, 4)
    return learners.run(learner, 4, 5).state_dict()


def test_er_does_not_train_on_its_first_batch_but_stores_it():
    learner = small()
    learner.learn(*batch(0))
    assert learner.losses() == {}
    assert len(learner.memory) == 6
    learner.learn(*batch(1))
    assert learner.losses().keys() == {"ce"}


def test_er_replays_all_there_is_and_then_the_memory_batch(monkeypatch):
    learner = small()
    sizes = []
    forward = ResNet18.forward
    monkeypatch.setattr(ResNet18, "forward", lambda self, x: sizes.append(len(x)) or forward(self, x))
    for position in range(5):
        learner.learn(*batch(position))
    assert sizes == [12, 18, 18, 18]


def test_boundaries_mean_nothing_to_er():
    told, untold = small(), small(boundaries="none")
    for position in range(6):
        told.learn(*batch(position))
        untold.learn(*batch(position))
        told.end_task()
        untold.end_task()
    told, untold = told.state_dict(), untold.state_dict()
    assert_same_tree(told["peers"], untold["peers"])
    assert torch.equal(told["memory"]["images"], untold["memory"]["images"])


def test_a_method_that_needs_boundaries_says_so():
    with pytest.raises(ConfigError, match="boundaries='none'"):
        small("duo", boundaries="none")


def test_boundaries_can_be_assumed_when_new_classes_arrive():
    learner = small("duo", boundaries="on_new_class", boundary_patience=3)
    for position, classes in enumerate([(0, 1)] * 4 + [(0, 2)] + [(2, 3)] * 6 + [(4, 5)] * 2):
        learner.learn(*batch(position, classes=classes))
    assert learner.task.index == 2
    assert set(learner.task.current) == {4, 5}
    assert learner.peers[0].teacher is not None


def test_the_task_knows_what_is_seen_and_what_is_current():
    learner = small()
    learner.learn(*batch(0, classes=(3, 5)))
    learner.end_task()
    learner.learn(*batch(0, classes=(5, 7)))
    assert set(learner.task.seen) == {3, 5, 7}
    assert set(learner.task.current) == {5, 7}
    assert learner.task.index == 1


def test_ten_lines_on_ones_own_arrays():
    rng = np.random.default_rng(0)
    method = {"name": "er", "network": {"width": 8}, "memory_batch": 16}
    learner = Learner(method, branch="s6mod", num_classes=4, memory_size=100)
    for task in ((0, 1), (2, 3)):
        for _ in range(20):
            y = rng.choice(task, size=10)
            x = rng.random((10, 3, 16, 16)) * 0.3  # float in [0, 1]; class = where the bright bar is
            for i, label in enumerate(y):
                x[i, :, label * 4 : label * 4 + 4] += 0.6
            learner.learn(x, y)
        learner.end_task()
    predicted = learner.predict(x)
    assert isinstance(predicted, np.ndarray)
    assert predicted.shape == (10,)
    assert (predicted == y).mean() >= 0.5


def test_scores_name_their_tables_and_numpy_gives_numpy():
    learner = run(small("er", "s6mod"), 0, 3)
    x, _ = batch(0, size=7)
    tables = learner.scores(x)
    assert tables.keys() == {"head", "ncm", "branch"}
    assert all(table.shape == (7, 10) for table in tables.values())
    assert torch.equal(learner.predict(x), tables["head"].argmax(1))
    assert isinstance(learner.predict(x.numpy()), np.ndarray)
    assert methods["duo"] is Duo
    assert torch.equal(run(small("duo"), 0, 3).predict(x), run(small("duo"), 0, 3).scores(x)["ncm"].argmax(1))


def test_float_images_are_their_255ths():
    a, b = small(), small()
    for position in range(3):
        x, y = batch(position)
        a.learn(x, y)
        b.learn(x.double().numpy() / 255, y.numpy())
    assert_same_tree(a.state_dict(), b.state_dict())


def test_bytes_held_count_memory_network_moments_and_branch():
    base, branch = run(small(), 0, 2), run(small("er", "s6mod"), 0, 2)
    parameters = sum(p.numel() for p in base.peers[0].parameters())
    assert base.nbytes > 3 * 4 * parameters + 40 * 3 * 16 * 16
    assert branch.nbytes > base.nbytes


BAD_BATCHES = {
    "wrong number of axes": (torch.zeros(6, 16, 16, dtype=torch.uint8), torch.zeros(6, dtype=torch.int64)),
    "another size than before": (torch.zeros(6, 3, 20, 20, dtype=torch.uint8), torch.zeros(6, dtype=torch.int64)),
    "NaN pixels": (torch.full((6, 3, 16, 16), float("nan")), torch.zeros(6, dtype=torch.int64)),
    "pixels over 1": (torch.full((6, 3, 16, 16), 3.0), torch.zeros(6, dtype=torch.int64)),
    "integer pixels": (torch.zeros(6, 3, 16, 16, dtype=torch.int32), torch.zeros(6, dtype=torch.int64)),
    "empty": (torch.zeros(0, 3, 16, 16, dtype=torch.uint8), torch.zeros(0, dtype=torch.int64)),
    "label too large": (batch(0)[0], torch.full((6,), 10)),
    "label negative": (batch(0)[0], torch.full((6,), -1)),
    "label float": (batch(0)[0], torch.zeros(6)),
    "fewer labels": (batch(0)[0], torch.zeros(5, dtype=torch.int64)),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_bad_batches_are_refused_in_one_sentence_and_leave_no_trace(name):
    learner = run(small(), 0, 2)
    before = run(small(), 0, 2).state_dict()
    with pytest.raises(InputError, match=r"^expected [^\n]+, got [^\n]+; [^\n]+$"):
        learner.learn(*BAD_BATCHES[name])
    assert_same_tree(learner.state_dict(), before)


@pytest.mark.parametrize("method", ["ocm", "onpro", "ocm-ccldc"])
def test_an_image_too_small_to_be_learned_alone_is_refused_and_leaves_no_trace(method):
    learner, twin = (learners.run(learners.small(method), 0, 1) for _ in range(2))
    with pytest.raises(InputError, match=r"^expected at least two images of 8x8 pixels [^\n]+, got one[^\n]+; [^\n]+$"):
        learner.learn(*learners.batch(1, (5,), size=1))
    assert_same_tree(learner.state_dict(), twin.state_dict())


def test_a_step_that_fails_after_an_assumed_boundary_can_be_taken_again(monkeypatch):
    failing, straight = (run(small("duo", boundaries="on_new_class", boundary_patience=2), 0, 4) for _ in range(2))
    new = batch(4, classes=(8, 9))
    with monkeypatch.context() as patch:
        patch.setattr(failing, "step", lambda inputs: pytest.fail("no room"))
        with pytest.raises(pytest.fail.Exception):
            failing.learn(*new)
    assert (failing.task.index, failing.task.seen) == (1, straight.task.seen)
    for learner in (failing, straight):
        learner.learn(*new)
    assert failing.state_dict()["host"] == straight.state_dict()["host"]


def test_a_pinned_buffer_may_be_filled_anew_while_the_device_has_yet_to_read_it(monkeypatch):
    learner, (x, y), handed = run(small(), 0, 1), batch(1), []
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: True)
    monkeypatch.setattr(learner, "step", lambda inputs: handed.append(inputs.stream) or ())
    expected = x.clone(), y.clone()
    learner.learn(x, y)
    x.zero_()
    y.zero_()
    assert torch.equal(handed[0].images, expected[0])
    assert torch.equal(handed[0].labels, expected[1])


def test_a_batch_beyond_memory_is_told_in_a_sentence_and_smaller_ones_are_learned(monkeypatch):
    learner = run(small(), 0, 1)
    with monkeypatch.context() as patch:
        patch.setattr(learner.memory, "place", lambda *given: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(ResourceError, match=r"^expected enough memory for a batch of \d+ images, got: .*; give"):
            learner.learn(*batch(1))
    learner.learn(*batch(1))
    assert learner.steps == 2


def test_a_step_that_fails_leaves_memory_and_its_bookkeeping_in_agreement(monkeypatch):
    learner = run(small(), 0, 3)

    def fail(inputs):
        raise torch.OutOfMemoryError("not enough")

    with monkeypatch.context() as patch:
        patch.setattr(learner, "step", fail)
        with pytest.raises(torch.OutOfMemoryError):
            learner.learn(*batch(3))
    run(learner, 4, 6)
    assert torch.equal(
        learner.memory.device_labels[: len(learner.memory)], learner.memory.labels[: len(learner.memory)]
    )
    assert learner.memory.seen == 5 * 6


def test_a_score_table_that_is_not_there_is_refused():
    learner = run(small("er"), 0, 2)
    x, _ = batch(0)
    assert list(learner.scores(x, only="head")) == ["head"]
    for asked, known in ((learner, "head, ncm"), (learner.publish(), "head")):
        with pytest.raises(InputError, match=rf"^expected a score table that there is, got 'had'; choose .+ {known}$"):
            asked.scores(x, only="had")


def test_predict_forwards_the_memory_only_where_the_prediction_needs_it(monkeypatch):
    er, duo = run(small(), 0, 3), run(small("duo"), 0, 3)
    sizes = []
    forward = ResNet18.forward
    monkeypatch.setattr(ResNet18, "forward", lambda self, x: sizes.append(len(x)) or forward(self, x))
    er.predict(batch(0)[0])
    assert sizes == [6]
    sizes.clear()
    duo.predict(batch(0)[0])
    duo.predict(batch(1)[0])
    assert sizes == [18, 18, 6, 6, 6, 6]  # two peers; the memory once


def test_a_method_that_changes_its_networks_at_a_boundary_predicts_with_the_new_ones(monkeypatch):
    def end_task(method, peers):
        for peer in peers:
            torch.nn.init.normal_(peer.network.stem[0].weight)

    monkeypatch.setattr(methods["duo"], "end_task", end_task)
    learner = run(small("duo"), 0, 3)
    x = batch(9)[0]
    before = learner.scores(x)["ncm"]
    learner.end_task()
    fresh = learner.predictor()(x)["ncm"]
    assert not torch.equal(fresh, before)
    assert torch.equal(learner.scores(x)["ncm"], fresh)


def test_losses_start_anew_after_each_reading():
    learner = small("duo")
    for position in range(6):
        learner.learn(*batch(position, classes=range(4)))
    learner.end_task()
    learner.learn(*batch(6, classes=range(4)))
    once = learner.losses()
    learner.learn(*batch(7, classes=range(4)))
    again = learner.losses()
    assert "net1/distil" in once
    assert again.keys() == once.keys()
    assert learner.losses() == {}


def test_a_term_that_some_steps_lack_is_averaged_over_those_that_have_it():
    ledger = Ledger()
    for step in range(4):
        terms = {"always": torch.tensor(2.0)} | ({"late": torch.tensor(6.0)} if step == 3 else {})
        ledger.add(terms)
        ledger.count(terms)
    assert ledger.read() == {"always": 2.0, "late": 6.0}
    ledger.add({"always": torch.tensor(1.0)})
    ledger.count(["always"])
    assert ledger.read() == {"always": 1.0}


def test_predicting_before_learning_is_refused():
    with pytest.raises(InputError, match="learn first"):
        small().predict(batch(0)[0])


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"method": {"name": "er", "memory_bach": 3}}, "memory_batch"),
        ({"method": {"name": "er", "optimizer": {"lrr": 0.1}}}, "lr"),
        ({"method": "errr"}, "did you mean 'er'.*import its module first"),
        ({"branch": {"alpha": 1.0}}, "expected a branch for its option 'alpha', got none; name one: confidence"),
        ({"branch": "s6mood"}, "did you mean 's6mod'"),
        ({"branch": "mkd"}, "expected a branch, got the teacher 'mkd'; write teacher='mkd'"),
        ({"device": "cpu"}, "got 'device'; did you mean engine={'device': ...}\\?"),
        ({"lr": 0.1}, "did you mean method={'optimizer': {'lr': ...}}\\?"),
        ({"method": "er", "lr": 0.1}, "did you mean method={'name': 'er', 'optimizer': {'lr': ...}}\\?"),
        ({"branch": {"name": "s6mod", "alpa": 1.0}}, "alpha"),
        ({"engine": {"devise": "cpu"}}, "device"),
        ({"memory_size": 0}, "memory_size"),
        ({"boundaries": "sometimes"}, "boundaries"),
    ],
)
def test_unknown_keys_name_the_nearest_known_one(options, hint):
    with pytest.raises(ConfigError, match=hint):
        Learner(**{"num_classes": 10} | options)


def test_d_smaller_than_the_number_of_classes_is_refused():
    with pytest.raises(ConfigError, match="d_inner"):
        small("er", {"name": "s6mod", "d_inner": 8})


def test_a_state_from_another_kind_of_device_goes_on_with_fresh_draws(tmp_path):
    learner = run(small("er", "s6mod"), 0, 4)
    state = learner.state_dict()
    state["generators"]["method"] = torch.zeros(16, dtype=torch.uint8)  # as a CUDA generator's state
    other = small("er", "s6mod")
    other.load_state_dict(state, (3, 16, 16))
    assert_same_tree(state["peers"], other.state_dict()["peers"])
    run(other, 4, 6)


def test_a_state_tells_the_shape_of_its_images_and_one_that_does_not_is_told():
    state = run(small("er", "s6mod"), 0, 4).state_dict()
    told, telling = small("er", "s6mod"), small("er", "s6mod")
    telling.load_state_dict(state)
    older = {**state, "host": {key: value for key, value in state["host"].items() if key != "image_shape"}}
    told.load_state_dict(older, (3, 16, 16))
    for learner in (told, telling):
        assert_same_tree(state, learner.state_dict())


def test_a_state_that_has_learned_without_images_is_refused():
    state = run(small("onpro"), 0, 4).state_dict()
    state["host"]["image_shape"] = None  # its parts would be made anew, in the middle of a stream
    with pytest.raises(ValueError, match="batches that were learned by nothing"):
        small("onpro").load_state_dict(state)


def test_a_device_may_be_named_or_given(tmp_path):
    run(small(), 0, 2).save(tmp_path)
    for device in ("cpu", torch.device("cpu")):
        learner = Learner.load(tmp_path, device)
        learner.save(tmp_path)
        assert learner.config.engine.device == "cpu"
    with pytest.raises(ConfigError, match="expected a device such as auto, cpu or cuda:0, got '0'"):
        Learner.load(tmp_path, 0)


def test_a_state_from_a_gpu_says_how_to_load_it_where_there_is_none(tmp_path, monkeypatch):
    run(small(), 0, 2).save(tmp_path)
    state, header = read_state(tmp_path)
    header["config"]["engine"]["device"] = "cuda:1"
    write_state(tmp_path, state, header)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        ConfigError, match=rf"got a machine without it; use Learner\.load\('{tmp_path}', device='cpu'\)"
    ):
        Learner.load(tmp_path)
    assert Learner.load(tmp_path, device="cpu").steps == 2


def test_an_unused_learner_has_no_figures_losses_or_bytes():
    assert (small().figures(), small().losses(), small().nbytes) == ({}, {}, 0)


@pytest.mark.parametrize("name", ["method", "peers", "optimizer", "memory", "ledger"])
def test_an_unused_learner_says_when_it_will_have_what_it_lacks(name):
    learner = small()
    assert not hasattr(learner, name)
    with pytest.raises(AttributeError, match=rf"no '{name}' before its first batch; call learn\(\) or build\(\) first"):
        getattr(learner, name)
    with pytest.raises(AttributeError, match=r"has no 'memori'$"):
        _ = learner.memori
    with pytest.raises(AttributeError, match=r"has no 'partial_fit'; call learn\(\), or see s6mod\.interfaces"):
        _ = learner.partial_fit


def test_numbers_of_numpy_are_numbers_anywhere_in_a_configuration():
    method = {
        "name": "er",
        "memory_batch": np.int64(12),
        "optimizer": {"lr": np.float32(0.5), "betas": [np.float16(0), 0.5]},
    }
    ours = Learner(method, num_classes=np.int64(10), boundary_patience=np.uint8(3), engine={"eval_batch": np.int32(7)})
    plain = {"name": "er", "memory_batch": 12, "optimizer": {"lr": 0.5, "betas": [0.0, 0.5]}}
    assert ours.config == Learner(plain, num_classes=10, boundary_patience=3, engine={"eval_batch": 7}).config
    with pytest.raises(ConfigError, match="memory_batch"):
        Learner({"name": "er", "memory_batch": np.float32(12)}, num_classes=10)
    with pytest.raises(ConfigError, match="expected plain values"):
        Learner({"name": "er", "memory_batch": {1, 2}}, num_classes=10)


def test_a_state_without_a_configuration_is_refused(tmp_path):
    write_state(tmp_path, {}, {"kind": "run"})
    with pytest.raises(CheckpointError, match="saved learner or run"):
        Learner.load(tmp_path)
