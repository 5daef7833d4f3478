"""Start a service and end it in peace: uvicorn around the application, signals, the folder of a new one."""

import gc
import logging
import os
import resource
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
import uvicorn

from s6mod.engine.checkpoint import has_state
from s6mod.errors import ConfigError
from s6mod.learner import Learner
from s6mod.serve.application import application
from s6mod.serve.door import is_loopback
from s6mod.serve.service import Service
from s6mod.serve.state import Account, ServiceFiles, State

GRACE = 5  # seconds for requests under way when the service is asked to end
IDLE = 75  # seconds that a connection without requests is kept: longer than balancers do, so that they end it


def prepare(folder: Path, make: Callable[[], Learner], size: tuple[int, int]) -> bool:
    """Begin a service in an empty folder with the learner that ``make`` gives; False: there is one already."""
    files = ServiceFiles(folder)
    if has_state(files.checkpoint):
        return False
    # A first start that was killed may have left a checkpoint without a state; a fresh disk has a folder of its own.
    if folder.exists() and {each.name for each in folder.iterdir()} - {files.checkpoint.name, "lost+found"}:
        raise ConfigError(
            f"expected a service's folder or an empty one, got {folder}, which holds something else; choose another, "
            "and give a learner with --from"
        )
    learner = make()  # which may have learned before
    folder.mkdir(parents=True, exist_ok=True)
    if learner.image_shape is not None:
        size = learner.image_shape[1], learner.image_shape[2]
    State(learner, size, Account()).snapshot().write(files.checkpoint)
    return True


def check_address(host: str, token: str | None) -> None:
    """Refuse an address that others reach, without a token."""
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"expected a token for a service that others can reach at {host}, got none; set S6MOD_TOKEN, or use "
            "--host 127.0.0.1"
        )
    if token is not None and not (len(token) >= 8 and token.isascii() and token.isprintable() and " " not in token):
        raise ConfigError("expected a token of at least 8 letters without spaces, got another; choose a longer one")


def serve(service: Service, address: tuple[str, int], token: str | None, say: Callable[[str], Any]) -> int:
    """Until somebody ends it; 0 if all was saved."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen()  # until then another could bind it too
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigError(f"expected a free address, got {address[0]}:{address[1]}: {error}; choose --port") from None
    allow_connections()
    app = application(service, token)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, ws="none",
        timeout_graceful_shutdown=GRACE, timeout_keep_alive=IDLE,
    )  # fmt: skip
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns of what we refuse
    host = f"[{address[0]}]" if family == socket.AF_INET6 else address[0]
    ready = partial(say, f"http://{host}:{listening.getsockname()[1]}")
    gc.freeze()  # what was imported stays; a full collection over it would hold all threads for a tenth of a second
    _Server(config, service, ready).run([listening])
    gc.unfreeze()  # or libraries would tell of leaks at the end
    return 1 if service.failure or service.trouble else 0


class _Server(uvicorn.Server):
    """Tells the service as soon as it is asked to end, so that live pages let go."""

    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[], Any]) -> None:
        super().__init__(config)
        self._service, self._ready = service, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Signals have their meaning by now. Once it listens, that is said: who asks at once gets an answer."""
        await super().startup(sockets)
        if self.started:
            self._ready()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """A signal came. uvicorn's own would raise it again at the end, before anything is saved."""
        if self.should_exit:
            os._exit(128 + sig)  # the second waits for nobody; it is as a kill, after which nothing is lost
        self.should_exit = self._service.stopping = True


def allow_connections() -> None:
    """As many as the system lets us: each is an open file, and without one left nothing is learned or saved."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS gives no number, and takes none
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def set_threads(number: int | None) -> None:
    """Of torch, for what learns and for what predicts, each; by default all cores but one."""
    torch.set_num_threads(number or max(1, (os.cpu_count() or 2) - 1))
