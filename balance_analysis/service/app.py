"""The two operations of the interface, as a web application over an archive.

This module knows the paths; `changes` and `limits` answer, `middleware` stands in front of it,
and `errors` says no.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from balance_analysis.errors import ArchiveError
from balance_analysis.service.changes import Changes
from balance_analysis.service.docs import page
from balance_analysis.service.errors import Code, RefusedError, error_response
from balance_analysis.service.limits import Limits
from balance_analysis.service.metrics import MEDIA_TYPE, Metrics
from balance_analysis.service.middleware import Guards
from balance_analysis.service.openapi import CHANGES, LIMITS, describe
from balance_analysis.service.rate_limit import Meter
from balance_analysis.service.threads import Queries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from starlette.requests import Request

    from balance_analysis.archive.archive import Archive
    from balance_analysis.archive.status import ArchiveStatus
    from balance_analysis.service.changes import Answer
    from balance_analysis.service.rate_limit import RateLimit

METHODS: Final = "GET, HEAD, OPTIONS"
_OPTIONS: Final = {
    "Allow": METHODS,
    "Access-Control-Allow-Methods": METHODS,
    "Access-Control-Allow-Headers": "*",
    "Access-Control-Max-Age": "86400",
}


def create_app(
    archive: Archive,
    *,
    strict_coverage: bool = False,
    timeout: float = 30.0,
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
        Seconds that a question may take; then it is refused, with 504.
    rate_limit
        What an address may send; `None` for any number of requests.

    Raises
    ------
    ArchiveError
        If there is no archive, or it is damaged.
    """
    archive.status(count_accounts=False)
    changes = Changes(archive, strict_coverage=strict_coverage, timeout=timeout)
    limits, metrics = Limits(archive), Metrics()
    # Who watches the service is answered also when it is busy.
    queries, looks = Queries(), Queries(at_once=2)

    def ask_changes(items: list[tuple[str, str]]) -> Answer:
        answer = changes.answer(items)
        # Text can't hold this: its quotes are escaped.
        metrics.add_rows(answer.body.count(b'"cursor":'))
        return answer

    async def balance_changes(request: Request) -> Response:
        return _json(await queries.run(ask_changes, request.query_params.multi_items()))

    async def network_limits(_request: Request) -> Response:
        return _json(await queries.run(limits.answer))

    async def health(_request: Request) -> Response:
        return JSONResponse(_health(await looks.run(_status, archive)))

    async def figures(_request: Request) -> Response:
        try:
            status = await looks.run(_status, archive)
        except RefusedError:
            status = None
        return Response(metrics.text(status), media_type=MEDIA_TYPE)

    async def schema(_request: Request) -> Response:
        return JSONResponse(describe())

    async def docs(_request: Request) -> Response:
        html, policy = page()
        return Response(html, media_type="text/html", headers={"Content-Security-Policy": policy})

    async def home(_request: Request) -> Response:
        return RedirectResponse("docs")

    routes = {
        CHANGES: balance_changes,
        LIMITS: network_limits,
        "/openapi.json": schema,
        "/docs": docs,
        "/health": health,
        "/metrics": figures,
        "/": home,
    }
    meter = None if rate_limit is None else Meter(rate_limit)
    app = Starlette(
        routes=[
            Route(path, _with_options(answer), methods=["GET", "OPTIONS"])
            for path, answer in routes.items()
        ],
        middleware=[
            Middleware(Guards, metrics=metrics, meter=meter, paths=routes),
            # The fastest level: cursors make answers so repetitive that higher ones save little.
            Middleware(GZipMiddleware, compresslevel=1),
        ],
        exception_handlers={HTTPException: _refuse},
        lifespan=_closing(changes),
    )
    app.router.redirect_slashes = False
    return app


def _closing(changes: Changes) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    """Return what closes the engine with the last of the servers that run the application."""
    servers: set[object] = set()

    @asynccontextmanager
    async def serving(_app: Starlette) -> AsyncIterator[None]:
        servers.add(server := object())
        try:
            yield
        finally:
            servers.discard(server)
            if not servers:
                changes.close()

    return serving


def _with_options(
    answer: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(status_code=HTTPStatus.NO_CONTENT, headers=_OPTIONS)
        return await answer(request)

    return endpoint


def _json(answer: Answer) -> Response:
    return Response(answer.body, media_type="application/json", headers=answer.headers)


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
        answer = error_response(Code.UNIMPLEMENTED, f"{request.method} is not supported: use GET")
        answer.status_code = error.status_code
        answer.headers["Allow"] = METHODS
        return answer
    return error_response(Code.NOT_FOUND, f"there is nothing at {request.url.path}")
