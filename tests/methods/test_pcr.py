import math
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from learners import MEMORY, STREAM, batch, run, small, untaken
from s6mod.methods.pcr import PCRConfig, proxy_loss

pcr = partial(small, "pcr")


def slow_proxy_loss(features, weight, labels, temperature=0.09):
    """By loops over pairs of anchors and proxies of the batch, the anchor's own left out."""
    f, w, total = F.normalize(features.double(), dim=1), F.normalize(weight.double(), dim=1), 0.0
    labels = labels.tolist()
    for i, label in enumerate(labels):
        competing = [math.exp((f[i] @ w[labels[j]]).item() / temperature) for j in range(len(labels)) if j != i]
        total -= math.log(math.exp((f[i] @ w[label]).item() / temperature) / sum(competing))
    return total / len(labels)


@pytest.mark.parametrize("classes", [(2, 3), (2, 2), (0, 5)], ids=str)
def test_only_proxies_of_the_batch_compete_each_as_often_as_it_occurs(classes):
    learner = run(pcr(), 0, 3)
    x, y = batch(3, classes)
    step = untaken(learner, x, y)
    rows, network = step.plan.rows["replay"], learner.peers[0].network
    labels = torch.cat([learner.memory.labels[rows].repeat(2), y.repeat(2)])
    features = torch.cat([out.features for out in step.outputs]).detach()
    by_hand = slow_proxy_loss(features, network.head.weight.detach(), labels)
    assert step.terms.keys() == {"proxy"}
    assert step.terms["proxy"].item() == pytest.approx(by_hand, rel=1e-4)
    assert torch.equal(step.tap.targets.labels, labels)


def test_memory_and_stream_each_have_a_pass_as_they_are_and_augmented():
    learner = run(pcr(), 0, 3)
    x, y = batch(3, (2, 3))
    step = untaken(learner, x, y)
    stored = learner.memory.images[step.plan.rows["replay"]]
    assert [len(view) for view in step.inputs] == [2 * MEMORY, 2 * STREAM]
    for view, images in zip(step.inputs, (stored, x), strict=True):
        plain = learner.method.prepare(images)
        assert torch.equal(view[: len(images)], plain)
        assert not torch.equal(view[len(images) :], plain)


def test_a_batch_of_one_class_has_no_rival_and_gives_no_gradient():
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss = proxy_loss(logits, torch.tensor([1, 1, 1, 1]))
    assert loss.item() == pytest.approx(math.log(3))  # three others, all of its own class
    loss.backward()
    torch.testing.assert_close(logits.grad, torch.zeros(4, 3))


def test_classes_that_are_not_in_the_batch_get_no_gradient():
    logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    proxy_loss(logits, torch.tensor([1, 1, 3, 3])).backward()
    assert not logits.grad[:, [0, 2, 4]].any()
    assert logits.grad[:, [1, 3]].all()


def test_the_first_batch_is_only_stored():
    learner = pcr()
    learner.build((3, 8, 8))
    before = learner.peers[0].network.head.weight.detach().clone()
    learner.learn(*batch(0, (0, 1)))
    assert torch.equal(before, learner.peers[0].network.head.weight)
    assert len(learner.memory) == STREAM
    assert learner.scores(batch(1, (0,))[0])["head"].isfinite().all()  # nothing is learned: all may be meant
    learner.learn(*batch(1, (3,)))
    assert learner.method.seen.nonzero().flatten().tolist() == [0, 1, 3]


def test_the_cosines_of_the_head_predict():
    learner = run(pcr(), 0, 4)
    network = learner.peers[0].network
    assert network.head.bias is None
    with torch.no_grad():
        network.head.weight[2] *= 100  # whose length means nothing
    x, _ = batch(9, (0, 1), size=6)
    network.eval()
    with torch.no_grad():
        features = network(learner.method.prepare(x)).features
    network.train()
    cosines = F.cosine_similarity(features[:, None], network.head.weight.detach()[None], dim=2)
    scores = learner.scores(x)["head"]
    torch.testing.assert_close(scores[:, :4], cosines[:, :4] / 0.09)
    assert (scores[:, 4:] == -torch.inf).all()  # of classes that have not been seen
    assert torch.equal(learner.predict(x), cosines[:, :4].argmax(1))
    assert PCRConfig().temperature == 0.09


def test_a_branch_sees_all_anchors_with_their_scaled_cosines():
    learner = run(pcr({"name": "confidence"}), 0, 3)
    step = untaken(learner, *batch(3, (2, 3)))
    assert torch.equal(step.tap.logits, torch.cat([out.logits for out in step.outputs]))
    assert step.tap.again().shape == step.tap.feature_map.shape
