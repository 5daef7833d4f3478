"""What the service must hold: load while it learns, kills, bad requests, snapshot and rollback, restarts.

    python benchmarks/serve.py                  # the full campaigns, about an hour on two quiet cores
    python benchmarks/serve.py --short          # the same in a few minutes
    python benchmarks/serve.py --only kills --kills 50 --json

It starts services of its own on loopback, each in a folder of its own, and ends them. The exit code is 1 if anything
was lost, learned twice, differed or failed. Times depend on the machine: its load is printed beside them.
"""

import argparse
import json
import math
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch
from serve_bad import fault, raw, requests
from serve_process import GONE, NPY, Answer, Client, Process, batch, npy

from s6mod import Learner
from s6mod.columns import align
from s6mod.config import assign
from s6mod.engine.checkpoint import Snapshot, read_state

Figures = dict[str, Any]
RATE = 100  # predictions a second
SMALL = ("method.network.width=4", "memory_size=60", "updates=1")  # for kills: many starts, not much learning
SIDE = 16
AT_ONCE = 8  # connections that predict


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="30 s of load, 20 kills, 2 restarts")
    parser.add_argument("--only", default="", help="load, kills, bad or restart; separated by commas")
    parser.add_argument("--seconds", type=float, help="of load (default: 600)")
    parser.add_argument("--kills", type=int, help="default: 200")
    parser.add_argument("--bad", type=int, default=2000, help="bad requests")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    seconds = asked.seconds or (30.0 if asked.short else 600.0)
    kills = asked.kills or (20 if asked.short else 200)
    small = [word for assignment in SMALL for word in ("--set", assignment)]
    campaigns: dict[str, tuple[Callable[[Process], Figures], list[object]]] = {
        # Those of the preset everyday are ER at width 16 on 32x32.
        "load": (lambda service: load(service, seconds), ["--max-waiting", 8]),
        "kills": (
            lambda service: killed(service, kills, asked.seed),
            ["--size", SIDE, "--checkpoint-seconds", 0.5, "--snapshot-every", 50, *small],
        ),
        "bad": (lambda service: bad_requests(service, asked.bad, asked.seed), ["--size", SIDE, *small]),
        "restart": (
            lambda service: restarts(service, *((2, 30) if asked.short else (10, 110))),
            ["--checkpoint-seconds", 5],
        ),
    }
    wanted = list(filter(None, asked.only.split(","))) or list(campaigns)
    found: dict[str, Figures] = {}
    for name in wanted:
        place = Path(tempfile.mkdtemp(prefix=f"serve-{name}-"))
        campaign, words = campaigns[name]
        with Process(place / "service", *words, "--threads", 1) as service:
            found[name] = campaign(service) | {"machine's load at the end": round(os.getloadavg()[0], 1)}
        shutil.rmtree(place, ignore_errors=True)
        if not asked.json:
            rows = [[key, str(value)] for key, value in found[name].items()]
            print("\n".join(align([[name, ""], *rows], frozenset({0}))), end="\n\n", flush=True)
    if asked.json:
        print(json.dumps(found, indent=1))
    return int(not all(figures["held"] for figures in found.values()))


# --- load -----------------------------------------------------------------------------------------------------


def load(service: Process, seconds: float) -> Figures:
    """Predictions at a steady rate while it learns without a pause, with a snapshot and a rollback on the way."""
    service.start()
    stop = threading.Event()
    teacher = _Teacher(service.port, stop)
    teacher.start()
    client = Client(service.port)
    while (status := client.get("/status"))["batches"] < 3:
        if status["failure"]:
            raise RuntimeError(status["failure"])
        time.sleep(0.2)
    begun, batches = time.monotonic() + 0.5, client.get("/status")["batches"]
    askers = [_Asker(service.port, begun, seconds, each) for each in range(AT_ONCE)]
    for asker in askers:
        asker.start()
    time.sleep(0.5 + seconds / 3)
    client = Client(service.port)  # the other may be taken for idle by now
    taken = client.post("/snapshot").json["number"]
    learned = client.get("/status")["batches"] - batches
    time.sleep(max(0.0, begun + 2 * seconds / 3 - time.monotonic()))
    number = Client(service.port).post("/rollback", snapshot=taken).json["number"]
    for asker in askers:
        asker.join()
    client = Client(service.port)
    end = time.monotonic() + 120
    while (status := client.get("/status"))["journal"]["learned"] < number and time.monotonic() < end:
        time.sleep(0.2)
    went_back = status["journal"]["unlearned"] > 0 and status["failure"] is None
    stop.set()
    teacher.join()
    code = service.end()
    times = sorted(each for asker in askers for each in asker.times)
    errors = sum(len(asker.errors) for asker in askers) + len(teacher.errors)
    p99 = _percentile(times, 0.99)
    return {
        "held": errors == 0 and p99 <= 0.1 and len(times) >= 0.999 * RATE * seconds and went_back and code == 0,
        "seconds": seconds,
        "predictions": len(times),
        "predictions a second": round(len(times) / seconds, 1),
        "errors": errors,
        "p50 ms": round(1000 * _percentile(times, 0.5), 1),
        "p95 ms": round(1000 * _percentile(times, 0.95), 1),
        "p99 ms (at most 100)": round(1000 * p99, 1),
        "longest ms": round(1000 * times[-1], 1),
        "batches learned a second": round(learned / (seconds / 3 + 0.5), 2),
        "batches acknowledged": teacher.accepted,
        "snapshot and rollback under load": went_back,
        "exit code": code,
        "tracebacks": service.tracebacks,
        "first error": next((each for asker in askers for each in asker.errors), next(iter(teacher.errors), None)),
    }


class _Asker(threading.Thread):
    """Every n-th prediction, each at its time; a late answer delays the next, and that counts as its time too."""

    def __init__(self, port: int, begin: float, seconds: float, number: int) -> None:
        super().__init__(daemon=True)
        self.client, self.begin, self.number = Client(port), begin, number
        self.count = int(RATE * seconds)
        self.times: list[float] = []
        self.errors: list[str] = []

    def run(self) -> None:
        body = npy(batch(self.number, 32, 1)[0])
        for turn in range(self.number, self.count, AT_ONCE):
            due = self.begin + turn / RATE
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                answer = self.client.ask("POST", "/predict", body, NPY)
                if answer.status != 200:
                    self.errors.append(f"{answer.status} {answer.body[:200]!r}")
            except GONE as error:
                self.errors.append(repr(error))
            self.times.append(time.monotonic() - due)


class _Teacher(threading.Thread):
    """Sends batches so that there is always one to learn."""

    def __init__(self, port: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.client, self.stop = Client(port), stop
        self.accepted = 0
        self.errors: list[str] = []

    def run(self) -> None:
        while not self.stop.is_set():
            answer = self.client.learn(f"batch {self.accepted}", *batch(self.accepted, 32))
            if answer.status == 200:
                self.accepted += 1
            elif answer.status == 429 and int(answer.headers["retry-after"]) >= 1:
                time.sleep(0.2)  # earlier than it says: the queue is to be full
            else:
                self.errors.append(f"{answer.status} {answer.body[:200]!r}")
                return


# --- kills ----------------------------------------------------------------------------------------------------


def killed(service: Process, kills: int, seed: int) -> Figures:
    """kill -9 at random moments; then the state must be that of a learner which was never killed."""
    moments, starts = random.Random(seed), []
    starts.append(service.start())
    clients = [_Persistent(service, f"client {each}", seed + each) for each in range(2)]
    for client in clients:
        client.start()
    missing = 0
    for _ in range(kills):
        if moments.random() < 0.2:  # while it starts
            service.kill()
            service.start(wait=False)
            time.sleep(moments.uniform(0, 1.5 * starts[0]))
        else:
            time.sleep(moments.uniform(0, 2.0))
        service.kill()
        starts.append(service.start())
        missing += sum(client.missing() for client in clients)
    for client in clients:
        client.stop.set()
    for client in clients:
        client.join()
    line = Client(service.port)
    while line.get("/status")["journal"]["waiting"]:
        time.sleep(0.1)
    status = line.get("/status")
    code = service.end()
    told = [each for client in clients for each in client.told]
    missing += len({number for number, *_ in told}) != len(told)  # two batches under one number
    expected, batches = _never_killed(told)
    state, _ = read_state(service.folder / "checkpoint")
    found = Snapshot.of(state, {})
    equal = found.plain == expected.plain and found.tensors.keys() == expected.tensors.keys()
    equal = equal and all(torch.equal(tensor, expected.tensors[name]) for name, tensor in found.tensors.items())
    learned = state["host"]["steps"]
    errors = [error for client in clients for error in client.errors]
    return {
        "held": equal and missing == 0 and learned == batches and code == 0 and not errors and not service.tracebacks,
        "kills": kills,
        "batches acknowledged": sum(kind == "learn" for _, kind, _ in told),
        "of them labels for earlier predictions": sum(client.later for client in clients),
        "rollbacks": sum(kind == "rollback" for _, kind, _ in told),
        "unlearned by them": status["journal"]["unlearned"],
        "lost": missing + max(0, batches - learned),
        "learned twice": max(0, learned - batches),
        "state equal to the bit": equal,
        "answers that changed when sent again": sum(client.changed for client in clients),
        "median start, s": round(sorted(starts)[len(starts) // 2], 2),
        "longest start, s": round(max(starts), 2),
        "exit code": code,
        "tracebacks": service.tracebacks,
        "first error": next(iter(errors), None),
    }


class _Persistent(threading.Thread):
    """Sends each batch until it is acknowledged, whatever happens to the service, and remembers what it was told."""

    def __init__(self, service: Process, name: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.service, self.who, self.random = service, name, random.Random(seed)
        self.stop = threading.Event()
        self.told: list[tuple[int, str, Any]] = []  # number, kind, seed of the batch or number of the snapshot
        self._ids: list[tuple[str, int]] = []
        self.errors: list[str] = []
        self.changed = 0
        self.later = 0

    def run(self) -> None:
        count = 0
        while not self.stop.is_set() and not self.errors:
            count += 1
            key = 1_000_000 * self.random.randrange(1000) + count
            chance, id = self.random.random(), f"{self.who}, {count}"
            if chance < 0.005:
                snapshots = [each["number"] for each in self._get("/snapshots")["snapshots"]]
                to = self.random.choice(snapshots[-3:])
                self._until(lambda line, id=id, to=to: line.post("/rollback", snapshot=to, id=id), "rollback", to, id)
            elif chance < 0.06:
                self._until(lambda line, id=id: line.post("/snapshot", id=id), "snapshot", None, id)
            else:
                x, y = batch(key, SIDE, self.random.choice((1, 4, 10)))

                def send(line: Client, id: str = id, x: Any = x, y: Any = y) -> Answer:
                    return line.learn(id, x, y)

                if chance > 0.7 and (asked := self._predicted(x)):  # its label comes later, maybe after a kill
                    time.sleep(self.random.uniform(0, 2))

                    def send(line: Client, id: str = id, asked: Any = asked, y: Any = y) -> Answer:
                        return line.post("/learn", predictions=asked, labels=y, id=id)

                    self.later += 1
                self._until(send, "learn", (key, len(y)), id)
                if chance < 0.2:  # again: the first answer
                    self._until(send, "again", None, id)

    def _until(self, send: Callable[[Client], Any], kind: str, what: Any, id: str) -> None:
        while True:
            try:
                answer = send(Client(self.service.port, 10))
            except GONE:
                time.sleep(0.02)
                continue
            if answer.status in (429, 503):
                time.sleep(0.05)
                continue
            if kind == "rollback" and answer.status == 404:  # another rollback was there first
                return
            if answer.status != 200:
                self.errors.append(f"{kind} {answer.status} {answer.body[:300]!r}")
                return
            number = answer.json["number"]
            if kind == "again":
                self.changed += number != self._ids[-1][1]
            else:
                self.told.append((number, kind, what))
                if kind == "learn":
                    self._ids.append((id, number))
            return

    def _predicted(self, images: Any) -> list[str]:
        """The ids of the predictions; none if nothing was learned yet."""
        while True:
            with suppress(*GONE):
                answer = Client(self.service.port, 10).ask("POST", "/predict", npy(images), NPY)
                if answer.status != 503:
                    return [each["id"] for each in answer.json.get("predictions", ())]
            time.sleep(0.02)

    def _get(self, path: str) -> Any:
        while True:
            with suppress(*GONE):
                return Client(self.service.port, 10).get(path)
            time.sleep(0.02)

    def missing(self) -> int:
        """Of the latest acknowledged batches, those that the service does not know under their number."""
        latest = list(self._ids[-10:])
        return sum(self._get("/learn/" + quote(id)).get("number") != number for id, number in latest)


def _never_killed(told: list[tuple[int, str, Any]]) -> tuple[Snapshot, int]:
    """The state of a learner that learns the acknowledged batches, but those that rollbacks undid; and how many."""
    rows = sorted(told, key=lambda row: row[0])
    for number, kind, to in list(rows):
        if kind == "rollback":
            rows = [row for row in rows if not (to < row[0] < number and row[1] != "rollback")]
    changes: dict[str, Any] = {}
    for assignment in SMALL:
        changes = assign(changes, assignment)
    learner = Learner.preset("everyday", **changes)
    for _, kind, what in rows:
        if kind == "learn":
            learner.learn(*batch(what[0], SIDE, what[1]))
    return Snapshot.of(learner.state_dict(), {}), learner.steps


# --- bad requests ---------------------------------------------------------------------------------------------


def bad_requests(service: Process, number: int, seed: int) -> Figures:
    """Each refused in one sentence; nothing changes."""
    service.start()
    client = Client(service.port, 20)
    assert client.learn("first", *batch(0, SIDE)).status == 200
    while not client.get("/status")["classes"]:  # it is learned and published
        time.sleep(0.05)
    before = client.get("/status")
    faults, begin = [], time.monotonic()
    for name, bad in islice(requests(seed, 16 * 2**20), number):
        try:
            wrong = fault(name, bad, client)
        except GONE as error:
            wrong = f"{name}: no answer: {error!r}"
        if wrong:
            faults.append(wrong)
    seconds = time.monotonic() - begin
    for junk in (b"\0" * 100, b"GET\r\n\r\n", b"POST /learn HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n"):
        answer = raw(service.port, junk)
        if answer and not answer.startswith(b"HTTP/1.1 4"):
            faults.append(f"no HTTP: {answer[:200]!r}")
    after = client.get("/status")
    same = all(before[key] == after[key] for key in ("batches", "classes")) and (
        before["journal"]["accepted"] == after["journal"]["accepted"]
    )
    alive = client.learn("last", *batch(1, SIDE)).status == 200
    code = service.end()
    return {
        "held": not faults and same and alive and code == 0 and service.tracebacks == 0,
        "bad requests": number,
        "seconds": round(seconds, 1),
        "not refused in one sentence with 4xx": len(faults),
        "nothing changed": same,
        "still learns": alive,
        "exit code": code,
        "tracebacks": service.tracebacks,
        "first fault": next(iter(faults), None),
    }


# --- restarts -------------------------------------------------------------------------------------------------


def restarts(service: Process, number: int, batches: int) -> Figures:
    """After a kill, with so many batches in memory at width 16: until it answers, and until all is learned again."""
    service.start()
    client = Client(service.port)
    starts, replays, rows = [], [], []
    sent = 0
    for turn in range(number):
        for _ in range(batches if turn == 0 else 20):  # 110 of them fill the memory of 1,000 images
            while client.learn(f"batch {sent}", *batch(sent, 32)).status == 429:
                time.sleep(0.2)
            sent += 1
        while client.get("/status")["journal"]["waiting"] > 5:
            time.sleep(0.2)
        service.kill()
        begin = time.monotonic()
        starts.append(service.start())
        client = Client(service.port)
        assert client.ask("POST", "/predict", npy(batch(0, 32, 1)[0]), NPY).status == 200
        journal = client.get("/status")["journal"]
        rows.append(journal["accepted"] - journal["checkpoint"])
        while client.get("/status")["journal"]["waiting"]:
            time.sleep(0.05)
        replays.append(time.monotonic() - begin - starts[-1])
    code = service.end()
    return {
        "held": max(starts) <= 10 and code == 0,
        "restarts": number,
        "median until it predicts, s": round(sorted(starts)[number // 2], 2),
        "longest until it predicts, s (at most 10)": round(max(starts), 2),
        "batches after the checkpoint, at most": max(rows),
        "longest until these are learned again, s": round(max(replays), 2),
        "exit code": code,
        "tracebacks": service.tracebacks,
    }


def _percentile(values: list[float], share: float) -> float:
    return values[math.ceil(share * len(values)) - 1]


if __name__ == "__main__":
    sys.exit(main())
