"""Series of rows that may not be all: what was carried through such a stretch is unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from balance_analysis.analysis.checks import microseconds
from balance_analysis.analysis.series import balance_series
from balance_analysis.frame import BALANCE_DTYPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_NEVER = np.iinfo(np.int64).max


def series_of(
    table: pd.DataFrame,
    doubted: Sequence[tuple[int, int]],
    **options: Any,  # noqa: ANN401 - those of another function
) -> pd.DataFrame:
    """Return `balance_series`, with nothing where a row may be missing since the balance was seen.

    Parameters
    ----------
    table
        The rows.
    doubted
        Stretches of which some may be missing, half-open, microseconds.
    **options
        Of `balance_series`.
    """
    found = balance_series(table, **options)
    if not doubted:
        return found
    # The series of the rows' own times tells for each balance when it was seen.
    times: Any = pd.array(microseconds(table).tolist(), dtype=BALANCE_DTYPE)
    seen = balance_series(table.assign(balance=times), **options)
    if options["layout"] == "wide":
        points = found.index.to_numpy("M8[us]").view(np.int64)[:, None]
        since = np.stack([_integers(seen.iloc[:, n]) for n in range(seen.shape[1])], axis=1)
        return found.mask(_is_doubted(since, points, doubted))
    points = found["timestamp"].to_numpy("M8[us]").view(np.int64)
    unknown = _is_doubted(_integers(seen["balance"]), points, doubted)
    return found.assign(
        balance=found["balance"].mask(unknown), state=found["state"].mask(unknown, "unknown")
    )


def _integers(times: pd.Series[Any]) -> NDArray[np.int64]:
    return np.array([_NEVER if pd.isna(time) else int(time) for time in times], np.int64)


def _is_doubted(
    since: NDArray[np.int64], points: NDArray[np.int64], doubted: Sequence[tuple[int, int]]
) -> NDArray[np.bool_]:
    """Return where a doubted stretch has a part of (since, point]."""
    unknown = np.zeros(np.broadcast_shapes(since.shape, points.shape), np.bool_)
    for start, end in doubted:
        unknown |= (since < points) & (since < end) & (points >= start)
    return unknown
