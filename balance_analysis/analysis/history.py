"""A table opened: its rows, what was before them, and as far as that is known.

It is the one way in: `open_history` checks and sorts the rows and puts the opening balances before
them, once. Whatever is computed or drawn takes that. A balance that was seen at one moment is known
at a later one if every change between the two is in the table: see `balance_analysis.known`. A
table that states nothing is taken at its word. Of one that rows were taken out of, nothing is known
but the rows that are left: see `balance_analysis.known`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.checks import (
    check_opening,
    is_typed,
    merge_duplicates,
    microseconds,
    sort_rows,
    sorted_ids,
)
from balance_analysis.analysis.grid import Frequency, Grid, Zone, make_grid
from balance_analysis.analysis.opening import from_nothing, with_opening
from balance_analysis.analysis.steps import ALWAYS, NEVER, Steps, name_of
from balance_analysis.evidence import SetAside
from balance_analysis.known import (
    Known,
    Stated,
    deselected,
    has_nothing_before,
    known_by_account,
    lost_rows,
    to_known,
)
from balance_analysis.labels import Names, names_in
from balance_analysis.schema import ACCOUNT_KEY, ATTRS_KEY, COLUMNS, Instant, to_microseconds
from balance_analysis.spans import between

logger: logging.Logger = logging.getLogger("balance_analysis")


@dataclass(frozen=True, slots=True)
class History:
    """What a table and its opening balances tell of their accounts.

    Every function of this package that takes a table takes a history in its place: it then has its
    opening and its known intervals with it, and isn't checked again.

    Attributes
    ----------
    rows
        The table, as `frame.to_frame` makes it, without attrs.
    steps
        Its accounts and those of the opening, as step functions that hold as if every change were
        known.
    known
        The intervals in which every change is known; `None` where nothing says.
    opened_at
        Up to when the opening balances hold, microseconds.
    nothing_until
        Up to when an account without a row held nothing, microseconds; `ALWAYS` where that is not
        known of any time.
    attrs
        The table's own attrs.
    given
        The frame as it was given, for the columns that it has besides those of a table.
    extent
        When the table's first and its last row are, microseconds; nothing where it has none.
    set_aside
        Bad rows that were left out: the balance of their account is unknown from then on; of all
        accounts where it can't be read.
    """

    rows: pd.DataFrame
    steps: Steps
    known: Known | None
    opened_at: int
    nothing_until: int
    attrs: dict[Any, Any]
    given: pd.DataFrame
    extent: NDArray[np.int64]
    set_aside: tuple[SetAside, ...] = ()

    @property
    def accounts(self) -> pd.DataFrame:
        """`ACCOUNT_KEY` of each account, sorted, those of the opening too."""
        return self.steps.accounts

    @property
    def columns(self) -> list[str]:
        """What tells accounts apart: `ACCOUNT_KEY`, and the columns that the table has besides."""
        others = (str(name) for name in self.given if name not in COLUMNS)
        return [*dict.fromkeys([*self.accounts, *others])]

    def tell(self, names: Sequence[str]) -> pd.DataFrame:
        """Return some of the `columns` of each account, as categories of text; NA is a value.

        Raises
        ------
        ValueError
            If an account has two values in one of them.
        """
        others = [name for name in names if name not in self.accounts]
        if not others:
            return self.accounts[[*names]]
        told = self.given[[*ACCOUNT_KEY, *others]].drop_duplicates()
        keys = told[ACCOUNT_KEY].astype("str")
        if (twice := keys.duplicated().to_numpy()).any():
            raise ValueError(
                f"by={others}: the account {name_of(keys, int(twice.argmax()))} has more than one "
                "value; a column by which accounts are grouped has one for each of them"
            )
        told = told[others].astype("str").set_axis(pd.MultiIndex.from_frame(keys))
        found = told.reindex(pd.MultiIndex.from_frame(self.accounts.astype("str")))
        added = {name: pd.Categorical(found[name]) for name in others}
        return self.accounts.assign(**added)[[*names]]

    @property
    def names(self) -> Names:
        """The names that the table's attrs tell; maybe none."""
        return names_in(self.attrs.get(ATTRS_KEY))

    def over(
        self,
        freq: Frequency | Grid | None = None,
        **bounds: Any,  # noqa: ANN401 - start, end and tz
    ) -> tuple[Steps, Grid]:
        """Return the accounts, as far as they are known, and the periods of `grid`."""
        grid = self.grid(freq, **bounds)
        return self.known_steps(int(max(grid.edges[-1:], default=NEVER))), grid

    def at(self, moments: NDArray[np.int64]) -> History:
        """Return what is known at some moments, microseconds.

        Where what is known ends, that is what was held until then: of a table up to midnight one
        may ask for midnight.
        """
        steps = self.known_steps(int(moments.max(initial=ALWAYS)) + 1)
        if steps.valid_until is None:
            return self
        begun = {bad.span[0] for bad in self.set_aside}
        ends = [end for _, end in self.known or () if end not in begun]
        is_end = np.isin(steps.valid_until, ends)
        return replace(self, steps=replace(steps, valid_until=steps.valid_until + is_end))

    def at_points(self, grid: Grid) -> History:
        """Return what is known at the points of a grid and up to its end: see `at`."""
        return self.at(np.append(grid.points, grid.edges[-1:] - 1))

    def grid(
        self,
        freq: Frequency | Grid | None = None,
        *,
        start: Instant | None = None,
        end: Instant | None = None,
        tz: Zone | None = None,
    ) -> Grid:
        """Return the periods that are asked for.

        Parameters
        ----------
        freq, start, end, tz
            See `make_grid`; a grid that was made before is returned as it is.

        Raises
        ------
        ValueError
            If there is no such grid.
        """
        if isinstance(freq, Grid):
            return freq
        return make_grid(self.extent, freq=freq, start=start, end=end, tz=tz, known=self.known)

    def select(self, is_wanted: NDArray[np.bool_]) -> History:
        """Return the history of some of the accounts, of which as much is known as before."""
        is_kept = np.repeat(is_wanted, np.diff(self.steps.bounds))
        rows = self.rows[is_kept[self.steps.is_row]].reset_index(drop=True)
        steps = self.steps.select(is_wanted)
        ids = {name: steps.accounts[name].array.categories for name in steps.accounts}
        rows = rows.assign(
            **{str(n): rows[n].array.set_categories(wanted) for n, wanted in ids.items()}
        )
        return replace(self, rows=rows, steps=steps, extent=steps.extent)

    def known_steps(self, until: int = NEVER) -> Steps:
        """Return steps that hold only as long as every change is known, up to a moment."""
        steps = self.steps
        if self.known is None or not len(steps.times) or steps.valid_until is not None:
            return steps
        gaps = [gap for gap in between(self.known, ALWAYS, NEVER) if gap[0] < until]
        seen = steps.times if steps.is_row.all() else self._last_seen()
        is_later = not gaps or gaps[-1][1] <= int(seen[steps.heads].min()) + 1
        of_accounts = [bad for bad in self.set_aside if bad.account is not None]
        if is_later and not of_accounts:
            return steps
        starts, ends = np.array(gaps, np.int64).reshape(-1, 2).T
        after = np.minimum(seen, NEVER - 1) + 1
        place = np.searchsorted(ends, after, side="right")
        valid_until = np.maximum(after, np.append(starts, NEVER)[place])
        for bad in of_accounts:
            places = self._places_before(bad)
            valid_until[places] = np.minimum(
                valid_until[places], np.maximum(after[places], bad.span[0])
            )
        valid_until[valid_until >= steps.nexts] = NEVER
        return steps if np.all(valid_until == NEVER) else replace(steps, valid_until=valid_until)

    def _places_before(self, bad: SetAside) -> NDArray[np.int64]:
        """Return the balances of a bad row's account that the row may follow."""
        steps, (start, end) = self.steps, bad.span
        rows = np.repeat(self._is_of(bad), np.diff(steps.bounds))
        return np.flatnonzero(rows & (steps.times < end) & (steps.nexts > start))

    def _is_of(self, bad: SetAside) -> NDArray[np.bool_]:
        """Return which account, or which holder of it, a bad row is of."""
        is_its = np.full(len(self.steps), bad.account is not None)
        for name, wanted in zip(ACCOUNT_KEY, bad.account or (), strict=bad.account is not None):
            if name in self.accounts:
                is_its &= (self.accounts[name] == wanted).to_numpy()
        return is_its

    def knows(
        self,
        groups: NDArray[np.int64],
        of: NDArray[np.int64],
        period: NDArray[np.int64],
        edges: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        """Return whether every change of groups of accounts is known in periods, cell by cell.

        Parameters
        ----------
        groups
            The group of each account.
        of, period
            The group of each cell, and its period.
        edges
            The edges of the periods, microseconds.
        """
        begins, stops = edges[:-1], edges[1:]
        is_known = are_known(self.known, begins, stops)[period]
        for bad in self.set_aside:
            start, end = bad.span
            is_its = np.isin(of, groups[self._is_of(bad)])
            is_known &= ~(is_its & ((begins < end) & (stops > start))[period])
        return is_known

    def _last_seen(self) -> NDArray[np.int64]:
        """Return up to when each balance was seen: a row's at its time, an opening's before it."""
        steps = self.steps
        opened = np.flatnonzero(~steps.is_row & (steps.times < NEVER))
        seen = steps.times.copy()
        until = np.maximum(seen[opened], self.opened_at - 1)
        seen[opened] = np.minimum(until, steps.nexts[opened] - 1)
        return seen


def open_history(
    table: pd.DataFrame | History,
    opening: pd.DataFrame | None = None,
    known: Stated | None = None,
) -> History:
    """Return the history that a table tells.

    Parameters
    ----------
    table
        A table of balance changes, its rows in any order; identical duplicates count once. Where it
        is a table already, that costs nothing. A history is returned as it is.
    opening, known
        See `balance_at`.

    Raises
    ------
    CheckError
        If two rows of one account and timestamp differ in balance, or an opening balance
        contradicts the rows.
    TypeError, ValueError
        If `table` is no table, `opening` no frame of opening balances, or `known` no pairs of
        moments.
    """
    if isinstance(table, History):
        return table
    rows, steps = _read_table(table)
    spans, bad = _known_now(table, steps) if known is None else (to_known(known), ())
    if opening is not None:
        check_opening(opening)
        gone = deselected(table.attrs.get(ATTRS_KEY), steps.accounts, opening[ACCOUNT_KEY])
        opening = opening[~gone]
        steps = with_opening(steps, opening)
    opened_at, until = _opened_at(opening, spans), _nothing_until(table, opening, spans)
    if opened_at <= until:
        steps = from_nothing(steps)
    given = rows if {*COLUMNS} >= {*table} else table
    attrs = dict(table.attrs)
    return History(rows, steps, spans, opened_at, until, attrs, given, steps.extent, bad)


def _read_table(table: pd.DataFrame) -> tuple[pd.DataFrame, Steps]:
    """Return a table, and its rows as steps."""
    if isinstance(table, pd.DataFrame):
        table = table.copy(deep=False)
        table.attrs = {}  # which pandas copies with each column that is taken
    found = _find_accounts(table)
    if found is None:
        table = sort_rows(table)
        found = _find_accounts(table)
    if found is None:
        table = merge_duplicates(table)
        heads = np.flatnonzero(~table.duplicated(ACCOUNT_KEY))
        found = heads, _accounts(table, heads)
    heads, accounts = found
    rows = table[list(COLUMNS)]
    wanted = {name: accounts[name].array.categories for name in ACCOUNT_KEY}
    other = [name for name in ACCOUNT_KEY if rows[name].array.categories is not wanted[name]]
    rows = rows.assign(**{name: rows[name].array.set_categories(wanted[name]) for name in other})
    return rows, Steps(
        accounts,
        np.append(heads, len(rows)),
        microseconds(rows),
        int128.words_of(pa.array(rows["balance"])),
        np.ones(len(rows), bool),
    )


def _known_now(table: pd.DataFrame, steps: Steps) -> tuple[Known | None, tuple[SetAside, ...]]:
    """Return what a table knows, and its bad rows; nothing where rows were taken out of it."""
    metadata = table.attrs.get(ATTRS_KEY)
    lost = lost_rows(metadata, steps.accounts, np.diff(steps.bounds))
    if lost is None:
        return known_by_account(metadata)
    logger.warning(
        "the table lost %s since it was made, so only the rows that are left are known. To cut a "
        "table in time, use: cut, opening = table.balances.between(start, end)",
        lost,
    )
    return (), ()


def _find_accounts(table: pd.DataFrame) -> tuple[NDArray[np.int64], pd.DataFrame] | None:
    """Return the position of each account's first row, and the accounts.

    `None` if a frame is not typed, lacks a value, is not in a table's order or has duplicates.
    """
    if not is_typed(table) or pa.array(table["balance"]).null_count:
        return None
    codes, times = [table[name].array.codes for name in ACCOUNT_KEY], microseconds(table)
    is_head = np.zeros(len(times), bool)
    is_head[:1] = True
    for code in codes:
        is_head[1:] |= code[1:] != code[:-1]
    if not np.all(is_head[1:] | (times[1:] > times[:-1])):
        return None
    heads = np.flatnonzero(is_head)
    if np.any(times[heads] == ALWAYS) or any(np.any(code[heads] < 0) for code in codes):
        return None
    accounts = _accounts(table, heads)
    return (heads, accounts) if _is_ascending(accounts) else None


def _accounts(table: pd.DataFrame, heads: NDArray[np.int64]) -> pd.DataFrame:
    """Return the ids of an account's row each, with categories that are sorted and all in use."""
    return pd.DataFrame({name: sorted_ids(table[name].array[heads]) for name in ACCOUNT_KEY})


def _is_ascending(accounts: pd.DataFrame) -> bool:
    """Whether accounts are in order, none twice; their categories must be sorted."""
    is_less = np.zeros(max(len(accounts) - 1, 0), bool)
    tied = ~is_less
    for name in ACCOUNT_KEY:
        codes = accounts[name].array.codes
        is_less |= tied & (codes[:-1] < codes[1:])
        tied &= codes[:-1] == codes[1:]
    return bool(is_less.all())


def _nothing_until(table: pd.DataFrame, opening: pd.DataFrame | None, known: Known | None) -> int:
    """Return up to when an account without a row held nothing, as far as no gap is before.

    A table says so of the time before its first known interval, an opening of that before its
    moment.
    """
    if not has_nothing_before(table, opening):
        return ALWAYS
    since = _opened_at(opening if has_nothing_before(opening) else None, known)
    gaps = [] if known is None else between(known, since, NEVER)
    return gaps[0][0] if gaps else NEVER


def _opened_at(opening: pd.DataFrame | None, known: Known | None) -> int:
    """Return up to when opening balances hold, as their attrs tell; else up to what is known."""
    metadata = None if opening is None else opening.attrs.get(ATTRS_KEY)
    at = metadata.get("at") if isinstance(metadata, dict) else None
    if at is not None:
        return to_microseconds(at)
    return known[0][0] if known else ALWAYS + 1


def are_known(
    known: Known | None, begins: NDArray[np.int64], stops: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return in which periods [begin, stop) every change is known."""
    if known is None:
        return np.ones(len(begins), bool)
    if not known:
        return np.zeros(len(begins), bool)
    starts, ends = np.array(known).T
    place = np.searchsorted(starts, begins, side="right") - 1
    covered: NDArray[np.bool_] = (place >= 0) & (stops <= ends[place])
    return covered
