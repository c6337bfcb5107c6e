"""Behind other figures: when proposals were enabled, as far as snapshots of the limits tell."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from balance_analysis.figures.canvas import ink
from balance_analysis.figures.times import to_dates

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

Span = tuple[int, int]

KINDS: Final = ("market", "asset")

_SHADES: Final = {
    (True, True): ("proposals enabled", 0.14),
    (True, False): ("market proposals\nenabled, no others", 0.09),
    (False, True): ("asset proposals\nenabled, no others", 0.05),
}
"""What proposals of markets and of assets being enabled or not looks like."""


def proposal_spans(limits: pd.DataFrame, kind: str) -> list[Span]:
    """Return when proposals of a kind are known to have been enabled, ascending, microseconds.

    A snapshot that says since when they are tells of the time before it was first seen as well, but
    not of that before an earlier snapshot was last seen.

    Parameters
    ----------
    limits
        The frame of `Archive.limits()`, or one that lacks the dates since when proposals are
        enabled.
    kind
        "market" or "asset".
    """
    frame = limits.sort_values("first_seen", kind="stable")
    dates = frame.get(f"propose_{kind}_enabled_from", frame["first_seen"]).fillna(
        frame["first_seen"]
    )
    spans: list[Span] = []
    seen: int | None = None
    for is_enabled, last, since in zip(
        frame[f"propose_{kind}_enabled"],
        _microseconds(frame["last_seen"]),
        _microseconds(dates),
        strict=True,
    ):
        begin = since if seen is None else max(since, seen)
        if is_enabled and begin <= last:
            if spans and spans[-1][1] >= begin:
                begin = spans.pop()[0]
            spans.append((begin, last))
        seen = last
    return spans


def _microseconds(times: pd.Series[pd.Timestamp]) -> list[int]:
    found: list[int] = times.dt.ceil("us").to_numpy("M8[us]").view("i8").tolist()
    return found


def shade_limits(ax: Axes, limits: pd.DataFrame | None) -> list[Artist]:
    """Shade when proposals were enabled, within what the x axis shows.

    Returns
    -------
    list
        What a legend shows for it: nothing where nothing is shaded.
    """
    if limits is None or limits.empty:
        return []
    spans = [to_dates(np.array(proposal_spans(limits, kind), np.int64)) for kind in KINDS]
    low, high = ax.get_xlim()
    bounds = {edge for each in spans for span in each for edge in span if low < edge < high}
    edges = [low, *sorted(bounds), high]
    handles: dict[str, Artist] = {}
    for start, end in pairwise(edges):
        middle = (start + end) / 2
        enabled = tuple(any(a <= middle < b for a, b in each) for each in spans)
        if enabled in _SHADES:
            label, alpha = _SHADES[enabled]
            patch = ax.axvspan(
                start, end, color=ink(ax), alpha=alpha, linewidth=0, zorder=0.2, label=label
            )
            handles.setdefault(label, patch)
    return list(handles.values())
