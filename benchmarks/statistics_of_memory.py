"""Finished runs by both statistics of BatchNorm: python benchmarks/statistics_of_memory.py DATA_ROOT RUN_FOLDER ...

Opens the final checkpoint of each run and prints, as CSV, Acc of every score table with the running statistics and with
those of the memory, from the same weights.
"""

import csv
import sys
from pathlib import Path

from s6mod.analysis.opened import open_run, task_accuracy
from s6mod.engine.evaluate import Predictor

HEADER = ("cell", "variant", "precision", "seed", "table", "running", "memory")


def main():
    data_root, *folders = sys.argv[1:]
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(HEADER)
    for folder in map(Path, folders):
        run = open_run(folder, "auto", data_root)
        learner, labels = run.learner, run.dataset.test_labels.cpu()
        accuracy = {}
        for way in ("running", "memory"):
            predictor = Predictor(learner.method, learner.peers, learner.memory, learner.engine, way)
            for table, scores in predictor(run.dataset.test_images).items():
                found = task_accuracy(scores.argmax(1).cpu(), labels, run.plan)
                accuracy.setdefault(table, []).append(f"{found:.2f}")
        variant = getattr(run.config.branch, "variant", "") if run.config.branch else ""
        precision = "bfloat16" if learner.engine.bfloat16 else "float32"
        for table, pair in accuracy.items():
            out.writerow((run.config.cell, variant, precision, run.config.seed, table, *pair))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
