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


def chosen_among(learner, labels):
    plan = learner.method.plan(
        torch.tensor(labels), learner.memory, learner.task.with_classes(torch.tensor(labels)), learner.host_generator
    )
    return plan and plan.rows["classes"].nonzero().flatten().tolist()


def test_the_loss_is_that_of_the_stream_among_its_own_and_unseen_classes_plus_that_of_the_memory_among_all():
    learner = run(ace(), 0, 3)  # classes 0, 1, 2 and 3 have been seen, of six
    x, y = batch(3, (2, 2))
    step = untaken(learner, x, y)
    (out,) = step.outputs  # one pass
    memory, stream = out.logits.split([MEMORY, len(x)])
    labels = learner.memory.labels[step.plan.rows["replay"]]
    assert step.terms["stream"].item() == pytest.approx(slow_cross_entropy(stream, y, [2, 4, 5]), rel=1e-5)
    assert step.terms["memory"].item() == pytest.approx(slow_cross_entropy(memory, labels, range(6)), rel=1e-5)
    assert step.terms.keys() == {"stream", "memory"}


def test_left_out_are_classes_that_were_seen_and_are_not_in_the_batch():
    learner = ace()
    learner.build((3, 8, 8))
    assert chosen_among(learner, [0, 1]) is None  # the first batch is only stored
    learner.learn(*batch(0, (0, 1)))
    assert chosen_among(learner, [0, 0]) == [0, 2, 3, 4, 5]  # class 1 was seen in the batch that was only stored
    assert chosen_among(learner, [0, 1]) == [0, 1, 2, 3, 4, 5]
    assert chosen_among(learner, [3, 3]) == [2, 3, 4, 5]  # a class that comes for the first time
    run(learner, 2, 6)
    assert chosen_among(learner, [4, 1]) == [1, 4]  # all have been seen
    assert chosen_among(learner, [3]) == [3]


def test_a_batch_of_one_class_with_all_seen_has_nothing_to_choose_and_costs_nothing():
    learner = run(ace(), 0, 6)
    step = untaken(learner, *batch(6, (3,)))
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
