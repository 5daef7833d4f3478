"""What a service shows of its learner as it was at one moment, so that whoever looks waits for no step."""

import base64
import io
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from s6mod.learner.classes import Name
from s6mod.learner.prequential import Accuracy
from s6mod.learner.published import Published
from s6mod.serve.state import State

PER_CLASS = 6  # images of the memory
MOST_CLASSES = 60  # whose images are shown
NEVER = Accuracy(0, *[float("nan")] * 3)  # of a class that was never tested


@dataclass(frozen=True)
class Shown:
    """A copy that predicts, with figures of the same moment."""

    published: Published | None  # None: nothing was learned yet
    number: int  # of the journal
    batches: int
    status: dict[str, Any]  # what is told of it first
    curve: list[tuple[int, float]]
    classes: list[dict[str, Any]] = field(default_factory=list)
    samples: list[tuple[Name, NDArray[np.uint8]]] = field(default_factory=list)  # label and image (3, H, W)
    routing: dict[str, Any] | None = None  # of S6MOD
    time: float = field(default_factory=time.time)


def shown(state: State) -> Shown:
    """By the thread that learns, between two batches; makes the copy that predicts."""
    learner, account, config = state.learner, state.account, state.learner.config
    tested = account.tally.told(learner.classes)
    status: dict[str, Any] = {
        "learner": " + ".join(part.name for part in (config.method, config.branch, config.teacher) if part is not None),
        "classes": 0,
        "accuracy": {
            "tested": tested.images,
            "overall": _rounded(tested.accuracy),
            "windowed": _rounded(tested.windowed),
            "decayed": _rounded(tested.decayed),
        },
        "memory": {"held": 0, "room": config.memory_size},
    }
    if learner.steps == 0:
        return Shown(None, state.number, 0, status, [])
    memory, names = learner.memory, learner.classes.columns
    labels = {number: names[number] for number in learner.task.seen}  # of the classes that came
    held = memory.labels[: len(memory)]
    classes: list[dict[str, Any]] = []
    samples: list[tuple[Name, NDArray[np.uint8]]] = []
    for number, label in labels.items():
        rows, own = (held == number).nonzero().flatten(), tested.by_class.get(label, NEVER)
        about = {"label": label, "images": account.images[label], "memory": len(rows)}
        classes.append(about | {"accuracy": _rounded(own.accuracy), "lately": _rounded(own.windowed)})
        if len(classes) > len(labels) - MOST_CLASSES:
            images = memory.images[rows[:PER_CLASS].to(memory.device)].cpu()
            samples += [(label, image.numpy()) for image in images]
    status |= {"classes": len(classes), "memory": {"held": len(memory), "room": memory.size}}
    routing = _routing(learner.figures(), labels)
    curve = list(account.curve)
    return Shown(learner.publish(), state.number, learner.steps, status, curve, classes, samples, routing)


def picture(image: NDArray[np.uint8]) -> str:
    """An image (3, H, W) as the address that a page shows it by."""
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _routing(figures: dict[str, Tensor], labels: dict[int, Name]) -> dict[str, Any] | None:
    """Patterns of each class, and the share of each pattern, of the first network that has a branch with some."""
    prefix = next((name.removesuffix("patterns") for name in figures if name in ("patterns", "net1/patterns")), None)
    if prefix is None:
        return None
    patterns, load = figures[prefix + "patterns"], figures[prefix + "pattern_load"]
    by_class = [{"label": label, "patterns": int(patterns[number])} for number, label in labels.items()]
    return {"classes": by_class, "load": [round(share, 4) for share in load.float().flatten().tolist()]}


def _rounded(percent: float) -> float | None:
    return None if percent != percent else round(percent, 2)
