"""Bad words: options of the commands, ``--set`` and YAML files."""

import json
from collections.abc import Iterator
from typing import Any

import yaml
from hypothesis import strategies as st

from s6mod.runs.compose import compose
from torture.attack import Round
from torture.fuzz import SCALARS, TEXTS, TREES, damaged, edited, fuzz, told

WORDS = st.one_of(
    SCALARS.map(str).filter(lambda word: "\0" not in word),
    st.sampled_from(
        ["er+s6mod", "er/digits/20", "0-4", "1,2", "9-1", "digits", "=", "a=b", "-1", "ablation", "x.yaml"]
    ),
)
PATHS = WORDS.map(lambda word: "x/" + word.replace("..", "").lstrip("/"))  # below the round's own folder
LETTERS = ("--method", "--branch", "--data", "--memory", "--seed", "--seeds", "--at-once", "--device", "--set")
COMMANDS: dict[tuple[str, ...], tuple[tuple[str, ...], tuple[str, ...]]] = {  # by command: what takes words, paths
    ("train", "--show-config"): ((*LETTERS, "--track"), ("--out", "--config", "--data-root", "--resume", "--import")),
    ("sweep", "--plan"): (
        ("--tables", "--data", "--memory", "--seeds", "--device", "--workers", "--retries", "--sbatch", "--time-limit"),
        ("--out", "--store", "--data-root"),
    ),
    ("runs", "list"): (("--status", "--cell", "--seed", "--precision", "--sort"), ()),
    ("table",): (("--precision", "--format"), ("--write",)),
    ("data", "digits", "--stream"): (("--stream", "--seed", "--size", "--test-fraction"), ()),
    ("data", "--data-root", "x"): ((), ()),
    ("report",): ((), ("--out", "--study")),
    ("predictors",): (("--cell",), ()),
}


@st.composite
def _lines(draw: Any) -> list[str]:
    command = draw(st.sampled_from(sorted(COMMANDS)))
    of_words, of_paths = COMMANDS[command]
    line = list(command)
    if command[-1] == "--stream":
        line.append(draw(WORDS))
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["word", "word", "path", "argument", "nonsense"]))
        if kind == "word" and of_words:
            line += [draw(st.sampled_from(of_words)), draw(WORDS)]
        elif kind == "path" and of_paths:
            line += [draw(st.sampled_from(of_paths)), draw(PATHS)]
        elif kind == "nonsense":
            line += [f"--{draw(TEXTS)}".replace("\0", "")]
        elif command[0] in ("sweep", "table"):
            line.append(draw(WORDS))
        else:
            line.append(draw(PATHS))
    return line


def options(round: Round) -> None:
    """Commands that only look, with options that mean nothing."""
    fuzz(round, _lines(), lambda line: told(*line)[0] != 0)


def _fields() -> list[str]:
    """The dotted name of every field of a configuration."""

    def walk(tree: dict[str, Any], prefix: str) -> Iterator[str]:
        for key, value in tree.items():
            yield prefix + key
            if isinstance(value, dict):
                yield from walk(value, f"{prefix}{key}.")

    return list(walk(compose({"branch": "s6mod"}).plain(), ""))


def assignments(round: Round) -> None:
    """``--set FIELD=VALUE``, with fields that exist and values that may be anything."""
    values = st.one_of(
        WORDS,
        TREES.map(repr).map(lambda text: text.replace("\0", "")),
        st.sampled_from(["[" * 900, "{a: " * 500, "&a [*a]", "!!python/object:os.system", "[1, 2", "0x1F", "1_000"]),
    )
    fields = st.one_of(st.sampled_from(_fields()), st.sampled_from(_fields()), WORDS)
    pairs = st.lists(st.tuples(fields, values).map("=".join), min_size=1, max_size=3)

    def look(words: list[str]) -> bool:
        options = [each for word in words for each in ("--set", word)]
        return told("train", "--branch", "s6mod", *options, "--show-config")[0] != 0

    fuzz(round, pairs, look)


def documents(round: Round) -> None:
    """YAML files: edited configurations, damaged text, aliases, other things altogether."""
    plain = compose({"branch": "s6mod"}).plain()
    text = yaml.safe_dump(plain).encode()
    aliases = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
    inputs = st.one_of(
        edited(lambda: json.loads(json.dumps(plain))).map(_as_yaml),
        damaged(text),
        TREES.map(_as_yaml),
        st.binary(max_size=60),
        st.just(aliases.encode()),
    )
    file = round.folder / "config.yaml"

    def look(content: bytes) -> bool:
        file.write_bytes(content)
        return told("train", "--config", file, "--show-config")[0] != 0

    fuzz(round, inputs, look)


def _as_yaml(tree: Any) -> bytes:
    return yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "surrogatepass")
