"""The picture of accuracy matrices, drawn with matplotlib (extra ``plots``)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from s6mod.report.picture import new_picture

if TYPE_CHECKING:
    from s6mod.report.picture import Picture

NUMBERED = 10  # tasks whose numbers fit beside a matrix, and accuracies into its cells


def plot_matrices(matrices: Mapping[str, list[list[float]]], title: str) -> "Picture":
    """One heat map per named accuracy matrix (rows: after task i; columns: on task j; percent), side by side."""
    figure = new_picture(3.1 * len(matrices) + 0.9, 3.5)
    axes = figure.subplots(1, len(matrices), squeeze=False)[0]
    for axis, (name, rows) in zip(axes, matrices.items(), strict=True):
        size = len(rows)
        grid = np.full((size, size), np.nan)
        for i, row in enumerate(rows):
            grid[i, : len(row)] = row
        image = axis.imshow(grid, vmin=0, vmax=100, cmap="cividis")
        for i, j in zip(*np.nonzero(~np.isnan(grid)), strict=True):
            if size <= NUMBERED:
                colour = "white" if grid[i, j] < 55 else "black"
                axis.text(j, i, f"{grid[i, j]:.0f}", ha="center", va="center", color=colour, fontsize=8)
        axis.set(title=name, xlabel="accuracy on task", ylabel="after learning task")
        every = -(-size // NUMBERED)
        named = range(every - 1, size, every)
        axis.set_xticks(named, [str(j + 1) for j in named])
        axis.set_yticks(named, [str(i + 1) for i in named])
    figure.colorbar(image, ax=list(axes), label="accuracy (%)", shrink=0.85)
    figure.suptitle(title)
    return figure
