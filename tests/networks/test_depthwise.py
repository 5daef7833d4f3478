"""The depthwise convolution's kernels against their plain twin: on a CUDA device, and in Triton's interpreter."""

import pytest
import torch
from torch import nn

from interpreter import (
    INTERPRETED,
    assert_holds_interpreted,
    compiled,
    starts_the_interpreter,
)
from s6mod.networks import depthwise
from s6mod.networks.depthwise import Depthwise, plain_depthwise

SHAPES = [
    (2, 3, 4, 5),  # channels are no power of two
    (1, 1, 1, 1),
    (1, 2, 1, 7),
    (3, 70, 3, 2),  # two blocks of channels, the second not full
    (3, 64, 5, 4),  # several blocks for each of three programs
]


@pytest.fixture
def no_plain_depthwise(monkeypatch):
    """``Depthwise`` must take the kernels."""
    monkeypatch.setattr(depthwise, "plain_depthwise", lambda *_: pytest.fail("the kernels were not chosen"))


def layer(channels, stride, device):
    torch.manual_seed(channels)
    return Depthwise(channels, stride).to(device)


def normal(shape, device, dtype=torch.float32, seed=0):
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)
    return tensor.contiguous(memory_format=torch.channels_last)


def outcome(forward, x, weight):
    """Output and gradients."""
    x = x.clone().requires_grad_()
    y = forward(x)
    dy = normal(y.shape, y.device, torch.bfloat16, seed=1).to(y.dtype)  # the same numbers in every type
    return dict(zip(("y", "x", "weight"), (y, *torch.autograd.grad(y, (x, weight), dy)), strict=True))


def like_plain(shape, stride, device, dtype, tolerance):
    made, x = layer(shape[1], stride, device), normal(shape, device, dtype)
    weight = made.weight.detach().double().requires_grad_()
    ours = outcome(made, x, made.weight)
    for name, theirs in outcome(lambda wide: plain_depthwise(wide, weight, stride), x.double(), weight).items():
        assert ours[name].shape == theirs.shape
        assert ours[name].dtype == (torch.float32 if name == "weight" else dtype)
        assert (ours[name] - theirs).norm() <= tolerance * theirs.norm(), name


@starts_the_interpreter
def test_everything_here_holds_in_the_interpreter(tmp_path):
    assert_holds_interpreted(__file__, tmp_path)


@pytest.mark.skipif(INTERPRETED, reason="needs no kernels")
@pytest.mark.parametrize("stride", [1, 2])
def test_it_is_the_convolution_that_pytorch_has_with_the_same_start_and_the_same_state(stride):
    made = layer(4, stride, "cpu")
    torch.manual_seed(4)
    usual = nn.Conv2d(4, 4, 3, stride, 1, groups=4, bias=False)
    assert torch.equal(made.weight, usual.weight)
    assert made.state_dict().keys() == usual.state_dict().keys() == {"weight"}
    ours, theirs = (outcome(each, normal((2, 4, 5, 6), "cpu"), each.weight) for each in (made, usual))
    for name in theirs:
        assert torch.equal(ours[name], theirs[name]), name


@pytest.mark.usefixtures("no_plain_depthwise")
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients_are_those_of_the_plain_version(shape, stride, device, monkeypatch):
    monkeypatch.setattr("s6mod.networks.depthwise_triton.PROGRAMS", 3)
    like_plain(shape, stride, device, torch.float32, 1e-5)


@pytest.mark.usefixtures("no_plain_depthwise")
def test_autocast_rounds_the_map_but_not_the_weights(device):
    made, x = layer(1, 1, device), normal((1, 1, 1, 2), device) * 0 + (1 + 2**-9)  # bfloat16 takes that for 1
    made.weight.data.zero_()[0, 0, 1] = torch.tensor([-1, 1 + 2**-9, 0])
    with torch.autocast(device.type, torch.bfloat16):
        y = made(x)
    assert y.dtype == torch.bfloat16
    assert y[0, 0, 0, 1] == 2**-9
    y.sum().backward()
    assert made.weight.grad.dtype == torch.float32
    assert made.weight.grad[0, 0, 1].tolist() == [1, 2, 1]


def test_a_map_that_lies_otherwise_in_memory_is_left_to_the_plain_version(device):
    made, x = layer(4, 1, device), normal((2, 4, 3, 3), device).contiguous()
    assert torch.equal(made(x), plain_depthwise(x, made.weight, 1))


# --- sizes as in training, on a CUDA device only --------------------------------------------------------------


@pytest.mark.gpu
class TestOnCuda:
    @pytest.mark.usefixtures("no_plain_depthwise")
    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 4e-3)], ids=str)
    @pytest.mark.parametrize(
        ("shape", "stride"),
        [
            *(((371, 64, 32, 32), 2), ((384, 256, 8, 8), 1), ((384, 256, 8, 8), 2), ((37, 512, 4, 4), 1)),
            *(((99, 96, 15, 17), 1), ((99, 96, 15, 17), 2)),
        ],
        ids=str,
    )
    def test_values_and_gradients_are_those_of_the_plain_version(self, shape, stride, dtype, tolerance):
        like_plain(shape, stride, "cuda", dtype, tolerance)

    @pytest.mark.parametrize("stride", [1, 2])
    def test_the_same_bits_come_twice(self, stride):
        made, x = layer(64, stride, "cuda"), normal((200, 64, 16, 16), "cuda")
        first, second = outcome(made, x, made.weight), outcome(made, x, made.weight)
        for name in first:
            assert torch.equal(first[name], second[name]), name

    def test_another_batch_size_compiles_nothing(self):
        from s6mod.networks import depthwise_triton

        made = layer(64, 2, "cuda")
        outcome(made, normal((384, 64, 32, 32), "cuda", torch.bfloat16), made.weight)
        before = compiled(depthwise_triton)
        for batch in (1, 2, 16, 37, 371):
            outcome(made, normal((batch, 64, 32, 32), "cuda", torch.bfloat16), made.weight)
        assert compiled(depthwise_triton) == before > 0
