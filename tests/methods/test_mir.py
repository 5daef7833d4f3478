import copy
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from learners import MEMORY, STREAM, batch, run, small, untaken
from s6mod.checks.candidate import flat
from s6mod.errors import ConfigError
from s6mod.methods import Batch
from s6mod.methods.mir import MIRConfig, Views

mir = partial(small, "mir")
LARGE = {"optimizer": {"lr": 0.1}}  # so that losses rise by more than rounding


def slow_rise(learner, view, labels, rows):
    """By a copy of the network that really takes the step, parameter by parameter."""
    network = copy.deepcopy(learner.peers[0].network)
    images = learner.memory.images[rows].float() / 255
    found = []
    for move in (False, True):
        if move:
            F.cross_entropy(network(view).logits, labels).backward()
            with torch.no_grad():
                for p in network.parameters():
                    p -= learner.config.method.optimizer.lr * p.grad
        logits = network(images).logits.detach()
        targets = learner.memory.labels[rows]
        found.append([F.cross_entropy(z[None], y[None]).item() for z, y in zip(logits, targets, strict=True)])
    return [after - before for before, after in zip(*found, strict=True)]


def test_replayed_are_the_candidates_whose_loss_rises_most_by_a_step_on_the_stream():
    learner = run(mir(method={"candidates": 9, **LARGE}), 0, 6)  # 12 rows
    network = learner.peers[0].network
    x, y = batch(6, (4, 5))
    before = copy.deepcopy(learner.state_dict())
    step = untaken(learner, x, y)
    rows = step.plan.rows["candidates"]
    assert len(rows) == 9
    assert [len(view) for view in step.inputs] == [STREAM, 9, 9, MEMORY + STREAM]
    network.load_state_dict(before["peers"]["0"]["network"])
    rise = slow_rise(learner, step.inputs[0], y, rows)
    best = sorted(range(9), key=lambda i: -rise[i])[:MEMORY]
    assert rise[best[-1]] - sorted(rise)[-MEMORY - 1] > 1e-4  # no tie
    labels = learner.memory.labels[rows[best]].tolist() + y.tolist()
    assert step.tap.targets.labels.tolist() == labels
    torch.testing.assert_close(step.terms["ce"], F.cross_entropy(step.outputs[-1].logits, torch.tensor(labels)))
    assert torch.equal(step.inputs[-1][MEMORY:], step.inputs[0])  # the stream has one view
    assert step.terms.keys() == {"ce"}


def look_ahead(learner, x, y):
    stored = Batch(learner.memory.images[:12], learner.memory.labels)
    views = Views(Batch(x, y), learner.method.prepare(x), stored, True)
    return learner.method.rise(learner.peers[0].network, views), views


def test_the_rise_of_each_candidate_is_that_of_a_network_that_takes_the_step():
    learner = run(mir(method=LARGE), 0, 6)
    x, y = batch(6, (4, 5))
    rise, views = look_ahead(learner, x, y)
    by_hand = slow_rise(learner, views.view, y, torch.arange(12))
    assert rise.tolist() == pytest.approx(by_hand, rel=1e-3, abs=1e-4)
    assert max(map(abs, by_hand)) > 0.05


def gradients_of_a_pass(network):
    view = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    loss = network(view).logits.float().square().sum()
    return torch.autograd.grad(loss, list(network.parameters()))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_looking_ahead_leaves_no_trace_in_parameters_averages_and_gradients(precision):
    learner = run(mir(engine={"device": "cpu", "precision": precision}), 0, 6)
    before = {path: copy.deepcopy(leaf) for path, leaf in flat(learner.state_dict()).items()}
    learner.optimizer.zero_grad(set_to_none=True)
    with learner.engine.autocast():
        rise, _ = look_ahead(learner, *batch(6, (4, 5)))
        assert all(p.grad is None for p in learner.peers[0].network.parameters())
        # Nor in what autocast keeps: gradients of a later pass are those of a network that has not looked.
        learned = gradients_of_a_pass(learner.peers[0].network)
    untouched = copy.deepcopy(learner.peers[0].network)
    with learner.engine.autocast():
        for ours, theirs in zip(learned, gradients_of_a_pass(untouched), strict=True):
            assert torch.equal(ours, theirs)
    assert rise.dtype == torch.float32
    assert not rise.requires_grad
    after = flat(learner.state_dict())
    for path, leaf in before.items():
        if "running" not in path and "tracked" not in path:  # by the last pass above
            assert torch.equal(after[path], leaf) if isinstance(leaf, torch.Tensor) else after[path] == leaf, path


def test_the_averages_of_batchnorm_take_in_the_learned_pass_alone():
    learner = run(mir(), 0, 6)
    counted = learner.peers[0].network.stem[1].num_batches_tracked.item()
    assert len(untaken(learner, *batch(6, (4, 5))).inputs) == 4
    assert learner.peers[0].network.stem[1].num_batches_tracked.item() == counted + 1


def test_with_no_more_candidates_than_are_replayed_all_are_and_nobody_looks_ahead():
    learner = mir()
    learner.build((3, 8, 8))
    x, y = batch(0, (0, 1))
    assert learner.method.plan(y, learner.memory, learner.task, learner.host_generator) is None  # only stored
    learner.learn(x, y)
    step = untaken(learner, x, y)
    assert (step.plan.path, len(step.inputs)) == (("all",), 1)
    assert step.tap.targets.labels.tolist() == [0, 1, 0, 1]
    learner.learn(*batch(1, (0, 1)))
    step = untaken(learner, x, y)
    assert (step.plan.path, len(step.plan.rows["candidates"]), len(step.inputs)) == (("choose",), 4, 4)


def test_fewer_candidates_than_are_replayed_are_refused_in_a_sentence():
    assert MIRConfig().candidates == 128
    with pytest.raises(ConfigError, match=r"expected at least as many candidates as are replayed \(64\), got 50;"):
        MIRConfig.parse({"name": "mir", "candidates": 50})


def test_a_memory_that_leaves_nothing_to_choose_is_refused_in_a_sentence():
    with pytest.raises(ConfigError, match=r"than MIR replays \(3\), .* got memory_size=3; raise it or lower"):
        run(mir(memory_size=3), 0, 1)


def test_a_branch_sees_what_er_would():
    learner = run(mir({"name": "confidence"}), 0, 6)
    step = untaken(learner, *batch(6, (4, 5)))
    assert step.tap.logits is step.outputs[-1].logits
    assert step.tap.again().shape == step.tap.feature_map.shape
