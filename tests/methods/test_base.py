import copy
import itertools
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from torch import nn

from learners import METHODS, run, small
from s6mod.branch.base import Branch, Targets
from s6mod.checks.candidate import flat
from s6mod.errors import InputError
from s6mod.experiments import costs
from s6mod.methods import Peer, Plan, Task, methods
from s6mod.networks import Network, NetworkConfig, ResNet18

FRESH = [{"view": "fresh"}, {"variant": "plus"}, {"view": "fresh", "beta": 0.0, "noisy_gate": True}]


@pytest.mark.parametrize("rows", [torch.tensor([True, False]), torch.tensor([1, 2]).int(), torch.tensor([[1]])])
def test_the_rows_of_a_plan_are_numbers_in_a_line(rows):
    with pytest.raises(
        InputError, match=r"^expected the rows 'replay' of a plan as an int64 tensor .*, got torch\.\w+ of"
    ):
        Plan({"fine": torch.arange(3), "replay": rows})


def test_a_task_with_the_classes_of_a_batch_is_another_and_the_first_stays_as_it_was():
    task = Task(2, 5, [4, 0], [0])
    assert task.with_classes(torch.tensor([3, 4, 3, 1])) == Task(2, 5, [4, 0, 3, 1], [0, 4, 3, 1])
    assert task == Task(2, 5, [4, 0], [0])


# --- a fresh view -----------------------------------------------------------------------------------------------


def two_passes(peer):
    """The plain twin of ``look``: each view has a pass of its own."""

    def look(view, targets, fresh):
        out, second = peer.network(view), peer.network(fresh()).feature_map
        return out, replace(peer.tap(out, targets, fresh), again=lambda: second)

    peer.look = look


# Steps in proportion to gradients: Adam's own would turn the rounding of a gradient near 0 into a whole step.
OPTIMIZER = {"lr": 0.01, "eps": 0.1}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *itertools.product(["er", "er-ccldc"], FRESH),
        *itertools.product(
            ["ocm", "onpro", "ocm-ccldc", "onpro-ccldc", "finetune", "er-ace", "er-lwf", "der", "agem"], FRESH[:1]
        ),
    ],
    ids=str,
)
def test_a_step_with_both_views_in_one_pass_is_that_with_two_passes(name, options):
    joint, twin = (small(name, {"name": "s6mod", **options}, {"optimizer": OPTIMIZER}) for _ in range(2))
    joint.build((3, 16, 16))
    passed = count_images(joint)
    for position in range(4):  # two tasks
        twin.load_state_dict(copy.deepcopy(joint.state_dict()))  # builds it anew, so that rounding does not add up
        for peer in twin.peers:
            two_passes(peer)
        passed_alone = count_images(twin)
        passed.clear()
        for learner in (joint, twin):
            run(learner, position, position + 1, side=16)
        stored_only = name.startswith("er") and position == 0
        assert sum(passed) == sum(passed_alone)
        assert len(passed) == len(passed_alone) - (not stored_only)
        assert joint.losses() == pytest.approx(twin.losses(), rel=1e-4, abs=1e-5)
        assert_states_near(joint.state_dict(), twin.state_dict())


@pytest.mark.parametrize("name", [name for name in METHODS if methods[name].has_logits])
def test_the_table_of_costs_says_who_puts_both_views_through_one_pass(name):
    passes = []
    for view in ("shared", "fresh"):
        learner = small(name, {"name": "s6mod", "view": view})
        learner.build((3, 16, 16))
        sizes = count_images(learner)
        run(learner, 0, 3, side=16)
        passes.append(len(sizes))
    assert (passes[0] == passes[1]) is costs._table()["methods"][name].get("joint_views", False)


def count_images(learner):
    """Of each pass of the first network, in a list that grows."""
    network, sizes = learner.peers[0].network, []

    def count(module, args):
        if module is network:  # a teacher is a copy of it, with its hooks
            sizes.append(len(args[0]))

    network.register_forward_pre_hook(count)
    return sizes


def assert_states_near(ours, theirs):
    ours, theirs = flat(ours), flat(theirs)
    assert ours.keys() == theirs.keys()
    for path, leaf in theirs.items():
        if not isinstance(leaf, torch.Tensor):
            assert ours[path] == leaf, path
        elif not leaf.is_floating_point():
            assert torch.equal(ours[path], leaf), path
        else:
            assert (ours[path] - leaf).norm() <= 1e-3 * leaf.norm() + 1e-6, path


class Curious(Branch):
    """Looks at as many views as it is told, and says so or not."""

    def __init__(self, says_so):
        super().__init__()
        self.says_so = says_so

    @property
    def wants_fresh_view(self):
        return self.says_so


class Looked:
    """A peer that has looked at four images, each view of them brighter than the one before."""

    def __init__(self, branch, network=None):
        torch.manual_seed(0)
        self.peer = Peer(network or ResNet18(NetworkConfig(width=2), (3, 8, 8), 5), branch)
        self.passes, self.drawn = [], 0
        self.peer.network.register_forward_pre_hook(lambda _, args: self.passes.append(args[0]))
        self.images = torch.rand(4, 3, 8, 8)
        self.out, self.tap = self.peer.look(self.images, Targets(torch.arange(4)), self.fresh)

    def fresh(self):
        self.drawn += 1
        return self.images + self.drawn


@pytest.mark.parametrize("branch", [None, Curious(False)], ids=["none", "shared"])
def test_without_a_wish_for_it_no_fresh_view_is_drawn_before_it_is_asked_for(branch):
    looked = Looked(branch)
    assert [len(images) for images in looked.passes] == [4]
    assert looked.drawn == 0
    assert looked.tap.feature_map is looked.out.feature_map
    looked.tap.again()
    assert torch.equal(looked.passes[1], looked.images + 1)


def test_a_fresh_view_that_was_wanted_is_handed_out_once_and_then_others_are_drawn():
    looked, plain = Looked(Curious(True)), Looked(None)
    assert len(looked.passes) == looked.drawn == 1
    assert torch.equal(looked.passes[0], torch.cat([looked.images, looked.images + 1]))
    for ours, theirs in zip(looked.out, plain.out, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert looked.tap.feature_map is looked.out.feature_map
    assert looked.tap.logits is looked.out.logits
    for views in (1, 2, 3):
        torch.testing.assert_close(looked.tap.again(), plain.tap.again())
        assert looked.drawn == len(looked.passes) == plain.drawn == views
    for (name, ours), theirs in zip(looked.peer.named_buffers(), plain.peer.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, msg=name)


class Told(NamedTuple):
    """An output of one's own, with more in it than others ask for."""

    feature_map: torch.Tensor
    features: torch.Tensor
    logits: torch.Tensor
    stages: list[torch.Tensor]


class Talkative(ResNet18):
    def forward(self, images):
        return Told(*super().forward(images), stages=[images])


def test_a_network_with_a_pass_of_its_own_keeps_it_and_what_it_adds_to_an_output():
    torch.manual_seed(0)
    looked = Looked(Curious(True), Talkative(NetworkConfig(width=2), (3, 8, 8), 5))
    assert [len(images) for images in looked.passes] == [4]
    assert looked.out.stages == [looked.images]
    assert looked.tap.again().shape == looked.out.feature_map.shape


class Brighter:
    def forward(self, images):
        return super().forward(images + 1)


class Mixed(Brighter, ResNet18):
    pass


class Heir(Talkative):
    pass


@pytest.mark.parametrize(("network", "joint"), [(ResNet18, True), (Talkative, False), (Heir, False), (Mixed, False)])
def test_who_has_or_inherits_a_pass_of_its_own_takes_no_part_in_joint_ones(network, joint):
    assert network.joint_views is joint


def test_a_network_without_a_pass_says_what_it_lacks():
    images = torch.zeros(1, 3, 8, 8)
    with pytest.raises(NotImplementedError, match="expected a trunk or a forward in Network, got neither"):
        Network()(images)
    with pytest.raises(NotImplementedError, match="expected a read beside the trunk in Half, got none"):
        type("Half", (Network,), {"trunk": lambda self, images: images})()(images)


class Read(ResNet18):
    def read(self, feature_map):
        return Told(*super().read(feature_map), stages=[feature_map])


def test_what_a_network_reads_from_a_map_is_read_from_that_of_the_base_view():
    torch.manual_seed(0)
    looked = Looked(Curious(True), Read(NetworkConfig(width=2), (3, 8, 8), 5))
    assert [len(images) for images in looked.passes] == [8]
    assert looked.out.stages == [looked.out.feature_map]
    assert len(looked.out.feature_map) == len(looked.tap.again()) == 4


class Foreign(ResNet18):
    """Its samples meet in a layer that knows no parts."""

    joint_views = False

    def __init__(self):
        super().__init__(NetworkConfig(width=2), (3, 8, 8), 5)
        self.stem[1] = nn.BatchNorm2d(2)


def test_a_network_whose_samples_meet_elsewhere_takes_a_fresh_view_in_a_pass_of_its_own():
    looked = Looked(Curious(True), Foreign())
    assert (len(looked.passes), looked.drawn) == (1, 0)
    looked.tap.again()
    assert [len(images) for images in looked.passes] == [4, 4]
