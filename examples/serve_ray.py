"""A service under Ray Serve: one writer, which learns, and n readers, which predict, behind one address.

    python examples/serve_ray.py service --readers 3

Readers answer at http://127.0.0.1:8000/predict, the writer at http://127.0.0.1:8000/writer/learn; its page is
http://127.0.0.1:8000/writer/ with the last slash. All see one folder: on several machines it is a shared one, and the
writer's node has it on a local disk.
"""

import argparse
import signal
from pathlib import Path
from typing import Any

import ray
from fastapi import FastAPI
from ray import serve

from s6mod import Learner
from s6mod.serve import run
from s6mod.serve.application import application
from s6mod.serve.service import Reader
from s6mod.serve.settings import Limits, Rules
from s6mod.serve.writer import Writer


def deployments(folder: Path, readers: int, rules: Rules, size: int = 32, **options: Any) -> tuple[Any, Any]:
    """The writer and the readers of a folder; ``options`` are those of a new learner."""
    run.prepare(folder, lambda: Learner(**options), (size, size))

    def build(read_only: bool) -> FastAPI:
        run.set_threads(1)
        return application(Reader(folder, None, Limits()) if read_only else Writer(folder, None, Limits(), rules))

    def writer_app() -> FastAPI:
        return build(read_only=False)

    def reader_app() -> FastAPI:
        return build(read_only=True)

    writer = serve.deployment(serve.ingress(writer_app)(), name="writer", num_replicas=1)
    followers = serve.deployment(serve.ingress(reader_app)(), name="readers", num_replicas=readers)
    return writer, followers


def start(folder: Path, readers: int, rules: Rules, port: int = 8000, **options: Any) -> None:
    """Serve until ``serve.shutdown()``."""
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    writer, followers = deployments(folder, readers, rules, **options)
    serve.run(writer.bind(), name="writer", route_prefix="/writer")
    serve.run(followers.bind(), name="readers", route_prefix="/")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--readers", type=int, default=2)
    asked = parser.parse_args()
    ray.init()
    start(asked.folder.absolute(), asked.readers, Rules())
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    serve.shutdown()
