"""A real Ray on this machine."""

import json
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.extras


def test_a_worker_killed_in_the_middle_changes_no_bit_of_any_result(tmp_path, grid, strike, log):
    from s6mod.experiments.launch_ray import RayLauncher

    out = tmp_path / "ray"
    todo = grid.jobs(out)
    broken = todo.pop()
    broken.folder.mkdir(parents=True)
    (broken.folder / "config.json").write_text("{")  # fails, is tried again by Ray, and fails
    launcher = RayLauncher.connected(None, "auto", workers=2, at_once=None, retries=2)
    blow = strike(todo[1].folder)
    outcome = launcher.launch([*todo, broken], log)
    assert blow.struck is not None
    assert sorted(log.ended) == sorted(job.name for job in todo)
    assert list(outcome.failures) == [broken.name]
    assert "damaged" in outcome.failures[broken.name]
    assert not any("starts over" in text for text in log.said)
    assert log.steps  # progress came back
    expected = grid.straight(tmp_path / "straight")
    assert {job.folder.name: grid.bits(job.folder) for job in todo} == {
        job.folder.name: expected[job.folder.name] for job in todo
    }


def test_a_sweep_told_to_stop_saves_every_run_under_way(tmp_path, grid, strike):
    file, out = tmp_path / "grid.yaml", tmp_path / "runs"
    file.write_text(json.dumps({"cells": grid.cells, "memory": 20, "seeds": grid.seeds, "set": grid.over}))
    program = "from s6mod.cli import main; main()"
    words = ["sweep", file, "--out", out, "--on", "ray", "--workers", "2"]
    command = [sys.executable, "-c", program, *map(str, words)]
    sweep = subprocess.Popen(command, stderr=subprocess.PIPE, cwd=tmp_path, text=True, start_new_session=True)
    todo = grid.jobs(out)
    blow = strike(todo[0].folder, signal.SIGINT, -sweep.pid)  # as Ctrl-C does: to all processes of the group
    _, told = sweep.communicate(timeout=600)
    assert blow.struck is not None
    assert sweep.returncode == 130, told
    assert "the same command goes on" in told
    for job in todo:
        records = job.folder / "records.jsonl"
        if records.exists() and not (job.folder / "result.json").exists():
            state = json.loads((job.folder / "checkpoint" / "state.json").read_text())
            assert state["tree"]["records_bytes"] == records.stat().st_size  # nothing was lost


def test_a_ray_that_cannot_be_reached_is_one_sentence():
    from s6mod.errors import ConfigError
    from s6mod.experiments.launch_ray import RayLauncher

    with pytest.raises(ConfigError, match="expected a Ray at localhost:9, got none that answers") as refusal:
        RayLauncher.connected("localhost:9", "cpu", None, None, None)
    assert "\n" not in str(refusal.value)
    assert "RAY_AUTH_MODE=token" in str(refusal.value)
