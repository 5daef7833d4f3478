"""Probabilities that tell how often they are right."""

import pytest
import torch
from states import assert_same_tree

import learners
from s6mod import Learner
from s6mod.learner import prequential
from s6mod.learner.calibration import Temperature
from s6mod.learner.prequential import Tally


def drawn(temperature, images=4000, classes=5):
    """Scores, and labels that are drawn by their softmax at a temperature."""
    random = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(images, classes, generator=random)
    return scores, torch.multinomial((scores / temperature).softmax(1), 1, generator=random).squeeze(1)


@pytest.mark.parametrize("true", [0.25, 1, 4])
def test_the_temperature_that_the_labels_were_drawn_by_is_found(true):
    found = Temperature()
    found.count(*drawn(true))
    assert found.value == pytest.approx(true, rel=0.2)  # the grid has steps of 19 %


def test_nothing_tested_leaves_probabilities_as_they_are():
    found = Temperature()
    found.count(torch.tensor([[-torch.inf, 1.0], [torch.nan, 0.0]]), torch.tensor([0, 1]))
    assert found.value == 1


def test_images_of_a_class_that_has_just_come_do_not_count(monkeypatch):
    monkeypatch.setattr(prequential, "FRESH", 3)
    scores = drawn(0.1, images=4)[0]
    tally = Tally()
    for _ in range(3):
        tally.count(torch.tensor([0]), scores[:1])
    assert tally.temperature.value == 1
    tally.count(torch.tensor([scores[0].argmax()] * 40), scores[:1].expand(40, -1))  # of another class
    tally.count(torch.tensor([0]), scores[:1])
    assert tally.temperature.value != 1


@pytest.fixture
def calibrated():
    """A learner whose temperature is far from 1."""
    learner = learners.run(learners.small("er", test_then_train=True, predict_among="seen"), 0, 4)
    learner._tally.temperature.count(*drawn(4))
    return learner


def test_probabilities_are_of_scores_by_the_temperature_and_labels_stay(calibrated):
    images = learners.batch(9, (0,), 6)[0]
    assert calibrated.temperature != 1
    scores = calibrated.scores(images)["head"]
    expected = (scores / calibrated.temperature).softmax(1)
    torch.testing.assert_close(calibrated.predict_proba(images), expected)
    assert torch.equal(calibrated.publish().predict_proba(images), calibrated.predict_proba(images))
    assert torch.equal(calibrated.predict(images), scores.argmax(1))


def test_the_temperature_is_saved_and_a_state_of_an_older_version_begins_with_1(calibrated, tmp_path):
    calibrated.save(tmp_path)
    again = Learner.load(tmp_path)
    assert again.temperature == calibrated.temperature
    assert_same_tree(again.state_dict(), calibrated.state_dict())
    older = calibrated.state_dict()
    del older["tested"]["losses"]
    again.load_state_dict(older)
    assert again.temperature == 1
    assert again.prequential == calibrated.prequential
