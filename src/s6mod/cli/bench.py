"""``s6mod bench``: what a step costs, what growth does to it, and predictions while another thread learns."""

from typing import Annotated

import typer
from rich.console import Console

from s6mod.cli import options
from s6mod.cli.app import app

STEPS, GROWTH = "none,s6mod,confidence", "none,s6mod,s6mod/frame=orthogonal"  # branches, unless told
LIVE = "none,s6mod"


@app.command()
def bench(
    methods: Annotated[
        str, typer.Option(help="Methods, with commas between; the first is also packed on a GPU.")
    ] = "er",
    branches: Annotated[
        str | None,
        typer.Option(
            help="Branches and teachers, with commas between; changes to a preset after slashes, as in cells.",
            show_default=f"{STEPS}; with --growth {GROWTH}; with --live {LIVE}",
        ),
    ] = None,
    growth: Annotated[
        bool, typer.Option("--growth", help="Steps and predictions by classes, memory and image size, on one thread.")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Single predictions while another thread learns, one thread of torch each.")
    ] = False,
    width: Annotated[int, typer.Option(min=1, help="Width of the network (64 as in the paper).")] = 64,
    seconds: Annotated[float, typer.Option(min=0.0, help="Time for each learner, warm-up apart.")] = 5.0,
    device: options.Device = "auto",
    precision: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
    json_output: options.Json = False,
    own: options.Import = None,
) -> None:
    """What a step costs in time and memory.

    Milliseconds and memory of a step, with and without the branch, beside the reference implementations.
    The learners have the presets of CIFAR-100 with M = 2000; s6mod/view=shared/beta=0.5 is S6MOD with two changes,
    none/average=0.99 the method with averaged weights. A method that refuses branches is measured alone.
    --growth shows instead what more classes, a larger memory and larger images cost, --live how long a prediction
    takes while another thread learns, and what that leaves of the speed of learning.
    """
    if growth and live:
        raise typer.BadParameter("expected --growth or --live, got both; run one after the other")
    from s6mod.runs.bench import Bench, run_bench
    from s6mod.runs.bench_growth import run_growth
    from s6mod.runs.bench_live import run_live
    from s6mod.runs.bench_values import bench_values

    chosen = branches or (GROWTH if growth else LIVE if live else STEPS)
    names, with_branches = ([part.strip() for part in text.split(",")] for text in (methods, chosen))
    measured = run_growth if growth else run_live if live else run_bench
    console = Console(emoji=False)
    measured(Bench(names, with_branches, bench_values, width, seconds, device, precision, json_output, console))
