import re

import pytest

from s6mod import data
from s6mod.data import DataConfig
from s6mod.data.catalog import inventory, spell
from s6mod.errors import ConfigError, DataError


def test_digits_need_no_files(tmp_path):
    assert data.load("digits", tmp_path / "nowhere").name == "digits"


@pytest.mark.parametrize("name", [name for name in data.known if name != "digits"])
def test_other_data_sets_say_where_they_miss_their_files(tmp_path, name):
    with pytest.raises(DataError, match=f"expected {name} in {re.escape(str(tmp_path))}"):
        data.load(name, tmp_path)


def test_own_data_that_would_be_taken_for_the_built_in_digits_is_refused():
    with pytest.raises(ConfigError, match=r"expected own data of another name.*got ./digits; rename it"):
        spell("./digits")


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="got 'cifar-100'; did you mean 'cifar100'"):
        data.load("cifar-100")


def test_a_path_that_was_taken_for_a_name_is_told(tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"got 'photos'; for the one in this folder write \./photos"):
        data.load("photos")


def test_the_root_is_the_argument_else_the_environment_else_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("S6MOD_DATA", str(tmp_path / "env"))
    with pytest.raises(DataError, match="given"):
        data.load("cifar10", tmp_path / "given")
    with pytest.raises(DataError, match="env"):
        data.load("cifar10")
    monkeypatch.delenv("S6MOD_DATA")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert data.default_root() == tmp_path / "home" / ".cache" / "s6mod" / "data"


def test_the_configuration_refuses_what_is_no_name_and_unknown_keys():
    assert DataConfig.parse({}) == DataConfig(name="digits", root=None, size=None, test_fraction=0.2, split_seed=0)
    assert DataConfig.parse({"name": "cifar10", "root": "/data"}).root == "/data"
    with pytest.raises(ConfigError, match="a name of letters, digits"):
        DataConfig.parse({"name": "../photos"})
    with pytest.raises(ConfigError, match="did you mean 'root'"):
        DataConfig.parse({"rot": "/data"})


def test_a_folder_or_a_dead_link_is_not_listed_as_a_prepared_file(tmp_path):
    (tmp_path / "odd.safetensors").mkdir()
    (tmp_path / "dead.safetensors").symlink_to("nowhere")
    assert [entry.name for entry in inventory(tmp_path)] == list(data.known)


def test_a_prepared_file_that_is_not_there_is_not_looked_for_elsewhere(tmp_path, draw, monkeypatch):
    for name in "ab":
        for number in range(2):
            draw(tmp_path / name / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"a prepared file in .*nope\.safetensors, got none there; check the path"):
        spell("./nope.safetensors")


def test_a_prepared_file_whose_name_cannot_name_a_data_set_is_refused(tmp_path):
    (tmp_path / "my set.safetensors").touch()
    with pytest.raises(ConfigError, match=r"a name of letters, digits and .*, got .*my set\.safetensors; rename it"):
        spell(f"{tmp_path}/my set.safetensors")


def test_names_that_are_not_latin_stay_apart():
    names = {spell(f"./{name}")["name"] for name in ("猫", "фото", "фото-1", "猫-1", "photos")}
    assert len(names) == 5
    assert all(DataConfig(name=name).name == name for name in names)
    assert "photos" in names
