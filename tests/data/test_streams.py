import errno

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from s6mod.data.streams import StreamConfig, StreamPlan, make_plan
from s6mod.errors import ConfigError, DataError, InputError
from s6mod.random import derive_seed, generator

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


@pytest.mark.parametrize("kind", ["class-incremental", "blurry", "repeated", "task-free", "iid"])
def test_a_plan_does_not_depend_on_the_default_type(kind):
    usual = plan_of(kind=kind, each=30, imbalance=3.0).hash
    try:
        torch.set_default_dtype(torch.float64)
        assert plan_of(kind=kind, each=30, imbalance=3.0).hash == usual
    finally:
        torch.set_default_dtype(torch.float32)


def test_plans_are_the_same_for_ever():
    """Published runs name these plans by their hashes."""
    assert plan_of().hash == "6d2bd213eef3"
    labels = torch.arange(997) * 7919 % 23
    assert make_plan(labels, 23, StreamConfig(tasks=4, class_order="fixed"), 3).hash == "a8c2a38ea892"
    shortened = make_plan(torch.arange(6).repeat(30), 6, StreamConfig(tasks=3, samples_per_task=20), 1)
    assert shortened.hash == "720103dbc92d"
    assert shortened.ids[:6].tolist() == [49, 164, 50, 37, 109, 140]


@pytest.mark.parametrize(
    ("kind", "pinned"), [("blurry", "30bcb0412c45"), ("repeated", "17414caf95fe"), ("task-free", "24f33fc163d7")]
)
def test_plans_of_other_kinds_are_the_same_on_every_machine(kind, pinned):
    assert plan_of(each=30, kind=kind, imbalance=7.0).hash == pinned


def of_tasks(plan, labels=None):
    """The sample ids, or the labels, of each task."""
    ids = [torch.cat([b.ids for b in plan.batches() if b.task == task]) for task in range(plan.num_tasks)]
    return ids if labels is None else [labels[i] for i in ids]


def test_samples_per_task_keeps_the_first_of_each_task():
    full, short = of_tasks(plan_of()), of_tasks(plan_of(samples_per_task=4))
    assert [ids.tolist() for ids in short] == [ids[:4].tolist() for ids in full]
    assert plan_of(samples_per_task=1000).hash == plan_of().hash


def test_a_limit_keeps_the_first_samples_of_the_stream_and_the_tasks_they_reach():
    full, short = plan_of(), plan_of(limit=17)  # 14 samples in each task, in batches of 4
    assert torch.equal(short.ids, full.ids[:17])
    assert [len(batch.ids) for batch in short.batches()] == [4, 4, 4, 2, 3]
    assert short.task_classes == full.task_classes[:2]
    assert [batch.is_last_of_task for batch in short.batches()] == [False, False, False, True, True]
    assert plan_of(limit=1000).hash == full.hash
    assert [len(batch.ids) for batch in plan_of(limit=14).batches()] == [4, 4, 4, 2]


def test_given_class_lists_are_the_tasks_and_what_is_not_listed_does_not_come():
    plan = plan_of(tasks=((7, 2, 5), (0,)), seed=-1)  # no class order is drawn, so any seed will do
    assert plan.task_classes == ((7, 2, 5), (0,))
    assert plan.class_order == (7, 2, 5, 0)
    assert [len(ids) for ids in of_tasks(plan)] == [21, 7]
    assert set((plan.ids % 10).tolist()) == {7, 2, 5, 0}
    assert StreamConfig.parse({"tasks": [[7, 2, 5], [0]]}).tasks == ((7, 2, 5), (0,))


@pytest.mark.parametrize("kind", ["class-incremental", "blurry", "repeated", "task-free", "iid"])
def test_given_class_lists_are_home_tasks_in_every_kind(kind):
    plan = plan_of(tasks=((7, 2, 5), (0, 1)), each=20, kind=kind)
    assert plan.task_classes == ((7, 2, 5), (0, 1))
    assert len(plan.ids) == 100


def test_a_blurry_stream_deals_its_share_of_each_class_evenly_to_the_other_tasks():
    plan = plan_of(kind="blurry", each=100, blur=0.29, class_order="fixed")
    labels = torch.arange(10).repeat(100)
    for task, arrived in enumerate(of_tasks(plan, labels)):
        for label, count in enumerate(torch.bincount(arrived, minlength=10).tolist()):
            assert count == 71 if label // 2 == task else count in (7, 8)
    assert plan.boundaries


def test_a_blurry_stream_mixes_guests_and_those_at_home():
    plan = plan_of(kind="blurry", each=100, blur=0.5, class_order="fixed")
    first = of_tasks(plan, torch.arange(10).repeat(100))[0]
    assert (first[:50] > 1).any()
    assert (first[-50:] <= 1).any()


def test_classes_of_a_repeated_stream_come_back_but_never_before_their_home_task():
    labels = torch.arange(10).repeat(60)
    plan = plan_of(kind="repeated", each=60, class_order="fixed")
    tasks = of_tasks(plan, labels)
    comes = torch.stack([torch.bincount(arrived, minlength=10) for arrived in tasks])  # (T, C)
    for label in range(10):
        home = label // 2
        assert not comes[:home, label].any()
        present = comes[:, label][comes[:, label] > 0]
        assert comes[home, label] > 0
        assert present.max() - present.min() <= 1, "evenly shared"
    assert (comes > 0).sum() > 10, "some come back"
    certain = plan_of(kind="repeated", each=60, class_order="fixed", return_probability=1.0)
    assert [len(arrived.unique()) for arrived in of_tasks(certain, labels)] == [2, 4, 6, 8, 10]
    never = plan_of(kind="repeated", each=60, class_order="fixed", return_probability=0.0)
    assert [len(arrived.unique()) for arrived in of_tasks(never, labels)] == [2] * 5


def test_repeats_spread_a_samples_visits_over_the_tasks_of_its_class():
    plan = plan_of(kind="repeated", each=60, class_order="fixed", return_probability=1.0, repeats=2)
    visits = [torch.bincount(ids, minlength=600) for ids in of_tasks(plan)]
    assert (sum(visits) == 2).all()
    labels = torch.arange(10).repeat(60)
    early = labels < 8  # the last two classes have one task for both visits
    assert all(count[early].max() == 1 for count in visits[:4])


def test_classes_of_a_task_free_stream_drift_past_one_another():
    labels = torch.arange(10).repeat(200)
    plan = plan_of(kind="task-free", each=200, class_order="fixed")
    assert not plan.boundaries
    position = torch.empty(2000)
    position[plan.ids] = torch.arange(2000.0) / 2000
    for label in range(2, 8):  # those away from the ends, where times are squeezed
        times = position[labels == label]
        assert abs(times.mean() - (label + 0.5) / 10) < 0.02
        assert abs(times.std() - 0.05) < 0.01
    sharp = plan_of(kind="task-free", each=200, class_order="fixed", spread=1e-9)
    assert labels[sharp.ids].tolist() == sorted(labels.tolist())


@pytest.mark.parametrize("kind", ["task-free", "iid"])
def test_batches_of_a_stream_that_shows_no_boundary_betray_none(kind):
    plan = plan_of(kind=kind, each=7)  # 14 samples in each part, in batches of 4
    assert [len(batch.ids) for batch in plan.batches()] == [4] * 17 + [2]
    assert torch.bincount(plan.batch_tasks).tolist() == [4, 3, 4, 3, 4]
    with pytest.raises(ConfigError, match="a batch of 30 samples in each task, got a task of 14; lower batch_size"):
        plan_of(kind=kind, each=7, batch_size=30)


def test_an_iid_stream_mixes_all_classes_from_the_first_part_to_the_last():
    labels = torch.arange(10).repeat(200)
    plan = plan_of(kind="iid", each=200, class_order="fixed")
    assert sorted(plan.ids.tolist()) == list(range(2000))
    for part in of_tasks(plan, labels):
        assert (torch.bincount(part, minlength=10) - 40).abs().max() < 25  # of 400 samples, 40 of each class, by chance
    assert not plan.boundaries
    assert plan.task_classes == plan_of(each=200, class_order="fixed").task_classes
    assert plan_of(kind="iid", seed=1, class_order="fixed").hash != plan_of(kind="iid", class_order="fixed").hash


def test_an_imbalanced_stream_has_an_exponential_tail_with_the_ratio_asked_for():
    labels = torch.arange(10).repeat(500)
    plans = [plan_of(each=500, imbalance=100.0, seed=seed) for seed in (0, 1)]
    counts = [torch.bincount(labels[plan.ids], minlength=10) for plan in plans]
    expected = [round(500 * 100 ** (-rank / 9)) for rank in range(10)]
    assert (expected[0], expected[-1]) == (500, 5)
    assert all(sorted(count.tolist(), reverse=True) == expected for count in counts)
    assert counts[0].tolist() != counts[1].tolist(), "which class is rare is a matter of the seed"


def test_every_class_keeps_a_sample_however_long_the_tail():
    assert len(plan_of(imbalance=1e6).ids) >= 10


@pytest.mark.parametrize(
    ("values", "hint"),
    [
        ({"blur": 0.1}, "blur: expected it for a blurry stream only, got it for a class-incremental one; leave it out"),
        ({"kind": "blurry", "spread": 0.1}, "spread: expected it for a task-free stream only, got it for a blurry one"),
        ({"kind": "task-free", "repeats": 2}, "repeats: expected it for a repeated stream only"),
        ({"kind": "blurry", "tasks": 1}, "2 or more tasks for a blurry stream, got 1"),
        ({"kind": "blurry", "blur": 1.0}, "blur"),
        ({"kind": "task-free", "spread": 0.0}, "spread"),
        ({"imbalance": 0.5}, "imbalance"),
        ({"tasks": []}, "1 or more tasks"),
        ({"tasks": [[0, 1], [1]]}, "share no class"),
        ({"tasks": [[0, 1], []]}, "have one at least"),
        ({"tasks": [[0, 1], [2]], "class_order": "fixed"}, "no class_order beside tasks"),
    ],
)
def test_options_that_mean_nothing_are_refused(values, hint):
    with pytest.raises(ConfigError, match=hint):
        StreamConfig.parse(values)


def test_options_of_a_kind_are_filled_in_and_read_back():
    config = StreamConfig.parse({"kind": "repeated"})
    assert (config.return_probability, config.repeats, config.blur, config.spread) == (0.5, 1, None, None)
    assert StreamConfig.parse(config.plain()) == config
    assert StreamConfig.parse({"kind": "blurry"}) == StreamConfig.parse({"kind": "blurry", "blur": 0.1})


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        ({"tasks": 11}, "at most 10 tasks, one class each, got 11"),
        ({"tasks": ((0, 1), (10,))}, r"classes in 0\.\.9 in tasks, got 10"),
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
        plan_of(samples_per_task=4),
        plan_of(kind="blurry"),
        plan_of(kind="repeated"),
        plan_of(kind="task-free"),
        plan_of(kind="iid"),
        plan_of(imbalance=2.0),
    ]
    told = plans[0]
    plans.append(StreamPlan(told.ids, told.offsets, told.batch_tasks, told.task_classes, told.class_order, False))
    assert len({plan.hash for plan in plans}) == len(plans)


def test_a_saved_plan_is_the_same_plan(tmp_path):
    plan = plan_of()
    plan.save(tmp_path / "plan.safetensors")
    loaded = StreamPlan.load(tmp_path / "plan.safetensors")
    assert loaded.hash == plan.hash
    assert all(torch.equal(a.ids, b.ids) for a, b in zip(loaded.batches(), plan.batches(), strict=True))
    assert (loaded.class_order, loaded.task_classes) == (plan.class_order, plan.task_classes)
    assert [file.name for file in tmp_path.iterdir()] == ["plan.safetensors"], "nothing half-written is left"


def test_a_plan_that_finds_no_room_leaves_the_one_before(tmp_path, monkeypatch):
    def fsync(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "plan.safetensors"
    plan_of().save(path)
    monkeypatch.setattr("os.fsync", fsync)
    with pytest.raises(OSError, match="No space"):
        plan_of(seed=1).save(path)
    assert StreamPlan.load(path).hash == plan_of().hash
    assert [file.name for file in tmp_path.iterdir()] == ["plan.safetensors"]


def test_a_plan_saved_before_there_were_task_free_streams_shows_boundaries(tmp_path):
    path = tmp_path / "plan.safetensors"
    plan_of().save(path)
    with safe_open(path, "pt") as file:
        metadata = {name: value for name, value in file.metadata().items() if name != "boundaries"}
        save_file({name: file.get_tensor(name) for name in file.keys()}, path, metadata)  # noqa: SIM118
    loaded = StreamPlan.load(path)
    assert loaded.boundaries
    assert loaded.hash == plan_of().hash


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
