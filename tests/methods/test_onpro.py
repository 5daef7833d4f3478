from functools import partial

import pytest
import torch
from states import assert_same_tree
from torch.nn import functional as F

import learners
from learners import STREAM
from s6mod.augment import rotate16, to_float
from s6mod.engine.step import Inputs
from s6mod.memory import ReplayMemory
from s6mod.methods import Batch, Task, contrastive, feedback, prototypes
from s6mod.methods.onpro import OnPro, OnProConfig

CPU = torch.device("cpu")
MEMORY = 6  # images of a step, beside those of the stream
TASK = 5  # steps of a task
ORDER = (5, 2, 4, 1, 3, 0)  # classes as they appear, two a task
WIDTH = 8  # of projections

batch = partial(learners.batch, side=16)


def small(branch=None, method=None, memory_size=30, name="onpro", **options):
    method = {"memory_batch": MEMORY, "base_rate": 0.5} | (method or {})
    return learners.small(name, branch, method, memory_size=memory_size, **options)


def run(learner, start, stop):
    """Tasks of five steps and two new classes each."""
    for position in range(start, stop):
        learner.learn(*batch(position, ORDER[2 * (position // TASK) :][:2]))
        if position % TASK == TASK - 1:
            learner.end_task()
    return learner


def later(steps=1, name="onpro", **method):
    """A learner that has taken this many steps of its second task."""
    return run(small(method=method, name=name), 0, TASK + steps)


def terms_of(learner, position=TASK, classes=ORDER[2:4]):
    """The terms of a step that is not taken, what the peer's pass gave, and the plan."""
    images, labels = batch(position, classes)
    learner.task.seen = list(dict.fromkeys([*learner.task.seen, *labels.tolist()]))
    plan = learner.method.plan(labels, learner.memory, learner.task, learner.host_generator)
    inputs = Inputs(Batch(images, labels), plan, slots=torch.full((STREAM,), learner.memory.size))
    terms, (losses,) = learner.step.losses(inputs)
    return terms, losses, plan


def views_of(learner, classes):
    """What all peers share in a step that is not taken, and its stream batch."""
    x, y = batch(TASK, classes)
    plan = learner.method.plan(y, learner.memory, learner.task, learner.host_generator)
    return learner.method.draw(Batch(x, y), plan, learner.memory, learner.generators["method"]), x, y


def passes(learner):
    """A list that fills with input and output of each pass of the network."""
    seen = []
    learner.peers[0].network.register_forward_hook(lambda _, args, out: seen.append((args[0], out)))
    return seen


def spy(monkeypatch, module, name):
    """A list that fills with the arguments that a module's function ``name`` is given."""
    given, whole = [], getattr(module, name)
    monkeypatch.setattr(module, name, lambda *a: given.append(a) or whole(*a))
    return given


# --- prototypes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [-2, 0, 1])
def test_mu_is_the_raw_mean_of_unit_projections_of_the_memory_batch_averaged_over_its_views(steps):
    learner = later(steps)
    seen = passes(learner)
    _, losses, plan = terms_of(learner, classes=ORDER[:2] if steps < 0 else ORDER[2:4])
    images, out = seen[1 if steps < 0 else 2]
    z, count = F.normalize(out.projection, dim=1), len(images) // 2
    stored = to_float(learner.memory.images[: len(learner.memory)])
    rows = [int((stored == image).all((1, 2, 3)).nonzero()) for image in images[:count]]
    assert count == MEMORY
    if steps >= 0:
        assert rows == plan.rows["replay"].tolist()  # un-mixed
    labels, mu = learner.memory.labels[rows], torch.zeros(6, WIDTH)
    for c in labels.unique():
        mu[c] = (z[:count][labels == c].mean(0) + z[count:][labels == c].mean(0)) / 2
    torch.testing.assert_close(losses.carry, mu)
    assert not losses.carry.requires_grad
    assert (mu.norm(dim=1)[labels] < 0.999).any()  # not of unit length again
    assert not torch.equal(images[:count], images[count:])


def test_trap_the_last_peers_prototypes_are_kept():
    method = later().method
    place = method.mu.data_ptr()
    one, two = torch.rand(2, 6, WIDTH)
    method.commit([one, two])
    assert torch.equal(method.mu, two)
    assert method.mu.data_ptr() == place  # where a captured step reads it
    method.commit([None])  # the first batch of a run
    assert torch.equal(method.mu, two)


# --- passes and views -----------------------------------------------------------------------------------------


def test_trap_three_passes_of_the_published_sizes_in_their_order():
    method = {"network": {"width": 1}, "memory_batch": 64, "base_rate": 0.9}
    learner = small(method=method, num_classes=12, memory_size=80)
    learner.build((3, 8, 8))
    seen = passes(learner)

    def sizes(position, classes, size=10):
        seen.clear()
        learner.learn(*batch(position, classes, size=size, side=8))
        return [len(images) for images, _ in seen]

    assert sizes(0, range(10)) == [320, 10]  # nothing stored yet
    assert sizes(1, range(10)) == [320, 2 * 10, 10]  # all that is stored
    images, labels = batch(2, range(10), size=60, side=8)  # 80 are stored then
    learner.memory.store(learner.memory.place(labels, 0, learner.host_generator), images, labels)
    assert sizes(3, range(10)) == [320, 128, 10]
    learner.end_task()
    assert sizes(4, (10, 11)) == [2368, 64, 128]
    assert sizes(5, (10, 11)) == [2368, 64, 128]  # mixed
    assert learner.peers[0].network.stem[1].num_batches_tracked == 14  # each pass updates the running statistics


def test_trap_the_memory_batch_grows_with_the_classes_seen_and_its_base_part_with_it():
    memory = ReplayMemory(500, (3, 8, 8), "batched", CPU)
    memory.place(torch.arange(400) % 10, 0, torch.Generator().manual_seed(0))
    method = OnPro(OnProConfig(), (3, 8, 8), 10)
    for seen, count in ((4, 28), (5, 35), (6, 42), (8, 56), (10, 64)):
        task = Task(1, 3, list(range(seen)), [])
        rows = method.plan(torch.zeros(10).long(), memory, task, torch.Generator().manual_seed(0)).rows
        assert len(rows["replay"].unique()) == len(rows["replay"]) == count
        assert len(rows["base"].unique()) == int(0.9 * count)
        assert set(rows["base"].tolist()) <= set(rows["replay"].tolist())
        assert sorted(rows["base"].tolist()) == sorted(rows["partners"].tolist())
        assert rows["base"].tolist() != rows["replay"][: int(0.9 * count)].tolist()
        assert rows["base"].tolist() != rows["partners"].tolist()


def test_all_stored_images_are_replayed_while_they_are_few():
    learner = small(method={"memory_batch": 64})
    learner.learn(*batch(0, (0, 1)))
    learner.end_task()
    seen = passes(learner)
    learner.learn(*batch(1, (2, 3)))
    learner.learn(*batch(2, (2, 3)))
    assert [len(images) for images, _ in seen] == [32 * (STREAM + 2), 2, 4, 32 * (STREAM + 4), 4, 8]


def test_the_first_task_contrasts_the_stream_with_itself_and_classifies_it():
    learner = run(small(), 0, TASK - 1)
    seen = passes(learner)
    terms, losses, _ = terms_of(learner, TASK - 1, ORDER[:2])
    x, y = batch(TASK - 1, ORDER[:2])
    u, v = seen[0][0].chunk(2)
    assert torch.equal(u, rotate16(to_float(x)))
    assert not torch.equal(u, v)
    assert terms.keys() == {"ce", "new", "ope_new", "ope_seen"}
    assert torch.equal(losses.tap.targets.labels, y)
    assert torch.equal(losses.tap.logits, seen[2][1].logits)
    torch.testing.assert_close(terms["ce"], F.cross_entropy(losses.tap.logits, y))


def test_the_first_batch_of_a_run_finds_no_prototypes_in_memory():
    learner = small()
    learner.build((3, 16, 16))
    terms, losses, _ = terms_of(learner, 0, ORDER[:2])
    assert terms.keys() == {"ce", "new", "ope_new"}
    assert losses.carry is None


def test_each_peer_draws_prototype_images_of_its_own_in_the_first_task_and_shares_them_later():
    for learner, own in ((run(small(), 0, TASK - 1), True), (later(), False)):
        views, _, _ = views_of(learner, ORDER[:2])
        seen = passes(learner)
        for _ in range(2):
            learner.method.losses(learner.peers[0], views, learner.memory, learner.generators["method"])
        one, two = (seen[n][0][:MEMORY] for n in ((1, 4) if own else (2, 5)))
        assert torch.equal(one, two) != own


def test_trap_the_first_batch_of_a_task_replays_the_memory_as_it_is():
    learner = later(0, mixup_probability=1.0)
    seen = passes(learner)
    terms, losses, plan = terms_of(learner)
    images, labels = learner.memory.gather(plan.rows["replay"])
    u, _ = seen[0][0][32 * STREAM :].chunk(2)
    assert torch.equal(u, rotate16(to_float(images)))
    assert torch.equal(losses.tap.targets.labels, labels)
    assert not losses.tap.targets.mix.any()
    torch.testing.assert_close(terms["ce"], F.cross_entropy(losses.tap.logits, labels))
    assert terms.keys() == {"ce", "new", "uniform", "ope_new", "ope_seen"}


def test_trap_later_batches_mix_the_memory_and_cross_entropy_sees_nothing_else():
    learner = later(1, mixup_probability=1.0)
    seen = passes(learner)
    terms, losses, plan = terms_of(learner)
    targets, stored = losses.tap.targets, to_float(learner.memory.images[:-1])
    assert (targets.mix > 0).all()
    rows = [plan.rows["base"], plan.rows["partners"]]
    m = seen[0][0][32 * STREAM :][:MEMORY]
    base = len(rows[0])
    assert base == MEMORY // 2
    mix = targets.mix[:base, None, None, None]
    torch.testing.assert_close(m[:base], (1 - mix) * stored[rows[0]] + mix * stored[rows[1]])
    assert torch.equal(targets.labels[:base], learner.memory.labels[rows[0]])
    assert torch.equal(targets.partners[:base], learner.memory.labels[rows[1]])
    for image, a, b, share in zip(m, targets.labels, targets.partners, targets.mix, strict=True):
        of_a, of_b = (stored[learner.memory.labels == label] for label in (a, b))
        mixtures = (1 - share) * of_a[:, None] + share * of_b
        assert (mixtures - image).abs().amax((2, 3, 4)).min() < 1e-6
    for a, b in zip(targets.labels[base:], targets.partners[base:], strict=True):
        assert ORDER.index(a) < ORDER.index(b)  # first is who came first
    ce = [F.cross_entropy(losses.tap.logits, labels, reduction="none") for labels in (targets.labels, targets.partners)]
    torch.testing.assert_close(terms["ce"], ((1 - targets.mix) * ce[0] + targets.mix * ce[1]).mean())
    assert torch.equal(losses.tap.logits, seen[1][1].logits)


def test_pairs_follow_the_prototypes_of_the_step_before():
    learner = later(1)
    learner.method.mu[2] = 0  # as if none of that class had been in the batch
    _, losses, plan = terms_of(learner)
    base = len(plan.rows["base"])
    paired = torch.cat([losses.tap.targets.labels[base:], losses.tap.targets.partners[base:]])
    assert set(paired.tolist()) <= set(ORDER[:4]) - {2}


def test_pairs_are_drawn_from_the_whole_memory_and_not_from_what_is_empty_of_it(monkeypatch):
    learner, given = later(1), spy(monkeypatch, feedback, "pair_part")
    terms_of(learner)
    assert len(learner.memory) < learner.memory.size
    assert given[0][2].tolist() == [*learner.memory.labels.tolist(), -1]  # the last row is scratch


# --- terms ----------------------------------------------------------------------------------------------------


def test_each_loss_gets_its_rows(monkeypatch):
    learner = later()
    seen, similarities = passes(learner), spy(monkeypatch, contrastive, "similarity")
    means = spy(monkeypatch, prototypes, "class_means")
    terms_of(learner)
    both = seen[0][1]
    for rows, (z, f, _, scale, _) in zip((slice(0, 32 * STREAM), slice(32 * STREAM, None)), similarities, strict=True):
        assert torch.equal(z, both.projection[rows])
        assert torch.equal(f, both.features[rows])
        assert scale == 1.0
    new = [z for z, labels, _ in means if len(labels) == STREAM]
    for z, start in zip(new, (0, 16 * STREAM), strict=True):  # not rotated
        torch.testing.assert_close(z, F.normalize(both.projection[start : start + STREAM], dim=1))


def test_the_scale_of_later_tasks_is_an_option_and_that_of_the_first_is_one(monkeypatch):
    given = spy(monkeypatch, contrastive, "similarity")
    learner = run(small(method={"scale": 0.5}), 0, TASK + 3)
    assert [call[3] for call in given] == [1.0] * TASK + [0.5] * 6
    starts = [int(call[2]) for call in given[TASK:]]
    assert starts[::2] != starts[1::2]  # stream and memory have slices of their own
    assert learner.peers[0].network.num_features == 16


def test_trap_mixed_labels_of_the_uniform_loss_meet_only_their_own_copies(monkeypatch):
    learner, given = later(1, mixup_probability=0.7), spy(monkeypatch, contrastive, "uniform_loss")
    found = set()
    for _ in range(30):
        views, _, _ = views_of(learner, ORDER[2:4])
        targets, (one, two) = views.targets, views.memory.labels.view(2, 16, MEMORY)
        itself = torch.eye(MEMORY, dtype=torch.bool)
        plain = (targets.mix == 0) | (targets.labels == targets.partners)  # not mixed, or within a class
        alike = (targets.labels[:, None] == targets.labels) & plain[:, None] & plain
        assert torch.equal(one[3][:, None] == two[3], itself | alike)  # two views of one variant
        assert not (one[3][:, None] == one[4]).any()  # each variant is a class of its own
        found |= set(zip(plain.tolist(), (targets.mix > 0).tolist(), strict=True))
    assert found == {(True, False), (True, True), (False, True)}
    learner.method.losses(learner.peers[0], views, learner.memory, learner.generators["method"])
    assert given[0][1] is views.memory.labels


# --- the chain of CCL-DC --------------------------------------------------------------------------------------


def test_the_chain_starts_from_the_stream_and_after_the_first_task_from_the_mixed_memory_too():
    learner = run(small(name="onpro-ccldc"), 0, 2)
    views, x, y = views_of(learner, ORDER[:2])
    assert torch.equal(views.chain[0], to_float(x))
    assert torch.equal(views.labels, y)

    learner = later(1, "onpro-ccldc", mixup_probability=1.0)
    views, x, y = views_of(learner, ORDER[2:4])
    assert torch.equal(views.chain[0], torch.cat([to_float(x), views.own.images]))
    assert torch.equal(views.labels[:STREAM], y)
    assert views.labels.dtype == torch.int64


@pytest.mark.parametrize("truncate", [True, False])
def test_trap_labels_of_mixed_images_in_the_chain(truncate):
    learner = later(1, "onpro-ccldc", mixup_probability=1.0, truncate_mixed_labels=truncate)
    strange = 0
    for _ in range(6):
        views, _, _ = views_of(learner, ORDER[2:4])
        targets = views.own.targets
        for label, a, b, mix in zip(views.labels[STREAM:], targets.labels, targets.partners, targets.mix, strict=True):
            place = float((1 - mix) * ORDER.index(a) + mix * ORDER.index(b))
            if a == b and label != a:  # one class short by rounding
                assert truncate
            else:
                assert label == (ORDER[int(place)] if truncate else (b if mix > 0.5 else a))
            strange += label not in (a, b)
    assert (strange > 0) == truncate


# --- as a learner ---------------------------------------------------------------------------------------------


def test_a_branch_with_all_weights_at_zero_leaves_the_trajectory_of_mixed_steps_to_the_bit():
    zero = {"name": "s6mod", "weight_dr": 0.0, "alpha": 0.0, "beta": 0.0, "weight_z": 0.0, "noisy_gate": True}
    base, joined = (run(small(branch, {"mixup_probability": 1.0}), 0, TASK + 2) for branch in (None, zero))
    assert joined.peers[0].branch.routing.seen.any()  # the branch was asked
    base, state = base.state_dict(), joined.state_dict()
    assert_same_tree(base["peers"]["0"]["network"], state["peers"]["0"]["network"])
    assert_same_tree(base["method"], state["method"])
    assert torch.equal(base["generators"]["method"], state["generators"]["method"])


def test_the_tap_gives_another_view_of_what_cross_entropy_saw():
    learner = later()
    seen = passes(learner)
    _, losses, _ = terms_of(learner)
    assert losses.tap.again().shape == losses.tap.feature_map.shape
    assert seen[3][0].shape == seen[1][0].shape
    mixed = seen[0][0][32 * STREAM :][:MEMORY]  # not rotated, not augmented
    for other in (seen[1][0], mixed):
        assert not torch.equal(seen[3][0], other)


def test_trap_similarities_are_float32_when_the_network_runs_in_bfloat16(monkeypatch):
    learner, given = later(), spy(monkeypatch, contrastive, "uniform_loss")
    with torch.autocast("cpu", torch.bfloat16):
        terms, losses, _ = terms_of(learner)
    assert losses.tap.feature_map.dtype == torch.bfloat16
    assert given[0][0].dtype == losses.carry.dtype == torch.float32
    assert all(term.dtype == torch.float32 and term.isfinite() for term in terms.values())


def test_defaults_are_those_of_the_published_results():
    config = OnProConfig.parse({"network": {"width": 8}})
    assert config.network.pooling == "global"
    optimizer = {"name": "adamw", "lr": 5e-4, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 1e-4, "momentum": 0.9}
    assert config.plain()["optimizer"] == optimizer
    assert (config.memory_batch, config.projection_width) == (64, 128)
    assert (config.scale, config.temperature, config.prototype_temperature) == (1, 0.07, 0.5)
    assert (config.base_rate, config.mixup_probability) == (0.9, 0.2)
    network = OnPro(OnProConfig.parse({"network": {"width": 2}}), (3, 64, 64), 6).make_network()
    assert (network.num_features, network.projection.out_features) == (16, 128)
    assert OnPro.reservoir == "batched"
