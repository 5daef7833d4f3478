"""The application: what every command shares, and how mistakes are told."""

import errno
import os
import re
import sys
import warnings
from collections.abc import Iterable
from io import TextIOWrapper
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from s6mod._version import __version__
from s6mod.allocator import keep_freed_memory
from s6mod.errors import S6modError, memory_for, printable
from s6mod.threads import spin_briefly

PANELS = {  # of the help, as a person meets them
    "Begin": ("demo", "train", "data"),
    "Many runs": ("sweep", "tune"),
    "Look at runs": ("report", "runs", "table", "predictors"),
    "Use what has learned": ("predict", "export", "serve"),
    "Study and measure": ("ablate", "study", "features", "inside", "bench"),
}
PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}
COMMANDS = tuple(PANEL_OF)
LINE_END = re.compile(r"(?<!\n)\n(?!\n)")  # of the source, within a paragraph
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)  # told without the file's name


class Group(TyperGroup):
    """Commands whose help flows, and shows a flag by its name alone, without a type: it takes no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its own parameters, among them those that Typer adds."""
        return _flags_without_type(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _flags_without_type(command.get_params(ctx))
            command.help = LINE_END.sub(" ", command.help or "")
        return command


def _flags_without_type(parameters: Iterable[Any]) -> list[Any]:
    found = list(parameters)
    for parameter in found:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return found


class _Commands(Group):
    """Shows the commands in their panels; tells of a file or a disk that any of them has trouble with."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(self.commands, key=lambda name: (*COMMANDS, name).index(name))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            command.rich_help_panel = PANEL_OF.get(cmd_name)
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            with memory_for("this command", "lower memory_size, a batch or the network, or end other programs"):
                return super().invoke(ctx)
        except OSError as error:
            if error.filename is None and error.errno not in DISK:
                raise  # not about a file or a disk: a bug of ours
            resumes = any("--resume" in option.opts for option in self.commands[ctx.invoked_subcommand].params)
            advice = "try again, or with --resume if the run has begun" if resumes else "try again"
            raise S6modError(
                f"expected to read and write {error.filename or 'files'}, got: {error.strerror}; mend that and {advice}"
            ) from None


app = typer.Typer(
    cls=_Commands,
    help="Online continual learning with the S6MOD branch.\n\nNew here? s6mod demo, then s6mod train --help.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def run() -> None:
    """Do what the command line says; a user's mistake is one sentence and exit code 2."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without a ± must not cost a result; stderr never fails
    spin_briefly()
    keep_freed_memory()
    warnings.showwarning = lambda message, *_, **__: warn_of([str(message)])
    sys.argv[0] = "s6mod"  # so that records name the command whichever way it was started
    try:
        app(prog_name="s6mod")
    except S6modError as error:
        _complain(str(error), getattr(error, "exit_code", 2))


def _shown(text: str) -> str:
    """Lines that may quote anything, each made printable."""
    return "\n".join(map(printable, text.split("\n")))


def warn_of(problems: Iterable[str]) -> None:
    """Tell what was passed over."""
    for problem in problems:
        typer.echo(f"warning: {_shown(problem)}", err=True)


def leave(code: int, sentences: Iterable[str]) -> None:
    """Say how something ended and, unless that was well, leave with its exit code."""
    for sentence in sentences:
        typer.echo(_shown(sentence), err=True)
    if code:
        raise typer.Exit(code)


def _complain(sentence: str, code: int) -> NoReturn:
    """Without rich, which takes megabytes for a line: memory may be what lacks."""
    plain = False if os.environ.get("NO_COLOR") else None
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True, color=plain)
    typer.echo(sentence, err=True)
    sys.exit(code)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"s6mod {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
