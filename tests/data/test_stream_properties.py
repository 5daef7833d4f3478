"""What every stream plan promises, for plans and data of any size."""

import tempfile
from itertools import pairwise
from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from s6mod.data.streams import StreamConfig, StreamPlan, make_plan

quick = settings(max_examples=50, deadline=None)
KINDS = ("class-incremental", "blurry", "repeated", "task-free", "iid")
seeds = st.integers(0, 2**32 - 1)


@st.composite
def cases(draw, kinds=KINDS):
    """Labels, number of classes and a configuration that fits them; nothing is cut short."""
    num_classes = draw(st.integers(2, 8), "classes")
    kind = draw(st.sampled_from(kinds), "kind")
    tasks = draw(st.integers(2 if kind == "blurry" else 1, num_classes), "tasks")
    order = draw(st.sampled_from(["seeded", "fixed"]) | st.permutations(range(num_classes)).map(tuple), "order")
    batch_size = draw(st.integers(1, 7), "batch size")
    if draw(st.booleans(), "given lists"):
        listed = draw(st.permutations(range(num_classes)), "listed")
        cuts = sorted(draw(st.sets(st.integers(1, num_classes - 1), min_size=tasks - 1, max_size=tasks - 1), "cuts"))
        bounds = [0, *cuts, num_classes - draw(st.integers(0, num_classes - 1 - max([0, *cuts])), "unlisted")]
        tasks = tuple(tuple(listed[a:b]) for a, b in pairwise(bounds))
        order = "seeded"
    imbalance = draw(st.just(1.0) | st.floats(1, 50), "imbalance")
    options = {
        "class-incremental": {},
        "blurry": {"blur": draw(st.floats(0, 0.99), "blur")},
        "repeated": {
            "return_probability": draw(st.floats(0, 1), "return probability"),
            "repeats": draw(st.integers(1, 3), "repeats"),
        },
        "task-free": {"spread": draw(st.floats(0.001, 2), "spread")},
        "iid": {},
    }[kind]
    each = draw(st.integers(1, 12), "samples of each class")
    if kind in ("task-free", "iid"):  # which want a batch in each of their tasks, even of what a long tail leaves
        each = batch_size if imbalance == 1 else 50 * batch_size
    extra = draw(st.lists(st.integers(0, num_classes - 1), max_size=40), "extra labels")
    labels = torch.tensor([*range(num_classes)] * each + extra)
    shuffled = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(draw(seeds, "labels")))]
    config = StreamConfig(
        kind=kind, tasks=tasks, batch_size=batch_size, class_order=order, imbalance=imbalance, **options
    )
    return shuffled, num_classes, config


def flat(plan):
    return torch.cat([batch.ids for batch in plan.batches()])


@quick
@given(cases(), seeds)
def test_each_sample_comes_exactly_as_often_as_the_configuration_says(case, seed):
    labels, num_classes, config = case
    plan = make_plan(labels, num_classes, config, seed)
    visits = torch.bincount(flat(plan), minlength=len(labels))
    listed = torch.isin(labels, torch.tensor(plan.class_order))
    often = config.repeats or 1
    if config.imbalance == 1:
        assert (visits == often * listed).all()
        return
    assert set(visits.tolist()) <= {0, often}
    assert not visits[~listed].any()
    sizes = torch.bincount(labels, minlength=num_classes)
    kept = torch.bincount(labels[visits > 0], minlength=num_classes)
    last = max(len(plan.class_order) - 1, 1)
    shares = [config.imbalance ** (-rank / last) for rank in range(len(plan.class_order))]
    for label in plan.class_order:
        assert int(kept[label]) in {max(1, round(share * int(sizes[label]))) for share in shares}


@quick
@given(cases(), seeds)
def test_batches_tasks_and_boundaries_fit_together(case, seed):
    labels, num_classes, config = case
    plan = make_plan(labels, num_classes, config, seed)
    batches = list(plan.batches())
    assert [batch.position for batch in batches] == list(range(len(plan)))
    assert torch.equal(flat(plan), plan.ids)
    assert [batch.task for batch in batches] == sorted(batch.task for batch in batches)
    assert [batch.task for batch in batches if batch.is_last_of_task] == list(range(config.num_tasks))
    assert plan.num_tasks == config.num_tasks
    homes = [label for classes in plan.task_classes for label in classes]
    assert tuple(homes) == plan.class_order
    assert len(set(homes)) == len(homes)
    assert plan.boundaries == (config.kind not in ("task-free", "iid"))
    for batch in batches:
        may_be_smaller = batch.is_last_of_task if plan.boundaries else batch.position + 1 == len(plan)
        assert len(batch.ids) == config.batch_size or (may_be_smaller and 0 < len(batch.ids) < config.batch_size)


@quick
@given(cases(), seeds)
def test_samples_come_in_the_tasks_that_the_kind_allows(case, seed):
    labels, num_classes, config = case
    plan = make_plan(labels, num_classes, config, seed)
    home = {label: task for task, classes in enumerate(plan.task_classes) for label in classes}
    away = dict.fromkeys(home, 0)
    for batch in plan.batches():
        for label in labels[batch.ids].tolist():
            away[label] += batch.task != home[label]
            assert config.kind != "repeated" or batch.task >= home[label]
    if config.kind == "class-incremental":
        assert not any(away.values())
    if config.kind == "blurry":
        sizes = torch.bincount(labels[plan.ids], minlength=num_classes).tolist()
        assert all(0 <= config.blur * sizes[label] - count < 1 + 1e-9 for label, count in away.items())


@quick
@given(cases(), seeds, st.data())
def test_a_limit_is_a_prefix_of_the_whole_stream(case, seed, data):
    labels, num_classes, config = case
    whole = make_plan(labels, num_classes, config, seed)
    limit = data.draw(st.integers(1, len(whole.ids) + 3), "limit")
    plan = make_plan(labels, num_classes, config.model_copy(update={"limit": limit}), seed)
    assert torch.equal(plan.ids, whole.ids[:limit])
    *most, last = plan.batches()
    for short, long in zip([*most, last], whole.batches(), strict=False):
        assert torch.equal(short.ids, long.ids if short.position < last.position else long.ids[: len(last.ids)])
        assert short.task == long.task
    assert plan.task_classes == whole.task_classes[: last.task + 1]
    assert last.is_last_of_task


@quick
@given(cases(KINDS[:3]), seeds, st.integers(1, 30))
def test_samples_per_task_is_a_prefix_of_each_task(case, seed, most):
    labels, num_classes, config = case
    whole = make_plan(labels, num_classes, config, seed)
    short = make_plan(labels, num_classes, config.model_copy(update={"samples_per_task": most}), seed)
    assert short.task_classes == whole.task_classes
    for task in range(whole.num_tasks):
        of_whole, of_short = (torch.cat([b.ids for b in p.batches() if b.task == task]) for p in (whole, short))
        assert torch.equal(of_short, of_whole[:most])


@quick
@given(cases(), seeds, st.data())
def test_a_saved_plan_goes_on_anywhere_as_the_one_that_was_saved(case, seed, data):
    labels, num_classes, config = case
    plan = make_plan(labels, num_classes, config, seed)
    assert make_plan(labels, num_classes, config, seed).hash == plan.hash
    with tempfile.TemporaryDirectory() as folder:
        plan.save(Path(folder) / "plan")
        loaded = StreamPlan.load(Path(folder) / "plan")
    assert loaded.hash == plan.hash
    assert (loaded.task_classes, loaded.class_order, loaded.boundaries) == (
        plan.task_classes,
        plan.class_order,
        plan.boundaries,
    )
    cursor = data.draw(st.integers(0, len(plan)), "cursor")
    straight = list(plan.batches())[cursor:]
    for resumed, expected in zip(loaded.batches(cursor), straight, strict=True):
        assert torch.equal(resumed.ids, expected.ids)
        assert (resumed.position, *resumed[2:]) == (expected.position, *expected[2:])
