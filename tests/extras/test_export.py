"""Exports in onnxruntime and in torch: the same answers as the learner, in every way to predict.

An export takes seconds. What differs between methods is the network, the preparation and the score tables: each stands
here once, and every method once. ``benchmarks/export.py --grid`` goes through all methods with and without S6MOD.
"""

import copy
import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from states import assert_same_tree

from learners import batch, run, small
from s6mod.engine.evaluate import Predictor
from s6mod.errors import DataError, InputError
from s6mod.export import torch_file
from s6mod.methods import methods
from s6mod.runs.model import open_model

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
pytestmark = pytest.mark.extras

PLUS = {"name": "s6mod", "variant": "plus"}
COVERING = {
    "head, calibrated": ("er", None, {"test_then_train": True}),
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
    side = 16 if name == "ETF head" else 8  # whose map has four positions to scan
    learner = run(small(method, branch, **options), 0, 4, side)
    if learner.config.tests:
        learner._tally.temperature.losses[44] = -1  # of the sharpness 2
        assert learner.temperature == 0.5
    before = copy.deepcopy(learner).state_dict()
    done = learner.export(tmp_path / "model.onnx")
    assert_same_tree(learner.state_dict(), before)
    assert all(peer.training for peer in learner.peers)

    scatters = [node for node in onnx.load(done.path).graph.node if node.op_type.startswith("Scatter")]
    # A gate has one, over its few patterns. A step of a scan that writes into a whole tensor would copy all of it.
    assert len(scatters) <= sum(peer.branch is not None for peer in learner.peers)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for size in (1, 2, 7):
        images = batch(99, (0, 1), size, side)[0]
        labels, probabilities, scores = session.run(None, {"images": images.numpy()})
        close(torch.from_numpy(scores), learner.scores(images)[learner.primary])
        assert (labels == learner.predict(images.numpy())).all()
        np.testing.assert_allclose(probabilities, learner.predict_proba(images.numpy()), atol=1e-4)
    assert done.metadata.scores == learner.primary
    assert done.metadata.candidates == (learner.task.seen if options.get("predict_among") else list(range(6)))


@pytest.mark.parametrize("name", sorted(methods.registered(outside=False)))
def test_onnxruntime_answers_like_every_method_with_s6mod_where_it_takes_one(name, tmp_path):
    learner = run(small(name, {"name": "s6mod"} if methods[name].has_logits else None, average=0.9), 0, 4)
    learner.export(tmp_path / "model.onnx")
    session, images = onnxruntime.InferenceSession(tmp_path / "model.onnx"), batch(99, (0, 1), 3)[0]
    close(torch.from_numpy(session.run(None, {"images": images.numpy()})[2]), learner.scores(images)[learner.primary])


@pytest.mark.parametrize("name", ["all experts, normalised images", "a pair with all there is"])
def test_torch_answers_like_the_learner_and_the_file_holds_no_image_of_the_memory(name, tmp_path):
    method, branch, options = COVERING[name]
    learner = run(small(method, branch, **options), 0, 4)
    done, told = learner.export(tmp_path / "model.pt2"), {"s6mod": ""}
    program = torch.export.load(tmp_path / "model.pt2", extra_files=told)
    module = program.module()
    for size in (1, 7):
        images = batch(99, (0, 1), size)[0]
        close(module(images)[2], learner.scores(images)[learner.primary])
    assert json.loads(told["s6mod"]) == done.metadata.plain()
    assert torch_file.checksum(program) == done.metadata.checksum
    (images,), _ = program.example_inputs
    assert not images.any()


def test_a_learner_that_grows_is_exported_with_its_own_names_and_columns_at_the_size_of_photographs(tmp_path):
    learner = small("er", PLUS, num_classes=None, statistics="memory")
    images = batch(0, (0,), size=4, side=32)[0]
    learner.learn(images, ["cup", "pen", "key", "cup"])
    learner.learn(images, ["cup", "pen", "key", "cup"])
    done = learner.export(tmp_path / "model.pt2")
    assert done.metadata.classes == ["cup", "pen", "key"]
    scores = torch.export.load(tmp_path / "model.pt2").module()(images)[2]
    close(scores, learner.scores(images)[learner.primary])


@pytest.fixture(scope="module")
def learner():
    return run(small("er", {"name": "s6mod"}, predict_by="head", predict_among="seen"), 0, 2)


@pytest.fixture(scope="module")
def exported(learner, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    learner.save(folder / "learner")
    return learner.export(folder / "model.onnx", list("abcdef"))


def test_the_file_says_what_it_is(exported, learner):
    model = onnx.load(exported.path)
    onnx.checker.check_model(model, full_check=True)
    told = json.loads(onnxruntime.InferenceSession(exported.path).get_modelmeta().custom_metadata_map["s6mod"])
    assert told == exported.metadata.plain()
    assert told["checksum"] == hashlib.sha256(model.graph.SerializeToString(deterministic=True)).hexdigest()
    assert (told["classes"], told["candidates"], told["image_shape"]) == (list("abcdef"), [0, 1], [3, 8, 8])
    assert exported.metadata.predictor == "er+s6mod by latest/running/head among 2 of 6 classes"
    assert exported.size == exported.path.stat().st_size
    (images,) = model.graph.input
    assert [side.dim_param or side.dim_value for side in images.type.tensor_type.shape.dim] == ["batch", 3, 8, 8]


def test_the_file_holds_what_predicts_and_no_more(exported, learner):
    held = sum(np.prod(tensor.dims, dtype=int) for tensor in onnx.load(exported.path).graph.initializer)
    network = sum(parameter.numel() for parameter in learner.peers[0].network.parameters())
    assert held < 1.2 * network  # BatchNorm's statistics, but not the branch, which does not predict here
    assert str(Path(__file__).parents[2]).encode() not in exported.path.read_bytes()


def test_predict_answers_the_same_from_the_file_as_from_the_learner(exported, learner, call, tmp_path):
    Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).save(tmp_path / "image.png")
    answers = []
    for source in (exported.path, exported.path.parent / "learner"):
        code, out, _ = call("predict", source, tmp_path, "--format=json", "--top=6")
        assert code == 0
        answers.append(json.loads(out)[0]["labels"])
    by_file, by_learner = answers
    assert {each["label"] for each in by_file[:2]} == {"a", "b"}
    assert ["abcdef"[int(each["label"])] for each in by_learner] == [each["label"] for each in by_file]
    for one, other in zip(*answers, strict=True):
        assert one["probability"] == pytest.approx(other["probability"], abs=1e-4)


def test_a_damaged_or_foreign_file_is_refused_in_one_sentence(exported, tmp_path):
    model = onnx.load(exported.path)
    model.graph.initializer[0].raw_data = bytes(len(model.graph.initializer[0].raw_data))
    onnx.save(model, tmp_path / "damaged.onnx")
    with pytest.raises(DataError, match=r"^expected the graph as it was written, got a damaged .*; use another copy$"):
        open_model(tmp_path / "damaged.onnx")
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "foreign.onnx")
    (tmp_path / "none.onnx").write_bytes(b"no protobuf")
    for name in ("foreign.onnx", "none.onnx"):
        with pytest.raises(DataError, match=r"^expected a file that s6mod export wrote, got .*; export the .* anew$"):
            open_model(tmp_path / name)


def test_a_graph_that_answers_otherwise_is_not_written(learner, monkeypatch, tmp_path):
    right = Predictor.at_once
    monkeypatch.setattr(Predictor, "at_once", lambda *given: right(*given) * 1.001)
    with pytest.raises(InputError, match=r"got scores that differ by 1.0e-03; nothing was written"):
        learner.export(tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


def test_a_method_that_cannot_be_traced_is_told_in_one_sentence(learner, monkeypatch, tmp_path):
    monkeypatch.setattr(type(learner.method), "prepare", lambda self, images: images.float() / 255 + 0 * len(images))
    with pytest.raises(InputError, match=r"^expected a method and a branch that torch.export can trace, got .*$"):
        learner.export(tmp_path / "model.pt2")


def test_export_writes_what_a_run_has_trained_with_the_names_of_its_classes(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small_run = ["method.network.width=2", "method.memory_batch=4", "stream.samples_per_task=20", "stream.tasks=2"]
    call("train", "--quiet", "--out=run", *(f"--set={each}" for each in small_run))
    code, out, _ = call("export", "run", "model.onnx")
    assert (code, "er by latest/running/head among 10 of 10 classes" in out) == (0, True)
    assert open_model("model.onnx").classes == tuple(json.loads(Path("run/result.json").read_text())["class_names"])


def test_the_programs_of_the_page_run_as_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / "how-to" / "deploy.md"
    names = {"__name__": "__main__"}
    programs = re.findall(r"^```py\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    assert len(programs) == 3
    for program in programs:
        exec(compile(program, page, "exec"), names)
