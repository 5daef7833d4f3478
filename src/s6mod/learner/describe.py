"""What a learner says of itself in one line: what it is, what it has seen, how well it does."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from s6mod.learner.learner import Learner


def describe(learner: "Learner") -> str:
    """The line that ``repr`` gives; nothing is computed for it, so accuracy is that of the latest ``evaluate``."""
    config = learner.config
    name = "+".join(part.name for part in (config.method, config.branch, config.teacher) if part is not None)
    classes = "any" if config.num_classes is None else str(config.num_classes)
    head = f"Learner({name}, {classes} classes, memory of {config.memory_size}, seed {config.seed})"
    if learner.steps == 0:
        return f"{head}: nothing learned yet"
    memory, seen = learner.memory, len(learner.task.seen)
    told = [
        f"{_count(memory.seen, 'image', 'images')} in {_count(learner.steps, 'batch', 'batches')}",
        f"{seen} of {classes} classes seen" if config.num_classes else f"{_count(seen, 'class', 'classes')} seen",
        f"{memory.filled:,} kept",
    ]
    if learner.evaluated is None:
        return f"{head}: {', '.join(told)}; not evaluated yet"
    accuracy, images, steps = learner.evaluated
    when = "" if steps == learner.steps else f", {_count(learner.steps - steps, 'batch', 'batches')} ago"
    return f"{head}: {', '.join(told)}; {accuracy:.1f} % of {_count(images, 'image', 'images')} right{when}"


def _count(n: int, one: str, more: str) -> str:
    return f"{n:,} {one if n == 1 else more}"
