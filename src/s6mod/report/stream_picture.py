"""A picture of a stream plan: which classes come when, drawn with matplotlib (extra ``plots``)."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from s6mod.data.streams import StreamPlan
from s6mod.report.picture import new_picture

if TYPE_CHECKING:
    from s6mod.report.picture import Picture

WINDOWS = 120  # columns of the picture at the most, task ends aside
WINDOW_SAMPLES = 40  # in a column at the least, so that chance does not hide the plan
NAMED_CLASSES = 40  # so many names can be read one above the other
NUMBERED_TASKS = 25  # and so many numbers side by side


def plot_plan(plan: StreamPlan, labels: Tensor, class_names: Sequence[str], title: str) -> "Picture":
    """Draw ``plan`` over the training ``labels`` (N,): time from left to right, classes in order from top to bottom.

    The colour is a class's share of the samples in a window of batches. Lines are task ends: solid where the learner is
    told of them, dashed where it is only evaluated. Bars count the samples of each class.
    """
    figure = new_picture(10, min(max(3.2, 2 + 0.25 * len(plan.class_order)), 8.5))
    from matplotlib.colors import PowerNorm

    ends = plan.batch_tasks.bincount(minlength=plan.num_tasks).cumsum(0).tolist()  # in batches
    edges = _edges(plan, ends)
    counts = _counts(plan, labels, edges)
    share = 100 * counts / counts.sum(0)  # (C, W)

    axis, bars = figure.subplots(1, 2, width_ratios=(6, 1), sharey=True)
    mesh = axis.pcolormesh(
        edges,
        np.arange(len(counts) + 1) - 0.5,
        np.ma.masked_equal(share, 0),  # what does not come stays white
        cmap="YlGnBu",
        norm=PowerNorm(0.5, vmin=0, vmax=share.max()),  # so that a few guests in a task can be seen
        rasterized=True,
    )
    _mark_tasks(axis, ends, plan.boundaries)
    axis.set(xlabel="time (batches)", ylabel="class, in the order of the stream", xlim=(0, len(plan)))
    axis.set_ylim(len(counts) - 0.5, -0.5)
    every = -(-len(counts) // NAMED_CLASSES)
    names = [_short(class_names[c]) for c in plan.class_order[::every]]
    axis.set_yticks(range(0, len(counts), every), names, parse_math=False)  # they are not formulas
    bars.barh(range(len(counts)), counts.sum(1), height=0.8 if every == 1 else 1, color="#225ea8")
    bars.set_xlabel("samples")
    bars.tick_params(left=False, labelleft=False)
    bars.spines[["top", "right"]].set_visible(False)
    figure.colorbar(mesh, ax=bars, label="share of samples (%)")
    figure.suptitle(title)
    return figure


def _edges(plan: StreamPlan, ends: list[int]) -> npt.NDArray[np.int64]:
    """(W + 1,): where windows begin and end, in batches; no window crosses the end of a task."""
    windows = min(WINDOWS, len(plan.ids) / WINDOW_SAMPLES)
    bounds = [
        np.linspace(start, end, max(1, round(windows * (end - start) / len(plan))) + 1)
        for start, end in pairwise([0, *ends])
    ]
    return np.unique(np.concatenate(bounds).round().astype(np.int64))


def _counts(plan: StreamPlan, labels: Tensor, edges: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """(C, W): samples of each class, in the order of the stream, in each window of batches."""
    row_of = np.zeros(max(plan.class_order) + 1, dtype=np.int64)
    row_of[list(plan.class_order)] = np.arange(len(plan.class_order))
    rows = row_of[labels[plan.ids].numpy()]  # (N,)
    windows = np.searchsorted(plan.offsets.numpy()[edges], np.arange(len(rows)), side="right") - 1  # (N,)
    shape = len(plan.class_order), len(edges) - 1
    flat = np.bincount(rows * shape[1] + windows, minlength=shape[0] * shape[1])
    return flat.reshape(shape)


def _mark_tasks(axis: Any, ends: list[int], told: bool) -> None:
    """Lines at the ends of tasks and their numbers above, as many as fit."""
    for end in ends[:-1]:
        axis.axvline(
            end,
            color="black",
            linewidth=0.8 if len(ends) <= NUMBERED_TASKS else 0.3,
            linestyle="-" if told else (0, (4, 3)),
        )
    above = axis.secondary_xaxis("top")
    every = -(-len(ends) // NUMBERED_TASKS)
    middles = [(start + end) / 2 for start, end in pairwise([0, *ends])]
    above.set_xticks(middles[::every], [str(task + 1) for task in range(0, len(ends), every)])
    above.tick_params(length=0)
    above.set_xlabel("task (lines: its end, which the learner is told)" if told else "part (dashed: its end, not told)")


def _short(name: str) -> str:
    return name if len(name) <= 18 else name[:17] + "…"
