"""What runs will cost: device hours and memory from measured step times, or from the images that a step takes."""

import functools
import os
from dataclasses import dataclass
from importlib import resources
from typing import Any

import yaml

from s6mod.branch.controls import CONTROLS
from s6mod.presets import CLASSES

WIDTH = 64  # of the networks that were timed
BYTES = 3 * 32 * 32  # of an image


@dataclass(frozen=True)
class Cost:
    """Of one run."""

    steps: int
    ms: float  # of a step on an H200, alone
    measured: bool  # else estimated
    memory_gib: float
    cpu_seconds: float  # on all cores that this process may use, together
    wants_gpu: bool

    @property
    def hours(self) -> float:
        """On an H200."""
        return self.steps * self.ms / 3.6e6


def cost(plain: dict[str, Any]) -> Cost | None:
    """The cost of a run by its complete configuration; None for a method or data set that nothing is known of."""
    table = _table()
    name = plain["method"]["name"]
    method, data = table["methods"].get(name), table["data"].get(plain["data"]["name"])
    if method is None or data is None:
        return None
    unit = table["estimated"]
    tasks = plain["stream"]["tasks"]
    tasks = tasks if isinstance(tasks, int) else len(tasks)
    steps = _steps(plain["stream"], data["images"], tasks)
    asked = tasks * plain["method"]["passes"] * plain["memory_size"] / steps if method.get("asked") else 0.0  # images
    images = data["size"] * (
        asked + (method["first"] + method["later"] * (tasks - 1)) / tasks
    )  # of a step, as if 32x32
    branch = plain["branch"]["name"] if plain["branch"] else None
    width = plain["method"].get("network", {}).get("width", WIDTH)
    passes = method["passes"] + asked / plain["method"]["memory_batch"]
    ms = unit["pass"] * passes + unit["image"] * images * (width / WIDTH) ** 2
    ms += unit["branch"] * method["networks"] * data["size"] if branch == "s6mod" else 0
    together = plain["method"]["memory_batch"] if asked else method["later"]
    memory = unit["memory_gib"] * data["size"] * together * width / WIDTH + _stored_gib(plain, method, data)
    learner = f"{name}+{branch}" if branch not in (None, *CONTROLS) else name  # a penalty costs next to nothing
    known = table["measured"] if data["size"] == 1 and width == WIDTH else {}
    own_view = _own_view(plain["branch"] or {})
    if shared := known.get(learner):
        ms, memory = shared["ms"], shared["memory_gib"]
    if own_view:
        more = data["size"] * method["networks"] * table["view"]  # images
        images += more
        ms += unit["image"] * more * (width / WIDTH) ** 2
        ms += unit["pass"] * method["networks"] * (not method.get("joint_views"))
        memory += unit["memory_gib"] * more * width / WIDTH
    if measured := known.get(f"{learner}{own_view}"):
        ms, memory = measured["ms"], measured["memory_gib"]
    if teacher := plain.get("teacher"):
        # The copy's passes, a third each, and one of the network un-augmented where its own pass does not hold that.
        answers, both = 1 + (teacher["answers"] == "both"), method.get("both_views", False)
        plain_pass = teacher["unaugmented"] and not both
        views, passes = answers / (6 if both else 3) + plain_pass, answers + plain_pass
        more = data["size"] * method["networks"] * method.get("view", table["view"]) * views
        images += more
        ms += unit["image"] * more * (width / WIDTH) ** 2 + unit["pass"] * passes * method["networks"]
        memory += unit["memory_gib"] * more * width / WIDTH
        if measured := known.get(f"{learner}+{teacher['name']}{own_view}"):
            ms, memory = measured["ms"], measured["memory_gib"]
    cpu_ms = images * max(unit["cpu_image_least"], unit["cpu_image"] * (width / WIDTH) ** 2) / cores()
    steps *= plain.get("updates", 1)
    return Cost(steps, ms, measured is not None, memory, steps * cpu_ms / 1000, data["gpu"])


def _stored_gib(plain: dict[str, Any], method: dict[str, Any], data: dict[str, Any]) -> float:
    """Of the replay memory: its images, and the logits of methods that store them."""
    logits = method.get("logits", 0) * (plain["num_classes"] or CLASSES[plain["data"]["name"]])
    return float(plain["memory_size"] * (data["size"] * BYTES + 4 * logits) / 2**30)


def _own_view(branch: dict[str, Any]) -> str:
    """What makes the branch see a fresh view, as in a cell; empty if nothing does."""
    if branch.get("variant") == "plus":
        return "/variant=plus"
    return "/view=fresh" if branch.get("view") == "fresh" else ""


def _steps(stream: dict[str, Any], images: int, tasks: int) -> int:
    per_task = min(images / tasks, stream.get("samples_per_task") or images)
    samples = min(per_task * tasks, stream.get("limit") or images)
    return max(1, round(samples / int(stream["batch_size"])))


def cores() -> int:
    """CPU cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def _table() -> dict[str, Any]:
    return dict(yaml.safe_load((resources.files(__package__) / "costs.yaml").read_text(encoding="utf-8")))
