"""The report: one HTML file of runs that needs nothing else, neither a network nor a script to be read.

What each section shows is decided beside it; here they are put together. The template, the style and the script are
plain files in this folder.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources
from string import Template

from s6mod._version import __version__
from s6mod.report.classes import classes
from s6mod.report.curves import routing, tasks, training
from s6mod.report.groups import Group, group_runs
from s6mod.report.html import Section, figures, foreign_figure, paragraph, table
from s6mod.report.overview import overview
from s6mod.report.provenance import provenance
from s6mod.report.samples import samples
from s6mod.report.source import RunData, StudyFile
from s6mod.runs.store import StoredRun


def page(
    runs: Sequence[RunData],
    studies: Sequence[StudyFile] = (),
    store: Iterable[StoredRun] = (),
    refresh: float | None = None,
) -> str:
    """The whole file; bases and controls in ``store`` are compared with; ``refresh``: seconds until it reloads."""
    groups = group_runs(runs, store)
    sections = [make(groups) for make in (overview, tasks, training, routing, classes, samples)]
    sections += [_study(number, study) for number, study in enumerate(studies, start=1)]
    sections = [section for section in (*sections, provenance(groups)) if section.body]
    title = "; ".join(_titles([group for group in groups if group.runs]))
    return Template(_file("page.html")).substitute(
        title=escape(title),
        refresh=f'<meta http-equiv="refresh" content="{refresh:g}">' if refresh else "",
        style=_file("page.css"),
        script=_file("page.js"),
        links="".join(
            f'<a href="#{section.name}">{escape(section.title.partition(",")[0])}</a>' for section in sections
        ),
        sections="".join(
            f'<section id="{section.name}"><h2>{escape(section.title)}</h2>{section.body}</section>'
            for section in sections
        ),
        status=escape(_status(runs)),
        about=escape(f"Written by s6mod {__version__} on {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC."),
    )


def _study(number: int, study: StudyFile) -> Section:
    parts = [paragraph(text) for text in study.text.split("\n\n") if text.strip()]
    parts.append(figures(map(foreign_figure, study.charts), "wide-ones"))
    parts += [table(columns, rows, title) for title, columns, rows in study.tables]
    return Section(f"study-{number}", study.title, "".join(parts))


def _titles(groups: Iterable[Group]) -> Iterator[str]:
    """Each data set with its memory sizes."""
    sizes: dict[str, dict[int, None]] = {}
    for group in groups:
        sizes.setdefault(group.setting[0], {})[group.setting[1]] = None
    for data, memory in sizes.items():
        yield f"{data}, M = {', '.join(map(str, memory))}"


def _status(runs: Sequence[RunData]) -> str:
    counts = {
        status: sum(run.stored.status == status for run in runs)
        for status in ("finished", "running", "stopped", "failed")
    }
    return ", ".join(f"{count} {status}" for status, count in counts.items() if count)


def _file(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")
