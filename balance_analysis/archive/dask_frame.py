"""An archive as a dask DataFrame: a partition for each of its files."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pyarrow as pa

from balance_analysis.frame import empty_table, to_columns, to_frame
from balance_analysis.schema import ACCOUNT_KEY, ARROW_SCHEMA, COLUMNS, from_microseconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    import dask.dataframe as dd

    from balance_analysis.archive.scan import Chosen, File

INDEX: Final = "period"


def make_frame(chosen: Chosen, columns: Sequence[str]) -> dd.DataFrame:
    """Return what is chosen of an archive as a dask DataFrame: see `Archive.to_dask`."""
    dask: Any = importlib.import_module("dask.dataframe")  # an extra, untyped in parts
    reader = _Reader(chosen, tuple(columns))
    ids = [name for name in columns if name in ACCOUNT_KEY]
    meta = dask.utils.clear_known_categories(reader(None), ids)
    begins = [_moment(file.begin) for file in chosen.files] or [_moment(0)]
    files: list[File | None] = [*chosen.files]
    frame: dd.DataFrame = dask.from_map(
        reader,
        files or [None],
        meta=meta,
        divisions=(*begins, begins[-1]),
        label="balance-changes",
        enforce_metadata=False,
    )
    return frame


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads one partition, wherever it is called.

    Attributes
    ----------
    chosen
        What is asked for of the archive.
    columns
        Which columns of it.
    """

    chosen: Chosen
    columns: tuple[str, ...]

    def __call__(self, file: File | None) -> pd.DataFrame:
        """Return the rows of a file; `None` stands for no rows."""
        if file is None:
            return self._indexed(empty_table()[list(self.columns)], 0)
        names = self.columns
        schema = pa.schema([ARROW_SCHEMA.field(name) for name in names])
        parts = [rows.cast(schema) for rows in self.chosen.batches(file, names)]
        rows = pa.concat_tables([schema.empty_table(), *parts])
        is_table = set(names) == set(COLUMNS)
        table = to_frame(rows)[list(names)] if is_table else to_columns(rows)
        return self._indexed(table, file.begin)

    def _indexed(self, table: pd.DataFrame, begin: int) -> pd.DataFrame:
        period = pd.DatetimeIndex([_moment(begin)] * 1).repeat(len(table))
        return table.set_axis(period.rename(INDEX), axis=0)


def _moment(microseconds: int) -> Any:  # noqa: ANN401 - a Timestamp
    return pd.Timestamp(from_microseconds(microseconds)).as_unit("us")
