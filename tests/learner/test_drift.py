"""Boundaries where errors become more frequent."""

import random
import sys

import pytest
from states import assert_same_tree

import learners
from s6mod import Learner
from s6mod.errors import ConfigError
from s6mod.learner import drift
from s6mod.learner.drift import Drift


def errors(share, images, seed=0):
    drawn = random.Random(seed)
    return [int(drawn.random() < share) for _ in range(images)]


def fed(found, given, batch=10):
    """What is known afterwards, and the batches that told a rise."""
    rises = []
    for number, start in enumerate(range(0, len(given), batch)):
        found = found.after(given[start : start + batch])
        rises += [number] * found.rose
    return found, rises


def test_river_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "river.drift", None)
    with pytest.raises(ConfigError, match=r"^expected river for boundaries='drift', got none .*; run: pip install"):
        learners.small("er-lwf", boundaries="drift")


class TestWithRiver:
    pytestmark = pytest.mark.extras

    def test_a_rise_is_told_once_soon_and_a_fall_is_not(self):
        found, rises = fed(Drift(), errors(0.9, 200) + errors(0.1, 600))
        assert rises == []
        _, (when,) = fed(found, errors(0.8, 300))
        assert when <= 5

    def test_a_detector_made_anew_from_its_errors_goes_on_alike(self, monkeypatch):
        monkeypatch.setattr(drift, "KEPT", 100)
        found, told = Drift(), []
        stream = errors(0.1, 900) + errors(0.9, 100) + errors(0.1, 400) + errors(0.9, 100)
        _, straight = fed(Drift(), stream)
        for number in range(0, len(stream), 10):
            found = Drift(found.errors).after(stream[number : number + 10])
            told += [number // 10] * found.rose
            assert len(found.errors) < 200
        assert told == straight
        assert len(straight) == 2

    def test_a_learner_passes_boundaries_by_itself_and_resumes_to_the_bit(self, tmp_path):
        def learned(learner, start, stop):
            for position in range(start, stop):  # one class, of which all are right, and then another
                learner.learn(*learners.batch(position, (int(position >= 15),), size=20))
                learner.end_task()  # means nothing
            return learner

        straight = learned(learners.small("er-lwf", boundaries="drift", predict_among="seen"), 0, 17)
        half = learned(learners.small("er-lwf", boundaries="drift", predict_among="seen"), 0, 15)
        half.save(tmp_path)
        half = learned(Learner.load(tmp_path), 15, 17)
        assert straight.task.index == 1
        assert straight.prequential.images == 320
        assert_same_tree(half.state_dict(), straight.state_dict())

    def test_a_step_that_fails_is_taken_again_as_if_it_had_not(self, monkeypatch):
        failing, straight = (learners.run(learners.small("er", boundaries="drift"), 0, 3) for _ in range(2))
        with monkeypatch.context() as patch:
            patch.setattr(failing, "step", lambda inputs: pytest.fail("no room"))
            with pytest.raises(pytest.fail.Exception):
                failing.learn(*learners.batch(3, (0, 1)))
        assert failing.state_dict()["drift"].tolist() == straight.state_dict()["drift"].tolist()
