"""Commands that ask what an archive has: its accounts, or whatever SQL asks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final

from typer import Argument

import balance_analysis as ba
from balance_analysis.cli.app import command
from balance_analysis.cli.options import AccountOptions, ArchiveAt, Partial, check_is
from balance_analysis.cli.output import Messages, echo, print_table
from balance_analysis.cli.tables import (
    TableOptions,
    Units,
    cell_text,
    list_accounts,
    write_exact,
)

if TYPE_CHECKING:
    import pyarrow as pa

_LONG_ID: Final = re.compile(r"[0-9a-f]{64}")


@command()
def accounts(
    messages: Messages,
    archive: ArchiveAt,
    filters: AccountOptions,
    listing: TableOptions,
    partial: Partial = False,
    units: Units = False,
) -> None:
    """List the accounts of an archive, the most active first, and what they hold at its end.

    A table is 80 characters wide, amounts in whole units of known assets.
    """
    check_is("archive", archive)
    form, held = listing.chosen(archive), ba.Archive(archive)
    assets = filters.with_given(held.assets())
    found = held.accounts(partial=partial, **{**filters.named(), "assets": assets})
    found = found.sort_values("rows", ascending=False, kind="stable", ignore_index=True)
    shown = ("balance", "rows", "last seen")
    list_accounts(found, shown, listing, form, messages, assets=assets, units=units)


@command()
def sql(
    messages: Messages,
    archive: ArchiveAt,
    query: Annotated[
        str, Argument(metavar="QUERY", help='A SELECT, such as "select * from coverage".')
    ],
    listing: TableOptions,
) -> None:
    """Ask an archive in SQL: of changes, checkpoints, accounts, coverage and limits; by DuckDB.

    Nothing is written but FILE, and no other file is read.
    """
    check_is("archive", archive)
    form, limit = listing.chosen(archive), listing.limit
    found = _ask(archive, query, limit + 1 if form == "table" and limit else None)
    if form != "table":
        import pandas as pd

        write_exact(found.to_pandas(types_mapper=pd.ArrowDtype), form, listing.output, messages)
        return
    shown = found.slice(0, limit) if limit else found
    _print_rows(shown, wide=listing.wide)
    if len(shown) < len(found):
        echo(f"... the first {limit} rows; --limit 0 shows all, -o FILE writes them")


def _ask(archive: str, query: str, most: int | None) -> pa.Table:
    """Return what a query finds, or the first rows of it.

    Raises
    ------
    ValueError
        If it is no query, or DuckDB is not installed.
    """
    from balance_analysis.archive.snapshot import with_snapshot
    from balance_analysis.archive.sql import connect

    try:
        connection = with_snapshot(
            ba.Archive(archive).store, lambda snapshot: connect(snapshot, is_locked=True)
        )
    except ModuleNotFoundError as error:
        raise ValueError(str(error)) from error
    import duckdb

    try:
        statements = connection.extract_statements(query)
        if [each.type for each in statements] != [duckdb.StatementType.SELECT]:
            raise ValueError("an archive is only asked: give one SELECT")
        relation = connection.sql(query)
        found: pa.Table = (relation if most is None else relation.limit(most)).to_arrow_table()
    except duckdb.Error as error:
        raise ValueError(str(error).partition("\n\nLINE")[0]) from error
    twice = [name for name in found.column_names if found.column_names.count(name) > 1]
    if twice:
        raise ValueError(f"two columns are called {twice[0]}; name them with `as`")
    return found


def _print_rows(rows: pa.Table, *, wide: bool) -> None:
    import pyarrow.types as kinds

    from balance_analysis.text import short_ids

    columns = {}
    for name in rows.column_names:
        texts = [cell_text(value, "NULL") for value in rows[name].to_pylist()]
        short = {} if wide else short_ids(filter(_LONG_ID.fullmatch, texts))
        columns[name] = [short.get(text, text) for text in texts]
    numbers = (kinds.is_integer, kinds.is_floating, kinds.is_decimal)
    left = [field.name for field in rows.schema if not any(is_(field.type) for is_ in numbers)]
    print_table(columns, left=left)
