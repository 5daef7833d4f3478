"""``engine.kernels``: which of kernels and plain twins a learner runs, and that both take the same steps."""

from threading import Event, Thread

import pytest
import torch
from states import assert_same_tree
from torch.nn.functional import one_hot

import learners
from interpreter import DEVICES, INTERPRETED, assert_holds_interpreted, starts_the_interpreter
from s6mod import Learner, kernels
from s6mod.kernels import kernels_for, plain_twins
from s6mod.methods import methods

ALL = [(m, b) for m in learners.METHODS for b in (None, "s6mod") if b is None or methods[m].has_logits]
SOME = [("er", "s6mod"), ("mose", None), ("ocm", None), ("onpro-ccldc", "s6mod")]  # all kernels are among them
APART = {"gdumb", "mir"}  # one takes no steps; the other replays what has the largest loss, which rounding decides
PAIRS = [("er", "s6mod")] if INTERPRETED else [pair for pair in ALL if pair[0] not in APART]
ALIKE = 1e-3  # float32 sums in another order, with room
WHOLE_LEVELS = ("net1/kd", "net2/kd")  # of views in whole levels, some of which rounding decides
GRADIENTS = 0.1  # of one parameter of a small network, where a ReLU at 0 is open for one and closed for the other
TASK = 7  # steps of a task


@starts_the_interpreter
def test_the_statements_below_hold_in_the_interpreter(tmp_path):
    assert_holds_interpreted(__file__, tmp_path)


# --- which of them run ----------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch):
    """Modules of kernels that are asked for, as if they could run here; none is given."""
    found = []
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(kernels, "_kernels", found.append)
    return found


def small(method, branch, setting):
    given = branch and {"name": branch}
    return learners.small(method, given, statistics="memory", engine={"device": "cpu", "kernels": setting})


@starts_the_interpreter
@pytest.mark.parametrize(("method", "branch"), SOME)
def test_no_step_and_no_prediction_asks_for_kernels_that_are_off(asked, method, branch):
    images, _ = learners.batch(0, (0, 1))
    for setting in ("auto", "off"):
        learner = small(method, branch, setting)
        for act in (
            lambda learner=learner: learners.run(learner, 0, 4),
            lambda learner=learner: learner.predictor(),  # which takes statistics of the memory
            lambda learner=learner: learner.scores(images),
            lambda learner=learner: list(learner.predictor().outputs(images)),
        ):
            asked.clear()
            act()
            assert bool(asked) == (setting == "auto")


def test_off_is_off_for_one_learner_and_not_for_the_next(asked):
    learners.run(small("er", "s6mod", "off"), 0, 4)
    assert not asked
    learners.run(small("er", "s6mod", "auto"), 0, 4)
    assert {name.rpartition(".")[2] for name in asked} == {
        "kornia_like_triton", "norm_triton", "convolution_triton", "gate_triton", "losses_triton", "readout_triton",
        "routing_triton", "scan_triton",
    }  # fmt: skip


def test_the_context_holds_for_its_thread_alone_and_ends_with_an_error(asked):
    x, inside, done = torch.zeros(1), Event(), Event()

    def beside():
        with plain_twins():
            inside.set()
            done.wait(10)

    thread = Thread(target=beside)
    thread.start()
    assert inside.wait(10)
    kernels_for(x, "mine")
    done.set()
    thread.join()
    assert asked == ["mine"]

    def fails():
        with plain_twins():
            kernels_for(x, "plain")
            raise ValueError("in there")

    with pytest.raises(ValueError, match="in there"):
        fails()
    kernels_for(x, "mine again")
    assert asked == ["mine", "mine again"]


@pytest.mark.parametrize("device", DEVICES)
def test_kernels_run_unless_they_are_off(monkeypatch, device):
    find, found = kernels._kernels, []
    monkeypatch.setattr(kernels, "_kernels", lambda module: found.append(find(module)) or found[-1])
    for setting in ("auto", "off"):
        found.clear()
        learner = learners.small("er", {"name": "s6mod"}, engine={"device": device, "kernels": setting})
        learners.run(learner, 0, 2).scores(learners.batch(0, (0, 1))[0])
        assert bool(found) == (setting == "auto")
        assert None not in found


@starts_the_interpreter
@pytest.mark.parametrize(("method", "branch"), ALL)
def test_no_backward_pass_chooses_anew(monkeypatch, method, branch):
    """On a GPU it runs in a thread of autograd's, which does not know what its learner has set."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    asked_in = []  # the backward pass in which it is asked, -1: in none
    monkeypatch.setattr(kernels, "_kernels", lambda module: asked_in.append(torch._C._current_graph_task_id()))
    learners.run(small(method, branch, "auto"), 0, 4).predictor()  # before which one method trains
    assert set(asked_in) == {-1}


# --- what they compute ----------------------------------------------------------------------------------------


@pytest.fixture
def full_float32(monkeypatch):
    """No convolution rounds to ten bits, and no learner of another test has asked for deterministic algorithms."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    yield
    torch.use_deterministic_algorithms(before)


def learner_of(method, branch, setting, device):
    given = branch and {"name": branch, "d_inner": 16, "num_patterns": 3}
    engine = {"device": device, "precision": "float32", "kernels": setting}
    described = {"name": method, "network": {"width": 8}, "memory_batch": 24}
    return Learner(described, given, num_classes=10, memory_size=60, engine=engine)


def batches(count):
    random = torch.Generator().manual_seed(0)
    for position in range(count):
        labels = torch.randint(2 + 2 * (position // TASK), (10,), generator=random)
        shades = 20 * one_hot(labels, 10)[:, :3, None, None]  # something to learn
        yield position, torch.randint(200, (10, 3, 16, 16), generator=random).add(shades).to(torch.uint8), labels


def moved(learner):
    """All that a step moves in place: parameters and buffers, then the moments of the optimiser."""
    modules = (learner.method, *learner.peers)
    values = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
    kept = [learner.optimizer.state[p] for group in learner.optimizer.param_groups for p in group["params"]]
    return values + [state[name] for state in kept for name in sorted(state)]


@torch.no_grad()
def set_off_together(ours, theirs):
    """Put ``theirs`` where ``ours`` stands. In place, so that captured steps go on.

    A network that learns magnifies any difference tenfold with each step, and soon it is no longer of rounding that a
    comparison would speak. So each step is compared from one and the same place.
    """
    for mine, its in zip(moved(ours), moved(theirs), strict=True):
        its.copy_(mine)


def gradients(learner):
    """The running means of the gradients, by the number of the parameter: linear in the latest, as steps are not."""
    parameters = [p for group in learner.optimizer.param_groups for p in group["params"]]
    found = {number: learner.optimizer.state[p].get("exp_avg") for number, p in enumerate(parameters)}
    return {number: mean.cpu() for number, mean in found.items() if mean is not None}


def assert_steps_alike(ours, theirs, steps, alike=ALIKE, gradients_alike=GRADIENTS):
    """That every step has the same terms and leaves the same gradients, but for these parts of them."""
    taken = 0
    for position, x, y in batches(steps):
        for one in (ours, theirs):
            one.learn(x, y)
        terms, expected = ours.losses(), theirs.losses()
        for name in set(WHOLE_LEVELS) & terms.keys():
            assert terms.pop(name) == pytest.approx(expected.pop(name), rel=20 * alike), (position, name)
        assert terms == pytest.approx(expected, rel=alike, abs=alike / 1000), position
        taken += bool(terms)
        if terms:
            mine, its = gradients(ours), gradients(theirs)
            assert mine.keys() == its.keys()
            whole = torch.stack([mean.norm() for mean in its.values()]).norm()
            for number, mean in its.items():
                # Where a gradient is 0 but for rounding, as before a norm, there is nothing to be near to.
                apart, least = (mine[number] - mean).norm(), ALIKE * whole
                assert apart <= gradients_alike * max(mean.norm(), least), (position, number)
            set_off_together(ours, theirs)
        if position % TASK == TASK - 1:
            for one in (ours, theirs):
                one.end_task()
    assert taken >= steps - 1  # the first may only store


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("method", "branch"), PAIRS)
def test_kernels_take_the_steps_of_their_plain_twins(full_float32, method, branch, device):
    ours, theirs = (learner_of(method, branch, setting, device) for setting in ("auto", "off"))
    assert_steps_alike(ours, theirs, 20 if device == "cuda" else 2)
    if device == "cuda":
        assert len(ours.step.graphs) >= 1
        assert len(theirs.step.graphs) >= 1
    _, x, _ = next(batches(1))
    scores, expected = ours.scores(x), theirs.scores(x)
    assert scores.keys() == expected.keys()
    for name, table in expected.items():
        torch.testing.assert_close(scores[name], table, rtol=ALIKE, atol=ALIKE)


@pytest.mark.skipif(INTERPRETED, reason="is of a CPU without kernels")
@pytest.mark.parametrize(("method", "branch"), [("er", "s6mod"), ("mose", None)])
def test_on_a_cpu_both_settings_are_equal_to_the_bit(method, branch):
    ours, theirs = (learner_of(method, branch, setting, "cpu") for setting in ("auto", "off"))
    assert_steps_alike(ours, theirs, 3, alike=0.0, gradients_alike=0.0)
    assert_same_tree(ours.state_dict(), theirs.state_dict())


@starts_the_interpreter
@pytest.mark.parametrize("wrong", ["forwards", "backwards"])
def test_a_step_that_is_a_little_wrong_is_noticed(wrong):
    ours, theirs = (learner_of("er", None, "auto", "cpu") for _ in range(2))
    theirs.build((3, 16, 16))
    weight = theirs.peers[0].network.stem[0].weight
    if wrong == "forwards":
        weight.data[0] *= -1
    else:
        weight.register_hook(lambda gradient: 1.3 * gradient)
    with pytest.raises(AssertionError):
        assert_steps_alike(ours, theirs, 3)
