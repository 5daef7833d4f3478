"""``s6mod runs``: what is in the store; ``runs export`` and ``runs adopt``: public records out of it and into it."""

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from s6mod.cli import options
from s6mod.cli.app import Group, app, warn_of
from s6mod.errors import CheckpointError, ConfigError, printable
from s6mod.files import clear_aside
from s6mod.run_files import RunFiles


class _ListUnlessTold(Group):
    """``s6mod runs DIR`` means ``s6mod runs list DIR``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        told = args and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if told else ["list", *args])


runs = typer.Typer(
    cls=_ListUnlessTold,
    help="List runs; take public records of them out and in.\n\nOptions of the list: s6mod runs list --help.",
)
app.add_typer(runs, name="runs")

SHOWN = 3  # unfinished runs that the command to go on is printed for
Folders = Annotated[
    list[Path] | None, typer.Argument(help="Folders with runs or records (default: runs and results, if there).")
]


@runs.command("list")
def list_runs(
    folders: Folders = None,
    status: Annotated[str | None, typer.Option(help="Only finished, running, stopped or failed ones.")] = None,
    cell: Annotated[str | None, typer.Option(help="Only cells that contain this, e.g. s6mod or cifar100/2000.")] = None,
    seed: Annotated[
        str | None, typer.Option("--seed", "--seeds", help="Only this seed, or these: 0-4 or 0,2,5.")
    ] = None,
    precision: Annotated[Literal["float32", "bfloat16"] | None, typer.Option(help="Only this precision.")] = None,
    sort: Annotated[
        str, typer.Option(help="cell, seed, status, acc, af, time, ms, bytes, device or code; -acc: the other way.")
    ] = "cell",
    json_output: options.Json = False,
    own: options.Import = None,
) -> None:
    """List runs and records (what s6mod runs does alone)."""
    from s6mod.runs.listing import as_rows, lines, never_begun, summary
    from s6mod.runs.store import STATUSES, homes, scan
    from s6mod.runs.strangers import strangers

    if status is not None and status not in STATUSES:
        raise typer.BadParameter(f"expected one of {', '.join(STATUSES)}, got {status!r}")
    seeds = None
    if seed is not None:
        from s6mod.experiments.sweep import numbers

        seeds = numbers(seed)
    places = folders or homes()
    found = scan(places)
    chosen = [
        run
        for run in found.runs
        if status in (None, run.status)
        and (cell is None or cell in run.cell)
        and (seeds is None or run.seed in seeds)
        and precision in (None, run.precision)
    ]
    rows = as_rows(chosen, sort)
    if json_output:
        typer.echo(json.dumps(rows, indent=1))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        typer.echo("\n".join([*lines(rows, width), summary(chosen)]))
        unfinished = [row["path"] for row in rows if row["status"] in ("stopped", "failed")]
        _tell_unfinished(unfinished)
    early = never_begun(places) if status in (None, "failed") else []
    warn_of([*found.problems, *early, *strangers(chosen)])


def _tell_unfinished(paths: list[str]) -> None:
    for path in paths[:SHOWN]:
        typer.echo(f"to go on: s6mod train --resume {shlex.quote(printable(path))}")
    if len(paths) > SHOWN:
        typer.echo(f"and {len(paths) - SHOWN} more, whose folders --json names")


@runs.command()
def export(
    into: Annotated[Path, typer.Argument(help="Folder for the records, such as results.")],
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Run folders, or folders with runs (default: runs).")
    ] = None,
) -> None:
    """Write a small public record, without checkpoints, of every finished run."""
    from s6mod.runs.commits import uncommitted
    from s6mod.runs.records import export as export_record
    from s6mod.runs.store import scan

    places = folders or [Path("runs")]
    found = scan(places)
    finished = [run for run in found.finished if run.path.is_dir()]
    if not finished and not found.problems:
        raise ConfigError(
            f"expected finished runs in {', '.join(map(str, places))}, got none; name the folder right above them"
        )
    results = [RunFiles(run.path).result for run in finished]
    if number := uncommitted(run.environment.get("source", "") for run in finished):
        typer.echo(
            f"warning: expected runs of committed source, got {number} whose source no commit has; "
            "commit before you run what is to be published",
            err=True,
        )
    clear_aside(into)
    _take(results, lambda result: export_record(result, into), found.problems)


@runs.command()
def adopt(
    sources: Annotated[list[Path], typer.Argument(help="Records made elsewhere, or folders with them.")],
    into: Annotated[Path | None, typer.Option(help="Folder to take them into (default: where they are).")] = None,
) -> None:
    """Take in records made elsewhere; what has no checksum gets one and is marked."""
    from s6mod.runs.commits import FILE as COMMITS
    from s6mod.runs.records import adopt as adopt_record

    found = [sorted(source.glob("*.json")) if source.is_dir() else [source] for source in sources]
    files = [file for files in found for file in files if file.name != COMMITS]
    if not files:
        raise ConfigError(
            f"expected records, one .json file each, in {', '.join(map(str, sources))}, got none; "
            "s6mod runs export takes them out of runs"
        )
    for folder in {into or file.parent for file in files}:
        clear_aside(folder)
    _take(files, lambda file: adopt_record(file, into or file.parent), [])


def _take(files: list[Path], write: Callable[[Path], Path | None], problems: list[str]) -> None:
    """Write the record of each file that has one to give; then say what was written and, with exit code 1, what not."""
    written = []
    for file in files:
        try:
            written.append(write(file))
        except CheckpointError as error:
            problems = [*problems, str(error)]
    for path in written:
        if path is not None:
            typer.echo(printable(str(path)))
    there = sum(path is None for path in written)
    new = len(written) - there
    typer.echo(f"{new} record{'s' * (new != 1)} written, {there} {'was' if there == 1 else 'were'} there already")
    for problem in problems:
        typer.echo(f"not written: {problem}", err=True)
    if problems:
        raise typer.Exit(1)
