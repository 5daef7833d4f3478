import pytest
import torch
from torch.nn import functional as F

from learners import MEMORY, STREAM, batch, run, small, untaken
from s6mod.runs.cells import parse


def test_the_loss_is_ders_plus_the_weighted_cross_entropy_of_a_second_draw():
    learner = run(small("der++", method={"logit_weight": 0.3, "label_weight": 0.7}), 0, 5)
    x, y = batch(5, (4, 5))
    step = untaken(learner, x, y)
    (out,) = step.outputs  # one pass
    second, stream, first = out.logits.split([MEMORY, STREAM, MEMORY])
    rows = step.plan.rows
    torch.testing.assert_close(step.terms["stream"], F.cross_entropy(stream, y))
    distance = (first - learner.memory.values["logits"][rows["logits"]]).square().mean()
    torch.testing.assert_close(step.terms["logits"], 0.3 * distance)
    labels = learner.memory.labels[rows["labels"]]
    torch.testing.assert_close(step.terms["memory"], 0.7 * F.cross_entropy(second, labels))
    assert step.terms.keys() == {"stream", "logits", "memory"}


def test_the_two_draws_are_independent():
    learner = run(small("der++"), 0, 6)  # 12 rows
    plans = [untaken(learner, *batch(6, (0, 1))).plan.rows for _ in range(40)]
    common = [len(set(rows["logits"].tolist()) & set(rows["labels"].tolist())) for rows in plans]
    assert sum(common) / 40 == pytest.approx(MEMORY * MEMORY / 12, abs=0.45)  # four standard deviations


def test_a_branch_sees_what_both_cross_entropies_saw():
    learner = run(small("der++", {"name": "confidence"}), 0, 3)
    step = untaken(learner, *batch(3, (2, 2)))
    (out,), seen = step.outputs, MEMORY + STREAM
    labels = learner.memory.labels[step.plan.rows["labels"]]
    assert torch.equal(step.tap.logits, out.logits[:seen])
    assert torch.equal(step.tap.feature_map, out.feature_map[:seen])
    assert step.tap.targets.labels.tolist() == [*labels.tolist(), 2, 2]
    assert step.tap.again().shape == step.tap.feature_map.shape


def test_a_cell_names_it_alone_and_with_a_branch():
    assert (parse("der++/digits").method, parse("der++/digits").branch) == ("der++", "none")
    cell = parse("der+++s6mod/cifar100/2000")
    assert (cell.method, cell.branch, cell.data, cell.memory) == ("der++", "s6mod", "cifar100", 2000)
