"""The short form of ``make torture``: one small round of each quick attack."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extras

TESTS = Path(__file__).parents[1]


def torture(*words, path=()):
    folders = [*map(str, path), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "torture", *map(str, words)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_nothing_is_lost_and_nothing_breaks_in_the_short_form(tmp_path):
    said = torture("--short", "--out", tmp_path)
    assert said.returncode == 0, said.stdout + said.stderr
    assert "| kill-train | 1 |" in said.stdout
    assert "| fuzz-checkpoint | 1 |" in said.stdout


def test_what_breaks_is_told_and_written_down_as_a_test(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(  # a reader that fails with anything but a sentence
        "import s6mod.data.pickles\ns6mod.data.pickles.read_pickle = lambda path: {}[path]\n"
    )
    said = torture("--short", "--only", "fuzz-pickle", "--seed", 3, "--out", tmp_path, path=[tmp_path])
    assert said.returncode == 1, said.stdout + said.stderr
    assert "BROKEN fuzz-pickle seed 3, traceback: KeyError" in said.stdout
    assert "again('fuzz-pickle', 3)" in (tmp_path / "test_fuzz_pickle_3.py").read_text()
