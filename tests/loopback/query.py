"""What a request asks for, which requests a node refuses, and which rows a page holds.

A page is read from the rows in the order (time, account id). A real node's cursor carries the time
and no account id, and compares as SQL compares with NULL: what was left of the cursor's block is
passed over. The trimming then takes the first row for the cursor's own and drops it, which loses
one row more wherever the page was filled.
"""

import base64
import json
import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.loopback.rows import Row
from tests.loopback.server import Fault

Params = Mapping[str, Sequence[str]]

DEFAULT_PAGE_SIZE = 1000
EARLIEST = 1_577_836_800 * 10**9  # 2020-01-01
LONGEST = 365 * 86_400 * 10**9

MAX_PAGE_SIZES = {"v0.71": None, "v0.72": None}
"""The largest page of the releases that have another than 5000: none."""

RANGE_STATUSES = {"v0.75": 500, **{f"v0.{minor}": 400 for minor in (76, 77, 78, 79)}}
"""With which status a release refuses a bad or missing range, if it checks it."""

ACCOUNT_TYPES = (
    "UNSPECIFIED INSURANCE SETTLEMENT MARGIN GENERAL FEES_INFRASTRUCTURE FEES_LIQUIDITY FEES_MAKER"
    " BOND EXTERNAL GLOBAL_INSURANCE GLOBAL_REWARD PENDING_TRANSFERS REWARD_MAKER_PAID_FEES"
    " REWARD_MAKER_RECEIVED_FEES REWARD_LP_RECEIVED_FEES REWARD_MARKET_PROPOSERS"
    " HOLDING LP_LIQUIDITY_FEES LIQUIDITY_FEES_BONUS_DISTRIBUTION NETWORK_TREASURY VESTING_REWARDS"
    " VESTED_REWARDS REWARD_AVERAGE_POSITION REWARD_RELATIVE_RETURN REWARD_RETURN_VOLATILITY"
    " REWARD_VALIDATOR_RANKING PENDING_FEE_REFERRAL_REWARD ORDER_MARGIN REWARD_REALISED_RETURN"
    " BUY_BACK_FEES REWARD_AVERAGE_NOTIONAL REWARD_ELIGIBLE_ENTITIES LOCKED_FOR_STAKING"
)
"""Those that a node knows beside those of its own rows."""

FILTERS = ("filter.assetId", "filter.accountTypes", "filter.partyIds", "filter.marketIds")
"""In the order of an account."""

_TYPES = {f"ACCOUNT_TYPE_{name}" for name in ACCOUNT_TYPES.split()}
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


class Refused(Exception):  # noqa: N818 - a node's answer, not a mistake of ours
    """The node answers with an error.

    Attributes
    ----------
    fault
        The answer.
    """

    def __init__(self, *answer: Any, **message: str) -> None:
        super().__init__(*answer)
        self.fault = Fault.code(*answer, **message)


@dataclass(frozen=True)
class Query:
    """One request for a page of balance changes.

    Attributes
    ----------
    accounts
        The values that are asked for, by the ids of an account; none doesn't restrict.
    limit
        Rows a page; `None` is no limit.
    cursor
        The JSON text in the cursor to start from.
    start, end
        Bounds in nanoseconds, cut to microseconds.
    """

    accounts: tuple[frozenset[str], ...]
    limit: int | None
    backward: bool
    cursor: str | None
    newest_first: bool
    start: int | None
    end: int | None


def read_query(node: Any, params: Params) -> Query:
    """Return the query in a request's parameters, by the node's release and other options.

    Raises
    ------
    Refused
        If the node refuses them.
    """
    for name in params:
        if "[" in name or "]" in name:
            raise _malformed(name, params[name])
    query = _parse(node, params)
    status = RANGE_STATUSES.get(node.release)
    if query.cursor is None and status is not None:
        start, end = query.start, time.time_ns() if query.end is None else query.end
        if start is None or min(start, end) < EARLIEST or end - start > LONGEST:
            reason = "a range of at most 365 days from 2020-01-01 on is required"
            raise Refused(status, 3 if status == 400 else 13, reason)
    ignored = tuple(f"{name}." for name in node.ignores)
    heard = {name: x for name, x in params.items() if not f"{name}.".startswith(ignored)}
    if node.takes_one is not None:
        heard = {name: [values[node.takes_one]] for name, values in heard.items()}
    return _parse(node, {**heard, **node.sets})


def _parse(node: Any, params: Params) -> Query:
    order = _single(params, "pagination.newestFirst")
    if order is not None and order not in _BOOLEANS:
        raise _malformed("pagination.newestFirst", order)
    newest_first = order is None or _BOOLEANS[order]
    bounds = (_bound(params, f"dateRange.{name}Timestamp") for name in ("start", "end"))
    limit, backward, cursor = _parse_page(node, params)
    return Query(_accounts(node, params), limit, backward, cursor, newest_first, *bounds)


def _bound(params: Params, name: str) -> int | None:
    value = _integer(params, name, bits=64)
    return None if value is None else value // 1000 * 1000


def _accounts(node: Any, params: Params) -> tuple[frozenset[str], ...]:
    asset, kinds, parties, markets = (params.get(name, ()) for name in FILTERS)
    _single(params, "filter.assetId")
    if unknown := [name for name in kinds if name not in _TYPES | node.history.types]:
        raise _malformed("filter.accountTypes", unknown)
    for kind, ids in (("party", {*parties} - {"network"}), ("market", markets)):
        if not all(re.fullmatch(r"[0-9a-fA-F]{64}", one) for one in ids):
            raise Refused(400, 3, f"one or more {kind} id is invalid")
    return frozenset({*asset} - {""}), frozenset(kinds), frozenset(parties), frozenset(markets)


def _parse_page(node: Any, params: Params) -> tuple[int | None, bool, str | None]:
    largest = node.max_page_size or MAX_PAGE_SIZES.get(node.release, 5000)
    first, last = (_integer(params, f"pagination.{x}", bits=32) for x in ("first", "last"))
    after, before = (_single(params, f"pagination.{x}") for x in ("after", "before"))
    if after is not None and before is not None:
        raise Refused(400, 3, "cannot set both a before and after cursor")
    backward = first is None and (last is not None or before is not None)
    asked, cursor = (last, before) if backward else (first, after)
    if asked is None:
        only_order = cursor is None and "pagination.newestFirst" in params
        is_unlimited = only_order and MAX_PAGE_SIZES.get(node.release, 5000) is None
        limit = None if is_unlimited else min(DEFAULT_PAGE_SIZE, largest or DEFAULT_PAGE_SIZE)
    elif asked <= 0:
        raise Refused(400, 3, "pagination limit must be greater than 0")
    elif largest is not None and asked > largest and not node.cap_silently:
        raise Refused(400, 3, f"pagination limit must be less than or equal to {largest}")
    else:
        limit = min(asked, largest or asked)
    return limit, backward, _decoded(cursor)


def _decoded(cursor: str | None) -> str | None:
    if cursor is None:
        return None
    try:
        return base64.b64decode(cursor or "%", validate=True).decode("utf-8", "replace")
    except ValueError as error:
        raise Refused(400, 3, f"failed to decode cursor: {error}") from error


def _single(params: Params, name: str) -> str | None:
    values = params.get(name, ())
    if len(values) > 1:
        raise _malformed(name, values)
    return values[0] if values else None


def _integer(params: Params, name: str, *, bits: int) -> int | None:
    text = _single(params, name)
    if text is None:
        return None
    largest = 2 ** (bits - 1) - 1
    if not re.fullmatch(r"[+-]?[0-9]{1,25}", text) or not -largest - 1 <= int(text) <= largest:
        raise _malformed(name, text)
    return int(text)


def _malformed(name: str, value: object) -> Refused:
    """Return how a node's gateway refuses a request: without details."""
    return Refused(400, 3, None, message=f"invalid parameter: {name}: {value}")


@dataclass(frozen=True)
class Page:
    """Which rows of the history an answer holds, in the order of the answer."""

    positions: Sequence[int]
    has_next: bool
    has_previous: bool


def cursor_text(row: Row, *, lossy: bool) -> str:
    """Return the JSON inside the cursor of a row."""
    names = "vega_time", "AccountID", "PartyID", "AssetID", "MarketID", "Type"
    account = None if lossy else row.account_id
    values = row.time * 1000, account, row.party_id, row.asset_id, row.market_id, row.account_type
    return json.dumps(dict(zip(names, values, strict=True)), separators=(",", ":"))


def _read_cursor(text: str) -> tuple[int, str | None]:
    """Return the time and the account id in a cursor; a real node's has no account id."""
    try:
        value = json.loads(text)
        return int(value["vega_time"]), value["AccountID"]
    except (ValueError, TypeError, KeyError) as error:
        raise Refused(500, 13, f"parsing cursor: {error}") from error


class History:
    """The rows of a node, sorted once, for bisection."""

    def __init__(self, rows: Iterable[Row], *, lossy: bool) -> None:
        self.rows = sorted(rows, key=lambda row: row.order)
        self._lossy = lossy
        self._times = [row.time * 1000 for row in self.rows]
        ids = (row.account_id for row in self.rows)
        self._orders = [*zip(self._times, ids, strict=True)]
        self._matching: dict[tuple[frozenset[str], ...], Sequence[int]] = {}
        self._edges: dict[int, str] = {}
        self.blocks, self.types = len({*self._times}), {str(row.account_type) for row in self.rows}

    def cursor(self, place: int) -> str:
        """Return the cursor of the row at a place."""
        text = cursor_text(self.rows[place], lossy=self._lossy)
        return base64.b64encode(text.encode()).decode()

    def edge(self, place: int, edit: Callable[..., Any] | None) -> str:
        """Return the JSON of the row at a place, edited if need be, and its cursor."""
        if edit is None and place in self._edges:
            return self._edges[place]
        node = self.rows[place].to_json()
        if edit is not None and (edited := edit(node)) is not None:
            node = edited
        text = json.dumps({"node": node, "cursor": self.cursor(place)}, separators=(",", ":"))
        if edit is None:
            self._edges[place] = text
        return text

    def page(self, query: Query, *, start_exclusive: bool, end_inclusive: bool) -> Page:
        """Return the page that a query asks for.

        Raises
        ------
        Refused
            If the cursor is not one.
        """
        ascending = query.newest_first == query.backward
        low, high = 0, len(self.rows)
        if query.start is not None:
            low = (bisect_right if start_exclusive else bisect_left)(self._times, query.start)
        if query.end is not None:
            high = (bisect_right if end_inclusive else bisect_left)(self._times, query.end)
        if query.cursor is not None:
            low, high = self._beyond(query.cursor, low, high, ascending=ascending)
        matching = self._positions(query.accounts)
        fetched = matching[bisect_left(matching, low) : bisect_left(matching, high)]
        fetched = fetched if ascending else fetched[::-1]
        if query.limit is None:
            return Page(fetched, has_next=False, has_previous=False)
        fetched = fetched[: query.limit + (1 if query.cursor is None else 2)]
        return self._trim(fetched, query)

    def _positions(self, accounts: tuple[frozenset[str], ...]) -> Sequence[int]:
        if not any(accounts):
            return range(len(self.rows))
        if accounts not in self._matching:
            self._matching[accounts] = [
                place
                for place, row in enumerate(self.rows)
                if all(
                    not wanted or str(value) in wanted
                    for wanted, value in zip(accounts, row.account, strict=True)
                )
            ]
        return self._matching[accounts]

    def _beyond(self, text: str, low: int, high: int, *, ascending: bool) -> tuple[int, int]:
        """Return the range without the rows that the node takes to lie before the cursor."""
        moment, account_id = _read_cursor(text)
        places, key = (
            (self._times, moment) if account_id is None else (self._orders, (moment, account_id))
        )
        # Without an account id the whole block lies before it.
        is_passed = (account_id is None) == ascending
        at = (bisect_right if is_passed else bisect_left)(places, key)
        return (max(low, at), high) if ascending else (low, min(high, at))

    def _trim(self, fetched: Sequence[int], query: Query) -> Page:
        """Drop the rows that were fetched only to know whether there are more."""
        limit = query.limit
        first = [cursor_text(self.rows[place], lossy=self._lossy) for place in fetched[:1]]
        more, before = False, False
        if len(fetched) == limit + 2:
            fetched, more, before = fetched[1:-1], True, True
        elif len(fetched) == limit + 1 and query.cursor is None:
            fetched, more = fetched[:-1], True
        elif len(fetched) == limit + 1 or first == [query.cursor]:
            fetched, before = fetched[1:], True
        if query.backward:
            return Page(fetched[::-1], has_next=before, has_previous=more)
        return Page(fetched, has_next=more, has_previous=before)
