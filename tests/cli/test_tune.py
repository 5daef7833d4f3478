"""The way from the words of ``s6mod tune`` to its study, without Optuna and without training."""

from types import SimpleNamespace

import numpy as np
import pytest

from s6mod.data import Dataset

pytestmark = pytest.mark.filterwarnings("ignore:read the original files")


def photos(file, seed=0):
    images = np.random.default_rng(seed).integers(0, 256, (32, 8, 8, 3), dtype=np.uint8)
    np.savez(file, images=images, labels=np.arange(32) % 4)
    return file


@pytest.fixture
def tune(tmp_path, monkeypatch, call):
    """Call the command as far as its workers; exit code, what it says, and the tuning that they are given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("s6mod.tuning.search.require_installed", lambda *_: None)
    best = SimpleNamespace(best_trial=SimpleNamespace(number=0), best_value=1.0)
    monkeypatch.setattr("s6mod.tuning.search.open_study", lambda tuning: best)
    monkeypatch.setattr("s6mod.tuning.search.write_outcome", lambda tuning, study: tuning.folder / "preset.yaml")
    given = []
    monkeypatch.setattr("s6mod.tuning.search.launch", lambda tuning, *how: given.append(tuning))

    def run(*words):
        given.clear()
        code, out, err = call("tune", *words, "--search", "method.memory_batch=4|8", "--device", "cpu")
        return code, out + err, given[0] if given else None

    return run


def test_the_same_words_on_changed_data_are_another_study(tmp_path, tune):
    names = []
    for seed in (0, 0, 1):
        photos(tmp_path / "photos.npz", seed)
        code, said, tuning = tune("er", "--data", "./photos.npz")
        assert code == 0, said
        names.append(tuning.name)
    assert names[0] == names[1] != names[2]


@pytest.mark.parametrize("words", [["er", "--data", "pets"], ["er/pets"]])
def test_data_prepared_in_a_folder_is_known_there(tmp_path, tune, words):
    data = Dataset.from_path(photos(tmp_path / "photos.npz"), name="pets")
    data.save(tmp_path / "pets.safetensors")
    code, said, tuning = tune(*words, "--data-root", ".")
    assert code == 0, said
    assert tuning.fingerprint == data.fingerprint


def test_a_branch_on_a_method_that_cannot_carry_it_starts_nothing(tune):
    code, said, tuning = tune("scr+s6mod")
    assert (code, tuning) == (2, None)
    assert "expected no branch on method 'scr'" in said


def test_a_device_among_the_fields_starts_nothing(tune):
    code, said, tuning = tune("er", "--set", "engine.device=cuda")
    assert (code, tuning) == (2, None)
    assert "give --device" in said


@pytest.mark.parametrize("words", [["--set", "stream.limit=100"], ["--tasks", "4", "--set", "stream.limit=900"]])
def test_more_tasks_than_the_stream_comes_to_are_refused_before_any_trial(tune, words):
    code, said, tuning = tune("er/digits/200", *words)
    assert (code, tuning, said.count("\n")) == (2, None, 1)
    assert "expected fewer tasks to tune on than the stream's" in said
    assert "lower --tasks" in said


def test_a_study_without_a_complete_trial_says_why_the_first_failed(tune, monkeypatch):
    trials = [SimpleNamespace(user_attrs=attributes) for attributes in ({}, {"failure": "expected x, got y; do z"})]
    study = SimpleNamespace(get_trials=lambda deepcopy: trials)
    monkeypatch.setattr("s6mod.tuning.search.open_study", lambda tuning: study)
    monkeypatch.setattr("s6mod.tuning.search.write_outcome", lambda tuning, study: None)
    code, said, _ = tune("er/digits/200")
    assert code == 2
    assert "expected a complete trial, got none, the first as: expected x, got y; do z; see all in" in said
