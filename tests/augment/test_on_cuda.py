import dataclasses

import pytest
import torch

from s6mod.augment import KorniaAugment, TransformLayers, rotate16, rotate16_labels, to_float
from s6mod.augment import transform_layers as layers
from s6mod.augment.kornia_like import plain_view

pytestmark = pytest.mark.gpu

CPU = torch.device("cpu")


def noise(batch):
    return torch.rand((batch, 3, 32, 32), generator=torch.Generator().manual_seed(9))


def to_cuda(params):
    return type(params)(**{f.name: getattr(params, f.name).cuda() for f in dataclasses.fields(params)})


@pytest.mark.parametrize("view", [KorniaAugment().apply, plain_view])
def test_the_same_parameters_give_the_same_view_as_on_the_cpu(generator, view):
    augment, x = KorniaAugment(), noise(64)
    for _ in range(24):
        params = augment.draw(64, (32, 32), generator, CPU)
        # Fused multiply-adds round otherwise, and the hue of a pale pixel magnifies that a little.
        torch.testing.assert_close(view(x.cuda(), to_cuda(params)).cpu(), plain_view(x, params), rtol=0, atol=5e-5)


@pytest.mark.parametrize("view", [TransformLayers().apply, layers.plain_view])
def test_the_same_parameters_give_the_same_transform_as_on_the_cpu(generator, view):
    params, x = TransformLayers().draw(1184, (32, 32), generator, CPU), 4 * noise(1184) - 2
    expected = layers.plain_view(x, params)
    for layout in (torch.contiguous_format, torch.channels_last):
        there = x.cuda().contiguous(memory_format=layout)
        torch.testing.assert_close(view(there, to_cuda(params)).cpu(), expected, rtol=0, atol=1e-5)


def test_the_transform_is_repeated_bit_by_bit_by_the_same_generator():
    x = noise(1500).cuda()
    first, second = (TransformLayers()(x, torch.Generator("cuda").manual_seed(3)) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("augment", [KorniaAugment(), TransformLayers()])
def test_a_captured_step_gives_a_fresh_view_at_every_replay_and_the_one_that_eager_gives(augment):
    pixels, labels = (255 * noise(10)).byte().cuda(), torch.arange(10).cuda()
    generator = torch.Generator("cuda")

    def step():
        return augment(rotate16(to_float(pixels)), generator), rotate16_labels(labels, 1000)

    def eager(seed):
        generator.manual_seed(seed)
        return [step()[0].clone() for _ in range(3)]

    expected = eager(seed=5)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):  # capture refuses whatever would wait for the device
        view, pseudo_labels = step()
    generator.manual_seed(5)
    for one in expected:
        graph.replay()
        torch.testing.assert_close(view, one, rtol=0, atol=1e-6)
    assert not torch.equal(expected[0], expected[1])
    assert torch.equal(pseudo_labels.cpu(), rotate16_labels(labels.cpu(), 1000))
