import copy
import math

import pytest
import torch
from states import assert_same_tree

from learners import batch, run, small
from s6mod import Learner
from s6mod.augment import to_float
from s6mod.experiments.costs import cost
from s6mod.methods.gdumb import cutmix, rate
from s6mod.runs.cells import parse
from s6mod.runs.config import RunConfig

X, _ = batch(99, (0, 1), size=5)


def weights(peers):
    return [copy.deepcopy(peer.state_dict()) for peer in peers]


def test_no_step_touches_the_network_and_no_loss_is_told():
    learner = small("gdumb")
    learner.build((3, 8, 8))
    fresh = weights(learner.peers)
    run(learner, 0, 6)
    learner.predict(X)
    assert_same_tree({"0": fresh[0]}, {"0": weights(learner.peers)[0]})
    assert (learner.losses(), len(learner.memory)) == ({}, 12)


def test_asking_trains_a_copy_of_the_fresh_network_on_the_memory_alone():
    learner = run(small("gdumb", memory_size=4, method={"passes": 4}), 0, 3)
    (peer,) = learner.predictor().peers
    moved = [not torch.equal(*pair) for pair in zip(peer.parameters(), learner.peers[0].parameters(), strict=True)]
    assert all(moved)
    # Only pixels that the memory holds can matter: another learner with the same rows has the same answer.
    twin = run(small("gdumb", memory_size=4, method={"passes": 4}), 0, 3)
    kept = twin.memory.images[:4].clone()
    twin.memory.images.zero_()
    assert not torch.equal(twin.predictor()(X)["head"], learner.scores(X)["head"])
    twin.memory.images[:4] = kept
    assert torch.equal(twin.predictor()(X)["head"], learner.scores(X)["head"])


def test_asking_twice_and_after_loading_gives_the_same_answer_and_another_step_or_seed_another(tmp_path):
    learner = run(small("gdumb"), 0, 5)
    first = learner.scores(X)["head"]
    assert torch.equal(learner.predictor()(X)["head"], first)
    learner.save(tmp_path)
    assert torch.equal(Learner.load(tmp_path).scores(X)["head"], first)
    run(learner, 5, 6)
    assert not torch.equal(learner.scores(X)["head"], first)
    assert not torch.equal(run(small("gdumb", seed=4), 0, 5).scores(X)["head"], first)


def test_a_mode_of_the_caller_in_which_no_gradient_flows_changes_nothing():
    usual = run(small("gdumb"), 0, 3).scores(X)["head"]
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(run(small("gdumb"), 0, 3).scores(X)["head"], usual)


def test_an_average_predicts_what_the_latest_weights_do_since_neither_is_trained():
    learner = run(small("gdumb", average=0.9), 0, 3)
    tables = learner.scores_by_all(X)
    assert torch.equal(tables["averaged/running/head"], tables["latest/running/head"])


def test_half_precision_trains_from_weights_as_they_are_after_each_step():
    engine = {"device": "cpu", "precision": "bfloat16"}
    learner = run(small("gdumb", method={"memory_batch": 12}, engine=engine), 0, 6)  # two passes of one step
    stem, seen = learner.peers[0].network.stem[0], []
    stem.register_forward_hook(lambda layer, args, out: seen.append((args[0], out)))  # the copy has it too
    learner.predictor()
    by_fresh_weights = [
        torch.equal(out, stem._conv_forward(x.bfloat16(), stem.weight.bfloat16(), None)) for x, out in seen
    ]
    assert by_fresh_weights == [True, False]


def test_the_rate_rises_in_the_first_pass_and_falls_in_cycles_of_one_two_and_four():
    assert rate(0, 0.05) == pytest.approx(0.0005)
    assert rate(0.5, 0.05) == pytest.approx(0.02525)
    for begin, length in ((1, 1), (2, 2), (4, 4), (16, 16)):
        assert rate(begin, 0.05) == pytest.approx(0.05)
        assert rate(begin + length / 2, 0.05) == pytest.approx(0.02525)
        assert rate(begin + length * 0.999, 0.05) == pytest.approx(0.0005, abs=1e-5)


def test_cutmix_takes_a_box_from_another_image_and_mixes_labels_by_its_area():
    generator, shares = torch.Generator().manual_seed(0), []
    images = to_float(torch.arange(6, dtype=torch.uint8)[:, None, None, None].expand(6, 3, 8, 10)) * 255
    labels = torch.arange(6)
    for _ in range(200):
        mixed, targets = cutmix(images, labels, 0.5, generator)
        taken = mixed != images
        own = targets.partners == labels
        area = taken.float().mean((1, 2, 3))
        torch.testing.assert_close(area[~own], targets.mix[~own])
        partner = targets.partners[:, None, None, None].expand_as(mixed).float()
        assert torch.equal(torch.where(taken, partner, images), mixed)
        shares.append(targets.mix[0].item())
    whole = sum(share == 0 for share in shares)
    assert 80 < whole < 135  # half of the batches, and boxes that hold the middle of no pixel
    # A side s of the box, its middle anywhere, has s - s^2 / 4 of it within the image.
    expected = sum((math.sqrt(a) - a / 4) ** 2 for a in (i / 1000 for i in range(1000))) / 1000 / 2
    assert sum(shares) / 200 == pytest.approx(expected, abs=0.06)


def test_a_plan_counts_one_asking_a_task():
    once, twice = (
        cost(RunConfig.parse(parse(f"gdumb/cifar100/2000/method.passes={passes}").values()).plain())
        for passes in (32, 64)
    )
    assert once.cpu_seconds > 0
    assert twice.cpu_seconds == pytest.approx(2 * once.cpu_seconds)
    assert twice.ms == pytest.approx(2 * once.ms)
    assert twice.memory_gib == once.memory_gib > 0
