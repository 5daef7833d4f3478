from functools import cache

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from learners import MEMORY, STREAM, TASK, batch, run, small
from s6mod.augment import to_float
from s6mod.engine.step import Inputs
from s6mod.errors import ConfigError
from s6mod.methods import Batch, methods
from s6mod.methods.ccldc import chain_cross_entropy, distillation

PAIRS = ["er-ccldc", "ocm-ccldc", "onpro-ccldc"]


def later(name="er-ccldc", **options):
    """A learner at the second step of its second task, where OnPro mixes."""
    return run(small(name, **options), 0, TASK + 1)


def base(out):
    """The output for the base view, be it of a pass that two views share."""
    return out if hasattr(out, "logits") else out[0]


class Step:
    """A step that is not taken: its views, losses and terms, and what each network saw and answered, in order."""

    def __init__(self, learner, position=TASK + 1, classes=(2, 3)):
        self.learner = learner
        images, labels = batch(position, classes)
        method, self.passes, hooks = learner.method, [[], []], []
        for peer, passes in zip(learner.peers, self.passes, strict=True):
            see = lambda _, args, out, passes=passes: passes.append((args[0], base(out).logits))  # noqa: E731
            hooks.append(peer.network.register_forward_hook(see))
        drawn, method.draw = [], lambda *a, draw=method.draw: drawn.append(draw(*a)) or drawn[-1]
        plan = method.plan(labels, learner.memory, learner.task, learner.host_generator)
        self.terms, self.losses = learner.step.losses(Inputs(Batch(images, labels), plan, slots=labels))
        (self.views,) = drawn
        del method.draw
        for hook in hooks:
            hook.remove()

    def chain_logits(self, peer):
        """g_0, g_1, g_2, g_3 of the last four passes."""
        g3, g0, g1, g2 = (logits for _, logits in self.passes[peer][-4:])
        return g0, g1, g2, g3


@cache
def later_step(name="er-ccldc"):
    """One step for all tests that only look at it."""
    return Step(later(name))


# --- passes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "first_task", "later_task"),
    [
        ("er-ccldc", None, [74] + 4 * [74]),
        ("ocm-ccldc", [320, 10] + 4 * [10], [2368, 64] + 4 * [74]),
        ("onpro-ccldc", [320, 10] + 4 * [10], [32 * (10 + 64), 64, 128] + 4 * [74]),
    ],
)
def test_trap_22_each_network_takes_the_published_passes_after_the_methods_own(name, first_task, later_task):
    learner = small(name, method={"memory_batch": 64}, memory_size=100, num_classes=10)
    learner.build((3, 8, 8))
    seen = [[], []]

    def watch():
        for peer, sizes in zip(learner.peers, seen, strict=True):
            sizes.clear()
            peer.network.register_forward_pre_hook(lambda _, args, sizes=sizes: sizes.append(len(args[0])))

    watch()
    learner.learn(*batch(0, (0, 1), size=10))
    assert seen == [first_task or []] * 2  # ER only stores its first batch
    for peer in learner.peers:
        peer.network._forward_pre_hooks.clear()  # a teacher would inherit it
    images, labels = batch(1, tuple(range(10)), size=80)
    learner.memory.store(learner.memory.place(labels, 0, learner.host_generator), images, labels)
    learner.task.seen = list(range(10))
    learner.end_task()
    watch()
    learner.learn(*batch(2, (6, 7), size=10))
    assert seen == [later_task] * 2
    for peer in learner.peers:
        assert peer.network.stem[1].num_batches_tracked == len(first_task or []) + len(later_task)


@pytest.mark.parametrize("name", PAIRS)
def test_trap_22_the_hardest_view_comes_first_and_both_networks_see_the_same_chain(name):
    step = later_step(name)
    x0, x1, x2, x3 = step.views.chain
    for passes in step.passes:
        for (seen, _), view in zip(passes[-4:], (x3, x0, x1, x2), strict=True):
            assert torch.equal(seen, view)
    views = (x0, x1, x2, x3)
    assert not any(torch.equal(views[i], views[j]) for i in range(4) for j in range(i))


def test_the_chain_of_er_is_memory_and_stream():
    step = later_step()
    x, y = batch(TASK + 1, (2, 3))
    assert torch.equal(step.views.chain[0][MEMORY:], to_float(x))
    assert torch.equal(step.views.labels[MEMORY:], y)
    stored = list(to_float(step.learner.memory.images))
    assert len(step.views.labels) == MEMORY + STREAM
    assert all(any(torch.equal(image, one) for one in stored) for image in step.views.chain[0][:MEMORY])


def test_the_chain_of_ocm_is_the_stream_and_then_stream_and_memory():
    first = Step(run(small("ocm-ccldc"), 0, 1), 1, (0, 1))
    x, y = batch(1, (0, 1))
    assert torch.equal(first.views.chain[0], to_float(x))
    assert torch.equal(first.views.labels, y)

    step = later_step("ocm-ccldc")
    x, y = batch(TASK + 1, (2, 3))
    images, labels = step.views.own[1].plain.images, step.views.own[1].plain.labels
    assert torch.equal(step.views.chain[0], to_float(torch.cat([x, images])))
    assert torch.equal(step.views.labels, torch.cat([y, labels]))


def test_ocm_shares_rotated_images_and_redraws_what_cross_entropy_sees():
    (big1, ce1, *_), (big2, ce2, *_) = later_step("ocm-ccldc").passes
    assert torch.equal(big1[0], big2[0])
    assert ce1[0].shape == ce2[0].shape
    assert not torch.equal(ce1[0], ce2[0])


def test_er_shares_its_view():
    (own1, *_), (own2, *_) = later_step().passes
    assert torch.equal(own1[0], own2[0])


# --- the loss -------------------------------------------------------------------------------------------------


def test_trap_16_distillation_is_a_sum_of_four_divergences_times_sixteen():
    random = torch.Generator().manual_seed(0)
    g, h = torch.randn(2, 4, 5, 6, generator=random, dtype=torch.double) * 3

    def divergence(teacher, student):
        p, q = ((logits / 4).softmax(1) for logits in (teacher, student))
        return 16 * sum((p[n] * (p[n] / q[n]).log()).sum() for n in range(len(p))) / len(p)

    expected = divergence(h[3], g[3]) + divergence(h[1], g[0]) + divergence(h[2], g[1]) + divergence(h[3], g[2])
    torch.testing.assert_close(distillation(g, h, 4.0), expected)
    torch.testing.assert_close(distillation(g, h, 4.0), 16 * distillation(g / 4, h / 4, 1.0))


def test_trap_16_the_chains_cross_entropy_is_a_sum_over_views_of_means():
    random = torch.Generator().manual_seed(0)
    g, labels = torch.randn(4, 5, 6, generator=random), torch.tensor([0, 5, 2, 2, 1])
    torch.testing.assert_close(chain_cross_entropy(g, labels), sum(F.cross_entropy(view, labels) for view in g))


@pytest.mark.parametrize(
    ("name", "own", "views", "kd"), [("er", 0.5, 0.5, 2), ("ocm", 1, 0.25, 4), ("onpro", 1, 0.25, 1)]
)
def test_traps_16_and_17_the_weights_are_the_methods(name, own, views, kd):
    step, alone = later_step(f"{name}-ccldc"), run(small(name), 0, TASK + 2).losses().keys()
    students = [step.chain_logits(number) for number in (0, 1)]
    for number, (g, h) in enumerate((students, students[::-1])):
        terms = {key.split("/")[1]: value for key, value in step.terms.items() if key.startswith(f"net{number + 1}/")}
        chain = sum(F.cross_entropy(logits, step.views.labels) for logits in g)
        torch.testing.assert_close(terms.pop("chain"), views * chain)
        torch.testing.assert_close(terms.pop("kd"), kd * distillation(torch.stack(g), torch.stack(h), 4.0))
        tap = step.losses[number].tap
        if name != "onpro":  # whose labels are mixed
            torch.testing.assert_close(terms["ce"], own * F.cross_entropy(tap.logits, tap.targets.labels))
        assert terms.keys() == alone


def test_a_weight_multiplies_its_terms_and_no_others_and_the_temperature_is_that_of_the_distillation():
    learner, factors = later("ocm-ccldc"), {"own_weight": 2, "views_weight": 3, "kd_weight": 5}
    config = learner.method.config
    weights = {weight: factor * getattr(config.collaboration, weight) for weight, factor in factors.items()}
    collaboration = config.collaboration.model_copy(update=weights | {"temperature": 2.0})
    learner.method.config = config.model_copy(update={"collaboration": collaboration})
    step = Step(learner)
    before, after = dict(later_step("ocm-ccldc").terms), step.terms
    assert before.keys() == after.keys()
    students = [torch.stack(step.chain_logits(number)) for number in (0, 1)]
    for number, (g, h) in enumerate((students, students[::-1]), start=1):
        before[f"net{number}/kd"] = config.collaboration.kd_weight * distillation(g, h, 2.0)
    for key, term in before.items():
        weight = {"chain": "views_weight", "kd": "kd_weight"}.get(key.split("/")[1], "own_weight")
        torch.testing.assert_close(after[key], factors[weight] * term)


def test_the_teachers_logits_are_constants():
    step = later_step()
    for number, peer in enumerate(step.learner.peers):
        taught = list(step.learner.peers[1 - number].network.parameters())
        for name in ("kd", "chain", "ce"):
            loss = step.terms[f"net{number + 1}/{name}"]
            others = torch.autograd.grad(loss, taught, retain_graph=True, allow_unused=True)
            assert all(gradient is None for gradient in others), name
            (own,) = torch.autograd.grad(loss, peer.network.stem[0].weight, retain_graph=True)
            assert own.abs().sum() > 0


def test_losses_are_float32_when_the_networks_run_in_bfloat16():
    learner = later("ocm-ccldc")
    with torch.autocast("cpu", torch.bfloat16):
        terms = Step(learner).terms
    assert all(term.dtype == torch.float32 and term.isfinite() for term in terms.values())


def test_losses_are_computed_in_float32_from_logits_in_bfloat16():
    random, labels = torch.Generator().manual_seed(0), torch.tensor([0, 5, 2, 2, 1])
    g, h = torch.randn(2, 4, 5, 6, generator=random).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        inside = torch.stack([chain_cross_entropy(g, labels), distillation(g, h, 4.0)])
    outside = torch.stack([chain_cross_entropy(g.float(), labels), distillation(g.float(), h.float(), 4.0)])
    assert inside.dtype == torch.float32
    assert torch.equal(inside, outside)


# --- what a method brings and keeps ---------------------------------------------------------------------------


def test_trap_4_ocm_in_a_pair_has_other_rates_of_its_optimiser_and_a_change_of_one_keeps_the_others():
    (group,) = run(small("ocm-ccldc"), 0, 1).optimizer.param_groups
    assert (group["lr"], group["betas"], group["weight_decay"]) == (1e-3, (0.9, 0.999), 0)
    changed = methods.configure({"name": "ocm-ccldc", "optimizer": {"lr": 0.1}}).optimizer
    assert (changed.lr, changed.betas, changed.weight_decay) == (0.1, (0.9, 0.999), 0)
    assert methods["ocm-ccldc"].config_class().optimizer.betas == (0.9, 0.999)
    for name in ("er", "onpro"):
        assert methods.configure(f"{name}-ccldc").optimizer == methods.configure(name).optimizer


@pytest.mark.parametrize("target", [None, "logits"])
def test_trap_13_ocm_in_a_pair_draws_logits_to_features_of_the_teacher_unless_told_otherwise(target):
    learner, answers = later("ocm-ccldc", method={"mse_target": target} if target else {}), [[], []]
    for peer, given in zip(learner.peers, answers, strict=True):
        peer.teacher.register_forward_hook(lambda _, args, out, given=given: given.append(out))
    step = Step(learner)
    for number, (_, past) in enumerate(answers):
        table = past.logits if target == "logits" else past.features
        logits = step.losses[number].tap.logits
        torch.testing.assert_close(step.terms[f"net{number + 1}/mse"], F.mse_loss(logits[:, :2], table[:, :2]))


def test_features_must_be_as_many_as_classes_to_be_their_target():
    narrow = {"method": {"network": {"width": 1}}, "num_classes": 9}
    with pytest.raises(ConfigError, match=r"expected a feature for each of 9 classes.* got 8; widen the network"):
        run(small("ocm-ccldc", **narrow), 0, 1)
    narrow["method"]["mse_target"] = "logits"
    run(small("ocm-ccldc", **narrow), 0, TASK + 1)


@pytest.mark.parametrize("name", ["er", "ocm", "onpro"])
def test_a_pair_is_declared_as_its_method_is(name):
    alone, both = methods[name], methods[f"{name}-ccldc"]
    for declared in ("needs_boundaries", "reservoir", "primary"):
        assert getattr(both, declared) == getattr(alone, declared)
    assert (alone.num_peers, both.num_peers) == (1, 2)
    collaboration = methods.configure(f"{name}-ccldc").collaboration
    assert (collaboration.temperature, collaboration.crop.scale) == (4, (0.6, 1))
    assert (collaboration.rand_augment.operations, collaboration.rand_augment.magnitude) == (3, 15)


def test_options_of_method_and_pair_are_set_side_by_side():
    options = {"memory_batch": 7, "collaboration": {"kd_weight": 3.0, "rand_augment": {"magnitude": 11}}}
    config = methods.configure({"name": "ocm-ccldc", **options})
    assert (config.memory_batch, config.collaboration.kd_weight, config.collaboration.views_weight) == (7, 3, 0.25)
    assert methods.configure(config.plain()) == config
    with pytest.raises(ConfigError, match=r"did you mean 'collaboration.kd_weight'"):
        methods.configure({"name": "er-ccldc", "collaboration": {"kd_wait": 2.0}})


# --- as a learner ---------------------------------------------------------------------------------------------


def test_the_networks_begin_differently_and_alike_in_shape():
    first, second = (peer.network for peer in run(small("er-ccldc"), 0, 1).peers)
    assert type(first) is type(second)
    assert all(not torch.equal(a, b) for a, b in zip(_weights(first), _weights(second), strict=True))


def _weights(network):
    return [module.weight for module in network.modules() if isinstance(module, nn.Conv2d | nn.Linear)]


def test_trap_18_the_mean_of_the_logits_predicts_and_each_network_has_its_table():
    learner, (x, _) = later(), batch(9, (0, 1), size=40)
    scores, alone = learner.scores(x), []
    for peer in learner.peers:
        peer.eval()
        with torch.no_grad():
            alone.append(peer.network(to_float(x)))
        peer.train()
    assert scores.keys() == {"head", "net1", "net2", "ncm"}
    torch.testing.assert_close(scores["net1"], alone[0].logits)
    torch.testing.assert_close(scores["net2"], alone[1].logits)
    torch.testing.assert_close(scores["head"], (alone[0].logits + alone[1].logits) / 2)
    assert torch.equal(learner.predict(x), scores["head"].argmax(1))
    assert learner.primary == "head"


def test_class_means_are_those_of_averaged_features():
    learner, (x, _) = later(), batch(9, (0, 1), size=40)
    images, labels = learner.memory.images[: len(learner.memory)], learner.memory.labels[: len(learner.memory)]
    for peer in learner.peers:
        peer.eval()
    with torch.no_grad():
        stored, asked = (
            sum(peer.network(to_float(part)).features for peer in learner.peers) / 2 for part in (images, x)
        )
    for peer in learner.peers:
        peer.train()
    present = labels.unique()
    means = torch.stack([stored[labels == label].mean(0) for label in present])
    assert torch.equal(learner.scores(x)["ncm"].argmax(1), present[torch.cdist(asked, means).argmin(1)])


def test_only_tables_that_need_the_memory_read_it():
    learner, (x, _) = later(), batch(9, (0, 1))
    learner.memory.images = None
    for name in ("head", "net1", "net2"):
        assert learner._tables(x, name)[name].shape == (STREAM, 6)


@pytest.mark.parametrize(("name", "view"), [("er-ccldc", "fresh"), ("ocm-ccldc", "shared"), ("ocm-ccldc", "fresh")])
def test_a_branch_sees_what_the_method_sees_and_nothing_of_the_chain(name, view):
    step = Step(later(name, branch={"name": "s6mod", "view": view}))
    assert {f"net{number}/branch/dr" for number in (1, 2)} <= step.terms.keys()
    own = STREAM + MEMORY if name == "er-ccldc" else MEMORY
    for loss, passes in zip(step.losses, step.passes, strict=True):
        assert len(loss.tap.feature_map) == len(loss.tap.targets.labels) == own
        images, logits = passes[-5]  # the method's last pass; the chain's follow
        assert len(images) == (2 * own if view == "fresh" else own)  # a fresh view shares it
        assert torch.equal(loss.tap.logits, logits)
