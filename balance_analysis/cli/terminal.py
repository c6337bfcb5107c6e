"""Tables on stdout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd


def print_summary(
    accounts: pd.DataFrame, *, limit: int, asset_names: dict[str, str] | None = None
) -> None:
    """Print the most active accounts, one line each, ids short."""
    from balance_analysis.figures.labels import type_label
    from balance_analysis.text import short_ids

    shown = accounts.sort_values(["changes", "rows"], ascending=False, kind="stable")
    shown = shown.head(limit) if limit else shown
    ids = {name: short_ids(shown[name]) for name in ("asset_id", "party_id", "market_id")}
    columns = {
        "asset": [
            (asset_names or {}).get(asset, ids["asset_id"][asset]) for asset in shown["asset_id"]
        ],
        "type": [type_label(name) for name in shown["account_type"]],
        "party": [ids["party_id"][party] for party in shown["party_id"]],
        "market": [ids["market_id"][market] for market in shown["market_id"]],
        "rows": [f"{count:,}" for count in shown["rows"]],
        "changes": [f"{count:,}" for count in shown["changes"]],
        **{name: [amount(x) for x in shown[name]] for name in ("minimum", "maximum", "closing")},
        "last seen, UTC": shown["last_seen"]
        .dt.strftime("%Y-%m-%d %H:%M:%S")
        .fillna("quiet")
        .tolist(),
    }
    for line in aligned(columns, left={"asset", "type", "party", "market"}):
        echo(line)
    if len(shown) < len(accounts):
        echo(f"... the {len(shown)} most active of {len(accounts):,} accounts")


def amount(value: Any) -> str:  # noqa: ANN401 - a cell of any column
    """Return an amount as a person writes it."""
    from pandas import isna

    if isna(value):
        return "unknown"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Write lines to the terminal, with what it would obey in them written out."""
    typer.echo("\n".join(map(printable, text.split("\n"))), err=err, nl=nl)


def printable(text: str) -> str:
    r"""Return a text with each character that a terminal obeys or hides as its code, \u001b.

    Texts and ids come from nodes. JSON means the same after it.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _code(each) for each in text)


def _code(character: str) -> str:
    number = ord(character)
    return f"\\U{number:08x}" if number > 0xFFFF else f"\\u{number:04x}"  # noqa: PLR2004


def aligned(columns: dict[str, list[str]], *, left: set[str]) -> Iterator[str]:
    """Yield a table's lines, its header first."""
    cells = {
        name: [text.ljust(width) if name in left else text.rjust(width) for text in texts]
        for name, column in columns.items()
        for texts in [[name, *map(printable, column)]]
        for width in [max(map(len, texts))]
    }
    return ("  ".join(line).rstrip() for line in zip(*cells.values(), strict=True))


def plain(value: object) -> str:
    """Return a value of JSON as a person writes it."""
    words = {None: "not set", True: "yes", False: "no"}
    return words[value] if value is None or isinstance(value, bool) else printable(str(value))
