"""Where tests of Triton kernels run: on a CUDA device where there is one, and in Triton's interpreter everywhere.

The interpreter must be chosen before Triton is imported and would stay for the whole process, so one test of a file
runs that file again in a process of its own. These are forked from one that has imported what all of them need.
"""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICES = ["cpu"] if INTERPRETED else [pytest.param("cuda", marks=pytest.mark.gpu)]

starts_the_interpreter = pytest.mark.skipif(INTERPRETED, reason="is what starts the interpreter")


def needs_triton():
    pytest.importorskip("triton", reason="Triton is not installed; the package runs without it, its kernels do not")


def assert_holds_interpreted(file, tmp_path):
    needs_triton()
    server, log = _server(), tmp_path / "log"
    server.stdin.write(f"{file}\0{log}\n")
    server.stdin.flush()
    code, said = server.stdout.readline(), log.read_text()
    assert code == "0\n", said
    assert " passed" in said


SERVER = """
import os, sys
import pytest, triton
import s6mod.branch.s6mod, s6mod.cli, s6mod.experiments.worker, s6mod.runs.compose

plugins = "-p", "no:cacheprovider", "-p", "no:hypothesispytest"  # the second takes long to import
for line in sys.stdin:
    file, log = line[:-1].split(chr(0))
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 1)
        os.dup2(1, 2)
        code = pytest.main(["-n", "0", *plugins, file])
        sys.stdout.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@cache
def _server():
    """It runs the files that it is told, until nobody is there to tell it."""
    return subprocess.Popen(
        [sys.executable, "-c", SERVER], env=os.environ | {"TRITON_INTERPRET": "1"}, cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


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
