"""What runs will take, for a person: ``s6mod sweep --plan``, and the refusal of what would take a CPU for ever."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.table import Table

from s6mod.columns import align
from s6mod.errors import ConfigError
from s6mod.experiments.costs import Cost
from s6mod.experiments.sweep import Sweep


def print_plan(sweep: Sweep, console: Console) -> None:
    """Counts, then a line for each learner with what its remaining runs will take."""

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    def balance(results: int, trainings: int) -> str:
        return f"{count(results, 'result')} from {count(trainings, 'training')}"

    say(balance(sweep.results, sweep.trainings))
    say(f"done: {balance(sweep.done_results, len(sweep.done))}")
    say(f"to run: {balance(sweep.results - sweep.done_results, len(sweep.jobs))}")
    groups: dict[str, list[Cost | None]] = defaultdict(list)
    for job, cost in zip(sweep.jobs, sweep.costs, strict=True):
        learner, data, _ = job.config.cell.split("/")
        groups[f"{learner}/{data}"].append(cost)
    if not groups:
        return
    table = Table(box=None, padding=(0, 1, 0, 0))
    for column in ("to run", "runs", "steps", "ms/step", "on an H200", "GiB", ""):
        table.add_column(column, justify="left" if column in ("to run", "") else "right")
    for name, costs in groups.items():
        known = [cost for cost in costs if cost is not None]
        if not known:
            table.add_row(name, str(len(costs)), "", "", "", "", "unknown")
            continue
        kinds = {cost.measured for cost in known}
        table.add_row(
            name,
            str(len(costs)),
            _from_to([f"{cost.steps:,}" for cost in sorted(known, key=lambda each: each.steps)]),
            _from_to([f"{cost.ms:.1f}" for cost in sorted(known, key=lambda each: each.ms)]),
            span(3600 * sum(cost.hours for cost in known)),
            f"{max(cost.memory_gib for cost in known):.1f}",
            "partly measured" if len(kinds) > 1 else "measured" if True in kinds else "estimated",
        )
    console.print(table)
    known = [cost for cost in sweep.costs if cost is not None]
    if known:
        unknown = len(sweep.costs) - len(known)
        left_out = f"evaluation and {count(unknown, 'run')} of unknown cost" if unknown else "evaluation"
        say(
            f"about {span(3600 * sum(cost.hours for cost in known))} on one H200, runs one after another; "
            f"the largest takes about {max(cost.memory_gib for cost in known):.1f} GiB; {left_out} not counted"
        )
        say(f"on the CPU of this machine: about {duration(cpu_seconds(known))}")


def print_pieces(pieces: Mapping[str, Sweep], console: Console) -> None:
    """Commands that run a part each, the one that takes least first; one with nothing left to run is left out."""
    seconds = {
        command: sum(3600 * cost.hours for cost in piece.costs if cost is not None)
        for command, piece in pieces.items()
        if piece.jobs
    }
    if len(seconds) < 2:
        return
    console.print("in pieces, the quickest answer first:", highlight=False)
    rows = [
        (command, count(len(pieces[command].jobs), "run"), span(takes))
        for command, takes in sorted(seconds.items(), key=lambda each: each[1])
    ]
    for line in align(rows, frozenset({0})):
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _from_to(figures: list[str]) -> str:
    """The first and the last of figures in order, once if they are the same."""
    return "-".join(dict.fromkeys((figures[0], figures[-1])))


def cpu_seconds(costs: Iterable[Cost | None]) -> float:
    """On all cores of this machine."""
    return sum(cost.cpu_seconds for cost in costs if cost is not None)


def refuse_cpu(costs: Iterable[Cost | None], yes: bool, advice: str = "", how: str = "--yes") -> None:
    """Refuse to run on a CPU, unless told to (``how``), what is meant for a GPU; ``advice``: what else one may do."""
    heavy = [cost for cost in costs if cost is not None and cost.wants_gpu]
    if heavy and not yes:
        raise ConfigError(
            f"expected a GPU for {count(len(heavy), 'run')} whose presets want one, got a CPU, which would take about "
            f"{duration(cpu_seconds(heavy))}; give {how} to go on all the same{advice}"
        )


def count(number: int, thing: str) -> str:
    """``1 run``, ``1,120 runs``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def span(seconds: float) -> str:
    """Device time, which is counted in hours however many; a short one in a unit that shows it."""
    if seconds >= 5400:
        return f"{seconds / 3600:,.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{max(seconds, 1):.0f} s"


def duration(seconds: float) -> str:
    """A wait, in the largest unit that there are two of."""
    for unit, size in (("years", 365 * 86400), ("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return count(max(round(seconds), 1), "second")
