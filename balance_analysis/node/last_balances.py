"""Find the last row of accounts before a moment, newest first, in few requests.

Many accounts are looked for in one request, in windows that reach further and further back. The
first row of an account that comes is its last one. What one request leaves open is asked again by
tighter filters, and an account that is left alone by a page of one row. The search depends on a
function that asks, not on a client.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.errors import CheckError
from balance_analysis.filters import IDS_PER_REQUEST, Filters
from balance_analysis.frame import to_frame
from balance_analysis.node.walk import (
    EARLIEST,
    LONGEST_WINDOW,
    Ask,
    Listing,
    Window,
    ask_less,
    check_restart,
    complete_block,
    fetch,
    find_oldest,
    moment,
)
from balance_analysis.rows import Account, accounts_in
from balance_analysis.schema import EXTERNAL, INTERFACE_ACCOUNT_TYPES, to_microseconds

_DAY: Final = 86_400 * 1_000_000
_LOOK_BACKS: Final = (_DAY, 8 * _DAY)
"""How far to look before the node's oldest row is asked for: nodes keep 7 days by default."""

_FRUITFUL: Final = 4
"""A full page that settles less than one in so many of its accounts is followed by tighter ones."""

_BEGINNING: Final = 100
"""Rows in which an asset's first block must end: it has one for each kind of account."""

_ASKABLE: Final = frozenset(INTERFACE_ACCOUNT_TYPES) - {"ACCOUNT_TYPE_UNSPECIFIED"}


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
            newest, oldest = listing.span if len(listing.times) else (lookup.end - 1,) * 2
            end, cut_block = oldest + 1, oldest
            if newest == oldest and len(last) < len(lookup.accounts):
                # The block fills the page; or a node that includes the end filled it with others.
                listing = complete_block(self._ask, filters, oldest, window.page_size)
                last = _last_rows(listing.rows, frozenset(lookup.accounts))
                end, cut_block = oldest, None
        if lookup.ends_with_row:
            check_restart([listing], lookup.end - 1, newest_first=True)
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
            # An older node refuses the name of a later type.
            account_types=types if _ASKABLE.issuperset(types) else (),
        )

    def _reach(self, lookup: Lookup, size: int) -> tuple[Filters, Window, Listing]:
        """Return the newest page of a window, how far back it looked, and by what filters."""
        filters = self._filters(lookup.accounts)
        window = Window(max(lookup.start, lookup.end - self._width), lookup.end, size)
        listing, less, accepted = ask_less(
            lambda part: fetch(self._ask, filters, part, newest_first=True),
            window,
            newest_first=True,
        )
        if less.start > window.start:
            self._width = min(self._width, less.end - less.start)
        if accepted < window.page_size:
            self._page_size = min(self._page_size, accepted)
        return filters, less, listing

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
    by_party = groupby(sorted(accounts, key=lambda each: (each[2], each)), itemgetter(2))
    owned = [[*group] for _, group in by_party]
    return [
        tuple(account for group in owned[i : i + IDS_PER_REQUEST] for account in group)
        for i in range(0, len(owned), IDS_PER_REQUEST)
    ]


def _halves(accounts: tuple[Account, ...]) -> list[tuple[Account, ...]]:
    middle = len(accounts) // 2
    return [half for half in (accounts[:middle], accounts[middle:]) if half]


def _last_rows(
    rows: pa.RecordBatch, accounts: frozenset[Account]
) -> dict[Account, tuple[int, Decimal]]:
    """Return time and balance of the first row that each account has among rows, newest first.

    Raises
    ------
    CheckError
        If another row of that account and time differs.
    """
    ids = accounts_in(rows)
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
