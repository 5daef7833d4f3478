import pickle
from typing import Literal

import pytest
import torch
from fakes import Duo
from states import assert_same_tree

from learners import small
from s6mod import Learner
from s6mod.augment import to_float
from s6mod.errors import ConfigError
from s6mod.learner.config import LearnerConfig
from s6mod.methods import Losses, OptimizerConfig, methods
from s6mod.methods.ccldc import CCLDC, CollaborationConfig, KDWeight, OwnWeight, ViewsWeight
from s6mod.methods.er import ER, ERConfig
from s6mod.methods.mose import MOSE
from s6mod.methods.pairs import ERCCLDC
from s6mod.runs.cells import parse


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


# --- the published pairs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "sizes"), [("er-ace", [2 + 2, 3 + 2, 3 + 2]), ("der++", [2, 2 + 2, 3 + 2, 3 + 2])])
def test_the_chain_of_er_ace_is_memory_and_stream_and_that_of_der_what_its_cross_entropies_see(name, sizes):
    learner, chains = small(f"{name}-ccldc"), []
    learner.build((3, 8, 8))
    learner.method.make_chain.register_forward_pre_hook(lambda _, args: chains.append(len(args[0])))
    run(learner, 0, 4)
    assert chains == sizes


def test_the_chain_of_er_ace_compares_all_classes_although_its_own_terms_do_not():
    learner = run(small("er-ace-ccldc"), 0, 2)  # two of six classes have been seen
    for peer in learner.peers:
        assert peer.network.head.weight.grad[2:].any()


def test_a_pair_by_der_compares_each_network_with_its_own_stored_logits():
    learner = run(small("der++-ccldc", method={"logit_weight": 1.0}), 0, 4)
    stored = learner.memory.values["logits"][:8]
    assert stored.shape == (8, 2, 6)
    assert not torch.equal(stored[:, 0], stored[:, 1])
    rows = torch.tensor([4, 1])
    for peer, z in zip(learner.peers, (stored[rows, 0], stored[rows, 1]), strict=True):
        assert torch.equal(learner.method.stored(learner.memory, rows, peer), z)


def test_a_pair_by_der_stores_what_each_network_said_of_the_stream():
    learner, said = small("der++-ccldc"), []
    learner.build((3, 8, 8))
    for peer in learner.peers:
        peer.network.register_forward_hook(lambda _, args, out: said.append(out.logits.detach()))
    run(learner, 0, 1)  # the stream's pass, then four of the chain, for each network
    assert torch.equal(learner.memory.values["logits"][:2], torch.stack([said[0], said[5]], 1))


def test_a_cell_names_the_pair_by_der_alone_and_with_a_branch():
    assert (parse("der++-ccldc/digits").method, parse("der++-ccldc/digits").branch) == ("der++-ccldc", "none")
    assert parse("der++-ccldc+s6mod/digits").learner == "der++-ccldc+s6mod"


@pytest.mark.parametrize(
    ("name", "own", "views", "kd"),
    [("er", 0.5, 0.5, 2), ("er-ace", 0.5, 0.5, 2), ("der++", 0.5, 0.5, 2), ("ocm", 1, 0.25, 4), ("onpro", 1, 0.25, 1)],
)
def test_a_pair_has_weights_of_its_own_and_a_change_of_one_keeps_the_others(name, own, views, kd):
    def weights(collaboration):
        found = methods.configure({"name": f"{name}-ccldc", "collaboration": collaboration}).collaboration
        return found.own_weight, found.views_weight, found.kd_weight

    assert weights({}) == (own, views, kd)
    assert weights({"own_weight": 3}) == (3, views, kd)
    assert weights({"views_weight": 3}) == (own, 3, kd)
    assert weights({"kd_weight": 3}) == (own, views, 3)
    for weight in ("own_weight", "views_weight", "kd_weight"):
        with pytest.raises(ConfigError, match=rf"'collaboration.{weight}': input should be greater than or equal to 0"):
            weights({weight: -1})


@pytest.mark.parametrize("name", ["er", "er-ace", "der++", "ocm", "onpro"])
def test_a_pair_has_the_options_of_its_method_and_the_collaboration(name):
    alone, both = (methods.configure(each).plain() for each in (name, f"{name}-ccldc"))
    assert [*alone, "collaboration"] == list(both)
    changed = {"name", "optimizer", "mse_target"} if name == "ocm" else {"name"}
    assert {key for key in alone if alone[key] != both[key]} == changed


@pytest.mark.parametrize("name", ["er", "ocm", "onpro"])
def test_the_classes_of_a_pair_and_its_options_are_found_by_their_names(name):
    pair = methods[f"{name}-ccldc"]
    config = methods.configure({"name": f"{name}-ccldc", "collaboration": {"kd_weight": 7.0}})
    assert pickle.loads(pickle.dumps(pair)) is pair
    there = pickle.loads(pickle.dumps(config))
    assert there == config
    assert type(there.collaboration) is type(config.collaboration)


def test_a_pair_that_nobody_wrote_is_not_known():
    for ask in (
        lambda: Learner("mose-ccldc", num_classes=4),
        lambda: LearnerConfig.parse({"method": {"name": "mose-ccldc"}, "num_classes": 4}),
    ):
        with pytest.raises(ConfigError, match=r"expected a known method, got 'mose-ccldc'; did you mean '\w+-ccldc'"):
            ask()
    with pytest.raises(ConfigError, match="expected a known method, got 'err-ccldc'; did you mean 'er-ccldc'"):
        Learner("err-ccldc", num_classes=4)


# --- a pair of one's own --------------------------------------------------------------------------------------


class MineConfig(ERConfig):
    name: Literal["mine"] = "mine"
    augment: None = None


class Mine(ER):
    """A method of somebody else's: plain images, a penalty, a coupling and a table of its own."""

    config_class = MineConfig
    memory_free = frozenset({"head", "doubled"})

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

    def scores(self, outputs, reference):
        tables = super().scores(outputs, reference)
        return tables | {"doubled": 2 * tables["head"]}


class MineCollaborationConfig(CollaborationConfig):
    own_weight: OwnWeight = 2.0
    views_weight: ViewsWeight = 0.1
    kd_weight: KDWeight = 0.3


class MineOptimizerConfig(OptimizerConfig):
    lr: float = 0.01


class MineCCLDCConfig(MineConfig):
    name: Literal["mine-ccldc"] = "mine-ccldc"
    memory_batch: int = 5
    optimizer: MineOptimizerConfig = MineOptimizerConfig()
    collaboration: MineCollaborationConfig = MineCollaborationConfig()


class MineCCLDC(CCLDC, Mine):
    config_class = MineCCLDCConfig

    def chain_batch(self, views):
        return views.images, views.targets.labels


def test_anybodys_method_is_paired_by_a_class(monkeypatch, tmp_path):
    monkeypatch.setattr(methods, "_parts", dict(methods._parts))
    methods.register("mine-ccldc")(MineCCLDC)
    config = methods.configure({"name": "mine-ccldc", "optimizer": {"eps": 1e-6}, "collaboration": {"kd_weight": 0.4}})
    assert (config.memory_batch, config.optimizer.lr, config.optimizer.weight_decay) == (5, 0.01, 1e-4)
    assert (config.collaboration.own_weight, config.collaboration.kd_weight) == (2.0, 0.4)
    learner = Learner({"name": "mine-ccldc", "network": {"width": 2}}, num_classes=6, memory_size=12)
    losses = run(learner, 0, 3).losses()
    learner.save(tmp_path)
    assert losses.keys() == {f"net{n}/{term}" for n in (1, 2) for term in ("ce", "size", "gap", "chain", "kd")}
    assert losses["net1/gap"] == pytest.approx(losses["net1/size"] - 2, abs=1e-5)  # its own terms weigh 2
    assert learner.method.memory_free == {"head", "doubled", "net1", "net2"}
    assert_same_tree(run(learner, 3, 4).state_dict(), run(Learner.load(tmp_path), 3, 4).state_dict())


@pytest.mark.parametrize("method", [MOSE, Duo, Mine])
def test_a_pair_that_does_not_say_what_its_chain_starts_from_is_refused(method):
    with pytest.raises(
        ConfigError, match=r"^expected Pair to say in chain_batch .*; write it, or use the method alone$"
    ):

        class Pair(CCLDC, method):
            config_class = MineCCLDCConfig


def test_a_method_that_prepares_pixels_in_its_own_way_is_refused():
    class Normalised(Mine):
        def prepare(self, images):
            return to_float(images) - 0.5

    for method in (Normalised, MOSE):
        with pytest.raises(ConfigError, match=r"^expected a method whose network takes pixels as floats in \[0, 1\]"):

            class Pair(CCLDC, method):
                config_class = MineCCLDCConfig
                chain_batch = MineCCLDC.chain_batch


def test_a_method_that_stands_before_the_pair_is_refused():
    """Its own steps would be taken, without a chain."""
    with pytest.raises(
        ConfigError, match=r"^expected CCLDC before the method among the bases of Pair, got Mine, CCLDC;"
    ):

        class Pair(Mine, CCLDC):
            config_class = MineCCLDCConfig
            chain_batch = MineCCLDC.chain_batch


def test_a_pair_without_weights_is_refused():
    with pytest.raises(
        ConfigError, match=r"^expected the option collaboration in MineConfig for Pair, got none; add it"
    ):

        class Pair(CCLDC, Mine):
            chain_batch = MineCCLDC.chain_batch

    class ForgetfulConfig(MineConfig):
        collaboration: CollaborationConfig = None

    with pytest.raises(ConfigError, match=r"^expected a value for 'collaboration.own_weight', got none; set it$"):
        ForgetfulConfig.parse({"collaboration": {}})


def test_a_pair_is_not_paired_again_and_may_be_a_base_of_another():
    with pytest.raises(TypeError, match="MRO"):

        class Again(CCLDC, ERCCLDC):
            pass

    class Softer(ERCCLDC):
        pass

    assert Softer.memory_free == ERCCLDC.memory_free == {"head", "net1", "net2"}
