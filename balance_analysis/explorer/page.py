"""The page itself: its files, as a service sends them, or frozen into one with its data.

Frozen, it has all views of a few ranges, and the histories of the largest accounts.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib import resources
from itertools import chain, zip_longest
from typing import Any, Final

import msgspec
from markupsafe import Markup

from balance_analysis.analysis.balances import held_at
from balance_analysis.analysis.holders import by_size
from balance_analysis.explorer.frames import (
    apart,
    find_rows,
    steps_of,
    sum_up,
    tell_accounts,
    tell_parties,
)
from balance_analysis.explorer.source import TableState
from balance_analysis.explorer.views import (
    PAGE,
    Look,
    answer,
    answers,
    draw_line,
    shares_at,
)
from balance_analysis.explorer.wire import (
    Key,
    Query,
    Records,
    keys_of,
    records_by,
    write_key,
    write_view,
)
from balance_analysis.schema import ACCOUNT_KEY, from_microseconds
from balance_analysis.text import count_text

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""A browser runs no script and takes no style but the page's files, and asks nobody else."""

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
}
_MODULES: Final = (
    *("text", "dom", "data", "table", "scale", "chart", "picture", "compare"),
    *("address", "moments", "search", "plots", "panels", "headline", "lines", "app"),
)
"""The page's own modules, none of which imports one behind it; no two have the same names."""

_WIRING: Final = re.compile(r"^import .*\n|^export ", re.MULTILINE)
_LINKED: Final = re.compile(r'<(link rel="stylesheet"|script) .*>\n')

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


@cache
def static_files() -> dict[str, tuple[bytes, str]]:
    """Return the page and its files by their paths, each with its media type."""
    folder = resources.files("balance_analysis.explorer") / "static"
    found = {
        f"/static/{file.name}": (file.read_bytes(), _TYPES[file.name.rpartition(".")[2]])
        for file in folder.iterdir()
    }
    return {**found, "/": found.pop("/static/index.html")}


def freeze_page(
    state: TableState,
    head: Markup,
    *,
    room: int,
    first: Sequence[Key] = (),
    largest: int | None = None,
) -> str:
    """Return the page as one HTML file that needs nothing else.

    Parameters
    ----------
    state
        What to look at.
    head
        What the page tells without scripts, too.
    room
        How many bytes there are for the packed data. Accounts are left out that don't fit, and it
        says so.
    first
        The accounts that the chart shows, which come first; by default the largest.
    largest
        How many accounts of each asset there are at most.
    """
    data = _freeze(state, room, first, largest)
    style = _read("explorer.css")
    script = "".join(_WIRING.sub("", _read(f"{name}.js")) for name in _MODULES)
    policy = (
        f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    before = f"""\
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="generator" content="balance-analysis">
<style>{style}</style>
</head>"""
    behind = f"""\
<script type="application/gzip" id="frozen">{base64.b64encode(data).decode()}</script>
<script type="module">{script}</script>
</body>"""
    html = _LINKED.sub("", static_files()["/"][0].decode())
    html = html.replace("</head>", before).replace("</body>", behind)
    html = html.replace("<title>Balances</title>", Markup("<title>{}</title>").format(state.name))
    return html.replace('<div id="said"></div>', f'<div id="said">{head}</div>')


def _read(name: str) -> str:
    return static_files()[f"/static/{name}"][0].decode()


def digest(text: str) -> str:
    """Return what a `Content-Security-Policy` knows a script or a style by."""
    found = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(found).decode()}'"


def _freeze(state: TableState, room: int, first: Sequence[Key], largest: int | None) -> bytes:
    """Return what the page shows, as JSON, gzipped."""
    packed, ids = _Packed(room), state.asset_ids()
    for key, view in _common(state, ids):
        packed.add({key: view})
    ranked, end = defaultdict[str, list[Key]](list), max(state.end - 1, 0)
    held = held_at(state.history, from_microseconds(end))
    for account in keys_of(held.iloc[by_size(held["asset_id"], held["balance"])]):
        ranked[account[0]].append(account)
    in_turn = chain.from_iterable(zip_longest(*(ranked[asset][:largest] for asset in ids)))
    wanted, added = [*dict.fromkeys((*first, *filter(None, in_turn)))], 0
    for views in _histories(state, wanted, _shares(state, ids)):
        if packed.is_full:
            break
        added += packed.add(views)
    parties = dict.fromkeys(account[2] for account in wanted)
    for views in _parties(state, list(parties)):
        packed.add(views)
    rest = len(held) - added
    said = f"This page has the histories of {'all ' * (not rest)}{count_text(added, 'account')}"
    said += f"; those of {rest:,} others are left out." if rest else "."
    said += " Holders are shown at the end and at the beginning of each range."
    return packed.close({"said": said, "first": [write_key(account) for account in first]})


def _common(state: TableState, ids: list[str]) -> Iterator[tuple[str, object]]:
    """Yield the views that are not of one account."""
    look = Look(state, Query(), most=_LISTED // (len(ids) + 1) + 1)
    for name in ("about", "notes"):
        yield write_view(name), answer(name, look)
    asked: list[tuple[str, Query, tuple[object, ...]]] = [
        *((name, Query(), ()) for name in ("accounts", "holders")),
        ("holders", Query(by="party"), ("party",)),
    ]
    for start in _starts(state):
        asked.append(("holders", Query(at=start), (start,)))
        query, bounds = Query(start=start, end=state.end), (start, state.end)
        asked += [(name, query, bounds) for name in ("headline", "totals", "flows", "movers")]
    for name, query, values in asked:

        def tell(some: list[str], name: str = name, query: Query = query) -> dict[str, Any]:
            asset = some[0] if len(some) == 1 else ""
            return answers(name, replace(look, query=replace(query, asset=asset)), some)

        for asset, view in apart(tell, ids).items():
            yield write_view(name, asset, *values), view


def _starts(state: TableState) -> list[int]:
    """Return where the ranges begin, which end where all does."""
    return sorted({max(state.start, state.end - length) for length in _RANGES} | {state.start})


def _shares(state: TableState, ids: list[str]) -> dict[Key, float]:
    """Return which part of its asset each account holds at the end, where that can be told."""

    def tell(some: list[str]) -> dict[str, dict[Key, float]]:
        return {one: shares_at(Look(state, Query(one)), max(state.end - 1, 0)) for one in some}

    return {key: part for of in apart(tell, ids).values() for key, part in of.items()}


def _histories(
    state: TableState, accounts: list[Key], shares: dict[Key, float]
) -> Iterator[dict[str, object]]:
    """Yield all views of each account."""
    look = Look(state, Query(start=state.start, end=state.end, width=_UNLIMITED))
    bounds, by = (state.start, state.end), list(ACCOUNT_KEY)

    def facts_of(some: list[Key]) -> dict[Key, Any]:
        return records_by(tell_accounts(state.of(some), look.query), by, some)

    def rows_of(some: list[Key]) -> dict[Key, Any]:
        return records_by({"rows": find_rows(state.of(some), look.query)}, by, some)

    def sums_from(start: int, some: list[Key]) -> dict[Key, Any]:
        query = replace(look.query, start=start)
        return records_by({"summary": sum_up(state.of(some), shares, query)}, by, some)

    for place in range(0, len(accounts), _AT_ONCE):
        some = accounts[place : place + _AT_ONCE]
        facts, rows = apart(facts_of, some), apart(rows_of, some)
        sums = {start: apart(partial(sums_from, start), some) for start in _starts(state)}
        for account, steps in steps_of(state.of(some), look.query, some).items():
            key = write_key(account)
            yield {
                write_view("series", key): {"series": [{"key": key, **draw_line(steps, look)}]},
                write_view("account", key, *bounds): facts[account],
                **{
                    write_view("summary", key, start, state.end): told[account]
                    for start, told in sums.items()
                },
                **{
                    write_view("rows", key, *bounds, page): view
                    for page, view in enumerate(_pages(rows[account]))
                },
            }


def _parties(state: TableState, parties: list[str]) -> Iterator[dict[str, object]]:
    """Yield the view of each party."""
    query, accounts = Query(start=state.start, end=state.end), keys_of(state.history.accounts)
    for place in range(0, len(parties), _AT_ONCE):
        some = parties[place : place + _AT_ONCE]
        wanted = {*some}
        history = state.of(account for account in accounts if account[2] in wanted)
        for party, view in tell_parties(history, query, some).items():
            yield {write_view("party", party, state.start, state.end): view}


def _pages(listing: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what is told of an account's rows page by page, newest first."""
    rows: Records = listing.get("rows", {"rows": []})
    newest = rows["rows"][::-1]
    pages = -(-len(newest) // PAGE)
    for page in range(max(pages, 1)):
        shown = {**rows, "rows": newest[page * PAGE : (page + 1) * PAGE]}
        yield {**listing, "count": len(newest), "pages": pages, "rows": shown}


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
