import math
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from learners import MEMORY, STREAM, batch, run, small, untaken
from s6mod import Learner
from s6mod.errors import ConfigError
from s6mod.methods.scr import SCRConfig
from s6mod.metrics import ncm_scores, nearest_centroid
from s6mod.networks import NetworkConfig
from s6mod.networks.projection import UnclassifiedResNet18

scr = partial(small, "scr")


def slow_contrastive(projections, labels, temperature):
    """By loops over anchors, positives and all others."""
    z, total, anchors = F.normalize(projections.detach().double(), dim=1), 0.0, 0
    labels = labels.tolist()
    for i, label in enumerate(labels):
        similar = {a: (z[i] @ z[a]).item() / temperature for a in range(len(z)) if a != i}
        everything = sum(math.exp(value) for value in similar.values())
        positives = [a for a in similar if labels[a] == label]
        anchors += bool(positives)
        total -= sum(math.log(math.exp(similar[p]) / everything) for p in positives) / max(len(positives), 1)
    return total / anchors


@pytest.mark.parametrize("classes", [(2, 3), (2, 2), (1, 5)], ids=str)
def test_the_loss_contrasts_projections_of_memory_and_stream_as_they_are_and_augmented(classes):
    learner = run(scr(), 0, 3)
    x, y = batch(3, classes)
    step = untaken(learner, x, y)
    ((view,), (out,)) = step.inputs, step.outputs
    rows = step.plan.rows["replay"]
    labels = torch.cat([learner.memory.labels[rows], y]).repeat(2)
    plain = learner.method.prepare(torch.cat([learner.memory.images[rows], x]))
    assert torch.equal(view[: MEMORY + STREAM], plain)
    assert not torch.equal(view[MEMORY + STREAM :], plain)
    assert out.projection.shape == (2 * (MEMORY + STREAM), 128)
    assert step.terms.keys() == {"scl"}
    assert step.terms["scl"].item() == pytest.approx(slow_contrastive(out.projection, labels, 0.07), rel=1e-4)


def test_one_class_alone_still_has_its_copies_apart():
    learner = run(scr(), 0, 1)
    learner.memory.device_labels.fill_(1)
    step = untaken(learner, *batch(1, (1,)))
    labels = torch.ones(2 * (2 + STREAM), dtype=torch.int64)
    assert step.terms["scl"].item() == pytest.approx(
        slow_contrastive(step.outputs[0].projection, labels, 0.07), rel=1e-4
    )


def test_the_first_batch_is_only_stored():
    learner = scr()
    learner.build((3, 8, 8))
    before = learner.peers[0].network.stem[0].weight.detach().clone()
    learner.learn(*batch(0, (0, 1)))
    assert torch.equal(before, learner.peers[0].network.stem[0].weight)
    assert len(learner.memory) == STREAM


def test_the_defaults_are_the_published_ones():
    config = SCRConfig()
    assert (config.memory_batch, config.projection_width, config.temperature) == (100, 128, 0.07)


def test_the_projection_has_a_hidden_layer_and_there_is_no_classifier():
    network = UnclassifiedResNet18(NetworkConfig(width=2), (3, 8, 8), 5)
    out = network(torch.rand(3, 3, 8, 8))
    first, _, last = network.projection
    torch.testing.assert_close(out.projection, last(first(out.features).relu()))
    assert (first.out_features, last.out_features) == (network.num_features, 5)
    assert out.logits.shape == (3, 0)
    assert not any(name.startswith("head") for name, _ in network.named_parameters())


def test_the_nearest_mean_of_the_memorys_features_predicts_and_is_the_only_table():
    learner = run(scr(), 0, 4)
    x, _ = batch(9, (0, 1), size=6)
    (peer,) = learner.peers
    peer.eval()
    with torch.no_grad():
        stored, asked = (peer.network(learner.method.prepare(i)).features for i in (learner.memory.images[:8], x))
    peer.train()
    expected = ncm_scores(asked, *nearest_centroid(stored, learner.memory.labels[:8], 6))
    tables = learner.scores(x)
    assert tables.keys() == {"ncm"}
    torch.testing.assert_close(tables["ncm"], expected)
    assert torch.equal(learner.predict(x), expected.argmax(1))


@pytest.mark.parametrize("branch", ["s6mod", "confidence", "smoothing"])
def test_a_branch_is_refused_in_one_sentence_before_anything_is_learned(branch):
    with pytest.raises(
        ConfigError, match=r"^expected no branch on method 'scr', which has no logits .*; leave"
    ) as told:
        Learner("scr", branch, num_classes=4)
    assert "\n" not in str(told.value)
