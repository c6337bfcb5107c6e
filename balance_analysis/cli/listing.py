"""Accounts and other holders as a table of a terminal, 80 characters wide."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import balance_analysis as ba
from balance_analysis.cli.output import UNKNOWN, echo, narrowed, print_table
from balance_analysis.text import clipped, decimal_text, moment_text

if TYPE_CHECKING:
    import pandas as pd

    from balance_analysis.names import Asset, Names


_WIDTHS: Final = (19, 11)
"""Characters of a name, and where amounts would find no room."""

_LONGEST: Final = 10
"""Characters of an amount; a longer one is rounded to whole units, or to four digits."""

_TOLD: Final = 3
"""How many columns beside the names have a claim to room."""

_ORDER: Final = (
    *("rows", "minimum", "maximum", "closing", "balance", "last seen"),
    *("before", "after", "change", "percent", "state", "start", "delta"),
)
SUMMARY: Final = ("closing", "rows", "last seen", "maximum", "minimum")
"""What a summary shows of an account, or a holder, the most important first."""

COMPARISON: Final = ("change", "after", "before", "percent", "state")
"""What a comparison shows of a holder, the most important first."""


_COLUMNS: Final = {"last seen": "last_seen", "percent": "change_percent"}
_MOMENTS: Final = {"last seen": "%Y-%m-%d", "start": "%m-%d %H:%M"}
_FORMATS: Final = {"rows": "{:,}", "percent": "{:+z,.1f}", "state": "{}"}


def first_rows(rows: pd.DataFrame, limit: int) -> pd.DataFrame:
    """Return the most active accounts; of other rows, which are ranked, the first of each asset."""
    if _are_accounts(rows):
        rows = rows.sort_values("rows", ascending=False, kind="stable")
        return rows.head(limit) if limit else rows
    return rows.groupby("asset_id", observed=True).head(limit) if limit else rows


def tell_rest(shown: pd.DataFrame, rows: pd.DataFrame, limit: int) -> None:
    """Say of how many a table shows some."""
    if len(shown) < len(rows) and _are_accounts(rows):
        echo(f"... the {len(shown)} most active of {len(rows):,} accounts")
    elif len(shown) < len(rows):
        echo(f"... the first {limit} of each asset, of {len(rows):,}; --limit 0 shows all")


def _are_accounts(rows: pd.DataFrame) -> bool:
    return {*ba.ACCOUNT_KEY, "rows"} <= {*rows}


def print_accounts(
    accounts: pd.DataFrame,
    first: Sequence[str],
    *,
    limit: int,
    names: Names,
) -> None:
    """Print accounts or holders, a line each: short ids, whole units if they are known.

    Parameters
    ----------
    first
        What to show of them besides, as far as it fits 80 characters, the most important first.
    """
    from balance_analysis.naming import short_keys

    shown = first_rows(accounts, limit)
    told, columns = short_keys(shown, names), dict[str, list[str]]()
    known = shown["asset_id"].map(names.assets.get)
    first = [name for name in first if _COLUMNS.get(name, name) in shown]
    for name in (name for name in _ORDER if name in first):
        column = shown[_COLUMNS.get(name, name)]
        if name in _MOMENTS:
            columns[name] = list(column.dt.strftime(_MOMENTS[name]).fillna("quiet"))
        elif name in _FORMATS:
            texts = map(_FORMATS[name].format, column)
            columns[name] = [text.replace("+nan", "").replace("+0.0", "0.0") for text in texts]
        else:
            columns[name] = [_amount(*each) for each in zip(column, known, strict=True)]
    for width in _WIDTHS:
        ids = {
            name.removeprefix("account_").removesuffix("_id"): [clipped(x, width) for x in texts]
            for name, texts in told.items()
        }
        table = narrowed({**ids, **columns}, (*ids, *first))
        if {*first[:_TOLD]} <= {*table}:
            break
    print_table(table, left=ids)
    tell_rest(shown, accounts, limit)


def _amount(value: Any, asset: Asset | None) -> str:  # noqa: ANN401 - a cell
    from pandas import isna

    if isna(value):
        return UNKNOWN
    whole = Decimal(value).scaleb(0 if asset is None else -asset.decimals)
    texts = [f"{whole:,.{0 if asset is None else 2}f}", f"{whole:,.0f}", f"{whole:.3e}"]
    return next((text for text in texts if len(text) <= _LONGEST), texts[-1])


def cell_text(value: Any, missing: str = UNKNOWN, timespec: str = "auto") -> str:  # noqa: ANN401 - a cell
    """Return a cell as it is, every digit of it; moments as `moment_text` does."""
    from pandas import isna

    if not isinstance(value, list | dict) and isna(value):
        return missing
    if isinstance(value, Decimal):  # as SQL has it, with as many decimals as any asset
        return decimal_text(value)
    return moment_text(value, timespec) if isinstance(value, dt.datetime) else str(value)
