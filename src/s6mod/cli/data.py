"""``s6mod data``: what data sets there are, and getting one ready."""

from pathlib import Path
from typing import Annotated, Any, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from s6mod.cli import options
from s6mod.cli.app import app
from s6mod.files import expanded

OWN = "Your own data"
STREAM = "What a stream of it looks like"

What = Annotated[
    str | None,
    typer.Argument(
        help="A data set's name, or the path of your own: image folder, .npz, .csv or archive.",
        autocompletion=options.complete_data,
    ),
]
From = Annotated[
    Path | None,
    typer.Option("--from", help="Official files that you have: folder, zip, tar or tar.gz; nothing is fetched."),
]
Folder = Annotated[
    Path | None,
    typer.Option("--data-root", help="Folder of data sets (default: $S6MOD_DATA, else ~/.cache/s6mod/data)."),
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Pass over unreadable images and list them.")]
Name = Annotated[str | None, typer.Option(help="Its name (default: as its path).", rich_help_panel=OWN)]
Size = Annotated[
    int | None,
    typer.Option(min=8, help="Side to resize to (default: theirs if small and equal, else 32).", rich_help_panel=OWN),
]
TestFraction = Annotated[
    float, typer.Option(help="Share of each class held out, if there is no test split.", rich_help_panel=OWN)
]
SplitSeed = Annotated[int, typer.Option(min=0, help="Which share.", rich_help_panel=OWN)]
Stream = Annotated[
    list[str] | None, typer.Option(help="key=value of a stream, e.g. kind=blurry; repeatable.", rich_help_panel=STREAM)
]
StreamSeed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the stream.", rich_help_panel=STREAM)]
Plot = Annotated[Path | None, typer.Option(help="Draw the stream into this file.", rich_help_panel=STREAM)]


@app.command()
def data(
    what: What = None,
    given: From = None,
    folder: Folder = None,
    skip_bad: SkipBad = False,
    name: Name = None,
    size: Size = None,
    test_fraction: TestFraction = 0.2,
    split_seed: SplitSeed = 0,
    stream: Stream = None,
    seed: StreamSeed = 0,
    plot: Plot = None,
) -> None:
    """List data sets; get one, or your own, ready; show a stream.

    Alone it lists them. With a name it fetches and prepares a published one, with a path your own. With --stream or
    --plot it shows what a learner would see.
    """
    if not 0 < test_fraction < 1:
        raise typer.BadParameter(f"expected --test-fraction between 0 and 1, got {test_fraction}")
    from s6mod.data import default_root
    from s6mod.data.ready import make_ready
    from s6mod.data.split import Reading

    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    root = default_root() if folder is None else expanded(folder)
    reading = Reading(size, test_fraction, split_seed, skip_bad)
    of_stream, prepares = bool(stream) or plot is not None, given is not None or name is not None
    if what is None:
        if of_stream or prepares or reading != Reading():
            raise typer.BadParameter(
                "expected the name or path of a data set with these options; --data-root goes alone"
            )
        _list(root, console)
    elif of_stream:
        if prepares or skip_bad:
            raise typer.BadParameter(
                "--from, --name and --skip-bad prepare a data set; leave them out to show a stream"
            )
        options_of_data = {"size": size, "test_fraction": test_fraction, "split_seed": split_seed}
        _show_stream(what, folder, options_of_data, stream or [], seed, plot)
    else:
        with _Bars(console) as bars:
            ready = make_ready(what, given, root, name, reading, bars)
        console.print("\n".join(ready.lines()))


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
    what: str, folder: Path | None, reading: dict[str, Any], assignments: list[str], seed: int, plot: Path | None
) -> None:
    from s6mod.data.catalog import DataConfig, spell
    from s6mod.report.stream_table import show_stream, stream_config

    place = {} if folder is None else {"root": str(folder)}
    config = DataConfig.parse(reading | place | spell(what))
    show_stream(config.load(), stream_config(config.plain(), assignments), seed, plot, Console(emoji=False))


class _Bars:
    """A progress bar for each thing that is done, one after another."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"))
        self.bars = Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)
        self.known: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def __call__(self, what: str, done: int, total: int | None) -> None:
        if what not in self.known:
            self.bars.start()  # with the first of them: what is ready has none
            self.known[what] = self.bars.add_task(what)
        self.bars.update(self.known[what], completed=done, total=total)
