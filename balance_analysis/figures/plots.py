"""Plots of balance histories, each drawn into one Axes.

Nothing is saved, shown or set globally here: the caller owns the figure.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

import numpy as np
from matplotlib.dates import (
    DAILY,
    HOURLY,
    MINUTELY,
    MONTHLY,
    SECONDLY,
    AutoDateLocator,
    ConciseDateFormatter,
)
from matplotlib.ticker import EngFormatter, MaxNLocator, ScalarFormatter

from balance_analysis.analysis.checks import (
    account_numbers,
    microseconds,
    to_table,
)
from balance_analysis.analysis.units import to_units
from balance_analysis.figures.labels import account_labels, balance_label
from balance_analysis.schema import ACCOUNT_KEY, from_microseconds, to_microseconds

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.dates import DateLocator
    from matplotlib.ticker import Formatter

    from balance_analysis.schema import Instant

COLOURS: Final = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#999999",
)
"""Okabe and Ito's, which colour-blind people can tell apart, with grey for their faint yellow."""

_READABLE: Final = (1e3, 1e15)
"""From 1 k to 1000 T: prefixes beyond, such as Z or m, are not what people expect of amounts."""

_LABEL_WIDTH: Final = 2
"""Of a date, in the tick labels of three characters for which matplotlib counts the room."""

_FEWEST_TICKS: Final = 3

_WHOLE_INTERVALS: Final = {MONTHLY: 12, DAILY: 31, HOURLY: 24, MINUTELY: 60, SECONDLY: 60}
"""Steps between ticks without which matplotlib finds none, and warns, for an axis of few ticks."""

MOST_LINES: Final = len(COLOURS)


def plot_balances(
    data: pd.DataFrame,
    *,
    ax: Axes | None = None,
    decimals: int | Mapping[str, int] | None = None,
    unit: str | None = None,
    end: Instant | None = None,
) -> Axes:
    """Draw the balances of accounts of one asset over time, as steps.

    A balance holds from its row until the account's next row, the last one until `end`. Before an
    account's first row its balance is unknown, and nothing is drawn. Of more than eight accounts,
    the eight with the largest maximum are drawn, and the legend says how many are not.

    Parameters
    ----------
    data
        A table of balance changes of one asset, its rows in any order.
    ax
        The Axes to draw into; by default that of a new figure of `matplotlib.pyplot`. The legend
        stands to the right of it, two inches wide: give the figure `layout="constrained"`, or save
        it with `bbox_inches="tight"`.
    decimals
        How many decimals the asset has, as a number or as {asset_id: decimals}: amounts are then in
        whole units. By default they are in the asset's smallest unit.
    unit
        What a whole unit of the asset is called, for the axis.
    end
        The end of the interval, exclusive; without a time zone UTC. By default the newest timestamp
        of `data`, whose row is still drawn.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. Without any row, it says so.

    Raises
    ------
    ValueError
        If `data` has more than one asset, or `decimals` lacks the asset.
    CheckError
        If two rows of one account and timestamp differ in balance.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import pandas as pd
    >>> from balance_analysis.frame import BALANCE_DTYPE
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL", "party_id": "a1",
    ...     "market_id": "", "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03"], utc=True),
    ...     "balance": pd.array([5, 7], dtype=BALANCE_DTYPE),
    ... })
    >>> ax = plot_balances(table, end="2023-04-05")
    >>> print(ax.get_ylabel())
    balance (smallest unit)
    asset VOTE
    """
    table = to_table(data)
    asset = _only_asset(table)
    if ax is None:
        ax = _new_axes()
    stop = None if end is None else to_microseconds(end)
    drawn = table if stop is None else table.loc[microseconds(table) < stop]
    ax.set_xlabel("UTC", loc="left")  # short: the date of the ticks stands on its right
    ax.set_ylabel(
        "balance" if asset is None else balance_label(asset, unit=unit, whole=decimals is not None)
    )
    if drawn.empty:
        return _explain_empty(ax, stop)
    amounts = to_units(drawn, _decimals_of(asset, decimals))
    _draw_lines(ax, amounts, int(microseconds(drawn).max()) if stop is None else stop)
    _format_times(ax)
    _format_amounts(ax, whole=decimals is not None)
    return ax


def _new_axes() -> Axes:
    import matplotlib.pyplot as plt  # noqa: PLC0415 - it chooses a backend when it is imported

    _, ax = plt.subplots(figsize=(10, 4.5), layout="constrained")
    return ax


def _only_asset(table: pd.DataFrame) -> str | None:
    assets = [str(asset) for asset in table["asset_id"].cat.categories]
    if len(assets) > 1:
        raise ValueError(
            f"one plot shows one asset, but the table has {len(assets)}: {assets}; "
            f'select one with table[table["asset_id"] == {assets[0]!r}]'
        )
    return assets[0] if assets else None


def _decimals_of(asset: str | None, decimals: int | Mapping[str, int] | None) -> Mapping[str, int]:
    if decimals is None:
        return {str(asset): 0}
    return decimals if isinstance(decimals, Mapping) else {str(asset): decimals}


def _explain_empty(ax: Axes, stop: int | None) -> Axes:
    before = "" if stop is None else f"\nbefore {from_microseconds(stop):%Y-%m-%d %H:%M:%S} UTC"
    ax.text(
        0.5, 0.5, f"no balance changes{before}", ha="center", va="center", transform=ax.transAxes
    )
    ax.set(xticks=[], yticks=[])
    return ax


def _draw_lines(ax: Axes, amounts: pd.DataFrame, end: int) -> None:
    numbers = account_numbers(amounts)
    heads = np.flatnonzero(np.diff(numbers, prepend=-1))
    labels = account_labels(amounts[list(ACCOUNT_KEY)].iloc[heads].reset_index(drop=True))
    maxima = amounts["balance"].groupby(numbers).max()
    largest = maxima.sort_values(ascending=False, kind="stable").index[:MOST_LINES]
    for colour, number in zip(COLOURS, largest, strict=False):
        rows = amounts.loc[numbers == number]
        times = np.append(microseconds(rows), end).view("M8[us]")
        levels = np.append(rows["balance"], rows["balance"].iloc[-1])
        # A line of no length would be invisible.
        marker = "o" if times[0] == times[-1] else None
        ax.plot(
            times,
            levels,
            drawstyle="steps-post",
            color=colour,
            marker=marker,
            label=labels[number].replace(" · market", "\nmarket"),
        )
    _draw_legend(ax, shown=len(largest), total=len(labels))


def _draw_legend(ax: Axes, *, shown: int, total: int) -> None:
    title = None
    if total > shown:
        title = (
            f"{shown} of {total} accounts: those with\n"
            f"the largest maximum; {total - shown} are not drawn"
        )
    ax.legend(
        title=title,
        loc="upper left",
        bbox_to_anchor=(1.01, 1),
        borderaxespad=0,
        fontsize="small",
        title_fontsize="small",
        alignment="left",
        frameon=False,
    )


def _format_times(ax: Axes) -> None:
    locator = _FittingDateLocator(tz=dt.UTC)  # type: ignore[no-untyped-call]
    for frequency, whole in _WHOLE_INTERVALS.items():
        locator.intervald[frequency] = [*locator.intervald[frequency], whole]
    ax.xaxis.set_major_locator(locator)
    formatter = ConciseDateFormatter(  # type: ignore[no-untyped-call]
        locator,
        tz=dt.UTC,
        formats=["%Y", "%b", "%d %b", "%H:%M", "%H:%M", "%S.%f"],
        zero_formats=["", "%Y", "%d %b", "%d %b", "%H:%M", "%H:%M"],
        offset_formats=["", "%Y", "%Y", "%d %b %Y", "%d %b %Y", "%d %b %Y %H:%M"],
    )
    ax.xaxis.set_major_formatter(formatter)
    ax.margins(x=0.01)
    if ax.dataLim.width == 0:
        ax.set_xlim(ax.dataLim.x0 - 0.5, ax.dataLim.x0 + 0.5)  # a day, not four years


def _format_amounts(ax: Axes, *, whole: bool) -> None:
    low, high = ax.dataLim.intervaly
    ax.yaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=not whole))
    ax.yaxis.set_major_formatter(_amount_formatter(low, high))
    if low == high == 0:
        ax.set_ylim(-0.05, 1.05)
    ax.grid(visible=True, alpha=0.3)
    ax.set_axisbelow(True)


def _amount_formatter(low: float, high: float) -> Formatter:
    """Return k, M, G and T where people read them and they tell ticks apart, else powers of ten."""
    top = max(abs(low), abs(high))
    if _READABLE[0] <= top < _READABLE[1] and (low == high or high - low > top / 1e3):
        return EngFormatter()
    formatter = ScalarFormatter(useMathText=True)
    formatter.set_powerlimits((-3, 4))
    return formatter


class _FittingDateLocator(AutoDateLocator):
    """Ticks at round times, as many as the axis has room for when it is drawn."""

    def get_locator(self, dmin: dt.datetime, dmax: dt.datetime) -> DateLocator:
        room = cast("Axis", self.axis).get_tick_space() // _LABEL_WIDTH
        most = min(max(room, _FEWEST_TICKS), 8)
        self.minticks = min(most - 1, 4)
        self.maxticks = dict.fromkeys(self.maxticks, most)
        locator: DateLocator = super().get_locator(dmin, dmax)  # type: ignore[no-untyped-call]
        return locator
