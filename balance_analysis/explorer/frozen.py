"""The explorer's data frozen into a page: all views of a few ranges, and the largest accounts."""

from __future__ import annotations

import zlib
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from balance_analysis.explorer.query import Query, write_key, write_view
from balance_analysis.explorer.sheets import to_sheet
from balance_analysis.explorer.source import keys_of
from balance_analysis.explorer.views import (
    PAGE,
    ROW_COLUMNS,
    Explorer,
    by_size,
    draw_line,
    filters_of,
    find_rows,
    own_columns,
    steps_of,
    tell_accounts,
)
from balance_analysis.schema import ACCOUNT_KEY
from balance_analysis.text import count_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from balance_analysis.explorer.sheets import Sheet
    from balance_analysis.explorer.source import Key, TableSource

_LISTED: Final = 8000
"""Rows of the tables of holders at one moment, of all assets together."""

_RANGES: Final = tuple(days * 86_400_000_000 for days in (1, 7, 30, 91))
"""Those that the page has buttons for."""

_AT_ONCE: Final = 100
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
    packed, state = _Packed(room), source
    ids = source.asset_ids()
    explorer = Explorer(source, most=_LISTED // (len(ids) + 1) + 1)
    for key, view in _common(explorer, source, state):
        packed.add({key: view})
    assets = {
        asset: _Accounts(source, state, explorer.held(asset, max(state.end - 1, 0)))
        for asset in ids
    }
    ranked = [each.ranked[:largest] for each in assets.values()]
    for account in (*first, *filter(None, chain.from_iterable(zip_longest(*ranked)))):
        if packed.is_full:
            break
        assets[account[0]].add(packed, account)
    there = sum(len(each.ranked) for each in assets.values())
    added = sum(len(each.added) for each in assets.values())
    said = (
        f"This page has the histories of {'all ' * (there == added)}{count_text(added, 'account')}"
    )
    said += f"; those of {there - added:,} others are left out." if there > added else "."
    said += " Holders are told at the end, and where each range begins."
    return packed.close({"said": said, "first": [write_key(account) for account in first]})


def _common(
    explorer: Explorer, source: TableSource, state: TableSource
) -> Iterator[tuple[str, object]]:
    """Yield the views that are not of one account."""
    for name in ("about", "notes"):
        yield write_view(name), explorer.answer(name, Query())
    starts = {max(state.start, state.end - length) for length in _RANGES} | {state.start}
    for asset in source.asset_ids():
        for name in ("accounts", "holders"):
            yield write_view(name, asset), explorer.answer(name, Query(asset))
        for start in sorted(starts):
            yield (
                write_view("holders", asset, start),
                explorer.answer("holders", Query(asset, at=start)),
            )
            query = Query(asset, start=start, end=state.end)
            for name in ("totals", "flows", "movers"):
                yield write_view(name, asset, start, state.end), explorer.answer(name, query)


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


class _Accounts:
    """The accounts of an asset, those that hold most first, computed some at once."""

    def __init__(self, source: TableSource, state: TableSource, held: pd.DataFrame) -> None:
        self._source, self._state = source, state
        self._query = Query(start=state.start, end=state.end, width=_UNLIMITED)
        self.added: set[Key] = set()
        self.ranked = keys_of(held.iloc[by_size(held["balance"])])
        self._places = {key: place for place, key in enumerate(self.ranked)}
        self._read: dict[int, _Some] = {}

    def add(self, packed: _Packed, account: Key) -> None:
        """Add all views of an account, once, if there is room for them."""
        if account not in self.added and packed.add(dict(self._views(account))):
            self.added.add(account)

    def _views(self, account: Key) -> Iterator[tuple[str, object]]:
        place = self._places[account] // _AT_ONCE
        if place not in self._read:
            asked = filters_of(self.ranked[place * _AT_ONCE :][:_AT_ONCE])
            history = self._source.rows(asked, self._state.start, self._state.end)
            self._read[place] = _Some(*history, self._query)
        key, some = write_key(account), self._read[place]
        bounds = self._state.start, self._state.end
        number = some.numbers[account]
        line = draw_line(some.steps.part(number, number + 1), self._state, self._query)
        yield write_view("series", key), {"series": [{"key": key, **line}]}
        sheets = {name: sheet.of(account) for name, sheet in some.told.items()}
        yield write_view("account", key, *bounds), sheets
        rows = some.rows.of(account)
        count, newest = len(rows["rows"]), rows["rows"][::-1]
        pages = -(-count // PAGE)
        for page in range(max(pages, 1)):
            shown = {**rows, "rows": newest[page * PAGE : (page + 1) * PAGE]}
            listing = {"count": count, "pages": pages, "rows": shown}
            yield write_view("rows", key, *bounds, page), listing


class _Some:
    """What is told of some accounts."""

    def __init__(self, table: pd.DataFrame, opening: pd.DataFrame | None, query: Query) -> None:
        self.steps = steps_of((table, opening), query)
        self.numbers = {key: place for place, key in enumerate(keys_of(self.steps.accounts))}
        told = tell_accounts(table, opening, query)
        self.told = {name: _Sheets(frame, own_columns(frame)) for name, frame in told.items()}
        self.rows = _Sheets(find_rows(table, opening, query), ROW_COLUMNS)


class _Sheets:
    """A frame that stands by account as a sheet, and that of each account."""

    def __init__(self, frame: pd.DataFrame, names: Sequence[str]) -> None:
        heads = np.flatnonzero(~frame.duplicated(list(ACCOUNT_KEY)))
        stops = [*heads[1:].tolist(), len(frame)]
        slices = map(slice, heads.tolist(), stops)
        self._places = dict(zip(keys_of(frame.iloc[heads]), slices, strict=False))
        self._whole = to_sheet(frame, names)

    def of(self, account: Key) -> Sheet:
        """Return the sheet of an account; where it has no row, an empty one."""
        rows = self._whole["rows"][self._places.get(account, slice(0))]
        return {**self._whole, "rows": rows}
