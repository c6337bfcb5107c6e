"""Load straight into one Parquet file, in bounded memory, with a side file to go on from.

Rows are written in time order, one row group after the other; inside a row group they stand in the
table's order. The file appears only when it is whole. A load that fails or is interrupted leaves
what is complete beside it, in a file that says so of itself.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from balance_analysis.errors import ArchiveError
from balance_analysis.files.atomic import (
    PARTIAL,
    PathLike,
    check_output,
    flush,
    make_note,
    name_file,
    read_note,
)
from balance_analysis.load.request import OnBadRows, make_request
from balance_analysis.load.session import Head
from balance_analysis.load.stream import Load
from balance_analysis.node.decode import BadRow
from balance_analysis.node.query import filter_parameters
from balance_analysis.rows import canonical
from balance_analysis.schema import ARROW_SCHEMA, Instant
from balance_analysis.spans import clipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from balance_analysis.load.progress import Report
    from balance_analysis.load.request import LoadRequest
    from balance_analysis.node.client import Client
    from balance_analysis.node.walk import Step

ROW_GROUP: Final = 1 << 17
"""Rows that are sorted and written together, at least."""


def load_to_parquet(
    client: Client,
    path: PathLike,
    *,
    start: Instant | None = None,
    end: Instant | None = None,
    asset_id: str | None = None,
    party_ids: str | Iterable[str] = (),
    market_ids: str | Iterable[str] = (),
    account_types: str | Iterable[str] = (),
    page_size: int = 5000,
    workers: int = 4,
    on_bad_rows: OnBadRows = "raise",
    progress: bool | Report | None = None,
    resume: bool = False,
) -> dict[str, Any]:
    """Load all balance changes in [start, end) into a Parquet file, in bounded memory.

    Parameters
    ----------
    client, start, end, asset_id, party_ids, market_ids, account_types, page_size, workers
        As for `load_balance_changes`.
    on_bad_rows, progress
        As for `load_balance_changes`.
    path
        The file; one that stands there is replaced when the load is whole. `read_parquet` gives the
        table. A load that fails or is interrupted keeps what is complete in `PATH.partial`.
    resume
        Go on from `PATH.partial`, if it is there: its interval is taken, and its filters must be
        those given.

    Returns
    -------
    dict
        How it was loaded, as in the `attrs` of a loaded table.

    Raises
    ------
    ArchiveError
        If there is a `PATH.partial` to go on from, but of another load, or damaged.
    RequestError, DecodeError, IncompleteError, CheckError, ValueError
        As `load_balance_changes`; ValueError also if the file would lie in an archive.
    OSError
        If the file can't be written.
    """
    request = make_request(
        start=start,
        end=end,
        asset_id=asset_id,
        party_ids=party_ids,
        market_ids=market_ids,
        account_types=account_types,
        page_size=page_size,
        workers=workers,
        on_bad_rows=on_bad_rows,
    )
    target = check_output(path)
    side = partial_path(path)
    check_output(side)
    before = _read_side(side, request) if resume and side.exists() else None
    load = Load(request) if before is None else before.load
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with (
            temporary.open("xb") as sink,
            pq.ParquetWriter(sink, ARROW_SCHEMA, compression="zstd") as writer,
        ):
            written = _Written(writer)
            try:
                if before is not None:
                    written.copy(before)
                for step in load.run_in_time_order(client, progress):
                    written.add(step)
                written.write_group()
            except BaseException:
                written.write_group()
                written.note(load, whole=False)
                raise
            written.note(load, whole=True)
        flush(temporary)
        temporary.replace(target)
    except BaseException as error:
        name_file(error, target)
        _keep(temporary, side)
        raise
    flush(target.parent)
    side.unlink(missing_ok=True)
    return load.describe()


def partial_path(path: PathLike) -> Path:
    """Return where a load to a file leaves what is complete when it doesn't finish."""
    return Path(f"{os.fspath(path)}.partial")


class _Written:
    """What has been written of a load, in time order.

    Attributes
    ----------
    settled_until
        All rows before this moment are written, microseconds; `None` before the first.
    rows
        How many these are.
    """

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer = writer
        self._steps: list[Step] = []
        self._waiting = 0
        self.settled_until: int | None = None
        self._copied_until: int | None = None
        self.rows = 0

    def copy(self, before: _Side) -> None:
        """Take over what a side file holds."""
        for rows in before.row_groups():
            self._writer.write_table(rows)
            self.rows += rows.num_rows
        self.settled_until = self._copied_until = before.settled_until

    def add(self, step: Step) -> None:
        """Take the next step; its rows wait until they fill a row group."""
        self._steps.append(step)
        self._waiting += step.num_rows
        if self._waiting >= ROW_GROUP:
            self.write_group()

    def write_group(self) -> None:
        """Write the rows that wait."""
        # Taken first: if this is interrupted, they are asked for again, never written twice.
        steps, self._steps, self._waiting = self._steps, [], 0
        if not steps:
            return
        batches = [batch for step in steps for batch in step.batches]
        if batches:
            rows = canonical(pa.Table.from_batches(batches, ARROW_SCHEMA))
            self._writer.write_table(rows)
            self.rows += rows.num_rows
        self.settled_until = steps[-1].end

    def note(self, load: Load, *, whole: bool) -> None:
        """Say in the file how it was loaded, and which part it is unless it is whole."""
        if whole:
            self._writer.add_key_value_metadata(make_note({"load": load.describe()}))
        elif self.settled_until != self._copied_until and load.interval is not None:
            part = {
                "interval": load.interval,
                "is_open": [load.request.start is None, load.request.is_until_now],
                "settled_until": self.settled_until,
                "filters": filter_parameters(load.request.filters),
                "rows": self.rows,
                "cost": load.cost,
                "nodes": load.nodes,
                "answered": load.answered,
                "remembered": load.remembered,
                "incomplete": load.incomplete,
                "known_until": load.known_until,
                "head": asdict(load.head),
                "bad_rows": [(bad.raw, bad.reason, bad.time) for bad in load.bad_rows],
            }
            self._writer.add_key_value_metadata(make_note({PARTIAL: part}))


@dataclass(frozen=True, slots=True)
class _Side:
    """What a load to a file left when it didn't finish."""

    path: Path
    load: Load
    settled_until: int

    def row_groups(self) -> Iterator[pa.Table]:
        """Yield the complete rows, a row group at a time."""
        with pq.ParquetFile(self.path) as file:
            for number in range(file.num_row_groups):
                rows = file.read_row_group(number).cast(ARROW_SCHEMA)
                times = rows["timestamp"].cast(pa.int64())
                yield rows.filter(pc.less(times, self.settled_until))


def _read_side(path: Path, request: LoadRequest) -> _Side:
    """Return a side file as a load to go on with; it must be one of the same accounts."""
    try:
        with pq.ParquetFile(path) as file:
            part = read_note(file)[PARTIAL]
            restart, kept = _last_block(file, int(part["settled_until"]))
        interval = (int(part["interval"][0]), int(part["interval"][1]))
        has_no_start, is_until_now = part["is_open"]
        start = None if has_no_start else interval[0]
        known_until = part["known_until"]
        load = Load(
            replace(request, start=start, end=interval[1], is_until_now=is_until_now),
            interval=interval,
            settled=[(interval[0], restart)],
            rows=kept,
            restart=restart if kept < part["rows"] else None,
            bad_rows=dict.fromkeys(BadRow(*bad) for bad in part["bad_rows"]),
            nodes=part["nodes"],
            # What is asked for again is known as far as the new answers go.
            answered={
                source: list(clipped(spans, interval[0], restart))
                for source, spans in part["answered"].items()
            },
            remembered=part["remembered"],
            incomplete=list(clipped(part["incomplete"], interval[0], restart)),
            known_until=None if known_until is None or known_until >= restart else known_until,
            cost=part["cost"],
            head=Head(**part["head"]),
        )
        filters = [tuple(pair) for pair in part["filters"]]
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise ArchiveError(
            f"{path} can't be gone on with: {error}; remove it and load anew"
        ) from error
    if filters != filter_parameters(request.filters):
        raise ArchiveError(
            f"{path} is part of a load with other filters: {filters}; give the same ones, "
            "or load anew without resuming"
        )
    return _Side(path, load, restart)


def _last_block(file: pq.ParquetFile, settled_until: int) -> tuple[int, int]:
    """Return the time of the last row, and how many rows stand before it; without rows, the end.

    The last block is asked for again, which shows that the node is one of the same network.
    """
    columns = file.read(["timestamp"])["timestamp"].cast(pa.int64())
    times = columns.filter(pc.less(columns, settled_until))
    if not len(times):
        return settled_until, 0
    last: int = pc.max(times).as_py()
    return last, len(times) - pc.sum(pc.equal(times, last)).as_py()


def _keep(temporary: Path, side: Path) -> None:
    """Make a file that was not finished the side file, if it holds a readable part of the load."""
    try:
        with pq.ParquetFile(temporary) as file:
            is_part = PARTIAL in read_note(file)
    except (pa.ArrowException, OSError):
        is_part = False
    if is_part:
        flush(temporary)
        temporary.replace(side)
    else:
        temporary.unlink(missing_ok=True)
