"""What the terminal shows while a run goes on, and tables of results when it is done."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any, Self

from rich.console import Console, ConsoleOptions, Group
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Column, Table
from rich.text import Text

from s6mod.decimals import spread
from s6mod.paper.estimate import LAGS, WORTH
from s6mod.runs.config import RunConfig
from s6mod.runs.progress import Progress


class RunDisplay:
    """A progress bar for each run; without a terminal, one line at the end of each task."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console, self.quiet = console, quiet
        self.bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[accuracy]}"),
            _Details(table_column=Column(ratio=1)),
            expand=True,
            console=console,
            disable=quiet or not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        for bar in self.bars.tasks:
            bar.visible = bar.total is not None  # a run that never began has no step to show
        self.bars.stop()

    def watch(self, config: RunConfig) -> "_Watch":
        """A watcher for one run."""
        return _Watch(self, config)


class _Details(ProgressColumn):
    """Speed and loss terms, as far as there is room."""

    def render(self, task: Task) -> "_Fitting":
        return _Fitting(task.fields["details"])


@dataclass(frozen=True)
class _Fitting:
    """As many of the words as fit on the line: none is cut, none is wrapped."""

    words: Sequence[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        line = ""
        for word in self.words:
            longer = f"{line} {word}".strip()
            if len(longer) > options.max_width:
                break
            line = longer
        yield Text(line, style="dim")


class _Watch:
    def __init__(self, display: RunDisplay, config: RunConfig) -> None:
        self.display = display
        self.name = f"{config.cell} seed {config.seed}"
        self.bar = display.bars.add_task(self.name, total=None, accuracy="", details=())

    def __call__(self, progress: Progress) -> None:
        terms = [f"{name.removeprefix('branch/')} {value:.2f}" for name, value in progress.terms.items()]
        rate = f"{progress.samples_per_second:.0f} samples/s"
        accuracy = "" if progress.accuracy is None else f"{progress.accuracy:.0f} %"
        self.display.bars.update(
            self.bar,
            description=f"{self.name} task {progress.task + 1}/{progress.tasks}",
            completed=progress.step,
            total=progress.steps,
            accuracy=accuracy,
            details=(rate, *terms),
        )
        if progress.ended and not self.display.quiet and not self.display.console.is_terminal:
            print(
                f"{self.name}: step {progress.step}/{progress.steps}, {rate}, {accuracy}, {' '.join(terms)}", flush=True
            )


def result_table(results: Iterable[Mapping[str, Any]]) -> Group:
    """Mean and standard deviation over seeds, one row per cell and score table; below it what to know of them."""
    table = Table(title="mean ± standard deviation over n seeds", box=None, padding=(0, 1, 0, 0))
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
                *(_over_seeds([m[key] for m in metrics]) for key in ("accuracy", "forgetting", "learning_accuracy")),
                f"{mean(run['ms_per_step'] for run in runs):.0f}" if primary else "",
                f"{runs[0]['bytes_held'] / 1e6:.0f}" if primary else "",
                style="" if primary else "dim",
            )
    notes = [
        "Acc, AF (forgetting), N-Acc (just after learning) in percent, by the scores that predict and, below, by "
        "others (ncm: nearest class means); MB held between steps"
    ]
    if any(len(runs) == 1 for runs in cells.values()):
        notes.append(WORTH)
    if behind := [cell for cell, runs in cells.items() if _lags(runs)]:
        notes.append(
            f"Just after a task ncm knows far more of it than what predicts ({', '.join(behind)}): BatchNorm's running "
            "averages lag behind on a short stream. --set statistics=memory measures them anew."
        )
    return Group(table, *(Text(note, style="dim") for note in notes))


def _lags(runs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether what predicts seems not to learn although the features do."""
    if "ncm" not in runs[0]["metrics"] or runs[0]["config"]["statistics"] != "running":
        return False
    means, chosen = (
        mean(run["metrics"][name]["learning_accuracy"] for run in runs) for name in ("ncm", runs[0]["primary"])
    )
    return bool(means >= chosen + LAGS)


def _over_seeds(values: list[float]) -> str:
    return spread(mean(values), stdev(values) if len(values) > 1 else None, digits=1)
