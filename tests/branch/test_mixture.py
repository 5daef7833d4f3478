import pytest
import torch

from s6mod.branch.mixture import Gate, Patterns, note_means

B, D, E, K, R, L = 6, 5, 4, 4, 3, 7


@pytest.fixture
def x_hat():
    return torch.randn(B, L, D, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def gate():
    torch.manual_seed(1)
    return Gate(D, E)


def counts(*values):
    return torch.tensor(values)


def test_logits_are_a_linear_layer_on_the_mean_over_positions(gate, x_hat):
    logits, _ = gate(x_hat, counts(1, 1, 2, 2, 3, 4))
    torch.testing.assert_close(logits, gate.linear(x_hat.mean(1)))


def test_exactly_the_wanted_number_of_the_largest_patterns_is_kept(gate, x_hat):
    count = counts(1, 1, 2, 2, 3, 4)
    logits, weights = gate(x_hat, count)
    for sample in range(B):
        kept = logits[sample].topk(int(count[sample])).indices
        expected = torch.zeros(E)
        expected[kept] = logits[sample, kept].softmax(0)
        torch.testing.assert_close(weights[sample], expected)
        assert (weights[sample] > 0).sum() == count[sample]


def test_equal_logits_still_keep_exactly_the_wanted_number(gate, x_hat):
    torch.nn.init.zeros_(gate.linear.weight)
    torch.nn.init.ones_(gate.linear.bias)
    _, weights = gate(x_hat, counts(1, 2, 3, 4, 1, 2))
    assert (weights > 0).sum(1).tolist() == [1, 2, 3, 4, 1, 2]


def test_a_leaky_gate_leaves_dropped_patterns_exp_zero(x_hat):
    torch.manual_seed(1)
    gate = Gate(D, E, leaky=True)
    logits, weights = gate(x_hat, counts(*[2] * B))
    kept = torch.zeros(B, E).scatter(1, logits.topk(2).indices, 1.0)
    expected = torch.where(kept > 0, logits.exp(), 1.0)
    torch.testing.assert_close(weights, expected / expected.sum(1, keepdim=True))


def test_a_noisy_gate_disturbs_selection_and_weights_but_not_the_logits(x_hat):
    torch.manual_seed(1)
    gate = Gate(D, E, noisy=True)
    count = counts(*[2] * B)
    calm_logits, calm = gate(x_hat, count)
    logits, weights = gate(x_hat, count, explore=True, generator=torch.Generator().manual_seed(2))
    assert torch.equal(logits, calm_logits)

    draw = torch.randn(B, E, generator=torch.Generator().manual_seed(2))
    mean = x_hat.mean(1)
    disturbed = logits + draw * torch.nn.functional.softplus(gate.noise(mean))
    top = disturbed.topk(2)
    torch.testing.assert_close(weights, torch.zeros(B, E).scatter(1, top.indices, top.values.softmax(1)))
    assert not torch.equal(weights, calm)


def test_the_noise_comes_from_the_given_generator_alone(x_hat):
    gate = Gate(D, E, noisy=True)
    before = torch.get_rng_state()
    gate(x_hat, counts(*[2] * B), explore=True, generator=torch.Generator().manual_seed(2))
    assert torch.equal(torch.get_rng_state(), before)


def test_gradients_reach_the_gate_and_the_size_of_the_noise(x_hat):
    gate = Gate(D, E, noisy=True)
    _, weights = gate(x_hat, counts(*[3] * B), explore=True, generator=torch.Generator().manual_seed(2))
    weights[:, 0].sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in gate.parameters())


def test_delta_is_the_weighted_sum_of_the_patterns_of_each_direction():
    patterns = Patterns(D, R, E).double()
    x_hat = torch.randn(B, L, D, dtype=torch.float64)
    weights = torch.rand(B, E, dtype=torch.float64)
    expected = torch.zeros(B, L, K, R, dtype=torch.float64)
    for b in range(B):
        for k in range(K):
            for i in range(E):
                expected[b, :, k] += weights[b, i] * (x_hat[b] @ patterns.weight[i, :, k])
    torch.testing.assert_close(patterns(x_hat, weights), expected)


def test_means_are_noted_where_they_shall_be():
    count, weights = torch.tensor([1.0, 2.0, 2.0, 4.0]), torch.rand(4, E, requires_grad=True)
    mean_count, mean_weights = torch.zeros(()), torch.zeros(E)
    note_means(count, weights, mean_count, mean_weights)
    assert mean_count == 2.25
    torch.testing.assert_close(mean_weights, weights.detach().mean(0))
    assert not mean_weights.requires_grad
