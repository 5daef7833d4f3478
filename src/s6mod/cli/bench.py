"""``s6mod bench``: what a step costs."""

from typing import Annotated

import typer
from rich.console import Console

from s6mod.cli import options
from s6mod.cli.app import app


@app.command()
def bench(
    methods: Annotated[
        str, typer.Option(help="Methods, with commas between; the first is also packed on a GPU.")
    ] = "er",
    branches: Annotated[
        str, typer.Option(help="Branches, with commas between; changes to a preset after slashes, as in cells.")
    ] = "none,s6mod,confidence",
    width: Annotated[int, typer.Option(min=1, help="Width of the network (64 as in the paper).")] = 64,
    seconds: Annotated[float, typer.Option(min=0.0, help="Time for each learner, warm-up apart.")] = 5.0,
    device: options.Device = "auto",
    precision: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
    json_output: options.Json = False,
    own: options.Import = None,
) -> None:
    """Milliseconds and memory of a step, with and without the branch, beside the reference implementations.

    The learners have the presets of CIFAR-100 with M = 2000; s6mod/view=shared/beta=0.5 is S6MOD with two changes.
    """
    from s6mod.runs.bench import run_bench
    from s6mod.runs.bench_values import bench_values

    names, with_branches = ([part.strip() for part in text.split(",")] for text in (methods, branches))
    run_bench(names, with_branches, bench_values, width, seconds, device, precision, json_output, Console(emoji=False))
