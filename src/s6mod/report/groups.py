"""Runs of one setting over its seeds, and what they gain over their base and its controls, paired by seed.

Precisions are never mixed. What is compared must share everything but branch and teacher.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from s6mod.branch.controls import CONTROLS
from s6mod.paper.estimate import Estimate, paired
from s6mod.paper.tables import Sides, sides
from s6mod.report.source import RunData
from s6mod.runs.completion import base_setting, departures, setting
from s6mod.runs.store import StoredRun


@dataclass(frozen=True)
class Group:
    """One setting in one precision, with its finished runs by seed; ``runs`` are those shown in full."""

    label: str
    colour: int
    finished: Mapping[int, StoredRun]
    runs: Sequence[RunData]  # empty: taken from the store, only to compare with

    @property
    def example(self) -> StoredRun:
        """One of its runs: all share the setting."""
        return self.runs[0].stored if self.runs else next(iter(self.finished.values()))

    @property
    def branch(self) -> str | None:
        """The name of its branch, or of its teacher, or of both."""
        return _plug_ins(self.example)

    @property
    def setting(self) -> tuple[str, int]:
        """Data set and memory size: groups that share them may share a chart."""
        return str(self.example.config["data"]["name"]), int(self.example.config["memory_size"])

    @property
    def family(self) -> tuple[str, str, str | None]:
        """What groups share that may be compared: everything but branch and teacher."""
        return _family(self.example)

    @property
    def world(self) -> tuple[str, str, str | None]:
        """What any two learners share that may be compared: everything but method and branch."""
        config = self.example.config
        return setting(config | {"method": None, "branch": None}), *self.family[1:]

    def values(self, metric: str, scores: str | None = None) -> dict[int, float]:
        """A metric of its finished runs by seed."""
        found = {seed: run.metric(metric, scores) for seed, run in sorted(self.finished.items())}
        return {seed: value for seed, value in found.items() if value is not None}

    def estimate(self, metric: str, scores: str | None = None) -> Estimate | None:
        """Its mean over seeds."""
        values = list(self.values(metric, scores).values())
        return Estimate.of(values) if values else None

    def gain(self, over: "Group", metric: str) -> Estimate | None:
        """How much more of a metric it has than another group, over the seeds of both."""
        return paired(self.values(metric), over.values(metric))

    def sides(self, over: "Group") -> Sides:
        """What the code of both sides of such a gain has in common."""
        return sides(self.finished, over.finished)

    def opponents(self, groups: Iterable["Group"]) -> list["Group"]:
        """Base and controls that its gains are measured from: a base has none, a control has the base."""
        if self.branch is None:
            return []
        wanted = (None,) if self.branch in CONTROLS else (None, *CONTROLS)
        return [each for each in groups if each.family == self.family and each.branch in wanted]


def group_runs(runs: Sequence[RunData], store: Iterable[StoredRun] = ()) -> list[Group]:
    """Runs by setting and precision, bases first; finished bases and controls of the ``store`` are put beside them."""
    shown: dict[tuple[str, str], list[RunData]] = {}
    for run in runs:
        shown.setdefault((run.stored.setting, run.stored.precision), []).append(run)
    finished = {
        key: {run.stored.seed: run.stored for run in group if run.stored.result is not None}
        for key, group in shown.items()
    }
    families = {_family(group[0].stored) for group in shown.values()}
    for stored in _called_alike(store, runs):
        key = (stored.setting, stored.precision)
        opponent = _plug_ins(stored) in (None, *CONTROLS)
        related = stored.result is not None and _family(stored) in families
        if key not in shown and opponent and related:
            finished.setdefault(key, {}).setdefault(stored.seed, stored)
    examples = {
        key: shown[key][0].stored if key in shown else next(iter(own.values())) for key, own in finished.items()
    }
    order = sorted(finished, key=lambda key: _place(examples[key]))
    labels = _labels([examples[key] for key in order])
    return [
        Group(label, colour, finished[key], sorted(shown.get(key, []), key=lambda run: run.stored.seed))
        for colour, (key, label) in enumerate(zip(order, labels, strict=True))
    ]


def panels(groups: Sequence[Group]) -> list[tuple[str, str, list[Group]]]:
    """Groups that share a chart, with what is added to its name and to its title where there are several."""
    shared: dict[tuple[str, int], list[Group]] = {}
    for group in groups:
        shared.setdefault(group.setting, []).append(group)
    if len(shared) == 1:
        return [("", "", list(groups))]
    return [
        (f"-{number}", f": {data}, M = {memory}", part)
        for number, ((data, memory), part) in enumerate(shared.items(), start=1)
    ]


def plain_config(run: StoredRun) -> dict[str, Any]:
    """The configuration that a run was begun with: without the mark that a store puts behind the name of own data."""
    data = run.config["data"]
    return run.config | {"data": data | {"name": data["name"].removesuffix(f"-{str(run.own_data)[:6]}")}}


def _called_alike(store: Iterable[StoredRun], runs: Sequence[RunData]) -> Iterator[StoredRun]:
    """Runs of the store, those on the contents of own data that are shown under the name that is shown."""
    names = {(run.stored.own_data, plain_config(run.stored)["data"]["name"]): run.stored.config["data"] for run in runs}
    for stored in store:
        data = stored.config["data"]
        shown = names.get((stored.own_data, plain_config(stored)["data"]["name"]), data)
        yield replace(stored, config=stored.config | {"data": data | {"name": shown["name"]}})


def _family(run: StoredRun) -> tuple[str, str, str | None]:
    return base_setting(run.config), run.precision, run.own_data


def _plug_ins(run: StoredRun) -> str | None:
    return "+".join(part["name"] for part in (run.config["branch"], run.config["teacher"]) if part) or None


def _place(run: StoredRun) -> tuple[str, int, str, str, int]:
    """Where it stands: what is compared stands together, the base first, then controls."""
    config, branch = run.config, _plug_ins(run)
    rank = 0 if branch is None else 1 if branch in CONTROLS else 2
    return config["data"]["name"], config["memory_size"], config["method"]["name"], run.precision, rank


def _labels(runs: Sequence[StoredRun]) -> list[str]:
    """The shortest names that tell the runs apart: the learner, then what else differs."""
    labels = []
    for run in runs:
        data, memory = run.config["data"]["name"], run.config["memory_size"]
        parts = [data] * (len({each.config["data"]["name"] for each in runs}) > 1)
        parts += [f"M = {memory}"] * (len({each.config["memory_size"] for each in runs}) > 1)
        parts += [run.precision] * (len({each.precision for each in runs}) > 1)
        others = [each for each in runs if each.cell == run.cell]
        changes = {change for each in others for change in departures(run.config, each.config)}
        parts += sorted(change.removeprefix("branch.") for change in changes)
        learner = run.cell.partition("/")[0]
        labels.append(f"{learner} ({', '.join(parts)})" if parts else learner)
    return labels
