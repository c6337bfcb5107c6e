"""Timelines of an archive: the network's limits, and the stretches that it covers."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch

from balance_analysis.archive.snapshot import interval_of
from balance_analysis.archives import Archive, to_archive
from balance_analysis.figures import axes, styles, times
from balance_analysis.files.atomic import PathLike
from balance_analysis.table.moments import DAY, Moment, Span, gaps_in, to_microseconds
from balance_analysis.table.schema import LIMIT_FLAGS
from balance_analysis.table.text import duration_text


def plot_limits(
    limits: pd.DataFrame | Archive | PathLike,
    *,
    ax: Axes | None = None,
    start: Moment | None = None,
    end: Moment | None = None,
    title: str | None = None,
    **style: Any,  # noqa: ANN401 - of the bars
) -> Axes:
    """Draw a timeline of each of the network's limits.

    A limit is known from when a snapshot was first seen until it was last seen. Between two
    snapshots, and from the last one to `end`, it is unknown and hatched. If a snapshot states since
    when proposals have been enabled, the time before the snapshot is drawn too, in a paler colour.
    A bar that begins before the left edge is labelled with its beginning.

    Parameters
    ----------
    limits
        The frame of `Archive.limits()`, or an archive, or the path of one.
    ax
        The Axes to draw into; by default those of a new `matplotlib.pyplot` figure.
    start, end
        The interval to show; moments without a time zone are UTC. By default it ends when the
        newest snapshot was last seen, and begins when proposals were enabled, but at most half of
        it lies before the first snapshot.
    title
        The title; by default it names what is drawn; "" for none.
    **style
        Matplotlib arguments for the bars, such as `alpha=0.8`.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. If there is no snapshot, a text on it says so.

    Raises
    ------
    ValueError
        If the frame lacks columns of `Archive.limits()`, `start` is not before `end`, or no
        snapshot is as new as `start`.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import pandas as pd
    >>> seen = pd.to_datetime(["2023-04-01"], utc=True)
    >>> flags = {
    ...     "can_propose_market": False, "can_propose_asset": True, "propose_market_enabled": False,
    ...     "propose_asset_enabled": True, "genesis_loaded": True,
    ... }
    >>> frame = pd.DataFrame({"first_seen": seen, "last_seen": seen, **flags})
    >>> ax = plot_limits(frame, end="2023-04-03")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['yes', 'no', 'unknown']
    """
    interval_of(start, end)
    limits = _frame_of(limits, "limits", ("first_seen", "last_seen", *LIMIT_FLAGS))
    ax = axes.new_axes(ax, height=2.8)
    if limits.empty:
        return axes.explain(ax, "no snapshot of the limits", title)
    frame = limits.sort_values("first_seen", kind="stable")
    seen = times.to_spans(frame, "first_seen", "last_seen")
    first, last = seen[0][0], seen[-1][1]
    stop = max(last, to_microseconds(end) if end is not None else 0)
    earlier = {f"propose_{kind}_enabled": times.proposal_spans(frame, kind) for kind in times.KINDS}
    # The time before the first snapshot takes no more than half of the timeline.
    earliest = min((span[0] for spans in earlier.values() for span in spans), default=first)
    begin = min(first, max(earliest, first - max(stop - first, DAY)))
    begin = begin if start is None else to_microseconds(start)
    if begin > stop:
        raise ValueError(f"start {start!r} is after the last snapshot, {times.date_text(stop)}")
    times.format_times(ax, begin, stop)
    low, high = ax.set_xlim(ax.get_xlim())
    least = int((high - low) * DAY) // 50
    options, drawn = _state_options(ax, styles.spread(style, 1, Patch)[0]), {}
    for lane, flag in enumerate(LIMIT_FLAGS):
        yes = [*compress(seen, frame[flag])]
        stated = [rest for span in earlier.get(flag, []) for rest in gaps_in(yes, *span)]
        states = {"yes": yes, "stated": stated, "no": [*compress(seen, ~frame[flag].astype(bool))]}
        states["unknown"] = gaps_in(seen + stated, first, stop)
        for state, spans in states.items():
            if spans:
                drawn[state] = _draw(ax, lane, spans, options[state], least=least)
        for since in [span[0] for span in stated if span[0] < begin < span[1]]:
            words, place = f" ◂ since {times.date_text(since)}", ax.get_yaxis_transform()
            ax.text(0, lane, words, transform=place, va="center", fontsize="x-small", clip_on=True)
    _format_lanes(ax, [textwrap.fill(flag.replace("_", " "), 15) for flag in LIMIT_FLAGS])
    handles = [drawn[state] for state in options if state in drawn]
    return axes.finish(ax, "Limits of the network" if title is None else title, handles)


def _state_options(ax: Axes, style: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the options and the label of each state of a limit."""
    paper, blue = to_rgb(ax.get_facecolor()), styles.BLUE
    pale = tuple(np.average([to_rgb(blue), paper], axis=0, weights=(0.4, 0.6)))
    return {
        "yes": {"facecolor": blue, "edgecolor": blue, "zorder": 2, "label": "yes", **style},
        "stated": {"facecolor": pale, "edgecolor": pale, "label": "yes, by a later snapshot"},
        "no": {"facecolor": paper, "edgecolor": styles.VERMILION, "zorder": 2, "label": "no"},
        "unknown": styles.unknown_style(ax),
    }


def _draw(
    ax: Axes, lane: int, spans: Sequence[Span], options: dict[str, Any], *, least: int = 0
) -> Artist:
    """Draw stretches (in microseconds) as bars in a lane, none shorter than `least`."""
    starts, ends = np.array(spans).T
    lacks = np.maximum(least - (ends - starts), 0) // 2
    edges = times.to_dates(starts - lacks), times.to_dates(ends + lacks), lane - 0.3, lane + 0.3
    return axes.draw_boxes(ax, *edges, **{"linewidth": 1.5, "zorder": 1.5, **options})


def _frame_of(
    source: pd.DataFrame | Archive | PathLike, what: str, names: Sequence[str]
) -> pd.DataFrame:
    """Return an archive's frame, or the given one.

    Raises
    ------
    ValueError
        If the given frame lacks a column.
    """
    frame = source if isinstance(source, pd.DataFrame) else getattr(to_archive(source), what)()
    if missing := [name for name in names if name not in frame]:
        raise ValueError(
            f"expected the frame of Archive.{what}(); this one has no column {', '.join(missing)}"
        )
    return frame


def plot_coverage(
    coverage: pd.DataFrame | Archive | PathLike,
    *,
    ax: Axes | None = None,
    title: str | None = None,
    **style: Any,  # noqa: ANN401 - of the bars
) -> Axes:
    r"""Draw the stretches of time that an archive covers, as bars in one lane per state.

    Each bar has an edge, so that a gap of an hour is visible among years.

    Parameters
    ----------
    coverage
        The frame of `Archive.coverage()`, or an archive, or the path of one.
    ax
        The Axes to draw into; by default those of a new `matplotlib.pyplot` figure.
    title
        The title; by default it names what is drawn; "" for none.
    **style
        Matplotlib arguments for the bars, such as `alpha=0.8`; `color` may be a list.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. If nothing is covered, a text on it says so.

    Raises
    ------
    TypeError
        If `coverage` is neither a frame, an archive nor a path.
    ValueError
        If the frame lacks columns of `Archive.coverage()`.
    ArchiveError
        If there is no archive, or it is damaged.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import pandas as pd
    >>> moments = pd.to_datetime(["2023-04-01", "2023-04-03", "2023-04-04", "2023-04-05"], utc=True)
    >>> ax = plot_coverage(pd.DataFrame({
    ...     "start": moments[:3], "end": moments[1:], "state": ["complete", "missing", "complete"],
    ... }))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['complete\n3 days', 'missing\n1 day']
    """
    coverage = _frame_of(coverage, "coverage", ("start", "end", "state"))
    ax = axes.new_axes(ax, height=2.4)
    if coverage.empty:
        return axes.explain(ax, "nothing is covered yet", title)
    labels: list[str] = []
    wanted = styles.spread(style, len(styles.COVERAGE_COLOURS), Patch)
    for (state, colour), arguments in zip(styles.COVERAGE_COLOURS.items(), wanted, strict=True):
        spans = coverage[coverage["state"] == state]
        if not spans.empty:
            options = {"facecolor": colour, "edgecolor": "face", "linewidth": 1, **arguments}
            _draw(ax, len(labels), times.to_spans(spans, "start", "end"), options)
            length = pd.Timedelta((spans["end"] - spans["start"]).sum())
            labels.append(f"{state}\n{duration_text(length)}")
    _format_lanes(ax, labels)
    first, last = coverage["start"].min(), coverage["end"].max()
    times.format_times(ax, to_microseconds(first), to_microseconds(last))
    return axes.finish(ax, "What the archive covers" if title is None else title)


def _format_lanes(ax: Axes, names: Sequence[str]) -> None:
    """Let the y axis show one lane per name, from top to bottom."""
    ax.set_yticks(range(len(names)), names, fontsize="small")
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    axes.draw_grid(ax, "x")
