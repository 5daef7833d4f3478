"""Test-then-train accuracy."""

import math

import pytest
import torch
from states import assert_same_tree

import learners
from s6mod import Learner
from s6mod.errors import ConfigError
from s6mod.learner import prequential
from s6mod.learner.classes import Classes
from s6mod.learner.prequential import Tally


def tallied(*batches):
    found = Tally()
    for labels, hits in batches:
        right = torch.tensor(labels)
        predicted = torch.where(torch.tensor(hits, dtype=torch.bool), right, right + 1)
        found.count(right, torch.nn.functional.one_hot(predicted, 4).float())
    return found


def test_accuracy_is_told_overall_over_a_window_and_decayed(monkeypatch):
    monkeypatch.setattr(prequential, "DECAY", 0.5)
    monkeypatch.setattr(prequential, "WINDOW", 3)
    told = tallied(([0, 0], [1, 1]), ([1, 0], [1, 0])).told(Classes(None, ("cup", "pen", "key")))
    assert (told.images, told.accuracy) == (4, 75)
    assert told.windowed == pytest.approx(100 * 2 / 3)
    assert told.decayed == pytest.approx(100 * (0.125 + 0.25 + 0.5) / (0.125 + 0.25 + 0.5 + 1))
    assert list(told.by_class) == ["cup", "pen"]
    cup, pen = told.by_class.values()
    assert (cup.images, cup.accuracy, cup.windowed) == (3, pytest.approx(100 * 2 / 3), 50)
    assert cup.decayed == pytest.approx(100 * 0.75 / 1.75)
    assert (pen.images, pen.accuracy, pen.windowed, pen.decayed) == (1, 100, 100, 100)


def test_nothing_tested_has_no_accuracy():
    told = Tally().told(Classes(10))
    assert told.images == 0
    assert all(math.isnan(figure) for figure in (told.accuracy, told.windowed, told.decayed))
    assert told.by_class == {}


def test_each_batch_but_the_first_is_predicted_as_the_learner_predicts_just_before_it_learns_it():
    learner, plain = (learners.small("er", num_classes=None, test_then_train=on) for on in (True, False))
    hits = {}
    for position in range(5):
        x, labels = learners.batch(position, (0, 1 + position % 2), size=6)
        names = [f"class {label}" for label in labels.tolist()]
        for name, told in zip(names, plain.predict(x) if position else (), strict=False):
            hits.setdefault(name, []).append(told == name)
        for one in (learner, plain):
            one.learn(x, names)
    found = learner.prequential
    assert (found.images, found.accuracy) == (24, pytest.approx(100 * sum(map(sum, hits.values())) / 24))
    assert {name: (of.images, of.accuracy) for name, of in found.by_class.items()} == {
        name: (len(of), pytest.approx(100 * sum(of) / len(of))) for name, of in hits.items()
    }


@pytest.mark.parametrize("options", [{}, {"branch": {"name": "s6mod"}, "statistics": "memory", "predict_by": "ncm"}])
def test_testing_changes_nothing_that_is_learned(options):
    quiet, loud = (learners.run(learners.small("er", test_then_train=on, **options), 0, 5) for on in (False, True))
    state = loud.state_dict()
    assert loud.prequential.images == 4 * learners.STREAM
    del state["tested"]
    assert_same_tree(quiet.state_dict(), state)


def test_a_learner_that_was_saved_goes_on_counting_to_the_bit(tmp_path):
    straight, half = (learners.run(learners.small("er", test_then_train=True), 0, 3) for _ in range(2))
    half.save(tmp_path)
    half = Learner.load(tmp_path)
    for one in (straight, half):
        learners.run(one, 3, 6)
    assert straight.prequential == half.prequential
    assert_same_tree(straight.state_dict(), half.state_dict())


def test_a_saved_state_with_tests_of_classes_that_are_not_there_is_refused():
    learner = learners.run(learners.small("er", test_then_train=True), 0, 3)
    state = learner.state_dict()
    state["tested"]["sums"][-1, 0] = 6
    with pytest.raises(ValueError, match="classes that are not there"):
        learner.load_state_dict(state)


def test_a_learner_that_tests_nothing_says_how_to_have_it():
    with pytest.raises(ConfigError, match="test_then_train=True"):
        _ = learners.small("er").prequential
