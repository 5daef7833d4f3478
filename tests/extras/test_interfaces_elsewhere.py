"""Tests of libraries that cannot be installed beside ours, in an environment of their own that is made here.

It sees the packages of this environment, torch among them, and has those of interfaces.txt on top.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.extras

ROOT = Path(__file__).parents[2]
WANTED = Path(__file__).with_name("interfaces.txt")
TESTS = [
    "tests/extras/test_interface_avalanche.py",
    "tests/extras/test_interface_capymoa.py",
    "tests/extras/test_interfaces_agree.py",
    "tests/test_readme.py::test_every_program_runs_as_it_is",
]


def call(python, *words, **variables):
    """Run a module with our package and the helpers of our tests."""
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("src", "tests"))
    environment = os.environ | {"PYTHONPATH": paths} | variables
    return subprocess.run([python, "-m", *words], cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.fixture
def python():
    """That of the environment, which is made anew when what it is made of changes."""
    beside = sysconfig.get_path("purelib")
    made_of = hashlib.sha256("\n".join([WANTED.read_text(), sys.version, beside]).encode()).hexdigest()
    folder = ROOT / f".venv-interfaces-{made_of[:12]}"
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        for old in ROOT.glob(".venv-interfaces-*"):
            shutil.rmtree(old)
        venv.create(folder, with_pip=True)
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "beside.pth").write_text(beside)
        done = call(python, "pip", "install", "--quiet", "--disable-pip-version-check", "-r", WANTED)
        if done.returncode:
            pytest.skip(f"the packages of {WANTED.name} cannot be had: {done.stderr.strip().splitlines()[-1]}")
        ready.touch()
    return python


def test_an_environment_of_their_own_runs_avalanche_capymoa_and_every_program_of_the_page(python, tmp_path):
    words = ("-n", "0", "-m", "extras", "-rs", "-p", "torchvision_operators")
    done = call(python, "pytest", *words, *TESTS, HF_HOME=str(tmp_path), HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " skipped" not in done.stdout.lower() or shutil.which("java") is None, done.stdout
