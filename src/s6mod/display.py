"""What the terminal shows while a run goes on, and tables of results when it is done."""

from collections.abc import Iterable, Mapping
from statistics import mean, stdev
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Column, Table

from s6mod.engine.run import Progress
from s6mod.engine.run_config import RunConfig


class RunDisplay:
    """A progress bar for each run; without a terminal, one line at the end of each task."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console, self.quiet = console, quiet
        self.bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            TextColumn("{task.completed}/{task.total}"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[accuracy]}"),
            TextColumn(  # whatever room is left
                "[dim]{task.fields[rate]} {task.fields[terms]}[/dim]",
                table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
            ),
            expand=True,
            console=console,
            disable=quiet or not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def watch(self, config: RunConfig) -> "_Watch":
        """A watcher for one run."""
        return _Watch(self, config)


class _Watch:
    def __init__(self, display: RunDisplay, config: RunConfig) -> None:
        self.display = display
        self.name = f"{config.cell} seed {config.seed}"
        self.bar = display.bars.add_task(self.name, total=None, rate="", accuracy="", terms="")

    def __call__(self, progress: Progress) -> None:
        terms = " ".join(f"{name.removeprefix('branch/')} {value:.2f}" for name, value in progress.terms.items())
        rate = f"{progress.samples_per_second:.0f} samples/s"
        accuracy = "" if progress.accuracy is None else f"{progress.accuracy:.0f} %"
        self.display.bars.update(
            self.bar,
            description=f"{self.name} task {progress.task + 1}/{progress.tasks}",
            completed=progress.step,
            total=progress.steps,
            rate=rate,
            accuracy=accuracy,
            terms=terms,
        )
        if progress.ended and not self.display.quiet and not self.display.console.is_terminal:
            print(f"{self.name}: step {progress.step}/{progress.steps}, {rate}, {accuracy}, {terms}", flush=True)


def result_table(results: Iterable[Mapping[str, Any]]) -> Table:
    """Mean and standard deviation over seeds, one row per cell and score table."""
    table = Table(
        title="mean ± standard deviation over n seeds",
        caption="Acc, AF (forgetting), N-Acc (just after learning) in percent; MB held between steps",
        box=None,
        padding=(0, 1, 0, 0),
    )
    for column in ("cell", "scores", "n", "Acc", "AF", "N-Acc", "ms/step", "MB"):
        table.add_column(column, justify="left" if column in ("cell", "scores") else "right", no_wrap=True)
    cells: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        cells.setdefault(result["cell"], []).append(result)
    for cell, runs in cells.items():
        for name in sorted(runs[0]["metrics"], key=lambda name: name != runs[0]["primary"]):
            primary = name == runs[0]["primary"]
            metrics = [run["metrics"][name] for run in runs]
            table.add_row(
                cell if primary else "",
                name,
                str(len(runs)) if primary else "",
                *(spread([m[key] for m in metrics]) for key in ("accuracy", "forgetting", "learning_accuracy")),
                f"{mean(run['ms_per_step'] for run in runs):.0f}" if primary else "",
                f"{runs[0]['bytes_held'] / 1e6:.0f}" if primary else "",
                style="" if primary else "dim",
            )
    return table


def spread(values: list[float]) -> str:
    """``mean±standard deviation`` (n - 1), or the value alone if there is one."""
    return f"{mean(values):.1f}±{stdev(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"
