from typing import Literal

import pytest
import torch
from fakes import Duo
from states import assert_same_tree

from s6mod import Learner
from s6mod.augment import to_float
from s6mod.errors import ConfigError
from s6mod.learner.config import LearnerConfig
from s6mod.methods import Losses, methods
from s6mod.methods.base import Chain
from s6mod.methods.er import ER, ERConfig
from s6mod.methods.mose import MOSE
from s6mod.methods.pairs import pair


def run(learner, start, stop):
    """Tasks of two steps and two new classes each, the boundary after the second step."""
    for position in range(start, stop):
        random = torch.Generator().manual_seed(position)
        first = 2 * (position // 2)
        learner.learn(
            torch.randint(256, (2, 3, 8, 8), generator=random, dtype=torch.uint8), torch.tensor([first, first + 1])
        )
        if position % 2:
            learner.end_task()
    return learner


def test_a_method_without_chain_weights_is_refused_wherever_it_is_asked_for():
    for ask in (
        lambda: pair(MOSE),
        lambda: pair(Duo),
        lambda: Learner("mose-ccldc", num_classes=4),
        lambda: LearnerConfig.parse({"method": {"name": "mose-ccldc"}, "num_classes": 4}),
    ):
        with pytest.raises(ConfigError, match=r"expected a method that declares chain weights .* use it alone"):
            ask()
    with pytest.raises(ConfigError, match="got 'er-ccldc', which has none"):
        Learner("er-ccldc-ccldc", num_classes=4)
    with pytest.raises(ConfigError, match="expected a known method, got 'err-ccldc'; did you mean 'er-ccldc'"):
        Learner("err-ccldc", num_classes=4)


class MineConfig(ERConfig):
    name: Literal["mine"] = "mine"
    augment: None = None


class Mine(ER):
    """A method of somebody else's: plain images, a penalty, and a coupling of its own."""

    config_class = MineConfig
    chain = Chain(own=2.0, views=0.1, kd=0.3, base={"memory_batch": 5, "optimizer": {"lr": 0.01}})

    def __init__(self, config, image_shape, num_classes):
        super(ER, self).__init__(config, image_shape, num_classes)
        self.augment = lambda images, generator: self.prepare(images)

    def losses(self, peer, views, memory, generator):
        own = super().losses(peer, views, memory, generator)
        return Losses(own.terms | {"size": own.tap.logits.square().mean()}, own.tap, carry="kept")

    def couple(self, peers, views, losses):
        assert [loss.carry for loss in losses] == ["kept", "kept"]
        return [Losses({**loss.terms, "gap": loss.terms["size"] - 1}, loss.tap, loss.carry) for loss in losses]

    def commit(self, carries):
        assert carries == ["kept", "kept"]


def test_anybodys_method_is_paired_by_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(methods, "_parts", {**methods._parts, "mine": Mine})
    pair(Mine)
    config = methods.configure("mine-ccldc")
    assert (config.memory_batch, config.optimizer.lr, config.optimizer.weight_decay) == (5, 0.01, 1e-4)
    learner = Learner({"name": "mine-ccldc", "network": {"width": 2}}, num_classes=6, memory_size=12)
    losses = run(learner, 0, 3).losses()
    learner.save(tmp_path)
    assert losses.keys() == {f"net{n}/{term}" for n in (1, 2) for term in ("ce", "size", "gap", "chain", "kd")}
    assert losses["net1/gap"] == pytest.approx(losses["net1/size"] - 2, abs=1e-5)  # its own terms weigh 2
    assert_same_tree(run(learner, 3, 4).state_dict(), run(Learner.load(tmp_path), 3, 4).state_dict())
    assert pair(Mine) is methods["mine-ccldc"]  # as often as one likes


def test_a_method_that_prepares_pixels_in_its_own_way_is_refused():
    class Normalised(Mine):
        def prepare(self, images):
            return to_float(images) - 0.5

    with pytest.raises(ConfigError, match="takes pixels as floats in"):
        pair(Normalised)


def test_a_wrong_default_is_refused_when_the_pair_is_made():
    class Wrong(Mine):
        chain = Chain(own=1.0, views=1.0, kd=1.0, base={"optimizer": {"learning_rate": 1.0}})

    with pytest.raises(ConfigError, match=r"got 'optimizer.learning_rate'"):
        pair(Wrong)
