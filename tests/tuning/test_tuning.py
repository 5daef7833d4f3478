from pathlib import Path

import pytest
import torch
import yaml

from s6mod.cli.train import _compose
from s6mod.data import load
from s6mod.data.streams import make_plan
from s6mod.errors import ConfigError
from s6mod.tuning.config import TuneConfig, Tuning

SEARCH = {"branch.beta": "0.1|5", "method.optimizer.lr": "log:1e-4:1e-2"}


def tuning(**over):
    config = TuneConfig.parse({"cell": "er+s6mod/digits/200/alpha=2.0", "search": SEARCH} | over)
    return Tuning(config, Path("tuning"), None, {})


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
    flags = dict.fromkeys(("method", "branch", "data", "memory", "seed"))
    trained = _compose(flags, None, None, None, file, [])
    tried = asked.run(params, trained.seed)
    assert trained.hash == tried.hash
    assert (trained.branch.alpha, trained.branch.beta) == (2.0, 5.0)


def test_a_study_is_named_by_what_is_searched_and_not_by_how_long():
    name = tuning().name
    assert tuning(trials=500).name == name
    assert tuning(cell="er+s6mod/alpha=2.0", data="digits", memory=200, seeds=[100, 101, 102]).name == name
    assert tuning(seeds="100").name != name
    assert tuning(search={"branch.beta": "0.1|6"}).name != name
    assert name.startswith("er+s6mod-digits-200-alpha=2.0-")


def test_a_seed_among_the_fields_is_refused_since_it_would_have_no_effect():
    with pytest.raises(ConfigError, match="give --seeds"):
        tuning(set={"seed": 5}).check()


def test_the_cost_is_that_of_the_first_tasks_of_every_trial_and_seed():
    whole, part = (tuning(cell="er+s6mod/cifar100/2000", trials=4, tasks=tasks).costs() for tasks in (None, 3))
    assert len(part) == 4 * 3
    assert (whole[0].steps, part[0].steps, part[0].wants_gpu) == (5000, 1500, True)
    assert part[0].cpu_seconds == pytest.approx(0.3 * whole[0].cpu_seconds)


def test_without_optuna_the_install_command_is_named(monkeypatch):
    from s6mod.tuning.study import require_optuna

    monkeypatch.setattr("importlib.util.find_spec", lambda library: None)
    with pytest.raises(ConfigError, match=r"run: pip install 's6mod\[hpo\]'"):
        require_optuna()
