import csv
import io

import pytest

from s6mod.analysis.question import answers, whole_cell
from s6mod.analysis.studies import STUDIES, _over_seeds, forgetting_over_tasks, study
from s6mod.decimals import ranges
from s6mod.errors import ConfigError
from s6mod.metrics import AccuracyMatrix
from s6mod.runs.completion import complete
from s6mod.runs.store import scan

ER = whole_cell("er", "digits", None)


def options(question, name):
    """An option of the branch by label, of the cells that have a branch with it."""
    branches = {label: complete(cell.values())["branch"] or {} for label, cell in question.cells.items()}
    return {label: branch[name] for label, branch in branches.items() if name in branch}


def test_a_weight_is_varied_over_the_papers_values_and_the_presets():
    assert sorted(options(study("beta", ER), "beta").values()) == [0.1, 0.5, 1.0, 5.0, 10.0, 25.0]
    assert sorted(options(study("beta", ER, [2]), "beta").values()) == [0.5, 2.0]


def test_the_control_has_every_alpha_that_the_branch_has():
    question = study("alpha", ER, [0.1, 2])
    alphas = {branch: [] for branch in ("s6mod", "confidence", "none")}
    for cell in question.cells.values():
        alphas[cell.branch].append((complete(cell.values())["branch"] or {}).get("alpha"))
    assert alphas == {"s6mod": [0.1, 1.0, 2.0], "confidence": [0.1, 1.0, 2.0], "none": [None]}


def test_the_papers_sensitivity_stands_beside_its_own_cell():
    ours = whole_cell("onpro", "cifar100", 2000, ("branch.view=shared", "branch.divergence=pq"))
    published = ours.but("beta=25.0")
    for name, whole, first in (("alpha", published, "alpha = 0.01"), ("beta", ours, "beta = 0.1")):
        question = study(name, whole)
        assert question.paper[first][0][0] == {"alpha": 36.8, "beta": 36.5}[name]
        assert question.paper.keys() <= question.cells.keys()
    assert not study("alpha", ours).paper  # the paper varies alpha at another beta


def test_patterns_are_counted_with_routing_and_with_all_active():
    question = study("patterns", ER, [1, 4])
    assert [*options(question, "num_patterns").values()] == [1, 1, 4, 4]
    assert [*options(question, "fixed_patterns").values()] == [None, 1, None, 4]


def test_routing_is_compared_with_one_and_with_all_patterns():
    assert options(study("routing", ER), "fixed_patterns") == {"N_k by class": None, "N_k = 1": 1, "N_k = N = 8": 8}
    with pytest.raises(ConfigError, match="leave out --values"):
        study("routing", ER, [1])
    with pytest.raises(ConfigError, match="did you mean 'routing'"):
        study("router", ER)


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [("beta", "variant=plus", "no L_Cont"), ("routing", "fixed_patterns=2", "varies N_k itself"),
     ("routing", "num_patterns=1", "choose among"), ("patterns", "fixed_patterns=2", "varies N_k itself")],
)  # fmt: skip
def test_a_branch_that_lacks_what_is_varied_is_refused(name, change, told):
    with pytest.raises(ConfigError, match=told):
        study(name, whole_cell("er", "digits", None, [f"branch.{change}"]))


def test_forgetting_after_a_task_is_that_of_a_run_that_ended_there():
    rows = [[90.0], [70.0, 80.0], [75.0, 40.0, 60.0]]
    matrix = AccuracyMatrix.from_rows(rows)
    assert forgetting_over_tasks(matrix, "er") == [20.0, (15 + 40) / 2]
    assert forgetting_over_tasks(matrix, "mose") == pytest.approx([20 / 2, (15 + 40) / 3])  # as in its tables


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_draws_the_runs_there_are_and_no_others(name, tmp_path, write_run, matrix):
    question = study(name, ER)
    *there, missing = question.cells
    for place, label in enumerate(there):
        for seed in (0, 1):
            write_run(tmp_path, question.cells[label], seed, matrix(50 + place + seed, 8))
    found = answers(question, scan([tmp_path]).finished, 2 * len(question.cells))
    answer = question.answer(found)
    [figure] = answer.drawings
    rows = list(csv.DictReader(io.StringIO(figure.csv)))
    assert {row["learner"] for row in rows} >= set(there) - {"er"}
    assert missing not in {row["learner"] for row in rows}
    assert figure.svg.lstrip().startswith("<?xml")
    assert "missing" in answer.text
    shown = {
        row.learner: row.ours and row.ours.mean for row in answer.filled.rows if row.section.startswith("average acc")
    }
    assert shown == {label: 50.5 + place for place, label in enumerate(there)} | {missing: None}


def test_the_routing_study_follows_the_accuracy_matrices(tmp_path, write_run):
    question = study("routing", ER)
    for cell in question.cells.values():
        write_run(tmp_path, cell, 3, [[90.0], [70.0, 80.0]])
    answer = question.answer(answers(question, scan([tmp_path]).finished, 4))
    rows = csv.DictReader(io.StringIO(answer.drawings[0].csv))
    values = {(row["metric"], row["task"]): float(row["value"]) for row in rows if row["learner"] == "N_k = 1"}
    assert values == {("new-task accuracy", "1"): 90, ("new-task accuracy", "2"): 80, ("forgetting", "2"): 20}


def test_seeds_whose_streams_end_in_different_tasks_are_averaged_as_far_as_each_came(tmp_path, write_run):
    question = study("routing", ER)
    for seed, rows in enumerate(([[90.0], [70.0, 80.0]], [[50.0]])):
        write_run(tmp_path, question.whole, seed, rows)
    answer = question.answer(answers(question, scan([tmp_path]).finished, 2))
    values = [row["value"] for row in csv.DictReader(io.StringIO(answer.drawings[0].csv))]
    assert list(map(float, values)) == [90, 80, 50, 20]
    assert _over_seeds([[90.0, 80.0], [50.0]]) == [[90.0, 50.0], [80.0]]


def test_a_method_that_was_not_run_alone_is_not_in_the_legend(tmp_path, write_run, matrix):
    question = study("alpha", ER, [1])
    write_run(tmp_path, question.whole, 0, matrix(50, 8))
    [figure] = question.answer(answers(question, scan([tmp_path]).finished, 3)).drawings
    assert "<!-- er + S6MOD -->" in figure.svg
    assert "<!-- er alone -->" not in figure.svg


def test_seeds_are_told_as_ranges():
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"


@pytest.mark.usefixtures("quick_start")
def test_a_command_runs_what_is_missing_and_nothing_twice(tmp_path, call):
    tiny = ["stream.tasks=2", "stream.samples_per_task=20", "method.network.width=4", "method.memory_batch=8"]
    command = ["study", "beta", "er", "--values=0.5", "--seeds=0", "--out", tmp_path, "--device=cpu", "--workers=1"]
    command += [f"--set={change}" for change in (*tiny, "branch.d_inner=12", "branch.num_patterns=2")]
    code, out, err = call(*command)
    assert code == 0, err
    assert "2/2 done" in out
    results = {path: path.read_bytes() for path in tmp_path.glob("*/result.json")}
    assert len(results) == 2
    code, out, err = call(*command)
    assert code == 0, err
    assert "done:" not in out
    assert {path: path.read_bytes() for path in results} == results
    assert list(tmp_path.glob("studies/beta-*/study.json"))
