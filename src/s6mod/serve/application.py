"""The service over HTTP: routes, the door that every request passes, and how refusals are told."""

import asyncio
import hmac
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib import resources
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, StreamingResponse
from starlette.datastructures import Headers, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from s6mod._version import __version__
from s6mod.errors import InputError, S6modError
from s6mod.serve import decode
from s6mod.serve.decode import Sent
from s6mod.serve.metrics import Metrics
from s6mod.serve.reference import reference
from s6mod.serve.service import Service
from s6mod.serve.settings import RefusedError, too_much

WORKERS = 4  # threads that predict, and as many for all else: who predicts waits for no disk
WATCHERS = 32  # pages that are live at once
OPEN = ("/", "/healthz", "/docs", "/openapi.json")  # paths that need no token: they tell nothing of the learner
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
NPY = ("application/x-npy", "application/octet-stream")
POLICY = (  # of the page: nothing comes from elsewhere, and nothing goes there
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PATIENCE = 60.0  # seconds in which a request must have come
UNREAD = (401, 403, 408, 413)  # answers after which the rest of a request is not read
TEXT = 2**20  # bytes of one field of a form that is no file

_IMAGES = {"type": "array", "items": {}, "description": "nested lists of numbers, or image files in base64"}
_LABELS = {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}
_FILES = {"type": "array", "items": {"type": "string", "format": "binary"}}


def _body(labels: bool) -> dict[str, Any]:
    """The forms of a request that sends images, for OpenAPI."""
    own: dict[str, Any] = {"labels": _LABELS, "id": {"type": "string"}} if labels else {}
    asked = {"predictions": {"type": "array", "items": {"type": "string"}, "description": "ids, in place of images"}}
    forms = {
        "multipart/form-data": {"images": _FILES, **own},
        "application/json": {"images": _IMAGES, **own, **(asked if labels else {})},
    }
    content: dict[str, Any] = {
        kind: {"schema": {"type": "object", "properties": properties}} for kind, properties in forms.items()
    }
    for kind in ("application/x-npy", "image/*"):
        content[kind] = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": content}}


def application(service: Service, token: str | None = None) -> FastAPI:
    """The routes of a service, which starts and ends with them; with a ``token``, all but ``OPEN`` ask for it."""
    metrics = Metrics()
    predicting, telling = (ThreadPoolExecutor(WORKERS, name) for name in ("predict", "tell"))

    @asynccontextmanager
    async def until_the_end(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        for threads in (predicting, telling):
            threads.shutdown(cancel_futures=True)
        await asyncio.to_thread(service.stop)

    app = FastAPI(
        title="s6mod", version=__version__, docs_url=None, redoc_url=None, lifespan=until_the_end,
        description="A learner that predicts while it learns. What it has accepted is never lost.",
    )  # fmt: skip
    page = (resources.files("s6mod.serve") / "page.html").read_text(encoding="utf-8")
    busy = watching = 0

    async def work(act: Callable[..., Any], *words: Any) -> Any:
        """In another thread, so that nobody waits for it but who asked; not more than a few at once."""
        nonlocal busy
        if busy >= service.limits.asking:
            raise RefusedError(
                429, f"expected at most {service.limits.asking} requests at once, got more; send it again", 1
            )
        busy += 1
        try:
            threads = predicting if act == service.predict else telling
            return await asyncio.get_running_loop().run_in_executor(threads, act, *words)
        finally:
            busy -= 1

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def show() -> HTMLResponse:
        return HTMLResponse(page, headers={"Content-Security-Policy": POLICY})

    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def docs() -> str:
        return reference(app.openapi())

    @app.post("/predict", openapi_extra=_body(labels=False))
    async def predict(request: Request, top: Annotated[int, Query()] = 1) -> Any:
        """Labels and probabilities of images, best first: `top` for each. Probabilities are not calibrated."""
        return await work(service.predict, await _sent(request, service), top)

    @app.post("/learn", openapi_extra=_body(labels=True))
    async def learn(
        request: Request,
        labels: Annotated[list[str] | None, Query(description="with npy or one image: names, or a JSON list")] = None,
        id: Annotated[str | None, Query(description="with npy or one image: of this batch")] = None,
    ) -> Any:
        """Accept a batch. It is on disk when the answer comes; sent again under its id, it gets the first answer."""
        return await work(service.learn, await _sent(request, service))

    @app.get("/learn/{id:path}")
    async def batch(id: str) -> Any:
        """What has become of a batch: waiting, learned, unlearned or refused."""
        return await work(service.batch, id)

    @app.get("/status")
    async def status() -> Any:
        """How it goes: batches, accuracy before learning, what waits, what is saved."""
        return await work(service.status)

    @app.get("/classes")
    async def classes() -> Any:
        """The classes in order of arrival, with images learned, images in memory and accuracy."""
        return {"classes": service.host.shown.classes}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def prometheus() -> str:
        """Counts and times, as Prometheus reads them."""
        return metrics.text(await work(service.gauges))

    @app.post("/snapshot", openapi_extra=_object({"id": {"type": "string"}}))
    async def snapshot(request: Request) -> Any:
        """Keep the state after all that was accepted so far, to go back to."""
        asked = await _fields(request, ["id"])
        return await work(service.writer.take_snapshot, decode.id_of(asked.get("id")))

    @app.get("/snapshots")
    async def snapshots() -> Any:
        """What one can go back to, and the rollbacks there were."""
        return await work(service.snapshots)

    @app.post("/rollback", openapi_extra=_object({"snapshot": {"type": "integer"}, "id": {"type": "string"}}))
    async def rollback(request: Request) -> Any:
        """Go back to a snapshot. Batches accepted after it stay in the journal, marked as unlearned."""
        asked = await _fields(request, ["snapshot", "id"])
        number = asked.get("snapshot")
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**53:
            raise InputError('expected the number of a snapshot, got none; send {"snapshot": 12}, see GET /snapshots')
        return await work(service.writer.roll_back, decode.id_of(asked.get("id")), number)

    @app.get("/memory")
    async def memory() -> Any:
        """Some images that the memory holds, by class."""
        return {"images": await work(service.memory)}

    @app.get("/predictions")
    async def predictions() -> Any:
        """The latest predictions with their images, newest first."""
        return {"predictions": await work(service.latest)}

    @app.get("/healthz")
    async def health() -> JSONResponse:
        """Whether it learns (a writer) or answers (a reader): 200, else 503."""
        failure = service.host.failure
        return JSONResponse({"ok": failure is None, "why": failure}, 200 if failure is None else 503)

    @app.get("/events", response_class=StreamingResponse)
    async def events() -> StreamingResponse:
        """Status, curve and routing as server-sent events, whenever they change."""
        if watching >= WATCHERS:
            raise RefusedError(429, f"expected at most {WATCHERS} live pages, got more; close some", 10)
        return StreamingResponse(_stream(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def _stream() -> AsyncIterator[str]:
        nonlocal watching
        watching += 1
        before, quiet = "", 0
        try:
            while not service.host.stopping:
                now = await asyncio.to_thread(service.live)
                moving = {key: now["status"].pop(key) for key in ("seconds", "published")}
                text = json.dumps(now)
                quiet = 0 if text != before else quiet + 1
                if quiet % 15 == 0:  # seconds; a line now and then shows that somebody is there
                    now["status"] |= moving
                    yield f"data: {json.dumps(now)}\n\n"
                before = text
                await asyncio.sleep(1)
        finally:
            watching -= 1

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

    paths = frozenset(path for route in app.routes if (path := getattr(route, "path", None)))
    app.add_middleware(_Door, service=service, token=token, metrics=metrics, paths=paths)
    return app


class _Door:
    """Who may come in, how much may be brought, and who is counted."""

    def __init__(
        self, app: ASGIApp, service: Service, token: str | None, metrics: Metrics, paths: frozenset[str]
    ) -> None:
        self.app, self.service, self.token, self.metrics, self.paths = app, service, token, metrics, paths
        self.most = service.limits.body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
            if not self.service.host.stopping:
                raise
            if status == 500:  # nothing was answered yet
                ending = RefusedError(503, "expected a request before the end, got a part; send it again", 5)
                await _refusal(ending)(scope, receive, noted)
        finally:
            known = path if path in self.paths else "/learn/{id}" if path.startswith("/learn/") else "other"
            if known != "/events":
                self.metrics.count(known, status, time.perf_counter() - begin)

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
        return too_much(f"expected at most {self.most:,} bytes, got more; send fewer or smaller images")


async def _sent(request: Request, service: Service) -> Sent:
    """What a request brings, before it is decoded."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    query = request.query_params
    if kind in ("application/json", "multipart/form-data") and {"labels", "id"} & set(query):
        raise InputError("expected labels and id in the body, got some in the address; send them with the images")
    if kind == "application/json":
        return await asyncio.to_thread(decode.from_json, await request.body())
    if kind == "multipart/form-data":
        most = service.limits.images + 1
        async with request.form(max_files=most, max_fields=most + 8, max_part_size=TEXT) as form:
            files: list[tuple[str, bytes]] = []
            texts: dict[str, list[str]] = {"labels": [], "id": []}
            for name, each in form.multi_items():
                if name == "images" and isinstance(each, UploadFile):
                    files.append((each.filename or "a file", await each.read()))
                elif name in texts and isinstance(each, str):
                    texts[name].append(each)
                else:
                    raise InputError(
                        f"expected images as files, labels and id as texts, got {name[:40]!r}; leave it out or mend it"
                    )
            return decode.from_files(files, texts["labels"], texts["id"][-1] if texts["id"] else None)
    if kind in NPY or kind.startswith("image/"):
        body = await request.body()
        return decode.from_files([("the body", body)] if body else [], query.getlist("labels"), query.get("id"))
    raise RefusedError(
        415,
        f"expected multipart/form-data, application/json, application/x-npy or image/*, got {kind[:40]!r}; "
        "say in Content-Type what it is",
    )


async def _fields(request: Request, known: list[str]) -> dict[str, Any]:
    """A small JSON object, or nothing."""
    body = await request.body()
    return decode.fields(body, known) if body else {}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties}
    return {"requestBody": {"content": {"application/json": {"schema": schema}}}}


def _refusal(error: RefusedError) -> JSONResponse:
    return _told(error.status, str(error), error.retry)


def _told(status: int, sentence: str, retry: int | None = None) -> JSONResponse:
    headers = {} if retry is None else {"Retry-After": str(retry)}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status in UNREAD:
        headers["Connection"] = "close"
    return JSONResponse({"error": sentence}, status, headers)
