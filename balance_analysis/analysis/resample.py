"""Step functions at the points of a grid, and cut at the edges of its periods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from balance_analysis.analysis.grid import count_before
from balance_analysis.analysis.int128 import repeat_places, take

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from balance_analysis.analysis.steps import Steps


@dataclass(frozen=True, slots=True)
class Held:
    """Which row holds for each account at each of some points, account by account.

    Attributes
    ----------
    reached
        The first point that is not before each row of the steps.
    counts
        At how many points each row holds. An account's first row also counts where it doesn't hold
        yet, so that every account has all points.
    firsts
        From which point on each account's balance is known.
    points
        The points.
    ceases
        When each row's balance ceases to be known; `None` where none does.
    """

    reached: NDArray[np.int64]
    counts: NDArray[np.int64]
    firsts: NDArray[np.int64]
    points: NDArray[np.int64]
    ceases: NDArray[np.int64] | None

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row of each account and point; where it is not known, the account's first."""
        return repeat_places(self.counts)

    @property
    def is_known(self) -> NDArray[np.bool_]:
        """Where the balance is known, for each account and point."""
        known = (np.arange(len(self.points)) >= self.firsts[:, None]).ravel()
        if self.ceases is not None:
            known &= np.tile(self.points, len(self.firsts)) < self.ceases[self.rows]
        return known


def hold(steps: Steps, points: NDArray[np.int64]) -> Held:
    """Return which rows hold at some points, microseconds, ascending."""
    reached = count_before(points, steps.times)
    counts = np.empty_like(reached)
    counts[:-1] = reached[1:]
    counts[steps.bounds[1:] - 1] = len(points)
    counts -= reached
    firsts = reached[steps.heads]
    counts[steps.heads] += firsts
    return Held(reached, counts, firsts, points, steps.ceases)


@dataclass(frozen=True, slots=True)
class Pieces:
    """Step functions cut at the edges of periods: for each account and period one piece or more.

    Attributes
    ----------
    starts
        Where the pieces of each account and period begin, account by account.
    rows
        The row of the steps that holds in each piece; in an unknown one that of the next piece, or
        where there is none any.
    words
        Its balance.
    times
        When each piece begins.
    lengths
        How long each piece is, in microseconds.
    is_known
        Whether the balance is known when the first piece begins, for each account and period. When
        the others begin, it always is.
    known_for
        For how long of its length each piece is known, in microseconds.
    """

    starts: NDArray[np.int64]
    rows: NDArray[np.int64]
    words: NDArray[np.int64]
    times: NDArray[np.int64]
    lengths: NDArray[np.int64]
    is_known: NDArray[np.bool_]
    known_for: NDArray[np.int64]

    @property
    def lasts(self) -> NDArray[np.int64]:
        """Where the last piece of each account and period is."""
        return np.append(self.starts[1:], len(self.rows))[: len(self.starts)] - 1

    @property
    def has_known(self) -> NDArray[np.bool_]:
        """Whether the balance is known at any time, for each account and period."""
        return self.is_known | (self.lasts > self.starts)

    @property
    def ends_known(self) -> NDArray[np.bool_]:
        """Whether the balance is known at the end, for each account and period."""
        is_known: NDArray[np.bool_] = self.known_for[self.lasts] == self.lengths[self.lasts]
        return is_known

    @property
    def known_throughout(self) -> NDArray[np.bool_]:
        """Whether the balance is known at all times, for each account and period."""
        lacks = np.append(0, np.cumsum(self.known_for != self.lengths))
        is_whole: NDArray[np.bool_] = lacks[self.lasts + 1] == lacks[self.starts]
        return is_whole


def cut(steps: Steps, edges: NDArray[np.int64]) -> Pieces:
    """Return steps cut into the periods between edges, microseconds, ascending."""
    periods, accounts = max(len(edges) - 1, 0), len(steps)
    if not periods or not accounts:
        nothing, never = np.empty(0, np.int64), np.empty(0, bool)
        return Pieces(
            nothing, nothing, np.empty((0, 2), np.int64), nothing, nothing, never, nothing
        )
    held = hold(steps, edges[:-1])
    is_known = held.is_known
    is_inner = (held.reached > 0) & (steps.times < edges[held.reached])
    inner = np.flatnonzero(is_inner)
    cells = (steps.numbers * periods + held.reached)[inner] - 1
    within = np.bincount(cells, minlength=accounts * periods)
    starts = np.arange(accounts * periods) + np.cumsum(within) - within
    rows = np.empty(accounts * periods + len(inner), np.int64)
    places = np.arange(1, len(inner) + 1) + cells
    rows[starts], rows[places] = held.rows, inner
    stale = starts[~is_known & (within > 0)]
    rows[stale] = rows[stale + 1]
    times = steps.times[rows]
    times[starts] = np.tile(edges[:-1], accounts)
    lengths = np.empty_like(rows)
    lengths[:-1] = times[1:]
    lengths[np.append(starts[periods::periods], len(rows)) - 1] = edges[-1]
    lengths -= times
    known_for = lengths
    if steps.ceases is not None:
        known_for = np.clip(steps.ceases[rows] - times, 0, lengths)
    if not is_known.all():
        known_for = known_for.copy()
        known_for[starts[~is_known]] = 0
    words = take(steps.words, rows)
    return Pieces(starts, rows, words, times, lengths, is_known, known_for)
