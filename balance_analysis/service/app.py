"""The two operations of the interface, as a web application over an archive.

This module knows the paths; `changes` answers, `guards` stands in front of them.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
import msgspec
import pyarrow as pa
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from balance_analysis.archive.cache import LruCache
from balance_analysis.archive.limits import read_limits
from balance_analysis.archive.snapshot import with_snapshot
from balance_analysis.errors import ArchiveError
from balance_analysis.explorer.page import POLICY, static_files
from balance_analysis.explorer.query import VIEWS
from balance_analysis.explorer.source import KEPT_BYTES, ArchiveSource
from balance_analysis.explorer.views import Explorer
from balance_analysis.service.changes import TIMEOUT, Changes, check_time
from balance_analysis.service.coverage import block_headers, unavailable
from balance_analysis.service.errors import Code, RefusedError
from balance_analysis.service.explore import answer_view
from balance_analysis.service.guards import (
    MEDIA_TYPE,
    RATE_HEADERS,
    Guards,
    Indented,
    Metrics,
    RateLimiter,
)
from balance_analysis.service.openapi import CHANGES, LIMITS, VIEWS_AT, describe, page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request

    from balance_analysis.archive.archive import Archive
    from balance_analysis.archive.status import ArchiveStatus
    from balance_analysis.service.guards import RateLimit

AT_ONCE: Final = 8
"""Pages that are looked for at the same time; who watches is answered all the while."""

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

    Raises
    ------
    ArchiveError
        If there is no archive, or it is damaged.
    """
    archive.status(count_accounts=False)
    cache = LruCache(KEPT_BYTES)
    changes = Changes(archive, strict_coverage=strict_coverage, timeout=timeout, cache=cache)
    metrics, explorer = Metrics(), Explorer(ArchiveSource(archive, cache=cache), cache=cache)

    def find_page(items: list[tuple[str, str]], asked_at: float, pool: Executor | None) -> Response:
        answer = changes.answer(items, asked_at=asked_at, pool=pool)
        # Text can't hold this: its quotes are escaped.
        metrics.rows.inc(bytes(answer.body).count(b'"cursor":'))
        return answer

    def find_view(items: list[tuple[str, str]], asked_at: float, view: str) -> Response:
        check_time(asked_at + timeout)
        return answer_view(explorer, view, items)

    async def in_turn(find: Callable[..., Response], request: Request, by: object) -> Response:
        items = request.query_params.multi_items()
        # Mounted in another application, this one has no state of its own.
        turns = getattr(request.state, "turns", None)
        return await anyio.to_thread.run_sync(find, items, time.monotonic(), by, limiter=turns)

    async def balance_changes(request: Request) -> Response:
        return await in_turn(find_page, request, getattr(request.state, "pool", None))

    async def view(request: Request) -> Response:
        return await in_turn(find_view, request, request.url.path.rpartition("/")[2])

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
    app = Starlette(
        routes=[Route(path, answer) for path, answer in routes.items()],
        middleware=[
            Middleware(
                CORSMiddleware,
                allow_origins=["*"],
                allow_methods=METHODS,
                allow_headers=["*"],
                expose_headers=EXPOSED,
            ),
            Middleware(Guards, metrics=metrics, limiter=limiter, paths=routes),
            # The fastest level: cursors make answers so repetitive that higher ones save little.
            Middleware(GZipMiddleware, compresslevel=1),
            Middleware(Indented),
        ],
        exception_handlers={HTTPException: _refuse},
        lifespan=_reading,
    )
    app.router.redirect_slashes = False
    return app


@asynccontextmanager
async def _reading(_app: Starlette) -> AsyncIterator[dict[str, object]]:
    """Keep what a server has while it runs: turns, and threads that read files side by side."""
    with ThreadPoolExecutor(READING) as pool:
        yield {"pool": pool, "turns": anyio.CapacityLimiter(AT_ONCE)}


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
