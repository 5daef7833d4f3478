"""Where tests of Triton kernels run: on a CUDA device where there is one, and in Triton's interpreter everywhere.

The interpreter must be chosen before Triton is imported and would stay for the whole process, so one test of a file
runs that file again in a process of its own.
"""

import os
import subprocess
import sys

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICES = ["cpu"] if INTERPRETED else [pytest.param("cuda", marks=pytest.mark.gpu)]

starts_the_interpreter = pytest.mark.skipif(INTERPRETED, reason="is what starts the interpreter")


def needs_triton():
    pytest.importorskip("triton", reason="Triton is not installed; the package runs without it, its kernels do not")


def assert_holds_interpreted(file):
    needs_triton()
    plugins = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")  # the second takes long to import
    command = [sys.executable, "-m", "pytest", "-n", "0", *plugins, file]
    run = subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert " passed" in run.stdout


def assert_near(ours, exactly, least=0.0):
    """That float32 results are those in float64, up to rounding; one that is 0 throughout, up to ``least``."""
    for number, (value, exact) in enumerate(zip(ours, exactly, strict=True)):
        assert value.dtype == torch.float32
        assert value.shape == exact.shape
        assert (value - exact).norm() <= 1e-5 * exact.norm() + least, number


def compiled(module):
    """How many variants of the kernels of a module have been compiled."""
    kernels = (each for each in vars(module).values() if hasattr(each, "device_caches"))
    return sum(len(variants) for kernel in kernels for variants, *_ in kernel.device_caches.values())


def captured(run):
    """A CUDA graph of ``run``, which is warmed up before, and what its replays write to."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = run()
    return graph, results
