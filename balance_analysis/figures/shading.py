"""Stretches of time in other figures: proposals enabled, and what is not known."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib.colors import to_rgba

from balance_analysis.figures.canvas import ink
from balance_analysis.figures.coverage import coverage_frame
from balance_analysis.figures.palette import INCOMPLETE_HATCH
from balance_analysis.figures.times import sliver, to_dates
from balance_analysis.spans import between, joined

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from balance_analysis.archive.archive import Archive
    from balance_analysis.spans import Span


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
            spans.append((begin, last))
        seen = last
    return joined(spans)


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


INCOMPLETE: Final = "not known to be complete:\nchanges may be missing"
"""What a legend says of a stretch in which changes may be missing."""


def hatch_incomplete(
    ax: Axes,
    coverage: pd.DataFrame | Archive | None,
    known: Iterable[Span] | None,
    start: int,
    end: int,
    *,
    words: str = INCOMPLETE,
) -> list[Artist]:
    """Hatch over what is drawn in which stretches changes may be missing.

    Parameters
    ----------
    coverage
        The frame of `Archive.coverage()`, or an archive: what is not complete in it.
    known
        Without that, the stretches in which every change is known; `None` hatches nothing.
    start, end
        The interval that is shown, microseconds.
    words
        What the legend says.

    Returns
    -------
    list
        What a legend shows for it: nothing where all is complete.
    """
    if coverage is not None:
        known = complete_spans(coverage_frame(coverage))
    if known is None:
        return []
    paper, lines = to_rgba(ax.get_facecolor(), 0.6), to_rgba(ink(ax), 0.4)
    patches = [
        ax.axvspan(
            *to_dates(np.array(span)),
            facecolor=paper,
            edgecolor=lines,
            hatch=INCOMPLETE_HATCH,
            linewidth=0.8,
            zorder=2.5,
            label=words if place == 0 else None,
        )
        for place, span in enumerate(incomplete_spans(known, start, end))
    ]
    return [*patches[:1]]


def complete_spans(coverage: pd.DataFrame) -> list[Span]:
    """Return what is complete of the frame of a coverage, microseconds."""
    complete = coverage[coverage["state"] == "complete"]
    starts, ends = (_microseconds(complete[name]) for name in ("start", "end"))
    return list(zip(starts, ends, strict=True))


def incomplete_spans(known: Iterable[Span], start: int, end: int) -> list[Span]:
    """Return what of an interval is not known to be complete, ascending, microseconds.

    What lacks at its start or end, and is too short to see, is left out: periods begin at midnight,
    an archive where it was first asked for.
    """
    least = sliver(start, end)
    return [
        span
        for span in between(known, start, end)
        if span[1] - span[0] >= least or (span[0] != start and span[1] != end)
    ]
