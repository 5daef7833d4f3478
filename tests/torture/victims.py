"""What is killed: a training, a sweep, a learner that saves itself, a service, data, records, a search."""

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image

from learners import TASK, batch, small
from s6mod import Learner
from s6mod.data.prepared import read_prepared
from s6mod.engine.checkpoint import has_state
from s6mod.errors import S6modError
from s6mod.run_files import RunFiles
from s6mod.runs.records import read_result
from s6mod.serve.journal import Journal
from s6mod.serve.run import prepare
from s6mod.serve.settings import Limits, Rules
from s6mod.serve.writer import Writer
from torture.attack import Broken
from torture.child import command

OFTEN = ("output.checkpoint_every=2", "output.checkpoint_seconds=0")
TINY = ("method.network.width=2", "method.memory_batch=4", "stream.tasks=2", *OFTEN)
RECORDS = Path(__file__).parents[2] / "results"


def sets(*assignments: str) -> list[str]:
    """As options."""
    return [word for assignment in assignments for word in ("--set", assignment)]


def run_bits(folder: Path) -> Any:
    """All that a run learned: matrices, the final state and the records, but no times."""
    files = RunFiles(folder)
    state = json.loads((folder / "checkpoint" / "state.json").read_text())
    result = json.loads(files.result.read_text())
    return result["matrices"], state["sha256"], (folder / "records.jsonl").read_text()


def check_run(folder: Path) -> None:
    """A checkpoint, once there, stays there and is whole."""
    place = folder / "checkpoint"
    if has_state(place):
        Learner.load(place)


class Training:
    """``s6mod train``, gone on with by ``--resume``."""

    method = "er"

    def prepare(self, folder: Path, random: Random) -> None:
        self.seed = random.randrange(1000)
        self.method = random.choice(("er", "der++", "er-ace", "mir"))
        self.branch = random.choice(("none", "confidence"))

    def go(self, folder: Path) -> None:
        run = folder / "run"
        if RunFiles(run).config.exists():
            command("train", "--resume", run, "--quiet")
        what = ("--method", self.method, "--branch", self.branch, "--data", "digits", "--memory", 20)
        sizes = sets(*TINY, "stream.samples_per_task=100", "output.log_every=1")
        command("train", *what, "--seed", self.seed, "--device", "cpu", "--quiet", "--out", run, *sizes)

    def check(self, folder: Path) -> None:
        check_run(folder / "run")

    def bits(self, folder: Path) -> Any:
        return run_bits(folder / "run")


class Sweep:
    """``s6mod sweep``, gone on with by the same words."""

    def prepare(self, folder: Path, random: Random) -> None:
        self.seed = random.randrange(1000)
        self.workers = random.choice((1, 2))

    def go(self, folder: Path) -> None:
        words = ("er,er+confidence", "--data", "digits", "--memory", 20, "--seeds", f"{self.seed}-{self.seed + 1}")
        sizes = sets(*TINY, "stream.samples_per_task=100", "output.log_every=1")
        how = ("--retries", 2, "--workers", self.workers, "--device", "cpu", "--yes", "--quiet")
        command("sweep", *words, *how, "--out", folder / "runs", *sizes)

    def check(self, folder: Path) -> None:
        for run in (folder / "runs").glob("*-seed*"):
            check_run(run)

    def bits(self, folder: Path) -> Any:
        return {run.name: run_bits(run) for run in (folder / "runs").glob("*-seed*")}


class Save:
    """A learner that saves itself after each step, and tells so."""

    STEPS = 24

    def prepare(self, folder: Path, random: Random) -> None:
        self.seed = random.randrange(1000)
        self.method = random.choice(("er", "ocm", "mose", "onpro-ccldc", "er-lwf"))

    def go(self, folder: Path) -> None:
        try:
            self._learn(folder, folder / "state")
        except (S6modError, OSError, MemoryError, RuntimeError) as error:  # torch's own, within a step
            print(error)
            sys.exit(2)

    def _learn(self, folder: Path, place: Path) -> None:
        learner = Learner.load(place) if has_state(place) else small(self.method, seed=self.seed, num_classes=30)
        while learner.steps < self.STEPS:
            task = learner.steps // TASK
            learner.learn(*batch(learner.steps, (2 * task, 2 * task + 1)))
            if learner.steps % TASK == 0:
                learner.end_task()
            learner.save(place)
            (folder / "told").write_text(f"{learner.steps:9d}")

    def check(self, folder: Path) -> None:
        told = (folder / "told").read_text() if (folder / "told").exists() else ""
        if told and Learner.load(folder / "state").steps < int(told):
            raise Broken("lost", f"step {told} was saved, and an earlier state is there")

    def bits(self, folder: Path) -> Any:
        return json.loads((folder / "state" / "state.json").read_text())["sha256"]


class Serve:
    """A service that accepts batches and learns them; those that it has not acknowledged are sent again."""

    BATCHES = 24

    def prepare(self, folder: Path, random: Random) -> None:
        self.seed = random.randrange(1000)
        self.method = random.choice(("er", "mir", "der++"))

    def go(self, folder: Path) -> None:
        place = folder / "service"
        prepare(place, lambda: small(self.method, seed=self.seed, num_classes=None, predict_among="seen"), (8, 8))
        service = Writer(place, "cpu", Limits(), Rules(checkpoint_seconds=0.05, snapshot_every=5))
        service.start()
        try:
            for number in range(self.BATCHES):
                images, labels = batch(number, (number % 5, number % 7))
                service.accept(images.numpy(), labels.tolist(), f"batch {number}")
                (folder / "told").write_text(f"{number:9d}")
        finally:
            service.stop()

    def check(self, folder: Path) -> None:
        told = (folder / "told").read_text() if (folder / "told").exists() else ""
        if not told:
            return
        journal = Journal(folder / "service" / "journal.db")
        gone = [number for number in range(int(told) + 1) if journal.find(f"batch {number}") is None]
        journal.close()
        if gone:
            raise Broken("lost", f"batches {gone} were acknowledged and are not in the journal")

    def bits(self, folder: Path) -> Any:
        state = json.loads((folder / "service" / "checkpoint" / "state.json").read_text())
        return state["sha256"], state["tree"]["host"]["steps"]


def draw_photos(folder: Path, number: int, seed: int) -> None:
    """A folder of two class folders with images of noise."""
    noise = np.random.default_rng(seed)
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for each in range(number):
            pixels = noise.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{each}.png")


class Data:
    """``s6mod data`` of an image folder or a zip of it, begun anew each time."""

    def prepare(self, folder: Path, random: Random) -> None:
        self.seed, self.zipped = random.randrange(1000), random.random() < 0.5
        draw_photos(folder / "photos", 60, self.seed)
        if self.zipped:
            shutil.make_archive(str(folder / "photos"), "zip", folder / "photos")
            shutil.rmtree(folder / "photos")

    def go(self, folder: Path) -> None:
        what = folder / ("photos.zip" if self.zipped else "photos")
        command("data", what, "--data-root", folder / "root", "--name", "photos")

    def check(self, folder: Path) -> None:
        for file in (folder / "root").glob("*.safetensors"):
            read_prepared(file)

    def bits(self, folder: Path) -> Any:
        return {file.name: file.read_bytes() for file in (folder / "root").glob("*.safetensors")}


class Adopt:
    """``s6mod runs adopt`` of records, some of which have no checksum yet."""

    def prepare(self, folder: Path, random: Random) -> None:
        files = sorted(RECORDS.glob("*-seed*.json"))
        (folder / "from").mkdir()
        for file in random.sample(files, 12):
            text = file.read_text()
            if random.random() < 0.5:  # as it was before it was sealed
                head, _, rest = text.partition("\n")
                text = head + "\n" + "".join(rest.splitlines(keepends=True)[1:])
            (folder / "from" / file.name).write_text(text)

    def go(self, folder: Path) -> None:
        command("runs", "adopt", folder / "from", "--into", folder / "into")

    def check(self, folder: Path) -> None:
        for file in (folder / "into").glob("*.json"):
            read_result(file, sealed=True)

    def bits(self, folder: Path) -> Any:
        return {file.name: file.read_bytes() for file in (folder / "into").glob("*.json")}


class Tune:
    """``s6mod tune`` over two values; whoever died, each complete trial has the accuracy of its value."""

    TRIALS = 4

    def prepare(self, folder: Path, random: Random) -> None:
        self.seed = 100 + random.randrange(100)

    def go(self, folder: Path) -> None:
        words = ("er/digits/20", "--tasks", 2, "--seeds", self.seed, "--trials", self.TRIALS, "--no-prune", "--yes")
        space = ("--search", "method.optimizer.lr=0.01|0.1")
        sizes = sets(*TINY[:2], "stream.samples_per_task=60", *OFTEN)
        command("tune", *words, *space, "--workers", 1, "--device", "cpu", "--out", folder / "tuning", *sizes)

    def check(self, folder: Path) -> None:
        for file in (folder / "tuning").glob("*/history.json"):
            json.loads(file.read_text())

    def bits(self, folder: Path) -> Any:
        [file] = (folder / "tuning").glob("*/history.json")
        complete = [trial for trial in json.loads(file.read_text())["trials"] if trial["state"] == "complete"]
        if len(complete) != self.TRIALS:
            raise Broken("lost", f"{len(complete)} trials of {self.TRIALS} are complete")
        results = [json.loads(result.read_text()) for result in file.parent.glob("runs/*/result.json")]
        return _ByValue({result["config"]["method"]["optimizer"]["lr"]: result["matrices"] for result in results})


@dataclass(frozen=True)
class _ByValue:
    """Accuracies by value; of two studies those that both have tried are compared."""

    matrices: dict[float, Any]

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, _ByValue)
        both = self.matrices.keys() & other.matrices.keys()
        return all(self.matrices[value] == other.matrices[value] for value in both)
