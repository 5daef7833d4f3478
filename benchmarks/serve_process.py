"""A service in a process of its own, on loopback, and a client that speaks to it; for serve.py and the tests."""

import http.client
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import numpy as np

ROOT = Path(__file__).parents[1]
NPY = {"Content-Type": "application/x-npy"}
PATIENCE = 120.0  # seconds for a start, on a busy machine
GONE = (OSError, http.client.HTTPException)  # the service was killed, or is not up yet


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Process:
    """``s6mod serve FOLDER``; it is started again in the same folder after each end."""

    def __init__(self, folder: Path, *words: object) -> None:
        self.folder, self.words = folder, [*map(str, words)]
        self.said = Path(tempfile.mkstemp(prefix="service-", suffix=".log")[1])
        self.process: subprocess.Popen[str] | None = None
        self.port = 0

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def start(self, wait: bool = True) -> float:
        """Seconds until it answers; without ``wait`` it is only begun."""
        begin = time.monotonic()
        environment = os.environ | {
            "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
        }  # fmt: skip
        command = [sys.executable, "-m", "s6mod", "serve", str(self.folder), "--port", "0", *self.words]
        with self.said.open("a", encoding="utf-8") as log:
            self.process = subprocess.Popen(  # noqa: S603 - ourselves
                command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
        if not wait:
            return 0.0
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the service did not start: {self.said.read_text(encoding='utf-8')[-2000:]}")
        self.port = int(line.rpartition(":")[2])
        while True:
            try:
                answer = Client(self.port).ask("GET", "/healthz")
                if answer.status == 200:
                    return time.monotonic() - begin
                raise RuntimeError(f"the service is not well: {answer.body!r}")
            except GONE:
                if time.monotonic() - begin > PATIENCE:
                    raise
            time.sleep(0.01)

    def kill(self) -> None:
        """As if the power failed for this process."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self._wait()

    def end(self, seconds: float = PATIENCE) -> int:
        """In peace; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self._wait(seconds)

    def _wait(self, seconds: float = PATIENCE) -> int:
        assert self.process is not None
        assert self.process.stdout is not None
        code = self.process.wait(seconds)
        self.process.stdout.close()
        return code

    @property
    def tracebacks(self) -> int:
        """That it has said since the first start."""
        return self.said.read_text(encoding="utf-8", errors="replace").count("Traceback")


class Client:
    """One connection, which is kept."""

    def __init__(self, port: int, timeout: float = 60.0) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    def ask(self, verb: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
        try:
            self.connection.request(verb, path, body, headers or {})
            answer = self.connection.getresponse()
            return Answer(answer.status, answer.read(), dict(answer.headers))
        except GONE:
            self.connection.close()
            raise

    def get(self, path: str) -> Any:
        return self.ask("GET", path).json

    def post(self, path: str, **values: Any) -> Answer:
        return self.ask("POST", path, json.dumps(values).encode(), {"Content-Type": "application/json"})

    def learn(self, id: str, images: np.ndarray, labels: list[str]) -> Answer:
        return self.ask("POST", "/learn?" + urlencode({"id": id, "labels": json.dumps(labels)}), npy(images), NPY)


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def batch(number: int, side: int, size: int = 10, classes: int = 10) -> tuple[np.ndarray, list[str]]:
    """Images whose brightness and stripes tell their class, so that there is something to learn."""
    random = np.random.default_rng(number)
    labels = random.integers(classes, size=size)
    images = random.integers(0, 90, (size, 3, side, side))
    rows = np.arange(side)
    for image, label in zip(images, labels, strict=True):
        image[label % 3, (rows // (1 + label // 3)) % 2 == 0] += 140
    return images.astype(np.uint8), [f"class {label}" for label in labels]
