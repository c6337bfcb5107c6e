"""How a page asks for views, as addresses, and how these are told, as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

import pandas as pd
import pyarrow as pa

from balance_analysis.schema import ACCOUNT_KEY, from_microseconds, to_microseconds

K = TypeVar("K", bound=str | tuple[str, ...])

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
        The asset, by its id or symbol; the first one where it is empty.
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
        If the view has no such parameter, a value is none, or the range is empty.
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
        else:
            found[name] = _read_number(name, text) if name in NUMBERS else text
    if len(found["accounts"]) > MOST_ACCOUNTS:
        raise ValueError(f"at most {MOST_ACCOUNTS} accounts go together")
    query = Query(**found)
    if query.start >= query.end:
        raise ValueError("start must be before end")
    return query


NUMBERS: Final[dict[str, tuple[int, int]]] = {
    "start": (EARLIEST, LATEST - 1),
    "end": (EARLIEST + 1, LATEST),
    "at": (EARLIEST, LATEST),
    "width": (1, WIDEST),
    "page": (0, 1_000_000),
}


def _read_number(name: str, text: str) -> int:
    least, most = NUMBERS[name]
    if not re.fullmatch(r"[0-9]{1,18}", text) or not least <= int(text) <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, not {text[:30]!r}")
    return int(text)


_ASKED: Final = {
    "about": ("What there is: the assets, the interval, and what of it is not known.", ""),
    "version": ("What the data is called as it stands; another one once it has changed.", ""),
    "headline": ("What is held of an asset before a range and at its end.", "asset start end"),
    "accounts": ("The accounts that have a text in an id or name, largest first.", "asset text"),
    "holders": ("Who holds what of an asset at a moment, and how unevenly.", "asset by at"),
    "series": ("The balances of accounts, thinned to a chart.", "account start end width"),
    "summary": ("What accounts held at a range's ends, and in it.", "account start end"),
    "totals": ("What the accounts of each type hold together, over time.", "asset start end"),
    "flows": ("What came in and went out of accounts in each period.", "asset start end"),
    "movers": ("Whose balance moved most.", "asset start end"),
    "account": ("What an account did in a range, and in each period of it.", "account start end"),
    "party": ("What a party holds, and moved with others and within.", "party start end"),
    "rows": ("The rows of an account, newest first.", "account start end page"),
    "explain": ("Where a balance comes from: its row, file and node.", "account at"),
    "notes": ("The coverage and the network limits of the archive.", ""),
}

VIEWS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    name: (about, (*asked.split(), "version")) for name, (about, asked) in _ASKED.items()
}
"""The views: what each is, and which parameters it has."""

Records = dict[str, Any]
"""Columns, each with its kind, and rows."""


def to_records(frame: pd.DataFrame, names: Iterable[str] | None = None) -> Records:
    """Return columns of a frame, each with what kind it is, and the rows.

    Kinds are `amount`, whole numbers of the asset's smallest unit as text; `moment`, microseconds
    since 1970-01-01 UTC; `count`, `ratio`, `flag` and `text`.
    """
    told = {str(name): to_cells(frame[name]) for name in names or frame.columns}
    rows = zip(*(cells for _, cells in told.values()), strict=True)
    kinds = {name: kind for name, (kind, _) in told.items()}
    return {"columns": to_columns(kinds), "rows": list(map(list, rows))}


def from_rows(kinds: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> Records:
    """Return records of columns of some kinds, of rows that have their values by name."""
    write: dict[str, Callable[[Any], Any]] = {"moment": to_microseconds, "amount": str}
    cells = [
        [
            row[name] if row[name] is None or kind not in write else write[kind](row[name])
            for name, kind in kinds.items()
        ]
        for row in rows
    ]
    return {"columns": to_columns(kinds), "rows": cells}


def to_columns(kinds: Mapping[str, str]) -> list[dict[str, str]]:
    """Return columns as records have them, of their names with their kinds."""
    return [{"name": name, "kind": kind} for name, kind in kinds.items()]


def records_by(
    frames: Mapping[str, pd.DataFrame],
    by: str | list[str],
    keys: Iterable[K],
    *,
    keep: str = "",
) -> dict[K, dict[str, Records]]:
    """Return frames as the records of each key: of the rows that have its values in `by`.

    Of these columns they have the one to `keep`; where a key has no row, they are empty.
    """
    found: dict[K, dict[str, Records]] = {key: {} for key in keys}
    for part, frame in frames.items():
        whole = to_records(frame, [str(name) for name in frame if name not in by or name == keep])
        places: dict[Any, Any] = frame.groupby(by, observed=True, sort=False).indices
        for key, told in found.items():
            told[part] = {**whole, "rows": [whole["rows"][n] for n in places.get(key, ())]}
    return found


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
