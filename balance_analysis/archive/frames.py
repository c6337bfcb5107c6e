"""What is asked for of an archive, as a table, as balances or as a dask DataFrame."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from balance_analysis.analysis.balances import balance_at
from balance_analysis.archive.coverage import check_complete
from balance_analysis.archive.manifest import read_about, read_coverage
from balance_analysis.archive.scan import Chosen, checkpoint_of, files_of
from balance_analysis.errors import ArchiveDamagedError
from balance_analysis.frame import frame_of, to_columns
from balance_analysis.known import note_known
from balance_analysis.rows import canonical
from balance_analysis.schema import (
    ACCOUNT_KEY,
    ARROW_SCHEMA,
    COLUMNS,
    from_microseconds,
    to_microseconds,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import dask.dataframe as dd

    from balance_analysis.archive.store import Store
    from balance_analysis.filters import Filters
    from balance_analysis.schema import Instant


def check_columns(columns: Sequence[str]) -> None:
    """Raise ValueError if these are not some of a table's columns, each once."""
    names = [columns] if isinstance(columns, str) else list(columns)
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise ValueError(f"a table has no columns {unknown}, only {list(COLUMNS)}")
    if isinstance(columns, str) or not names or len(set(names)) < len(names):
        raise ValueError(f"columns={columns!r} must be a list of at least one, each once")


def read_frame(chosen: Chosen, columns: Sequence[str]) -> pd.DataFrame:
    """Return what is asked for of an archive: see `Archive.read`."""
    schema = pa.schema([ARROW_SCHEMA.field(name) for name in columns])
    rows = pa.Table.from_batches(chosen.iter_batches(columns), schema)
    if set(columns) != set(COLUMNS):
        return to_columns(rows)
    # An account's rows stand in time order, in each file and from file to file.
    return frame_of(canonical(rows, is_by_time=True))[list(columns)]


def read_balances(store: Store, filters: Filters, when: Instant, *, partial: bool) -> pd.DataFrame:
    """Return the balance of every account at an instant: see `Archive.balance_at`."""
    moment = to_microseconds(when)
    while True:
        about, state = read_about(store), read_coverage(store)
        about.check_holds(filters)
        if not partial:
            # A row at that very instant would count.
            check_complete(state, min(state.bounds()[0], moment), moment + 1, store.uri)
        begins = [begin for begin in state.checkpoints if begin <= moment]
        since = max(begins, default=min(state.bounds()[0], moment))
        # An account's rows stand in time order from file to file: the balances come first.
        files = [checkpoint_of(since, state.checkpoints[since])] if begins else []
        files += files_of(about, state, (since, moment + 1))
        try:
            table = read_frame(Chosen(store, filters, tuple(files), state.known()), COLUMNS)
        except ArchiveDamagedError:
            # An export may have done away with the balances at the month's start meanwhile.
            if read_coverage(store) == state:
                raise
        else:
            note_known(table, state.known())
            return balance_at(table, when)


def dask_frame(chosen: Chosen, columns: Sequence[str]) -> dd.DataFrame:
    """Return what is asked for of an archive, a partition a file: see `Archive.to_dask`."""
    dask: Any = importlib.import_module("dask.dataframe")  # an extra, untyped in parts
    nothing = replace(chosen, files=())
    parts = chosen.split(1) or [nothing]
    begins = [_begin(part) for part in parts]
    ids = [name for name in columns if name in ACCOUNT_KEY]
    frame: dd.DataFrame = dask.from_map(
        _read_partition,
        parts,
        args=(tuple(columns),),
        meta=dask.utils.clear_known_categories(_read_partition(nothing, columns), ids),
        divisions=(*begins, begins[-1]),
        label="balance-changes",
        enforce_metadata=False,
    )
    return frame


def _read_partition(chosen: Chosen, names: Sequence[str]) -> pd.DataFrame:
    # Not named `columns`: dask would then leave some out where it needs fewer, and their rows come
    # in another order.
    table = read_frame(chosen, names)
    period = pd.DatetimeIndex([_begin(chosen)]).repeat(len(table))
    return table.set_axis(period.rename("period"), axis=0)


def _begin(chosen: Chosen) -> pd.Timestamp:
    """Return when the period of the first file begins."""
    begin = chosen.files[0].begin if chosen.files else 0
    return pd.Timestamp(from_microseconds(begin)).as_unit("us")
