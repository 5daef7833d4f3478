from functools import partial

import pytest
import torch
from torch.nn import functional as F

from learners import MEMORY, STREAM, TASK, batch, run, small, untaken
from s6mod.errors import ConfigError
from s6mod.methods.agem import project

agem = partial(small, "agem")


def slow_projection(g, r):
    """The formula, of two vectors in double precision."""
    g, r = g.double(), r.double()
    return g - (g @ r) / (r @ r) * r if g @ r < 0 else g


def pieces(vector):
    return [vector[:6].reshape(2, 3).clone(), vector[6:7].reshape(()).clone(), vector[7:].clone()]


def whole(parts):
    return torch.cat([part.flatten() for part in parts])


def test_a_gradient_that_opposes_the_memorys_loses_that_part():
    g, r = torch.randn(2, 11, generator=torch.Generator().manual_seed(0)).unbind()
    g = g - (1 + (g @ r) / (r @ r)) * r  # g.r = - r.r
    parts = pieces(g)
    project(parts, pieces(r))
    torch.testing.assert_close(whole(parts), slow_projection(g, r).float())
    assert abs((whole(parts) @ r).item()) < 1e-5
    assert not torch.allclose(whole(parts), g)


@pytest.mark.parametrize("kind", ["agrees", "orthogonal", "no reference"])
def test_a_gradient_that_does_not_oppose_it_stays_to_the_bit(kind):
    g, r = torch.randn(2, 11, generator=torch.Generator().manual_seed(0)).unbind()
    r = {
        "agrees": g + 0.1 * r,
        "orthogonal": torch.zeros(11).index_fill(0, torch.tensor(0), 1.0),
        "no reference": 0 * r,
    }
    g = g.index_fill(0, torch.tensor(0), 0.0) if kind == "orthogonal" else g
    parts = pieces(g)
    project(parts, pieces(r[kind]))
    assert torch.equal(whole(parts), g)


def gradients_of_a_step(learner, position, classes):
    """What the optimiser was given in the next step, beside g and r of the same step by hand."""
    (peer,), given, own = learner.peers, [], {}
    parameters = list(peer.network.parameters())
    losses = learner.step.losses

    def noting(inputs):
        terms, found = losses(inputs)
        own["g"] = torch.autograd.grad(sum(terms.values()), parameters, retain_graph=True)
        own["r"] = torch.autograd.grad(found[0].carry, parameters, retain_graph=True)
        return terms, found

    learner.step.losses = noting
    hook = learner.optimizer.register_step_pre_hook(lambda *_: given.extend(p.grad.clone() for p in parameters))
    learner.learn(*batch(position, classes))
    hook.remove()
    learner.step.losses = losses
    return whole(given), whole(own["g"]), whole(own["r"])


@pytest.mark.parametrize("branch", [None, {"name": "confidence"}, {"name": "s6mod"}], ids=str)
def test_the_optimiser_gets_the_projected_gradient_of_the_whole_network(branch):
    learner, opposed, agreed = run(agem(branch), 0, TASK), 0, 0
    for position in range(TASK, TASK + 12):
        given, g, r = gradients_of_a_step(learner, position, (2, 3))
        torch.testing.assert_close(given, slow_projection(g, r).float(), rtol=1e-3, atol=1e-5)
        opposed, agreed = opposed + bool(g @ r < 0), agreed + bool(g @ r >= 0)
        if g @ r >= 0:
            assert torch.equal(given, g)
    assert opposed
    assert agreed


def test_the_terms_are_the_streams_alone_and_the_memory_has_a_pass_of_its_own_after_the_first_task():
    learner = run(agem(), 0, TASK)
    x, y = batch(TASK, (2, 3))
    step = untaken(learner, x, y)
    assert [len(view) for view in step.inputs] == [STREAM, MEMORY]
    torch.testing.assert_close(step.terms["ce"], F.cross_entropy(step.outputs[0].logits, y))
    assert step.terms.keys() == {"ce"}
    assert step.plan.path == ("later",)


def test_the_first_task_is_fine_tuning():
    ours, other = (run(small(name), 0, TASK - 1) for name in ("agem", "finetune"))
    step, plain = (untaken(one, *batch(1, (0, 1))) for one in (ours, other))
    assert torch.equal(step.terms["ce"], plain.terms["ce"])
    assert (step.plan.rows, step.plan.path) == ({}, ("first task",))
    assert [len(view) for view in step.inputs] == [STREAM]


def test_a_branch_sees_the_stream():
    learner = run(agem({"name": "confidence"}), 0, TASK + 1)
    step = untaken(learner, *batch(TASK + 1, (2, 3)))
    assert step.tap.logits is step.outputs[0].logits
    assert step.tap.targets.labels.tolist() == [2, 3]


def test_it_learns_in_half_precision_with_gradients_in_full():
    learner = run(agem(engine={"device": "cpu", "precision": "bfloat16"}), 0, 2 * TASK)
    assert {p.grad.dtype for p in learner.peers[0].network.parameters()} == {torch.float32}
    assert all(p.isfinite().all() for p in learner.peers[0].network.parameters())


def test_boundaries_are_needed():
    with pytest.raises(ConfigError, match="expected task boundaries for method 'agem'"):
        agem(boundaries="none")
