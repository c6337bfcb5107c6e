"""Read, verify and query one archive.

Each method reads one snapshot. Code that fills or repairs an archive uses its `store` instead.
"""

from __future__ import annotations

import copy
import datetime as dt
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd
import pyarrow as pa

from balance_analysis.archive import sidecars
from balance_analysis.archive.digest import ArchiveDigest, digest
from balance_analysis.archive.explain import Explanation, explain
from balance_analysis.archive.snapshot import (
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
from balance_analysis.load.arguments import OnProgress
from balance_analysis.slices import ROWS, Slices
from balance_analysis.table.filters import Filters, make_filters
from balance_analysis.table.known import note_rows
from balance_analysis.table.moments import Moment
from balance_analysis.table.names import AssetsLike, LabelsLike, Names, note_names
from balance_analysis.table.schema import ATTRS_KEY, COLUMNS
from balance_analysis.table.text import html_table

if TYPE_CHECKING:
    import dask.dataframe as dd
    from duckdb import DuckDBPyConnection

    from balance_analysis.proof.diff import Comparable
    from balance_analysis.proof.verify import VerifyReport

T = TypeVar("T")


def to_archive(archive: Archive | PathLike) -> Archive:
    """Return an archive, given the `Archive` or its path or address."""
    return archive if isinstance(archive, Archive) else Archive(archive)


class Archive:
    """An archive of balance changes: a folder, or an address in an object store.

    `export` fills it. Its methods return exact balances, and only those of complete intervals
    unless you pass `partial`. `uri` is its address, `store` its files, `filters` the selected
    accounts.

    Parameters
    ----------
    uri
        A path, or an address such as `s3://bucket/archive`. It need not exist yet.

    Raises
    ------
    ArchiveError
        If the address is malformed. Methods also raise it if the archive is missing or damaged.
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
            return html_table("Archive", [("archive", self.uri), ("state", str(error))])

    def snapshot(self) -> Snapshot:
        """Return the archive's current state: its query, its evidence and its files."""
        return self._read(lambda snapshot: snapshot)

    def at(self, snapshot: Snapshot) -> Archive:
        """Return the archive at a fixed state; reads raise SnapshotGoneError once that is gone."""
        archive: Archive = copy.copy(self)
        archive._fixed = snapshot
        return archive

    def _read(self, read: Callable[[Snapshot], T]) -> T:
        """Return a function's result for the fixed state or, if there is none, the current one."""
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
        """Return the archive narrowed to some accounts, whose rows alone are then read.

        `coverage`, `limits`, `status`, `verify`, `digest` and `connect` still cover the whole
        archive.

        Parameters
        ----------
        asset_id, party_ids, market_ids, account_types
            As for `load_balance_changes`. An id of the archive may be shortened to `c2071f…76b5` or
            its first four or more characters if they are unique.
        assets, labels
            The names of assets, parties and markets, as for `load_balance_changes`; by default
            those that the archive keeps.

        Returns
        -------
        Archive
            The selection. Selecting again narrows it further.

        Raises
        ------
        ValueError
            If a filter is malformed, or matches nothing in the archive.
        ArchiveError
            If there is no archive, it is damaged, or it is bound to other accounts.
        """
        names = self.names().overridden_by(assets, labels)
        ids = (asset_id, party_ids, market_ids, account_types)
        find = functools.partial(make_filters, *ids, names=lambda: names)
        archive: Archive = copy.copy(self)
        archive._names = names
        archive.filters = self._read(lambda x: x.narrow(self.filters, find))
        return archive

    def coverage(self) -> pd.DataFrame:
        """Return the covered intervals, and the missing ones between them.

        Returns
        -------
        pandas.DataFrame
            One row per stretch, in time order: `start`, `end` (datetime64[us, UTC], half-open) and
            `state` (category): "confirmed" (complete, and a source of another origin has the same
            rows), "complete" (every row is present), "unproven" (rows may be missing, because a
            node may have deleted some or a bad row was set aside) or "missing" (no node answered
            for it). Unless missing, also `source` (str, the node), `block_height` and
            `first_block_height` (Int64, the highest and lowest last block of its answers),
            `asked_at` and `first_asked_at` (datetime64[us, UTC], when it was last and first asked)
            and `confirmed_by` (str).
        """
        return coverage_frame(self.snapshot().evidence)

    def limits(self) -> pd.DataFrame:
        """Return the network's limits over time.

        Returns
        -------
        pandas.DataFrame
            One row per distinct snapshot, in the order they were seen: `first_seen` and `last_seen`
            (datetime64[us, UTC]), `source` (the node), `block_height` (Int64), and the fields of
            `NetworkLimits`; `extra` as JSON. Segments list every change, so a row from segments
            holds from the time of its block to that of the next change.
        """
        rows = self._read(lambda snapshot: sidecars.read_limits(snapshot.store))
        frame: pd.DataFrame = rows.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
        return frame

    def names(self) -> Names:
        """Return the names that the archive keeps, or those passed to `select`; may be empty.

        `assets` has symbols and decimals by id, `labels` the user's names of parties, markets and
        accounts. Tables read from the archive have both in their attrs. A damaged file raises
        ArchiveDamagedError.
        """
        return sidecars.read_archive_names(self.store) if self._names is None else self._names

    def read(
        self,
        *,
        start: Moment | None = None,
        end: Moment | None = None,
        opening: bool = False,
        columns: Sequence[str] = COLUMNS,
        partial: bool = False,
    ) -> pd.DataFrame:
        """Return balance changes as a table, reading only the files and row groups that have any.

        Parameters
        ----------
        start, end
            The interval, half-open; UTC if without a time zone. By default from the beginning of
            the first complete interval to the end of the last one.
        opening
            Whether to add openings: each account's last row before `start`, which is the balance
            held then. Accounts without a change in the interval are then included, if they have
            one in the archive.
        columns
            The columns of the table to return, in this order; fewer are read faster.
        partial
            Whether to return the available rows of an incomplete interval. Open bounds are then
            those of all time that a source answered for.

        Returns
        -------
        pandas.DataFrame
            The table, as from `load_balance_changes`. Its attrs have the names, `start` and the
            known intervals, which are the complete ones. If a gap follows an opening, the balance
            may have changed within it and is unknown at `start`. With fewer columns, rows are in
            the order of the files: by period, then by party.

        Raises
        ------
        IncompleteError
            If [start, end) isn't complete, unless `partial`.
        ValueError
            If `columns` has an unknown name or one twice, or `start` is not before `end`.
        """
        check_columns(columns)
        how: Any = {"start": start, "end": end, "opening": opening, "partial": partial}
        frame = self._read(lambda now: read_frame(now.scan(self.filters, **how), columns))
        frame.attrs[ATTRS_KEY] = note_names(frame.attrs.get(ATTRS_KEY, {}), self.names())
        if {*COLUMNS} <= {*columns}:
            note_rows(frame)
        return frame

    def by_slices(
        self,
        work: Callable[[Slices], T],
        *,
        rows: int = ROWS,
        show: OnProgress = lambda _share, _rows: None,
    ) -> T:
        """Return a function's result for the archive's slices of accounts: see `Slices`."""
        return self._read(lambda now: work(Slices(now, self.filters, self.names(), rows, show)))

    def to_dask(
        self,
        *,
        start: Moment | None = None,
        end: Moment | None = None,
        columns: Sequence[str] = COLUMNS,
        partial: bool = False,
    ) -> dd.DataFrame:
        """Return balance changes as a dask DataFrame: one partition per file, read when needed.

        This needs the extra `cluster`, else it raises ImportError. Arguments and errors are those
        of `read`, raised at once. Rows added by a later export aren't included.

        Returns
        -------
        dask.dataframe.DataFrame
            The columns, with a table's dtypes. The index `period` is the beginning of the file's
            day (datetime64[us, UTC]; or its month or hour, depending on the archive), so divisions
            are known and `.loc["2023-04-01":"2023-04-07"]` reads seven days. Categories differ by
            partition and are unknown to dask until `categorize(columns=ACCOUNT_KEY)`. dask's
            `groupby` reductions handle decimals; for other ones use `map_partitions`. `to_parquet`
            needs `schema=None`.
        """
        check_columns(columns)
        return dask_frame(self.snapshot().scan(self.filters, start, end, partial=partial), columns)

    def status(
        self, *, now: dt.datetime | None = None, count_accounts: bool = True
    ) -> ArchiveStatus:
        """Return the status: coverage, rows, files, and the archive's age at `now`.

        `count_accounts` reads the files since the last checkpoint.
        """
        return self._read(lambda x: read_status(x, now=now, count_accounts=count_accounts))

    def explain(
        self, account: Mapping[str, str] | Sequence[str] | pd.Series[Any], *, at: Moment
    ) -> Explanation:
        """Return where an account's balance at a moment comes from, or why it is unknown.

        Parameters
        ----------
        account
            Its four ids: by name, as in a row of `balance_at`, or in the order of `ACCOUNT_KEY`.
        at
            The moment; UTC if without a time zone. A row at exactly that time counts. The end of
            the complete intervals has the balance held until then.

        Raises
        ------
        ArchiveError
            If there is no archive, or a file it reads is damaged.
        ValueError, KeyError
            If `account` doesn't have four ids.
        """
        return self._read(lambda snapshot: explain(snapshot, account, at))

    def digest(self, *, start: Moment | None = None, end: Moment | None = None) -> ArchiveDigest:
        """Return digests of the history: archives with the same history have the same digests.

        They don't depend on when or how often rows were exported, on the partition, or on the
        encoding of files. All rows of the interval are read and checked.

        Parameters
        ----------
        start, end
            The interval, half-open; UTC if without a time zone. By default everything covered.
            Limits and names have no interval: their digests are of all of them.

        Raises
        ------
        ArchiveError
            If there is no archive, or it is damaged.
        ValueError
            If `start` is not before `end`.

        Notes
        -----
        `digest` is the SHA-256 of a line of JSON, including its line break, followed by the 32-byte
        SHA-256 of each UTC day that has rows, in time order. The line has the sorted keys
        `complete`, `filters`, `unproven` and `version` (2) and no spaces. The intervals are pairs
        of microseconds since 1970, adjacent ones joined; `filters` has the sorted ids of each
        column that the archive is bound to. A day's SHA-256 is that of its rows, sorted by party,
        asset, account type, market (by their UTF-8 bytes) and time. A row has 56 bytes: the SHA-256
        of its account, its microseconds in 8 bytes and its balance in 16, both little-endian. An
        account's bytes are asset, account type, party and market, each in UTF-8 after its length in
        4 bytes.
        """
        return self._read(lambda snapshot: digest(snapshot, start, end))

    def connect(self) -> DuckDBPyConnection:
        """Return a DuckDB connection, in UTC, with views of the archive, complete or not.

        `changes` has a table's columns, then `symbol` and `amount`: the balance in whole units,
        NULL if its asset's decimals are unknown. An amount is an exact DECIMAL of 38 digits with
        the most decimals of any asset; if an asset has more than 18, it is a DOUBLE. `accounts` has
        each account's `first_seen`, `last_seen`, `rows` and latest `balance` (NULL if unknown).
        `coverage` and `limits` are as the methods return them; `assets` (`asset_id`, `symbol`,
        `name`, `decimals`) and `labels` (`id`, `label`) are the archive's names. DuckDB doesn't
        check the files that it reads: `verify` finds damage, and `coverage` has the gaps. Results
        are exact in `to_arrow_table()`, `pl()` and `fetchall()`; `df()` converts balances to
        floats. This needs the extra `sql`, else it raises ModuleNotFoundError.
        """
        return self._read(views_of)

    def verify(
        self,
        *,
        against: Comparable | None = None,
        segments: PathLike | Iterable[PathLike] | None = None,
        start: Moment | None = None,
        end: Moment | None = None,
        progress: bool | OnProgress | None = False,
    ) -> VerifyReport:
        """Check the archive against its manifest, and return each problem with its remedy.

        This checks the digest, schema, order, rows and times of every file of rows, recomputes the
        checkpoints from the rows, and checks the limits and that no other files are present. Names
        have no digest: only unreadable ones are found. Run reports, copies of replaced files and
        records of disputes aren't checked.

        Parameters
        ----------
        against
            Another source of the same rows, as for `diff`: all rows that both cover are compared.
        segments
            Network history segments, as for `read_segments`: rows are compared with theirs, and
            each account's change in each block with their ledger's movements.
        start, end
            The interval to compare, half-open; UTC if without a time zone. By default everything.
            All files are checked in any case.
        progress
            As for `load_balance_changes`.

        Raises
        ------
        ArchiveError
            If there is no archive. Damage is reported, not raised.
        RequestError, DecodeError, IncompleteError, CheckError, ValueError
            As for `diff`, if `against` or `segments` is passed.
        """
        from balance_analysis.proof.verify import verify  # noqa: PLC0415 - it queries nodes

        return verify(
            self.store, against=against, segments=segments, start=start, end=end, progress=progress
        )
