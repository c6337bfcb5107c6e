"""Rank holders of assets: their balances, shares and changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.balances import warn_outside
from balance_analysis.analysis.door import Units, any_source, make_groups, to_integers
from balance_analysis.analysis.grid import Zone, to_instants, to_zone
from balance_analysis.analysis.history import AccountSlices
from balance_analysis.analysis.steps import as_of, check_fits, name_of
from balance_analysis.analysis.totals import sum_at
from balance_analysis.table.moments import Instant
from balance_analysis.table.schema import ACCOUNT_KEY


@any_source
def holders(
    source: AccountSlices,
    at: Instant | None = None,
    *,
    by: str | Sequence[str] = ACCOUNT_KEY,
    n: int | None = None,
    tz: Zone | None = None,
    units: Units | None = None,
) -> Iterator[pd.DataFrame]:
    """Return the holders of each asset at an instant, the largest first.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    at
        The instant; in `tz` if without a time zone. By default just before the end of the known
        intervals, or at the last row if that is later.
    by
        The columns that identify a holder, within each asset. By default each account is a holder;
        with "party_id", all accounts of a party are one. Any other column of the table with one
        value per account works too, such as `table["desk"] = table["party_id"].map(desks)`.
        Accounts without a value form a holder NA. Accounts that belong to nobody, such as pools,
        have the party "network".
    n
        Maximum number of holders of each asset; by default all, including those that hold nothing.
    units
        As for `balance_at`.
    tz
        The time zone of an instant without one. By default UTC.

    Returns
    -------
    pandas.DataFrame
        Sorted by `asset_id`, then `balance`, the largest first, unknown ones last: `asset_id` and
        the columns of `by` (category of str), and

        - `balance`: the sum of the known balances (decimal128(38, 0), in the asset's smallest
          unit), NA if all are unknown
        - `share`: `balance` as a part of all known balances of the asset (float64, NaN if the
          balance is unknown or nobody holds anything)
        - `cumulative_share`: the share of this holder and those above it together (float64, NaN
          where `share` is)
        - `accounts`, `unknown`: the number of the holder's accounts, and of those whose balance is
          unknown at that time and therefore missing in `balance` (int64).

    Raises
    ------
    ValueError
        If `by` is invalid, or `n` is below 1.
    OverflowError
        If a sum has more than 38 digits.
    CheckError
        If rows contradict each other: see `balance_at`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": ["ACCOUNT_TYPE_GENERAL", "ACCOUNT_TYPE_BOND"] * 2,
    ...     "party_id": ["a1", "a1", "b2", "b2"], "market_id": "",
    ...     "timestamp": pd.to_datetime(["2023-04-01"] * 3 + ["2023-04-09"], utc=True),
    ...     "balance": [1, 1, 6, 5],
    ... })
    >>> holders(table, "2023-04-03", by="party_id").drop(columns="asset_id")
      party_id  balance  share  cumulative_share  accounts  unknown
    0       b2        6   0.75              0.75         2        1
    1       a1        2   0.25              1.00         2        0
    """
    source.warn_about_missing_accounts()
    if at is None:
        points = source.outline.grid(tz=tz).edges[-1:] - 1
    else:
        points, _ = to_instants(at, to_zone(tz))
    history = source.history_at(points)
    groups = make_groups(history, by)
    sums = sum_at(history.at(points), groups, points)
    warn_outside(history, points, sums.columns["known"] > 0)
    cells = sums.columns["groups"]
    held = groups.ids.iloc[cells].assign(
        balance=sums.total,
        share=np.nan,
        cumulative_share=np.nan,
        accounts=groups.sizes[cells],
        unknown=sums.unknown,
    )
    held = largest(held, held["balance"], None)
    amounts = to_integers(held)["balance"]
    of_asset = amounts.fillna(0).groupby(held["asset_id"].cat.codes)
    wholes = of_asset.transform("sum").where(amounts.notna(), 0)
    running = of_asset.transform(lambda amounts: amounts.cumsum())
    held["share"] = int128.quotients(amounts, wholes)
    held["cumulative_share"] = int128.quotients(running, wholes)
    yield largest(held, held["balance"], n)


def largest(ranked: pd.DataFrame, amounts: pd.Series[Any], n: int | None) -> pd.DataFrame:
    """Sort rows by the size of their amounts (see `by_size`), and keep at most `n` per asset.

    Raises
    ------
    TypeError, ValueError
        If `n` isn't a whole number, or is below 1.
    """
    ranked = ranked.iloc[by_size(ranked["asset_id"], amounts)]
    if n is not None:
        if not isinstance(n, Integral):
            raise TypeError(f"n must be a whole number, not {n!r}")
        if n < 1:
            raise ValueError(f"n must be at least 1, not {n}")
        ranked = ranked.groupby("asset_id", observed=True).head(n)
    ids = ranked.select_dtypes("category")
    used = {str(name): ids[name].cat.remove_unused_categories() for name in ids}
    return ranked.assign(**used).reset_index(drop=True)


def by_size(assets: pd.Series[Any], amounts: pd.Series[Any]) -> NDArray[np.uint64]:
    """Return the order of amounts: by asset, the largest first, unknown ones last."""
    keys = pa.table({"asset": assets.cat.codes.to_numpy(), "amount": pa.array(amounts.array)})
    order = pc.sort_indices(keys, [("asset", "ascending"), ("amount", "descending")])
    places: NDArray[np.uint64] = order.to_numpy()
    return places


STATES: Final = pd.CategoricalDtype(["new", "gone", "changed", "same", "unknown"])
"""How a holder changed between two moments."""

_NEW, _GONE, _CHANGED, _SAME, _UNKNOWN = range(5)


@any_source
def compare(
    source: AccountSlices,
    at: tuple[Instant, Instant],
    *,
    by: str | Sequence[str] = ACCOUNT_KEY,
    units: Units | None = None,
) -> Iterator[pd.DataFrame]:
    """Return how each holder's balance changed between two moments, the largest changes first.

    Parameters
    ----------
    source
        A table of balance changes, its rows in any order, or an `Archive`.
    at
        The two moments, the earlier one first; UTC if without a time zone.
    by
        The columns that identify a holder, within each asset; by default each account is one.
        "party_id", "account_type" or "asset_id" compare their sums. See `holders`.
    units
        For amounts in whole units, as floats: see `balance_at`.

    Returns
    -------
    pandas.DataFrame
        One row per holder, sorted by `asset_id`, then the size of `change`, the largest first,
        unknown ones last: `asset_id` and the columns of `by` (category of str),

        - `before`, `after`: its balance at the two moments (decimal128(38, 0), in the asset's
          smallest unit); NA if the balance of one of its accounts is unknown.
        - `change`: `after` - `before`, and `change_percent`: `change` in percent of `before`
          (float64, NaN if `before` is 0). Both are missing if `before` or `after` is unknown.
        - `state` (category of str): "new" (`before` is 0), "gone" (`after` is 0), "changed", "same"
          or "unknown" (`before` or `after` is)
        - `accounts`, `unknown`: the number of the holder's accounts, and of those whose balance is
          unknown at one of the moments (int64).

    Raises
    ------
    ValueError
        If `at` isn't two moments, the earlier one first, or `by` is invalid.
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
    >>> changes = compare(table, at=("2023-04-02", "2023-04-03"))
    >>> changes[["party_id", "before", "after", "change", "change_percent", "state"]]
      party_id  before  after  change  change_percent    state
    0       b2       9      0      -9          -100.0     gone
    1       a1       4      5       1            25.0  changed
    """
    points = _to_points(at)
    source.warn_about_missing_accounts()
    history = source.history_at(points)
    steps, groups = history.at(points), make_groups(history, by)
    sums = sum_at(steps, groups, points)
    first, last = sums.columns["words"].reshape(-1, 2, 2).swapaxes(0, 1)
    is_first, is_last = sums.unknown.reshape(-1, 2).T == 0
    is_unknown = ~as_of(steps, points)[1].reshape(-1, 2).all(axis=1)
    is_known = is_first & is_last
    change, too_large = int128.subtract(last, first)
    check_fits(is_known & too_large, lambda place: f"the change of {name_of(groups.ids, place)}")
    states = np.select(
        [~is_known, int128.is_zero(change), int128.is_zero(first), int128.is_zero(last)],
        [_UNKNOWN, _SAME, _NEW, _GONE],
        _CHANGED,
    )
    moves = zip(int128.integers_of(change), is_known, strict=True)
    percents = (100 * move if known else None for move, known in moves)
    result = groups.ids.assign(
        before=int128.to_balances(first, is_first),
        after=int128.to_balances(last, is_last),
        change=int128.to_balances(change, is_known),
        change_percent=int128.quotients(percents, map(abs, int128.integers_of(first))),
        state=pd.Categorical.from_codes(states, dtype=STATES),
        accounts=groups.sizes,
        unknown=np.bincount(groups.numbers[is_unknown], minlength=len(groups)),
    )
    result = largest(result, result["change"].abs(), None)
    result["state"] = result["state"].astype(STATES)
    yield result


def _to_points(at: tuple[Instant, Instant]) -> NDArray[np.int64]:
    """Check two moments, and return them in microseconds."""
    if isinstance(at, str) or len(at) != 2:  # noqa: PLR2004 - a pair
        raise ValueError(f"at must be two moments, not {at!r}")
    points, _ = to_instants(at)
    if points[0] >= points[1]:
        raise ValueError(f"at must be two moments, the earlier one first, not {at[0]} and {at[1]}")
    return points
