"""Each check of ``s6mod.checks`` catches the faults it is there for: small methods, each with one thing wrong."""

import copy
import re
from pathlib import Path
from typing import ClassVar, Literal

import pytest
import torch
from torch.nn import functional as F

from s6mod import checks
from s6mod.branch import branches
from s6mod.branch.base import Branch, BranchConfig, Tap
from s6mod.methods import Losses, methods
from s6mod.methods.er import ER, ERConfig


class FaultyConfig(ERConfig):
    name: Literal["faulty"] = "faulty"


class Faulty(ER):
    """ER under another name; the classes below each break one thing."""

    config_class = FaultyConfig


def with_terms(losses, **terms):
    return Losses({**losses.terms, **terms}, losses.tap, losses.carry)


class LearnsNothing(Faulty):
    def losses(self, peer, views, memory, generator):
        losses = super().losses(peer, views, memory, generator)
        return with_terms(losses, ce=0 * losses.terms["ce"])


class ForgetsABuffer(Faulty):
    """It carries a tensor from step to step that no checkpoint knows of."""

    def __init__(self, *args):
        super().__init__(*args)
        self.scale = torch.ones(())

    def losses(self, peer, views, memory, generator):
        losses = super().losses(peer, views, memory, generator)
        return with_terms(losses, ce=self.scale * losses.terms["ce"])

    def commit(self, carries):
        self.scale = 0.9 * self.scale


class HasAGeneratorOfItsOwn(Faulty):
    def __init__(self, *args):
        super().__init__(*args)
        self.own = torch.Generator().manual_seed(0)

    def draw(self, stream, plan, memory, generator):
        return super().draw(stream, plan, memory, self.own)


class DrawsFromTheProcess(Faulty):
    def draw(self, stream, plan, memory, generator):
        return super().draw(stream, plan, memory, torch.default_generator)


class IgnoresTheSeed(Faulty):
    def make_network(self):
        torch.manual_seed(0)
        return super().make_network()


class StoresTwice(Faulty):
    def plan(self, labels, memory, task, generator):
        memory.place(labels, task.index, generator)
        return super().plan(labels, memory, task, generator)


class GrowsTheMemory(Faulty):
    def draw(self, stream, plan, memory, generator):
        memory.images = torch.cat([memory.images, stream.images])
        return super().draw(stream, plan, memory, generator)


class ChangesTheMemory(Faulty):
    def draw(self, stream, plan, memory, generator):
        memory.images[0] = 0
        return super().draw(stream, plan, memory, generator)


class RelabelsTheMemory(Faulty):
    def draw(self, stream, plan, memory, generator):
        memory.device_labels[0] = 5
        return super().draw(stream, plan, memory, generator)


class KeepsAllImages(Faulty):
    def __init__(self, *args):
        super().__init__(*args)
        self.all = []

    def draw(self, stream, plan, memory, generator):
        self.all.append({"images": stream.images})
        return super().draw(stream, plan, memory, generator)


class UsesTheTask(Faulty):
    def plan(self, labels, memory, task, generator):
        memory.sample(1, generator) if task.index else None
        return super().plan(labels, memory, task, generator)


class UsesTheBoundary(Faulty):
    def end_task(self, peers):
        with torch.no_grad():
            peers[0].network.head.bias.zero_()


class SeesTheWholeStream(Faulty):
    """A batch is often a part of a longer array, which its owner forgets to hide."""

    def plan(self, labels, memory, task, generator):
        for _ in range(0 if labels._base is None else int(labels._base[-1])):
            torch.rand((), generator=generator)
        return super().plan(labels, memory, task, generator)


class KeepsLabelsWithoutACopy(Faulty):
    """Whoever reuses the array of a batch for the next one changes what is kept."""

    kept = None

    def plan(self, labels, memory, task, generator):
        if self.kept is not None and int(self.kept[0]) % 2:
            memory.sample(1, generator)
        self.kept = labels
        return super().plan(labels, memory, task, generator)


class RemembersEarlierRuns(Faulty):
    """It looks up the next labels in what an earlier learner saw."""

    known: ClassVar[dict[int, int]] = {}

    def plan(self, labels, memory, task, generator):
        for _ in range(self.known.get(memory.seen + len(labels), 0)):
            torch.rand((), generator=generator)
        self.known[memory.seen] = int(labels[0])
        return super().plan(labels, memory, task, generator)


class DividesByTheSpread(Faulty):
    """The variance of a single image, 0 / 0, is not a number."""

    def draw(self, stream, plan, memory, generator):
        self.batch = len(stream.labels)
        return super().draw(stream, plan, memory, generator)

    def losses(self, peer, views, memory, generator):
        losses = super().losses(peer, views, memory, generator)
        logits = losses.tap.logits[-self.batch :]
        return with_terms(losses, spread=(logits - logits.mean(0)).square().sum() / (self.batch - 1))


class KnowsTheClassesOfATask(Faulty):
    def plan(self, labels, memory, task, generator):
        self.classes = task.current if task.step == 0 else self.classes
        places = [self.classes.index(label) for label in labels.tolist()]
        return super().plan(labels, memory, task, generator) if places else None


class StopsWhereTheLossIsLarge(Faulty):
    def losses(self, peer, views, memory, generator):
        losses = super().losses(peer, views, memory, generator)
        if losses.terms["ce"] > 100:
            return with_terms(losses, ce=0 * losses.terms["ce"])
        return losses


class IndexesByAMask(Faulty):
    def losses(self, peer, views, memory, generator):
        losses = super().losses(peer, views, memory, generator)
        logits = losses.tap.logits
        return with_terms(losses, large=logits[logits > 0].mean())


class FindsItsRows(Faulty):
    def draw(self, stream, plan, memory, generator):
        self.zeros = (stream.labels == 0).nonzero()
        return super().draw(stream, plan, memory, generator)


class CountsItsClasses(Faulty):
    def commit(self, carries):
        self.classes = torch.zeros(3, dtype=torch.int64).unique()


class RepeatsItsLabels(Faulty):
    def draw(self, stream, plan, memory, generator):
        self.labels = stream.labels.repeat_interleave(stream.labels)
        return super().draw(stream, plan, memory, generator)


class SpreadsItsLabels(Faulty):
    """Its own code looks at nothing; a function of torch does, on a CPU."""

    def losses(self, peer, views, memory, generator):
        losses = super().losses(peer, views, memory, generator)
        return with_terms(losses, spread=F.one_hot(views.targets.labels, self.num_classes).float().mean())


class LooksAtItsGradients(Faulty):
    def gradients(self, peers, carries):
        for parameter in peers[0].network.parameters():
            if parameter.grad.norm() > 1:
                parameter.grad.zero_()


class StoresARowWithoutItsValues(Faulty):
    """It declares a value and only stores the first batch, for which there is none."""

    def values(self):
        return {"size": ()}

    def keep(self, carries):
        return {"size": torch.ones(1)}


class LearnsFromBeingAsked(Faulty):
    def __init__(self, *args):
        super().__init__(*args)
        self.register_buffer("asked", torch.zeros(()))

    def scores(self, outputs, reference):
        self.asked += 1
        return super().scores(outputs, reference)


class ScoresWithoutSense(Faulty):
    def scores(self, outputs, reference):
        tables = super().scores(outputs, reference)
        return {name: F.normalize(0 * table, eps=0) for name, table in tables.items()}


class ScoresSomeClasses(Faulty):
    def scores(self, outputs, reference):
        return {name: table[:, :3] for name, table in super().scores(outputs, reference).items()}


class ReplacesItsNetwork(Faulty):
    """What follows the old network follows nothing."""

    def losses(self, peer, views, memory, generator):
        peer.network = copy.deepcopy(peer.network)
        return super().losses(peer, views, memory, generator)


class DetachesItsTap(Faulty):
    def losses(self, peer, views, memory, generator):
        losses = super().losses(peer, views, memory, generator)
        tap = losses.tap
        return Losses(losses.terms, Tap(tap.feature_map.detach(), tap.logits.detach(), tap.targets, tap.again))


class NeverTrains(Faulty):
    def plan(self, labels, memory, task, generator):
        return None


class FaultyBranchConfig(BranchConfig):
    name: Literal["faulty"] = "faulty"


class LooksAgain(Branch):
    """A fresh view is drawn from the method's generator."""

    config_class = FaultyBranchConfig

    @classmethod
    def build(cls, config, shape):
        return cls()

    def losses(self, tap, generator=None):
        return {"size": tap.again().square().mean()}


@pytest.fixture
def registered(monkeypatch):
    """A function that registers a faulty part; the registries forget it afterwards."""
    for registry in (methods, branches):
        monkeypatch.setattr(registry, "_parts", dict(registry._parts))
    return lambda part: (branches if issubclass(part, Branch) else methods).register("faulty")(part)


FAULTS = [
    (LearnsNothing, checks.check_learns, "reach 90 %"),
    (ForgetsABuffer, checks.check_resumes, "resume as if it had never stopped, got another peers/0/network"),
    (HasAGeneratorOfItsOwn, checks.check_resumes, "resume as if it had never stopped, got another peers/0/network"),
    (DrawsFromTheProcess, checks.check_follows_its_seed, "repeat its trajectory"),
    (IgnoresTheSeed, checks.check_follows_its_seed, "another network with another seed, got the same one"),
    (StoresTwice, checks.check_keeps_to_its_memory, "which offered 2 samples, got 4 offered"),
    (GrowsTheMemory, checks.check_keeps_to_its_memory, r"within \d+ bytes, got \d+"),
    (ChangesTheMemory, checks.check_keeps_to_its_memory, "only samples of the stream"),
    (RelabelsTheMemory, checks.check_keeps_to_its_memory, "only samples of the stream"),
    (KeepsAllImages, checks.check_keeps_to_its_memory, "bytes more"),
    (UsesTheTask, checks.check_declares_boundaries, "end_task is moved"),
    (UsesTheBoundary, checks.check_declares_boundaries, "end_task is moved"),
    (SeesTheWholeStream, checks.check_ignores_the_future, "the batch it is given alone"),
    (KeepsLabelsWithoutACopy, checks.check_ignores_the_future, "the batch it is given alone"),
    (RemembersEarlierRuns, checks.check_ignores_the_future, "the batch it is given alone"),
    (
        DividesByTheSpread,
        checks.check_bears_odd_batches,
        r"stay finite after labels \[3\], got a broken peers",
    ),
    (KnowsTheClassesOfATask, checks.check_bears_odd_batches, r"learn labels \[4, 0\], got ValueError"),
    (
        StopsWhereTheLossIsLarge,
        checks.check_reads_nothing_back,
        "got aten::_local_scalar_dense, .*; decide in plan",
    ),
    (IndexesByAMask, checks.check_reads_nothing_back, "got aten::index by a mask; decide in plan"),
    (FindsItsRows, checks.check_reads_nothing_back, "got aten::nonzero"),
    (CountsItsClasses, checks.check_reads_nothing_back, "got aten::_unique2"),
    (RepeatsItsLabels, checks.check_reads_nothing_back, "got aten::repeat_interleave by a tensor"),
    (LooksAtItsGradients, checks.check_reads_nothing_back, "got aten::_local_scalar_dense"),
    (SpreadsItsLabels, checks.check_reads_nothing_back, r"F\.one_hot"),
    (StoresARowWithoutItsValues, checks.check_bears_odd_batches, r"learn labels \[0, 1\], got InputError.*got none;"),
    (
        LearnsFromBeingAsked,
        checks.check_predicts_without_a_trace,
        "not been asked, got another method/asked",
    ),
    (ScoresWithoutSense, checks.check_predicts_without_a_trace, "finite scores 'head'"),
    (ScoresSomeClasses, checks.check_predicts_without_a_trace, "shape"),
    (ReplacesItsNetwork, checks.check_keeps_an_average, "average can be kept, got another average of 0/network"),
]


@pytest.mark.parametrize(("fault", "check", "sentence"), FAULTS, ids=[fault.__name__ for fault, *_ in FAULTS])
def test_a_faulty_method_is_told_what_is_wrong(registered, fault, check, sentence):
    registered(fault)
    with pytest.raises(AssertionError, match=rf"^expected faulty to .*({sentence})"):
        check("faulty")


def test_a_branch_that_draws_from_the_methods_generator_is_caught(registered):
    registered(LooksAgain)
    with pytest.raises(AssertionError, match=r"^expected er \+ faulty to do as without its branch .*, got another"):
        checks.check_branch_can_be_silenced("er", "faulty")


def test_a_tap_without_gradients_is_caught(registered):
    registered(DetachesItsTap)
    with pytest.raises(AssertionError, match=r"^expected faulty \+ confidence to learn something else with its branch"):
        checks.check_branch_reaches_the_network("faulty", "confidence")


def test_a_method_that_only_stores_never_asks_its_branch(registered):
    registered(NeverTrains)
    with pytest.raises(AssertionError, match="have its branch asked"):
        checks.check_branch_can_be_silenced("faulty", "confidence")


def test_all_checks_are_run_and_listed():
    named = [name for name in vars(checks) if name.startswith("check_") and name != "check_method"]
    assert [check.__name__ for check in checks.ALL] == named
    page = Path(__file__).parents[2] / "docs" / "how-to" / "own-method.md"
    assert re.findall(r"^\| `(check_\w+)` \|", page.read_text(), re.MULTILINE) == named
