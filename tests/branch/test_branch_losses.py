import math

import pytest
import torch

from s6mod.branch import Targets
from s6mod.branch.losses import contrastive_discretization, divergence, dot_regression, unit, z_loss

B, CLASSES = 6, 4


@pytest.fixture
def normal():
    random = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(*shape, generator=random, dtype=torch.float64)


HARD = Targets(torch.tensor([0, 1, 1, 3, 0, 2]))
SOFT = Targets(HARD.labels, torch.tensor([1, 1, 2, 0, 0, 3]), torch.tensor([0.0, 0.2, 0.5, 0.9, 0.4, 1.0]))


@pytest.fixture(params=[HARD, SOFT], ids=["labels", "mixed"])
def q(request):
    return request.param.soft(CLASSES)


def test_dot_regression_of_labels_is_half_the_squared_gap_to_the_own_class(normal):
    cosines = normal(B, CLASSES)
    expected = sum(0.5 * (cosines[m, HARD.labels[m]] - 1) ** 2 for m in range(B)) / B
    torch.testing.assert_close(dot_regression(cosines, HARD.soft(CLASSES)), expected)


def test_dot_regression_of_mixed_samples_weighs_the_two_classes(normal):
    cosines, total = normal(B, CLASSES), 0.0
    for m in range(B):
        share = SOFT.mix[m].double()
        own, other = cosines[m, SOFT.labels[m]], cosines[m, SOFT.partners[m]]
        total += (1 - share) * 0.5 * (own - 1) ** 2 + share * 0.5 * (other - 1) ** 2
    torch.testing.assert_close(dot_regression(cosines, SOFT.soft(CLASSES)), total / B, rtol=1e-6, atol=0)


@pytest.mark.parametrize("direction", ["pq", "qp"])
def test_divergence_is_the_mean_kullback_leibler_divergence(normal, direction):
    base, branch = normal(B, CLASSES), normal(B, CLASSES)
    total = 0.0
    for m in range(B):
        P, Q = base[m].softmax(0), branch[m].softmax(0)
        if direction == "qp":
            P, Q = Q, P
        total += sum(P[i] * math.log(P[i] / Q[i]) for i in range(CLASSES))
    torch.testing.assert_close(divergence(base, branch, direction), total / B)


def test_divergence_reaches_both_sides(normal):
    base, branch = normal(B, CLASSES).requires_grad_(), normal(B, CLASSES).requires_grad_()
    divergence(base, branch).backward()
    assert base.grad.abs().sum() > 0
    assert branch.grad.abs().sum() > 0


def test_divergence_of_very_confident_logits_is_finite():
    base = torch.tensor([[1000.0, 0.0, -1000.0]], requires_grad=True)
    for direction in ("pq", "qp"):
        value = divergence(base, torch.zeros(1, 3), direction)
        value.backward()
        assert torch.isfinite(value)
        assert torch.isfinite(base.grad).all()


def test_contrastive_discretization_is_the_signed_mean_cosine_of_all_pairs(normal, q):
    delta, total = normal(B, 4, 3, 5), 0.0
    for m in range(B):
        for n in range(B):
            a, b = delta[m].flatten(), delta[n].flatten()
            sign = 2 * (q[m] * q[n]).sum().double() - 1
            total += sign * (a @ b) / (a.norm() * b.norm())
    torch.testing.assert_close(contrastive_discretization(delta, q.double()), -total / B**2)


def test_contrastive_discretization_of_labels_has_the_signs_of_the_paper(normal):
    delta, y, total = normal(B, 4, 3, 5), HARD.labels, 0.0
    for m in range(B):
        for n in range(B):
            cosine = torch.cosine_similarity(delta[m].flatten(), delta[n].flatten(), dim=0)
            total += cosine if y[m] == y[n] else -cosine
    torch.testing.assert_close(contrastive_discretization(delta, HARD.soft(CLASSES).double()), -total / B**2)


def test_z_loss_is_the_mean_squared_logsumexp(normal):
    logits = normal(B, 5)
    expected = sum(math.log(sum(math.exp(g) for g in row)) ** 2 for row in logits.tolist()) / B
    assert z_loss(logits).item() == pytest.approx(expected)


def test_unit_vectors_have_length_one_unless_there_is_next_to_nothing_to_scale(normal):
    x = normal(B, 5) * torch.tensor([1e-3, 1.0, 1e3, 1e-2, 1e2, 1.0])[:, None].double()
    torch.testing.assert_close(unit(x), x / x.norm(dim=1, keepdim=True))
    torch.testing.assert_close(unit(x.float()).norm(dim=1), torch.ones(B))
    faint = torch.tensor([[0.0, 0.0], [3e-9, 4e-9]], requires_grad=True)
    unit(faint).sum().backward()
    assert (unit(faint).norm(dim=1) < 0.01).all()
    assert torch.isfinite(faint.grad).all()


def test_gradients_of_the_terms_are_those_of_finite_differences(normal):
    cosines, base, delta = normal(B, CLASSES), normal(B, CLASSES), normal(B, 2, 3)
    q = SOFT.soft(CLASSES).double()
    for term, given in [
        (lambda x: dot_regression(x, q), [cosines]),
        (divergence, [base, cosines]),
        (lambda x: contrastive_discretization(x, q), [delta]),
        (z_loss, [base]),
        (unit, [cosines]),
    ]:
        assert torch.autograd.gradcheck(term, [value.clone().requires_grad_() for value in given])
