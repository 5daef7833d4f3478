"""What all tests share: one thread a process, since small tensors gain nothing from more, and no GPU.

A test runs on the CPU, on every machine, unless it is marked ``gpu``: only then is a CUDA device there.
"""

import gc
import os
import signal
import sys
from pathlib import Path

import pytest
import torch

import gpu
import processes
from interpreter import DEVICES, needs_triton
from s6mod import cli
from s6mod.data import Dataset, load
from stores import write_run  # noqa: F401 - a fixture

torch.set_num_threads(1)
gpu.hide()
os.environ["S6MOD_DATA"] = str(Path(__file__).parent / "no data")  # whatever this machine has, tests see none of it


def pytest_configure(config):
    """Processes that run the tests look for a GPU themselves: the one that starts them hides none."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        gpu.show()


def pytest_collection_finish():
    """Modules and tests stay to the end: the garbage collector need not go through them again and again."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def pytest_runtest_setup(item):
    """Before the fixtures of a test, of whatever scope, are made."""
    if item.get_closest_marker("gpu") is None:
        gpu.hide()
    elif gpu.THERE and os.environ.get("TRITON_INTERPRET") != "1":
        gpu.show()
    else:
        pytest.skip("needs a CUDA device")


@pytest.fixture
def impatient():
    """A test that waits for ten seconds waits for ever."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits for ever"))
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def call(monkeypatch, capsys):
    """Run a command in this process: exit code, standard output, standard error."""

    def run(*arguments, columns=100):
        monkeypatch.setattr(sys, "argv", ["s6mod", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", str(columns))
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture(params=DEVICES)
def device(request):
    """Where Triton's kernels run: a CUDA device, or the CPU in the interpreter."""
    needs_triton()
    return torch.device(request.param)


@pytest.fixture(scope="session")
def digits():
    """Digits at half their size, with a third of the test images."""
    full = load("digits")
    return Dataset.from_arrays(
        full.train_images[:, :, ::2, ::2], full.train_labels, full.test_images[::3, :, ::2, ::2], full.test_labels[::3],
        name="digits",
    )  # fmt: skip


@pytest.fixture(scope="session")
def quick_start():
    """Workers of sweeps and other processes of the tests start without importing anything."""
    processes.preload()
