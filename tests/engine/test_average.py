"""Averaged weights: what they are, that they leave learning alone, and that they survive a save."""

import pytest
import torch
from fakes import Duo
from states import assert_same_tree, trees_differ
from torch import nn

import learners
from s6mod import Learner
from s6mod.checks.blind import blind
from s6mod.engine.average import Average

assert Duo  # registers the method "duo"

S6MOD = {"name": "s6mod"}
SETTINGS = [("er", None), ("er", S6MOD), ("er-ccldc", None), ("er-ccldc", S6MOD), ("mose", None), ("mose", S6MOD)]
DECAY = 0.3  # so that the rate falls to 1 - DECAY within a few steps


def side(method):
    return 32 if method == "mose" else 8


def tensors(peer):
    """Parameters and buffers of what predicts, by name."""
    parts = {"network": peer.network, "branch": peer.branch}
    return {
        f"{part}.{name}": tensor
        for part, module in parts.items()
        if module is not None
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }


@pytest.mark.parametrize(("method", "branch"), SETTINGS)
def test_an_average_is_what_its_formula_gives_step_by_step(method, branch):
    learner = learners.small(method, branch, average=DECAY)
    learners.run(learner, 0, 1, side(method))  # ER and MOSE only store it
    expected = [{name: t.detach().clone() for name, t in tensors(peer).items()} for peer in learner.average.modules]
    for step in range(1, 6):
        learners.run(learner, step, step + 1, side(method))
        rate = max(1 - DECAY, 9 / (9 + step))
        for mean, peer in zip(expected, learner.peers, strict=True):
            for name, w in tensors(peer).items():
                mean[name] = mean[name] + rate * (w.detach() - mean[name]) if w.is_floating_point() else w.clone()
    assert learner.average.updates == 5
    assert rate == 1 - DECAY
    for mean, averaged, peer in zip(expected, learner.average.modules, learner.peers, strict=True):
        found, latest = tensors(averaged), tensors(peer)
        assert found.keys() == mean.keys()
        for name, tensor in found.items():
            torch.testing.assert_close(tensor, mean[name], msg=name)
            assert not tensor.requires_grad
        counts = [name for name in found if name.endswith("num_batches_tracked")]
        assert counts
        assert all(torch.equal(found[name], latest[name]) for name in counts)
        moved = ("network.stem.0.weight", "network.stem.1.running_mean")
        assert all(not torch.equal(found[name], latest[name]) for name in moved)


def test_it_starts_as_a_copy_and_a_batch_that_is_only_stored_does_not_move_it():
    learner = learners.small("er", S6MOD, average=DECAY)
    learners.run(learner, 0, 1)
    began = learner.average.modules[0].state_dict()
    assert_same_tree(learner.peers[0].state_dict(), began)
    began = {name: tensor.clone() for name, tensor in began.items()}
    learners.run(learner, 1, 2)
    assert trees_differ(began, learner.average.modules[0].state_dict())


@pytest.mark.parametrize(("method", "branch"), [*SETTINGS, ("duo", S6MOD)])
def test_learning_is_the_same_with_an_average_and_without_one_the_state_does_not_know_it(method, branch):
    plain = learners.run(learners.small(method, branch), 0, 5, side(method)).state_dict()
    learner = learners.run(learners.small(method, branch, average=DECAY), 0, 5, side(method))
    averaged = learner.state_dict()
    assert "average" not in plain
    assert averaged.pop("average").keys() == {"updates", *plain["peers"]}
    assert_same_tree(plain, averaged)


@pytest.mark.parametrize(("method", "branch"), [*SETTINGS, ("duo", S6MOD)])
def test_resumed_is_uninterrupted_to_the_bit(tmp_path, method, branch):
    straight = learners.run(learners.small(method, branch, average=DECAY), 0, 6, side(method))
    for stop in (0, 1, 4):
        half = learners.run(learners.small(method, branch, average=DECAY), 0, stop, side(method))
        half.save(tmp_path / str(stop))
        resumed = learners.run(Learner.load(tmp_path / str(stop)), stop, 6, side(method))
        assert_same_tree(straight.state_dict(), resumed.state_dict())
        x, _ = learners.batch(0, (0, 1), 4, side(method))
        assert torch.equal(straight.predict_proba(x), resumed.predict_proba(x))


def test_the_average_predicts_and_an_old_one_does_not():
    latest, averaged = (learners.run(learners.small("er", average=a), 0, 5) for a in (None, DECAY))
    x, _ = learners.batch(9, (0, 1), 4)
    peer = averaged.average.modules[0]
    with torch.inference_mode():
        expected = peer.network.eval()(averaged.method.prepare(x)).logits
    assert torch.equal(averaged.scores(x)["head"], expected)
    assert not torch.equal(latest.scores(x)["head"], expected)
    averaged.learn(*learners.batch(6, (4, 5)))
    assert not torch.equal(averaged.scores(x)["head"], expected)


def test_bytes_of_the_copies_count():
    plain, averaged = (learners.run(learners.small("er", S6MOD, average=a), 0, 3) for a in (None, DECAY))
    held = sum(t.numel() * t.element_size() for t in tensors(plain.peers[0]).values())
    assert averaged.nbytes - plain.nbytes == held + 4  # and a count


def test_the_update_reads_nothing_back():
    learner = learners.small("er", S6MOD, average=DECAY)
    learner.build((3, 8, 8))
    blind(learner.step)
    learners.run(learner, 0, 3)


def test_any_modules_can_be_averaged_in_place():
    """As a teacher would be that a step reads: it stays where it was."""
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    average = Average([module], 0.75)
    average.updates.fill_(100)  # far enough for the rate to be a quarter
    places = [t.data_ptr() for t in average.modules[0].state_dict().values()]
    before = module[0].weight.detach().clone()
    with torch.no_grad():
        module[0].weight.add_(4.0)
        module[1].num_batches_tracked.fill_(7)
    average.update()
    torch.testing.assert_close(average.modules[0][0].weight, before + 1.0)
    assert average.modules[0][1].num_batches_tracked == 7
    assert [t.data_ptr() for t in average.modules[0].state_dict().values()] == places
