import json
import re
import shutil
from base64 import b64decode
from io import BytesIO

import pytest
from PIL import Image

from s6mod.report.page import page
from s6mod.report.source import read_runs
from s6mod.runs.config import RunConfig
from s6mod.runs.execute import execute
from s6mod.runs.run import Run

QUICK = {
    "method": {"name": "er", "network": {"width": 2}, "memory_batch": 4},
    "memory_size": 12,
    "stream": {"tasks": 2, "samples_per_task": 20},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    execute([lambda: Run.begin(RunConfig.parse(QUICK), folder)])
    return folder


@pytest.fixture
def run(finished, tmp_path):
    """A copy of its own for each test."""
    return shutil.copytree(finished, tmp_path / "run")


def pictures(folder):
    found = re.findall(
        r'data-name="(samples-[a-z]+)-0".*?href="data:image/png;base64,([^"]+)"', page(read_runs([folder]))
    )
    return {name: Image.open(BytesIO(b64decode(data))) for name, data in found}


def test_a_page_shows_images_of_each_task_and_of_the_memory(run):
    found = pictures(run)
    assert found.keys() == {"samples-stream", "samples-memory"}
    assert all(image.size[0] > image.size[1] > 2 * 16 for image in found.values())
    text = page(read_runs([run]))
    [alt] = re.findall(r'<desc id="samples-memory-0-d">([^<]*)', text)
    assert re.fullmatch(r"Task 1, (\d+) images: [\d, ]+\. Task 2, (\d+) images: [\d, ]+\.", alt)
    assert sum(int(count) for count in re.findall(r"(\d+) images", alt)) == 12
    assert "whoever gets this page sees them" in text


def test_without_a_checkpoint_the_memory_is_not_shown(run):
    shutil.rmtree(run / "checkpoint")
    assert pictures(run).keys() == {"samples-stream"}


def test_images_of_other_contents_than_the_run_s_are_never_shown(run):
    """A run that is sent to somebody names a place on their disk: what lies there may be anything."""
    content = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(content | {"data": "0" * 12}))
    assert pictures(run).keys() == {"samples-memory"}


@pytest.mark.parametrize("damage", ["{", "[]", '{"tensors": "x"}'])
def test_a_page_is_written_where_neither_data_nor_checkpoint_can_be_read(run, damage):
    (run / "checkpoint" / "state.json").write_text(damage)
    (run / "stream.safetensors").write_text(damage)
    assert pictures(run) == {}
