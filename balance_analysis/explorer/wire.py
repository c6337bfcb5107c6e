"""The explorer's wire format: addresses of views, queries and answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, unquote

import pandas as pd
import pyarrow as pa

from balance_analysis.table.moments import from_microseconds
from balance_analysis.table.schema import ACCOUNT_KEY

Key = tuple[str, str, str, str]
"""An account: the values of `ACCOUNT_KEY`."""

Records = dict[str, Any]
"""A table as JSON: columns, each with its kind, and rows."""

MOST_ACCOUNTS: Final = 8
"""Maximum accounts of one query."""

WIDEST: Final = 4000
"""Maximum width of a chart, in points."""

EARLIEST, LATEST = 0, 253_402_214_400_000_000
"""First and last valid moment (in microseconds): 1970 and the last day of 9999."""

NUMBERS: Final[dict[str, tuple[int, int]]] = {
    "start": (EARLIEST, LATEST - 1),
    "end": (EARLIEST + 1, LATEST),
    "at": (EARLIEST, LATEST),
    "width": (1, WIDEST),
    "page": (0, 1_000_000),
}
"""Integer parameters with their bounds."""

_ASKED: Final = {
    "about": ("The assets, the interval, and the gaps in it.", ""),
    "version": ("The version of the data, which changes with the data.", ""),
    "headline": ("The total of an asset, its change and its holders.", "asset start end"),
    "accounts": ("The largest accounts whose ids or names have each word.", "asset text"),
    "holders": ("The holders of an asset at a moment, the largest first.", "asset by at"),
    "series": ("The balances of accounts, thinned to a chart.", "account start end width"),
    "totals": ("The totals of an asset by account type, over time.", "asset start end"),
    "flows": ("Inflows and outflows of an asset, per period and in total.", "asset start end"),
    "movers": ("The accounts whose balance changed most.", "asset start end"),
    "account": ("The summary of an account, and its periods.", "account start end"),
    "party": ("The balances of a party, and its flows with others.", "party start end"),
    "rows": ("The rows of an account, newest first.", "account start end page"),
    "explain": ("Where a balance comes from: its row, file and node.", "account at"),
    "notes": ("The coverage and the network limits of the archive.", ""),
}

VIEWS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    name: (about, (*asked.split(), "version")) for name, (about, asked) in _ASKED.items()
}
"""The views, each with a description and its parameters."""

_KINDS: Final[tuple[tuple[Callable[[pa.DataType], bool], str, pa.DataType], ...]] = (
    (pa.types.is_decimal, "amount", pa.string()),
    (pa.types.is_timestamp, "moment", pa.int64()),
    (pa.types.is_boolean, "flag", pa.bool_()),
    (pa.types.is_integer, "count", pa.int64()),
    (pa.types.is_floating, "ratio", pa.float64()),
    (lambda _: True, "text", pa.string()),
)
"""The kinds of columns, each with a test for Arrow types and the type of its cells."""

_KEY: Final = re.compile(r"[^|]*\|[^|]*\|[^|]*\|[^|]*")


@dataclass(frozen=True, slots=True)
class Query:
    """The parameters of a view.

    Attributes
    ----------
    asset
        The asset's id or symbol; "" for the first asset.
    accounts
        The accounts.
    start, end
        The range (in microseconds); it is clipped to the data.
    at
        A moment (in microseconds); `None` for the last one.
    party
        The party's id.
    by
        "party" for the holdings of parties, "" for those of accounts.
    text
        The text to search for.
    width
        The width of the chart (in points).
    page
        The page of rows, from 0.
    version
        The state to answer from, as returned by `about` and `version`; "" for the current one.
    """

    asset: str = ""
    accounts: tuple[Key, ...] = ()
    start: int = EARLIEST
    end: int = LATEST
    at: int | None = None
    party: str = ""
    by: str = ""
    text: str = ""
    width: int = 1000
    page: int = 0
    version: str = ""

    @property
    def bounds(self) -> dict[str, Any]:
        """The range as the functions of `analysis` take it."""
        return {"start": from_microseconds(self.start), "end": from_microseconds(self.end)}


def keys_of(frame: pd.DataFrame) -> list[Key]:
    """Return each row's account."""
    return list(zip(*(frame[name].tolist() for name in ACCOUNT_KEY), strict=True))


@lru_cache(1 << 14)
def write_key(account: Key) -> str:
    """Return an account's key as text."""
    return "|".join(quote(part, safe="") for part in account)


def write_view(view: str, *values: object) -> str:
    """Return a view's key in a frozen page: its name and the values of its parameters."""
    return json.dumps([view, *map(str, values)], ensure_ascii=False, separators=(",", ":"))


def read_query(view: str, items: Iterable[tuple[str, str]]) -> Query:
    """Parse the parameters of an address.

    Raises
    ------
    ValueError
        If the view has no such parameter, or one is missing or malformed.
    """
    values: dict[str, Any] = {"accounts": ()}
    for name, text in items:
        if name not in VIEWS[view][1]:
            raise ValueError(f"{view} has no parameter {name[:30]!r}")
        value = _read_value(name, text)
        if name == "account":
            values["accounts"] += (value,)
        elif name in values:
            raise ValueError(f"{name} was sent twice: send it once")
        else:
            values[name] = value
    for name, key in (("account", "accounts"), ("party", "party")):
        if name in VIEWS[view][1] and not values.get(key):
            raise ValueError(f"{view} needs the parameter {name}")
    if len(values["accounts"]) > MOST_ACCOUNTS:
        raise ValueError(f"a query takes at most {MOST_ACCOUNTS} accounts")
    query = Query(**values)
    if query.start >= query.end:
        raise ValueError("start must be before end")
    return query


def _read_value(name: str, text: str) -> Any:  # noqa: ANN401 - of any field of a query
    if name == "account":
        if not _KEY.fullmatch(text):
            raise ValueError("account must be a key, as /explore/accounts lists them")
        return tuple(map(unquote, text.split("|")))
    if name == "by" and text != "party":
        raise ValueError(f"by must be party or omitted, not {text[:30]!r}")
    if name not in NUMBERS:
        return text
    least, most = NUMBERS[name]
    if not re.fullmatch(r"[0-9]{1,18}", text) or not least <= int(text) <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, not {text[:30]!r}")
    return int(text)


def to_records(frame: pd.DataFrame, names: Iterable[str] | None = None) -> Records:
    """Return a frame's columns, each with its kind, and its rows.

    Kinds are `amount` (integers in the asset's smallest unit, as text), `moment` (microseconds
    since 1970-01-01 UTC), `count`, `ratio`, `flag` and `text`.
    """
    cells = {str(name): _to_cells(frame[name]) for name in names or frame.columns}
    columns = [{"name": name, "kind": kind} for name, (kind, _) in cells.items()]
    rows = zip(*(column for _, column in cells.values()), strict=True)
    return {"columns": columns, "rows": [*map(list, rows)]}


def by_account(frame: pd.DataFrame, names: Iterable[str], accounts: Iterable[Key]) -> list[Records]:
    """Return each account's records, from a frame that has the ids of each row."""
    records = to_records(frame, names)
    rows: dict[Key, list[list[Any]]] = {account: [] for account in accounts}
    for account, row in zip(keys_of(frame), records["rows"], strict=True):
        if account in rows:
            rows[account].append(row)
    return [{"columns": records["columns"], "rows": part} for part in rows.values()]


def _to_cells(column: pd.Series[Any]) -> tuple[str, list[Any]]:
    """Return a column's kind and cells."""
    values = pa.array(column, from_pandas=True)
    kind, cell = next((kind, cell) for is_of, kind, cell in _KINDS if is_of(values.type))
    if kind == "moment":
        values = values.cast(pa.timestamp("us", "UTC"), safe=False)
    return kind, values.cast(cell).to_pylist()
