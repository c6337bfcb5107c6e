"""The page of results, the picture of how cost grows, and README's sentence: from one report."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import re
from dataclasses import astuple
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import LogLocator, NullLocator

from tests.benchmarks.contestants import DLT, LOOP, fetching
from tests.benchmarks.races import (
    FASTER,
    HELD,
    OURS,
    POLARS,
    ROWS,
    SHAPES,
    WORKS,
    title,
)
from tests.benchmarks.report import WHOLE, number, ratio, spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from matplotlib.axes import Axes

    from tests.benchmarks.processes import Cost
    from tests.benchmarks.report import Goal, Report

HERE: Final = Path(__file__).parent
PAGE, PICTURE = HERE / "RESULTS.md", HERE / "growth.png"
README: Final = HERE.parents[1] / "README.md"
SENTENCE: Final = re.compile(r"500,000 rows load in .*? s, .*? times as fast as a plain loop")
CAPTION: Final = (
    "Both axes are logarithmic. Dotted: twice the seconds for twice the size, or half the page"
)
COLOURS: Final = ("#0072b2", "#d55e00", "#007d5a", "#a8447f", "#6b5b00", "#444444")
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
    races = (report.groups().get(title(name, shape), {}) for name in WORKS for shape in SHAPES)
    slower = [ratio(each[POLARS], each[OURS]) for each in races if {OURS, POLARS} <= each.keys()]
    if slower:
        yield (
            f"Reconstructions of {ROWS:,} rows take Polars {min(slower):.1f} to {max(slower):.1f} "
            "times as long, by the work and the order of the rows."
        )


def lines(report: Report) -> Iterator[str]:
    """Yield the page."""
    yield "# What was measured"
    yield ""
    yield "`make bench` wrote this page; [README.md](README.md) tells what is measured, and how."
    yield ""
    yield " ".join([*in_short(report)])
    if report.failed:
        yield from section("Failed or left out", ("benchmark", "why"), report.failed.items())
    yield from goals(report)
    yield from section("Machine", ("", ""), machine(report))
    yield from found(report)


def found(report: Report) -> Iterator[str]:
    """Yield all that was measured."""
    if report.growth:
        yield from growth(report)
    figures = {figure.group: [] for figure in report.figures}
    for figure in report.figures:
        least, median, most = map(number, spread(figure.values))
        rounds = len(figure.values)
        spreading = (least, most) if rounds > 1 else ("", "")
        row = (figure.says, median, *spreading, rounds, figure.unit)
        figures[figure.group].append(row)
    groups = report.groups()
    for shape in SHAPES:
        yield from reconstructions(shape, [groups.pop(title(name, shape), {}) for name in WORKS])
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
    for group in dict.fromkeys([*groups, *figures]):
        yield from ["", f"## {capital(group)}"]
        if rows := groups.get(group):
            head = (*COSTS, f"/ {next(iter(rows))}")
            yield from section("", ("", *head), race(rows))
        if group in figures:
            head = ("", "median", "least", "most", "rounds", "unit")
            yield from section("", head, figures[group])


COSTS: Final = ("median s", "least", "most", "cpu s", "peak MB", "rounds")


def goals(report: Report) -> Iterator[str]:
    """Yield the goals: those that are missed first, and the reconstructions in a table."""
    every = {goal.says: goal for goal in report.goals()}
    if not every:
        return
    held = sum(goal.is_held for goal in every.values())
    yield from ["", "## Goals", "", f"{held} of {len(every)} are held. {SPREAD}"]
    races = [
        (name, engine, [every.pop(f"{engine} / {OURS}, {name}{shape}", None) for shape in SHAPES])
        for name in WORKS
        for engine in FASTER
    ]
    for heading, is_held in (("Missed", False), ("Held", True)):
        rows = [goal for goal in every.values() if goal.is_held is is_held]
        if rows:
            yield from ["", f"### {heading}"]
            head = ("", "goal", "median", "least", "most", "rounds")
            yield from section("", head, [astuple(goal)[:-1] for goal in rows])
        if not is_held and any(any(found) for _, _, found in races):
            bounds = " and ".join(f"{bound} for {engine}" for engine, bound in FASTER.items())
            yield from ["", "### Reconstructions: how many times as long others take"]
            yield from ["", f"The goal is {bounds}. What is missed is bold."]
            shapes = [shape.strip(", ") or "in order" for shape in SHAPES]
            rows = [(name, engine, *map(cell, found)) for name, engine, found in races]
            yield from section("", ("", "", *shapes), rows)


SPREAD: Final = (
    "What is measured in rounds is told by their median, and a ratio by the median of the rounds' "
    "ratios; least and most are of the rounds."
)


def cell(goal: Goal | None) -> str:
    if goal is None:
        return ""
    return goal.measured if goal.is_held else f"**{goal.measured}**"


def growth(report: Report) -> Iterator[str]:
    """Yield the picture of how cost grows, and its slopes."""
    yield from ["", "## How cost grows", "", f"![Seconds by size]({PICTURE.name})"]
    slopes = [
        (work, axis, f"{slope(points):.2f}")
        for axis, works in report.growth.items()
        for work, points in works.items()
    ]
    yield from section("", ("work", "by", "slope, log to log"), slopes)


def reconstructions(shape: str, races: list[dict[str, list[Cost]]]) -> Iterator[str]:
    """Yield one table of all reconstructions of a shape."""
    if any(races):
        of = f"Reconstructions, {ROWS:,} rows{shape}"
        rows = [
            (name if who == OURS else "", who, *rest)
            for name, each in zip(WORKS, races, strict=True)
            if each
            for who, *rest in race(each)
        ]
        yield from section(of, ("work", "by", *COSTS, f"/ {OURS}"), rows)


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


def section(heading: str, head: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """Yield a heading, if there is one, and a table whose columns stand below each other."""
    table = [[*head], *([str(cell).replace("|", "/") for cell in row] for row in rows)]
    yield from ["", f"## {heading}"] if heading else []
    yield from ["", *(f"| {' | '.join(row)} |" for row in zip(*map(column, *table), strict=True))]


def column(*cells: str) -> list[str]:
    """Return cells as wide as the widest, figures to the right, with the line below the head."""
    wide = max(3, *map(len, cells))
    if all(cell.strip("*s ")[-1:].isdigit() for cell in cells[1:] if cell):
        head, *rest = (cell.rjust(wide) for cell in cells)
        return [head, "-" * (wide - 1) + ":", *rest]
    head, *rest = (cell.ljust(wide) for cell in cells)
    return [head, "-" * wide, *rest]


def race(rows: dict[str, list[Cost]]) -> Iterator[tuple[str, ...]]:
    """Yield what contestants cost: the ratios are medians of the rounds' ratios."""
    first = next(iter(rows.values()))
    for name, costs in rows.items():
        least, median, most = spread([cost.seconds for cost in costs])
        cpu = spread([cost.cpu for cost in costs])[1]
        times = [f"{each:.2f}" for each in (median, least, most, cpu)]
        peak = f"{max(cost.peak for cost in costs):,.0f}"
        yield (name, *times, peak, str(len(costs)), f"{ratio(costs, first):.2f}")


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
    lines = (len(report.growth) + 1) // 2
    picture = Picture(figsize=(12, 0.6 + 3.4 * lines), layout="constrained")
    picture.get_layout_engine().set(w_pad=0.15, h_pad=0.12)
    picture.suptitle(CAPTION, x=0.01, ha="left", fontsize=11)
    every = picture.subplots(lines, 2, squeeze=False).ravel()
    named = dict.fromkeys(work for works in report.growth.values() for work in works)
    colours = dict(zip(named, cycle(COLOURS), strict=False))
    for ax, (axis, works) in zip(every, report.growth.items(), strict=False):
        panel(ax, axis, works, colours)
    for ax in every[len(report.growth) :]:
        ax.remove()
    picture.savefig(PICTURE, dpi=110)


def panel(
    ax: Axes, axis: str, works: dict[str, list[tuple[float, float]]], colours: dict[str, str]
) -> None:
    """Draw one axis, each line with what it is and its slope beside its end."""
    sizes = sorted({size for points in works.values() for size, _ in points})
    every = [seconds for points in works.values() for _, seconds in points]
    bottom, top = min(every) / 1.4, max(every) * 1.4
    rises = 1 if slope(next(iter(works.values()))) > 0 else -1
    dotted = [
        math.sqrt(bottom * top) * (size / math.sqrt(sizes[0] * sizes[-1])) ** rises
        for size in sizes
    ]
    ax.plot(sizes, dotted, ":", color="0.6", linewidth=1)
    ax.set(xscale="log", yscale="log", ylim=(bottom, top), xlabel=axis, ylabel="seconds")
    ax.set_xticks(sizes, [f"{size:,.0f}" for size in sizes])
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    for each in (ax.xaxis, ax.yaxis):
        each.set_minor_locator(NullLocator())
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    place, apart = 0.0, (top / bottom) ** 0.15
    for work, points in sorted(works.items(), key=lambda item: item[1][-1][1]):
        ax.plot(*zip(*points, strict=True), "o-", color=colours[work], markersize=4)
        place = max(points[-1][1], place * apart)
        said = f"{work}\nslope {slope(points):.2f}"
        where = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 9}
        ax.annotate(said, (1.01, place), color=colours[work], **where)
