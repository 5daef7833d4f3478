"""``s6mod predict``: labels for image files."""

import csv
import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from s6mod.cli import options
from s6mod.cli.app import app, leave
from s6mod.columns import align
from s6mod.errors import printable

Run = Annotated[Path, typer.Argument(help="Folder of a run or of a saved learner, or an exported .onnx file.")]
Images = Annotated[list[Path], typer.Argument(help="Image files, and folders with such.")]
Top = Annotated[int, typer.Option(min=1, help="Labels for each image, best first.")]
Form = Annotated[
    Literal["terminal", "csv", "json"] | None,
    typer.Option("--format", metavar="FORMAT", help="csv, json or terminal (default: terminal)."),
]


@app.command()
def predict(
    run: Run,
    images: Images,
    top: Top = 1,
    form: Form = None,
    json_output: options.Json = False,
    device: options.Device = "auto",
    own: options.Import = None,
) -> None:
    """Labels and probabilities for image files.

    Images of another size are resized.
    """
    from s6mod.runs.model import files_of, open_model

    way = options.form_of(form, json_output)
    files = files_of(images)
    model, skipped = open_model(run, device), list[str]()
    found: list[tuple[str, list[tuple[str, float]]]] = []
    for file, shares in model.of_files(files, skipped):
        best = (-shares).argsort(kind="stable")[:top]
        found.append((str(file), [(model.classes[label], round(float(shares[label]), 6)) for label in best]))
    head = ["file", *("label", "probability") * min(top, len(model.classes))]
    if way == "json":
        rows = [{"file": file, "labels": [{"label": n, "probability": p} for n, p in best]} for file, best in found]
        typer.echo(json.dumps(rows, indent=1))
    elif way == "csv":
        out = csv.writer(sys.stdout, lineterminator="\n")
        out.writerows([head, *([file, *(part for pair in best for part in pair)] for file, best in found)])
    else:
        cells = [[file, *(part for n, p in best for part in (n, f"{p:.3f}"))] for file, best in found]
        left = frozenset({0, *range(1, len(head), 2)})
        typer.echo("\n".join(align([head, *([printable(cell) for cell in row] for row in cells)], left)))
    leave(1 if skipped else 0, [f"warning: {why}" for why in skipped])
