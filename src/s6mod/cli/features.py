"""``s6mod features``: what features look like at the end of training."""

from pathlib import Path
from typing import Annotated

import typer

from s6mod.cli import options
from s6mod.cli.app import app

Runs = Annotated[
    list[Path],
    typer.Argument(help="Folders of finished runs, such as er and er+s6mod with the same seed; or of several seeds."),
]


@app.command()
def features(
    runs: Runs,
    to: options.To = None,
    device: options.Device = "auto",
    data_root: options.DataRoot = None,
    own: options.Import = None,
) -> None:
    """What the features of a run look like, by t-SNE.

    The memory's features, the same samples for each run, with compactness and nearest-mean accuracy.
    """
    from s6mod.analysis.carry_out import study_of
    from s6mod.analysis.features import study_features

    study_of(runs, lambda: study_features(runs, device, data_root), to)
