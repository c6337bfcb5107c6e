"""Read, verify and query one archive.

Each method reads one snapshot. Filling and repairing an archive needs its files alone.
"""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd
import pyarrow as pa

from balance_analysis.archive import sidecars
from balance_analysis.archive.digest import ArchiveDigest, digest
from balance_analysis.archive.explain import Explanation, explain
from balance_analysis.archive.snapshot import (
    Scan,
    Snapshot,
    check_columns,
    dask_frame,
    read_frame,
    with_snapshot,
)
from balance_analysis.archive.sql import views_of
from balance_analysis.archive.status import ArchiveStatus, coverage_frame, read_status
from balance_analysis.archive.store import Store
from balance_analysis.errors import ArchiveError
from balance_analysis.files.atomic import PathLike
from balance_analysis.load.request import Report
from balance_analysis.slices import ROWS, Slices
from balance_analysis.table.filters import Filters
from balance_analysis.table.known import note_rows
from balance_analysis.table.names import AssetsLike, LabelsLike, Names, note_names
from balance_analysis.table.presentation import facts_html
from balance_analysis.table.schema import ATTRS_KEY, COLUMNS, Instant

if TYPE_CHECKING:
    import dask.dataframe as dd
    from duckdb import DuckDBPyConnection

    from balance_analysis.proof.compare import Comparable
    from balance_analysis.proof.verify import VerifyReport

T = TypeVar("T")


def to_archive(archive: Archive | PathLike) -> Archive:
    """Return an archive, which may be given by its path or address."""
    return archive if isinstance(archive, Archive) else Archive(archive)


class Archive:
    """An archive of balance changes: a folder, or an address in an object store.

    `export` fills it. Its methods read exact digits, and only where the archive is complete, unless
    the caller passes `partial`. `uri` is its address, `store` its files, `filters` the accounts
    that were selected.

    Parameters
    ----------
    uri
        A path, or an address such as `s3://bucket/archive`. It need not exist yet.

    Raises
    ------
    ArchiveError
        If the address can't be understood; from each method also if there is no archive, or it is
        damaged.
    """

    def __init__(self, uri: PathLike) -> None:
        self.store: Store = Store(uri)
        self.uri: str = self.store.uri
        self.filters: Filters = Filters()
        self._names: Names | None = None
        self._fixed: Snapshot | None = None

    def __repr__(self) -> str:
        chosen = f" of {self.filters}" if self.filters.allowed() else ""
        return f"Archive({self.uri!r}){chosen}"

    def _repr_html_(self) -> str:
        try:
            return self.status(count_accounts=False)._repr_html_()
        except (ArchiveError, OSError) as error:
            return facts_html("Archive", [("archive", self.uri), ("state", str(error))])

    def snapshot(self) -> Snapshot:
        """Return the current state of the archive: its query, its evidence, its files."""
        return self._read(lambda snapshot: snapshot)

    def at(self, snapshot: Snapshot) -> Archive:
        """Return the archive fixed at a state; reading raises SnapshotGoneError once it is gone."""
        archive: Archive = copy.copy(self)
        archive._fixed = snapshot
        return archive

    def _read(self, read: Callable[[Snapshot], T]) -> T:
        """Return the result of a function of the archive's state: the fixed one, or the current."""
        return with_snapshot(self.store, read) if self._fixed is None else read(self._fixed)

    def select(
        self,
        *,
        asset_id: str | None = None,
        party_ids: str | Iterable[str] = (),
        market_ids: str | Iterable[str] = (),
        account_types: str | Iterable[str] = (),
        assets: AssetsLike | None = None,
        labels: LabelsLike | None = None,
    ) -> Archive:
        """Return the archive narrowed to some accounts: whatever reads rows reads theirs alone.

        `coverage`, `limits`, `status`, `verify`, `digest` and `connect` still speak of the whole
        archive.

        Parameters
        ----------
        asset_id, party_ids, market_ids, account_types
            As for `load_balance_changes`. Ids that the archive has may be short, such as
            `c2071f…76b5` or the first four characters or more, if no other id has these.
        assets, labels
            What assets, parties and markets are called, as for `load_balance_changes`; by default
            as the archive keeps it.

        Returns
        -------
        Archive
            A selection of it is narrowed further.

        Raises
        ------
        ValueError
            If a filter is malformed, or stands for nothing that the archive has.
        ArchiveError
            If there is no archive, it is damaged, or it is bound to other accounts.
        """
        names = self.names().overridden_by(assets, labels)
        words = {
            "asset_id": asset_id,
            "party_ids": party_ids,
            "market_ids": market_ids,
            "account_types": account_types,
        }
        archive: Archive = copy.copy(self)
        archive._names = names
        archive.filters = self._read(lambda x: x.find(self.filters, names=lambda: names, **words))
        return archive

    def coverage(self) -> pd.DataFrame:
        """Return which intervals are covered, and what is missing between them.

        Returns
        -------
        pandas.DataFrame
            One row per stretch, in time order: `start`, `end` (datetime64[us, UTC], half-open) and
            `state` (category): "confirmed" (complete, and a source of another origin has the same
            rows), "complete" (every row is there), "unproven" (rows are there, but a node may have
            forgotten some, or a bad row was set aside) or "missing" (no node answered for it).
            Except for what is missing: `source` (str, the node), `block_height` and
            `first_block_height` (Int64, its last block when it was asked; answers of several runs
            are kept as one, with the highest and the lowest), `asked_at` and `first_asked_at`
            (datetime64[us, UTC], when it was asked last and first), and `confirmed_by` (str).
        """
        return coverage_frame(self.snapshot().evidence)

    def limits(self) -> pd.DataFrame:
        """Return the network's limits over time.

        Returns
        -------
        pandas.DataFrame
            One row for each distinct snapshot, in the order in which they were seen: `first_seen`
            and `last_seen` (datetime64[us, UTC]), `source` (the node), `block_height` (Int64), and
            the fields of `NetworkLimits`; `extra` as JSON. A row from segments, which name each
            change, holds from the time of its block to that of the next change.
        """
        rows = self._read(lambda snapshot: sidecars.read_limits(snapshot.store))
        frame: pd.DataFrame = rows.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
        return frame

    def names(self) -> Names:
        """Return the names that the archive keeps, or those that `select` was given; maybe none.

        `assets` are symbols and decimals by id, `labels` own names of parties, markets and
        accounts; tables read from the archive carry both. A damaged file raises
        ArchiveDamagedError.
        """
        return sidecars.read_archive_names(self.store) if self._names is None else self._names

    def read(
        self,
        *,
        start: Instant | None = None,
        end: Instant | None = None,
        opening: bool = False,
        columns: Sequence[str] = COLUMNS,
        partial: bool = False,
    ) -> pd.DataFrame:
        """Return balance changes as a table; files and row groups without any are not read.

        Parameters
        ----------
        start, end
            The interval, half-open; without a time zone UTC. By default from where the first
            complete interval begins to where the last one ends.
        opening
            Whether to add what accounts held at `start`: of each account the last row before it.
            Accounts that are quiet in the interval are then there as well.
        columns
            Which columns of the table to return, in this order; fewer are read faster.
        partial
            Whether to return what there is where the interval is not complete. The default interval
            is then from the first to the last that was asked for.

        Returns
        -------
        pandas.DataFrame
            The table, as of `load_balance_changes`. Its attrs have the names, `start` and which
            times are known: those that are complete. A change may be missing between an opening
            and `start`; what the account held is then unknown. With fewer columns, rows keep the
            order of the files: by period, then by party.

        Raises
        ------
        IncompleteError
            If the archive is not known to be complete for [start, end), unless `partial`.
        ValueError
            If `columns` are not some of the table's, each once, or `start` is not before `end`.
        """
        check_columns(columns)
        how: Any = {"start": start, "end": end, "opening": opening, "partial": partial}
        frame = self._read(lambda now: read_frame(now.scan(self.filters, **how), columns))
        frame.attrs[ATTRS_KEY] = note_names(frame.attrs.get(ATTRS_KEY, {}), self.names())
        if {*COLUMNS} <= {*columns}:
            note_rows(frame)
        return frame

    def scan(
        self, *, start: Instant | None = None, end: Instant | None = None, partial: bool = False
    ) -> Scan:
        """Return the rows that `read` would read, unread; it takes and raises the same."""
        return self.snapshot().scan(self.filters, start, end, partial=partial)

    def by_slices(
        self,
        work: Callable[[Slices], T],
        *,
        rows: int = ROWS,
        show: Report = lambda _share, _rows: None,
    ) -> T:
        """Return the result of a function of the archive's slices of accounts: see `Slices`."""
        names = self.names()
        return self._read(lambda now: work(Slices(now, self.filters, names, rows, show)))

    def iter_batches(
        self,
        *,
        start: Instant | None = None,
        end: Instant | None = None,
        columns: Sequence[str] = COLUMNS,
        partial: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield balance changes as Arrow batches, for what doesn't fit into memory.

        Files are read one after the other, in time order; inside a file rows stand by party, then
        in the table's order. It takes what `read` takes; what that raises comes before any batch.

        Yields
        ------
        pyarrow.RecordBatch
            `schema.ARROW_SCHEMA`, or these columns of it.
        """
        check_columns(columns)
        return self.scan(start=start, end=end, partial=partial).iter_batches(columns)

    def to_dask(
        self,
        *,
        start: Instant | None = None,
        end: Instant | None = None,
        columns: Sequence[str] = COLUMNS,
        partial: bool = False,
    ) -> dd.DataFrame:
        """Return balance changes as a dask DataFrame: a partition for each file, read when needed.

        It needs the extra `cluster`, or raises ImportError. It takes what `read` takes, and raises
        that at once. Rows that a later export adds are not in it.

        Returns
        -------
        dask.dataframe.DataFrame
            The columns in a table's dtypes. The index, `period`, is the beginning of the file's day
            (datetime64[us, UTC]; or month, or hour: what the archive has files of), so divisions
            are known and `.loc["2023-04-01":"2023-04-07"]` reads seven days. Categories are those
            of each partition, unknown to dask until `categorize(columns=ACCOUNT_KEY)` has looked.
            dask's reductions of `groupby` handle decimals; for others use `map_partitions`.
            `to_parquet` needs `schema=None`.
        """
        check_columns(columns)
        return dask_frame(self.scan(start=start, end=end, partial=partial), columns)

    def status(
        self, *, now: dt.datetime | None = None, count_accounts: bool = True
    ) -> ArchiveStatus:
        """Return the status: coverage, rows, files, and the archive's age `now`.

        `count_accounts` reads the files since the last checkpoint.
        """
        return self._read(lambda x: read_status(x, now=now, count_accounts=count_accounts))

    def explain(
        self, account: Mapping[str, str] | Sequence[str] | pd.Series[Any], *, at: Instant
    ) -> Explanation:
        """Return where an account's balance at a moment comes from, or why it is not known.

        Parameters
        ----------
        account
            Its four ids: by the names of `ACCOUNT_KEY`, as a row of `balance_at` has them, or in
            its order.
        at
            The moment; without a time zone UTC. A row at exactly that time counts, except where
            what is complete ends: there it is what was held until then.

        Raises
        ------
        ArchiveError
            If there is no archive, or a file that is read is damaged.
        ValueError
            If `account` doesn't have four ids.
        """
        return self._read(lambda snapshot: explain(snapshot, account, at))

    def digest(self, *, start: Instant | None = None, end: Instant | None = None) -> ArchiveDigest:
        """Return digests of the history, which are the same for each archive of the same history.

        They don't depend on when and how often was exported, on the partition, or on how files are
        encoded. All rows of the interval are read and checked.

        Parameters
        ----------
        start, end
            The interval, half-open; without a time zone UTC. By default all that is covered. Limits
            and names belong to no interval: they are digested whole.

        Raises
        ------
        ArchiveError
            If there is no archive, or it is damaged.
        ValueError
            If `start` is not before `end`.

        Notes
        -----
        `digest` is the SHA-256 of a line of JSON, ended by a line break, and then of the 32 bytes
        of the SHA-256 of each UTC day that has rows, in time order. The line has the sorted keys
        `complete`, `filters`, `unproven` and `version` (2) and no blanks. The intervals are pairs
        of microseconds since 1970, joined; `filters` has the sorted ids of each column by which the
        archive is bound. A day's SHA-256 is that of its rows, which are sorted by party, asset,
        account type, market (as UTF-8 sorts) and time. A row has 56 bytes: the SHA-256 of its
        account, its microseconds in 8 bytes and its balance in 16, both the lowest first. An
        account's bytes are asset, account type, party and market, each in UTF-8 after its length in
        4 bytes.
        """
        return self._read(lambda snapshot: digest(snapshot, start, end))

    def connect(self) -> DuckDBPyConnection:
        """Return a DuckDB connection, in UTC, with views of what the archive holds, also in part.

        `changes` has a table's columns, then `symbol`, and `amount`: the balance in whole units,
        NULL where its asset's decimals are not known. An amount is exact, a DECIMAL of 38 digits
        with as many decimals as any asset has; where one has more than 18, it is a DOUBLE.
        `accounts`, `coverage` and `limits` are as the methods return them; `assets` (`asset_id`,
        `symbol`, `name`, `decimals`) and `labels` (`id`, of an account its ids with slashes
        between, and `label`) are the names that the archive keeps.
        DuckDB reads the files that the coverage names when a query runs. Results are exact in
        `to_arrow_table()`, `pl()` and `fetchall()`; `df()` makes floats of balances. It needs the
        extra `sql`, or raises ModuleNotFoundError.
        """
        return self._read(views_of)

    def verify(
        self,
        *,
        against: Comparable | None = None,
        segments: PathLike | Iterable[PathLike] | None = None,
        start: Instant | None = None,
        end: Instant | None = None,
        progress: bool | Report | None = False,
    ) -> VerifyReport:
        """Check the archive against its manifest, and return each problem with its remedy.

        Every file is read: its digest, schema, order, rows and time; then the checkpoints by a
        recomputation from the rows, the limits, and whether anything is there that is no part of
        the archive.

        Parameters
        ----------
        against
            Another source of the same rows, as for `diff`: all rows that both have are compared.
        segments
            Network history segments, as for `read_segments`: the rows are compared with theirs, and
            each account's change in each block with what their ledger moved.
        start, end
            The interval to compare, half-open; without a time zone UTC. By default all. Files are
            checked whatever their time.
        progress
            As for `load_balance_changes`.

        Raises
        ------
        ArchiveError
            If there is no archive. A damaged one is reported.
        RequestError, DecodeError, IncompleteError, CheckError, ValueError
            As `diff`, if something is compared.
        """
        from balance_analysis.proof.verify import verify  # noqa: PLC0415 - it asks nodes

        return verify(
            self.store, against=against, segments=segments, start=start, end=end, progress=progress
        )
