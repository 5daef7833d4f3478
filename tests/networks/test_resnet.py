import pytest
import torch

from s6mod.errors import InputError
from s6mod.networks import NetworkConfig, ResNet18


def parameters(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_trunk_has_the_published_number_of_parameters():
    network = ResNet18(NetworkConfig(), (3, 32, 32), 100)
    assert parameters(network) - parameters(network.head) == 11_168_832
    assert network.head.weight.shape == (100, 512)


@pytest.mark.parametrize(
    ("size", "pooling", "features", "map_size"),
    [
        (32, "window", 64, (4, 4)),
        (64, "window", 256, (8, 8)),  # 2x2 windows, flattened
        (64, "global", 64, (8, 8)),
        (16, "window", 64, (2, 2)),  # the map is smaller than the window
        (28, "window", 64, (4, 4)),
        (48, "window", 64, (6, 6)),  # the windows would leave a border out
    ],
)
def test_pooling(size, pooling, features, map_size):
    network = ResNet18(NetworkConfig(width=8, pooling=pooling), (3, size, size), 5).eval()
    out = network(torch.rand(2, 3, size, size))
    assert out.feature_map.shape == (2, 64, *map_size)
    assert out.features.shape == (2, features)
    assert out.logits.shape == (2, 5)
    assert (network.map_channels, network.map_size, network.num_features) == (64, map_size, features)


def test_window_pooling_averages_each_window():
    network = ResNet18(NetworkConfig(width=4), (3, 64, 64), 5).eval()
    out = network(torch.rand(1, 3, 64, 64))
    by_hand = out.feature_map[:, :, 4:, :4].mean((2, 3))  # lower left window
    torch.testing.assert_close(out.features.view(1, 32, 2, 2)[:, :, 1, 0], by_hand)


def test_tiny_images_are_refused():
    with pytest.raises(InputError, match="at least 8x8"):
        ResNet18(NetworkConfig(width=4), (3, 4, 4), 5)
