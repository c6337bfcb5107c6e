"""Totals of slices, added up to those of the whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.history import make_history
from balance_analysis.analysis.int128 import words_of
from balance_analysis.analysis.steps import NEVER, Steps
from balance_analysis.analysis.totals import (
    Groups,
    Sums,
    change_points,
    make_groups,
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
    groups
        Which accounts add up.
    sums
        The total and number of known balances from each step on, where there are any.
    is_own
        Which steps are at rows of the group; the others are where an opening balance begins.
    ceases
        When no balance is known any more, though no step follows; else `NEVER`.
    """

    groups: Groups
    sums: Sums
    is_own: NDArray[np.bool_]
    ceases: NDArray[np.int64]


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

    def of_slice(self, table: pd.DataFrame, *, opening: pd.DataFrame | None) -> list[Part]:
        """Return totals of a slice.

        Of negative balances a part may have more than 38 digits where the whole has not: then there
        are more parts, of fewer accounts.
        """
        return list(self._parts(make_history(table, opening, None, freq=self.grid).steps))

    def _parts(self, steps: Steps) -> Iterator[Part]:
        groups = make_groups(steps.accounts, self.by)
        try:
            sums, is_own = self._sums(steps, groups)
        except OverflowError:
            middle = len(steps) // 2  # the total of a single account is its balance, which fits
            yield from self._parts(steps.part(0, middle))
            yield from self._parts(steps.part(middle, len(steps)))
            return
        ends = (sums.groups[1:] == sums.groups[:-1]) & (sums.known[1:] == 0)
        ceases = np.append(np.where(ends, sums.times[1:], NEVER), NEVER)
        some = sums.known > 0
        columns: dict[str, Any] = {name: getattr(sums, name)[some] for name in Sums.__slots__}
        yield Part(groups, Sums(**columns), is_own[some], ceases[some])

    def _sums(self, steps: Steps, groups: Groups) -> tuple[Sums, NDArray[np.bool_]]:
        """Return sums at all points, or wherever they change, and which are at rows."""
        if not self.is_at_changes:
            sums = sum_at(steps, groups, self.grid.points)
            return sums, np.ones(len(sums.times), bool)
        points = change_points(steps, groups, self.grid, from_start=True, with_events=True)
        own = change_points(steps, groups, self.grid, from_start=False)
        is_own = pd.MultiIndex.from_arrays(points).isin(pd.MultiIndex.from_arrays(own))
        return sum_at_changes(steps, groups, *points), is_own

    def add(self, parts: Sequence[Part]) -> pd.DataFrame:
        """Return totals of groups, which may have accounts in several slices, added up.

        A group of a slice is itself a step function, of an account whose balance is the total.

        Raises
        ------
        OverflowError
            If a total has more than 38 digits.
        """
        ids = stacked([part.groups.ids for part in parts], self.by)
        groups = make_groups(ids, self.by)
        sizes = np.zeros(len(groups), np.int64)
        np.add.at(sizes, groups.numbers, np.concatenate([part.groups.sizes for part in parts]))

        firsts = np.cumsum([0, *(len(part.groups) for part in parts)])
        numbers = np.concatenate(
            [first + part.sums.groups for first, part in zip(firsts, parts, strict=False)]
        )
        heads = np.flatnonzero(np.diff(numbers, prepend=-1))
        known = np.concatenate([part.sums.known for part in parts])
        steps = Steps(
            ids.iloc[numbers[heads]],
            np.append(heads, len(numbers)),
            np.concatenate([part.sums.times for part in parts]),
            np.concatenate([words_of(pa.array(part.sums.total)) for part in parts]),
            np.concatenate([part.is_own for part in parts]),
            np.concatenate([part.ceases for part in parts]),
        )
        held = Groups(groups.ids, groups.numbers[numbers[heads]])
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
