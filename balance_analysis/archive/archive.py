"""A folder of Parquet that knows what it holds.

Readers go by the coverage, which is written last, so they see the state before a commit or the one
after it, never half of one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.balances import balance_at
from balance_analysis.archive.limits import read_limits
from balance_analysis.archive.manifest import read_about, read_coverage
from balance_analysis.archive.scan import Chosen, anywhere, checkpoint_of, files_of
from balance_analysis.archive.status import read_status
from balance_analysis.archive.store import Store
from balance_analysis.errors import ArchiveDamagedError, ArchiveError, IncompleteError
from balance_analysis.filters import Filters, make_filters
from balance_analysis.frame import frame_of, to_columns, to_frame
from balance_analysis.known import note_known
from balance_analysis.rows import canonical
from balance_analysis.schema import (
    ARROW_SCHEMA,
    COLUMNS,
    from_microseconds,
    to_microseconds,
)
from balance_analysis.spans import clipped
from balance_analysis.text import range_text

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Iterator, Sequence

    import dask.dataframe as dd

    from balance_analysis.archive.coverage import Coverage
    from balance_analysis.archive.manifest import About
    from balance_analysis.archive.status import ArchiveStatus
    from balance_analysis.archive.verify_report import VerifyReport
    from balance_analysis.files.atomic import PathLike
    from balance_analysis.load.progress import Report
    from balance_analysis.node.client import Client
    from balance_analysis.schema import Instant


_TAKE: Final = "`partial` takes what there is"


class Archive:
    """An archive of balance changes: a folder, or an address in an object store.

    `export` fills it. What it holds is read with exact digits, and only where it is known to be
    complete, unless the caller asks for what there is.

    Parameters
    ----------
    uri
        A path, or an address such as `s3://bucket/archive`. It need not exist yet.

    Attributes
    ----------
    uri
        The address, as text.
    store
        Its files.

    Raises
    ------
    ArchiveError
        If the address can't be understood.
    """

    def __init__(self, uri: PathLike) -> None:
        self.store = Store(uri)
        self.uri = self.store.uri

    def __repr__(self) -> str:
        return f"Archive({self.uri!r})"

    def coverage(self) -> pd.DataFrame:
        """Return which intervals are covered, and what is missing between them.

        Returns
        -------
        pandas.DataFrame
            One row per interval, in time order: `start`, `end` (datetime64[us, UTC], half-open),
            `state` (category: "complete"; "unproven", where the node may have forgotten rows before
            it was asked; "gap", between the others), and, but for gaps, `source` (the node),
            `block_height` (Int64, the last block that it held) and `asked_at` (datetime64[us,
            UTC]).

        Raises
        ------
        ArchiveError
            If there is no archive, or it is damaged.
        """
        return self._state()[1].to_frame()

    def read(
        self,
        *,
        start: Instant | None = None,
        end: Instant | None = None,
        asset_id: str | None = None,
        party_ids: str | Iterable[str] = (),
        market_ids: str | Iterable[str] = (),
        account_types: str | Iterable[str] = (),
        columns: Sequence[str] = COLUMNS,
        partial: bool = False,
    ) -> pd.DataFrame:
        """Return balance changes as a table; files and row groups without any are not read.

        Parameters
        ----------
        start, end
            The interval, half-open; without a time zone UTC. By default from where the first
            complete interval begins to where the last one ends.
        asset_id, party_ids, market_ids, account_types
            As for `load_balance_changes`.
        columns
            Which columns of the table to return, in this order; fewer are read faster.
        partial
            Whether to return what there is where the interval is not complete. The default interval
            is then from the first to the last that was asked for.

        Returns
        -------
        pandas.DataFrame
            The table, as of `load_balance_changes`; its attrs tell which parts of the interval are
            known: those that are complete. Of fewer columns, rows stand as the files have them: by
            time of the file, then by party.

        Raises
        ------
        IncompleteError
            If the archive is not known to be complete for [start, end), unless `partial`.
        ArchiveError
            If there is no archive, or it is damaged.
        ValueError
            If a filter is malformed, `columns` are not some of the table's, each once, or `start`
            is not before `end`.
        """
        _check_columns(columns)
        chosen = self.choose(
            start=start,
            end=end,
            asset_id=asset_id,
            party_ids=party_ids,
            market_ids=market_ids,
            account_types=account_types,
            partial=partial,
        )
        schema = pa.schema([ARROW_SCHEMA.field(name) for name in columns])
        rows = pa.Table.from_batches(chosen.iter_batches(columns), schema)
        if set(columns) != set(COLUMNS):
            return to_columns(rows)
        # An account's rows stand in time order, in each file and from file to file.
        table = frame_of(canonical(rows, is_by_time=True))[list(columns)]
        note_known(table, chosen.known)
        return table

    def iter_batches(
        self,
        *,
        start: Instant | None = None,
        end: Instant | None = None,
        asset_id: str | None = None,
        party_ids: str | Iterable[str] = (),
        market_ids: str | Iterable[str] = (),
        account_types: str | Iterable[str] = (),
        columns: Sequence[str] = COLUMNS,
        partial: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield balance changes as Arrow batches, for what doesn't fit into memory.

        Files are read one after the other, in time order; inside a file rows stand by party, then
        in the table's order.

        Parameters
        ----------
        start, end, asset_id, party_ids, market_ids, account_types, columns, partial
            As for `read`.

        Yields
        ------
        pyarrow.RecordBatch
            `schema.ARROW_SCHEMA`, or these columns of it.

        Raises
        ------
        IncompleteError, ArchiveError, ValueError
            As `read`, before the first batch.
        """
        _check_columns(columns)
        chosen = self.choose(
            start=start,
            end=end,
            asset_id=asset_id,
            party_ids=party_ids,
            market_ids=market_ids,
            account_types=account_types,
            partial=partial,
        )
        return chosen.iter_batches(columns)

    def choose(
        self,
        *,
        start: Instant | None = None,
        end: Instant | None = None,
        asset_id: str | None = None,
        party_ids: str | Iterable[str] = (),
        market_ids: str | Iterable[str] = (),
        account_types: str | Iterable[str] = (),
        partial: bool = False,
    ) -> Chosen:
        """Return what `read` would read, fixed at this moment, for others to read in parts.

        Parameters
        ----------
        start, end, asset_id, party_ids, market_ids, account_types, partial
            As for `read`.

        Raises
        ------
        IncompleteError, ArchiveError, ValueError
            As `read`.
        """
        about, state = self._state()
        filters = _within(
            about.filters,
            make_filters(
                asset_id=asset_id,
                party_ids=party_ids,
                market_ids=market_ids,
                account_types=account_types,
            ),
        )
        span = self._span(state, start, end, partial=partial)
        if not partial:
            self._check_covered(state, *span)
        known = tuple(clipped(state.known(), *span))
        return Chosen(anywhere(self.store), filters, tuple(files_of(about, state, span)), known)

    def to_dask(
        self,
        *,
        start: Instant | None = None,
        end: Instant | None = None,
        asset_id: str | None = None,
        party_ids: str | Iterable[str] = (),
        market_ids: str | Iterable[str] = (),
        account_types: str | Iterable[str] = (),
        columns: Sequence[str] = COLUMNS,
        partial: bool = False,
    ) -> dd.DataFrame:
        """Return balance changes as a dask DataFrame: a partition for each file, read when needed.

        It takes the extra `cluster`. What is asked for is fixed now: rows that a later export adds
        are not in it.

        Parameters
        ----------
        start, end, asset_id, party_ids, market_ids, account_types, columns, partial
            As for `read`. Filters and columns are applied where a file is read.

        Returns
        -------
        dask.dataframe.DataFrame
            The columns in a table's dtypes. The index, `period`, is the beginning of the file's day
            (datetime64[us, UTC]; or month, or hour: what the archive has files of), so divisions
            are known and `.loc["2023-04-01":"2023-04-07"]` reads seven days. Inside a partition
            rows stand as `read` returns them. Categories are those of each partition, and unknown
            to dask until they are computed or `categorize(columns=ACCOUNT_KEY)` has looked. Dask's
            own reductions of a column, such as `sum` and `max`, don't know decimals, but those of
            `groupby` do; else use `map_partitions`, or the functions of `cluster`. `to_parquet`
            wants `schema=None`, as the categories differ from file to file.

        Raises
        ------
        ImportError
            If dask is not installed.
        IncompleteError, ArchiveError, ValueError
            As `read`, before anything is read.
        """
        from balance_analysis.archive.dask_frame import make_frame  # noqa: PLC0415 - an extra

        _check_columns(columns)
        chosen = self.choose(
            start=start,
            end=end,
            asset_id=asset_id,
            party_ids=party_ids,
            market_ids=market_ids,
            account_types=account_types,
            partial=partial,
        )
        return make_frame(chosen, columns)

    def balance_at(
        self,
        when: Instant,
        *,
        asset_id: str | None = None,
        party_ids: str | Iterable[str] = (),
        market_ids: str | Iterable[str] = (),
        account_types: str | Iterable[str] = (),
        partial: bool = False,
    ) -> pd.DataFrame:
        """Return the balance of every account at an instant.

        Only the rows since the beginning of a month are read: for each month that is covered, the
        archive keeps what every account held then.

        Parameters
        ----------
        when
            The instant; without a time zone UTC. A row at exactly `when` counts.
        asset_id, party_ids, market_ids, account_types
            As for `read`.
        partial
            Whether to go by what there is where the archive is not complete up to `when`.

        Returns
        -------
        pandas.DataFrame
            As of `balance_analysis.balance_at`, of all accounts that have a row up to `when`.
            Where a change may be missing since, the balance is NA.

        Raises
        ------
        IncompleteError
            If a row before `when` may be missing, unless `partial`.
        ArchiveError, ValueError
            As `read`.
        """
        about, state = self._state()
        moment = to_microseconds(when)
        filters = _within(
            about.filters,
            make_filters(
                asset_id=asset_id,
                party_ids=party_ids,
                market_ids=market_ids,
                account_types=account_types,
            ),
        )
        first, last = state.bounds()
        begins = [begin for begin in state.checkpoints if begin <= moment]
        since = max(begins, default=min(first, moment))
        if moment == last and not partial:
            raise IncompleteError(
                f"{self.uri}: what is complete ends at {from_microseconds(last)}, exclusive, and a "
                "row at that very instant would count: ask for an earlier instant, or for the "
                "opening balances at that one"
            )
        if not partial:
            self._check_covered(state, min(first, moment), moment + 1)
        files = list(files_of(about, state, (since, moment + 1)))
        if begins:
            files.append(checkpoint_of(since, state.checkpoints[since]))
        batches = Chosen(self.store, filters, tuple(files), state.known()).iter_batches()
        try:
            rows = pa.Table.from_batches(batches, ARROW_SCHEMA)
        except ArchiveDamagedError:
            if self._state()[1] == state:
                raise
            # An export has meanwhile done away with the balances at the month's start.
            return self.balance_at(
                when,
                asset_id=asset_id,
                party_ids=party_ids,
                market_ids=market_ids,
                account_types=account_types,
                partial=partial,
            )
        table = to_frame(rows)
        note_known(table, state.known())
        return balance_at(table, when)

    def opening_balances(self, *, at: Instant, partial: bool = False) -> pd.DataFrame:
        """Return what every account held before a moment: the `opening` of a table from there on.

        Parameters
        ----------
        at
            The moment; without a time zone UTC. A row at exactly `at` is not before it.
        partial
            As for `balance_at`.

        Returns
        -------
        pandas.DataFrame
            `ACCOUNT_KEY`, `balance` and `since`, as of `balance_at`.

        Raises
        ------
        IncompleteError, ArchiveError, ValueError
            As `balance_at`.
        """
        return self.balance_at(from_microseconds(to_microseconds(at) - 1), partial=partial)

    def limits(self) -> pd.DataFrame:
        """Return the network's limits over time.

        Returns
        -------
        pandas.DataFrame
            One row for each distinct snapshot, in the order in which they were seen: `first_seen`
            and `last_seen` (datetime64[us, UTC]), `source` (the node), `block_height` (Int64), and
            the fields of `NetworkLimits`; `extra` as JSON.

        Raises
        ------
        ArchiveError
            If there is no archive, or the file is damaged.
        """
        rows = read_limits(self.store, self._state()[1])
        frame: pd.DataFrame = rows.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
        return frame

    def status(
        self, *, now: dt.datetime | None = None, count_accounts: bool = True
    ) -> ArchiveStatus:
        """Return what the archive holds, in a few lines.

        Parameters
        ----------
        now
            The moment that its age is told for; without a time zone UTC. By default now.
        count_accounts
            Whether to count the accounts, for which the files since the last checkpoint are read.

        Returns
        -------
        ArchiveStatus
            Its coverage, gaps, rows, files, when it was last asked for, and how old it is.

        Raises
        ------
        ArchiveError
            If there is no archive, or it is damaged.
        """
        return read_status(self.store, now=now, count_accounts=count_accounts)

    def verify(
        self,
        *,
        against: Client | None = None,
        sample: int = 10,
        seed: int | None = None,
        progress: bool | Report | None = False,
    ) -> VerifyReport:
        """Check that the archive is what it says.

        Every file is read: its digest, schema, order, rows and time; then the coverage, the
        checkpoints by a recomputation from the rows, the limits, and whether anything is there that
        is no part of the archive.

        Parameters
        ----------
        against
            A node to ask again for some windows, and to compare with.
        sample
            How many windows, each about half a page of rows.
        seed
            Makes the choice of windows the same each time.
        progress
            As for `load_balance_changes`.

        Returns
        -------
        VerifyReport
            What is wrong, where, and how to mend it; no problems where the archive is whole.

        Raises
        ------
        ArchiveError
            If there is no archive.
        RequestError, DecodeError, IncompleteError, CheckError, ValueError
            As `load_balance_changes`, if a node is asked.
        """
        # What proves an archive stands above it, as it asks nodes too, and reads it by this class.
        room = import_module("balance_analysis.maintenance.verify")
        report: VerifyReport = room.verify(
            self, against=against, sample=sample, seed=seed, progress=progress
        )
        return report

    def _state(self) -> tuple[About, Coverage]:
        """Return what the archive is, and what it holds."""
        return read_about(self.store), read_coverage(self.store)

    def _span(
        self, state: Coverage, start: Instant | None, end: Instant | None, *, partial: bool
    ) -> tuple[int, int]:
        """Return an interval in microseconds; by default from the first complete one to the last.

        With `partial` it may be turned round, and then holds nothing.
        """
        first, last = state.bounds(proven=not partial)
        begin = first if start is None else to_microseconds(start)
        stop = last if end is None else to_microseconds(end)
        if begin < stop or partial:
            return begin, stop
        if start is not None and end is not None:
            raise ValueError(f"start must be before end, but start={start!r} and end={end!r}")
        if first == last:
            raise IncompleteError(f"{self.uri}: nothing is known to be complete; {_TAKE}")
        raise IncompleteError(
            f"{self.uri}: what is complete lies in {range_text(first, last, ' ')}, "
            "nothing of it in what was asked for"
        )

    def _check_covered(self, state: Coverage, start: int, end: int) -> None:
        gaps = state.missing(start, end)
        if not gaps:
            return
        (first, until), more = gaps[0], len(gaps) - 1
        stretch = range_text(first, until, " ")
        if until == first + 1:
            stretch = str(from_microseconds(first))
        why, mend = "is not covered", f"an export that fills gaps asks for it; {_TAKE}"
        if not state.missing(first, until, proven=False):
            why, mend = "was asked for when the node may have forgotten rows of it", _TAKE
        raise IncompleteError(
            f"{self.uri}: {stretch} {why}" + (f", and {more} more" if more else "") + f"; {mend}"
        )


def _within(bound: Filters, wanted: Filters) -> Filters:
    """Return the filters to read by; an account that an archive isn't bound to is refused."""
    for name, values in bound.allowed().items():
        others = sorted(set(wanted.allowed().get(name, ())) - set(values))
        if others:
            raise ArchiveError(
                f"the archive holds only accounts of {name} {', '.join(values)}, not {others[0]}"
            )
    return wanted


def _check_columns(columns: Sequence[str]) -> None:
    names = [columns] if isinstance(columns, str) else list(columns)
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise ValueError(f"a table has no columns {unknown}, only {list(COLUMNS)}")
    if isinstance(columns, str) or not names or len(set(names)) < len(names):
        raise ValueError(f"columns={columns!r} must be a list of at least one, each once")
