"""What is not known: where no table has every change, a balance may have moved without a row.

A balance that was seen at one moment is known at a later one if every change between the two is in
the table: see `balance_analysis.known`. A table that states nothing is taken at its word.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from balance_analysis.analysis.grid import Grid, make_grid
from balance_analysis.analysis.steps import ALWAYS, NEVER, make_steps, open_table
from balance_analysis.known import known_of, to_known
from balance_analysis.schema import ATTRS_KEY, to_microseconds
from balance_analysis.spans import between

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from balance_analysis.analysis.grid import Frequency, Zone
    from balance_analysis.analysis.steps import Steps
    from balance_analysis.known import Known, Stated
    from balance_analysis.schema import Instant


def stated(table: pd.DataFrame, known: Stated | None) -> Known | None:
    """Return what is known: what the caller states, else what the table's attrs tell.

    Raises
    ------
    ValueError, TypeError
        If `known` is not pairs of moments.
    """
    return known_of(table) if known is None else to_known(known)


def open_interval(
    table: pd.DataFrame,
    *,
    opening: pd.DataFrame | None,
    known: Stated | None,
    freq: Frequency | Grid | None,
    start: Instant | None,
    end: Instant | None,
    tz: Zone | None,
) -> tuple[Steps, Grid, Known | None]:
    """Return a table as step functions, an interval of them, and what is known.

    The arguments are those of `balance_series`; `freq` may be a grid that was made before.
    """
    steps, spans = make_steps(table, opening), stated(table, known)
    if isinstance(freq, Grid):
        grid = freq
    else:
        times = steps.extent
        if not len(times) and len(steps) and spans:
            times = np.array([spans[0][0]])
        grid = make_grid(times, freq=freq, start=start, end=end, tz=tz, known=spans)
    last = max(grid.edges[-1:], default=NEVER)
    return forget(steps, spans, opening, until=int(last)), grid, spans


def open_known(
    table: pd.DataFrame, opening: pd.DataFrame | None, known: Stated | None
) -> tuple[pd.DataFrame, Steps]:
    """Return a table as `open_table` does, its steps known only as long as every change is."""
    rows, steps = open_table(table, opening)
    until = int(steps.extent.max(initial=0))
    return rows, forget(steps, stated(table, known), opening, until=until)


def forget(steps: Steps, known: Known | None, opening: pd.DataFrame | None, *, until: int) -> Steps:
    """Return steps that are known only as long as every change is.

    Parameters
    ----------
    steps
        Step functions of a table and `opening`.
    known
        The known intervals; `None` states nothing.
    opening
        The opening balances. They were the last ones before a moment, which their attrs may tell;
        else before the first known interval.
    until
        What begins later is not looked at, microseconds.
    """
    if known is None or not len(steps.times):
        return steps
    gaps = [gap for gap in between(known, ALWAYS, NEVER) if gap[0] < until]
    seen = steps.times
    if opening is not None:
        at = _asked_at(opening, otherwise=known[0][0] if known else ALWAYS + 1)
        held = np.minimum(np.maximum(seen, at - 1), _nexts(steps) - 1)
        seen = np.where(steps.is_row | (seen == NEVER), seen, held)
    if not gaps or gaps[-1][1] <= int(seen[steps.heads].min()) + 1:
        return steps
    starts, ends = np.array(gaps).T
    after = np.minimum(seen, NEVER - 1) + 1
    place = np.searchsorted(ends, after, side="right")
    ceases = np.maximum(after, np.append(starts, NEVER)[place])
    ceases[ceases >= _nexts(steps)] = NEVER
    return steps if np.all(ceases == NEVER) else replace(steps, ceases=ceases)


def _nexts(steps: Steps) -> NDArray[np.int64]:
    """Return when the account's next row is, of each row."""
    nexts = np.append(steps.times[1:], NEVER)
    nexts[steps.bounds[1:] - 1] = NEVER
    return nexts


def _asked_at(opening: pd.DataFrame, *, otherwise: int) -> int:
    """Return before which moment opening balances were the last ones."""
    told = opening.attrs.get(ATTRS_KEY)
    at = told.get("at") if isinstance(told, dict) else None
    return otherwise if at is None else to_microseconds(at)


def are_known(
    known: Known | None, begins: NDArray[np.int64], stops: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return in which periods [begin, stop) every change is known."""
    if known is None:
        return np.ones(len(begins), bool)
    if not known:
        return np.zeros(len(begins), bool)
    starts, ends = np.array(known).T
    place = np.searchsorted(starts, begins, side="right") - 1
    covered: NDArray[np.bool_] = (place >= 0) & (stops <= ends[place])
    return covered
