"""What a run does with streams that are not class-incremental."""

from itertools import pairwise

import fakes
import pytest
import torch
from states import assert_same_tree

from s6mod.config import merge
from s6mod.data import Dataset, StreamPlan, load, make_plan
from s6mod.engine.checkpoint import read_state
from s6mod.errors import ConfigError
from s6mod.runs.config import RunConfig
from s6mod.runs.execute import execute
from s6mod.runs.run import Run

assert fakes.Duo  # registers the method "duo", which needs boundaries

QUICK = {
    "method": {"name": "er", "network": {"width": 4}, "memory_batch": 8},
    "memory_size": 30,
    "stream": {"tasks": 3, "imbalance": 40.0},
    "output": {"checkpoint_every": 5},
}


def quick(**over):
    return RunConfig.parse(merge(QUICK, over))


@pytest.fixture(scope="module")
def digits():
    full = load("digits")
    return Dataset.from_arrays(
        full.train_images[:, :, ::4, ::4], full.train_labels, full.test_images[::5, :, ::4, ::4], full.test_labels[::5]
    )


def finished(config, folder, dataset):
    """A run that went to its end, with its result."""
    runs = []
    [result] = execute([lambda: runs.append(Run.begin(config, folder, dataset)) or runs[0]])
    return runs[0], result


@pytest.mark.parametrize(("kind", "boundaries"), [("blurry", 3), ("repeated", 3), ("task-free", 0), ("iid", 0)])
def test_every_kind_fills_the_matrix_of_home_tasks_and_task_free_and_iid_streams_show_no_boundary(
    tmp_path, digits, kind, boundaries
):
    run, result = finished(quick(stream={"kind": kind}), tmp_path / "r", digits)
    assert [len(row) for row in result["matrices"]["head"]] == [1, 2, 3]
    assert result["steps"] == len(run.plan)
    assert result["stream"] == StreamPlan.load(tmp_path / "r" / "stream.safetensors").hash
    tests = run._tests
    tested = [set(tests.labels[first:end].tolist()) for first, end in pairwise(tests.bounds)]
    assert tested == [set(classes) for classes in run.plan.task_classes]
    assert run.learner.task.index == boundaries


def test_a_stream_cut_short_is_evaluated_on_the_tasks_it_reached(tmp_path, digits):
    run, result = finished(quick(stream={"imbalance": 1.0, "limit": 205}), tmp_path / "r", digits)
    assert run.plan.num_tasks == 1
    assert [len(row) for row in result["matrices"]["head"]] == [1]
    assert result["steps"] == 21


def test_a_method_that_needs_boundaries_refuses_a_stream_without(tmp_path, digits):
    duo = {"method": {"name": "duo", "network": {"width": 4}}, "stream": {"kind": "task-free"}}
    with pytest.raises(ConfigError, match="'duo', which uses them, got kind=task-free; set boundaries=on_new_class"):
        Run.begin(quick(**duo), tmp_path / "r", digits)
    assert not (tmp_path / "r").exists()
    assumed = quick(**duo, boundaries="on_new_class", boundary_patience=1)
    run, _ = finished(assumed, tmp_path / "r", digits)
    assert run.learner.task.index > 0


def test_a_run_left_in_the_middle_goes_on_to_the_same_bits(tmp_path, digits):
    config = quick(stream={"kind": "task-free"})
    finished(config, tmp_path / "straight", digits)
    with Run.begin(config, tmp_path / "left", digits) as run:
        for _, _ in zip(range(13), run.steps(), strict=False):
            pass
        run.checkpoint()
    execute([lambda: Run.resume(tmp_path / "left", digits)])
    states = [read_state(tmp_path / name / "checkpoint")[0] for name in ("straight", "left")]
    assert_same_tree(*(state["learner"] for state in states))
    assert states[0]["cursor"]["rows"] == states[1]["cursor"]["rows"]


def test_what_is_held_out_is_judged_by_and_neither_learned_nor_tested_on(tmp_path, digits):
    config = quick(data={"held_out": 0.25}, stream={"imbalance": 1.0}, seed=7)
    run, result = finished(config, tmp_path / "r", digits)
    pixels = {split: {row.numpy().tobytes() for row in images} for split, images in (
        ("stream", run.dataset.train_images), ("judged", run.dataset.test_images), ("test", digits.test_images)
    )}  # fmt: skip
    assert not pixels["judged"] & pixels["test"]
    counts = digits.train_labels.bincount()
    torch.testing.assert_close(run.dataset.test_labels.bincount(), (0.25 * counts).round().long(), rtol=0, atol=1)
    assert len(run.dataset.train_labels) + len(run.dataset.test_labels) == len(digits.train_labels)
    assert result["steps"] == len(run.plan) < len(make_plan(digits.train_labels, 10, config.stream, 7))
    assert result["data"] == digits.fingerprint  # the same data set, seen otherwise
    assert config.hash != quick(stream={"imbalance": 1.0}, seed=7).hash
    again = config.data.seen_by(digits, 7)
    assert torch.equal(again.test_images, run.dataset.test_images)
    assert not torch.equal(config.data.seen_by(digits, 8).test_images[:20], again.test_images[:20])


def test_with_nothing_held_out_a_run_keeps_its_name_and_its_data(digits):
    assert quick(data={"held_out": 0.0}).hash == quick().hash
    assert quick().data.seen_by(digits, 3) is digits
