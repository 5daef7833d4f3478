"""YAML as people mean it, whoever wrote it: no text runs anything or stands for values without end."""

import re
from typing import Any

import yaml

from s6mod.files import DEEPEST

MOST_VALUES = 100_000  # in one text


def read(text: str) -> Any:
    """The value that a text stands for; ``NOT_YAML`` if it is none, or one beyond reason."""
    return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader


def beyond(error: Exception) -> str:
    """What to add to a sentence, where a text was refused for its depth or its size."""
    return ", nested or repeated beyond reason" if isinstance(error, _BeyondReasonError | RecursionError) else ""


class _Loader(yaml.SafeLoader):
    """YAML as people mean it: ``off``, ``no`` and ``1e-3`` are not booleans and text, as old YAML has it.

    Nor are ``0200`` and ``1:30`` whole numbers of base 8 and 60; and no value holds itself. A value may be named and
    used again, but a short file cannot stand for one without end.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.deep_construct = True  # each value is made whole, so one that is its own part is refused
        self.depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """One value with its parts; too deep a one is left at once, as the scanner slows down with every level."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise _BeyondReasonError
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def get_single_node(self) -> yaml.Node | None:
        """The tree of the text, before any value is made of it, if what is used again does not make it too large."""
        node: yaml.Node | None = super().get_single_node()
        if node is not None:
            _measure(node, {})
        return node

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """A whole number, decimal unless it begins with 0x or 0o."""
        text = self.construct_scalar(node)
        return int(text, 0 if "x" in text or "o" in text else 10)


class _BeyondReasonError(yaml.YAMLError):
    """YAML whose values are too many or too deep."""


def _measure(node: yaml.Node, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Values and levels below a node, with what is used again counted each time."""
    if id(node) not in known:
        known[id(node)] = (1, DEEPEST)  # for one that holds itself
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        below = node.value if isinstance(node, yaml.SequenceNode) else [part for pair in pairs for part in pair]
        measures = [_measure(part, known) for part in below]
        values, levels = 1 + sum(size for size, _ in measures), 1 + max((depth for _, depth in measures), default=0)
        if values > MOST_VALUES or levels > DEEPEST:
            raise _BeyondReasonError
        known[id(node)] = values, levels
    return known[id(node)]


# A date or a tag that its text does not fit raises what Python raises for it.
NOT_YAML = (yaml.YAMLError, ValueError, KeyError, AttributeError, RecursionError)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":int", ":float"))]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|false)$", re.IGNORECASE), list("tTfF"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"^[-+]?([0-9]+(_[0-9]+)*|0x[0-9a-fA-F]+|0o[0-7]+)$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?([0-9]+\.[0-9]*|\.?[0-9]+)([eE][-+]?[0-9]+)?$|^[-+]?\.inf$|^\.nan$"),
    list("-+0123456789."),
)
