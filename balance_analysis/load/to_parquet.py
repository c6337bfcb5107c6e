"""Load straight into one Parquet file, in bounded memory, with a side file to go on from.

Rows are written in time order, one row group after the other; inside a row group they stand in the
table's order. The file appears only when it is whole. A load that fails or is interrupted leaves
what is complete beside it, in a file that says so of itself.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Unpack

import msgspec
import pyarrow as pa
from pyarrow.parquet import ParquetFile, ParquetWriter

from balance_analysis.errors import ArchiveError
from balance_analysis.files.atomic import PathLike, check_output, flush, replacing_file
from balance_analysis.files.parquet import (
    PARTIAL,
    make_note,
    open_parquet,
    parquet_writer,
    read_note,
)
from balance_analysis.filters import make_filters, take_names, takes
from balance_analysis.labels import note_names
from balance_analysis.load.request import LoadKeywords, LoadRequest, Report, make_request
from balance_analysis.load.stream import Load
from balance_analysis.node.client import Client
from balance_analysis.node.walk import Step
from balance_analysis.rows import canonical, last_block, within
from balance_analysis.schema import ARROW_SCHEMA
from balance_analysis.spans import EVER
from balance_analysis.text import range_text

ROW_GROUP: Final = 1 << 17
"""Rows that are sorted and written together, at least."""


@takes(LoadKeywords, make_request, make_filters)
def load_to_parquet(
    client: Client,
    path: PathLike,
    *,
    progress: bool | Report | None = None,
    resume: bool = False,
    **options: Unpack[LoadKeywords],
) -> dict[str, Any]:
    """Load all balance changes in [start, end) into a Parquet file, in bounded memory.

    Parameters
    ----------
    client, start, end, asset_id, party_ids, market_ids, account_types, assets, labels
        As for `load_balance_changes`.
    page_size, workers, on_bad_rows, progress
        As for `load_balance_changes`.
    path
        The file; one that stands there is replaced when the load is whole. `read_parquet` gives the
        table. A load that fails or is interrupted keeps what is complete in `PATH.partial`.
    resume
        Go on from `PATH.partial`, if it is there; else load anew from `start` or to `end`, of which
        one must be given then. Its interval is taken; a bound that is given must
        be that moment or the same text ("7d" is not counted anew). Its filters must be those given.

    Returns
    -------
    dict
        How it was loaded, as in the `attrs` of a loaded table.

    Raises
    ------
    ArchiveError
        If there is a `PATH.partial` to go on from, but of another load, or damaged.
    RequestError, DecodeError, IncompleteError, CheckError, ValueError
        As `load_balance_changes`; ValueError also if the file would lie in an archive, or if there
        is nothing to resume and no interval is given.
    OSError
        If the file can't be written.
    """
    names = take_names(options)
    request = make_request(**options)
    target = check_output(path)
    side = partial_path(path)
    check_output(side)
    is_resumed = resume and side.exists()
    if resume and not is_resumed and request.start is None and request.is_until_now:
        raise ValueError(f"there is nothing to resume: {side} doesn't exist; give start or end")
    load = _read_part(side, request) if is_resumed else Load(request)
    with (
        replacing_file(target, partial(_keep, side=side)) as temporary,
        parquet_writer(temporary, ARROW_SCHEMA) as writer,
    ):
        written = _Writer(writer)
        try:
            if is_resumed:
                written.copy(side, load.settled[0][1])
            for step in load.in_time_order(load.run(client, progress)):
                written.add(step)
            written.write_group()
        except BaseException:
            written.write_group()
            written.note_part(load)
            raise
        told = note_names(load.describe(), names)
        writer.add_key_value_metadata(make_note({"load": told}))
    side.unlink(missing_ok=True)
    return told


def partial_path(path: PathLike) -> Path:
    """Return where a load to a file leaves what is complete when it doesn't finish."""
    return Path(f"{os.fspath(path)}.partial")


class _Writer:
    """Writes a load's rows in time order, whole row groups at a time.

    All rows before `settled_until` are written: so many `rows`.
    """

    def __init__(self, writer: ParquetWriter) -> None:
        self._writer = writer
        self._steps: list[Step] = []
        self.settled_until: int | None = None
        self._copied_until: int | None = None
        self.rows = 0

    def copy(self, side: Path, settled_until: int) -> None:
        """Take over what a side file holds."""
        with open_parquet(side) as file:
            for number in range(file.num_row_groups):
                rows = file.read_row_group(number).cast(ARROW_SCHEMA)
                self._write(within(rows, EVER[0], settled_until))
        self.settled_until = self._copied_until = settled_until

    def add(self, step: Step) -> None:
        """Take the next step; its rows wait until they fill a row group."""
        self._steps.append(step)
        if sum(each.num_rows for each in self._steps) >= ROW_GROUP:
            self.write_group()

    def write_group(self) -> None:
        """Write the rows that wait."""
        # Taken first: if this is interrupted, they are asked for again, never written twice.
        steps, self._steps = self._steps, []
        if batches := [batch for step in steps for batch in step.batches]:
            self._write(canonical(pa.Table.from_batches(batches, ARROW_SCHEMA)))
        if steps:
            self.settled_until = steps[-1].end

    def _write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows)
        self.rows += rows.num_rows

    def note_part(self, load: Load) -> None:
        """Say in the file which part of a load it is, if it is more than what was taken over."""
        if self.settled_until in (None, self._copied_until) or load.interval is None:
            return
        settled = [(load.interval[0], self.settled_until)]
        part = msgspec.to_builtins(replace(load, settled=settled, rows=self.rows))
        self._writer.add_key_value_metadata(make_note({PARTIAL: part}))


def _read_part(path: Path, request: LoadRequest) -> Load:
    """Return a side file as a load to go on with, if it is one of what is asked for."""
    try:
        with open_parquet(path) as file:
            load = msgspec.convert(read_note(file)[PARTIAL], Load)
            ((start, settled_until),) = load.settled
            restart, kept = _last_block(file, settled_until)
    except (pa.ArrowException, OSError, KeyError, ValueError, msgspec.ValidationError) as error:
        raise ArchiveError(
            f"the load can't be resumed from {path}: {error}; remove the file and load again"
        ) from error
    _check_same(path, load, request)
    return replace(
        load,
        request=replace(
            load.request,
            page_size=request.page_size,
            workers=request.workers,
            on_bad_rows=request.on_bad_rows,
        ),
        settled=[(start, restart)],
        rows=kept,
        restart=restart if kept < load.rows else None,
        # What is asked for again is known as far as the new answers go.
        evidence=load.evidence.between(start, restart),
    )


def _check_same(path: Path, load: Load, request: LoadRequest) -> None:
    """Raise if a part is one of other accounts, or of another interval than one that is given."""
    first = load.request
    if first.filters != request.filters:
        chosen = [f"{name} {', '.join(ids)}" for name, ids in first.filters.allowed().items()]
        raise ArchiveError(
            f"{path} is part of a load of {' and '.join(chosen) or 'all accounts'}; give the same "
            "filters to resume it, or remove the file and load again"
        )
    kept: Any = load.interval
    given = (request.start, None if request.is_until_now else request.end)
    asked = tuple(
        old if new is None or (text is not None and text == earlier) else new
        for new, old, text, earlier in zip(given, kept, request.texts, first.texts, strict=True)
    )
    if asked != kept:
        raise ArchiveError(
            f"{path} is part of a load of {range_text(*kept)}, not of {range_text(*asked)}; omit "
            "start and end to resume it, or remove the file and load again"
        )


def _last_block(file: ParquetFile, settled_until: int) -> tuple[int, int]:
    """Return the time of the last row, and how many rows stand before it; without rows, the end.

    The last block is asked for again, which shows that the node is one of the same network.
    """
    rows = within(file.read(["timestamp"]), EVER[0], settled_until)
    last, block = last_block(rows)
    return (last, rows.num_rows - block.num_rows) if rows.num_rows else (settled_until, 0)


def _keep(temporary: Path, side: Path) -> None:
    """Make a file that was not finished the side file, if it holds a readable part of the load."""
    try:
        with open_parquet(temporary) as file:
            is_part = PARTIAL in read_note(file)
    except (pa.ArrowException, OSError):
        is_part = False
    if is_part:
        flush(temporary)
        temporary.replace(side)
    else:
        temporary.unlink(missing_ok=True)
