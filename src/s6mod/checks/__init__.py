"""Behaviour that every method must show, with and without plug-ins: register a method and run it through these.

Each check is a plain function of a method, a branch and a teacher that makes one statement, and raises AssertionError
with one sentence where it does not hold. They learn digits of a few pixels on the CPU and need no test framework. How
accurate or fast a method is on real data is not their business.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from s6mod.checks.blind import Looked, blind
from s6mod.checks.candidate import (
    ENOUGH,
    AnyBranch,
    AnyMethod,
    AnyTeacher,
    Candidate,
    difference,
    flat,
    run,
    silence,
)
from s6mod.checks.digit_stream import (
    EQUAL_BATCHES,
    MEMORY_SIZE,
    NUM_CLASSES,
    PREFIX,
    SHAPE,
    TASK_ENDS,
    samples,
    stream,
    true_for_now,
    two_digits,
)
from s6mod.engine.checkpoint import Tree
from s6mod.engine.evaluate import Predictor
from s6mod.engine.step import Step
from s6mod.errors import ConfigError
from s6mod.learner import Learner
from s6mod.learner.classes import FIRST_CAPACITY
from s6mod.learner.parts import grown
from s6mod.memory import ReplayMemory
from s6mod.methods import Batch, methods


def check_learns(method: AnyMethod, branch: AnyBranch = None, teacher: AnyTeacher = None) -> None:
    """It tells two digits apart, nine times in ten, within 100 steps of four images."""
    candidate, best = Candidate(method, branch, teacher), 0.0
    learner, train, test = candidate.learner(ENOUGH, memory_size=40), two_digits("train"), two_digits("test")
    for step in range(100):
        rows = torch.arange(4 * step, 4 * step + 4) % len(train.labels)
        learner.learn(train.images[rows], train.labels[rows])
        if step % 5 == 4:
            hits = learner.predict(test.images) == test.labels
            best = max(best, hits.double().mean().item())
        if best >= 0.9:
            return
    candidate.expect(False, "reach 90 % on two digits within 100 steps", f"{100 * best:.0f} %")


def check_resumes(method: AnyMethod, branch: AnyBranch = None, teacher: AnyTeacher = None) -> None:
    """Saved within a task, after a boundary, and loaded, it goes on to the same bits as if it had never stopped."""
    candidate = Candidate(method, branch, teacher)
    with TemporaryDirectory() as folder:
        for name, content in candidate.record().saved.items():
            Path(folder, name).write_bytes(content)
        loaded = Learner.load(folder)
    candidate.expect_same(
        [flat(loaded.state_dict())], candidate.trajectory()[PREFIX - 1 : PREFIX], "load what it saved"
    )
    resumed = run(loaded, stream()[PREFIX:], start=PREFIX)
    candidate.expect_same(resumed, candidate.trajectory()[PREFIX:], "resume as if it had never stopped")


def check_follows_its_seed(method: AnyMethod, branch: AnyBranch = None, teacher: AnyTeacher = None) -> None:
    """Its trajectory is that of its seed, whatever the process drew before; another seed is another network."""
    candidate = Candidate(method, branch, teacher)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        again = run(candidate.learner(), stream()[:PREFIX])
    candidate.expect_same(again, candidate.trajectory()[:PREFIX], "repeat its trajectory with the same seed")
    first, second = candidate.learner(seed=0), candidate.learner(seed=1)
    for learner in (first, second):
        learner.build(SHAPE)
    for ours, theirs in zip(first.peers, second.peers, strict=True):
        differ = difference(flat(ours.network.state_dict()), flat(theirs.network.state_dict()))
        candidate.expect(bool(differ), "start from another network with another seed", "the same one")


def check_keeps_to_its_memory(method: AnyMethod, branch: AnyBranch = None, teacher: AnyTeacher = None) -> None:
    """The memory holds what the stream brought, within its budget, and the method hoards nothing beside it."""
    candidate, known = Candidate(method, branch, teacher), set()
    fresh = candidate.learner()
    fresh.build(SHAPE)
    budget = ReplayMemory(MEMORY_SIZE, SHAPE, "sequential", torch.device("cpu"), fresh.method.values()).nbytes
    for batch, state, holds in zip(stream(), candidate.trajectory(), candidate.record().footprints, strict=True):
        known |= samples(batch.images, batch.labels)
        seen, filled = state["memory/seen"], state["memory/filled"]
        candidate.expect(
            (seen, filled) == (len(known), min(len(known), MEMORY_SIZE)),
            f"leave writing the memory to the learner, which offered {len(known)} samples",
            f"{seen} offered and {filled} stored",
        )
        within = holds.memory_bytes <= budget
        candidate.expect(within, f"keep its memory within {budget} bytes", f"{holds.memory_bytes}")
        for labels in (state["memory/labels"], holds.device_labels):
            stored = samples(state["memory/images"][:filled], labels[:filled])
            candidate.expect(stored <= known, "store only samples of the stream", "others in memory")
    before, after = (candidate.record().footprints[position].method_bytes for position in EQUAL_BATCHES)
    candidate.expect(after <= before, "hold no more after more batches of a task", f"{after - before} bytes more")


def check_declares_boundaries(method: AnyMethod, branch: AnyBranch = None, teacher: AnyTeacher = None) -> None:
    """Moving or dropping ``end_task`` changes nothing, unless it declares that it needs boundaries."""
    candidate = Candidate(method, branch, teacher)
    if methods[candidate.method_name].needs_boundaries:
        refused = ""
        try:
            candidate.learner(boundaries="none")
        except ConfigError as error:
            refused = str(error)
        one_sentence = refused != "" and "\n" not in refused
        candidate.expect(one_sentence, "refuse boundaries='none' in one sentence", repr(refused))
        return
    moved = run(candidate.learner(), stream(), ends=frozenset({1, 4}))
    dropped = run(candidate.learner(boundaries="none"), stream())
    for other, how in ((moved, "moved"), (dropped, "dropped")):
        what = f"follow one trajectory when end_task is {how}, since it declares no boundaries"
        candidate.expect_same(other, candidate.trajectory(), what, ignore=("host/task/*", "memory/tasks"))


def check_ignores_the_future(method: AnyMethod, branch: AnyBranch = None, teacher: AnyTeacher = None) -> None:
    """The batch that it is given decides, not what comes later, and not what else its arrays hold at any time."""
    candidate = Candidate(method, branch, teacher)
    poisoned = run(candidate.learner(), true_for_now())
    candidate.expect_same(poisoned, candidate.trajectory()[:PREFIX], "learn from the batch it is given alone")


def check_bears_odd_batches(method: AnyMethod, branch: AnyBranch = None, teacher: AnyTeacher = None) -> None:
    """All stays finite with one class in a batch, single images, and a class first seen within a task."""
    candidate = Candidate(method, branch, teacher)
    singles = [Batch(b.images[:1], b.labels[:1]) for b in stream()[:2]]
    for batches, trajectory in ((stream(), candidate.trajectory()), (singles, run(candidate.learner(), singles))):
        for batch, state in zip(batches, trajectory, strict=True):
            tensors = {path: leaf for path, leaf in state.items() if isinstance(leaf, Tensor)}
            broken = next((path for path, leaf in tensors.items() if not leaf.isfinite().all()), "")
            candidate.expect(not broken, f"stay finite after labels {batch.labels.tolist()}", f"a broken {broken}")


def check_grows(method: AnyMethod, branch: AnyBranch = None, teacher: AnyTeacher = None) -> None:
    """Told no number of classes, it grows as they come: what it knew stays, and it resumes to the same bits."""
    candidate = Candidate(method, branch, teacher)
    learner, batches = candidate.learner(num_classes=None), stream()[:PREFIX]
    for batch in batches:
        learner.learn(batch.images, [f"class {label}" for label in batch.labels])
    assert learner.parts is not None
    more = grown(learner.parts, learner.config, learner.engine, 2 * learner.parts.capacity)
    before, after = (
        Predictor(parts.method, parts.peers, parts.memory, learner.engine, "running", learner.task.seen)(batch.images)
        for parts in (learner.parts, more)
    )
    for name, table in before.items():
        alike = torch.allclose(table, after[name][:, : table.shape[1]], atol=1e-5)
        candidate.expect(alike, "score as before when it has grown", f"another table {name!r}")
    with TemporaryDirectory() as folder:
        learner.save(folder)
        resumed = Learner.load(folder)
    many = range(FIRST_CAPACITY)  # with those that came there are too few outputs
    for each in (learner, resumed):
        each.learn(batch.images[torch.tensor(many) % len(batch.images)], list(many))
        each.learn(batch.images, [f"class {label}" for label in batch.labels])
    ours, theirs = ([flat(each.state_dict())] for each in (resumed, learner))
    candidate.expect_same(ours, theirs, "resume across growth as if it had never stopped")


def check_reads_nothing_back(method: AnyMethod, branch: AnyBranch = None, teacher: AnyTeacher = None) -> None:
    """What it does in a step looks at no value: on a GPU the whole step is captured and replayed."""
    candidate = Candidate(method, branch, teacher)
    learner = candidate.learner()
    learner.build(SHAPE)
    assert isinstance(learner.step, Step)
    blind(learner.step)
    for position, batch in enumerate(stream(), start=1):
        try:
            learner.learn(batch.images, batch.labels)
        except Looked as look:
            todo = "decide in plan, on the host, or compute both and choose by torch.where"
            candidate.expect(False, "compute its step without looking at values", f"{look}; {todo}")
        if position in TASK_ENDS:
            learner.end_task()


def check_predicts_without_a_trace(method: AnyMethod, branch: AnyBranch = None, teacher: AnyTeacher = None) -> None:
    """Predicting at any step, by either statistics, gives whole score tables and leaves the trajectory as it was."""
    candidate, images = Candidate(method, branch, teacher), torch.cat([batch.images for batch in stream()])

    def look(learner: Learner) -> None:
        tables, labels = learner.scores(images), learner.predict(images)
        by_memory = Predictor(learner.method, learner.peers, learner.memory, learner.engine, "memory")(images)
        stored = learner.memory.labels[: len(learner.memory)].unique()
        shape = (len(images), NUM_CLASSES)
        for name, table in (*tables.items(), *by_memory.items()):
            candidate.expect(table.shape == shape, f"give a table {name!r} of shape {shape}", f"{tuple(table.shape)}")
            whole = not table.isnan().any() and bool(table[:, stored].isfinite().all())
            candidate.expect(whole, f"give finite scores {name!r} of classes in memory", "others")
        chosen = tables[learner.primary].argmax(1)
        candidate.expect(torch.equal(labels, chosen), f"predict by its table {learner.primary!r}", "other labels")

    looked = run(candidate.learner(), stream()[:PREFIX], after=look)
    candidate.expect_same(looked, candidate.trajectory()[:PREFIX], "go on as if it had not been asked")


def check_keeps_an_average(method: AnyMethod, branch: AnyBranch = None, teacher: AnyTeacher = None) -> None:
    """With averaged weights it learns the same, to the bit, and they are the plain average over its steps."""
    candidate, decay = Candidate(method, branch, teacher), 0.5
    learner = candidate.learner(average=decay)
    learner.build(SHAPE)
    expected, updates, terms = flat(_by_number(learner.peers)), 0, 0

    def follow(learner: Learner) -> None:
        nonlocal updates, terms
        if sum(learner.ledger.counts.values()) > terms:  # else the batch was only stored
            terms, rate = sum(learner.ledger.counts.values()), max(1 - decay, 9 / (10 + updates))
            updates += 1
            for path, latest in flat(_by_number(learner.peers)).items():
                if path in expected:  # a teacher comes later
                    number = latest.is_floating_point()
                    expected[path] = expected[path] + rate * (latest - expected[path]) if number else latest
        assert learner.average is not None
        averaged = flat(_by_number(learner.average.modules))
        off = [path for path in averaged if not torch.allclose(averaged[path], expected[path], rtol=1e-4, atol=1e-6)]
        candidate.expect(not off, "have weights whose average can be kept", f"another average of {''.join(off[:1])}")

    averaged = run(learner, stream()[:PREFIX], after=follow)
    what = "learn as without an average"
    candidate.expect_same(averaged, candidate.trajectory()[:PREFIX], what, ignore=("average/*",))


def _by_number(modules: Iterable[nn.Module]) -> Tree:
    return {str(number): module.state_dict() for number, module in enumerate(modules)}


def check_branch_can_be_silenced(method: AnyMethod, branch: AnyBranch = None, teacher: AnyTeacher = None) -> None:
    """With the branch's terms times 0 it follows its own trajectory without one, to the bit.

    A branch that calls ``tap.again()`` has the method draw and its BatchNorm count once more; it cannot pass.
    """
    if branch is None:
        return
    candidate, base = Candidate(method, branch, teacher), Candidate(method, None, teacher)
    learner = candidate.learner()
    learner.build(SHAPE)
    calls: list[int] = []
    for peer in learner.peers:
        assert peer.branch is not None
        silence(peer.branch, calls)
    silenced = run(learner, stream()[:PREFIX])
    asked = max(learner.ledger.counts.values(), default=0) * len(learner.peers)
    candidate.expect(len(calls) == asked > 0, "have its branch asked in each step that trains", f"{len(calls)} calls")
    own = ("peers/*/branch/*", "generators/branch", "optimizer/*", "ledger/*")
    what = "do as without its branch when the terms weigh 0"
    candidate.expect_same(silenced, base.trajectory()[:PREFIX], what, ignore=own)


def check_branch_reaches_the_network(method: AnyMethod, branch: AnyBranch = None, teacher: AnyTeacher = None) -> None:
    """Gradients of the branch pass through the tap: the network learns something else than without it."""
    if branch is None:
        return
    candidate, base = Candidate(method, branch, teacher), Candidate(method, None, teacher)
    ours, theirs = (one.trajectory()[-1] for one in (candidate, base))
    for number in range(methods[candidate.method_name].num_peers):
        differ = difference(ours, theirs, only=f"peers/{number}/network/*")
        candidate.expect(bool(differ), "learn something else with its branch", "the same network")


ALL: tuple[Callable[[AnyMethod, AnyBranch, AnyTeacher], None], ...] = (
    check_learns,
    check_resumes,
    check_follows_its_seed,
    check_keeps_to_its_memory,
    check_declares_boundaries,
    check_ignores_the_future,
    check_bears_odd_batches,
    check_grows,
    check_reads_nothing_back,
    check_predicts_without_a_trace,
    check_keeps_an_average,
    check_branch_can_be_silenced,
    check_branch_reaches_the_network,
)


def check_method(method: AnyMethod, branch: AnyBranch = None, teacher: AnyTeacher = None) -> None:
    """Run all checks on a method, by name or configuration, with a branch, a teacher, both or neither."""
    for check in ALL:
        check(method, branch, teacher)
