"""The strict, frozen base of every configuration, and how configurations are read, merged and hashed.

A configuration is a tree of pydantic models. Every number that is varied is a field with its meaning in the
description; an unknown key is an error that names the nearest known one, a retired one an error that tells its value.
"""

import difflib
import functools
import hashlib
import json
import numbers
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from s6mod import plain_yaml, retired
from s6mod.errors import ConfigError
from s6mod.files import DEEPEST

LONGEST = 2**20  # letters of a YAML file; a device has no end
LARGEST = 2**53 - 1  # whole number, which every reader of JSON takes as it is
Words = dict[str, dict[str, typing.Any] | None]  # short words for options, each with the plain values it stands for


class Config(BaseModel):
    """Base of all configurations: unknown keys are refused, values are not coerced, instances are immutable.

    Numbers are finite: JSON has no word for others, so a configuration that held one could not be read back.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    words: ClassVar[Words] = {}  # where this is a part of another one, each may stand in its place

    @field_validator("*")
    @classmethod
    def _countable(cls, value: Any) -> Any:
        if isinstance(value, int) and abs(value) > LARGEST:
            raise ConfigError(f"expected a whole number of at most {LARGEST}, got {_shortened(value)}; lower it")
        return value

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Validate plain values (as YAML or JSON hold them); raise ConfigError with one sentence if they do not fit."""
        try:
            text = json.dumps(retired.without(spelled(cls, values), retired_in(cls)), default=_plain)
        except ConfigError:
            raise
        except (TypeError, ValueError, RecursionError) as error:  # the last two: one that holds itself, or is too deep
            raise ConfigError(
                f"expected plain values in the configuration, got one that JSON cannot hold: {error}; "
                "give numbers, texts, lists or mappings of them"
            ) from None
        try:
            return cls.model_validate_json(text)  # JSON mode: lists may stand for tuples, yet "1" is not the number 1
        except ValidationError as error:
            raise ConfigError(_one_sentence(cls, error, text)) from None

    def plain(self) -> dict[str, Any]:
        """The whole tree as plain JSON values, defaults included."""
        return self.model_dump(mode="json", serialize_as_any=True)


def _plain(value: Any) -> Any:
    """A number or an array of another library, such as NumPy's, as Python's."""
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"object of type {type(value).__name__}")


def digest(values: Any) -> str:
    """Twelve hexadecimal digits that name a tree of plain values, whatever the order of its keys."""
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the entries of ``over`` laid on top, branch by branch."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        # A part that names another implementation (branch: {name: ...}) replaces the old part whole.
        renamed = (
            isinstance(value, Mapping)
            and isinstance(old, Mapping)
            and value.get("name", old.get("name")) != old.get("name")
        )
        both = isinstance(value, Mapping) and isinstance(old, Mapping) and not renamed
        merged[key] = merge(typing.cast(Mapping[str, Any], old), value) if both else value
    return merged


def assign(values: dict[str, Any], assignment: str) -> dict[str, Any]:
    """``values`` with one ``dotted.key=value`` applied; the value is read as YAML (numbers, lists, true, null)."""
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"expected key=value, got {assignment!r}; write for instance method.optimizer.lr=0.001")
    parts = key.strip().split(".")
    if len(parts) > DEEPEST:
        raise ConfigError(f"expected a dotted key of at most {DEEPEST} parts, got {len(parts)}; shorten it")
    try:
        value = plain_yaml.read(text)
    except plain_yaml.NOT_YAML as error:
        raise ConfigError(
            f"expected a YAML value after {key}=, got {_shortened(text)}{plain_yaml.beyond(error)}; "
            "quote text that has special characters"
        ) from None
    for part in reversed(parts):
        value = {part: value}
    return merge(values, value)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(LONGEST + 1)
        values = plain_yaml.read(text) if len(text) <= LONGEST else None
    except OSError as error:
        raise ConfigError(f"expected a readable YAML file, got {path}: {error.strerror}; check the path") from None
    except plain_yaml.NOT_YAML as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else plain_yaml.beyond(error)
        raise ConfigError(f"expected YAML in {path}, got something that does not parse{line}; mend the file") from None
    if len(text) > LONGEST:
        raise ConfigError(f"expected at most {LONGEST:,} letters of YAML, got more in {path}; name another file")
    if not isinstance(values, dict):
        raise ConfigError(
            f"expected keys and values in {path}, got {'nothing' if values is None else type(values).__name__}; "
            "start it with, say, 'memory_size: 500'"
        )
    return values


def nearest(word: str, known: typing.Iterable[str]) -> str:
    """A hint that names the known word nearest to a mistyped one, in whatever case, or all of them if none is near."""
    spelled = {name.lower(): name for name in sorted(known)}
    close = difflib.get_close_matches(word.lower(), spelled, n=1, cutoff=0.5)
    return f"did you mean {spelled[close[0]]!r}?" if close else f"known: {', '.join(spelled.values())}"


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:160]} ... ({len(text) - 160} characters more)"


def _one_sentence(cls: type[BaseModel], error: ValidationError, text: str) -> str:
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    where = ".".join(path) or "the configuration"
    if first["type"] == "extra_forbidden":
        return f"expected a known configuration key, got {where!r}; {_hint(cls, path, error, json.loads(text))}"
    if first["type"] == "value_error":  # raised by a validator of ours, already a sentence
        return f"{where}: {first['ctx']['error']}"
    if first["type"] == "missing":
        return f"expected a value for {where!r}, got none; set it"
    return f"expected for {where!r}: {first['msg'].lower()}, got {_shortened(first['input'])}; change the value"


def _hint(cls: type[BaseModel], path: list[str], error: ValidationError, values: dict[str, Any]) -> str:
    """What an unknown key may mean: the whole name of one that is the last part of others, else the nearest."""
    strays = {each["loc"][0] for each in error.errors() if each["type"] == "extra_forbidden" and len(each["loc"]) == 1}
    try:  # without them the parts are known that the values name, and so all their fields
        whole = cls.model_validate_json(json.dumps({key: value for key, value in values.items() if key not in strays}))
        known = list(_names_in(whole))
    except ValidationError:
        known = list(field_names(cls))
    ends = [name for name in known if "." in name and name.rpartition(".")[2] == path[-1]] if len(path) == 1 else []
    if ends:
        return f"did you mean {' or '.join(map(repr, ends))}?"
    siblings = [name for name in known if name.rpartition(".")[0] == ".".join(path[:-1])]
    return nearest(".".join(path), siblings or known)


def _names_in(model: BaseModel, prefix: str = "") -> Iterator[str]:
    """All dotted keys of a configuration, with those of the parts that it has."""
    for name in type(model).model_fields:
        yield prefix + name
        if isinstance(part := getattr(model, name), BaseModel):
            yield from _names_in(part, f"{prefix}{name}.")


def field_names(cls: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """All dotted keys below a configuration class, for messages and help."""
    for name, field in cls.model_fields.items():
        yield prefix + name
        for part in _models_in(field.annotation):
            yield from field_names(part, f"{prefix}{name}.")


@functools.cache
def retired_in(cls: type[BaseModel]) -> dict[str, Any]:
    """The retired keys below a configuration class with their values, as a tree."""
    parts = {name: part for name, field in cls.model_fields.items() for part in _models_in(field.annotation)}
    below = {name: tree for name, part in parts.items() if (tree := retired_in(part))}
    return below | {key: value for key, value in retired.keys_of(cls).items() if key not in cls.model_fields}


def spelled(cls: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values of a configuration with each word in place of options spelled out."""
    spelled_out = dict(values)
    for name, field in cls.model_fields.items():
        for part in _models_in(field.annotation) if isinstance(values.get(name), str) else ():
            words, word = getattr(part, "words", {}), values[name]
            if words and word not in words:
                raise ConfigError(
                    f"expected for {name!r} its options or a word for them, got {word!r}; {nearest(word, words)}"
                )
            spelled_out[name] = words.get(word, word)
    return spelled_out


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif isinstance(annotation, types.UnionType) or typing.get_origin(annotation) in (
        typing.Union,
        typing.Annotated,
    ):
        for part in typing.get_args(annotation):
            yield from _models_in(part)
