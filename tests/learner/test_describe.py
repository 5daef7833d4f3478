import torch

from learners import batch, small


def test_a_learner_says_what_it_is_what_it_has_seen_and_how_well_it_does():
    learner = small("er")
    name = "Learner(er, 6 classes, memory of 12, seed 3)"
    assert repr(learner) == f"{name}: nothing learned yet"
    x, y = batch(0, (0, 1))
    learner.learn(x, y)
    seen = f"{name}: 2 images in 1 batch, 2 of 6 classes seen, 2 kept"
    assert repr(learner) == f"{seen}; not evaluated yet"
    accuracy = learner.evaluate(x, y)
    assert repr(learner) == f"{seen}; {accuracy:.1f} % of 2 images right"
    learner.learn(*batch(1, (0, 1)))
    assert repr(learner).endswith(f"; {accuracy:.1f} % of 2 images right, 1 batch ago")


def test_looking_at_a_learner_changes_nothing():
    twins = [small("er") for _ in range(2)]
    for step in range(3):
        for learner in twins:
            learner.learn(*batch(step, (0, 1)))
        repr(twins[0])
        twins[0].evaluate(*batch(9, (0, 1)))
    first, second = (learner.state_dict()["peers"]["0"]["network"] for learner in twins)
    assert all(torch.equal(first[name], second[name]) for name in first)
