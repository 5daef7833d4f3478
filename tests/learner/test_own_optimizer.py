"""A learner whose optimiser a function makes that somebody brought."""

import copy

import pytest
import torch
from states import assert_same_tree

import learners
from s6mod import Learner
from s6mod.errors import CheckpointError, ConfigError, InputError
from s6mod.learner.classes import FIRST_CAPACITY


def centred(parameters):
    return torch.optim.RMSprop(parameters, lr=0.01, centered=True, momentum=0.5)


def factored(parameters):
    return torch.optim.Adafactor(parameters, lr=0.01)


def small(optimizer, **options):
    return learners.small("er", optimizer=optimizer, **options)


def test_it_takes_the_steps_of_the_optimizer_that_is_made():
    ours = learners.run(
        learners.small("er", method={"optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.8, "weight_decay": 0.0}}),
        0,
        3,
    )
    theirs = learners.run(small(lambda given: torch.optim.SGD(given, lr=0.05, momentum=0.8)), 0, 3)
    assert_same_tree(ours.state_dict(), theirs.state_dict())
    assert theirs.config.optimizer == "<lambda>"


@pytest.mark.parametrize("factory", [centred, factored])
def test_it_resumes_to_the_bit_and_loading_needs_it_again(factory, tmp_path):
    straight = learners.run(small(factory), 0, 5)
    learners.run(small(factory), 0, 3).save(tmp_path)
    resumed = learners.run(Learner.load(tmp_path, optimizer=factory), 3, 5)
    assert_same_tree(straight.state_dict(), resumed.state_dict())
    assert_same_tree(straight.state_dict(), copy.deepcopy(straight).state_dict())
    with pytest.raises(CheckpointError, match=rf"the {factory.__name__} that .* got none; use .* optimizer=\.\.\.\)"):
        Learner.load(tmp_path)
    learners.run(learners.small("er"), 0, 1).save(tmp_path)
    with pytest.raises(CheckpointError, match=f"which has its method's own, got a {factory.__name__}; leave it out"):
        Learner.load(tmp_path, optimizer=factory)


def named(learner, start, stop):
    for position in range(start, stop):
        learner.learn(learners.batch(position, (0,))[0], [f"class {position}", position])
    return learner


def growing(factory):
    return small(factory, num_classes=None, classes=list(range(100, 100 + FIRST_CAPACITY - 2)))


def test_it_grows_and_resumes_to_the_bit_across_growth(tmp_path):
    straight = named(growing(centred), 0, 5)
    assert straight.parts.capacity == 2 * FIRST_CAPACITY
    named(growing(centred), 0, 2).save(tmp_path)
    resumed = named(Learner.load(tmp_path, optimizer=centred), 2, 5)
    assert_same_tree(straight.state_dict(), resumed.state_dict())


def test_what_cannot_grow_is_told_and_the_learner_stays():
    learner = small(factored, num_classes=None)
    for position in range(2):
        learner.learn(learners.batch(position, (0,))[0], ["one", "two"])
    before = copy.deepcopy(learner.state_dict())
    images = learners.batch(2, (0,), size=20)[0]
    with pytest.raises(ConfigError, match=r"of the shape of a parameter, \(16, 16\), to grow, got one of shape .*;"):
        learner.learn(images, list(range(20)))
    assert_same_tree(learner.state_dict(), before)


@pytest.mark.parametrize(
    ("factory", "why"),
    [
        (torch.optim.LBFGS, "whose step.. needs nothing, got a LBFGS, which wants 'closure'; take"),
        (lambda given: torch.optim.SGD(given[1:], lr=0.1), "parameters that its function is given, got one of"),
        (lambda given: None, "a torch.optim.Optimizer from the function given as optimizer, got None; return one"),
    ],
)
def test_what_a_step_cannot_use_is_told_at_the_first_batch(factory, why):
    learner = small(factory)
    with pytest.raises((ConfigError, InputError), match=why):
        learners.run(learner, 0, 1)
    assert (learner.image_shape, learner.steps) == (None, 0)


def test_an_optimizer_that_is_made_already_is_refused_in_one_line():
    made = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    with pytest.raises(ConfigError, match=r"^expected a function of parameters .* got an SGD that is made; give .*$"):
        Learner(optimizer=made)


def test_a_name_is_told_where_it_belongs():
    with pytest.raises(
        ConfigError, match=r"a function of parameters as optimizer, got 'sgd'; give one such as .* name"
    ):
        Learner(optimizer="sgd")
