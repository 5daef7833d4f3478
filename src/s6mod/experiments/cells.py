"""Cells: an experiment without its seed, by a name that a person can type.

    METHOD[+BRANCH]/DATA/MEMORY[/KEY=VALUE ...]

such as ``onpro+s6mod/cifar100/2000`` or ``onpro+s6mod/cifar100/2000/beta=5``: a bare key is an option of the branch, a
dotted one any field of the configuration. ``moe-mose`` names results, not trainings: it is what the experts of a
training of ``mose`` predict together.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from s6mod.config import assign, nearest
from s6mod.errors import ConfigError
from s6mod.experiments.presets import BRANCHES, METHODS, datasets, preset

SHARED = {"moe-mose": ("mose", "moe")}  # names of results: the training they come from, and its score table


@dataclass(frozen=True)
class Cell:
    """One experiment; its seeds are counted elsewhere."""

    method: str
    branch: str  # "none": the method alone
    data: str
    memory: int
    changes: tuple[str, ...] = ()  # KEY=VALUE, laid over the preset

    @property
    def learner(self) -> str:
        """The method with its branch, as in ``er+s6mod``."""
        return self.method if self.branch == "none" else f"{self.method}+{self.branch}"

    @property
    def name(self) -> str:
        """The name that ``parse`` reads."""
        return "/".join((self.learner, self.data, str(self.memory), *self.changes))

    @property
    def training(self) -> "Cell":
        """The cell whose runs give this one's results: itself, unless they are shared."""
        return replace(self, method=SHARED[self.method][0]) if self.method in SHARED else self

    @property
    def scores(self) -> str | None:
        """The score table that predicts; None: the one that the run calls primary."""
        return SHARED[self.method][1] if self.method in SHARED else None

    @property
    def base(self) -> "Cell":
        """The same without a branch: what a gain is measured from."""
        return replace(self, branch="none", changes=())

    def with_branch(self, branch: str) -> "Cell":
        """The same with another branch, by its preset."""
        return replace(self, branch=branch, changes=())

    def values(self) -> dict[str, Any]:
        """Plain values of the configuration of its training: the preset and the changes to it."""
        training = self.training
        values = preset(training.method, training.branch, training.data, training.memory)
        for change in self.changes:
            key = change.partition("=")[0]
            values = assign(values, change if "." in key else f"branch.{change}")
        return values


def parse(text: str, data: str | None = None, memory: int | None = None) -> Cell:
    """The cell that ``text`` names; ``data`` (None: digits) and ``memory`` (None: the preset's) if it does not."""
    learner, *rest = text.strip().split("/")
    method, plus, branch = learner.partition("+")
    changes = tuple(part for part in rest if "=" in part)
    place = [part for part in rest if "=" not in part]
    if len(place) > 2:
        raise ConfigError(f"expected METHOD[+BRANCH]/DATA/MEMORY, got {text!r}; leave out {place[2]!r}")
    data = place[0] if place else data or "digits"
    _check("method", method, (*METHODS, *SHARED), text)
    _check("branch", branch if plus else "none", BRANCHES, text)
    _check("data set", data, datasets(), text)
    if len(place) == 2:
        if not place[1].isdigit():
            raise ConfigError(f"expected a memory size in {text!r}, got {place[1]!r}; write for instance er/digits/200")
        memory = int(place[1])
    if memory is None:
        memory = int(preset(method, "none", data, None)["memory_size"])
    if changes and not plus and any("." not in change.partition("=")[0] for change in changes):
        raise ConfigError(f"expected a branch for the options in {text!r}, got none; name it or the whole field")
    return Cell(method, branch if plus else "none", data, memory, changes)


def parse_all(texts: list[str], data: str | None = None, memory: int | None = None) -> Iterator[Cell]:
    """The cells of comma-separated names, each once, in the order given."""
    names = [name for text in texts for name in text.split(",") if name.strip()]
    yield from dict.fromkeys(parse(name, data, memory) for name in names)


def _check(kind: str, word: str, known: tuple[str, ...], text: str) -> None:
    if word not in known:
        raise ConfigError(f"expected a known {kind} in the cell {text!r}, got {word!r}; {nearest(word, known)}")
