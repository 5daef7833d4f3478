"""What is refused, and what travels with an export. What it answers, in every way to predict, is in ``extras``."""

import json
import sys

import pytest
import torch
from states import assert_same_tree

from learners import batch, run, small
from s6mod.data.images import RESIZING
from s6mod.errors import ConfigError, InputError
from s6mod.export import torch_file
from s6mod.export.write import FORMATS, _compared, _samples


@pytest.fixture(scope="module")
def learner():
    return run(small("er"), 0, 2)


def test_the_name_of_the_file_says_its_format(learner, tmp_path):
    with pytest.raises(ConfigError, match=r"expected a file name that ends in .onnx or .pt2, got 'model.pt'"):
        learner.export(tmp_path / "model.pt")


def test_a_learner_that_has_seen_nothing_is_not_exported(tmp_path):
    with pytest.raises(InputError, match="learn first"):
        small("er").export(tmp_path / "model.pt2")


def test_every_class_needs_a_name_of_its_own(learner, tmp_path):
    for names in (["a"] * 6, list("abc")):
        with pytest.raises(InputError, match="expected 6 different class names"):
            learner.export(tmp_path / "model.pt2", names)


def test_a_package_that_is_missing_is_told_before_the_work(learner, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(
        ConfigError, match=r"expected onnx for ONNX, got none installed; run: pip install -e '.\[export\]'"
    ):
        learner.export(tmp_path / "model.onnx")


def test_scores_are_compared_by_labels_size_and_classes_left_out():
    expected = torch.tensor([[10.0, 1.0, -torch.inf], [0.0, 5.0, -torch.inf]])
    labels = torch.tensor([0, 1])
    assert _compared(expected, labels, expected) == 0
    assert 0 < _compared(expected, labels, expected + torch.tensor([1e-4, 0, 0])) <= 1e-4
    for other in (expected + 0.01, expected.nan_to_num(neginf=-50), expected * torch.nan):
        with pytest.raises(InputError, match="expected an export that answers like the learner"):
            _compared(expected, labels, other)
    with pytest.raises(InputError, match="got other labels"):
        _compared(expected, labels.flip(0), expected)


def test_a_file_is_compared_for_one_image_too(learner, tmp_path, monkeypatch):
    def session(payload):
        run = torch_file.session(payload)
        return lambda images: [-output if len(images) == 1 else output for output in run(images)]

    monkeypatch.setitem(FORMATS, ".pt2", (torch_file.packed, session))
    with pytest.raises(InputError, match="expected an export that answers like the learner"):
        learner.export(tmp_path / "model.pt2")


def test_the_samples_come_from_all_over_the_memory(learner):
    assert len(_samples(learner.memory)) == len(learner.memory) == 4
    full = run(small("er", memory_size=200), 0, 0)
    full.learn(torch.arange(200, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 8, 8), [0] * 200)
    assert _samples(full.memory)[:, 0, 0, 0].tolist() == list(range(0, 200, 4))


def test_a_learner_writes_itself_with_its_names_and_the_rule_for_resizing_and_goes_on_to_the_bit(tmp_path):
    learner, beside = (small("er", num_classes=None, predict_by="ncm", test_then_train=True) for _ in range(2))
    for one in (learner, beside):
        one.learn(batch(0, (0,), 4)[0], ["cup", "pen", "key", "cup"])
        one._tally.temperature.losses[44] = -1  # as if scores had been found to be half as sharp as they should be
    done, told = learner.export(tmp_path / "new" / "model.pt2"), {"s6mod": ""}
    module = torch.export.load(done.path, extra_files=told).module()
    images = batch(1, (0,), 5)[0]
    labels, probabilities, _ = module(images)
    assert [done.metadata.classes[label] for label in labels] == learner.predict(images).tolist()
    torch.testing.assert_close(probabilities, learner.predict_proba(images))
    about = json.loads(told["s6mod"])
    assert (about["classes"], about["resizing"], about["temperature"]) == (["cup", "pen", "key"], RESIZING, 0.5)
    for one in (learner, beside):
        one.learn(*batch(2, (0, 1)))
    assert_same_tree(learner.state_dict(), beside.state_dict())
