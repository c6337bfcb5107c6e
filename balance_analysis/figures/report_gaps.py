"""What the gaps of an archive do to the rows and the pictures beside and behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from balance_analysis.schema import ACCOUNT_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from balance_analysis.figures.report_source import Hole

_CALLED: Final = {"gap": "a gap", "unproven": "an unproven stretch"}

FLOWS_NOTE: Final = (
    "Part of the time is a gap, or unproven: rows of it are or may be missing, and what moved in "
    "it counts where the account has its next row."
)
"""What is said under what flowed."""

CUT_NOTE: Final = (
    "The first and the last period hold no more than is in the report's interval, which begins or "
    "ends amid them."
)
"""What is said under what flowed where the interval isn't whole periods of the calendar."""

STEPS_NOTE: Final = (
    "Part of the time is a gap, or unproven: what changed in it is or may be missing, and balances "
    "are drawn level until the next row."
)
"""What is said under balances over time."""

COUNTS_NOTE: Final = (
    "Part of the time is a gap, or unproven: changes of it are or may be missing, even where there "
    "are 0."
)
"""What is said under how many changes there were."""


def mark_periods(
    periods: pd.DataFrame,
    table: pd.DataFrame,
    opening: pd.DataFrame | None,
    holes: Sequence[Hole],
) -> tuple[str, ...]:
    """Return what gaps have to do with each period, in words; nothing where they have nothing.

    Parameters
    ----------
    periods
        Their `start` and `end`, in time order.
    table
        The balance changes that flowed in them.
    opening
        What accounts held before, as `balance_at` gives it.
    holes
        What is not known to be complete, in time order.

    Returns
    -------
    tuple of str
        Of each period whether it overlaps a gap or an unproven stretch; else whether it follows
        one: is the first after it, or has the first row after it of an account that had one before.
    """
    if not holes:
        return ("",) * len(periods)
    begins, ends = _microseconds(periods["start"]), _microseconds(periods["end"])
    before, after = _spans(table, opening)
    marks = [list[str]() for _ in begins]
    for state, name in _CALLED.items():
        bounds = _bounds([hole for hole in holes if hole.state == state])
        overlaps = _touches(bounds, begins, ends)
        follows = np.zeros(len(begins), bool)
        first = np.searchsorted(begins, bounds[1])
        follows[first[first < len(begins)]] = True
        late = after[_touches(bounds, before, after)]
        places = np.searchsorted(begins, late, side="right") - 1
        follows[places[places >= 0]] = True
        for mark, is_over, is_behind in zip(marks, overlaps, follows, strict=True):
            if is_over or is_behind:
                mark.append(f"{'overlaps' if is_over else 'follows'} {name}")
    return tuple("; ".join(mark) for mark in marks)


def _spans(
    table: pd.DataFrame, opening: pd.DataFrame | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return when each account had a row, and its next one."""
    names = [*ACCOUNT_KEY, "timestamp"]
    parts = [table[names]]
    if opening is not None:
        known = opening[opening["since"].notna()]
        parts.insert(0, known.rename(columns={"since": "timestamp"})[names])
    rows = pd.concat([part.astype(_PLAIN) for part in parts if len(part)] or parts)
    rows = rows.sort_values(names, ignore_index=True)
    earlier = rows.groupby(list(ACCOUNT_KEY))["timestamp"].shift()
    has_one = earlier.notna()
    return _microseconds(earlier[has_one]), _microseconds(rows["timestamp"][has_one])


_PLAIN: Final = dict.fromkeys(ACCOUNT_KEY, "str")


def _bounds(holes: Sequence[Hole]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    found = pd.DataFrame([(hole.start, hole.end) for hole in holes], columns=["start", "end"])
    found = found.astype("datetime64[us, UTC]")
    return _microseconds(found["start"]), _microseconds(found["end"])


def _touches(
    bounds: tuple[NDArray[np.int64], NDArray[np.int64]],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Return which spans share time with one of some stretches, which don't overlap."""
    starts, stops = bounds
    return np.searchsorted(starts, ends) > np.searchsorted(stops, begins, side="right")


def _microseconds(times: pd.Series[pd.Timestamp]) -> NDArray[np.int64]:
    return times.to_numpy("M8[us]").view(np.int64)
