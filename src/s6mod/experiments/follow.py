"""Watching a sweep by what its run folders say, wherever the runs are: behind a cluster, or in another terminal.

Only files are read, so anyone who sees the disk can watch, and watching changes nothing.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from s6mod.data import StreamPlan
from s6mod.errors import CheckpointError, S6modError
from s6mod.experiments.launch import PATIENCE, Outcome, Watch
from s6mod.experiments.sweep import Job
from s6mod.files import parse_json
from s6mod.run_files import RunFiles
from s6mod.runs.execute import stopping_politely
from s6mod.runs.records import read_result
from s6mod.runs.store import settled

QUIET = 10.0  # seconds after which a failed run that nobody tries again counts as lost


class Follower:
    """Tells a watch how runs go on, by their folders."""

    def __init__(self, jobs: Sequence[Job], watch: Watch) -> None:
        self.watch = watch
        self.open = {job.name: job for job in jobs}
        self._seen: dict[str, _Seen] = {}

    def look(self) -> None:
        """Tell what has changed since the last look."""
        for job in list(self.open.values()):
            if settled(job.folder):
                self.end(job)
            else:
                self._look_at(job)

    def end(self, job: Job) -> None:
        """A run has its result: tell it, once."""
        if self.open.pop(job.name, None) is not None:
            self.watch.done(job)

    def _look_at(self, job: Job) -> None:
        try:
            if job.name not in self._seen:
                self._seen[job.name] = _Seen(len(StreamPlan.load(RunFiles(job.folder).stream)))
            seen = self._seen[job.name]
            with RunFiles(job.folder).records.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(seen.size if size >= seen.size else 0)  # shorter: the run went back to its checkpoint
                lines = file.read(size).splitlines(keepends=True)
        except (OSError, S6modError):  # not begun
            return
        whole = [line for line in lines if line.endswith(b"\n")]
        seen.size = size - (len(lines[-1]) if len(whole) < len(lines) else 0)
        if whole:
            try:
                step = parse_json(whole[-1])["step"]
            except ValueError:  # the file was cut and grew again between two looks
                return
            self.watch.progress(job, step, seen.steps)


@dataclass
class _Seen:
    """What is known of a run under way."""

    steps: int
    size: int = 0  # bytes of its records that were read


class Onlooker:
    """A launcher that gets nothing done: it watches until others have. A signal ends the watching and nothing else."""

    def launch(self, jobs: Sequence[Job], watch: Watch) -> Outcome:
        """See ``Launcher``. A run that has failed is lost if nobody tries it again for a while."""
        follower = Follower(jobs, watch)
        lost_since = time.monotonic()
        with stopping_politely() as request:
            while True:
                follower.look()
                lost = {name: _failure(job) for name, job in follower.open.items()}
                if not all(lost.values()):
                    lost_since = time.monotonic()
                if not follower.open or request.number is not None:
                    return Outcome(signal=request.number)
                if time.monotonic() - lost_since > QUIET:
                    for name, reason in lost.items():
                        watch.failed(follower.open[name], reason, False)
                    return Outcome(lost)
                time.sleep(PATIENCE)


def _failure(job: Job) -> str:
    """Why nobody will go on with a run: a damaged result, or the last line of the traceback it left; else nothing."""
    files = RunFiles(job.folder)
    try:
        if files.result.exists():
            read_result(files.result, sealed=False)
        return files.failure.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1]
    except CheckpointError as error:
        return str(error)
    except (OSError, IndexError):
        return ""
