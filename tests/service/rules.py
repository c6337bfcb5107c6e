"""The rules of the interface over a list of rows, written without looking at the service."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from tests.service.rows import ASSETS, BASE, MARKETS, MOMENTS, PARTIES, TYPES, Row


class Question(NamedTuple):
    asset_id: str | None = None
    party_ids: tuple[str, ...] = ()
    market_ids: tuple[str, ...] = ()
    account_types: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None
    first: int | None = None
    last: int | None = None
    after: Row | None = None
    before: Row | None = None
    newest_first: bool | None = None

    def parameters(self, cursors):
        """Name and value pairs; `cursors` gives the cursor of a row."""
        single = {
            "filter.assetId": self.asset_id,
            "dateRange.startTimestamp": self.start,
            "dateRange.endTimestamp": self.end,
            "pagination.first": self.first,
            "pagination.last": self.last,
            "pagination.after": self.after and cursors[self.after],
            "pagination.before": self.before and cursors[self.before],
            "pagination.newestFirst": self.newest_first and str(self.newest_first).lower(),
        }
        if self.newest_first is False:
            single["pagination.newestFirst"] = "false"
        return [
            *((name, value) for name, value in single.items() if value is not None),
            *(("filter.partyIds", value) for value in self.party_ids),
            *(("filter.marketIds", value) for value in self.market_ids),
            *(("filter.accountTypes", value) for value in self.account_types),
        ]


def passes(row, question):
    if question.asset_id is not None and row.asset_id != question.asset_id:
        return False
    if question.party_ids and row.party_id not in question.party_ids:
        return False
    if question.market_ids and row.market_id not in question.market_ids:
        return False
    if question.account_types:
        if row.account_type == "ACCOUNT_TYPE_UNSPECIFIED":
            return False
        if row.account_type not in question.account_types:
            return False
    # Bounds are nanoseconds and rows stand on microseconds: cut the bounds.
    if question.start is not None and row.time < question.start // 1000:
        return False
    return question.end is None or row.time < question.end // 1000


def ordered(rows, *, newest_first):
    return sorted(rows, key=lambda row: row.place, reverse=newest_first)


def answer(rows, question):
    """Return the nodes of the right page, hasNextPage and hasPreviousPage."""
    newest_first = question.newest_first is not False
    listed = ordered([row for row in rows if passes(row, question)], newest_first=newest_first)
    counts_from_end = question.first is None and (
        question.last is not None or question.before is not None
    )
    cursor = question.before if counts_from_end else question.after
    size = (question.last if counts_from_end else question.first) or 1000

    def is_earlier(one, other):
        return one.place > other.place if newest_first else one.place < other.place

    if counts_from_end:
        left = [row for row in listed if cursor is None or is_earlier(row, cursor)]
        page = left[-size:]
        more, near = len(left) > size, len(left) < len(listed)
        has_next, has_previous = near, more
    else:
        left = [row for row in listed if cursor is None or is_earlier(cursor, row)]
        page = left[:size]
        more, near = len(left) > size, len(left) < len(listed)
        has_next, has_previous = more, near
    if not page:
        return [], False, False
    return [row.node for row in page], has_next, has_previous


def _some(values):
    return st.just(()) | st.lists(st.sampled_from(values), min_size=1, max_size=3).map(tuple)


_BOUNDS = st.none() | st.builds(
    lambda moment, off: (BASE + moment) * 1000 + off,
    st.sampled_from(MOMENTS),
    st.sampled_from((-1000, -1, 0, 1, 999, 1000)),
)
_SIZES = st.none() | st.integers(1, 12) | st.just(5000)


@st.composite
def questions(draw, rows):
    """Questions about these rows that the interface answers."""
    known = {row.account_type for row in rows} | set(TYPES[:4])
    cursors = st.sampled_from(rows) | st.none() if rows else st.none()
    after = draw(cursors)
    return Question(
        asset_id=draw(st.none() | st.sampled_from((*ASSETS, "unknown"))),
        party_ids=draw(_some((*PARTIES, "1" * 64))),
        market_ids=draw(_some((*MARKETS[1:], "1" * 64))),
        account_types=draw(_some(sorted(known))),
        start=draw(_BOUNDS),
        end=draw(_BOUNDS),
        first=draw(_SIZES),
        last=draw(_SIZES),
        after=after,
        before=draw(cursors) if after is None else None,
        newest_first=draw(st.none() | st.booleans()),
    )
