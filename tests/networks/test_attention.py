"""The attention's kernels against their plain twin: on a CUDA device, and in Triton's interpreter everywhere."""

import pytest
import torch
from torch.nn import functional as F

from interpreter import (
    INTERPRETED,
    assert_holds_interpreted,
    compiled,
    starts_the_interpreter,
)
from s6mod.networks import attention
from s6mod.networks.attention import attend, plain_attend

SHAPES = [
    (2, 3, 4, 6),  # channels are no power of two
    (1, 1, 1, 1),
    (1, 2, 2, 7),
    (2, 70, 3, 2),  # two blocks of channels, the second not full
    (1, 4, 9, 8),
    (1, 2, 31, 33),
]


@pytest.fixture
def no_plain_attend(monkeypatch):
    """``attend`` must take the kernels."""
    monkeypatch.setattr(attention, "plain_attend", lambda *_: pytest.fail("the kernels were not chosen"))


def inputs(shape, device, dtype=torch.float32):
    """A map, weights of half its size, and a gradient."""
    random = torch.Generator().manual_seed(sum(shape))
    half = (*shape[:2], *(-(-side // 2) for side in shape[2:]))
    made = (torch.randn(each, generator=random).to(device, dtype) for each in (shape, half, shape))
    return [each.contiguous(memory_format=torch.channels_last) for each in made]


def outcome(forward, x, weights, dy):
    """Output and gradients."""
    x, weights = x.clone().requires_grad_(), weights.clone().requires_grad_()
    y = forward(x, weights)
    return dict(zip(("y", "x", "weights"), (y, *torch.autograd.grad(y, (x, weights), dy)), strict=True))


def like_plain(shape, device, dtype, tolerance):
    given = inputs(shape, device, dtype)
    ours = outcome(attend, *given)
    for name, theirs in outcome(plain_attend, *(each.double() for each in given)).items():
        assert ours[name].shape == theirs.shape
        assert ours[name].dtype == dtype
        assert (ours[name] - theirs).norm() <= tolerance * theirs.norm(), name


@starts_the_interpreter
def test_everything_here_holds_in_the_interpreter(tmp_path):
    assert_holds_interpreted(__file__, tmp_path)


@pytest.mark.skipif(INTERPRETED, reason="needs no kernels")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_what_pytorch_has_one_after_the_other(shape):
    def by_hand(x, weights):
        return x * F.interpolate(weights, x.shape[2:], mode="bilinear", align_corners=False).sigmoid()

    given = inputs(shape, "cpu")
    ours, theirs = outcome(attend, *given), outcome(by_hand, *given)
    for name in theirs:
        assert torch.equal(ours[name], theirs[name]), name


@pytest.mark.usefixtures("no_plain_attend")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients_are_those_of_the_plain_version(shape, device):
    like_plain(shape, device, torch.float32, 2e-6)


@pytest.mark.usefixtures("no_plain_attend")
def test_autocast_changes_nothing(device):
    given = inputs((2, 3, 4, 6), device, torch.bfloat16)
    expected = outcome(attend, *given)
    with torch.autocast(device.type, torch.bfloat16):
        ours = outcome(attend, *given)
    for name in expected:
        assert ours[name].dtype == torch.bfloat16
        assert torch.equal(ours[name], expected[name]), name


@pytest.mark.parametrize("other", ["memory", "type", "size"])
def test_what_does_not_suit_the_kernels_is_left_to_the_plain_version(other, device):
    x, weights, _ = inputs((2, 3, 4, 6), device)
    weights = {"memory": weights.contiguous(), "type": weights.bfloat16(), "size": weights[:, :, :1]}[other]
    assert torch.equal(attend(x, weights), plain_attend(x, weights))


# --- sizes as in training, on a CUDA device only --------------------------------------------------------------


@pytest.mark.gpu
class TestOnCuda:
    @pytest.mark.usefixtures("no_plain_attend")
    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 4e-3)], ids=str)
    @pytest.mark.parametrize("shape", [(371, 64, 32, 32), (384, 256, 8, 8), (99, 96, 15, 17)], ids=str)
    def test_values_and_gradients_are_those_of_the_plain_version(self, shape, dtype, tolerance):
        like_plain(shape, "cuda", dtype, tolerance)

    def test_the_same_bits_come_twice(self):
        given = inputs((200, 64, 16, 16), "cuda")
        first, second = outcome(attend, *given), outcome(attend, *given)
        for name in first:
            assert torch.equal(first[name], second[name]), name

    def test_another_batch_size_compiles_nothing(self):
        from s6mod.networks import attention_triton

        outcome(attend, *inputs((384, 64, 32, 32), "cuda", torch.bfloat16))
        before = compiled(attention_triton)
        for batch in (1, 2, 16, 37, 371):
            outcome(attend, *inputs((batch, 64, 32, 32), "cuda", torch.bfloat16))
        assert compiled(attention_triton) == before > 0
