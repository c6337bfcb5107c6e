"""What differs between two moments: what came, went and changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.door import at_moments, door
from balance_analysis.analysis.grid import to_instants
from balance_analysis.analysis.history import Source, open_history
from balance_analysis.analysis.holders import largest
from balance_analysis.analysis.steps import as_of, check_fits, name_of
from balance_analysis.analysis.sums import make_groups, sum_at
from balance_analysis.analysis.units import Units, in_units
from balance_analysis.schema import ACCOUNT_KEY, Instant

STATES: Final = pd.CategoricalDtype(
    pd.Index(["new", "gone", "changed", "same", "unknown"], dtype="str")
)
"""What became of a holder from one moment to another."""

_NEW, _GONE, _CHANGED, _SAME, _UNKNOWN = range(5)


@door(at_moments)
def compare(
    source: Source,
    at: tuple[Instant, Instant],
    *,
    by: str | Sequence[str] = ACCOUNT_KEY,
    units: Units | None = None,
) -> pd.DataFrame:
    """Return what came, went and changed between two moments, the largest changes first.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    at
        The two moments, the earlier one first; without a time zone UTC.
    by
        The columns that make a holder, within each asset: those of an account by default;
        "party_id", "account_type" or "asset_id" for their sums. See `holders`.
    units
        For amounts in whole units, as floats: see `balance_at`.

    Returns
    -------
    pandas.DataFrame
        A row for each holder, sorted by `asset_id`, then the size of `change`, the largest first,
        those without one last: `asset_id` and the columns of `by` (category of str),

        - `before`, `after`: what it held then (decimal128(38, 0), in the asset's smallest unit). NA
          where the balance of one of its accounts is unknown.
        - `change`: `after` - `before`, and `change_percent`: that in percent of `before` (float64,
          NaN where `before` is 0; both missing where one of the balances is unknown)
        - `state` (category of str): "new" where it held nothing before, "gone" where it holds
          nothing after, "changed", "same", or "unknown" where one of the balances is
        - `accounts`, `unknown`: how many accounts the holder has, and of how many of these one of
          both balances is unknown (int64).

    Raises
    ------
    ValueError
        If `at` isn't two moments, the earlier one first, or `by` names no columns of a holder.
    OverflowError
        If a sum or a change has more than 38 digits.
    CheckError
        If rows contradict each other: see `balance_at`.

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
    history = open_history(source)
    points = _to_points(at)
    history.warn_of_quiet()
    steps, groups = history.at(points).known_steps(), make_groups(history, by)
    sums = sum_at(steps, groups, points)
    first, last = int128.words_of(pa.array(sums.total)).reshape(-1, 2, 2).swapaxes(0, 1)
    is_first, is_last = sums.unknown.reshape(-1, 2).T == 0
    is_lacking = ~as_of(steps, points).is_known.reshape(-1, 2).all(axis=1)
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
        change_percent=int128.quotients(percents, map(abs, int128.integers_of(first))),
        state=pd.Categorical.from_codes(states, dtype=STATES),
        accounts=groups.sizes,
        unknown=np.bincount(groups.numbers[is_lacking], minlength=len(groups)),
    )
    found = largest(found, found["change"].abs(), None)
    found["state"] = found["state"].astype(STATES)
    return in_units(found, units, history.attrs)


def _to_points(at: tuple[Instant, Instant]) -> NDArray[np.int64]:
    """Return two moments in microseconds."""
    if isinstance(at, str) or len(at) != 2:  # noqa: PLR2004 - a pair
        raise ValueError(f"at must be two moments, not {at!r}")
    points, _ = to_instants(at)
    if points[0] >= points[1]:
        raise ValueError(f"at must be two moments, the earlier one first, not {at[0]} and {at[1]}")
    return points
