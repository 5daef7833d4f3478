"""A learner says once, and cheaply, that nearest means are far ahead of what predicts."""

import warnings

import pytest
import torch

from learners import batch, run, small
from s6mod.learner.advice import Advice

LABELS = torch.arange(2).repeat(20)
RIGHT = torch.eye(2)[LABELS]


def looked_at(wrong):
    """A look at nearest means that are right and a head that is wrong on so many of 40 images."""
    head = RIGHT.clone()
    head[:wrong] = head[:wrong].flip(1)
    advice = Advice()
    advice.look({"head": head, "ncm": RIGHT}, "head", LABELS)
    return advice


def test_nearest_means_that_are_far_ahead_are_told_in_one_sentence():
    with pytest.warns(UserWarning, match=r"'head', which predicts, has 50 % right, nearest means have 100 %; give"):
        advice = looked_at(20)
    assert not advice.due(10**9)


def test_nearest_means_that_are_a_little_ahead_or_behind_are_not_worth_a_word():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert looked_at(3).due(1)
        Advice().look({"head": RIGHT, "ncm": RIGHT.flip(1)}, "head", LABELS)


def test_a_look_is_taken_at_once_and_then_when_the_stream_has_doubled():
    advice = Advice()
    assert [step for step in range(1, 100) if advice.due(step)] == [1, 2, 4, 8, 16, 32, 64]


def test_evaluating_after_every_batch_passes_the_memory_only_now_and_then(monkeypatch):
    looks = []
    monkeypatch.setattr(Advice, "look", lambda _, tables, primary, labels: looks.append(sorted(tables)))
    learner = small("er")
    for position in range(9):
        run(learner, position, position + 1) if position < 6 else learner.learn(*batch(position, (0, 1)))
        learner.evaluate(*batch(position, (0, 1)))
    assert looks == [["head", "ncm"]] * 4  # after 1, 2, 4 and 8 batches
    by_means = small("er", predict_by="ncm")
    by_means.learn(*batch(0, (0, 1)))
    by_means.evaluate(*batch(0, (0, 1)))
    assert len(looks) == 4
