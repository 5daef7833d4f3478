import math

import pytest
import torch

from s6mod.branch import BranchShape, Tap, Targets, branches

LOGITS = [[2.0, 0.0, -1.0], [0.5, 0.5, 3.0]]


def tap(logits):
    return Tap(torch.zeros(2, 1, 1, 1), logits, Targets(torch.tensor([0, 1])), again=lambda: pytest.fail("not needed"))


def softmax(row):
    return [math.exp(v) / sum(map(math.exp, row)) for v in row]


def confidence():
    return sum(p * math.log(p * 3) for row in LOGITS for p in softmax(row)) / 2


def smoothing():
    return sum(1 / 3 * math.log(1 / 3 / p) for row in LOGITS for p in softmax(row)) / 2


@pytest.mark.parametrize(("name", "expected"), [("confidence", confidence()), ("smoothing", smoothing())])
@pytest.mark.parametrize("alpha", [None, 0.0, 2.5])
def test_a_control_is_its_divergence_from_the_uniform_times_alpha(name, expected, alpha):
    config = branches.configure({"name": name} | ({} if alpha is None else {"alpha": alpha}))
    control = branches[name].build(config, BranchShape(512, (4, 4), 3))
    logits = torch.tensor(LOGITS, requires_grad=True)
    terms = control.losses(tap(logits))
    assert list(terms) == [name]
    weight = 1.0 if alpha is None else alpha
    assert terms[name].item() == pytest.approx(weight * expected)
    terms[name].backward()
    assert (logits.grad.abs().sum() > 0) == (weight > 0)


@pytest.mark.parametrize("name", ["confidence", "smoothing"])
def test_a_flat_head_costs_nothing(name):
    control = branches[name].build(branches.configure(name), BranchShape(1, (1, 1), 3))
    assert control.losses(tap(torch.full((2, 3), 7.0)))[name].item() == pytest.approx(0, abs=1e-6)
    assert list(control.parameters()) == []
    assert control.scores(torch.zeros(2, 1, 1, 1)) is None
