import math
from functools import partial

import pytest
import torch

from learners import MEMORY, batch, run, small, untaken
from s6mod.methods.er_ace import masked_cross_entropy

ace = partial(small, "er-ace")


def slow_cross_entropy(logits, labels, classes):
    """By loops over samples and the classes that take part."""
    total = 0.0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        total -= math.log(math.exp(row[label]) / sum(math.exp(row[c]) for c in classes))
    return total / len(labels)


def marked(learner, labels):
    """Classes of the stream batch, and classes seen."""
    plan = learner.method.plan(
        torch.tensor(labels), learner.memory, learner.task.with_classes(torch.tensor(labels)), learner.host_generator
    )
    return plan and [plan.rows[name].nonzero().flatten().tolist() for name in ("arrived", "seen")]


def test_the_loss_is_that_of_the_stream_among_its_own_classes_plus_that_of_the_memory_among_those_seen():
    learner = run(ace(), 0, 3)  # classes 0, 1, 2 and 3 have been seen, of six
    x, y = batch(3, (2, 4))
    step = untaken(learner, x, y)
    (out,) = step.outputs  # one pass
    memory, stream = out.logits.split([MEMORY, len(x)])
    labels = learner.memory.labels[step.plan.rows["replay"]]
    assert step.terms["stream"].item() == pytest.approx(slow_cross_entropy(stream, y, [2, 4]), rel=1e-5)
    assert step.terms["memory"].item() == pytest.approx(slow_cross_entropy(memory, labels, range(5)), rel=1e-5)
    assert step.terms.keys() == {"stream", "memory"}


def test_classes_are_seen_from_their_first_batch_on_the_one_that_is_only_stored_included():
    learner = ace()
    learner.build((3, 8, 8))
    assert marked(learner, [0, 1]) is None  # the first batch is only stored
    learner.learn(*batch(0, (0, 1)))
    assert marked(learner, [0, 0]) == [[0], [0, 1]]
    assert marked(learner, [3, 3]) == [[3], [0, 1, 3]]
    run(learner, 2, 6)
    assert marked(learner, [4, 1]) == [[1, 4], [0, 1, 2, 3, 4, 5]]


def test_a_step_leaves_the_outputs_of_classes_that_have_not_come_as_they_were_and_none_of_them_is_predicted():
    learner = ace(branch=None)
    learner.build((3, 8, 8))
    before = learner.peers[0].network.head.weight.detach().clone()
    run(learner, 0, 3)
    head = learner.peers[0].network.head
    assert not head.weight.grad[4:].any()
    assert not head.bias.grad[4:].any()
    assert not torch.equal(head.weight[:4], before[:4])
    scores = learner.scores(batch(3, (0, 1))[0])["head"]
    assert scores[:, :4].isfinite().all()
    assert scores[:, 4:].isneginf().all()


def test_a_state_from_before_heads_chose_among_the_classes_seen_is_taken_over():
    learner = run(ace(), 0, 3)
    state = learner.method.state_dict()
    del state["seen"]
    learner.method.load_state_dict(state)
    assert learner.method.seen.tolist() == [True] * 4 + [False] * 2


def test_a_batch_of_one_class_has_nothing_to_choose_and_costs_nothing():
    learner = run(ace(), 0, 3)
    step = untaken(learner, *batch(3, (3,)))
    assert step.terms["stream"].item() == 0
    (gradient,) = torch.autograd.grad(step.terms["stream"], step.outputs[0].logits)
    assert not gradient.any()


def test_no_gradient_reaches_the_logits_of_a_class_left_out():
    logits = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    masked_cross_entropy(logits, torch.tensor([0, 2, 0]), torch.tensor([1, 0, 1, 1])).backward()
    assert not logits.grad[:, 1].any()
    assert logits.grad[:, [0, 2, 3]].all()


def test_a_branch_sees_memory_and_stream_with_all_their_logits():
    learner = run(ace({"name": "confidence"}), 0, 3)
    step = untaken(learner, *batch(3, (2, 2)))
    (out,) = step.outputs
    labels = learner.memory.labels[step.plan.rows["replay"]]
    assert step.tap.logits is out.logits
    assert step.tap.feature_map is out.feature_map
    assert step.tap.targets.labels.tolist() == [*labels.tolist(), 2, 2]
    assert step.tap.again().shape == step.tap.feature_map.shape


def test_the_head_predicts():
    assert run(ace(), 0, 3).primary == "head"
