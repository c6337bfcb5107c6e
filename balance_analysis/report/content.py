"""What a report tells, computed by the analysis functions: nothing here is drawn or written."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from balance_analysis.analysis.concentration import concentration, top_movers
from balance_analysis.analysis.flows import active_accounts, flows
from balance_analysis.analysis.grid import make_grid
from balance_analysis.analysis.summary import summarize_accounts
from balance_analysis.known import known_of
from balance_analysis.report.amounts import integers
from balance_analysis.schema import ACCOUNT_KEY, from_microseconds, to_microseconds
from balance_analysis.spans import clipped, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from balance_analysis.report.source import Source

Account = tuple[str, str, str, str]

TOP: Final = 10
"""How many movers are told of each asset, and of how many holders the share."""

MOST_DRAWN: Final = 12
"""How many assets have pictures and sections of accounts at most: those with most rows."""

_SPANS: Final = ((2, "1h"), (93, "1D"), (2 * 366, "W-MON"))
"""Up to how many days each period fits: a picture then has about a hundred bars at most."""

_MICROSECOND: Final = dt.timedelta(microseconds=1)
_DAY: Final = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class AssetContent:
    """What is told of one asset.

    Attributes
    ----------
    asset_id
        The asset.
    table, opening
        Its balance changes in the interval, and what its accounts held before, as of the source.
    summary
        As of `summarize_accounts`, by closing balance, largest first, unknown ones last.
    flows, active, concentration, movers
        As of the functions of these names; `active` of `active_accounts`.
    chosen
        The rows of `summary` that have a section of their own.
    is_drawn
        Whether it has pictures.
    """

    asset_id: str
    table: pd.DataFrame
    opening: pd.DataFrame | None
    summary: pd.DataFrame
    flows: pd.DataFrame
    active: pd.DataFrame
    concentration: pd.DataFrame
    movers: pd.DataFrame
    chosen: pd.DataFrame
    is_drawn: bool


@dataclass(frozen=True, slots=True)
class Content:
    """What a report tells.

    Attributes
    ----------
    source
        What it is made of.
    since
        From when on movers are told.
    previous_end
        Where the last report ended; `None` where there was none.
    freq
        The period of its flows.
    periods
        What tells functions their periods: `freq`; as `start` and `end` where the calendar's first
        one begins that the interval touches and the last one ends; and what is `known` of these,
        as if all were outside of the interval.
    assets
        What is told of each asset, by id.
    are_chosen
        Whether the accounts with sections were chosen by the caller.
    """

    source: Source
    since: dt.datetime | None
    previous_end: dt.datetime | None
    freq: str
    periods: dict[str, Any]
    assets: tuple[AssetContent, ...]
    are_chosen: bool

    @property
    def is_cut(self) -> bool:
        """Whether the interval isn't whole periods of the calendar."""
        bounds = self.periods.get("start"), self.periods.get("end")
        return bounds != (self.source.start, self.source.end)


def make_content(
    source: Source,
    *,
    previous_end: dt.datetime | None,
    accounts: pd.DataFrame | Iterable[Account],
    largest: int,
) -> Content:
    """Compute what a report tells.

    Raises
    ------
    ValueError
        If an account is not in the data, or `largest` is below 0.
    OverflowError
        If a sum has more than 38 digits.
    """
    if largest < 0:
        raise ValueError(f"largest must be at least 0, not {largest}")
    wanted = _to_accounts(accounts)
    start, end = source.start, source.end
    if start is None or end is None:
        _check_known(wanted, ())
        return Content(source, None, previous_end, "1D", {}, (), are_chosen=bool(wanted))
    since = max(start, end - _DAY if previous_end is None else previous_end)
    summary = summarize_accounts(source.table, start=start, end=end, opening=source.opening)
    _check_known(wanted, _keys(summary))
    freq = _freq_of(end - start)
    periods = _periods_of(source.table, start, end, freq)
    grouped = {str(asset): rows for asset, rows in summary.groupby("asset_id", observed=True)}
    counts = source.table["asset_id"].value_counts()
    busiest = sorted(grouped, key=lambda asset: (-counts.get(asset, 0), asset))[:MOST_DRAWN]
    assets = tuple(
        _of_asset(
            source,
            rows,
            (start, since, end),
            periods,
            _choose(_ranked(rows), wanted, largest if asset in busiest else 0),
            is_drawn=asset in busiest,
        )
        for asset, rows in grouped.items()
    )
    return Content(source, since, previous_end, freq, periods, assets, are_chosen=bool(wanted))


def _to_accounts(accounts: pd.DataFrame | Iterable[Account]) -> tuple[Account, ...]:
    if isinstance(accounts, pd.DataFrame):
        return tuple(dict.fromkeys(_keys(accounts)))
    if isinstance(accounts, str):
        raise TypeError(f"accounts must be frames or tuples of {ACCOUNT_KEY}, not {accounts!r}")
    found = tuple(dict.fromkeys(tuple(account) for account in accounts))
    for account in found:
        if len(account) != len(ACCOUNT_KEY) or not all(isinstance(key, str) for key in account):
            raise ValueError(f"an account is the four texts {ACCOUNT_KEY}, not {account!r}")
    return found  # type: ignore[return-value]


def _keys(frame: pd.DataFrame) -> list[Account]:
    return list(frame[list(ACCOUNT_KEY)].astype("str").itertuples(index=False, name=None))


def _check_known(wanted: Sequence[Account], known: Iterable[Account]) -> None:
    missing = sorted(set(wanted) - set(known))
    if missing:
        raise ValueError(
            f"{len(missing)} of the accounts are not in the data, the first {missing[0]}: take "
            "them from the summary of this archive or table"
        )


def _freq_of(length: dt.timedelta) -> str:
    return next((freq for days, freq in _SPANS if length <= dt.timedelta(days)), "MS")


def _periods_of(
    table: pd.DataFrame, start: dt.datetime, end: dt.datetime, freq: str
) -> dict[str, Any]:
    begin, stop = to_microseconds(start), to_microseconds(end)
    edges = make_grid(np.array([begin, stop - 1]), freq=freq, start=None, end=None, tz=None).edges
    first, last = int(edges[0]), int(edges[-1])
    known = known_of(table)
    if known is not None:
        outside = [span for span in ((first, begin), (stop, last)) if span[0] < span[1]]
        known = tuple(joined([*clipped(known, begin, stop), *outside]))
    spans = None if known is None else [tuple(map(from_microseconds, span)) for span in known]
    bounds = {"start": from_microseconds(first), "end": from_microseconds(last)}
    return {"freq": freq, **bounds, "known": spans}


def _of_asset(
    source: Source,
    summary: pd.DataFrame,
    moments: tuple[dt.datetime, dt.datetime, dt.datetime],
    periods: dict[str, Any],
    chosen: pd.DataFrame,
    *,
    is_drawn: bool,
) -> AssetContent:
    start, since, end = moments
    asset = str(summary["asset_id"].iloc[0])
    table = _only(source.table, asset)
    opening = None if source.opening is None else _only(source.opening, asset)
    return AssetContent(
        asset_id=asset,
        table=table,
        opening=opening,
        summary=_ranked(summary),
        flows=flows(table, by="asset_id", opening=opening, **periods),
        active=active_accounts(table, by="asset_id", opening=opening, **periods),
        concentration=concentration(
            table,
            [moment - _MICROSECOND for moment in (since, end) if moment > start],
            n=TOP,
            opening=opening,
        ),
        movers=top_movers(table, since, end, TOP, opening=opening),
        chosen=chosen,
        is_drawn=is_drawn,
    )


def _only(frame: pd.DataFrame, asset: str) -> pd.DataFrame:
    rows = frame[frame["asset_id"] == asset].reset_index(drop=True)
    for name in ACCOUNT_KEY:
        rows[name] = rows[name].cat.remove_unused_categories()
    return rows


def _ranked(summary: pd.DataFrame) -> pd.DataFrame:
    closing = integers(summary["closing"])
    order = sorted(
        range(len(closing)), key=lambda row: (closing[row] is None, -(closing[row] or 0), row)
    )
    return summary.iloc[order].reset_index(drop=True)


def _choose(ranked: pd.DataFrame, wanted: Sequence[Account], largest: int) -> pd.DataFrame:
    if not wanted:
        return ranked.head(largest)
    place = {account: number for number, account in enumerate(wanted)}
    rows = [(place[key], row) for row, key in enumerate(_keys(ranked)) if key in place]
    return ranked.iloc[[row for _, row in sorted(rows)]].reset_index(drop=True)
