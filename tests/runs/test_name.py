import copy
import json
from pathlib import Path

import pytest

from s6mod.runs.completion import departures, engine_departures
from s6mod.runs.config import RunConfig
from s6mod.runs.name import LATER, cell, folder_name, run_hash

RESULTS = Path(__file__).parents[2] / "results"


def test_records_keep_their_names():
    files = [*RESULTS.glob("*seed*.json"), *RESULTS.glob("engines/*.json")]
    assert len(files) > 100
    for file in files:
        record = json.loads(file.read_text())
        assert run_hash(record["config"]) == record["hash"], file
        assert cell(record["config"]) == record["cell"], file
        name = folder_name(record["cell"], record["seed"], record["hash"])
        assert file.stem == name or file.stem.startswith(f"{name}-"), file  # a second one of the same run


def test_a_configuration_is_named_as_its_plain_values_are():
    config = RunConfig.parse({"method": {"name": "er"}, "branch": {"name": "s6mod"}, "memory_size": 500, "seed": 3})
    plain = config.plain()
    assert (config.hash, config.cell) == (run_hash(plain), cell(plain)) == (run_hash(plain), "er+s6mod/digits/500")
    assert config.folder_name == f"er+s6mod-digits-500-seed3-{config.hash}"


def test_what_departs_from_the_usual_engine_is_what_can_change_a_result():
    usual = RunConfig.parse({"method": {"name": "er"}}).plain()
    engine = {"device": "cuda:1", "capture": "off", "eval_batch": 7, "precision": "float32"}
    plain = usual | {"engine": usual["engine"] | engine}
    assert engine_departures(plain, usual) == ['engine.precision="float32"']


@pytest.mark.parametrize(("field", "default"), LATER.items())
def test_a_field_that_was_added_is_no_part_of_the_name_at_its_default(field, default):
    plain = RunConfig.parse({"method": {"name": "er"}, "branch": {"name": "s6mod"}}).plain()
    *path, key = field.split(".")
    assert part(plain, path)[key] == default
    older, changed = copy.deepcopy(plain), copy.deepcopy(plain)
    del part(older, path)[key]
    part(changed, path)[key] = "another"
    assert run_hash(older) == run_hash(plain) != run_hash(changed)


def part(tree, path):
    for key in path:
        tree = tree[key]
    return tree


def test_a_run_without_kernels_is_another_run_and_says_so():
    usual, off = (
        RunConfig.parse({"method": {"name": "er"}, "engine": {"kernels": kernels}}) for kernels in ("auto", "off")
    )
    assert usual.hash == RunConfig.parse({"method": {"name": "er"}}).hash != off.hash
    assert engine_departures(off.plain(), usual.plain()) == ['engine.kernels="off"']
    assert engine_departures(usual.plain(), usual.plain()) == []


def test_a_field_that_is_added_is_told_where_it_departs_from_the_usual_either_way():
    plain = RunConfig.parse({"method": {"name": "er"}}).plain()
    averaged = plain | {"average": 0.99}
    assert departures(averaged, plain) == ["average=0.99"]
    assert departures(plain, averaged) == ["average=null"]
    assert departures(averaged, averaged) == departures(plain, plain) == []
