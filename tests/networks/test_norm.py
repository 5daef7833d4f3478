"""The fused normalisation against its plain twin: on a CUDA device, and in Triton's interpreter everywhere."""

import pytest
import torch
from torch import nn

from interpreter import INTERPRETED, assert_holds_interpreted, starts_the_interpreter
from s6mod.errors import InputError
from s6mod.networks import norm
from s6mod.networks.norm import BatchNorm, apart, plain_norm

SHAPES = [
    (2, 3, 4, 5),  # channels are no power of two
    (1, 1, 2, 4),
    (3, 70, 2, 2),  # two blocks of channels, the second not full
    (5, 64, 4, 4),  # 80 rows of 64: five blocks of 16 for three programs
]


def layer(channels, relu, device, dtype=torch.float32):
    made = BatchNorm(channels, relu).to(device, dtype)
    random = torch.Generator().manual_seed(channels)
    with torch.no_grad():
        for tensor, shift in ((made.weight, 1), (made.bias, 0), (made.running_mean, 0), (made.running_var, 2)):
            tensor.copy_(0.5 * torch.rand(channels, generator=random) + shift)
    return made


def inputs(shape, device, dtype=torch.float32):
    """A map far from 0 compared with its spread, a shortcut, and a gradient."""
    random = torch.Generator().manual_seed(sum(shape))
    x, shortcut, dy = (torch.randn(shape, generator=random) for _ in range(3))
    return [t.to(device, dtype).contiguous(memory_format=torch.channels_last) for t in (x + 5, shortcut, dy)]


def outcome(forward, made, x, shortcut, dy):
    """Output, gradients, and moving averages afterwards."""
    x = x.clone().requires_grad_()
    shortcut = None if shortcut is None else shortcut.clone().requires_grad_()
    y = forward(x, shortcut)
    given = {"x": x, "weight": made.weight, "bias": made.bias} | ({} if shortcut is None else {"shortcut": shortcut})
    gradients = torch.autograd.grad(y, tuple(given.values()), dy)
    moving = {"running_mean": made.running_mean, "running_var": made.running_var, "count": made.num_batches_tracked}
    return {"y": y, **dict(zip(given, gradients, strict=True)), **moving}


def one_by_one(made, parts):
    """Passes of their own for equal parts of what comes."""

    def forward(x, shortcut):
        shortcuts = [None] * parts if shortcut is None else shortcut.chunk(parts)
        return torch.cat([made(*given) for given in zip(x.chunk(parts), shortcuts, strict=True)])

    return forward


def plain(made):
    return lambda x, shortcut: plain_norm(made, x, shortcut)


@pytest.fixture
def no_plain_norm(monkeypatch):
    """``BatchNorm`` must take the kernels."""
    monkeypatch.setattr(norm, "plain_norm", lambda *_: pytest.fail("the kernels were not chosen"))


@pytest.fixture
def few_programs(device, monkeypatch):
    """A few rows are several blocks, and several of those a program's."""
    monkeypatch.setattr("s6mod.networks.norm_triton.SUMS", (1024, 3, 4))
    monkeypatch.setattr("s6mod.networks.norm_triton.JOINT_SUMS", (1024, 9, 4))  # three for each of three parts
    for writes in ("WRITES", "JOINT_WRITES"):
        monkeypatch.setattr(f"s6mod.networks.norm_triton.{writes}", (1024, 4))


@starts_the_interpreter
def test_everything_here_holds_in_the_interpreter(tmp_path):
    assert_holds_interpreted(__file__, tmp_path)


@pytest.mark.skipif(INTERPRETED, reason="needs no kernels")
def test_a_single_value_cannot_be_normalised():
    made = layer(4, True, "cpu")
    with pytest.raises(InputError, match="batches of two"):
        made(torch.ones(1, 4, 1, 1))
    with apart(made, 2), pytest.raises(InputError, match="batches of two"):
        made(torch.ones(2, 4, 1, 1))
    made.eval()(torch.ones(1, 4, 1, 1))


@pytest.mark.skipif(INTERPRETED, reason="needs no kernels")
class TestApart:
    @pytest.mark.parametrize("with_shortcut", [True, False])
    @pytest.mark.parametrize("relu", [True, False])
    @pytest.mark.parametrize("parts", [2, 3])
    def test_parts_are_normalised_as_if_they_had_come_one_after_the_other(self, parts, relu, with_shortcut):
        joint, alone = (layer(4, relu, "cpu", torch.float64) for _ in range(2))
        x, shortcut, dy = inputs((6, 4, 3, 3), "cpu", torch.float64)
        x[:2] *= 3  # so that statistics of all images together would be others
        shortcut = shortcut if with_shortcut else None
        with apart(joint, parts):
            ours = outcome(joint, joint, x, shortcut, dy)
        for name, theirs in outcome(one_by_one(alone, parts), alone, x, shortcut, dy).items():
            torch.testing.assert_close(ours[name], theirs, msg=name)
        assert joint.num_batches_tracked == parts

    def test_in_eval_mode_there_is_nothing_to_keep_apart(self):
        made = layer(4, True, "cpu").eval()
        x, shortcut, _ = inputs((6, 4, 3, 3), "cpu")
        expected = made(x, shortcut)
        with apart(made, 2):
            torch.testing.assert_close(made(x, shortcut), expected)
        assert made.num_batches_tracked == 0

    def test_it_ends_with_the_pass_however_that_ends(self):
        network = nn.Sequential(layer(4, True, "cpu"), nn.Sequential(layer(4, False, "cpu")))
        norms = [network[0], network[1][0]]
        with apart(network, 2):
            assert [norm.parts for norm in norms] == [2, 2]
        assert [norm.parts for norm in norms] == [1, 1]
        with pytest.raises(ZeroDivisionError), apart(network, 3):
            raise ZeroDivisionError
        assert [norm.parts for norm in norms] == [1, 1]

    def test_batches_that_are_no_equal_parts_are_an_error(self):
        made = layer(4, True, "cpu")
        with apart(made, 2), pytest.raises(AssertionError, match="5 images are no 2 equal parts"):
            made(torch.rand(5, 4, 3, 3))

    def test_a_normalisation_that_knows_no_parts_is_refused_and_nothing_set(self):
        network = nn.Sequential(layer(4, True, "cpu"), nn.BatchNorm2d(4))
        with pytest.raises(InputError, match=r"got a BatchNorm2d; .* joint_views = False"), apart(network, 2):
            pytest.fail("it was taken")
        assert network[0].parts == 1


@pytest.mark.skipif(INTERPRETED, reason="needs no kernels")
@pytest.mark.parametrize("relu", [True, False])
def test_it_is_what_pytorch_has_one_after_the_other(relu):
    made, usual = layer(4, relu, "cpu"), nn.BatchNorm2d(4)
    usual.load_state_dict(made.state_dict())
    x, shortcut, _ = inputs((2, 4, 3, 3), "cpu")
    for training in (True, False):
        made.train(training), usual.train(training)
        expected = usual(x) + shortcut
        assert torch.equal(made(x, shortcut), expected.relu() if relu else expected)
        assert torch.equal(made(x), usual(x).relu() if relu else usual(x))
    assert torch.equal(made.running_mean, usual.running_mean)
    assert torch.equal(made.running_var, usual.running_var)


def like_plain(shape, relu, with_shortcut, device, dtype, tolerance, gradient_tolerance=None, parts=1):
    """A few of millions of values lie so near to 0 that float32 finds them on the ReLU's other side."""
    x, shortcut, dy = inputs(shape, device, dtype)
    shortcut = shortcut if with_shortcut else None
    made, exact = layer(shape[1], relu, device), layer(shape[1], relu, device, torch.float64)
    wide = [None if t is None else t.double() for t in (x, shortcut, dy)]
    with apart(made, parts), apart(exact, parts):
        ours, exactly = outcome(made, made, x, shortcut, dy), outcome(plain(exact), exact, *wide)
    for name, theirs in exactly.items():
        assert ours[name].shape == theirs.shape
        is_gradient = name in ("x", "shortcut", "weight", "bias")
        allowed = gradient_tolerance if gradient_tolerance and is_gradient else tolerance
        assert (ours[name] - theirs).double().norm() <= allowed * theirs.double().norm() + 1e-6, name


@pytest.mark.usefixtures("no_plain_norm", "few_programs")
@pytest.mark.parametrize("with_shortcut", [True, False])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_gradients_and_moving_averages_are_those_of_the_plain_version(shape, relu, with_shortcut, device):
    like_plain(shape, relu, with_shortcut, device, torch.float32, 2e-5)


@pytest.mark.usefixtures("no_plain_norm", "few_programs")
@pytest.mark.parametrize("with_shortcut", [True, False])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize(("shape", "parts"), [((4, 3, 4, 5), 2), ((3, 20, 9, 7), 3)], ids=str)
def test_parts_that_are_apart_are_those_of_the_plain_version(shape, parts, relu, with_shortcut, device, monkeypatch):
    monkeypatch.setattr("s6mod.networks.norm_triton.COLUMNS", 16)  # so that 20 are two blocks, the second not full
    like_plain(shape, relu, with_shortcut, device, torch.float32, 2e-5, parts=parts)


@pytest.mark.usefixtures("no_plain_norm", "few_programs")
@pytest.mark.parametrize(("relu", "with_shortcut"), [(True, True), (True, False), (False, True)])
def test_parts_that_are_apart_have_every_bit_of_passes_one_after_the_other(relu, with_shortcut, device):
    x, shortcut, dy = inputs((3, 20, 13, 7), device)  # 91 rows of 20 each: three blocks of 32
    shortcut = shortcut if with_shortcut else None
    joint, alone = (layer(20, relu, device) for _ in range(2))
    with apart(joint, 3):
        ours = outcome(joint, joint, x, shortcut, dy)
    theirs = outcome(one_by_one(alone, 3), alone, x, shortcut, dy)
    for name in ours.keys() - {"weight", "bias"}:
        assert torch.equal(ours[name], theirs[name]), name
    for name in ("weight", "bias"):  # which autograd adds from the last pass to the first
        torch.testing.assert_close(ours[name], theirs[name])


@pytest.mark.usefixtures("few_programs")
@pytest.mark.parametrize("with_shortcut", [True, False])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_in_eval_mode_values_are_rounded_as_those_of_the_plain_version(shape, relu, with_shortcut, device):
    from s6mod.networks.norm_triton import settled_norm

    made = layer(shape[1], relu, device).eval()
    x, shortcut, _ = inputs(shape, device, torch.float16)  # the interpreter cuts bfloat16 off instead of rounding
    shortcut = shortcut if with_shortcut else None
    with torch.inference_mode():
        ours, theirs = settled_norm(made, x, shortcut), plain_norm(made, x, shortcut)
    assert torch.equal(ours, theirs) if INTERPRETED else (ours - theirs).norm() <= 1e-3 * theirs.norm()


@pytest.mark.usefixtures("no_plain_norm")
def test_in_eval_mode_predictions_take_the_kernel(device):
    made = layer(4, True, device).eval()
    x, shortcut, _ = inputs((2, 4, 3, 3), device, torch.bfloat16)
    with torch.inference_mode():
        y = made(x, shortcut)
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert made.num_batches_tracked == 0


def test_in_eval_mode_what_a_step_looks_at_is_left_to_the_plain_version(device, monkeypatch):
    made = layer(4, True, device).eval()
    monkeypatch.setattr(norm, "plain_norm", lambda *_: "plain")
    x, _, _ = inputs((2, 4, 3, 3), device, torch.bfloat16)
    assert made(x) == "plain"
    with torch.no_grad():
        assert made(x) == "plain"
    with torch.inference_mode():
        assert made(x.float()) == "plain"  # whose last bits cuDNN makes otherwise


def test_a_map_that_lies_otherwise_in_memory_is_left_to_the_plain_version(device):
    made, twin = layer(4, True, device), layer(4, True, device)
    x = inputs((2, 4, 3, 3), device)[0].contiguous()
    assert torch.equal(made(x), plain_norm(twin, x, None))


# --- sizes as in training, on a CUDA device only --------------------------------------------------------------


@pytest.mark.gpu
class TestOnCuda:
    @pytest.mark.usefixtures("no_plain_norm")
    @pytest.mark.parametrize("with_shortcut", [True, False])
    @pytest.mark.parametrize(
        "shape", [(74, 64, 32, 32), (384, 128, 16, 16), (74, 512, 4, 4), (999, 256, 8, 8)], ids=str
    )
    def test_values_and_gradients_are_those_of_the_plain_version(self, shape, with_shortcut):
        like_plain(shape, True, with_shortcut, "cuda", torch.float32, 2e-5, gradient_tolerance=2e-3)

    @pytest.mark.usefixtures("no_plain_norm")
    @pytest.mark.parametrize("with_shortcut", [True, False])
    @pytest.mark.parametrize("shape", [(148, 64, 32, 32), (148, 512, 4, 4)], ids=str)
    def test_two_views_at_once_are_those_of_the_plain_version(self, shape, with_shortcut):
        like_plain(shape, True, with_shortcut, "cuda", torch.float32, 2e-5, gradient_tolerance=2e-3, parts=2)

    @pytest.mark.usefixtures("no_plain_norm")
    @pytest.mark.parametrize("with_shortcut", [True, False])
    def test_bfloat16_is_as_near_as_its_rounding(self, with_shortcut):
        like_plain((74, 128, 16, 16), True, with_shortcut, "cuda", torch.bfloat16, 4e-3)

    @pytest.mark.parametrize("with_shortcut", [True, False])
    @pytest.mark.parametrize("shape", [(500, 64, 64, 64), (100, 512, 8, 8)], ids=str)
    def test_predictions_in_bfloat16_are_those_of_the_plain_version(self, shape, with_shortcut):
        made = layer(shape[1], True, "cuda").eval()
        x, shortcut, _ = inputs(shape, "cuda", torch.bfloat16)
        shortcut = shortcut if with_shortcut else None
        with torch.inference_mode():
            ours, theirs = made(x, shortcut), plain_norm(made, x, shortcut)
        assert (ours.float() - theirs.float()).norm() <= 1e-3 * theirs.float().norm()

    def test_the_same_bits_come_twice(self):
        made = layer(64, True, "cuda")
        state = {name: value.clone() for name, value in made.state_dict().items()}
        first = {k: v.clone() for k, v in outcome(made, made, *inputs((200, 64, 16, 16), "cuda")).items()}
        made.load_state_dict(state)
        for name, value in outcome(made, made, *inputs((200, 64, 16, 16), "cuda")).items():
            assert torch.equal(first[name], value), name
