"""The demonstration: ER with and without the branch, and with its control, on digits over a few seeds."""

import shutil
from functools import partial
from pathlib import Path

from rich.console import Console

from s6mod.data import load
from s6mod.display import RunDisplay, result_table
from s6mod.errors import ConfigError
from s6mod.files import write_whole
from s6mod.paper.estimate import WORTH
from s6mod.presets import preset
from s6mod.report.conclusion import conclusion
from s6mod.report.groups import group_runs
from s6mod.report.matrix_picture import plot_matrices
from s6mod.report.page import page
from s6mod.report.picture import DPI, require_matplotlib
from s6mod.report.source import read_runs
from s6mod.runs.config import RunConfig
from s6mod.runs.execute import Interrupted, execute
from s6mod.runs.run import Run

BRANCHES = ("none", "s6mod", "confidence")
# Not as the presets have it: in a stream of 150 batches BatchNorm's running averages lag so far behind that a task just
# learned looks unlearned.
COMMON = {
    "statistics": "memory",
    "engine": {"device": "cpu"},
    "output": {"log_every": 10, "eval_every": 15},  # for the report
}
MARK = ".s6mod-demo"  # says that a folder is ours to replace


def run_demo(folder: Path, seeds: int, console: Console) -> None:
    """Run all, print the table, draw the accuracy matrices of the first seed, write the report."""
    require_matplotlib()
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARK).exists():
            raise ConfigError(
                f"expected a new folder or an earlier demo's, got {folder}, which holds something else; "
                "choose another --out"
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()
    configs = [
        RunConfig.parse(preset("er", branch, "digits", None) | COMMON | {"seed": seed})
        for branch in BRANCHES
        for seed in range(seeds)
    ]
    with RunDisplay(console) as display:
        dataset = load("digits")

        def make(config: RunConfig) -> Run:
            return Run.begin(config, folder / config.folder_name, dataset, display.watch(config))

        try:
            results = execute(partial(make, config) for config in configs)
        except Interrupted as stop:
            advice = "the same command begins anew"
            raise Interrupted(stop.runs, stop.not_begun, stop.number, advice) from None
    runs = read_runs([folder / config.folder_name for config in configs])
    told = [sentence for sentence in conclusion(group_runs(runs)) if sentence != WORTH]  # which the table says
    console.print(result_table(results))
    console.print(" ".join(told), highlight=False)
    console.print("BatchNorm predicts by the memory's images (statistics=memory), unlike the presets", highlight=False)
    first = [result for result in results if result["seed"] == 0]
    picture = folder / "accuracy.png"
    matrices = {result["cell"]: result["matrices"][result["primary"]] for result in first}
    plot_matrices(matrices, "Accuracy by task, seed 0").savefig(picture, dpi=DPI)
    console.print(f"accuracy matrices: {picture}", soft_wrap=True, highlight=False)
    report = folder / "report.html"
    write_whole(report, page(runs))
    console.print(f"report, for a browser: {report}", soft_wrap=True, highlight=False)
