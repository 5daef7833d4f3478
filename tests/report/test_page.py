import csv
import fcntl
import io
import json
import os
import re
import shlex
import shutil
from html.parser import HTMLParser
from statistics import fmean
from urllib.parse import unquote

import pytest
import yaml

from s6mod.paper.estimate import Estimate, paired
from s6mod.paper.render import gain_text
from s6mod.report import curves
from s6mod.report.groups import group_runs
from s6mod.report.page import page
from s6mod.report.source import read_runs
from s6mod.runs.cells import parse
from s6mod.runs.completion import complete
from s6mod.runs.config import RunConfig
from s6mod.runs.name import run_hash
from s6mod.runs.records import export
from s6mod.runs.store import scan

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&"
STUDY = {
    "kind": "study",
    "title": "A <b>study</b>",
    "text": "First.\n\nSecond <script>alert(1)</script>.",
    "figures": [{"name": "f<1>", "title": HOSTILE, "svg": "<svg><script>alert(2)</script></svg>", "csv": "a,b\n1,2\n",
                 "alt": HOSTILE}],
    "tables": [{"title": "T", "columns": ["<i>", "n"], "rows": [["<u>", 1.5], [HOSTILE, None]]}],
}  # fmt: skip


class Reader(HTMLParser):
    """What a browser makes of the page: elements with their attributes, and the text outside of style and script."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.words, self.inside = [], [], None
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.inside = tag

    def handle_endtag(self, _):
        self.inside = None

    def handle_data(self, data):
        if self.inside not in ("script", "style"):
            self.words.append(data)

    def sections(self):
        return [attributes["id"] for tag, attributes in self.elements if tag == "section"]


def results(runs):
    found = [json.loads((folder / "result.json").read_text()) for folder in runs.iterdir()]
    return {(result["cell"].split("/")[0], result["seed"]): result for result in found}


def accuracies(runs, learner):
    return {seed: r["metrics"]["head"]["accuracy"] for (who, seed), r in results(runs).items() if who == learner}


def test_the_headline_figures_are_those_of_the_results(runs):
    read = Reader(page(read_runs([runs])))
    ours, base = accuracies(runs, "er+s6mod"), accuracies(runs, "er")
    acc = Estimate.of(list(ours.values()))
    assert f"{acc.mean:.2f} ± {acc.std:.2f}" in read.text
    gain = paired(ours, base)
    assert f"{gain.mean:+.2f} ± {gain.half:.2f} over er:" in read.text
    control = accuracies(runs, "er+confidence")
    assert f"{ours[0] - control[0]:+.2f} over er+confidence: one seed says nothing (1 paired)" in read.text


def test_a_page_has_every_section_and_every_figure_its_alternative_and_data(runs):
    read = Reader(page(read_runs([runs])))
    assert read.sections() == ["overview", "tasks", "training", "routing", "classes", "runs"]
    count = sum(tag == "figure" for tag, _ in read.elements)
    terms = 6  # ce, four of S6MOD, one of the control
    assert count == 3 + (3 + 3) + (1 + terms) + (2 + 3) + 3
    assert sum(tag == "desc" for tag, _ in read.elements) == count
    assert sum(a.get("download", "").endswith(".csv") for tag, a in read.elements if tag == "a") == count
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_a_page_needs_nothing_but_itself(runs):
    text = page(read_runs([runs]))
    for _, attributes in Reader(text).elements:
        for name in ("href", "src"):
            assert attributes.get(name, "#").startswith(("#", "data:"))
    assert set(re.findall(r"https?://[^\s\"'<]*", text)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in text
    assert "refresh" not in text


def test_forgetting_over_tasks_ends_at_the_metric(runs):
    for result in results(runs).values():
        curve = curves._forgetting(result["matrices"]["head"])
        assert curve[0] is None
        assert curve[-1] == pytest.approx(result["metrics"]["head"]["forgetting"])


def test_classes_are_told_by_name_with_their_accuracy_over_seeds(runs):
    text = Reader(page(read_runs([runs]))).text
    shares = []
    for folder in sorted(runs.glob("er-*")):
        [record] = [
            json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines() if "confusion" in line
        ]
        row = record["counts"][3]
        shares.append(100 * row[3] / sum(row))
    assert re.search(rf"\b3 {sum(row)} {fmean(shares):.1f} ", text)


def test_what_comes_from_files_is_text_and_never_markup(runs, tmp_path, call):
    folder = shutil.copytree(next(runs.glob("er+s6mod-*")), tmp_path / "run")
    result = json.loads((folder / "result.json").read_text())
    result["class_names"] = [HOSTILE] * 10
    result["environment"] |= {"command": f"s6mod {HOSTILE}", "device": HOSTILE, "torch": HOSTILE}
    result["config"]["data"]["name"] = HOSTILE.replace("/", "")  # a name has none
    (folder / "result.json").write_text(json.dumps(result, indent=1))
    (tmp_path / "study.json").write_text(json.dumps(STUDY))
    out = tmp_path / "page.html"
    code, _, err = call("report", folder, "--study", tmp_path / "study.json", "--store", tmp_path, "--out", out)
    assert code == 0, err
    read = Reader(out.read_text())
    assert sum(tag == "script" for tag, _ in read.elements) == 1
    assert not [name for _, attributes in read.elements for name in attributes if name.startswith("on")]
    images = [attributes["src"] for tag, attributes in read.elements if tag == "img"]
    assert [source[:26] for source in images] == ["data:image/svg+xml;base64,"]
    assert not {"b", "i", "u"} & {tag for tag, _ in read.elements}
    for there in (HOSTILE, "A <b>study</b>", "Second <script>alert(1)</script>."):
        assert there in read.text


def test_a_run_in_progress_shows_what_there_is(runs, tmp_path, call):
    folder = shutil.copytree(next(runs.glob("er-*seed0*")), tmp_path / "run")
    (folder / "result.json").unlink()
    lines = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    second = next(place for place, line in enumerate(lines) if '"kind": "task", "task": 1' in line)
    (folder / "records.jsonl").write_text("".join(lines[: second + 1]) + lines[second + 1][:20])  # just being written
    [run] = read_runs([folder])
    read = Reader(page([run]))
    assert "Not finished" in read.text
    assert "stopped 10 of 15 2 " in read.text
    assert "Acc in percent" not in read.text
    assert read.sections() == ["overview", "tasks", "training", "runs"]
    (folder / "records.jsonl").write_text("")
    assert Reader(page(read_runs([folder]))).sections() == ["overview", "runs"]


def test_a_run_that_diverged_shows_gaps_and_no_number(runs, tmp_path):
    folder = shutil.copytree(next(runs.glob("er+s6mod-*seed0*")), tmp_path / "run")
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    for record in records:
        if record["kind"] == "step" and record["task"] > 0:
            record["terms"] = dict.fromkeys(record["terms"])
            record["figures"] |= {"sigma": [None] * 10, "pattern_load": [None] * 3, "mean_patterns": None}
    (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    read = Reader(page(read_runs([folder])))
    assert read.sections() == ["overview", "tasks", "training", "routing", "classes", "runs"]
    assert "nan" not in read.text
    assert "None" not in read.text


@pytest.mark.parametrize("size", [1e20, 1.7e308, 5e-324])
def test_a_run_whose_losses_have_left_all_bounds_has_its_page(runs, tmp_path, call, size):
    folder = shutil.copytree(next(runs.glob("er+s6mod-*seed0*")), tmp_path / "run")
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    for record in records:
        for part in ("terms", "figures"):
            record[part] = {
                name: [size] * len(value) if isinstance(value, list) and value[0] is not True else size
                for name, value in record.get(part, {}).items()
            }
    (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    code, _, err = call("report", folder, "--out", tmp_path / "page.html", "--store", runs)
    assert (code, err) == (0, "")


def test_watching_goes_on_until_the_run_ends(runs, tmp_path, call, monkeypatch):
    folder = shutil.copytree(next(runs.glob("er-*seed0*")), tmp_path / "run")
    result = (folder / "result.json").read_text()
    (folder / "result.json").unlink()
    held = os.open(folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    out, seen = tmp_path / "page.html", []

    def wait(seconds):
        seen.append(out.read_text())
        if len(seen) == 2:
            (folder / "result.json").write_text(result)
            os.close(held)

    monkeypatch.setattr("time.sleep", wait)
    code, told, _ = call("report", folder, "--watch", "--every", "7", "--out", out, "--store", tmp_path)
    assert (code, told) == (0, f"{out}\n")
    assert len(seen) == 2
    assert all('<meta http-equiv="refresh" content="7">' in text for text in seen)
    assert "refresh" not in out.read_text()
    assert "Acc in percent" in out.read_text()


def test_open_shows_the_file(runs, tmp_path, call, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    out = tmp_path / "page.html"
    assert call("report", runs, "--open", "--out", out, "--store", runs)[0] == 0
    assert opened == [out.resolve().as_uri()]


def test_base_and_control_come_from_the_store_and_are_named(runs, tmp_path, call):
    out = tmp_path / "page.html"
    ours = sorted(runs.glob("er+s6mod-*"))
    assert call("report", *ours, "--store", runs, "--out", out)[0] == 0
    read = Reader(out.read_text())
    gain = paired(accuracies(runs, "er+s6mod"), accuracies(runs, "er"))
    assert f"{gain.mean:+.2f} ± {gain.half:.2f} over er:" in read.text
    assert all(str(folder) in read.text for folder in runs.iterdir())
    assert call("report", *ours, "--store", tmp_path, "--out", out)[0] == 0
    assert "over er" not in Reader(out.read_text()).text


def test_public_records_have_matrices_but_no_curves(runs, tmp_path):
    for folder in runs.iterdir():
        export(folder / "result.json", tmp_path)
    assert Reader(page(read_runs([tmp_path]))).sections() == ["overview", "tasks", "runs"]


def test_figures_of_the_paper_stand_beside_ours_only_where_it_has_some(runs, tmp_path):
    assert "Beside the paper" not in page(read_runs([runs]))
    root = tmp_path / "cell"
    for seed, accuracy in enumerate((31.0, 32.0, 33.5)):
        result = json.loads((next(runs.glob("er-*seed0*")) / "result.json").read_text())
        result["config"] = complete(parse("er/cifar100/2000").values()) | {"seed": seed}
        result |= {"hash": run_hash(result["config"]), "seed": seed}
        result["metrics"]["head"]["accuracy"] = accuracy
        (root / str(seed)).mkdir(parents=True)
        (root / str(seed) / "result.json").write_text(json.dumps(result, indent=1))
    text = Reader(page(read_runs([root]))).text
    assert "Beside the paper" in text
    assert "31.89±1.45 +0.28 open (n = 4)" in text
    assert "Verdict: by Welch's 95 % interval" in text


@pytest.mark.parametrize("numerics", [None, 1])
def test_beside_the_paper_too_a_gain_across_numerics_is_marked(tmp_path, write_run, numerics):
    write_run(tmp_path, "er/cifar100/2000", accuracy=31.0)
    write_run(tmp_path, "er+s6mod/cifar100/2000", accuracy=33.0, numerics=numerics)
    text = Reader(page(read_runs([tmp_path]))).text
    assert ("+2.00†" in text, "†: the two sides of this gain differ" in text) == (numerics is not None,) * 2


def test_a_gain_whose_sides_differ_in_their_numerics_is_marked_wherever_it_stands(tmp_path, write_run):
    for seed in range(3):
        write_run(tmp_path, "er/digits/200", seed=seed, accuracy=60.0 + seed)
        write_run(tmp_path, "er+s6mod/digits/200", seed=seed, accuracy=70.0 + 2 * seed, numerics=1)
    text = Reader(page(read_runs([tmp_path]))).text
    assert "+11.00 ± 2.48† over er: a gain (3 paired)" in text  # the card
    assert "er+s6mod over er 3 +11.00 ± 2.48†" in text  # the table
    assert text.count("†: the two sides of this gain differ") == 1
    assert "more than chance gives. The two come from different versions of the code." in text


def test_seeds_in_a_row_are_told_as_a_range(tmp_path, write_run):
    for seed in (0, 1, 2, 50):
        write_run(tmp_path, "er/digits/200", seed=seed)
    assert "0-2, 50" in Reader(page(read_runs([tmp_path]))).text


def test_runs_of_one_cell_are_told_apart_by_what_differs(runs, tmp_path):
    for beta in (0.5, 2.0):
        result = json.loads((next(runs.glob("er+s6mod-*seed0*")) / "result.json").read_text())
        result["config"]["branch"]["beta"] = beta
        (tmp_path / str(beta)).mkdir()
        (tmp_path / str(beta) / "result.json").write_text(json.dumps(result, indent=1))
    labels = [group.label for group in group_runs(read_runs([tmp_path]), scan([runs]).finished)]
    assert labels == ["er", "er+confidence", "er+s6mod (beta=0.5)", "er+s6mod (beta=2.0)"]
    result["config"]["branch"] |= {"alpha": 3.0, "beta": 0.5}
    (tmp_path / "3.0").mkdir()
    (tmp_path / "3.0" / "result.json").write_text(json.dumps(result, indent=1))
    labels = [group.label for group in group_runs(read_runs([tmp_path]))]
    assert sorted(labels) == [f"er+s6mod (alpha={a}, beta={b})" for a, b in ((1.0, 0.5), (1.0, 2.0), (3.0, 0.5))]


def changed(folder, to, **parts):
    """A copy of a run with parts of its configuration, class names or environment replaced."""
    copy = shutil.copytree(folder, to)
    result = json.loads((copy / "result.json").read_text())
    for name, part in parts.items():
        result[name] = result[name] | part if isinstance(part, dict) else part
    (copy / "result.json").write_text(json.dumps(result, indent=1))
    return copy


def test_settings_have_charts_of_their_own(runs, tmp_path):
    """Curves of different streams on one axis say nothing."""
    for folder in runs.glob("er*seed0*"):
        shutil.copytree(folder, tmp_path / folder.name)
        changed(folder, tmp_path / f"{folder.name}-100", config={"memory_size": 100})
    read = Reader(page(read_runs([tmp_path])))
    names = [attributes["data-name"] for tag, attributes in read.elements if tag == "figure"]
    for name in ("headline-accuracy", "tasks-accuracy", "anytime", "term-ce", "branch-mean-patterns"):
        assert [each for each in names if each.startswith(name)] == [f"{name}-1", f"{name}-2"]
    assert len(names) == len(set(names))
    assert "Accuracy over the tasks seen: digits, M = 50" in read.text
    assert "digits, M = 50, 100: report" in read.text


def test_captions_tell_of_no_band_and_no_interval_where_there_is_one_seed(runs):
    text = Reader(page(read_runs([next(runs.glob("er-*seed0*"))]))).text
    assert "Forgetting of earlier tasks one seed" in text
    assert not re.search("band|shade|mean over seeds", text.replace("standard deviation over seeds", ""))
    assert "band: lowest to highest" in Reader(page(read_runs([runs]))).text


def test_an_af_by_another_definition_is_told(runs, tmp_path):
    plain = Reader(page(read_runs([runs]))).text
    assert "AF: how far each task but the last has fallen" in plain
    assert "as its authors have it" not in plain
    changed(next(runs.glob("er-*seed0*")), tmp_path / "run", config=complete(parse("mose/cifar100/2000").values()))
    assert "AF of mose: over all tasks, the last being 0" in Reader(page(read_runs([tmp_path]))).text


def test_data_sets_whose_classes_share_their_names_have_tables_of_their_own(runs, tmp_path):
    folder = next(runs.glob("er-*seed0*"))
    shutil.copytree(folder, tmp_path / "digits")
    config = json.loads((folder / "result.json").read_text())["config"]
    changed(folder, tmp_path / "other", config={"data": config["data"] | {"name": "other"}})
    text = Reader(page(read_runs([tmp_path]))).text
    assert "digits: 10 classes" in text
    assert "other: 10 classes" in text


def test_a_confusion_that_never_was_is_a_zero_in_the_data(runs):
    folder = next(runs.glob("er-*seed0*"))
    [record] = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines() if "confusion" in line]
    order = [label for task in record["classes"] for label in task]
    links = [
        a["href"] for tag, a in Reader(page(read_runs([folder]))).elements if a.get("download") == "confusion-0.csv"
    ]
    table = list(csv.reader(io.StringIO(unquote(links[0].partition(",")[2]))))
    shares = [[100 * record["counts"][i][j] / sum(record["counts"][i]) for j in order] for i in order]
    assert [[float(cell) for cell in row[1:]] for row in table[1:]] == [pytest.approx(row, abs=1e-3) for row in shares]


def test_what_seeds_have_seen_is_told_of_all_of_them_and_guesses_of_other_classes_are_shown(runs, tmp_path):
    """Of a stream that ends early, seeds see different classes, and images may be taken for one that never came."""
    for seed, (came, guess) in enumerate(((4, 0), (7, 7))):
        folder = changed(next(runs.glob(f"er-*seed{seed}*")), tmp_path / str(seed))
        counts = [[20 if (i, j) == (came, guess) else 0 for j in range(10)] for i in range(10)]
        record = {"step": 9, "kind": "confusion", "task": 0, "classes": [[came]], "counts": counts}
        (folder / "records.jsonl").write_text(json.dumps(record) + "\n")
    read = Reader(page(read_runs([tmp_path])))
    assert "digits: 2 classes" in read.text
    assert "4 20 0.0 0 (100 %) 7 20 100.0" in read.text
    [link] = [a["href"] for _, a in read.elements if a.get("download") == "confusion-0.csv"]
    assert unquote(link).endswith('taken for",4,0\n4,0,100\n')


def on_own_data(folder, to, contents):
    """A copy of a run as if it were on own data, which lies in a file and has these contents."""
    data = json.loads((folder / "result.json").read_text())["config"]["data"] | {"name": "own", "root": "/own data.npz"}
    return changed(folder, to, config={"data": data}, data=contents)


def test_a_gain_is_over_a_base_on_the_same_contents_of_own_data(runs, tmp_path):
    ours, base = (next(runs.glob(f"{name}-*seed0*")) for name in ("er+s6mod", "er"))
    shown = read_runs([on_own_data(ours, tmp_path / "ours", "a" * 12)])
    on_own_data(base, tmp_path / "other" / "1", "b" * 12)
    assert "over er" not in page(shown, store=scan([tmp_path / "other"]).finished)
    on_own_data(base, tmp_path / "both" / "1", "b" * 12)
    on_own_data(base, tmp_path / "both" / "2", "a" * 12)
    assert "over er: one seed" in page(shown, store=scan([tmp_path / "both"]).finished)


def test_the_command_of_a_run_on_own_data_names_its_place(runs, tmp_path):
    folder = next(runs.glob("er-*seed0*"))
    for number, contents in enumerate(("a" * 12, "b" * 12)):  # which the store calls apart
        on_own_data(folder, tmp_path / str(number), contents)
    commands = [
        words for words in Reader(page(read_runs([tmp_path]))).words if words.startswith("s6mod train --method")
    ]
    assert len(commands) == 2
    for command in commands:
        words = shlex.split(command)
        assert words[words.index("--data") + 1] == "own"
        assert words[words.index("--data-root") + 1] == "/own data.npz"


def test_a_loss_too_small_to_be_shown_is_no_minus_zero():
    assert gain_text(Estimate.of([-0.001]), None) == "+0.00"


def test_a_record_without_a_command_shows_none(runs, tmp_path):
    folder = next(runs.glob("er-*seed0*"))
    assert "The records name the command" in Reader(page(read_runs([folder]))).text
    changed(folder, tmp_path / "run", environment={"command": None})
    text = Reader(page(read_runs([tmp_path]))).text
    assert "The records name the command" not in text
    assert "None" not in text


def test_the_command_on_the_page_makes_the_same_run(runs, call, tmp_path):
    folder = next(runs.glob("er+s6mod-*seed1*"))
    text = page(read_runs([folder]))
    [command] = [words for words in Reader(text).words if words.startswith("s6mod train")]
    code, out, err = call(*shlex.split(command)[1:], "--show-config")
    assert code == 0, err
    assert RunConfig.parse(yaml.safe_load(out)).hash == json.loads((folder / "result.json").read_text())["hash"]


def test_a_page_of_three_large_runs_stays_small(runs, tmp_path):
    """A hundred classes and twenty tasks, recorded every step."""
    for seed in range(3):
        folder = shutil.copytree(next(runs.glob("er+s6mod-*seed0*")), tmp_path / str(seed))
        result = json.loads((folder / "result.json").read_text())
        result["config"]["seed"] = seed
        result["matrices"] = {"head": [[50.0 + (7 * i * j) % 50 for j in range(i + 1)] for i in range(20)]}
        result["class_names"] = [f"class number {c}" for c in range(100)]
        (folder / "result.json").write_text(json.dumps(result, indent=1))
        figures = {"sigma": [c / 100 for c in range(100)], "patterns": [1.0 + c % 8 for c in range(100)],
                   "seen": [True] * 100, "mean_patterns": 3.0, "pattern_load": [0.125] * 8}  # fmt: skip
        records = [
            {"step": s, "kind": "step", "task": 0, "terms": {"ce": s % 7 / 7}, "figures": figures} for s in range(5000)
        ]
        counts = [[(i * j * 31 + seed) % 3 for j in range(100)] for i in range(100)]
        classes = [list(range(5 * t, 5 * t + 5)) for t in range(20)]
        records.append({"step": 5000, "kind": "confusion", "task": 19, "classes": classes, "counts": counts})
        (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert len(page(read_runs([tmp_path]))) < 1_500_000


def damaged_records(folder):
    (folder / "records.jsonl").write_text('{"step": 1, "kind": "task"\n')


def records_without_terms(folder):
    (folder / "records.jsonl").write_text('{"step": 1, "kind": "step", "task": 0}\n')


def damaged_result(folder):
    (folder / "result.json").write_text('{"format": 1')


def damaged_matrices(folder):
    result = json.loads((folder / "result.json").read_text()) | {"matrices": "none"}
    (folder / "result.json").write_text(json.dumps(result, indent=1))


def ragged_matrices(folder):
    result = json.loads((folder / "result.json").read_text()) | {"matrices": {"head": [[1.0], [2.0]]}}
    (folder / "result.json").write_text(json.dumps(result, indent=1))


def deep_records(folder):
    (folder / "records.jsonl").write_text("[" * 100_000 + "\n")


def deep_result(folder):
    (folder / "result.json").write_text('{"format": 1, "config": ' + "[" * 100_000)


def pipe_of_records(folder):
    (folder / "records.jsonl").unlink()
    os.mkfifo(folder / "records.jsonl")


def records_with(**parts):
    def damage(folder):
        (folder / "records.jsonl").write_text(json.dumps({"step": 1, "task": 0, **parts}) + "\n")

    return damage


def damaged_config(folder):
    (folder / "result.json").unlink()
    (folder / "config.json").write_text("[]")


@pytest.mark.parametrize(
    "damage",
    [
        damaged_records, records_without_terms, damaged_result, damaged_matrices, ragged_matrices, damaged_config,
        deep_records, deep_result, pipe_of_records,
        records_with(kind="task", accuracy={}), records_with(kind="evaluation", accuracy={"head": []}),
        records_with(kind="task", accuracy={"head": [None]}),
        records_with(kind="task", accuracy={"head": [1e308, 1e308]}),
        records_with(kind="step", terms={"ce": "1"}, figures={}),
        records_with(kind="step", terms={"ce": 10**400}, figures={}),
        records_with(kind="step", terms={}, figures={"sigma": [["a"]]}), records_with(kind="x", step=10**400),
        records_with(kind="confusion", classes=[[3]], counts=[]),
        records_with(kind="confusion", classes=[[0]], counts=[["a"]]),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("impatient")
def test_a_damaged_run_is_told_in_one_sentence(runs, tmp_path, call, damage):
    folder = shutil.copytree(next(runs.glob("er-*seed0*")), tmp_path / "run")
    damage(folder)
    code, out, err = call("report", folder, "--out", tmp_path / "page.html", "--store", runs)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: expected ")
    assert not (tmp_path / "page.html").exists()


RAGGED = {"tables": [{"title": "T", "columns": ["a"], "rows": [[1, 2]]}]}


@pytest.mark.parametrize(
    "study",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        *(json.dumps(STUDY | part) for part in ({"kind": "run"}, {"figures": [1]}, RAGGED)),
    ],
)
def test_a_damaged_study_is_told_in_one_sentence(runs, tmp_path, call, study):
    file = tmp_path / "study.json"
    file.write_text(study)
    code, _, err = call("report", runs, "--study", file, "--out", tmp_path / "page.html", "--store", runs)
    assert (code, err.count("\n")) == (2, 1)
    assert "expected a study file" in err


def test_what_is_no_run_is_told_in_one_sentence(runs, tmp_path, call):
    (tmp_path / "empty").mkdir()
    for arguments in ([tmp_path / "none"], [tmp_path / "empty"], [runs, tmp_path / "empty"],
                      [runs, "--study", tmp_path / "none"], [runs, "--out", tmp_path]):  # fmt: skip
        code, _, err = call("report", "--store", runs, *arguments)
        assert (code, err.count("\n")) == (2, 1), arguments
        assert err.startswith("error: expected ")


@pytest.mark.parametrize("place", ["nowhere", "file"])
def test_a_page_that_cannot_be_written_is_named_as_it_was_given(runs, tmp_path, call, place):
    (tmp_path / "file").touch()
    out = tmp_path / place / "x.html"
    code, _, err = call("report", runs, "--store", runs, "--out", out)
    assert (code, err.count("\n")) == (2, 1)
    assert f"expected to read and write {out}, got: " in err
