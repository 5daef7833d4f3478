import math
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from learners import MEMORY, STREAM, TASK, batch, run, small, untaken
from s6mod.errors import ConfigError
from s6mod.methods.er_lwf import ERLwFConfig, masked_divergence

lwf = partial(small, "er-lwf")


def slow_divergence(past, logits, columns, temperature=2.0):
    """By loops over samples and old classes."""
    total = 0.0
    for p_row, q_row in zip(past.double().tolist(), logits.double().tolist(), strict=True):
        p, q = ([math.exp(row[c] / temperature) for c in columns] for row in (p_row, q_row))
        total += sum(a / sum(p) * math.log((a / sum(p)) / (b / sum(q))) for a, b in zip(p, q, strict=True))
    return temperature**2 * total / len(past)


def test_the_first_task_is_that_of_er():
    ours, er = run(lwf(), 0, TASK - 1), run(small("er"), 0, TASK - 1)
    step, other = (untaken(one, *batch(1, (0, 1))) for one in (ours, er))
    assert step.terms.keys() == {"ce"}
    assert torch.equal(step.terms["ce"], other.terms["ce"])


def test_later_the_network_is_held_to_its_copy_on_old_classes():
    learner = run(lwf(), 0, TASK + 1)
    teacher, past = learner.peers[0].teacher, []
    teacher.register_forward_hook(lambda _, args, out: past.append((args[0], out.logits)))
    x, y = batch(TASK + 1, (2, 3))
    step = untaken(learner, x, y)
    ((view,), (out,)), ((seen, logits),) = (step.inputs, step.outputs), past
    assert torch.equal(seen, view)
    assert len(view) == MEMORY + STREAM
    labels = torch.cat([learner.memory.labels[step.plan.rows["replay"]], y])
    torch.testing.assert_close(step.terms["ce"], F.cross_entropy(out.logits, labels))
    by_hand = slow_divergence(logits, out.logits, [0, 1])
    assert by_hand > 0
    assert step.terms["distil"].item() == pytest.approx(by_hand, rel=1e-3, abs=1e-7)
    assert step.terms.keys() == {"ce", "distil"}


def test_the_weight_multiplies_the_divergence():
    one, three = (run(lwf(method={"distillation_weight": w}), 0, TASK) for w in (1.0, 3.0))
    a, b = (untaken(learner, *batch(TASK, (2, 3))).terms["distil"] for learner in (one, three))
    torch.testing.assert_close(3 * a, b)
    assert (ERLwFConfig().distillation_weight, ERLwFConfig().temperature) == (1.0, 2.0)


@pytest.mark.parametrize("columns", [[0], [1, 3], [0, 1, 2, 3]], ids=str)
def test_the_divergence_is_over_the_columns_asked_for_alone(columns):
    past, logits = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0)).unbind()
    logits.requires_grad_()
    mask = torch.zeros(4, dtype=torch.bool)
    mask[columns] = True
    divergence = masked_divergence(past, logits, mask, 2.0)
    assert divergence.item() == pytest.approx(slow_divergence(past, logits, columns), abs=1e-6)
    divergence.backward()
    assert logits.grad.isfinite().all()
    assert not logits.grad[:, ~mask].any()


def test_without_an_old_class_there_is_nothing_to_hold_to():
    past, logits = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0)).unbind()
    logits.requires_grad_()
    divergence = masked_divergence(past, logits, torch.zeros(4, dtype=torch.bool), 2.0)
    divergence.backward()
    assert divergence.item() == 0
    assert not logits.grad.any()


def test_a_boundary_after_the_batch_that_is_only_stored_leaves_no_class_old():
    learner = lwf()
    learner.learn(*batch(0, (0, 1)))
    learner.end_task()
    assert not learner.method.old.any()
    learner.learn(*batch(1, (2, 3)))
    assert learner.losses()["distil"] == 0
    learner.end_task()
    assert learner.method.old.tolist() == [True] * 4 + [False] * 2  # what was stored has been replayed


def test_classes_turn_old_and_the_copy_is_renewed_at_each_boundary():
    learner = run(lwf(), 0, TASK)
    (peer,) = learner.peers
    assert learner.method.old.nonzero().flatten().tolist() == [0, 1]
    assert torch.equal(peer.teacher.head.weight, peer.network.head.weight)
    run(learner, TASK, 2 * TASK - 1)
    assert learner.method.old.nonzero().flatten().tolist() == [0, 1]
    assert not torch.equal(peer.teacher.head.weight, peer.network.head.weight)
    run(learner, 2 * TASK - 1, 2 * TASK)
    assert learner.method.old.nonzero().flatten().tolist() == [0, 1, 2, 3]
    assert torch.equal(peer.teacher.head.weight, peer.network.head.weight)


def test_boundaries_are_needed():
    with pytest.raises(ConfigError, match="expected task boundaries for method 'er-lwf'"):
        lwf(boundaries="none")


def test_the_head_predicts():
    assert run(lwf(), 0, 3).primary == "head"
