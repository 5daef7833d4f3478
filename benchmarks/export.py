"""What an export weighs and how fast it answers: python benchmarks/export.py [--grid onnx|pt2]

Prints, as a Markdown table, the size of the exported files and the time of a prediction on one CPU thread, by the
learner itself, by onnxruntime and by torch.export: ms for one image, and for each of 64 at once; the best of several.
It is time of the processor, so other programs hardly change it. With ``--grid`` it exports every method with and
without S6MOD, at a small size, and prints as CSV how far the answers are from the learner's scores on images that it
has not seen, as a share of the largest score of an image.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from s6mod import Learner
from s6mod.methods import methods

SHOWN = {
    "ER": ("er", None, {}),
    "ER, nearest means": ("er", None, {"predict_by": "ncm"}),
    "ER + S6MOD, ETF head": ("er", {"name": "s6mod", "variant": "plus"}, {}),
    "ER + S6MOD, ensemble": ("er", {"name": "s6mod"}, {"predict_by": "ensemble"}),
    "MOSE, all experts": ("mose", None, {"predict_by": "moe"}),
    "ER-CCLDC": ("er-ccldc", None, {}),
}
WIDTH, SIDE, CLASSES = 16, 32, 100
SECONDS = 0.5  # for each time that is taken


def learned(name, branch, width, side, classes, **options):
    learner = Learner(
        {"name": name, "network": {"width": width}, "memory_batch": 8},
        branch,
        num_classes=classes,
        memory_size=200,
        engine={"device": "cpu"},
        **options,
    )
    random = np.random.default_rng(0)
    for step in range(4):
        images = random.integers(256, size=(10, 3, side, side), dtype=np.uint8)
        learner.learn(images, (step // 2 * 5 + np.arange(10) % 5) % classes)
        if step % 2:
            learner.end_task()
    return learner


def by_onnxruntime(file):
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, settings)
    return lambda images: session.run(None, {"images": images})


def by_torch(file):
    program = torch.export.load(file).module()

    def answer(images):
        with torch.inference_mode():
            return [part.numpy() for part in program(torch.from_numpy(images))]

    return answer


FORMATS = {"onnx": by_onnxruntime, "pt2": by_torch}


def exported(learner, form):
    """The size of the file, and what answers with labels, probabilities and scores from it."""
    with tempfile.TemporaryDirectory() as folder:
        done = learner.export(Path(folder) / f"model.{form}")
        return done.size, FORMATS[form](done.path)


def best_ms(answer, images):
    answer(images)
    times, end = [], time.process_time() + SECONDS
    while time.process_time() < end:
        start = time.process_time()
        answer(images)
        times.append(time.process_time() - start)
    return 1000 * min(times) / len(images)


def table():
    print(f"Width {WIDTH}, {SIDE}x{SIDE} images, {CLASSES} classes, {torch.__version__=}, {onnxruntime.__version__=}\n")
    ways = ("learner", "onnxruntime", "torch.export")
    heads = [f"{way}, {size}" for size in (1, 64) for way in ways]
    print("| what predicts | .onnx, KB | .pt2, KB |", " | ".join(heads), "|")
    print("|" + "---|" * (3 + len(heads)))
    images = np.random.default_rng(1).integers(256, size=(64, 3, SIDE, SIDE), dtype=np.uint8)
    for name, (method, branch, options) in SHOWN.items():
        learner = learned(method, branch, WIDTH, SIDE, CLASSES, **options)
        sizes, answers = zip(*(exported(learner, form) for form in FORMATS), strict=True)
        times = [f"{best_ms(way, images[:size]):.2f}" for size in (1, 64) for way in (learner.predict, *answers)]
        print(f"| {name} |", " | ".join([*(f"{size / 1000:,.0f}" for size in sizes), *times]), "|", flush=True)


def grid(form):
    print("method,branch,scores,difference,labels", flush=True)
    images = np.random.default_rng(1).integers(256, size=(20, 3, 16, 16), dtype=np.uint8)
    s6mod = {"name": "s6mod", "variant": "plus", "d_inner": 16, "num_patterns": 3, "state_dim": 4, "dt_rank": 3}
    equal = True
    for name in sorted(methods.registered(outside=False)):
        for branch in (None, s6mod) if methods[name].has_logits else (None,):
            learner = learned(name, branch, 4, 16, 10, statistics="memory", average=0.9)
            expected = learner.scores(images)[learner.primary].numpy()
            labels, _, scores = exported(learner, form)[1](images)
            alike = (labels == learner.predict(images)).all()
            largest = np.abs(np.where(np.isfinite(expected), expected, 0)).max(1, keepdims=True)
            with np.errstate(invalid="ignore"):  # -inf less -inf
                difference = np.nan_to_num(np.abs(scores - expected) / largest).max()
            equal &= bool(alike and difference <= 1e-4)
            told = ["s6mod" if branch else "none", learner.primary, f"{difference:.1e}"]
            print(",".join([name, *told, "equal" if alike else "differ"]), flush=True)
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    grid(sys.argv[2]) if sys.argv[1:2] == ["--grid"] else table()
