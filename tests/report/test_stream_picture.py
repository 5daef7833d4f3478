from itertools import pairwise

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from s6mod.data.streams import StreamConfig, make_plan
from s6mod.errors import ConfigError
from s6mod.report.picture import check_picture_file
from s6mod.report.stream_picture import WINDOWS, _counts, _edges, plot_plan

LABELS = torch.arange(10).repeat(60)
NAMES = [f"a rather long name for class {number}" for number in range(10)]


def plan_of(**config):
    return make_plan(LABELS, 10, StreamConfig(**{"tasks": 5} | config), seed=0)


def ends_of(plan):
    return [batch.position + 1 for batch in plan.batches() if batch.is_last_of_task]


@pytest.mark.parametrize("kind", ["class-incremental", "blurry", "repeated", "task-free", "iid"])
def test_windows_count_every_sample_and_cross_no_task_end(kind):
    plan = plan_of(kind=kind, imbalance=3.0)
    edges = _edges(plan, ends_of(plan))
    assert set(ends_of(plan)) <= set(edges.tolist())
    assert (edges[0], edges[-1]) == (0, len(plan))
    counts = _counts(plan, LABELS, edges)
    assert counts.sum(1).tolist() == [int((LABELS[plan.ids] == label).sum()) for label in plan.class_order]
    sizes = [sum(len(plan[position].ids) for position in range(a, b)) for a, b in pairwise(edges)]
    assert counts.sum(0).tolist() == sizes


def test_classes_stand_in_the_order_of_the_stream():
    plan = plan_of()
    counts = _counts(plan, LABELS, np.array([0, *ends_of(plan)]))  # one window for each task
    assert [column.nonzero()[0].tolist() for column in counts.T] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def test_long_streams_have_no_more_windows_than_can_be_seen():
    labels = torch.arange(10).repeat(5000)
    plan = make_plan(labels, 10, StreamConfig(), seed=0)
    assert len(_edges(plan, ends_of(plan))) == WINDOWS + 1


@pytest.mark.parametrize("config", [{"kind": "task-free"}, {"limit": 7}, {"tasks": ((3, 1), (2,))}])
def test_a_plan_is_drawn(tmp_path, config):
    figure = plot_plan(plan_of(**config), LABELS, NAMES, "a plan")
    figure.savefig(tmp_path / "plan.png")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert isinstance(figure, Figure)


@pytest.mark.parametrize("name", ["plan", "plan.xyz"])
def test_a_file_that_is_no_picture_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match=r"got .*plan.*; end its name in \.png"):
        check_picture_file(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_names_of_classes_are_not_read_as_formulas(tmp_path):
    plot_plan(plan_of(), LABELS, [r"$\frac{x$"] * 10, "a plan").savefig(tmp_path / "plan.png")
    assert (tmp_path / "plan.png").exists()
