"""What is searched: a range or choices for any field of the configuration, as a person types them.

log:1e-4:1e-2    between two numbers, evenly in the logarithm
0.1:0.9          between two numbers
1:8              the same with whole numbers
0.1|0.5|5        one of several values
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from s6mod.config import assign, merge
from s6mod.errors import ConfigError

HOW = 'write for instance log:1e-4:1e-2, 1:8 or "0.1|0.5|5"'  # in a shell a bare | is a pipe


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, whole ones if both are."""

    low: float
    high: float
    log: bool

    @property
    def samples(self) -> tuple[Any, ...]:
        """Values to try a configuration with."""
        return (self.low, self.high)

    def suggest(self, trial: Any, name: str) -> Any:
        """The value that an Optuna trial takes."""
        suggest = trial.suggest_int if isinstance(self.low, int) else trial.suggest_float
        return suggest(name, self.low, self.high, log=self.log)


@dataclass(frozen=True)
class Choice:
    """One of several values."""

    samples: tuple[Any, ...]

    def suggest(self, trial: Any, name: str) -> Any:
        """The value that an Optuna trial takes."""
        return trial.suggest_categorical(name, self.samples)


Space = dict[str, Range | Choice]  # by dotted field


def parse_space(search: Mapping[str, str | list[Any]]) -> Space:
    """The space that a configuration describes."""
    if not search:
        raise ConfigError(
            "expected fields to search, got none; give for instance --search method.optimizer.lr=log:1e-4:1e-2"
        )
    if "seed" in search:
        raise ConfigError("expected fields that can be chosen, got seed; name the seeds with --seeds")
    return {field: _dimension(field, text) for field, text in search.items()}


def parse_search(texts: list[str]) -> dict[str, str]:
    """``FIELD=SPACE`` as typed at the command line, by field."""
    found = {}
    for text in texts:
        field, equals, space = text.partition("=")
        if not equals or not field.strip():
            raise ConfigError(f"expected FIELD=SPACE, got {text!r}; write for instance method.memory_batch=8:64")
        found[field.strip()] = space.strip()
    return found


def lay(values: dict[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values of a configuration with dotted fields laid over it."""
    for field, value in params.items():
        nested: Any = value
        for part in reversed(field.split(".")):
            nested = {part: nested}
        values = merge(values, nested)
    return values


def _dimension(field: str, text: str | list[Any]) -> Range | Choice:
    if isinstance(text, list):
        return _choice(field, text)
    if "|" in text:
        return _choice(field, [_value(part) for part in text.split("|")])
    head, *ends = text.split(":") if text.startswith("log:") else ("", *text.split(":"))
    numbers = [_value(end) for end in ends]
    if len(numbers) != 2 or not all(isinstance(each, int | float) and not isinstance(each, bool) for each in numbers):
        raise ConfigError(f"expected a range or choices for {field}, got {text!r}; {HOW}")
    low, high = numbers if all(isinstance(each, int) for each in numbers) else map(float, numbers)
    if not low < high or (head and low <= 0):
        above = " above 0" if head else ""
        raise ConfigError(f"expected a range{above} from low to high for {field}, got {text!r}; change the ends")
    return Range(low, high, bool(head))


def _choice(field: str, options: list[Any]) -> Choice:
    if len(options) < 2 or not all(isinstance(each, str | int | float | bool | None) for each in options):
        raise ConfigError(f"expected two or more plain values for {field}, got {options!r}; {HOW}")
    return Choice(tuple(options))


def _value(text: str) -> Any:
    return assign({}, f"value={text}")["value"]
