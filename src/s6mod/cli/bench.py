"""``s6mod bench``: what a step costs, and what growth does to it."""

from typing import Annotated

import typer
from rich.console import Console

from s6mod.cli import options
from s6mod.cli.app import app

STEPS, GROWTH = "none,s6mod,confidence", "none,s6mod,s6mod/frame=orthogonal"  # branches, unless told


@app.command()
def bench(
    methods: Annotated[
        str, typer.Option(help="Methods, with commas between; the first is also packed on a GPU.")
    ] = "er",
    branches: Annotated[
        str | None,
        typer.Option(
            help="Branches, with commas between; changes to a preset after slashes, as in cells.",
            show_default=f"{STEPS}; with --growth {GROWTH}",
        ),
    ] = None,
    growth: Annotated[
        bool, typer.Option("--growth", help="Steps and predictions by classes, memory and image size, on one thread.")
    ] = False,
    width: Annotated[int, typer.Option(min=1, help="Width of the network (64 as in the paper).")] = 64,
    seconds: Annotated[float, typer.Option(min=0.0, help="Time for each learner, warm-up apart.")] = 5.0,
    device: options.Device = "auto",
    precision: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
    json_output: options.Json = False,
    own: options.Import = None,
) -> None:
    """Milliseconds and memory of a step, with and without the branch, beside the reference implementations.

    The learners have the presets of CIFAR-100 with M = 2000; s6mod/view=shared/beta=0.5 is S6MOD with two changes.
    --growth shows instead what more classes, a larger memory and larger images cost.
    """
    from s6mod.runs.bench import run_bench
    from s6mod.runs.bench_growth import run_growth
    from s6mod.runs.bench_values import bench_values

    chosen = branches or (GROWTH if growth else STEPS)
    names, with_branches = ([part.strip() for part in text.split(",")] for text in (methods, chosen))
    measured = run_growth if growth else run_bench
    measured(names, with_branches, bench_values, width, seconds, device, precision, json_output, Console(emoji=False))
