"""The command that asks an archive with SQL, and how it prints what is found."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

from typer import Argument

import balance_analysis as ba
from balance_analysis.cli import options
from balance_analysis.cli.app import command
from balance_analysis.cli.listing import cell_text
from balance_analysis.cli.output import Messages, echo, narrowed, print_table
from balance_analysis.cli.tables import TableOptions, write_exact
from balance_analysis.text import LONG_ID, list_text

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import Expression
    from duckdb.sqltypes import DuckDBPyType

_TYPE: Final = "ACCOUNT_TYPE_"

_TOLD: Final = {"asset_id": "symbol", "balance": "amount"}
"""Columns that a shorter one tells as well."""

_AS_TEXT: Final = {
    *("interval", "time with time zone", "uhugeint", "bignum", "bit", "blob"),
    *("list", "array", "struct", "map", "union"),
}
"""Types of DuckDB that Arrow or a kind of file can't hold as they are."""

_TEXTS: Final = r"\(?((?:\s*'[^']*'\s*,?)+)"
_COMPARED: Final = re.compile(
    rf"\b((?:asset|party|market)_id|account_type)\s*(?:=+|<>|!=|(?:not\s+)?in\b)\s*{_TEXTS}",
    re.IGNORECASE,
)
"""What a query compares ids and types with."""

_PART: Final = re.compile(r"[0-9a-f]{4,63}|[0-9a-f]+…[0-9a-f]+", re.IGNORECASE)
"""A beginning of an id, or what a table shows of one."""


@command()
def sql(
    messages: Messages,
    archive: options.ArchiveAt,
    query: Annotated[
        str, Argument(metavar="QUERY", help='A SELECT, such as "select * from coverage".')
    ],
    listing: TableOptions,
) -> None:
    """Query an archive's changes, accounts, assets, coverage and the like with SQL (DuckDB).

    The others are labels and limits. A query reads nothing but the archive, and writes nothing but
    FILE. In changes, amount is the balance in whole units.
    """
    held, limit = options.archive_at(archive), listing.limit
    form = listing.chosen(archive)
    found = _ask(held, query, limit + 1 if form == "table" and limit else None)
    for hint in _hints(held, query):
        messages.say(hint)
    if form != "table":
        import pandas as pd

        write_exact(found.to_pandas(types_mapper=pd.ArrowDtype), form, listing.output, messages)
        return
    shown = found.slice(0, limit) if limit else found
    _print_rows(shown, wide=listing.wide)
    if len(shown) < len(found):
        echo(f"... the first {limit} rows; --limit 0 shows all, -o FILE writes them")


def _ask(archive: ba.Archive, query: str, most: int | None) -> pa.Table:
    """Return what a query finds, or the first rows of it.

    Raises
    ------
    ValueError
        If it is no query, or DuckDB is not installed.
    """
    from balance_analysis.archive.snapshot import with_snapshot
    from balance_analysis.archive.sql import views_of

    try:
        connection = with_snapshot(archive.store, lambda now: views_of(now, is_locked=True))
    except ModuleNotFoundError as error:
        raise ValueError(str(error)) from error
    import duckdb

    try:
        statements = connection.extract_statements(query)
        if [each.type for each in statements] != [duckdb.StatementType.SELECT]:
            raise ValueError(
                "only a single SELECT is allowed: an archive is queried, never changed"
            )
        relation = connection.sql(query)
        relation = relation if most is None else relation.limit(most)
        names = relation.columns
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two columns are called {twice[0]}; name them with `as`")
        found: pa.Table = relation.project(*map(_readable, names, relation.types)).to_arrow_table()
    except duckdb.Error as error:
        raise ValueError(str(error).partition("\n\nLINE")[0]) from error
    return found


def _readable(name: str, kind: DuckDBPyType) -> Expression:
    """Return a column; as DuckDB's text where others couldn't read it."""
    import duckdb

    column = duckdb.ColumnExpression(name)
    return column.cast(duckdb.sqltypes.VARCHAR).alias(name) if kind.id in _AS_TEXT else column


def _hints(archive: ba.Archive, query: str) -> Iterator[str]:
    """Yield what to write where a query takes a name, or a part of one, for an id or a type."""
    assets, labels = archive.assets(), archive.labels()
    symbols = {each.symbol.casefold(): each.symbol for each in assets.values() if each.symbol}
    own = {*map(str.casefold, labels.ids().values())}
    for name, texts in _COMPARED.findall(query):
        column = name.lower()
        for text in re.findall("'([^']+)'", texts):
            symbol, kind = symbols.get(text.casefold()), _TYPE + text.upper()
            if column == "account_type" and kind in ba.ACCOUNT_TYPES:
                yield f"{text} is short for an account type: write '{kind}'"
            elif column == "asset_id" and text not in assets and symbol:
                yield f"{text} is a symbol, not an id: write symbol = '{symbol}'"
            elif column in {"party_id", "market_id"} and text.casefold() in own:
                yield f"{text} is a label, not an id: the view labels has its ids"
            elif column != "account_type" and _PART.fullmatch(text):
                yield f"{text} is a part of an id: --wide shows whole ids"


def _print_rows(rows: pa.Table, *, wide: bool) -> None:
    """Print rows; on a terminal those columns that fit, of two that tell the same the short one."""
    import pyarrow.types as kinds

    numbers = (kinds.is_integer, kinds.is_floating, kinds.is_decimal)
    left = [field.name for field in rows.schema if not any(is_(field.type) for is_ in numbers)]
    moments = [field.name for field in rows.schema if kinds.is_timestamp(field.type)]
    told = [name for name, short in _TOLD.items() if {name, short} <= {*rows.column_names}]
    first = [name for name in rows.column_names if name not in {*left, *told}][:1]
    short = [_TOLD[name] for name in told]
    names = [name for name in [*first, *moments, *short, *rows.column_names] if name not in told]
    is_narrow = sys.stdout.isatty() and not wide
    room = shutil.get_terminal_size().columns if is_narrow else sys.maxsize
    for timespec in ("auto", "seconds"):
        columns = {name: _texts(rows[name], timespec, wide=wide) for name in rows.column_names}
        shown = narrowed(columns, [*dict.fromkeys([*names, *told])], room=room)
        if len(shown) == len(columns):
            break
    print_table(shown, left=left)
    if hidden := [name for name in columns if name not in shown]:
        echo(f"... without {list_text(hidden)}; --wide shows all columns")


def _texts(column: pa.ChunkedArray, timespec: str, *, wide: bool) -> list[str]:
    from balance_analysis.text import short_ids

    texts = [cell_text(value, "NULL", timespec) for value in column.to_pylist()]
    short = {} if wide else short_ids(filter(LONG_ID.fullmatch, texts))
    return [short.get(text, text if wide else text.removeprefix(_TYPE)) for text in texts]
