"""Open a table for arithmetic: accounts as step functions, known intervals, missing accounts.

`open_history` checks and sorts the rows once; all other functions take the history. A balance seen
at one moment is known at a later one if the table has every change between the two. A table without
metadata is assumed complete. If an account lost rows since the table was made, only its remaining
rows are known.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.analysis import int128
from balance_analysis.analysis.grid import Frequency, Grid, make_grid
from balance_analysis.analysis.steps import MAX_TIME, MIN_TIME, Steps, name_of
from balance_analysis.errors import logger
from balance_analysis.table import frame as frames
from balance_analysis.table.evidence import SetAside
from balance_analysis.table.known import (
    EVIDENCE_KEY,
    ROWS_KEY,
    Known,
    Notes,
    note_interval,
    read_notes,
)
from balance_analysis.table.moments import EVER, Moment, clipped, gaps_in, moment_text
from balance_analysis.table.names import Names, names_in
from balance_analysis.table.schema import (
    ACCOUNT_KEY,
    ATTRS_KEY,
    COLUMNS,
    FIRST_MOMENT,
    Ints,
    Mask,
    are_heads,
    number_ids,
)
from balance_analysis.table.text import count_text, spans_text

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class History:
    """A checked table and its known intervals.

    Functions that take a table or an archive also take a history, which they don't check again.

    Attributes
    ----------
    rows
        The table's changes, as returned by `frame.to_frame`, without openings and attrs. Changes of
        holders (see `totals.merged`) have no balance.
    accounts
        Each account's `ACCOUNT_KEY` (category of str, categories sorted and all in use), sorted,
        including accounts that have only an opening.
    steps
        These accounts as step functions, computed as if every change were known.
    known
        The intervals in which every change is known; `None` if not stated.
    attrs
        The table's attrs.
    frame
        The caller's frame, which may have columns besides a table's.
    extent
        The times of the first and the last change (in microseconds); empty if there are no changes.
    set_aside
        Bad rows that were set aside. A bad row makes its account's balance unknown; if the account
        is unreadable, those of all accounts.
    is_changed
        A mask of the accounts that lost or gained rows since the table was made.
    """

    rows: pd.DataFrame
    accounts: pd.DataFrame
    steps: Steps
    known: Known | None
    attrs: dict[Any, Any]
    frame: pd.DataFrame
    extent: Ints
    set_aside: tuple[SetAside, ...]
    is_changed: Mask

    @property
    def outline(self) -> History:
        """The history itself: see `AccountSlices.outline`."""
        return self

    def map(
        self, function: Callable[[History], T], _: Grid | None = None, *, per_point: bool = False
    ) -> Iterator[T]:
        """Yield a function's result for this history."""
        yield function(self)

    def history_at(self, _: Ints) -> History:
        """Return this history, which covers every moment."""
        return self

    @property
    def columns(self) -> list[str]:
        """The columns to group by: those of `accounts`, and the frame's additional ones."""
        others = (str(name) for name in self.frame if name not in COLUMNS)
        return [*dict.fromkeys([*self.accounts, *others])]

    def group_columns(self, names: Sequence[str]) -> pd.DataFrame:
        """Return some of the accounts' `columns`, as categories of text; NA is a value.

        Raises
        ------
        ValueError
            If an account has two values in a column.
        """
        others = [name for name in names if name not in self.accounts]
        if not others:
            return self.accounts[[*names]]
        values = self.frame[[*ACCOUNT_KEY, *others]].drop_duplicates().astype("str")
        rows = self.accounts.astype("str").merge(values, "left", ACCOUNT_KEY)
        if (twice := rows.duplicated(ACCOUNT_KEY).to_numpy()).any():
            raise ValueError(
                f"by={others}: the account {name_of(rows[ACCOUNT_KEY], int(twice.argmax()))} has "
                "more than one value; a column to group by must have one value for each account"
            )
        return self.accounts.assign(**rows[others].astype("category"))[[*names]]

    @property
    def notes(self) -> Notes:
        """What the table's attrs state about its rows."""
        return read_notes(self.attrs.get(ATTRS_KEY))

    @property
    def names(self) -> Names:
        """The names in the table's attrs; may be empty."""
        return names_in(self.attrs.get(ATTRS_KEY))

    def over(self, grid: Grid) -> Steps:
        """Return the steps, bounded by the known intervals, for a grid's periods."""
        return self.known_steps(int(max(grid.edges[-1:], default=MAX_TIME)))

    def at(self, moments: Ints) -> Steps:
        """Return the steps, bounded by the known intervals, for moments (in microseconds).

        At the end of a known interval, the balance held until then is known: a table that ends at
        midnight has the balances of midnight.
        """
        steps = self.known_steps(int(moments.max(initial=MIN_TIME)) + 1)
        if steps.valid_until is None:
            return steps
        begun = {bad.span[0] for bad in self.set_aside}
        ends = [end for _, end in self.known or () if end not in begun]
        return replace(steps, valid_until=steps.valid_until + np.isin(steps.valid_until, ends))

    def at_points(self, grid: Grid) -> Steps:
        """Return the steps for a grid's points and its end: see `at`."""
        return self.at(np.append(grid.points, grid.edges[-1:] - 1))

    def grid(
        self,
        freq: Frequency | Grid | None = None,
        **bounds: Any,  # noqa: ANN401 - start, end and tz
    ) -> Grid:
        """Return the periods of a frequency and bounds, or the given grid: see `make_grid`.

        Raises
        ------
        ValueError
            If `make_grid` refuses them.
        """
        if isinstance(freq, Grid):
            return freq
        known = None if self.known is None else [*clipped(self.known, self.start, EVER[1])]
        times = self.extent
        if self.has_openings and len(times):
            times = np.array([self.start, times[-1]])
            known = [(self.start, self.start)] if known is None else known
        return make_grid(times, freq=freq, known=known, **bounds)

    @property
    def start(self) -> int:
        """The moment since which the table has every change; `MIN_TIME` if not stated."""
        start = self.notes.start
        return MIN_TIME if start is None else start

    @property
    def has_openings(self) -> bool:
        """Whether the table has rows before its start."""
        return self.start != MIN_TIME and not self.steps.is_row[self.steps.times > MIN_TIME].all()

    @property
    def sum_warnings(self) -> list[str]:
        """Warnings about accounts that sums leave out because the table has no row of them."""
        known, warnings = self.known, self.bad_row_warnings
        if known is None:
            return warnings
        if not known:
            return [*warnings, "accounts without a row are left out: nothing is known of them"]
        (since, _), last = known[0], max([known[-1][1] - 1, *self.extent.tolist()])
        if not self.notes.nothing_before and since > FIRST_MOMENT:
            left_out = " are left out; load or read with opening=True, or export from an earlier "
            left_out += "time, to add those whose older rows are still there"
            if since < self.start:
                left_out = ", if there are any, are left out; only a source of older rows has them"
            warnings.append(f"accounts without a change since {moment_text(since)}{left_out}")
        if gaps := gaps_in(known, since, last + 1):
            warnings.append(
                f"accounts that changed only in {spans_text(gaps)} are left out: rows of that time "
                "may be missing"
            )
        return warnings

    @property
    def bad_row_warnings(self) -> list[str]:
        """The warning about accounts whose rows were all set aside; empty if there are none."""
        bad = [x for x in self.set_aside if x.account and not self.accounts_of(x).any()]
        rows = count_text(len(bad), "row")
        return [f"accounts whose rows were all set aside as bad are left out ({rows})"] * bool(bad)

    def warn_about_missing_accounts(self, *, of_changes: bool = False) -> None:
        """Warn, once per table, about accounts missing from sums of balances.

        With `of_changes`, the sums are of changes: accounts without a change don't matter.
        """
        notes = self.attrs.get(ATTRS_KEY, {})
        for warning in self.bad_row_warnings if of_changes else self.sum_warnings:
            # A mask that drops whole accounts keeps the notes, but not the number of rows.
            key = notes.get(EVIDENCE_KEY), notes.get(ROWS_KEY), len(self.rows)
            _warn_once(warning, *map(str, key))

    def select(self, is_wanted: Mask) -> History:
        """Return the history of some of the accounts, with unchanged known intervals."""
        is_kept = np.repeat(is_wanted, np.diff(self.steps.bounds))
        rows, steps = self.rows[is_kept[self.steps.is_row]], self.steps.select(is_wanted)
        ids = {x: frames.sorted_ids(self.accounts[x].array[is_wanted]) for x in ACCOUNT_KEY}
        wanted = {x: rows[x].cat.set_categories(ids[x].categories) for x in ids}
        rows, accounts = rows.assign(**wanted).reset_index(drop=True), pd.DataFrame(ids)
        changed, extent = self.is_changed[is_wanted], steps.extent
        return replace(
            self, rows=rows, accounts=accounts, steps=steps, extent=extent, is_changed=changed
        )

    def known_steps(self, until: int = MAX_TIME) -> Steps:
        """Return the steps, each known only as long as every change is, up to a moment."""
        steps = self.steps
        if not len(steps.times) or steps.valid_until is not None:
            return steps
        # An account without an opening held nothing until the known intervals begin.
        begin = self.known[0][0] if self.known and self.notes.nothing_before else MIN_TIME
        times = np.where(steps.times == MIN_TIME, begin, steps.times)
        first = int(times.min())
        every = [] if self.known is None else gaps_in(self.known, *EVER)
        gaps = [gap for gap in every if gap[0] < until and gap[1] > first + 1]
        of_accounts = [bad for bad in self.set_aside if bad.account is not None]
        if not (gaps or of_accounts or self.is_changed.any()):
            return steps
        starts, ends = np.array(gaps, np.int64).reshape(-1, 2).T
        after = np.minimum(times, MAX_TIME - 1) + 1
        place = np.searchsorted(ends, after, side="right")
        valid_until = np.maximum(after, np.append(starts, MAX_TIME)[place])
        for bad in of_accounts:
            start, end = bad.span
            is_affected = np.repeat(self.accounts_of(bad), np.diff(steps.bounds))
            places = np.flatnonzero(is_affected & (steps.times < end) & (steps.nexts > start))
            valid_until[places] = np.minimum(valid_until[places], np.maximum(after[places], start))
        places = np.repeat(self.is_changed, np.diff(steps.bounds))
        valid_until[places] = np.where(steps.times[places] == MIN_TIME, MIN_TIME, after[places])
        valid_until[valid_until >= steps.nexts] = MAX_TIME
        return steps if np.all(valid_until == MAX_TIME) else replace(steps, valid_until=valid_until)

    def accounts_of(self, bad: SetAside) -> Mask:
        """Return a mask of the accounts (or holders) that a bad row belongs to."""
        if bad.account is None:
            return np.zeros(len(self.steps), bool)
        ids = zip(ACCOUNT_KEY, bad.account, strict=True)
        matches = [self.accounts[name] == wanted for name, wanted in ids if name in self.accounts]
        mask: Mask = np.logical_and.reduce(matches)
        return mask


class AccountSlices(Protocol):
    """Accounts in slices, cut between parties or assets. A history is one slice."""

    @property
    def attrs(self) -> dict[Any, Any]:
        """The names and known intervals, as a table's attrs; reads no rows."""

    @property
    def outline(self) -> History:
        """A history with the interval, the names and the known intervals; may lack accounts."""

    def map(
        self, function: Callable[[History], T], grid: Grid | None = None, *, per_point: bool = False
    ) -> Iterator[T]:
        """Yield a function's results for all slices.

        `grid` restricts the rows to those that it needs; with `per_point`, the result has a cell
        for each account and point of the grid.
        """

    def history_at(self, moments: Ints) -> History:
        """Return a history with all accounts' balances at some moments (in microseconds)."""

    def warn_about_missing_accounts(self, *, of_changes: bool = False) -> None:
        """Warn about accounts missing from sums: see `History`."""


@runtime_checkable
class Sliced(Protocol):
    """A source read in slices: an archive."""

    def by_slices(
        self,
        work: Callable[[AccountSlices], T],
        *,
        rows: int = ...,
        show: Callable[[float, int], None] = ...,
    ) -> T:
        """Return a function's result for the slices of one state of the source."""


Source = pd.DataFrame | History | Sliced
"""The first argument of analysis functions: a table, a history or an archive."""


def open_history(
    source: Source, *, start: Moment | None = None, end: Moment | None = None
) -> History:
    """Return the history of a table, or of the rows of an archive that an interval needs.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order; identical duplicates count once. A frame
        that is a table already isn't converted again. A history is returned as it is.
    start, end
        The interval, half-open; by default everything. Only an archive omits rows outside it.

    Raises
    ------
    CheckError
        If two rows of one account and timestamp differ in balance.
    TypeError, ValueError
        If `source` isn't a table.
    """
    if isinstance(source, History):
        return source
    if isinstance(source, Sliced):
        return source.by_slices(
            lambda x: next(x.map(lambda whole: whole, x.outline.grid(start=start, end=end))),
            rows=sys.maxsize,
        )
    rows, accounts, steps = _read_table(source)
    notes = read_notes(source.attrs.get(ATTRS_KEY))
    known, bad = notes.known_by_account
    is_changed = notes.are_changed(accounts, steps.heads, steps.times)
    if is_changed.any() and notes.digests is not None:
        gone = len(notes.digests) - len(is_changed)
        logger.warning(
            "%s lost or gained rows since the table was made: their balances are unknown between "
            "the remaining rows. To cut a table in time: table.balances.between(start, end); to "
            "state that your own rows are complete: to_table(table, known=...)%s",
            count_text(int(is_changed.sum()), "account"),
            f". Sums leave out {count_text(gone, 'account')} that lost all rows" * (gone > 0),
        )
    if notes.start is not None:
        steps = replace(steps, is_row=steps.times >= notes.start)
        rows = rows if steps.is_row.all() else rows[steps.is_row]
    if notes.nothing_before:
        steps = _from_nothing(steps)
    attrs = dict(source.attrs)
    return History(rows, accounts, steps, known, attrs, source, steps.extent, bad, is_changed)


def over_slices(source: Source, work: Callable[[AccountSlices], T]) -> T:
    """Return a function's result for a source's slices; a table is one slice."""
    return source.by_slices(work) if isinstance(source, Sliced) else work(open_history(source))


@lru_cache(maxsize=256)
def _warn_once(warning: str, *_: str) -> None:
    """Log a warning once for each table, identified by the other arguments."""
    logger.warning("%s", warning)


def _from_nothing(steps: Steps) -> Steps:
    """Return steps with a balance of 0 before the first row of accounts without an opening."""
    heads = steps.heads[steps.is_row[steps.heads]]
    before = np.cumsum(np.append(0, steps.is_row[steps.heads]))
    return Steps(
        steps.bounds + before,
        np.insert(steps.times, heads, MIN_TIME),
        np.insert(steps.words, heads, 0, axis=0),
        np.insert(steps.is_row, heads, False),
    )


def _read_table(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, Steps]:
    """Return a table's rows and accounts, and the rows as steps."""
    if isinstance(table, pd.DataFrame):
        table = table.copy(deep=False)
        table.attrs = {}  # pandas copies attrs with each column selected
    heads_and_accounts = _find_accounts(table)
    if heads_and_accounts is None:
        return _read_table(frames.merge_duplicates(frames.to_frame(frames.to_arrow(table))))
    heads, accounts = heads_and_accounts
    rows = table[list(COLUMNS)]
    wanted = {name: accounts[name].array.categories for name in ACCOUNT_KEY}
    other = [name for name in ACCOUNT_KEY if rows[name].array.categories is not wanted[name]]
    rows = rows.assign(**{name: rows[name].array.set_categories(wanted[name]) for name in other})
    return (
        rows,
        accounts,
        Steps(
            np.append(heads, len(rows)),
            frames.microseconds(rows),
            int128.summable(int128.words_of(pa.array(rows["balance"]))),
            np.ones(len(rows), bool),
        ),
    )


def _find_accounts(table: pd.DataFrame) -> tuple[Ints, pd.DataFrame] | None:
    """Return the position of each account's first row, and the accounts.

    Return `None` if the frame isn't typed, lacks a value, isn't sorted or has duplicates.
    """
    if not frames.is_typed(table) or pa.array(table["balance"]).null_count:
        return None
    codes, times = [table[name].array.codes for name in ACCOUNT_KEY], frames.microseconds(table)
    is_head = are_heads(codes)
    heads = np.flatnonzero(is_head)
    lacks = np.any(times[heads] == MIN_TIME) or any(np.any(code[heads] < 0) for code in codes)
    if lacks or not np.all(is_head[1:] | (times[1:] > times[:-1])):
        return None
    ids = {name: frames.sorted_ids(table[name].array[heads]) for name in ACCOUNT_KEY}
    accounts = pd.DataFrame(ids)
    numbers = number_ids(accounts)
    return (heads, accounts) if np.all(numbers[1:] > numbers[:-1]) else None


def are_known(known: Known | None, begins: Ints, stops: Ints) -> Mask:
    """Return a mask of the periods [begin, stop) in which every change is known."""
    spans = [EVER] if known is None else known
    starts = np.array([start for start, _ in spans], np.int64)
    # The sentinel at the end matches periods before the first interval.
    ends = np.array([*(end for _, end in spans), MIN_TIME])
    covered: Mask = stops <= ends[np.searchsorted(starts, begins, side="right") - 1]
    return covered


def cut_table(
    table: pd.DataFrame, history: History, start: Moment | None, end: Moment | None
) -> pd.DataFrame:
    """Return a table's rows in an interval, with openings: see `table.balances.between`."""
    whole = frames.to_table(table)
    edges = history.grid(start=start, end=end).edges
    begin, stop = (int(edges[0]), int(edges[-1])) if len(edges) else (0, 1)
    if start is None and history.known:
        begin = min(begin, history.known[0][0])
    begin = max(begin, history.start)
    times = frames.microseconds(whole)
    is_before = times < begin
    ids = [whole[name].array.codes for name in ACCOUNT_KEY]
    goes_on = ~are_heads(ids)[1:] & is_before[1:]
    is_last = is_before & ~np.append(goes_on, False)[: len(times)]
    part: pd.DataFrame = whole[is_last | ~is_before & (times < stop)].reset_index(drop=True)
    if others := [name for name in table if name not in COLUMNS]:
        keys = [*ACCOUNT_KEY, "timestamp"]
        values = table[[*keys, *others]].drop_duplicates(keys)
        part = part.merge(values.astype(dict.fromkeys(ACCOUNT_KEY, "str")), "left", keys)
        part = part.astype({name: whole[name].dtype for name in ACCOUNT_KEY})
    part.attrs = dict(whole.attrs)
    first = min(FIRST_MOMENT, int(times.min(initial=begin)))
    known = [(first, stop)] if history.known is None else [*clipped(history.known, EVER[0], stop)]
    note_interval(part, whole, [] if history.is_changed.any() else known, begin, stop)
    return part
