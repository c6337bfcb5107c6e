"""Results of slices as one result, equal to that of the whole."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.checks import microseconds
from balance_analysis.analysis.grid import Grid
from balance_analysis.analysis.history import open_history
from balance_analysis.analysis.steps import check_fits, name_of
from balance_analysis.analysis.totals import change_points, make_groups, sum_at_changes, sums_frame
from balance_analysis.archive.accounts import FILE_KEY
from balance_analysis.files.atomic import PathLike, replacing
from balance_analysis.files.parquet import make_note, parquet_writer
from balance_analysis.frame import to_plain_arrow
from balance_analysis.rows import account_numbers
from balance_analysis.schema import ACCOUNT_KEY
from balance_analysis.text import moment_text

COUNTS: Final = ("changes", "active", "known", "unknown", "accounts", "rows")
"""The columns that are counts, of whatever is added up; the others are amounts."""


def _time_of(result: pd.DataFrame) -> str:
    return "start" if "start" in result else "timestamp"


def in_order(frames: Sequence[pd.DataFrame], names: Sequence[str] = ACCOUNT_KEY) -> pd.DataFrame:
    """Return the rows of frames sorted by columns of ids; of the same ids as they come."""
    whole = _stacked(frames, names)
    return whole.take(np.argsort(_numbers(whole, names), kind="stable")).reset_index(drop=True)


def _stacked(frames: Sequence[pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    """Return the rows of frames one after the other; categories are those of all, sorted."""
    dtypes = {}
    for name in names:
        categories = {str(each) for frame in frames for each in frame[name].cat.categories}
        dtypes[name] = pd.CategoricalDtype(pd.Index(sorted(categories), dtype="str"))
    return pd.concat([frame.astype(dtypes) for frame in frames], ignore_index=True)


def _numbers(
    frame: pd.DataFrame, names: Sequence[str], *more: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return a number for each row that sorts as its ids do, and then as other numbers."""
    ids = [frame[name].cat for name in names]
    codes = [*(x.codes.to_numpy() for x in ids), *more]
    sizes = [*(len(x.categories) for x in ids), *(int(x.max(initial=0)) + 1 for x in more)]
    return account_numbers(codes, sizes)


def add_up(frames: Sequence[pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    """Return the sums of what frames have of each group and moment, sorted.

    An amount that no frame knows is not known; of the others those that are known are added up.

    Raises
    ------
    OverflowError
        If a sum has more than 38 digits.
    """
    whole = _stacked(frames, names)
    moments = np.unique(microseconds(whole, _time_of(whole)), return_inverse=True)[1]
    _, firsts, places = np.unique(
        _numbers(whole, names, moments), return_index=True, return_inverse=True
    )
    added = whole.take(firsts).reset_index(drop=True)
    for what in whole.columns.difference([*names, "start", "end", "timestamp"]):
        if what in COUNTS:
            added[what] = int128.sum_groups([whole[what].to_numpy()], places, len(added))[0]
            continue
        told = whole[what].notna().to_numpy()
        words = int128.words_of(pa.array(whole[what]))[told]
        words, too_large = int128.sum_words(words, places[told], len(added))
        check_fits(too_large, partial(_name, added, names, str(what)))
        added[what] = int128.to_balances(words, np.bincount(places[told], minlength=len(added)) > 0)
    return added


def _name(frame: pd.DataFrame, names: Sequence[str], what: str, row: int) -> str:
    moment = moment_text(frame[_time_of(frame)].iloc[row])
    return f"the {what} of {name_of(frame[list(names)], row)} at {moment}"


def total_changes(table: pd.DataFrame, *, by: Sequence[str], grid: Grid) -> pd.DataFrame:
    """Return by how much the totals of groups change, and when, from nothing on.

    Returns
    -------
    pandas.DataFrame
        Of each group and moment the columns of `by`, `timestamp`, and by how much these change:
        `total`, where what is not known is 0; `known`, of how many accounts the balance is known;
        `accounts`, which all come at the grid's start; and `rows`, 1 where the group has a row.
    """
    history = open_history(table)
    groups, steps = make_groups(history, by), history.at_points(grid).known_steps()
    points = change_points(steps, groups, grid, from_start=True, with_events=True)
    sums = sum_at_changes(steps, groups, *points)
    heads = np.flatnonzero(np.diff(sums.groups, prepend=-1))
    rows = change_points(steps, groups, grid, from_start=False)
    has_row = pd.MultiIndex.from_arrays(points).isin(pd.MultiIndex.from_arrays(rows))
    words = np.where((sums.known > 0)[:, None], int128.words_of(pa.array(sums.total)), 0)
    change, too_large = int128.subtract(words, _before(words, heads))
    found = sums_frame(groups, sums, grid.zone).drop(columns="unknown")
    check_fits(too_large, partial(_name, found, by, "change"))
    accounts = np.zeros(len(found), np.int64)
    accounts[heads] = groups.sizes
    return found.assign(
        total=int128.to_balances(change),
        known=sums.known - _before(sums.known, heads),
        accounts=accounts,
        rows=has_row.astype(np.int64),
    )


def _before(values: NDArray[np.int64], heads: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the value before each one in its run; before a first one 0."""
    before = np.roll(values, 1, axis=0)
    before[heads] = 0
    return before


def totals_of(
    changes: Sequence[pd.DataFrame], names: Sequence[str], *, from_start: bool
) -> pd.DataFrame:
    """Return `totals` at each change of groups, made of what `total_changes` returns of slices.

    Parameters
    ----------
    changes, names
        The changes of each slice, and the columns that make a group.
    from_start
        Whether the totals at the start are wanted as well, for each group.

    Raises
    ------
    OverflowError
        If a total has more than 38 digits.
    """
    added = add_up(changes, names)
    heads = np.flatnonzero(np.diff(_numbers(added, names), prepend=-1))
    is_wanted = added["rows"].to_numpy() > 0
    is_wanted[heads] |= from_start
    words, too_large = int128.running_sums(int128.words_of(pa.array(added["total"])), heads)
    check_fits(too_large & is_wanted, partial(_name, added, names, "total"))
    groups = added.groupby(list(names), observed=True)
    known, accounts = groups["known"].cumsum().to_numpy(), groups["accounts"].cumsum().to_numpy()
    added["total"] = int128.to_balances(words, known > 0)
    added["known"], added["unknown"] = known, accounts - known
    found = added.loc[is_wanted, [*names, "timestamp", "total", "known", "unknown"]]
    return found.reset_index(drop=True)


def write_frames(frames: Iterable[pd.DataFrame], path: PathLike, *, is_by_account: bool) -> None:
    """Write frames to one Parquet file, one after the other, whole or not at all.

    Parameters
    ----------
    frames
        With the same columns each, at least one.
    path
        The file.
    is_by_account
        Whether to sort each by account, as the files of an archive are.
    """
    with contextlib.ExitStack() as stack:
        temporary, writer = stack.enter_context(replacing(path)), None
        for frame in frames:
            rows = to_plain_arrow(frame)
            if is_by_account:
                order = np.argsort(_numbers(frame, FILE_KEY), kind="stable")
                rows = rows.take(pa.array(order))
            if writer is None:
                schema = rows.schema.with_metadata(make_note({"kind": "analysis"}))
                writer = parquet_writer(temporary, schema)
                stack.enter_context(writer)
            writer.write_table(rows)
