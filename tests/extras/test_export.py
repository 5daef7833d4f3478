"""Exports in onnxruntime and in torch: the same answers as the learner, in every way to predict.

An export takes seconds. What differs between methods is the network, the preparation and the score tables: each stands
here once. ``benchmarks/export.py --grid`` goes through all methods with and without S6MOD.
"""

import copy
import hashlib
import io
import json
import zipfile

import numpy as np
import pytest
import torch

from learners import batch, run, small
from s6mod import Learner
from s6mod.errors import DataError, InputError
from s6mod.export import export, open_model
from states import assert_same_tree

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
pytestmark = pytest.mark.extras

PLUS = {"name": "s6mod", "variant": "plus"}
COVERING = {
    "head": ("er", None, {}),
    "nearest means, no classifier": ("scr", None, {}),
    "cosines among seen classes": ("pcr", None, {"predict_among": "seen"}),
    "all experts, normalised images": ("mose", None, {"predict_by": "moe", "statistics": "memory"}),
    "a second linear head": ("ocm", None, {"predict_by": "ensemble", "average": 0.9}),
    "ETF head": ("er", PLUS, {"statistics": "memory"}),
    "a pair with all there is": (
        "er-ccldc",
        PLUS,
        {"average": 0.9, "statistics": "memory", "predict_by": "ensemble", "predict_among": "seen"},
    ),
}


def close(got, expected):
    """Float32 on a CPU: 1e-4 of the largest score of an image, and equal labels."""
    barred = expected.isneginf()
    assert torch.equal(got.isneginf(), barred)
    largest = expected.masked_fill(barred, 0).abs().amax(1, keepdim=True)
    assert ((got - expected).masked_fill(barred, 0).abs() <= 1e-4 * largest).all()
    assert torch.equal(got.argmax(1), expected.argmax(1))


@pytest.mark.parametrize("name", COVERING)
def test_onnxruntime_answers_like_the_learner_for_any_number_of_images(name, tmp_path):
    method, branch, options = COVERING[name]
    learner = run(small(method, branch, **options), 0, 4)
    before = copy.deepcopy(learner).state_dict()
    done = export(learner, tmp_path / "model.onnx")
    assert_same_tree(learner.state_dict(), before)
    assert all(peer.training for peer in learner.peers)

    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for size in (1, 2, 7):
        images = batch(99, (0, 1), size)[0]
        labels, probabilities, scores = session.run(None, {"images": images.numpy()})
        close(torch.from_numpy(scores), learner.scores(images)[learner.primary])
        assert (labels == learner.predict(images.numpy())).all()
        np.testing.assert_allclose(probabilities, learner.predict_proba(images.numpy()), atol=1e-4)
    assert done.metadata.scores == learner.primary
    assert done.metadata.candidates == (learner.task.seen if options.get("predict_among") else list(range(6)))
