"""Draw a picture of a file or an archive, and choose what its options leave open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib import rc_context

from balance_analysis.analysis.summary import summarize_accounts
from balance_analysis.cli.options import PictureKind
from balance_analysis.figures.activity import plot_activity
from balance_analysis.figures.balances import plot_balances, plot_drawdown
from balance_analysis.figures.concentration import plot_concentration
from balance_analysis.figures.coverage import plot_coverage
from balance_analysis.figures.flows import period_name, plot_flows
from balance_analysis.figures.labels import account_labels
from balance_analysis.figures.limits import plot_limits
from balance_analysis.figures.palette import DARK_STYLE
from balance_analysis.figures.times import open_figure
from balance_analysis.figures.totals import plot_totals
from balance_analysis.files.atomic import replacing
from balance_analysis.schema import ACCOUNT_KEY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from balance_analysis.cli.selection import Rows, Selection

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


def _data(picture: Picture, output: Path) -> Rows | pd.DataFrame:
    """Return what the picture is drawn from; of kinds with amounts the rows of one asset."""
    kind, selection = picture.kind, picture.selection
    if kind is PictureKind.coverage:
        return _clip(selection, selection.archive("a coverage").coverage(), "start", "end")
    if kind is PictureKind.limits:
        limits = selection.archive("limits over time").limits()
        return _clip(selection, limits, "first_seen", "last_seen")
    rows = selection.read(into=output)
    accounts = rows.accounts()
    assets = accounts["asset_id"].nunique()
    if kind not in _ONE_ASSET or assets <= 1:
        return rows
    inside, what = _inside(selection, rows.table), "rows"
    if inside.empty:
        inside, what = accounts.drop_duplicates(), "accounts"
    if picture.decimals is not None or picture.unit is not None:
        raise ValueError(
            f"--decimals and --unit are of one asset, and there are {assets}: "
            "choose one with --asset-id"
        )
    asset = str(inside["asset_id"].value_counts().idxmax())
    selection.say(f"Asset {asset}, which has most {what}; choose with --asset-id")
    return rows.only(asset_id=asset)


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


def _balances(picture: Picture, rows: Rows) -> Axes:
    return plot_balances(rows.table, **picture.amounts(), **_told(picture, rows))


def _told(picture: Picture, rows: Rows) -> dict[str, Any]:
    """Return the interval and what was held before, as the functions take it."""
    return {**picture.selection.bounds(), "opening": rows.opening}


def _totals(picture: Picture, rows: Rows) -> Axes:
    told = _told(picture, rows)
    return plot_totals(rows.table, freq=picture.freq, **picture.amounts(), **told)


def _flows(picture: Picture, rows: Rows) -> Axes:
    freq = picture.freq or _fitting_freq(picture, rows)
    return plot_flows(rows.table, freq=freq, **picture.amounts(), **_told(picture, rows))


def _fitting_freq(picture: Picture, rows: Rows) -> str:
    """Return a period of which not too many bars fill the interval."""
    _, interval = open_figure(rows.table, known=None, **_told(picture, rows))
    seconds = 0 if interval is None else (interval.end - interval.start) / 1_000_000
    fitting = (freq for freq, length in _FREQS.items() if seconds <= length * _MOST_BARS)
    freq = next(fitting, "MS")
    picture.selection.say(f"A bar for each {period_name(freq)} (--freq {freq})")
    return freq


def _drawdown(picture: Picture, rows: Rows) -> Axes:
    rows = _one_account(picture, rows)
    return plot_drawdown(rows.table, **picture.amounts(), **_told(picture, rows))


def _one_account(picture: Picture, rows: Rows) -> Rows:
    """Return the rows of the account that held most in the interval."""
    accounts = summarize_accounts(rows.table, **_told(picture, rows))
    if len(accounts) <= 1:
        return rows
    most = [float("-inf") if pd.isna(amount) else int(amount) for amount in accounts["maximum"]]
    place = max(range(len(most)), key=most.__getitem__)
    picture.selection.say(
        f"Account {account_labels(accounts)[place]}, which held most; choose with --party-id, "
        "--market-id and --account-type"
    )
    return rows.only(**{name: accounts[name].iloc[place] for name in ACCOUNT_KEY})


def _activity(picture: Picture, rows: Rows) -> Axes:
    told = _told(picture, rows)
    return plot_activity(rows.table, kind="week" if picture.freq == WEEK else "calendar", **told)


def _concentration(picture: Picture, rows: Rows) -> Axes:
    told = _told(picture, rows)
    if picture.freq is None:
        return plot_concentration(rows.table, kind="lorenz", **told)
    return plot_concentration(rows.table, kind="largest", freq=picture.freq, **told)


def _coverage(_: Picture, coverage: pd.DataFrame) -> Axes:
    return plot_coverage(coverage)


def _limits(picture: Picture, limits: pd.DataFrame) -> Axes:
    return plot_limits(limits, **picture.selection.bounds())


_DRAW: Final[dict[PictureKind, Callable[[Picture, Any], Axes]]] = {
    PictureKind.balances: _balances,
    PictureKind.totals: _totals,
    PictureKind.flows: _flows,
    PictureKind.drawdown: _drawdown,
    PictureKind.activity: _activity,
    PictureKind.concentration: _concentration,
    PictureKind.coverage: _coverage,
    PictureKind.limits: _limits,
}
