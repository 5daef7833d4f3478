"""What ``s6mod sweep --plan`` prints: how many results and trainings, what is done, and what the rest will cost."""

from collections import defaultdict
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from s6mod.experiments.costs import Cost
from s6mod.experiments.sweep import Sweep


def print_plan(sweep: Sweep, console: Console) -> None:
    """Counts, then a line for each learner with what its remaining runs will take."""

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    say(f"{sweep.results:,} results from {sweep.trainings:,} trainings")
    left = sweep.results - sweep.done_results
    say(f"done: {sweep.done_results:,} results from {len(sweep.done):,} trainings")
    say(f"to run: {left:,} results from {len(sweep.jobs):,} trainings")
    groups: dict[str, list[Cost | None]] = defaultdict(list)
    for job, cost in zip(sweep.jobs, sweep.costs, strict=True):
        learner, data, _ = job.config.cell.split("/")
        groups[f"{learner}/{data}"].append(cost)
    if not groups:
        return
    table = Table(box=None, padding=(0, 1, 0, 0))
    for column in ("to run", "runs", "steps", "ms/step", "H200 hours", "GiB", ""):
        table.add_column(column, justify="left" if column in ("to run", "") else "right")
    for name, costs in groups.items():
        known = [cost for cost in costs if cost is not None]
        if not known:
            table.add_row(name, str(len(costs)), "", "", "", "", "unknown")
            continue
        first = known[0]
        table.add_row(
            name,
            str(len(costs)),
            f"{first.steps:,}",
            f"{first.ms:.1f}",
            f"{sum(cost.hours for cost in known):.1f}",
            f"{max(cost.memory_gib for cost in known):.1f}",
            "measured" if first.measured else "estimated",
        )
    console.print(table)
    known = [cost for cost in sweep.costs if cost is not None]
    if known:
        say(
            f"about {sum(cost.hours for cost in known):,.1f} hours on one H200, runs one after another; the largest "
            f"takes about {max(cost.memory_gib for cost in known):.1f} GiB; evaluation not counted"
        )
        say(f"on the CPU of this machine: about {duration(cpu_seconds(known))}")


def cpu_seconds(costs: Iterable[Cost | None]) -> float:
    """On all cores of this machine."""
    return sum(cost.cpu_seconds for cost in costs if cost is not None)


def duration(seconds: float) -> str:
    """For a person."""
    for unit, size in (("years", 365 * 86400), ("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
