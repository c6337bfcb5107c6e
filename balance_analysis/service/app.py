"""The two operations of the interface and the explorer, as a web application over an archive.

This module knows the paths; `changes` and the explorer answer, `guards` stands in front of them.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
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
from starlette.types import Receive

from balance_analysis import defaults
from balance_analysis.analysis.steps import in_one_thread
from balance_analysis.archive.inspection import ArchiveStatus
from balance_analysis.archive.manifest import read_manifest
from balance_analysis.archive.sidecars import read_limits
from balance_analysis.archive.snapshot import LruCache
from balance_analysis.errors import SnapshotGoneError
from balance_analysis.explorer.live import Explorer
from balance_analysis.explorer.page import POLICY, static_files
from balance_analysis.explorer.source import KEPT_BYTES, UnknownAssetError, ViewTooLargeError
from balance_analysis.explorer.wire import VIEWS, read_query
from balance_analysis.names import read_names
from balance_analysis.service import guards
from balance_analysis.service.changes import Changes, evidence_headers
from balance_analysis.service.errors import Code, RefusedError, refusing_while_unreadable
from balance_analysis.service.openapi import CHANGES, LIMITS, VIEWS_AT, describe, page

if TYPE_CHECKING:
    from balance_analysis.archives import Archive
    from balance_analysis.names import AssetsLike, LabelsLike

AT_ONCE: Final = 8
"""Pages that are looked for at the same time; who watches is answered all the while."""

VIEWS_AT_ONCE: Final = 1
"""Views that are worked on at the same time: each takes a processor and up to 500 MB."""

MOST_VIEWS: Final = 32
"""Views that are worked on or wait."""

METHODS: Final = ("GET", "HEAD")


def create_app(
    archive: Archive,
    *,
    strict_coverage: bool = False,
    timeout: float = defaults.TIMEOUT,
    rate_limit: guards.RateLimit | None = None,
    host: str = defaults.HOST,
    allow_origins: Sequence[str] | None = None,
    assets: AssetsLike | None = None,
    labels: LabelsLike | None = None,
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
    assets, labels
        Names for the page to explore, as `read_assets` and `read_labels` take them, besides those
        that the archive keeps.

    Raises
    ------
    ArchiveError
        If there is no archive, or it is damaged.
    ValueError
        If an origin is none.
    """
    is_private = guards.is_loopback(host)
    origins = [*allow_origins] if allow_origins else [] if is_private else ["*"]
    named = guards.hosts_of(origins)
    archive.status(count_accounts=False)
    names = read_names(assets, labels)
    cache = LruCache(KEPT_BYTES)
    changes = Changes(archive, strict_coverage=strict_coverage, cache=cache)
    explorer, metrics = Explorer(archive, cache=cache, names=names), guards.Metrics()
    pages = Turns("pages", timeout, most=guards.MOST_AT_ONCE)
    views = Turns("views", timeout, most=MOST_VIEWS)

    async def balance_changes(request: Request) -> Response:
        items = request.query_params.multi_items()
        found = await pages.answer(request, partial(changes.answer, items))
        # Text can't hold this: its quotes are escaped.
        metrics.rows.inc(bytes(found.body).count(b'"cursor":'))
        return found

    async def view(request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]
        items = request.query_params.multi_items()
        # Which state it is, each open page asks now and then.
        turns = pages if name == "version" else views
        return await turns.answer(request, partial(_view, explorer, name, items))

    def figures(_request: Request) -> Response:
        try:
            status = _status(archive)
        except RefusedError:
            status = None
        return Response(metrics.text(status), media_type=guards.MEDIA_TYPE)

    routes: dict[str, Callable[[Request], object]] = {
        CHANGES: balance_changes,
        LIMITS: lambda _: _limits(archive),
        "/openapi.json": lambda _: JSONResponse(describe()),
        "/docs": _docs,
        "/health": lambda _: JSONResponse(_health(_status(archive))),
        "/metrics": figures,
        **{f"{VIEWS_AT}/{name}": view for name in VIEWS},
        **{path: partial(_static, *file) for path, file in static_files().items()},
    }
    limiter = None if rate_limit is None else guards.RateLimiter(rate_limit)
    hosts = named if is_private and "*" not in origins else None
    app = Starlette(
        routes=[Route(path, answer) for path, answer in routes.items()],
        middleware=[
            *_sharing(origins),
            # The fastest level: cursors make answers so repetitive that higher ones save little.
            Middleware(GZipMiddleware, compresslevel=1),
            Middleware(guards.Indented),
            Middleware(guards.Guards, metrics=metrics, limiter=limiter, paths=routes, hosts=hosts),
        ],
        exception_handlers={HTTPException: _refuse},
        lifespan=_with_threads,
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
            expose_headers=guards.EXPOSED,
        )


class Turns:
    """Takes questions in turn: so many are worked on at once, and so many wait.

    A question's time counts from when it came. Once it is over, or its client has left, the
    question gets no turn any more, and work on it ends where it next checks.

    Parameters
    ----------
    name
        What the server calls the threads that do the work: as many are worked on at once.
    timeout
        Seconds that a question may take, with the time that it waits.
    most
        How many may wait or be worked on.
    """

    def __init__(self, name: str, timeout: float, *, most: int) -> None:
        self._name, self._timeout, self._most = name, timeout, most
        self._asked: set[object] = set()

    async def answer(
        self, request: Request, find: Callable[[Callable[[], None]], Response]
    ) -> Response:
        """Return what is found for a question.

        Parameters
        ----------
        request
            The question.
        find
            Finds it, in a thread; what it is given is to be called now and then, and raises once
            nobody waits any more.

        Raises
        ------
        RefusedError
            If too many wait, it takes too long, or the client has left.
        """
        if len(self._asked) >= self._most:
            raise RefusedError(
                f"{self._most} such questions are under way already: ask again in a moment",
                code=Code.UNAVAILABLE,
            )
        is_over = threading.Event()

        def check() -> None:
            if is_over.is_set():
                raise _too_long()

        # Mounted in another application, it has the threads of the event loop.
        threads: Executor | None = getattr(request.state, self._name, None)
        work = asyncio.get_running_loop().run_in_executor(threads, find, check)
        leaving = asyncio.ensure_future(_has_left(request.receive))
        self._asked.add(is_over)
        try:
            either = (work, leaving)
            await asyncio.wait(either, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            if leaving.done():
                raise RefusedError("the client left before it was answered", code=Code.CANCELLED)
            raise _too_long()
        finally:
            self._asked.discard(is_over)
            is_over.set()
            work.cancel()
            leaving.cancel()


async def _has_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _too_long() -> RefusedError:
    return RefusedError(
        "the query took too long: ask for a shorter range or for fewer rows",
        code=Code.DEADLINE_EXCEEDED,
    )


@asynccontextmanager
async def _with_threads(_app: Starlette) -> AsyncIterator[dict[str, object]]:
    """Keep the threads that a server has while it runs, by the names of their turns."""
    with ThreadPoolExecutor(AT_ONCE) as pages, ThreadPoolExecutor(VIEWS_AT_ONCE) as views:
        yield {"pages": pages, "views": views}


def _view(
    explorer: Explorer,
    view: str,
    items: Sequence[tuple[str, str]],
    check: Callable[[], None],
) -> Response:
    """Return a view of the explorer as JSON.

    `check` is called now and then, and may end the work.

    Raises
    ------
    RefusedError
        If a parameter is wrong, there is no such asset, the view needs too many rows, the state
        that it is asked of is gone, or the archive can't be read.
    """
    try:
        items = [(name, text) for name, text in items if name != "pretty"]
        query = read_query(view, items)
    except ValueError as error:
        raise RefusedError(str(error)) from error
    with refusing_while_unreadable():
        try:
            check()
            with in_one_thread():  # the other processors are for pages
                content = explorer.encode(view, query, check=check)
        except SnapshotGoneError as error:
            raise RefusedError(
                "the archive has changed, and this state of it is gone: ask /explore/about for the "
                "current one",
                code=Code.ABORTED,
            ) from error
        except UnknownAssetError as error:
            raise RefusedError(str(error), code=Code.NOT_FOUND) from error
        except (ViewTooLargeError, OverflowError) as error:
            raise RefusedError(str(error), code=Code.OUT_OF_RANGE) from error
        finally:
            pa.default_memory_pool().release_unused()
    return Response(content, media_type="application/json")


def _docs(_request: Request) -> Response:
    html, policy = page()
    return HTMLResponse(html, headers={"Content-Security-Policy": policy})


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
    with refusing_while_unreadable():
        evidence, rows = read_manifest(archive.store).evidence, read_limits(archive.store)
    if not rows.num_rows:
        raise RefusedError("the archive holds no network limits", code=Code.NOT_FOUND)
    body = msgspec.json.encode({"limits": _fields(rows.slice(rows.num_rows - 1))})
    return Response(body, media_type="application/json", headers=evidence_headers(evidence))


def _fields(row: pa.Table) -> dict[str, Any]:
    flags = [field.name for field in row.schema if pa.types.is_boolean(field.type)]
    dates = [name for name in row.column_names if name.endswith("_from")]
    known = {_camel(name): row[name][0].as_py() for name in flags}
    known |= {_camel(name): str(row[name].cast(pa.int64())[0].as_py() or 0) for name in dates}
    extra: dict[str, Any] = json.loads(row["extra"][0].as_py() or "{}")
    return known | extra | known


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return "".join([first, *map(str.capitalize, others)])


def _status(archive: Archive) -> ArchiveStatus:
    with refusing_while_unreadable():
        return archive.status(count_accounts=False)


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
