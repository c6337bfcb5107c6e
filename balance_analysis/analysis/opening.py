"""Opening balances as steps before a table's rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.checks import check_opening
from balance_analysis.analysis.steps import ALWAYS, NEVER, Steps
from balance_analysis.errors import CheckError
from balance_analysis.frame import to_amounts
from balance_analysis.schema import ACCOUNT_KEY
from balance_analysis.text import moment_text


def with_opening(steps: Steps, opening: pd.DataFrame) -> Steps:
    """Return steps with opening balances before them."""
    known = list(steps.accounts.astype("str").itertuples(index=False, name=None))
    numbers = {account: number for number, account in enumerate(known)}
    added = {}
    for account, time, balance in _states(opening):
        if account not in numbers:
            added[account] = (NEVER, 0) if balance is None else (time, balance)
        elif balance is not None and time < steps.times[steps.bounds[numbers[account]]]:
            added[account] = (time, balance)
        elif balance is not None:
            _check_agrees(steps, numbers[account], time, balance)
    accounts, opened = sorted({*known, *added}), sorted(added)
    sizes = dict(zip(known, np.diff(steps.bounds).tolist(), strict=True))
    return _insert(
        steps,
        pd.DataFrame(accounts, columns=ACCOUNT_KEY, dtype="str").astype("category"),
        np.array([sizes.get(account, 0) for account in accounts], np.int64),
        np.array([account in added for account in accounts], bool),
        [added[account][0] for account in opened],
        int128.words_from([added[account][1] for account in opened]),
    )


def from_nothing(steps: Steps) -> Steps:
    """Return steps of which each account held nothing before its first row."""
    begins_with_row = steps.is_row[steps.heads]
    return _insert(steps, steps.accounts, np.diff(steps.bounds), begins_with_row, ALWAYS, 0)


def _insert(  # noqa: PLR0917 - what is inserted, account by account
    steps: Steps,
    accounts: pd.DataFrame,
    sizes: NDArray[np.int64],
    is_opened: NDArray[np.bool_],
    times: Sequence[int] | int,
    words: NDArray[np.int64] | int,
) -> Steps:
    """Return steps with a balance before the others of some of their accounts.

    Parameters
    ----------
    steps
        The steps.
    accounts, sizes
        Their accounts, and new ones, and how many steps each has so far.
    is_opened, times, words
        Before which accounts a balance is to stand; from when on each holds, and each one.
    """
    bounds = np.append(0, np.cumsum(sizes))
    places = bounds[:-1][is_opened]
    return Steps(
        accounts,
        bounds + np.append(0, np.cumsum(is_opened)),
        np.insert(steps.times, places, times),
        np.insert(steps.words, places, words, axis=0),
        np.insert(steps.is_row, places, False),
    )


def _states(opening: pd.DataFrame) -> Iterator[tuple[tuple[str, ...], int, int | None]]:
    """Yield each account, from when on it held its opening balance, and that; `None` is unknown."""
    keys = check_opening(opening)
    balances = to_amounts(opening["balance"], may_lack=True).to_pylist()
    times = np.full(len(opening), ALWAYS)
    if "since" in opening:
        times = pd.to_datetime(opening["since"], utc=True).to_numpy("M8[us]").view(np.int64)
    accounts = keys.itertuples(index=False, name=None)
    for account, time, balance in zip(accounts, times.tolist(), balances, strict=True):
        yield account, time, None if balance is None else int(balance)


def _check_agrees(steps: Steps, number: int, time: int, balance: int) -> None:
    """Raise if an opening balance from within an account's rows is none of them."""
    first, stop = steps.bounds[number : number + 2]
    row = int(first + np.searchsorted(steps.times[first:stop], time))
    there = row < stop and steps.times[row] == time
    held = int128.integers_of(steps.words[row : row + 1])[0] if there else "no row"
    if held != balance:
        raise CheckError(
            f"opening has {balance} for {steps.name(number)} since {moment_text(time)}, "
            f"where the table has {held}: an opening is what was before the account's first row, "
            "so one of the two is wrong or rows are missing"
        )
