"""What an earlier version has written: a run that was begun, its end, and the record of it.

``kept`` was made by version 0.1.0 before the rooms were moved. A tiny ER + S6MOD on digits, saved after six steps.
"""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from s6mod import Learner
from s6mod.run_files import RunFiles
from s6mod.runs.run import Run
from s6mod.runs.store import scan

KEPT = Path(__file__).parent / "kept"


def digests(folder):
    """Of every tensor of a saved state, by name."""
    tensors = load_file(next(RunFiles(folder).checkpoint.glob("*.safetensors")))
    return {name: hashlib.sha256(t.contiguous().numpy().tobytes()).hexdigest()[:12] for name, t in tensors.items()}


@pytest.mark.filterwarnings("ignore:resuming where results may differ")
def test_a_run_begun_by_an_earlier_version_ends_with_the_same_bits(tmp_path):
    folder = shutil.copytree(KEPT / "begun", tmp_path / "begun")
    with Run.resume(folder) as run:
        for _ in run.steps():
            pass
        result, here = run.result, run.environment
    then = json.loads((KEPT / "record.json").read_text())
    assert result.keys() >= then.keys() - {"sha256"}
    assert result["hash"] == then["hash"]
    assert [len(row) for row in result["matrices"]["head"]] == [1, 2, 3, 4, 5]
    if all(here[part] == then["environment"][part] for part in ("torch", "cpu_capability", "threads")):
        assert result["matrices"] == then["matrices"]
        ends = json.loads((KEPT / "end.json").read_text())
        assert {name: digest for name, digest in digests(folder).items() if name in ends} == ends


def test_a_checkpoint_of_an_earlier_version_is_a_learner_that_predicts_and_goes_on():
    learner = Learner.load(KEPT / "begun")
    assert learner.steps == 6
    images = torch.zeros(2, *learner.image_shape, dtype=torch.uint8)
    assert learner.predict(images).shape == (2,)
    learner.learn(images, torch.tensor([0, 1]))
    assert learner.steps == 7


def test_a_record_of_an_earlier_version_is_found_under_its_name():
    store = scan([KEPT / "record.json"])
    assert not store.problems
    (run,) = store.finished
    assert (run.hash, run.cell, run.seed) == (run.result["hash"], "er+s6mod/digits/20", 0)
