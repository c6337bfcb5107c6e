"""The two operations of the interface, as a web application over files.

This module knows the paths and the shapes of the answers; `parameters` reads a request, `store`
finds its rows, `snapshot` reads the limits and `refusals` says no.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Route

from balance_analysis.service.cursors import encode_cursor
from balance_analysis.service.parameters import read_parameters
from balance_analysis.service.refusals import Code, RefusedError, error_response
from balance_analysis.service.snapshot import read_limits
from balance_analysis.service.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from balance_analysis.service.store import Page, Row


def create_app(changes: Path, limits: Path | None = None) -> Starlette:
    """Return an application that serves balance changes and network limits from files.

    It answers as a node does, with cursors that lose no row. It sends no header about the last
    block: a file knows its rows, and not the blocks in which nothing changed.

    Parameters
    ----------
    changes
        A Parquet file with the columns of `schema.ARROW_SCHEMA`, in which (account, timestamp) is
        unique, as `write_parquet` writes it. It is read anew for every request.
    limits
        A JSON file as `write_network_limits` writes it, read once; without it, the limits are
        answered with 404.

    Raises
    ------
    ArchiveError
        If a file can't be read as what it should be.
    """
    store = Store(changes)
    snapshot = None if limits is None else read_limits(limits)

    def balance_changes(request: Request) -> Response:
        filters, paging = read_parameters(
            request.query_params.multi_items(), is_known_type=store.has_account_type
        )
        return JSONResponse({"balances": _connection(store.page(filters, paging))})

    def network_limits(_request: Request) -> Response:
        if snapshot is None:
            raise RefusedError("this service holds no network limits", code=Code.NOT_FOUND)
        return JSONResponse({"limits": snapshot})

    return Starlette(
        routes=[
            Route("/api/v2/balance/changes", balance_changes, methods=["GET"]),
            Route("/api/v2/network/limits", network_limits, methods=["GET"]),
        ],
        # The fastest level: cursors make answers so repetitive that higher ones save little.
        middleware=[Middleware(GZipMiddleware, compresslevel=1)],
        exception_handlers=dict.fromkeys((RefusedError, HTTPException, Exception), _answer_error),
    )


def _connection(page: Page) -> dict[str, Any]:
    edges = [{"node": _node(row), "cursor": encode_cursor(row.place)} for row in page.rows]
    return {
        "edges": edges,
        "pageInfo": {
            "hasNextPage": page.has_next,
            "hasPreviousPage": page.has_previous,
            "startCursor": edges[0]["cursor"] if edges else "",
            "endCursor": edges[-1]["cursor"] if edges else "",
        },
    }


def _node(row: Row) -> dict[str, str]:
    return {
        "timestamp": str(row.place.time * 1000),
        "balance": row.balance,
        "assetId": row.asset_id,
        "partyId": row.party_id,
        "marketId": row.market_id,
        "accountType": row.account_type,
    }


async def _answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, RefusedError):
        return error_response(error.code, str(error))
    if isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return error_response(Code.UNIMPLEMENTED, f"{request.method} is not supported: use GET")
    if isinstance(error, HTTPException):
        return error_response(Code.NOT_FOUND, f"there is nothing at {request.url.path}")
    return error_response(Code.INTERNAL, "unexpected error: the log of the service has it")
