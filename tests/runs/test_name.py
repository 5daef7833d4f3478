import json
from pathlib import Path

from s6mod.runs.completion import complete, departures, engine_departures
from s6mod.runs.config import RunConfig
from s6mod.runs.name import LATER, cell, folder_name, run_hash

RESULTS = Path(__file__).parents[2] / "results"


def test_records_keep_their_names():
    files = [*RESULTS.glob("*.json"), *RESULTS.glob("engines/*.json")]
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


def test_a_field_that_is_added_names_a_run_only_at_another_value_than_its_default():
    plain = RunConfig.parse({"method": {"name": "er"}}).plain()
    assert {key: plain[key] for key in LATER} == LATER
    older = {key: value for key, value in plain.items() if key not in LATER}
    assert run_hash(older) == run_hash(plain) == run_hash(complete(older))
    others = {"average": 0.99, "predict_by": "ncm", "predict_among": "seen"}
    assert others.keys() == LATER.keys()
    hashes = {run_hash(plain | {key: value}) for key, value in others.items()}
    assert len(hashes | {run_hash(plain)}) == 4


def test_a_field_that_is_added_is_told_where_it_departs_from_the_usual_either_way():
    plain = RunConfig.parse({"method": {"name": "er"}}).plain()
    averaged = plain | {"average": 0.99}
    assert departures(averaged, plain) == ["average=0.99"]
    assert departures(plain, averaged) == ["average=null"]
    assert departures(averaged, averaged) == departures(plain, plain) == []
