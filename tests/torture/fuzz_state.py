"""Bad states: checkpoints, records and run folders, and what a learner is given."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from learners import batch, run, small
from s6mod import Learner
from s6mod.errors import S6modError
from torture.attack import Broken, Round
from torture.fuzz import NUMBERS, SCALARS, TREES, damaged, edited, fuzz, refuses, told
from torture.victims import RECORDS

X = batch(7, (0, 1))[0]
PIPE = None  # as the content of a file


def checkpoints(round: Round) -> None:
    """A saved learner: damaged bytes are refused; edits with a right digest are refused or load as what they say."""
    method = round.random.choice(("er", "mose", "ocm", "onpro-ccldc", "der++", "er-lwf"))
    good = round.folder / "good"
    learner = run(small(method, {"name": "s6mod"}), 0, 3)
    learner.save(good)
    expected = learner.predict_proba(X)
    files = {file.name: file.read_bytes() for file in good.iterdir()}
    [tensors] = [name for name in files if name.endswith(".safetensors")]
    state = json.loads(files["state.json"])

    def changed(tree: dict[str, Any]) -> dict[str, bytes]:
        tree.pop("digest", None)
        text = json.dumps(tree, sort_keys=True)
        return files | {"state.json": json.dumps({"digest": _sha(text), **tree}).encode()}

    def repacked(content: bytes) -> dict[str, bytes]:
        name = f"state-{_sha(content)[:16]}.safetensors"
        tree = {**state, "tensors": name, "sha256": _sha(content)}
        return {key: value for key, value in changed(tree).items() if key != tensors} | {name: content}

    inputs = st.one_of(
        st.sampled_from(sorted(files)).flatmap(
            lambda name: damaged(files[name]).map(lambda content: (True, files | {name: content}))
        ),
        edited(lambda: json.loads(files["state.json"])).map(lambda tree: (False, changed(tree))),
        damaged(files[tensors][:4000]).map(lambda head: (False, repacked(head + files[tensors][4000:]))),
        st.sampled_from(sorted(files)).map(lambda name: (True, {k: v for k, v in files.items() if k != name})),
        st.sampled_from(sorted(files)).map(lambda name: (True, files | {name: PIPE})),
    )
    bad = round.folder / "bad"

    def look(example: tuple[bool, dict[str, bytes | None]]) -> bool:
        same, content = example
        shutil.rmtree(bad, ignore_errors=True)
        bad.mkdir()
        for name, text in content.items():
            _put(bad / name, text)
        found = list[Learner]()
        if refuses(lambda: found.append(Learner.load(bad))):
            return True
        if same and not torch.equal(found[0].predict_proba(X), expected):
            raise Broken("mismatch", "a damaged state was loaded as another one")
        if not same:
            refuses(lambda: found[0].predict_proba(X))
            refuses(lambda: found[0].learn(*batch(3, (0, 1))))
        return False

    fuzz(round, inputs, look)


def _sha(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def records(round: Round) -> None:
    """Records and run folders in one store with good ones, which must be listed still; nothing is written outside."""
    files = sorted(RECORDS.glob("*-seed*.json"), key=lambda file: file.stat().st_size)[:40]
    good, other = round.random.sample(files, 2)
    cell = json.loads(good.read_text())["cell"]
    text = other.read_text()
    bare = json.loads(text)
    bare.pop("sha256", None)
    store = round.folder / "store"
    inputs = st.tuples(
        st.one_of(
            edited(lambda: json.loads(json.dumps(bare))).map(_as_json),
            edited(lambda: json.loads(json.dumps(bare))).map(_sealed),
            damaged(text.encode()),
            TREES.map(_as_json),
            st.just(b"[" * 100_000),
            st.just(PIPE),
        ),
        st.sampled_from(["record", "result.json", "config.json"]),
    )

    def look(example: tuple[bytes | None, str]) -> bool:
        content, place = example
        shutil.rmtree(store, ignore_errors=True)
        (store / "run").mkdir(parents=True)
        shutil.copy(good, store / good.name)
        bad = store / ("bad.json" if place == "record" else f"run/{place}")
        _put(bad, content)
        _, said = told("runs", "list", store)
        if not any(line.startswith("finished") and cell in line for line in said.splitlines()):
            raise Broken("lost", f"one bad record hides the others: {said}")
        told("report", store, "--out", store / "report.html")
        told("predictors", store)
        before = _around(round.folder)
        code, _ = told("runs", "adopt", bad, "--into", store / "into")
        if _around(round.folder) != before:
            raise Broken("lost", "runs adopt wrote outside its folder")
        return code != 0

    fuzz(round, inputs, look)


def _put(file: Path, content: bytes | None) -> None:
    """Write a file, or make a pipe, which nobody writes to, in its place."""
    os.mkfifo(file) if content is PIPE else file.write_bytes(content)


def _around(folder: Path) -> set[str]:
    """Files beside the store, which nobody may write."""
    return {str(path) for path in folder.rglob("*") if "into" not in path.parts}


def _as_json(tree: Any) -> bytes:
    return json.dumps(tree, indent=1).encode("utf-8", "surrogatepass")


def _sealed(tree: Any) -> bytes:
    text = json.dumps(tree, indent=1)
    return ('{\n "sha256": "' + _sha(text) + '",\n' + text.removeprefix("{\n")).encode()


IMAGES = st.one_of(
    st.tuples(
        st.lists(st.integers(0, 9), max_size=5).map(tuple),
        st.sampled_from(["uint8", "int64", "float16", "float32", "float64", "bool", "complex64", "object", "U3"]),
        st.sampled_from([0, 1, -1, 255, 256, np.nan, np.inf, 0.5]),
    ).map(lambda each: _filled(*each)),
    st.sampled_from([torch.zeros(2, 3, 8, 8), torch.zeros(2, 3, 8, 8).to_sparse(), torch.zeros(0, 3, 8, 8)]),
    st.sampled_from([torch.zeros(2, 3, 8, 8, dtype=torch.bfloat16), torch.zeros(2, 3, 8, 8, device="meta")]),
    st.sampled_from([batch(0, (0, 1))[0], batch(1, (2, 3))[0].numpy(), batch(1, (2, 3))[0].float() / 255]),
    TREES,
)
LABELS = st.one_of(
    st.lists(NUMBERS, max_size=4).map(lambda values: _made(values)),
    st.lists(st.integers(-1, 7), min_size=2, max_size=2).map(np.array),
    st.lists(st.integers(-1, 7), min_size=2, max_size=2).map(torch.tensor),
    IMAGES,
)


def _made(values: list[Any]) -> Any:
    try:
        return np.array(values)
    except (ValueError, OverflowError):
        return values


def _filled(shape: tuple[int, ...], kind: str, value: float) -> Any:
    with np.errstate(all="ignore"):
        return np.full(shape, value).astype(kind)


OPTIONS = st.dictionaries(
    st.sampled_from(
        [
            "num_classes",
            "memory_size",
            "seed",
            "boundaries",
            "boundary_patience",
            "statistics",
            "average",
            "predict_by",
            "predict_among",
            "engine",
        ]
    ),
    st.one_of(SCALARS, TREES),
    max_size=3,
)
METHODS = st.one_of(
    st.sampled_from(["er", "scr", "mir", "mose", "ocm"]),
    st.dictionaries(st.sampled_from(["name", "network", "memory_batch", "optimizer"]), TREES, max_size=3),
    st.fixed_dictionaries({"name": st.just("er"), "network": st.dictionaries(st.just("width"), NUMBERS)}),
    TREES,
)


def arguments(round: Round) -> None:
    """Learners that are made, taught and asked with anything; after a refusal the learner is as it was."""
    taught = run(small("er"), 0, 3)
    calls = ("learn", "predict", "predict_proba", "evaluate", "scores", "load", "save")
    inputs = st.one_of(
        st.tuples(st.just("make"), METHODS, OPTIONS),
        st.tuples(st.sampled_from(calls), IMAGES, LABELS),
        st.tuples(st.just("learn"), IMAGES, LABELS),
    )

    def look(example: tuple[str, Any, Any]) -> bool:
        what, one, other = example
        if what == "make":
            return refuses(lambda: _make(one, other))
        before = taught.steps, taught.predict_proba(X)
        refused = refuses(lambda: _call(taught, what, one, other, round.folder))
        if refused and (before[0] != taught.steps or not torch.equal(taught.predict_proba(X), before[1])):
            raise Broken("mismatch", f"a refused {what} changed the learner")
        return refused

    fuzz(round, inputs, look)


def _make(method: Any, options: dict[str, Any]) -> None:
    if isinstance(method, dict):
        method = {"network": {"width": 2}} | method
    elif isinstance(method, str):
        method = {"name": method, "network": {"width": 2}}
    learner = Learner(method, **({"num_classes": 6, "memory_size": 12} | options))
    learner.learn(*batch(0, (0, 1)))


def _call(learner: Learner, what: str, one: Any, other: Any, folder: Path) -> None:
    if what in ("learn", "evaluate"):
        getattr(learner, what)(one, other)
    elif what == "save":
        if not isinstance(one, str):
            raise S6modError("a type checker says no")
        learner.save(folder / "saved" / one.replace("..", "").lstrip("/")[:300])
    elif what == "load":
        Learner.load(one if isinstance(one, str) else "nothing")
    else:
        getattr(learner, what)(one)
