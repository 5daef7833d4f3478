"""What is written of a run that has come to its end."""

from typing import TYPE_CHECKING, Any

import torch

from s6mod.metrics import AccuracyMatrix, Metrics

if TYPE_CHECKING:
    from s6mod.runs.run import Run

FORMAT = 1


def summary(run: "Run") -> dict[str, Any]:
    """The result: what was run, on what and where, how well it went and what it took."""
    config, learner, cursor, device = run.config, run.learner, run.cursor, run.learner.engine.device
    beside = learner.average.nbytes if config.compares_average and learner.average is not None else 0
    return {
        "format": FORMAT,
        "hash": config.hash,
        "cell": config.cell,
        "seed": config.seed,
        "stream": run.plan.hash,
        "data": run.fingerprint,
        "primary": learner.primary,
        "metrics": {name: Metrics.of(AccuracyMatrix.from_rows(rows)).plain() for name, rows in cursor.rows.items()},
        "matrices": cursor.rows,
        **({"predictors": cursor.predictors} if cursor.predictors else {}),
        "steps": cursor.position,
        "ms_per_step": 1000 * cursor.seconds / cursor.position,
        "train_seconds": cursor.seconds,
        "eval_seconds": cursor.eval_seconds,
        "runs_at_once": cursor.runs_at_once,
        "bytes_held": learner.nbytes - beside,
        "peak_device_bytes": torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
        "class_names": list(run.dataset.class_names),
        "environment": run.environment,
        "config": config.plain(),
    }
