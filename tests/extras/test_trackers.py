"""Each tracker against its real library: what is read back from it is what the run wrote, across a kill."""

import json
import math
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from records import numbers_by_step

pytestmark = pytest.mark.extras
SCRIPT = Path(__file__).parent / "tracked_run.py"


def run(folder, tracker, last=1000):
    """Take the run to its end or to a kill at ``last``; what it said on standard error."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB", "MLFLOW"))}
    command = [sys.executable, str(SCRIPT), str(folder), tracker, str(last)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert done.returncode == (0 if last == 1000 else -signal.SIGKILL), done.stderr
    return done.stderr


def results(folder):
    result = json.loads((folder / "result.json").read_text())
    return {
        f"result/{table}/{name}": value
        for table, metrics in result["metrics"].items()
        for name, value in metrics.items()
        if not isinstance(value, list)
    }


def assert_same(found, expected, tolerance=0.0):
    assert found.keys() == expected.keys()
    for step, values in expected.items():
        assert found[step].keys() == values.keys(), step
        for name, value in values.items():
            assert math.isclose(found[step][name], value, rel_tol=tolerance), (step, name)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain") / "r"
    run(folder, "none")
    return folder


@pytest.fixture(params=["tensorboard", "wandb", "mlflow"])
def tracked(request, tmp_path, plain):
    """A run killed at step 8, three steps and some records after its checkpoint, and gone on with."""
    folder = tmp_path / "runs" / "r"
    run(folder, request.param, last=8)
    assert "does not mirror" not in run(folder, request.param)
    assert numbers_by_step(folder) == numbers_by_step(plain)  # being watched changes nothing
    assert results(folder) == results(plain)
    return request.param, folder


def test_what_is_read_back_is_what_was_written(tracked):
    tracker, folder = tracked
    points, final, config, tolerance = {"tensorboard": tensorboard, "wandb": wandb, "mlflow": mlflow}[tracker](folder)
    assert_same(points, numbers_by_step(folder), tolerance)
    expected = results(folder)
    assert {name: final[name] for name in expected} == pytest.approx(expected, rel=tolerance)
    assert config == json.loads((folder / "config.json").read_text())["config"]["method"]["memory_batch"]


def tensorboard(folder):
    import yaml
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0}).Reload()
    points, final = {}, {}
    for name in events.Tags()["scalars"]:
        for event in events.Scalars(name):
            if name.startswith("result/"):
                final[name] = event.value
            else:
                assert name not in points.get(event.step, {})  # shown once
                points.setdefault(event.step, {})[name] = event.value
    text = events.Tensors("configuration/text_summary")[-1].tensor_proto.string_val[0].decode()
    return points, final, yaml.safe_load(text)["method"]["memory_batch"], 1e-6  # 32-bit floats


def wandb(folder):
    [file] = (folder / "wandb").glob("offline-run-*/*.wandb")
    points, final, config = {}, {}, {}
    for record in offline_records(file):
        if record.HasField("history"):
            values = {
                item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item
            }
            step = values["_step"]
            assert step not in points
            points[step] = {name: value for name, value in values.items() if not name.startswith("_")}
        elif record.HasField("summary"):
            items = record.summary.update
            final |= {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
        elif record.HasField("run"):
            config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            assert record.run.run_id == json.loads((folder / "trackers.json").read_text())["wandb"]["run_id"]
    return points, final, config["method"]["memory_batch"], 0.0


def offline_records(file):
    """W&B's offline file: after seven bytes, messages in the log format of LevelDB."""
    from wandb.proto.wandb_internal_pb2 import Record

    block, header = 32768, 7
    data, position, message = file.read_bytes(), 7, b""
    while position + header <= len(data):
        left = block - position % block
        if left < header:
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + header])
        message += data[position + header : position + header + length]
        position += header + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(message)
            message = b""


def mlflow(folder):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder.parent / 'mlflow.db'}")
    [experiment] = [found for found in client.search_experiments() if found.name == "s6mod"]
    [found] = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED"
    points, final = {}, {}
    for name in found.data.metrics:
        for point in client.get_metric_history(found.info.run_id, name):
            if name.startswith("result/"):
                final[name] = point.value
            else:
                assert name not in points.get(point.step, {})
                points.setdefault(point.step, {})[name] = point.value
    return points, final, int(found.data.params["method.memory_batch"]), 0.0


def test_a_server_that_is_not_there_costs_a_warning(tmp_path, plain):
    folder = tmp_path / "r"
    command = [sys.executable, str(SCRIPT), str(folder), "mlflow", "1000"]
    nowhere = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    done = subprocess.run(command, env={**os.environ, **nowhere}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("mlflow does not mirror er+s6mod/digits/50 seed 0") == 1
    assert numbers_by_step(folder) == numbers_by_step(plain)
    assert results(folder) == results(plain)
