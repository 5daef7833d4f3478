"""A learner with a module that somebody brought as its network."""

import copy
import json
import threading

import pytest
import torch
from states import assert_same_tree
from torch import nn

import learners
from s6mod import Learner
from s6mod.engine.checkpoint import Snapshot
from s6mod.errors import CheckpointError, ConfigError, InputError
from s6mod.learner import LearnerConfig
from s6mod.learner.check import takes_modules
from s6mod.learner.classes import FIRST_CAPACITY
from s6mod.methods import methods

S6MOD = {"name": "s6mod", "view": "fresh"}
TAKING = [name for name in learners.METHODS if takes_modules(methods[name])]
SINGLE = [name for name in TAKING if methods[name].num_peers == 1]
ANNOUNCED = list(range(100, 100 + FIRST_CAPACITY - 2))  # the second batch of ``named`` finds no output left


def mapped(width=4):
    """(N, 3, 8, 8) -> (N, width, 4, 4)."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU())


def pooled(width=4):
    """(N, 3, 8, 8) -> (N, width), as image models without their classifier answer."""
    return nn.Sequential(mapped(width), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def small(network, name="er", branch=None, **options):
    return learners.small(name, branch, network=network, **options)


def named(learner, start, stop):
    """Two classes a batch that nobody announced."""
    for position in range(start, stop):
        learner.learn(learners.batch(position, (0,))[0], [f"class {position}", position])
    return learner


@pytest.mark.parametrize("branch", [None, S6MOD], ids=["alone", "s6mod"])
@pytest.mark.parametrize("make", [mapped, pooled])
def test_a_module_that_makes_a_map_or_features_learns(make, branch):
    learner = learners.run(small(make(), branch=branch), 0, 4)
    network = learner.peers[0].network
    assert (network.map_channels, network.map_size) == (4, (4, 4) if make is mapped else (1, 1))
    begun, now = make().state_dict(), network.body.state_dict()
    assert not any(torch.equal(now[name], begun[name]) for name in begun)
    assert learner.predict(learners.batch(0, (0,))[0]).shape == (2,)


def test_logits_are_those_of_a_linear_head_on_the_mean_of_the_map():
    learner = learners.run(small(mapped()), 0, 1)
    network, images = learner.peers[0].network.eval(), torch.rand(5, 3, 8, 8)
    out = network(images)
    assert torch.equal(out.feature_map, network.body(images))
    torch.testing.assert_close(out.features, network.body(images).mean((2, 3)))
    assert torch.equal(out.logits, network.head(out.features))


def test_the_module_that_was_given_stays_as_it_was():
    module = mapped().eval()
    before, random = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    learner = learners.run(small(module), 0, 2)
    assert_same_tree(dict(module.state_dict()), dict(before))
    assert not module.training
    assert all(parameter.grad is None for parameter in module.parameters())
    assert torch.equal(torch.get_rng_state(), random)
    nn.init.zeros_(module[0].weight)  # nor does the learner follow what becomes of it
    assert_same_tree(learner.state_dict(), learners.run(small(mapped()), 0, 2).state_dict())


def test_the_learner_begins_with_the_weights_and_statistics_that_came():
    module = mapped()
    nn.init.constant_(module[1].running_mean, 7)
    learner = small(module)
    learner.build((3, 8, 8))
    assert_same_tree(dict(module.state_dict()), dict(learner.peers[0].network.body.state_dict()))


def test_parameters_that_are_frozen_stay():
    module = mapped().requires_grad_(False)
    learner = learners.run(small(module, average=0.9), 0, 3)
    assert torch.equal(learner.peers[0].network.body[0].weight, module[0].weight)


@pytest.mark.parametrize("name", [*SINGLE, "er-ccldc"])
def test_every_method_but_mose_takes_it_and_resumes_to_the_bit(tmp_path, name):
    straight = learners.run(small(mapped(), name), 0, 4)
    learners.run(small(mapped(), name), 0, 3).save(tmp_path)
    resumed = learners.run(Learner.load(tmp_path, network=nn.Sequential(*mapped())), 3, 4)
    assert_same_tree(straight.state_dict(), resumed.state_dict())
    assert straight.predict(learners.batch(0, (0,))[0]).shape == (2,)


def test_the_networks_of_a_pair_are_copies_of_their_own():
    one, other = (peer.network for peer in learners.run(small(mapped(), "er-ccldc"), 0, 3).peers)
    assert not torch.equal(one.body[0].weight, other.body[0].weight)


def growing(**options):
    return small(mapped(), num_classes=None, classes=ANNOUNCED, **options)


def test_it_grows_and_resumes_to_the_bit_across_growth(tmp_path):
    options = {"branch": {"name": "s6mod"}, "average": 0.9, "statistics": "memory"}
    straight = named(growing(**options), 0, 3)
    assert straight.parts.capacity == 2 * FIRST_CAPACITY
    named(growing(**options), 0, 1).save(tmp_path)
    resumed = named(Learner.load(tmp_path, network=mapped()), 1, 3)
    assert_same_tree(straight.state_dict(), resumed.state_dict())
    assert straight.predict(learners.batch(0, (0,))[0])[0] in straight.classes_


def test_growing_keeps_what_the_module_has_learned():
    learner = named(growing(), 0, 1)
    before = copy.deepcopy(learner.peers[0].network.body.state_dict())
    learner._grow(learner.parts, 2 * FIRST_CAPACITY)
    assert_same_tree(dict(before), dict(learner.peers[0].network.body.state_dict()))


def test_the_preset_takes_one_too():
    learner = Learner(network=pooled(), memory_size=20)
    learner.learn(*learners.batch(0, (0, 1), size=4))
    assert learner.predict(learners.batch(0, (0,))[0]).shape == (2,)


def test_a_copy_of_the_learner_has_the_module():
    learner = learners.run(small(mapped()), 0, 2)
    assert_same_tree(learner.state_dict(), copy.deepcopy(learner).state_dict())


def test_the_configuration_says_that_one_was_brought_and_holds_no_module():
    config = small(mapped()).config
    assert json.loads(json.dumps(config.plain()))["network"] == "Sequential"
    with pytest.raises(ConfigError, match="the Sequential that this learner was made with, got none; give it as net"):
        Learner.from_config(LearnerConfig.parse(config.plain()))


def test_bytes_of_the_module_are_counted():
    learner, wider = (learners.run(small(mapped(width)), 0, 2) for width in (4, 8))
    own = sum(t.numel() * t.element_size() for t in learner.own.network.state_dict().values())
    assert learner.nbytes == learner.parts.nbytes + own < wider.nbytes


def loading(folder, network=None):
    with pytest.raises(CheckpointError) as refused:
        Learner.load(folder, network=network)
    return str(refused.value)


def test_loading_says_in_a_sentence_what_does_not_fit(tmp_path):
    learners.run(small(mapped()), 0, 2).save(tmp_path)
    assert "got none; use Learner.load(" in loading(tmp_path)
    assert "got a Sequential with '0.weight', (5, 3, 3, 3) in place of (4, 3, 3, 3);" in loading(tmp_path, mapped(5))
    assert "got a Sequential without '1.weight';" in loading(tmp_path, nn.Sequential(mapped()[0]))
    longer = nn.Sequential(*mapped(), nn.Conv2d(4, 4, 1))
    assert "got a Sequential with '3.weight', which that one lacks;" in loading(tmp_path, longer)


def test_loading_refuses_a_network_where_none_was_brought(tmp_path):
    learners.run(learners.small("er"), 0, 1).save(tmp_path)
    assert "which has its method's own, got a Sequential; leave it out" in loading(tmp_path, mapped())


def test_one_that_has_learned_nothing_is_saved_and_loaded(tmp_path):
    small(mapped()).save(tmp_path)
    loaded = learners.run(Learner.load(tmp_path, network=mapped()), 0, 2)
    assert_same_tree(learners.run(small(mapped()), 0, 2).state_dict(), loaded.state_dict())


def test_a_state_of_a_learner_can_be_taken_in_memory():
    learner = learners.run(small(mapped()), 0, 2)
    twin = small(mapped())
    twin.load_state_dict(Snapshot.of(learner.state_dict(), {}).tree())
    assert_same_tree(learner.state_dict(), twin.state_dict())


def test_a_method_whose_network_has_more_refuses_it():
    with pytest.raises(ConfigError, match=r"no network for method 'mose', whose own has more .*; take a method"):
        Learner("mose", network=mapped(), num_classes=4)


def test_a_method_that_changes_its_network_alone_refuses_it():
    class Mine(methods["pcr"]):
        def make_network(self):
            return super().make_network()

    assert takes_modules(methods["pcr"])
    assert not takes_modules(Mine)


@pytest.mark.parametrize("name", ["ocm", "onpro", "pcr", "scr"])
def test_a_method_with_a_head_of_its_own_puts_it_on_the_module(name):
    brought, own = (learners.run(learner, 0, 1) for learner in (small(mapped(), name), learners.small(name)))
    (there,), (here,) = brought.peers, own.peers
    heads = [{part for part, _ in peer.network.named_children()} & {"head", "projection"} for peer in (there, here)]
    assert heads[0] == heads[1]
    assert type(there.network).read is type(here.network).read


class Tokens(nn.Module):
    def forward(self, x):
        return x.flatten(2)  # (N, 3, H W)


class Pair(nn.Module):
    def forward(self, x):
        return x, x


class Squeezed(nn.Sequential):
    def forward(self, x):
        return super().forward(x).squeeze()


class Locked(nn.Sequential):
    def __init__(self):
        super().__init__(mapped())
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("network", "why"),
    [
        (Squeezed(pooled()), r"keeps the axis of a single image, got shape \(4,\) from a Squeezed; take out"),
        (nn.Sequential(mapped(), nn.Dropout(0.5)), "without random draws of its own.* set its dropout to 0"),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(7, 4)),
            r"more of shape \(N, 3, 8, 8\), got a Sequential that does not",
        ),
        (Tokens(), r"features \(2, F\), got shape \(2, 3, 64\) from a Tokens"),
        (Pair(), "got a tuple from a Pair; wrap it"),
    ],
    ids=["squeezed", "draws", "other images", "tokens", "pair"],
)
def test_a_module_that_cannot_serve_is_told_at_the_first_batch(network, why):
    learner = small(network)
    with pytest.raises(InputError, match=why):
        learners.run(learner, 0, 1)
    assert (learner.image_shape, learner.steps) == (None, 0)


def test_one_image_where_its_normalisation_wants_more_is_told():
    learner = small(nn.Sequential(pooled(), nn.BatchNorm1d(4)), "finetune")
    with pytest.raises(InputError, match=r"more than one image for a step of this network, got one \(ValueError: Exp"):
        learner.learn(*learners.batch(0, (0,), size=1))


@pytest.mark.parametrize(
    ("network", "why"),
    [
        (nn.ReLU, "an nn.Module as network, got <class"),
        (nn.LazyLinear(3), "a LazyLinear with lazy ones; run it once"),
        (Locked(), r"can be copied, got a Locked that cannot \(TypeError: .*lock.*\); leave out"),
    ],
)
def test_what_is_no_module_with_weights_is_told_when_the_learner_is_made(network, why):
    with pytest.raises(ConfigError, match=why):
        Learner(network=network)
