"""What a request holds: images as files, as JSON or as npy, with labels and an id; checked, resized, never unpickled.

Everything becomes uint8 (N, 3, H, W) of the service's size by the one rule for files, ``images.RESIZING``.
"""

import base64
import io
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from PIL import Image

from s6mod.config import LARGEST
from s6mod.data.images import BadImageError, pixels_of, read_image
from s6mod.errors import InputError
from s6mod.files import parse_json
from s6mod.learner.classes import Name
from s6mod.learner.images import as_batch
from s6mod.serve.settings import Limits, RefusedError

NPY = b"\x93NUMPY"
LONGEST = 100  # letters of a class's name
LONGEST_ID = 200
Images = NDArray[np.uint8]


@dataclass(frozen=True)
class Sent:
    """What a request brings, before its images are decoded."""

    files: Sequence[tuple[str, bytes]]  # how messages name it, and an image file or npy
    arrays: Any  # of JSON: nested lists
    labels: Any
    id: str
    predictions: list[str] | None = None  # ids, in place of images


def from_json(body: bytes) -> Sent:
    """``{"images": [...], "labels": [...], "id": "..."}``, or ``predictions`` in place of images."""
    content = fields(body, "images", "labels", "predictions")
    images, asked = content.get("images"), content.get("predictions")
    if asked is not None and not (isinstance(asked, list) and all(isinstance(each, str) for each in asked)):
        raise InputError("expected predictions as a list of ids, got something else; send those of POST /predict")
    if ("images" in content) == (asked is not None):
        raise InputError("expected images or predictions, got both or neither; send one of them")
    files = []
    if isinstance(images, list) and images and all(isinstance(each, str) for each in images):
        files, images = [_decoded(text, f"images[{number}]") for number, text in enumerate(images)], None
    return Sent(files, images, content.get("labels"), content["id"], asked)


def _decoded(text: str, where: str) -> tuple[str, bytes]:
    try:
        return where, base64.b64decode(text, validate=True)
    except ValueError:
        raise InputError(f"expected base64 in {where}, got something else; encode the image file") from None


def from_files(files: Sequence[tuple[str, bytes]], labels: Sequence[str], id: str | None) -> Sent:
    """Files of a form or one body; ``labels`` as texts: one that is a JSON list, or each a name."""
    told: Any = list(labels) or None
    if len(labels) == 1 and labels[0].lstrip().startswith("["):
        try:
            told = parse_json(labels[0])
        except ValueError:
            raise InputError('expected labels as a JSON list, got something else; write ["cat", "dog"]') from None
    return Sent(files, None, told, id_of(id))


def fields(body: bytes, *known: str) -> dict[str, Any]:
    """A JSON object that has no fields but those and an ``id``, which is made if there is none."""
    try:
        content = parse_json(body)
    except ValueError as error:
        raise InputError(f"expected JSON, got something else ({error}); check the body") from None
    names = ", ".join((*known, "id"))
    if not isinstance(content, dict):
        raise InputError(f"expected a JSON object, got {type(content).__name__}; send one with {names}")
    if strange := content.keys() - {*known, "id"}:
        raise InputError(f"expected no fields but {names}, got {min(strange)[:40]!r}; leave it out")
    return content | {"id": id_of(content.get("id"))}


def id_of(id: Any) -> str:
    """The id of a request; a fresh one if it has none."""
    if id is None:
        return secrets.token_hex(12)
    if not isinstance(id, str) or not 0 < len(id) <= LONGEST_ID or not id.isprintable():
        raise InputError(f"expected an id of 1 to {LONGEST_ID} printable letters, got {str(id)[:40]!r}; choose another")
    return id


def labels_of(labels: Any, number: int) -> list[Name]:
    """Names or whole numbers, one for each of ``number`` images."""
    if not isinstance(labels, list):
        raise InputError(f"expected labels as a list, got {type(labels).__name__}; send one for each image")
    if len(labels) != number:
        raise InputError(f"expected {number} labels, one for each image, got {len(labels)}; send as many")
    for position, label in enumerate(labels):
        if isinstance(label, str):
            if not 0 < len(label) <= LONGEST or not label.isprintable():
                raise InputError(
                    f"expected a name of 1 to {LONGEST} printable letters, got {label[:LONGEST]!r} at position "
                    f"{position}; choose another"
                )
        elif not isinstance(label, int) or isinstance(label, bool) or abs(label) > LARGEST:
            raise InputError(
                f"expected labels that are names or whole numbers of at most {LARGEST}, got "
                f"{str(label)[:40]!r} at position {position}; name the class"
            )
    return labels


def images_of(sent: Sent, size: tuple[int, int], limits: Limits) -> Images:
    """All images of a request that sends some, (N, 3, H, W)."""
    if sent.arrays is not None:
        images = _of_lists(sent.arrays, size, limits)
    elif sent.files:
        _check_number(len(sent.files), limits)
        images = np.concatenate([_of_file(name, content, size, limits) for name, content in sent.files])
    else:
        raise InputError("expected at least one image, got none; send image files, JSON or npy")
    _check_number(len(images), limits)
    return images


def _of_lists(given: Any, size: tuple[int, int], limits: Limits) -> Images:
    """Numbers of one or more images in nested lists."""
    if isinstance(given, str):
        raise InputError("expected images as a list, got one text; send a list of files in base64")
    try:
        array = np.array(given, dtype=object)  # or one long text would give every number its length
        kinds = set(map(type, array.flat))
        if kinds <= {int, float}:
            array = array.astype(float if float in kinds else int)
    except (ValueError, OverflowError):
        kinds = {list}
    if list in kinds:
        raise InputError("expected images of one shape, got lists of several; send each as files or npy")
    return _resized(array, size, limits)


def _of_file(where: str, content: bytes, size: tuple[int, int], limits: Limits) -> Images:
    """An image file, or an array in npy, as (N, 3, H, W)."""
    if content.startswith(NPY):
        return _resized(_read_npy(content), size, limits)
    try:
        return read_image(io.BytesIO(content), size, where, limits.pixels)[None]
    except BadImageError as error:
        raise InputError(str(error).partition("; ")[0] + "; send another") from None


def _read_npy(content: bytes) -> NDArray[Any]:
    """The array, if it is plain numbers and as long as its header says."""
    stream = io.BytesIO(content)
    try:
        reader = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(stream)]
        shape, fortran, dtype = reader(stream)
        rest = len(content) - stream.tell()
        sound = not dtype.hasobject and dtype.kind in "uif" and min(shape, default=0) >= 0
        whole = sound and prod(shape) * dtype.itemsize == rest
    except Exception:  # a header may hold anything, and NumPy fails on it in many ways
        sound = whole = False
    if not whole:
        got = "a damaged or truncated one" if sound else "another, or one with Python objects"
        raise InputError(f"expected an npy array of numbers, got {got}; save it with numpy.save")
    return np.frombuffer(content, dtype, offset=len(content) - rest).reshape(shape, order="F" if fortran else "C")


def _resized(array: NDArray[Any], size: tuple[int, int], limits: Limits) -> Images:
    """An array of one or more images, of either layout, as (N, 3, H, W)."""
    if array.dtype.kind not in "uif":
        raise InputError("expected images as numbers, got something else; send 0..255, or floats in [0, 1]")
    if array.dtype.kind in "ui" and array.dtype != np.uint8:
        if array.size and not (array.min() >= 0 and array.max() <= 255):
            raise InputError("expected whole numbers in 0..255, got others; send uint8, or floats in [0, 1]")
        array = array.astype(np.uint8)
    if array.ndim > 0:
        _check_number(len(array) if array.ndim == 4 else 1, limits)
    images: Images = as_batch(array)[0].numpy()
    if images.shape[2:] == size:
        return images
    if (number := prod(images.shape[2:])) > limits.pixels:
        raise RefusedError(413, f"expected at most {limits.pixels:,} pixels, got {number:,}; shrink the image")
    pictures = (Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))) for image in images)
    return np.stack([pixels_of(picture, size, "an array") for picture in pictures])


def _check_number(number: int, limits: Limits) -> None:
    if number > limits.images:
        raise RefusedError(413, f"expected at most {limits.images} images, got {number}; send them in several requests")
