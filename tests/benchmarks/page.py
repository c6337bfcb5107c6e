"""The page of results, the picture of how cost grows, and README's sentence: from one report."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import LogLocator, NullLocator

from tests.benchmarks.contestants import DLT, LOOP, fetching
from tests.benchmarks.races import HELD, OURS, POLARS, SERIES, title
from tests.benchmarks.report import WHOLE, number, ratio, spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from matplotlib.axes import Axes

    from tests.benchmarks.processes import Cost
    from tests.benchmarks.report import Report

HERE: Final = Path(__file__).parent
PAGE, PICTURE = HERE / "RESULTS.md", HERE / "growth.png"
README: Final = HERE.parents[1] / "README.md"
SENTENCE: Final = re.compile(r"500,000 rows load in .*? s, .*? times as fast as a plain loop")
PACKAGES: Final = (
    "balance-analysis",
    "numpy",
    "pandas",
    "pyarrow",
    "polars",
    "duckdb",
    "dlt",
    "dask",
)


def publish(report: Report) -> None:
    """Write the page and the picture, and README's sentence if its figures were measured."""
    PAGE.write_text("\n".join(lines(report)) + "\n", encoding="utf-8")
    if report.growth:
        draw(report)
    if said := sentence(report):
        text = README.read_text(encoding="utf-8")
        README.write_text(SENTENCE.sub(said, text), encoding="utf-8")


def sentence(report: Report) -> str:
    """Return what README says; nothing where it was not measured."""
    loads = report.groups().get(WHOLE, {})
    if not {LOOP, fetching(4)} <= loads.keys():
        return ""
    ours = loads[fetching(4)]
    faster = ratio(loads[LOOP], ours)
    seconds = spread([cost.seconds for cost in ours])[1]
    return f"500,000 rows load in {seconds:.1f} s, {faster:.1f} times as fast as a plain loop"


def in_short(report: Report) -> Iterator[str]:
    """Yield the few figures that tell most."""
    if said := sentence(report):
        yield f"{said}."
    loads = report.groups().get(WHOLE, {})
    if {DLT, fetching(4)} <= loads.keys():
        yield f"dlt takes {ratio(loads[DLT], loads[fetching(4)]):.1f} times as long."
    series = report.groups().get(title(SERIES), {})
    if {OURS, POLARS} <= series.keys():
        took = spread([cost.seconds for cost in series[OURS]])[1]
        yield (
            f"The hourly series of {title(SERIES).partition(', ')[2]} takes {took:.2f} s, with "
            f"Polars {ratio(series[POLARS], series[OURS]):.1f} times as long."
        )


def lines(report: Report) -> Iterator[str]:
    """Yield the page."""
    yield "# What was measured"
    yield ""
    yield "`make bench` wrote this page; [README.md](README.md) tells what is measured, and how."
    yield ""
    yield " ".join([*in_short(report)])
    yield from section("Machine", ("", ""), machine(report))
    if report.failed:
        yield from section("Failed or left out", ("benchmark", "why"), report.failed.items())
    goals = [
        (goal.says, goal.limit, goal.measured, "yes" if goal.is_held else "**no**")
        for goal in report.goals()
    ]
    yield from section("Goals", ("", "goal", "measured", "held"), goals)
    if report.growth:
        yield from ["", "## How cost grows", "", f"![Seconds by size]({PICTURE.name})"]
        slopes = [
            (work, axis, f"{slope(points):.2f}")
            for axis, works in report.growth.items()
            for work, points in works.items()
        ]
        yield from section("", ("work", "by", "slope, log to log"), slopes)
    for group, rows in report.groups().items():
        yield from section(group[0].upper() + group[1:], *race(rows))
    if report.weights:
        yield from section(
            f"Memory of a reconstruction, at most {HELD} times its result or its table",
            ("work", "peak MB", "result", "table"),
            [
                (name, *(f"{value:,.0f}" for value in (each.peak, each.result, each.table)))
                for name, each in report.weights.items()
            ],
        )
    if report.touched:
        yield from section(
            "How near reconstructions are to a plain copy of what they read and make",
            ("work", "MB", "copy s", "this package s", "/ copy"),
            [
                (work, f"{touched:,.0f}", f"{copy:.3f}", f"{ours:.3f}", f"{ours / copy:.1f}")
                for work, touched, copy, ours in report.floors()
            ],
        )
    for group in dict.fromkeys(figure.group for figure in report.figures):
        figures = [
            (figure.says, *map(number, spread(figure.values)), figure.unit)
            for figure in report.figures
            if figure.group == group
        ]
        rows = [(says, median, least, most, unit) for says, least, median, most, unit in figures]
        yield from section(
            group[0].upper() + group[1:], ("", "median", "least", "most", "unit"), rows
        )


def section(heading: str, head: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """Yield a heading, if there is one, and a table."""
    yield from ["", f"## {heading}"] if heading else []
    yield ""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len([*head])
    for row in rows:
        yield f"| {' | '.join(str(cell).replace('|', '/') for cell in row)} |"


def race(rows: dict[str, list[Cost]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the table of contestants: the ratios are medians of the rounds' ratios."""
    first = next(iter(rows))
    head = ("", "median s", "least", "most", "cpu s", "peak MB", "rounds", f"/ {first}")
    found = []
    for name, costs in rows.items():
        least, median, most = spread([cost.seconds for cost in costs])
        cpu = spread([cost.cpu for cost in costs])[1]
        times = [f"{each:.2f}" for each in (median, least, most, cpu)]
        peak = f"{max(cost.peak for cost in costs):,.0f}"
        found.append((name, *times, peak, str(len(costs)), f"{ratio(costs, rows[first]):.2f}"))
    return head, found


def machine(report: Report) -> Iterator[tuple[str, str]]:
    """Yield what the figures hold for."""
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield "processors", f"{os.cpu_count()}, {processor()}"
    yield "memory", f"{pages / 1e9:.0f} GB"
    yield "system", f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    yield "load before", f"{report.load_before:.1f}"
    yield "took", f"{sum(report.took.values()) / 60:.1f} minutes"
    yield "of these", ", ".join(f"{name} {each:.0f} s" for name, each in report.took.items())
    found = {each.name: each.version for each in importlib.metadata.distributions()}
    yield from ((name, found.get(name, "not installed")) for name in PACKAGES)


def processor() -> str:
    """Return what the processor calls itself."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    return next(iter(re.findall(r"model name\s*: (.*)", told)), platform.processor())


def slope(points: list[tuple[float, float]]) -> float:
    """Return by which power of the size the seconds grow."""
    sizes, seconds = np.log(np.array(points)).T
    return float(np.polyfit(sizes, seconds, 1)[0])


def draw(report: Report) -> None:
    """Draw seconds by size, an axis each, log to log."""
    picture = Picture(figsize=(11, 3.4 * ((len(report.growth) + 1) // 2)), layout="constrained")
    every = picture.subplots((len(report.growth) + 1) // 2, 2, squeeze=False).ravel()
    for ax, (axis, works) in zip(every, report.growth.items(), strict=False):
        panel(ax, axis, works)
    for ax in every[len(report.growth) :]:
        ax.remove()
    picture.savefig(PICTURE, dpi=110)


def panel(ax: Axes, axis: str, works: dict[str, list[tuple[float, float]]]) -> None:
    """Draw one axis."""
    for work, points in works.items():
        ax.plot(*zip(*points, strict=True), "o-", label=f"{work}, slope {slope(points):.2f}")
    ax.set(xscale="log", yscale="log", xlabel=axis, ylabel="seconds")
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_locator(NullLocator())
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8)
