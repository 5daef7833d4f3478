"""Stores made by hand: what a run leaves behind, without running it."""

import json

import pytest

from s6mod.runs.cells import parse
from s6mod.runs.completion import complete
from s6mod.runs.compose import fitted
from s6mod.runs.name import run_hash


@pytest.fixture
def write_run():
    """Write the folder of a run: ``accuracy`` None leaves it unfinished; ``own``: path of the cell's own data."""

    def write(
        store, cell, seed=0, accuracy=30.0, forgetting=20.0, device="NVIDIA H200", source="a" * 12, own=None,
        fingerprint="f" * 12, numerics=None, **engine,
    ):  # fmt: skip
        training = parse(cell, own).training
        plain = complete(fitted(training.values())) | {"seed": seed}
        plain["engine"] = plain["engine"] | engine
        name = training.name
        metrics = {"accuracy": accuracy, "forgetting": forgetting, "forgetting_mose": 0.9 * forgetting}
        metrics["learning_accuracy"] = accuracy and accuracy + forgetting
        environment = {"device": device, "source": source, "s6mod": "0.1.0"}
        environment |= {} if numerics is None else {"numerics": numerics}
        result = {
            "format": 1,
            "hash": run_hash(plain),
            "cell": "/".join(name.split("/")[:3]),
            "seed": seed,
            "data": fingerprint,
            "primary": "ncm" if plain["method"]["name"] == "mose" else "head",
            "metrics": {"head": metrics, "ncm": metrics, "moe": {k: v and v + 2 for k, v in metrics.items()}},
            "matrices": {"head": [[1.0], [2.0, 3.0]]},
            "steps": 5000,
            "ms_per_step": 4.0,
            "train_seconds": 20.0,
            "bytes_held": 140_000_000,
            "environment": environment,
            "config": plain,
        }
        folder = store / f"{name.replace('/', '-')}-seed{seed}-{source[:2]}{len(list(store.glob('*')))}"
        folder.mkdir(parents=True)
        content = {"hash": result["hash"], "data": fingerprint, "config": plain, "environment": environment}
        (folder / "config.json").write_text(json.dumps(content, indent=1))
        if accuracy is not None:
            (folder / "result.json").write_text(json.dumps(result, indent=1))
        return folder

    return write
