"""Let a function of a table take an archive as well, slice by slice of its accounts.

A decorator where the function is defined says how its results for slices become one: `by_account`
puts them one after the other, `added_up` sums them over groups, and `at_moments` needs only the
balances at some moments. Results are equal to those of the whole table. A function without a
decorator reads the whole table. Where rows are and who computes slices, only an archive knows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, wraps
from typing import Any, Final, TypeVar, cast

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis import int128
from balance_analysis.analysis.checks import microseconds
from balance_analysis.analysis.grid import to_instants, to_zone
from balance_analysis.analysis.history import AccountSlices, Sliced
from balance_analysis.analysis.steps import check_fits, name_of
from balance_analysis.analysis.units import in_units
from balance_analysis.known import EVIDENCE_KEY, note_rows
from balance_analysis.naming import UNITS_KEY, noted_units
from balance_analysis.rows import account_numbers
from balance_analysis.schema import ACCOUNT_KEY, ATTRS_KEY
from balance_analysis.text import moment_text

F = TypeVar("F", bound=Callable[..., pd.DataFrame])

COUNTS: Final = ("accounts", "active", "changes", "known", "rows", "unknown")
"""Columns of results that are counts; other columns that are summed are amounts."""


Options = dict[str, Any]
Combine = Callable[[AccountSlices, Callable[..., pd.DataFrame], Options], Iterator[pd.DataFrame]]
"""Yields a function's results, for accounts that differ from frame to frame."""


def door(combine: Combine) -> Callable[[F], F]:
    """Let a function that takes a table or a history first take an archive as well."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)

        def frames(
            slices: AccountSlices, *args: object, **options: object
        ) -> Iterator[pd.DataFrame]:
            bound = signature.bind(slices, *args, **options)
            bound.apply_defaults()
            _, *given = bound.arguments.items()
            yield from combine(slices, opened, dict(given))

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
    points = 1
    if "start" in options:
        how = {name: options[name] for name in ("freq", "start", "end", "tz") if name in options}
        points = len(slices.outline.grid(**how).points)
    if options.get("layout") == "wide" and options["freq"] is None:
        # Each account has a cell at each change of any other: that is more than all rows.
        yield function(slices.whole(), **options)
    else:
        yield from slices.map(partial(function, **options), points)


def is_by_party(options: Options) -> bool:
    """Whether each group has accounts of one party alone, so that no slice cuts it."""
    by = options.get("by", ACCOUNT_KEY)
    return isinstance(by, Iterable) and "party_id" in ([by] if isinstance(by, str) else [*by])


def each_party(
    slices: AccountSlices, function: Callable[..., pd.DataFrame], options: Options
) -> Iterator[pd.DataFrame]:
    """Yield results of groups, of which one of several parties needs all its accounts at once."""
    if is_by_party(options):
        yield from each_account(slices, function, options)
    else:
        yield function(slices.whole(), **options)


def added_up(
    slices: AccountSlices, function: Callable[..., pd.DataFrame], options: Options
) -> Iterator[pd.DataFrame]:
    """Yield results that are sums over the accounts of a group."""
    outline = slices.outline
    is_bad = any(bad.account is not None for bad in outline.set_aside)
    if is_by_party(options) or options.get("layout") == "wide" or options.get("internal") or is_bad:
        # What is unknown of one account is so of its group, whose slices don't know of each other.
        yield from each_party(slices, function, options)
        return
    parts = slices.map(partial(function, **{**options, "units": None}))
    yield in_units(add_up([*parts]), options["units"], outline.attrs)


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
        order = np.argsort(numbers_of_ids(whole, ids_in(whole)), kind="stable")
        whole = whole.take(order).reset_index(drop=True)
    told = first.attrs.get(ATTRS_KEY, {})
    if units := {x: y for one in frames for x, y in noted_units(one).items()}:
        told = {**told, UNITS_KEY: units}
    whole.attrs = {ATTRS_KEY: told} if told else {}
    whole = in_units(whole, None, whole.attrs)
    if EVIDENCE_KEY in told:  # it is a table, as deltas are
        note_rows(whole)
    return whole


def without_names(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a result without the names of its accounts, which depend on what others are there."""
    return frame.drop(columns=["symbol", "label"], errors="ignore") if ids_in(frame) else frame


def concatenated(frames: Sequence[pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    """Return the rows of frames one after the other; ids in `names` have the categories of all."""
    dtypes = {}
    for name in names:
        categories = {str(each) for frame in frames for each in frame[name].cat.categories}
        dtypes[name] = pd.CategoricalDtype(pd.Index(sorted(categories), dtype="str"))
    return pd.concat([frame.astype(dtypes) for frame in frames], ignore_index=True)


def ids_in(frame: pd.DataFrame) -> list[str]:
    """Return the columns of ids that a result has, in its order."""
    return [str(name) for name in frame if name in ACCOUNT_KEY]


def numbers_of_ids(
    frame: pd.DataFrame, names: Sequence[str], *more: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return a number for each row that sorts as its ids do, and then as other numbers."""
    ids = [frame[name].cat for name in names]
    codes = [*(x.codes.to_numpy() for x in ids), *more]
    sizes = [*(len(x.categories) for x in ids), *(int(x.max(initial=0)) + 1 for x in more)]
    return account_numbers(codes, sizes)


def add_up(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the sums of what frames have of each group and moment, sorted.

    An amount that no frame knows is unknown; else those that are known are added up.

    Raises
    ------
    OverflowError
        If a sum has more than 38 digits.
    """
    frames = [*map(without_names, frames)]
    whole = concatenated(frames, ids_in(frames[0]))
    time = "start" if "start" in whole else "timestamp"
    moments = np.unique(microseconds(whole, time), return_inverse=True)[1]
    _, firsts, places = np.unique(
        numbers_of_ids(whole, ids_in(whole), moments), return_index=True, return_inverse=True
    )
    added = whole.take(firsts).reset_index(drop=True)

    def name(row: int) -> str:
        at = moment_text(added[time].iloc[row])
        return f"the {what} of {name_of(added[ids_in(added)], row)} at {at}"

    for what in whole.columns.difference([*ids_in(whole), "start", "end", "timestamp"]):
        if what in COUNTS:
            added[what] = int128.sum_groups([whole[what].to_numpy()], places, len(added))[0]
            continue
        is_known = whole[what].notna().to_numpy()
        words = int128.words_of(pa.array(whole[what]))[is_known]
        words, too_large = int128.sum_words(words, places[is_known], len(added))
        check_fits(too_large, name)
        count = np.bincount(places[is_known], minlength=len(added))
        added[what] = int128.to_balances(words, count > 0)
    added.attrs = frames[0].attrs
    return added
