from contextlib import contextmanager
from threading import Thread

import pytest
import torch
from states import assert_same_tree

import learners
from s6mod.methods import methods

BATCHES = [learners.batch(position, classes) for position, classes in enumerate(((0, 1), (0, 1), (2, 3), (2, 3)))]


@contextmanager
def double_by_default():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def lived(method, branch):
    """All that a learner holds after a boundary, and what it predicts."""
    learner = learners.small(method, branch and {"name": branch, "noisy_gate": True}, statistics="memory")
    for position, batch in enumerate(BATCHES):
        learner.learn(*batch)
        if position == 1:
            learner.end_task()
    return {"state": learner.state_dict(), "scores": learner.scores(BATCHES[0][0])}


@pytest.mark.parametrize(
    ("method", "branch"),
    [
        (name, branch)
        for name in learners.METHODS
        for branch in (None, "s6mod")
        if branch is None or (methods[name].has_logits and name in learners.ONE_PAIR)
    ],
)
def test_a_learner_is_the_same_to_the_bit_whatever_type_and_device_are_the_callers_defaults(method, branch):
    usual = lived(method, branch)
    with double_by_default(), torch.device("meta"):
        ours = lived(method, branch)
    assert_same_tree(usual, ours)


def test_the_callers_default_type_is_as_it_was_after_learners_were_made_side_by_side():
    with double_by_default():
        made = [learners.small("er", seed=seed) for seed in range(6)]
        threads = [Thread(target=learner.build, args=((3, 8, 8),)) for learner in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert torch.get_default_dtype() == torch.float64
    for seed, learner in enumerate(made):
        alone = learners.small("er", seed=seed)
        alone.build((3, 8, 8))
        assert_same_tree(alone.state_dict(), learner.state_dict())
