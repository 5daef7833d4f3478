"""Write the README's results table from the run records: python benchmarks/readme.py [--check]

One row per cell, one block per data set and memory size: mean and standard deviation over seeds, and the gain over the
base method paired by seed, with its 95 % interval. A number that no record supports cannot appear.
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
NAMES = {"er": "ER", "er+confidence": "ER + confidence penalty (control)", "er+s6mod": "ER + S6MOD"}


def spread(values):
    return f"{mean(values):.2f} ± {stdev(values):.2f}" if len(values) > 1 else f"{values[0]:.2f}"


def order(item):
    cell, precision, departs = item[0]
    learner, data, memory = cell.split("/")
    return data, int(memory), precision != "float32", list(NAMES).index(learner), departs


def gain(ours, base):
    seeds = sorted(ours.keys() & base.keys())
    differences = [ours[s] - base[s] for s in seeds]
    if len(differences) < 2:
        return f"{differences[0]:+.2f} (n = 1)" if differences else "-"
    half = t.ppf(0.975, len(differences) - 1) * stdev(differences) / len(differences) ** 0.5
    return f"{mean(differences):+.2f} ± {half:.2f} (n = {len(differences)})"


def accuracy(record):
    return record["metrics"][record["primary"]]["accuracy"]


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
        key = record["cell"], record["config"]["engine"]["precision"], variant(record)
        if record["seed"] in cells[key]:
            raise SystemExit(f"two records of seed {record['seed']} for {key}: remove one from results/")
        cells[key][record["seed"]] = record
    lines = [
        "| setting | engine | learner | seeds | Acc (%) | AF (%) | N-Acc (%) | gain, paired, 95 % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (cell, precision, departs), runs in sorted(cells.items(), key=order):
        learner, data, memory = cell.split("/")
        primary = [runs[s]["metrics"][runs[s]["primary"]] for s in sorted(runs)]
        base = cells.get((f"{learner.split('+')[0]}/{data}/{memory}", precision, ""), {})
        paired = gain({s: accuracy(r) for s, r in runs.items()}, {s: accuracy(r) for s, r in base.items()})
        name = NAMES[learner] + (f" ({departs})" if departs else "")
        engine = "float32, eager" if precision == "float32" else "bfloat16, captured"
        figures = [spread([m[key] for m in primary]) for key in ("accuracy", "forgetting", "learning_accuracy")]
        seeds = ", ".join(map(str, sorted(runs)))
        row = [f"{data}, M = {memory}", engine, name, seeds, *figures, paired if "+" in learner else ""]
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
