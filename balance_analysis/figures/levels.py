"""The balances of accounts within an interval, as far as they are known: what lines are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from balance_analysis.analysis.integers import take
from balance_analysis.figures.canvas import named
from balance_analysis.schema import to_microseconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from balance_analysis.analysis.steps import Steps
    from balance_analysis.schema import Instant


@dataclass(frozen=True, slots=True)
class Interval:
    """What a figure shows of time.

    Attributes
    ----------
    start, end
        Microseconds since 1970-01-01 UTC. The last value is drawn to the end.
    before
        Before when rows are drawn: the end, or right after it where nobody asked for one.
    """

    start: int
    end: int
    before: int

    @property
    def words(self) -> str:
        """The interval in a line."""
        return f"from {named(self.start)} to {named(self.end)}"


def find_interval(steps: Steps, start: Instant | None, end: Instant | None) -> Interval | None:
    """Return what to show: by default all rows; `None` where there is nothing to show.

    Raises
    ------
    ValueError
        If `start` is not before `end`.
    """
    times = steps.extent
    begin = None if start is None else to_microseconds(start)
    stop = None if end is None else to_microseconds(end)
    if begin is not None and stop is not None and begin >= stop:
        raise ValueError(f"start must be before end, but start={start!r} and end={end!r}")
    if begin is None:
        if not len(times):
            return None
        begin = int(times.min())
    if stop is None:
        if not len(times):
            return None
        stop = int(times.max())
        return Interval(begin, stop, stop + 1) if begin <= stop else None
    return Interval(begin, stop, stop) if begin < stop else None


@dataclass(frozen=True, slots=True)
class Level:
    """What an account held in an interval, as far as that is known.

    Attributes
    ----------
    account
        The place of the account among those of the steps.
    times, words
        From when on it held which balance, microseconds, ascending; none where it is all unknown.
    """

    account: int
    times: NDArray[np.int64]
    words: NDArray[np.int64]


def levels_in(steps: Steps, interval: Interval) -> list[Level]:
    """Return what each account held in an interval."""
    return [
        _level(steps, account, head, stop, interval)
        for account, (head, stop) in enumerate(
            zip(steps.bounds[:-1].tolist(), steps.bounds[1:].tolist(), strict=True)
        )
    ]


def _level(steps: Steps, account: int, head: int, stop: int, interval: Interval) -> Level:
    times = steps.times[head:stop]
    first = max(int(np.searchsorted(times, interval.start, side="right")) - 1, 0)
    rows = np.arange(first, max(int(np.searchsorted(times, interval.before)), first))
    return Level(account, np.maximum(times[rows], interval.start), take(steps.words, head + rows))


def sort_keys(words: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return floats in the order of amounts, quickly made and good for nothing else."""
    return np.asarray(words[:, 1] * 2.0**64 + words[:, 0].view(np.uint64), np.float64)
