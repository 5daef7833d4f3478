"""What the features look like at the end of training: t-SNE of the memory, with numbers that check what the eye sees.

All runs show the same samples in the same colours. Samples in memory were trained on, so how compact they are says
little about others: the numbers on test images stand beside.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score
from torch import Tensor

from s6mod.analysis.draw import COLOURS, MARKS, Canvas, canvas, legend_below
from s6mod.analysis.opened import Opened, open_run, task_accuracy
from s6mod.analysis.question import slug
from s6mod.analysis.study import Drawing, PlainTable, Study, csv_text
from s6mod.data.streams import StreamConfig
from s6mod.decimals import decimal, ranges, spread
from s6mod.errors import ConfigError
from s6mod.metrics import ncm_scores, nearest_centroid
from s6mod.paper.estimate import Estimate
from s6mod.report.svg import short
from s6mod.runs.completion import setting

Array = npt.NDArray[np.float64]
FEW = 10  # classes that have a colour and a mark of their own, and a legend
MOST_LETTERS = 50  # of a name there: as wide as the figure


@dataclass(frozen=True)
class Geometry:
    """How features (N, F) of labelled samples lie; distances are Euclidean, in the features' own unit."""

    silhouette: float  # -1 ... 1: how much nearer a sample is to its own class than to the nearest other
    within: float  # mean distance of a sample from the mean of its class
    between: float  # mean distance between the means of two classes

    @classmethod
    def of(cls, features: Tensor, labels: Tensor) -> "Geometry":
        """Of at least two classes."""
        features = features.double()
        classes, places = labels.unique(return_inverse=True)
        means = torch.stack([features[places == place].mean(0) for place in range(len(classes))])
        within = (features - means[places]).norm(dim=1).mean().item()
        between = torch.pdist(means).mean().item()
        return cls(float(silhouette_score(features.numpy(), labels.numpy())), within, between)

    @property
    def ratio(self) -> float:
        """Within by between: a number without a unit, lower where classes are more compact."""
        return self.within / self.between


@dataclass(frozen=True)
class Spaces:
    """Features of the same images in one run: of the backbone, and of the branch if it has some."""

    backbone: Tensor  # (N, F)
    branch: Tensor | None  # (N, d)


def study_features(folders: Sequence[Path], device: str = "auto", data_root: str | None = None) -> Study:
    """t-SNE of the first seed that all learners have; the table has all runs. Methods come before what joins them."""
    runs = [_Summary.of(open_run(folder, device, data_root)) for folder in folders]
    runs.sort(key=lambda run: "+" in run.label)
    _check(runs)
    seed = _common_seed(runs)
    shown = [run for run in runs if run.seed == seed]
    rows = _common([run.images for run in shown])
    labels = shown[0].labels[rows[0]]
    drawing = _pictures(shown, rows, labels)
    text = (
        "t-SNE of the backbone's features of the replay memory at the end of training: the same "
        f"{len(labels)} samples and the same colours in each panel, one colour and mark for each class in the order of "
        "the stream. Silhouette (-1 to 1, higher is better) and within/between (mean distance to the class mean by "
        "mean distance of class means, lower is better) are computed on the features, not on the picture. "
        "NCM Acc: nearest class mean on test images, means from the memory."
    )
    place = runs[0].place
    name = slug("features", "-".join(dict.fromkeys(run.label for run in runs)), place)
    title = f"Features at the end of training, {place.replace('/', ', M = ')}"
    return Study(name, title, text, [drawing], [_table(runs)])


def _check(runs: Sequence["_Summary"]) -> None:
    """All runs are of one stream. Those of one name are averaged: they differ in their seeds and in nothing else."""
    for run in runs:
        if (run.place, run.stream) != (runs[0].place, runs[0].stream):
            raise ConfigError(
                f"expected runs of one data set, memory size and stream, got {run.cell} beside {runs[0].cell} "
                "or other fields of the stream; leave some of them out"
            )
    for label in {run.label for run in runs}:
        group = [run for run in runs if run.label == label]
        if len({run.setting for run in group}) > 1 or len({run.seed for run in group}) < len(group):
            raise ConfigError(
                f"expected runs of {label} that differ in their seeds alone, got others; leave some of them out"
            )


def _common_seed(runs: Sequence["_Summary"]) -> int:
    labels = {run.label for run in runs}
    for seed in dict.fromkeys(run.seed for run in runs):
        if {run.label for run in runs if run.seed == seed} == labels:
            return seed
    raise ConfigError("expected a seed that all learners were run with, got none; add its runs or leave learners out")


@dataclass(frozen=True)
class _Summary:
    """What is kept of a run once its networks are let go."""

    label: str
    cell: str
    stream: StreamConfig
    setting: str
    seed: int
    images: Tensor  # of the memory
    labels: Tensor
    class_order: tuple[int, ...]
    class_names: tuple[str, ...]
    memory: Spaces
    numbers: dict[str, float]

    @property
    def place(self) -> str:
        """Data set and memory size."""
        return self.cell.split("/", 1)[1]

    @classmethod
    def of(cls, run: Opened) -> "_Summary":
        images, labels = run.memory()
        if not 1 < len(labels.unique()) < len(labels):
            raise ConfigError(
                f"expected a memory with several classes and two samples of one, got {len(labels)} samples of "
                f"{len(labels.unique())} in {run.folder}; choose a run with a larger memory"
            )
        memory = spaces(run, images)
        test, of = spaces(run, run.dataset.test_images), run.dataset.test_labels
        came = torch.isin(of, torch.tensor(run.plan.class_order))  # of classes that never do, nothing was learned
        geometry, unseen = Geometry.of(memory.backbone, labels), Geometry.of(test.backbone[came], of[came])
        numbers = {
            "silhouette": geometry.silhouette,
            "within": geometry.within,
            "between": geometry.between,
            "within/between": geometry.ratio,
            "silhouette, test": unseen.silhouette,
            "within/between, test": unseen.ratio,
            "NCM Acc (%)": ncm_accuracy(run, memory.backbone, test.backbone),
        }
        if memory.branch is not None and test.branch is not None:
            numbers["NCM Acc, branch (%)"] = ncm_accuracy(run, memory.branch, test.branch)
        return cls(
            run.label,
            run.config.cell,
            run.config.stream,
            setting(run.config.plain()),
            run.config.seed,
            images.cpu(),
            labels,
            run.plan.class_order,
            run.dataset.class_names,
            memory,
            numbers,
        )


def spaces(run: Opened, images: Tensor) -> Spaces:
    """Features of images in eval mode; those of two peers are averaged, as predictions by the nearest mean do."""
    chunks: list[list[Tensor]] = []
    predictor = run.learner.predictor()
    for outputs in predictor.outputs(images):
        parts = [torch.stack([_deepest(out.features).float() for out in outputs]).mean(0)]
        own = [
            peer.branch.features(out.feature_map)
            for peer, out in zip(predictor.peers, outputs, strict=True)
            if peer.branch is not None
        ]
        known = [features.float() for features in own if features is not None]
        chunks.append([part.cpu() for part in (*parts, *([torch.stack(known).mean(0)] if known else []))])
    found = [torch.cat(parts) for parts in zip(*chunks, strict=True)]
    return Spaces(found[0], found[1] if len(found) > 1 else None)


def _deepest(features: Tensor) -> Tensor:
    """(B, F); of several experts (B, E, F) the last, whose map the branch sees."""
    return features[:, -1] if features.dim() == 3 else features


def ncm_accuracy(run: Opened, memory: Tensor, test: Tensor) -> float:
    """Acc in percent on the test images, by the nearest class mean of the memory, in any feature space."""
    _, labels = run.memory()
    means, present = nearest_centroid(memory, labels, run.dataset.num_classes)
    return task_accuracy(ncm_scores(test, means, present).argmax(1), run.dataset.test_labels, run.plan)


def _common(memories: Sequence[Tensor]) -> list[Tensor]:
    """Rows of the images that all memories hold, in the order of the first one's."""
    keys = [{image.numpy().tobytes(): row for row, image in enumerate(images)} for images in memories]
    shared = [key for key in keys[0] if all(key in other for other in keys)]
    if len(shared) < 10:
        raise ConfigError(
            f"expected runs whose memories share samples, 10 at least, got {len(shared)} in common; give runs of one "
            "data set, seed and memory size, a larger one if need be"
        )
    return [torch.tensor([rows[key] for key in shared]) for rows in keys]


def _pictures(runs: Sequence[_Summary], rows: Sequence[Tensor], labels: Tensor) -> Drawing:
    order = {label: place for place, label in enumerate(runs[0].class_order)}
    places = np.array([order[label] for label in labels.tolist()])
    names = [runs[0].class_names[label] for label in order]
    data: list[list[Any]] = []
    columns = min(len(runs), 2)
    lines = -(-len(runs) // columns)
    with canvas(lines, columns, 0.4 + 2.9 * lines) as panel:
        for axis, run, chosen in zip(panel.axes.flat, runs, rows, strict=False):
            points = _tsne(run.memory.backbone[chosen])
            _scatter(axis, points, places, names)
            data += [[run.label, names[k], *point] for k, point in zip(places, points.tolist(), strict=True)]
            axis.set(title=run.label, xticks=[], yticks=[], xlabel=_under(run.numbers))
            axis.spines[:].set_visible(False)
        for axis in panel.axes.flat[len(runs) :]:
            axis.set_visible(False)
        if len(names) <= FEW:
            legend_below(panel, 5)
        else:
            _key(panel, len(names))
        title = f"t-SNE of the memory's features, seed {runs[0].seed}"
        panel.figure.suptitle(f"{title} (no unit)", fontsize=9)
        alt = f"{title}. " + "; ".join(f"{run.label}: {_under(run.numbers)}".replace("\n", ", ") for run in runs)
        return panel.done("tsne", title, alt, csv_text(("learner", "class", "x", "y"), data))


def _tsne(features: Tensor) -> Array:
    perplexity = min(30.0, (len(features) - 1) / 3)
    found: Array = TSNE(2, perplexity=perplexity, init="pca", random_state=0).fit_transform(features.numpy())
    return found


def _scatter(axis: Any, points: Array, places: npt.NDArray[np.int64], names: Sequence[str]) -> None:
    """Few classes: Okabe and Ito's colours. Many: from dark (first in the stream) to light (last). Marks go round."""
    from matplotlib import colormaps

    few = len(names) <= FEW
    for place, name in enumerate(names):
        here = points[places == place]
        colour = COLOURS[place % len(COLOURS)] if few else colormaps["viridis"](place / (len(names) - 1))
        style = {"marker": MARKS[place % len(MARKS)], "s": 9 if few else 5, "linewidths": 0, "alpha": 0.85}
        label = f" {short(name, MOST_LETTERS)}"  # without the space a legend leaves out what begins with _
        axis.scatter(*here.T, color=colour, label=label, rasterized=True, **style)


def _key(panel: Canvas, classes: int) -> None:
    """What the colours mean where there are too many for a legend."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    colours = ScalarMappable(Normalize(1, classes), "viridis")
    place = {"location": "bottom", "shrink": 0.6, "aspect": 40}
    panel.figure.colorbar(colours, ax=panel.axes, label="class, in stream order", **place)


def _under(numbers: dict[str, float]) -> str:
    """The numbers under a picture, in short lines: another picture is beside it."""
    text = f"silhouette {decimal(numbers['silhouette'])}\nwithin/between {numbers['within/between']:.2f}\n"
    text += f"NCM Acc {numbers['NCM Acc (%)']:.1f} %"
    own = numbers.get("NCM Acc, branch (%)")
    return text if own is None else f"{text}\nNCM Acc, branch {own:.1f} %"


def _table(runs: Sequence[_Summary]) -> PlainTable:
    """Means over the seeds of each learner."""
    groups: dict[str, list[_Summary]] = defaultdict(list)
    for run in runs:
        groups[run.label].append(run)
    columns = list(dict.fromkeys(column for run in runs for column in run.numbers))
    rows = []
    for label, group in groups.items():
        texts = []
        for column in columns:
            values = [run.numbers[column] for run in group if column in run.numbers]
            found = Estimate.of(values) if values else None
            texts.append(spread(found.mean, found.std) if found else "")
        rows.append([label, ranges(run.seed for run in group), *texts])
    return PlainTable(
        "Compactness and nearest class mean (mean ± std over seeds)", ("learner", "seeds", *columns), rows
    )
