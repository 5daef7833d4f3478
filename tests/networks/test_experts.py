import math

import pytest
import torch
from torch import nn

from s6mod.errors import ConfigError
from s6mod.networks import ExpertsConfig, ExpertsResNet18
from s6mod.networks.depthwise import Depthwise
from s6mod.networks.experts import Attention, down
from s6mod.networks.norm import BatchNorm


def small(size=16, num_classes=5, width=4):
    torch.manual_seed(0)
    return ExpertsResNet18(ExpertsConfig(width=width), (3, size, size), num_classes)


@pytest.fixture(scope="module")
def full():
    return ExpertsResNet18(ExpertsConfig(), (3, 32, 32), 10)


def test_the_published_number_of_parameters_less_the_layer_that_nobody_uses(full):
    parameters = sum(p.numel() for p in full.parameters())
    assert parameters == 12_623_976
    assert round((parameters + 2048 * 10 + 10) / 1e6, 1) == 12.6
    for classes, published in ((100, 13.0), (200, 13.4)):
        with_unused = parameters + (classes - 10) * 4 * 513 + 2048 * classes + classes
        assert round(with_unused / 1e6, 1) == published


def test_the_published_number_of_multiplications(full):
    count = 0

    def add(module, inputs, output):
        nonlocal count
        fan_in = module.weight[0].numel()
        count += fan_in * output.numel()

    hooks = [m.register_forward_hook(add) for m in full.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    with torch.inference_mode():
        full.eval()(torch.rand(1, 3, 32, 32))
    for hook in hooks:
        hook.remove()
    assert round(count / 1e9, 2) == 0.58


def test_convolutions_start_kaiming_normal_by_fan_out_the_depthwise_ones_very_small(full):
    for module in full.modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 4000:
            std = math.sqrt(2 / (module.out_channels * module.kernel_size[0] ** 2))
            assert module.weight.std().item() == pytest.approx(std, rel=0.05)
    depthwise = full.alignments[2][0][0]  # the first of Down(256 -> 512)
    assert depthwise.weight.shape == (256, 1, 3, 3)
    assert depthwise.weight.std().item() == pytest.approx(math.sqrt(2 / (9 * 256)), rel=0.06)


def test_normalisations_start_neutral_and_linear_layers_as_by_default(full):
    for module in full.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all()
            assert (module.bias == 0).all()
        if isinstance(module, nn.Linear):
            assert module.weight.abs().max().item() == pytest.approx(512**-0.5, rel=0.02)
            assert module.bias.abs().max() > 0


@pytest.mark.parametrize(("size", "map_size"), [(32, 4), (16, 2), (64, 8), (28, 4), (8, 1)])
def test_every_expert_has_a_feature_of_the_same_size(size, map_size):
    network = small(size)
    out = network(torch.rand(2, 3, size, size))
    assert out.feature_map.shape == (2, 32, map_size, map_size)
    assert out.features.shape == (2, 4, 32)
    assert out.expert_logits.shape == (2, 4, 5)
    assert out.projections.shape == (2, 4, 128)
    assert out.student.shape == (2, 32)
    assert (network.map_channels, network.map_size) == (32, (map_size, map_size))


def test_the_deepest_expert_reads_the_last_map_as_it_is():
    network = small(64).eval()
    out = network(torch.rand(3, 3, 64, 64))
    deepest = out.feature_map.mean((2, 3))
    torch.testing.assert_close(out.features[:, 3], deepest)
    torch.testing.assert_close(out.logits, network.heads[3](deepest))
    assert torch.equal(out.logits, out.expert_logits[:, 3])
    torch.testing.assert_close(out.student, network.adaptation(deepest))


def test_a_shallow_expert_weighs_its_stage_and_brings_it_down():
    network, x = small().eval(), torch.rand(3, 3, 16, 16)
    second = network.stages[1](network.stages[0](network.stem(x)))
    weights = nn.Upsample(scale_factor=2, mode="bilinear")(network.attentions[1].weigh(second))
    by_hand = network.alignments[1](second * torch.sigmoid(weights)).mean((2, 3))
    out = network(x)
    torch.testing.assert_close(out.features[:, 1], by_hand)
    torch.testing.assert_close(out.expert_logits[:, 1], network.heads[1](by_hand))
    torch.testing.assert_close(out.projections[:, 1], network.projections[1](by_hand))
    assert [len(alignment) for alignment in network.alignments] == [3, 2, 1]


def test_down_is_two_separable_convolutions_at_half_the_size():
    kinds = [(type(m), getattr(m, "groups", None), getattr(m, "stride", None)) for m in down(6, 12)]
    separable = [(nn.Conv2d, 1, (1, 1)), (BatchNorm, None, None)]  # a BatchNorm ends in a ReLU
    assert kinds == [(Depthwise, 6, (2, 2)), *separable, (Depthwise, 6, (1, 1)), *separable]
    assert all(module.bias is None for module in down(6, 12) if isinstance(module, nn.Conv2d))
    assert down(6, 12)(torch.rand(2, 6, 8, 8)).shape == (2, 12, 4, 4)


def test_an_attention_that_says_nothing_halves_its_map():
    attention, x = Attention(3), torch.rand(2, 3, 8, 8)
    nn.init.zeros_(attention.weigh[1].weight)
    torch.testing.assert_close(attention(x), x / 2)


def test_shallow_experts_teach_the_trunk_below_them():
    network = small()
    network(torch.rand(4, 3, 16, 16)).features[:, 0].sum().backward()
    assert network.stem[0].weight.grad.abs().sum() > 0
    assert network.stages[0][1].conv2.weight.grad.abs().sum() > 0
    assert network.stages[1][0].conv1.weight.grad.abs().sum() == 0


def test_heads_stay_in_full_precision():
    with torch.autocast("cpu", torch.bfloat16):
        out = small()(torch.rand(2, 3, 16, 16))
    assert out.feature_map.dtype == torch.bfloat16
    assert {t.dtype for t in out[1:]} == {torch.float32}


def test_another_pooling_is_refused():
    with pytest.raises(ConfigError, match="pooling"):
        ExpertsConfig.parse({"pooling": "window"})
