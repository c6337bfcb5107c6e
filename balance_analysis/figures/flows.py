"""What came in and went out: bars around zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from matplotlib.collections import LineCollection, PolyCollection

from balance_analysis.analysis.flows import flows
from balance_analysis.analysis.history import are_known, make_history
from balance_analysis.figures.amounts import Unit, format_amounts, in_units, only_asset
from balance_analysis.figures.canvas import explain_no_changes, ink, legend_beside, new_axes, note
from balance_analysis.figures.labels import axis_label
from balance_analysis.figures.palette import BLUE, VERMILION
from balance_analysis.figures.shading import INCOMPLETE, hatch_incomplete, shade_limits
from balance_analysis.figures.thinning import COLUMNS_PER_INCH, count_columns, thin
from balance_analysis.figures.times import format_times, to_dates
from balance_analysis.spans import joined
from balance_analysis.text import count_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from balance_analysis.analysis.grid import Frequency, Grid
    from balance_analysis.archive.archive import Archive
    from balance_analysis.figures.amounts import Decimals
    from balance_analysis.known import Known, Stated
    from balance_analysis.schema import Instant
    from balance_analysis.spans import Span

_GAP: Final = 0.12
"""Between two bars, of the length of a period."""

_NARROWEST: Final = 1.0
"""Points: a bar or a net that is narrower gets an edge as wide, or it could not be seen."""

_POINTS_PER_INCH: Final = 72


def plot_flows(
    data: pd.DataFrame,
    *,
    ax: Axes | None = None,
    freq: Frequency | None = "1D",
    start: Instant | None = None,
    end: Instant | None = None,
    decimals: Decimals | None = None,
    unit: str | None = None,
    opening: pd.DataFrame | None = None,
    known: Stated | None = None,
    limits: pd.DataFrame | None = None,
    coverage: pd.DataFrame | Archive | None = None,
) -> Axes:
    """Draw what flowed into and out of the accounts of one asset in each period, and the net.

    Bars above zero are inflows, bars below it outflows; the line across each period is the net.
    What one of the accounts gives another counts as in and as out. What came with an account's
    first row, or its first one behind a stretch that is not known, is unknown and in no bar: the
    legend says how many such rows there are. A period of which a part is not known has no bar, but
    is hatched. A bar that would be too narrow to see is drawn a point wide.

    Parameters
    ----------
    data
        A table of balance changes of one asset, its rows in any order.
    ax
        The Axes to draw into; by default that of a new figure of `matplotlib.pyplot`. The legend
        stands to the right of it.
    freq
        How long a period is, see `flows`; `None` for a single one.
    start, end
        The interval, half-open; without a time zone UTC. By default from the period of the first
        row to the end of what is known, else of the rows. Rows before it tell what came with the
        first row in it.
    decimals, unit
        As for `plot_balances`.
    opening
        What accounts held before the table's rows: see `balance_at`.
    known
        Intervals [start, end) in which the table has every change, by default those that its attrs
        tell: see `balance_at`. What may have changed outside of them is not drawn, but hatched.
    limits
        The frame of `Archive.limits()`: shades when proposals were enabled.
    coverage
        The frame of `Archive.coverage()`, or an archive: hatches its gaps and what is unproven, as
        changes may be missing there, instead of what the table tells.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. Without any row, it says so.

    Raises
    ------
    ValueError
        If there is more than one asset, `decimals` lacks the asset, or `freq` is none.
    OverflowError
        If a delta or a sum has more than 38 digits.
    CheckError
        If two rows of one account and timestamp differ in balance.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL", "party_id": "a1",
    ...     "market_id": "", "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03"], utc=True),
    ...     "balance": [5, 7],
    ... })
    >>> ax = plot_flows(table)
    >>> [text.get_text() for text in ax.get_legend().get_texts()][:3]
    ['inflow', 'outflow', 'net']
    """
    history = make_history(data, opening, known, freq=freq, start=start, end=end)
    grid, spans = history.grid, history.known
    asset = only_asset(history.steps.accounts)
    ax = new_axes(ax)
    ax.set_xlabel("UTC", loc="left")
    options: Any = {"by": "asset_id", "opening": opening, "known": known}
    found = flows(data, freq=freq, start=start, end=end, **options)
    measure = "flow" if freq is None else f"flow per {period_name(freq)}"
    ax.set_ylabel(axis_label(measure, asset, unit=unit, whole=decimals is not None))
    if asset is None or found.empty:
        return explain_no_changes(ax, start, end)
    begin, stop = _shown(found, grid, spans)
    format_times(ax, begin, stop)
    _draw(ax, found, Unit(asset, decimals))
    format_amounts(ax, whole=decimals is not None)
    handles: list[Artist] = [*ax.collections, *shade_limits(ax, limits)]
    words = _LATER if spans is None else INCOMPLETE
    handles += hatch_incomplete(ax, coverage, _whole(grid, spans), begin, stop, words=words)
    unknown = int(found["unknown"].sum())
    if unknown:
        rows = count_text(unknown, "first row")
        handles.append(note(f"in no bar, since unknown: what\ncame with {rows}"))
    legend_beside(ax, handles)
    return ax


_LATER: Final = "not known to be complete: what\nchanged there is in later bars or none"


def _shown(found: pd.DataFrame, grid: Grid, known: Known | None) -> Span:
    """Return what the x axis shows: all periods; where nothing says what is known, the rows."""
    if known is not None:
        return int(grid.edges[0]), int(grid.edges[-1])
    return int(_microseconds(found["start"])[0]), int(_microseconds(found["end"])[-1])


def _whole(grid: Grid, known: Known | None) -> list[Span] | None:
    """Return the periods of which all is known, joined; `None` where nothing says."""
    if known is None:
        return None
    begins, stops = grid.edges[:-1], grid.edges[1:]
    is_whole = are_known(known, begins, stops)
    return joined(zip(begins[is_whole].tolist(), stops[is_whole].tolist(), strict=True))


def _draw(ax: Axes, found: pd.DataFrame, unit: Unit) -> None:
    starts, ends = (_microseconds(found[name]) for name in ("start", "end"))
    amounts = [in_units(found[name].array, unit) for name in ("inflow", "outflow", "net")]
    places = thin(starts, *amounts, columns=count_columns(ax) // 4)
    left, right = to_dates(starts[places]), to_dates(ends[places])
    margin = (right - left) * _GAP / 2
    inflow, outflow, net = (values[places] for values in amounts)
    is_narrow = right - left < (1 + _GAP) * _NARROWEST * _days_per_point(ax)
    for height, colour, label in ((inflow, BLUE, "inflow"), (-outflow, VERMILION, "outflow")):
        bars = _rectangles(left + margin, right - margin, height)
        edges = np.where(is_narrow & (height != 0), _NARROWEST, 0)
        ax.add_collection(PolyCollection(list(bars), color=colour, linewidth=edges, label=label))
    lines = np.stack([np.stack([left, net], 1), np.stack([right, net], 1)], 1)
    nets = LineCollection(list(lines), color=ink(ax), linewidth=1.8, label="net")
    if is_narrow.any():
        nets.set(capstyle="projecting", linewidth=_NARROWEST)
    ax.add_collection(nets)
    ax.axhline(0, color=ink(ax), linewidth=0.8)
    # Those that matplotlib finds are a little off, even where all is zero.
    ax.dataLim.intervaly = -np.nanmax(outflow, initial=0), np.nanmax(inflow, initial=0)
    ax.autoscale_view(scalex=False)


def _days_per_point(ax: Axes) -> float:
    """Return how much of the x axis is a point wide, about."""
    low, high = ax.get_xlim()
    return (high - low) / (count_columns(ax) / COLUMNS_PER_INCH * _POINTS_PER_INCH)


def _rectangles(
    left: NDArray[np.float64], right: NDArray[np.float64], height: NDArray[np.float64]
) -> NDArray[np.float64]:
    zero = np.zeros_like(height)
    corners = [(left, zero), (left, height), (right, height), (right, zero)]
    return np.stack([np.stack(corner, 1) for corner in corners], 1)


def _microseconds(times: pd.Series[pd.Timestamp]) -> NDArray[np.int64]:
    return times.to_numpy("M8[us]").view(np.int64)


_WORDS: Final = {
    "us": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "min": "minute",
    "h": "hour",
    "D": "day",
    "W": "week",
    "MS": "month",
    "QS": "quarter",
    "YS": "year",
}


def period_name(freq: Frequency) -> str:
    """Return how a frequency is called, such as `day`; of others what was given.

    Examples
    --------
    >>> [period_name(freq) for freq in ("1D", "6h", "W-MON", "2MS")]
    ['day', '6 hours', 'week', '2 months']
    """
    import pandas as pd  # noqa: PLC0415 - heavy

    text = pd.tseries.frequencies.to_offset(freq).freqstr
    number = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-")
    word = _WORDS.get(text[len(number) :].split("-")[0])
    if word is None:
        return text
    return word if number in {"", "1"} else f"{number} {word}s"
