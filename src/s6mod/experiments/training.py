"""Runs of one configuration in this process: one, or one for each of several seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from s6mod.config import merge
from s6mod.display import RunDisplay, result_table
from s6mod.engine.settings import Engine
from s6mod.experiments.sweep import numbers
from s6mod.runs.compose import compose
from s6mod.runs.config import RunConfig, read_run_config
from s6mod.runs.execute import execute
from s6mod.runs.folder import RunFolder
from s6mod.runs.records import read_result
from s6mod.runs.run import Run
from s6mod.trackers import require


@dataclass(frozen=True)
class Training:
    """Runs that differ in their seeds alone, each with its folder."""

    base: RunConfig
    configs: list[RunConfig]
    folders: list[Path]
    resumes: bool  # whether the run of a folder is gone on with
    repeats: bool  # whether the same command goes on where it was

    @classmethod
    def new(
        cls,
        given: Mapping[str, Any],
        file: Path | None,
        assignments: Sequence[str],
        place: Mapping[str, Any],
        seeds: str | None,
        out: Path | None,
    ) -> "Training":
        """Of a configuration composed from these; ``out``: the run's folder, or of several seeds their parent."""
        base = compose(given, file, assignments, place)
        if seeds is None:
            return cls(base, [base], [out or Path("runs") / base.folder_name], resumes=False, repeats=False)
        configs = [base.model_copy(update={"seed": number}) for number in numbers(seeds)]
        return cls(
            base, configs, [(out or Path("runs")) / each.folder_name for each in configs], resumes=False, repeats=True
        )

    @classmethod
    def resumed(cls, folder: Path, place: Mapping[str, Any]) -> "Training":
        """The run in a folder, perhaps in another place than before."""
        track = place.get("output", {}).get("track")
        base = RunConfig.parse(merge(read_run_config(folder, track).plain(), place))
        return cls(base, [base], [folder], resumes=True, repeats=True)

    @property
    def yaml(self) -> str:
        """The whole configuration."""
        return yaml.safe_dump(self.base.plain(), sort_keys=False)

    def run(self, console: Console, quiet: bool, at_once: int | None) -> list[dict[str, Any]]:
        """Take each run to its end; their results."""
        require(self.base.output.track)
        finished = RunFolder(self.folders[0]).result
        if self.resumes and not self.base.output.track and finished.exists():
            return [read_result(finished, sealed=False)]  # whether or not the data is there
        with RunDisplay(console, quiet) as display:
            dataset = self.base.data.load().to(Engine.resolve(self.base.engine).device)
            under_way: set[int] = set()  # runs that are not are somebody else's, or none

            def make(number: int, config: RunConfig, folder: Path) -> Run:
                run = (Run.open if self.repeats else Run.begin)(config, folder, dataset, display.watch(config))
                under_way.add(number)
                return run

            def failed(number: int, error: Exception) -> None:
                if number in under_way:
                    RunFolder(self.folders[number]).note_failure(error)
                raise error

            pairs = zip(self.configs, self.folders, strict=True)
            return execute([partial(make, number, *pair) for number, pair in enumerate(pairs)], at_once, failed)

    def show(self, results: list[dict[str, Any]], console: Console) -> None:
        """The table of results, and where they are."""
        console.print(result_table(results))
        for folder in self.folders:
            console.print(str(folder), soft_wrap=True, highlight=False, markup=False)
