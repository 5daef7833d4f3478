import pytest
import torch

from s6mod.augment import KorniaAugment, KorniaAugmentConfig, TransformLayers, TransformLayersConfig, unaugmented


@pytest.mark.parametrize(
    "augment",
    [KorniaAugment(KorniaAugmentConfig()), TransformLayers(TransformLayersConfig())],
    ids=["kornia", "layers"],
)
def test_unaugmented_images_are_as_they_are_and_nothing_is_drawn(augment):
    random = torch.Generator().manual_seed(0)
    before = random.get_state()
    x = torch.arange(2 * 3 * 8 * 8, dtype=torch.uint8).view(2, 3, 8, 8)
    with unaugmented():
        assert torch.equal(augment(x, random), x / 255)
        floats = x / 255
        view = augment(floats, random)
        assert torch.equal(view, floats)
        assert view.data_ptr() != floats.data_ptr()
    assert torch.equal(random.get_state(), before)
    assert not torch.equal(augment(x, random), x / 255)
