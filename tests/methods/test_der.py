from functools import partial

import pytest
import torch
from states import assert_same_tree
from torch.nn import functional as F

from learners import MEMORY, STREAM, batch, run, small, untaken
from s6mod import Learner
from s6mod.methods.base import OptimizerConfig
from s6mod.runs.cells import parse
from s6mod.runs.config import RunConfig

BOTH = ["der", "der++"]
der = partial(small, "der")


def slow_distance(logits, stored):
    """By loops over samples and classes."""
    total = 0.0
    for row, kept in zip(logits.tolist(), stored.tolist(), strict=True):
        total += sum((g - z) ** 2 for g, z in zip(row, kept, strict=True))
    return total / logits.numel()


def test_the_loss_is_the_streams_cross_entropy_plus_the_distance_of_replayed_logits_to_the_stored_ones():
    learner = run(der(method={"logit_weight": 0.3}), 0, 3)
    x, y = batch(3, (2, 3))
    step = untaken(learner, x, y)
    (out,) = step.outputs  # one pass
    stream, memory = out.logits.split([STREAM, MEMORY])
    torch.testing.assert_close(step.terms["stream"], F.cross_entropy(stream, y))
    by_hand = 0.3 * slow_distance(memory, learner.memory.values["logits"][step.plan.rows["logits"]])
    assert by_hand > 0
    assert step.terms["logits"].item() == pytest.approx(by_hand, rel=1e-4)
    assert step.terms.keys() == {"stream", "logits"}


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_row_holds_the_logits_of_the_step_that_stored_it_and_those_of_a_replaced_row_go_with_it(name, precision):
    learner = small(name, memory_size=7, engine={"device": "cpu", "precision": precision})
    learner.build((3, 8, 8))
    passes, by_image = [], {}
    learner.peers[0].network.register_forward_hook(lambda _, args, out: passes.append(out.logits))
    replaced = 0
    for position in range(15):
        x, y = batch(position, (0, 1))
        before = learner.memory.images[:7].clone()
        passes.clear()
        learner.learn(x, y)
        start = min(MEMORY, STREAM * position) if name == "der++" else 0  # where the stream is in the pass
        z = passes[0].detach().float()[start : start + STREAM]
        by_image |= {image.numpy().tobytes(): row for image, row in zip(x, z, strict=True)}
        changed = (learner.memory.images[:7] != before).flatten(1).any(1)
        replaced += int(changed.sum()) if position > 3 else 0
        for row in range(len(learner.memory)):
            stored = learner.memory.values["logits"][row]
            assert torch.equal(stored, by_image[learner.memory.images[row].numpy().tobytes()])
    assert replaced > 3
    assert learner.memory.values["logits"].dtype == torch.float32


@pytest.mark.parametrize("name", BOTH)
def test_the_first_batch_is_learned_by_its_cross_entropy_alone_and_has_a_path_of_its_own(name):
    learner = small(name)
    learner.build((3, 8, 8))
    x, y = batch(0, (0, 1))
    step = untaken(learner, x, y)
    assert (step.plan.rows, step.plan.path) == ({}, ("first batch",))
    assert step.terms.keys() == {"stream"}
    learner.learn(x, y)
    assert learner.memory.values["logits"][:STREAM].all()
    assert untaken(learner, x, y).plan.path == ("replay",)


def test_no_gradient_reaches_the_stored_logits_and_they_stay_as_they_are_when_replayed():
    learner = run(der(memory_size=100), 0, 5)
    stored = learner.memory.values["logits"][:10].clone()
    assert not learner.memory.values["logits"].requires_grad
    run(learner, 5, 6)
    assert torch.equal(learner.memory.values["logits"][:10], stored)


@pytest.mark.parametrize("name", BOTH)
def test_a_saved_learner_has_its_logits_again(name, tmp_path):
    learner = run(small(name), 0, 3)
    learner.save(tmp_path)
    loaded = Learner.load(tmp_path)
    assert_same_tree(learner.state_dict(), loaded.state_dict())
    assert torch.equal(loaded.memory.values["logits"][:12], learner.memory.values["logits"][:12])
    assert loaded.state_dict()["memory"]["values"]["logits"].any()


@pytest.mark.parametrize("written", [(), ("images",), ("images", "device_labels")], ids=str)
def test_an_interrupt_leaves_images_and_logits_in_agreement(monkeypatch, written):
    learner, by_image, passes = der(memory_size=9), {}, []
    learner.build((3, 8, 8))
    learner.peers[0].network.register_forward_hook(lambda _, args, out: passes.append(out.logits.detach()))
    memory = learner.memory

    def learn(position):
        x, y = batch(position, (0, 1))
        passes.clear()
        try:
            learner.learn(x, y)
        finally:
            by_image.update(zip((image.numpy().tobytes() for image in x), passes[0][:STREAM], strict=True))
            for row in range(len(memory)):
                assert torch.equal(memory.values["logits"][row], by_image[memory.images[row].numpy().tobytes()])

    def interrupted(rows, images, labels, values):
        for name, part in zip(written, (images, labels), strict=False):
            getattr(memory, name).index_copy_(0, rows, part)
        monkeypatch.undo()
        raise KeyboardInterrupt

    for position in range(4):
        learn(position)
    monkeypatch.setattr(memory, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        learn(4)
    assert len(memory) == (9 if written else 8)
    for position in range(5, 9):
        learn(position)


def test_stored_logits_count_among_the_bytes_held():
    ours, er = (run(small(name), 0, 2) for name in ("der", "er"))
    assert ours.memory.nbytes - er.memory.nbytes == ours.nbytes - er.nbytes == 4 * 6 * (12 + 1)


def test_a_branch_sees_the_stream():
    learner = run(der({"name": "confidence"}), 0, 3)
    step = untaken(learner, *batch(3, (2, 2)))
    (out,) = step.outputs
    assert torch.equal(step.tap.logits, out.logits[:STREAM])
    assert torch.equal(step.tap.feature_map, out.feature_map[:STREAM])
    assert step.tap.targets.labels.tolist() == [2, 2]
    assert step.tap.again().shape == step.tap.feature_map.shape


@pytest.mark.parametrize("data", ["cifar10", "cifar100", "tiny-imagenet"])
def test_presets_have_the_settings_of_the_study(data):
    der, der_pp, er_ace = (
        RunConfig.parse(parse(f"{name}/{data}").values()).method for name in ("der", "der++", "er-ace")
    )
    assert (der.logit_weight, der_pp.logit_weight, der_pp.label_weight) == (0.2, 0.2, 1.0)
    assert der.optimizer == der_pp.optimizer == er_ace.optimizer == OptimizerConfig()
    assert der.augment == der_pp.augment == er_ace.augment
    assert (der.augment.jitter_probability, der.augment.grey_probability, der.augment.flip_probability) == (0, 0, 0.5)
