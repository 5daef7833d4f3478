"""Write the README's tables from the records of runs and of the benchmarks: python benchmarks/readme.py [--check]

A number that no record supports cannot appear. Accuracies are those of the default engine; gains are paired by seed.
"""

import csv
import json
import sys
from pathlib import Path
from statistics import fmean

from s6mod.decimals import spread
from s6mod.paper.estimate import Estimate, paired
from s6mod.paper.published import METHODS, other_settings
from s6mod.paper.render import MIXED, NOTE, gain_text
from s6mod.paper.tables import Results, mixed
from s6mod.runs.cells import SHARED, Cell
from s6mod.runs.completion import complete, setting
from s6mod.runs.store import scan

ROOT = Path(__file__).parents[1]
BENCH = ROOT / "results" / "bench" / "h200-2026-11-16-views.json"
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny-imagenet": "Tiny-ImageNet"}
NAMES = {"er": "ER", "ocm": "OCM", "onpro": "OnPro", "mose": "MOSE", "moe-mose": "MOE-MOSE", "er-ccldc": "ER-CCLDC"}
NAMES |= {"ocm-ccldc": "OCM-CCLDC", "onpro-ccldc": "OnPro-CCLDC"}
PRECISION = "bfloat16"
SHARED_VIEW = "s6mod/view=shared/beta=0.5"  # as the benchmark names it, where that is not the preset
CHANGED = {"onpro-ccldc"}  # whose preset has become another since the benchmark


def accuracies():
    """One row for each method, data set and memory size that was run."""
    found = scan([ROOT / "results"])
    results = Results(found.finished)
    places = sorted({(run.config["data"]["name"], run.config["memory_size"]) for run in found.finished})
    rows = ["| | base | + confidence penalty | + S6MOD | S6MOD over base | over penalty | seeds | seconds |"]
    rows += ["|---|---|---|---|---|---|---|---|"]
    for method in (*METHODS, *SHARED):
        for data, memory in places:
            base, control, ours = (Cell(method, branch, data, memory) for branch in ("none", "confidence", "s6mod"))
            others = {f", {label}": cell for label, cell in other_settings(ours).items() if "published" not in label}
            for label, cell in {"": ours, **others}.items():
                runs = [of(results, each) for each in (base, control, cell)]
                if runs[0][0] and (cell is ours or runs[2][0]):
                    rows.append(row(f"{NAMES[method]}, {DATA[data]}, M = {memory}{label}", *runs))
    if any(MIXED in text for text in rows):
        rows += ["", f"{NOTE}."]
    return "\n".join(rows)


def of(results, cell):
    """The runs of a cell by seed, and the accuracy of each."""
    runs = results.runs[setting(complete(cell.values()))][PRECISION]
    return runs, {seed: run.metric("accuracy", cell.scores) for seed, run in runs.items()}


def row(name, *runs):
    base, control, ours = runs
    means = [accuracy(Estimate.of(list(values.values()))) if values else "" for _, values in runs]
    gains = [gain(ours, base), gain(ours, control)]
    seeds = " / ".join(str(len(found)) for found, _ in runs)
    times = [[run.result["train_seconds"] for run in found.values()] for found, _ in runs]
    seconds = " / ".join(f"{fmean(each):.0f}" if each else "-" for each in times)
    return f"| {' | '.join([name, *means, *gains, seeds, seconds])} |"


def accuracy(estimate):
    return spread(estimate.mean, estimate.std, gap=" ")


def gain(ours, base):
    (runs, values), (base_runs, base_values) = ours, base
    return gain_text(paired(values, base_values), mixed(runs, base_runs), " ")


def statistics():
    """The same networks by BatchNorm's running averages and by statistics of the memory."""
    found = {}
    with (ROOT / "results" / "statistics" / "of-memory.csv").open(newline="", encoding="utf-8") as file:
        for each in csv.DictReader(file):
            if (each["table"], each["precision"]) == ("head", PRECISION) and each["variant"] in ("", "paper"):
                found.setdefault(each["cell"], []).append((float(each["running"]), float(each["memory"])))
    rows = ["| | running averages | statistics of the memory |", "|---|---|---|"]
    for name, branch in (("", ""), (" + confidence penalty", "+confidence"), (" + label smoothing", "+smoothing"),
                         (" + S6MOD, shared view", "+s6mod")):  # fmt: skip
        ways = zip(*found[f"er{branch}/cifar100/2000"], strict=True)
        rows.append(f"| ER{name} | {' | '.join(accuracy(Estimate.of(way)) for way in ways)} |")
    return "\n".join(rows)


def steps():
    """Milliseconds of a captured step, with and without the branch, beside the reference implementations."""
    bench = json.loads(BENCH.read_text(encoding="utf-8"))
    ms = {row["learner"]: row["ms_per_step"] for row in bench["rows"] if row["steps"] == "captured"}
    reference = {row["learner"]: row["reference"] for row in bench["rows"]}
    rows = ["| ms per step | reference | s6mod | + S6MOD, shared view | + S6MOD, preset | its reference |"]
    rows += ["|---|---|---|---|---|---|"]
    for method in (each for each in METHODS if each in ms):
        shared = ms.get(f"{method}+{SHARED_VIEW}", ms[f"{method}+s6mod"])
        preset = "" if method in CHANGED else f"{ms[f'{method}+s6mod']:.1f}"
        published = [f"{value:g}" if value else "" for value in (reference[method], reference[f"{method}+s6mod"])]
        figures = [published[0], f"{ms[method]:.1f}", f"{shared:.1f}", preset, published[1]]
        rows.append(f"| {' | '.join([NAMES[method], *figures])} |")
    packed = {branch: bench["packed"][f"er+{branch}"]["8"] for branch in ("s6mod", SHARED_VIEW)}
    rows += [
        "",
        f"Eight runs of ER + S6MOD side by side take {packed['s6mod']:.2f} ms per step and run with the preset,",
    ]
    return "\n".join([*rows, f"{packed[SHARED_VIEW]:.2f} with a shared view."])


def main():
    readme = ROOT / "README.md"
    text = fresh = readme.read_text(encoding="utf-8")
    for name, made in (("results", accuracies()), ("statistics", statistics()), ("steps", steps())):
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        fresh = f"{fresh.split(begin)[0]}{begin}\n{made}\n{end}{fresh.split(end)[1]}"
    if "--check" in sys.argv:
        sys.exit(0 if fresh == text else "README.md is stale: run python benchmarks/readme.py")
    readme.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    main()
