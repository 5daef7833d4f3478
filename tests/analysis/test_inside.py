import csv
import io
import json
import re
import shutil

import pytest
import torch
from torch.nn import functional as F

from records import records_of
from s6mod.analysis.inside import between_classes, delta_similarity, gradients, study_inside
from s6mod.analysis.opened import open_run
from s6mod.errors import CheckpointError, ConfigError


@pytest.fixture
def copied(runs, tmp_path):
    shutil.copytree(runs["er+s6mod"], tmp_path / "run")
    return tmp_path / "run"


def test_similarity_of_delta_is_the_mean_over_pairs_of_samples():
    delta, labels = torch.randn(9, 2, 3, generator=torch.Generator().manual_seed(0)), torch.arange(9) % 3
    labels[-1] = 3  # one sample alone has no other of its class
    found = delta_similarity(delta, labels, 5)
    for i in range(5):
        for j in range(5):
            pairs = [(m, n) for m in range(9) for n in range(9) if m != n and (labels[m], labels[n]) == (i, j)]
            if not pairs:
                assert found[i, j].isnan()
                continue
            cosines = [F.cosine_similarity(delta[m].flatten(), delta[n].flatten(), dim=0) for m, n in pairs]
            assert found[i, j].item() == pytest.approx(torch.stack(cosines).mean().item(), abs=1e-5)


def test_shares_of_the_gradient_add_up(runs):
    terms = {term.name: term for term in gradients(open_run(runs["er+s6mod"], "cpu"), batches=2)}
    assert terms.keys() == {"ce", "branch/dr", "branch/diff", "branch/z"}  # beta = 0
    assert sum(term.share for term in terms.values()) == pytest.approx(1)
    assert terms["branch/diff"].length > 0
    assert terms["ce"].cosine == pytest.approx(1)


def test_the_study_shows_what_was_recorded(copied, tmp_path, call):
    with (copied / "records.jsonl").open("a") as file:
        file.write(json.dumps({"step": 9, "kind": "warning", "task": 0, "text": "routing has collapsed"}) + "\n")
    code, _, err = call("inside", copied, "--to", tmp_path, "--device", "cpu")
    assert code == 0, err
    study = json.loads((tmp_path / "study.json").read_text())
    assert study["text"].endswith("Warning of the run: routing has collapsed.")
    figures = {figure["name"]: figure for figure in study["figures"]}
    assert figures.keys() == {"routing", "load", "classes", "losses"}
    last = [record for record in records_of(copied) if record["kind"] == "step"][-1]
    rows = [row for row in csv.DictReader(io.StringIO(figures["routing"]["csv"])) if int(row["step"]) == last["step"]]
    seen = [c for c, known in enumerate(last["figures"]["seen"]) if known]
    assert {row["class"]: float(row["N_k"]) for row in rows if row["N_k"]} == {
        str(c): last["figures"]["patterns"][c] for c in seen
    }
    assert len(seen) == 10
    [load] = [r for r in csv.DictReader(io.StringIO(figures["load"]["csv"])) if int(r["step"]) == last["step"]]
    assert [float(load[f"load_{i}"]) for i in (1, 2, 3)] == last["figures"]["pattern_load"]


def test_many_classes_are_numbered_and_many_points_have_no_marks(runs, monkeypatch):
    def drawn():
        return {each.name: each for each in study_inside(runs["er+s6mod"], "cpu").drawings}

    few = drawn()
    monkeypatch.setattr("s6mod.analysis.draw.MOST_NAMES", 5)
    monkeypatch.setattr("s6mod.analysis.inside.MOST_MARKS", 3)
    many = drawn()
    for name in ("classes", "routing"):
        numbers = [set(re.findall(r"<!-- (\d+) -->", drawing[name].svg)) for drawing in (few, many)]
        assert {"7", "9"} <= numbers[0] - numbers[1]  # names before, and only every second number now
    for name in ("losses", "load"):
        marks = [drawing[name].svg.count("<use") for drawing in (few, many)]
        assert marks[1] < marks[0]


def test_the_data_has_each_pair_of_classes_once_and_six_digits(runs):
    run = open_run(runs["er+s6mod"], "cpu")
    rows = list(csv.DictReader(io.StringIO(between_classes(run, run.learner.peers[0].branch).csv)))
    assert len({frozenset((row["class"], row["other"])) for row in rows}) == len(rows) == 10 * 11 / 2
    assert all(len(row["distance"].replace(".", "").lstrip("0")) <= 6 for row in rows)


def test_gradients_are_of_the_latest_task_that_the_memory_holds(runs, monkeypatch):
    run = open_run(runs["er+s6mod"], "cpu")
    memory, method, tasks = run.learner.memory, run.learner.method, []
    memory.tasks[memory.tasks == 2] = 0
    plan = method.plan
    monkeypatch.setattr(method, "plan", lambda *given: tasks.append(given[2]) or plan(*given))
    gradients(run, batches=1)
    assert [(task.index, set(task.current)) for task in tasks] == [(1, set(run.plan.task_classes[1]))]


def test_damaged_records_are_refused(copied):
    with (copied / "records.jsonl").open("a") as file:
        file.write('{"step": ')
    with pytest.raises(CheckpointError, match="damaged or missing"):
        study_inside(copied, "cpu")
    (copied / "records.jsonl").unlink()
    with pytest.raises(CheckpointError, match="damaged or missing"):
        study_inside(copied, "cpu")


def test_a_memory_with_one_sample_has_no_similarities(runs):
    run = open_run(runs["er+s6mod"], "cpu")
    run.learner.memory.filled = 1
    drawing = between_classes(run, run.learner.peers[0].branch)
    assert drawing.alt.endswith("within a class unknown, between two unknown.")


def test_the_study_of_the_present_folder_lies_beside_it(copied, call, monkeypatch):
    monkeypatch.chdir(copied)
    there = sorted(copied.iterdir())
    code, _, err = call("inside", ".", "--device=cpu")
    assert code == 0, err
    assert (copied.parent / "studies" / "inside-run" / "study.json").exists()
    assert sorted(copied.iterdir()) == there


def test_a_run_without_the_branch_is_refused(runs):
    with pytest.raises(ConfigError, match="a run with S6MOD"):
        study_inside(runs["er"], "cpu")
