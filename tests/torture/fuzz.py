"""Bad inputs by hypothesis: what every surface answers with, and what inputs have in common."""

import functools
import io
import sys
import unicodedata
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import typer.main
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from s6mod import cli
from s6mod.errors import S6modError
from torture.attack import Broken, Round
from torture.child import limit_memory

MEMORY = 3 << 30  # bytes that a round may take: an input that asks for more is refused, or breaks something

NUMBERS = st.one_of(
    st.integers(-3, 12),
    st.integers(),
    st.sampled_from([10**6, 10**9, 10**13, 2**31, 2**63, 2**64, -(2**63), 10**400]),
    st.floats(),
    st.sampled_from([0.5, 1e-3, 1e308, -0.0, 5e-324]),
)
TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["", " ", "null", "~", "../..", "/", "a\x1b[31mb", "a\x00b", "\udc80", "e" * 5000, "é", "none"]),
    st.sampled_from(["er", "s6mod", "head", "ncm", "digits", "cpu", "cuda", "auto", "float32", "given", "iid", "all"]),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
TREES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4))
)


def fuzz(round: Round, inputs: st.SearchStrategy[Any], look: Callable[[Any], bool]) -> None:
    """Try as many inputs as the round has; ``look`` says whether one was refused, and raises what must not be."""
    limit_memory(MEMORY)
    typer.main.get_command = functools.cache(typer.main.get_command)  # else each command makes all commands anew

    @seed(round.seed)
    @settings(
        max_examples=round.size,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
    )
    @given(inputs)
    def attempt(example: Any) -> None:
        round.now(example)
        round.counts["inputs"] += 1
        round.counts["refused"] += look(example)

    attempt()


def refuses(call: Callable[[], object]) -> bool:
    """Whether a call of the library is refused, which takes one printable sentence."""
    try:
        call()
    except S6modError as error:
        _one_sentence(str(error))
        return True
    return False


def told(*words: object, codes: tuple[int, ...] = (0, 1, 2)) -> tuple[int, str]:
    """A command in this process: its exit code and all that it says; a traceback comes through."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors) for errors in ("strict", "backslashreplace"))
    sys.argv = ["s6mod", *map(str, words)]
    code: Any = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
        for stream in (out, err):
            stream.flush()
    said = "".join(stream.buffer.getvalue().decode("utf-8", "replace") for stream in (out, err))  # type: ignore[attr-defined]
    if code not in codes:
        raise Broken("traceback", f"exit code {code}: {said}")
    if "Traceback (most" in said:
        raise Broken("traceback", said)
    if any(unicodedata.category(letter) == "Cc" and letter not in "\n\t" for letter in said):
        raise Broken("lost", f"letters that a terminal obeys came through: {said!r}")
    return int(code), said


def _one_sentence(text: str) -> None:
    if not text.isprintable() or not text:
        raise Broken("traceback", f"no sentence: {text[:2000]!r}")


@st.composite
def damaged(draw: Any, content: bytes) -> bytes:
    """Bytes with some of them changed, taken out, put in, doubled or cut off."""
    result = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(result) - 1)))
        how = draw(st.sampled_from(["flip", "cut", "take", "put", "double"]))
        if how == "flip" and result:
            result[at] ^= draw(st.integers(1, 255))
        elif how == "cut":
            del result[at:]
        elif how == "take":
            del result[at : at + draw(st.integers(1, 40))]
        elif how == "put":
            result[at:at] = draw(st.binary(min_size=1, max_size=12))
        else:
            result[at:at] = result[at : at + draw(st.integers(1, 200))]
    return bytes(result)


def nodes(tree: Any) -> list[tuple[Any, Any]]:
    """Every place in a tree of dicts and lists, as its container and key."""
    found = []
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else []
    for key in keys:
        found.append((tree, key))
        found += nodes(tree[key])
    return found


@st.composite
def edited(draw: Any, make: Callable[[], Any]) -> Any:
    """A tree with some places replaced, taken out or renamed."""
    tree = make()
    for _ in range(draw(st.integers(1, 3))):
        places = nodes(tree)
        if not places:
            break
        container, key = places[draw(st.integers(0, len(places) - 1))]
        how = draw(st.sampled_from(["replace", "replace", "replace", "take", "move"]))
        if how == "replace":
            container[key] = draw(TREES)
        elif how == "take":
            del container[key]
        else:
            value = container.pop(key)
            other = tree if not isinstance(tree, list) else container
            if isinstance(other, dict):
                other[draw(TEXTS)] = value
            else:
                other.append(value)
    return tree
