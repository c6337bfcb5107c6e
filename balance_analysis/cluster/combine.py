"""Results of slices as one result, equal to that of the whole."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from balance_analysis.analysis.int128 import sum_words, to_balances, words_of
from balance_analysis.analysis.steps import check_fits
from balance_analysis.archive.datafile import FILE_KEY
from balance_analysis.files.atomic import PathLike, make_note, replacing
from balance_analysis.frame import to_plain_arrow
from balance_analysis.rows import account_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray


def in_order(frames: Sequence[pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    """Return the rows of frames sorted by columns of ids; of the same ids as they come."""
    whole = stacked(frames, names)
    return whole.take(np.argsort(_numbers(whole, names), kind="stable")).reset_index(drop=True)


def stacked(frames: Sequence[pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    """Return the rows of frames one after the other; categories are those of all, sorted."""
    dtypes = {}
    for name in names:
        categories = {str(each) for frame in frames for each in frame[name].cat.categories}
        dtypes[name] = pd.CategoricalDtype(pd.Index(sorted(categories), dtype="str"))
    return pd.concat([frame.astype(dtypes) for frame in frames], ignore_index=True)


def _numbers(frame: pd.DataFrame, names: Sequence[str]) -> NDArray[np.int64]:
    """Return a number for each row that sorts as its ids do."""
    ids = [frame[name].cat for name in names]
    return account_numbers([x.codes.to_numpy() for x in ids], [len(x.categories) for x in ids])


def add_flows(frames: Sequence[pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    """Return flows of groups, which may have accounts in several slices, added up.

    Raises
    ------
    OverflowError
        If a sum has more than 38 digits.
    """
    whole = stacked(frames, names)
    starts = whole["start"].dt.tz_convert("UTC").dt.tz_localize(None).to_numpy("M8[us]")
    moments, places = np.unique(starts, return_inverse=True)
    cells = _numbers(whole, names) * len(moments) + places
    _, firsts, places = np.unique(cells, return_index=True, return_inverse=True)
    added = whole.take(firsts).reset_index(drop=True)
    for what in ("inflow", "outflow", "net"):
        words, too_large = sum_words(words_of(pa.array(whole[what])), places, len(added))
        check_fits(too_large, partial(_name, added, names, what))
        # A period that isn't known is so for all accounts: a group's first slice tells.
        added[what] = to_balances(words, added[what].notna().to_numpy())
    for what in ("changes", "unknown"):
        counts = np.zeros(len(added), np.int64)
        np.add.at(counts, places, whole[what].to_numpy())
        added[what] = counts
    return added


def _name(frame: pd.DataFrame, names: Sequence[str], what: str, row: int) -> str:
    ids = ", ".join(f"{name}={frame[name].iloc[row]!r}" for name in names)
    return f"the {what} of {ids}"


def write_frames(frames: Iterable[pd.DataFrame], path: PathLike, *, is_by_account: bool) -> None:
    """Write frames to one Parquet file, one after the other, whole or not at all.

    Parameters
    ----------
    frames
        With the same columns each, at least one.
    path
        The file.
    is_by_account
        Whether to sort each by account, as the files of an archive are.
    """
    with contextlib.ExitStack() as stack:
        temporary, writer = stack.enter_context(replacing(path)), None
        for frame in frames:
            rows = to_plain_arrow(frame)
            if is_by_account:
                order = np.argsort(_numbers(frame, FILE_KEY), kind="stable")
                rows = rows.take(pa.array(order))
            if writer is None:
                schema = rows.schema.with_metadata(make_note({"kind": "analysis"}))
                writer = pq.ParquetWriter(temporary, schema, compression="zstd")
                stack.enter_context(writer)
            writer.write_table(rows)
