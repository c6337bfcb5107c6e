"""How a page asks for views, as addresses, and how these are told, as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, unquote

import numpy as np
import pandas as pd
import pyarrow as pa

from balance_analysis.schema import ACCOUNT_KEY, from_microseconds

Key = tuple[str, str, str, str]
"""An account: the values of `ACCOUNT_KEY`."""


MOST_ACCOUNTS: Final = 8
WIDEST: Final = 4000
EARLIEST, LATEST = 0, 253_402_214_400_000_000
"""1970 and the last day of the year 9999: moments that a date can be."""

_KEY: Final = re.compile(r"[^|]*\|[^|]*\|[^|]*\|[^|]*")


@dataclass(frozen=True, slots=True)
class Query:
    """What a view is asked for.

    Attributes
    ----------
    asset
        The asset; the first one where it is empty.
    accounts
        The accounts.
    start, end
        The range, microseconds; it is cut to what there is.
    at
        A moment, microseconds; the last one where it is `None`.
    party
        The party.
    by
        Whose balances are told: of each party, or, where it is empty, of each account.
    text
        What to search for.
    width
        Of the chart, in points.
    page
        Which page of rows, from 0.
    version
        The state to answer from, as `about` and `version` tell it; the current one where it is "".
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
    """Return the account of each row."""
    return list(zip(*(frame[name].tolist() for name in ACCOUNT_KEY), strict=True))


@lru_cache(1 << 14)
def write_key(account: Key) -> str:
    """Return an account as one text."""
    return "|".join(quote(part, safe="") for part in account)


def write_view(view: str, *values: object) -> str:
    """Return a view and the values of its parameters as one text: under that a page has it."""
    return json.dumps([view, *map(str, values)], ensure_ascii=False, separators=(",", ":"))


def read_query(view: str, items: Iterable[tuple[str, str]]) -> Query:
    """Return what the parameters of an address ask of a view.

    Raises
    ------
    ValueError
        If the view has no such parameter, or a value is none.
    """
    found: dict[str, Any] = {"accounts": ()}
    for name, text in items:
        if name not in VIEWS[view][1]:
            raise ValueError(f"{view} has no parameter {name[:30]!r}")
        if name == "account":
            if not _KEY.fullmatch(text):
                raise ValueError("an account is what the list of accounts gives as its key")
            found["accounts"] += (tuple(map(unquote, text.split("|"))),)
        elif name in found:
            raise ValueError(f"{name} is there twice: send it once")
        elif name == "by" and text != "party":
            raise ValueError(f"by must be party, or not be there, not {text[:30]!r}")
        elif name in {"asset", "party", "by", "text", "version"}:
            found[name] = text
        else:
            found[name] = _read_number(name, text)
    if len(found["accounts"]) > MOST_ACCOUNTS:
        raise ValueError(f"at most {MOST_ACCOUNTS} accounts go together")
    return Query(**found)


NUMBERS: Final[dict[str, tuple[int, int]]] = {
    **dict.fromkeys(("start", "end", "at"), (EARLIEST, LATEST)),
    "width": (1, WIDEST),
    "page": (0, 1_000_000),
}


def _read_number(name: str, text: str) -> int:
    least, most = NUMBERS[name]
    if not re.fullmatch(r"[0-9]{1,18}", text) or not least <= int(text) <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, not {text[:30]!r}")
    return int(text)


VIEWS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "about": ("What there is: the assets, the interval, and what of it is not known.", ()),
    "version": ("What the data is called as it stands; another one once it has changed.", ()),
    "headline": (
        "What an asset's accounts hold before a range and at its end, and how many hold it.",
        ("asset", "start", "end", "version"),
    ),
    "accounts": (
        "The accounts whose ids or type have a text in them, those that hold most first.",
        ("asset", "text", "version"),
    ),
    "holders": (
        "What every account or party holds of an asset at a moment, largest first, how unevenly.",
        ("asset", "by", "at", "version"),
    ),
    "series": (
        "The balances of some accounts as steps, thinned to what a chart of so many points shows.",
        ("account", "start", "end", "width", "version"),
    ),
    "summary": (
        "What some accounts held at a range's ends, its lowest and highest, and which share.",
        ("account", "start", "end", "version"),
    ),
    "totals": (
        "What the accounts of each type hold together, over time.",
        ("asset", "start", "end", "version"),
    ),
    "flows": ("What flowed in each period.", ("asset", "start", "end", "version")),
    "movers": ("Whose balance moved most.", ("asset", "start", "end", "version")),
    "account": (
        "What an account did in the range, and in each period of it.",
        ("account", "start", "end", "version"),
    ),
    "party": (
        "What a party holds of each asset, and moved with others and between its own accounts.",
        ("party", "start", "end", "version"),
    ),
    "rows": (
        "The rows of an account, newest first.",
        ("account", "start", "end", "page", "version"),
    ),
    "notes": ("The coverage and the network limits of the archive.", ("version",)),
}
"""The views: what each is, and which parameters it has."""

PARTS: Final[dict[str, tuple[str, ...]]] = {
    **{name: (name,) for name in VIEWS},
    "about": ("assets",),
    "account": ("periods", "summary"),
    "holders": ("holders", "concentration"),
    "notes": ("coverage", "limits"),
    "party": ("totals", "accounts", "flows"),
}
"""The tables that a view has, as a file of one can be asked for; the first one, if none is."""

_TYPES: Final[dict[str, pa.DataType]] = {
    "amount": pa.decimal128(38, 0),
    "moment": pa.timestamp("us", "UTC"),
    "count": pa.int64(),
    "ratio": pa.float64(),
    "flag": pa.bool_(),
    "text": pa.string(),
}

Records = dict[str, Any]
"""Columns, each with its kind, and rows."""


def to_records(frame: pd.DataFrame, names: Iterable[str] | None = None) -> Records:
    """Return columns of a frame, each with what kind it is, and the rows.

    Kinds are `amount`, whole numbers of the asset's smallest unit as text; `moment`, microseconds
    since 1970-01-01 UTC; `count`, `ratio`, `flag` and `text`.
    """
    columns = [(name, *to_cells(frame[name])) for name in names or frame.columns]
    return {
        "columns": [{"name": name, "kind": kind} for name, kind, _ in columns],
        "rows": list(map(list, zip(*(cells for *_, cells in columns), strict=True))),
    }


class RecordsBy:
    """A frame as records, and those of each account or asset, whose rows stand together."""

    def __init__(
        self, frame: pd.DataFrame, by: Sequence[str], names: Iterable[str] | None = None
    ) -> None:
        heads = np.flatnonzero(~frame.duplicated(list(by)))
        stops = [*heads[1:].tolist(), len(frame)]
        keys = zip(*(frame[name].iloc[heads].tolist() for name in by), strict=True)
        self._places = dict(zip(keys, map(slice, heads.tolist(), stops), strict=False))
        self._whole = to_records(frame, names or [str(name) for name in frame if name not in by])

    def of(self, key: tuple[str, ...]) -> Records:
        """Return the records of one; where it has no row, none."""
        return {**self._whole, "rows": self._whole["rows"][self._places.get(key, slice(0))]}


def to_table(content: dict[str, Any], part: str) -> pa.Table:
    """Return one of the parts of a view, from what is told of it, with all ids of its accounts."""
    found = content.get(part, [])
    if part == "series":
        lines = [
            (line["key"], time, balance)
            for line in found
            for time, balance in zip(line["times"], line["balances"], strict=True)
        ]
        kinds = {"account": "text", "timestamp": "moment", "balance": "amount"}
        columns = [{"name": name, "kind": kind} for name, kind in kinds.items()]
        found = {"columns": columns, "rows": lines}
    if not isinstance(found, dict):
        return pa.Table.from_pylist(found if isinstance(found, list) else [{part: found}])
    table: dict[str, pa.Array[Any]] = {}
    for place, column in enumerate(found["columns"]):
        cells = [row[place] for row in found["rows"]]
        if column["name"] == "account":
            ids = list(zip(*(map(unquote, key.split("|")) for key in cells), strict=True))
            table |= {
                name: pa.array(ids[n] if ids else [], pa.string())
                for n, name in enumerate(ACCOUNT_KEY)
            }
        else:
            kind = pa.string() if column["kind"] == "amount" else _TYPES[column["kind"]]
            table[column["name"]] = pa.array(cells, kind).cast(_TYPES[column["kind"]])
    return pa.table(table)


def to_cells(column: pd.Series[Any]) -> tuple[str, list[Any]]:
    """Return the kind of a column, and its cells."""
    dtype = column.dtype
    if isinstance(dtype, pd.ArrowDtype) and pa.types.is_decimal(dtype.pyarrow_dtype):
        return "amount", amounts(pa.array(column.array))
    known = column.notna().tolist()
    if isinstance(dtype, pd.DatetimeTZDtype):
        kind, column = "moment", column.dt.as_unit("us").astype("int64")
    elif pd.api.types.is_bool_dtype(dtype):
        kind = "flag"
    elif pd.api.types.is_integer_dtype(dtype):
        kind = "count"
    elif pd.api.types.is_float_dtype(dtype):
        kind = "ratio"
    else:
        kind, column = "text", column.astype("object").map(str)
    cells = zip(column.tolist(), known, strict=True)
    return kind, [cell if is_known else None for cell, is_known in cells]


def amounts(balances: pa.Array[Any]) -> list[str | None]:
    """Return amounts as text, unknown ones as `None`."""
    texts: list[str | None] = balances.cast(pa.string()).to_pylist()
    return texts
