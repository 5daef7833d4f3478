"""What a newcomer's settings are worth: python benchmarks/defaults.py STREAM SEEDS [KEY=VALUE ...]

Trains on one pass over a short stream of digits, letters, photographs (CIFAR-10, from ``$S6MOD_DATA``) or shapes and
prints accuracy by everything that could predict, as one line of JSON a seed. Images are training images, of which some
are held out: settings are chosen by those, on seeds from 100 on. ``test`` before the stream (test/digits) takes test
images instead. KEY=VALUE are fields of the learner, such as updates=3; ``preset=everyday`` starts from a preset.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

from s6mod import Learner
from s6mod.config import assign, merge

BATCH = 10
START = {"method": {"name": "er", "network": {"width": 8}}, "average": 0.99, "predict_among": "seen"}


def digits(rng, test):
    """The 8x8 images of scikit-learn: 20 of a class are held out."""
    from s6mod.data.digits import load_digits

    data = load_digits(8)
    x, y = data.train_images.numpy(), data.train_labels.numpy()
    return (x, y, data.test_images.numpy(), data.test_labels.numpy()) if test else split(x, y, 20, rng)


def letters(rng, test):
    """Capital letters, 16x16, in the fonts that matplotlib brings, a little turned, larger or smaller, and noisy.

    40 of a letter are learned, 20 are held out. Test letters are drawn by another seed.
    """
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    names = sorted(
        path for kind in ("DejaVuS*", "STIXGeneral*", "cm[brst][1st0]*") for path in folder.glob(f"{kind}.ttf")
    )
    drawn = np.random.default_rng([20, *rng.integers(0, 2**31, 1), int(test)])

    def image(letter):
        font = ImageFont.truetype(str(names[drawn.integers(len(names))]), int(drawn.integers(40, 52)))
        canvas = Image.new("L", (64, 64))
        place = tuple(32 + drawn.integers(-4, 5, 2))
        ImageDraw.Draw(canvas).text(place, letter, fill=int(drawn.integers(160, 256)), font=font, anchor="mm")
        small = canvas.rotate(drawn.uniform(-12, 12), Image.Resampling.BILINEAR).resize((16, 16), Image.Resampling.BOX)
        noisy = np.asarray(small, dtype=np.float64) + drawn.normal(0, 10, (16, 16))
        return noisy.clip(0, 255).astype(np.uint8)[None]

    y = np.repeat(np.arange(26), 60)
    x = np.stack([image("ABCDEFGHIJKLMNOPQRSTUVWXYZ"[label]) for label in y])
    return split(x, y, 20, rng)


def photographs(rng, test):
    """CIFAR-10: 100 images of a class are learned, 100 are held out."""
    from s6mod.data.catalog import load

    data = load("cifar10")
    x, y = data.train_images.numpy(), data.train_labels.numpy()
    chosen = np.concatenate([rng.permutation(np.flatnonzero(y == label))[:200] for label in range(10)])
    train_x, train_y, held_x, held_y = split(x[chosen], y[chosen], 100, rng)
    return (train_x, train_y, data.test_images.numpy(), data.test_labels.numpy()) if test else (
        train_x, train_y, held_x, held_y
    )  # fmt: skip


def shapes(rng, test):
    """95 easy images, 19 of a class: a bright square on noise whose place is the class; 20 of a class are held out."""
    y = np.repeat(np.arange(5), 39)
    x = rng.integers(0, 80, (len(y), 3, 16, 16), dtype=np.uint8)
    for image, (row, column) in zip(x, np.array([(0, 0), (0, 10), (10, 0), (10, 10), (5, 5)])[y], strict=True):
        image[:, row : row + 6, column : column + 6] += 120
    return split(x, y, 20, rng)


def split(x, y, held, rng):
    """Of each class ``held`` images are kept out of the stream."""
    order = [rng.permutation(np.flatnonzero(y == label)) for label in np.unique(y)]
    out, learned = (np.concatenate([part[cut] for part in order]) for cut in (slice(held), slice(held, None)))
    return x[learned], y[learned], x[out], y[out]


def stream(y, rng, tasks=5):
    """The ids of the images, task after task: classes in random order, images of a task in random order."""
    for classes in np.array_split(rng.permutation(np.unique(y)), tasks):
        yield rng.permutation(np.flatnonzero(np.isin(y, classes)))


STREAMS = {"digits": digits, "letters": letters, "photographs": photographs, "shapes": shapes}


def measure(name, seed, values, preset):
    rng = np.random.default_rng(seed)
    name, test = name.removeprefix("test/"), name.startswith("test/")
    x, y, held_x, held_y = STREAMS[name](rng, test)
    size = {"num_classes": int(y.max()) + 1, "seed": seed}
    learner = Learner.preset(preset, **size, **values) if preset else Learner(**merge(START, values), **size)
    begun = time.process_time()
    for ids in stream(y, rng):
        for batch in np.split(ids, range(BATCH, len(ids), BATCH)):
            learner.learn(x[batch], y[batch])
        learner.end_task()
    seconds = time.process_time() - begun
    found = {
        name: round(100 * float((scores.argmax(1).cpu().numpy() == held_y).mean()), 2)
        for name, scores in learner.scores_by_all(held_x).items()
    }
    return {
        "predicts": round(learner.evaluate(held_x, held_y), 2),
        "steps": learner.steps,
        "cpu": round(seconds),
        **found,
    }


def main():
    torch.set_num_threads(1)
    name, seeds, *changes = sys.argv[1:]
    preset = next((change.partition("=")[2] for change in changes if change.startswith("preset=")), None)
    values = {}
    for change in changes:
        values = values if change.startswith("preset=") else assign(values, change)
    for seed in map(int, seeds.split(",")):
        print(
            json.dumps({"stream": name, "seed": seed, "changes": changes} | measure(name, seed, values, preset)),
            flush=True,
        )


if __name__ == "__main__":
    main()
