"""What a study leaves behind: the best trial as a file for ``s6mod train --config``, and the history of all trials."""

import json
from pathlib import Path
from typing import Any

import yaml

from s6mod.files import write_whole
from s6mod.tuning.config import Tuning
from s6mod.tuning.study import FAILURE, SEEDS, VERSIONS

PRESET, HISTORY = "preset.yaml", "history.json"


def write_outcome(tuning: Tuning, study: Any) -> Path | None:
    """Write both files as the study stands; the preset's path, None if no trial is complete."""
    trials = [_describe(trial) for trial in study.get_trials(deepcopy=False)]
    complete = [trial for trial in trials if trial["state"] == "complete"]
    best = max(complete, key=lambda trial: float(trial["value"])) if complete else None
    history = {
        "study": tuning.name,
        "storage": _without_password(tuning.storage),
        "config": tuning.config.plain(),
        "objective": _objective(tuning),
        "best": best and best["number"],
        "trials": trials,
    }
    write_whole(tuning.folder / HISTORY, json.dumps(history, indent=1) + "\n")
    if best is None:
        return None
    head = (
        f"# Trial {best['number']} of {len(trials)}: {best['value']:.2f} %, {_objective(tuning)}.\n"
        f"# By s6mod tune; all trials are in {HISTORY} of study {tuning.name}.\n"
    )
    file = tuning.folder / PRESET
    write_whole(file, head + yaml.safe_dump(tuning.preset(best["params"]), sort_keys=False))
    return file


def first_failure(study: Any) -> str | None:
    """Why the first of the trials that failed did."""
    failures = (trial.user_attrs.get(FAILURE) for trial in study.get_trials(deepcopy=False))
    return next((str(failure) for failure in failures if failure), None)


def _objective(tuning: Tuning) -> str:
    tasks = tuning.config.tasks
    seeds = ", ".join(map(str, tuning.seeds))
    extent = "the whole stream" if tasks is None else f"the first {tasks} tasks" if tasks > 1 else "the first task"
    scores = f" by the score table {tuning.cell.scores}" if tuning.cell.scores is not None else ""
    return f"{tuning.config.metric.replace('_', ' ')}{scores} after {extent}, mean over seeds {seeds}"


def _describe(trial: Any) -> dict[str, Any]:
    return {
        "number": trial.number,
        "state": trial.state.name.lower(),
        "value": trial.value,
        "params": trial.params,
        "seeds": trial.user_attrs.get(SEEDS, {}),
        "reports": list(trial.intermediate_values.values()),
        "failure": trial.user_attrs.get(FAILURE),
        "started": trial.datetime_start and trial.datetime_start.isoformat(),
        "seconds": trial.duration and trial.duration.total_seconds(),
        "versions": trial.user_attrs.get(VERSIONS, {}),
    }


def _without_password(url: str) -> str:
    from sqlalchemy import make_url

    return str(make_url(url).render_as_string(hide_password=True))
