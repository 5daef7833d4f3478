from functools import partial

import pytest
import torch
from states import assert_same_tree, trees_differ
from torch.nn import functional as F

import learners
from learners import MEMORY, STREAM, TASK
from s6mod import Learner
from s6mod.augment import rotate16, rotate16_labels, to_float
from s6mod.engine.step import Inputs
from s6mod.methods import Batch, contrastive, methods, ocm
from s6mod.methods.contrastive import similarity
from s6mod.networks import NetworkConfig, ResNet18
from s6mod.networks.projection import ProjectedResNet18

batch, run = partial(learners.batch, side=16), partial(learners.run, side=16)
small = partial(learners.small, "ocm")


def later():
    """A learner at the first step of its second task."""
    return run(small(), 0, TASK)


def terms_of(learner, position=TASK, classes=(2, 3)):
    """The terms and the tap of a step that is not taken, and the memory rows that it replays."""
    images, labels = batch(position, classes)
    plan = learner.method.plan(labels, learner.memory, learner.task, learner.host_generator)
    terms, (losses,) = learner.step.losses(Inputs(Batch(images, labels), plan, slots=torch.full((STREAM,), 12)))
    return terms, losses.tap, plan.rows.get("replay")


def passes(learner):
    """Two lists that fill with the inputs of the network's and the teacher's passes."""
    (peer,) = learner.peers
    seen = [], []
    for module, inputs in zip((peer.network, peer.teacher), seen, strict=True):
        if module is not None:
            module.register_forward_pre_hook(lambda _, args, inputs=inputs: inputs.append(args[0]))
    return seen


# --- passes and views -----------------------------------------------------------------------------------------


def test_trap_22_two_passes_of_the_published_sizes_in_their_order():
    learner = small(method={"network": {"width": 1}, "memory_batch": 64}, memory_size=70)
    learner.build((3, 8, 8))
    network, _ = passes(learner)
    learner.learn(*batch(0, (0, 1), size=10, side=8))
    assert [len(x) for x in network] == [320, 10]

    learner.peers[0].network._forward_pre_hooks.clear()  # the teacher would inherit it
    learner.end_task()
    images, labels = batch(1, (0, 1), size=60, side=8)  # 70 are stored then
    learner.memory.store(learner.memory.place(labels, 0, learner.host_generator), images, labels)
    network, teacher = passes(learner)
    learner.learn(*batch(2, (2, 3), size=10, side=8))
    assert [len(x) for x in network] == [2368, 64]
    assert [len(x) for x in teacher] == [1024, 64]
    assert learner.peers[0].network.stem[1].num_batches_tracked == 4  # each pass updates the running statistics


def test_the_first_task_contrasts_the_stream_with_itself_and_replays_nothing():
    learner = run(small(), 0, 1)
    network, _ = passes(learner)
    x, y = batch(1, (0, 1))
    learner.learn(x, y)
    u = rotate16(x)
    assert torch.equal(network[0][: len(u)], to_float(u))
    assert not torch.equal(network[0][len(u) :], to_float(u))
    assert network[1].shape == x.shape
    assert learner.losses().keys() == {"ce", "new"}


def test_later_tasks_contrast_stream_and_memory_in_one_pass():
    learner = later()
    network, teacher = passes(learner)
    terms, _, rows = terms_of(learner)
    x, _ = batch(TASK, (2, 3))
    u, v, u_memory, v_memory = network[0].split([16 * STREAM, 16 * STREAM, 16 * MEMORY, 16 * MEMORY])
    rotated = to_float(rotate16(learner.memory.images[rows]))
    assert torch.equal(u, to_float(rotate16(x)))
    assert torch.equal(u_memory, rotated)
    assert not torch.equal(v, u)
    assert not torch.equal(v_memory, u_memory)
    assert torch.equal(teacher[0], rotated)
    assert terms.keys() == {"ce", "new", "uniform", "previous", "mse"}


def test_each_loss_gets_its_rows(monkeypatch):
    learner, outputs, given = later(), [], {"similarity": [], "previous_loss": []}
    for module in (learner.peers[0].network, learner.peers[0].teacher):
        module.register_forward_hook(lambda _, args, out: outputs.append(out))
    for name, calls in given.items():
        where = contrastive if name == "similarity" else ocm
        whole = getattr(where, name)
        monkeypatch.setattr(where, name, lambda *a, whole=whole, calls=calls: calls.append(a[:2]) or whole(*a))
    terms, _, _ = terms_of(learner)
    both, student, past, past_student = outputs
    stream, memory = slice(0, 32 * STREAM), slice(32 * STREAM, None)
    for rows, (z, f) in zip((stream, memory), given["similarity"], strict=True):
        assert torch.equal(z, both.projection[rows])
        assert torch.equal(f, both.features[rows])
    ((z, z_past),) = given["previous_loss"]
    assert torch.equal(z, both.projection[memory][: 16 * MEMORY])  # those that are not augmented
    assert torch.equal(z_past, past.projection)
    torch.testing.assert_close(terms["mse"], F.mse_loss(student.logits[:, :2], past_student.logits[:, :2]))


def test_pseudo_labels_are_shared_by_the_two_views_and_split_by_rotation(monkeypatch):
    learner, given = later(), {}
    for module, name in ((contrastive, "new_loss"), (contrastive, "uniform_loss"), (ocm, "previous_loss")):
        loss, calls = getattr(module, name), given.setdefault(name, [])
        monkeypatch.setattr(module, name, lambda *a, loss=loss, calls=calls: calls.append(a[-3]) or loss(*a))
    _, _, rows = terms_of(learner)
    stream = rotate16_labels(batch(TASK, (2, 3))[1], 1000)
    memory = rotate16_labels(learner.memory.labels[rows], 1000)
    expected = {"new_loss": stream.repeat(2), "uniform_loss": memory.repeat(2), "previous_loss": memory}
    for name, labels in expected.items():
        pseudo = given[name][0]  # L_pre, which comes later, is an L_uni too
        assert torch.equal(pseudo[:, None] == pseudo, labels[:, None] == labels), name


def test_trap_6_all_stored_images_are_replayed_while_they_are_fewer_than_the_memory_batch():
    learner = small(method={"memory_batch": 64})
    learner.learn(*batch(0, (0, 1)))
    learner.end_task()
    network, teacher = passes(learner)
    learner.learn(*batch(1, (2, 3)))
    learner.learn(*batch(2, (2, 3)))
    assert [len(x) for x in network] == [32 * (STREAM + 2), 2, 32 * (STREAM + 4), 4]
    assert [len(x) for x in teacher] == [16 * 2, 2, 16 * 4, 4]


# --- terms ----------------------------------------------------------------------------------------------------


def test_trap_4_the_optimiser_has_rates_of_its_own_and_a_change_of_one_keeps_the_others():
    optimizer = run(small(), 0, 1).optimizer
    (group,) = optimizer.param_groups
    assert isinstance(optimizer, torch.optim.AdamW)
    assert (group["lr"], group["betas"], group["weight_decay"]) == (1e-3, (0.9, 0.99), 1e-4)
    changed = methods.configure({"name": "ocm", "optimizer": {"lr": 0.1}}).optimizer
    assert (changed.lr, changed.betas, changed.weight_decay) == (0.1, (0.9, 0.99), 1e-4)


def test_traps_5_and_10_scale_and_slices_of_stream_and_memory(monkeypatch):
    given = []
    monkeypatch.setattr(contrastive, "similarity", lambda *a, f=similarity: given.append((a[3], a[2].item())) or f(*a))
    learner = run(small(), 0, TASK)
    assert [scale for scale, _ in given] == [1.0] * TASK
    given.clear()
    for position in range(TASK, TASK + 8):
        terms_of(learner, position)
    assert [scale for scale, _ in given] == [0.5] * 16
    stream, memory = [start for _, start in given[::2]], [start for _, start in given[1::2]]
    assert stream != memory  # separately
    assert len(set(stream)) > 1  # in every step anew
    assert all(0 <= start < 16 - 8 for start in stream + memory)


def test_cross_entropy_sees_the_stream_in_the_first_task():
    terms, tap, rows = terms_of(run(small(), 0, 1), 1, (0, 1))
    assert rows is None
    assert torch.equal(tap.targets.labels, batch(1, (0, 1))[1])
    torch.testing.assert_close(terms["ce"], F.cross_entropy(tap.logits, tap.targets.labels))


def test_trap_7_cross_entropy_sees_the_memory_only_after_the_first_task():
    learner = later()
    terms, tap, rows = terms_of(learner)
    assert torch.equal(tap.targets.labels, learner.memory.labels[rows])
    torch.testing.assert_close(terms["ce"], F.cross_entropy(tap.logits, tap.targets.labels))


def test_the_squared_difference_is_a_mean_over_old_columns():
    random = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 5, 6, generator=random)
    old = torch.tensor([True, False, True, False, False, True])
    torch.testing.assert_close(ocm.masked_mse(a, b, old), F.mse_loss(a[:, old], b[:, old]))


def test_distillation_reaches_the_logits_of_old_classes_only():
    learner = run(small(), 0, TASK + 1)  # classes of this task have been met
    terms, tap, _ = terms_of(learner)
    (gradient,) = torch.autograd.grad(terms["mse"], tap.logits)
    touched = gradient.abs().sum(0) > 0
    assert touched.tolist() == [True, True, False, False, False, False]


@pytest.mark.parametrize("save_before_the_boundary", [False, True])
def test_classes_become_old_at_the_boundary_and_not_before(tmp_path, save_before_the_boundary):
    learner = later()
    for position in range(TASK, 2 * TASK):
        learner.learn(*batch(position, (2, 5)))
        assert learner.method.old.nonzero().flatten().tolist() == [0, 1]
    if save_before_the_boundary:
        learner.save(tmp_path)
        learner = Learner.load(tmp_path)
    learner.end_task()
    assert learner.method.old.nonzero().flatten().tolist() == [0, 1, 2, 5]


# --- the teacher ----------------------------------------------------------------------------------------------


def test_trap_8_the_teacher_uses_batch_statistics_even_after_predicting():
    learner, other = later(), later()
    for one in (learner, other):
        one.predict(batch(0, (0, 1))[0])
        assert all(module.training for module in one.peers[0].teacher.modules())
    for name, buffer in other.peers[0].teacher.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            buffer.fill_(1e3)
    ours, theirs = terms_of(learner)[0], terms_of(other)[0]
    assert torch.equal(ours["previous"], theirs["previous"])
    assert torch.equal(ours["mse"], theirs["mse"])


def test_trap_8_student_and_teacher_see_independent_views_of_the_memory():
    learner = later()
    network, teacher = passes(learner)
    _, _, rows = terms_of(learner)
    views = [to_float(learner.memory.images[rows]), network[1], teacher[1]]
    assert len({view.shape for view in views}) == 1
    assert not any(torch.equal(views[i], views[j]) for i, j in ((0, 1), (0, 2), (1, 2)))


def test_the_teacher_is_the_network_at_the_last_boundary_and_does_not_learn():
    learner = later()
    (peer,) = learner.peers
    before = {name: p.clone() for name, p in peer.teacher.named_parameters()}
    assert_same_tree(before, dict(peer.network.named_parameters()))
    run(learner, TASK, 2 * TASK - 1)
    assert_same_tree(before, dict(peer.teacher.named_parameters()))
    assert not any(p.requires_grad for p in peer.teacher.parameters())
    assert trees_differ(before, dict(peer.network.named_parameters()))
    run(learner, 2 * TASK - 1, 2 * TASK)
    assert_same_tree(peer.network.state_dict(), peer.teacher.state_dict())


def test_teacher_and_old_classes_stay_where_a_captured_step_reads_them():
    learner = later()
    held = [*learner.peers[0].teacher.state_dict().values(), learner.method.old]
    places = [tensor.data_ptr() for tensor in held]
    run(learner, TASK, 2 * TASK)
    held = [*learner.peers[0].teacher.state_dict().values(), learner.method.old]
    assert [tensor.data_ptr() for tensor in held] == places


# --- as a learner ---------------------------------------------------------------------------------------------


def test_a_branch_with_all_weights_at_zero_leaves_the_base_trajectory_to_the_bit():
    zero = {"name": "s6mod", "weight_dr": 0.0, "alpha": 0.0, "beta": 0.0, "weight_z": 0.0, "noisy_gate": True}
    base, state = run(small(), 0, 5).state_dict(), run(small(zero), 0, 5).state_dict()
    assert_same_tree(base["peers"]["0"]["network"], state["peers"]["0"]["network"])
    assert_same_tree(base["peers"]["0"]["teacher"], state["peers"]["0"]["teacher"])
    assert_same_tree(base["method"], state["method"])
    assert torch.equal(base["generators"]["method"], state["generators"]["method"])


def test_the_tap_gives_another_view_of_what_cross_entropy_saw():
    learner = later()
    network, _ = passes(learner)
    _, tap, rows = terms_of(learner)
    assert tap.again().shape == tap.feature_map.shape
    assert network[2].shape == network[1].shape
    for other in (network[1], to_float(learner.memory.images[rows])):
        assert not torch.equal(network[2], other)


def test_trap_23_similarities_are_float32_when_the_network_runs_in_bfloat16(monkeypatch):
    learner, made = later(), []
    monkeypatch.setattr(contrastive, "similarity", lambda *a, f=similarity: made.append((a[0], f(*a))) or made[-1][1])
    with torch.autocast("cpu", torch.bfloat16):
        terms, tap, _ = terms_of(learner)
    assert tap.feature_map.dtype == torch.bfloat16
    assert [(z.dtype, S.dtype) for z, S in made] == [(torch.float32, torch.float32)] * 2
    assert all(term.dtype == torch.float32 and term.isfinite() for term in terms.values())


def test_the_projection_leaves_the_rest_of_the_network_as_it_is():
    torch.manual_seed(0)
    plain = ResNet18(NetworkConfig(width=4), (3, 16, 16), 5)
    torch.manual_seed(0)
    network = ProjectedResNet18(NetworkConfig(width=4), (3, 16, 16), 5, 7)
    x = torch.rand(3, 3, 16, 16)
    out, expected = network(x), plain(x)
    for name in ("feature_map", "features", "logits"):
        assert torch.equal(getattr(out, name), getattr(expected, name))
    torch.testing.assert_close(out.projection, out.features @ network.projection.weight.T + network.projection.bias)
