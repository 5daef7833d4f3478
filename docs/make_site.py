"""Build the documentation as a site, into build/site: python docs/make_site.py

Zensical builds it from a copy of these pages, in which the reference is filled from the program itself: every command
and option, every field of a configuration, and the docstrings of what a person imports (by mkdocstrings). A link that
leads nowhere, and a page that no menu has, end the build.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import typer.main
from pydantic_core import PydanticUndefined

from s6mod.branch import branches
from s6mod.cli.commands import app
from s6mod.config import Config
from s6mod.experiments.sweep import SweepConfig
from s6mod.methods import methods
from s6mod.runs.config import RunConfig
from s6mod.teacher import teachers
from s6mod.tuning.config import TuneConfig

ROOT = Path(__file__).resolve().parents[1]
DOCS, COPY, SITE = ROOT / "docs", ROOT / "build" / "docs", ROOT / "build" / "site"
FETCHED = "https://unpkg.com/iframe-worker/shim"  # the theme's stand-in for workers; ours lies in the site
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def pages() -> dict[Path, Path]:
    """Each page with its place in the site."""
    own = {page: page.relative_to(DOCS) for page in sorted(DOCS.rglob("*.md"))}
    others = {"SECURITY.md": "explanation/security.md", "CHANGELOG.md": "reference/changelog.md"}
    return own | {ROOT / name: Path(place) for name, place in others.items()}


def relinked(text: str, page: Path, places: dict[Path, Path]) -> str:
    """The page's text with links from its place in the site; those to files of the repository become plain text."""

    def link(found: re.Match[str]) -> str:
        picture, label, target = found.groups()
        path, _, anchor = target.partition("#")
        if not path or "://" in path:
            return found[0]
        goal = Path(os.path.normpath(page.parent / path))
        place = places.get(goal)
        if place is None and goal.is_relative_to(DOCS) and goal.suffix != ".md" and goal.is_file():
            place = goal.relative_to(DOCS)
        if place is None:
            return label if goal.exists() else found[0]  # what does not exist is for the build to refuse
        near = os.path.relpath(place, places[page].parent)
        return f"{picture}[{label}]({near}{'#' + anchor if anchor else ''})"

    parts = FENCE.split(text)
    return "".join(part if part.startswith("```") else LINK.sub(link, part) for part in parts)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *cells))


def commands() -> str:
    """Every command with its arguments and options."""
    return _command(typer.main.get_command(app), ["s6mod"])


def _command(command: Any, words: list[str]) -> str:
    parts = [f"{'#' * len(words)} {' '.join(words)}", command.help] if len(words) > 1 else []
    panels: dict[str, list[list[str]]] = {}
    for each in command.params:
        if each.name not in ("help", "install_completion", "show_completion"):
            panel = "Arguments" if each.param_type_name == "argument" else each.rich_help_panel or "Options"
            panels.setdefault(panel, []).append(_parameter(each))
    for panel, rows in panels.items():
        parts += [f"**{panel}**", table(["name", "value", "default", "meaning"], rows)]
    if hasattr(command, "commands"):
        parts += [_command(command.commands[name], [*words, name]) for name in command.list_commands(None)]
    return "\n\n".join(filter(None, parts))


def _parameter(parameter: Any) -> list[str]:
    is_flag = getattr(parameter, "is_flag", False)
    names = [parameter.name] if parameter.param_type_name == "argument" else parameter.opts
    has_default = not is_flag and parameter.default not in (None, (), [])
    told = parameter.display_type if hasattr(parameter, "display_type") else parameter.make_metavar  # of an older typer
    value = "" if is_flag else f"`{told(None).strip('<>')}`"
    default = f"`{parameter.default}`" if has_default else ""
    return [", ".join(f"`{name}`" for name in names), value, default, parameter.help or ""]


def fields() -> str:
    """Every field of a run, a sweep and a tuning, by its dotted name."""
    parts = ("method", "branch", "teacher")
    run = {name: row for name, row in _fields(RunConfig).items() if name.partition(".")[0] not in parts}
    text = []
    for group in ("", "data", "stream", "engine", "output"):
        rows = {name: row for name, row in run.items() if name.rpartition(".")[0] == group}
        text += [f"## {group or 'The run itself'}", _field_table(rows)]
    er = _fields(methods["er"].config_class, "method.")
    text += ["## method er", _field_table(er)]
    for name in (name for name in methods.registered(outside=False) if name != "er"):
        own = _fields(methods[name].config_class, "method.")
        differs = {key: row for key, row in own.items() if er.get(key) != row}
        lacks = ", ".join(f"`{key}`" for key in er if key not in own)
        told = f"As `er`{f', without {lacks}' if lacks else ''}{', but:' if differs else '.'}"
        text += [f"## method {name}", told, _field_table(differs) if differs else ""]
    for key, registry in (("branch", branches), ("teacher", teachers)):
        for name in registry.registered(outside=False):
            text += [f"## {key} {name}", _field_table(_fields(registry[name].config_class, f"{key}."))]
    text += ["## A sweep's file", _field_table(_fields(SweepConfig))]
    text += ["## A tuning's file", _field_table(_fields(TuneConfig))]
    return "\n\n".join(filter(None, text))


def _fields(cls: type[Config], prefix: str = "") -> dict[str, tuple[Any, str]]:
    """Default and meaning of each field; one that is itself a configuration is opened."""
    found: dict[str, tuple[Any, str]] = {}
    for name, field in cls.model_fields.items():
        if isinstance(field.default, Config):
            inner = _fields(type(field.default), f"{prefix}{name}.")
            values = {f"{prefix}{name}.{key}": value for key, value in field.default}
            found |= {key: (values.get(key, default), meaning) for key, (default, meaning) in inner.items()}
        else:
            found[prefix + name] = (field.default, field.description or "")
    return found


def _field_table(rows: dict[str, tuple[Any, str]]) -> str:
    plain = {
        name: ("" if default is PydanticUndefined else f"`{json.dumps(default)}`", meaning)
        for name, (default, meaning) in rows.items()
        if name not in ("method.name", "branch.name", "teacher.name")
    }
    return table(["field", "default", "meaning"], [(f"`{name}`", *row) for name, row in plain.items()])


def copy() -> None:
    """Lay out what the site is built from."""
    shutil.rmtree(COPY, ignore_errors=True)
    places = pages()
    filled = {"<!-- commands -->": commands, "<!-- all fields -->": fields}
    for page, place in places.items():
        text = relinked(page.read_text(encoding="utf-8"), page, places)
        for mark, content in filled.items():
            text = text.replace(mark, content()) if mark in text else text
        file = COPY / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    for picture in DOCS.rglob("*.png"):
        file = COPY / picture.relative_to(DOCS)
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(picture, file)
    for name in ("site.css", "worker.js"):
        shutil.copyfile(DOCS / name, COPY / name)


def check_menu() -> None:
    """Refuse a page that the menu of zensical.toml does not have."""
    with (ROOT / "zensical.toml").open("rb") as file:
        listed = set(re.findall(r"'([^']+\.md)'", repr(tomllib.load(file)["project"]["nav"])))
    missing = sorted({place.as_posix() for place in pages().values()} - listed)
    if missing:
        sys.exit(f"expected every page in the menu of zensical.toml, got none for {', '.join(missing)}; add it there")


def need_no_network() -> None:
    """Let pages load scripts and styles from the site alone."""
    for file in SITE.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        text = text.replace(FETCHED, os.path.relpath(SITE / "worker.js", file.parent))
        if found := re.search(r"<(?:script|link)\b[^>]*\b(?:src|href)=\"?https?://[^>]*>", text):
            sys.exit(f"expected a site that needs no network, got {found[0]} in {file.name}")
        file.write_text(text, encoding="utf-8")


def main() -> None:
    """Copy, fill, build."""
    check_menu()
    copy()
    words = [Path(sys.executable).with_name("zensical"), "build", "--strict", "--clean"]
    if code := subprocess.run(words, cwd=ROOT).returncode:  # noqa: S603 - our own words
        sys.exit(code)
    need_no_network()


if __name__ == "__main__":
    main()
