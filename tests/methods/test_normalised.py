import numpy as np
import pytest
import torch

from s6mod.augment import to_float
from s6mod.errors import ConfigError
from s6mod.methods.normalised import NormalisedConfig, NormalisedMethod


def prepared(x, **options):
    return NormalisedMethod(NormalisedConfig(name="mine", **options), (3, 8, 8), 10).prepare(x)


def test_channels_are_less_their_mean_and_divided_by_their_deviation():
    x = torch.randint(0, 256, (2, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    mean, std = (np.array(values)[:, None, None] for values in ([125.3, 123.0, 113.9], [63.0, 62.1, 66.7]))
    np.testing.assert_allclose(prepared(x), (x.double().numpy() - mean) / std, atol=1e-5)
    assert torch.equal(prepared(x, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)), to_float(x))


def test_figures_come_from_the_configuration_and_not_from_a_checkpoint():
    assert NormalisedMethod(NormalisedConfig(name="mine"), (3, 8, 8), 10).state_dict() == {}


def test_a_deviation_of_zero_is_refused():
    with pytest.raises(ConfigError, match="std"):
        NormalisedConfig.parse({"name": "mine", "std": [0.2, 0.0, 0.2]})
