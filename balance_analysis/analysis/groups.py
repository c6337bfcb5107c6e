"""Groups of accounts, and numbers that add up over accounts, in slices or all at once.

No slice of an archive cuts the accounts that a party has of an asset.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from balance_analysis.analysis.grid import Grid
from balance_analysis.analysis.history import AccountSlices, History
from balance_analysis.analysis.steps import Columns, join
from balance_analysis.rows import account_numbers
from balance_analysis.schema import ACCOUNT_KEY

T = TypeVar("T")

RESULT_COLUMNS: Final = frozenset(
    (
        *("accounts", "active", "after", "average", "before", "change", "change_percent"),
        *("changes", "close", "closing", "cumulative_share", "depth", "drawdown", "drawdown_at"),
        *("end", "first_seen", "high", "inflow", "internal", "known", "last_seen", "low"),
        *("maximum", "maximum_at", "minimum", "minimum_at", "net", "open", "opening", "outflow"),
        *("peak", "peak_at", "rows", "share", "start", "state", "total", "unknown", "zero_share"),
    )
)
"""What results have beside ids: no column of one's own by which accounts are grouped."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Accounts that have the same ids in some columns.

    Attributes
    ----------
    ids
        Those columns, one row a group, sorted.
    numbers
        The group of each account.
    """

    ids: pd.DataFrame
    numbers: NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.ids)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many accounts each group has."""
        return np.bincount(self.numbers, minlength=len(self))


def make_groups(history: History, by: str | Sequence[str]) -> Groups:
    """Return the groups of accounts that are the same in some columns.

    Parameters
    ----------
    history
        The accounts, and which columns they have.
    by
        Names of these columns. NA is a value, behind the others. As amounts of different assets
        never mix, "asset_id" comes first where it is not among them.

    Raises
    ------
    TypeError, ValueError
        If `by` has another name, one twice, or one of `RESULT_COLUMNS`, or an account has two
        values.
    """
    names = group_names(by, history.columns)
    ids, numbers = distinct_ids(history.group_columns(names))
    return Groups(ids, numbers)


def distinct_ids(ids: pd.DataFrame) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Return the distinct rows of columns of ids, sorted, and the place of each row among them."""
    keys = numbers_of_ids(ids)
    if np.all(keys[1:] > keys[:-1]):
        return ids, np.arange(len(keys))
    _, firsts, numbers = np.unique(keys, return_index=True, return_inverse=True)
    return ids.iloc[firsts], numbers


def group_names(by: str | Sequence[str], known: Sequence[str] = ACCOUNT_KEY) -> list[str]:
    """Return the columns that make a group, of those that are known: see `make_groups`."""
    if not isinstance(by, Iterable):
        raise TypeError(f"by must name columns of {known}, not {by!r}")
    names = [by] if isinstance(by, str) else list(by)
    unknown = [str(name) for name in names if name not in known]
    if unknown or len(set(names)) < len(names):
        near = [x for name in unknown for x in difflib.get_close_matches(name, known, 1)]
        hint = "a table may have others: table['desk'] = table['party_id'].map(desks)"
        if near:
            hint = f"did you mean {' and '.join(map(repr, near))}?"
        raise ValueError(f"by must name columns of {[*known]}, each once, not {names}; {hint}")
    if taken := RESULT_COLUMNS.intersection(names):
        raise ValueError(f"by={sorted(taken)}: a result has a column of that name; rename your own")
    return names if "asset_id" in names else ["asset_id", *names]


def numbers_of_ids(ids: pd.DataFrame) -> NDArray[np.int64]:
    """Return a number for each row of columns of ids that sorts as these do, NA last."""
    columns = [ids[name].array for name in ids]
    codes = [np.where(x.codes < 0, len(x.categories), x.codes) for x in columns]
    return account_numbers(codes, [len(x.categories) + 1 for x in columns])


def concatenated(frames: Sequence[pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    """Return the rows of frames one after the other; ids in `names` have the categories of all."""
    dtypes = {}
    for name in names:
        categories = {str(each) for frame in frames for each in frame[name].cat.categories}
        dtypes[name] = pd.CategoricalDtype(pd.Index(sorted(categories), dtype="str"))
    return pd.concat([frame.astype(dtypes) for frame in frames], ignore_index=True)


def is_by_party(by: str | Sequence[str]) -> bool:
    """Whether each group has accounts of one party alone, so that no slice cuts it."""
    return isinstance(by, Iterable) and "party_id" in ([by] if isinstance(by, str) else [*by])


@dataclass(frozen=True, slots=True)
class Cells:
    """Numbers of groups of accounts that add up over accounts.

    Attributes
    ----------
    ids
        The ids of each group, sorted.
    by_group
        Arrays with a place for each group, such as the number of its accounts.
    columns
        Columns of cells, in any order: `groups`, the number of the group, and others. None at all
        where `by_group` has everything.
    """

    ids: pd.DataFrame
    by_group: Columns
    columns: Columns


def join_cells(parts: Sequence[Cells]) -> Cells:
    """Return the cells of the groups of all parts, from which they are taken."""
    if len(parts) == 1:
        return parts[0]
    names, sizes = [*map(str, parts[0].ids)], [len(part.ids) for part in parts]
    ids, numbers = distinct_ids(concatenated([part.ids for part in parts], names))
    by_group = {
        name: np.zeros((len(ids), *column.shape[1:]), np.int64)
        for name, column in parts[0].by_group.items()
    }
    for part, own in zip(parts, np.split(numbers, np.cumsum(sizes[:-1])), strict=True):
        for name, column in part.by_group.items():
            by_group[name][own] += column
        if part.columns:
            groups = part.columns["groups"]
            part.columns["groups"] = own.astype(groups.dtype)[groups]
    return Cells(ids, by_group, join([part.columns for part in parts]))


def each_group(
    source: AccountSlices,
    by: str | Sequence[str],
    grid: Grid | None,
    part: Callable[[History], Sequence[Cells]],
    finish: Callable[[Sequence[Cells]], T],
) -> Iterator[T]:
    """Yield what is made of cells that have all accounts of their groups.

    Parameters
    ----------
    source
        The accounts.
    by
        The columns that make a group. Where the party is among them, each slice has whole groups.
    grid
        Says which rows are needed, by default all.
    part
        Returns the cells of some accounts.
    finish
        Makes the result of whole groups.
    """
    if is_by_party(by):
        yield from source.map(lambda history: finish(part(history)), grid, per_point=True)
    else:
        parts = zip(*source.map(part, grid), strict=True)
        yield finish([join_cells(cells) for cells in parts])
