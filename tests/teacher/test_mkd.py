"""MKD: its loss and its copy by their formulas, and what every plug-in must keep to."""

import copy
from dataclasses import replace

import pytest
import torch
from fakes import Duo
from states import assert_same_tree
from torch.nn import functional as F

import learners
from s6mod import Learner, checks
from s6mod.errors import ConfigError, InputError
from s6mod.methods import methods
from s6mod.teacher.mkd import divergence

assert Duo  # registers the method "duo"

S6MOD = {"name": "s6mod", "view": "fresh"}
RATE = 0.25


def taught(method="er", branch=None, teacher=None, **options):
    return learners.small(method, branch, teacher={"name": "mkd", "rate": RATE, **(teacher or {})}, **options)


def by_hand(teacher, student, T):
    p, q = ((logits / T).softmax(1) for logits in (teacher, student))
    return T**2 * (p * (p / q).log()).sum(1).mean()


def test_the_divergence_is_times_the_temperature_squared_and_a_mean_over_samples():
    a, b = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(divergence(a, b, 4.0), by_hand(a, b, 4.0))
    assert divergence(a, a, 4.0) == 0


@pytest.mark.parametrize("branch", [None, S6MOD])
def test_on_er_the_copy_s_answer_to_the_augmented_batch_teaches_both_the_augmented_and_the_plain_one(branch):
    learner = learners.run(taught(branch=branch), 0, 3)
    teacher = copy.deepcopy(learner.teaching.modules[0])
    images, labels = learners.batch(3, (2, 3))
    step = learners.untaken(learner, images, labels)
    stored, _ = learner.memory.gather(step.plan.rows["replay"])
    torch.testing.assert_close(step.inputs[-1], torch.cat([stored, images]) / 255)
    view = step.inputs[0][: learners.MEMORY + learners.STREAM]  # with S6MOD its fresh view comes behind it
    answer = teacher(view).logits
    divergences = [by_hand(answer, logits, 4) for logits in (step.tap.logits, step.outputs[-1].logits)]
    torch.testing.assert_close(step.terms["teacher/kd"], 5.5 / 2 * sum(divergences))
    assert "teacher/ce" not in step.terms
    assert len(step.inputs) == 2


def test_where_a_tap_tells_no_view_a_fresh_one_is_learned_and_taught():
    learner = learners.run(taught(), 0, 3)
    (peer,), (other,) = learner.peers, learner.teaching.modules
    step = learners.untaken(learner, *learners.batch(3, (2, 3)))
    passes = []
    hook = peer.network.register_forward_hook(lambda _, args, out: passes.append((args[0], out.logits)))
    terms = learner.teaching.losses(0, replace(step.tap, seen=None))
    hook.remove()
    (view, fresh), (_, plain) = passes
    assert not torch.equal(view, step.inputs[0])
    torch.testing.assert_close(terms["ce"], F.cross_entropy(fresh, step.tap.targets.labels))
    answer = copy.deepcopy(other)(view).logits
    torch.testing.assert_close(terms["kd"], 5.5 / 2 * sum(by_hand(answer, logits, 4) for logits in (fresh, plain)))


@pytest.mark.parametrize(("method", "heads"), [("pcr", 1), ("mose", 4)])
def test_a_pass_that_holds_the_samples_both_ways_is_taught_as_it_is_each_head_by_its_own(method, heads):
    learner = learners.run(taught(method), 0, 3)
    teacher = copy.deepcopy(learner.teaching.modules[0])
    step = learners.untaken(learner, *learners.batch(3, (2, 3)))
    view = torch.cat(step.inputs)
    logits = torch.cat([out.heads.reshape(len(out.heads), heads, 6) for out in step.outputs])
    assert len(view) == len(step.tap.logits)  # no pass but the method's own
    first = len(step.inputs[0]) if method == "pcr" else 4 * (learners.STREAM + len(step.plan.rows["new"]))
    plain, augmented = [], []
    for rows in torch.arange(len(view)).tensor_split([first]):
        plain.append(rows[: len(rows) // 2])
        augmented.append(rows[len(rows) // 2 :])
    answer = teacher(view[torch.cat(augmented)]).heads.reshape(-1, heads, 6)
    expected = sum(
        by_hand(answer[:, head], logits[torch.cat(half), head], 4)
        for half in (augmented, plain)
        for head in range(heads)
    )
    torch.testing.assert_close(step.terms["teacher/kd"], 5.5 / 2 * expected)
    assert "teacher/ce" not in step.terms


def test_the_plain_samples_may_be_left_out():
    learner = learners.run(taught(teacher={"unaugmented": False}), 0, 3)
    teacher = copy.deepcopy(learner.teaching.modules[0])
    step = learners.untaken(learner, *learners.batch(3, (2, 3)))
    (view,) = step.inputs
    torch.testing.assert_close(step.terms["teacher/kd"], 5.5 * by_hand(teacher(view).logits, step.tap.logits, 4))


@pytest.mark.parametrize(("answers", "views"), [("plain", ["plain"]), ("both", ["augmented", "plain"])])
@pytest.mark.parametrize("method", ["er", "pcr"])
def test_the_copy_may_answer_on_the_samples_as_they_are(method, answers, views):
    learner = learners.run(taught(method, teacher={"answers": answers, "unaugmented": False}), 0, 3)
    teacher = copy.deepcopy(learner.teaching.modules[0])
    step = learners.untaken(learner, *learners.batch(3, (2, 3)))
    seen = step.tap.seen()
    stored, _ = learner.memory.gather(step.plan.rows["replay"])
    images = torch.cat([stored, learners.batch(3, (2, 3))[0]])
    given = {"augmented": seen.view, "plain": learner.method.prepare(images)}
    expected = torch.stack([by_hand(teacher(given[view]).logits, seen.logits, 4) for view in views]).mean()
    torch.testing.assert_close(step.terms["teacher/kd"], 5.5 * expected)
    assert len(step.inputs) == (1 if method == "er" else 2)  # no pass of the network but the method's own


def test_the_copy_starts_as_the_network_and_its_parameters_follow_at_the_rate_while_its_buffers_are_its_own():
    learner = learners.run(taught(), 0, 1)  # only stored
    (network,), (other,) = [peer.network for peer in learner.peers], learner.teaching.modules
    assert_same_tree(network.state_dict(), other.state_dict())
    expected = [p.detach().clone() for p in network.parameters()]
    for position in range(1, 4):
        learners.run(learner, position, position + 1)
        expected = [w + RATE * (p.detach() - w) for w, p in zip(expected, network.parameters(), strict=True)]
    for w, p in zip(expected, other.parameters(), strict=True):
        torch.testing.assert_close(p, w)
        assert not p.requires_grad
    assert other.stem[1].num_batches_tracked == 3
    assert network.stem[1].num_batches_tracked == 6
    assert not torch.equal(other.stem[1].running_mean, network.stem[1].running_mean)


@pytest.mark.parametrize(("method", "branch"), [("er", S6MOD), ("pcr", None), ("der++", None), ("er-ccldc", None)])
def test_with_weight_0_the_trajectory_is_the_base_s_to_the_bit(method, branch):
    base = learners.run(learners.small(method, branch), 0, 4).state_dict()
    silent = learners.run(taught(method, branch, {"weight": 0.0}), 0, 4).state_dict()
    assert silent.pop("teaching").keys() == {"updates", *base["peers"]}
    assert_same_tree(base, silent)


def test_the_method_draws_as_without_it():
    base, with_it = (learners.run(each, 0, 4) for each in (learners.small("er"), taught()))
    assert_same_tree(base.state_dict()["generators"], with_it.state_dict()["generators"])
    assert not torch.equal(base.peers[0].network.head.weight, with_it.peers[0].network.head.weight)


@pytest.mark.parametrize("method", ["er", "er-ccldc"])
def test_the_mean_of_both_networks_parameters_predicts_with_the_network_s_buffers(method):
    learner = learners.run(taught(method), 0, 4)
    x, _ = learners.batch(9, (0, 1), 4)
    heads = []
    for peer, other in zip(learner.peers, learner.teaching.modules, strict=True):
        mean = copy.deepcopy(peer.network).eval()
        for p, w in zip(mean.parameters(), other.parameters(), strict=True):
            p.data = (p.data + w) / 2
        heads.append(mean(learner.method.prepare(x)).logits.detach())
    assert learner.config.weights == "mean"
    torch.testing.assert_close(learner.scores(x)["head"], torch.stack(heads).mean(0))
    tables = learner.scores_by_all(x)
    torch.testing.assert_close(tables["mean/running/head"], learner.scores(x)["head"])
    assert not torch.equal(tables["latest/running/head"], tables["mean/running/head"])
    assert "averaged/running/head" not in tables


def test_averaged_weights_predict_where_they_are_kept_too():
    assert taught(average=0.9).config.weights == "averaged"
    assert learners.small("er").config.weights == "latest"
    with pytest.raises(
        ConfigError, match=r"^expected a learner with a teacher, got one without; make it with teacher="
    ):
        learners.run(learners.small("er"), 0, 2).predictor("mean")


@pytest.mark.parametrize(("method", "branch"), [("er", S6MOD), ("er-lwf", None)])
def test_resumed_is_uninterrupted_to_the_bit(tmp_path, method, branch):
    straight = learners.run(taught(method, branch, average=0.9), 0, 5)
    half = learners.run(taught(method, branch, average=0.9), 0, 3)
    half.save(tmp_path / "half")
    resumed = learners.run(Learner.load(tmp_path / "half"), 3, 5)
    assert_same_tree(straight.state_dict(), resumed.state_dict())
    x, _ = learners.batch(0, (0, 1), 4)
    assert torch.equal(straight.predict_proba(x), resumed.predict_proba(x))


def test_bytes_of_the_copy_count():
    plain, with_it = (learners.run(each, 0, 3) for each in (learners.small("er"), taught()))
    network = plain.peers[0].network
    held = sum(t.numel() * t.element_size() for t in (*network.parameters(), *network.buffers()))
    assert with_it.nbytes - plain.nbytes == held + 4  # and a count


@pytest.mark.parametrize("method", [name for name in methods.registered(outside=False) if not methods[name].has_logits])
def test_a_method_without_logits_refuses_it_when_its_learner_is_made(method):
    with pytest.raises(
        ConfigError, match=f"^expected no teacher on method '{method}', .*, got 'mkd'; leave the teacher"
    ):
        Learner(method, teacher="mkd", num_classes=3)


def test_a_method_that_does_not_tell_its_samples_is_refused_at_its_first_step():
    learner = learners.run(taught("duo"), 0, 1)
    with pytest.raises(InputError, match=r"^expected a tap whose samples can be seen again .*; make it by peer.look"):
        learners.run(learner, 1, 2)


def test_unknown_names_and_options_are_told():
    with pytest.raises(ConfigError, match="expected a known teacher, got 'mkf'; did you mean 'mkd'"):
        Learner(teacher="mkf", num_classes=3)
    with pytest.raises(ConfigError, match="momentum"):
        Learner(teacher={"name": "mkd", "momentum": 0.9}, num_classes=3)


@pytest.mark.parametrize("check", checks.ALL, ids=lambda check: check.__name__)
def test_er_with_both_plug_ins_conforms(check):
    check("er", "confidence", {"name": "mkd", "rate": 0.2})  # the mean predicts, and 100 steps are few


@pytest.mark.parametrize("method", ["der++", "pcr"])
def test_nothing_is_read_back_where_passes_are_added(method):
    checks.check_reads_nothing_back(method, None, "mkd")


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["er", "er-ace", "der++", "mose"])
def test_captured_is_eager_to_the_bit(method):
    side = 32 if method == "mose" else 8
    engine = {"device": "cuda", "deterministic": True}
    states = []
    for capture in ("auto", "off"):
        learner = taught(method, memory_size=8, engine={**engine, "capture": capture})
        for position in range(12):
            learner.learn(*learners.batch(position, (0, 1), side=side))
        states.append(learner.state_dict())
    assert_same_tree(*states)
