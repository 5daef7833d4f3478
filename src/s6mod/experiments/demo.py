"""The demonstration: ER with and without the branch, and with its control, on digits over a few seeds."""

import shutil
from pathlib import Path
from typing import Any

from rich.console import Console

from s6mod.display import RunDisplay, result_table
from s6mod.engine.run import Run, RunConfig
from s6mod.errors import ConfigError
from s6mod.experiments.presets import preset
from s6mod.report.figures import plot_matrices

BRANCHES = ("none", "s6mod", "confidence")
MARK = ".s6mod-demo"  # says that a folder is ours to replace


def run_demo(folder: Path, seeds: int, console: Console) -> None:
    """Run all, print the table, draw the accuracy matrices of the first seed."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARK).exists():
            raise ConfigError(
                f"expected a new folder or an earlier demo's, got {folder}, which holds something else; "
                "choose another --out"
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()
    results: list[dict[str, Any]] = []
    with RunDisplay(console) as display:
        for branch in BRANCHES:
            for seed in range(seeds):
                config = RunConfig.parse(preset("er", branch, "digits", None) | {"seed": seed})
                results.append(Run(config, folder / config.folder_name, watch=display.watch(config)).start())
    console.print(result_table(results))
    first = [result for result in results if result["seed"] == 0]
    picture = folder / "accuracy.png"
    plot_matrices(
        {result["cell"]: result["matrices"][result["primary"]] for result in first},
        picture,
        "Accuracy by task, seed 0",
    )
    console.print(f"accuracy matrices: {picture}", soft_wrap=True, highlight=False)
