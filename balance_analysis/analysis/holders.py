"""A history by other holders than accounts: by party, by account type, by desk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.grid import to_times
from balance_analysis.analysis.history import History
from balance_analysis.analysis.steps import NEVER, Steps, take_ids
from balance_analysis.analysis.totals import (
    distinct_points,
    events,
    group_names,
    make_groups,
    pairs_of,
    sum_at_changes,
)
from balance_analysis.schema import ACCOUNT_KEY


def largest(found: pd.DataFrame, amounts: pd.Series[Any], n: int | None) -> pd.DataFrame:
    """Return rows by the size of their amounts, see `by_size`, at most `n` of each asset.

    Raises
    ------
    ValueError
        If `n` is below 1.
    """
    found = found.iloc[by_size(found["asset_id"], amounts)]
    if n is not None:
        check_count(n)
        found = found.groupby("asset_id", observed=True).head(n)
    ids = found.select_dtypes("category")
    used = {str(name): ids[name].cat.remove_unused_categories() for name in ids}
    return found.assign(**used).reset_index(drop=True)


def check_count(n: int) -> None:
    """Raise TypeError or ValueError unless it is a number of things, at least one."""
    if not isinstance(n, Integral):
        raise TypeError(f"n must be a whole number, not {n!r}")
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}")


def by_size(assets: pd.Series[Any], amounts: pd.Series[Any]) -> NDArray[np.intp]:
    """Return the places of amounts: of each asset the largest first, unknown ones last."""
    unknown = amounts.isna().to_numpy()
    words = np.where(unknown[:, None], 0, int128.words_of(pa.array(amounts.array)))
    order = (~words[:, 0].view(np.uint64), ~words[:, 1], unknown, assets.cat.codes.to_numpy())
    return np.lexsort(order)


def merged(history: History, by: str | Sequence[str]) -> History:
    """Return a history in which accounts that are the same in some columns are one holder.

    A holder has what its accounts have together: it is known as long as the balance of every one of
    them is. A row of it is a moment at which one of them has a row. What they move among themselves
    in one block cancels.

    Parameters
    ----------
    history
        What is known of accounts.
    by
        The columns that make a holder, such as "party_id": those of `ACCOUNT_KEY`, and others that
        the table has. Accounts of different assets are never one. With all of `ACCOUNT_KEY`, the
        history stays as it is.

    Raises
    ------
    OverflowError
        If what a holder has needs more than 38 digits.
    TypeError, ValueError
        See `make_groups`.
    """
    if by in (ACCOUNT_KEY, tuple(ACCOUNT_KEY)):
        return history
    names = group_names(by, history.columns)
    if {*names} == {*history.accounts}:
        return history
    history.warn_of_quiet()
    steps, groups = history.known_steps(), make_groups(history, names)
    numbers, times, _, _ = events(steps)
    row_owners = groups.numbers[steps.numbers[steps.is_row]]
    # Each has a point that never comes, which stays of those that are never known.
    owners = np.append(groups.numbers[numbers], np.arange(len(groups)))
    owners, times = distinct_points(owners, np.append(times, np.full(len(groups), NEVER)))
    sums = sum_at_changes(steps, groups, owners, times)
    is_known = (sums.unknown == 0) & (times < NEVER)
    last = np.flatnonzero(times == NEVER)
    has_known = np.bincount(owners[is_known], minlength=len(groups)) > 0
    ends = np.append(np.where(is_known[1:], NEVER, times[1:]), NEVER)[: len(times)]
    is_known[last] = ~has_known
    pairs = pairs_of(owners, times)
    row_keys = pairs.keys(row_owners, steps.row_times)
    has_row = np.zeros(len(times), bool)
    has_row[np.searchsorted(pairs.keys(owners, times), row_keys)] = True
    words = int128.words_of(pa.array(sums.total))
    held = Steps(
        groups.ids.reset_index(drop=True),
        np.append(0, np.cumsum(np.bincount(owners[is_known], minlength=len(groups)))),
        times[is_known],
        words[is_known],
        has_row[is_known],
        None if steps.valid_until is None else ends[is_known],
    )
    rows = pd.DataFrame(
        {
            **take_ids(held.accounts, held.numbers[held.is_row]),
            "timestamp": to_times(held.row_times),
            "balance": int128.to_balances(held.words[held.is_row]),
        }
    )
    lost = history.is_changed
    changed = None if lost is None else np.bincount(groups.numbers, lost, len(groups)) > 0
    return replace(history, rows=rows, steps=held, given=rows, is_changed=changed)
