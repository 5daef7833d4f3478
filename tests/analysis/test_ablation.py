import csv
import io
import json

import pytest

from s6mod.analysis.ablation import ablation
from s6mod.analysis.question import answers, split_changes, whole_cell
from s6mod.errors import ConfigError
from s6mod.experiments.schema import complete
from s6mod.experiments.store import scan

CONTRACT = {"kind", "title", "text", "figures", "tables"}


def branch_of(cell):
    return complete(cell.values())["branch"]


def test_the_rows_add_one_part_after_another_and_end_with_the_controls():
    cells = list(ablation(whole_cell("er", "digits", None)).cells.values())
    assert [cell.learner for cell in cells] == ["er", *["er+s6mod"] * 4, "er+confidence", "er+smoothing"]
    parts = [(b["num_patterns"], b["weight_z"], b["beta"]) for b in map(branch_of, cells[1:5])]
    assert parts == [(1, 0.0, 0.0), (8, 1.0, 0.0), (1, 0.0, 0.5), (8, 1.0, 0.5)]


def test_the_controls_have_the_alpha_of_the_branch():
    branch, others = split_changes(["branch.alpha=0.3", "stream.tasks=2"])
    cells = ablation(whole_cell("er", "digits", None, branch)).over(others).cells
    alphas = {branch_of(cell)["alpha"] for cell in cells.values() if cell.branch != "none"}
    assert alphas == {0.3}
    assert {cell.values()["stream"]["tasks"] for cell in cells.values()} == {2}


def test_the_papers_figures_stand_only_beside_the_cell_that_it_studied():
    assert ablation(whole_cell("onpro", "cifar100", 2000)).paper["onpro + s6mod"][0][0] == 37.57
    assert not ablation(whole_cell("onpro", "cifar100", 1000)).paper
    assert not ablation(whole_cell("onpro", "cifar100", 2000)).over(["stream.tasks=5"]).paper


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(ConfigError, match=r"METHOD.*got 'er\+confidence'"):
        whole_cell("er+confidence", None, None)
    with pytest.raises(ConfigError, match="dotted field"):
        split_changes(["seed=3"])
    question = ablation(whole_cell("er", "digits", None))
    with pytest.raises(ConfigError, match="finished runs"):
        answers(question, [], 3)


@pytest.fixture
def store(tmp_path, write_run, matrix):
    """Two seeds of each row; S6MOD gains 4 and 6 points over ER, the confidence penalty 3 each."""
    finals = {"er": (50, 60), "er + s6mod": (54, 66), "er + confidence": (53, 63)}
    for label, cell in ablation(whole_cell("er", "digits", None)).cells.items():
        for seed, final in enumerate(finals.get(label, (51, 61))):
            write_run(tmp_path / "runs", cell, seed, matrix(final, 8))
    return tmp_path / "runs"


def test_the_command_answers_from_finished_runs(store, tmp_path, call):
    code, out, err = call("ablate", "er", "--seeds", "0-1", "--out", store, "--no-run", "--to", tmp_path / "study")
    assert code == 0, err
    study = json.loads((tmp_path / "study" / "study.json").read_text())
    assert study.keys() == CONTRACT
    assert study["kind"] == "study"
    assert [table["title"].split(",")[0] for table in study["tables"]] == [
        "average accuracy", "average forgetting", "new-task accuracy", "S6MOD against its controls",
    ]  # fmt: skip
    gain = study["tables"][0]["columns"].index("gain")
    rows = {row[0]: row for row in study["tables"][0]["rows"]}
    assert rows["er + s6mod"][gain].startswith("+5.00±12.71")  # 4 and 6, Student's t of one degree of freedom
    assert rows["er + confidence"][gain] == "+3.00±0.00"
    assert study["tables"][-1]["rows"][0][1].startswith("+2.00")  # S6MOD minus the control: 1 and 3
    assert "er + s6mod" in out
    names = {path.name for path in (tmp_path / "study").iterdir()}
    assert names == {"study.json", "gains.svg", "gains.png", "gains.csv", "table.md", "table.csv", "table.json"}


def test_a_figure_comes_with_every_number_it_shows(store, tmp_path, call):
    call("ablate", "er", "--seeds", "0-1", "--out", store, "--no-run", "--to", tmp_path / "study")
    [figure] = json.loads((tmp_path / "study" / "study.json").read_text())["figures"]
    assert figure.keys() == {"name", "title", "svg", "csv", "alt"}
    assert figure["svg"] == (tmp_path / "study" / "gains.svg").read_text()
    assert "+5.00" in figure["alt"]
    rows = list(csv.DictReader(io.StringIO(figure["csv"])))
    known = {(row["learner"], row["metric"], row["seed"]): (row["value"], row["base"]) for row in rows}
    assert known["er + s6mod", "accuracy", "1"] == ("66.0", "60.0")
    assert len(rows) == 6 * 2 * 2


def test_what_was_not_run_has_no_number(store, write_run, matrix):
    question = ablation(whole_cell("er", "digits", None))
    whole = question.whole
    for path in store.iterdir():
        if json.loads((path / "result.json").read_text())["cell"] == whole.name:
            (path / "result.json").unlink()
    write_run(store, whole, 0, matrix(99, 1), device="NVIDIA H200")  # bfloat16: never mixed with float32
    found = answers(question, scan([store]).finished, 14)
    assert "er + s6mod" not in found.runs
    assert found.precision == "float32"
    assert "2 of 14 runs are missing" in found.note
    study = question.answer(found)
    assert "s6mod" not in study.drawings[0].csv
    assert study.tables[0].rows[0][1:] == ["not run"] * 3
    assert "99" not in json.dumps([row.ours.mean for row in study.filled.rows if row.ours])
