"""Who reconstructs the same from one table, and what is asked of the ratios."""

from __future__ import annotations

from typing import Final

ROWS, ACCOUNTS = 5_000_000, 5000
QUARTER: Final = ROWS // 4

SHAPES: Final = {
    "": (ACCOUNTS, True),
    ", unsorted": (ACCOUNTS, False),
    ", 500,000 accounts": (500_000, True),
    ", 500,000 accounts, unsorted": (500_000, False),
}
"""How many accounts a table has, and whether its rows are in order; the first one has more races.

Of many accounts the series and the averages have a cell for nine days, not for an hour or a day.
"""

OURS, DUCKDB, POLARS, FEWER = "this package", "DuckDB", "Polars", f"this package, {QUARTER:,} rows"
WIDE, PACKED = "this package, wide", "Polars, on one packed key"
PANDAS: Final = "pandas, floats"

SERIES: Final = "hourly series"
WORKS: Final = {
    SERIES: "series",
    "totals an hour": "totals",
    "deltas": "deltas",
    "flows a day": "flows",
    "averages a day": "averages",
    "summaries": "summaries",
}

RACES: Final = {
    name: {
        OURS: ("ours", work),
        FEWER: ("fewer", work),
        DUCKDB: ("DuckDB", work),
        POLARS: ("Polars", work),
    }
    for name, work in WORKS.items()
}
"""For each work, its contestants: the worker to ask, and what to ask for."""

RACES[SERIES] |= {
    WIDE: ("ours", "series_wide"),
    PACKED: ("Polars", "series_packed"),
    PANDAS: ("pandas", "series"),
}

FASTER: Final = {DUCKDB: 4}
"""How many times as long others shall take, at least, in each work and shape."""

FASTER_THAN_PANDAS: Final = 6

LINEAR: Final = 1.1 * ROWS / QUARTER
"""How many times as long all rows may take as a quarter of them."""

HELD: Final = 3
"""How many times the larger of result and table may be held while a work runs."""


def title(name: str, shape: str = "") -> str:
    """Return what a work is called in the report."""
    return f"{name}, {ROWS:,} rows{shape}"
