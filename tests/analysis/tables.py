"""Small tables, built from tuples or drawn by hypothesis."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from dataclasses import replace

import pandas as pd
import pyarrow as pa
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis import ACCOUNT_KEY
from balance_analysis.frame import to_arrow, to_frame
from balance_analysis.spans import joined
from tests.analysis.oracle import Calendar, Days, Fixed, Grid
from tests.columns import BALANCE_DTYPE, COLUMNS
from tests.moments import from_microseconds

START = 1_680_000_000_000_000
BEGIN = START - 20
LARGEST = 10**38 - 1
MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR

GENERAL = ("VOTE", "ACCOUNT_TYPE_GENERAL", "a1", "")
MARGIN = ("VOTE", "ACCOUNT_TYPE_MARGIN", "a1", "m1")
OTHER = ("ea43", "ACCOUNT_TYPE_GENERAL", "b2", "")


def table_of(rows):
    """Return a table of (asset, type, party, market, microseconds, balance) tuples."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(COLUMNS)
    return table_from(arrow_of(columns))


def arrow_of(columns):
    types = [pa.string()] * len(ACCOUNT_KEY)
    types += [pa.timestamp("us", "UTC"), pa.decimal128(38, 0)]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    return pa.table(dict(zip(COLUMNS, arrays, strict=True)))


def table_from(arrow):
    """Return rows in Arrow as a table."""
    return to_frame(arrow)


def arrow_from(table):
    """Return a table's rows in Arrow, as they stand."""
    return to_arrow(table)


def recorded_table(recorded_rows):
    return table_of(
        [(*row.account, row.timestamp_ns // 1000, row.balance) for row in recorded_rows]
    )


def rows_of(table):
    """Return a table's rows as the tuples that `table_of` takes."""
    return [
        (*(str(name) for name in row[:4]), moment(row[4]), int(row[5]))
        for row in table[list(COLUMNS)].itertuples(index=False)
    ]


def by_account(rows):
    """Return {account: [(time, balance), ...]}, accounts and times ascending."""
    histories = defaultdict(list)
    for *account, time, balance in sorted(rows):
        histories[tuple(account)].append((time, balance))
    return dict(histories)


def amount(value):
    """Return a value of a table as a Python integer, None where it is missing."""
    return None if pd.isna(value) else int(value)


def moment(value):
    """Return a timestamp as microseconds, None where it is missing."""
    return None if pd.isna(value) else value.value // 1000


def records(frame):
    """Return a frame's rows as tuples of str, int, float and, where a value is missing, None."""
    columns = [_plain_column(frame[name]) for name in frame.columns]
    return list(zip(*columns, strict=True))


def _plain_column(column):
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        assert column.dtype.unit == "us"
        return [moment(value) for value in column]
    if column.dtype == BALANCE_DTYPE:
        return [None if value is None else int(value) for value in pa.array(column).to_pylist()]
    if column.dtype == "float64":
        return [None if math.isnan(value) else value for value in column.tolist()]
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.astype("str").tolist()
    if column.dtype == "Int64":
        return [None if pd.isna(value) else int(value) for value in column]
    assert column.dtype == "int64"
    return column.tolist()


def dtypes_of(frame):
    """Return the names and dtypes of a frame's columns, once its categories are as they must be."""
    for name in frame.select_dtypes("category"):
        categories = frame[name].cat.categories
        assert categories.dtype == "str"
        if name in ACCOUNT_KEY:
            assert list(categories) == sorted(set(frame[name].astype("str")))
    return {str(name): str(dtype) for name, dtype in frame.dtypes.items()}


def expected_dtypes(by, *, zone="UTC", times=(), amounts=(), counts=(), nullable=(), floats=()):
    return {
        **dict.fromkeys(by, "category"),
        **dict.fromkeys(times, f"datetime64[us, {zone}]"),
        **dict.fromkeys(amounts, str(BALANCE_DTYPE)),
        **dict.fromkeys(counts, "int64"),
        **dict.fromkeys(nullable, "Int64"),
        **dict.fromkeys(floats, "float64"),
    }


def outcome(function, *args):
    """Return what a function returns, or that it found an amount too large to be one."""
    try:
        return function(*args)
    except OverflowError as error:
        if "38 digits" in str(error):
            return "more than 38 digits"
        raise


def opened(rows, opening, known=None, **how):
    """Return a table that begins at BEGIN, if it has openings, which are rows from before it."""
    before = [(*account, since, balance) for account, (balance, since) in opening.items()]
    spans = None if known is None else [tuple(map(instant, span)) for span in known]
    return ba.to_table(
        table_of([*rows, *before]), start=instant(BEGIN) if opening else None, known=spans, **how
    )


def since_openings(grid, opening):
    """Return a grid as the table of `opened` has it by default."""
    return replace(grid, since=BEGIN if opening else None)


def many_rows(count=2000):
    """Return rows of 25 accounts with balances of all sizes and signs, the same every time."""
    rng = random.Random(count)
    keys = [("VOTE" if rng.random() < 0.5 else "ea43", "T", f"p{place}", "") for place in range(25)]
    moments = {(rng.choice(keys), START + rng.randrange(count)) for _ in range(count)}
    return [
        (*key, time, rng.randrange(-9, 10 ** rng.choice([1, 9, 18, 19, 20, 36])))
        for key, time in sorted(moments)
    ]


def edge_rows():
    """Return rows whose balances lie at the edges of their machine words, in all pairs."""
    edges = [
        sign * 2**bits + off for bits in (63, 64, 96) for sign in (1, -1) for off in (-1, 0, 1)
    ]
    levels = [level for one in [0, *edges] for other in [0, *edges] for level in (one, other)]
    return [(*GENERAL, START + at, level) for at, level in enumerate(levels)]


def disorder(table, rng):
    """Return a table's rows in any order, some twice, or the table in another make."""
    kind = rng.randrange(4)
    if kind == 0:
        order = [*range(len(table)), *range(0, len(table), 2)]
        rng.shuffle(order)
        return table.iloc[order]
    if kind == 1:
        cut = rng.randint(0, len(table))
        return pd.concat([table.iloc[:cut], table.iloc[cut:]])
    if kind == 2:
        ends = [(end, end, end, end, START, 7) for end in ("", "~")]
        return table_of([*rows_of(table), *ends]).iloc[1:-1]
    rows = table.copy()
    for name in ACCOUNT_KEY:
        categories = ["", "~", *rows[name].cat.categories.drop("", errors="ignore")]
        rng.shuffle(categories)
        rows = rows.assign(**{name: rows[name].cat.set_categories(categories)})
    return rows


def split(table, when):
    """Return a table's rows up to a moment, and those after it."""
    later = table["timestamp"] > from_microseconds(when)
    return table[~later], table[later]


def instant(microseconds):
    return None if microseconds is None else from_microseconds(microseconds)


def asked(grid):
    """Return a grid as the arguments that ask for it."""
    bounds = {"start": instant(grid.start), "end": instant(grid.end)}
    zone = {} if grid.zone == "UTC" else {"tz": grid.zone}
    return {"freq": grid.freq and grid.freq.text, **bounds, **zone}


accounts = st.tuples(
    st.sampled_from(["VOTE", "ea43"]),
    st.sampled_from(["ACCOUNT_TYPE_GENERAL", "ACCOUNT_TYPE_MARGIN"]),
    st.sampled_from(["b2", "a1", "network"]),
    st.sampled_from(["", "m1"]),
)
times = st.integers(START, START + 12)
balances = st.one_of(
    st.integers(0, 3),
    st.integers(0, LARGEST // 100),
)
rows = st.dictionaries(st.tuples(accounts, times), balances, max_size=40).map(
    lambda levels: [(*account, time, balance) for (account, time), balance in levels.items()]
)
instants = st.integers(START - 2, START + 14)


odd = st.integers(10**34, LARGEST // 200).map(lambda half: 2 * half + 1)
"""Balances of up to 36 digits that no float holds."""
signed = st.one_of(
    st.integers(-2, 3),
    st.integers(-LARGEST, LARGEST),
    st.sampled_from([LARGEST, LARGEST - 1, -LARGEST]),
    st.builds(
        lambda sign, bits, off: sign * 2**bits + off,
        st.sampled_from([-1, 1]),
        st.integers(0, 126),
        st.integers(-1, 1),
    ),
)
"""Balances whose differences and sums may leave 38 digits."""
moderate = st.one_of(st.integers(0, 3), st.integers(-3, 3), odd)
"""Balances of all sizes whose sums stay within 38 digits."""


@st.composite
def books(draw, amounts=moderate, times=times, most=25, openings=True):
    """Draw rows, and openings from before BEGIN."""
    keys = st.tuples(accounts, times)
    levels = draw(
        st.one_of(
            *(st.dictionaries(keys, kind, max_size=most) for kind in (amounts, st.just(0) | odd))
        )
    )
    rows = [(*account, time, balance) for (account, time), balance in levels.items()]
    before = st.tuples(amounts, st.integers(BEGIN - 9, BEGIN - 1))
    return rows, draw(st.dictionaries(accounts, before, max_size=5)) if openings else {}


edges = st.integers(START - 2, START + 15)
_bounds = st.integers(BEGIN - 10, BEGIN + 2) | edges
gaps = st.lists(st.tuples(_bounds, _bounds).filter(lambda pair: pair[0] < pair[1]), max_size=3).map(
    lambda pairs: tuple(joined(pairs))
)
"""Known intervals, between which changes may be missing."""

cases = st.tuples(books(), gaps).map(lambda case: (*case[0], case[1]))
"""Rows, openings, and known intervals, maybe none."""


@st.composite
def fixed_grids(draw, rows=(), scale=1, freqs=None):
    """Draw a grid of microseconds around the times of `rows`, finer or coarser than they are."""
    freq = Fixed(draw(st.integers(scale, 30 * scale))) if freqs is None else draw(freqs)
    bound = st.none() | st.integers(START - 5 * scale, START + 20 * scale)
    return _grid(draw(bound), draw(bound), freq, rows)


def _grid(start, end, freq, rows, zone="UTC"):
    """Return a grid with these bounds, put right where they leave nothing."""
    if start is not None and end is not None and start >= end:
        start, end = end, start + 1
    grid = Grid(freq, start, end, zone)
    if start is None and end is not None and rows:
        default = Grid(freq, zone=zone).points(rows)[0] if freq else min(row[4] for row in rows)
        grid = Grid(freq, start, max(end, default + 1), zone)
    return grid


CLOCK_CHANGES = [
    ("Europe/Berlin", "2023-03-26T01:00Z"),
    ("Europe/Berlin", "2023-10-29T01:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00Z"),  # the clock skips midnight
    ("America/Sao_Paulo", "2018-02-18T02:00Z"),
    ("America/Havana", "2023-11-05T05:00Z"),  # the clock shows midnight twice
    ("Asia/Kolkata", "2023-04-01T00:00Z"),
    ("UTC", "2024-02-29T00:00Z"),
]


@st.composite
def calendar_cases(draw):
    """Draw rows, openings and a grid of days, weeks or months around a change of the clock."""
    zone, change = draw(st.sampled_from(CLOCK_CHANGES))
    about = pd.Timestamp(change).value // 1000
    freq, pace = draw(
        st.sampled_from(
            [
                (Days(1), 30 * MINUTE),
                (Days(2), HOUR),
                (Days(7), 5 * HOUR),
                (Calendar("B"), 2 * HOUR),
                (Calendar("W-MON"), 9 * HOUR),
                (Calendar("W-SUN"), 7 * HOUR),
                (Calendar("MS"), 43 * HOUR),
                (Calendar("QS-FEB"), 101 * HOUR),
                (Calendar("QS"), 101 * HOUR),
                (Calendar("YS"), 301 * HOUR),
            ]
        )
    )
    moments = st.integers(-100, 100).map(lambda step: about + step * pace)
    rows, opening = draw(books(times=moments, most=10, openings=False))
    hours = st.integers(-60, 60).map(lambda step: about + step * max(pace, HOUR))
    start, end = draw(st.none() | hours), draw(st.none() | hours)
    return rows, opening, _grid(start, end, freq, rows, zone)
