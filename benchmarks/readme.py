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

ROOT = Path(__file__).parents[1]
NAMES = {"er": "ER", "er+s6mod": "ER + S6MOD", "er+confidence": "ER + confidence penalty (control)"}


def spread(values):
    return f"{mean(values):.2f} ± {stdev(values):.2f}" if len(values) > 1 else f"{values[0]:.2f}"


def gain(ours, base):
    seeds = sorted(ours.keys() & base.keys())
    differences = [ours[s] - base[s] for s in seeds]
    if len(differences) < 2:
        return f"{differences[0]:+.2f} (n = 1)" if differences else "-"
    half = t.ppf(0.975, len(differences) - 1) * stdev(differences) / len(differences) ** 0.5
    return f"{mean(differences):+.2f} ± {half:.2f} (n = {len(differences)})"


def accuracy(record):
    return record["metrics"][record["primary"]]["accuracy"]


def table():
    cells = defaultdict(dict)
    for file in sorted((ROOT / "results").glob("*.json")):
        record = json.loads(file.read_text())
        cells[record["cell"], record["config"]["engine"]["precision"]][record["seed"]] = record
    lines = [
        "| setting | engine | learner | seeds | Acc (%) | AF (%) | N-Acc (%) | gain, paired, 95 % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (cell, precision), runs in sorted(
        cells.items(), key=lambda item: (item[0][0].split("/")[1:], item[0][1], item[0][0])
    ):
        learner, data, memory = cell.split("/")
        primary = [runs[s]["metrics"][runs[s]["primary"]] for s in sorted(runs)]
        base = cells.get((f"{learner.split('+')[0]}/{data}/{memory}", precision), {})
        paired = gain({s: accuracy(r) for s, r in runs.items()}, {s: accuracy(r) for s, r in base.items()})
        engine = "float32" if precision == "float32" else "bfloat16"
        lines.append(
            f"| {data}, M = {memory} | {engine} | {NAMES.get(learner, learner)} | {', '.join(map(str, sorted(runs)))} "
            f"| {spread([m['accuracy'] for m in primary])} | {spread([m['forgetting'] for m in primary])} "
            f"| {spread([m['learning_accuracy'] for m in primary])} | {paired if '+' in learner else ''} |"
        )
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
