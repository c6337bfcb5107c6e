"""How unevenly an asset is spread: the Lorenz curve, and the largest holders over time."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from matplotlib.ticker import PercentFormatter

from balance_analysis.analysis.balances import balance_at
from balance_analysis.analysis.concentration import concentration, share
from balance_analysis.analysis.int128 import integers_of, words_of
from balance_analysis.figures.amounts import draw_grid, format_shares, only_asset, percent
from balance_analysis.figures.canvas import (
    draw_bands,
    draw_unknown,
    explain,
    explain_no_changes,
    ink,
    legend_beside,
    named,
    new_axes,
    note,
    unknown_patch,
)
from balance_analysis.figures.labels import account_labels, axis_label
from balance_analysis.figures.levels import blank_gaps, open_figure
from balance_analysis.figures.palette import BLUE, OTHERS, account_styles
from balance_analysis.figures.shading import hatch_incomplete
from balance_analysis.figures.times import format_times, seen_until, to_dates
from balance_analysis.schema import from_microseconds, to_microseconds
from balance_analysis.text import count_text

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from balance_analysis.analysis.grid import Frequency
    from balance_analysis.analysis.steps import Steps
    from balance_analysis.figures.levels import Interval
    from balance_analysis.known import Stated
    from balance_analysis.schema import Instant

_POINTS: Final = 2000
"""Of a curve, which is smooth where there are more holders."""

_MOST_STEPS: Final = 120
_STEPS: Final = ("1min", "10min", "1h", "6h", "1D", "7D", "28D", "364D")


def plot_concentration(
    data: pd.DataFrame,
    *,
    ax: Axes | None = None,
    kind: Literal["lorenz", "largest"] = "lorenz",
    when: Instant | None = None,
    n: int = 5,
    freq: Frequency | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
    opening: pd.DataFrame | None = None,
    known: Stated | None = None,
) -> Axes:
    """Draw how unevenly the balances of one asset are spread over the accounts that hold some.

    Accounts whose balance is unknown or 0 are no holders.

    Parameters
    ----------
    data
        A table of balance changes of one asset, its rows in any order.
    ax
        The Axes to draw into; by default that of a new figure of `matplotlib.pyplot`. The legend
        stands to the right of it.
    kind
        "lorenz": the part of the total that the smallest holders have together, against how many
        they are, with the Gini coefficient. "largest": the shares of the `n` holders that held most
        on average, over time, stacked, and that of all others; hatched where nobody is known to
        hold anything.
    when
        For "lorenz", the instant; without a time zone UTC. By default just before `end`.
    n
        How many of the largest holders.
    freq
        For "largest", the distance of the points: see `share`. By default one of which there are
        some dozens.
    start, end
        The interval, half-open; without a time zone UTC. By default from the first timestamp to
        the end of what is known, else to the last timestamp, whose rows count.
    opening
        What accounts held before the table's rows: see `balance_at`.
    known
        Intervals [start, end) in which the table has every change, by default those that its attrs
        tell: see `balance_at`. What may have changed outside of them is not drawn, but hatched.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. Where nobody holds anything, it says so.

    Raises
    ------
    ValueError
        If there is more than one asset, `kind` is neither, `n` is below 1, or `when` or `freq` is
        given for the other kind.
    CheckError
        If rows contradict each other or `opening`: see `balance_at`.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL",
    ...     "party_id": ["a1", "b2"], "market_id": "",
    ...     "timestamp": pd.to_datetime(["2023-04-01", "2023-04-02"], utc=True), "balance": [3, 1],
    ... })
    >>> ax = plot_concentration(table, n=1)
    >>> ax.get_legend().get_texts()[0].get_text()
    'Lorenz curve, Gini 0.25'
    """
    if kind not in {"lorenz", "largest"}:
        raise ValueError(f"kind must be 'lorenz' or 'largest', not {kind!r}")
    wrong = {"lorenz": ("freq", freq), "largest": ("when", when)}[kind]
    if wrong[1] is not None:
        raise ValueError(f"{wrong[0]} has no meaning for kind={kind!r}")
    if operator.index(n) < 1:
        raise ValueError(f"n must be at least 1, not {n}")
    told: Any = {"opening": opening, "known": known}
    steps, interval = open_figure(data, **told, start=start, end=end)
    asset = only_asset(steps.accounts)
    size = (7, 4.5) if kind == "lorenz" else (10, 4.5)
    ax = new_axes(ax, size=size)
    if asset is None or interval is None:
        return explain_no_changes(ax, start, end)
    if kind == "lorenz":
        instant = interval.before - 1 if when is None else to_microseconds(when)
        is_last = when is None and interval.before == interval.end
        words = f"just before {named(instant + 1)}" if is_last else f"at {named(instant)}"
        return _draw_lorenz(ax, data, told, asset, instant, words=words, n=n)
    if freq is None:
        freq = _step(interval.end - interval.start)
    found = share(data, freq=freq, **told, start=start, end=end)
    return _draw_largest(ax, found, steps, interval, n=n)


def _draw_lorenz(
    ax: Axes,
    data: pd.DataFrame,
    told: dict[str, Any],
    asset: str,
    when: int,
    *,
    words: str,
    n: int,
) -> Axes:
    moment = from_microseconds(when)
    found = concentration(data, moment, n=n, **told).iloc[0]
    if not found["holders"]:
        return explain(ax, f"nobody is known to hold anything\n{words}")
    amounts = pa.array(balance_at(data, moment, **told)["balance"]).drop_null()
    held = sorted(amount for amount in integers_of(words_of(amounts)) if amount > 0)
    holders, parts = lorenz(held)
    ax.fill_between(holders, parts, holders, color=BLUE, alpha=0.15, linewidth=0)
    ax.plot(holders, parts, color=BLUE, label=f"Lorenz curve, Gini {_gini(found['gini'])}")
    ax.plot([0, 1], [0, 1], color=ink(ax), linestyle="--", linewidth=0.8, label="all hold the same")
    ax.set_xlabel(f"share of the {count_text(len(held), 'holder')}, smallest first")
    ax.set_ylabel(axis_label("share of what they hold", asset, bare=True))
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    format_shares(ax)
    draw_grid(ax)
    largest = (
        "the largest holds" if min(n, len(held)) == 1 else f"the {min(n, len(held))} largest hold"
    )
    notes = [f"{largest} {percent(found['largest'])}"]
    if found["unknown"]:
        some = "account\nis" if found["unknown"] == 1 else "accounts\nare"
        notes.append(f"{found['unknown']:,} more {some} unknown")
    handles = [*ax.lines, *(note(each) for each in notes)]
    legend_beside(ax, handles, title=words)
    return ax


def _gini(gini: float) -> str:
    return ">0.99" if 0.995 <= gini < 1 else f"{gini:.2f}"  # noqa: PLR2004 - rounding would say 1


def lorenz(held: list[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a Lorenz curve: parts of the holders, and of what they hold, from 0 to 1.

    Parameters
    ----------
    held
        What each holder has, above 0, ascending.
    """
    sums = [0]
    for amount in held:
        sums.append(sums[-1] + amount)
    last = len(held)
    places = np.unique(np.linspace(0, last, min(last, _POINTS) + 1).round().astype(np.int64))
    return places / last, np.array([sums[place] / sums[-1] for place in places])


def _draw_largest(
    ax: Axes, found: pd.DataFrame, steps: Steps, interval: Interval, *, n: int
) -> Axes:
    points = found["timestamp"].to_numpy("M8[us]").view(np.int64)[: len(found) // len(steps)]
    shares = found["share"].to_numpy().reshape(len(steps), len(points))
    is_held = ~np.isnan(shares).all(axis=0)
    if not is_held.any():
        return explain(ax, "nobody is known to hold anything")
    largest = np.argsort(-np.nan_to_num(shares).mean(axis=1), kind="stable")[:n]
    tops = np.where(is_held, np.cumsum(np.nan_to_num(shares[largest]), axis=0), np.nan)
    accounts = steps.accounts.iloc[largest].reset_index(drop=True)
    labels = [label.replace(" · market", "\nmarket") for label in account_labels(accounts)]
    styles = account_styles(accounts["account_type"].astype("str"))
    if len(largest) < len(steps):
        tops = np.vstack([tops, np.where(is_held, 1.0, np.nan)])
        labels.append(f"{len(steps) - len(largest):,} others")
        styles.append(OTHERS)
    start, end = int(points[0]), max(interval.end, int(points[-1]))
    edges = np.append(points, seen_until(start, int(points[-1]), end))
    edges, tops = blank_gaps(edges, tops, interval.known)
    handles: list[Artist] = [*draw_bands(ax, edges, tops, styles, labels)[::-1]]
    if not is_held.all():
        handles.append(unknown_patch(ax, "nobody is known\nto hold anything"))
        is_held = ~np.isnan(tops[0])
        turns = np.flatnonzero(np.diff(is_held, prepend=True, append=True))
        for first, after in turns.reshape(-1, 2):
            draw_unknown(ax, *to_dates(edges[[first, after]]), label=None)
    ax.set_ylabel(axis_label("share of the known total", only_asset(steps.accounts), bare=True))
    format_shares(ax)
    format_times(ax, start, end)
    handles += hatch_incomplete(ax, None, interval.known, start, end)
    legend_beside(ax, handles, title=f"the {len(largest)} that held most\non average:")
    return ax


def _step(length: int) -> str:
    """Return a distance of points of which there are some dozens in so many microseconds."""
    fitting = (s for s in _STEPS if length <= _MOST_STEPS * pd.Timedelta(s) / pd.Timedelta("1us"))
    return next(fitting, _STEPS[-1])
