"""Counts and times of a service, as Prometheus reads them."""

from bisect import bisect_left
from collections import Counter
from typing import Any

BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # seconds


class Counts:
    """What the application counts; it runs in one thread."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()  # by path and status
        self._times: dict[str, list[int]] = {}  # by path: requests in each bucket, the last for longer ones
        self._sums: Counter[str] = Counter()

    def count(self, path: str, status: int, seconds: float) -> None:
        """One request that was answered."""
        self.requests[path, status] += 1
        times = self._times.setdefault(path, [0] * (len(BUCKETS) + 1))
        times[bisect_left(BUCKETS, seconds)] += 1
        self._sums[path] += seconds  # type: ignore[assignment]

    def text(self, status: dict[str, Any]) -> str:
        """All of it, with what the service tells of itself."""
        lines = ["# HELP s6mod_requests_total Requests by path and status.", "# TYPE s6mod_requests_total counter"]
        for (path, code), number in sorted(self.requests.items()):
            lines.append(f's6mod_requests_total{{path="{path}",status="{code}"}} {number}')
        name = "s6mod_request_seconds"
        lines += [f"# HELP {name} Seconds from a request to its answer.", f"# TYPE {name} histogram"]
        for path, times in sorted(self._times.items()):
            below = 0
            for bound, number in zip((*BUCKETS, "+Inf"), times, strict=True):
                below += number
                lines.append(f'{name}_bucket{{path="{path}",le="{bound}"}} {below}')
            lines.append(f'{name}_sum{{path="{path}"}} {self._sums[path]:.6f}')
            lines.append(f'{name}_count{{path="{path}"}} {below}')
        for name, what, value in _gauges(status):
            if value is not None:
                kind = "counter" if name.endswith("_total") else "gauge"
                lines += [f"# HELP s6mod_{name} {what}", f"# TYPE s6mod_{name} {kind}", f"s6mod_{name} {value}"]
        return "\n".join(lines) + "\n"


def _gauges(status: dict[str, Any]) -> list[tuple[str, str, float | None]]:
    """Of each figure its name, what it is, and its value; None: there is none yet."""
    failed, trouble = (status[each] is not None for each in ("failure", "trouble"))
    windowed = "Percent of the latest images predicted right before learning."
    found = [
        ("up_seconds", "Seconds since the start.", status["seconds"]),
        ("predictions_total", "Images predicted.", status["predictions"]),
        ("batches", "Batches learned and not unlearned.", status["batches"]),
        ("classes", "Classes known.", status["classes"]),
        ("memory_images", "Images in the replay memory.", status["memory"]["held"]),
        ("accuracy_windowed", windowed, status["accuracy"]["windowed"]),
        ("published_age_seconds", "Seconds since a copy that predicts was made.", status["published"]["seconds_ago"]),
        ("failed", "1 if it learns no more.", int(failed)),
        ("checkpoint_failed", "1 if the latest checkpoint was not written or read, or the journal not.", int(trouble)),
    ]
    if (journal := status.get("journal")) is not None:
        since = journal["learned"] - journal["checkpoint"]
        found += [
            ("accepted_rows_total", "Rows accepted into the journal.", journal["accepted"]),
            ("waiting_batches", "Batches accepted and not learned yet.", journal["waiting"]),
            ("unlearned_batches", "Batches that rollbacks have undone.", journal["unlearned"]),
            ("rows_since_checkpoint", "Rows that a restart would apply again.", since),
            ("journal_bytes", "Bytes of the journal.", journal["bytes"]),
            ("step_seconds", "Seconds for one batch, of late.", status["step_seconds"]),
        ]
    return found
