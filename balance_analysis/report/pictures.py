"""The pictures of the report: each a figure of this package, as SVG with a text alternative."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal

from matplotlib.figure import Figure

from balance_analysis.figures.activity import plot_activity
from balance_analysis.figures.balances import plot_drawdown
from balance_analysis.figures.concentration import plot_concentration
from balance_analysis.figures.coverage import plot_coverage
from balance_analysis.figures.flows import period_name, plot_flows
from balance_analysis.figures.limits import plot_limits
from balance_analysis.figures.totals import plot_totals
from balance_analysis.report.sheets import FLOWS_NOTE
from balance_analysis.report.svg import Picture, to_svg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd
    from matplotlib.axes import Axes

    from balance_analysis.report.amounts import AssetUnit
    from balance_analysis.report.content import AssetContent, Content
    from balance_analysis.report.source import Source

_SIZE: Final = (7.0, 3.2)
_FLAT: Final = (7.0, 1.6)

STEPS_NOTE: Final = (
    "Part of the time is a gap, or unproven: what changed in it is or may be missing, so nothing "
    "is drawn of an account from there until its next row."
)
"""What is said under balances over time."""

COUNTS_NOTE: Final = (
    "Part of the time is a gap, or unproven: changes of it are or may be missing, even where there "
    "are 0."
)
"""What is said under how many changes there were."""

_SHORTEST: Final = dt.timedelta(seconds=1)


@dataclass(slots=True)
class Artist:
    """Draws the pictures of one page, each with ids of its own.

    Attributes
    ----------
    content
        What the page tells.
    """

    content: Content
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def coverage(self, coverage: pd.DataFrame) -> Picture:
        """Draw what an archive knows to be complete."""
        states = coverage["state"].value_counts()
        told = ", ".join(f"{number} {state}" for state, number in states.items() if number)
        return self._draw(
            lambda ax: plot_coverage(coverage, ax=ax),
            "What is complete",
            f"Intervals of the archive as bars over time: {told}.",
            size=_FLAT,
        )

    def limits(self, limits: pd.DataFrame) -> Picture:
        """Draw when proposals were enabled."""
        return self._draw(
            lambda ax: plot_limits(limits, ax=ax, end=self._source.end),
            "The network's limits over time",
            f"When proposals were enabled, as {len(limits)} distinct snapshots tell.",
            size=_FLAT,
        )

    def totals(self, asset: AssetContent, unit: AssetUnit) -> Picture:
        """Draw the totals of an asset by account type."""
        return self._draw(
            lambda ax: plot_totals(
                asset.table, ax=ax, opening=asset.opening, **self._span, **_in(unit)
            ),
            f"Totals by account type, {unit.label}",
            "Stacked steps over time, one for each account type; the table of totals has the "
            "amounts at the end.",
            note=self._if_torn(STEPS_NOTE),
        )

    def flows(self, asset: AssetContent, unit: AssetUnit) -> Picture:
        """Draw what flowed in and out of an asset's accounts."""
        period = period_name(self.content.freq)
        return self._draw(
            lambda ax: plot_flows(
                asset.table, ax=ax, opening=asset.opening, **self.content.periods, **_in(unit)
            ),
            f"Inflow, outflow and net by {period}, {unit.label}",
            f"Bars for each {period}, inflows up and outflows down, with the net as a line; the "
            "table of flows has the amounts.",
            note=self._if_torn(FLOWS_NOTE),
        )

    def lorenz(self, asset: AssetContent) -> Picture:
        """Draw how unevenly an asset is held."""
        when = asset.concentration["timestamp"].iloc[-1]
        return self._draw(
            lambda ax: plot_concentration(
                asset.table, ax=ax, kind="lorenz", when=when, opening=asset.opening, **self._span
            ),
            "How unevenly it is held at the end",
            "A Lorenz curve: which part of the whole the smallest holders have together; the table "
            "below it has the Gini coefficient.",
        )

    def holders(self, asset: AssetContent) -> Picture:
        """Draw the largest holders over time."""
        freq = self.content.freq
        return self._draw(
            lambda ax: plot_concentration(
                asset.table, ax=ax, kind="largest", freq=freq, opening=asset.opening, **self._span
            ),
            "The largest holders over time",
            "Which part of the whole the largest accounts held over time.",
            note=self._if_torn(STEPS_NOTE),
        )

    def activity(self, asset: AssetContent, kind: Literal["calendar", "week"]) -> Picture:
        """Draw when balances change."""
        captions = {"calendar": "Balance changes by day", "week": "Balance changes by hour of week"}
        return self._draw(
            lambda ax: plot_activity(
                asset.table, ax=ax, kind=kind, opening=asset.opening, **self._span
            ),
            captions[kind],
            f"A heat map of {len(asset.table):,} balance changes, in UTC.",
            note=self._if_torn(COUNTS_NOTE),
        )

    def account(
        self, table: pd.DataFrame, opening: pd.DataFrame | None, unit: AssetUnit
    ) -> Picture:
        """Draw the balance of one account, and how far it lies below its peak."""

        def plot(ax: Axes) -> None:
            plot_drawdown(table, ax=ax, opening=opening, **self._span, **_in(unit))
            legend = ax.get_legend()
            if legend is not None:
                legend.set_title("")  # the heading names the account

        return self._draw(
            plot,
            f"Balance and, below zero, how far it lies under its peak so far, {unit.label}",
            "Steps over time; a stretch in which the balance is unknown is hatched. The facts "
            "beside it have the amounts.",
            note=self._if_torn(STEPS_NOTE),
        )

    @property
    def _source(self) -> Source:
        return self.content.source

    @property
    def _span(self) -> dict[str, Any]:
        """The interval that pictures show; of one too short to be seen nothing is said."""
        start, end = self._source.start, self._source.end
        if start is None or end is None or end - start < _SHORTEST:
            return {}
        return {"start": start, "end": end}

    def _if_torn(self, note: str) -> str:
        return note if self._source.holes else ""

    def _draw(
        self,
        plot: Callable[[Axes], object],
        caption: str,
        description: str,
        *,
        size: tuple[float, float] = _SIZE,
        note: str = "",
    ) -> Picture:
        figure = Figure(figsize=size, layout="constrained")
        plot(figure.add_subplot())
        svg = to_svg(figure, key=f"f{next(self._numbers)}", title=caption, description=description)
        return Picture(caption, svg, note)


def _in(unit: AssetUnit) -> dict[str, Any]:
    return {"decimals": unit.decimals, "unit": unit.symbol}
