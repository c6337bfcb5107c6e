"""Accounts and other holders as a table of a terminal, 80 characters wide."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import balance_analysis as ba
from balance_analysis.cli.output import UNKNOWN, echo, narrowed, print_table
from balance_analysis.text import moment_text

if TYPE_CHECKING:
    import pandas as pd

    from balance_analysis.assets import Asset
    from balance_analysis.labels import Names


_WIDTHS: Final = {"asset": 11, "type": 19, "party": 19, "market": 19}
"""Characters of names in a narrow table, so that they and an amount always fit."""

_LONGEST: Final = 12
"""Characters of an amount in a narrow table; a longer one is rounded to four digits."""

_ORDER: Final = (
    *("rows", "minimum", "maximum", "closing", "balance", "last seen"),
    *("before", "after", "change", "percent", "state"),
)
SUMMARY: Final = ("closing", "rows", "last seen", "maximum", "minimum")
"""What a summary shows of an account, or a holder, the most important first."""

COMPARISON: Final = ("change", "state", "percent", "after", "before")
"""What a comparison shows of a holder, the most important first."""


_COLUMNS: Final = {"last seen": "last_seen", "percent": "change_percent"}
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
    from balance_analysis.labels import short_keys

    shown = first_rows(accounts, limit)
    columns = short_keys(shown, names)
    columns = {name: [_clipped(text, _WIDTHS[name]) for text in columns[name]] for name in columns}
    ids, known = tuple(columns), shown["asset_id"].map(names.assets.get)
    for name in (name for name in _ORDER if name in first):
        column = shown[_COLUMNS.get(name, name)]
        if name == "last seen":
            columns[name] = list(column.dt.strftime("%Y-%m-%d").fillna("quiet"))
        elif name in _FORMATS:
            columns[name] = [_FORMATS[name].format(each).replace("+nan", "") for each in column]
        else:
            columns[name] = [_amount(*each) for each in zip(column, known, strict=True)]
    print_table(narrowed(columns, (*ids, *first)), left=ids)
    tell_rest(shown, accounts, limit)


def _clipped(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _amount(value: Any, asset: Asset | None) -> str:  # noqa: ANN401 - a cell
    from pandas import isna

    if isna(value):
        return UNKNOWN
    text = f"{value:,}" if asset is None else f"{int(value) / 10**asset.decimals:,.2f}"
    if len(text) <= _LONGEST:
        return text
    return f"{Decimal(value).scaleb(0 if asset is None else -asset.decimals):.3e}"


def cell_text(value: Any, missing: str = UNKNOWN) -> str:  # noqa: ANN401 - a cell
    """Return a cell as it is, every digit of it."""
    from pandas import isna

    if not isinstance(value, list | dict) and isna(value):
        return missing
    if isinstance(value, Decimal):  # as SQL has it, with as many decimals as any asset
        whole, _, decimals = f"{value:f}".partition(".")
        return ".".join(filter(None, [whole, decimals.rstrip("0")]))
    return moment_text(value) if isinstance(value, dt.datetime) else str(value)
