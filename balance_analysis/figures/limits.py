"""The network's limits over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch
from matplotlib.transforms import blended_transform_factory

from balance_analysis.figures.canvas import (
    check_columns,
    explain,
    ink,
    legend_beside,
    named,
    new_axes,
)
from balance_analysis.figures.palette import BLUE, UNKNOWN_HATCH, VERMILION
from balance_analysis.figures.shading import KINDS, proposal_spans
from balance_analysis.figures.times import format_times, to_dates
from balance_analysis.schema import to_microseconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from balance_analysis.schema import Instant
    from balance_analysis.spans import Span

_FLAGS: Final = (
    "can_propose_market",
    "can_propose_asset",
    "propose_market_enabled",
    "propose_asset_enabled",
    "genesis_loaded",
)
_HEIGHT: Final = 0.6
_DAY: Final = 86_400_000_000

_STATES: Final = {
    "yes": "yes",
    "told": "yes, as a later\nsnapshot tells",
    "no": "no",
    "unknown": "unknown",
}


def plot_limits(
    limits: pd.DataFrame,
    *,
    ax: Axes | None = None,
    start: Instant | None = None,
    end: Instant | None = None,
) -> Axes:
    """Draw what the network's limits were, as a timeline of each.

    A limit is known from when a snapshot was first seen until it was last seen. Between two
    snapshots, and from the last one to `end`, it is unknown, and hatched. Where a snapshot says
    itself since when proposals have been enabled, that time is drawn too, paler; a bar that runs to
    the left edge began before it, at the moment that is written there.

    Parameters
    ----------
    limits
        The frame of `Archive.limits()`.
    ax
        The Axes to draw into; by default that of a new figure of `matplotlib.pyplot`. The legend
        stands to the right of it.
    start, end
        The timeline; without a time zone UTC. By default from when proposals were enabled, as far
        as that takes no more than half of it, to when the newest snapshot was last seen.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes drawn into. Where there is no snapshot, it says so.

    Raises
    ------
    ValueError
        If the frame is another one, or `start` is after the end.

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
    check_columns(limits, "Archive.limits()", ("first_seen", "last_seen", *_FLAGS))
    ax = new_axes(ax, size=(10, 2.8))
    ax.set_xlabel("UTC", loc="left")
    if limits.empty:
        return explain(ax, "no snapshot of the limits")
    frame = limits.sort_values("first_seen", kind="stable")
    firsts, lasts = (
        frame[name].to_numpy("M8[us]").view(np.int64) for name in ("first_seen", "last_seen")
    )
    stop = int(lasts.max()) if end is None else to_microseconds(end)
    nexts = np.append(firsts[1:], max(stop, lasts[-1]))
    told = {f"propose_{kind}_enabled": proposal_spans(frame, kind) for kind in KINDS}
    begin = _begin(firsts, nexts, told) if start is None else to_microseconds(start)
    if start is not None and begin > nexts[-1]:
        raise ValueError(f"start is after the end, {named(int(nexts[-1]))}: {start!r}")
    for lane, flag in enumerate(_FLAGS):
        is_set = frame[flag].to_numpy(bool)
        spans = told.get(flag, [])
        _draw(ax, lane, list(zip(lasts, nexts, strict=True)), "unknown")
        _draw(ax, lane, spans, "told")
        _tell_earlier(ax, lane, spans, begin)
        for state, rows in (("yes", is_set), ("no", ~is_set)):
            _draw(ax, lane, list(zip(firsts[rows], lasts[rows], strict=True)), state)
    ax.set_yticks(range(len(_FLAGS)), [flag.replace("_", " ") for flag in _FLAGS])
    ax.set_ylim(len(_FLAGS) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=True, axis="x", alpha=0.3)
    ax.set_axisbelow(True)
    format_times(ax, begin, int(nexts[-1]))
    flags = frame[list(_FLAGS)].to_numpy(bool)
    states = {state for state, drawn in (("yes", flags), ("no", ~flags)) if drawn.any()}
    if any(
        _is_more(spans, frame[flag].to_numpy(bool), lasts - firsts) for flag, spans in told.items()
    ):
        states.add("told")
    if (lasts < nexts).any():
        states.add("unknown")
    legend_beside(ax, [_patch(ax, state) for state in _STATES if state in states])
    return ax


def _begin(
    firsts: NDArray[np.int64], nexts: NDArray[np.int64], told: Mapping[str, list[Span]]
) -> int:
    """Return where the timeline begins: what was told of before takes no more than half of it."""
    earliest = min((spans[0][0] for spans in told.values() if spans), default=int(firsts[0]))
    most = max(int(nexts[-1] - firsts[0]), _DAY)
    return min(int(firsts[0]), max(earliest, int(firsts[0]) - most))


def _is_more(spans: list[Span], is_set: NDArray[np.bool_], lengths: NDArray[np.int64]) -> bool:
    """Whether stretches that were told of go beyond those in which a limit was seen."""
    return sum(end - start for start, end in spans) > int(lengths[is_set].sum())


def _tell_earlier(ax: Axes, lane: int, spans: Sequence[Span], begin: int) -> None:
    """Write when a stretch began that began before the timeline and reaches into it."""
    for since, until in spans:
        if since < begin < until:
            words = f" ◂ since {named(since)}"
            place = blended_transform_factory(ax.transAxes, ax.transData)
            ax.text(0, lane, words, transform=place, va="center", fontsize=7, clip_on=True)


def _draw(ax: Axes, lane: int, spans: Sequence[tuple[int, int]], state: str) -> None:
    """Draw what a limit was in some stretches, microseconds, as bars in its lane."""
    dates = to_dates(np.array(spans, np.int64).reshape(-1, 2))
    if not len(dates):
        return
    if state == "unknown":
        dates = dates[dates[:, 0] < dates[:, 1]]
    bars = [(start, end - start) for start, end in dates]
    ax.broken_barh(bars, (lane - _HEIGHT / 2, _HEIGHT), **_look(ax, state))


def _look(ax: Axes, state: str) -> dict[str, Any]:
    """Return how a state is drawn, in the order of which covers which."""
    paper = to_rgb(ax.get_facecolor())
    pale = tuple(0.4 * a + 0.6 * b for a, b in zip(to_rgb(BLUE), paper, strict=True))
    looks: dict[str, dict[str, Any]] = {
        "yes": {"facecolor": BLUE, "edgecolor": BLUE, "linewidth": 1.5, "zorder": 2},
        "no": {"facecolor": paper, "edgecolor": VERMILION, "linewidth": 1.5, "zorder": 2},
        "told": {"facecolor": pale, "edgecolor": pale, "linewidth": 1.5, "zorder": 1.5},
        "unknown": {
            "facecolor": "none",
            "edgecolor": ink(ax),
            "hatch": UNKNOWN_HATCH,
            "alpha": 0.35,
            "linewidth": 0,
            "zorder": 1,
        },
    }
    return looks[state]


def _patch(ax: Axes, state: str) -> Patch:
    return Patch(**{**_look(ax, state), "zorder": 1}, label=_STATES[state])
