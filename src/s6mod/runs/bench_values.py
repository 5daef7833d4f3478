"""What ``s6mod bench`` measures, by names of methods and branches: presets of CIFAR-100, with changes to them."""

from typing import Any

from s6mod.errors import ConfigError
from s6mod.registry import Brought
from s6mod.runs.bench import MEMORY_SIZE
from s6mod.runs.cells import parse, whole_field
from s6mod.runs.completion import complete


def bench_values(method: str, branch: str) -> dict[str, Any]:
    """The whole configuration of a learner; ``branch`` may be "none", and have changes: ``none/average=0.99``."""
    branch, *changes = branch.split("/")
    for change in changes:
        if not whole_field(change).startswith(("method.", "branch.", "teacher.", "average=")):
            raise ConfigError(
                f"expected changes to method, branch, teacher or average of a benchmark, got {change!r}; leave it out, "
                "and give device and precision as flags"
            )
    learner = method if branch == "none" else f"{method}+{branch}"
    values = complete(parse("/".join([learner, *changes]), "cifar100", MEMORY_SIZE).values())
    return values | {"own": Brought.here()}  # for the processes that tell the memory
