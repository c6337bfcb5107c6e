"""Load what accounts held before a moment: the opening balances of an interval.

Accounts are looked for newest first, many in one request, in windows that reach further and further
back. The first row of an account that comes is its last one. What one request leaves open is asked
again by tighter filters, and an account that is left alone by a page of one row.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.errors import CheckError, IncompleteError, RequestError
from balance_analysis.filters import IDS_PER_REQUEST, Filters, make_filters
from balance_analysis.frame import BALANCE_DTYPE, TIMESTAMP_DTYPE, to_frame
from balance_analysis.load.nodes import NodePool, answers
from balance_analysis.load.request import check_positive
from balance_analysis.node.walk import find_oldest, settle_block
from balance_analysis.node.window import (
    EARLIEST,
    LONGEST_WINDOW,
    Listing,
    Window,
    ask_less,
    fetch,
    is_refusal,
    moment,
)
from balance_analysis.schema import (
    ACCOUNT_KEY,
    ACCOUNT_TYPES,
    ATTRS_KEY,
    EXTERNAL,
    INTERFACE_ACCOUNT_TYPES,
    to_microseconds,
)
from balance_analysis.text import iso_text, range_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from decimal import Decimal

    from balance_analysis.load.nodes import Head
    from balance_analysis.node.client import Client
    from balance_analysis.node.window import Ask
    from balance_analysis.schema import Instant

_TYPE_PREFIX: Final = "ACCOUNT_TYPE_"

_STATES: Final = pd.CategoricalDtype(pd.Index(["known", "none", "pruned"], dtype="str"))

_DAY: Final = 86_400 * 1_000_000
_LOOK_BACKS: Final = (_DAY, 8 * _DAY)
"""How far to look before the node's oldest row is asked for: nodes keep 7 days by default."""

_FRUITFUL: Final = 4
"""A full page that settles less than one in so many of its accounts is followed by tighter ones."""

_BEGINNING: Final = 100
"""Rows in which an asset's first block must end: it has one for each kind of account."""

_NOT_ASKABLE: Final = "ACCOUNT_TYPE_UNSPECIFIED"

Account = tuple[str, str, str, str]

logger = logging.getLogger("balance_analysis")


def load_opening_balances(
    client: Client,
    accounts: pd.DataFrame,
    *,
    at: Instant,
    page_size: int = 5000,
    workers: int = 4,
) -> pd.DataFrame:
    """Load the last balance before a moment, of each of these accounts.

    It is what `balance_at` and others take as `opening` for a table that starts at that moment. An
    account that is quiet in that table is in none of its rows: take the accounts from wherever all
    of them are known, such as a table of a longer interval.

    Where `state` is "none", nothing was held, but the balance is NA all the same, as no row says
    so. To count it as 0: ``opening["balance"].mask(opening["state"] == "none", 0)``.

    Parameters
    ----------
    client
        The node; of several, one answers all: the first, in order of what they hold, that can.
    accounts
        A table, a summary or any frame with the columns `ACCOUNT_KEY`; rows may repeat an account.
    at
        The moment, UTC where no time zone is given. A row at exactly `at` is not before it.
    page_size
        Rows a request.
    workers
        Requests at once. The result doesn't depend on it.

    Returns
    -------
    pandas.DataFrame
        One row per account, sorted by `ACCOUNT_KEY` (category of str, ids in lower case):

        - `balance` (decimal128(38, 0)[pyarrow], in the asset's smallest unit): NA where the node
          holds no row of the account before `at`.
        - `since` (datetime64[us, UTC]): the timestamp of the row that set it, else NaT.
        - `state` (category of str): "known"; "none", where the account had no row before `at`, as
          the node holds the asset's history from its beginning; or "pruned", where that can't be
          shown, so that the node may have forgotten older rows.

        `attrs["balance_analysis"]` tells, as JSON, the source, the requests and the node's last
        block. A node that has not reached `at` answers as of that block.

    Raises
    ------
    RequestError
        If no node can be reached or answers, after the retries.
    DecodeError
        If an answer or a row is not what the interface describes.
    IncompleteError
        If an account's last row can't be told, as the answers don't add up.
    CheckError
        If two rows of one account and time differ.
    ValueError
        If accounts lacks a column, or an id is missing or malformed.

    Notes
    -----
    Pruned history looks exactly like nothing having happened, and no node tells how far back it
    reaches. One row does: an asset's EXTERNAL account gets one in the block in which the asset
    comes to be, and else only where a network is restored from a snapshot, with rows of all
    accounts and what they hold. So it is "none" only if the oldest block that the node holds of
    the asset has that row and no balance but 0, seen after all other answers, so that nothing was
    pruned meanwhile. In any other case it is "pruned".

    One request settles all accounts of up to 60 parties that fit one page of the last day's rows.
    Those that are left take a request for the week before, again per 60 parties; then, once, one
    for each year from 2020 to the node's oldest row, one per 60 parties for each year from there to
    `at`, and one for each asset. Only an account that is quiet between busy ones which the filters
    can't part takes more; "no market" can't be asked for.
    """
    check_positive("page_size", page_size)
    check_positive("workers", workers)
    end, wanted = to_microseconds(at), _accounts(accounts)
    pool, began = NodePool(client, "raise"), time.monotonic()
    try:
        source, head, found = _by_one_node(pool, wanted, end, page_size, workers)
    finally:
        pool.stop()
    opening = _frame(wanted, found)
    opening.attrs[ATTRS_KEY] = {
        "source": pool.sources[source],
        "at": iso_text(end),
        **pool.tally.as_json(),
        "seconds": round(time.monotonic() - began, 3),
        "block_height": head.height,
        "block_time": head.time and iso_text(head.time),
    }
    logger.info("%d opening balances in %d requests", len(wanted), pool.tally.requests)
    return opening


def _accounts(frame: pd.DataFrame) -> list[Account]:
    """Return the distinct accounts of a frame, sorted, in the form in which nodes have them."""
    missing = [name for name in ACCOUNT_KEY if name not in frame]
    if missing:
        raise ValueError(f"not a frame of accounts: it has no column {', '.join(missing)}")
    keys = frame[list(ACCOUNT_KEY)].drop_duplicates()
    if keys.isna().to_numpy().any():
        raise ValueError("accounts has a missing id; no market is '', not missing")
    columns = [
        keys[name].astype("str").map({text: _id(name, text) for text in keys[name].astype("str")})
        for name in ACCOUNT_KEY
    ]
    return sorted(set(zip(*columns, strict=True)))


def _id(name: str, text: str) -> str:
    match name:
        case "asset_id":
            return make_filters(asset_id=text).asset_id or text
        case "party_id":
            return make_filters(party_ids=text).party_ids[0]
        case "market_id":
            return make_filters(market_ids=text).market_ids[0] if text else text
    return text if _is_type(text) else make_filters(account_types=text).account_types[0]


def _is_type(text: str) -> bool:
    """Whether it may be the name of a type, or the number of one that the node has no name for."""
    return text in ACCOUNT_TYPES or text.startswith(_TYPE_PREFIX) or text.isdecimal()


def _by_one_node(
    pool: NodePool, accounts: list[Account], at: int, page_size: int, workers: int
) -> tuple[str, Head, LastBalances]:
    """Return the best node that can answer it all, its last block, and what it tells.

    Nodes differ in what they have pruned, so they are not mixed.
    """

    def find(base_url: str) -> tuple[str, Head, LastBalances]:
        ask, state = pool.to(base_url)
        with Search(ask, at, page_size, workers) as search:
            found = search.find(accounts)
        return base_url, state.head, found

    def failed(base_url: str, error: Exception) -> None:
        logger.warning("%s; no opening balances from %s", error, base_url)

    return next(answers(pool.nodes(at), find, failed))


def _frame(accounts: list[Account], found: LastBalances) -> pd.DataFrame:
    rows = [found.last.get(account, (None, None)) for account in accounts]
    times = pa.array([row[0] for row in rows], pa.timestamp("us", "UTC"))
    balances = pa.array([row[1] for row in rows], BALANCE_DTYPE.pyarrow_dtype)
    columns: dict[str, Any] = {
        name: pd.Series([account[i] for account in accounts], dtype="str").astype("category")
        for i, name in enumerate(ACCOUNT_KEY)
    }
    return pd.DataFrame(
        {
            **columns,
            "balance": pd.Series(pd.arrays.ArrowExtensionArray(balances)),
            "since": pd.Series(times.to_pandas(), dtype=TIMESTAMP_DTYPE),
            "state": pd.Series([found.state(account) for account in accounts], dtype=_STATES),
        }
    )


@dataclass(frozen=True, slots=True)
class LastBalances:
    """What a node told: time in microseconds and balance of accounts' last rows.

    Of `whole_assets` the node holds all history.
    """

    last: dict[Account, tuple[int, Decimal]]
    whole_assets: frozenset[str]

    def state(self, account: Account) -> str:
        """Return what is known of an account."""
        if account in self.last:
            return "known"
        return "none" if account[0] in self.whole_assets else "pruned"


@dataclass(frozen=True, slots=True)
class Lookup:
    """Accounts whose last rows are looked for together, in a window of microseconds.

    They are in the order of `_by_party`; none has a row from the window's end on. `ends_with_row`
    where a row that its filters let through is known to stand in the last microsecond; `is_probed`
    where the newest row was asked for alone, and is of another account.
    """

    accounts: tuple[Account, ...]
    start: int
    end: int
    ends_with_row: bool = False
    is_probed: bool = False


class Search:
    """The search for accounts' last rows before a moment, microseconds, at one node.

    `ask` is called by so many threads as there are `workers`.
    """

    def __init__(self, ask: Ask, at: int, page_size: int, workers: int) -> None:
        self._ask, self._at = ask, at
        self._now = to_microseconds(dt.datetime.now(dt.UTC))
        self._page_size, self._width = page_size, LONGEST_WINDOW
        self._asks_later_types = True
        self._last: dict[Account, tuple[int, Decimal]] = {}
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="balance_analysis")

    def __enter__(self) -> Search:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def find(self, accounts: Sequence[Account]) -> LastBalances:
        """Return the last row of each account that has one, and which assets are whole."""
        end = self._at
        for look_back in _LOOK_BACKS:
            start = min(end, max(EARLIEST, min(self._at, self._now) - look_back))
            self._settle(accounts, start, end)
            end = start
        whole = self._look_to_the_oldest(accounts, end) if self._left(accounts) else []
        return LastBalances(self._last, frozenset(whole))

    def _look_to_the_oldest(self, accounts: Sequence[Account], end: int) -> list[str]:
        """Settle what can be before `end`; return the whole ones of the assets of what is left."""
        assets = sorted({account[0] for account in self._left(accounts)})
        any_of_them = Filters(asset_id=assets[0] if len(assets) == 1 else None)
        present = max(self._at, self._now)
        oldest = find_oldest(self._ask, [any_of_them], present)
        if oldest is None:
            return []
        self._settle(accounts, min(oldest, end), end)
        assets = sorted({account[0] for account in self._left(accounts)})
        whole = self._pool.map(lambda asset: self._is_whole(asset, oldest, present), assets)
        return [asset for asset, is_whole in zip(assets, whole, strict=True) if is_whole]

    def _left(self, accounts: Iterable[Account]) -> list[Account]:
        return [account for account in accounts if account not in self._last]

    def _settle(self, accounts: Sequence[Account], start: int, end: int) -> None:
        """Find the last rows in [start, end) of the accounts that are left."""
        while start < end and (left := self._left(accounts)):
            beginning = max(start, end - LONGEST_WINDOW)
            lookups = [Lookup(part, beginning, end) for part in _by_party(left)]
            running = {self._pool.submit(self._look, lookup) for lookup in lookups}
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    last, lookups = future.result()
                    self._last |= last
                    running |= {self._pool.submit(self._look, lookup) for lookup in lookups}
            end = beginning

    def _look(self, lookup: Lookup) -> tuple[dict[Account, tuple[int, Decimal]], list[Lookup]]:
        """Ask once; return the last rows that came, and what is still to be asked."""
        is_probe = len(lookup.accounts) == 1 and not lookup.is_probed and self._page_size > 1
        size = 1 if is_probe else self._page_size
        filters, window, listing = self._reach(lookup, size)
        last = _last_rows(listing.rows, frozenset(lookup.accounts))
        if is_probe and listing.more and not last:
            return {}, [replace(lookup, is_probed=True)]
        is_full, end, cut_block = listing.more, window.start, None
        if is_full:
            newest, oldest = (
                listing.span if len(listing.times) else (lookup.end - 1, lookup.end - 1)
            )
            end, cut_block = oldest + 1, oldest
            if newest == oldest and len(last) < len(lookup.accounts):
                # The block fills the page; or a node that includes the end filled it with others.
                listing = settle_block(self._ask, filters, oldest, window.page_size)
                last = _last_rows(listing.rows, frozenset(lookup.accounts))
                end, cut_block = oldest, None
        _check_restart(lookup, listing)
        left = tuple(account for account in lookup.accounts if account not in last)
        if not left or end <= lookup.start:
            return last, []
        is_fruitless = is_full and len(last) * _FRUITFUL < len(lookup.accounts)
        parts = _halves(left) if is_fruitless else [left]
        return last, [
            Lookup(
                part, lookup.start, end, self._has_row(listing, cut_block, part), lookup.is_probed
            )
            for part in parts
        ]

    def _has_row(self, listing: Listing, block: int | None, accounts: tuple[Account, ...]) -> bool:
        """Whether a row of a block has come that the accounts' filters let through."""
        if block is None:
            return False
        rows = listing.between(block, block + 1).rows
        for name, values in self._filters(accounts).allowed().items():
            rows = rows.filter(pc.is_in(rows[name].cast(pa.string()), pa.array(values)))
        return bool(rows.num_rows)

    def _filters(self, accounts: tuple[Account, ...]) -> Filters:
        """Return the tightest filters for these accounts that fit one request."""
        assets, types, parties, markets = (
            tuple(sorted(set(ids))) for ids in zip(*accounts, strict=True)
        )
        are_markets = all(markets) and len(parties) + len(markets) <= IDS_PER_REQUEST
        return Filters(
            asset_id=assets[0] if len(assets) == 1 else None,
            party_ids=parties,
            market_ids=markets if are_markets else (),
            account_types=types if all(map(self._is_askable, types)) else (),
        )

    def _is_askable(self, account_type: str) -> bool:
        if account_type in INTERFACE_ACCOUNT_TYPES:
            return account_type != _NOT_ASKABLE
        return self._asks_later_types and not account_type.isdecimal()

    def _reach(self, lookup: Lookup, size: int) -> tuple[Filters, Window, Listing]:
        """Return the newest page of a window, how far back it looked, and by what filters."""
        filters = self._filters(lookup.accounts)
        window = Window(max(lookup.start, lookup.end - self._width), lookup.end, size)
        try:
            return filters, *self._reach_less(filters, window)
        except RequestError as error:
            if not is_refusal(error) or set(filters.account_types) <= set(INTERFACE_ACCOUNT_TYPES):
                raise
        # An older node refuses the name of a later type.
        self._asks_later_types = False
        filters = self._filters(lookup.accounts)
        return filters, *self._reach_less(filters, window)

    def _reach_less(self, filters: Filters, window: Window) -> tuple[Window, Listing]:
        listing, less, accepted = ask_less(
            lambda part: fetch(self._ask, filters, part, newest_first=True),
            window,
            newest_first=True,
        )
        if less.start > window.start:
            self._width = min(self._width, less.end - less.start)
        if accepted < window.page_size:
            self._page_size = min(self._page_size, accepted)
        return less, listing

    def _is_whole(self, asset_id: str, oldest: int, present: int) -> bool:
        """Whether the node is seen to hold an asset's history from its beginning.

        It holds no row of it before `oldest`; until `present` it may have begun.
        """
        start = oldest
        while start < present:
            window = Window(start, min(present, start + LONGEST_WINDOW), _BEGINNING)
            rows_of = partial(fetch, self._ask, Filters(asset_id=asset_id))
            listing, window, _ = ask_less(rows_of, window)
            if len(listing.times):
                return _is_beginning(listing)
            if listing.more:
                return False
            start = window.end
        return False


def _by_party(accounts: Iterable[Account]) -> list[tuple[Account, ...]]:
    """Return accounts in parts of so many parties as a request takes, neighbours alike."""
    parties: dict[str, list[Account]] = {}
    for account in sorted(accounts):
        parties.setdefault(account[2], []).append(account)
    owned = [parties[party] for party in sorted(parties)]
    return [
        tuple(account for group in owned[i : i + IDS_PER_REQUEST] for account in group)
        for i in range(0, len(owned), IDS_PER_REQUEST)
    ]


def _halves(accounts: tuple[Account, ...]) -> list[tuple[Account, ...]]:
    middle = len(accounts) // 2
    return [half for half in (accounts[:middle], accounts[middle:]) if half]


def _check_restart(lookup: Lookup, listing: Listing) -> None:
    if lookup.ends_with_row and (not len(listing.times) or listing.span[0] != lookup.end - 1):
        found = f"at {moment(listing.span[0])}" if len(listing.times) else "nowhere"
        raise IncompleteError(
            f"a row stands at {moment(lookup.end - 1)}, but the answer that restarts there, newest "
            f"first in {range_text(lookup.start, lookup.end)}, begins {found}: the node has lost or"
            " withheld rows"
        )


def _last_rows(
    rows: pa.RecordBatch, accounts: frozenset[Account]
) -> dict[Account, tuple[int, Decimal]]:
    """Return time and balance of the first row that each account has among rows, newest first.

    Raises
    ------
    CheckError
        If another row of that account and time differs.
    """
    ids = list(zip(*(rows[name].to_pylist() for name in ACCOUNT_KEY), strict=True))
    places = [place for place, account in enumerate(ids) if account in accounts]
    chosen = rows.take(pa.array(places, pa.int64()))
    times = chosen["timestamp"].cast(pa.int64()).to_pylist()
    balances = chosen["balance"].to_pylist()
    first: dict[Account, int] = {}
    for i, place in enumerate(places):
        j = first.setdefault(ids[place], i)
        if times[i] == times[j] and balances[i] != balances[j]:
            raise CheckError(
                f"two rows of the account {ids[place]} at {moment(times[i])} differ: "
                f"{balances[j]} and {balances[i]}",
                rows=to_frame(pa.Table.from_batches([chosen.take(pa.array([j, i]))])),
            )
    return {account: (times[i], balances[i]) for account, i in first.items()}


def _is_beginning(listing: Listing) -> bool:
    """Whether an asset's oldest rows, oldest first, begin with the block in which it came to be."""
    first, last = listing.span
    if first == last and listing.more:
        return False
    rows = listing.between(first, first + 1).rows
    return EXTERNAL in rows["account_type"].to_pylist() and not any(rows["balance"].to_pylist())
