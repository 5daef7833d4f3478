import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml

from s6mod.config import merge
from s6mod.data import Dataset, load
from s6mod.data.streams import make_plan
from s6mod.errors import ConfigError
from s6mod.runs import cells
from s6mod.runs.compose import compose
from s6mod.tuning import outcome, study
from s6mod.tuning.config import TuneConfig, Tuning

SEARCH = {"branch.beta": "0.1|5", "method.optimizer.lr": "log:1e-4:1e-2"}


def tuning(elsewhere=None, out=Path("tuning"), **over):
    config = TuneConfig.parse({"cell": "er+s6mod/digits/200/alpha=2.0", "search": SEARCH} | over)
    return Tuning(config, out, None, elsewhere or {})


def photos(file, seed=0):
    """A few small images of four classes, which no other seed has."""
    images = np.random.default_rng(seed).integers(0, 256, (32, 8, 8, 3), dtype=np.uint8)
    np.savez(file, images=images, labels=np.arange(32) % 8)
    return file


def trained_by(file):
    """The configuration that ``s6mod train --config`` has."""
    return compose({}, file)


def test_by_default_no_reported_seed_and_no_late_task_is_looked_at():
    usual = tuning()
    assert min(usual.seeds) >= 100
    assert usual.config.tasks == 3
    usual.check()


def test_reported_seeds_are_refused_unless_asked_for():
    with pytest.raises(ConfigError, match="expected seeds that no result is reported on, got 9; take 100 and above"):
        tuning(seeds="9-11").check()
    tuning(seeds="9-11", reported_seeds=True).check()


def test_the_whole_stream_is_refused_unless_asked_for():
    with pytest.raises(ConfigError, match="than the stream's 5, got 5; lower --tasks, or give --whole-stream"):
        tuning(tasks=5).check()
    tuning(tasks=None).check()


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"branch.betta": "0.1|5"}, "did you mean"),
        ({"branch.num_patterns": "0.5|1.5"}, "num_patterns"),
        ({"method.optimizer.lr": "-1.0:1.0"}, "lr"),
    ],
)
def test_a_field_or_value_that_does_not_fit_is_refused_before_any_training(search, message):
    with pytest.raises(ConfigError, match=message):
        tuning(search=search).check()


@pytest.mark.parametrize("over", [{"set": {"branch": {"beta": 3.0}}}, {"cell": "er+s6mod/digits/200/beta=3.0"}])
def test_a_field_that_is_both_searched_and_fixed_is_refused(over):
    with pytest.raises(ConfigError, match=r"expected branch\.beta to be searched or fixed, got both"):
        tuning(**over).check()


@pytest.mark.parametrize("stream", [{}, {"kind": "blurry"}, {"kind": "task-free"}])
def test_a_trial_sees_exactly_the_beginning_of_its_stream(stream):
    digits = load("digits")
    asked = tuning(tasks=2, set={"stream": stream})
    whole = asked.run({"branch.beta": 5}, 100)
    short = asked.shorten(whole, digits.train_labels, digits.num_classes)
    full, part = (make_plan(digits.train_labels, 10, config.stream, 100) for config in (whole, short))
    assert part.task_classes == full.task_classes[:2]
    assert torch.equal(part.ids, full.ids[: len(part.ids)])
    assert torch.equal(part.batch_tasks, full.batch_tasks[full.batch_tasks < 2])
    unshortened = short.model_copy(update={"stream": whole.stream})
    assert unshortened == whole  # nothing else is changed


def test_the_preset_trains_what_was_tried(tmp_path):
    asked = tuning(set={"stream": {"samples_per_task": 40}})
    params = {"branch.beta": 5, "method.optimizer.lr": 0.003}
    file = tmp_path / "preset.yaml"
    file.write_text(yaml.safe_dump(asked.preset(params)))
    trained = trained_by(file)
    tried = asked.run(params, trained.seed)
    assert (trained.data.held_out, tried.data.held_out) == (0.0, 0.1)  # judged by images that the preset learns from
    same = replace(asked, config=asked.config.model_copy(update={"held_out": 0.0}))
    assert trained.hash == same.run(params, trained.seed).hash
    assert (trained.branch.alpha, trained.branch.beta) == (2.0, 5.0)


def test_a_study_is_named_by_what_is_searched_and_not_by_how_long():
    name = tuning().name
    assert tuning(trials=500).name == name
    assert tuning(cell="er+s6mod/alpha=2.0", data="digits", memory=200, seeds=[100, 101, 102]).name == name
    assert tuning(seeds="100").name != name
    assert tuning(search={"branch.beta": "0.1|6"}).name != name
    assert name.startswith("er+s6mod-digits-200-alpha=2.0-")


def test_a_study_begun_from_another_preset_is_another_study(monkeypatch):
    name, as_now = tuning().name, cells.preset
    monkeypatch.setattr(cells, "preset", lambda *of: merge(as_now(*of), {"branch": {"view": "fresh"}}))
    assert tuning().name != name


def test_a_seed_among_the_fields_is_refused_since_it_would_have_no_effect():
    with pytest.raises(ConfigError, match="give --seeds"):
        tuning(set={"seed": 5}).check()


@pytest.mark.parametrize(
    "over",
    [
        {"set": {"engine": {"device": "cuda"}}},
        {"cell": "er+s6mod/digits/200/engine.device=cuda"},
        {"search": {"engine.device": "cpu|cuda"}},
    ],
)
def test_so_is_a_device_in_whatever_way_it_comes(over):
    with pytest.raises(ConfigError, match=r"got engine\.device among the fields; give --device"):
        tuning(**over).check()


def test_the_cost_is_that_of_the_first_tasks_of_every_trial_and_seed():
    whole, part = (tuning(cell="er+s6mod/cifar100/2000", trials=4, tasks=tasks).costs() for tasks in (None, 3))
    assert len(part) == 4 * 3
    assert (whole[0].steps, part[0].steps, part[0].wants_gpu) == (5000, 1500, True)
    assert part[0].cpu_seconds == pytest.approx(0.3 * whole[0].cpu_seconds)


def test_without_optuna_the_install_command_is_named(monkeypatch):
    from s6mod.tuning.search import compose_tuning

    monkeypatch.setattr("importlib.util.find_spec", lambda library: None)
    with pytest.raises(ConfigError, match=r"run: pip install -e '\.\[hpo\]'"):
        compose_tuning(["er"], [], [], {})


# --- own data ---------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:read the original files")
def test_a_study_on_own_data_is_named_by_its_contents_too(tmp_path):
    def name(data, **over):
        return tuning(data=data, cell="er+s6mod", **over).on_present_data().name

    file = photos(tmp_path / "photos.npz")
    (tmp_path / "copy").mkdir()
    first = name(str(file))
    assert name(str(shutil.copy(file, tmp_path / "copy"))) == first == name(str(file), trials=500)
    assert first.startswith("er+s6mod-photos-1000-")
    photos(file, seed=1)
    assert name(str(file)) != first
    assert name("digits") == tuning(data="digits", cell="er+s6mod").name  # a known data set has one content


@pytest.mark.filterwarnings("ignore:read the original files")
def test_the_preset_finds_own_data_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = Dataset.from_path(photos(tmp_path / "photos.npz"), name="pets")
    Path("prepared").mkdir()
    data.save(Path("prepared/pets.safetensors"))
    here = {"data": {"root": "prepared"}}  # as --data-root has it
    asked = [tuning(cell="er+s6mod", data="./photos.npz", held_out=0.0)]
    asked += [
        tuning(here, cell=cell, data=data, held_out=0.0)
        for cell, data in (("er+s6mod", "pets"), ("er+s6mod/pets/20", None))
    ]
    (tmp_path / "elsewhere").mkdir()
    for number, each in enumerate(asked):
        file = tmp_path / f"{number}.yaml"
        file.write_text(yaml.safe_dump(each.preset({})))
        tried = each.run({}, 0)
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path / "elsewhere")
            trained = trained_by(file)
            assert trained.data.load().fingerprint == data.fingerprint
        assert trained.hash == tried.hash


# --- score tables -----------------------------------------------------------------------------------------------


class Trial:
    """What a worker needs of a trial, and what remains of it."""

    number, state, params = 0, SimpleNamespace(name="COMPLETE"), {"method.memory_batch": 4}
    duration = datetime_start = None

    def __init__(self):
        self.user_attrs, self.intermediate_values = {}, {}

    def report(self, value, step):
        self.intermediate_values[step] = value

    def set_user_attr(self, name, value):
        self.user_attrs[name] = value

    def should_prune(self):
        return False


@pytest.mark.parametrize(("method", "table"), [("mose", "ncm"), ("moe-mose", "moe")])
def test_trials_are_judged_and_pruned_by_the_score_table_of_their_cell(tmp_path, monkeypatch, method, table):
    monkeypatch.setitem(sys.modules, "optuna", SimpleNamespace(TrialPruned=KeyboardInterrupt))
    monkeypatch.setattr(study, "open_study", lambda tuning: None)
    monkeypatch.setattr(outcome, "_without_password", str)  # else by a library that comes with Optuna
    small = {"method": {"network": {"width": 4}}, "stream": {"samples_per_task": 60}, "engine": {"device": "cpu"}}
    search = {"method.memory_batch": [4, 8]}
    asked = tuning(
        out=tmp_path, cell=f"{method}/digits/50", search=search, set=small, tasks=2, seeds="100", held_out=0.0
    )
    trial = Trial()
    trial.value = study.Worker(asked, str)._judge(trial, trial.params, SimpleNamespace(number=None))

    [file] = asked.folder.glob("runs/*/result.json")
    curves = {name: [fmean(row) for row in rows] for name, rows in json.loads(file.read_text())["matrices"].items()}
    assert curves["moe"] != curves["ncm"]
    assert trial.value == pytest.approx(curves[table][-1])
    assert list(trial.intermediate_values.values()) == pytest.approx(curves[table])

    preset = outcome.write_outcome(asked, SimpleNamespace(get_trials=lambda deepcopy: [trial]))
    assert preset.parent.name.startswith(f"{method}-digits-50-")
    assert ("accuracy by the score table moe after" in preset.read_text()) == (table == "moe")
    assert trained_by(preset).method.name == "mose"  # whose training gives both
