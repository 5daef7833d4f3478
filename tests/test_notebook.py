"""Experiments from Python, as in a notebook."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure

import s6mod
from s6mod.errors import ConfigError
from s6mod.runs.execute import Interrupted, execute

SMALL = {
    "method": {"network": {"width": 2}, "memory_batch": 4},
    "stream": {"tasks": 2, "samples_per_task": 20},
    "memory": 12,
    "device": "cpu",
    "quiet": True,
}


CELLS = ("er", "er+confidence")
pytestmark = pytest.mark.filterwarnings("ignore:read the original files")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    labels = np.arange(80) % 4
    images = np.random.default_rng(0).integers(0, 100, (80, 8, 8, 3), dtype=np.uint8) + 50 * labels[:, None, None, None]
    np.savez(folder / "photos.npz", images=images.astype(np.uint8), labels=labels)
    return s6mod.run(*CELLS, seeds=2, data=folder / "photos.npz", out=folder / "runs", **SMALL), folder / "runs"


def test_one_call_runs_cells_over_seeds(made):
    experiment, out = made
    assert sorted((run.stored.cell, run.stored.seed) for run in experiment.runs) == [
        ("er+confidence/photos/12", 0), ("er+confidence/photos/12", 1), ("er/photos/12", 0), ("er/photos/12", 1),
    ]  # fmt: skip
    assert all(folder.parent == out for folder in experiment.folders)
    assert s6mod.Learner.load(experiment.folders[0]).steps == 4


def test_the_table_has_the_figures_of_the_results_and_the_paired_gain(made):
    experiment, out = made
    found = [json.loads(file.read_text()) for file in out.glob("*/result.json")]
    accuracy = {(each["cell"], each["seed"]): each["metrics"]["head"]["accuracy"] for each in found}
    base, ours = ([accuracy[f"{name}/photos/12", seed] for seed in (0, 1)] for name in ("er", "er+confidence"))
    first, second = experiment.table()
    assert (first["learner"], first["seeds"], first["over"], first["gain"]) == ("er", [0, 1], None, None)
    assert first["accuracy"] == pytest.approx(sum(base) / 2)
    assert second["over"] == "er"
    assert second["gain"] == pytest.approx(sum(ours) / 2 - sum(base) / 2)


def test_it_shows_itself_as_text_and_as_html(made):
    experiment, _ = made
    accuracy = f"{experiment.table()[0]['accuracy']:.2f}"
    for shown in (repr(experiment), experiment._repr_html_()):
        assert accuracy in shown
        assert "is ahead with" in shown
        assert "A single run is worth little" in shown
    assert experiment._repr_html_().startswith("<div")


@pytest.mark.parametrize(("kind", "panels"), [("tasks", 1), ("matrices", 2 + 1)])
def test_figures_come_back(made, kind, panels):
    figure = made[0].figure(kind)
    assert isinstance(figure, Figure)
    assert len(figure.axes) == panels
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_an_unknown_figure_is_refused(made):
    with pytest.raises(ConfigError, match="expected the figure tasks or matrices, got 'pie'"):
        made[0].figure("pie")


def test_the_report_is_written(made, tmp_path):
    assert "er+confidence" in made[0].report(tmp_path / "page.html").read_text()


def test_what_is_done_is_not_run_again_and_a_stopped_run_goes_on(made, tmp_path, monkeypatch):
    experiment, out = made
    copied = shutil.copytree(out, tmp_path / "runs")
    monkeypatch.setattr("s6mod.notebook.execute", lambda runs: list(runs) and pytest.fail("it was run again"))
    again = s6mod.run(*CELLS, seeds=[0, 1], data=out.parent / "photos.npz", out=copied, **SMALL)
    assert again.table() == experiment.table()
    [folder] = copied.glob("er-*seed0*")
    (folder / "result.json").unlink()
    monkeypatch.setattr("s6mod.notebook.execute", execute)
    assert s6mod.run("er", seeds=1, data=out.parent / "photos.npz", out=copied, **SMALL).table()[0]["seeds"] == [0]


def test_whoever_stops_it_is_told_how_it_goes_on(tmp_path, monkeypatch):
    def stopped(runs):
        raise Interrupted([], 1, 2)

    monkeypatch.setattr("s6mod.notebook.execute", stopped)
    with pytest.raises(Interrupted, match="stopped by SIGINT; 1 not begun; the same call goes on"):
        s6mod.run("er/digits", seeds=1, out=tmp_path, **SMALL)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda out: s6mod.run("err/digits", out=out), "expected a known method"),
        (lambda out: s6mod.run("er/digits", seeds=0, out=out), "expected at least one seed, got 0"),
        (lambda out: s6mod.run("er/digits", statistic="memory", out=out), "statistics"),
        (lambda out: s6mod.run("er/cifar100", device="cpu", out=out), "give yes=True to go on all the same"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_sentence(tmp_path, monkeypatch, call, sentence):
    monkeypatch.chdir(tmp_path)  # no results are here
    with pytest.raises(ConfigError, match=sentence) as refusal:
        call(tmp_path / "runs")
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "runs").exists()


def test_the_package_is_light_until_it_is_used():
    program = "import sys, s6mod; assert 'run' in s6mod.__all__; print('torch' in sys.modules, 'rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False False\n", done.stderr
