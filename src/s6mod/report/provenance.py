"""The last section: where the numbers come from. Configuration, hardware, time, memory, commands."""

import shlex
from collections.abc import Sequence
from html import escape
from typing import Any

import yaml

from s6mod.config import assign
from s6mod.presets import datasets
from s6mod.report.groups import Group, plain_config
from s6mod.report.html import Section, download, paragraph, table
from s6mod.runs.cells import Cell
from s6mod.runs.completion import complete, departures, engine_departures
from s6mod.runs.name import run_hash
from s6mod.runs.store import StoredRun

COSTS = (
    "status", "batches", "training (s)", "evaluation (s)", "ms a batch", "MB held", "peak MB (GPU)", "runs at once",
)  # fmt: skip
SOURCES = ("device", "precision", "threads", "torch", "s6mod", "code", "hash", "from")


def provenance(groups: Sequence[Group]) -> Section:
    """All runs of the page, those taken from the store included."""
    costs, sources = [], []
    for group in groups:
        shown = {run.stored.seed: run.stored for run in group.runs}
        for _, run in sorted({**group.finished, **shown}.items()):
            name = f"{group.label}, seed {run.seed}"
            costs.append((name, *_costs(run)))
            sources.append((name, *_sources(run)))
    about = "MB held: networks, branch, optimiser and memory between steps."
    parts = [table(("run", *COSTS), costs, "Time and memory"), paragraph(about, "note")]
    parts.append(table(("run", *SOURCES), sources, "Hardware, versions, files"))
    parts += [_configuration(group) for group in groups if group.runs]
    return Section("runs", "Runs", "".join(parts))


def _costs(run: StoredRun) -> list[object]:
    result = run.result or {}

    def number(name: str, scale: float = 1, digits: int = 1) -> str:
        value = result.get(name)
        return f"{value / scale:.{digits}f}" if isinstance(value, int | float) else ""

    return [
        run.status,
        result.get("steps"),
        number("train_seconds"),
        number("eval_seconds"),
        number("ms_per_step"),
        number("bytes_held", 1e6),
        number("peak_device_bytes", 1e6, 0),
        result.get("runs_at_once"),
    ]


def _sources(run: StoredRun) -> list[object]:
    environment = run.environment
    return [
        environment.get("device"),
        run.precision,
        environment.get("threads"),
        environment.get("torch"),
        environment.get("s6mod"),
        environment.get("source"),
        run.hash,
        str(run.path),
    ]


def _configuration(group: Group) -> str:
    config = plain_config(group.example)
    seeds = [run.stored.seed for run in group.runs]
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
    command = reproduce(config, seeds) or f"s6mod train --config run.yaml {_seeds(seeds)}"
    made_by = dict.fromkeys(str(run.stored.environment.get("command") or "") for run in group.runs)
    recorded = "".join(f"<pre><code>{escape(each)}</code></pre>" for each in made_by if each)
    told = f"<p>The records name the command that made them:</p>{recorded}" if recorded else ""
    return (
        f"<h3>{escape(group.label)}</h3><p>This trains it again:</p><pre><code>{escape(command)}</code></pre>"
        f"{told}"
        f"<details><summary>Configuration</summary><pre>{escape(text)}</pre>"
        f"<p>{download(text, 'run.yaml', 'run.yaml', 'text/yaml')}</p></details>"
    )


def reproduce(config: dict[str, Any], seeds: Sequence[int]) -> str | None:
    """The command that trains a complete configuration again; None if flags cannot say it."""
    cell = Cell.of(config)
    values = cell.values()
    usual = complete(values)
    words = ["s6mod", "train", "--method", cell.method, "--data", cell.data, "--memory", str(cell.memory)]
    words += ["--branch", cell.branch] if cell.branch != "none" else []
    words += ["--teacher", cell.teacher] if cell.teacher != "none" else []
    own_place = config["data"]["root"] if cell.data not in datasets() else None
    words += ["--data-root", own_place] if own_place is not None else []
    for change in departures(config, usual) + engine_departures(config, usual):
        values = assign(values, change)
        words += ["--set", change]
    same = run_hash(complete(values) | {"seed": config["seed"]}) == run_hash(config)
    return f"{shlex.join(words)} {_seeds(seeds)}" if same else None


def _seeds(seeds: Sequence[int]) -> str:
    return f"--seed {seeds[0]}" if len(seeds) == 1 else f"--seeds {','.join(map(str, seeds))}"
