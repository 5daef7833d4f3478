"""Which class has which output of a learner.

With ``num_classes`` a label is the number of its output. Without, labels are any integers or strings, and a class takes
the next output when it first comes.
"""

import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from s6mod.data.arrays import as_labels
from s6mod.errors import InputError

Name: TypeAlias = int | str
Labels: TypeAlias = Tensor | NDArray[Any] | Sequence[Name] | Name
FIRST_CAPACITY = 16  # outputs of a learner that grows, which doubles them as it must
MOST = 1_000_000  # classes
NUMBERED = "number the classes 0, 1, ..., or make the learner without num_classes"
_INTEGER = re.compile("0|-?[1-9][0-9]{0,18}")  # as Python writes one of 64 bits


@dataclass(frozen=True)
class Classes:
    """``fixed``: so many classes, each known by its number. None: ``names`` are those that came, in order.

    ``strict``: a new label that differs from a class by its type alone is refused.
    """

    fixed: int | None
    names: tuple[Name, ...] = ()
    strict: bool = True

    @cached_property
    def _numbers(self) -> dict[Name, int]:
        return {name: number for number, name in enumerate(self.names)}

    def __len__(self) -> int:
        """Columns of a score table: all classes that are known, seen or not."""
        return self.fixed or len(self.names)

    @property
    def capacity(self) -> int:
        """Outputs that a learner of these classes has at least."""
        return self.fixed or max(FIRST_CAPACITY, 1 << (len(self.names) - 1).bit_length())

    @property
    def columns(self) -> Sequence[Name]:
        """The label of each column of a score table: of all outputs that have a class."""
        return self.names if self.fixed is None else range(self.fixed)

    @property
    def texts(self) -> tuple[str, ...]:
        """The same as texts."""
        return tuple(map(str, self.columns))

    def taking(self, y: Labels, length: int) -> tuple[Tensor, "Classes"]:
        """Labels of ``length`` images as numbers of outputs, int64 (N,), and the classes with those that are new."""
        if self.fixed is not None:
            return as_numbers(y, self.fixed, length), self
        names = as_names(y, length)
        if self.strict:
            check_types(names, self._numbers)
        coming = [name for name in dict.fromkeys(names) if name not in self._numbers]
        if len(self.names) + len(coming) > MOST:
            raise InputError(f"expected at most {MOST:,} classes, got one more; check what is given as a label")
        classes = replace(self, names=(*self.names, *coming)) if coming else self
        return torch.tensor([classes._numbers[name] for name in names]), classes

    def numbers(self, y: Labels, length: int) -> Tensor:
        """Labels of ``length`` images as numbers of outputs; -1 of a class that has not come."""
        if self.fixed is not None:
            return as_numbers(y, self.fixed, length)
        names = as_names(y, length)
        check_types(names, self._numbers)
        return torch.tensor([self._numbers.get(name, -1) for name in names])

    def labels(self, numbers: Tensor) -> Tensor | NDArray[Any]:
        """The labels of outputs, (N,): a tensor of integers, or an array if there are strings among the names."""
        if self.fixed is not None:
            return numbers
        names = [self.names[number] for number in numbers.tolist()]
        if self._kinds == {int}:
            return torch.tensor(names)
        return np.array(names, dtype=None if self._kinds == {str} else object)

    @cached_property
    def _kinds(self) -> set[type]:
        return set(map(type, self.names))


def as_numbers(y: Labels, fixed: int, length: int) -> Tensor:
    """Labels that are numbers of outputs, int64 (N,), one for each of ``length`` images."""
    given = as_given(y)
    name = next((each for each in given if isinstance(each, str)), None) if isinstance(given, Sequence) else None
    if name is not None:
        raise InputError(f"expected labels in 0..{fixed - 1}, got the name {name!r}; {NUMBERED}")
    return as_labels(given, fixed, length, NUMBERED)


def as_names(y: Labels, length: int) -> list[Name]:
    """Labels as integers and strings of Python, one for each of ``length`` images."""
    given = as_given(y)
    if isinstance(given, Tensor | np.ndarray) and given.ndim != 1:
        raise InputError(f"expected labels of shape (N,), got {tuple(given.shape)}; pass one label for each image")
    try:
        if isinstance(given, Set | Mapping):
            raise TypeError("no order")
        values = given.tolist() if isinstance(given, Tensor | np.ndarray) else list(given)
    except (TypeError, RuntimeError):  # the latter of tensors that hold no values
        raise InputError(
            f"expected labels as an array or list, got {type(y).__name__}; pass one label for each image"
        ) from None
    if len(values) != length:
        raise InputError(
            f"expected {length} labels, one for each image, got {len(values)}; pass as many labels as images"
        )
    return [_name(value, position) for position, value in enumerate(values)]


def distinct(names: Sequence[Name]) -> tuple[Name, ...]:
    """Names of classes that are to come, each of them once."""
    found = [_name(name, position) for position, name in enumerate(names)]
    twice = [(name, times) for name, times in Counter(found).items() if times > 1]
    if twice:
        raise InputError(f"expected each class once, got {twice[0][0]!r} {twice[0][1]} times; leave it out")
    return tuple(found)


def check_types(names: Sequence[Name], known: Container[Name] = ()) -> None:
    """Refuse a label that is not ``known`` and differs from a class, or from another label, by its type alone."""
    new: set[Name] = set()
    for position, name in enumerate(names):
        if name in known:
            continue
        twin = _twin(name)
        if twin is not None and (twin in known or twin in new):
            first, other = ("a string", "an integer") if isinstance(twin, str) else ("an integer", "a string")
            raise InputError(
                f"expected the class {twin!r} as {first}, got {name!r}, {other}, at position {position}; "
                "keep to one type for its labels"
            )
        new.add(name)


def _twin(name: Name) -> Name | None:
    """The label of the other type that reads the same: '7' for 7, and 7 for '7'."""
    if isinstance(name, int):
        return str(name)
    return int(name) if _INTEGER.fullmatch(name) else None


def as_given(y: Labels) -> Any:
    """A single label as a list of one."""
    if isinstance(y, Tensor | np.ndarray) and y.ndim == 0:  # as data sets of torch give it
        return [y.item()]
    return [y] if isinstance(y, str | bytes | int | float | np.generic) else y


def _name(value: Any, position: int) -> Name:
    value = value.item() if isinstance(value, Tensor | np.generic) and value.ndim == 0 else value
    if isinstance(value, str):
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise InputError(
                f"expected labels of Unicode, got {value!r} at position {position}; decode it as it is coded"
            )
        if value.endswith("\0"):
            raise InputError(
                f"expected labels that do not end in NUL, which NumPy drops, got {value!r} at position {position}; "
                "strip it"
            )
        return str.__str__(value)  # of an enumeration too
    if isinstance(value, int) and not isinstance(value, bool):
        if not -(2**63) <= value < 2**63:
            raise InputError(f"expected labels of 64 bits, got {value} at position {position}; give it as a string")
        return int(value)
    raise InputError(
        f"expected labels that are integers or strings, got {value!r} at position {position}; name the classes"
    )
