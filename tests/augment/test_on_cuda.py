import dataclasses

import pytest
import torch

from s6mod.augment import KorniaAugment, rotate16, rotate16_labels, to_float
from s6mod.augment.kornia_like import plain_view

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

CPU = torch.device("cpu")


def noise(batch):
    return torch.rand((batch, 3, 32, 32), generator=torch.Generator().manual_seed(9))


@pytest.mark.parametrize("view", [KorniaAugment().apply, plain_view])
def test_the_same_parameters_give_the_same_view_as_on_the_cpu(generator, view):
    augment, x = KorniaAugment(), noise(64)
    for _ in range(24):
        params = augment.draw(64, (32, 32), generator, CPU)
        there = type(params)(**{f.name: getattr(params, f.name).cuda() for f in dataclasses.fields(params)})
        # Fused multiply-adds round otherwise, and the hue of a pale pixel magnifies that a little.
        torch.testing.assert_close(view(x.cuda(), there).cpu(), plain_view(x, params), rtol=0, atol=5e-5)


def test_a_captured_step_gives_a_fresh_view_at_every_replay_and_the_one_that_eager_gives():
    augment, pixels, labels = KorniaAugment(), (255 * noise(10)).byte().cuda(), torch.arange(10).cuda()
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
