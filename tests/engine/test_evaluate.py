"""Predicting by statistics of the memory: what they are of, what they leave alone, and that they are what is used."""

import pytest
import torch
from states import assert_same_tree
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from s6mod import Learner
from s6mod.data import load
from s6mod.engine import evaluate
from s6mod.methods import methods

DIGITS = load("digits")
IMAGES, LABELS = DIGITS.train_images[:, :, ::2, ::2], DIGITS.train_labels  # 16x16


def learned(method="er", branch=None, steps=8, after=None, **options):
    options = {"num_classes": 10, "memory_size": 30, "engine": {"device": "cpu"}} | options
    learner = Learner({"name": method, "network": {"width": 4}}, branch, **options)
    for step in range(steps):
        rows = slice(6 * step, 6 * step + 6)
        learner.learn(IMAGES[rows], LABELS[rows])
        if after is not None:
            after(learner)
    return learner


def test_a_layer_has_the_mean_and_variance_of_what_the_memory_sends_through_it():
    learner = learned(statistics="memory")
    stem = learner.predictor().peers[0].network.stem
    sent = stem[0](learner.method.prepare(learner.memory.images[:30]))  # (30, 4, 16, 16)
    torch.testing.assert_close(stem[1].running_mean, sent.mean((0, 2, 3)))
    torch.testing.assert_close(stem[1].running_var, sent.var((0, 2, 3)))


def test_what_it_predicts_is_what_a_network_would_that_last_saw_the_memory_at_once():
    learner = learned(statistics="memory")
    x = IMAGES[100:140]
    predicted = learner.scores(x)["head"]
    network = learner.peers[0].network
    for layer in network.modules():
        if isinstance(layer, _BatchNorm):
            layer.momentum = 1.0
    network(learner.method.prepare(learner.memory.images[:30]))
    expected = network.eval()(learner.method.prepare(x)).logits
    torch.testing.assert_close(predicted, expected)


def test_a_memory_too_large_for_one_pass_is_averaged_over_equal_samples_of_it(monkeypatch):
    monkeypatch.setattr(evaluate, "CALIBRATION_BATCH", 12)
    learner = learned(statistics="memory")
    stem = learner.predictor().peers[0].network.stem
    sent = stem[0](learner.method.prepare(learner.memory.images[:30]))
    shares = [sent[share::3] for share in range(3)]
    torch.testing.assert_close(stem[1].running_mean, torch.stack([s.mean((0, 2, 3)) for s in shares]).mean(0))
    torch.testing.assert_close(stem[1].running_var, torch.stack([s.var((0, 2, 3)) for s in shares]).mean(0))


@pytest.mark.parametrize("method", sorted(methods))
def test_all_tables_are_by_the_memory_and_learning_goes_on_as_if_never_asked(method):
    def look(learner):
        learner.scores(IMAGES[:5])

    branch = {"name": "s6mod", "d_inner": 12, "num_patterns": 3} if methods[method].has_logits else None
    asked = learned(method, branch, 4, look, statistics="memory")
    silent = learned(method, branch, 4)
    assert_same_tree(asked.state_dict(), silent.state_dict())
    ours, theirs = asked.scores(IMAGES[100:110]), silent.scores(IMAGES[100:110])
    assert ours.keys() == theirs.keys()
    for name, table in ours.items():
        assert table.isfinite().any()
        assert not torch.equal(table, theirs[name])


def test_predicting_draws_no_random_numbers_even_if_the_network_drops_features(monkeypatch):
    learner = learned(statistics="memory")
    learner.peers[0].network.stem.append(nn.Dropout(0.5))
    before = torch.get_rng_state()
    once = learner.scores(IMAGES[:5])["head"]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(learner.predictor()(IMAGES[:5])["head"], once)


def test_one_image_in_memory_is_too_few_to_take_statistics_of():
    def first(**options):
        learner = Learner({"name": "er", "network": {"width": 4}}, num_classes=10, memory_size=1, **options)
        learner.learn(IMAGES[:6, :, ::2, ::2], LABELS[:6])  # the last map has come down to one place
        return learner.scores(IMAGES[:5, :, ::2, ::2])["head"]

    assert torch.equal(first(statistics="memory"), first())


def test_a_saved_learner_goes_on_predicting_by_the_memory(tmp_path):
    learner = learned(statistics="memory")
    learner.save(tmp_path / "saved")
    again = Learner.load(tmp_path / "saved")
    assert torch.equal(again.scores(IMAGES[:5])["head"], learner.scores(IMAGES[:5])["head"])
