"""The two operations of the interface, as a web application over an archive.

This module knows the paths; `changes` answers, `guards` stands in front of them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from balance_analysis.archive.network import read_limits
from balance_analysis.archive.scan import LruCache
from balance_analysis.archive.snapshot import with_snapshot
from balance_analysis.errors import ArchiveError
from balance_analysis.explorer.page import POLICY, static_files
from balance_analysis.explorer.query import VIEWS
from balance_analysis.explorer.source import KEPT_BYTES, ArchiveSource
from balance_analysis.explorer.views import Explorer
from balance_analysis.service.changes import Changes
from balance_analysis.service.coverage import block_headers, unavailable
from balance_analysis.service.errors import Code, RefusedError
from balance_analysis.service.explore import answer_view
from balance_analysis.service.guards import (
    MEDIA_TYPE,
    MOST_AT_ONCE,
    RATE_HEADERS,
    Guards,
    Indented,
    Metrics,
    RateLimit,
    RateLimiter,
    hosts_of,
    is_loopback,
)
from balance_analysis.service.openapi import CHANGES, LIMITS, VIEWS_AT, describe, page
from balance_analysis.service.turns import Turns

if TYPE_CHECKING:
    from balance_analysis.archive.status import ArchiveStatus
    from balance_analysis.archives import Archive


TIMEOUT: Final = 30.0

AT_ONCE: Final = 8
"""Pages that are looked for at the same time; who watches is answered all the while."""

VIEWS_AT_ONCE: Final = 1
"""Views that are worked on at the same time: each takes a processor and up to 500 MB."""

MOST_VIEWS: Final = 32
"""Views that are worked on or wait."""

READING: Final = 4
"""Threads that read files of one page side by side."""

METHODS: Final = ("GET", "HEAD")
EXPOSED: Final = ("Warning", "X-Incomplete", "X-Block-Height", "X-Block-Timestamp", *RATE_HEADERS)


def create_app(
    archive: Archive,
    *,
    strict_coverage: bool = False,
    timeout: float = TIMEOUT,
    rate_limit: RateLimit | None = None,
    host: str = "127.0.0.1",
    allow_origins: Sequence[str] | None = None,
) -> Starlette:
    """Return an application that serves what an archive holds.

    It answers as a node does, with cursors that lose no row. Where a request reaches beyond what
    the archive is known to hold, the answer has what there is and a `Warning` that says so. What
    exports add meanwhile is served from then on.

    Parameters
    ----------
    archive
        What to serve.
    strict_coverage
        Refuse, with 416, what reaches beyond the coverage.
    timeout
        Seconds that a question may take, with the time that it waits; then it is refused, with 504.
    rate_limit
        What an address may send; `None` for any number of requests.
    host
        The address that it will listen on. On loopback it answers only requests whose `Host` is of
        loopback, or of an allowed origin: no page from elsewhere reads the archive.
    allow_origins
        Origins, such as `https://example.org`, whose pages may read what it answers; `*` for all.
        By default none where it listens on loopback, and all elsewhere.

    Raises
    ------
    ArchiveError
        If there is no archive, or it is damaged.
    ValueError
        If an origin is none.
    """
    is_private = is_loopback(host)
    origins = [*allow_origins] if allow_origins else [] if is_private else ["*"]
    named = hosts_of(origins)
    archive.status(count_accounts=False)
    cache = LruCache(KEPT_BYTES)
    changes = Changes(archive, strict_coverage=strict_coverage, cache=cache)
    metrics, explorer = Metrics(), Explorer(ArchiveSource(archive, cache=cache), cache=cache)
    pages, views = Turns(timeout, most=MOST_AT_ONCE), Turns(timeout, most=MOST_VIEWS)

    def find_page(
        items: list[tuple[str, str]], pool: Executor | None, check: Callable[[], None]
    ) -> Response:
        answer = changes.answer(items, check=check, pool=pool)
        # Text can't hold this: its quotes are escaped.
        metrics.rows.inc(bytes(answer.body).count(b'"cursor":'))
        return answer

    async def balance_changes(request: Request) -> Response:
        items = request.query_params.multi_items()
        find = partial(find_page, items, _threads(request, "reading"))
        return await pages.answer(find, request.receive, _threads(request, "pages"))

    async def view(request: Request) -> Response:
        name, items = request.url.path.rpartition("/")[2], request.query_params.multi_items()
        find = partial(answer_view, explorer, name, items)
        # Which state it is, each open page asks now and then.
        turns, threads = (pages, "pages") if name == "version" else (views, "views")
        return await turns.answer(find, request.receive, _threads(request, threads))

    def figures(_request: Request) -> Response:
        try:
            status = _status(archive)
        except RefusedError:
            status = None
        return Response(metrics.text(status), media_type=MEDIA_TYPE)

    def docs(_request: Request) -> Response:
        html, policy = page()
        return HTMLResponse(html, headers={"Content-Security-Policy": policy})

    routes: dict[str, Callable[[Request], object]] = {
        CHANGES: balance_changes,
        LIMITS: lambda _: _limits(archive),
        "/openapi.json": lambda _: JSONResponse(describe()),
        "/docs": docs,
        "/health": lambda _: JSONResponse(_health(_status(archive))),
        "/metrics": figures,
        **{f"{VIEWS_AT}/{name}": view for name in VIEWS},
        **{path: partial(_static, *file) for path, file in static_files().items()},
    }
    limiter = None if rate_limit is None else RateLimiter(rate_limit)
    hosts = named if is_private and "*" not in origins else None
    app = Starlette(
        routes=[Route(path, answer) for path, answer in routes.items()],
        middleware=[
            *_sharing(origins),
            Middleware(Guards, metrics=metrics, limiter=limiter, paths=routes, hosts=hosts),
            # The fastest level: cursors make answers so repetitive that higher ones save little.
            Middleware(GZipMiddleware, compresslevel=1),
            Middleware(Indented),
        ],
        exception_handlers={HTTPException: _refuse},
        lifespan=_reading,
    )
    app.router.redirect_slashes = False
    return app


def _sharing(origins: list[str]) -> Iterator[Middleware]:
    """Yield what tells browsers the origins whose pages may read answers, if there are any."""
    if origins:
        yield Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=METHODS,
            allow_headers=["*"],
            expose_headers=EXPOSED,
        )


@asynccontextmanager
async def _reading(_app: Starlette) -> AsyncIterator[dict[str, object]]:
    """Keep the threads that a server has while it runs."""
    sizes = {"reading": READING, "pages": AT_ONCE, "views": VIEWS_AT_ONCE}
    with ExitStack() as stack:
        yield {name: stack.enter_context(ThreadPoolExecutor(sizes[name])) for name in sizes}


def _threads(request: Request, name: str) -> Executor | None:
    """Return threads of the server; mounted in another application, this one has none."""
    found: Executor | None = getattr(request.state, name, None)
    return found


def _static(content: bytes, media_type: str, _request: Request) -> Response:
    """Return a file of the page, which a browser asks for anew: a release has others."""
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
    return Response(content, media_type=media_type, headers=headers)


def _limits(archive: Archive) -> Response:
    """Return the limits: dates as nanoseconds since 1970 in a string, `"0"` where not set.

    Fields that the interface document doesn't list stand under their own names. When and where the
    limits were fetched is not part of the interface and is left out.

    Raises
    ------
    RefusedError
        If the archive holds none, or can't be read.
    """
    try:
        snapshot, rows = with_snapshot(archive.store, lambda now: (now, read_limits(now)))
    except (ArchiveError, OSError) as error:
        raise unavailable(error) from error
    if not rows.num_rows:
        raise RefusedError("the archive holds no network limits", code=Code.NOT_FOUND)
    body = msgspec.json.encode({"limits": _fields(rows.slice(rows.num_rows - 1))})
    return Response(body, media_type="application/json", headers=block_headers(snapshot))


def _fields(row: pa.Table) -> dict[str, Any]:
    flags = [field.name for field in row.schema if pa.types.is_boolean(field.type)]
    dates = [name for name in row.column_names if name.endswith("_from")]
    known = {_camel(name): row[name][0].as_py() for name in flags}
    known |= {_camel(name): str(_nanoseconds(row[name])) for name in dates}
    extra: dict[str, Any] = json.loads(row["extra"][0].as_py() or "{}")
    return known | extra | known


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return "".join([first, *map(str.capitalize, others)])


def _nanoseconds(dates: pa.ChunkedArray) -> int:
    return dates.cast(pa.int64())[0].as_py() or 0


def _status(archive: Archive) -> ArchiveStatus:
    try:
        return archive.status(count_accounts=False)
    except (ArchiveError, OSError) as error:
        raise RefusedError("the archive can't be read now", code=Code.UNAVAILABLE) from error


def _health(status: ArchiveStatus) -> dict[str, object]:
    age = status.age
    return {
        "status": "ok",
        "coverage_start": status.complete[0][0].isoformat() if status.complete else None,
        "coverage_end": status.complete[-1][1].isoformat() if status.complete else None,
        "age_seconds": None if age is None else age.total_seconds(),
        "gaps": len(status.gaps),
        "rows": status.rows,
    }


async def _refuse(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        text = f"{request.method} is not supported: use GET"
        answer = RefusedError(text, code=Code.UNIMPLEMENTED).response()
        answer.headers["Allow"] = ", ".join(METHODS)
        return answer
    return RefusedError(f"there is nothing at {request.url.path}", code=Code.NOT_FOUND).response()
