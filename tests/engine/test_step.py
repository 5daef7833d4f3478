"""Optimisers by name: what they compute, and how their state is saved, grown and resumed."""

from dataclasses import replace

import pytest
import torch
from states import assert_same_tree
from torch import nn

import learners
from s6mod import Learner
from s6mod.engine.step import load_optimizer_state, make_optimizer, optimizer_state
from s6mod.errors import ConfigError
from s6mod.learner.classes import FIRST_CAPACITY
from s6mod.methods.base import OptimizerConfig

SGD = {"name": "sgd", "lr": 0.05}


class Lone(nn.Module):
    """Two parameters in the place of a peer."""

    def __init__(self):
        super().__init__()
        self.w, self.late = nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(4))

    def learned_parameters(self):
        return [self.w, self.late]


def sgd(peer, **options):
    return make_optimizer(OptimizerConfig.parse(SGD | options), [peer], torch.device("cpu"))


def small(optimizer=SGD, **options):
    return learners.small("er", method={"optimizer": optimizer}, **options)


def test_sgd_takes_steps_of_momentum_with_the_decay_in_the_gradient():
    peer = Lone()
    optimizer, velocity, w = sgd(peer, momentum=0.5, weight_decay=0.1), torch.zeros(2, 3), torch.ones(2, 3)
    for gradient in (1.0, -2.0, 3.0):
        peer.w.grad = torch.full((2, 3), gradient)
        optimizer.step()
        velocity = 0.5 * velocity + gradient + 0.1 * w
        w = w - 0.05 * velocity
        torch.testing.assert_close(peer.w.detach(), w)


def test_sgd_takes_a_gradient_that_comes_later_than_others():
    peer = Lone()
    optimizer = sgd(peer)
    peer.w.grad = torch.ones(2, 3)
    optimizer.step()
    assert list(optimizer_state(optimizer, [peer])) == ["0"]
    peer.late.grad = torch.ones(4)
    optimizer.step()
    torch.testing.assert_close(peer.late.detach(), torch.full((4,), 0.95))


def test_a_state_of_another_optimiser_is_refused():
    for name, saved in (("adam", {"momentum_buffer": torch.ones(2, 3)}), ("sgd", {"exp_avg": torch.ones(2, 3)})):
        peer = Lone()
        optimizer = make_optimizer(OptimizerConfig.parse({"name": name}), [peer], torch.device("cpu"))
        with pytest.raises(ValueError, match="moments of parameter 0"):
            load_optimizer_state(optimizer, [peer], {"0": saved})


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_resumes_to_the_bit(tmp_path, momentum):
    optimizer = SGD | {"momentum": momentum}
    straight = learners.run(small(optimizer), 0, 4)
    learners.run(small(optimizer), 0, 3).save(tmp_path)
    assert_same_tree(straight.state_dict(), learners.run(Learner.load(tmp_path), 3, 4).state_dict())
    kept = {name for state in straight.state_dict()["optimizer"].values() for name in state}
    assert kept == ({"momentum_buffer"} if momentum else set())


def test_momentum_is_kept_when_a_learner_grows_and_new_classes_begin_with_none():
    learner = learners.run(small(num_classes=None), 0, 2)
    before = learner.state_dict()["optimizer"]
    head = str([name for name, _ in learner.peers[0].network.named_parameters()].index("head.weight"))
    learner._grow(learner.parts, 2 * FIRST_CAPACITY)
    after = learner.state_dict()["optimizer"]
    assert_same_tree(before["0"], after["0"])
    rows = after[head]["momentum_buffer"]
    assert torch.equal(rows[:FIRST_CAPACITY], before[head]["momentum_buffer"])
    assert not rows[FIRST_CAPACITY:].any()


def test_an_optimiser_nobody_knows_is_refused():
    with pytest.raises(ConfigError, match="sgd"):
        small({"name": "lion"})


LACKING = {
    "Losses from": lambda losses: losses.terms,
    "at least one term": lambda losses: replace(losses, terms={}),
    "terms that are tensors of one number": lambda losses: replace(losses, terms={"ce": losses.terms["ce"].repeat(2)}),
    "a tap for the branch or teacher": lambda losses: replace(losses, tap=None),
}


@pytest.mark.parametrize(("expected", "spoil"), LACKING.items(), ids=list(LACKING))
def test_whoever_writes_a_method_is_told_what_its_losses_lack(monkeypatch, expected, spoil):
    learner = learners.run(learners.small("er", {"name": "confidence"}), 0, 1)
    given = learner.method.losses
    monkeypatch.setattr(learner.method, "losses", lambda *asked: spoil(given(*asked)))
    with pytest.raises(ConfigError, match=f"expected {expected}.* losses.* of method 'er', got "):
        learner.learn(*learners.batch(1, (0, 1)))


def test_a_method_that_nothing_is_plugged_into_needs_no_tap(monkeypatch):
    learner = learners.run(learners.small("er"), 0, 1)
    given = learner.method.losses
    monkeypatch.setattr(learner.method, "losses", lambda *asked: replace(given(*asked), tap=None))
    learner.learn(*learners.batch(1, (0, 1)))
