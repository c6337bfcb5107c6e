"""From what is asked for to the parameters of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from balance_analysis.filters import Filters

Parameters = list[tuple[str, str]]


def filter_parameters(filters: Filters) -> Parameters:
    """Return the filters as the wire's repeated keys."""
    return [
        *([("filter.assetId", filters.asset_id)] if filters.asset_id is not None else []),
        *(("filter.partyIds", party) for party in filters.party_ids),
        *(("filter.marketIds", market) for market in filters.market_ids),
        *(("filter.accountTypes", name) for name in filters.account_types),
    ]


def page_parameters(
    filters: Filters,
    *,
    start: int,
    end: int,
    first: int | None = None,
    after: str | None = None,
    last: int | None = None,
    before: str | None = None,
    newest_first: bool,
) -> Parameters:
    """Return the parameters of one page; `start` and `end` in microseconds, always sent.

    A node that is asked without a range scans its whole table and may never answer.
    """
    paging = {
        "pagination.first": first,
        "pagination.after": after,
        "pagination.last": last,
        "pagination.before": before,
    }
    return [
        *filter_parameters(filters),
        *((name, str(value)) for name, value in paging.items() if value is not None),
        ("pagination.newestFirst", "true" if newest_first else "false"),
        ("dateRange.startTimestamp", str(start * 1000)),
        ("dateRange.endTimestamp", str(end * 1000)),
    ]
