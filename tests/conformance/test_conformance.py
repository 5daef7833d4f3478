"""Every registered method, with and without a branch, behaves as ``s6mod.checks`` says."""

import fakes  # noqa: F401  registers a method that is unlike the others
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import learners
from s6mod import Learner, checks
from s6mod.augment.colour import jitter_selected
from s6mod.branch import branches
from s6mod.checks.candidate import Candidate, run
from s6mod.checks.digit_stream import MEMORY_SIZE, NUM_CLASSES, SHAPE, stream
from s6mod.errors import ConfigError
from s6mod.memory import ReplayMemory
from s6mod.methods import Batch, Peer, Plan, methods
from s6mod.methods.ccldc import CCLDC

# A pair of networks has the branch by the tap of its method, so one pair with the branch says it for all.
LEARNERS = [
    (method, branch)
    for method in methods
    for branch in (None, "s6mod")
    if branch is None
    or (methods[method].has_logits and (method == "er-ccldc" or not issubclass(methods[method], CCLDC)))
]
# A control keeps nothing and reads only the tap, which a pair of networks takes over from its method. So all checks
# with the plainest method and the one unlike the others, and those of the tap with every method but pairs, say all.
TAPS = [name for name in methods if methods[name].has_logits and not issubclass(methods[name], CCLDC)]
OF_THE_TAP = (checks.check_branch_can_be_silenced, checks.check_branch_reaches_the_network)
OTHERS = [check for check in checks.ALL if check not in OF_THE_TAP]
QUICK = {"gdumb": {"name": "gdumb", "passes": 8}}


def name_of(check):
    return check.__name__


# What learning and growing take is the method's own; with the branch, the paper's methods say it.
OF_THE_METHOD = (checks.check_learns, checks.check_grows)
OF_THE_PAPER = {"er", "ocm", "onpro", "mose"}
CASES = [
    pytest.param(method, branch, check, id=f"{method}-{branch}-{check.__name__}")
    for method, branch in LEARNERS
    for check in checks.ALL
    if branch is None or check not in OF_THE_METHOD or method in OF_THE_PAPER
]


@pytest.mark.parametrize(("method", "branch", "check"), CASES)
def test_every_registered_method_conforms(method, branch, check):
    check(QUICK.get(method, method), branch)


@pytest.mark.parametrize("check", OF_THE_TAP, ids=name_of)
@pytest.mark.parametrize("method", TAPS)
def test_a_control_reaches_every_method_through_its_tap_alone(method, check):
    check(method, "confidence")


@pytest.mark.parametrize("check", OTHERS, ids=name_of)
@pytest.mark.parametrize("method", ["er", "duo"])
def test_a_method_conforms_with_a_control(method, check):
    check(method, "confidence")


@pytest.mark.parametrize("branch", list(branches))
@pytest.mark.parametrize("method", [name for name in methods if not methods[name].has_logits])
def test_a_method_without_logits_refuses_every_branch_when_its_learner_is_made(method, branch):
    with pytest.raises(ConfigError, match=f"^expected no branch on method '{method}', .*, got '{branch}'; leave"):
        Learner(method, branch, num_classes=NUM_CLASSES)


def inputs_by_path(name):
    """A method's configuration, and the last inputs of each code path that its steps take; no step is taken."""
    learner, found = Candidate(name, None).learner(), {}
    learner.build(SHAPE)
    learner.step.compute = lambda inputs: found.update({inputs.plan.path: inputs}) or ()
    run(learner, stream())
    return learner.config.method, found.values()


@pytest.mark.parametrize("name", [*learners.ONE_PAIR, "duo"])
def test_a_step_is_computed_of_tensors_without_values(monkeypatch, name):
    """Reading one raises, also by ``tolist``, ``numpy`` and what else on a CPU looks like no operation."""
    monkeypatch.setattr("s6mod.augment.kornia_like.jitter", jitter_selected)  # as on a GPU
    config, given = inputs_by_path(name)
    with FakeTensorMode() as mode:
        method, random = methods[name](config, SHAPE, NUM_CLASSES), torch.Generator()
        memory = ReplayMemory(MEMORY_SIZE, SHAPE, method.reservoir, torch.device("cpu"), method.values())
        peers = [Peer(method.make_network(), None) for _ in range(method.num_peers)]
        for peer in peers:
            peer.teacher = method.make_network()
        for inputs in given:
            batch = Batch(mode.from_tensor(inputs.stream.images), mode.from_tensor(inputs.stream.labels))
            rows = {key: mode.from_tensor(value) for key, value in inputs.plan.rows.items()}
            views = method.draw(batch, Plan(rows, inputs.plan.path), memory, random)
            losses = method.couple(peers, views, [method.losses(peer, views, memory, random) for peer in peers])
            assert {term.shape for loss in losses for term in loss.terms.values()} == {()}
            sum(term for loss in losses for term in loss.terms.values()).backward()
            carries = [loss.carry for loss in losses]
            method.gradients(peers, carries)
            method.commit(carries)
            slots = mode.from_tensor(inputs.slots)
            memory.store(slots, batch.images, batch.labels, method.keep(carries))
