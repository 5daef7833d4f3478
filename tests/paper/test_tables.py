import csv
import io
import json
from pathlib import Path

import pytest

from s6mod.paper.estimate import Verdict
from s6mod.paper.published import ALPHA_STUDY, STUDY
from s6mod.paper.render import latex
from s6mod.paper.tables import Filled, Results, filled
from s6mod.runs.store import scan

ROOT = Path(__file__).parents[2]
ER, OURS, CONTROL = (f"{learner}/cifar100/2000" for learner in ("er", "er+s6mod", "er+confidence"))


@pytest.fixture
def store(tmp_path, write_run):
    for seed, (base, ours, control) in enumerate([(31.0, 33.0, 34.0), (32.0, 35.0, 33.0), (33.0, 34.0, 36.0)]):
        write_run(tmp_path, ER, seed=seed, accuracy=base)
        write_run(tmp_path, OURS, seed=seed, accuracy=ours)
        write_run(tmp_path, CONTROL, seed=seed, accuracy=control)
    return tmp_path


def rows(store, name):
    return {(row.cell, row.precision, row.section): row for row in filled(name, Results(scan([store]).finished)).rows}


def only(table, cell):
    [row] = [row for (name, _, _), row in table.items() if name == cell and row.ours]
    return row


def test_ours_stands_beside_the_paper_s_with_gains_paired_by_seed(store):
    table = rows(store, "1")
    row = only(table, OURS)
    assert (row.ours.n, row.ours.mean, row.paper) == (3, 34.0, (34.55, 1.66))
    assert row.difference == pytest.approx(-0.55)
    assert row.verdict.word == "agrees"
    assert (row.gain.mean, row.gain.n) == (2.0, 3)
    assert row.gain.half == pytest.approx(4.303 * 1 / 3**0.5, abs=1e-3)
    assert (row.ms, row.bytes_held) == (4.0, 140_000_000)
    control = only(table, CONTROL)
    assert (control.paper, control.verdict, control.gain.mean) == (None, Verdict(""), pytest.approx(7 / 3))
    verdicts = [row.verdict.word for row in table.values()]
    assert verdicts.count("not run") == 110
    assert "er+smoothing/cifar100/2000" not in {row.cell for row in table.values()}  # a control that was not run


def over(store, learner):
    found = filled("all", Results(scan([store]).finished), over=learner)
    return {row.cell: row.gain and row.gain.mean for row in found.rows if row.section.endswith("accuracy")}


def test_any_two_learners_can_be_paired(store, write_run):
    ace = "er-ace/cifar100/2000"
    for seed, accuracy in enumerate((32.0, 34.0)):
        write_run(store, ace, seed=seed, accuracy=accuracy)
    assert over(store, None) == {ER: None, OURS: 2.0, CONTROL: pytest.approx(7 / 3), ace: None}
    assert over(store, "er") == {ER: None, OURS: 2.0, CONTROL: pytest.approx(7 / 3), ace: 1.5}
    assert over(store, "er-ace") == {ER: -1.5, OURS: 1.0, CONTROL: 0.5, ace: None}
    assert over(store, "er+confidence") == {
        ER: pytest.approx(-7 / 3),
        OURS: pytest.approx(-1 / 3),
        CONTROL: None,
        ace: -0.5,
    }


def test_learners_are_paired_in_the_same_setting(store, write_run):
    """What is not of method or branch, the learner that gains are over has in common with each row."""
    write_run(store, f"{ER}/statistics=memory", accuracy=36.0)
    write_run(store, "er-ace/cifar100/2000/statistics=memory", accuracy=37.0)
    write_run(store, "er-ace/cifar100/5000", accuracy=50.0)  # of ER there is no run
    write_run(store, f"{ER}/method.optimizer.lr=0.2", accuracy=30.0)
    gains = over(store, "er")
    assert gains['er-ace/cifar100/2000/statistics="memory"'] == 1.0
    assert gains["er-ace/cifar100/5000"] is None
    assert gains[f"{ER}/method.optimizer.lr=0.2"] == -1.0
    assert over(store, "er/method.optimizer.lr=0.2")[ER] == 1.0


def test_what_all_learners_have_the_one_that_gains_are_over_has_too(tmp_path, write_run):
    """A sweep with ``--set method.network.width=8``: the table calls its ER just er."""
    narrow = "method.network.width=8"
    for learner, accuracy in (("er", 30.0), ("er-ace", 32.0), ("er+mkd", 35.0)):
        write_run(tmp_path, f"{learner}/cifar100/2000/{narrow}", accuracy=accuracy)
    write_run(tmp_path, f"er+mkd/cifar100/2000/{narrow}/teacher.weight=2.0", accuracy=36.0)
    assert [gain for _, gain in sorted(over(tmp_path, "er").items())] == [5.0, 6.0, 2.0, None]
    assert set(over(tmp_path, "pcr").values()) == {None}  # which has no run here
    write_run(tmp_path, "er-ace/cifar100/2000", accuracy=40.0)
    assert set(over(tmp_path, "er").values()) == {None}  # now labels tell the width, and so must --over
    assert over(tmp_path, f"er/{narrow}")["er-ace/cifar100/2000"] == 10.0


def test_where_nothing_can_be_paired_it_is_said(store, call):
    code, out, err = call("table", "all", "--store", store, "--over", "pcr")
    assert (code, "gain: over pcr" in " ".join(out.split())) == (0, True)
    assert err.startswith("no gain: no result of pcr has the data, settings, precision and seed of another row")
    assert call("table", "all", "--store", store, "--over", "er")[2] == ""


def test_what_gains_are_over_is_told_and_may_name_no_data(store, write_run, call):
    write_run(store, "er-ace/cifar100/2000", accuracy=34.0)
    code, out, err = call("table", "all", "--store", store, "--over", "er")
    assert code == 0, err
    assert "+3.00" in out
    assert "gain: over er, paired by seed" in " ".join(out.split())
    for form in ("markdown", "latex"):
        assert "gain: over er." in call("table", "all", "--store", store, "--over", "er", "--format", form)[1]
    for wrong in ("er/cifar100", "err"):
        code, _, err = call("table", "all", "--store", store, "--over", wrong)
        assert (code, err.count("\n")) == (2, 1)


def test_precisions_are_never_averaged(store, write_run):
    write_run(store, OURS, seed=0, accuracy=50.0, precision="float32")
    table = [row for row in rows(store, "1").values() if row.cell == OURS]
    assert [(row.precision, row.ours.n, row.ours.mean) for row in table] == [
        ("bfloat16", 3, 34.0),
        ("float32", 1, 50.0),
    ]
    assert table[1].gain is None  # nothing of its precision to compare with
    assert table[1].verdict.word == "open"


@pytest.mark.parametrize(("number", "told"), [(1, "1 result was left out"), (2, "2 results were left out")])
def test_results_that_differ_in_their_engine_alone_are_counted_once_and_told(store, write_run, call, number, told):
    for seed in range(number):
        write_run(store, ER, seed=seed, accuracy=99.0, deterministic=True)
    code, out, err = call("table", "1", "--store", store, "--only-run")
    assert (code, told in err, "99.00" in out) == (0, True, False)


@pytest.mark.parametrize(
    ("base", "ours", "marked"),
    [
        ([None, None], [None, None], False),
        ([2, 2], [2, 2], False),
        ([1, 2], [1, 2], False),  # each pair agrees
        ([None, None], [1, 1], True),
        ([1, 1], [1, 2], True),
    ],
)
def test_a_gain_whose_two_sides_differ_in_their_numerics_is_marked(tmp_path, write_run, call, base, ours, marked):
    for seed in (0, 1):
        write_run(tmp_path, ER, seed=seed, accuracy=31.0, numerics=base[seed])
        write_run(tmp_path, OURS, seed=seed, accuracy=33.0 + seed, numerics=ours[seed])
    write_run(tmp_path, OURS, seed=7, accuracy=33.5, numerics=9)  # without a base, and so of no pair
    row = only(rows(tmp_path, "1"), OURS)
    assert (row.gain.n, row.sides == "other numerics") == (2, marked)
    command = ("table", "1", "--store", tmp_path, "--only-run", "--format")
    for form, mark in (("terminal", "†"), ("markdown", "†"), ("latex", r"\dag")):
        out = call(*command, form)[1]
        assert out.count(mark) == 2 * marked  # the gain, and what the mark means
        assert ("differ in their numerics" in " ".join(out.split())) == marked
    assert [each["gain_mixed"] for each in json.loads(call(*command, "json")[1])] == [False, marked]


@pytest.mark.parametrize(
    ("numerics", "versions", "sides"),
    [
        (None, ("aaa", "aaa"), "one version"),
        (None, ("aaa", "bbb"), "not known"),  # of before numerics were counted
        (None, ("", ""), "not known"),
        (2, ("aaa", "bbb"), "same numerics"),
        (2, ("aaa", "aaa"), "one version"),
    ],
)
def test_a_gain_says_whether_both_sides_come_from_one_version(tmp_path, write_run, call, numerics, versions, sides):
    for cell, version in ((ER, versions[0]), (OURS, versions[1])):
        write_run(tmp_path, cell, seed=0, accuracy=31.0, numerics=numerics, source=version)
    assert only(rows(tmp_path, "1"), OURS).sides == sides
    command = ("table", "1", "--store", tmp_path, "--only-run", "--format")
    assert [each["gain_sides"] for each in json.loads(call(*command, "json")[1])] == [None, sides]
    for form, mark in (("terminal", "‡"), ("markdown", "‡"), ("latex", r"\ddag")):
        assert call(*command, form)[1].count(mark) == 2 * (sides == "not known")  # the gain, and what the mark means


def test_another_setting_is_not_taken_for_the_published_one(store, write_run):
    write_run(store, f"{OURS}/beta=0.25", seed=7, accuracy=99.0)
    assert only(rows(store, "1"), OURS).ours.n == 3
    departed = [row for row in rows(store, "all").values() if "beta=0.25" in row.learner]
    assert [row.learner for row in departed] == ["er+s6mod (branch.beta=0.25)"] * 2  # by accuracy and by forgetting


def test_mose_and_moe_mose_share_a_training_and_mose_s_forgetting(tmp_path, write_run):
    for seed in range(3):
        write_run(tmp_path, "mose/cifar10/500", seed=seed, accuracy=60.0 + seed, forgetting=30.0)
    assert only(rows(tmp_path, "1"), "mose/cifar10/500").ours.mean == 61.0
    assert only(rows(tmp_path, "1"), "moe-mose/cifar10/500").ours.mean == 63.0
    assert only(rows(tmp_path, "2"), "mose/cifar10/500").ours.mean == 27.0
    write_run(tmp_path, "ocm/cifar10/500", forgetting=30.0)
    assert only(rows(tmp_path, "2"), "ocm/cifar10/500").ours.mean == 30.0


def test_the_ncm_table_reads_the_ncm_scores(store):
    assert only(rows(store, "ncm"), ER).paper == (36.4, 0.81)


def test_one_run_serves_every_study_that_has_it(tmp_path, write_run):
    write_run(tmp_path, STUDY)
    write_run(tmp_path, ALPHA_STUDY)
    table = rows(tmp_path, "sensitivity")
    assert {row.learner for row in table.values() if row.ours} == {"alpha = 5", "beta = 25"}
    assert sum(row.ours is not None for row in rows(tmp_path, "patterns").values()) == 2


def test_every_format_holds_the_same_rows(store, call):
    command = ("table", "1", "--store", store, "--only-run", "--format")
    code, out, err = call(*command, "json")
    assert code == 0, err
    plain = json.loads(out)
    assert {row["cell"] for row in plain} == {ER, OURS, CONTROL}
    assert call(*command[:-1], "--json")[:2] == call(*command, "json", "--json")[:2] == (0, out)
    assert "leave out one of --json and --format csv" in call(*command, "csv", "--json")[2]
    by_csv = list(csv.DictReader(io.StringIO(call(*command, "csv")[1])))
    assert [float(row["mean"]) for row in by_csv] == [row["mean"] for row in plain]
    for form, mark in (
        ("markdown", "| er+s6mod | bf16 | 3 | 34.00±1.00 |"),
        ("latex", r"er+s6mod & bf16 & 3 & 34.00$\pm$1.00"),
    ):
        assert mark in call(*command, form)[1]
    out = call(*command, "terminal")[1]
    assert all(len(line) <= 100 for line in out.splitlines())
    assert "34.00±1.00" in out


def test_whatever_stands_in_a_name_is_text_in_latex():
    written = latex([Filled("all", "a#1_{b}^~$&%\\c", [])])
    assert r"\caption{a\#1\_\{b\}\textasciicircum{}\textasciitilde{}\$\&\%\textbackslash{}c}" in written


@pytest.mark.parametrize("form", ["terminal", "markdown", "latex"])
def test_a_difference_that_rounds_to_nothing_has_no_minus(tmp_path, write_run, call, form):
    write_run(tmp_path, ER, accuracy=34.55)
    write_run(tmp_path, OURS, accuracy=34.549)  # the paper's is 34.55
    _, out, _ = call("table", "1", "--store", tmp_path, "--only-run", "--format", form)
    [line] = [line for line in out.splitlines() if line.lstrip("| ").startswith("er+s6mod")]
    assert line.count("+0.00") == 2  # from the paper's, and from the base's
    assert "-0.00" not in out


def test_the_page_is_written_from_records_and_checked(store, tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    call("runs", "export", "results", store)
    code, _, err = call("table", "--write", "page.md", "--check")
    assert (code, "stale" in err) == (2, True)
    assert call("table", "--write", "page.md")[0] == 0
    assert call("table", "--write", "page.md", "--check")[0] == 0
    page = Path("page.md").read_text()
    assert "| er+s6mod | bf16 | 3 | 34.00±1.00 | ±2.48 | 34.55±1.66 | -0.55 | agrees | +2.00±2.48 | 4.0 | 140 |" in page
    assert "not run" not in page
    Path("page.md").write_text(page.replace("34.00", "35.00"))
    assert call("table", "--write", "page.md", "--check")[0] == 2
    Path("notes.md").write_text("My own.")
    code, _, err = call("table", "--write", "notes.md")
    assert (code, "name another" in err) == (2, True)
    assert Path("notes.md").read_text() == "My own."


def test_the_published_page_is_what_the_records_say(monkeypatch, call):
    monkeypatch.chdir(ROOT)
    code, _, err = call("table", "--write", "docs/reference/reproduction.md", "--check")
    assert code == 0, err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["table", "3"], "known: 1, 2"),
        (["table", "--check"], "--write"),
        (["table", "\x1f", "--write", "page.md"], "--write takes all tables"),  # and none of what a terminal obeys
        (["table", "--store", "nowhere"], "nowhere"),
        (["runs", "export", "there", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_told(tmp_path, monkeypatch, call, words, hint):
    monkeypatch.chdir(tmp_path)
    code, _, err = call(*words)
    assert code == 2
    assert hint in err
    assert "Traceback" not in err
    assert all(line.isprintable() for line in err.splitlines())
