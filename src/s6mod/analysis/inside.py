"""Inside the branch of one run: routing over time from its records; Delta, prototypes, entropies and gradients from its
checkpoint. Of a pair of networks, the first is looked at.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from s6mod.analysis.draw import COLOURS, DASHES, GREY, MARKS, MOST_MARKS, canvas, name_ticks
from s6mod.analysis.opened import Opened, open_run
from s6mod.analysis.question import slug
from s6mod.analysis.study import Drawing, PlainTable, Study, csv_text
from s6mod.branch import S6MOD
from s6mod.decimals import decimal, difference
from s6mod.engine.step import Inputs, Step
from s6mod.errors import ConfigError
from s6mod.methods import Batch
from s6mod.methods.base import Task

Array = npt.NDArray[np.float64]
UNKNOWN = "#DDDDDD"  # not white, which is a number
BATCHES = 8  # over which gradients are averaged
FIRST = "net1/"  # before the names of the first network of a pair


def study_inside(folder: Path, device: str = "auto", data_root: str | None = None) -> Study:
    """All figures of the branch of one finished run."""
    run = open_run(folder, device, data_root)
    branch = _branch(run)
    records = run.records()
    drawings = [*_over_time(run, branch, records), between_classes(run, branch)]
    entropy, terms = _entropies(run, branch), gradients(run)  # the gradients last: their passes move prototypes
    drawings.append(_losses(run, entropy, terms))
    columns = ("term", "mean weighted value", "gradient length", "share (%)", "cosine with the method's own")
    rows = [
        [term.name, f"{term.value:.4f}", f"{term.length:.4f}", f"{100 * term.share:.1f}", difference(term.cosine)]
        for term in terms
    ]
    title = f"Inside the branch: {run.config.cell}, seed {run.config.seed}"
    text = (
        "Classes stand in the order of the stream. sigma_k and N_k: uncertainty and number of active patterns of each "
        "class, at the steps that were recorded. Load: mean gate weight of each pattern in one batch. Similarity of "
        "Delta: mean cosine between samples of two classes in memory, grey where it has no two. Prototype distance: "
        "between class prototypes. "
        "Entropy of P (base head) and Q (branch) on test images. Gradient share: length of each weighted term's "
        f"gradient on the backbone, by the sum of all lengths, mean over {BATCHES} batches from memory."
    )
    text += " Of the pair of networks, this is the first." if len(run.learner.peers) > 1 else ""
    text += "".join(f" Warning of the run: {record['text']}." for record in records if record["kind"] == "warning")
    name = slug("inside", folder.resolve().name)
    return Study(name, title, text, drawings, [PlainTable("Pull of each loss term on the backbone", columns, rows)])


def _branch(run: Opened) -> S6MOD:
    branch = run.learner.predictor().peers[0].branch  # the one that predicts
    if not isinstance(branch, S6MOD):
        raise ConfigError(f"expected a run with S6MOD, got {run.config.cell} in {run.folder}; choose another")
    return branch


# --- from the records -----------------------------------------------------------------------------------------


def _over_time(run: Opened, branch: S6MOD, records: Sequence[dict[str, Any]]) -> list[Drawing]:
    """sigma_k and N_k of each class, load of each pattern and distance of prototypes, over the steps recorded."""
    prefix = FIRST if len(run.learner.peers) > 1 else ""
    steps, series = [], defaultdict(list)
    for record in records:
        if record["kind"] == "step" and f"{prefix}sigma" in record["figures"]:
            steps.append(record["step"])
            for name in ("sigma", "patterns", "seen", "pattern_load", "prototype_distance", "mean_patterns"):
                series[name].append(record["figures"][prefix + name])
    if not steps:
        raise ConfigError(f"expected records of the branch in {run.folder}, got none; run it again")
    order = list(run.plan.class_order)
    seen = np.array(series["seen"], dtype=bool)[:, order].T  # (classes, records)
    sigma, count = (np.where(seen, np.array(series[n], float)[:, order].T, np.nan) for n in ("sigma", "patterns"))
    E = branch.config.num_patterns
    load = np.array(series["pattern_load"], float).T  # (E, records)
    return [_routing(run, steps, sigma, count, E), _load(steps, load, series)]


def _routing(run: Opened, steps: Sequence[int], sigma: Array, count: Array, E: int) -> Drawing:
    with canvas(1, 2, 2.7, sharey=True) as panel:
        for axis, values, label, top in zip(
            panel.axes[0], (sigma, count), ("uncertainty sigma_k", f"active patterns N_k of {E}"), (1, E), strict=True
        ):
            image = _grid(axis, steps, values, 0 if top == 1 else 1, top)
            axis.set(xlabel="step")
            panel.figure.colorbar(image, ax=axis, label=label, location="top")
        panel.axes[0, 0].set_ylabel("class, in stream order")
        names = [run.dataset.class_names[c] for c in run.plan.class_order]
        name_ticks(panel.axes[0, 0].yaxis, names)
        title = "Uncertainty and number of patterns of each class over time"
        latest = count[:, -1][~np.isnan(count[:, -1])]
        alt = f"{title}. At the end N_k is {latest.min():.0f} to {latest.max():.0f} of {E}, mean {latest.mean():.2f}."
        rows = [
            [step, names[k], _number(sigma[k, t]), _number(count[k, t])]
            for t, step in enumerate(steps)
            for k in range(len(names))
            if not np.isnan(count[k, t])  # seen by then
        ]
        return panel.done("routing", title, alt, csv_text(("step", "class", "sigma", "N_k"), rows))


def _load(steps: Sequence[int], load: Array, series: dict[str, list[Any]]) -> Drawing:
    with canvas(1, 2, 2.5) as panel:
        left, right = panel.axes[0]
        image = _grid(left, steps, load, 0, max(float(load.max()), 1e-9))
        left.set(xlabel="step", ylabel="pattern")
        left.set_yticks(range(len(load)), [str(i + 1) for i in range(len(load))])
        panel.figure.colorbar(image, ax=left, label="load (mean gate weight)", location="top")
        right.plot(steps, series["prototype_distance"], color=COLOURS[0], markersize=3, marker=_mark(0, len(steps)))
        right.set(xlabel="step", ylabel="mean prototype distance")
        right.set_ylim(0, 1.08 * max(series["prototype_distance"]) or 1)
        title = "Load of each pattern, and mean distance between prototypes, over time"
        last = ", ".join(f"{value:.2f}" for value in load[:, -1])
        alt = f"{title}. Load at the end: {last}. Distance at the end: {series['prototype_distance'][-1]:.2f}."
        columns = ("step", "prototype_distance", "mean_patterns", *(f"load_{i + 1}" for i in range(len(load))))
        rows = zip(steps, series["prototype_distance"], series["mean_patterns"], *load.tolist(), strict=True)
        return panel.done("load", title, alt, csv_text(columns, rows))


# --- from the checkpoint --------------------------------------------------------------------------------------


def delta_similarity(delta: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """(C, C): mean cos(Delta_m, Delta_n) over pairs of different samples m of class i, n of class j; NaN if none."""
    unit = F.normalize(delta.flatten(1).double(), dim=1)
    members = F.one_hot(labels, num_classes).double()  # (N, C)
    sums, counts = members.T @ unit, members.sum(0)
    total = sums @ sums.T - torch.diag((members.T @ unit.square().sum(1, keepdim=True)).flatten())
    pairs = counts[:, None] * counts - torch.diag(counts)
    return torch.where(pairs > 0, total / pairs.clamp_min(1), torch.nan)


def between_classes(run: Opened, branch: S6MOD) -> Drawing:
    """Similarity of Delta in memory, and distance of prototypes."""
    images, labels = run.memory()
    maps = [outputs[0].feature_map for outputs in run.learner.predictor().outputs(images)]
    delta = torch.cat([branch.look(part)[1].cpu() for part in maps])
    order = list(run.plan.class_order)
    similarity = delta_similarity(delta, labels, run.dataset.num_classes)[order][:, order].numpy()
    prototypes, seen = branch.routing.prototypes.cpu().double()[order], branch.routing.seen.cpu()[order]
    distance = torch.cdist(prototypes, prototypes)
    distance[~seen], distance[:, ~seen] = torch.nan, torch.nan
    names = [run.dataset.class_names[c] for c in order]
    with canvas(1, 2, 3.0, sharey=True) as panel:
        for axis, values, label, low, high, colours in (
            (panel.axes[0, 0], similarity, "similarity of Delta (cosine)", -1, 1, "PuOr"),
            (panel.axes[0, 1], distance.numpy(), "distance of prototypes", 0, None, "cividis"),
        ):
            image = axis.imshow(values, vmin=low, vmax=high, cmap=colours)
            axis.set_facecolor(UNKNOWN)
            panel.figure.colorbar(image, ax=axis, label=label, location="top", shrink=0.9)
            axis.set_xlabel("class, in stream order")
            name_ticks(axis.xaxis, names, rotation=90)
        panel.axes[0, 0].set_ylabel("class, in stream order")
        name_ticks(panel.axes[0, 0].yaxis, names)
        title = "Similarity of Delta and distance of prototypes between classes"
        own = np.eye(len(names), dtype=bool)
        same, other = _mean(similarity[own]), _mean(similarity[~own])
        alt = f"{title}. Mean cosine of Delta within a class {same}, between two {other}."
        rows = [
            [a, names[j], _number(similarity[i, j]), _number(float(distance[i, j]))]
            for i, a in enumerate(names)
            for j in range(i, len(names))  # both are symmetric
        ]
        return panel.done("classes", title, alt, csv_text(("class", "other", "delta_cosine", "distance"), rows))


def _entropies(run: Opened, branch: S6MOD) -> dict[str, Array]:
    """Mean entropy in nats of P and Q on the test images of each class, in stream order."""
    parts: dict[str, list[Tensor]] = {"P": [], "Q": []}
    for outputs in run.learner.predictor().outputs(run.dataset.test_images):
        for name, logits in (("P", outputs[0].logits), ("Q", branch.scores(outputs[0].feature_map))):
            log = F.log_softmax(logits.float(), dim=1)
            parts[name].append(-(log.exp() * log).sum(1).cpu())
    labels = run.dataset.test_labels
    return {
        name: np.array([torch.cat(values)[labels == c].mean().item() for c in run.plan.class_order])
        for name, values in parts.items()
    }


@dataclass(frozen=True)
class Pull:
    """How strongly a loss term pulls on the backbone."""

    name: str
    value: float  # of the weighted term
    length: float  # of its gradient
    share: float  # of the sum of all lengths
    cosine: float  # with the gradient of the method's own terms


def gradients(run: Opened, batches: int = BATCHES) -> list[Pull]:
    """The pull of each term, mean over batches as in the last task: samples of it from memory stand for the stream."""
    learner = run.learner
    step = Step(
        learner.method, learner.peers, learner.optimizer, learner.memory, learner.generators, learner.engine,
        learner.ledger,
    )  # fmt: skip
    memory, random = learner.memory, torch.Generator().manual_seed(0)
    last = int(memory.tasks.max())
    rows = (memory.tasks == last).nonzero().flatten()
    present = set(memory.labels[rows].tolist())
    task = Task(last, 1, learner.task.seen, [c for c in learner.task.seen if c in present])
    sums: dict[str, Tensor] = defaultdict(lambda: torch.zeros(4, dtype=torch.float64))
    for _ in range(batches):
        chosen = memory.sample(run.config.stream.batch_size, random, among=rows)
        images, labels = memory.gather(chosen.to(memory.device))
        plan = learner.method.plan(labels.cpu(), memory, task, learner.host_generator)
        assert plan is not None  # the memory is not empty
        inputs = Inputs(Batch(images, labels), plan, slots=torch.full((len(labels),), memory.size))
        with learner.engine.autocast():
            terms, losses = step.losses(inputs.to(learner.engine.device))
        parameters = [p for p in learner.peers[0].network.parameters() if p.requires_grad]
        reached = torch.autograd.grad(
            losses[0].tap.feature_map.float().sum(), parameters, retain_graph=True, allow_unused=True
        )
        backbone = [p for p, gradient in zip(parameters, reached, strict=True) if gradient is not None]
        for name, numbers in _pulls(terms, backbone).items():
            sums[name] += numbers
    return [Pull(name, *(total / batches).tolist()) for name, total in sums.items()]


def _pulls(terms: dict[str, Tensor], backbone: list[torch.nn.Parameter]) -> dict[str, Tensor]:
    """Value, gradient length, share and cosine of each term that reaches the backbone."""
    found: dict[str, Tensor] = {}
    for name, term in terms.items():
        parts = torch.autograd.grad(term, backbone, retain_graph=True, allow_unused=True)
        if any(part is not None for part in parts):
            whole = [torch.zeros_like(p) if part is None else part for p, part in zip(backbone, parts, strict=True)]
            found[name] = torch.cat([part.flatten() for part in whole]).double()
    own = torch.stack([gradient for name, gradient in found.items() if "branch/" not in name]).sum(0)
    total = torch.stack([gradient.norm() for gradient in found.values()]).sum()
    return {
        name: torch.stack([
            terms[name].detach().double(), gradient.norm(), gradient.norm() / total,
            F.cosine_similarity(gradient, own, dim=0),
        ]).cpu()
        for name, gradient in found.items()
    }  # fmt: skip


def _losses(run: Opened, entropy: dict[str, Array], terms: Sequence[Pull]) -> Drawing:
    uniform = np.log(run.learner.classes.capacity)
    with canvas(1, 2, 2.5) as panel:
        left, right = panel.axes[0]
        left.axhline(uniform, color=GREY, linewidth=1, linestyle=DASHES[2], label="uniform")
        for place, (name, values) in enumerate(entropy.items()):
            style = {"color": COLOURS[place], "marker": _mark(place, len(values)), "linestyle": DASHES[place]}
            left.plot(range(1, len(values) + 1), values, markersize=3, label=name, **style)
        left.set(xlabel="class, in stream order", ylabel="entropy (nats)", ylim=(0, 1.05 * uniform))
        left.xaxis.get_major_locator().set_params(integer=True)
        left.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.2), columnspacing=1)
        right.barh(range(len(terms)), [100 * term.share for term in terms], color=COLOURS[0])
        right.set_yticks(range(len(terms)), [term.name.removeprefix(FIRST).removeprefix("branch/") for term in terms])
        right.invert_yaxis()
        right.set_xlabel("share in the gradient of\nthe backbone (%)")
        title = "Entropy of P and Q, and each loss term's share in the gradient of the backbone"
        alt = (
            f"{title}. Mean entropy of P {entropy['P'].mean():.2f}, of Q {entropy['Q'].mean():.2f} of at most "
            f"{uniform:.2f} nats; shares: " + ", ".join(f"{term.name} {100 * term.share:.0f} %" for term in terms)
        )
        names = [run.dataset.class_names[c] for c in run.plan.class_order]
        rows: list[list[Any]] = [
            [f"entropy of {name}", k, value]
            for name, values in entropy.items()
            for k, value in zip(names, values, strict=True)
        ]
        rows += [["gradient share", term.name, term.share] for term in terms]
        return panel.done("losses", title, alt, csv_text(("figure", "of", "value"), rows))


# --- drawing --------------------------------------------------------------------------------------------------


def _grid(axis: Any, steps: Sequence[int], values: Array, low: float, high: float) -> Any:
    """Rows over the steps at which they were recorded: each holds from the record before to its own."""
    edges = [0, *steps]
    heights = np.arange(len(values) + 1) - 0.5
    mesh = axis.pcolormesh(
        edges, heights, np.ma.masked_invalid(values), vmin=low, vmax=high, cmap="cividis", rasterized=True
    )
    axis.set_ylim(len(values) - 0.5, -0.5)
    return mesh


def _mark(place: int, points: int) -> str:
    return MARKS[place] if points <= MOST_MARKS else ""


def _mean(values: Array) -> str:
    """In words: of what is known."""
    known = values[~np.isnan(values)]
    return decimal(known.mean()) if known.size else "unknown"


def _number(value: float) -> str:
    """For CSV, at six digits: of 200 classes there are many; nothing where there is none."""
    return "" if np.isnan(value) else f"{value:.6g}"
