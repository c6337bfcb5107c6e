"""Results of slices as one result, equal to that of the whole."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis.grid import Grid
from balance_analysis.analysis.history import open_history
from balance_analysis.analysis.int128 import sum_words, to_balances, words_of
from balance_analysis.analysis.steps import NEVER, Steps, check_fits
from balance_analysis.analysis.totals import (
    Groups,
    Sums,
    change_points,
    make_groups,
    sum_at,
    sum_at_changes,
    sums_frame,
)
from balance_analysis.archive.accounts import FILE_KEY, KeyRange
from balance_analysis.files.atomic import PathLike, replacing
from balance_analysis.files.parquet import make_note, parquet_writer
from balance_analysis.frame import to_plain_arrow
from balance_analysis.rows import account_numbers


def own(result: Any, part: KeyRange) -> Any:  # noqa: ANN401 - a frame, or partial totals
    """Return what of a result lies in a slice's time."""
    if part.since is None and part.until is None:
        return result
    if isinstance(result, PartialTotals):
        held = part.holds(result.sums.times)
        return result.chosen(held, goes_on=part.since is not None)
    begins = result["start" if "start" in result else "timestamp"]
    return result[part.holds(begins.to_numpy("M8[us]").view(np.int64))]


def in_order(frames: Sequence[pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    """Return the rows of frames sorted by columns of ids; of the same ids as they come."""
    whole = stacked(frames, names)
    return whole.take(np.argsort(_numbers(whole, names), kind="stable")).reset_index(drop=True)


def stacked(frames: Sequence[pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    """Return the rows of frames one after the other; categories are those of all, sorted."""
    dtypes = {}
    for name in names:
        categories = {str(each) for frame in frames for each in frame[name].cat.categories}
        dtypes[name] = pd.CategoricalDtype(pd.Index(sorted(categories), dtype="str"))
    return pd.concat([frame.astype(dtypes) for frame in frames], ignore_index=True)


def _numbers(frame: pd.DataFrame, names: Sequence[str]) -> NDArray[np.int64]:
    """Return a number for each row that sorts as its ids do."""
    ids = [frame[name].cat for name in names]
    return account_numbers([x.codes.to_numpy() for x in ids], [len(x.categories) for x in ids])


def add_flows(frames: Sequence[pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    """Return flows of groups, which may have accounts in several slices, added up.

    Raises
    ------
    OverflowError
        If a sum has more than 38 digits.
    """
    whole = stacked(frames, names)
    starts = whole["start"].dt.tz_convert("UTC").dt.tz_localize(None).to_numpy("M8[us]")
    moments, places = np.unique(starts, return_inverse=True)
    cells = _numbers(whole, names) * len(moments) + places
    _, firsts, places = np.unique(cells, return_index=True, return_inverse=True)
    added = whole.take(firsts).reset_index(drop=True)
    for what in ("inflow", "outflow", "net"):
        words, too_large = sum_words(words_of(pa.array(whole[what])), places, len(added))
        check_fits(too_large, partial(_name, added, names, what))
        # A period that isn't known is so for all accounts: a group's first slice tells.
        added[what] = to_balances(words, added[what].notna().to_numpy())
    for what in ("changes", "unknown"):
        counts = np.zeros(len(added), np.int64)
        np.add.at(counts, places, whole[what].to_numpy())
        added[what] = counts
    return added


def _name(frame: pd.DataFrame, names: Sequence[str], what: str, row: int) -> str:
    ids = ", ".join(f"{name}={frame[name].iloc[row]!r}" for name in names)
    return f"the {what} of {ids}"


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


@dataclass(frozen=True, slots=True)
class PartialTotals:
    """The totals of some accounts: a step function for each of their groups.

    Attributes
    ----------
    groups
        Which accounts add up.
    sums
        The total and number of known balances from each step on, where there are any.
    is_own
        Which steps are at rows of the group; the others are where an opening balance begins.
    valid_until
        When no balance is known any more, though no step follows; else `NEVER`.
    goes_on
        Whether they are what follows in time on those before.
    """

    groups: Groups
    sums: Sums
    is_own: NDArray[np.bool_]
    valid_until: NDArray[np.int64]
    goes_on: bool = False

    def chosen(self, some: NDArray[np.bool_], *, goes_on: bool = False) -> PartialTotals:
        """Return some of the steps."""
        columns: dict[str, Any] = {name: getattr(self.sums, name)[some] for name in Sums.__slots__}
        return PartialTotals(
            self.groups, Sums(**columns), self.is_own[some], self.valid_until[some], goes_on
        )


@dataclass(frozen=True, slots=True)
class Totals:
    """What `totals` is asked for, to be made of each slice and then added up.

    Attributes
    ----------
    by, grid
        The columns that make a group, and the points of all slices.
    is_at_changes
        Whether the points are at each change instead, in the grid's interval.
    from_start
        At changes: whether there is a point at the start as well, for each group.
    """

    by: Sequence[str]
    grid: Grid
    is_at_changes: bool
    from_start: bool

    def of_slice(self, table: pd.DataFrame, *, opening: pd.DataFrame | None) -> PartialTotals:
        """Return totals of a slice."""
        steps = open_history(table, opening).over(self.grid)[0]
        groups = make_groups(steps.accounts, self.by)
        sums, is_own = self._sums(steps, groups)
        ends = (sums.groups[1:] == sums.groups[:-1]) & (sums.known[1:] == 0)
        valid_until = np.append(np.where(ends, sums.times[1:], NEVER), NEVER)
        return PartialTotals(groups, sums, is_own, valid_until).chosen(sums.known > 0)

    def _sums(self, steps: Steps, groups: Groups) -> tuple[Sums, NDArray[np.bool_]]:
        """Return sums at all points, or wherever they change, and which are at rows."""
        if not self.is_at_changes:
            sums = sum_at(steps, groups, self.grid.points)
            return sums, np.ones(len(sums.times), bool)
        points = change_points(steps, groups, self.grid, from_start=True, with_events=True)
        own = change_points(steps, groups, self.grid, from_start=False)
        is_own = pd.MultiIndex.from_arrays(points).isin(pd.MultiIndex.from_arrays(own))
        return sum_at_changes(steps, groups, *points), is_own

    def add(self, parts: Sequence[PartialTotals]) -> pd.DataFrame:
        """Return totals of groups, which may have accounts in several slices, added up.

        A group of a slice is itself a step function, of an account whose balance is the total.

        Raises
        ------
        OverflowError
            If a total has more than 38 digits.
        """
        heads = [part.groups for part in parts if not part.goes_on]
        ids = stacked([each.ids for each in heads], self.by)
        groups = make_groups(ids, self.by)
        sizes = np.zeros(len(groups), np.int64)
        np.add.at(sizes, groups.numbers, np.concatenate([each.sizes for each in heads]))

        firsts = np.cumsum([0, *map(len, heads)])[np.cumsum([not x.goes_on for x in parts]) - 1]
        numbers = np.concatenate(
            [first + part.sums.groups for first, part in zip(firsts, parts, strict=True)]
        )
        firsts = np.flatnonzero(np.diff(numbers, prepend=-1))
        known = np.concatenate([part.sums.known for part in parts])
        steps = Steps(
            ids.iloc[numbers[firsts]],
            np.append(firsts, len(numbers)),
            np.concatenate([part.sums.times for part in parts]),
            np.concatenate([words_of(pa.array(part.sums.total)) for part in parts]),
            np.concatenate([part.is_own for part in parts]),
            np.concatenate([part.valid_until for part in parts]),
        )
        held = Groups(groups.ids, groups.numbers[numbers[firsts]])
        sums = self._added(steps, held)
        counts = self._added(replace(steps, words=np.column_stack([known, 0 * known])), held)
        # Where no balance is known, the count has no total either.
        sure = np.where(sums.known > 0, words_of(pa.array(counts.total))[:, 0], 0)
        sums = replace(sums, known=sure, unknown=sizes[sums.groups] - sure)
        return sums_frame(groups, sums, self.grid.zone)

    def _added(self, steps: Steps, groups: Groups) -> Sums:
        if not self.is_at_changes:
            return sum_at(steps, groups, self.grid.points)
        points = change_points(steps, groups, self.grid, from_start=self.from_start)
        return sum_at_changes(steps, groups, *points)
