"""Methods and branches of one's own: how they become known, here and in other processes."""

import os
import subprocess
import sys
from multiprocessing import Pipe
from typing import Literal

import pytest
import torch

from s6mod import Learner, registry
from s6mod.branch import branches
from s6mod.errors import ConfigError
from s6mod.experiments.worker import _receive
from s6mod.methods import MethodConfig, methods
from s6mod.methods.er import ER, ERConfig
from s6mod.methods.pairs import ERCCLDC, ERCCLDCConfig
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
    command = [sys.executable, "-m", "s6mod.cli", "train", "--method", "mine", "--branch", "doubt", "--show-config"]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert "name: mine" in told
    assert "strength: 1.5" in told


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
