"""Where published methods are easily got wrong: what several of them, or their presets, must say together.

A trap of one method alone is tested beside the rest of that method; docs/explanation/traps.md lists them all.
"""

import math

import pytest
import torch
from torch.nn import functional as F

from learners import METHODS
from s6mod import Learner
from s6mod.augment import to_float
from s6mod.branch.base import Targets
from s6mod.data.streams import StreamConfig, make_plan
from s6mod.engine.step import make_optimizer
from s6mod.memory import ReplayMemory
from s6mod.methods import Peer, Task, methods
from s6mod.methods.contrastive import new_loss, uniform_loss
from s6mod.methods.mose import MOSE, MOSEConfig, Views
from s6mod.metrics import AccuracyMatrix, Metrics
from s6mod.networks import ExpertsOutput
from s6mod.runs.cells import parse
from s6mod.runs.config import RunConfig

CPU = torch.device("cpu")
SHAPE = (3, 8, 8)
DATA = ("cifar10", "cifar100", "tiny-imagenet")
PLAIN = [name for name in METHODS if name != "mose"]
TASK = 2  # steps of a task


def batch(position, size=4):
    """Two new classes in every task."""
    random = torch.Generator().manual_seed(position)
    labels = 2 * (position // TASK) + torch.arange(size) % 2
    return torch.randint(256, (size, *SHAPE), generator=random, dtype=torch.uint8), labels


def small(name):
    projection = {"projection_width": 8} if name.startswith(("ocm", "onpro")) else {}
    method = {"name": name, "network": {"width": 2}, "memory_batch": 6, **projection}
    learner = Learner(method, num_classes=8, memory_size=20, seed=3)
    learner.build(SHAPE)
    return learner


def run(learner, stop):
    for position in range(stop):
        learner.learn(*batch(position))
        if position % TASK == TASK - 1:
            learner.end_task()
    return learner


def inputs_of(learner):
    """A list that fills with what the networks are given."""
    seen = []
    for peer in learner.peers:
        peer.network.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    return seen


def preset(cell):
    return RunConfig.parse(parse(cell).values()).plain()


# --- what networks are given ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLAIN)
def test_trap_01_all_but_mose_take_pixels_from_zero_to_one_without_normalisation(name):
    learner = run(small(name), TASK + 1)
    seen, (x, y) = inputs_of(learner), batch(TASK + 1)
    learner.learn(x, y)
    learner.predictor()  # before which GDumb trains
    assert all(images.min() >= 0 and images.max() <= 1 for images in seen)
    assert max(images.max() for images in seen) > 0.9
    seen.clear()
    learner.predict(x)
    assert torch.equal(seen[-1], to_float(x))


@pytest.mark.parametrize("data", DATA)
def test_trap_01_mose_takes_pixels_normalised_by_its_preset(data):
    config = methods.configure(preset(f"mose/{data}")["method"])
    tiny = data == "tiny-imagenet"
    mean = torch.tensor([0.4802, 0.4480, 0.3975] if tiny else [125.3 / 255, 123.0 / 255, 113.9 / 255])
    std = torch.tensor([0.2770, 0.2691, 0.2821] if tiny else [63.0 / 255, 62.1 / 255, 66.7 / 255])
    x, _ = batch(0)
    normalised = (to_float(x) - mean[:, None, None]) / std[:, None, None]
    torch.testing.assert_close(MOSE(config, SHAPE, 10).prepare(x), normalised)


def test_trap_01_mose_learns_and_predicts_by_what_it_prepares():
    learner = run(small("mose"), TASK + 1)
    seen, (x, y) = inputs_of(learner), batch(TASK + 1)
    learner.learn(x, y)
    learner.predict(x)
    for images in (seen[0], seen[-1]):
        assert torch.equal(images[: len(x)], learner.method.prepare(x))
    assert learner.memory.images.dtype == torch.uint8  # stored as they came


@pytest.mark.parametrize(
    ("name", "small_images", "tiny_images"),
    [
        *((name, 512, 2048) for name in ("er", "er-ccldc", "ocm", "ocm-ccldc")),
        *((name, 512, 512) for name in ("onpro", "onpro-ccldc", "mose")),
    ],
)
def test_trap_02_features_of_tiny_imagenet_are_2048_for_er_and_ocm_and_512_for_the_others(
    name, small_images, tiny_images
):
    for data, side, classes, features in (("cifar100", 32, 100, small_images), ("tiny-imagenet", 64, 200, tiny_images)):
        config = methods.configure(preset(f"{name}/{data}")["method"])
        with torch.device("meta"):  # shapes alone
            network = methods[name](config, (3, side, side), classes).make_network()
        assert network.num_features == features


# --- which images a step sees ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in METHODS if name != "gdumb"])  # which only stores
def test_trap_03_those_that_replay_at_once_only_store_the_first_batch_and_the_others_learn_it(name):
    learner = small(name)
    weights = [peer.network.stem[0].weight for peer in learner.peers]

    def moved(position):
        before = [weight.detach().clone() for weight in weights]
        learner.learn(*batch(position))
        return [not torch.equal(*pair) for pair in zip(before, weights, strict=True)]

    assert set(moved(0)) == {not name.startswith(("er", "mose", "scr", "pcr", "mir"))}
    assert len(learner.memory) == 4
    assert set(moved(1)) == {True}


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        # classes seen, two of them in this task -> images of each kind
        ("ocm", {seen: {"replay": 64} for seen in (4, 6, 10)}),
        ("onpro", {seen: {"replay": count} for seen, count in ((4, 28), (6, 42), (8, 56), (10, 64))}),
        (
            "mose",
            {
                seen: {"new": 22, "repeated": repeated, "cat": cat}
                for seen, repeated, cat in ((4, 10, 28), (6, 10, 42), (8, 10, 54), (14, 9, 55), (130, 0, 64))
            },
        ),
    ],
)
def test_trap_06_the_memory_batch_is_64_in_ocm_and_grows_in_onpro_and_mose(name, counts):
    for seen, expected in counts.items():
        method = methods[name](methods.configure(name), SHAPE, 200)
        memory, random = ReplayMemory(300, SHAPE, method.reservoir, CPU), torch.Generator().manual_seed(0)
        task = Task(seen // 2 - 1, 0, list(range(seen)), [seen - 2, seen - 1])
        for index in (0, task.index):
            memory.place(torch.full((150,), 2 * index), index, random)
        rows = method.plan(torch.full((10,), seen - 1), memory, task, random).rows
        assert {kind: len(rows[kind]) for kind in expected} == expected


@pytest.mark.parametrize("name", ["ocm", "ocm-ccldc"])
def test_trap_08_teachers_are_in_train_mode_from_the_boundary_on_and_after_loading(name, tmp_path):
    learner = run(small(name), TASK)
    learner.save(tmp_path)
    for one in (learner, Learner.load(tmp_path)):
        assert all(module.training for peer in one.peers for module in peer.teacher.modules())


@pytest.mark.parametrize(("name", "passes"), [("er", 1), ("ocm", 2), ("onpro", 3), ("mose", 1)])
def test_trap_22_a_step_updates_the_running_statistics_once_for_each_published_pass(name, passes):
    learner = run(small(name), TASK + 1)
    tracked = learner.peers[0].network.stem[1].num_batches_tracked
    before = tracked.item()
    learner.learn(*batch(TASK + 1))
    assert tracked.item() - before == passes


# --- losses ---------------------------------------------------------------------------------------------------


def test_trap_09_a_row_counts_among_its_own_positives():
    S, labels, epsilon = torch.zeros(4, 4, dtype=torch.float64), torch.tensor([0, 1, 0, 1]), 1e-8
    other, itself = math.log(3), -math.log(epsilon)  # three others are equally similar; itself: nothing
    assert new_loss(S, labels, 0.07, epsilon).item() == pytest.approx(other + 2 * (other + itself) / 2)
    assert uniform_loss(S, labels, 0.07, epsilon).item() == pytest.approx(math.log(4))


# --- options of the presets -----------------------------------------------------------------------------------


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", ["ocm", "ocm-ccldc"])
def test_trap_05_ocm_scales_by_a_half_after_the_first_task_on_every_data_set(name, data):
    assert preset(f"{name}/{data}")["method"]["scale"] == 0.5


@pytest.mark.parametrize("name", ["onpro", "onpro-ccldc"])
def test_trap_11_probabilities_of_mixing_differ_by_data_set(name):
    for data, p in (("cifar10", 0.6), ("cifar100", 0.2), ("tiny-imagenet", 0.2)):
        assert preset(f"{name}/{data}")["method"]["mixup_probability"] == p


@pytest.mark.parametrize("data", DATA)
def test_trap_13_both_quirks_of_the_published_pairs_are_on_and_plain_ocm_has_none(data):
    assert preset(f"ocm-ccldc/{data}")["method"]["mse_target"] == "features"
    assert preset(f"ocm/{data}")["method"]["mse_target"] == "logits"
    assert preset(f"onpro-ccldc/{data}")["method"]["truncate_mixed_labels"] is True


def test_trap_17_weights_of_the_distillation():
    for data, onpro in (("cifar10", 1), ("cifar100", 1), ("tiny-imagenet", 2)):
        for name, weight in (("er", 2), ("ocm", 4), ("onpro", onpro), ("er-ace", 1), ("der++", 1)):
            assert preset(f"{name}-ccldc/{data}")["method"]["collaboration"]["kd_weight"] == weight


@pytest.mark.parametrize("name", METHODS)
def test_trap_21_tiny_imagenet_comes_in_100_tasks_of_two_classes_also_for_mose(name):
    stream = StreamConfig.parse(preset(f"{name}/tiny-imagenet")["stream"])
    plan = make_plan(torch.arange(200).repeat(2), 200, stream, seed=0)
    assert [len(classes) for classes in plan.task_classes] == [2] * 100


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", METHODS)
def test_trap_26_a_branch_leaves_network_method_and_class_order_of_its_base_as_they_are(name, data):
    base, joined = preset(f"{name}/{data}"), preset(f"{name}+s6mod/{data}")
    assert joined.pop("branch")["name"] == "s6mod"
    assert base.pop("branch") is None
    assert joined == base


# --- pairs of networks ----------------------------------------------------------------------------------------


def test_trap_14_the_second_network_s_prototypes_lead_the_next_mixing():
    learner, carries = run(small("onpro-ccldc"), TASK + 1), {}
    losses = learner.method.losses

    def noted(peer, *rest):
        loss = losses(peer, *rest)
        carries[learner.peers.index(peer)] = loss.carry.own
        return loss

    learner.method.losses = noted
    learner.learn(*batch(TASK + 1))
    assert not torch.equal(carries[0], carries[1])
    assert torch.equal(learner.method.mu, carries[1])


# --- MOSE -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_trap_19_mose_adds_its_decay_to_the_gradient_and_the_others_shrink_their_weights(name):
    config = methods.configure({"name": name, "network": {"width": 1}})
    peer = Peer(methods[name](config, SHAPE, 8).make_network(), None)
    optimizer, scale = make_optimizer(config.optimizer, [peer], CPU), peer.network.stem[1].weight
    for parameter in peer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    lr, decay = config.optimizer.lr, config.optimizer.weight_decay
    # Where only the decay is in the gradient, Adam takes a whole step, however small the decay.
    expected = 1 - lr if name == "mose" else 1 - lr * decay
    torch.testing.assert_close(scale.detach(), torch.full_like(scale, expected), rtol=0, atol=2e-7)


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_trap_19_mose_weighs_cat_twice_slices_new_and_distils_by_one_norm_of_the_whole_batch():
    method, new, cat, current = MOSE(MOSEConfig(), SHAPE, 6), 8, 12, [2, 3]
    labels = torch.cat([2 + torch.arange(new) % 2, torch.arange(cat) % 4])
    features, student, logits = normal(20, 4, 5), normal(20, 5) + 1, 3 * normal(20, 4, 6)
    out = ExpertsOutput(normal(20, 8, 1, 1), features, logits[:, 3], logits, normal(20, 4, 7), student)
    classes = torch.tensor([0, 0, 1, 1, 0, 0])
    views = Views(torch.zeros(5, *SHAPE), new // 4, torch.zeros(20, *SHAPE), Targets(labels), classes)
    terms = method.losses(Peer(lambda view: out, None), views, None, None).terms

    ce = 0.0
    for expert in logits.unbind(1):
        ce += 2 * F.cross_entropy(expert[new:], labels[new:])
        ce += F.cross_entropy(expert[:new, current], labels[:new] - 2)
    torch.testing.assert_close(terms["ce"], ce)
    gaps = [F.normalize(student, dim=1) - F.normalize(features[:, i], dim=1) for i in range(3)]
    torch.testing.assert_close(terms["distil"], sum(gap.square().sum().sqrt() for gap in gaps))


def test_trap_19_mose_predicts_by_class_means_of_seen_classes_and_moe_mose_by_mean_distances():
    method = MOSE(MOSEConfig(), SHAPE, 3)
    here, aside, across = torch.tensor([1.0, 0]), torch.tensor([0.5, 0.75**0.5]), torch.tensor([0.0, 1])
    means = torch.stack(
        [
            torch.stack([across, across, across, here]),  # squared distances 2, 2, 2, 0
            torch.stack([aside] * 4),  # 1, 1, 1, 1
            torch.stack([here] * 4),  # never seen
        ]
    )
    logits = torch.tensor([[0.0, 0, 9]])
    out = ExpertsOutput(None, 3 * here.expand(1, 4, 2), logits, logits[:, None].expand(1, 4, 3), None, None)
    tables = method.scores([out], (means, torch.tensor([True, True, False])))
    assert tables["ncm"].argmax(1).item() == 0
    assert tables["moe"].argmax(1).item() == 1
    torch.testing.assert_close(tables["moe"][0, :2], torch.tensor([-1.5, -1.0]))
    assert method.primary == "ncm"


def test_trap_25_mose_has_the_first_stream_images_in_both_sets():
    learner = run(small("mose"), TASK + 1)
    seen, (x, y) = inputs_of(learner), batch(TASK + 1)
    learner.learn(x, y)
    images = learner.method.prepare(x)
    twice = [(seen[0] == image).all((1, 2, 3)).sum().item() for image in images]
    assert twice == [2] * 3 + [1]  # 6 replayed, half of the classes are new: three


# --- forgetting -----------------------------------------------------------------------------------------------


def test_trap_20_forgetting_has_three_definitions():
    metrics = Metrics.of(AccuracyMatrix.from_rows([[80], [60, 90], [70, 50, 100]]))
    assert metrics.forgetting == pytest.approx((10 + 40) / 2)  # CCL-DC: over all tasks but the last
    assert metrics.forgetting_mose == pytest.approx((10 + 40 + 0) / 3)  # MOSE and OnPro: over all tasks
    assert metrics.forgetting_paper == pytest.approx((20 + 40) / 2)  # over time, of the worst task
