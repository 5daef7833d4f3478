"""Write tables of README.md and of pages in docs/explanation from records: python benchmarks/readme.py [--check]

A number that no record supports cannot appear. Accuracies are those of the default engine. A row holds what is paired:
the seeds that all its learners have.
"""

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from s6mod.decimals import difference, spread
from s6mod.paper.estimate import ENOUGH, Estimate, paired
from s6mod.paper.published import METHODS, other_settings, table
from s6mod.paper.render import gain_text, notes
from s6mod.paper.tables import Results, sides
from s6mod.runs.cells import SHARED, Cell, parse
from s6mod.runs.completion import complete, setting
from s6mod.runs.store import scan

ROOT = Path(__file__).parents[1]
BENCH = ROOT / "results" / "bench" / "h200-2026-11-16-views.json"
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny-imagenet": "Tiny-ImageNet"}
NAMES = {"er": "ER", "ocm": "OCM", "onpro": "OnPro", "mose": "MOSE", "moe-mose": "MOE-MOSE", "er-ccldc": "ER-CCLDC"}
NAMES |= {"ocm-ccldc": "OCM-CCLDC", "onpro-ccldc": "OnPro-CCLDC"}
SHOWN = (("cifar10", 500), ("cifar10", 1000), ("cifar100", 1000), ("cifar100", 2000), ("cifar100", 5000),
         ("tiny-imagenet", 5000))  # fmt: skip
PRECISION = "bfloat16"
SHARED_VIEW = "s6mod/view=shared/beta=0.5"  # as the benchmark names it, where that is not the preset
CHANGED = {"onpro-ccldc"}  # whose preset has become another since the benchmark


def accuracies():
    """One row for each method, data set and memory size that was run with and without the branch, and each setting."""
    found = scan([ROOT / "results"])
    results = Results(found.finished)
    places = sorted({(run.config["data"]["name"], run.config["memory_size"]) for run in found.finished})
    rows = ["| | base | + confidence penalty | + S6MOD | S6MOD over base | over penalty | seeds | seconds |"]
    rows += ["|---|---|---|---|---|---|---|---|"]
    for method in (*METHODS, *SHARED):
        for data, memory in places:
            ours = Cell(method, "s6mod", data, memory)
            others = {f", {label}": cell for label, cell in other_settings(ours).items() if "published" not in label}
            for label, cell in {"": ours, **others}.items():
                if runs := of_shared_seeds(results, cell):
                    name = f"{NAMES[method]}, {DATA[data]}, M = {memory}{label}"
                    rows.append(line(name, *means(runs), *gains(runs), seeds(runs), seconds(runs)))
    return with_note(rows)


def short():
    """ER in the settings of ``SHOWN``, with the gain that the paper prints."""
    results = Results(scan([ROOT / "results"]).finished)
    papers = {each.cell: each.paper for section in table("1").sections for each in section.lines}
    rows = ["| ER on | alone | + confidence penalty | + S6MOD | S6MOD over ER | in the paper | over penalty | seeds |"]
    rows += ["|---|---|---|---|---|---|---|---|"]
    for data, memory in SHOWN:
        base, ours = (Cell("er", branch, data, memory) for branch in ("none", "s6mod"))
        runs = of_shared_seeds(results, ours)
        over_base, over_penalty = gains(runs)
        published = difference(papers[ours][0] - papers[base][0])
        name = f"{DATA[data]}, M = {memory}"
        rows.append(line(name, *means(runs), over_base, published, over_penalty, seeds(runs)))
    return with_note(rows)


def strongest():
    """The word ``best`` beside the best row that the paper has for a setting, whatever its method."""
    results = Results(scan([ROOT / "results"]).finished)
    published = [each for section in table("1").sections for each in section.lines if each.paper is not None]
    rows = ["| | best | less its 95 % half-width | seeds | the paper's best row | MOE-MOSE, ours |"]
    rows += ["|---|---|---|---|---|---|"]
    for data, memory in SHOWN:
        runs = of(results, parse(f"best/{data}/{memory}"))
        if len(runs) < ENOUGH:
            continue
        found = Estimate.of([value for _, value in runs.values()])
        paper = max(
            (each for each in published if (each.cell.data, each.cell.memory) == (data, memory)),
            key=lambda each: each.paper[0],
        )
        base = of(results, Cell("moe-mose", "none", data, memory))
        rows.append(
            line(
                f"{DATA[data]}, M = {memory}",
                f"**{accuracy(found)}**",
                f"{found.mean - found.half:.2f}",
                str(found.n),
                f"{paper.paper[0]:.2f} ({paper.cell.learner})",
                accuracy(Estimate.of([value for _, value in base.values()])) if base else "",
            )
        )
    return "\n".join(rows)


def of_shared_seeds(results, ours):
    """Runs by seed of a cell of S6MOD and, before them, of its base and its penalty: the seeds that all have.

    Empty unless base and S6MOD share a seed. A penalty that has none of their seeds is left blank.
    """
    found = [of(results, each) for each in (ours.with_branch("none"), ours.with_branch("confidence"), ours)]
    shared = found[0].keys() & found[2].keys()
    shared = shared & found[1].keys() or shared
    return [{seed: runs[seed] for seed in sorted(shared & runs.keys())} for runs in found] if shared else []


def of(results, cell):
    """The runs of a cell by seed, and the accuracy of each."""
    runs = results.runs[setting(complete(cell.values()))][PRECISION]
    return {seed: (run, run.metric("accuracy", cell.scores)) for seed, run in runs.items()}


def line(*texts):
    return f"| {' | '.join(texts)} |"


def with_note(rows):
    return "\n".join([*rows, *(text for note in notes(rows) for text in ("", f"{note}."))])


def means(runs):
    return [accuracy(Estimate.of([value for _, value in each.values()])) if each else "" for each in runs]


def accuracy(estimate):
    return spread(estimate.mean, estimate.std, gap=" ")


def gains(runs):
    base, control, ours = runs
    return gain(ours, base), gain(ours, control)


def gain(ours, base):
    """The paired gain; its interval takes three pairs, and a gain beyond chance is set in bold."""
    found = paired(*({seed: value for seed, (_, value) in each.items()} for each in (ours, base)))
    if found is None:
        return ""
    if found.n < ENOUGH:
        found = replace(found, half=None)
    both = ({seed: run for seed, (run, _) in each.items()} for each in (ours, base))
    text = gain_text(found, sides(*both), " ")
    return f"**{text}**" if found.half is not None and abs(found.mean) > found.half else text


def seeds(runs):
    return str(len(runs[0]))


def seconds(runs):
    times = [[run.result["train_seconds"] for run, _ in each.values()] for each in runs]
    return " / ".join(f"{fmean(each):.0f}" if each else "-" for each in times)


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
    for page, tables in (
        (ROOT / "README.md", {"results": short()}),
        (
            ROOT / "docs" / "explanation" / "results.md",
            {"results": accuracies(), "statistics": statistics(), "steps": steps()},
        ),
        (ROOT / "docs" / "explanation" / "strongest.md", {"strongest": strongest()}),
    ):
        text = fresh = page.read_text(encoding="utf-8")
        for name, made in tables.items():
            begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
            fresh = f"{fresh.split(begin)[0]}{begin}\n{made}\n{end}{fresh.split(end)[1]}"
        if "--check" not in sys.argv:
            page.write_text(fresh, encoding="utf-8")
        elif fresh != text:
            sys.exit(f"{page.name} is stale: run python benchmarks/readme.py")


if __name__ == "__main__":
    main()
