"""The door that every request passes: who may come in, how much may be brought, and how refusals are told."""

import asyncio
import hmac
import sqlite3
import time

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from s6mod.errors import S6modError
from s6mod.serve.metrics import Counts
from s6mod.serve.service import Service
from s6mod.serve.settings import RefusedError

OPEN = ("/", "/healthz", "/docs", "/openapi.json")  # paths that need no token: they tell nothing of the learner
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
PATIENCE = 60.0  # seconds in which a request must have come
UNREAD = (401, 403, 408, 413)  # answers after which the rest of a request is not read


class Door:
    """Who may come in, how much may be brought, and who is counted."""

    def __init__(
        self, app: ASGIApp, service: Service, token: str | None, counts: Counts, paths: frozenset[str]
    ) -> None:
        self.app, self.service, self.token, self.counts, self.paths = app, service, token, counts, paths
        self.most = service.limits.body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, from its first byte to its answer."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        begin, status, taken, whole = time.perf_counter(), 500, 0, False

        async def limited() -> Message:
            nonlocal taken, whole
            try:
                async with asyncio.timeout(None if whole else PATIENCE + begin - time.perf_counter()):
                    message = await receive()
            except TimeoutError:
                raise RefusedError(
                    408, f"expected all of a request in {PATIENCE:.0f} seconds, got a part; send it again"
                ) from None
            whole = not message.get("more_body", False)
            taken += len(message.get("body", b""))
            if taken > self.most:
                raise self._too_long()
            return message

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        headers, path = Headers(scope=scope), scope["path"].removeprefix(scope.get("root_path", ""))
        try:
            self._check(headers, path)
            await self.app(scope, limited, noted)
        except RefusedError as error:
            await _refusal(error)(scope, receive, noted)
        except ClientDisconnect:  # nobody is there to be told
            status = 499
        except asyncio.CancelledError:  # by uvicorn, of what has not come, or is not read, when the service ends
            if not self.service.stopping:
                raise
            if status == 500:  # nothing was answered yet
                ending = RefusedError(503, "expected a request before the end, got a part; send it again", 5)
                await _refusal(ending)(scope, receive, noted)
        finally:
            known = path if path in self.paths else "/learn/{id}" if path.startswith("/learn/") else "other"
            if known != "/events":
                self.counts.count(known, status, time.perf_counter() - begin)

    def _check(self, headers: Headers, path: str) -> None:
        if self.token is None:
            # A page of another site, open in a browser of this machine, could send requests here.
            host, origin = headers.get("host", ""), headers.get("origin")
            name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
            if name not in LOOPBACK or (origin is not None and origin.partition("://")[2] != host):
                raise RefusedError(
                    403, "expected a request of this machine, got one of another; set a token for others"
                )
        elif path not in OPEN and not hmac.compare_digest(
            headers.get("authorization", "").encode(), f"Bearer {self.token}".encode()
        ):
            raise RefusedError(
                401, "expected the service's token, got none or another; send Authorization: Bearer TOKEN"
            )
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self.most:
            raise self._too_long()

    def _too_long(self) -> RefusedError:
        return RefusedError(413, f"expected at most {self.most:,} bytes, got more; send fewer or smaller images")


def tell_refusals(app: FastAPI) -> None:
    """Whatever goes wrong in a route is told as one sentence, with a status of its own."""

    @app.exception_handler(S6modError)
    async def refused(_: Request, error: S6modError) -> JSONResponse:
        return _refusal(error) if isinstance(error, RefusedError) else _told(400, str(error))

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code in (404, 405):
            return _told(error.status_code, f"expected a path of GET /docs, got {request.method} there; check both")
        return _told(error.status_code, f"expected a request that can be read, got: {error.detail}; check it")

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        return _told(400, f"expected a {where} that fits, got: {first['msg']}; see GET /docs")

    @app.exception_handler(sqlite3.Error)
    async def unwritten(_: Request, error: sqlite3.Error) -> JSONResponse:
        return _told(503, f"expected to write to the journal, got: {error}; nothing was accepted, mend that", 10)

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> JSONResponse:
        return _told(500, f"expected no {type(error).__name__} here, got one: a fault of ours; see the server's output")


def _refusal(error: RefusedError) -> JSONResponse:
    return _told(error.status, str(error), error.retry)


def _told(status: int, sentence: str, retry: int | None = None) -> JSONResponse:
    headers = {} if retry is None else {"Retry-After": str(retry)}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status in UNREAD:
        headers["Connection"] = "close"
    return JSONResponse({"error": sentence}, status, headers)
