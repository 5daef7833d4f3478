"""MLflow: one SQLite file beside the run folders, or the server that ``MLFLOW_TRACKING_URI`` names.

``MLFLOW_EXPERIMENT_NAME`` chooses the experiment, else it is ``s6mod``.
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from s6mod.locks import alone_in
from s6mod.trackers.base import Subject, Tracker

MOST_METRICS, MOST_PARAMETERS = 1000, 100  # that MLflow takes in one call
NEXT_STEP = "next_step"  # a tag, set together with the metrics
LONGEST = 6000  # characters of a parameter
IMPATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}  # a training waits meanwhile


class MLflow(Tracker):
    """One MLflow run, found again by its id."""

    def __init__(self, subject: Subject, run_id: str | None) -> None:
        logging.getLogger("mlflow").setLevel(logging.WARNING)  # it tells of every table that it makes
        for name, value in IMPATIENCE.items():
            os.environ.setdefault(name, value)
        home = subject.folder.resolve().parent
        self.client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home / 'mlflow.db'}")
        with alone_in(home):  # two processes that make the tables at once spoil them
            if run_id is None:
                self.run_id, self.next_step = self._create(subject, (home / "mlflow-artifacts").as_uri()), 0
            else:
                self.client.update_run(run_id, status="RUNNING")
                self.run_id = run_id
                self.next_step = int(self.client.get_run(run_id).data.tags.get(NEXT_STEP, 0))

    def record(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Tracker``."""
        now = int(1000 * time.time())
        metrics = [Metric(name, value, now, step) for name, value in values.items()]
        for start in range(0, len(metrics), MOST_METRICS):
            last = start + MOST_METRICS >= len(metrics)
            tags = [RunTag(NEXT_STEP, str(step + 1))] if last else []
            self.client.log_batch(self.run_id, metrics=metrics[start : start + MOST_METRICS], tags=tags)

    def end(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Tracker``."""
        self.record(step, values)
        self.client.set_terminated(self.run_id, "FINISHED")

    def close(self) -> None:
        """See ``Tracker``."""
        self.client.set_terminated(self.run_id, "KILLED")

    def _create(self, subject: Subject, artifacts: str) -> str:
        tags = {"cell": subject.cell, "seed": str(subject.seed), "hash": subject.hash}
        run = self.client.create_run(self._experiment(artifacts), run_name=subject.name, tags=tags)
        run_id = str(run.info.run_id)
        parameters = [Param(name, str(value)[:LONGEST]) for name, value in _leaves(subject.config)]
        for start in range(0, len(parameters), MOST_PARAMETERS):
            self.client.log_batch(run_id, params=parameters[start : start + MOST_PARAMETERS])
        return run_id

    def _experiment(self, artifacts: str) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "s6mod"
        found = self.client.get_experiment_by_name(name)
        if found is None:
            try:
                place = None if os.environ.get("MLFLOW_TRACKING_URI") else artifacts
                return str(self.client.create_experiment(name, place))
            except MlflowException:  # on a server, another machine was faster
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
