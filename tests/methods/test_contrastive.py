"""The contrastive losses against their formulas written as loops over pairs, in float64."""

import math

import pytest
import torch

from s6mod import Learner
from s6mod.errors import InputError
from s6mod.methods.contrastive import new_loss, previous_loss, similarity, slice_start, uniform_loss, unit

TAU, EPSILON = 0.07, 1e-8
LABELS = torch.tensor([3, 5, 3, 7]).repeat(2)  # two views of four images


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cosines(seed=0, rows=8):
    z = unit(normal(rows, 6, seed=seed), 0.0)
    return (z @ z.T).requires_grad_()


def loop_pair(S, i, j, self_pairs, tau, epsilon):
    top = max(S[i, k].item() for k in range(S.shape[1]))
    E = [torch.exp((S[i, k] - top) / tau) for k in range(S.shape[1])]
    if not self_pairs:
        E[i] = torch.zeros((), dtype=S.dtype)
    return -torch.log(E[j] / (sum(E) + epsilon) + epsilon)


def loop_positives(S, labels, self_pairs, tau, epsilon):
    total = 0.0
    for i in range(len(S)):
        positives = [j for j in range(S.shape[1]) if labels[j] == labels[i]]
        total = total + sum(loop_pair(S, i, j, self_pairs, tau, epsilon) for j in positives) / len(positives)
    return total / len(S)


def loop_new(S, labels, tau, epsilon):
    R = len(S)
    pairs = sum(loop_pair(S, i, (i + R // 2) % R, False, tau, epsilon) for i in range(R)) / R
    return pairs + 2 * loop_positives(S, labels, False, tau, epsilon)


def loop_uniform(S, labels, tau, epsilon):
    return loop_positives(S, labels, True, tau, epsilon)


# A large epsilon shows where it is added; the usual one shows what is computed.
@pytest.mark.parametrize(("tau", "epsilon"), [(0.07, 1e-8), (0.5, 0.1)])
@pytest.mark.parametrize(("ours", "loop"), [(new_loss, loop_new), (uniform_loss, loop_uniform)])
def test_value_and_gradient_are_those_of_the_formula(ours, loop, tau, epsilon):
    S, T = cosines(), cosines()
    value, expected = ours(S, LABELS, tau, epsilon), loop(T, LABELS, tau, epsilon)
    torch.testing.assert_close(value, expected)
    (gradient,) = torch.autograd.grad(value, S)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, T)[0])
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize("epsilon", [1e-8, 0.1])
def test_similarity_is_that_of_the_formula(epsilon):
    z, f, start, scale = normal(5, 4), normal(5, 11, seed=1), 3, 0.5
    S = similarity(z, f, torch.tensor([start]), scale, epsilon)
    for i in range(5):
        for j in range(5):
            z_i, z_j, f_j = (
                z[i] / (z[i].norm() + epsilon),
                z[j] / (z[j].norm() + epsilon),
                f[j] / (f[j].norm() + epsilon),
            )
            torch.testing.assert_close(S[i, j], scale * (z_i @ z_j + z_i @ f_j[start : start + 4]))


def test_trap_10_the_slice_is_of_the_normalised_feature_and_not_normalised_again():
    z, f, start = normal(5, 4), normal(5, 11, seed=1), torch.tensor([2])
    louder = f.clone()
    louder[:, 8:] *= 10  # outside of the slice, which shrinks with the length of the whole
    before, after = similarity(z, f, start, 1.0, EPSILON), similarity(z, louder, start, 1.0, EPSILON)
    alone = unit(z, EPSILON) @ unit(z, EPSILON).T
    ratio = (f.norm(dim=1) / louder.norm(dim=1)).expand(5, 5)
    torch.testing.assert_close((after - alone) / (before - alone), ratio)


def test_trap_10_the_slice_starts_anywhere_but_at_the_last_possible_column():
    random = torch.Generator().manual_seed(0)

    def starts(num_features, width, count=200):
        return {slice_start(num_features, width, random, torch.device("cpu")).item() for _ in range(count)}

    assert starts(12, 4) == set(range(8))
    assert max(starts(512, 128, 4000)) == 383
    assert starts(5, 4) == starts(4, 4) == starts(3, 4) == {0}


def test_a_network_narrower_than_the_projection_has_all_its_features_compared():
    z, f = normal(5, 8), normal(5, 3, seed=1)
    S = similarity(z, f, torch.tensor([0]), 1.0, EPSILON)
    z, f = unit(z, EPSILON), unit(f, EPSILON)
    torch.testing.assert_close(S, z @ z.T + z[:, :3] @ f.T)


def test_trap_9_self_pairs_count_in_l_n_as_a_constant_and_not_in_its_denominator():
    distinct = torch.arange(8)  # the only positive of a row is itself
    S = cosines()
    value = new_loss(S, distinct, TAU, EPSILON)
    pairs = torch.stack([loop_pair(S, i, (i + 4) % 8, False, TAU, EPSILON) for i in range(8)]).mean()
    torch.testing.assert_close(value, pairs - 2 * math.log(EPSILON))
    assert -math.log(EPSILON) == pytest.approx(18.42, abs=0.01)


def test_trap_9_self_pairs_are_pairs_like_all_others_in_l_uni():
    S = torch.eye(8, dtype=torch.float64)
    expected = -math.log(1 / (1 + 7 * math.exp(-1 / 0.5)))
    assert uniform_loss(S, torch.arange(8), 0.5, 0.0).item() == pytest.approx(expected)


def test_trap_23_the_row_maximum_of_l_n_includes_the_diagonal():
    S = torch.full((8, 8), -1.0, dtype=torch.float64).fill_diagonal_(1.0)
    E = math.exp(-2 / TAU)  # so small that epsilon rules the denominator; without the diagonal it would be 1
    pair, itself = -math.log(E / (7 * E + EPSILON) + EPSILON), -math.log(EPSILON)
    assert new_loss(S, torch.arange(8), TAU, EPSILON).item() == pytest.approx(pair + 2 * itself)
    assert pair > 10 > math.log(7)


def test_l_pre_has_rows_of_the_student_and_columns_of_the_teacher():
    z, past, labels = normal(6, 4).requires_grad_(), normal(6, 4, seed=1), torch.tensor([0, 1, 0, 2, 2, 0])
    S = (z / (z.norm(dim=1, keepdim=True) + EPSILON)) @ (past / (past.norm(dim=1, keepdim=True) + EPSILON)).T
    value = previous_loss(z, past, labels, TAU, EPSILON)
    torch.testing.assert_close(value, loop_uniform(S, labels, TAU, EPSILON))
    assert not torch.isclose(value, previous_loss(past, z, labels, TAU, EPSILON))


def test_only_the_partition_by_labels_matters():
    S = cosines()
    for loss in (new_loss, uniform_loss):
        renamed = loss(S, LABELS.double() / 7 + 0.25, TAU, EPSILON)  # mixed labels are fractions
        torch.testing.assert_close(renamed, loss(S, LABELS, TAU, EPSILON))


def test_trap_23_autocast_leaves_everything_in_float32():
    z, f, start = normal(8, 6).bfloat16(), normal(8, 20, seed=1).bfloat16(), torch.tensor([2])
    rough = similarity(z, f, start, 1.0, EPSILON).bfloat16()

    def values(z, f, rough):
        losses = [loss(rough, LABELS, TAU, EPSILON) for loss in (new_loss, uniform_loss)]
        losses.append(previous_loss(z, f[:, :6], LABELS, TAU, EPSILON))
        return [unit(z, EPSILON), similarity(z, f, start, 1.0, EPSILON), *losses]

    plain = values(z.float(), f.float(), rough.float())
    with torch.autocast("cpu", torch.bfloat16):
        under = values(z, f, rough)
    for a, b in zip(plain, under, strict=True):
        assert b.dtype == torch.float32
        assert torch.equal(a, b)


def test_a_feature_of_length_zero_has_a_finite_gradient():
    z, f = torch.zeros(8, 4, requires_grad=True), torch.zeros(8, 9, requires_grad=True)
    new_loss(similarity(z, f, torch.tensor([1]), 1.0, EPSILON), LABELS, TAU, EPSILON).backward()
    assert z.grad.isfinite().all()
    assert f.grad.isfinite().all()


@pytest.mark.parametrize("name", ["ocm", "onpro"])
def test_images_that_cannot_be_rotated_are_refused_before_any_is_learned(name):
    with pytest.raises(InputError, match="square images of even side"):
        Learner(name, num_classes=6).build((3, 16, 20))
