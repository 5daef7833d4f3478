"""Bad data: archives, image folders, tables, arrays and pickles, by ``s6mod data`` and its readers."""

import io
import pickle
import shutil
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from PIL import Image

from s6mod.data.pickles import read_pickle
from torture.attack import Broken, Round
from torture.fuzz import SCALARS, TREES, damaged, fuzz, refuses, told
from torture.victims import draw_photos

NAMES = st.one_of(
    st.sampled_from(["cat/1.png", "dog/2.png", "../evil.png", "/evil.png", "a/../../evil.png", "cat", "", ".", "cat/"]),
    st.sampled_from(
        ["train/cat/1.png", "test/cat/1.png", "C:\\evil.png", "a" * 300 + ".png", "cat/\x1b[1m.png", "x\n"]
    ),
    st.text(max_size=10),
)


def _picture(kind: str = "PNG", mode: str = "RGB", side: int = 16, seed: int = 0) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    file = io.BytesIO()
    picture = (
        Image.fromarray(pixels[..., 0].astype(np.uint16)) if mode == "I;16" else Image.fromarray(pixels).convert(mode)
    )
    picture.save(file, kind)
    return file.getvalue()


def _prepared(round: Round, what: Path, *options: str) -> bool:
    """Whether ``s6mod data`` refuses it; nothing may be written beside its folder."""
    root = round.folder / "root"
    shutil.rmtree(root, ignore_errors=True)
    code, _ = told("data", what, "--data-root", root, "--name", "mine", *options)
    if list(round.folder.rglob("*evil*")) or Path("/evil.png").exists():
        raise Broken("lost", "a file was written outside its folder")
    if code != 0 and list(root.glob("*.safetensors")):
        raise Broken("lost", "what was refused is there all the same")
    return code != 0


def archives(round: Round) -> None:
    """Zip and tar files with hostile names, links and sizes, and damaged ones."""
    members = st.lists(
        st.tuples(NAMES, st.sampled_from(["image", "empty", "link", "hard", "zeros", "device"])), max_size=5
    )
    with zipfile.ZipFile(whole := io.BytesIO(), "w") as archive:
        for number in range(8):
            archive.writestr(f"{('cat', 'dog')[number % 2]}/{number}.png", _picture(seed=number))
    with tarfile.open(fileobj=(tape := io.BytesIO()), mode="w:gz") as packed:
        for number in range(8):
            _add(packed, f"{('cat', 'dog')[number % 2]}/{number}.png", "image")
    inputs = st.one_of(
        members.map(lambda each: ("a.zip", _zip(each))),
        members.map(lambda each: ("a.tar", _tar(each))),
        damaged(whole.getvalue()).map(lambda content: ("a.zip", content)),
        damaged(tape.getvalue()).map(lambda content: ("a.tar.gz", content)),
        st.binary(max_size=50).map(lambda content: ("a.tar.xz", content)),
    )

    def look(example: tuple[str, bytes]) -> bool:
        name, content = example
        (round.folder / name).write_bytes(content)
        return _prepared(round, round.folder / name)

    fuzz(round, inputs, look)


def _zip(members: list[tuple[str, str]]) -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, kind in members:
            entry = zipfile.ZipInfo("x")
            entry.filename, entry.compress_type = name, zipfile.ZIP_DEFLATED
            if kind in ("link", "hard"):
                entry.external_attr = 0o120777 << 16
            content = {"image": _picture(), "zeros": bytes(3_000_000)}.get(kind, b"/etc/passwd")
            with suppress(UnicodeError, ValueError):  # names that zipfile itself does not write
                archive.writestr(entry, content)
    return file.getvalue()


def _tar(members: list[tuple[str, str]]) -> bytes:
    with tarfile.open(fileobj=(file := io.BytesIO()), mode="w", errors="surrogateescape") as archive:
        for name, kind in members:
            _add(archive, name, kind)
    return file.getvalue()


def _add(archive: tarfile.TarFile, name: str, kind: str) -> None:
    entry = tarfile.TarInfo(name)
    content = {"image": _picture(), "zeros": bytes(100_000)}.get(kind, b"")
    entry.size = len(content)
    if kind in ("link", "hard", "device"):
        entry.type = {"link": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE, "device": tarfile.CHRTYPE}[kind]
        entry.linkname, entry.size = "../../../../etc/passwd", 0
    with suppress(UnicodeError, ValueError):  # names that tarfile itself does not write
        archive.addfile(entry, io.BytesIO(content))


def images(round: Round) -> None:
    """A folder with a damaged or odd image among good ones, with and without ``--skip-bad``."""
    folder = round.folder / "photos"
    draw_photos(folder, 4, round.seed)
    kinds = [
        ("PNG", "RGB"),
        ("PNG", "I;16"),
        ("PNG", "P"),
        ("PNG", "1"),
        ("PNG", "RGBA"),
        ("JPEG", "L"),
        ("JPEG", "CMYK"),
    ]
    kinds += [("GIF", "P"), ("BMP", "RGB"), ("TIFF", "F"), ("WEBP", "RGB"), ("PPM", "RGB")]
    whole = {f"{kind.lower()}-{mode}": _picture(kind, mode) for kind, mode in kinds}
    suffixes = {
        "png": ".png",
        "jpeg": ".jpg",
        "gif": ".gif",
        "bmp": ".bmp",
        "tiff": ".tiff",
        "webp": ".webp",
        "ppm": ".ppm",
    }
    inputs = st.tuples(
        st.sampled_from(sorted(whole)).flatmap(
            lambda key: st.tuples(
                st.sampled_from(sorted(suffixes.values())) | st.just(suffixes[key.partition("-")[0]]),
                damaged(whole[key]) | st.just(whole[key]),
            )
        ),
        st.booleans(),
    )

    def look(example: tuple[tuple[str, bytes], bool]) -> bool:
        (suffix, content), skips = example
        file = folder / "cat" / f"odd{suffix}"
        file.write_bytes(content)
        try:
            return _prepared(round, folder, *["--skip-bad"] * skips)
        finally:
            file.unlink()

    fuzz(round, inputs, look)


def tables(round: Round) -> None:
    """CSV files: odd columns, paths, labels, quotes and bytes."""
    draw_photos(round.folder / "photos", 3, round.seed)
    good = [f"photos/{name}/{number}.png,{name}" for name in ("cat", "dog") for number in range(3)]
    text = "\n".join(["path,label", *good, ""]).encode()
    cells = st.one_of(
        SCALARS.map(str), st.sampled_from(["photos/cat/0.png", "photos/dog/1.png", "cat", "train", "test"])
    )
    headers = st.sampled_from(
        ["path,label", "path,label,split", "label,path", "path,path,label", "a,b", "\ufeffpath,label"]
    )
    rows = st.lists(st.lists(cells, min_size=1, max_size=4).map(",".join), max_size=6)
    inputs = st.one_of(
        damaged(text),
        st.tuples(headers, rows).map(lambda each: "\n".join([each[0], *each[1]]).encode("utf-8", "surrogatepass")),
        st.binary(max_size=40),
    )
    file = round.folder / "table.csv"

    def look(content: bytes) -> bool:
        file.write_bytes(content)
        return _prepared(round, file)

    fuzz(round, inputs, look)


def arrays(round: Round) -> None:
    """``.npz`` files: damaged ones, and arrays of odd kinds, shapes and values."""
    noise = np.random.default_rng(round.seed)
    good = {"images": noise.integers(0, 256, (12, 8, 8, 3), dtype=np.uint8), "labels": np.arange(12) % 3}
    names = st.sampled_from(["images", "labels", "x_train", "y_train", "x_test", "y_test", "class_names", "a/b"])
    kinds = st.sampled_from(["u1", "i8", "f2", "f4", "f8", "?", "U4", "S3", "O", "c8", "M8[s]", ">i4", "V3", "f16"])
    shapes = st.lists(st.integers(0, 12), max_size=5).map(tuple)
    values = st.sampled_from([0, 1, 2, 255, 0.5, -1, 300, float("nan")])
    odd = st.dictionaries(names, st.tuples(shapes, kinds, values).map(lambda each: _array(*each)), max_size=3)
    inputs = st.one_of(damaged(_npz(good)), odd.map(_npz), odd.map(lambda more: _npz(good | more)))
    file = round.folder / "mine.npz"

    def look(content: bytes) -> bool:
        file.write_bytes(content)
        return _prepared(round, file)

    fuzz(round, inputs, look)


def _array(shape: tuple[int, ...], kind: str, value: float) -> Any:
    with np.errstate(all="ignore"):
        try:
            return np.full(shape, value).astype(kind)
        except (ValueError, TypeError):
            return np.zeros(shape, kind)


def _npz(values: dict[str, Any]) -> bytes:
    np.savez(file := io.BytesIO(), **values)
    return file.getvalue()


def pickles(round: Round) -> None:
    """CIFAR's pickles: damaged ones, other values, and programs, of which none may run."""
    marker = round.folder / "ran"

    class Program:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (marker,)

    good = {b"data": np.zeros((4, 12), np.uint8), b"labels": [0, 1, 2, 3], b"names": [b"a", b"b"]}
    bad = [good | {b"data": Program()}, Program(), {b"labels": [Program()]}, [good]]
    texts = [pickle.dumps(each, protocol) for each in (good, *bad) for protocol in (0, 2, 3, 4, 5)]
    inputs = st.one_of(
        st.sampled_from(texts).flatmap(damaged),
        st.sampled_from(texts),
        TREES.map(lambda tree: pickle.dumps(tree, 2)),
        st.binary(max_size=40),
    )
    file = round.folder / "batch"

    def look(content: bytes) -> bool:
        file.write_bytes(content)
        refused = refuses(lambda: read_pickle(file))
        if marker.exists():
            raise Broken("lost", "a pickle ran its program")
        return refused

    fuzz(round, inputs, look)
