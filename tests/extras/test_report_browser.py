"""The report in a real browser, opened from a file as a reader would."""

import csv
import json
import shutil
import time
from xml.etree import ElementTree

import pytest

from chromium import Browser
from s6mod.config import merge
from s6mod.data import Dataset, load
from s6mod.report.page import page
from s6mod.report.source import read_runs, read_study
from s6mod.runs.config import RunConfig
from s6mod.runs.execute import execute
from s6mod.runs.run import Run

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.extras, pytest.mark.skipif(PROGRAM is None, reason="needs Chromium")]

QUICK = {
    "method": {"name": "er", "network": {"width": 4}, "memory_batch": 16},
    "memory_size": 50,
    "stream": {"tasks": 3, "samples_per_task": 50},
    "output": {"log_every": 2, "eval_every": 3, "keep_checkpoint": False},
}
S6MOD = {"name": "s6mod", "d_inner": 12, "num_patterns": 3, "state_dim": 4, "dt_rank": 3}
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 30" width="400" height="300"><path d="M0 0h40v30z"/></svg>'
)
STUDY = {
    "kind": "study",
    "title": "A study",
    "text": "What it shows.",
    "figures": [
        {"name": "triangle", "title": "A triangle", "svg": SVG, "csv": "x,y\n1,2\n", "alt": "Half of it is black."}
    ],
    "tables": [
        {
            "title": "Numbers",
            "columns": ["name", "n"],
            "rows": [["a setting whose name is longer than a phone is wide", 1], ["x" * 90, 2]],
        }
    ],
}
TABLES = """[...document.querySelectorAll("section:not([hidden]) .wide")].map((region) => {
  const caption = region.querySelector("caption").getBoundingClientRect().right;
  region.scrollLeft = 1e6;
  const last = region.querySelector("td:last-child").getBoundingClientRect().right;
  const names = [...region.querySelectorAll("th:first-child")].map((name) => name.getBoundingClientRect().right);
  const scrolls = region.scrollWidth > region.clientWidth;
  return [region.getBoundingClientRect().right, caption, last, scrolls, Math.max(...names)];
})"""
CUT = "(command) => command.scrollWidth > command.clientWidth"
WIDTHS = {"desktop": 1280, "phone": 360}
SEEN = """[...document.querySelectorAll("section:not([hidden]) figure")].map((figure) => {
  const box = figure.querySelector("svg, img").getBoundingClientRect();
  return [figure.dataset.name, box.width, box.height, box.left, box.right];
})"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    full = load("digits")
    names = ["zero <0>", *(f"digit {n} & co" for n in range(1, 10))]
    data = Dataset.from_arrays(
        full.train_images[:, :, ::2, ::2], full.train_labels, full.test_images[::3, :, ::2, ::2], full.test_labels[::3],
        name="digits", class_names=names,
    )  # fmt: skip
    parts = [{"seed": seed, "branch": branch} for seed in (0, 1) for branch in (None, S6MOD, {"name": "confidence"})]
    configs = [RunConfig.parse(merge(QUICK, part)) for part in parts]
    execute([lambda c=config: Run.begin(c, folder / "runs" / c.folder_name, data) for config in configs])
    (folder / "study.json").write_text(json.dumps(STUDY))
    file = folder / "report.html"
    file.write_text(page(read_runs([folder / "runs"]), [read_study(folder / "study.json")]))
    return file.as_uri()


@pytest.fixture
def browser(tmp_path):
    started = Browser(PROGRAM, tmp_path / "profile")
    yield started
    started.close()


def resize(browser, width):
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_every_tab_shows_its_figures_whole_and_the_console_stays_silent(browser, report, width, scheme):
    resize(browser, width)
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.visit(report)
    tabs = browser.value('[...document.querySelectorAll("nav a")].map((link) => link.textContent)')
    assert tabs == ["Overview", "Tasks", "Training", "Routing", "Classes", "A study", "Runs"]
    shown = []
    for place in range(len(tabs)):
        browser.value(f'document.querySelectorAll("nav a")[{place}].click()')
        assert browser.value('document.querySelectorAll("section:not([hidden])").length') == 1
        assert browser.value('document.querySelector("section:not([hidden]) h2").textContent') == tabs[place]
        figures = browser.value(SEEN)
        for name, wide, high, left, right in figures:
            assert wide > 200, name
            assert high > 60, name
            assert left >= 0, name
            assert right <= width, name
        shown += [name for name, *_ in figures]
        assert browser.value("document.documentElement.scrollWidth") <= width, tabs[place]  # only tables scroll
        assert not browser.value(f'[...document.querySelectorAll("pre")].some({CUT})'), tabs[place]
    assert len(shown) == len(set(shown)) == browser.value('document.querySelectorAll("figure").length') == 25
    back, ink = (browser.value(f"getComputedStyle(document.body).{part}") for part in ("backgroundColor", "color"))
    assert (lightness(back) > lightness(ink)) == (scheme == "light")
    assert browser.errors() == []


def test_on_a_phone_every_column_of_a_table_can_be_reached_and_its_caption_read(browser, report):
    """The first column stays where it is while the others scroll: it must leave them room."""
    resize(browser, WIDTHS["phone"])
    browser.visit(report)
    tables = []
    for place in range(7):
        browser.value(f'document.querySelectorAll("nav a")[{place}].click()')
        tables += browser.value(TABLES)
    assert len(tables) == 6
    for region, caption, last, scrolls, names in tables:
        assert caption <= WIDTHS["phone"]
        assert last <= region
        assert names <= WIDTHS["phone"] / 2 or not scrolls


def test_on_a_desktop_no_table_of_three_learners_has_to_scroll(browser, report):
    resize(browser, WIDTHS["desktop"])
    browser.visit(report)
    tables = []
    for place in range(7):
        browser.value(f'document.querySelectorAll("nav a")[{place}].click()')
        tables += browser.value(TABLES)
    assert len(tables) == 6
    assert not any(scrolls for *_, scrolls, _ in tables)


def lightness(colour):
    return sum(map(int, colour[colour.index("(") + 1 : -1].split(",")[:3]))


def test_arrow_keys_and_addresses_choose_tabs(browser, report):
    browser.visit(f"{report}#classes")
    assert browser.value("scrollY") == 0  # the tabs stay in sight
    current = 'document.querySelector("[aria-selected=true]").textContent'
    assert browser.value(current) == "Classes"
    press = 'document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: "%s"}))'
    browser.value('document.querySelector("[aria-selected=true]").focus()')
    for key, tab in (
        ("ArrowRight", "A study"),
        ("ArrowRight", "Runs"),
        ("ArrowRight", "Overview"),
        ("ArrowLeft", "Runs"),
    ):
        browser.value(press % key)
        assert browser.value(current) == tab
    assert browser.errors() == []


def test_every_figure_can_be_saved_as_svg_and_csv(browser, report, tmp_path):
    browser.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path / "saved"))
    browser.visit(report)
    names = browser.value('[...document.querySelectorAll("figure")].map((figure) => figure.dataset.name)')
    for place, name in enumerate(names):
        if place % 4 == 3:
            browser.visit(report)  # a page may save ten files, then the browser thinks it runs wild
        for button, ending in (("button.svg", "svg"), ("a.get", "csv")):
            browser.value(f'document.querySelectorAll("figure")[{place}].querySelector("{button}").click()')
            file = wait_for(tmp_path / "saved" / f"{name}.{ending}")
            if ending == "svg":
                assert ElementTree.fromstring(file.read_bytes()).tag == "{http://www.w3.org/2000/svg}svg"
            else:
                assert len(list(csv.reader(file.read_text().splitlines()))) > 1
    assert (tmp_path / "saved" / "triangle.svg").read_text() == SVG
    assert "zero <0>" in (tmp_path / "saved" / "confusion-0.csv").read_text()
    assert browser.errors() == []


def wait_for(file):
    for _ in range(200):
        if file.exists() and file.stat().st_size:
            return file
        time.sleep(0.05)
    raise AssertionError(f"{file.name} was not saved")


def test_without_scripts_and_in_print_all_sections_can_be_read(browser, report):
    visible = '[...document.querySelectorAll("section")].filter((part) => part.getBoundingClientRect().height).length'
    browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    browser.visit(report)
    assert browser.value(visible) == 7
    assert browser.value('document.querySelectorAll("button.svg:not([hidden])").length') == 0
    browser.ask("Emulation.setScriptExecutionDisabled", value=False)
    browser.visit(report)
    assert browser.value(visible) == 1
    browser.ask("Emulation.setEmulatedMedia", media="print")
    assert browser.value(visible) == 7
    resize(browser, 850)  # a browser shrinks so much to a sheet of A4
    ends = '[...document.querySelectorAll("td, th, svg, img, pre")].map((part) => part.getBoundingClientRect().right)'
    assert max(browser.value(ends)) <= 850
