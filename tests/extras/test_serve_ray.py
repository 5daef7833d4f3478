"""The example under Ray Serve: one writer, two readers."""

import importlib.util
import json
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

from s6mod.serve.settings import Rules
from services import batch

ray = pytest.importorskip("ray")
serve = pytest.importorskip("ray.serve", exc_type=ImportError)
pytestmark = pytest.mark.extras

EXAMPLE = Path(__file__).parents[2] / "examples" / "serve_ray.py"
PORT = 8731


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("serve_ray", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    ray.init(num_cpus=4, include_dashboard=False, configure_logging=False)
    yield module
    serve.shutdown()
    ray.shutdown()


def test_one_writer_teaches_two_readers(example, tmp_path):
    small = {"method": {"name": "er", "network": {"width": 2}}, "memory_size": 12}
    example.start(tmp_path / "service", 2, Rules(checkpoint_seconds=0.2), PORT, size=8, **small)
    client = httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=60)
    images, labels = batch(1)
    content = {"images": images.tolist(), "labels": labels, "id": "one"}
    first = client.post("/writer/learn", json=content)
    assert (first.status_code, first.json()["id"]) == (200, "one")
    assert client.post("/writer/learn", json=content).json() == first.json()
    end, behind = time.monotonic() + 60, 2
    while behind and time.monotonic() < end:  # each request may go to another of them
        told = [client.get("/status").json() for _ in range(8)]
        behind = sum(each["batches"] == 0 for each in told)
        time.sleep(0.2)
    assert {each["role"] for each in told} == {"reader"}
    assert client.get("/writer/status").json()["role"] == "writer"
    [found] = client.post("/predict", json={"images": np.asarray(images[:1]).tolist()}).json()["predictions"]
    assert found["labels"][0]["label"] in labels
    refused = client.post("/learn", json=content)
    assert (refused.status_code, json.loads(refused.content)["error"][:8]) == (403, "expected")
