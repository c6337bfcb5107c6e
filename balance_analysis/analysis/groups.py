"""Accounts in groups that keep assets apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from balance_analysis.rows import account_numbers
from balance_analysis.schema import ACCOUNT_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import NDArray


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

    def columns(self, numbers: NDArray[np.integer[Any]]) -> dict[str, pd.Categorical]:
        """Return the ids of groups by their numbers, as columns."""
        return {str(name): self.ids[name].array[numbers] for name in self.ids}

    def repeat_columns(self, count: int) -> dict[str, pd.Categorical]:
        """Return the ids of each group so many times, as columns."""
        return self.columns(np.repeat(np.arange(len(self)), count))

    def name(self, number: int) -> str:
        """Return how a group is called in a message."""
        return ", ".join(f"{name}={self.ids[name].iloc[number]!r}" for name in self.ids)


def make_groups(
    accounts: pd.DataFrame, by: str | Sequence[str], *, mixes_assets: bool = False
) -> Groups:
    """Return the groups of accounts that are the same in some columns.

    Parameters
    ----------
    accounts
        `ACCOUNT_KEY` of each account, categories sorted.
    by
        Names of `ACCOUNT_KEY`; none for all accounts together.
    mixes_assets
        Whether a group may hold accounts of several assets: only where nothing is added up.

    Raises
    ------
    TypeError, ValueError
        If `by` has another name, one twice, or lacks `asset_id` where it is needed.
    """
    names = group_names(by, mixes_assets=mixes_assets)
    if not names:
        return Groups(accounts[[]].iloc[:1], np.zeros(len(accounts), np.int64))
    ids = [accounts[name].array for name in names]
    keys = account_numbers([x.codes for x in ids], [len(x.categories) for x in ids])
    _, heads, numbers = np.unique(keys, return_index=True, return_inverse=True)
    return Groups(accounts[names].iloc[heads], numbers)


def group_names(by: str | Sequence[str], *, mixes_assets: bool = False) -> list[str]:
    """Return the columns that make a group, as a list; see `make_groups`."""
    if not isinstance(by, Iterable):
        raise TypeError(f"by must name columns of {list(ACCOUNT_KEY)}, not {by!r}")
    names = [by] if isinstance(by, str) else list(by)
    unknown = [name for name in names if name not in ACCOUNT_KEY]
    if unknown or len(set(names)) < len(names):
        raise ValueError(f"by must name columns of {list(ACCOUNT_KEY)}, each once, not {names}")
    if not mixes_assets and "asset_id" not in names:
        raise ValueError(
            f"by must include 'asset_id', not only {names}: amounts of different assets never mix"
        )
    return names
