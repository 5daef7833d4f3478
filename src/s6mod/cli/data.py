"""``s6mod data``: what data sets there are, and getting one ready."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from s6mod.cli.app import app
from s6mod.files import expanded

if TYPE_CHECKING:  # torch is loaded when the command runs, not when it is described
    from s6mod.data.split import Reading

OWN = "Your own data"
STREAM = "What a stream of it looks like"


@app.command()
def data(
    what: Annotated[
        str | None,
        typer.Argument(help="A data set's name, or the path of your own: image folder, .npz, .csv or archive."),
    ] = None,
    given: Annotated[
        Path | None,
        typer.Option("--from", help="Official files that you have: folder, zip, tar or tar.gz; nothing is fetched."),
    ] = None,
    data_root: Annotated[
        Path | None, typer.Option(help="Folder of data sets (default: $S6MOD_DATA, else ~/.cache/s6mod/data).")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Pass over unreadable images and list them.")] = False,
    name: Annotated[str | None, typer.Option(help="Its name (default: as its path).", rich_help_panel=OWN)] = None,
    size: Annotated[
        int | None,
        typer.Option(
            min=8, help="Side to resize to (default: theirs if small and equal, else 32).", rich_help_panel=OWN
        ),
    ] = None,
    test_fraction: Annotated[
        float, typer.Option(help="Share of each class held out, if there is no test split.", rich_help_panel=OWN)
    ] = 0.2,
    split_seed: Annotated[int, typer.Option(min=0, help="Which share.", rich_help_panel=OWN)] = 0,
    stream: Annotated[
        list[str] | None,
        typer.Option(help="key=value of a stream, e.g. kind=blurry; repeatable.", rich_help_panel=STREAM),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the stream.", rich_help_panel=STREAM)] = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw the stream into this file.", rich_help_panel=STREAM)] = None,
) -> None:
    """List the data sets; prepare one that is fetched, brought or your own; show a stream of one."""
    from s6mod.data.catalog import default_root, known, unknown
    from s6mod.data.official import OFFICIAL
    from s6mod.data.own import is_path
    from s6mod.data.prepared import prepared_file
    from s6mod.data.split import Reading

    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    root = expanded(data_root) if data_root is not None else default_root()
    if not 0 < test_fraction < 1:
        raise typer.BadParameter(f"expected --test-fraction between 0 and 1, got {test_fraction}")
    reading = Reading(size, test_fraction, split_seed, skip_bad)
    if what is None:
        if stream or plot is not None or name is not None or given is not None or reading != Reading():
            raise typer.BadParameter(
                "expected the name or path of a data set with these options; --data-root goes alone"
            )
        _list(root, console)
    elif stream or plot is not None:
        if given is not None or name is not None or skip_bad:
            raise typer.BadParameter(
                "--from, --name and --skip-bad prepare a data set; leave them out to show a stream"
            )
        _show_stream(what, data_root, reading, stream or [], seed, plot)
    elif what in known:
        if name is not None or reading != Reading(skip_bad=skip_bad):
            raise typer.BadParameter(
                f"expected {what} alone; --name, --size, --test-fraction and --split-seed do not fit"
            )
        if given is not None and what not in OFFICIAL:
            raise typer.BadParameter(f"expected {what} alone, which is built in; --from does not fit")
        _prepare_published(what, given, root, skip_bad, console)
    elif given is not None:
        raise typer.BadParameter(f"--from goes with one of {', '.join(known)}; give the path of your own data alone")
    elif is_path(what):
        _prepare_own(expanded(what), name, root, reading, console)
    elif prepared_file(root, what).is_file():
        if name is not None or reading != Reading():
            raise typer.BadParameter(f"{what} is prepared; give the path of what it was made of to prepare it anew")
        _check(what, root, console)
        if Path(what).exists():
            console.print(f"this was prepared before; write ./{what} to prepare the one in this folder")
    elif Path(what).exists():
        _prepare_own(Path(what), name, root, reading, console)
    else:
        raise unknown(what, root)


def _list(root: Path, console: Console) -> None:
    from s6mod.data.catalog import inventory

    console.print(f"data sets in {root}")
    table = Table(box=None, padding=(0, 1, 0, 0))
    for column in ("name", "state", "classes", "train + test", "shape", "MB"):
        table.add_column(column, justify="right" if column in ("classes", "MB") else "left", no_wrap=True)
    for entry in inventory(root):
        about, size = entry.about, _megabytes(entry.nbytes)
        contents = ["", "", ""]
        if about is not None:
            shape = "x".join(map(str, about.image_shape))
            contents = [str(len(about.class_names)), f"{about.counts[0]} + {about.counts[1]}", shape]
        table.add_row(entry.name, entry.state, *contents, size)
    console.print(table)
    console.print("prepared: NAME.safetensors in that folder\nwhat is not here: s6mod data NAME gets it")


def _megabytes(size: int) -> str:
    return "" if not size else f"{size / 1e6:.1f}" if size >= 1e5 else f"{size / 1e6:.3f}"


def _show_stream(
    what: str, root: Path | None, reading: "Reading", assignments: list[str], seed: int, plot: Path | None
) -> None:
    from s6mod.cli.stream import show_stream, stream_config
    from s6mod.data.catalog import DataConfig, spell

    options = {"size": reading.size, "test_fraction": reading.test_fraction, "split_seed": reading.split_seed}
    place = {} if root is None else {"root": str(root)}
    config = DataConfig.parse(options | place | spell(what))
    show_stream(config.load(), stream_config(config.name, assignments), seed, plot, Console(emoji=False))


def _prepare_published(name: str, given: Path | None, root: Path, skip_bad: bool, console: Console) -> None:
    from s6mod.data.acquire import acquire_official
    from s6mod.data.official import OFFICIAL
    from s6mod.data.prepared import prepared_file

    if name in OFFICIAL and (given is not None or not prepared_file(root, name).is_file()):
        with _ends_tidily(), _Bars(console) as bars:
            place = expanded(given) if given is not None else None
            skipped = acquire_official(OFFICIAL[name], root, place, skip_bad, bars)
        _tell_skipped(skipped, console)
    _check(name, root, console)


def _prepare_own(path: Path, name: str | None, root: Path, reading: "Reading", console: Console) -> None:
    from s6mod.data.acquire import acquire_own
    from s6mod.data.catalog import checked_name, known
    from s6mod.data.own import name_of
    from s6mod.errors import ConfigError

    chosen = checked_name(name or name_of(path))
    if chosen in known:
        raise ConfigError(f"expected a name that is free, got {chosen!r}, a published data set; give another --name")
    with _ends_tidily(), _Bars(console) as bars:
        skipped = acquire_own(path, root, chosen, reading, bars)
    _tell_skipped(skipped, console)
    _check(chosen, root, console)


def _tell_skipped(skipped: list[str], console: Console) -> None:
    for path in skipped:
        console.print(f"passed over: {path}")


def _check(name: str, root: Path, console: Console) -> None:
    """Read a data set as a run would, and say what it is."""
    from s6mod.data.catalog import default_root, load
    from s6mod.data.prepared import prepared_file

    console.print(str(load(name, root)))
    if (file := prepared_file(root, name)).is_file():
        console.print(str(file))
    elsewhere = "" if root == default_root() else f" --data-root {root}"
    console.print(f"train on it: s6mod train --data {name}{elsewhere}")


@contextmanager
def _ends_tidily() -> Iterator[None]:
    """Whoever is told to end, by a scheduler or ``timeout``, first clears away what is half-written."""

    def stop(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Bars:
    """A progress bar for each thing that is done, one after another."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"))
        self.bars = Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)
        self.known: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def __call__(self, what: str, done: int, total: int | None) -> None:
        if what not in self.known:
            self.known[what] = self.bars.add_task(what)
        self.bars.update(self.known[what], completed=done, total=total)
