import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from s6mod.data.streams import StreamConfig, StreamPlan, make_plan
from s6mod.engine.random import derive_seed, generator
from s6mod.errors import ConfigError, DataError, InputError

CIFAR10_ORDERS = [
    [2, 8, 4, 9, 1, 6, 7, 3, 0, 5],
    [2, 9, 6, 4, 0, 3, 1, 7, 8, 5],
    [4, 1, 5, 0, 7, 2, 3, 6, 9, 8],
    [5, 4, 1, 2, 9, 6, 7, 0, 3, 8],
    [3, 8, 4, 9, 2, 6, 0, 1, 5, 7],
    [9, 5, 2, 4, 7, 1, 0, 8, 6, 3],
    [8, 1, 7, 0, 6, 5, 2, 4, 3, 9],
    [8, 5, 0, 2, 1, 9, 7, 3, 6, 4],
    [8, 6, 9, 0, 2, 5, 7, 1, 4, 3],
    [8, 4, 7, 2, 1, 9, 3, 0, 6, 5],
]


def plan_of(classes=10, each=7, seed=0, **config):
    labels = torch.arange(classes).repeat(each)
    return make_plan(labels, classes, StreamConfig(**{"tasks": 5, "batch_size": 4} | config), seed)


@pytest.mark.parametrize("seed", range(10))
def test_seeded_class_orders_are_the_published_ones(seed):
    plan = plan_of(seed=seed)
    assert list(plan.class_order) == CIFAR10_ORDERS[seed]
    assert [list(classes) for classes in plan.task_classes] == np.array(CIFAR10_ORDERS[seed]).reshape(5, 2).tolist()


@pytest.mark.parametrize(
    ("classes", "start"),
    [(100, [26, 86, 2, 55, 75, 93, 16, 73, 54, 95]), (200, [18, 170, 107, 98, 177, 182, 5, 146, 12, 152])],
)
def test_seeded_class_orders_of_larger_sets_begin_as_published(classes, start):
    plan = plan_of(classes=classes, each=1, tasks=10)
    assert list(plan.class_order[:10]) == start
    assert sorted(plan.class_order) == list(range(classes))


def test_a_fixed_order_is_the_labels_own_whatever_the_seed():
    assert plan_of(class_order="fixed", seed=3).class_order == tuple(range(10))


def test_an_explicit_order_is_kept():
    order = (9, 7, 5, 3, 1, 8, 6, 4, 2, 0)
    assert plan_of(class_order=order).class_order == order
    assert StreamConfig.parse({"class_order": list(order)}).class_order == order


@pytest.mark.parametrize("order", [(0, 1), (0,) * 10, (*range(9), 10)])
def test_an_explicit_order_must_name_every_class_once(order):
    with pytest.raises(ConfigError, match=r"every class id of 0\.\.9 once"):
        plan_of(class_order=order)


def test_a_plan_with_cifar_sizes_has_the_published_steps():
    labels = torch.arange(10).repeat(5000)
    plan = make_plan(labels, 10, StreamConfig(tasks=5), seed=0)
    assert len(plan) == 5000
    assert torch.bincount(plan.batch_tasks).tolist() == [1000] * 5


def test_classes_that_do_not_divide_are_dealt_as_evenly_as_possible():
    assert [len(classes) for classes in plan_of(tasks=3).task_classes] == [4, 3, 3]


def test_the_last_batch_of_a_task_is_kept_though_smaller_and_marked():
    batches = list(plan_of(each=7).batches())  # 14 samples in each task
    assert [len(batch.ids) for batch in batches] == [4, 4, 4, 2] * 5
    assert [batch.task for batch in batches] == [task for task in range(5) for _ in range(4)]
    assert [batch.is_last_of_task for batch in batches] == [False, False, False, True] * 5
    assert [batch.position for batch in batches] == list(range(20))


def test_samples_are_shuffled_inside_their_task_by_the_seed():
    same, other = plan_of(class_order="fixed"), plan_of(class_order="fixed", seed=1)
    assert same.hash == plan_of(class_order="fixed").hash
    assert not torch.equal(same.ids, other.ids)
    first = same.ids[:14]
    assert first.tolist() != sorted(first.tolist())
    assert sorted(first.tolist()) == sorted(other.ids[:14].tolist())


def test_making_a_plan_touches_no_global_generator():
    torch.manual_seed(1)
    np.random.seed(1)
    plan_of()
    assert torch.rand(1) == torch.rand(1, generator=torch.Generator().manual_seed(1))
    assert np.random.rand() == np.random.RandomState(1).rand()


def test_a_limit_shortens_every_task_alike_and_keeps_its_first_samples():
    full, short = plan_of(), plan_of(limit=17)
    assert len(short.ids) == 17
    of_task = [torch.cat([b.ids for b in short.batches() if b.task == task]) for task in range(5)]
    assert [len(ids) for ids in of_task] == [4, 4, 3, 3, 3]
    assert all(torch.equal(ids, full.ids[14 * task :][: len(ids)]) for task, ids in enumerate(of_task))
    assert plan_of(limit=1000).hash == full.hash


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        ({"tasks": 11}, "at most 10 tasks, one class each, got 11"),
        ({"limit": 4}, "limit of at least 5"),
        ({"seed": -1}, "expected a seed in 0..4294967295 .*got -1"),
        ({"seed": 2**32}, "got 4294967296"),
    ],
)
def test_impossible_plans_are_refused(config, hint):
    with pytest.raises(ConfigError, match=hint):
        plan_of(**config)


@pytest.mark.parametrize(
    "values", [{"tasks": 0}, {"batch_size": 0}, {"limit": 0}, {"kind": "clear"}, {"class_order": "random"}]
)
def test_impossible_settings_are_refused(values):
    with pytest.raises(ConfigError, match=next(iter(values))):
        StreamConfig.parse(values)


def test_a_task_without_samples_is_refused():
    with pytest.raises(DataError, match=r"task 1, got none of its classes \(2, 3\)"):
        make_plan(torch.tensor([0, 1]), 4, StreamConfig(tasks=2, class_order="fixed"), 0)


def test_the_hash_tells_plans_apart():
    plans = [
        plan_of(),
        plan_of(seed=1),
        plan_of(class_order="fixed"),
        plan_of(batch_size=5),
        plan_of(tasks=2),
        plan_of(limit=20),
    ]
    assert len({plan.hash for plan in plans}) == len(plans)


def test_a_saved_plan_is_the_same_plan(tmp_path):
    plan = plan_of()
    plan.save(tmp_path / "plan.safetensors")
    loaded = StreamPlan.load(tmp_path / "plan.safetensors")
    assert loaded.hash == plan.hash
    assert all(torch.equal(a.ids, b.ids) for a, b in zip(loaded.batches(), plan.batches(), strict=True))
    assert (loaded.class_order, loaded.task_classes) == (plan.class_order, plan.task_classes)
    assert [file.name for file in tmp_path.iterdir()] == ["plan.safetensors"], "nothing half-written is left"


def test_files_that_are_no_plan_are_refused(tmp_path):
    path = tmp_path / "plan.safetensors"
    with pytest.raises(DataError, match="check the path"):
        StreamPlan.load(path)
    plan_of().save(path)
    whole = path.read_bytes()
    tensors = {"ids": plan_of().ids}
    save_file(tensors, tmp_path / "other")
    at = whole.index(b'"hash"')
    damaged = [
        whole[:-9],
        whole[:-1] + b"\x01",
        whole[: at + 8] + b"0" * 12 + whole[at + 20 :],
        (tmp_path / "other").read_bytes(),
        b"",
    ]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(DataError, match="another or a damaged file"):
            StreamPlan.load(path)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("offsets", [0, 2, 2, 4]),  # an empty batch
        ("offsets", [0, 3, 2, 4]),
        ("offsets", [0, 2, 3, 5]),
        ("offsets", [1, 2, 3, 4]),
        ("batch_tasks", [0, 1]),
        ("batch_tasks", [1, 0, 1]),
        ("batch_tasks", [0, 1, 2]),
        ("batch_tasks", [-1, 0, 1]),
        ("ids", [0, 1, 2, -3]),
    ],
)
def test_parts_that_disagree_make_no_plan(part, value):
    parts = {"ids": [3, 1, 0, 2], "offsets": [0, 2, 3, 4], "batch_tasks": [0, 1, 1]}
    rest = {"task_classes": ((0,), (1,)), "class_order": (0, 1)}
    StreamPlan(**{name: torch.tensor(p) for name, p in parts.items()}, **rest)
    with pytest.raises(DataError, match="parts disagree"):
        StreamPlan(**{name: torch.tensor(p) for name, p in (parts | {part: value}).items()}, **rest)


def test_positions_outside_the_plan_are_refused():
    plan = plan_of()
    assert list(plan.batches(len(plan))) == []
    for start in (-1, len(plan) + 1):
        with pytest.raises(InputError, match=f"got {start}; use the plan"):
            plan.batches(start)
    with pytest.raises(IndexError):
        plan[len(plan)]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_plan_visits_each_sample_once_in_task_order_and_resumes_anywhere(data):
    num_classes = data.draw(st.integers(2, 8), "classes")
    tasks = data.draw(st.integers(1, num_classes), "tasks")
    batch_size = data.draw(st.integers(1, 7), "batch size")
    extra = data.draw(st.lists(st.integers(0, num_classes - 1), max_size=40), "extra labels")
    order = data.draw(st.sampled_from(["seeded", "fixed"]) | st.permutations(range(num_classes)).map(tuple), "order")
    labels = torch.tensor([*range(num_classes), *extra])
    config = StreamConfig(tasks=tasks, batch_size=batch_size, class_order=order)
    plan = make_plan(labels, num_classes, config, data.draw(st.integers(0, 2**32 - 1), "seed"))

    batches = list(plan.batches())
    assert len(batches) == len(plan)
    assert sorted(torch.cat([batch.ids for batch in batches]).tolist()) == list(range(len(labels)))
    assert [batch.task for batch in batches] == sorted(batch.task for batch in batches)
    assert [batch.task for batch in batches if batch.is_last_of_task] == list(range(tasks))
    for batch in batches:
        assert set(labels[batch.ids].tolist()) <= set(plan.task_classes[batch.task])
        assert len(batch.ids) == batch_size or (batch.is_last_of_task and 0 < len(batch.ids) < batch_size)

    cursor = data.draw(st.integers(0, len(plan)), "cursor")
    for resumed, straight in zip(plan.batches(cursor), batches[cursor:], strict=True):
        assert torch.equal(resumed.ids, straight.ids)
        assert resumed[2:] == straight[2:]
        assert resumed.position == straight.position


def test_seeds_by_name_are_fixed_for_all_time_and_differ_by_name_and_by_seed():
    assert derive_seed(0, "stream") == 3932298305529779929  # sha256 of "0:stream", first 63 bits
    seeds = {derive_seed(seed, name) for seed in range(50) for name in ("stream", "memory", "augment", "1", "11")}
    assert len(seeds) == 250
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_named_generator_repeats_itself_and_no_other():
    def draw(*name):
        return torch.rand(8, generator=generator(*name))

    assert torch.equal(draw(0, "stream"), draw(0, "stream"))
    assert not torch.equal(draw(0, "stream"), draw(0, "memory"))
    assert not torch.equal(draw(0, "stream"), draw(1, "stream"))
