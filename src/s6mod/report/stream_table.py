"""What ``s6mod data NAME --stream ... --plot FILE`` shows: a stream plan as a table of tasks and as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from s6mod.config import assign
from s6mod.data import Dataset, StreamConfig, StreamPlan, make_plan
from s6mod.errors import ConfigError, printable
from s6mod.presets import preset
from s6mod.report.picture import DPI, check_picture_file
from s6mod.report.stream_picture import plot_plan
from s6mod.runs.compose import fitted


def stream_config(data: str | Mapping[str, Any], assignments: Sequence[str]) -> StreamConfig:
    """The stream that ``s6mod train --data`` would see, with each ``key=value`` applied.

    ``data``: its name, or the fields of its configuration.
    """
    fields = {"name": data} if isinstance(data, str) else dict(data)
    values = preset("er", "none", fields["name"], None).get("stream", {})
    for assignment in assignments:
        if "=" not in assignment:
            raise ConfigError(f"expected key=value, got {assignment!r}; write for instance kind=blurry")
        values = assign(values, assignment)
    return StreamConfig.parse(fitted({"data": fields, "stream": values})["stream"])


def show_stream(dataset: Dataset, config: StreamConfig, seed: int, out: Path | None, console: Console) -> StreamPlan:
    """Print the plan of ``dataset`` under ``config`` and ``seed``; draw it into ``out`` if that is given."""
    plan = make_plan(dataset.train_labels, dataset.num_classes, config, seed)
    title = f"{dataset.name}, {config.kind} stream, seed {seed}"
    lines = [
        f"{title}: {len(plan.ids)} samples in {len(plan)} batches, plan {plan.hash}",
        f"the learner is {'' if plan.boundaries else 'not '}told when a task ends",
    ]
    if out is not None:
        check_picture_file(out)
        plot_plan(plan, dataset.train_labels, dataset.class_names, title).savefig(out, dpi=DPI)
        lines.append(f"picture: {out}")
    console.print(_table(plan, dataset))
    console.print("\n".join(lines), soft_wrap=True, highlight=False, markup=False)
    return plan


def _table(plan: StreamPlan, dataset: Dataset) -> Table:
    """One row for each task."""
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True)
    for column in ("task", "batches", "samples", "of its own classes"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("its own classes", overflow="ellipsis", no_wrap=True, ratio=1)  # takes what the others leave
    offsets = plan.offsets.tolist()
    begin = 0
    for task, batches in enumerate(plan.batch_tasks.bincount(minlength=plan.num_tasks).tolist()):
        arrived = dataset.train_labels[plan.ids[offsets[begin] : offsets[begin + batches]]].tolist()
        begin += batches
        own = plan.task_classes[task]
        at_home = sum(label in own for label in arrived)
        names = printable(", ".join(dataset.class_names[label] for label in own))
        table.add_row(
            str(task + 1), str(batches), str(len(arrived)), f"{100 * at_home / len(arrived):.0f} %", escape(names)
        )
    return table
