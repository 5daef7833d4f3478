"""Published forgetting beside ours by other definitions: python benchmarks/forgetting_readings.py [--store results].

a[i, p] is the accuracy on task p after task i, of T tasks that count from 0. Each reading is a function of the accuracy
matrices that records hold. A cell counts with the mean over its seeds. "misses" are published means from which a
reading is more than two published deviations away; "rms" is the root mean square of reading minus published. Both are
told for pairs of networks, for the methods that they are pairs of, and for MOSE, whose authors divide by T.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean

import numpy as np

from s6mod.paper.published import table
from s6mod.paper.tables import Results
from s6mod.runs.completion import complete, setting
from s6mod.runs.store import scan

PRECISION = "bfloat16"
GROUPS = ("pairs", "ER, OCM, OnPro", "MOSE")


def lower(rows):
    """(T, T), NaN above the diagonal."""
    a = np.full((len(rows), len(rows)), np.nan)
    for i, row in enumerate(rows):
        a[i, : i + 1] = row
    return a


def best_ever(a):
    return (np.nanmax(a, axis=0) - a[-1])[:-1]


def over_time(reading):
    """The mean over all times t > 0 of a reading of the tasks until then."""
    return lambda a: fmean(reading(a[: t + 1, : t + 1]) for t in range(1, len(a)))


def mean_best_ever(a):
    return best_ever(a).mean()


def since_learned(a):
    return (np.diagonal(a) - a[-1])[:-1].mean()


READINGS = {
    "best ever, T - 1 tasks (CCL-DC)": mean_best_ever,
    "best ever, T tasks (MOSE)": lambda a: best_ever(a).sum() / len(a),
    "best before the end (Chaudhry)": lambda a: (np.nanmax(a[:-1, :-1], axis=0) - a[-1, :-1]).mean(),
    "since learned": since_learned,
    "since learned, none below 0": lambda a: np.maximum(np.diagonal(a) - a[-1], 0)[:-1].mean(),
    "worst task each time (the paper's equation)": lambda a: fmean(
        np.max(np.diagonal(a)[:t] - a[t, :t]) for t in range(1, len(a))
    ),
    "best ever, mean over time": over_time(mean_best_ever),
    "since learned, mean over time": over_time(since_learned),
    "best ever, half of the tasks": lambda a: mean_best_ever(a[: len(a) // 2, : len(a) // 2]),
    "from one task to the next": lambda a: np.nanmean(a[:-1, :-1] - a[1:, :-1]),
    "share of the best that is lost, %": lambda a: 100 * (best_ever(a) / np.nanmax(a, axis=0)[:-1]).mean(),
}


def matrices(run):
    """By score table."""
    content = json.loads(Path(run.path).read_text(encoding="utf-8"))
    return {name: lower(rows) for name, rows in content["matrices"].items()}, content["primary"]


def readings(run, scores):
    """All of a run by name; those of single networks of a pair too."""
    found, primary = matrices(run)
    own = found[scores or primary]
    told = {name: float(reading(own)) for name, reading in READINGS.items()}
    networks = [found[name] for name in ("net1", "net2") if name in found]
    if networks:
        told["best ever of each network alone"] = fmean(float(mean_best_ever(a)) for a in networks)
        best = np.nanmax(np.mean(networks, axis=0), axis=0)
        told["best of single networks, end of both together"] = float((best - own[-1])[:-1].mean())
    if "ncm" in found:
        told["best ever, nearest means"] = float(mean_best_ever(found["ncm"]))
    return told


def cells(store):
    """Of every published forgetting that has results: its name, figure, seeds and readings."""
    results = Results(scan([store]).finished)
    for section in table("2").sections:
        for line in section.lines:
            runs = results.runs.get(setting(complete(line.cell.values())), {}).get(PRECISION, {})
            if line.paper is None or line.control or not runs:
                continue
            each = [readings(run, line.cell.scores) for run in runs.values()]
            yield line.cell, line.paper, len(runs), {name: fmean(of[name] for of in each) for name in each[0]}


def group_of(cell):
    return "MOSE" if "mose" in cell.method else "pairs" if cell.method.endswith("-ccldc") else "ER, OCM, OnPro"


def fit(own):
    """How a reading of some cells fits their published mean and deviation."""
    if not own:
        return ""
    misses = sum(abs(value - mean) > 2 * spread for value, (mean, spread) in own)
    return f"{misses}; {fmean((value - mean) ** 2 for value, (mean, _) in own) ** 0.5:.1f}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", type=Path, default=Path("results"))
    found = list(cells(parser.parse_args().store))
    groups = {name: [each for each in found if group_of(each[0]) == name] for name in GROUPS}
    pairs = groups["pairs"]
    print(f"| reading | {' | '.join(f'{cell.learner}, n = {n}' for cell, _, n, _ in pairs)} | {' | '.join(groups)} |")
    print("|---" * (len(pairs) + len(groups) + 1) + "|")
    papers = [f"{mean:.2f} ± {spread:.2f}" for _, (mean, spread), _, _ in pairs]
    heads = [f"misses of {len(group)}; rms" for group in groups.values()]
    print(f"| *the paper* | {' | '.join([*papers, *heads])} |")
    for name in dict.fromkeys(name for *_, told in found for name in told):
        row = [f"{told[name]:.1f}" for *_, told in pairs]
        row += [fit([(told[name], paper) for _, paper, _, told in group if name in told]) for group in groups.values()]
        print(f"| {name} | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
