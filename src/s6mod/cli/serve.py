"""``s6mod serve``: a learner as a service."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from s6mod.cli import options
from s6mod.cli.app import app, leave
from s6mod.cli.options import HOW, WHAT
from s6mod.errors import ConfigError, require_installed
from s6mod.files import usable
from s6mod.serve.settings import Limits, Rules

PRESET, SIZE = "everyday", 32
what, how, limit = (partial(typer.Option, rich_help_panel=panel) for panel in (WHAT, HOW, "Limits"))

Folder = Annotated[Path, typer.Argument(help="The service's folder: of its own, or empty, or not there yet.")]
Preset = Annotated[str, what(help="Of a new service: everyday, or a cell as er+s6mod/cifar100/2000.")]
Size = Annotated[int, what(min=8, max=1024, help="Of a new service: height and width of all images.")]
From = Annotated[Path | None, what("--from", help="Of a new service: a run or a saved learner to go on from.")]
ReadOnly = Annotated[bool, what("--read-only", help="Follow the service that learns in this folder.")]
Host = Annotated[str, how(help="Address; others than loopback need a token.")]
Port = Annotated[int, how(min=0, max=65535, help="0: any that is free.")]
Token = Annotated[str | None, how(envvar="S6MOD_TOKEN", show_envvar=True, help="What requests must bring as a bearer.")]
Threads = Annotated[int | None, how(min=1, help="Of torch, for each of learning and predicting (default: cores - 1).")]
CheckpointSeconds = Annotated[float, how(min=0, help="Between two checkpoints.")]
DrainSeconds = Annotated[float, how(min=0, help="For what waits at the end.")]
SnapshotEvery = Annotated[int, how(min=0, help="Batches between two snapshots; 0: none.")]
Snapshots = Annotated[int, how(min=1, help="The newest that are kept.")]
Fall = Annotated[
    float | None, how(min=0, max=100, help="Points of accuracy below the best snapshot at which it goes back.")
]
Body = Annotated[int, limit("--max-body", min=1024, help="Bytes of a request.")]
Pixels = Annotated[int, limit("--max-pixels", min=64, help="Of one image.")]
Images = Annotated[int, limit("--max-images", min=1, help="Of one request.")]
Classes = Annotated[int, limit("--max-classes", min=1, help="That it learns.")]
Waiting = Annotated[int, limit("--max-waiting", min=1, help="Batches accepted and not yet learned.")]


@app.command()
def serve(
    folder: Folder,
    preset: Preset = PRESET,
    size: Size = SIZE,
    start: From = None,
    read_only: ReadOnly = False,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    token: Token = None,
    device: options.DeviceIfGiven = None,
    threads: Threads = None,
    checkpoint_seconds: CheckpointSeconds = Rules.checkpoint_seconds,
    drain_seconds: DrainSeconds = Rules.drain_seconds,
    snapshot_every: SnapshotEvery = Rules.snapshot_every,
    snapshots: Snapshots = Rules.snapshots,
    fall: Fall = Rules.fall,
    max_body: Body = Limits.body,
    max_pixels: Pixels = Limits.pixels,
    max_images: Images = Limits.images,
    max_classes: Classes = Limits.classes,
    max_waiting: Waiting = Limits.waiting,
    assignments: options.Assignments = None,
    own: options.Import = None,
) -> None:
    """Predict while learning, over HTTP; nothing accepted is lost.

    --set is for a new service.
    """
    for module in ("fastapi", "uvicorn", "python_multipart"):
        require_installed(module, "a service", "serve")
    from s6mod.config import assign
    from s6mod.learner import Learner
    from s6mod.serve import run
    from s6mod.serve.service import Reader
    from s6mod.serve.writer import Writer

    folder = usable(folder)
    run.check_address(host, token)
    run.set_threads(threads)
    limits = Limits(max_body, max_pixels, max_images, max_classes, max_waiting)
    rules = Rules(checkpoint_seconds, drain_seconds, snapshot_every, snapshots, fall)

    new = {"--preset": preset != PRESET, "--set": assignments, "--size": size != SIZE, "--from": start}
    given = [option for option, value in new.items() if value]

    def make() -> Learner:
        if start is not None:
            if others := " and ".join(each for each in given if each in ("--preset", "--set")):
                raise ConfigError(
                    f"expected --from alone, got {others} too; leave that out: a learner goes on as it was made"
                )
            return Learner.load(start, device)
        changes: dict[str, Any] = {} if device is None else {"engine": {"device": device}}
        for assignment in assignments or ():
            changes = assign(changes, assignment)
        return Learner.preset(preset, **changes)

    if not read_only and run.prepare(folder, make, (size, size)):
        typer.echo(f"a new service in {folder}", err=True)
    elif given:
        typer.echo(f"the service in {folder} goes on as it was made: {', '.join(given)} means nothing to it", err=True)
    service = Reader(folder, device, limits) if read_only else Writer(folder, device, limits, rules)
    leave(run.serve(service, (host, port), token, typer.echo), [])
