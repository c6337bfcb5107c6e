"""What differs between two moments: what came, went and changed, and what moved most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.balances import held_at
from balance_analysis.analysis.checks import check_opening
from balance_analysis.analysis.history import History, open_history
from balance_analysis.analysis.holders import largest, quotients
from balance_analysis.analysis.steps import check_fits, name_of
from balance_analysis.analysis.summary import summarize
from balance_analysis.analysis.totals import Groups, make_groups
from balance_analysis.analysis.units import Units, in_units
from balance_analysis.frame import empty_table, to_amounts
from balance_analysis.known import Stated, has_nothing_before
from balance_analysis.naming import check_frame
from balance_analysis.schema import ACCOUNT_KEY, Instant, from_microseconds

STATES: Final = pd.CategoricalDtype(
    pd.Index(["new", "gone", "changed", "same", "unknown"], dtype="str")
)
"""What became of a holder from one moment to another."""

_OTHERS: Final = "others"
_NEW, _GONE, _CHANGED, _SAME, _UNKNOWN = range(5)


def compare(
    table: pd.DataFrame | History,
    other: pd.DataFrame | History | None = None,
    *,
    at: tuple[Instant, Instant] | None = None,
    by: str | Sequence[str] = ACCOUNT_KEY,
    opening: pd.DataFrame | None = None,
    known: Stated | None = None,
    units: Units | None = None,
) -> pd.DataFrame:
    """Return what came, went and changed between two moments, or two tables.

    Parameters
    ----------
    table, other
        What tells the balances before and those after: tables of balance changes, their rows in any
        order, or what `balance_at` or `Archive.balance_at` returned of one moment. By default one
        table tells both.
    at
        The two moments, before and after, without a time zone UTC. By default each table is taken
        just before the end of what it knows, else at its last row.
    by
        The columns that make a holder, within each asset: those of an account by default;
        "party_id", "account_type" or "asset_id" for their sums. See `holders`.
    opening, known
        As for `balance_at`; of both tables.
    units
        For amounts in whole units, as floats: see `balance_at`.

    Returns
    -------
    pandas.DataFrame
        A row for each holder of one of both, sorted by `asset_id`, then the size of `change`, the
        largest first, those without one last: `asset_id` and the columns of `by` (category of str),

        - `before`, `after`: what it held then (decimal128(38, 0), in the asset's smallest unit). NA
          where the balance of one of its accounts is unknown: of an account that is in one of both
          alone, in the other, unless that knows that there was nothing before it.
        - `change`: `after` - `before`, and `change_percent`: that in percent of `before` (float64,
          NaN where `before` is 0; both missing where one of the balances is unknown)
        - `state` (category of str): "new" where it held nothing before, "gone" where it holds
          nothing after, "changed", "same", or "unknown" where one of the balances is
        - `accounts`, `unknown`: how many accounts the holder has, and of how many of these one of
          both balances is unknown, so that a sum is (int64).

    Raises
    ------
    ValueError
        If there are neither two tables nor two moments, or `by` names no columns of a holder.
    TypeError
        If one of both is neither a table nor balances of one moment in the smallest unit.
    OverflowError
        If a sum or a change has more than 38 digits.
    CheckError
        If rows contradict each other or `opening`: see `balance_at`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL",
    ...     "party_id": ["a1", "a1", "b2", "b2"], "market_id": "",
    ...     "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03"] * 2, utc=True),
    ...     "balance": [4, 5, 9, 0],
    ... })
    >>> found = compare(table, at=("2023-04-02", "2023-04-03"))
    >>> found[["party_id", "before", "after", "change", "change_percent", "state"]]
      party_id  before  after  change  change_percent    state
    0       b2       9      0      -9          -100.0     gone
    1       a1       4      5       1            25.0  changed
    """
    tables = (table, table if other is None else other)
    for each in tables:
        if not isinstance(each, History):
            check_frame(each)
    if other is None and at is None:
        raise ValueError("compare two tables, or a table at=(before, after), two moments")
    when = (None, None) if at is None else at
    if isinstance(when, str) or len(when) != 2:  # noqa: PLR2004 - a pair
        raise ValueError(f"at must be two moments, not {at!r}")
    sides = [_held(*side, opening, known) for side in zip(tables, when, strict=True)]
    accounts = sides[0].index.union(sides[1].index)
    groups = _groups(accounts, tables, by)
    balances = [side.reindex(accounts, fill_value=side.attrs[_OTHERS]) for side in sides]
    (first, is_first), (last, is_last) = (_sum(each, groups) for each in balances)
    is_lacking = balances[0].isna() | balances[1].isna()
    unknown = np.bincount(groups.numbers[is_lacking], minlength=len(groups))
    is_known = is_first & is_last
    change, too_large = int128.subtract(last, first)
    check_fits(is_known & too_large, lambda place: f"the change of {name_of(groups.ids, place)}")
    states = np.select(
        [~is_known, int128.is_zero(change), int128.is_zero(first), int128.is_zero(last)],
        [_UNKNOWN, _SAME, _NEW, _GONE],
        _CHANGED,
    )
    moves = zip(int128.integers_of(change), is_known, strict=True)
    percents = (100 * move if told else None for move, told in moves)
    found = groups.ids.assign(
        before=int128.to_balances(first, is_first),
        after=int128.to_balances(last, is_last),
        change=int128.to_balances(change, is_known),
        change_percent=quotients(percents, map(abs, int128.integers_of(first))),
        state=pd.Categorical.from_codes(states, dtype=STATES),
        accounts=groups.sizes,
        unknown=unknown,
    )
    found = largest(found, found["change"].abs(), None)
    found["state"] = found["state"].astype(STATES)
    return in_units(found, units, table.attrs)


def _held(
    data: pd.DataFrame | History,
    when: Instant | None,
    opening: pd.DataFrame | None,
    known: Stated | None,
) -> pd.Series[Any]:
    """Return the balances of accounts at a moment, by account."""
    if isinstance(data, History) or when is not None or "timestamp" in data:
        history = open_history(data, opening, known)
        ends = history.grid().edges[-1:]
        moment = from_microseconds(int(ends[0]) - 1 if len(ends) else 0) if when is None else when
        data = held_at(history, moment)
    index = pd.MultiIndex.from_frame(check_opening(data))
    column = pd.arrays.ArrowExtensionArray(to_amounts(data["balance"], may_lack=True))
    held = pd.Series(column, index=index)
    held.attrs = {_OTHERS: Decimal(0) if has_nothing_before(data) else None}
    return held


def _groups(
    accounts: pd.Index[Any], tables: Sequence[pd.DataFrame | History], by: str | Sequence[str]
) -> Groups:
    """Return the holders of accounts; other columns than ids are those of the tables."""
    frame = accounts.set_names(ACCOUNT_KEY).to_frame(index=False).assign(balance=None)
    history = open_history(empty_table(), frame)
    needed = {*ACCOUNT_KEY, *([by] if isinstance(by, str) else by)}
    given = [each.given if isinstance(each, History) else each for each in tables]
    told = [each[[*needed]].astype("str") for each in given if needed <= {*each}]
    if told:
        history = replace(history, given=pd.concat(told))
    return make_groups(history, by)


def _sum(held: pd.Series[Any], groups: Groups) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return what each holder holds, and of which of them that is known."""
    unknown, count = held.isna().to_numpy(), len(groups)
    words = np.where(unknown[:, None], 0, int128.words_of(pa.array(held.array)))
    total, too_large = int128.sum_words(words, groups.numbers, count)
    check_fits(too_large, lambda place: f"the sum of {name_of(groups.ids, place)}")
    return total, np.bincount(groups.numbers, unknown, count) == 0


def top_movers(
    table: pd.DataFrame | History,
    start: Instant | None = None,
    end: Instant | None = None,
    n: int = 10,
    *,
    by: str | Sequence[str] = ACCOUNT_KEY,
    opening: pd.DataFrame | None = None,
    known: Stated | None = None,
    units: Units | None = None,
) -> pd.DataFrame:
    """Return the accounts, or parties, of each asset whose balance moved most in [start, end).

    Parameters
    ----------
    table
        A table of balance changes, its rows in any order.
    start, end
        The interval, half-open; without a time zone UTC. By default from the table's first row to
        the end of what is known, else to just after its last row.
    n
        How many of each asset, at most. Those that ended where they began are left out.
    by
        The columns that make a holder, which the result has in place of `ACCOUNT_KEY`, such as
        "party_id": see `holders`. What moves between its own accounts is then told apart, as
        `internal`: see `summarize_parties`.
    opening
        What accounts held before the table's rows: see `balance_at`.
    known
        Intervals [start, end) in which the table has every change: see `balance_at`.
    units
        For amounts in whole units, as floats: see `balance_at`.

    Returns
    -------
    pandas.DataFrame
        Sorted by `asset_id`, then the size of `net`, largest first, then `ACCOUNT_KEY`:
        `ACCOUNT_KEY` (category of str), and as in `summarize_accounts` `opening`, `closing`, `net`,
        `inflow`, `outflow` (decimal128(38, 0), in the asset's smallest unit) and `changes` (int64).
        Where `opening` is NA, the account's balance was unknown at `start`, and the rest is about
        the part in which it is known.

    Raises
    ------
    ValueError
        If `n` is below 1 or `start` is not before `end`.
    OverflowError
        If a sum has more than 38 digits.
    CheckError
        If rows contradict each other or `opening`: see `balance_at`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL",
    ...     "party_id": ["a1", "a1", "b2", "b2"], "market_id": "",
    ...     "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03"] * 2, utc=True),
    ...     "balance": [5, 7, 9, 1],
    ... })
    >>> top_movers(table, "2023-04-02", "2023-04-05")[["party_id", "opening", "closing", "net"]]
      party_id  opening  closing  net
    0       b2        9        1   -8
    1       a1        5        7    2
    """
    history = open_history(table, opening, known)
    found = summarize(history, by, start, end)
    found = found[(found["net"] != 0).fillna(value=False).to_numpy(bool)]
    names = [name for name in history.columns if name in found]
    columns = ["opening", "closing", "net", "inflow", "outflow", "internal", "changes"]
    shown = [*names, *(name for name in columns if name in found)]
    found = largest(found[shown], found["net"].abs(), n)
    return in_units(found, units, history.attrs)
