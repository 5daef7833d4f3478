import torch

from s6mod.augment import ChainConfig, DistillationChain, to_float
from s6mod.augment.chain import to_uint8


def images():
    return torch.randint(256, (20, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def seeded():
    return torch.Generator().manual_seed(1)


def test_each_view_is_made_of_the_one_before_it():
    chain, replay = DistillationChain(ChainConfig(), (32, 32)), seeded()
    x0, x1, x2, x3 = chain(images(), seeded())
    assert torch.equal(x0, to_float(images()))
    assert torch.equal(x1, chain.crop(images(), replay))
    assert torch.equal(to_uint8(x2), chain.rand_augment((x1 * 255.999).to(torch.uint8), replay))
    assert torch.equal(to_uint8(x3), chain.rand_augment(to_uint8(x2), replay))  # with draws of its own
    for view in (x0, x1, x2, x3):
        assert view.dtype == torch.float32
        assert view.min() >= 0
        assert view.max() <= 1


def test_floats_enter_the_chain_as_they_are():
    x = to_float(images()) * 0.9
    chain = DistillationChain(ChainConfig(), (32, 32))
    x0, x1, *_ = chain(x, seeded())
    assert torch.equal(x0, x)
    assert torch.equal(x1, chain.crop(x, seeded()))


def test_the_first_step_crops_a_little_flips_and_leaves_colours_alone():
    crop = DistillationChain(ChainConfig(), (32, 32)).crop
    params = crop.draw(4000, (32, 32), seeded(), torch.device("cpu"))
    area = params.box[:, 2:].prod(1) / 32**2
    assert 0.55 < area.min() < 0.62
    assert area.max() > 0.9
    assert 0.45 < params.flip.float().mean() < 0.55
    assert not params.jitter.any()
    assert not params.grey.any()


def test_floats_become_levels_by_truncation():
    levels = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(to_uint8(to_float(levels)), levels)
    assert to_uint8(torch.tensor([0.0, 0.0039, 0.00391, 0.5, 1.0])).tolist() == [0, 0, 1, 127, 255]
