"""``s6mod features``: what features look like at the end of training."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from s6mod.cli.app import app


@app.command()
def features(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of finished runs, such as er and er+s6mod with the same seed; or of several seeds."
        ),
    ],
    to: Annotated[
        Path | None, typer.Option(help="Folder for figure and table (default: studies/NAME beside the first run).")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    data_root: Annotated[str | None, typer.Option(help="Where the data set's files are.")] = None,
) -> None:
    """t-SNE of the memory's features, the same samples for each run, with compactness and nearest-mean accuracy."""
    from s6mod.analysis.features import study_features
    from s6mod.cli.study import beside, check_writable, deliver
    from s6mod.report.matrix_picture import require_matplotlib

    require_matplotlib()
    check_writable(to or beside(runs[0]))
    study = study_features(runs, device, data_root)
    deliver(study, to or beside(runs[0]) / study.name, Console(emoji=False))
