"""Names for interchangeable parts (methods, branches): one decorator registers, one look-up finds.

A part is a class with a ``config_class``; its configuration carries the registered name in ``name``. Installed packages
add parts by plug-ins, which are imported when a name is not known without them or when all names are wanted. A person
may name a file or a module of parts, which is imported at once.
"""

import importlib
import importlib.util
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from threading import RLock
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from s6mod.config import Config, nearest
from s6mod.errors import ConfigError
from s6mod.files import expanded


class NamedConfig(Config):
    """Configuration of a registered part; ``name`` says which."""

    name: str


class Part(Protocol):
    """What can be registered: a class that says how it is configured."""

    config_class: ClassVar[type[NamedConfig]]


P = TypeVar("P", bound=Part)


class Plugins:
    """Modules whose import registers parts: those that installed packages name in the entry-point group ``s6mod``,
    and those that a person brings.
    """

    def __init__(self) -> None:
        self.failures: list[str] = []  # a phrase for each that could not be imported
        self.brought: tuple[str, ...] = ()  # files and modules, as other processes are told of them
        self._loaded = False
        self._lock = RLock()  # one that looks up parts while it is imported must not wait for itself

    @cached_property
    def entries(self) -> EntryPoints:
        """What is named there, not imported."""
        return entry_points(group="s6mod")

    def bring(self, *words: str) -> None:
        """Import each file (``my.py``) or module (``my.parts``) that is named, once in a process.

        This runs its code, so the words come from a person's command and never from what is stored of a run.
        """
        for word in words:
            path = expanded(word)
            is_file = path.suffix == ".py"
            name = str(path.absolute()) if is_file else word
            with self._lock:
                if name not in self.brought:
                    _import_file(path.absolute()) if is_file else _import_module(word)
                    self.brought += (name,)

    def load(self) -> None:
        """Import them, once in a process; one that fails is left out."""
        with self._lock:
            if self._loaded:
                return
            self._loaded = True
            for entry in self.entries:
                try:
                    entry.load()
                except Exception as error:
                    reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
                    self.failures.append(f"the plug-in {entry.name!r} ({entry.value}) failed with {reason}")


plugins = Plugins()


@dataclass(frozen=True)
class Brought:
    """The files and modules that a person has brought, for another process: where it is unpickled they are imported."""

    words: tuple[str, ...]

    @classmethod
    def here(cls) -> "Brought":
        """Those of this process."""
        return cls(plugins.brought)

    def __reduce__(self) -> tuple[Any, ...]:
        return _bring, self.words


def _bring(*words: str) -> Brought:
    plugins.bring(*words)
    return Brought(words)


class Registry(Generic[P]):
    """A mapping from names to classes that fills itself by decoration."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._parts: dict[str, type[P]] = {}

    def register(self, name: str) -> Callable[[type[P]], type[P]]:
        """Class decorator: make the class known under ``name``.

        A class takes the place of an earlier one of the same module and name: a cell of a notebook may run again.
        """

        def add(part: type[P]) -> type[P]:
            self._check_config(name, part)
            if name in self._parts and _home(self._parts[name]) != _home(part):
                raise ConfigError(
                    f"expected a new name for a {self.kind}, got {name!r}, which is taken; choose another"
                )
            self._parts[name] = part
            return part

        return add

    def _check_config(self, name: str, part: type[P]) -> None:
        config = getattr(part, "config_class", None)
        wanted = f"a configuration class with the field name: Literal[{name!r}] = {name!r}"
        if not (isinstance(config, type) and issubclass(config, NamedConfig)):
            raise ConfigError(f"expected {wanted} for {part.__name__}, got {config!r}; name it in config_class")
        field = config.model_fields["name"]
        default = None if field.is_required() else field.default
        if default != name:
            raise ConfigError(f"expected {wanted} for {part.__name__}, got {default!r}; set it in {config.__name__}")

    def __contains__(self, name: object) -> bool:
        if name not in self._parts:
            plugins.load()
        return name in self._parts

    def __getitem__(self, name: str) -> type[P]:
        if name not in self:
            raise ConfigError(f"expected a known {self.kind}, got {name!r}; {self.hint(name)}")
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        plugins.load()
        for failure in plugins.failures:
            warnings.warn(f"{failure}; it is left out", stacklevel=2)
        return iter(sorted(self._parts))

    def hint(self, name: str, *others: str) -> str:
        """What may be meant by a name that is neither known nor among ``others``; plug-ins that failed may know it."""
        plugins.load()
        own = "one of your own: give its file to --import, or import its module first"
        return f"{'; '.join([*plugins.failures, nearest(name, (*self._parts, *others))])} ({own})"

    def registered(self, *, outside: bool) -> dict[str, type[P]]:
        """What is registered by now: the parts of this package, or those from outside of it."""
        return {name: part for name, part in self._parts.items() if outside != part.__module__.startswith("s6mod.")}

    def configure(self, values: Any) -> NamedConfig:
        """A configuration from a bare name, plain values with a ``name``, or a configuration already made."""
        if isinstance(values, NamedConfig):
            return values
        if isinstance(values, str):
            values = {"name": values}
        if isinstance(values, dict) and values and "name" not in values:
            raise ConfigError(
                f"expected a {self.kind} for its option {next(iter(values))!r}, got none; name one: {', '.join(self)}"
            )
        if not isinstance(values, dict) or not isinstance(values.get("name"), str):
            raise ConfigError(
                f"expected the name of a {self.kind} or a mapping with one, got {values!r}; known: {', '.join(self)}"
            )
        return self[values["name"]].config_class.parse(values)


def _home(part: type[Any]) -> tuple[str, str]:
    return part.__module__, part.__qualname__


def _import_file(path: Path) -> None:
    """A file as a module of its own name, which finds the modules that lie beside it."""
    if not path.is_file():
        raise ConfigError(f"expected a Python file to import, got {path}, which is not there; check the path")
    name = path.stem
    if name in sys.modules or name in sys.stdlib_module_names:
        origin = getattr(sys.modules.get(name), "__file__", None)
    else:
        found = importlib.util.find_spec(name) if name.isidentifier() else None
        origin = str(path) if found is None else found.origin
    if origin is None or Path(origin).resolve() != path.resolve() or not name.isidentifier():
        raise ConfigError(
            f"expected a file whose name no other module has, got {path}; rename it, for instance to my_parts.py"
        )
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.append(str(path.parent))  # last: it hides nothing
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        sys.path.remove(str(path.parent))
        raise _failed(str(path), error) from error


def _import_module(name: str) -> None:
    try:
        importlib.import_module(name)
    except Exception as error:
        if Path(f"{name}.py").is_file():
            raise ConfigError(
                f"expected a module, got {name!r}, which none has; for the file write {name}.py"
            ) from None
        raise _failed(name, error) from error


def _failed(what: str, error: Exception) -> ConfigError:
    """What is wrong with it, and in which line of it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == what]
    line = getattr(error, "lineno", None) or (frames[-1].lineno if frames else None)
    where = f" in line {line}" if line else ""
    reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return ConfigError(f"expected parts that can be imported, got {what} with {reason}{where}; mend it")
