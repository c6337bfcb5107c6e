"""Which rows a page holds: the reference implementation's paging, its defect included.

A page is read from the rows in the order (time, account id). A real node's cursor carries the time
and no account id, and compares as SQL compares with NULL: what was left of the cursor's block is
passed over. The trimming then takes the first row for the cursor's own and drops it, which loses
one row more wherever the page was filled.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tests.loopback.query import Filter, Query, Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.loopback.rows import Row

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z")


@dataclass(frozen=True)
class Page:
    """Which rows of the history an answer holds, in the order of the answer."""

    positions: Sequence[int]
    has_next: bool
    has_previous: bool


@lru_cache(maxsize=4096)
def _time_text(timestamp_ns: int) -> str:
    seconds, fraction = divmod(timestamp_ns, 10**9)
    text = dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")
    digits = f"{fraction:09d}".rstrip("0")
    return f"{text}.{digits}Z" if digits else f"{text}Z"


def cursor_text(row: Row, *, lossy: bool) -> str:
    """Return the JSON inside the cursor of a row."""
    return json.dumps(
        {
            "vega_time": _time_text(row.timestamp_ns),
            "AccountID": None if lossy else row.account_id,
            "PartyID": row.party_id,
            "AssetID": row.asset_id,
            "MarketID": row.market_id,
            "Type": row.account_type,
        },
        separators=(",", ":"),
    )


def encode_cursor(text: str) -> str:
    """Return a cursor as it is sent."""
    return base64.b64encode(text.encode()).decode()


def _read_cursor(text: str) -> tuple[int | None, str | None]:
    """Return the time and the account id in a cursor; `None` where it has none."""
    try:
        value = json.loads(text)
        if not isinstance(value, dict):
            raise TypeError("cannot unmarshal into a cursor")  # noqa: TRY301
        account_id = value.get("AccountID")
        if "vega_time" not in value:
            return None, account_id
        seconds, digits = _TIME.fullmatch(value["vega_time"]).groups()
        whole = dt.datetime.fromisoformat(f"{seconds}+00:00").timestamp()
    except (ValueError, TypeError, AttributeError) as error:
        raise Refused(500, 13, "internal error", f"parsing cursor: {error}") from error
    return int(whole) * 10**9 + int((digits or "").ljust(9, "0")), account_id


class History:
    """The rows of a node, sorted once, for bisection."""

    def __init__(self, rows: Iterable[Row], *, lossy: bool) -> None:
        self.rows = sorted(rows, key=lambda row: row.order)
        self._lossy = lossy
        self._times = [row.timestamp_ns for row in self.rows]
        self._orders = [row.order for row in self.rows]
        self._matching: dict[Filter, Sequence[int]] = {Filter(): range(len(self.rows))}

    def page(self, query: Query, *, start_exclusive: bool, end_inclusive: bool) -> Page:
        """Return the page that a query asks for.

        Raises
        ------
        Refused
            If the cursor is not one.
        """
        ascending = query.newest_first == query.backward
        low, high = self._range(query, start_exclusive, end_inclusive)
        if query.cursor is not None:
            low, high = self._beyond(query.cursor, low, high, ascending=ascending)
        matching = self._positions(query.filter)
        fetched = matching[bisect_left(matching, low) : bisect_left(matching, high)]
        fetched = fetched if ascending else fetched[::-1]
        if query.limit is None:
            return Page(fetched, has_next=False, has_previous=False)
        fetched = fetched[: query.limit + (1 if query.cursor is None else 2)]
        return self._trim(fetched, query)

    def _positions(self, accounts: Filter) -> Sequence[int]:
        if accounts not in self._matching:
            known = {row.account for row in self.rows}
            wanted = {account for account in known if accounts.matches(account)}
            self._matching[accounts] = [
                place for place, row in enumerate(self.rows) if row.account in wanted
            ]
        return self._matching[accounts]

    def _range(self, query: Query, start_exclusive: bool, end_inclusive: bool) -> tuple[int, int]:
        low, high = 0, len(self.rows)
        if query.start is not None:
            low = (bisect_right if start_exclusive else bisect_left)(self._times, query.start)
        if query.end is not None:
            high = (bisect_right if end_inclusive else bisect_left)(self._times, query.end)
        return low, high

    def _beyond(self, text: str, low: int, high: int, *, ascending: bool) -> tuple[int, int]:
        """Return the range without the rows that the node takes to lie before the cursor."""
        time, account_id = _read_cursor(text)
        if time is None:
            return low, high
        if account_id is None and ascending:
            return max(low, bisect_right(self._times, time)), high
        if account_id is None:
            return low, min(high, bisect_left(self._times, time))
        if ascending:
            return max(low, bisect_left(self._orders, (time, account_id))), high
        return low, min(high, bisect_right(self._orders, (time, account_id)))

    def _trim(self, fetched: Sequence[int], query: Query) -> Page:
        """Drop the rows that were fetched only to know whether there are more."""
        limit, has_cursor = query.limit, query.cursor is not None
        more, before = False, False
        if len(fetched) == limit + 2:
            fetched, more, before = fetched[1:-1], True, True
        elif len(fetched) == limit + 1 and not has_cursor:
            fetched, more = fetched[:-1], True
        elif len(fetched) == limit + 1 or (has_cursor and self._is_cursor_row(fetched, query)):
            fetched, before = fetched[1:], True
        if query.backward:
            return Page(fetched[::-1], has_next=before, has_previous=more)
        return Page(fetched, has_next=more, has_previous=before)

    def _is_cursor_row(self, fetched: Sequence[int], query: Query) -> bool:
        if not fetched:
            return False
        return cursor_text(self.rows[fetched[0]], lossy=self._lossy) == query.cursor
