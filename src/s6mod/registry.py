"""Names for interchangeable parts (methods, branches): one decorator registers, one look-up finds.

A part is a class with a ``config_class``; its configuration carries the registered name in ``name``.
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from s6mod.config import Config, nearest
from s6mod.errors import ConfigError


class NamedConfig(Config):
    """Configuration of a registered part; ``name`` says which."""

    name: str


class Part(Protocol):
    """What can be registered: a class that says how it is configured."""

    config_class: ClassVar[type[NamedConfig]]


P = TypeVar("P", bound=Part)


class Registry(Generic[P]):
    """A mapping from names to classes that fills itself by decoration."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._parts: dict[str, type[P]] = {}

    def register(self, name: str) -> Callable[[type[P]], type[P]]:
        """Class decorator: make the class known under ``name``."""

        def add(part: type[P]) -> type[P]:
            if name in self._parts and self._parts[name] is not part:
                raise ConfigError(
                    f"expected a new name for a {self.kind}, got {name!r}, which is taken; choose another"
                )
            self._parts[name] = part
            return part

        return add

    def __getitem__(self, name: str) -> type[P]:
        if name not in self._parts:
            raise ConfigError(f"expected a known {self.kind}, got {name!r}; {nearest(name, self._parts)}")
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._parts))

    def configure(self, values: Any) -> NamedConfig:
        """A configuration from a bare name, plain values with a ``name``, or a configuration already made."""
        if isinstance(values, NamedConfig):
            return values
        if isinstance(values, str):
            values = {"name": values}
        if not isinstance(values, dict) or not isinstance(values.get("name"), str):
            raise ConfigError(
                f"expected the name of a {self.kind} or a mapping with one, got {values!r}; known: {', '.join(self)}"
            )
        return self[values["name"]].config_class.parse(values)
