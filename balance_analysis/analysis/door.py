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
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd

from balance_analysis.analysis.grid import Grid, to_instants, to_zone
from balance_analysis.analysis.history import AccountSlices, Sliced
from balance_analysis.analysis.sums import concatenated, numbers_of_ids
from balance_analysis.analysis.units import in_units
from balance_analysis.known import EVIDENCE_KEY, note_rows
from balance_analysis.labels import UNITS_KEY, noted_units
from balance_analysis.schema import ACCOUNT_KEY, ATTRS_KEY

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


def ids_in(frame: pd.DataFrame) -> list[str]:
    """Return the columns of ids that a result has, in its order."""
    return [str(name) for name in frame if name in ACCOUNT_KEY]
