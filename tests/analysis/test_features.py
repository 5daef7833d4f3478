import json

import pytest
import torch

from s6mod.analysis.features import Geometry, ncm_accuracy, spaces, study_features
from s6mod.analysis.opened import open_run
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
    assert accuracy == pytest.approx(run.result["metrics"]["ncm"]["accuracy"])
    assert (memory.branch is None) == (name == "er")


def test_opening_writes_nothing(runs):
    before = {path: path.stat().st_mtime_ns for path in runs["er"].rglob("*")}
    open_run(runs["er"], "cpu")
    assert {path: path.stat().st_mtime_ns for path in runs["er"].rglob("*")} == before


def test_branch_features_are_those_that_its_head_reads(runs):
    run = open_run(runs["er+s6mod"], "cpu")
    images = run.dataset.test_images[:20]
    branch = run.learner.peers[0].branch
    [outputs] = run.predictor().outputs(images)
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


def test_runs_that_share_no_samples_are_refused(runs, monkeypatch):
    opened = open_run(runs["er"], "cpu")
    opened.learner.memory.images.bitwise_not_()
    pair = iter([open_run(runs["er+s6mod"], "cpu"), opened])
    monkeypatch.setattr("s6mod.analysis.features.open_run", lambda *_: next(pair))
    with pytest.raises(ConfigError, match="share samples"):
        study_features([runs["er+s6mod"], runs["er"]])


def test_a_run_without_a_checkpoint_is_refused(runs, tmp_path):
    for name in ("config.json", "result.json"):
        (tmp_path / name).write_bytes((runs["er"] / name).read_bytes())
    with pytest.raises(CheckpointError, match="keep_checkpoint"):
        open_run(tmp_path, "cpu")


def test_runs_of_one_name_must_differ_in_their_seeds(runs):
    with pytest.raises(ConfigError, match="differ in their seeds"):
        study_features([runs["er"], runs["er"]], "cpu")
