"""What a report tells, computed by the analysis functions: nothing here is drawn or written."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pandas as pd

from balance_analysis.analysis.concentration import concentration, top_movers
from balance_analysis.analysis.flows import active_accounts, flows
from balance_analysis.analysis.summary import summarize_accounts
from balance_analysis.schema import ACCOUNT_KEY

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


@dataclass(frozen=True, slots=True)
class AssetContent:
    """What is told of one asset.

    Attributes
    ----------
    table, opening
        Its balance changes in the interval, and what its accounts held before.
    summary
        As of `summarize_accounts`, by closing balance, largest first, unknown ones last.
    flows
        As of `flows` and `active_accounts`.
    concentration, movers
        As of `concentration` and `top_movers`.
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
    concentration: pd.DataFrame
    movers: pd.DataFrame
    chosen: pd.DataFrame
    is_drawn: bool


@dataclass(frozen=True, slots=True)
class Content:
    """What a report tells.

    Attributes
    ----------
    since
        From when on movers are told: 24 hours before the end.
    freq
        The period of flows.
    are_chosen
        Whether the accounts with sections were chosen by the caller.
    """

    source: Source
    since: dt.datetime | None
    freq: str
    assets: tuple[AssetContent, ...]
    are_chosen: bool


def make_content(
    source: Source, *, accounts: pd.DataFrame | Iterable[Account], largest: int
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
        return Content(source, None, "1D", (), are_chosen=bool(wanted))
    since = max(start, end - dt.timedelta(days=1))
    summary = summarize_accounts(source.table, start=start, end=end, opening=source.opening)
    _check_known(wanted, keys_of(summary))
    freq = next((freq for days, freq in _SPANS if end - start <= dt.timedelta(days)), "MS")
    counts = source.table["asset_id"].value_counts()
    grouped = {str(asset): rows for asset, rows in summary.groupby("asset_id", observed=True)}
    busiest = sorted(grouped, key=lambda asset: (-counts.get(asset, 0), asset))[:MOST_DRAWN]
    assets = []
    for asset, rows in grouped.items():
        ranked = rows.sort_values("closing", ascending=False, kind="stable", ignore_index=True)
        is_drawn = asset in busiest
        chosen = _choose(ranked, wanted, largest if is_drawn else 0)
        moments = start, since, end
        assets.append(_of_asset(source, ranked, moments, freq, chosen, is_drawn=is_drawn))
    return Content(source, since, freq, tuple(assets), are_chosen=bool(wanted))


def _to_accounts(accounts: pd.DataFrame | Iterable[Account]) -> list[Account]:
    if isinstance(accounts, pd.DataFrame):
        accounts = keys_of(accounts)
    if isinstance(accounts, str):
        raise TypeError(f"accounts must be frames or tuples of {ACCOUNT_KEY}, not {accounts!r}")
    found = list(dict.fromkeys(accounts))
    for account in found:
        if len(account) != len(ACCOUNT_KEY) or not all(isinstance(key, str) for key in account):
            raise ValueError(f"an account is the four texts {ACCOUNT_KEY}, not {account!r}")
    return found


def keys_of(frame: pd.DataFrame) -> list[Account]:
    """Return the account of each row."""
    return list(frame[list(ACCOUNT_KEY)].astype("str").itertuples(index=False, name=None))


def _check_known(wanted: Sequence[Account], known: Iterable[Account]) -> None:
    missing = sorted(set(wanted) - set(known))
    if missing:
        raise ValueError(
            f"{len(missing)} of the accounts are not in the data, the first {missing[0]}: take "
            "them from the summary of this archive or table"
        )


def _choose(ranked: pd.DataFrame, wanted: Sequence[Account], largest: int) -> pd.DataFrame:
    if not wanted:
        return ranked.head(largest)
    rows = {key: row for row, key in enumerate(keys_of(ranked))}
    return ranked.iloc[[rows[account] for account in wanted if account in rows]]


def _of_asset(
    source: Source,
    summary: pd.DataFrame,
    moments: tuple[dt.datetime, dt.datetime, dt.datetime],
    freq: str,
    chosen: pd.DataFrame,
    *,
    is_drawn: bool,
) -> AssetContent:
    start, since, end = moments
    asset = str(summary["asset_id"].iloc[0])
    table = _only(source.table, asset)
    opening = None if source.opening is None else _only(source.opening, asset)
    # Where nothing is missing, the last period is whole: it ends where the calendar's does.
    until = end if source.gaps else None
    flowed = flows(table, freq=freq, by="asset_id", end=until, opening=opening)
    active = active_accounts(table, freq, by="asset_id", end=until, opening=opening)
    ends = [moment - _MICROSECOND for moment in (since, end) if moment > start]
    return AssetContent(
        asset_id=asset,
        table=table,
        opening=opening,
        summary=summary,
        flows=flowed.merge(active, on=["asset_id", "start", "end"], how="left"),
        concentration=concentration(table, ends, n=TOP, opening=opening),
        movers=top_movers(table, since, end, TOP, opening=opening),
        chosen=chosen,
        is_drawn=is_drawn,
    )


def _only(frame: pd.DataFrame, asset: str) -> pd.DataFrame:
    rows = frame[frame["asset_id"] == asset].reset_index(drop=True)
    for name in ACCOUNT_KEY:
        rows[name] = rows[name].cat.remove_unused_categories()
    return rows
