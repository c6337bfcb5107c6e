"""The figures of one run, with the targets beside them: as a record, and for the page."""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from tests.benchmarks.contestants import DLT, FLOOR, LOOP, TABLE, fetching
from tests.benchmarks.processes import Cost
from tests.benchmarks.races import (
    FASTER,
    FASTER_THAN_PANDAS,
    FEWER,
    HELD,
    LINEAR,
    OURS,
    PANDAS,
    QUARTER,
    ROWS,
    SERIES,
    SHAPES,
    WORKS,
    title,
)
from tests.benchmarks.workers import Weight

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WHOLE = "500,000 rows, 5,000 a page"
SLOW = "500,000 rows, 5,000 a page, 50 ms a request"
SLOW_SMALL = "100,000 rows, 500 a page, 50 ms a request"
LARGE = "5,000,000 rows, 5,000 a page"
HELD_OVER = "memory over the start, 5,000,000 rows"
HELD_OVER_READ = "memory over the start, 5,000,000 rows of an archive"
COLUMNS_OF = "its columns"
DECODE = "decode_page, rows a second"
DECODERS = "60 pages of 5,000 rows, two at once"
EXPORT = "2,000,000 rows, 5,000 a page"
WAITING = "an export that finds nothing new, 2,000,000 rows held"
READ = "20,000,000 rows read whole"
STORE = "90 files in an object store, 30 ms a request"
PARTY = "one party's history out of 20,000,000 rows"
ACCOUNTS_OF = "the accounts of 20,000,000 rows"
SEGMENTS = "2,000,000 rows in 100 segments"
MANY_SEGMENTS = "8,000,000 rows in 400 segments"
EXPLAIN = "where numbers come from, out of 20,000,000 rows"
SCAN = "balances at an instant out of 20,000,000 rows"
CLUSTER_EXPORT = "export of 1,008,000 rows, 5,000 a page, 50 ms a request"

Key = tuple[str, str]


@dataclass(frozen=True)
class Target:
    """A bound on a ratio of two measured costs, or on one where there is no `other`."""

    says: str
    one: Key
    other: Key | None
    of: str
    bound: float
    at_most: bool


TARGETS = (
    *(
        Target(f"{name} / floor, seconds", (WHOLE, name), (WHOLE, FLOOR), "seconds", bound, True)
        for name, bound in ((TABLE, 1.25), (fetching(1), 0.8), (fetching(4), 1.25))
    ),
    Target(f"{LOOP} / fetch", (WHOLE, LOOP), (WHOLE, fetching(4)), "seconds", 2.5, False),
    Target("dlt / fetch", (WHOLE, DLT), (WHOLE, fetching(4)), "seconds", 6, False),
    *(
        Target(f"1 worker / 8 workers, {group}", *keys, "seconds", bound, False)
        for group, bound in ((SLOW, 5), (SLOW_SMALL, 6.5))
        for keys in [((group, fetching(1)), (group, fetching(8)))]
    ),
    Target("fetch, 5,000,000 rows, MB", (LARGE, fetching(4)), None, "peak", 400, True),
    Target(
        "fetch, 5,000,000 / 500,000 rows, MB",
        (LARGE, fetching(4)),
        (WHOLE, fetching(4)),
        "peak",
        1.25,
        True,
    ),
    *(
        Target(f"{says} / its columns, MB", (group, who), (group, COLUMNS_OF), "peak", 1.3, True)
        for says, group, who in (
            ("load to a table", HELD_OVER, "table"),
            ("read of an archive", HELD_OVER_READ, "archive"),
        )
    ),
    *(
        Target(f"{engine} / {OURS}, {name}{shape}", *keys, "seconds", bound, False)
        for shape in SHAPES
        for name in WORKS
        for engine, bound in FASTER.items()
        for keys in [((title(name, shape), engine), (title(name, shape), OURS))]
    ),
    Target(
        f"{PANDAS} / {OURS}, {SERIES}",
        (title(SERIES), PANDAS),
        (title(SERIES), OURS),
        "seconds",
        FASTER_THAN_PANDAS,
        False,
    ),
    *(
        Target(f"{ROWS:,} / {QUARTER:,} rows, {name}", *keys, "seconds", LINEAR, True)
        for name in WORKS
        for keys in [((title(name), OURS), (title(name), FEWER))]
    ),
    Target("export / fetch", (EXPORT, "export"), (EXPORT, "fetch"), "seconds", 1.15, True),
    Target("export that finds nothing new, s", (WAITING, "export"), None, "seconds", 2, True),
    *(
        Target(
            f"{other} / archive, one party",
            (PARTY, other),
            (PARTY, "archive"),
            "seconds",
            10,
            False,
        )
        for other in ("pandas, day files sorted by time", "pandas with filters")
    ),
    *(
        Target(f"archive / {other}, read whole", (READ, ours), (READ, other), "seconds", 1, True)
        for ours, other in (
            ("archive, as a sorted table", "pyarrow.dataset, as a sorted table"),
            ("archive, as batches", "pyarrow.dataset, unsorted"),
        )
    ),
    Target(
        "digest of an archive / reading it as batches",
        (READ, "archive, its digest"),
        (READ, "archive, as batches"),
        "seconds",
        3,
        True,
    ),
    Target("archive, one party, s", (PARTY, "archive"), None, "seconds", 0.06, True),
    Target("balance_at of 20,000,000 rows, s", (SCAN, "archive"), None, "seconds", 0.3, True),
    Target("archive, one party, MB", (PARTY, "archive"), None, "peak", 300, True),
    Target("accounts of 20,000,000 rows, s", (ACCOUNTS_OF, "archive"), None, "seconds", 2, True),
    Target(
        "rows of segments / unzip and pyarrow.csv alone, cpu",
        (SEGMENTS, "rows"),
        (SEGMENTS, "alone"),
        "cpu",
        1.5,
        True,
    ),
    Target(
        "import, 8,000,000 / 2,000,000 rows, MB",
        (MANY_SEGMENTS, "import"),
        (SEGMENTS, "import"),
        "peak",
        1.5,
        True,
    ),
    Target("full scan / archive", (SCAN, "full scan"), (SCAN, "archive"), "seconds", 5, False),
    *(
        Target(f"2 workers / 1 worker of a cluster, {group}", *keys, "seconds", 0.6, True)
        for work in ("totals an hour", "averages a day")
        for group in [f"{work}, 20,000,000 rows in an archive"]
        for keys in [((group, "2 workers"), (group, "1 worker"))]
    ),
    Target(
        f"1 worker / 2 workers of a cluster, {CLUSTER_EXPORT}",
        (CLUSTER_EXPORT, "1 worker process of 8 connections"),
        (CLUSTER_EXPORT, "2 worker processes of 8 connections"),
        "seconds",
        1.8,
        False,
    ),
)


@dataclass(frozen=True)
class Figure:
    """A quantity that was measured once or several times; `least` and `most` bound its median."""

    group: str
    says: str
    values: list[float]
    unit: str
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class Goal:
    """What was asked of a figure, and what it came to: the median of the rounds."""

    says: str
    limit: str
    measured: str
    least: str
    most: str
    rounds: int
    is_held: bool


@dataclass
class Report:
    """What was measured so far.

    Attributes
    ----------
    costs
        For each group and contestant, what each round cost.
    rows_per_second
        Of decoding alone; `None` until measured.
    weights
        For each reconstruction, what it held.
    touched
        For each group, the MB of what this package reads and makes at least.
    copy_rates
        How many MB a second a plain copy reads and writes, in each round.
    bytes_a_row
        Of an archive, and of plain files of the same rows.
    figures
        What else was measured.
    growth
        For each axis and work, the sizes and how many seconds the work took.
    failed
        The benchmarks that failed or were left out, and why.
    took
        The seconds of each file of benchmarks.
    """

    costs: dict[Key, list[Cost]] = field(default_factory=dict)
    rows_per_second: float | None = None
    weights: dict[str, Weight] = field(default_factory=dict)
    touched: dict[str, float] = field(default_factory=dict)
    copy_rates: list[float] = field(default_factory=list)
    bytes_a_row: dict[str, float] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    growth: dict[str, dict[str, list[tuple[float, float]]]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    took: dict[str, float] = field(default_factory=dict)
    load_before: float = field(default_factory=lambda: os.getloadavg()[0])

    def add(self, group: str, name: str, cost: Cost) -> None:
        """Take what one round cost."""
        self.costs.setdefault((group, name), []).append(cost)

    def tell(
        self,
        group: str,
        says: str,
        *values: float,
        unit: str,
        least: float | None = None,
        most: float | None = None,
    ) -> None:
        """Take a figure."""
        self.figures.append(Figure(group, says, [*map(float, values)], unit, least, most))

    def fail(self, what: str, why: str) -> None:
        """Note a benchmark that failed or was left out."""
        self.failed[what] = why

    def to_json(self) -> bytes:
        """Return all of it as one object."""
        costs = [[*key, each] for key, each in self.costs.items()]
        return msgspec.json.encode({**vars(self), "costs": costs})

    @classmethod
    def joined(cls, records: Iterable[bytes]) -> Report:
        """Return what several records tell."""
        whole, loads = cls(), []
        for record in records:
            content = msgspec.json.decode(record)
            content["costs"] = {(group, name): each for group, name, each in content["costs"]}
            part = msgspec.convert(content, cls)
            for name in ("costs", "weights", "bytes_a_row", "growth", "failed", "took", "touched"):
                getattr(whole, name).update(getattr(part, name))
            whole.figures += part.figures
            whole.copy_rates += part.copy_rates
            whole.rows_per_second = part.rows_per_second or whole.rows_per_second
            loads.append(part.load_before)
        whole.load_before = min(loads, default=whole.load_before)
        return whole

    def groups(self) -> dict[str, dict[str, list[Cost]]]:
        """Return the costs by group and contestant."""
        groups: dict[str, dict[str, list[Cost]]] = {}
        for (group, name), costs in self.costs.items():
            groups.setdefault(group, {})[name] = costs
        return groups

    def floors(self) -> Iterator[tuple[str, float, float, float]]:
        """Yield of each reconstruction the MB that it must touch, what a copy takes, and it."""
        for group, touched in self.touched.items():
            ours = statistics.median(cost.seconds for cost in self.costs[group, OURS])
            yield group, touched, touched / statistics.median(self.copy_rates), ours

    def goals(self) -> Iterator[Goal]:
        """Yield what was asked of what was measured."""
        for target in TARGETS:
            one = self.costs.get(target.one)
            other = self.costs.get(target.other) if target.other else None
            if one and other:
                found = ratios(one, other, target.of)
                yield _goal(target.says, target.bound, found, at_most=target.at_most)
            elif one and target.other is None:
                found = [getattr(cost, target.of) for cost in one]
                yield _goal(target.says, target.bound, found, at_most=target.at_most)
        for name, weight in self.weights.items():
            says = f"peak / larger of result and table, {name}"
            found = weight.peak / max(weight.result, weight.table)
            yield _goal(says, HELD, [found], at_most=True)
        if self.bytes_a_row:
            ours, plain = self.bytes_a_row.values()
            yield _goal("archive, bytes a row", 10, [ours], at_most=True)
            says = f"archive / plain files, {ours:.1f} and {plain:.1f} bytes a row"
            yield _goal(says, 0.8, [ours / plain], at_most=True)
        if self.rows_per_second is not None:
            yield _goal(DECODE, 1_000_000, [self.rows_per_second], at_most=False)
        for figure in self.figures:
            says = f"{figure.group}: {figure.says}, {figure.unit}"
            if figure.most is not None:
                yield _goal(says, figure.most, figure.values, at_most=True)
            if figure.least is not None:
                yield _goal(says, figure.least, figure.values, at_most=False)


def spread(values: list[float]) -> tuple[float, float, float]:
    """Return the least, the median and the most."""
    return min(values), statistics.median(values), max(values)


def number(value: float) -> str:
    """Return a figure with as many digits as tell something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"


def ratio(costs: list[Cost], others: list[Cost], of: str = "seconds") -> float:
    """Return the median of the rounds' ratios: what slows a whole round cancels out."""
    return statistics.median(ratios(costs, others, of))


def ratios(costs: list[Cost], others: list[Cost], of: str) -> list[float]:
    """Return the ratio of each round."""
    pairs = zip(costs, others, strict=False)
    return [getattr(one, of) / getattr(other, of) for one, other in pairs]


def _goal(says: str, bound: float, measured: list[float], *, at_most: bool) -> Goal:
    least, median, most = spread(measured)
    is_held = median <= bound if at_most else median >= bound
    limit = f"{'<=' if at_most else '>='} {bound if bound == round(bound, 2) else round(bound):,}"
    return Goal(says, limit, *map(number, (median, least, most)), len(measured), is_held)
