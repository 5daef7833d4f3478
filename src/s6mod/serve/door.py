"""The door that every request passes: who may come in, how much may be brought, and how refusals are told."""

import asyncio
import hmac
import ipaddress
import sqlite3
import time
from dataclasses import dataclass

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
PATIENCE = 60.0  # seconds in which a request must have come
UNREAD = (401, 403, 408, 413)  # answers after which the rest of a request is not read


@dataclass
class Door:
    """Who may come in, how much may be brought, and who is counted."""

    app: ASGIApp
    service: Service
    token: str | None
    counts: Counts
    paths: frozenset[str]  # that are counted by name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, from its first byte to its answer."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
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
            self._check_length(taken)
            return message

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}  # the server leaves out the body
        headers, path = Headers(scope=scope), scope["path"].removeprefix(scope.get("root_path", ""))
        try:
            self._check(headers, path)
            await self.app(scope, limited, noted)
        except RefusedError as error:
            await _told(error)(scope, receive, noted)
        except ClientDisconnect:  # nobody is there to be told
            status = 499
        except asyncio.CancelledError:  # by uvicorn, of what has not come, or is not read, when the service ends
            if not self.service.stopping:
                raise
            if status == 500:  # nothing was answered yet
                ending = RefusedError(503, "expected a request before the end, got a part; send it again", 5)
                await _told(ending)(scope, receive, noted)
        finally:
            known = path if path in self.paths else "/learn/{id}" if path.startswith("/learn/") else "other"
            if known != "/events":
                self.counts.count(known, status, time.perf_counter() - begin)

    def _check(self, headers: Headers, path: str) -> None:
        if self.token is None:
            # A page of another site, open in a browser of this machine, could send requests here.
            host, origin = headers.get("host", ""), headers.get("origin")
            name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
            if not is_loopback(name.strip("[]")) or (origin is not None and origin.partition("://")[2] != host):
                raise RefusedError(
                    403, "expected a request of this machine, got one of another; set a token for others"
                )
        elif path not in OPEN and not hmac.compare_digest(
            headers.get("authorization", "").encode(), f"Bearer {self.token}".encode()
        ):
            raise RefusedError(
                401, "expected the service's token, got none or another; send Authorization: Bearer TOKEN"
            )
        length = headers.get("content-length", "")
        self._check_length(int(length) if length.isdecimal() else 0)

    def _check_length(self, length: int) -> None:
        if length > (most := self.service.limits.body):
            raise RefusedError(413, f"expected at most {most:,} bytes, got more; send fewer or smaller images")


def is_loopback(host: str) -> bool:
    """Whether a name or address is this machine's alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def tell_refusals(app: FastAPI) -> None:
    """Whatever goes wrong in a route is told as one sentence, with a status of its own."""

    async def tell(request: Request, error: Exception) -> JSONResponse:
        answer = _told(_as_refusal(request, error))
        answer.headers.update(getattr(error, "headers", None) or {})  # which verbs there are, of a wrong one
        return answer

    for kind in (S6modError, HTTPException, RequestValidationError, sqlite3.Error, Exception):
        app.add_exception_handler(kind, tell)


def _as_refusal(request: Request, error: Exception) -> RefusedError:
    match error:
        case RefusedError():
            return error
        case S6modError():
            return RefusedError(400, str(error))
        case HTTPException(status_code=404):
            return RefusedError(404, f"expected a path that GET /docs lists, got {request.url.path[:100]}; check it")
        case HTTPException(status_code=405, headers={"Allow": allowed}):
            return RefusedError(405, f"expected {allowed} for {request.url.path}, got {request.method}; send that")
        case HTTPException(status_code=status):
            return RefusedError(status, f"expected a request that can be read, got: {error.detail}; check it")
        case RequestValidationError():
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"][1:]))
            return RefusedError(400, f"expected a {where} that fits, got: {first['msg']}; see GET /docs")
        case sqlite3.Error():
            return RefusedError(
                503, f"expected to write to the journal, got: {error}; nothing was accepted, mend that", 10
            )
    name = type(error).__name__
    return RefusedError(500, f"expected no {name} here, got one: a fault of ours; see the server's output")


def _told(error: RefusedError) -> JSONResponse:
    headers = {} if error.retry is None else {"Retry-After": str(error.retry)}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.status in UNREAD:
        headers["Connection"] = "close"
    return JSONResponse({"error": str(error)}, error.status, headers)
