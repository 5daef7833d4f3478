"""Retired keys: read at the value that they had, refused at any other, and still counted in a run's hash."""

import copy
import json
import shutil
import typing
from pathlib import Path

import pytest

from s6mod import Learner
from s6mod.augment import KorniaAugmentConfig
from s6mod.branch import branches
from s6mod.config import Config, field_names, retired_in
from s6mod.engine.checkpoint import Snapshot, read_state
from s6mod.errors import ConfigError
from s6mod.methods import methods
from s6mod.retired import RETIRED
from s6mod.runs.completion import complete
from s6mod.runs.config import RunConfig, read_run_config
from s6mod.runs.name import run_hash
from s6mod.runs.store import scan

KEPT = Path(__file__).parent / "runs" / "kept"


def leaves(tree, path=()):
    for key, value in tree.items():
        yield from leaves(value, (*path, key)) if isinstance(value, dict) else [((*path, key), value)]


def put(tree, path, value):
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


KINDS = {
    name: kind.config_class for part in (methods, branches) for name, kind in part.registered(outside=False).items()
}
KEYS = [
    pytest.param(name, path, value, id=f"{name}:{'.'.join(path)}")
    for name, kind in KINDS.items()
    for path, value in leaves(retired_in(kind))
]


def test_every_class_of_the_table_is_one_that_a_method_or_branch_has():
    def classes(kind):
        yield from (base.__name__ for base in kind.__mro__)
        for field in kind.model_fields.values():
            for part in (field.annotation, *typing.get_args(field.annotation)):  # it may be given by a word as well
                if isinstance(part, type) and issubclass(part, Config):
                    yield from classes(part)

    assert RETIRED.keys() <= {name for kind in KINDS.values() for name in classes(kind)}
    assert {key for keys in RETIRED.values() for key in keys} == {path[-1] for _, path, _ in (p.values for p in KEYS)}


@pytest.mark.parametrize(("name", "path", "value"), KEYS)
def test_a_retired_key_is_no_field_is_dropped_at_its_value_and_refused_at_any_other(name, path, value):
    kind, given = KINDS[name], {"name": name}
    assert ".".join(path) not in set(field_names(kind))
    put(given, path, value)
    assert kind.parse(given) == kind.parse({"name": name})
    put(given, path, "another")
    with pytest.raises(ConfigError) as refusal:
        kind.parse(given)
    key = ".".join(path)
    assert str(refusal.value) == (
        f"expected no {key!r}, which was retired, got 'another'; leave it out, its value is always {value!r}"
    )


def test_numbers_are_compared_as_numbers_and_truth_is_none():
    crop = {"name": "onpro", "augment": {"attempts": 10.0, "crop": True, "ratio": (3 / 4, 4 / 3)}}
    methods.configure(crop)
    crop["augment"]["crop"] = 1
    with pytest.raises(ConfigError, match=r"^expected no 'augment.crop', which was retired, got 1; "):
        methods.configure(crop)


def test_a_class_of_ones_own_may_bring_a_key_back():
    class Colourful(KorniaAugmentConfig):
        hue: float = 0.1

    assert Colourful.parse({"hue": 0.3, "contrast": 0.4}).hue == 0.3
    with pytest.raises(ConfigError, match="expected no 'contrast', which was retired"):
        Colourful.parse({"contrast": 0.3})


def test_who_sets_a_retired_key_of_a_run_is_told_where():
    with pytest.raises(ConfigError) as refusal:
        RunConfig.parse({"method": {"name": "er", "augment": {"hue": 0.3}}})
    assert str(refusal.value) == (
        "method: expected no 'augment.hue', which was retired, got 0.3; leave it out, its value is always 0.1"
    )


# --- what is stored -------------------------------------------------------------------------------------------


def test_a_run_is_named_as_before_its_keys_were_retired():
    stored = json.loads((KEPT / "record.json").read_text())
    assert stored["config"]["branch"]["conv_kernel"] == 3
    assert RunConfig.parse(stored["config"]).hash == run_hash(stored["config"]) == stored["hash"]


@pytest.mark.parametrize("name", KINDS)
def test_old_and_new_values_of_a_run_have_one_hash_and_complete_to_the_same(name):
    part = "method" if name in methods else "branch"
    new = RunConfig.parse({"method": {"name": "er"}, part: {"name": name}}).plain()
    old = copy.deepcopy(new)
    for path, value in leaves(retired_in(KINDS[name])):
        put(old[part], path, value)
    assert (old == new) == (not retired_in(KINDS[name]))
    assert run_hash(old) == run_hash(new)
    assert complete(old) == complete(new) == new


def test_a_stored_run_with_another_value_is_refused(tmp_path):
    folder = shutil.copytree(KEPT / "begun", tmp_path / "begun")
    content = json.loads((folder / "config.json").read_text())
    content["config"]["branch"]["conv_kernel"] = 5
    content["hash"] = run_hash(content["config"])  # as a version that had the key would have begun it
    (folder / "config.json").write_text(json.dumps(content))
    with pytest.raises(
        ConfigError, match=r"branch: expected no 'conv_kernel'.* got 5; .* always 3 \(in .*config.json\)"
    ):
        read_run_config(folder)


def test_a_stored_learner_is_read_at_the_value_and_refused_at_another(tmp_path):
    state, header = read_state(KEPT / "begun" / "checkpoint")
    assert header["config"]["branch"]["conv_kernel"] == 3
    Snapshot.of(state, header).write(tmp_path / "as it was")
    assert Learner.load(tmp_path / "as it was").steps == 6
    header["config"]["branch"]["conv_kernel"] = 5
    Snapshot.of(state, header).write(tmp_path / "other")
    with pytest.raises(ConfigError, match=r"^branch: expected no 'conv_kernel', which was retired, got 5; "):
        Learner.load(tmp_path / "other")


def test_a_scan_lists_a_record_with_another_value_as_a_problem(tmp_path, write_run):
    folder = write_run(tmp_path, "er/digits")
    file = folder / "result.json"
    content = json.loads(file.read_text())
    content["config"]["method"]["augment"]["hue"] = 0.3
    file.write_text(json.dumps(content, indent=1))
    store = scan([tmp_path])
    assert store.runs == []
    assert store.problems == [
        f"expected no 'augment.hue', which was retired, got 0.3; leave it out, its value is always 0.1 (in {folder})"
    ]
