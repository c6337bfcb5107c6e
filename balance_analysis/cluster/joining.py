"""Results of slices as one result, equal to that of the whole."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from balance_analysis.analysis.groups import make_groups
from balance_analysis.analysis.integers import sum_words, to_balances, words_of
from balance_analysis.analysis.steps import check_fits, make_steps
from balance_analysis.analysis.totals import totals
from balance_analysis.archive.chosen import FILE_KEY
from balance_analysis.archive.writing import PathLike, make_note, replacing
from balance_analysis.rows import account_numbers
from balance_analysis.schema import ACCOUNT_KEY, ID_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

SIZE: Final = "size"

Sums = list[tuple[pd.DataFrame, pd.DataFrame]]
"""Totals of some accounts each, and how many accounts each of their groups has."""


def in_order(frames: Sequence[pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    """Return the rows of frames sorted by columns of ids; of the same ids as they come.

    Categories are those of all frames, sorted.
    """
    whole = _joined(frames, names)
    return whole.take(np.argsort(_numbers(whole, names), kind="stable")).reset_index(drop=True)


def _joined(frames: Sequence[pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
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
    whole = _joined(frames, names)
    starts = whole["start"].dt.tz_convert("UTC").dt.tz_localize(None).to_numpy("M8[us]")
    moments, places = np.unique(starts, return_inverse=True)
    cells = _numbers(whole, names) * len(moments) + places
    _, firsts, places = np.unique(cells, return_index=True, return_inverse=True)
    added = whole.take(firsts).reset_index(drop=True)
    for what in ("inflow", "outflow", "net"):
        words, too_large = sum_words(words_of(pa.array(whole[what])), places, len(added))
        check_fits(too_large, partial(_name, added, names, what))
        added[what] = to_balances(words)
    for what in ("changes", "unknown"):
        counts = np.zeros(len(added), np.int64)
        np.add.at(counts, places, whole[what].to_numpy())
        added[what] = counts
    return added


def _name(frame: pd.DataFrame, names: Sequence[str], what: str, row: int) -> str:
    ids = ", ".join(f"{name}={frame[name].iloc[row]!r}" for name in names)
    return f"the {what} of {ids}"


def partial_totals(
    table: pd.DataFrame,
    *,
    by: Sequence[str],
    opening: pd.DataFrame | None,
    **asked: Any,  # noqa: ANN401 - what `totals` takes
) -> Sums:
    """Return totals of a slice, to be added to those of others by `add_totals`.

    Of negative balances a part may have more than 38 digits where the whole has not: then there
    are more parts, of fewer accounts.
    """
    accounts = make_steps(table, opening).accounts
    try:
        found = totals(table, by=by, opening=opening, **asked)
    except OverflowError:
        keys = list(accounts.astype("str").itertuples(index=False, name=None))
        halves = keys[: len(keys) // 2], keys[len(keys) // 2 :]
        parts: Sums = []
        for half in halves:
            held = None if opening is None else _of(opening, half)
            parts += partial_totals(_of(table, half), by=by, opening=held, **asked)
        return parts
    groups = make_groups(accounts, by)
    return [(found, groups.ids.assign(**{SIZE: groups.sizes}))]


def _of(frame: pd.DataFrame, accounts: Sequence[tuple[str, ...]]) -> pd.DataFrame:
    keys = pd.MultiIndex.from_frame(frame[list(ACCOUNT_KEY)].astype("str"))
    return frame[keys.isin(accounts)]


def add_totals(
    parts: Sums,
    *,
    by: Sequence[str],
    **asked: Any,  # noqa: ANN401 - what `totals` takes
) -> pd.DataFrame:
    """Return totals of groups, which may have accounts in several slices, added up.

    A group of a slice is itself a step function, of an account whose balance is the group's total:
    `totals` of such accounts are the totals of all.

    Raises
    ------
    OverflowError
        If a total has more than 38 digits.
    """
    spare = [name for name in ACCOUNT_KEY if name not in by]
    if not spare:
        return in_order([found for found, _ in parts], by)
    rows = _labelled([found for found, _ in parts], by, spare)
    rows["timestamp"] = rows["timestamp"].dt.tz_convert("UTC")
    groups = _labelled([sizes for _, sizes in parts], by, spare)

    def added(what: str, before: Any) -> pd.DataFrame:  # noqa: ANN401 - a column
        table = rows[rows[what].notna()].assign(balance=lambda some: some[what])
        opening = groups.assign(balance=before)
        return totals(table, by=by, opening=opening, **asked)

    nothing = to_balances(np.zeros((len(groups), 2), np.int64), np.zeros(len(groups), bool))
    found = added("total", nothing)
    for what, before in (("known", 0), ("unknown", groups[SIZE])):
        counts = pa.array(added(what, before)["total"]).cast(pa.int64())
        found[what] = counts.to_numpy(zero_copy_only=False)
    return found


def _labelled(
    frames: Sequence[pd.DataFrame], by: Sequence[str], spare: Sequence[str]
) -> pd.DataFrame:
    """Return frames as one whose rows are of accounts of their own, frame by frame."""
    whole = _joined(frames, by)
    numbers = np.repeat(np.arange(len(frames)), [len(frame) for frame in frames])
    names = pd.Index([f"{number:09}" for number in range(len(frames))], dtype="str")
    labels = pd.Categorical.from_codes(numbers, names)
    return whole.assign(**dict.fromkeys(spare[1:], ""), **{spare[0]: labels})


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
    writer: pq.ParquetWriter | None = None
    with replacing(path) as temporary:
        try:
            for frame in frames:
                rows = _to_arrow(frame)
                if is_by_account:
                    order = np.argsort(_numbers(frame, FILE_KEY), kind="stable")
                    rows = rows.take(pa.array(order))
                if writer is None:
                    schema = rows.schema.with_metadata(make_note({"kind": "analysis"}))
                    writer = pq.ParquetWriter(temporary, schema, compression="zstd")
                writer.write_table(rows)
        finally:
            if writer is not None:
                writer.close()


def _to_arrow(frame: pd.DataFrame) -> pa.Table:
    columns: dict[str, Any] = {}
    for name, column in frame.items():
        if isinstance(column.dtype, pd.CategoricalDtype):
            names = pa.array(column.cat.categories.astype("str"), pa.string())
            codes = pa.array(column.cat.codes.to_numpy().astype("int32"))
            columns[str(name)] = pa.DictionaryArray.from_arrays(codes, names).cast(ID_TYPE)
        else:
            columns[str(name)] = pa.array(column, from_pandas=True)
    return pa.table(columns)
