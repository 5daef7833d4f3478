"""Methods and branches of one's own: how they become known, here and in other processes."""

import json
import os
import pickle
import subprocess
import sys
from multiprocessing import Pipe
from typing import Literal

import pytest
import torch

from s6mod import Learner, registry
from s6mod.branch import branches
from s6mod.errors import ConfigError
from s6mod.experiments.cluster import Pack
from s6mod.experiments.sweep import Job
from s6mod.experiments.worker import _receive
from s6mod.methods import MethodConfig, methods
from s6mod.methods.er import ER, ERConfig
from s6mod.methods.pairs import ERCCLDC, ERCCLDCConfig
from s6mod.runs.bench_values import bench_values
from s6mod.runs.cells import parse
from s6mod.runs.completion import complete
from s6mod.runs.config import RunConfig
from s6mod.runs.environment import describe, differences

MODULE = """
from typing import Literal

from pydantic import Field

from s6mod.branch import branches
from s6mod.branch.controls import ConfidencePenalty, ConfidencePenaltyConfig
from s6mod.methods import methods
from s6mod.methods.er import ER, ERConfig


class MineConfig(ERConfig):
    name: Literal["mine"] = "mine"
    strength: float = Field(1.5, description="of nothing")


@methods.register("mine")
class Mine(ER):
    config_class = MineConfig


class DoubtConfig(ConfidencePenaltyConfig):
    name: Literal["doubt"] = "doubt"


@branches.register("doubt")
class Doubt(ConfidencePenalty):
    config_class = DoubtConfig
"""


@pytest.fixture(autouse=True)
def _own_registries(monkeypatch):
    """What a test registers is forgotten after it, and plug-ins are looked for anew."""
    for each in (methods, branches):
        monkeypatch.setattr(each, "_parts", dict(each._parts))
    fresh = registry.Plugins()
    monkeypatch.setattr(registry, "plugins", fresh)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a package of one module that is named as a plug-in."""

    def installed(text, name="own_parts"):
        (tmp_path / f"{name}.py").write_text(text)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[s6mod]\n{name} = {name}\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return tmp_path

    return installed


class MineConfig(ERConfig):
    name: Literal["mine"] = "mine"


class MinePairConfig(ERCCLDCConfig):
    name: Literal["mine-ccldc"] = "mine-ccldc"


class MinePair(ERCCLDC):
    config_class = MinePairConfig


def mine(config=MineConfig, qualname="Mine"):
    """A method as a cell of a notebook makes it, each time anew."""
    return type("Mine", (ER,), {"config_class": config, "__qualname__": qualname})


# --- registering ----------------------------------------------------------------------------------------------


def test_a_class_takes_the_place_of_an_earlier_one_of_its_name_but_of_no_other():
    first, second = mine(), mine()
    methods.register("mine")(first)
    methods.register("mine")(second)
    assert methods["mine"] is second
    with pytest.raises(ConfigError, match="expected a new name for a method, got 'mine', which is taken"):
        methods.register("mine")(mine(qualname="Other"))
    with pytest.raises(ConfigError, match="got 'er', which is taken"):
        methods.register("er")(type("ER", (ER,), {}))


def test_a_method_without_a_configuration_or_with_that_of_another_is_told_what_it_lacks():
    wanted = r"expected a configuration class with the field name: Literal\['mine'\] = 'mine' for Mine"
    for config in (None, {"name": "mine"}, dict):
        with pytest.raises(ConfigError, match=rf"^{wanted}, got .*; name it in config_class$"):
            methods.register("mine")(mine(config))
    with pytest.raises(ConfigError, match=rf"^{wanted}, got 'er'; set it in ERConfig$"):
        methods.register("mine")(mine(ERConfig))
    with pytest.raises(ConfigError, match=rf"^{wanted}, got None; set it in MethodConfig$"):
        methods.register("mine")(mine(MethodConfig))
    assert "mine" not in methods


# --- plug-ins -------------------------------------------------------------------------------------------------


def test_a_plug_in_is_imported_when_a_name_is_not_known_without_it(install):
    install(MODULE)
    assert methods["er"] is ER
    assert "own_parts" not in sys.modules
    learner = Learner("mine", "doubt", num_classes=4)
    assert (learner.config.method.strength, learner.config.branch.name) == (1.5, "doubt")
    assert parse("mine+doubt/digits/200").learner == "mine+doubt"
    assert {"mine", "er"} <= set(methods)
    assert {"doubt", "s6mod"} <= set(branches)


def test_commands_and_other_processes_know_what_a_plug_in_registers(install):
    folder = install(MODULE)
    command = [sys.executable, "-m", "s6mod", "train", "--method", "mine", "--branch", "doubt", "--show-config"]
    path = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert "name: mine" in told
    assert "strength: 1.5" in told


def named(cell):
    """The commands that may name a cell's method and branch."""
    method, _, branch = cell.partition("+")
    train = ["train", "--method", method, *(["--branch", branch] if branch else []), "--show-config"]
    return train, ["sweep", cell, "--seeds", "0", "--plan"]


@pytest.mark.parametrize("cell", ["mine", "mine+doubt", "er+doubt"])
def test_a_branch_of_ones_own_is_found_as_a_method_is(install, call, tmp_path, monkeypatch, cell):
    install(MODULE)
    monkeypatch.chdir(tmp_path)
    for command in named(cell):
        code, out, err = call(*command)
        assert code == 0, err
        assert cell.split("+")[-1] in out
    method, _, branch = cell.partition("+")
    values = bench_values(method, branch or "none")
    assert values["method"]["name"] == method
    assert (values["branch"] or {}).get("alpha") == (1.0 if branch else None)  # with its defaults


@pytest.mark.parametrize("cell", ["mine", "er+doubt"])
def test_a_name_that_nobody_knows_is_one_sentence_that_says_how_to_make_it_known(call, cell):
    for command in named(cell):
        code, _, err = call(*command)
        assert (code, err.count("\n")) == (2, 1)
        assert "expected a known " in err
        assert "give its file to --import" in err


# --- files that a person names ----------------------------------------------------------------------------------


@pytest.fixture
def own_file(tmp_path, monkeypatch):
    """A file of parts in the present folder, which is not on the path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_parts.py").write_text("import beside_it\n" + MODULE)
    (tmp_path / "beside_it.py").write_text("")
    yield tmp_path / "my_parts.py"
    for name in ("my_parts", "beside_it"):
        sys.modules.pop(name, None)


def test_a_file_that_is_named_is_imported_once_and_its_parts_are_known(own_file, call):
    for _ in range(2):
        code, out, err = call("train", "--method=mine", "--branch=doubt", "--show-config", "--import", "my_parts.py")
        assert code == 0, err
        assert "strength: 1.5" in out
    assert registry.plugins.brought == (str(own_file),)
    assert describe(torch.device("cpu"))["own"]["method mine"] != "unknown"  # records tell which code made them


@pytest.mark.usefixtures("quick_start")
def test_worker_processes_know_what_a_named_file_registers(own_file, call):
    quick = ["--set=method.network.width=2", "--set=method.memory_batch=2", "--set=stream.limit=20", "--workers=1"]
    sweep = ["sweep", "mine+doubt", "--seeds=0", "--set=stream.tasks=2", "--device=cpu", *quick]
    code, _, err = call(*sweep, "--import", own_file)
    assert code == 0, err
    assert list(own_file.parent.glob("runs/mine+doubt-*/result.json"))


def test_what_travels_to_other_machines_brings_the_files_before_the_runs(own_file):
    registry.plugins.bring(str(own_file))
    job = Job("a job", RunConfig.parse({"method": "mine", "branch": "doubt"}), own_file.parent)
    sent = pickle.dumps([Pack((job,), ("s6mod",)), bench_values("mine", "doubt")])
    program = "import pickle, sys; pack, values = pickle.load(sys.stdin.buffer); print(pack.jobs[0].config.method.name)"
    told = subprocess.run([sys.executable, "-c", program], input=sent, capture_output=True, check=True).stdout
    assert told == b"mine\n"


def test_a_stored_run_imports_nothing_and_says_what_is_missing(own_file, call, write_run):
    registry.plugins.bring(str(own_file))
    folder = write_run(own_file.parent / "runs", "mine+doubt/digits/200")
    for each in (methods, branches):
        each._parts = {name: part for name, part in each._parts.items() if name not in ("mine", "doubt")}
    code, _, err = call("runs", own_file.parent / "runs")
    assert code == 0
    assert "expected a known method, got 'mine' in 1 run" in err
    assert "expected a known branch, got 'doubt' in 1 run" in err
    assert err.count("give its file to --import") == 2
    code, _, err = call("train", "--resume", folder)
    assert (code, err.count("\n")) == (2, 1)
    assert "give its file to --import" in err


def test_predictors_of_ones_own_method_take_its_file(own_file, call, write_run):
    registry.plugins.bring(str(own_file))
    runs = own_file.parent / "runs"
    result = write_run(runs, "mine+doubt/digits/200") / "result.json"
    result.write_text(json.dumps(json.loads(result.read_text()) | {"predictors": {"latest/running/head": [50.0]}}))
    known = {each: each._parts for each in (methods, branches)}
    for each, parts in known.items():
        each._parts = {name: part for name, part in parts.items() if name not in ("mine", "doubt")}
    code, _, err = call("predictors", runs)
    assert code == 0, err
    assert err.count("give its file to --import") == 2
    for each, parts in known.items():
        each._parts = parts
    code, _, err = call("predictors", runs, "--import", own_file)
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    ("word", "text", "hint"),
    [
        ("nowhere.py", None, "which is not there; check the path"),
        ("broken.py", "x = 1\n1 / 0\n", "ZeroDivisionError: division by zero in line 2; mend it"),
        ("wrong.py", "def\n", "SyntaxError"),
        ("json.py", "", "expected a file whose name no other module has"),
        ("my-own.py", "", "expected a file whose name no other module has"),
        ("a_module_that_nobody_has", None, "ModuleNotFoundError"),
    ],
)
def test_a_file_that_cannot_be_imported_is_one_sentence(tmp_path, monkeypatch, call, word, text, hint):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / word).write_text(text)
    code, _, err = call("train", "--import", word, "--show-config")
    assert (code, err.count("\n")) == (2, 1)
    assert hint in err
    assert registry.plugins.brought == ()


def test_a_plug_in_that_fails_is_named_and_leaves_the_others_alone(install, call):
    install("import a_module_that_nobody_has")
    code, _, err = call("train", "--method", "er", "--show-config")
    assert (code, err) == (0, "")
    for command in (("train", "--method", "mine"), ("sweep", "mine")):
        code, _, err = call(*command)
        assert code == 2
        assert "expected a known method" in err
        assert "the plug-in 'own_parts' (own_parts) failed with ModuleNotFoundError: No module named 'a_module" in err
        assert "Traceback" not in err
    with pytest.warns(UserWarning, match="the plug-in 'own_parts' .*; it is left out"):
        assert "er" in list(methods)


def test_a_plug_in_may_look_at_what_is_registered(install):
    install("from s6mod.methods import methods\nfound = list(methods)\n" + MODULE)
    assert "mine" in methods
    assert "er" in sys.modules["own_parts"].found


def test_a_worker_that_does_not_know_a_method_says_so():
    methods.register("mine")(mine())
    ours, theirs = Pipe()
    ours.send([(RunConfig.parse({"method": {"name": "mine"}}), None)])
    del methods._parts["mine"]
    assert _receive(theirs) is None
    event = ours.recv()
    assert event.kind == "refused"
    assert event.reason.startswith("method: expected a known method, got 'mine'; ")
    assert "plug-ins" in event.reason


# --- records --------------------------------------------------------------------------------------------------


def test_a_stored_configuration_is_completed_by_the_class_that_is_registered():
    methods.register("mine")(mine())
    methods.register("mine-ccldc")(MinePair)
    for name in ("er", "er-ccldc", "mine", "mine-ccldc"):
        assert complete({"method": {"name": name}})["method"] == methods[name].config_class().plain()
    assert complete({"method": {"name": "nobodys"}})["method"] == {"name": "nobodys"}


def test_the_environment_tells_the_code_of_parts_from_outside_and_resuming_with_other_code_is_noticed(install):
    def environment(text):
        (folder / "own_parts.py").write_text(text)
        return describe(torch.device("cpu"))

    folder = install(MODULE)
    assert "er" in methods
    assert "mine" in methods
    before, same, after = (environment(text) for text in (MODULE, MODULE, MODULE + "\n# another version\n"))
    assert {"method mine", "branch doubt"} <= before["own"].keys()
    assert "method er" not in before["own"]
    assert differences(before, same) == []
    assert [phrase.partition(" was ")[0] for phrase in differences(before, after)] == [
        "source of branch doubt",
        "source of method mine",
    ]
    assert differences({**before, "own": {}}, after) == []


def test_a_method_that_is_in_no_file_has_no_digest():
    methods.register("mine")(type("Mine", (ER,), {"config_class": MineConfig, "__module__": "a_notebook"}))
    assert describe(torch.device("cpu"))["own"]["method mine"] == "unknown"
