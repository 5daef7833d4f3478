"""Counts and times of a service, as Prometheus reads them."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping

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

    def text(self, gauges: Mapping[str, tuple[str, float | int | None]]) -> str:
        """All of it; ``gauges`` by name: what it is, and its value, None where there is none."""
        lines = ["# HELP s6mod_requests_total Requests by path and status.", "# TYPE s6mod_requests_total counter"]
        for (path, status), number in sorted(self.requests.items()):
            lines.append(f's6mod_requests_total{{path="{path}",status="{status}"}} {number}')
        name = "s6mod_request_seconds"
        lines += [f"# HELP {name} Seconds from a request to its answer.", f"# TYPE {name} histogram"]
        for path, times in sorted(self._times.items()):
            below = 0
            for bound, number in zip((*BUCKETS, "+Inf"), times, strict=True):
                below += number
                lines.append(f'{name}_bucket{{path="{path}",le="{bound}"}} {below}')
            lines.append(f'{name}_sum{{path="{path}"}} {self._sums[path]:.6f}')
            lines.append(f'{name}_count{{path="{path}"}} {below}')
        for name, (what, value) in gauges.items():
            if value is not None:
                kind = "counter" if name.endswith("_total") else "gauge"
                lines += [f"# HELP s6mod_{name} {what}", f"# TYPE s6mod_{name} {kind}", f"s6mod_{name} {value}"]
        return "\n".join(lines) + "\n"
