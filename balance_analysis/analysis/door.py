"""The door of every function: any source goes in, one frame comes out, in any unit.

A function behind the door takes accounts in slices, and yields frames; a table is one slice.
Those of an archive's slices become one, equal to that of the whole table. What groups of accounts
have in slices adds up. Where rows are and who computes slices, only an archive knows.

Amounts become floats here alone: in whole units of their asset, for drawing and statistics.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from balance_analysis.analysis.grid import Grid
from balance_analysis.analysis.history import AccountSlices, History, Source, over_slices
from balance_analysis.analysis.steps import Columns, join
from balance_analysis.errors import check_frame
from balance_analysis.table.frame import is_amounts, to_amounts
from balance_analysis.table.known import EVIDENCE_KEY, note_rows
from balance_analysis.table.labels import UNITS_KEY, noted_units, with_names
from balance_analysis.table.names import AssetsLike, Names, carried, names_in, names_of
from balance_analysis.table.rows import account_numbers
from balance_analysis.table.schema import ACCOUNT_KEY, ATTRS_KEY
from balance_analysis.table.text import list_text

T = TypeVar("T")
P = ParamSpec("P")

Units: TypeAlias = "AssetsLike | bool"
"""The assets whose whole units amounts are wanted in; `True` stands for the table's own."""


def door(
    function: Callable[Concatenate[AccountSlices, P], Iterator[pd.DataFrame]],
) -> Callable[Concatenate[Source, P], pd.DataFrame]:
    """Let a function that yields frames of slices take any source and return one frame.

    Where the source has names, so does the result: in its attrs, and in a long one as columns
    `symbol` and `label` in front, as of `labelled`, unless it has such columns itself. With the
    option `units`, amounts are in whole units: see `to_units`.
    """

    def frames(slices: AccountSlices, *args: P.args, **options: P.kwargs) -> Iterator[pd.DataFrame]:
        names = carried(slices.attrs.get(ATTRS_KEY))
        units: Any = options.get("units")
        for result in function(slices, *args, **options):
            frame = pd.DataFrame(result)  # no Table, which joins notes
            frame.attrs = dict(result.attrs)
            if names:
                frame.attrs[ATTRS_KEY] = {**frame.attrs.get(ATTRS_KEY, {}), **names}
            is_exact = units is None or units is False
            yield frame if is_exact else to_units(frame, None if units is True else units)

    @wraps(function)
    def opened(
        source: Any = None,  # noqa: ANN401 - open_history checks it
        *args: P.args,
        **options: P.kwargs,
    ) -> pd.DataFrame:
        function(source, *args, **options)  # names an unknown option before anything is read
        return over_slices(source, lambda slices: stacked([*frames(slices, *args, **options)]))

    signature = inspect.signature(function)
    first, *others = signature.parameters.values()
    signature = signature.replace(
        parameters=[first.replace(annotation="Source"), *others], return_annotation="pd.DataFrame"
    )
    vars(opened).update(frames=frames, __signature__=signature)
    return cast("Callable[Concatenate[Source, P], pd.DataFrame]", opened)


def frames_of(function: Callable[..., pd.DataFrame]) -> Callable[..., Iterator[pd.DataFrame]]:
    """Return what yields a function's results slice by slice: see `door`.

    Raises
    ------
    TypeError
        If it is no function of a table.
    """
    frames = getattr(function, "frames", None)
    if frames is None:
        raise TypeError(f"{function!r} is no function of this package that takes an archive")
    return cast("Callable[..., Iterator[pd.DataFrame]]", frames)


def stacked(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return results for different accounts as one, in a table's order, with their names."""
    whole = first = frames[0]
    notes = first.attrs.get(ATTRS_KEY, {})
    ids = [str(name) for name in first if name in ACCOUNT_KEY]
    if frames[1:]:
        if "asset_id" in first.columns.names:
            whole = pd.concat(frames, axis="columns", sort=False).sort_index(axis="columns")
        else:
            whole = concatenated(frames, ids)
            order = np.argsort(numbers_of_ids(whole[ids]), kind="stable")
            whole = whole.take(order).reset_index(drop=True)
        if units := {x: y for one in frames for x, y in noted_units(one).items()}:
            notes = {**notes, UNITS_KEY: units}
        whole.attrs = {ATTRS_KEY: notes} if notes else {}
        if EVIDENCE_KEY in notes:  # it is a table, as deltas are
            note_rows(whole)
    return with_names(whole, names_in(notes)) if ids and carried(notes) else whole


RESULT_COLUMNS: Final = frozenset(
    (
        *("accounts", "active", "after", "average", "before", "change", "change_percent"),
        *("changes", "close", "closing", "cumulative_share", "depth", "drawdown", "drawdown_at"),
        *("end", "first_seen", "high", "inflow", "internal", "known", "known_share", "last_seen"),
        *("low", "maximum", "maximum_at", "minimum", "minimum_at", "net", "open", "opening"),
        *("outflow", "peak", "peak_at", "rows", "share", "start", "state", "total", "unknown"),
        "zero_share",
    )
)
"""What results have beside ids: no column of one's own by which accounts are grouped."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Accounts that have the same ids in some columns.

    Attributes
    ----------
    ids
        Those columns, one row a group, sorted.
    numbers
        The group of each account.
    """

    ids: pd.DataFrame
    numbers: NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.ids)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many accounts each group has."""
        return np.bincount(self.numbers, minlength=len(self))


def make_groups(history: History, by: str | Sequence[str]) -> Groups:
    """Return the groups of accounts that are the same in some columns.

    Parameters
    ----------
    history
        The accounts, and which columns they have.
    by
        Names of these columns. NA is a value, behind the others. As amounts of different assets
        never mix, "asset_id" comes first where it is not among them.

    Raises
    ------
    TypeError, ValueError
        If `by` has another name, one twice, or one of `RESULT_COLUMNS`, or an account has two
        values.
    """
    names = group_names(by, history.columns)
    ids, numbers = distinct_ids(history.group_columns(names))
    return Groups(ids, numbers)


def distinct_ids(ids: pd.DataFrame) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Return the distinct rows of columns of ids, sorted, and the place of each row among them."""
    keys = numbers_of_ids(ids)
    if np.all(keys[1:] > keys[:-1]):
        return ids, np.arange(len(keys))
    _, firsts, numbers = np.unique(keys, return_index=True, return_inverse=True)
    return ids.iloc[firsts], numbers


def group_names(by: str | Sequence[str], known: Sequence[str] = ACCOUNT_KEY) -> list[str]:
    """Return the columns that make a group, of those that are known: see `make_groups`."""
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
    if taken := RESULT_COLUMNS.intersection(names):
        raise ValueError(f"by={sorted(taken)}: a result has a column of that name; rename your own")
    return names if "asset_id" in names else ["asset_id", *names]


def numbers_of_ids(ids: pd.DataFrame) -> NDArray[np.int64]:
    """Return a number for each row of columns of ids that sorts as these do, NA last."""
    columns = [ids[name].array for name in ids]
    codes = [np.where(x.codes < 0, len(x.categories), x.codes) for x in columns]
    return account_numbers(codes, [len(x.categories) + 1 for x in columns])


def concatenated(frames: Sequence[pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    """Return the rows of frames one after the other; ids in `names` have the categories of all."""
    dtypes = {}
    for name in names:
        categories = {str(each) for frame in frames for each in frame[name].cat.categories}
        dtypes[name] = pd.CategoricalDtype(pd.Index(sorted(categories), dtype="str"))
    return pd.concat([frame.astype(dtypes) for frame in frames], ignore_index=True)


@dataclass(frozen=True, slots=True)
class Cells:
    """Numbers of groups of accounts that add up over accounts.

    Attributes
    ----------
    ids
        The ids of each group, sorted.
    by_group
        Arrays with a place for each group, such as the number of its accounts.
    columns
        Columns of cells, in any order: `groups`, the number of the group, and others. None at all
        where `by_group` has everything.
    """

    ids: pd.DataFrame
    by_group: Columns
    columns: Columns


def join_cells(parts: Sequence[Cells]) -> Cells:
    """Return the cells of the groups of all parts, from which they are taken."""
    if len(parts) == 1:
        return parts[0]
    names, sizes = [*map(str, parts[0].ids)], [len(part.ids) for part in parts]
    ids, numbers = distinct_ids(concatenated([part.ids for part in parts], names))
    by_group = {
        name: np.zeros((len(ids), *column.shape[1:]), np.int64)
        for name, column in parts[0].by_group.items()
    }
    for part, own in zip(parts, np.split(numbers, np.cumsum(sizes[:-1])), strict=True):
        for name, column in part.by_group.items():
            by_group[name][own] += column
        if part.columns:
            groups = part.columns["groups"]
            part.columns["groups"] = own.astype(groups.dtype)[groups]
    return Cells(ids, by_group, join([part.columns for part in parts]))


def each_group(
    source: AccountSlices,
    names: Sequence[str],
    grid: Grid | None,
    part: Callable[[History], Sequence[Cells]],
    finish: Callable[[Sequence[Cells]], T],
) -> Iterator[T]:
    """Yield what is made of cells that have all accounts of their groups.

    Parameters
    ----------
    source
        The accounts.
    names
        The columns that make a group. Where the party is among them, each slice has whole groups.
    grid
        Says which rows are needed, by default all.
    part
        Returns the cells of some accounts.
    finish
        Makes the result of whole groups.
    """
    if "party_id" in names:
        yield from source.map(lambda history: finish(part(history)), grid, per_point=True)
    else:
        parts = zip(*source.map(part, grid), strict=True)
        yield finish([join_cells(cells) for cells in parts])


def to_units(data: pd.DataFrame, assets: AssetsLike | None = None) -> pd.DataFrame:
    """Return amounts in whole units of their asset, as the nearest float64.

    Parameters
    ----------
    data
        A table, or any frame with `asset_id` and columns of Arrow decimals, such as `balance_at`
        and `summarize_accounts` return; or one that has `asset_id` as a level of its columns, such
        as `balance_series` returns.
    assets
        What `read_assets` takes: {asset_id: decimals}, or more about each, or a file of that; by
        default those in the attrs of `data`. An asset of 18 decimals has 10**18 smallest
        units in a whole one. Assets that don't occur in `data` are ignored.

    Returns
    -------
    pandas.DataFrame
        A copy of `data` in which each column of amounts is float64: the exact quotient, rounded
        once to the nearest float. NA becomes NaN. Amounts are Arrow decimals, objects that are
        `Decimal` or integers, and whatever the column `balance` has; other integers are counts.

    Raises
    ------
    ValueError
        If an asset in `data` is not described, or the file isn't as `read_assets` wants it.
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
        raise ValueError("the frame has no column asset_id, which decides the unit of its amounts")
    exact = [*_amounts_in(data)]
    of_amounts = data.columns[[place for place, _ in exact]]
    assets_of = of_amounts.get_level_values("asset_id") if is_wide else data["asset_id"]
    ids = pd.Categorical(assets_of).remove_unused_categories()
    present = [*map(str, ids.categories), *["NA"] * bool((ids.codes < 0).any())]
    decimals = _decimals(present, known)
    if not exact and not is_wide:
        raise TypeError(
            "the frame has no column of amounts: Arrow decimals, Decimal, or whole numbers of any "
            "size as Python's"
        )
    powers = np.array([f"e-{decimals[asset]}" for asset in present], object)[ids.codes]
    whole = data.copy()
    for number, (place, amounts) in enumerate(exact):
        power = powers[number] if is_wide else pa.array(powers, pa.string())
        # Arrow rounds the float of a decimal more than once, that of its text once.
        texts = pc.binary_join_element_wise(amounts.cast(pa.string()), power, "")
        whole.isetitem(place, texts.cast(pa.float64()).to_numpy(zero_copy_only=False))
    if exact:
        units = dict(known.shown("asset_id", present))
        whole.attrs[ATTRS_KEY] = {**whole.attrs.get(ATTRS_KEY, {}), UNITS_KEY: units}
    return whole


def to_integers(data: pd.DataFrame) -> pd.DataFrame:
    """Return amounts as Python's integers, with which pandas computes exactly.

    Parameters
    ----------
    data
        A table, or any frame with amounts, in the long or the wide layout: see `to_units`.

    Returns
    -------
    pandas.DataFrame
        A copy of `data` in which each column of amounts is of object: integers of any size, NA
        where one is missing.

    Raises
    ------
    TypeError
        If `data` is no frame, or amounts are floats.

    Examples
    --------
    >>> import pandas as pd
    >>> from balance_analysis.table.frame import BALANCE_DTYPE
    >>> data = pd.DataFrame({"balance": pd.array([10**37, 9 * 10**37], dtype=BALANCE_DTYPE)})
    >>> to_integers(data)["balance"].sum()
    100000000000000000000000000000000000000
    """
    check_frame(data)
    exact = data.copy()
    for place, amounts in _amounts_in(data):
        numbers = [pd.NA if amount is None else int(amount) for amount in amounts.to_pylist()]
        exact.isetitem(place, pd.array(numbers, dtype=object))
    return exact


def _amounts_in(data: pd.DataFrame) -> Iterator[tuple[int, pa.Array[Any]]]:
    """Yield the place of each column of amounts, and these."""
    for place in range(data.shape[1]):
        column = data.iloc[:, place]
        if is_amounts(column):
            yield place, to_amounts(column, allow_missing=True)


def _decimals(assets: Sequence[str], known: Names) -> dict[str, int]:
    """Return how many decimals each asset has."""
    missing = [asset for asset in assets if asset not in known.assets]
    if missing:
        raise ValueError(
            f"how many decimals the assets {list_text(missing)} have is not known: give assets, "
            "such as a .toml, .csv or .json file of them (--assets FILE); 0 leaves amounts as "
            "they are"
        )
    return {asset: known.assets[asset].decimals for asset in assets}
