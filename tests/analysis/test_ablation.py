import csv
import io
import json
import os
from types import SimpleNamespace

import pytest
from rich.console import Console

from s6mod.analysis.ablation import ablation
from s6mod.analysis.carry_out import deliver
from s6mod.analysis.question import answers, slug, split_changes, whole_cell
from s6mod.analysis.study import Study
from s6mod.errors import ConfigError
from s6mod.runs.completion import complete
from s6mod.runs.store import scan

CONTRACT = {"kind", "title", "text", "figures", "tables"}


def branch_of(cell):
    return complete(cell.values())["branch"]


def test_the_rows_add_one_part_after_another_and_end_with_the_controls():
    cells = list(ablation(whole_cell("er", "digits", None)).cells.values())
    assert [cell.learner for cell in cells] == ["er", *["er+s6mod"] * 4, "er+confidence", "er+smoothing"]
    parts = [(b["num_patterns"], b["weight_z"], b["beta"]) for b in map(branch_of, cells[1:5])]
    assert parts == [(1, 0.0, 0.0), (8, 1.0, 0.0), (1, 0.0, 0.5), (8, 1.0, 0.5)]


def test_without_l_cont_there_are_no_rows_about_it():
    whole = whole_cell("er", "digits", None, ["branch.beta=0.0"])
    assert [*ablation(whole).cells] == [
        "er",
        "er + branch (with L_Diff)",
        "er + s6mod",
        "er + confidence",
        "er + smoothing",
    ]


def test_the_controls_have_the_alpha_of_the_branch():
    branch, others = split_changes(["branch.alpha=0.3", "stream.tasks=2"])
    cells = ablation(whole_cell("er", "digits", None, branch)).over(others).cells
    alphas = {branch_of(cell)["alpha"] for cell in cells.values() if cell.branch != "none"}
    assert alphas == {0.3}
    assert {cell.values()["stream"]["tasks"] for cell in cells.values()} == {2}


def test_the_papers_figures_stand_only_beside_the_cell_that_it_studied():
    as_printed = ("branch.beta=0.5", "branch.divergence=pq", "branch.view=shared")
    studied = ablation(whole_cell("onpro", "cifar100", 2000, as_printed))
    assert studied.paper["onpro + s6mod"][0][0] == 37.57
    assert studied.paper.keys() - {"setting"} <= studied.cells.keys()
    assert not studied.over(["stream.tasks=5"]).paper
    assert not ablation(whole_cell("onpro", "cifar100", 1000, as_printed)).paper
    assert not ablation(whole_cell("onpro", "cifar100", 2000)).paper


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(ConfigError, match=r"METHOD.*got 'er\+confidence'"):
        whole_cell("er+confidence", None, None)
    with pytest.raises(ConfigError, match="dotted field"):
        split_changes(["seed=3"])
    for name in ("method.name=ocm", "data.name=cifar10"):  # labels would go on telling of the others
        with pytest.raises(ConfigError, match="as METHOD/DATA/MEMORY"):
            split_changes([name])
    assert split_changes(["statistics=memory", "branch.beta=1"]) == (["branch.beta=1"], ["statistics=memory"])
    question = ablation(whole_cell("er", "digits", None))
    with pytest.raises(ConfigError, match="finished runs"):
        answers(question, [], 3)


@pytest.mark.parametrize(
    ("change", "told"),
    [("alpha=x", "valid number"), ("name=confidence", "varies S6MOD"), ("variant=plus", "no L_Cont"),
     ("fixed_patterns=8", "N_k by class")],
)  # fmt: skip
def test_a_branch_that_cannot_be_taken_apart_is_refused(change, told):
    with pytest.raises(ConfigError, match=told):
        ablation(whole_cell("er", "digits", None, [f"branch.{change}"]))


def test_a_prepared_data_set_is_found_where_the_data_lies(tmp_path):
    with pytest.raises(ConfigError, match="known data set"):
        whole_cell("er", "mine", None)
    (tmp_path / "mine.safetensors").touch()
    assert whole_cell("er", "mine", None, folder=str(tmp_path)).data == "mine"


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


def test_a_result_in_two_precisions_counts_in_the_one_that_most_have(tmp_path, write_run, matrix, call):
    for seed in (0, 1):
        write_run(tmp_path / "runs", "er/digits/200", seed, matrix(50, 8), device="NVIDIA H200")
        write_run(tmp_path / "runs", "er+s6mod/digits/200", seed, matrix(53, 8), device="NVIDIA H200")
    write_run(tmp_path / "runs", "er/digits/200", 0, matrix(90, 1), device="cpu")  # found last
    code, _, err = call("ablate", "er", "--seeds=0-1", "--no-run", "--out", tmp_path / "runs", "--to", tmp_path / "s")
    assert code == 0, err
    study = json.loads((tmp_path / "s" / "study.json").read_text())
    rows = {row[0]: row for row in study["tables"][0]["rows"]}
    gain = study["tables"][0]["columns"].index("gain")
    assert rows["er + s6mod"][gain] == "+3.00±0.00"
    assert "4 runs, seeds 0-1, bfloat16" in study["text"]


@pytest.fixture
def launched(monkeypatch):
    """Whether a sweep was launched, none of whose runs came to an end."""
    outcome = SimpleNamespace(signal=None, failures={"er seed 1": "no memory"})
    calls = []
    monkeypatch.setattr("s6mod.analysis.carry_out.perform", lambda *_: calls.append("launched") or outcome)
    return calls


def test_a_run_that_fails_does_not_hide_the_others(tmp_path, write_run, matrix, call, launched):
    write_run(tmp_path, "er/digits/200", 0, matrix(50, 8))
    code, out, err = call("ablate", "er", "--seeds=0-1", "--out", tmp_path)
    assert (code, launched) == (1, ["launched"])
    assert "failed: er seed 1: no memory" in err
    assert "1 run, seeds 0" in out
    assert list(tmp_path.glob("studies/*/study.json"))


def test_a_folder_that_cannot_be_written_is_refused_before_any_run(tmp_path, call, launched, monkeypatch):
    (tmp_path / "file").touch()
    code, _, err = call("ablate", "er", "--out", tmp_path, "--to", tmp_path / "file" / "study")
    assert (code, launched) == (2, [])
    assert "can be written" in err
    monkeypatch.setattr(os, "access", lambda *_: False)
    code, _, err = call("study", "routing", "er", "--out", tmp_path / "new")
    assert (code, launched) == (2, [])
    assert not (tmp_path / "new").exists()


def test_files_are_there_before_a_reader_of_the_output_goes_away(tmp_path, monkeypatch):
    monkeypatch.setattr("os.dup2", lambda *_: None)  # else rich puts nothing in the place of what pytest reads

    class Gone(io.StringIO):
        def write(self, _):
            raise BrokenPipeError

    with pytest.raises((BrokenPipeError, SystemExit)):
        deliver(Study("name", "title", "text", []), tmp_path / "study", Console(file=Gone()))
    assert (tmp_path / "study" / "study.json").exists()


def test_however_many_fields_are_set_a_study_has_a_folder_of_its_own(tmp_path):
    whole = ablation(whole_cell("er", "digits", None))
    folders = {tmp_path / whole.over([f"method.optimizer.lr=0.{'1' * 300}{digit}"]).name for digit in range(3)}
    for folder in folders:
        folder.mkdir()
    assert len(folders) == 3
    (tmp_path / slug("é" * 200)).mkdir()
