"""The service over HTTP: its routes. What every request passes before them is the door."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib import resources
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, StreamingResponse
from starlette.datastructures import UploadFile

from s6mod._version import __version__
from s6mod.config import LARGEST
from s6mod.errors import InputError
from s6mod.serve import decode
from s6mod.serve.decode import Sent
from s6mod.serve.door import Door, tell_refusals
from s6mod.serve.metrics import Counts
from s6mod.serve.reference import reference
from s6mod.serve.service import Service
from s6mod.serve.settings import Limits, RefusedError
from s6mod.serve.writer import Writer

WORKERS = 4  # threads that predict, and as many for all else: who predicts waits for no disk
WATCHERS = 32  # pages that are live at once
NPY = ("application/x-npy", "application/octet-stream")
POLICY = (  # of the page: nothing comes from elsewhere, and nothing goes there
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
MOVING = {"seconds": None, "published": None}  # of the status, also when nothing happens
TEXT = 2**20  # bytes of one field of a form that is no file

_TEXT, _NUMBER, _FILE = {"type": "string"}, {"type": "integer"}, {"type": "string", "format": "binary"}
_ID = {"id": _TEXT}
_FILES = {"images": {"type": "array", "items": _FILE}}
_IMAGES = {"images": {"type": "array", "items": {}, "description": "nested lists of numbers, or files in base64"}}
_IDS = {"predictions": {"type": "array", "items": _TEXT, "description": "ids, in place of images"}}
_LABELS = {"labels": {"type": "array", "items": {"anyOf": [_TEXT, _NUMBER]}}} | _ID
_ERROR = {"type": "object", "properties": {"error": _TEXT}, "required": ["error"]}
_REFUSAL = {"description": "refused, in one sentence", "content": {"application/json": {"schema": _ERROR}}}


def _body(fields: dict[str, Any], form: dict[str, Any] | None = None) -> dict[str, Any]:
    """What a body may be, for OpenAPI: JSON with these fields; where images are sent, also a form or one file."""
    kinds: dict[str, Any] = {"application/json": {"type": "object", "properties": fields}}
    if form is not None:
        kinds["multipart/form-data"] = {"type": "object", "properties": form}
        kinds["application/x-npy"] = kinds["image/*"] = _FILE
    content = {kind: {"schema": schema} for kind, schema in kinds.items()}
    return {"requestBody": {"required": form is not None, "content": content}}


def application(service: Service, token: str | None = None) -> FastAPI:
    """The routes of a service, which starts and ends with them; with a ``token``, most ask for it, see ``door``."""
    counts = Counts()
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
        responses={"4XX": _REFUSAL}, redirect_slashes=False,
    )  # fmt: skip
    page = (resources.files("s6mod.serve") / "page.html").read_text(encoding="utf-8")
    busy: Counter[ThreadPoolExecutor] = Counter()
    watching = 0

    async def work(act: Callable[..., Any], *words: Any) -> Any:
        """In another thread, so that nobody waits for it but who asked; not more than a few at once."""
        threads = predicting if act == service.predict else telling
        if busy[threads] >= service.limits.asking:
            raise RefusedError(
                429, f"expected at most {service.limits.asking} requests at once, got more; send it again", 1
            )
        busy[threads] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, act, *words)
        finally:
            busy[threads] -= 1

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def show() -> HTMLResponse:
        return HTMLResponse(page, headers={"Content-Security-Policy": POLICY})

    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def docs() -> str:
        return reference(app.openapi())

    def writer() -> Writer:
        if isinstance(service, Writer):
            return service
        raise RefusedError(403, "expected the service that learns, got one that follows it; ask the writer")

    @app.post("/predict", openapi_extra=_body(_IMAGES, _FILES))
    async def predict(request: Request, top: Annotated[int, Query()] = 1) -> Any:
        """Labels and probabilities of images, best first: `top` for each. With test_then_train they are calibrated."""
        return await work(service.predict, await _sent(request, service.limits, "top"), top)

    @app.post("/learn", openapi_extra=_body(_IMAGES | _IDS | _LABELS, _FILES | _LABELS))
    async def learn(
        request: Request,
        labels: Annotated[list[str] | None, Query(description="with npy or one image: names, or a JSON list")] = None,
        id: Annotated[str | None, Query(description="with npy or one image: of this batch")] = None,
    ) -> Any:
        """Accept a batch. It is on disk when the answer comes; sent again under its id, it gets the first answer."""
        return await work(writer().learn, await _sent(request, service.limits, "labels", "id"))

    @app.get("/learn/{id:path}")
    async def batch(id: str) -> Any:
        """What has become of a batch: waiting, learned, unlearned or refused."""
        return await work(writer().batch, id)

    @app.get("/status")
    async def status() -> Any:
        """How it goes: batches, accuracy before learning, what waits, what is saved."""
        return await work(service.status)

    @app.get("/classes")
    async def classes() -> Any:
        """The classes in order of arrival, with images learned, images in memory and accuracy."""
        return {"classes": service.shown.classes}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def prometheus() -> str:
        """Counts and times, as Prometheus reads them."""
        return counts.text(await work(service.status))

    @app.post("/snapshot", openapi_extra=_body(_ID))
    async def snapshot(request: Request) -> Any:
        """Keep the state after all that was accepted so far, to go back to."""
        asked = decode.fields(await request.body() or b"{}")
        return await work(writer().take_snapshot, asked["id"])

    @app.get("/snapshots")
    async def snapshots() -> Any:
        """What one can go back to, and the rollbacks there were."""
        return await work(writer().snapshots)

    @app.post("/rollback", openapi_extra=_body({"snapshot": _NUMBER} | _ID))
    async def rollback(request: Request) -> Any:
        """Go back to a snapshot. Batches accepted after it stay in the journal, marked as unlearned."""
        asked = decode.fields(await request.body() or b"{}", "snapshot")
        number = asked.get("snapshot")
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= LARGEST:
            raise InputError('expected the number of a snapshot, got none; send {"snapshot": 12}, see GET /snapshots')
        return await work(writer().roll_back, asked["id"], number)

    @app.get("/memory")
    async def memory() -> Any:
        """Some images that the memory holds, by class."""
        return await work(service.memory)

    @app.get("/predictions")
    async def predictions() -> Any:
        """The latest predictions with their images, newest first."""
        return await work(service.latest)

    @app.get("/healthz")
    async def health() -> JSONResponse:
        """Whether it learns (a writer) or answers (a reader): 200, else 503."""
        failure = service.failure
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
            while not service.stopping:
                now = await asyncio.to_thread(service.live)
                text = json.dumps(now | {"status": now["status"] | MOVING})
                quiet = quiet + 1 if text == before else 0
                before = text
                if quiet % 15 == 0:  # seconds; a line now and then shows that somebody is there
                    yield f"data: {json.dumps(now)}\n\n"
                await asyncio.sleep(1)
        finally:
            watching -= 1

    tell_refusals(app)
    paths = frozenset(path for route in app.routes if (path := getattr(route, "path", None)))
    app.add_middleware(Door, service=service, token=token, counts=counts, paths=paths)
    return app


async def _sent(request: Request, limits: Limits, *known: str) -> Sent:
    """What a request brings, before its images are decoded; ``known``: what its address may say."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    query = request.query_params
    if kind in ("application/json", "multipart/form-data") and {"labels", "id"} & set(query):
        raise InputError("expected labels and id in the body, got some in the address; send them with the images")
    if strange := query.keys() - {*known, "labels", "id"}:
        raise InputError(
            f"expected nothing in the address but {' and '.join(known)}, got {min(strange)[:40]!r}; leave it out"
        )
    if kind == "application/json":
        return await asyncio.to_thread(decode.from_json, await request.body())
    if kind == "multipart/form-data":
        return await _of_form(request, limits.images + 1)
    if kind in NPY or kind.startswith("image/"):
        body = await request.body()
        return decode.from_files([("the body", body)] if body else [], query.getlist("labels"), query.get("id"))
    raise RefusedError(
        415,
        f"expected multipart/form-data, application/json, application/x-npy or image/*, got {kind[:40]!r}; "
        "say in Content-Type what it is",
    )


async def _of_form(request: Request, most: int) -> Sent:
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
    return decode.from_files(files, texts["labels"], next(reversed(texts["id"]), None))
