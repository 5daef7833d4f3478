"""What the documentation shows, works: its programs run, its commands parse, its tables and links are complete."""

import importlib
import importlib.util
import inspect
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from fractions import Fraction
from pathlib import Path

import pytest
import typer.main
import yaml

import learners
from records import records_of
from s6mod import cli
from s6mod.branch import branches
from s6mod.cli.commands import app
from s6mod.config import field_names
from s6mod.experiments.sweep import SweepConfig
from s6mod.methods import Method, base, methods
from s6mod.runs.config import RunConfig
from s6mod.runs.records import export
from s6mod.tuning.config import TuneConfig

ROOT = Path(__file__).parents[1]
TOP = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
PAGES = [*(ROOT / name for name in TOP), *sorted((ROOT / "docs").rglob("*.md"))]
IDS = [page.name for page in PAGES]
INTERFACES = "interfaces.md"


def blocks(page, *languages):
    """Line number and text of each fenced block in one of the languages."""
    text = page.read_text()
    fences = re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [(text[: f.start(2)].count("\n"), f[2]) for f in fences if f[1] in languages]


def programs():
    """A README block is copied alone, so it runs alone; the blocks of another page run in order.

    A block on interfaces runs alone as well, where its library is installed. Tutorials run as notebooks.
    """
    for page in (page for page in PAGES if page.parent.name != "tutorials"):
        found = blocks(page, "python")
        groups = [[block] for block in found] if page.name in ("README.md", INTERFACES) else [found] * bool(found)
        marks = [pytest.mark.extras] if page.name == INTERFACES else []
        yield from (pytest.param(page, group, id=f"{page.name}:{group[0][0]}", marks=marks) for group in groups)


def run_program(page, group):
    names = {"__name__": "__main__"}
    for line, code in group:
        exec(compile("\n" * line + code, page, "exec"), names)
    return names


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """An empty folder to write in, and a registry that forgets what a page registers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(branches, "_parts", dict(branches._parts))
    monkeypatch.setattr(methods, "_parts", dict(methods._parts))


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(("page", "group"), list(programs()))
def test_every_program_runs_as_it_is(page, group):
    if page.name == INTERFACES:
        for library in re.findall(r"^(?:from|import) (?:s6mod\.interfaces\.)?(\w+)", group[0][1], re.MULTILINE):
            if library == "capymoa" and shutil.which("java") is None:
                pytest.skip("CapyMOA needs a JVM")
            pytest.importorskip({"hub": "huggingface_hub"}.get(library, library))
    run_program(page, group)


def commands():
    for page in PAGES:
        for line, block in blocks(page, "bash", "sh"):
            for offset, text in enumerate(block.splitlines(), start=1):
                yield pytest.param(page, shlex.split(text, comments=True), id=f"{page.name}:{line + offset}")


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(("page", "words"), list(commands()))
def test_every_command_is_one_that_exists(page, words, monkeypatch, capsys):
    program, *arguments = words
    if program == "make":
        assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return
    assert program == "s6mod"
    known = typer.main.get_command(app).commands
    options = known[arguments[0]].make_context(arguments[0], arguments[1:]).params  # raises for what does not parse
    check = {"train": "--show-config", "sweep": "--plan"}.get(arguments[0])  # goes as far as one can without training
    if check is None or options.get("resume") is not None:
        return
    for _, text in blocks(page, "yaml"):  # the file that such a block shows is named in its first line
        Path(text.split()[1]).write_text(text)
    monkeypatch.setattr(sys, "argv", [*words, check])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    captured = capsys.readouterr()
    assert not stop.value.code, captured.err
    assert "to run: " in captured.out if check == "--plan" else "method" in yaml.safe_load(captured.out)


def cells(row):
    """The cells of a table's row, without code marks; an escaped bar belongs to its cell."""
    return [cell.strip().replace("\\|", "|").strip("`") for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def table_after(text, mark):
    """The body of the first table after a mark."""
    lines = text[text.index(mark) + len(mark) :].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(cells(line))
    return rows


FIELD_TABLES = [
    pytest.param(page, mark, id=mark.split()[2])
    for page in PAGES
    for mark in re.findall(r"<!-- fields: [\w.:]+ -->", page.read_text())
]


def test_the_readme_comes_to_its_results_in_less_than_a_thousand_words():
    before, mark, _ = (ROOT / "README.md").read_text().partition("\n## Results\n")
    assert mark
    assert len(before.split()) < 1000


def test_the_readme_names_every_extra_that_a_person_may_install():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    _, _, after = (ROOT / "README.md").read_text().partition("pip install -e '.[plots]'")
    named = {"plots", *re.findall(r"`(\w+)`", after.partition("\n\n")[0])}
    assert extras.keys() - {"dev", "docs"} - named == set()  # make test and make docs install those


@pytest.mark.extras
@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("name", learners.METHODS)
def test_the_ten_lines_work_with_every_method(name):
    (line, code), *_ = blocks(ROOT / "README.md", "python")
    options = {"network": {"width": 2}} | ({"passes": 1} if name == "gdumb" else {})
    code = code.replace("Learner()", f"Learner({ {'name': name, **options} }, memory_size=80)")
    learner = run_program("README.md", [(line, code)])["learner"]
    assert learner.config.method.name == name
    assert learner.classes_ == ["zero", "one", "two"]


def test_the_branch_has_its_table_of_fields():
    assert "<!-- fields: s6mod.branch:S6MODConfig -->" in (ROOT / "docs" / "reference" / "branch.md").read_text()


@pytest.mark.parametrize(("page", "mark"), FIELD_TABLES)
def test_a_table_of_fields_lists_every_field_with_its_default_and_meaning(page, mark):
    module, _, name = mark.split()[2].partition(":")
    fields = getattr(importlib.import_module(module), name).model_fields
    rows = table_after(page.read_text(), mark)
    assert [row[0] for row in rows] == list(fields)
    for field, default, meaning in rows:
        expected = fields[field].default
        shown = float(Fraction(default)) if isinstance(expected, float) else yaml.safe_load(default)
        assert (shown, type(shown)) == (expected, type(expected)), field
        assert meaning == (fields[field].description or ""), field


@pytest.mark.usefixtures("elsewhere")
def test_the_page_on_runs_lists_what_a_run_writes():
    page = ROOT / "docs" / "reference" / "runs.md"
    text = page.read_text()
    names = run_program(page, blocks(page, "python"))
    folder, result = names["folder"], names["result"]
    written = {path.name + "/" * path.is_dir() for path in folder.iterdir()}
    assert written == {row[0] for row in table_after(text, "## The folder")}
    assert list(result) == [row[0] for row in table_after(text, "## The result")]
    metrics = table_after(text, "All accuracies are in percent.")
    assert list(result["metrics"][result["primary"]]) == [row[0] for row in metrics]
    kinds = {row[0]: row[2] for row in table_after(text, "## Records")}
    records = records_of(folder)
    assert {record["kind"] for record in records} == kinds.keys()
    for record in records:
        named = set(re.findall(r"`?(\w+)`:", kinds[record["kind"]]))
        assert record.keys() == {"step", "kind", "task"} | named


def test_the_page_on_design_lists_every_room():
    page = ROOT / "docs" / "explanation" / "design.md"
    listed = [row[0] for row in table_after(page.read_text(), "## Rooms")]
    package = ROOT / "src" / "s6mod"
    rooms = [f"{room.parent.name}/" for room in package.glob("*/__init__.py")]
    assert sorted(listed) == sorted(rooms + [file.name for file in package.glob("[a-z]*.py")])


def test_the_table_of_the_layers_is_the_contract_that_lint_holds():
    page = (ROOT / "docs" / "explanation" / "design.md").read_text()
    table = [re.findall(r"\w+|:", rooms) for rooms, _ in table_after(page, "## Layers")]
    [contract] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    *layers, _, _ = contract["layers"]  # the helpers; the version
    assert table == [*(layer.replace("|", "").split() for layer in layers), ["helpers"]]


def test_the_page_on_design_lists_every_verb_of_a_method_and_says_which_must_be_written():
    text = (ROOT / "docs" / "explanation" / "design.md").read_text()
    verbs = {name: verb for name, verb in vars(Method).items() if inspect.isfunction(verb) and name[0] != "_"}
    signatures = [f"{name}({', '.join(list(inspect.signature(verb).parameters)[1:])})" for name, verb in verbs.items()]
    rows = table_after(text, "**Method.**")
    assert [row[0] for row in rows] == signatures
    must = [name for name, verb in verbs.items() if "NotImplementedError" in verb.__code__.co_names]
    assert [name for name, row in zip(verbs, rows, strict=True) if "default: " not in row[2]] == must
    for told in (text, inspect.getdoc(Method)):
        assert re.search(r"`plan`+, `+draw`+ and `+losses`", told)
    assert "fifteen verbs" in base.__doc__
    assert "Fifteen verbs." in text
    assert (len(verbs), must) == (15, ["plan", "draw", "losses"])


@pytest.fixture
def site():
    """The script that builds the site."""
    specification = importlib.util.spec_from_file_location("make_site", ROOT / "docs" / "make_site.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_every_page_is_in_the_menu_of_the_site(site, monkeypatch):
    site.check_menu()
    monkeypatch.setattr(site, "pages", lambda: {ROOT / "new.md": Path("how-to/new.md")})
    with pytest.raises(SystemExit, match=r"got none for how-to/new\.md"):
        site.check_menu()


def test_the_reference_of_the_site_has_every_command_option_and_field(site):
    commands, fields = site.commands(), site.fields()
    for name, command in typer.main.get_command(app).commands.items():
        assert f"## s6mod {name}\n" in commands
        options = [word for each in command.params for word in each.opts if word.startswith("--") and word != "--help"]
        assert [word for word in options if f"`{word}`" not in commands] == []
    own = [part.config_class for each in (methods, branches) for part in each.registered(outside=False).values()]
    names = {name for cls in (RunConfig, SweepConfig, TuneConfig, *own) for name in field_names(cls)}
    last = {name.rpartition(".")[2] for name in names if not any(other.startswith(f"{name}.") for other in names)}
    assert [name for name in sorted(last) if not re.search(rf"[`.]{name}`", fields)] == []


def test_a_link_to_a_file_outside_the_docs_becomes_plain_text_in_the_site(site):
    page, other = ROOT / "docs" / "how-to" / "a.md", ROOT / "SECURITY.md"
    places = {page: Path("how-to/a.md"), other: Path("explanation/security.md")}
    text = "[records](../../results), [how](../../SECURITY.md#how-to-report), [lost](b.md)"
    expected = "records, [how](../explanation/security.md#how-to-report), [lost](b.md)"
    assert site.relinked(text, page, places) == expected


def test_the_notebooks_are_what_the_tutorials_say():
    script = ROOT / "docs" / "make_notebooks.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def anchors(page):
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_bold_word_ends_in_the_paragraph_in_which_it_begins(page):
    text = re.sub(r"^```.*?^```$|^    .*?$|`[^`]*`", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    paragraphs = re.split(r"\n\s*\n|\n\* ", text)
    assert [paragraph for paragraph in paragraphs if paragraph.count("**") % 2] == []


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if not target.startswith("https://"):
            path, _, anchor = target.partition("#")
            goal = page.parent / path if path else page
            assert goal.exists(), target
            assert not anchor or anchor in anchors(goal), target


def test_the_results_table_is_what_the_records_say():
    script = ROOT / "benchmarks" / "readme.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def readme(tmp_path, monkeypatch):
    """The script that writes the results, over records of one's own."""
    specification = importlib.util.spec_from_file_location("readme", ROOT / "benchmarks" / "readme.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


@pytest.mark.parametrize("numerics", [None, 1])
def test_the_results_table_marks_gains_whose_two_sides_differ_in_their_numerics(tmp_path, readme, write_run, numerics):
    for branch, number in (("", None), ("+confidence", numerics), ("+s6mod", numerics)):
        folder = write_run(tmp_path / "runs", f"er{branch}/cifar100/2000", accuracy=30.0, numerics=number)
        export(folder / "result.json", tmp_path / "results")
    _, _, row, *note = readme.accuracies().splitlines()
    over_base, over_penalty = cells(row)[4:6]
    assert (over_base, over_penalty) == ("+0.00†" if numerics else "+0.00", "+0.00")
    assert any("†: " in line for line in note) == (numerics is not None)


def test_a_row_of_results_shows_the_seeds_that_it_pairs_and_an_interval_from_three_pairs_on(
    tmp_path, readme, write_run
):
    def row(*runs):
        for cell, seed, accuracy in runs:
            folder = write_run(tmp_path / "runs", f"{cell}/cifar100/2000", seed=seed, accuracy=accuracy)
            export(folder / "result.json", tmp_path / "results")
        return cells(readme.accuracies().splitlines()[2])

    two = row(("er", 0, 30.0), ("er", 1, 32.0), ("er", 2, 90.0), ("er+s6mod", 0, 32.0), ("er+s6mod", 1, 34.1))
    assert (two[1], two[4], two[6]) == ("31.00 ± 1.41", "+2.05", "2")  # without the seed that S6MOD lacks
    three = row(("er+s6mod", 2, 92.0))
    assert (three[4], three[6]) == ("**+2.03 ± 0.14**", "3")  # beyond chance
