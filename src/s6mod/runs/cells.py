"""Cells: an experiment without its seed, by a name that a person can type.

    METHOD[+BRANCH][+TEACHER]/DATA/MEMORY[/KEY=VALUE ...]

such as ``onpro+s6mod/cifar100/2000`` or ``onpro+s6mod/cifar100/2000/beta=5``. A bare key is a field of the run itself
(``statistics``, ``boundaries``) or else an option of the branch, a dotted one any field of the configuration. A word
for a learner (``best/cifar100/2000``) stands for its method, its plug-ins and changes. ``moe-mose`` names results, not
trainings: it is what the experts of a training of ``mose`` predict together. Own data has the name of its file or
folder, as in ``er/photos/500``.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from s6mod.branch import branches
from s6mod.config import assign, merge, nearest
from s6mod.data import StreamConfig, default_root
from s6mod.data.catalog import spell
from s6mod.errors import ConfigError
from s6mod.files import expanded
from s6mod.learner.preset import PARTS, split_learner, worded
from s6mod.methods import methods
from s6mod.presets import datasets, preset, words
from s6mod.runs.completion import run_defaults
from s6mod.teacher import teachers

PLACED = {"memory_size", "seed"}  # fields that are said otherwise than as changes
SHARED = {"moe-mose": ("mose", "moe")}  # names of results: the training they come from, and its score table


@dataclass(frozen=True)
class Cell:
    """One experiment; its seeds are counted elsewhere."""

    method: str
    branch: str  # "none": the method alone
    data: str
    memory: int
    changes: tuple[str, ...] = ()  # KEY=VALUE, laid over the preset
    root: str | None = field(default=None, compare=False)  # where own data lies, which names nothing
    teacher: str = "none"

    @classmethod
    def of(cls, config: dict[str, Any]) -> "Cell":
        """That of a complete configuration, as its preset has it: without the changes to it."""
        names: dict[str, Any] = {part: config[part]["name"] if config[part] else "none" for part in PARTS}
        return cls(data=config["data"]["name"], memory=config["memory_size"], **names)

    @property
    def learner(self) -> str:
        """The method with its plug-ins, as in ``er+s6mod`` or ``er+s6mod+mkd``."""
        return "+".join((self.method, *(name for name in (self.branch, self.teacher) if name != "none")))

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
        """The same without plug-ins: what a gain is measured from."""
        return replace(self, branch="none", teacher="none", changes=())

    def with_branch(self, branch: str) -> "Cell":
        """The same with another branch, by its preset."""
        return replace(self, branch=branch, changes=())

    def but(self, *changes: str) -> "Cell":
        """The same with these changes, in place of those to the same fields."""
        fields = {_field(change) for change in changes}
        return replace(self, changes=(*(each for each in self.changes if _field(each) not in fields), *changes))

    def values(self) -> dict[str, Any]:
        """Plain values of the configuration of its training: the preset and the changes to it."""
        training = self.training
        values = preset(training.method, training.branch, training.data, training.memory, training.teacher)
        if self.root is not None:
            values = merge(values, {"data": {"root": self.root}})
        for change in self.changes:
            values = assign(values, whole_field(change))
        return values


def names_a_stream(word: str) -> bool:
    """Whether a word is a kind of stream, which elsewhere may be the name of a method: ``iid``."""
    return word in get_args(StreamConfig.model_fields["kind"].annotation)


def whole_field(change: str) -> str:
    """``KEY=VALUE`` of a cell with its key in full: a bare one may be the run's own, else it is the branch's."""
    key = change.partition("=")[0]
    own = {name for name, default in run_defaults().items() if not isinstance(default, dict)}
    return change if "." in key or key in own - PLACED else f"branch.{change}"


def _field(change: str) -> str:
    return whole_field(change).partition("=")[0]


def parse(text: str, data: str | None = None, memory: int | None = None, folder: str | None = None) -> Cell:
    """The cell that ``text`` names; ``data`` (None: digits) and ``memory`` (None: the preset's) if it does not.

    ``data`` may be the path of own data, which cells may then name; ``folder``: where prepared data sets lie.
    """
    learner, *rest = text.strip().split("/")
    place = [part for part in rest if "=" not in part]
    if len(place) > 2:
        raise ConfigError(f"expected METHOD[+BRANCH][+TEACHER]/DATA/MEMORY, got {text!r}; leave out {place[2]!r}")
    name, root = _name_and_root("digits" if data is None else data)
    if place and place[0] != name:
        name, root = place[0], None
    method, branch, teacher = split_learner(learner, name)
    changes = (*_changes(worded(learner, name)), *(part for part in rest if "=" in part))
    if method not in SHARED and method not in methods:
        if names_a_stream(method):
            raise ConfigError(
                f"expected a method in the cell {text!r}, got a kind of stream; write er/stream.kind={method}"
            )
        raise _unknown("method", method, text, methods.hint(method, *SHARED, *words()))
    if branch != "none" and branch not in branches:
        raise _unknown("branch", branch, text, branches.hint(branch, "none", *teachers.registered(outside=False)))
    if root is None and name not in datasets():
        _check_prepared(name, folder, text)
    if len(place) == 2:
        if not place[1].isdecimal():
            raise ConfigError(f"expected a memory size in {text!r}, got {place[1]!r}; write for instance er/digits/200")
        memory = int(place[1])
    if memory is None:
        memory = int(preset(method, "none", name, None).get("memory_size") or run_defaults()["memory_size"])
    if branch == "none" and any(whole_field(change) != change for change in changes):
        raise ConfigError(f"expected a branch for the options in {text!r}, got none; name it or the whole field")
    return Cell(method, branch, name, memory, changes, root, teacher)


def _changes(values: dict[str, Any], key: str = "") -> Iterator[str]:
    """KEY=VALUE of every value in a tree, but for the names of method, branch and teacher."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _changes(value, f"{key}{name}.")
        elif (key, name) not in {(f"{part}.", "name") for part in PARTS}:
            yield f"{key}{name}={json.dumps(value)}"


def parse_all(
    texts: list[str], data: str | None = None, memory: int | None = None, folder: str | None = None
) -> Iterator[Cell]:
    """The cells of comma-separated names, each once, in the order given; commas in brackets are part of a value."""
    names = [name for text in texts for name in _split(text) if name.strip()]
    yield from dict.fromkeys(parse(name, data, memory, folder) for name in names)


def _split(text: str) -> list[str]:
    """The names between commas that stand in no bracket, of whatever depth: ``stream.tasks=[[0, 1], [2]]``."""
    names, depth = [""], 0
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth <= 0:
            names.append("")
        else:
            names[-1] += letter
    return names


def _name_and_root(data: str) -> tuple[str, str | None]:
    """The name of a data set, and where it lies if it is given by its path."""
    if data in datasets():
        return data, None
    spelled = spell(data)
    return spelled["name"], spelled.get("root")


def _check_prepared(name: str, folder: str | None, text: str) -> None:
    place = default_root() if folder is None else expanded(folder)
    prepared = tuple(sorted(path.stem for path in place.glob("*.safetensors")))
    if name not in prepared and Path(name).exists():
        raise ConfigError(
            f"expected a known data set in the cell {text!r}, got {name!r}; give your own by its path: --data ./{name}"
        )
    if name not in prepared:
        raise _unknown("data set", name, text, nearest(name, (*datasets(), *prepared)))


def _unknown(kind: str, word: str, text: str, hint: str) -> ConfigError:
    return ConfigError(f"expected a known {kind} in the cell {text!r}, got {word!r}; {hint}")
