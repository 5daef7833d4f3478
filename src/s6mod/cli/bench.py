"""``s6mod bench``: what a step costs."""

from typing import Annotated

import typer
from rich.console import Console

from s6mod.cli.app import app


@app.command()
def bench(
    width: Annotated[int, typer.Option(min=1, help="Width of the network (64 as in the paper).")] = 64,
    steps: Annotated[int, typer.Option(min=1, help="Timed steps of each learner.")] = 10,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    precision: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Milliseconds and peak memory of a step, with and without the branch, and their ratio."""
    from s6mod.engine.bench import run_bench

    run_bench(width, steps, device, precision, json_output, Console())
