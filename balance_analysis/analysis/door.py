"""Let analysis functions accept a table, a history or an archive, and return one frame.

A decorated function takes slices of accounts and yields a frame for each; a table is one slice. The
results of an archive's slices are combined into the result for the whole table: rows are
concatenated, sums of groups added. The archive decides where slices are computed.

`history.over_slices` decides whether a source is a table or an archive. This module also groups
accounts, and converts amounts to whole units of their asset, which are floats.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.analysis.grid import Grid
from balance_analysis.analysis.history import AccountSlices, History, Source, over_slices
from balance_analysis.analysis.steps import Columns, join
from balance_analysis.errors import check_frame
from balance_analysis.table import schema
from balance_analysis.table.display import UNITS_KEY, with_names
from balance_analysis.table.frame import Table, is_amounts, to_amounts
from balance_analysis.table.known import KNOWN_KEY, ROWS_KEY, note_known, note_rows
from balance_analysis.table.names import AssetsLike, carried, names_in, names_of
from balance_analysis.table.text import list_text

T = TypeVar("T")
P = ParamSpec("P")


def any_source(
    function: Callable[Concatenate[AccountSlices, P], Iterator[pd.DataFrame]],
) -> Callable[Concatenate[Source, P], pd.DataFrame]:
    """Let a function that yields a frame per slice take any source and return one frame.

    The source's names are copied to the result's attrs. A long result also gets `symbol` and
    `label` as its first columns, as from `labelled`, unless it already has them.
    """

    def frames(slices: AccountSlices, *args: P.args, **options: P.kwargs) -> Iterator[pd.DataFrame]:
        names = carried(slices.attrs.get(schema.ATTRS_KEY))
        for result in function(slices, *args, **options):
            frame = pd.DataFrame(result)  # not a Table, whose attrs would be merged
            frame.attrs = dict(result.attrs)
            if names:
                frame.attrs[schema.ATTRS_KEY] = {**frame.attrs.get(schema.ATTRS_KEY, {}), **names}
            if _is_table(frame) and slices.outline.has_openings:  # the result has none
                note_known(frame, None, None, nothing_before=False)
            yield frame

    signature = inspect.signature(function)

    @wraps(function)
    def wrapper(
        source: Any = None,  # noqa: ANN401 - open_history checks it
        *args: P.args,
        **options: P.kwargs,
    ) -> pd.DataFrame:
        function(source, *args, **options)  # unknown options raise before anything is read
        return over_slices(source, lambda slices: stacked([*frames(slices, *args, **options)]))

    first, *others = signature.parameters.values()
    parameters = [first.replace(annotation="Source"), *others]
    shown = signature.replace(parameters=parameters, return_annotation="pd.DataFrame")
    vars(wrapper).update(frames=frames, __signature__=shown)
    return cast("Callable[Concatenate[Source, P], pd.DataFrame]", wrapper)


def frames_of(function: Callable[..., pd.DataFrame]) -> Callable[..., Iterator[pd.DataFrame]]:
    """Return the generator that yields a function's results slice by slice: see `any_source`.

    Raises
    ------
    TypeError
        If the function isn't decorated with `any_source`.
    """
    frames = getattr(function, "frames", None)
    if frames is None:
        raise TypeError(f"{function!r} isn't a balance_analysis function that takes an archive")
    return cast("Callable[..., Iterator[pd.DataFrame]]", frames)


def _is_table(frame: pd.DataFrame) -> bool:
    """Return whether a result is a table with metadata, such as that of `deltas`."""
    return not {KNOWN_KEY, ROWS_KEY}.isdisjoint(frame.attrs.get(schema.ATTRS_KEY, {}))


def stacked(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Combine results for different accounts into one, in a table's order, with their names."""
    whole = first = frames[0]
    notes = first.attrs.get(schema.ATTRS_KEY, {})
    ids = [str(name) for name in first if name in schema.ACCOUNT_KEY]
    if frames[1:]:
        if "asset_id" in first.columns.names:
            whole = pd.concat(frames, axis="columns", sort=False).sort_index(axis="columns")
        else:
            whole = concatenated(frames, ids)
            order = np.argsort(schema.number_ids(whole[ids]), kind="stable")
            whole = whole.take(order).reset_index(drop=True)
    is_table = _is_table(first)
    whole = Table(whole) if is_table else whole
    whole.attrs = {**first.attrs, schema.ATTRS_KEY: {**notes}} if notes else dict(first.attrs)
    if is_table and (frames[1:] or ROWS_KEY not in notes):
        note_rows(whole)
    return with_names(whole, names_in(notes)) if ids and carried(notes) else whole


RESERVED_COLUMNS: Final = frozenset(
    (
        *("accounts", "active", "after", "average", "before", "change", "change_percent"),
        *("changes", "close", "closing", "cumulative_share", "depth", "drawdown", "drawdown_at"),
        *("end", "first_seen", "high", "inflow", "internal", "known", "known_share", "last_seen"),
        *("low", "maximum", "maximum_at", "minimum", "minimum_at", "net", "open", "opening"),
        *("outflow", "peak", "peak_at", "rows", "share", "start", "state", "total", "unknown"),
        "zero_share",
    )
)
"""Columns of results: callers can't group by a column with one of these names."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of accounts that share their ids in some columns.

    Attributes
    ----------
    ids
        Those columns, one row per group, sorted.
    numbers
        Each account's group, as a row number of `ids`.
    """

    ids: pd.DataFrame
    numbers: schema.Ints

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.ids)

    @property
    def sizes(self) -> schema.Ints:
        """The number of accounts in each group."""
        return self.count(slice(None))

    def count(self, accounts: schema.Mask | slice) -> schema.Ints:
        """Return how many of the accounts in a mask each group has."""
        return np.bincount(self.numbers[accounts], minlength=len(self))


def make_groups(history: History, names: Sequence[str]) -> Groups:
    """Group accounts that share their values in the columns of `group_names`.

    NA is a value, sorted last.

    Raises
    ------
    ValueError
        If an account has two values in a column.
    """
    ids, numbers = schema.distinct_ids(history.group_columns(names))
    return Groups(ids, numbers)


def group_names(by: str | Sequence[str], known: Sequence[str] = schema.ACCOUNT_KEY) -> list[str]:
    """Return the columns to group by.

    "asset_id" is put first if missing, because amounts of different assets never mix.

    Raises
    ------
    TypeError, ValueError
        If `by` has an unknown name, a name twice, or one of `RESERVED_COLUMNS`.
    """
    if not isinstance(by, Iterable):
        raise TypeError(f"by must name columns of {known}, not {by!r}")
    names = [by] if isinstance(by, str) else list(by)
    unknown = [str(name) for name in names if name not in known]
    if unknown or len(set(names)) < len(names):
        near = [x for name in unknown for x in difflib.get_close_matches(name, known, 1)]
        hint = "a table may have others: table['desk'] = table['party_id'].map(desks)"
        if near:
            hint = f"did you mean {' and '.join(map(repr, near))}?"
        raise ValueError(f"by must name columns of {[*known]}, each once, not {names}; {hint}")
    if taken := RESERVED_COLUMNS.intersection(names):
        raise ValueError(f"by={sorted(taken)}: a result has a column of that name; rename your own")
    return names if "asset_id" in names else ["asset_id", *names]


def concatenated(frames: Sequence[pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    """Concatenate frames; the ids in `names` get the categories of all frames."""
    dtypes = {}
    for name in names:
        categories = {str(id_) for frame in frames for id_ in frame[name].cat.categories}
        dtypes[name] = pd.CategoricalDtype(pd.Index(sorted(categories), dtype="str"))
    return pd.concat([frame.astype(dtypes) for frame in frames], ignore_index=True)


@dataclass(frozen=True, slots=True)
class Cells:
    """Figures of groups of accounts that add up over accounts.

    Attributes
    ----------
    ids
        The groups' ids, sorted.
    by_group
        Arrays with an entry for each group, such as the number of its accounts.
    columns
        Columns of cells, in any order: `groups`, the number of the group, and others. Empty if
        `by_group` has everything.
    """

    ids: pd.DataFrame
    by_group: Columns
    columns: Columns


def join_cells(parts: Sequence[Cells]) -> Cells:
    """Combine the cells of all parts, consuming them."""
    if len(parts) == 1:
        return parts[0]
    names, sizes = [*map(str, parts[0].ids)], [len(part.ids) for part in parts]
    ids, numbers = schema.distinct_ids(concatenated([part.ids for part in parts], names))
    by_group = {
        name: np.zeros((len(ids), *column.shape[1:]), np.int64)
        for name, column in parts[0].by_group.items()
    }
    for part, places in zip(parts, np.split(numbers, np.cumsum(sizes[:-1])), strict=True):
        for name, column in part.by_group.items():
            by_group[name][places] += column
        if part.columns:
            groups = part.columns["groups"]
            part.columns["groups"] = places.astype(groups.dtype)[groups]
    return Cells(ids, by_group, join([part.columns for part in parts]))


def each_group(
    source: AccountSlices,
    names: Sequence[str],
    grid: Grid | None,
    part: Callable[[History], Sequence[Cells]],
    finish: Callable[[Sequence[Cells]], T],
) -> Iterator[T]:
    """Yield `finish`'s result for complete groups.

    Parameters
    ----------
    source
        The accounts.
    names
        The columns to group by. With the party among them, each slice has complete groups.
    grid
        Restricts the rows to those that it needs; `None` for all.
    part
        Returns the cells of a slice's accounts.
    finish
        Returns the result for the cells of complete groups.
    """
    if "party_id" in names:
        yield from source.map(lambda history: finish(part(history)), grid, per_point=True)
    else:
        parts = zip(*source.map(part, grid), strict=True)
        yield finish([join_cells(cells) for cells in parts])


def to_units(data: pd.DataFrame, assets: AssetsLike | None = None) -> pd.DataFrame:
    """Convert amounts to whole units of their asset, as the nearest float64.

    Parameters
    ----------
    data
        A table, or any frame with `asset_id` and columns of Arrow decimals, such as the results of
        `balance_at` and `summarize_accounts`; or a frame with `asset_id` as a level of its columns,
        such as the result of `balance_series`.
    assets
        As for `read_assets`: {asset_id: decimals}, a mapping with more about each asset, or a
        file; by default the assets in the attrs of `data`. A whole unit of an asset with 18
        decimals has 10**18 smallest units. Assets that don't occur in `data` are ignored.

    Returns
    -------
    pandas.DataFrame
        A copy of `data` whose columns of amounts are float64: the exact quotient, rounded once to
        the nearest float. NA becomes NaN. Columns of amounts hold Arrow decimals or objects
        (`Decimal` or integers), or are called `balance`; other integers are counts.

    Raises
    ------
    ValueError
        If the decimals of an asset in `data` are unknown, or the file is malformed.
    TypeError
        If `data` has no column of amounts.
    OSError
        If the file can't be read.

    Examples
    --------
    >>> import pandas as pd
    >>> from balance_analysis.table.frame import BALANCE_DTYPE
    >>> data = pd.DataFrame({"asset_id": ["USDT", "VEGA"],
    ...                      "balance": pd.array([1_500_000, 2 * 10**18], dtype=BALANCE_DTYPE)})
    >>> to_units(data, {"USDT": 6, "VEGA": 18})
      asset_id  balance
    0     USDT      1.5
    1     VEGA      2.0
    """
    check_frame(data)
    known, is_wide = names_of(data, assets), "asset_id" in data.columns.names
    if not is_wide and "asset_id" not in data:
        raise ValueError("the frame has no column asset_id, so the unit of its amounts is unknown")
    exact = [*_amounts_in(data)]
    columns = data.columns[[place for place, _ in exact]]
    assets_of = columns.get_level_values("asset_id") if is_wide else data["asset_id"]
    ids = pd.Categorical(assets_of).remove_unused_categories()
    present = [*map(str, ids.categories), *["NA"] * bool((ids.codes < 0).any())]
    if missing := [asset for asset in present if asset not in known.assets]:
        raise ValueError(
            f"assets {list_text(missing)} have unknown decimals: pass assets=..., such as a .toml, "
            ".csv or .json file (--assets FILE); 0 decimals leave amounts as they are"
        )
    if not exact and not is_wide:
        raise TypeError(
            "the frame has no column of amounts: Arrow decimals, Decimal objects or Python integers"
        )
    powers = np.array([f"e-{known.assets[asset].decimals}" for asset in present], object)[ids.codes]
    whole = data.copy()
    for number, (place, amounts) in enumerate(exact):
        power = powers[number] if is_wide else pa.array(powers, pa.string())
        # Arrow rounds the float of a decimal more than once, that of its text once.
        texts = pc.binary_join_element_wise(amounts.cast(pa.string()), power, "")
        whole.isetitem(place, texts.cast(pa.float64()).to_numpy(zero_copy_only=False))
    if exact:
        units = dict(known.shown("asset_id", present))
        whole.attrs[schema.ATTRS_KEY] = {**whole.attrs.get(schema.ATTRS_KEY, {}), UNITS_KEY: units}
    return whole


def to_integers(data: pd.DataFrame) -> pd.DataFrame:
    """Convert amounts to Python integers, with which pandas computes exactly.

    Parameters
    ----------
    data
        A table, or any frame with amounts, in the long or the wide layout: see `to_units`.

    Returns
    -------
    pandas.DataFrame
        A copy of `data` whose columns of amounts have dtype object: integers of any size, NA where
        an amount is missing.

    Raises
    ------
    TypeError
        If `data` isn't a frame, or its amounts are floats, as those of `to_units` are.

    Examples
    --------
    >>> import pandas as pd
    >>> from balance_analysis.table.frame import BALANCE_DTYPE
    >>> data = pd.DataFrame({"balance": pd.array([10**37, 9 * 10**37], dtype=BALANCE_DTYPE)})
    >>> to_integers(data)["balance"].sum()
    100000000000000000000000000000000000000
    """
    check_frame(data)
    if data.attrs.get(schema.ATTRS_KEY, {}).get(UNITS_KEY):
        raise TypeError("amounts in whole units are floats: pass the frame from before `to_units`")
    exact = data.copy()
    for place, amounts in _amounts_in(data):
        numbers = [pd.NA if amount is None else int(amount) for amount in amounts.to_pylist()]
        exact.isetitem(place, pd.array(numbers, dtype=object))
    return exact


def _amounts_in(data: pd.DataFrame) -> Iterator[tuple[int, pa.Array[Any]]]:
    """Yield the place and the amounts of each column of amounts."""
    for place in range(data.shape[1]):
        column = data.iloc[:, place]
        if is_amounts(column):
            yield place, to_amounts(column, allow_missing=True)
