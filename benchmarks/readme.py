"""Write the README's results table from the run records: python benchmarks/readme.py [--check]

One row per cell: mean and standard deviation over seeds, and the gains in Acc over the base method and the control,
paired by seed, with their 95 % intervals. A number that no record supports cannot appear.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

from scipy.stats import t

from s6mod.engine.run_config import RunConfig
from s6mod.experiments.presets import preset

ROOT = Path(__file__).parents[1]
METHODS = {"er": "ER", "ocm": "OCM", "onpro": "OnPro", "mose": "MOSE"}
BRANCHES = {"": "", "confidence": " + confidence penalty (control)", "s6mod": " + S6MOD"}


def spread(values):
    return f"{mean(values):.2f} ± {stdev(values):.2f}" if len(values) > 1 else f"{values[0]:.2f}"


def order(item):
    cell, engine, departs = item[0]
    learner, data, memory = cell.split("/")
    method, _, branch = learner.partition("+")
    return data, int(memory), list(METHODS).index(method), engine, list(BRANCHES).index(branch), departs


def gain(ours, base):
    """Mean difference of Acc over the seeds that both have, with its 95 % half-width."""
    differences = [accuracy(ours[seed]) - accuracy(base[seed]) for seed in sorted(ours.keys() & base.keys())]
    if len(differences) < 2:
        return f"{differences[0]:+.2f} (n = 1)" if differences else "-"
    half = t.ppf(0.975, len(differences) - 1) * stdev(differences) / len(differences) ** 0.5
    return f"{mean(differences):+.2f} ± {half:.2f} (n = {len(differences)})"


def accuracy(record):
    return record["metrics"][record["primary"]]["accuracy"]


def engine_of(record):
    """How it was computed, in words: precision and capture as they were on that device."""
    asked = record["config"]["engine"]
    cuda = record["environment"]["device"] != "cpu"
    bfloat16 = asked["precision"] == "bfloat16" or (asked["precision"] == "auto" and cuda)
    captured = asked["capture"] == "auto" and cuda
    return f"{'bfloat16' if bfloat16 else 'float32'}, {'captured' if captured else 'eager'}"


def variant(record):
    """How the branch's options depart from the preset of the cell, in words."""
    learner, data, memory = record["cell"].split("/")
    method, _, branch = learner.partition("+")
    if not branch:
        return ""
    usual = RunConfig.parse(preset(method, branch, data, int(memory))).plain()["branch"]
    mine = record["config"]["branch"]
    return ", ".join(f"{key} = {value}" for key, value in mine.items() if usual.get(key) != value)


def table():
    cells = defaultdict(dict)
    for file in sorted((ROOT / "results").glob("*.json")):
        record = json.loads(file.read_text())
        key = record["cell"], engine_of(record), variant(record)
        if record["seed"] in cells[key]:
            raise SystemExit(f"two records of seed {record['seed']} for {key}: remove one from results/")
        cells[key][record["seed"]] = record
    lines = [
        "| setting | engine | learner | seeds | Acc (%) | AF (%) | N-Acc (%) | over the base | over the control |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (cell, engine, departs), runs in sorted(cells.items(), key=order):
        learner, data, memory = cell.split("/")
        primary = [runs[s]["metrics"][runs[s]["primary"]] for s in sorted(runs)]
        method, _, branch = learner.partition("+")
        paired = [
            gain(runs, cells.get((f"{other}/{data}/{memory}", engine, ""), {})) if learner != other else ""
            for other in (method, f"{method}+confidence")
        ]
        name = METHODS[method] + BRANCHES[branch] + (f" ({departs})" if departs else "")
        figures = [spread([m[key] for m in primary]) for key in ("accuracy", "forgetting", "learning_accuracy")]
        seeds = ", ".join(map(str, sorted(runs)))
        row = [f"{data}, M = {memory}", engine, name, seeds, *figures, *(paired if "+" in learner else ["", ""])]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def main():
    readme = ROOT / "README.md"
    text = readme.read_text()
    begin, end = "<!-- results:begin -->", "<!-- results:end -->"
    head, tail = text.split(begin)[0], text.split(end)[1]
    fresh = f"{head}{begin}\n{table()}\n{end}{tail}"
    if "--check" in sys.argv:
        sys.exit(0 if fresh == text else "README.md is stale: run python benchmarks/readme.py")
    readme.write_text(fresh)


if __name__ == "__main__":
    main()
