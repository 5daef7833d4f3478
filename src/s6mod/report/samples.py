"""The section on images: some of each task of the stream, and some that the memory holds at the end.

Records hold no images. Those of the stream are read from the data set, if it is here and has the contents that the run
was made on; those of the memory from the run's checkpoint, if it was kept.
"""

import base64
import functools
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from s6mod.data import DataConfig
from s6mod.data.streams import StreamPlan
from s6mod.engine.checkpoint import read_state
from s6mod.errors import S6modError
from s6mod.files import read_json
from s6mod.report.charts import Chart, to_csv
from s6mod.report.groups import Group, plain_config
from s6mod.report.html import Section, figure, figures, paragraph
from s6mod.report.source import RunData
from s6mod.report.svg import RIGHT, WIDTH, document, text
from s6mod.run_files import RunFiles

COLUMNS = 8  # images of a task
MOST_TASKS = 20
SIDE = 48  # pixels of an image on the page at the most
GAP = 1 / 12  # between images, of their size
LEFT = 62  # room for what stands beside a row
FAULTS = (S6modError, OSError, ValueError, KeyError, TypeError, IndexError, RuntimeError)  # no image is worth a page


@dataclass(frozen=True)
class Row:
    """Some images of one task."""

    task: int
    images: Tensor  # (n, 3, H, W) uint8
    labels: tuple[int, ...]
    among: int  # how many there are


def samples(groups: Sequence[Group]) -> Section:
    """Stream and memory of one run for each data set and memory size."""
    parts = []
    for number, runs in enumerate(_by_setting(groups)):
        first = runs[0]
        where = f"{plain_config(first.stored)['data']['name']}, seed {first.stored.seed}"
        if rows := _stream(first.stored.path):
            parts.append(
                figure(_picture(f"samples-stream-{number}", f"Stream: {where}", rows, first), "some of each task")
            )
        for run in runs:
            if rows := _memory(run):
                who = f"Memory at the end: {run.stored.cell}, seed {run.stored.seed}"
                parts.append(figure(_picture(f"samples-memory-{number}", who, rows, run), "some of each task"))
                break
    if not parts:
        return Section("images", "Images", "")
    told = (
        "The images are those of the data set, so whoever gets this page sees them. Beside a row: how many there are."
    )
    return Section("images", "Images", figures(parts) + paragraph(told, "note"))


def _by_setting(groups: Sequence[Group]) -> list[list[RunData]]:
    """Runs that have a folder, by data set and memory size, in the order of the page."""
    found: dict[tuple[str, int], list[RunData]] = {}
    for group in groups:
        found.setdefault(group.setting, []).extend(run for run in group.runs if run.stored.path.is_dir())
    return [runs for runs in found.values() if runs]


@functools.lru_cache(maxsize=16)
def _stream(folder: Path) -> tuple[Row, ...]:
    """The first images of each task; a page that is written again and again reads them once."""
    files = RunFiles(folder)
    try:
        begun = read_json(files.config)
        config = DataConfig.parse(begun["config"]["data"])
        dataset = config.load()
        if dataset.fingerprint != begun["data"]:  # others lie there by now, or always did
            return ()
        plan, seen = StreamPlan.load(files.stream), config.seen_by(dataset, int(begun["config"]["seed"]))
        sizes = plan.offsets.diff()
        tasks = plan.batch_tasks.repeat_interleave(sizes)  # (N,) of each sample
        return _rows(seen.train_images, seen.train_labels, plan.ids, tasks)
    except FAULTS:
        return ()


def _memory(run: RunData) -> tuple[Row, ...]:
    """What it holds, by the task in which it came."""
    folder = RunFiles(run.stored.path).checkpoint
    if run.stored.result is None or not folder.is_dir():
        return ()
    try:
        memory: dict[str, Any] = read_state(folder)[0]["learner"]["memory"]
        return _rows(memory["images"], memory["labels"], torch.arange(int(memory["filled"])), memory["tasks"])
    except FAULTS:
        return ()


def _rows(images: Tensor, labels: Tensor, ids: Tensor, tasks: Tensor) -> tuple[Row, ...]:
    """A row for each task; ``ids`` (N,) are rows of ``images``, ``tasks`` (N,) are theirs."""
    rows = []
    for task in tasks[: len(ids)].unique().tolist()[:MOST_TASKS]:
        own = ids[tasks[: len(ids)] == task]
        chosen = own[torch.linspace(0, len(own) - 1, min(COLUMNS, len(own))).round().long()]
        rows.append(Row(int(task), images[chosen].clone(), tuple(labels[chosen].tolist()), len(own)))
    return tuple(rows)


def _picture(name: str, title: str, rows: Sequence[Row], run: RunData) -> Chart:
    """The images as one PNG within an SVG, with the numbers of tasks beside it."""
    step = (WIDTH - LEFT - RIGHT) / COLUMNS
    side = min(SIDE, max(rows[0].images.shape[2:]))
    apart = side + max(1, round(GAP * side))
    sheet = Image.new("RGBA", (COLUMNS * apart, len(rows) * apart))  # where there is no image, the page is seen
    parts = []
    for place, row in enumerate(rows):
        for column, pixels in enumerate(row.images):
            image = Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy()).resize((side, side))
            sheet.paste(image, (column * apart, place * apart))
        parts.append(text(LEFT - 6, (place + 0.5) * step, f"task {row.task + 1}", "ink", "end"))
        parts.append(text(LEFT - 6, (place + 0.5) * step + 13, f"{row.among:,}", "soft", "end"))
    file = io.BytesIO()
    sheet.save(file, "PNG")
    data = base64.b64encode(file.getvalue()).decode()
    width, height = COLUMNS * step, len(rows) * step
    parts.append(
        f'<image x="{LEFT}" y="0" width="{width:.1f}" height="{height:.1f}" preserveAspectRatio="none" '
        f'style="image-rendering: pixelated" href="data:image/png;base64,{data}"/>'
    )
    named = [", ".join(map(run.class_name, row.labels)) for row in rows]
    alt = " ".join(f"Task {row.task + 1}, {row.among} images: {names}." for row, names in zip(rows, named, strict=True))
    table: list[Sequence[object]] = [("task", "images", "classes of those shown")]
    table += [(row.task + 1, row.among, names) for row, names in zip(rows, named, strict=True)]
    return Chart(name, title, document(name, title, alt, parts, height + 4), to_csv(table), alt)
