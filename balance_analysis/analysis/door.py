"""The door of every function: any source goes in, results of slices become one, in any unit.

A decorator where a function is defined says how its results for slices of an archive's accounts
become one: `each_account` puts them one after the other, `at_moments` needs only the balances at
some moments, others add up. Results are equal to those of the whole table. A function without a
decorator reads the whole table. Where rows are and who computes slices, only an archive knows.

Amounts become floats here alone: in whole units of their asset, for drawing and statistics.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Final, TypeAlias, TypeVar, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from balance_analysis.analysis.grid import Grid, to_instants, to_zone
from balance_analysis.analysis.history import AccountSlices, History, Sliced
from balance_analysis.errors import check_frame
from balance_analysis.frame import is_amounts, to_amounts
from balance_analysis.known import EVIDENCE_KEY, note_rows
from balance_analysis.labels import UNITS_KEY, noted_units, with_names
from balance_analysis.names import AssetsLike, Names, carried, names_in, names_of
from balance_analysis.rows import account_numbers
from balance_analysis.schema import ACCOUNT_KEY, ATTRS_KEY
from balance_analysis.text import list_text

F = TypeVar("F", bound=Callable[..., pd.DataFrame])

Options = dict[str, Any]
Combine = Callable[[AccountSlices, Callable[..., pd.DataFrame], Options], Iterator[pd.DataFrame]]
"""Yields a function's results, for accounts that differ from frame to frame."""


def door(combine: Combine) -> Callable[[F], F]:
    """Let a function that takes a table or a history first take an archive as well."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)

        def frames(
            slices: AccountSlices, *args: object, **keywords: object
        ) -> Iterator[pd.DataFrame]:
            bound = signature.bind(slices, *args, **keywords)
            bound.apply_defaults()
            _, *given = bound.arguments.items()
            options: Options = dict(given)
            small = None
            if combine is not at_moments:  # which need not read all rows
                small = slices.small(*_looks_at(slices, options))
            if small is None:
                yield from combine(slices, opened, options)
            else:
                yield opened(small, **options)

        @wraps(function)
        def opened(*args: object, **options: object) -> pd.DataFrame:
            if args and isinstance(args[0], Sliced):
                rest = args[1:]
                return args[0].by_slices(lambda x: stacked([*frames(x, *rest, **options)]))
            return function(*args, **options)

        opened.frames = frames  # type: ignore[attr-defined]
        return cast("F", opened)

    return decorate


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


def each_account(
    slices: AccountSlices, function: Callable[..., pd.DataFrame], options: Options
) -> Iterator[pd.DataFrame]:
    """Yield results that belong to one account, or one party of an asset, each."""
    yield from slices.map(partial(function, **options), *_looks_at(slices, options))


def _looks_at(slices: AccountSlices, options: Options) -> tuple[Grid | None, int]:
    """Return the grid that a function looks at, and the cells that each account then has."""
    grid = grid_of(slices, options) if "start" in options else None
    is_by_account = "by" not in options or is_by_party(options)
    return grid, max(len(grid.points), 1) if grid is not None and is_by_account else 1


def grid_of(slices: AccountSlices, options: Options) -> Grid:
    """Return the grid that a function's options ask for."""
    how = {name: options[name] for name in ("freq", "start", "end", "tz") if name in options}
    return slices.outline.grid(**how)


def is_by_party(options: Options) -> bool:
    """Whether each group has accounts of one party alone, so that no slice cuts it."""
    by = options.get("by", ACCOUNT_KEY)
    return isinstance(by, Iterable) and "party_id" in ([by] if isinstance(by, str) else [*by])


def at_moments(
    slices: AccountSlices, function: Callable[..., pd.DataFrame], options: Options
) -> Iterator[pd.DataFrame]:
    """Yield results that need the balances at the moments `at` alone."""
    if options["at"] is None:
        moments = slices.outline.grid().edges[-1:] - 1
    else:
        moments, _ = to_instants(options["at"], to_zone(options.get("tz")))
    yield function(slices.held(moments), **options)


def stacked(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return results for different accounts as one, in a table's order."""
    if len(frames) == 1:
        return frames[0]
    frames = [*map(without_names, frames)]
    first = frames[0]
    if "asset_id" in first.columns.names:
        whole = pd.concat(frames, axis="columns", sort=False).sort_index(axis="columns")
    else:
        whole = concatenated(frames, ids_in(first))
        order = np.argsort(numbers_of_ids(whole[ids_in(whole)]), kind="stable")
        whole = whole.take(order).reset_index(drop=True)
    notes = first.attrs.get(ATTRS_KEY, {})
    if units := {x: y for one in frames for x, y in noted_units(one).items()}:
        notes = {**notes, UNITS_KEY: units}
    whole.attrs = {ATTRS_KEY: notes} if notes else {}
    whole = in_units(whole, None, whole.attrs)
    if EVIDENCE_KEY in notes:  # it is a table, as deltas are
        note_rows(whole)
    return whole


def without_names(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a result without the names of its accounts, which depend on what others are there."""
    return frame.drop(columns=["symbol", "label"], errors="ignore") if ids_in(frame) else frame


def ids_in(frame: pd.DataFrame) -> list[str]:
    """Return the columns of ids that a result has, in its order."""
    return [str(name) for name in frame if name in ACCOUNT_KEY]


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


RESULT_COLUMNS: Final = frozenset(
    (
        *("accounts", "active", "after", "average", "before", "change", "change_percent"),
        *("changes", "close", "closing", "cumulative_share", "depth", "drawdown", "drawdown_at"),
        *("end", "first_seen", "high", "inflow", "internal", "known", "last_seen", "low"),
        *("maximum", "maximum_at", "minimum", "minimum_at", "net", "open", "opening", "outflow"),
        *("peak", "peak_at", "rows", "share", "start", "state", "total", "unknown", "zero_share"),
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


def join_ids(parts: Sequence[pd.DataFrame]) -> tuple[pd.DataFrame, list[NDArray[np.int64]]]:
    """Return the groups of all parts by their ids, sorted, and the numbers of each part's."""
    if len(parts) == 1:
        return parts[0], [np.arange(len(parts[0]))]
    ids, numbers = distinct_ids(concatenated(parts, [*map(str, parts[0])]))
    return ids, np.split(numbers, np.cumsum([len(part) for part in parts[:-1]]))


Units: TypeAlias = "AssetsLike | bool"
"""The assets whose whole units amounts are wanted in; `True` stands for the table's own."""


def in_units(result: pd.DataFrame, units: Units | None, attrs: Mapping[Any, Any]) -> pd.DataFrame:
    """Return what was made of a table, in whole units if these are asked for: see `to_units`.

    Where the table's attrs carry names, those of the result do as well, and a long result has the
    columns `symbol` and `label` in front, as of `labelled`, unless it has such columns itself.
    """
    own, result = result.attrs, pd.DataFrame(result)
    result.attrs = own
    if carried(names := attrs.get(ATTRS_KEY)):
        if {*ACCOUNT_KEY} & {*result.columns}:
            result = with_names(result, names_in(names))
        result.attrs[ATTRS_KEY] = {**result.attrs.get(ATTRS_KEY, {}), **carried(names)}
    if units is None or units is False:
        return result
    return to_units(result, None if units is True else units)


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
    >>> from balance_analysis.frame import BALANCE_DTYPE
    >>> data = pd.DataFrame({"asset_id": ["USDT", "VEGA"],
    ...                      "balance": pd.array([1_500_000, 2 * 10**18], dtype=BALANCE_DTYPE)})
    >>> to_units(data, {"USDT": 6, "VEGA": 18})
      asset_id  balance
    0     USDT      1.5
    1     VEGA      2.0
    """
    check_frame(data)
    known = names_of(data, assets)
    if "asset_id" in data.columns.names:
        return _wide_to_units(data, known)
    if "asset_id" not in data:
        raise ValueError("the frame has no column asset_id, which decides the unit of its amounts")
    ids = pd.Categorical(data["asset_id"])
    names = [*map(str, ids.categories), "NA"]
    rows_of = {names[code]: np.flatnonzero(ids.codes == code) for code in np.unique(ids.codes)}
    decimals = _decimals(rows_of, known)
    amounts = {str(name): column for name, column in data.items() if is_amounts(column)}
    if not amounts:
        raise TypeError(
            "the frame has no column of amounts: Arrow decimals, Decimal, or whole numbers of any "
            "size as Python's"
        )
    whole = {name: np.full(len(data), np.nan) for name in amounts}
    for name, column in amounts.items():
        exact = to_amounts(column, allow_missing=True)
        for asset, rows in rows_of.items():
            whole[name][rows] = _in_whole_units(exact.take(pa.array(rows)), decimals[asset])
    return _noted(data.assign(**whole), rows_of, known)


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
    >>> from balance_analysis.frame import BALANCE_DTYPE
    >>> data = pd.DataFrame({"balance": pd.array([10**37, 9 * 10**37], dtype=BALANCE_DTYPE)})
    >>> to_integers(data)["balance"].sum()
    100000000000000000000000000000000000000
    """
    check_frame(data)
    exact = data.copy()
    for place in range(data.shape[1]):
        column = data.iloc[:, place]
        if is_amounts(column):
            amounts = to_amounts(column, allow_missing=True).to_pylist()
            numbers = [pd.NA if amount is None else int(amount) for amount in amounts]
            exact.isetitem(place, pd.array(numbers, dtype=object))
    return exact


def _wide_to_units(data: pd.DataFrame, known: Names) -> pd.DataFrame:
    """Return a frame whose columns belong to assets in whole units."""
    assets = [str(asset) for asset in data.columns.get_level_values("asset_id")]
    decimals = _decimals(assets, known)
    columns: dict[int, Any] = {}
    for place, asset in enumerate(assets):
        column = columns[place] = data.iloc[:, place].rename(None)
        if is_amounts(column):
            amounts = to_amounts(column, allow_missing=True)
            columns[place] = _in_whole_units(amounts, decimals[asset])
    whole = pd.DataFrame(columns, index=data.index).set_axis(data.columns, axis="columns")
    whole.attrs.update(data.attrs)
    return _noted(whole, assets, known)


def _noted(whole: pd.DataFrame, assets: Iterable[str], known: Names) -> pd.DataFrame:
    """Note in the attrs of a frame which whole units it has, by asset, and return it."""
    units = dict(known.shown("asset_id", assets))
    whole.attrs[ATTRS_KEY] = {**whole.attrs.get(ATTRS_KEY, {}), UNITS_KEY: units}
    return whole


def _decimals(assets: Iterable[str], known: Names) -> dict[str, int]:
    """Return how many decimals each asset has."""
    present = list(dict.fromkeys(assets))
    missing = [asset for asset in present if asset not in known.assets]
    if missing:
        raise ValueError(
            f"how many decimals the assets {list_text(missing)} have is not known: give assets, "
            "such as a .toml, .csv or .json file of them (--assets FILE); 0 leaves amounts as "
            "they are"
        )
    return {asset: known.assets[asset].decimals for asset in present}


def _in_whole_units(amounts: pa.Array[Any], decimals: int) -> NDArray[np.float64]:
    """Return decimals of 38 digits divided by a power of ten, NaN where one is missing."""
    # Arrow rounds the float of a decimal more than once, that of its text once.
    texts = pc.binary_join_element_wise(amounts.cast(pa.string()), f"e-{decimals}", "")
    floats = texts.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.asarray(floats, np.float64)
