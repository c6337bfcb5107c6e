"""The explorer's data frozen into a page: all views of a few ranges, and the largest accounts."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, zip_longest
from typing import Any, Final

import msgspec
import pandas as pd

from balance_analysis.explorer.query import Query, write_key, write_view
from balance_analysis.explorer.sheets import Sheet, Sheets
from balance_analysis.explorer.source import Key, TableSource, keys_of
from balance_analysis.explorer.views import (
    PAGE,
    ROW_COLUMNS,
    Explorer,
    by_size,
    draw_line,
    find_rows,
    steps_of,
    tell_accounts,
)
from balance_analysis.schema import ACCOUNT_KEY
from balance_analysis.text import count_text

_LISTED: Final = 8000
"""Rows of the tables of holders at one moment, of all assets together."""

_RANGES: Final = tuple(days * 86_400_000_000 for days in (1, 7, 30, 91))
"""Those that the page has buttons for."""

_AT_ONCE: Final = 500
"""So many accounts are computed at once: of the others that don't fit in, nothing is."""

_BLOCK: Final = 40_000
"""Bytes that a packer gives out at once, at most."""

_UNLIMITED: Final = 1 << 40
_GZIP: Final = 31


def freeze(
    source: TableSource, *, room: int, first: Sequence[Key] = (), largest: int | None = None
) -> bytes:
    """Return what a page shows of a source, as JSON, gzipped.

    Parameters
    ----------
    source
        What to look at.
    room
        How many bytes there are for it. Accounts are left out that don't fit, and it says so.
    first
        The accounts that the chart shows, which come first; by default the largest.
    largest
        How many accounts of each asset there are at most.
    """
    packed, ids = _Packed(room), source.asset_ids()
    explorer = Explorer(source, most=_LISTED // (len(ids) + 1) + 1)
    for key, view in _common(explorer, source):
        packed.add({key: view})
    ranked = _rank(explorer.held("", max(source.end - 1, 0)))
    in_turn = chain.from_iterable(zip_longest(*(ranked[asset][:largest] for asset in ids)))
    wanted, added = [*dict.fromkeys((*first, *filter(None, in_turn)))], 0
    for views in _views_of(source, wanted):
        if packed.is_full:
            break
        added += packed.add(views)
    there = sum(map(len, ranked.values()))
    said = (
        f"This page has the histories of {'all ' * (there == added)}{count_text(added, 'account')}"
    )
    said += f"; those of {there - added:,} others are left out." if there > added else "."
    said += " Holders are told at the end, and where each range begins."
    return packed.close({"said": said, "first": [write_key(account) for account in first]})


def _common(explorer: Explorer, source: TableSource) -> Iterator[tuple[str, object]]:
    """Yield the views that are not of one account."""
    for name in ("about", "notes"):
        yield write_view(name), explorer.answer(name, Query())
    for name in ("accounts", "holders"):
        yield from _of_assets(explorer, source, name, Query())
    starts = {max(source.start, source.end - length) for length in _RANGES} | {source.start}
    for start in sorted(starts):
        yield from _of_assets(explorer, source, "holders", Query(at=start), start)
        query = Query(start=start, end=source.end)
        for name in ("totals", "flows", "movers"):
            yield from _of_assets(explorer, source, name, query, start, source.end)


def _of_assets(
    explorer: Explorer, source: TableSource, name: str, query: Query, *values: int
) -> Iterator[tuple[str, object]]:
    """Yield a view of each asset: computed together, or alone where that of one can't be told."""
    try:
        views = explorer.answers(name, query)
    except OverflowError:
        alone = {asset: replace(query, asset=asset) for asset in source.asset_ids()}
        views = {
            asset: _unless_refused(partial(explorer.answer, name, one))
            for asset, one in alone.items()
        }
    for asset, view in views.items():
        yield write_view(name, asset, *values), view


def _unless_refused(tell: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what is told, or what the page says instead where a sum has too many digits."""
    try:
        return tell()
    except OverflowError as error:
        return {"refused": f"This part of the data can't be told: {error}"}


def _rank(held: pd.DataFrame) -> defaultdict[str, list[Key]]:
    """Return the accounts of each asset, those that hold most first."""
    ranked: defaultdict[str, list[Key]] = defaultdict(list)
    for account in keys_of(held.iloc[by_size(held)]):
        ranked[account[0]].append(account)
    return ranked


class _Packed:
    """What a page holds, packed as it comes, so that its size is known."""

    def __init__(self, room: int) -> None:
        self._room, self._size = room, 0
        self._packer = zlib.compressobj(wbits=_GZIP)
        self._parts = [self._packer.compress(b'{"views":{"":null')]

    @property
    def is_full(self) -> bool:
        """Whether there is no room for more; what the packer still holds counts little."""
        return self._size > self._room - _BLOCK

    def add(self, views: dict[str, object]) -> bool:
        """Add views by their keys, if there is room for all; return whether there was."""
        packer = self._packer.copy()
        entries = (
            b"," + msgspec.json.encode(key) + b":" + msgspec.json.encode(view)
            for key, view in views.items()
        )
        parts = list(map(packer.compress, entries))
        size = self._size + sum(map(len, parts))
        has_room = size <= self._room
        if has_room:
            self._packer, self._size = packer, size
            self._parts += parts
        return has_room

    def close(self, rest: dict[str, object]) -> bytes:
        """Return all of it."""
        self._parts.append(self._packer.compress(b"}," + msgspec.json.encode(rest)[1:]))
        return b"".join([*self._parts, self._packer.flush()])


def _views_of(source: TableSource, accounts: list[Key]) -> Iterator[dict[str, object]]:
    """Yield all views of each account: computed together, or apart where one's can't be told."""
    for place in range(0, len(accounts), _AT_ONCE):
        some = accounts[place : place + _AT_ONCE]
        try:
            told = _Some(source, some)
        except OverflowError:
            half = len(some) // 2
            yield from _views_of(source, some[:half])
            yield from _views_of(source, some[half:])
        else:
            yield from (dict(told.views(account)) for account in some)


class _Some:
    """What is told of some accounts; of one alone, also that it can't be told."""

    def __init__(self, source: TableSource, accounts: list[Key]) -> None:
        self._source, history = source, source.of(accounts)
        self._query = query = Query(start=source.start, end=source.end, width=_UNLIMITED)
        self._steps = steps_of(history, query)
        self._numbers = {key: place for place, key in enumerate(keys_of(self._steps.accounts))}

        def tell_facts() -> dict[str, Any]:
            found = tell_accounts(*history, query)
            return {name: Sheets(frame, ACCOUNT_KEY) for name, frame in found.items()}

        def tell_rows() -> dict[str, Any]:
            return {"rows": Sheets(find_rows(*history, query), ACCOUNT_KEY, ROW_COLUMNS)}

        is_alone = len(accounts) == 1
        self._facts, self._rows = (
            _unless_refused(tell) if is_alone else tell() for tell in (tell_facts, tell_rows)
        )

    def views(self, account: Key) -> Iterator[tuple[str, object]]:
        """Yield the views of an account."""
        key, bounds = write_key(account), (self._source.start, self._source.end)
        number = self._numbers[account]
        line = draw_line(self._steps.part(number, number + 1), self._source, self._query)
        yield write_view("series", key), {"series": [{"key": key, **line}]}
        facts, listing = (
            {name: part.of(account) if isinstance(part, Sheets) else part for name, part in all_}
            for all_ in (self._facts.items(), self._rows.items())
        )
        yield write_view("account", key, *bounds), facts
        rows: Sheet = listing.get("rows", {"rows": []})
        count, newest = len(rows["rows"]), rows["rows"][::-1]
        pages = -(-count // PAGE)
        for page in range(max(pages, 1)):
            shown = {**rows, "rows": newest[page * PAGE : (page + 1) * PAGE]}
            told = {**listing, "count": count, "pages": pages, "rows": shown}
            yield write_view("rows", key, *bounds, page), told
