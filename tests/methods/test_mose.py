import numpy as np
import pytest
import torch
from torch.nn import functional as F

from s6mod import Learner
from s6mod.memory import ReplayMemory
from s6mod.methods import Batch, Plan, Task
from s6mod.methods.expert_losses import distillation, supervised_contrastive
from s6mod.methods.mose import MOSE, MOSEConfig

CPU = torch.device("cpu")
SHAPE = (3, 16, 16)
SMALL = {"name": "mose", "network": {"width": 4, "projection": 8}, "memory_batch": 16}


def images(count, seed=0):
    return torch.randint(0, 256, (count, *SHAPE), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def remembered(*stored, size=1000):
    """A memory that holds ``stored[t]`` images of task t, in an order that mixes the tasks; labels are 2 t."""
    memory = ReplayMemory(size, SHAPE, "batched", CPU)
    tasks = torch.repeat_interleave(torch.arange(len(stored)), torch.tensor(stored, dtype=torch.int64))
    tasks = tasks[torch.randperm(len(tasks), generator=torch.Generator().manual_seed(1))]
    memory.filled = memory.seen = len(tasks)
    memory.tasks[: len(tasks)], memory.labels[: len(tasks)] = tasks, 2 * tasks
    memory.device_labels[: len(tasks)] = 2 * tasks
    memory.images[: len(tasks)] = images(len(tasks), seed=7)
    return memory


def planned(memory, index, per_task=2, num_classes=10, batch=10, current=None, **options):
    """The plan for a batch of task ``index``, when ``current`` of its ``per_task`` classes have been seen."""
    classes = list(range((index + 1) * per_task))
    current = per_task if current is None else current
    seen = classes[: index * per_task + current]
    task = Task(index, 5, seen, seen[index * per_task :])
    method = MOSE(MOSEConfig(**options), SHAPE, num_classes)
    labels = torch.full((batch,), seen[-1])
    return method.plan(labels, memory, task, torch.Generator().manual_seed(0))


def batch(position, size=6, classes=(0, 1)):
    labels = torch.tensor(classes)[torch.arange(position, position + size) % len(classes)]
    return images(size, seed=100 + position), labels


def small(engine=None, **options):
    return Learner({**SMALL, **options}, num_classes=10, memory_size=40, seed=3, predict_among="all", engine=engine)


def run(learner, start, stop):
    """Two new classes and a boundary every three batches."""
    for position in range(start, stop):
        task = position // 3
        learner.learn(*batch(position, classes=(2 * task, 2 * task + 1)))
        if (position + 1) % 3 == 0:
            learner.end_task()
    return learner


# --- which images a step sees ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "tasks", "task", "repeated", "earlier"),
    [
        *((10, 5, task, 10, earlier) for task, earlier in ((2, 28), (3, 42), (4, 54), (5, 54))),
        *((100, 10, task, 10, 54) for task in (2, 3, 4, 5)),
        *((100, 10, task, repeated, 64 - repeated) for task, repeated in ((7, 9), (10, 6))),
        *((200, 100, task, *sets) for task, sets in ((2, (10, 28)), (7, (9, 55)), (64, (1, 63)), (65, (0, 64)))),
    ],
)
def test_the_table_of_batch_compositions(classes, tasks, task, repeated, earlier):
    memory = remembered(*[100] * task, size=10_000)
    rows = planned(memory, task - 1, classes // tasks, classes).rows  # the table counts tasks from 1
    assert len(rows["repeated"]) == repeated
    assert rows["repeated"].tolist() == list(range(repeated))
    assert (len(rows["cat"]), len(rows["new"])) == (earlier, 22)
    assert (memory.tasks[rows["cat"]] < task - 1).all()
    assert (memory.tasks[rows["new"]] == task - 1).all()
    for drawn in (rows["cat"], rows["new"]):
        assert len(drawn.unique()) == len(drawn)


def test_the_first_task_replays_up_to_a_whole_memory_batch_and_has_no_second_set():
    for stored, replayed in ((10, 10), (64, 64), (500, 64)):
        rows = planned(remembered(stored), 0).rows
        assert [len(rows[name]) for name in ("new", "repeated", "cat")] == [replayed, 0, 0]


def test_the_first_batch_of_a_later_task_finds_nothing_of_its_own_task():
    rows = planned(remembered(200, 200), 2, current=1).rows
    assert len(rows["new"]) == 0
    # 64 * 1 // 5 = 12 would fit, but the batch has 10; 7 images of each of 5 classes.
    assert (len(rows["repeated"]), len(rows["cat"])) == (10, 35)


@pytest.mark.parametrize(("stored", "replayed"), [(0, 0), (1, 0), (2, 2), (22, 22), (23, 22)])
def test_all_of_few_are_replayed_except_a_lone_one(stored, replayed):
    assert len(planned(remembered(100, stored), 1).rows["new"]) == replayed


def test_all_of_few_earlier_images_are_replayed():
    assert len(planned(remembered(3, 50), 1).rows["cat"]) == 3


def test_draws_are_uniform_over_the_earlier_tasks():
    memory = remembered(50, 50, 20)
    counts = torch.zeros(1000)
    method, generator = MOSE(MOSEConfig(), SHAPE, 10), torch.Generator().manual_seed(0)
    task = Task(2, 5, [0, 1, 2, 3, 4, 5], [4, 5])
    for _ in range(300):
        counts[method.plan(torch.full((10,), 4), memory, task, generator).rows["cat"]] += 1
    earlier = counts[:120][memory.tasks[:120] < 2]
    assert earlier.mean() == 300 * 42 / 100
    assert earlier.min() > 126 - 4.5 * 8.6  # binomial: 300 draws of 0.42
    assert earlier.max() < 126 + 4.5 * 8.6


def test_the_classes_of_the_task_are_told_and_all_in_the_first():
    assert planned(remembered(50), 0).rows["classes"].tolist() == [1] * 10
    assert planned(remembered(50, 50), 1).rows["classes"].tolist() == [0, 0, 1, 1, 0, 0, 0, 0, 0, 0]
    assert planned(remembered(50, 50), 1, current=1).rows["classes"].tolist() == [0, 0, 1, 0, 0, 0, 0, 0, 0, 0]


# --- views ----------------------------------------------------------------------------------------------------


def test_each_set_comes_as_images_mirrors_augmented_images_augmented_mirrors():
    method, memory = MOSE(MOSEConfig(), SHAPE, 10), remembered(4, 4)
    method.augment = lambda x, generator: x + 100
    stream = Batch(images(3, seed=3), torch.tensor([2, 3, 2]))
    rows = {"new": torch.tensor([1]), "repeated": torch.arange(2), "cat": torch.tensor([0, 5, 6])}
    views = method.draw(stream, Plan(rows | {"classes": torch.ones(10, dtype=torch.int64)}), memory, torch.Generator())

    new = method.prepare(torch.cat([stream.images, memory.images[1:2]]))
    cat = method.prepare(torch.cat([stream.images[:2], memory.images[[0, 5, 6]]]))
    blocks = [(part + extra, mirror) for part in (new, cat) for extra in (0, 100) for mirror in (False, True)]
    expected = torch.cat([part.flip(3) if mirror else part for part, mirror in blocks])
    assert torch.equal(views.view, expected)
    labels = [2, 3, 2, memory.labels[1]] * 4 + [2, 3, *memory.labels[[0, 5, 6]]] * 4
    assert torch.equal(views.targets.labels, torch.tensor(labels))
    assert views.split == 4


def test_the_two_copies_of_a_stream_image_are_augmented_independently_and_never_mirrored_at_random():
    method, memory = MOSE(MOSEConfig(), SHAPE, 10), remembered(0, 0)
    stream = Batch(images(1), torch.tensor([2]))
    none = torch.zeros(0, dtype=torch.int64)
    rows = {"new": none, "repeated": torch.arange(1), "cat": none, "classes": torch.ones(10, dtype=torch.int64)}
    view = method.draw(stream, Plan(rows), memory, torch.Generator().manual_seed(0)).view
    assert torch.equal(view[0], view[4])
    assert not torch.allclose(view[2], view[6])
    assert not method.augment.draw(1000, (16, 16), torch.Generator(), CPU).flip.any()


# --- losses ---------------------------------------------------------------------------------------------------


def step(learner, position, classes):
    """The views and losses of the step that the learner is about to take."""
    x, y = batch(position, classes=classes)
    plan = learner.method.plan(y, learner.memory, learner.task.with_classes(y), learner.host_generator)
    views = learner.method.draw(Batch(x, y), plan, learner.memory, learner.generators["method"])
    losses = learner.method.losses(learner.peers[0], views, learner.memory, learner.generators["method"])
    return views, losses


def by_definition(learner, views, current):
    """The loss terms expert by expert, `cat` weighing 3; ``current``: the classes of the task, or None in the first."""
    out = learner.peers[0].network(views.view)  # training mode: the same batch statistics
    labels, n = views.targets.labels, 4 * views.split
    ce = 0.0
    for expert in range(4):
        logits = out.expert_logits[:, expert]
        if current is None:
            ce = ce + F.cross_entropy(logits, labels)
        else:
            places = torch.tensor([current.index(label) for label in labels[:n].tolist()])
            ce = ce + 2 * F.cross_entropy(logits[n:], labels[n:]) + F.cross_entropy(logits[:n][:, current], places)
    return {
        "ce": ce,
        "scl": supervised_contrastive(out.projections, labels, 0.07),
        "distil": distillation(out.student, out.features[:, :3]),
    }


@pytest.mark.parametrize("task", [0, 1])
def test_the_loss_of_a_step_is_that_of_its_definition(task):
    learner = run(small(), 0, 2 + 3 * task)
    current = [2, 3] if task else [0, 1]
    views, losses = step(learner, 4, current)
    expected = by_definition(learner, views, current if task else None)
    assert len(views.images) > views.split or not task
    assert losses.terms.keys() == expected.keys()
    for name, term in losses.terms.items():
        torch.testing.assert_close(term, expected[name], rtol=1e-4, atol=1e-4)


def test_gradients_go_where_they_should():
    learner = run(small(), 0, 5)
    _, losses = step(learner, 4, [2, 3])
    network = learner.peers[0].network

    def reached(term):
        network.zero_grad()
        term.backward(retain_graph=True)
        return {name for name, p in network.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}

    parts = {"heads", "projections", "adaptation", "attentions", "alignments", "stem", "stages"}
    found = {name: {key.split(".")[0] for key in reached(term)} for name, term in losses.terms.items()}
    assert found["ce"] == parts - {"projections", "adaptation"}
    assert found["scl"] == parts - {"heads", "adaptation"}
    assert found["distil"] == {"adaptation", "stem", "stages"}


# --- the tap --------------------------------------------------------------------------------------------------


def test_the_tap_is_the_deepest_experts_on_the_whole_joint_batch():
    learner = run(small(), 0, 5)
    views, losses = step(learner, 4, [2, 3])
    out, tap = learner.peers[0].network(views.view), losses.tap
    assert torch.equal(tap.feature_map, out.feature_map)
    assert torch.equal(tap.logits, out.expert_logits[:, 3])
    assert tap.targets is views.targets
    fresh = tap.again()
    assert fresh.shape == tap.feature_map.shape
    assert not torch.allclose(fresh, tap.feature_map)


# --- predictions ----------------------------------------------------------------------------------------------


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def test_scores_are_those_of_a_numpy_computation_with_memory_and_images_in_batches_of_any_size():
    learner = run(small(engine={"eval_batch": 7}), 0, 8)
    x = images(9, seed=5)
    tables = learner.scores(x)
    network, prepare = learner.peers[0].network.eval(), learner.method.prepare
    with torch.no_grad():
        out = network(prepare(x))
        stored = unit(network(prepare(learner.memory.images[:40])).features.double().numpy())  # (40, 4, F)
    features, labels = unit(out.features.double().numpy()), learner.memory.labels.numpy()
    distances = np.full((4, 9, 10), np.inf)
    for c in np.unique(labels):
        mean = unit(stored[labels == c].mean(0))  # (4, F)
        distances[:, :, c] = ((features - mean) ** 2).sum(2).T
    assert tables.keys() == {"head", "heads", "ncm", "moe"}
    np.testing.assert_allclose(tables["ncm"], -distances[3], atol=1e-5)
    np.testing.assert_allclose(tables["moe"], -distances.mean(0), atol=1e-5)
    np.testing.assert_allclose(tables["head"], out.expert_logits[:, 3], atol=1e-5)
    np.testing.assert_allclose(tables["heads"], out.expert_logits.mean(1), atol=1e-5)
    assert torch.equal(learner.predict(x), tables["ncm"].argmax(1))
    assert learner.method.scores([out], None).keys() == learner.method.memory_free


def test_a_seen_class_without_an_image_left_is_not_predicted_by_its_mean():
    learner = run(small(), 0, 8)
    gone = learner.memory.labels == 1
    learner.memory.device_labels[:40][gone] = 0
    tables = learner.scores(images(3))
    seen = torch.isfinite(tables["ncm"]).all(0)
    assert seen.nonzero().flatten().tolist() == [0, 2, 3, 4, 5]
    assert torch.equal(seen, torch.isfinite(tables["moe"]).all(0))
    assert torch.isfinite(tables["head"]).all()


# --- options --------------------------------------------------------------------------------------------------


def test_defaults_are_those_of_the_published_results_and_survive_a_partial_configuration():
    config = MOSEConfig.parse({"optimizer": {"eps": 1e-7}, "augment": {"grey_probability": 0.5}})
    optimizer = {"name": "adam", "lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-7, "weight_decay": 1e-4, "momentum": 0.9}
    assert config.plain()["optimizer"] == optimizer
    augment = config.plain()["augment"]
    assert (augment["flip_probability"], augment["grey_probability"], augment["scale"]) == (0.0, 0.5, [0.3, 1.0])
    assert (config.memory_batch, config.temperature, config.network.projection) == (64, 0.07, 128)
