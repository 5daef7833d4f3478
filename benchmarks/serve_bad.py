"""Requests that no service should take: each gets one sentence and a status of 400 to 499, and changes nothing."""

import io
import json
import pickle
import random
import socket
import struct
import zlib
from collections.abc import Callable, Iterator

import numpy as np
from PIL import Image
from serve_process import NPY, Client, npy

JSON = "application/json"
Bad = tuple[str, str, bytes, dict[str, str]]  # verb, path, body, headers


def requests(seed: int, most_body: int) -> Iterator[tuple[str, Bad]]:
    """Without end, each by another seed."""
    while True:
        for name, make in KINDS.items():
            yield name, make(random.Random(f"{seed} {name}"), most_body)
        seed += 1


def _noise(random: random.Random, most: int = 3000) -> bytes:
    return random.randbytes(random.randrange(1, most))


def _png(width: int, height: int) -> bytes:
    """A header of so many pixels, and hardly any."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def _broken_image(random: random.Random, _: int) -> Bad:
    file = io.BytesIO()
    Image.fromarray(np.full((20, 20, 3), random.randrange(256), np.uint8)).save(file, random.choice(("PNG", "GIF")))
    content = bytearray(file.getvalue()[: random.randrange(1, 40)])
    return "POST", "/predict", bytes(content), {"Content-Type": "image/png"}


def _lying_npy(random: random.Random, _: int) -> Bad:
    content = npy(np.zeros((2, 3, 8, 8), np.uint8))
    shape = random.choice((b"(9, 3, 8, 8)", b"(2, 3, 8, 9)", b"(99999999999999999999, 3)", b"(-2, 3, 8, 8)", b"('a',)"))
    return (
        "POST",
        "/learn?labels=a&labels=b",
        content.replace(b"(2, 3, 8, 8)", shape),
        {"Content-Type": "application/x-npy"},
    )


def _pickled(random: random.Random, _: int) -> Bad:
    file = io.BytesIO()
    np.save(file, np.array([{"a": random.random()}], dtype=object), allow_pickle=True)
    content = random.choice((file.getvalue(), pickle.dumps([1, 2, 3])))
    return "POST", "/predict", content, {"Content-Type": "application/octet-stream"}


def _odd_array(random: random.Random, _: int) -> Bad:
    array = random.choice((
        np.full((1, 3, 8, 8), np.nan), np.full((1, 3, 8, 8), -1.0), np.full((1, 3, 8, 8), 300), np.zeros((0, 3, 8, 8)),
        np.zeros((1, 5, 8, 8), np.uint8), np.zeros((3, 0, 8), np.uint8), np.array("text"), np.zeros(3, np.complex64),
        np.zeros((2, 2, 2, 2, 2), np.uint8), np.zeros((1000, 3, 2, 2), np.uint8), np.array(5),
    ))  # fmt: skip
    return "POST", "/predict", npy(array), NPY


def _json(content: object) -> Callable[[random.Random, int], Bad]:
    def make(random: random.Random, _: int) -> Bad:
        body = content(random) if callable(content) else content
        path = random.choice(("/learn", "/predict"))
        return "POST", path, body if isinstance(body, bytes) else json.dumps(body).encode(), {"Content-Type": JSON}

    return make


def _labels(random: random.Random, _: int) -> Bad:
    labels: object = random.choice((
        [], ["a", "b"], "a", None, {"a": 1}, [None], [True], [1.5], [["a"]], ["x" * 101], ["\x00"], ["\ud800"], [""],
        [2**70], ["a\nb"], 7,
    ))  # fmt: skip
    image = np.zeros((1, 8, 8, 3), int).tolist()
    return "POST", "/learn", json.dumps({"images": image, "labels": labels}).encode(), {"Content-Type": JSON}


def _ids(random: random.Random, _: int) -> Bad:
    image = np.zeros((1, 8, 8, 3), int).tolist()
    id: object = random.choice(("", "x" * 201, 7, ["a"], "a\x1b[2J", {"a": 1}, False))
    content = {"images": image, "labels": ["a"], "id": id}
    return "POST", "/learn", json.dumps(content).encode(), {"Content-Type": JSON}


def _rollback(random: random.Random, _: int) -> Bad:
    content: object = random.choice((
        {}, {"snapshot": -1}, {"snapshot": 10**9}, {"snapshot": 2**80}, {"snapshot": "1"}, {"snapshot": True}, [], 3,
        {"snapshot": 1.5}, {"to": 1}, {"snapshot": 999_999, "id": 4},
    ))  # fmt: skip
    return "POST", "/rollback", json.dumps(content).encode(), {"Content-Type": JSON}


def _form(random: random.Random, _: int) -> Bad:
    boundary = random.choice(("", "; boundary=", "; boundary=x", "; boundary=" + "y" * 300))
    body = random.choice((
        b"", b"--x", b"--x\r\n\r\n--x--", _noise(random),
        b'--x\r\nContent-Disposition: form-data; name="images"\r\n\r\nab\r\n--x--',
        b'--x\r\nContent-Disposition: form-data; name="images"; filename="a.png"\r\n\r\nab\r\n--x--\r\n',
        b'--x\r\nContent-Disposition: form-data; name="other"\r\n\r\nab\r\n--x--\r\n', b"--x\r\nno colon\r\n\r\n" * 50,
        b'--x\r\nContent-Disposition: form-data; name="images"; filename="a"\r\n\r\na\r\n' * 400 + b"--x--\r\n",
    ))  # fmt: skip
    return "POST", random.choice(("/learn", "/predict")), body, {"Content-Type": f"multipart/form-data{boundary}"}


def _path(random: random.Random, _: int) -> Bad:
    verb, path = random.choice((
        ("GET", "/nothing"), ("DELETE", "/learn"), ("PUT", "/status"), ("GET", "/predict"), ("POST", "/status"),
        ("GET", "/../../etc/passwd"), ("GET", "/%00"), ("GET", "/learn/%ff%fe"), ("PATCH", "/"), ("POST", "/classes"),
        ("GET", "/learn/" + "a" * 3000), ("OPTIONS", "/learn"), ("TRACE", "/predict"), ("GET", "/learn/none"),
    ))  # fmt: skip
    return verb, path, b"", {}


def _too_long(random: random.Random, most: int) -> Bad:
    return (
        "POST",
        "/learn",
        b"",
        {"Content-Type": "application/x-npy", "Content-Length": str(most + random.randrange(1, 10**9))},
    )


def _too_many_pixels(random: random.Random, _: int) -> Bad:
    side = random.choice((20_000, 60_000, 2**31 - 1))
    return "POST", "/predict", _png(side, side), {"Content-Type": "image/png"}


def _query(random: random.Random, _: int) -> Bad:
    top = random.choice(("0", "-3", "x", "1.5", "9" * 5000, "%ff", "", "101"))
    return "POST", f"/predict?top={top}", npy(np.zeros((1, 3, 8, 8), np.uint8)), NPY


def _elsewhere(random: random.Random, _: int) -> Bad:
    headers = random.choice((
        {"Host": "example.org"}, {"Host": ""}, {"Origin": "http://example.org"}, {"Origin": "null"},
        {"Host": "127.0.0.1.example.org:80"},
    ))  # fmt: skip
    return "POST", "/snapshot", b"", headers


def _kind(random: random.Random, _: int) -> Bad:
    kind = random.choice(
        ("", "text/plain", "application/x-www-form-urlencoded", "application/python-pickle", "a" * 500)
    )
    return "POST", random.choice(("/learn", "/predict")), _noise(random), {"Content-Type": kind}


KINDS: dict[str, Callable[[random.Random, int], Bad]] = {
    "noise as an image": lambda r, _: ("POST", "/predict", _noise(r), {"Content-Type": "image/jpeg"}),
    "noise as npy": lambda r, _: ("POST", "/learn?labels=a", b"\x93NUMPY" + _noise(r), NPY),
    "noise as JSON": _json(_noise),
    "a broken image": _broken_image,
    "npy that lies": _lying_npy,
    "a pickle": _pickled,
    "an odd array": _odd_array,
    "deep JSON": _json(lambda r: b'{"images":' + b"[" * r.randrange(101, 50_000)),
    "deep and whole JSON": _json(lambda r: b'{"images":' + (n := r.randrange(101, 900)) * b"[" + n * b"]" + b"}"),
    "ragged JSON": _json({"images": [[1, 2], [3]], "labels": ["a"]}),
    "texts as images": _json(lambda r: {"images": [r.choice(("", "%%%", "AAAA", "x" * 999))], "labels": ["a"]}),
    "odd JSON": _json(lambda r: r.choice((1, None, [], "x", {"a": 1}, {}, {"images": None}, {"images": {}},
                                          {"images": [1], "predictions": ["a"]}, {"images": [[["a"]]]}))),
    "not a number": _json(b'{"images": [[[[NaN, 1, 1]]]], "labels": ["a"]}'),
    "unknown predictions": _json(lambda r: {"predictions": [r.choice(("a", "b" * 999, ""))], "labels": ["a"]}),
    "odd labels": _labels,
    "odd ids": _ids,
    "odd rollbacks": _rollback,
    "odd forms": _form,
    "odd paths": _path,
    "too long": _too_long,
    "too many pixels": _too_many_pixels,
    "odd queries": _query,
    "another site": _elsewhere,
    "another kind": _kind,
}  # fmt: skip


def fault(name: str, bad: Bad, client: Client) -> str | None:
    """What is wrong with the answer to a bad request; None: it was refused as it should be."""
    verb, path, body, headers = bad
    answer = client.ask(verb, path, body, headers)
    if not 400 <= answer.status < 500:
        return f"{name}: {verb} {path[:80]} {headers} got {answer.status}: {answer.body[:300]!r}"
    try:
        told = answer.json["error"]
    except (ValueError, KeyError, TypeError):
        return f"{name}: no sentence: {answer.body[:300]!r}"
    if verb != "HEAD" and ("Traceback" in told or "\n" in told or not told.startswith("expected ") or len(told) > 600):
        return f"{name}: not one sentence: {told[:300]!r}"
    return None


def raw(port: int, content: bytes) -> bytes:
    """What comes back for bytes that are no HTTP."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(content)
        line.shutdown(socket.SHUT_WR)
        found = b""
        while part := line.recv(4096):
            found += part
        return found
