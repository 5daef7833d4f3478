from functools import partial

import pytest
import torch

from learners import STREAM, batch, run, small, untaken

tuned = partial(small, "finetune")


def test_the_loss_is_the_mean_cross_entropy_of_the_augmented_stream_over_all_classes():
    learner = run(tuned(), 0, 3)
    x, y = batch(3, (2, 3))
    step = untaken(learner, x, y)
    ((view,), (out,)) = step.inputs, step.outputs
    assert view.shape == x.shape
    assert not torch.equal(view, learner.method.prepare(x))
    by_hand = sum(-out.logits[i].softmax(0)[label].log() for i, label in enumerate(y.tolist())) / len(y)
    assert step.terms.keys() == {"ce"}
    torch.testing.assert_close(step.terms["ce"], by_hand)
    assert torch.equal(step.tap.logits, out.logits)


def test_the_first_batch_is_learned_and_no_memory_is_ever_read(monkeypatch):
    learner = tuned()
    learner.build((3, 8, 8))
    monkeypatch.setattr(learner.memory, "gather", lambda rows: pytest.fail("memory was read"))
    before = learner.peers[0].network.head.weight.detach().clone()
    run(learner, 0, 3)
    assert not torch.equal(before, learner.peers[0].network.head.weight)
    assert len(learner.memory) == 3 * STREAM  # written all the same


def test_the_head_predicts():
    assert run(tuned(), 0, 3).primary == "head"
