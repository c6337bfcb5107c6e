"""Totals of slices, added up to those of the whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.groups import Groups, make_groups
from balance_analysis.analysis.history import make_history
from balance_analysis.analysis.int128 import words_of
from balance_analysis.analysis.steps import NEVER, Steps
from balance_analysis.analysis.totals import (
    Sums,
    change_points,
    sum_at,
    sum_at_changes,
    sums_frame,
)
from balance_analysis.cluster.combine import stacked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from balance_analysis.analysis.grid import Grid


@dataclass(frozen=True, slots=True)
class Part:
    """The totals of some accounts: a step function for each of their groups.

    Attributes
    ----------
    ids
        What the groups have in common, sorted.
    sizes
        How many of the accounts each group has.
    groups, times, words, known
        The group, time, total and number of known balances of each step.
    is_own
        Which steps are at rows of the group; the others are where an opening balance begins.
    ceases
        When no balance is known any more, though no step follows; else `NEVER`.
    """

    ids: pd.DataFrame
    sizes: NDArray[np.int64]
    groups: NDArray[np.int64]
    times: NDArray[np.int64]
    words: NDArray[np.int64]
    known: NDArray[np.int64]
    is_own: NDArray[np.bool_]
    ceases: NDArray[np.int64]


def partial_totals(
    table: pd.DataFrame,
    *,
    by: Sequence[str],
    grid: Grid,
    is_at_changes: bool,
    opening: pd.DataFrame | None,
) -> list[Part]:
    """Return totals of a slice, to be added to those of others by `add_totals`.

    Of negative balances a part may have more than 38 digits where the whole has not: then there
    are more parts, of fewer accounts.

    Parameters
    ----------
    table, by, opening
        As for `totals`.
    grid
        The points of all slices.
    is_at_changes
        Whether the points are at each change instead, in the grid's interval.
    """
    steps = make_history(table, opening, None, freq=grid).steps
    return list(_parts(steps, grid, by, is_at_changes=is_at_changes))


def _parts(steps: Steps, grid: Grid, by: Sequence[str], *, is_at_changes: bool) -> Iterator[Part]:
    groups = make_groups(steps.accounts, by)
    try:
        sums, is_own = (_changing if is_at_changes else _gridded)(steps, groups, grid)
    except OverflowError:
        middle = len(steps) // 2  # the total of a single account is its balance, which fits
        for half in (steps.part(0, middle), steps.part(middle, len(steps))):
            yield from _parts(half, grid, by, is_at_changes=is_at_changes)
        return
    ends = (sums.groups[1:] == sums.groups[:-1]) & (sums.known[1:] == 0)
    ceases = np.append(np.where(ends, sums.times[1:], NEVER), NEVER)
    some = np.flatnonzero(sums.known)
    yield Part(
        groups.ids,
        groups.sizes,
        sums.groups[some],
        sums.times[some],
        words_of(pa.array(sums.total))[some],
        sums.known[some],
        is_own[some],
        ceases[some],
    )


def _gridded(steps: Steps, groups: Groups, grid: Grid) -> tuple[Sums, NDArray[np.bool_]]:
    sums = sum_at(steps, groups, grid.points)
    return sums, np.ones(len(sums.times), bool)


def _changing(steps: Steps, groups: Groups, grid: Grid) -> tuple[Sums, NDArray[np.bool_]]:
    """Return sums wherever they change, and which of these points are at rows."""
    owners, times = change_points(steps, groups, grid, from_start=True, with_events=True)
    own, own_times = change_points(steps, groups, grid, from_start=False)
    points = pd.MultiIndex.from_arrays([owners, times])
    is_own = points.isin(pd.MultiIndex.from_arrays([own, own_times]))
    return sum_at_changes(steps, groups, owners, times), is_own


def add_totals(
    parts: Sequence[Part],
    *,
    by: Sequence[str],
    grid: Grid,
    is_at_changes: bool,
    from_start: bool,
) -> pd.DataFrame:
    """Return totals of groups, which may have accounts in several slices, added up.

    A group of a slice is itself a step function, of an account whose balance is the group's total.

    Parameters
    ----------
    parts
        What `partial_totals` returned, with the same arguments.
    by, grid, is_at_changes
        These arguments.
    from_start
        At changes: whether there is a point at the start as well, for each group.

    Raises
    ------
    OverflowError
        If a total has more than 38 digits.
    """
    ids = stacked([part.ids for part in parts], by)
    groups = make_groups(ids, by)
    sizes = np.zeros(len(groups), np.int64)
    np.add.at(sizes, groups.numbers, np.concatenate([part.sizes for part in parts]))

    firsts = np.cumsum([0, *(len(part.ids) for part in parts)])
    numbers = np.concatenate([first + p.groups for first, p in zip(firsts, parts, strict=False)])
    heads = np.flatnonzero(np.diff(numbers, prepend=-1))
    steps = Steps(
        ids.iloc[numbers[heads]],
        np.append(heads, len(numbers)),
        np.concatenate([part.times for part in parts]),
        np.concatenate([part.words for part in parts]),
        np.concatenate([part.is_own for part in parts]),
        np.concatenate([part.ceases for part in parts]),
    )
    held = Groups(groups.ids, groups.numbers[numbers[heads]])
    points = change_points(steps, held, grid, from_start=from_start)

    def added(words: NDArray[np.int64]) -> Sums:
        whole = replace(steps, words=words)
        if is_at_changes:
            return sum_at_changes(whole, held, *points)
        return sum_at(whole, held, grid.points)

    sums = added(steps.words)
    known = np.concatenate([part.known for part in parts])
    counts = words_of(pa.array(added(np.column_stack([known, np.zeros_like(known)])).total))[:, 0]
    counts = np.where(sums.known > 0, counts, 0)
    return sums_frame(
        groups, replace(sums, known=counts, unknown=sizes[sums.groups] - counts), grid.zone
    )
