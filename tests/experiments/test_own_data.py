"""Sweeps over a person's own data, and what tells two data sets of one name apart."""

import json

import numpy as np
import pytest

from s6mod.data import Dataset
from s6mod.errors import ConfigError
from s6mod.experiments.sweep import SweepConfig, make_sweep
from s6mod.paper.tables import Results, filled
from s6mod.runs.cells import parse, parse_all
from s6mod.runs.config import RunConfig
from s6mod.runs.store import scan

pytestmark = pytest.mark.filterwarnings("ignore:read the original files")
QUICK = [
    "--set=method.network.width=2", "--set=method.memory_batch=4", "--set=stream.tasks=2", "--device=cpu",
    "--workers=2",
]  # fmt: skip


def photos(file, seed=0):
    """A few small images of four classes, which no other seed has."""
    file.parent.mkdir(exist_ok=True)
    images = np.random.default_rng(seed).integers(0, 256, (32, 8, 8, 3), dtype=np.uint8)
    np.savez(file, images=images, labels=np.arange(32) % 4)
    return file


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("S6MOD_DATA", str(tmp_path / "prepared"))


# --- names ------------------------------------------------------------------------------------------------------


def test_own_data_has_the_name_of_its_file_and_cells_may_name_it_too(tmp_path):
    cells = list(parse_all(["er+s6mod,er/photos/20/method.network.width=2,er/digits"], "mine/photos.npz"))
    assert [cell.name for cell in cells] == [
        "er+s6mod/photos/1000", "er/photos/20/method.network.width=2", "er/digits/200",
    ]  # fmt: skip
    data = [RunConfig.parse(cell.values()).data for cell in cells]
    assert [each.root for each in data] == [str(tmp_path / "mine/photos.npz")] * 2 + [None]
    assert cells[0].base.values()["data"] == cells[0].values()["data"]


def test_what_was_prepared_under_a_name_is_known_by_it(tmp_path):
    for place in ("prepared", "other"):
        (tmp_path / place).mkdir()
        name = f"{place}-photos"
        Dataset.from_path(photos(tmp_path / "photos.npz"), name=name).save(tmp_path / place / f"{name}.safetensors")
    assert parse("er/prepared-photos/20").name == "er/prepared-photos/20"
    assert parse("er", "other-photos", 20, str(tmp_path / "other")).name == "er/other-photos/20"
    with pytest.raises(ConfigError, match="did you mean 'prepared-photos'"):
        parse("er/prepared-photo")
    config = SweepConfig(cells=["er"], data="other-photos", memory=20, seeds="0")
    [job] = make_sweep(config, [], {"data": {"root": str(tmp_path / "other")}}, tmp_path, scan([])).jobs
    assert job.config.data.load().name == "other-photos"


@pytest.mark.parametrize("words", [["er/photos/20"], ["er", "--data", "photos"]])
def test_a_bare_name_for_a_folder_that_is_here_says_how_to_write_it(tmp_path, call, words):
    (tmp_path / "photos").mkdir()
    code, _, err = call("sweep", *words)
    assert (code, err.count("\n")) == (2, 1)
    assert "--data ./photos" in err


# --- a sweep ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_start")
def test_a_sweep_over_own_data_runs_goes_on_and_has_its_rows(tmp_path, call):
    photos(tmp_path / "photos.npz")
    sweep = ["sweep", "er,er+confidence,er+s6mod", "--data", "photos.npz", "--memory", 20, "--seeds", "0", *QUICK]
    code, out, err = call(*sweep)
    assert code == 0, err
    assert "photos, M = 20" in out
    results = {file: file.read_bytes() for file in tmp_path.glob("runs/*/result.json")}
    assert sorted(json.loads(content)["cell"] for content in results.values()) == [
        "er+confidence/photos/20", "er+s6mod/photos/20", "er/photos/20",
    ]  # fmt: skip

    lost = next(iter(results))
    lost.unlink()
    code, out, err = call(*sweep)
    assert (code, "1/1 done" in out) == (0, True), err
    assert lost.exists()
    assert all(file.read_bytes() == content for file, content in results.items() if file != lost)
    _, out, _ = call(*sweep, "--seeds", "0-1", "--plan")
    assert "done: 3 results from 3 trainings" in out
    assert out.count("unknown") == 3  # what a step on it costs

    rows = json.loads(call("table", "all", "--format", "json")[1])
    gains = {row["learner"]: row["gain_mean"] for row in rows if row["section"].endswith("accuracy")}
    assert gains.keys() == {"er", "er+confidence", "er+s6mod"}
    assert gains["er+s6mod"] is not None
    assert all(row["paper"] is None and row["mean"] is not None for row in rows)


def test_a_plan_says_which_runs_its_total_leaves_out(call):
    _, out, _ = call("sweep", "er/digits,er/photos", "--data", "./photos", "--seeds", "0-2", "--plan")
    assert "evaluation and 3 runs of unknown cost not counted" in out


@pytest.mark.parametrize(
    ("data", "hint"), [("photos.npz", "at most 4 tasks"), ("nowhere.npz", "got nothing there"), ("./x.zip", "x.zip")]
)
def test_data_that_cannot_be_swept_is_one_sentence_and_starts_nothing(tmp_path, call, data, hint):
    photos(tmp_path / "photos.npz")
    code, _, err = call("sweep", "er", "--data", data, "--device", "cpu", "--set=stream.tasks=5")
    assert code == 2
    assert hint in err.splitlines()[-1]
    assert not (tmp_path / "runs").exists()


# --- two data sets of one name ----------------------------------------------------------------------------------


def test_a_result_on_other_data_of_the_same_name_is_not_taken_for_one_on_this(tmp_path, write_run, call):
    for seed in (0, 1):
        photos(tmp_path / f"{seed}" / "photos.npz", seed)
    first, second = (Dataset.from_path(tmp_path / f"{seed}" / "photos.npz").fingerprint for seed in (0, 1))
    assert first != second
    write_run(tmp_path / "old", "er/photos/20", own="0/photos.npz", fingerprint=first)

    def plan(data, *options):
        return call("sweep", "er/photos/20", "--data", data, "--seeds", "0", "--plan", *options)

    assert "done: 1 result " in plan("0/photos.npz", "--store", "old")[1]
    assert "done: 0 results " in plan("1/photos.npz", "--store", "old")[1]
    write_run(tmp_path / "new", "er/photos/20", own="1/photos.npz", fingerprint=second)
    assert "done: 1 result " in plan("1/photos.npz", "--store", "old", "--store", "new")[1]


@pytest.mark.parametrize("accuracy", [30.0, None])
def test_a_folder_that_holds_the_run_on_other_data_is_refused_at_the_door(tmp_path, write_run, call, accuracy):
    photos(tmp_path / "photos.npz")
    config = SweepConfig(cells=["er/photos/20"], data="photos.npz", seeds="0")
    [job] = make_sweep(config, [], {}, tmp_path / "runs", scan([])).jobs
    folder = write_run(tmp_path / "runs", "er/photos/20", accuracy=accuracy, own="photos.npz", fingerprint="0" * 12)
    folder.rename(job.folder)
    code, _, err = call("sweep", "er/photos/20", "--data", "photos.npz", "--seeds", "0")
    assert code == 2
    assert "got others; choose another --out" in err.splitlines()[-1]


def test_data_of_one_name_and_several_contents_is_called_apart(tmp_path, write_run):
    for place, seeds in (("a", (0, 1)), ("b", (1, 2))):
        for seed in seeds:
            for cell in ("er/photos/20", "er+s6mod/photos/20"):
                write_run(tmp_path / place, cell, seed=seed, own="./photos", fingerprint=place * 12)
    write_run(tmp_path / "b", "er/photos/20/data.size=16", own="./photos", fingerprint="c" * 12)
    write_run(tmp_path / "b", "er/digits/20", seed=3, fingerprint="d" * 12)
    write_run(tmp_path / "b", "er/digits/20", seed=4, fingerprint="e" * 12)
    found = scan([tmp_path / "a", tmp_path / "b"])
    assert found.repeated == 0
    assert {run.cell for run in found.runs} == {
        "er/photos-aaaaaa/20", "er+s6mod/photos-aaaaaa/20", "er/photos-bbbbbb/20", "er+s6mod/photos-bbbbbb/20",
        "er/photos/20",  # read otherwise, as its setting says
        "er/digits/20",
    }  # fmt: skip
    assert len({run.hash for run in found.runs if run.seed == 1}) == 2  # of er and of er+s6mod, as anywhere
    rows = {(row.cell, row.seeds): row for row in filled("all", Results(found.finished)).rows}
    assert {key for key in rows if "s6mod" in key[0]} == {
        ("er+s6mod/photos-aaaaaa/20", (0, 1)), ("er+s6mod/photos-bbbbbb/20", (1, 2)),
    }  # fmt: skip
    assert rows["er+s6mod/photos-bbbbbb/20", (1, 2)].gain.n == 2
    alone = scan([tmp_path / "a"])
    assert {run.cell for run in alone.runs} == {"er/photos/20", "er+s6mod/photos/20"}
