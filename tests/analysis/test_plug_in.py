"""The study of plug-ins: what it asks for, what it finds, and what it says of what is not there."""

from pathlib import Path

import pytest

from s6mod.analysis.carry_out import How, carry_out
from s6mod.analysis.plug_in import ALONE, IID, PLUG_INS, plug_in
from s6mod.analysis.question import answers
from s6mod.analysis.study import page_of, write_page
from s6mod.errors import ConfigError
from s6mod.experiments.perform import Means
from s6mod.methods import methods
from s6mod.runs.completion import complete, setting
from s6mod.runs.config import RunConfig
from s6mod.runs.store import scan

ROOT = Path(__file__).parents[2]


def study_of(store, names=("er", "pcr", "scr", "finetune", IID)):
    question = plug_in(names, "digits", None)
    runs = scan([store]).finished
    return question.answer(answers(question, runs, 3 * len(question.cells)))


def row(table, method):
    [found] = [dict(zip(table.columns, each, strict=True)) for each in table.rows if each[0] == method]
    return found


def test_every_method_of_the_package_stands_there_with_each_plug_in_that_can_join_it():
    cells = plug_in(None, "cifar100", None).cells
    for method in methods.registered(outside=False):
        joined = () if method in ALONE or not methods[method].has_logits else PLUG_INS
        mine = [label for label in cells if label.partition(" + ")[0] == method]
        assert mine == [method, *(f"{method} + {name}" for name in joined)]
    assert [label for label in cells if "iid" in label] == [IID]
    assert {(cell.data, cell.memory) for cell in cells.values()} == {("cifar100", 2000)}
    assert cells["pcr + mkd"].name == "pcr+mkd/cifar100/2000"
    for cell in cells.values():
        RunConfig.parse(cell.values())


def test_s6mod_has_er_s_options_on_every_method_and_er_s_own_cell_is_the_preset():
    cells = plug_in(None, "cifar100", None).cells
    branches = [complete(cell.values())["branch"] for label, cell in cells.items() if label.endswith("+ s6mod")]
    assert len(branches) > 10
    assert all(branch == branches[0] for branch in branches)
    assert cells["er + s6mod"].name == "er+s6mod/cifar100/2000"
    assert cells["onpro + s6mod"].changes


def test_the_upper_bound_is_found_by_its_name():
    values = plug_in([IID], "cifar100", None).cells[IID].values()
    assert setting(complete(values)) == setting(RunConfig.parse(values).plain())


def test_a_method_that_is_not_known_is_refused():
    with pytest.raises(ConfigError, match="expected methods for the study, got 'err'; did you mean 'er'"):
        plug_in(["err"], "digits", None)


@pytest.fixture
def store(tmp_path, write_run, matrix):
    """ER three times with S6MOD, better by 4 to 6, and both controls, better by 1 and by 2; PCR alone, once."""
    cells = plug_in(["er", "pcr"], "digits", None).cells
    for seed in range(3):
        gains = {"er": 0, "er + s6mod": 4 + seed, "er + confidence": 1, "er + smoothing": 2 + 0.1 * seed}
        for label, gain in gains.items():
            write_run(tmp_path, cells[label], seed, matrix(50 + 3 * seed + gain, 10))
    write_run(tmp_path, cells["pcr"], 0, matrix(60, 10))
    return tmp_path


def test_gains_are_paired_and_what_is_not_run_is_told(store, write_run, matrix):
    cells = plug_in(None, "digits", None).cells
    for label in ("scr", "finetune", IID):
        write_run(store, cells[label], 0, matrix(40, 10))
    study = study_of(store)
    accuracy, steady, forgetting, costs = study.tables
    er = row(accuracy, "er")
    assert (er["n"], er["alone"]) == ("3", "53.00 ± 3.00")
    assert (er["+ s6mod"], er["+ confidence"], er["+ mkd"]) == ("+5.00 ± 2.48", "+1.00 ± 0.00", "not run")
    assert set(row(accuracy, "pcr").values()) == {"pcr", "1", "60.00", "not run"}
    assert {each[0] for each in accuracy.rows} == {"er", "finetune", "pcr", "scr", IID}  # the others have no figure
    assert set(row(accuracy, "scr").values()) == {"scr", "1", "40.00", "refused"}
    assert row(accuracy, "finetune")["+ s6mod"] == row(accuracy, IID)["+ mkd"] == ""
    assert row(steady, "er") == {"method": "er", "n": "0", "alone": "not run"} | {
        f"+ {name}": "not run" for name in PLUG_INS
    }
    assert row(forgetting, "er")["+ s6mod"] == "+0.00 ± 0.00"
    assert float(row(costs, "er")["alone"]) < float(row(costs, "er")["+ mkd"])
    assert row(costs, "scr")["+ s6mod"] == ""
    assert "runs are missing here" in study.text


def test_it_says_where_s6mod_helps_and_where_a_control_does_as_well(store, tmp_path, write_run, matrix):
    assert study_of(store, ["er", "pcr"]).findings == [
        "S6MOD helps on er (+5.00 ± 2.48).",
        "S6MOD has not been run on pcr.",
        "S6MOD gains more than the better control on er (+2.90 ± 2.24).",
        "MKD has not been run on er, pcr.",
    ]
    cells = plug_in(["pcr"], "digits", None).cells
    for seed in range(3):
        for label, final in {"pcr": 60, "pcr + s6mod": 58 - seed / 10, "pcr + mkd": 60 + (-1) ** seed}.items():
            write_run(tmp_path, cells[label], seed, matrix(final, 5))
        for control in ("confidence", "smoothing"):
            write_run(tmp_path, cells[f"pcr + {control}"], seed, matrix(60, 5))
    findings = study_of(store, ["pcr"]).findings
    assert findings[0] == "S6MOD hurts on pcr (-2.10 ± 0.25)."
    assert findings[1].startswith("S6MOD does no better than the better control, as far as can be told, on pcr (-2.10")
    assert findings[2].startswith("MKD is open on pcr (+0.33 ±")


def test_the_latest_weights_of_mkd_are_told_apart_from_the_mean(tmp_path, write_run, matrix):
    cells = plug_in(["er"], "digits", None).cells
    write_run(tmp_path, cells["er"], 0, matrix(50, 0))
    folder = write_run(tmp_path, cells["er + mkd"], 0, matrix(58, 0))
    file = folder / "result.json"
    scored = '"predictors": {"latest/running/head": [50, 52, 54], "mean/running/head": [58, 58, 58]}, "primary"'
    file.write_text(file.read_text().replace('"primary"', scored, 1))
    er = row(study_of(tmp_path, ["er"]).tables[0], "er")
    assert (er["+ mkd"], er["+ mkd, latest"]) == ("+8.00", "+2.00")


def test_the_same_trainings_are_compared_by_averaged_weights(tmp_path, write_run, matrix):
    cells = plug_in(["er"], "digits", None).cells
    for seed in range(3):
        for label, averaged in {"er": 60, "er + s6mod": 63 + seed}.items():
            file = write_run(tmp_path, cells[label], seed, matrix(50, 0)) / "result.json"
            scored = f'"predictors": {{"averaged/memory/head": [{averaged}, {averaged}]}}, "primary"'
            file.write_text(file.read_text().replace('"primary"', scored, 1))
    study = study_of(tmp_path, ["er"])
    steady = row(study.tables[1], "er")
    assert (steady["alone"], steady["+ s6mod"], steady["+ mkd"]) == ("60.00 ± 0.00", "+4.00 ± 2.48", "not run")
    assert study.findings[-1] == "By averaged weights S6MOD helps on er (+4.00 ± 2.48)."


def test_its_runs_keep_averaged_weights_beside():
    question = plug_in(["er"], "digits", None)
    assert RunConfig.parse(question.cells["er"].values() | {"output": question.output}).compares_average


def test_the_picture_has_a_row_for_each_method_that_can_be_joined(store):
    [drawing] = study_of(store).drawings
    assert drawing.alt.endswith("er: confidence +1.00 ± 0.00, smoothing +2.10 ± 0.25, s6mod +5.00 ± 2.48; pcr: not run")
    assert len(drawing.csv.splitlines()) == 1 + 9
    assert drawing.png


def test_the_plan_names_a_command_for_each_method_that_lacks_runs_the_quickest_first(store, capsys):
    how = How(store / "runs", [store], None, Means("cpu"), False, False, True, plan=True)
    carry_out(plug_in(["er", "pcr", "finetune"], "digits", None), "0-2", None, how, lambda problems: None)
    pieces = capsys.readouterr().out.split("in pieces, the quickest answer first:\n")[1].splitlines()
    commands = [
        f"s6mod study plug-in {name} --data digits --memory 200 --seeds 0-2" for name in ("finetune", "er", "pcr")
    ]
    assert [line.split("  ")[0].rstrip() for line in pieces] == commands
    assert ["3 runs" in pieces[0], "3 runs" in pieces[1], "14 runs" in pieces[2]] == [True] * 3


def test_a_page_takes_the_place_of_a_page_of_a_study_alone(store, tmp_path):
    study, file = study_of(store), tmp_path / "docs" / "plug-in.md"
    write_page(study, file, "plug-in")
    write_page(study, file, "plug-in")
    assert (tmp_path / "docs" / "images" / "plug-in.png").exists()
    assert "* S6MOD helps on er" in file.read_text()
    file.write_text("mine")
    with pytest.raises(ConfigError, match="expected a new file or an older page of a study"):
        write_page(study, file, "plug-in")


def test_the_page_in_docs_says_what_the_records_say(monkeypatch):
    monkeypatch.chdir(ROOT)
    question, written = plug_in(None, "cifar100", None), []
    monkeypatch.setattr("s6mod.analysis.carry_out.write_page", lambda study, *rest: written.append(study))
    page = Path("docs/explanation/plug-in.md")
    how = How(Path("runs"), [Path("results")], None, Means("cpu"), True, False, True, page=page)
    carry_out(question, "0-2", None, how, lambda problems: None)
    command = f"plug-in --write {page}"
    assert page.read_text() == page_of(written[0], command, "images"), f"run s6mod study {command}"
