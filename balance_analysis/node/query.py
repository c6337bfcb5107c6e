"""From what is asked for to the parameters of a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from balance_analysis.filters import Filters

Parameters = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class PageRequest:
    """One page of balance changes in a range of microseconds, from a cursor on or from an end."""

    filters: Filters
    start: int
    end: int
    page_size: int
    newest_first: bool = False
    cursor: str | None = None
    backward: bool = False

    def parameters(self) -> Parameters:
        """Return the wire's parameters; both bounds are always sent.

        A node that is asked without a range scans its whole table and may never answer.
        """
        size, cursor = ("last", "before") if self.backward else ("first", "after")
        return [
            *filter_parameters(self.filters),
            (f"pagination.{size}", str(self.page_size)),
            *([] if self.cursor is None else [(f"pagination.{cursor}", self.cursor)]),
            ("pagination.newestFirst", "true" if self.newest_first else "false"),
            ("dateRange.startTimestamp", str(self.start * 1000)),
            ("dateRange.endTimestamp", str(self.end * 1000)),
        ]


def filter_parameters(filters: Filters) -> Parameters:
    """Return the filters as the wire's repeated keys."""
    return [
        *([("filter.assetId", filters.asset_id)] if filters.asset_id is not None else []),
        *(("filter.partyIds", party) for party in filters.party_ids),
        *(("filter.marketIds", market) for market in filters.market_ids),
        *(("filter.accountTypes", name) for name in filters.account_types),
    ]
