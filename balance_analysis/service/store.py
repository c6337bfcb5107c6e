"""Find the rows of one page in a Parquet file of balance changes.

The file is asked again for every page and never loaded whole. Rows are ordered as nodes order them:
by time, and inside a block by account id.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from balance_analysis.errors import ArchiveError
from balance_analysis.schema import ACCOUNT_TYPES, ARROW_SCHEMA
from balance_analysis.service.cursors import Place

if TYPE_CHECKING:
    from pathlib import Path

    from balance_analysis.service.parameters import Filters, Paging

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_ACCOUNT_ID: Final = "sha256(asset_id || party_id || market_id || account_type)"
_FROM: Final = "FROM read_parquet($path, hive_partitioning = false)"


@dataclass(frozen=True, slots=True)
class Row:
    """One balance change.

    Attributes
    ----------
    balance
        In the asset's smallest unit, all its digits.
    place
        Its time, its account's id, and so its place in the order.
    """

    asset_id: str
    account_type: str
    party_id: str
    market_id: str
    balance: str
    place: Place


@dataclass(frozen=True, slots=True)
class Page:
    """A part of the list of rows that was asked for.

    Attributes
    ----------
    rows
        In the order of the list.
    has_next, has_previous
        Whether the list is known to go on after, or before, these rows. An empty page knows
        neither; the side that the page was not counted towards is known only with a cursor.
    """

    rows: list[Row]
    has_next: bool
    has_previous: bool


class Store:
    """A Parquet file of balance changes, open for questions from any number of threads.

    Parameters
    ----------
    path
        A file with the columns of `schema.ARROW_SCHEMA`, in which (account, timestamp) is unique.

    Raises
    ------
    ArchiveError
        If it can't be read, or its columns are not those.
    """

    def __init__(self, path: Path) -> None:
        _check_columns(path)
        self._path = _as_pattern(path)
        self._connection = duckdb.connect()

    def has_account_type(self, name: str) -> bool:
        """Return whether any row is of this account type."""
        sql = f"SELECT EXISTS (SELECT 1 {_FROM} WHERE account_type = $name)"
        return bool(self._ask(sql, {"name": name})[0][0])

    def page(self, filters: Filters, paging: Paging) -> Page:
        """Return one page of the rows that pass all filters."""
        where, values = _conditions(filters)
        descending = paging.newest_first != paging.backward
        beyond, behind, cursor = _sides(paging.cursor, descending=descending)
        values |= cursor
        found = self._ask(
            _page_sql([*where, *beyond], descending=descending),
            {**values, "limit": paging.size + 1},
        )
        rows = [_row(record) for record in found[: paging.size]]
        more = len(found) > paging.size
        near = bool(rows and behind) and self._any([*where, *behind], values)
        if paging.backward:
            return Page(rows[::-1], has_next=near, has_previous=more)
        return Page(rows, has_next=more, has_previous=near)

    def _any(self, where: list[str], values: dict[str, Any]) -> bool:
        sql = f"SELECT EXISTS (SELECT 1 {_FROM} WHERE {_all(where)})"
        return bool(self._ask(sql, values)[0][0])

    def _ask(self, sql: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            return cursor.execute(sql, {**values, "path": self._path}).fetchall()


def _check_columns(path: Path) -> None:
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise ArchiveError(f"{path} can't be read as a Parquet file: {error}") from error
    for field in ARROW_SCHEMA:
        if field.name not in schema.names:
            raise ArchiveError(f"{path} is not a file of balance changes: no column {field.name!r}")
        kind = schema.field(field.name).type
        if _plain(kind) != _plain(field.type):
            raise ArchiveError(
                f"{path}: column {field.name!r} is {kind}, and should be {field.type}; "
                "write_parquet makes such files"
            )


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _as_pattern(path: Path) -> str:
    """Return the pattern that matches only this path, since DuckDB reads paths as patterns."""
    return re.sub(r"([*?\[])", r"[\1]", str(path.resolve()))


def _conditions(filters: Filters) -> tuple[list[str], dict[str, Any]]:
    """Return the conditions of all filters that are set, and the values they name."""
    given: dict[str, tuple[str, Any]] = {
        "asset_id": ("asset_id = $asset_id", filters.asset_id),
        "parties": ("party_id IN $parties", _spellings(filters.party_ids)),
        "markets": ("market_id IN $markets", _spellings(filters.market_ids)),
        # Nodes match no row with the default value, whatever the file holds.
        "types": (
            f"account_type IN $types AND account_type <> '{ACCOUNT_TYPES[0]}'",
            list(filters.account_types),
        ),
        "start": ("timestamp >= $start", _moment(filters.start)),
        "end": ("timestamp < $end", _moment(filters.end)),
    }
    used = {name: pair for name, pair in given.items() if pair[1] not in (None, [])}
    return [sql for sql, _ in used.values()], {name: value for name, (_, value) in used.items()}


def _spellings(ids: tuple[str, ...]) -> list[str]:
    """Return ids as they came and in lower case, which is how nodes write them."""
    return sorted({spelling for value in ids for spelling in (value, value.lower())})


def _moment(microseconds: int | None) -> dt.datetime | None:
    return None if microseconds is None else _EPOCH + dt.timedelta(microseconds=microseconds)


def _sides(
    cursor: Place | None, *, descending: bool
) -> tuple[list[str], list[str], dict[str, Any]]:
    """Return the conditions for the rows beyond a cursor and for the others, and their values.

    The account id is hashed only inside the cursor's own block: hashing is what costs time.
    """
    if cursor is None:
        return [], [], {}
    beyond, behind = ("<", ">") if descending else (">", "<")
    sql = "CASE WHEN timestamp = $time THEN {id} {on} $account ELSE timestamp {off} $time END"
    return (
        [sql.format(id=_ACCOUNT_ID, on=beyond, off=beyond)],
        [sql.format(id=_ACCOUNT_ID, on=f"{behind}=", off=behind)],
        {"time": _moment(cursor.time), "account": cursor.account_id},
    )


def _all(where: list[str]) -> str:
    return " AND ".join(where) or "true"


def _page_sql(where: list[str], *, descending: bool) -> str:
    """Return the question for the first `$limit` rows in an order.

    It finds the last block of the page by time alone, and hashes and sorts only up to there.
    """
    order, until, last = ("DESC", ">=", "min") if descending else ("ASC", "<=", "max")
    # Only constants and names of values are put into the text.
    return f"""
        WITH matching AS NOT MATERIALIZED (SELECT * {_FROM} WHERE {_all(where)})
        SELECT asset_id, account_type, party_id, market_id, balance::VARCHAR,
            epoch_us(timestamp), {_ACCOUNT_ID} AS account_id
        FROM matching
        WHERE timestamp {until} (
            SELECT {last}(timestamp)
            FROM (SELECT timestamp FROM matching ORDER BY timestamp {order} LIMIT $limit)
        )
        ORDER BY timestamp {order}, account_id {order}
        LIMIT $limit
    """  # noqa: S608


def _row(record: tuple[Any, ...]) -> Row:
    asset_id, account_type, party_id, market_id, balance, time, account_id = record
    place = Place(time=time, account_id=account_id)
    return Row(asset_id, account_type, party_id, market_id, balance, place)
