"""Draw a picture of a file or an archive, and choose what its options leave open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib import rc_context

from balance_analysis.analysis.balances import balance_at
from balance_analysis.analysis.summary import summarize_accounts
from balance_analysis.archive.writing import replacing
from balance_analysis.cli.options import PictureKind
from balance_analysis.cli.reading import is_archive
from balance_analysis.figures.activity import plot_activity
from balance_analysis.figures.balances import plot_balances
from balance_analysis.figures.concentration import plot_concentration
from balance_analysis.figures.coverage import plot_coverage
from balance_analysis.figures.drawdown import plot_drawdown
from balance_analysis.figures.flows import period_name, plot_flows
from balance_analysis.figures.labels import account_labels
from balance_analysis.figures.limits import plot_limits
from balance_analysis.figures.palette import DARK_STYLE
from balance_analysis.figures.totals import plot_totals
from balance_analysis.schema import ACCOUNT_KEY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from balance_analysis.cli.reading import Selection

_FREQS: Final = {"1min": 60, "10min": 600, "1h": 3600, "1D": 86_400, "W-MON": 604_800}
"""Periods that people know, with their seconds."""

_MOST_BARS: Final = 100
"""Three months of days, four days of hours; a period that gives more is too fine."""

_ONE_ASSET: Final = {
    PictureKind.balances,
    PictureKind.totals,
    PictureKind.flows,
    PictureKind.drawdown,
    PictureKind.concentration,
}
_OF_ARCHIVES: Final = {PictureKind.coverage, PictureKind.limits}
_WITH_FREQ: Final = {
    PictureKind.totals,
    PictureKind.flows,
    PictureKind.activity,
    PictureKind.concentration,
}

_UNDATED: Final[dict[str, dict[str, Any]]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""A date would give the same picture other bytes each time."""

WEEK: Final = "1h"
"""The period of activity that stands for the hours of the week, not the days of the calendar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What a picture is to show.

    Attributes
    ----------
    kind
        What of it.
    selection
        The rows, and the interval.
    freq
        The period of bars and points; `None` where the kind has one of its own.
    decimals, unit
        Of the asset, to draw whole units; `None` for its smallest unit.
    dark
        Whether it is light on dark.
    """

    kind: PictureKind
    selection: Selection
    freq: str | None
    decimals: int | None
    unit: str | None
    dark: bool

    def amounts(self) -> dict[str, Any]:
        """Return in which unit to draw, as the functions take it."""
        return {"decimals": self.decimals, "unit": self.unit}

    def coverage(self) -> dict[str, Any]:
        """Return what an archive holds of time, as the functions take it; nothing of a file."""
        if not is_archive(self.selection.source):
            return {}
        return {"coverage": self.selection.archive("a coverage").coverage()}

    def check(self) -> None:
        """Raise before any work if an option doesn't go with the kind.

        Raises
        ------
        ValueError
            It says which option.
        """
        kind = self.kind.value
        if self.freq is not None and self.kind not in _WITH_FREQ:
            raise ValueError(f"--kind {kind} has no periods; leave out --freq")
        if self.kind is PictureKind.activity and self.freq not in (None, WEEK, "1D"):
            raise ValueError(
                f"--kind activity counts by day, or with --freq {WEEK} by hour of the week; "
                f"not by {self.freq}"
            )
        if self.kind not in _ONE_ASSET and (self.decimals is not None or self.unit is not None):
            raise ValueError(f"--kind {kind} has no amounts; leave out --decimals and --unit")
        if self.kind in _OF_ARCHIVES and self.selection.filters.allowed():
            raise ValueError(f"--kind {kind} is of all accounts; leave out what selects some")


def draw_picture(picture: Picture, output: Path, *, form: str) -> None:
    """Draw a picture, and write it to a file that appears whole or not at all.

    Parameters
    ----------
    picture
        What to show.
    output
        The file.
    form
        "png", "svg" or "pdf". The same rows and options give the same bytes.
    """
    data = _data(picture, output)
    plt.switch_backend("Agg")
    style: Any = {**(DARK_STYLE if picture.dark else {}), "svg.hashsalt": "balance_analysis"}
    with rc_context(style):
        figure = cast("Figure", _DRAW[picture.kind](picture, data).get_figure(root=True))
        with replacing(output) as temporary:
            figure.savefig(temporary, format=form, dpi=150, metadata=_UNDATED.get(form))
        plt.close(figure)


def _data(picture: Picture, output: Path) -> pd.DataFrame:
    """Return what the picture is drawn from; of kinds with amounts the rows of one asset."""
    kind, selection = picture.kind, picture.selection
    if kind is PictureKind.coverage:
        return _clip(selection, selection.archive("a coverage").coverage(), "start", "end")
    if kind is PictureKind.limits:
        limits = selection.archive("limits over time").limits()
        return _clip(selection, limits, "first_seen", "last_seen")
    table = selection.read(into=output)
    if kind not in _ONE_ASSET or table["asset_id"].nunique() <= 1:
        return table
    rows, what = _inside(selection, table), "rows"
    if rows.empty:
        rows, what = table.drop_duplicates([*ACCOUNT_KEY]), "accounts"
    if picture.decimals is not None or picture.unit is not None:
        raise ValueError(
            f"--decimals and --unit are of one asset, and there are {table['asset_id'].nunique()}: "
            "choose one with --asset-id"
        )
    asset = rows["asset_id"].value_counts().idxmax()
    selection.say(f"Asset {asset}, which has most {what}; choose with --asset-id")
    return table[table["asset_id"] == asset]


def _clip(selection: Selection, frame: pd.DataFrame, begin: str, end: str) -> pd.DataFrame:
    """Return the stretches of a frame as far as they lie in the interval."""
    start, stop = selection.moments()
    if start is not None:
        frame = frame[frame[end] >= start]
        frame = frame.assign(**{begin: frame[begin].where(frame[begin] >= start, start)})
    if stop is not None:
        frame = frame[frame[begin] < stop]
        frame = frame.assign(**{end: frame[end].where(frame[end] <= stop, stop)})
    return frame


def _inside(selection: Selection, table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows in the interval."""
    start, end = selection.moments()
    if start is not None:
        table = table[table["timestamp"] >= start]
    return table if end is None else table[table["timestamp"] < end]


def _since_start(selection: Selection, table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows in the interval, what accounts held at its start among them as rows of it."""
    start, _ = selection.moments()
    if start is None:
        return _inside(selection, table)
    held = balance_at(table, start).dropna(subset="balance").assign(timestamp=start)
    later = table[table["timestamp"] > start]
    return _inside(selection, pd.concat([held[list(table.columns)], later]))


def _balances(picture: Picture, table: pd.DataFrame) -> Axes:
    bounds = picture.selection.bounds()
    return plot_balances(table, **picture.amounts(), **picture.coverage(), **bounds)


def _totals(picture: Picture, table: pd.DataFrame) -> Axes:
    bounds = picture.selection.bounds()
    options = {**picture.amounts(), **picture.coverage()}
    return plot_totals(table, freq=picture.freq, **options, **bounds)


def _flows(picture: Picture, table: pd.DataFrame) -> Axes:
    inside = _inside(picture.selection, table)
    freq = picture.freq or _fitting_freq(picture.selection, inside["timestamp"])
    options = {**picture.amounts(), **picture.coverage()}
    return plot_flows(table, freq=freq, **options, **picture.selection.bounds())


def _fitting_freq(selection: Selection, times: pd.Series[pd.Timestamp]) -> str:
    """Return a period of which not too many bars fill the interval, or the times of rows in it."""
    start, end = selection.moments()
    length = (end or times.max()) - (start or times.min())
    seconds = 0.0 if pd.isna(length) else length.total_seconds()
    fitting = (freq for freq, length in _FREQS.items() if seconds <= length * _MOST_BARS)
    freq = next(fitting, "MS")
    selection.say(f"A bar for each {period_name(freq)} (--freq {freq})")
    return freq


def _drawdown(picture: Picture, table: pd.DataFrame) -> Axes:
    selection = picture.selection
    rows = _since_start(selection, _one_account(selection, table))
    return plot_drawdown(rows, end=selection.end, **picture.amounts(), **picture.coverage())


def _one_account(selection: Selection, table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the account that held most in the interval."""
    accounts = summarize_accounts(table, **selection.bounds())
    if len(accounts) <= 1:
        return table
    most = [float("-inf") if pd.isna(amount) else int(amount) for amount in accounts["maximum"]]
    place = max(range(len(most)), key=most.__getitem__)
    selection.say(
        f"Account {account_labels(accounts)[place]}, which held most; choose with --party-id, "
        "--market-id and --account-type"
    )
    for name in ACCOUNT_KEY:
        table = table[table[name] == accounts[name].iloc[place]]
    return table


def _activity(picture: Picture, table: pd.DataFrame) -> Axes:
    rows = _inside(picture.selection, table)
    return plot_activity(rows, kind="week" if picture.freq == WEEK else "calendar")


def _concentration(picture: Picture, table: pd.DataFrame) -> Axes:
    rows = _since_start(picture.selection, table)
    if picture.freq is None:
        return plot_concentration(rows, kind="lorenz", when=picture.selection.end)
    return plot_concentration(rows, kind="largest", freq=picture.freq)


def _coverage(_: Picture, coverage: pd.DataFrame) -> Axes:
    return plot_coverage(coverage)


def _limits(picture: Picture, limits: pd.DataFrame) -> Axes:
    return plot_limits(limits, **picture.selection.bounds())


_DRAW: Final[dict[PictureKind, Callable[[Picture, pd.DataFrame], Axes]]] = {
    PictureKind.balances: _balances,
    PictureKind.totals: _totals,
    PictureKind.flows: _flows,
    PictureKind.drawdown: _drawdown,
    PictureKind.activity: _activity,
    PictureKind.concentration: _concentration,
    PictureKind.coverage: _coverage,
    PictureKind.limits: _limits,
}
