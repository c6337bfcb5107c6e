"""The rules of the interface over a list of rows, written without looking at the service."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import strategies as st

from tests.loopback import ACCOUNT_TYPES
from tests.service.rows import ASSETS, BASE, HOUR, MARKETS, MOMENTS, PARTIES, TYPES

ASSET = "filter.assetId"
PARTY = "filter.partyIds"
MARKET = "filter.marketIds"
TYPE = "filter.accountTypes"
FIRST = "pagination.first"
AFTER = "pagination.after"
LAST = "pagination.last"
BEFORE = "pagination.before"
NEWEST = "pagination.newestFirst"
START = "dateRange.startTimestamp"
END = "dateRange.endTimestamp"

LISTS = (PARTY, MARKET, TYPE)
NAMES = (ASSET, *LISTS, FIRST, AFTER, LAST, BEFORE, NEWEST, START, END)

UNSPECIFIED = "ACCOUNT_TYPE_UNSPECIFIED"

TRUE = ("1", "t", "T", "true", "TRUE", "True")
FALSE = ("0", "f", "F", "false", "FALSE", "False")
_BOOLEANS = {**dict.fromkeys(TRUE, True), **dict.fromkeys(FALSE, False)}


def snake(name):
    """Return a parameter's name in the other spelling."""
    return re.sub("[A-Z]", lambda capital: "_" + capital[0].lower(), name)


CANONICAL = {spelling: name for name in NAMES for spelling in (name, snake(name))}
_IN_GROUP = re.compile(r"(filter|pagination|dateRange|date_range)[.\[]")


class ServedPage(NamedTuple):
    """A right answer.

    Attributes
    ----------
    missing
        What may be missing: parts of the range, `None` where only that there is one is known, and
        the names of filters that the archive is bound to more narrowly.
    """

    rows: list
    has_next: bool
    has_previous: bool
    missing: list


class Refused(NamedTuple):
    """No answer, because of any of these parameters."""

    names: list


@dataclass
class _Asked:
    """What the items of a query string say, and which of them say nothing that is known."""

    items: list
    rows: tuple
    cursors: dict
    wrong: list = field(default_factory=list)

    def values(self, name):
        return [value for given, value in self.items if CANONICAL.get(given) == name]

    def one(self, name, read):
        found = self.values(name)
        value = None
        if len(found) == 1:
            value = read(found[0])
        if len(found) > 1 or (found and value is None):
            self.wrong.append(name)
        return value

    def several(self, name, is_right):
        found = self.values(name)
        if not all(map(is_right, found)):
            self.wrong.append(name)
        return found

    def integer(self, name, bits):
        def read(text):
            if not re.fullmatch("-?[0-9]+", text, re.ASCII) or len(text) > 30:
                return None
            return int(text) if -(2 ** (bits - 1)) <= int(text) < 2 ** (bits - 1) else None

        return self.one(name, read)

    def is_type(self, name):
        return name in ACCOUNT_TYPES or any(row.account_type == name for row in self.rows)


def _is_id(text):
    return re.fullmatch("[0-9a-fA-F]{64}", text) is not None


def _is_party(text):
    return text == "network" or _is_id(text)


def expected(held, items, cursors):
    """Return the `ServedPage` or `Refused` that a request is to be answered with.

    Parameters
    ----------
    held
        What the archive holds.
    items
        Names and values of the query string.
    cursors
        The row of each cursor that the service gave.
    """
    asked = _Asked(items, held.rows, cursors)
    for name, _ in items:
        if name not in CANONICAL and _IN_GROUP.match(name):
            asked.wrong.append(name)
    keep = _filter(asked)
    start, end = asked.integer(START, 64), asked.integer(END, 64)
    size, backward, cursor = _paging(asked)
    newest = asked.one(NEWEST, _BOOLEANS.get)
    if asked.wrong:
        return Refused(asked.wrong)
    # Bounds are nanoseconds and rows stand on microseconds: cut the bounds.
    start = None if start is None else start // 1000
    end = None if end is None else end // 1000
    found = [
        row
        for row in held.rows
        if keep(row) and (start is None or start <= row.time) and (end is None or row.time < end)
    ]
    listed = ordered(found, newest_first=newest is not False)
    page = _cut(listed, size, backward, cursor, newest is not False)
    lacking = [*missing(held, start, end), *_others(held, asked)]
    if {*asked.values(TYPE)} == {UNSPECIFIED}:
        lacking = []  # No row anywhere is meant.
    return ServedPage(*page, lacking)


def _others(held, asked):
    """Return the columns of which more is asked for than the archive was bound to."""
    found = []
    for option, values in held.bound:
        name, column = _COLUMNS[option]
        wanted = {value.lower() for value in asked.values(name)} - {"", UNSPECIFIED.lower()}
        if not wanted or not wanted <= {value.lower() for value in values}:
            found.append(column)
    return found


_COLUMNS = {
    "asset_id": (ASSET, "asset_id"),
    "party_ids": (PARTY, "party_id"),
    "market_ids": (MARKET, "market_id"),
    "account_types": (TYPE, "account_type"),
}


def _filter(asked):
    assets = asked.values(ASSET)
    if len(assets) > 1:
        asked.wrong.append(ASSET)
    parties = asked.several(PARTY, _is_party)
    markets = asked.several(MARKET, _is_id)
    types = asked.several(TYPE, asked.is_type)

    def keep(row):
        return (
            (assets in ([], [""]) or row.asset_id in assets)
            and (not parties or row.party_id in _spellings(parties))
            and (not markets or row.market_id in _spellings(markets))
            # The default value is no type that an account could be asked for by.
            and (not types or row.account_type in {*types} - {UNSPECIFIED})
        )

    return keep


def _spellings(ids):
    return {*ids, *(value.lower() for value in ids)}


def _paging(asked):
    """Return the page size, whether it is counted backwards, and the row of the cursor."""
    first, last = asked.integer(FIRST, 32), asked.integer(LAST, 32)
    after, before = asked.values(AFTER), asked.values(BEFORE)
    backward = first is None and (last is not None or bool(before))
    if after and before:
        asked.wrong += [AFTER, BEFORE]
    size = last if backward else first
    if size is not None and not 1 <= size <= 5000:
        asked.wrong.append(LAST if backward else FIRST)
    used = BEFORE if backward else AFTER
    cursor = asked.one(used, asked.cursors.get)
    asked.one(AFTER if backward else BEFORE, lambda text: text or 0)
    return size or 1000, backward, cursor


def _cut(listed, size, backward, cursor, newest_first):
    """Return a page of a list, and whether there is more on either side."""

    def is_beyond(row):
        later = row.place > cursor.place
        return row.place != cursor.place and (later == (backward == newest_first))

    left = [row for row in listed if cursor is None or is_beyond(row)]
    page = left[-size:] if backward else left[:size]
    if not page:
        return [], False, False
    more, others = len(left) > size, len(left) < len(listed)
    return (page, others, more) if backward else (page, more, others)


def ordered(rows, *, newest_first):
    return sorted(rows, key=lambda row: row.place, reverse=newest_first)


def missing(held, start, end):
    """Return the parts of a range that are not covered, then those that are not proven.

    An end that is left open is that of all that was asked for, unless the range lies beyond it:
    then it is only known that there is something, `None`.
    """
    if start is not None and end is not None and start >= end:
        return []
    covered = held.covered
    if not covered:
        return [None]
    low = covered[0].start if start is None else start
    high = covered[-1].end if end is None else end
    if low >= high:
        return [None]
    edges = {low, high, *(edge for each in covered for edge in each[:2] if low < edge < high)}
    parts = list(itertools.pairwise(sorted(edges)))
    holes = [part for part in parts if not _lies_in(part, covered)]
    vague = [part for part in parts if _lies_in(part, [s for s in covered if not s.proven])]
    # A first microsecond is the margin of a client that doesn't trust the start to be inclusive.
    margin = [(low, low + 1)] if low + 1 < high else []
    found = [_joined(holes), _joined(vague)]
    return [part for parts in found for part in parts[parts[:1] == margin and len(margin) :]]


def _lies_in(part, stretches):
    return any(each.start <= part[0] and part[1] <= each.end for each in stretches)


def _joined(parts):
    found = []
    for start, end in parts:
        begin = found.pop()[0] if found and found[-1][1] == start else start
        found.append((begin, end))
    return found


_OTHER_ID = "1" * 64
_OFFS = st.sampled_from((-1000, -1, 0, 0, 0, 1, 999, 1000))
_SIZES = st.integers(1, 9) | st.sampled_from((1000, 5000))


def _values(rows, cursors, known):
    """Return what may stand for each parameter: mostly such as some rows have."""
    cursor = st.sampled_from(cursors) if cursors else st.nothing()
    times = st.sampled_from([row.time for row in rows] or [BASE])
    edges = st.sampled_from([BASE + moment for moment in (*MOMENTS, -48 * HOUR, 24 * HOUR)])
    bounds = st.builds(lambda time, off: time * 1000 + off, times | times | edges, _OFFS)
    bounds |= st.sampled_from((-(2**63), 2**63 - 1, 0))
    sizes = _SIZES | st.integers(1, min(len(rows) + 1, 5000))
    return {
        ASSET: st.sampled_from((*ASSETS, *ASSETS, *ASSETS, "", "no such asset")),
        PARTY: _near([row.party_id for row in rows], (*PARTIES, PARTIES[1].upper(), _OTHER_ID)),
        MARKET: _near(
            [row.market_id for row in rows if row.market_id],
            (*MARKETS[1:], MARKETS[1].upper(), _OTHER_ID),
        ),
        TYPE: _near([row.account_type for row in rows], known),
        FIRST: sizes.map(str),
        LAST: sizes.map(str),
        AFTER: cursor,
        BEFORE: cursor,
        NEWEST: st.sampled_from((*TRUE, *FALSE)),
        START: bounds.map(str),
        END: bounds.map(str),
    }


def _near(there, others):
    return st.sampled_from(there) | st.sampled_from(others) if there else st.sampled_from(others)


WRONG = (
    *((name, "") for name in NAMES if name != ASSET),
    *((name, wrong) for name in (FIRST, LAST) for wrong in ("0", "-1", "5001", "2147483648")),
    *((name, wrong) for name in (START, END) for wrong in ("9223372036854775808", "1e18", "1.0")),
    *((name, "\0") for name in NAMES if name != ASSET),
    *((name, f"{_OTHER_ID},{_OTHER_ID}") for name in LISTS),
    (MARKET, "network"),
    (TYPE, "ACCOUNT_TYPE_NONE"),
    (AFTER, "bm90IGEgY3Vyc29y"),
    (NEWEST, "yes"),
    ("filter.partyId", _OTHER_ID),
    ("filter.partyIds[]", _OTHER_ID),
    ("filter.party_id", _OTHER_ID),
    ("pagination.limit", "5"),
    ("date_range.start", "0"),
    ("dateRange[endTimestamp]", "0"),
)


@st.composite
def requests(draw, held, cursors):
    """Query strings as names and values, most of them such as the interface answers."""
    some = (
        st.lists(st.sampled_from(held.rows), min_size=2, max_size=4) if held.rows else st.just([])
    )
    rows = draw(some)
    known = sorted({row.account_type for row in rows} | set(TYPES[:4]))
    values = _values(rows, list(cursors), known)
    count = draw(st.sampled_from((3, 2, 1, 0, 4, 2, 3)))
    items = []
    names = draw(st.permutations([name for name in NAMES if name not in (AFTER, BEFORE)]))[:count]
    if cursors and draw(st.booleans()):
        names.append(draw(st.sampled_from((AFTER, BEFORE))))
    for name in names:
        number = draw(st.sampled_from((1, 2, 3))) if name in LISTS else 1
        spelling = st.sampled_from((name, name, snake(name)))
        items += [(draw(spelling), draw(values[name])) for _ in range(number)]
    if draw(st.integers(0, 9)) == 7:
        items.append(draw(st.sampled_from(WRONG)))
    if draw(st.integers(0, 9)) == 7:
        items.append(draw(st.sampled_from((("foo", "1"), ("filter", ""), ("limit", "x")))))
    return draw(st.permutations(items))
