import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from states import write_state

from s6mod.analysis.draw import canvas, legend_below
from s6mod.analysis.features import Geometry, _scatter, ncm_accuracy, spaces, study_features
from s6mod.analysis.opened import open_run
from s6mod.engine.checkpoint import read_state
from s6mod.errors import CheckpointError, ConfigError


def test_geometry_of_four_points():
    features = torch.tensor([[0.0, 0.0], [0.0, 2.0], [10.0, 0.0], [10.0, 2.0]])
    found = Geometry.of(features, torch.tensor([4, 4, 7, 7]))
    assert (found.within, found.between, found.ratio) == (1.0, 10.0, 0.1)
    mean_to_others = (10 + 104**0.5) / 2
    assert found.silhouette == pytest.approx(1 - 2 / mean_to_others)


@pytest.mark.parametrize("name", ["er", "er+s6mod"])
def test_an_opened_run_predicts_as_it_did_when_it_ended(runs, name):
    run = open_run(runs[name], "cpu")
    images, _ = run.memory()
    memory, test = spaces(run, images), spaces(run, run.dataset.test_images)
    accuracy = ncm_accuracy(run, memory.backbone, test.backbone)
    assert accuracy == pytest.approx(json.loads((run.folder / "result.json").read_text())["metrics"]["ncm"]["accuracy"])
    assert (memory.branch is None) == (name == "er")


def test_opening_writes_nothing(runs):
    before = {path: path.stat().st_mtime_ns for path in runs["er"].rglob("*")}
    open_run(runs["er"], "cpu")
    assert {path: path.stat().st_mtime_ns for path in runs["er"].rglob("*")} == before


def test_branch_features_are_those_that_its_head_reads(runs):
    run = open_run(runs["er+s6mod"], "cpu")
    images = run.dataset.test_images[:20]
    branch = run.learner.peers[0].branch
    [outputs] = run.learner.predictor().outputs(images)
    mu = spaces(run, images).branch
    assert torch.allclose(mu.norm(dim=1), torch.ones(20), atol=1e-5)
    assert torch.equal(branch.etf(mu), branch.scores(outputs[0].feature_map))


def test_both_runs_show_the_same_samples_and_the_method_alone_comes_first(runs, tmp_path, call):
    code, _, err = call("features", runs["er+s6mod"], runs["er"], "--to", tmp_path, "--device", "cpu")
    assert code == 0, err
    study = json.loads((tmp_path / "study.json").read_text())
    rows = [line.split(",") for line in study["figures"][0]["csv"].splitlines()[1:]]
    classes = {name: [row[1] for row in rows if row[0] == name] for name in ("er", "er+s6mod")}
    assert classes["er"] == classes["er+s6mod"]
    assert len(classes["er"]) == 60
    [table] = study["tables"]
    assert [row[0] for row in table["rows"]] == ["er", "er+s6mod"]
    assert table["rows"][0][-1] == ""  # ER alone has no branch features
    result = json.loads((runs["er"] / "result.json").read_text())
    assert f"NCM Acc {result['metrics']['ncm']['accuracy']:.1f} %" in study["figures"][0]["alt"]


@pytest.fixture
def opened(runs, monkeypatch):
    """Open a run with another configuration; ``study_features`` takes it from there by the folder returned."""
    known = {}
    monkeypatch.setattr("s6mod.analysis.features.open_run", lambda folder, *_: known[folder])

    def open_as(name, **changes):
        run = open_run(runs[name], "cpu")
        folder = runs[name] / str(len(known))
        known[folder] = replace(run, config=run.config.model_copy(update=changes))
        return folder, known[folder]

    return open_as


def test_runs_that_share_no_samples_are_refused(opened):
    (base, run), (with_branch, _) = opened("er"), opened("er+s6mod")
    run.learner.memory.images.bitwise_not_()
    with pytest.raises(ConfigError, match="share samples"):
        study_features([with_branch, base])


def test_the_picture_is_of_a_seed_that_all_learners_have(opened):
    folders = [opened(name, seed=seed)[0] for name, seed in (("er", 2), ("er", 1), ("er+s6mod", 3), ("er+s6mod", 1))]
    study = study_features(folders)
    assert "seed 1" in study.drawings[0].title
    assert {line.split(",")[0] for line in study.drawings[0].csv.splitlines()[1:]} == {"er", "er+s6mod"}
    assert [row[:2] for row in study.tables[0].rows] == [["er", "1-2"], ["er+s6mod", "1, 3"]]
    with pytest.raises(ConfigError, match="a seed that all learners"):
        study_features(folders[:3])


def test_colours_of_many_classes_have_a_key_and_no_line_under_a_picture_reaches_into_the_next(runs, monkeypatch):
    monkeypatch.setattr("s6mod.analysis.features.FEW", 5)
    [drawing] = study_features([runs["er"], runs["er+s6mod"]], "cpu").drawings
    texts = re.findall(r"<!-- (.+?) -->", drawing.svg, re.DOTALL)
    assert "class, in stream order" in texts
    lines = [line for text in texts if text.startswith("silhouette") for line in text.splitlines()]
    assert lines
    assert max(map(len, lines)) <= 26  # letters of nine points in half of 4.8 inches


def test_runs_of_several_streams_or_memory_sizes_are_refused(opened):
    base, run = opened("er")
    other = run.config.stream.model_copy(update={"batch_size": 5})
    for change in ({"memory_size": 50}, {"stream": other}):
        with pytest.raises(ConfigError, match="one data set, memory size and stream"):
            study_features([base, opened("er+s6mod", **change)[0]])


def test_a_memory_without_two_samples_of_a_class_is_refused(opened):
    folder, run = opened("er")
    run.learner.memory.filled = 1
    with pytest.raises(ConfigError, match="got 1 samples of 1 in"):
        study_features([folder])


def test_test_images_of_classes_that_never_come_do_not_count(runs, monkeypatch):
    run = open_run(runs["er"], "cpu")
    came = replace(run.plan, class_order=run.plan.class_order[:4])
    monkeypatch.setattr("s6mod.analysis.features.open_run", lambda *_: replace(run, plan=came))
    chosen = torch.isin(run.dataset.test_labels, torch.tensor(came.class_order))
    expected = Geometry.of(spaces(run, run.dataset.test_images[chosen]).backbone, run.dataset.test_labels[chosen])
    monkeypatch.setattr("s6mod.analysis.features._pictures", lambda *_: None)
    [table] = study_features([runs["er"]]).tables
    assert table.rows[0][table.columns.index("silhouette, test")] == f"{expected.silhouette:.2f}"


def test_a_run_that_diverged_is_refused(runs, tmp_path):
    shutil.copytree(runs["er"], tmp_path / "run")
    state, header = read_state(tmp_path / "run" / "checkpoint")
    next(iter(state["learner"]["peers"]["0"]["network"].values())).fill_(torch.nan)
    write_state(tmp_path / "run" / "checkpoint", state, header)
    with pytest.raises(CheckpointError, match="diverged"):
        open_run(tmp_path / "run", "cpu")


def test_a_run_whose_last_state_could_not_be_saved_is_refused(runs, tmp_path):
    shutil.copytree(runs["er"], tmp_path / "run")
    state, header = read_state(tmp_path / "run" / "checkpoint")
    state["cursor"]["position"] -= 1
    write_state(tmp_path / "run" / "checkpoint", state, header)
    with pytest.raises(CheckpointError, match=r"final state.*run it again"):
        open_run(tmp_path / "run", "cpu")


def test_a_run_under_way_is_refused_with_the_command_that_ends_it(runs, tmp_path):
    folder = tmp_path / "half a run"
    folder.mkdir()
    (folder / "config.json").write_bytes((runs["er"] / "config.json").read_bytes())
    with pytest.raises(CheckpointError, match=f"go on with: s6mod train --resume '{folder}'$"):
        open_run(folder, "cpu")


def test_a_run_without_a_checkpoint_is_refused(runs, tmp_path):
    for name in ("config.json", "result.json"):
        (tmp_path / name).write_bytes((runs["er"] / name).read_bytes())
    with pytest.raises(CheckpointError, match="keep_checkpoint"):
        open_run(tmp_path, "cpu")


def test_runs_of_one_name_must_differ_in_their_seeds(runs):
    with pytest.raises(ConfigError, match="differ in their seeds"):
        study_features([runs["er"], runs["er"]], "cpu")


def test_a_class_whose_name_begins_with_an_underscore_is_in_the_legend_too():
    with canvas(1, 1, 2.0) as panel:
        [[axis]] = panel.axes
        _scatter(axis, np.zeros((2, 2)), np.array([0, 1]), ["_rest", "cat"])
        legend_below(panel)
        [legend] = panel.figure.legends
    assert [text.get_text().strip() for text in legend.get_texts()] == ["_rest", "cat"]
