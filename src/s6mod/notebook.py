"""Experiments from Python in one call, for notebooks and scripts: ``s6mod.run("er+s6mod/digits", seeds=3)``.

It does what ``s6mod sweep`` does, in this process, and answers with an object that shows itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from s6mod.columns import align
from s6mod.data import DataConfig, Dataset
from s6mod.decimals import difference, spread
from s6mod.display import RunDisplay
from s6mod.engine.settings import Engine, EngineConfig
from s6mod.errors import ConfigError
from s6mod.experiments.plan import refuse_cpu
from s6mod.experiments.sweep import SweepConfig, make_sweep
from s6mod.files import expanded, write_whole
from s6mod.paper.estimate import Estimate
from s6mod.report.conclusion import conclusion
from s6mod.report.groups import Group, group_runs
from s6mod.report.html import paragraph, table
from s6mod.report.matrix_picture import plot_matrices
from s6mod.report.overview import settings
from s6mod.report.page import page
from s6mod.report.source import RunData, read_runs
from s6mod.report.task_picture import plot_tasks
from s6mod.runs.compose import elsewhere
from s6mod.runs.config import RunConfig
from s6mod.runs.execute import Interrupted, execute
from s6mod.runs.run import Run
from s6mod.runs.store import scan

if TYPE_CHECKING:
    from s6mod.report.picture import Picture

METRICS = {"accuracy": "Acc", "forgetting": "AF", "learning_accuracy": "N-Acc", "anytime_accuracy": "anytime"}


def run(
    *cells: str,
    seeds: int | Iterable[int] = 3,
    data: str | Path | None = None,
    memory: int | None = None,
    out: str | Path = "runs",
    device: str = "auto",
    data_root: str | Path | None = None,
    yes: bool = False,
    quiet: bool = False,
    **fields: Any,
) -> "Experiment":
    """Run cells such as ``er+s6mod/digits`` over seeds and answer with what came out.

    ``seeds``: how many, from 0 on, or which. ``data`` and ``memory``: of cells that name none; data may be a path.
    ``fields``: any fields of the configuration, for all cells: ``statistics="memory"``, ``stream={"tasks": 2}``. Runs
    lie in the folder ``out``; those that are done there are not run again, and one that was stopped goes on. ``yes``:
    also on a CPU what is meant for a GPU.
    """
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not numbers:
        raise ConfigError(f"expected at least one seed, got {seeds!r}; give for instance seeds=3")
    given = {"cells": list(cells), "data": None if data is None else str(data), "memory": memory, "seeds": numbers}
    folder = expanded(out)
    stores = [place for place in (folder, Path("results")) if place.is_dir()]
    place = elsewhere(device, None if data_root is None else str(data_root))
    todo = make_sweep(SweepConfig.parse(given | {"set": fields}), [], place, folder, scan(stores))
    refuse_cpu(todo.costs, yes or Engine.resolve(EngineConfig(device=device)).device.type != "cpu", how="yes=True")
    _train([(job.config, job.folder) for job in todo.jobs], quiet)
    return Experiment.read(*todo.done, *(job.folder for job in todo.jobs))


def _train(jobs: Sequence[tuple[RunConfig, Path]], quiet: bool) -> None:
    loaded: dict[DataConfig, Dataset] = {}

    def make(config: RunConfig, folder: Path, display: RunDisplay) -> Run:
        if config.data not in loaded:
            loaded[config.data] = config.data.load().to(Engine.resolve(config.engine).device)
        return Run.open(config, folder, loaded[config.data], display.watch(config))

    with RunDisplay(Console(emoji=False), quiet) as display:
        try:
            execute(partial(make, config, folder, display) for config, folder in jobs)
        except Interrupted as stop:
            raise Interrupted(stop.runs, stop.not_begun, stop.number, "the same call goes on") from None


@dataclass(frozen=True, repr=False)
class Experiment:
    """Runs of cells over seeds. In a notebook it shows itself; ``print`` gives the same as text."""

    runs: list[RunData]

    @classmethod
    def read(cls, *paths: str | Path) -> "Experiment":
        """The runs in these folders and records, or right below these folders."""
        return cls(read_runs([Path(path) for path in paths]))

    @cached_property
    def groups(self) -> list[Group]:
        """The runs of each learner over its seeds."""
        return group_runs(self.runs)

    @property
    def folders(self) -> list[Path]:
        """Where each run lies; ``Learner.load`` takes them."""
        return [run.stored.path for run in self.runs]

    @property
    def conclusion(self) -> str:
        """Who is ahead, by how much, and what that is worth."""
        told = (f"{where} {' '.join(conclusion(part))}".strip() for where, part in settings(self._done))
        return "\n".join(told)

    def table(self) -> list[dict[str, Any]]:
        """A row for each learner: means over seeds in percent, their standard deviations, the gain over its base.

        ``pandas.DataFrame(experiment.table())`` takes it as it is.
        """
        return [
            {
                "learner": group.label,
                "cell": group.example.cell,
                "seeds": sorted(group.finished),
                **{name: _of(group.estimate(name), "mean") for name in METRICS},
                **{f"{name}_std": _of(group.estimate(name), "std") for name in METRICS},
                "gain": _of(gain, "mean"),
                "gain_half": _of(gain, "half"),
                "over": over,
            }
            for group in self._done
            for over, gain in [self._gain(group)]
        ]

    def figure(self, kind: Literal["tasks", "matrices"] = "tasks") -> "Picture":
        """A matplotlib figure: accuracy over the ``tasks`` seen, or the accuracy ``matrices`` of the first seed."""
        shown = [group for group in self.groups if any(run.matrix for run in group.runs)]
        if kind not in ("tasks", "matrices"):
            raise ConfigError(f"expected the figure tasks or matrices, got {kind!r}; choose one of them")
        if kind == "matrices":
            first = {group.label: next(run.matrix for run in group.runs if run.matrix) for group in shown}
            return plot_matrices(first, "Accuracy by task")
        every = {group.label: [run.matrix for run in group.runs if run.matrix] for group in shown}
        return plot_tasks(every, "Mean over seeds; shade: lowest to highest")

    def report(self, file: str | Path = "report.html") -> Path:
        """Write the page of ``s6mod report``; its place."""
        write_whole(expanded(file), page(self.runs))
        return expanded(file)

    @property
    def _done(self) -> list[Group]:
        return [group for group in self.groups if group.values("accuracy")]

    def _gain(self, group: Group) -> tuple[str | None, Estimate | None]:
        """Over the first of its base and controls."""
        for other in group.opponents(self.groups):
            return other.label, group.gain(other, "accuracy")
        return None, None

    def _texts(self) -> tuple[list[str], list[list[str]]]:
        """Columns and rows for a person."""
        rows = []
        for group in self._done:
            over, gain = self._gain(group)
            figures = [group.estimate(name) for name in METRICS]
            told = f"{difference(gain.mean, gain.half)} over {over}" if gain else ""
            rows.append(
                [group.label, str(len(group.finished)), *(spread(e.mean, e.std) if e else "" for e in figures), told]
            )
        return ["learner", "seeds", *METRICS.values(), "gain"], rows

    def __repr__(self) -> str:
        columns, rows = self._texts()
        return "\n".join([*align([columns, *rows], frozenset({0, len(columns) - 1})), self.conclusion])

    def _repr_html_(self) -> str:
        columns, rows = self._texts()
        caption = (
            "percent, mean ± standard deviation over seeds; gain: Acc, paired by seed, ± half of the 95 % interval"
        )
        return table(columns, rows, caption) + "".join(map(paragraph, self.conclusion.splitlines()))


def _of(estimate: Estimate | None, part: str) -> float | None:
    return None if estimate is None else getattr(estimate, part)
