"""``s6mod export``: what predicts, as one file."""

from pathlib import Path
from typing import Annotated

import typer

from s6mod.cli import options
from s6mod.cli.app import app

Run = Annotated[Path, typer.Argument(help="Folder of a run, or of a saved learner.")]
File = Annotated[Path, typer.Argument(help="model.onnx for ONNX, model.pt2 for torch.export; replaced if it is there.")]


@app.command()
def export(run: Run, file: File, own: options.Import = None) -> None:
    """Write what predicts as one file: ONNX or torch.export.

    From uint8 images to labels. The file is written once it answers like the learner.
    """
    from s6mod.learner import Learner
    from s6mod.runs.model import class_names

    learner = Learner.load(run, "cpu")
    done = learner.export(file, class_names(learner, run))
    typer.echo(f"{done.path}: {done.size:,} bytes, {done.metadata.predictor}")
    typer.echo(f"scores differ from the learner's by at most {done.difference:.1e}; checksum {done.metadata.checksum}")
