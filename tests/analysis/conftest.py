"""Runs to analyse: made by hand, and two small real ones."""

import json

import pytest

from s6mod.config import merge
from s6mod.metrics import AccuracyMatrix, Metrics
from s6mod.runs.cells import parse
from s6mod.runs.completion import complete
from s6mod.runs.config import RunConfig
from s6mod.runs.execute import execute
from s6mod.runs.name import run_hash
from s6mod.runs.run import Run

TINY = {
    "method": {"name": "er", "network": {"width": 4}, "memory_batch": 16},
    "memory_size": 60,
    "stream": {"tasks": 3, "samples_per_task": 50},
    "output": {"log_every": 4},
    "engine": {"device": "cpu"},
}
BRANCH = {"branch": {"name": "s6mod", "d_inner": 12, "num_patterns": 3, "state_dim": 4, "dt_rank": 3, "beta": 0.0}}


@pytest.fixture
def write_run():
    """Write the folder of a finished run of a cell (a name or a ``Cell``) with this accuracy matrix."""

    def write(store, cell, seed, rows, device="cpu"):
        cell = parse(cell) if isinstance(cell, str) else cell
        plain = complete(cell.values()) | {"seed": seed}
        metrics = Metrics.of(AccuracyMatrix.from_rows(rows)).plain()
        result = {
            "format": 1, "hash": run_hash(plain), "cell": cell.name, "seed": seed, "primary": "head",
            "metrics": {"head": metrics}, "matrices": {"head": rows}, "ms_per_step": 4.0, "bytes_held": 1_000_000,
            "environment": {"device": device, "source": "a" * 12}, "config": plain,
        }  # fmt: skip
        folder = store / f"{len(list(store.glob('*')))}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "result.json").write_text(json.dumps(result, indent=1))
        return folder

    return write


@pytest.fixture(scope="session")
def matrix():
    """Make a matrix of three tasks: all at ``final`` in the end, each earlier one ``lost`` points better before."""

    def make(final, lost):
        return [[final + lost], [final + lost] * 2, [final] * 3]

    return make


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Folders of two finished runs on the same stream: ER, and ER with S6MOD."""
    folder = tmp_path_factory.mktemp("runs")
    configs = {name: RunConfig.parse(merge(TINY, over)) for name, over in (("er", {}), ("er+s6mod", BRANCH))}
    for name, config in configs.items():
        execute([lambda name=name, config=config: Run.begin(config, folder / name)])
    return {name: folder / name for name in configs}
