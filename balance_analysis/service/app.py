"""Serve the interface's two operations and the explorer as a web application over an archive."""

from __future__ import annotations

import ipaddress
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import anyio
import msgspec
import pyarrow as pa
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from balance_analysis import __version__
from balance_analysis.analysis.steps import in_one_thread
from balance_analysis.archive.manifest import read_manifest
from balance_analysis.archive.sidecars import read_limits
from balance_analysis.archive.snapshot import LruCache
from balance_analysis.errors import BalanceAnalysisError, SnapshotGoneError, logger
from balance_analysis.explorer.page import POLICY, static_files
from balance_analysis.explorer.source import KEPT_BYTES, UnknownAssetError, ViewTooLargeError
from balance_analysis.explorer.views import Explorer
from balance_analysis.explorer.wire import MOST_ACCOUNTS, NUMBERS, VIEWS, read_query
from balance_analysis.service import HOST
from balance_analysis.service.changes import answer_changes, evidence_headers
from balance_analysis.table.names import read_names
from balance_analysis.table.schema import ACCOUNT_TYPES, LIMIT_FLAGS, LIMIT_MOMENTS

if TYPE_CHECKING:
    from balance_analysis.archives import Archive
    from balance_analysis.table.names import AssetsLike, LabelsLike

CHANGES: Final = "/api/v2/balance/changes"
LIMITS: Final = "/api/v2/network/limits"

TIMEOUT: Final = 30.0
"""Maximum seconds per request, waiting included."""

PAGES: Final = 8
"""Maximum number of pages read concurrently."""

VIEWS_AT_ONCE: Final = 1
"""Maximum number of views computed concurrently: each takes a processor and up to 500 MB."""

MOST_WAITING: Final = 100
"""Maximum number of waiting requests per queue."""

_LOOPBACK: Final = ("localhost", "*.localhost", "127.0.0.1", "[::1]")
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@*]+")
_EXPOSED: Final = ("X-Incomplete", "X-Block-Height", "X-Block-Timestamp", "X-Origins")

_GRPC_ERRORS: Final = {
    400: (3, "InvalidArgument"),
    404: (5, "NotFound"),
    405: (12, "Unimplemented"),
    409: (10, "Aborted"),
    416: (11, "OutOfRange"),
    503: (14, "Unavailable"),
    504: (4, "DeadlineExceeded"),
}
"""The gRPC code and name of each HTTP status."""

_GONE: Final = "the archive has changed and this state is gone: ask /explore/about for the new one"
_INTERNAL: Final = (13, "Internal")
_SOON: Final = {"Retry-After": "1"}
_DETAIL: Final = "type.googleapis.com/vega.ErrorDetail"
"""The type of a node's error details: parsers of `google.rpc.Status` accept only a URL."""


def create_app(
    archive: Archive,
    *,
    timeout: float = TIMEOUT,
    host: str = HOST,
    allow_origins: Sequence[str] | None = None,
    assets: AssetsLike | None = None,
    labels: LabelsLike | None = None,
) -> Starlette:
    """Return an application that serves an archive.

    It answers as a node does, with cursors that lose no row. If an answer may lack rows, its header
    `X-Incomplete` lists the stretches concerned, as `start-end` in nanoseconds. Rows that an export
    adds are served as soon as they are in the archive.

    Parameters
    ----------
    archive
        The archive to serve.
    timeout
        Maximum seconds per request, waiting included; longer ones are refused with 504.
    host
        The address that the application will listen on. On loopback it answers only requests whose
        `Host` is loopback or an allowed origin, so that other sites' pages can't read the archive.
        Beyond loopback, put a reverse proxy in front that limits rates.
    allow_origins
        Origins, such as `https://example.org`, whose pages may read the answers; `*` for all. By
        default none on loopback, and all elsewhere.
    assets, labels
        Names for the explorer, as `read_assets` and `read_labels` take them, besides those that the
        archive keeps.

    Raises
    ------
    ArchiveError
        If the archive doesn't exist or is damaged.
    ValueError
        If an origin is malformed.
    """
    is_private = is_loopback(host)
    origins = [*allow_origins] if allow_origins else [] if is_private else ["*"]
    names = [urlsplit(origin).hostname or "" for origin in origins]
    hosts = ["*"] if not is_private or "*" in origins else [*_LOOPBACK, host, *names]
    archive.status(count_accounts=False)
    cache = LruCache(KEPT_BYTES)
    explorer = Explorer(archive, cache, read_names(assets, labels))
    pages, views = _Queue(PAGES), _Queue(VIEWS_AT_ONCE)

    async def changes(request: Request) -> Response:
        work = partial(answer_changes, archive.store, cache, request.query_params.multi_items())
        return await _in_time(work, pages, timeout)

    async def view(request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]
        work = partial(_view, explorer, name, request.query_params.multi_items())
        # Every open page polls for the archive's version.
        return await _in_time(work, pages if name == "version" else views, timeout)

    routes: dict[str, Callable[[Request], object]] = {
        CHANGES: changes,
        LIMITS: lambda _: _limits(archive),
        "/openapi.json": lambda _: JSONResponse(describe()),
        "/health": lambda _: JSONResponse(_health(archive)),
        **{f"{VIEWS_AT}/{name}": view for name in VIEWS},
        **{path: partial(_static, *file) for path, file in static_files().items()},
    }
    app = Starlette(
        routes=[Route(path, answer) for path, answer in routes.items()],
        middleware=[
            # A page that reaches this host by DNS rebinding still sends its own name.
            Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False),
            *_sharing(origins),
            # The fastest level: answers are so repetitive that slower levels save little.
            Middleware(GZipMiddleware, compresslevel=1),
        ],
        exception_handlers={
            HTTPException: _refuse,
            UnknownAssetError: _refusing(404),
            ViewTooLargeError: _refusing(416),
            BalanceAnalysisError: _unreadable,
            OSError: _unreadable,
            Exception: _refusing(500, "unexpected error: see the service's log"),
        },
    )
    app.router.redirect_slashes = False
    return app


def is_loopback(host: str) -> bool:
    """Return whether a name or address is a loopback one."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")


def _sharing(origins: list[str]) -> Iterator[Middleware]:
    """Yield the middleware that lets these origins' pages read answers; nothing without origins."""
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r} is not an origin: give one like https://example.org or *")
    if origins:
        rules: dict[str, Any] = {"allow_methods": ("GET", "HEAD"), "expose_headers": _EXPOSED}
        yield Middleware(CORSMiddleware, allow_origins=origins, allow_headers=["*"], **rules)


class _Queue:
    """A limit on concurrent requests, and on waiting ones."""

    def __init__(self, at_once: int) -> None:
        self.limiter = anyio.CapacityLimiter(at_once)
        self.places = anyio.Semaphore(at_once + MOST_WAITING)


async def _in_time(
    work: Callable[[Callable[[], None]], Response], queue: _Queue, seconds: float
) -> Response:
    """Wait for a place in a queue, and return a function's result from a thread.

    `work` receives a function to call now and then, which raises once the time is over.

    Raises
    ------
    HTTPException
        If too many requests wait, or this one takes too long.
    """
    try:
        queue.places.acquire_nowait()
    except anyio.WouldBlock as error:
        raise HTTPException(503, "too many requests are waiting", _SOON) from error
    deadline = time.monotonic() + seconds
    late = HTTPException(504, "the query took too long: ask for a shorter range or fewer rows")

    def check() -> None:
        if time.monotonic() > deadline:
            raise late

    try:
        with anyio.fail_after(seconds):
            return await run_sync(work, check, limiter=queue.limiter, abandon_on_cancel=True)
    except TimeoutError as error:
        raise late from error
    finally:
        queue.places.release()


def _view(
    explorer: Explorer, view: str, items: Sequence[tuple[str, str]], check: Callable[[], None]
) -> Response:
    """Return one of the explorer's views."""
    try:
        query = read_query(view, items)
    except ValueError as error:
        raise HTTPException(400, str(error)) from error
    try:
        check()
        with in_one_thread():  # leave the other processors to pages
            content = explorer.encode(view, query, check)
    except SnapshotGoneError as error:
        raise HTTPException(409, _GONE) from error
    finally:
        pa.default_memory_pool().release_unused()
    return Response(content, media_type="application/json")


def _static(content: bytes, media_type: str, _request: Request) -> Response:
    """Return a static file; browsers revalidate it, since releases change it."""
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
    return Response(content, media_type=media_type, headers=headers)


def _limits(archive: Archive) -> Response:
    """Return the limits, with dates as strings of nanoseconds since 1970, or `"0"` if not set.

    Fields that the interface document doesn't list keep their own names. The time and source of the
    limits aren't part of the interface and are left out.
    """
    evidence, rows = read_manifest(archive.store).evidence, read_limits(archive.store)
    if not rows.num_rows:
        raise HTTPException(404, "the archive holds no network limits")
    body = msgspec.json.encode({"limits": _fields(rows.slice(rows.num_rows - 1))})
    return Response(body, media_type="application/json", headers=evidence_headers(evidence))


def _fields(row: pa.Table) -> dict[str, Any]:
    known = {_camel(name): row[name][0].as_py() for name in LIMIT_FLAGS}
    known |= {_camel(x): str(row[x].cast(pa.int64())[0].as_py() or 0) for x in LIMIT_MOMENTS}
    extra: dict[str, Any] = json.loads(row["extra"][0].as_py() or "{}")
    return known | extra | known


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return "".join([first, *map(str.capitalize, others)])


def _health(archive: Archive) -> dict[str, object]:
    status = archive.status(count_accounts=False)
    age = status.age
    return {
        "status": "ok",
        "coverage_start": status.complete[0][0].isoformat() if status.complete else None,
        "coverage_end": status.complete[-1][1].isoformat() if status.complete else None,
        "age_seconds": None if age is None else age.total_seconds(),
        "missing": len(status.missing),
        "unproven": len(status.unproven),
        "rows": status.rows,
    }


def _refuse(_request: Request, error: Any) -> Response:  # noqa: ANN401 - an HTTPException
    """Return an error as a node does, with the useful text in `details[0].inner`."""
    code, name = _GRPC_ERRORS.get(error.status_code, _INTERNAL)
    message = f"{name} error"
    detail = {"@type": _DETAIL, "code": code, "message": message, "inner": error.detail}
    body = {"code": code, "message": message, "details": [detail]}
    return JSONResponse(body, error.status_code, headers=error.headers)


def _unreadable(request: Request, error: Exception) -> Response:
    """Refuse a request while the archive can't be read; the log has the cause."""
    logger.warning("%s can't be answered: %s", request.url.path, error)
    text = "the archive can't be read now: try again later; the service's log has the cause"
    return _refuse(request, HTTPException(503, text, _SOON))


def _refusing(status: int, text: str = "") -> Callable[[Request, Exception], Response]:
    """Return a handler that refuses a request after an error, by default with the error's text."""
    return lambda request, error: _refuse(request, HTTPException(status, text or str(error)))


VIEWS_AT: Final = "/explore"
_DOCUMENT: Final = Path(__file__).with_name("openapi.json")


def describe() -> dict[str, Any]:
    """Return a new copy of the OpenAPI document."""
    document: dict[str, Any] = json.loads(_DOCUMENT.read_text(encoding="utf-8"))
    document["info"]["version"] = __version__
    document["components"]["schemas"]["AccountType"]["enum"] = list(ACCOUNT_TYPES)
    document["paths"] |= {f"{VIEWS_AT}/{name}": {"get": _operation(name)} for name in VIEWS}
    return document


def _operation(name: str) -> dict[str, Any]:
    about, parameters = VIEWS[name]
    answer = {"application/json": {"schema": {"$ref": "#/components/schemas/View"}}}
    return {
        "operationId": f"explore{name.capitalize()}",
        "summary": f"Explore: {name}",
        "description": about,
        "parameters": [{"name": x, "in": "query", "schema": _schema(x)} for x in parameters],
        "responses": {
            "200": {"description": "The view.", "content": answer},
            "default": {"$ref": "#/components/responses/Error"},
        },
    }


def _schema(parameter: str) -> dict[str, Any]:
    if parameter in NUMBERS:
        minimum, maximum = NUMBERS[parameter]
        return {"type": "integer", "minimum": minimum, "maximum": maximum}
    if parameter == "account":
        key = {"type": "string", "pattern": r"^[^|]*\|[^|]*\|[^|]*\|[^|]*$"}
        return {"type": "array", "items": key, "maxItems": MOST_ACCOUNTS}
    return {"type": "string", **({"enum": ["party"]} if parameter == "by" else {})}
