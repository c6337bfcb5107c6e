"""The functions over a table as methods of one: `table.balances.at(...)`.

pandas knows the accessor once this module has been imported, which the package's door sees to as
soon as a name of it is used beside pandas.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import pandas as pd

from balance_analysis.analysis.balances import balance_at, balance_series
from balance_analysis.analysis.checks import check_table
from balance_analysis.analysis.concentration import concentration, share, top_movers
from balance_analysis.analysis.conservation import check_conservation, reconcile
from balance_analysis.analysis.flows import active_accounts, deltas, flows
from balance_analysis.analysis.statistics import drawdown, ohlc, time_weighted_average
from balance_analysis.analysis.summary import summarize_accounts
from balance_analysis.analysis.totals import totals
from balance_analysis.analysis.units import to_units
from balance_analysis.schema import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

P = ParamSpec("P")
R = TypeVar("R")


def _method(
    function: Callable[Concatenate[pd.DataFrame, P], R],
) -> Callable[Concatenate[BalancesAccessor, P], R]:
    def method(self: BalancesAccessor, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return function(self._table, *args, **kwargs)

    functools.update_wrapper(method, function)
    return method


@pd.api.extensions.register_dataframe_accessor("balances")
class BalancesAccessor:
    """Every function that takes a table first, as a method; see the functions.

    Raises
    ------
    AttributeError
        On a frame that lacks a column of a table.

    Examples
    --------
    >>> import balance_analysis as ba
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL", "party_id": "a1",
    ...     "market_id": "", "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03"], utc=True),
    ...     "balance": [5, 7],
    ... })
    >>> table.balances.at("2023-04-02")[["party_id", "balance"]]
      party_id  balance
    0       a1        5
    """

    def __init__(self, table: pd.DataFrame) -> None:
        missing = [name for name in COLUMNS if name not in table]
        if missing:
            raise AttributeError(
                f"a frame without the columns {missing} is no table of balance changes, so it has "
                "no .balances"
            )
        self._table = table

    active_accounts = _method(active_accounts)
    at = _method(balance_at)
    check = _method(check_table)
    check_conservation = _method(check_conservation)
    concentration = _method(concentration)
    deltas = _method(deltas)
    drawdown = _method(drawdown)
    flows = _method(flows)
    ohlc = _method(ohlc)
    reconcile = _method(reconcile)
    series = _method(balance_series)
    share = _method(share)
    summarize = _method(summarize_accounts)
    time_weighted_average = _method(time_weighted_average)
    to_units = _method(to_units)
    top_movers = _method(top_movers)
    totals = _method(totals)

    def plot(self, **options: Any) -> Axes:  # noqa: ANN401 - those of plot_balances
        """Plot the balances, as `plot_balances` does and with its options."""
        from balance_analysis.figures.balances import plot_balances  # noqa: PLC0415 - heavy

        return plot_balances(self._table, **options)
