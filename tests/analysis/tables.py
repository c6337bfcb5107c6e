"""Small tables, built from tuples or drawn by hypothesis."""

import random
from contextlib import contextmanager
from functools import cache
from itertools import pairwise, product

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis import ACCOUNT_KEY
from balance_analysis.table.frame import to_frame
from tests.analysis.oracle import Calendar, Days, Fixed, Grid, World
from tests.columns import ARROW_SCHEMA, ATTRS_KEY, BALANCE_DTYPE, COLUMNS, note_evidence
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
    return table_from(arrow_of(rows))


def arrow_of(rows):
    """Return the same in Arrow."""
    columns = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
    return pa.table(dict(zip(COLUMNS, columns, strict=True)), ARROW_SCHEMA)


def table_from(arrow):
    """Return rows in Arrow as a table."""
    return to_frame(arrow)


def arrow_from(table):
    """Return a table's rows in Arrow, as they stand."""
    return arrow_of(rows_of(table))


def rows_of(table):
    """Return a table's rows as the tuples that `table_of` takes."""
    return records(table[list(COLUMNS)])


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
    kinds = {"category": str, "int64": int, "Int64": int, "float64": float, str(BALANCE_DTYPE): int}
    kind = kinds[str(column.dtype)]
    return [None if value is None else kind(value) for value in pa.array(column).to_pylist()]


def cells_of(wide):
    """Return a wide layout as records: its column's ids, the time of the row, and the value."""
    keys = [key if isinstance(key, tuple) else (key,) for key in wide.columns]
    ids = [[None if pd.isna(value) else value for value in key] for key in keys]
    columns = [zip(wide.index, _plain_column(wide[key]), strict=True) for key in wide.columns]
    return [
        (*key, moment(time), value)
        for key, column in zip(ids, columns, strict=True)
        for time, value in column
    ]


def dtypes_of(frame, table):
    """Check a result's categories, and return the names and dtypes of its columns.

    The categories are the ids of the result, or of all accounts of the table.
    """
    for name in frame.select_dtypes("category"):
        categories = frame[name].cat.categories
        assert categories.dtype == "str"
        if name in ACCOUNT_KEY:
            ids = [sorted({*each[name].tolist()}) for each in (frame, table)]
            assert list(categories) in ids
    return {str(name): str(dtype) for name, dtype in frame.dtypes.items()}


def outcome(function, *args):
    """Return a function's result, or its error about an amount that is too large."""
    try:
        return function(*args)
    except OverflowError as error:
        if "38 digits" in str(error):
            return "more than 38 digits"
        raise


def opened(world, *cuts, dropped=()):
    """Return the table of a world, cut to one interval after another, without some rows."""
    before = [(*account, since, balance) for account, (balance, since) in world.opening.items()]
    table = table_of([*world.rows, *before])
    begin = instant(world.begin)
    if world.bad:
        answers = [{"span": x, "node": {"name": "node"}, "asked": (0, 0)} for x in world.known]
        bad = [{"span": span, "account": account} for span, account in world.bad]
        evidence = {"answers": answers, "set_aside": bad, "from_first_block": world.nothing_before}
        table = ba.to_table(table)
        how = {"nothing_before": world.begins_with_nothing}
        note_evidence(table, world.seen(), evidence, **how)
        if begin is not None:
            table.attrs[ATTRS_KEY]["start"] = begin.isoformat()
    else:
        spans = world.known and [tuple(map(instant, span)) for span in world.known]
        how = {"known": spans, "nothing_before": world.nothing_before}
        table = ba.to_table(table, start=begin, **how)
    for cut in cuts:
        table = table.balances.between(*map(instant, cut))
    return table[[(row[:4], row[4]) not in dropped for row in records(table)]] if dropped else table


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
    """Return rows with every pair of balances at the edges of machine words."""
    edges = [
        sign * 2**bits + off for bits in (63, 64, 96) for sign in (1, -1) for off in (-1, 0, 1)
    ]
    levels = [level for one in [0, *edges] for other in [0, *edges] for level in (one, other)]
    return [(*GENERAL, START + at, level) for at, level in enumerate(levels)]


def disorder(table, rng):
    """Return a table's rows in any order, some twice, or the table in another form, or as it is."""
    rows = table.copy()
    match rng.randrange(5):
        case 0:
            order = [*range(len(table)), *range(0, len(table), 2)]
            rng.shuffle(order)
            rows = table.iloc[order]
        case 1:
            cut = rng.randint(0, len(table))
            rows = pd.concat([table.iloc[:cut], table.iloc[cut:]])
        case 2:
            ends = [(end, end, end, end, START, 7) for end in ("", "~")]
            rows = table_of([*rows_of(table), *ends]).iloc[1:-1]
        case 3:
            for name in ACCOUNT_KEY:
                categories = ["", "~", *rows[name].cat.categories.drop("", errors="ignore")]
                rng.shuffle(categories)
                rows = rows.assign(**{name: rows[name].cat.set_categories(categories)})
    rows.attrs = table.attrs
    return rows


@contextmanager
def in_blocks(size):
    """Set the number of rows that are processed at once: a small one makes many blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("balance_analysis.analysis.steps.BLOCK", size)
        patch.setattr("balance_analysis.analysis.totals.AT_ONCE", size)
        yield


def instant(microseconds):
    return None if microseconds is None else from_microseconds(microseconds)


def asked(grid):
    """Return a grid as the arguments of a function."""
    bounds = {"start": instant(grid.start), "end": instant(grid.end)}
    zone = {} if grid.zone == "UTC" else {"tz": grid.zone}
    return {"freq": grid.freq and grid.freq.text, **bounds, **zone}


ACCOUNTS = [
    *product(
        ("VOTE", "ea43"),
        ("ACCOUNT_TYPE_GENERAL", "ACCOUNT_TYPE_MARGIN"),
        ("b2", "a1", "network"),
        ("", "m1"),
    )
]
"""All accounts that are drawn."""
accounts = st.sampled_from(ACCOUNTS)
times = st.integers(START, START + 12)
rows = st.dictionaries(
    st.tuples(accounts, times), st.integers(0, 3) | st.integers(0, LARGEST // 100), max_size=40
).map(lambda levels: [(*account, time, balance) for (account, time), balance in levels.items()])

odd = st.integers(10**34, LARGEST // 200).map(lambda half: 2 * half + 1)
"""Balances of up to 36 digits that no float holds."""
powers = st.builds(lambda sign, bits: sign * 2**bits, st.sampled_from([-1, 1]), st.integers(0, 126))
signed = st.one_of(
    st.integers(-2, 3),
    st.integers(-LARGEST, LARGEST),
    st.sampled_from([LARGEST, LARGEST - 1, -LARGEST]),
    st.builds(lambda power, off: power + off, powers, st.integers(-1, 1)),
)
"""Balances whose differences and sums may leave 38 digits."""
moderate = st.one_of(st.integers(0, 3), st.integers(-3, 3), odd)
"""Balances of all sizes whose sums stay within 38 digits."""

near = st.one_of(
    st.integers(0, 9), st.integers(10**37, LARGEST), st.sampled_from([LARGEST, -LARGEST, 2**126])
)
"""Balances of which a few add up to 38 digits or more."""

groupings = st.sets(st.sampled_from(ACCOUNT_KEY[1:]), max_size=2).flatmap(
    lambda names: st.permutations(["asset_id", *sorted(names)])
)


@st.composite
def own_groupings(draw):
    """Draw columns to group by, as an argument and as columns of the result.

    A first `asset_id` may be left out, and a column `desk` may stand for the party.
    """
    desk, by = draw(st.booleans()), draw(groupings)
    by = ["desk" if desk and name == "party_id" else name for name in by]
    return by[draw(st.booleans()) and by[0] == "asset_id" :], by


@cache
def books(amounts=moderate, times=times, most=25, openings=True):
    """Draw rows, and openings from before BEGIN."""
    keys = st.tuples(accounts, times)
    kinds = (st.dictionaries(keys, kind, max_size=most) for kind in (amounts, st.just(0) | odd))
    rows = st.one_of(*kinds).map(
        lambda levels: [(*key, time, balance) for (key, time), balance in levels.items()]
    )
    before = st.tuples(amounts, st.integers(BEGIN - 9, BEGIN - 1))
    opened = st.dictionaries(accounts, before, max_size=5) if openings else st.just({})
    return st.tuples(rows, opened)


edges = st.integers(START - 2, START + 15)
_bounds = st.integers(BEGIN - 10, BEGIN + 2) | edges
gaps = st.lists(_bounds, unique=True, max_size=6).map(
    lambda bounds: tuple([*pairwise(sorted(bounds))][::2])
)
"""Known intervals, between which changes may be missing."""


def spans_of(scale):
    """Draw an interval around the times of rows that lie some microseconds apart."""
    bounds = st.integers(START - 2 * scale, START + 15 * scale)
    return st.tuples(bounds, bounds).filter(lambda span: span[0] < span[1])


spans = spans_of(1)
bad_rows = st.lists(
    st.tuples(
        st.tuples(edges, st.integers(1, 3)).map(lambda at: (at[0], sum(at))), accounts | st.none()
    ),
    min_size=1,
    max_size=3,
).map(tuple)


maybe_gaps, maybe_bad = st.none() | gaps, st.just(()) | bad_rows


@st.composite
def worlds(draw, amounts=moderate):
    """Draw a table's rows and known intervals."""
    rows, opening = draw(books(amounts))
    known = draw(maybe_gaps)
    bad = draw(maybe_bad) if known else ()
    nothing_before = draw(st.booleans())
    return World(rows, opening, known, nothing_before, bad, BEGIN if opening else None)


@st.composite
def tables(draw, amounts=moderate, more=()):
    """Draw a table, maybe an interval of one, or one that lost rows, and the world it shows."""
    world, cuts = draw(worlds(amounts)), sorted(draw(st.lists(spans, max_size=2)))
    world.rows.extend(more)
    shown, dropped = world, frozenset()
    for cut in cuts:
        shown = shown.between(*cut)
    is_noted = cuts or (not world.bad and (world.known or world.begin or world.nothing_before))
    if is_noted and draw(st.integers(0, 2)) == 0:
        own = [(row[:4], row[4]) for row in shown.rows]
        own += [(account, since) for account, (_, since) in shown.opening.items()]
        dropped = draw(st.frozensets(st.sampled_from(own), max_size=3)) if own else dropped
    return opened(world, *cuts, dropped=dropped), shown.without(dropped)


def fixed_grids(scale=1, freqs=None):
    """Draw a grid around the times of rows that lie some microseconds apart."""
    freqs = st.integers(scale, 30 * scale).map(Fixed) if freqs is None else freqs
    bound = st.none() | st.integers(START - 5 * scale, START + 20 * scale)
    return st.builds(_grid, bound, bound, freqs)


def _grid(start, end, freq, zone="UTC"):
    """Return a grid with these bounds, moved apart if they contain nothing."""
    if None not in (start, end) and start >= end:
        start, end = end, start + 1
    return Grid(freq, start, end, zone)


CLOCK_CHANGES = [
    ("Europe/Berlin", "2023-03-26T01:00Z"),
    ("Europe/Berlin", "2023-10-29T01:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00Z"),  # the clock skips midnight
    ("America/Sao_Paulo", "2018-02-18T02:00Z"),
    ("America/Santiago", "2023-09-03T04:00Z"),
    ("Asia/Beirut", "2022-03-26T22:00Z"),
    ("Africa/Cairo", "2023-04-27T22:00Z"),
    ("America/Havana", "2023-11-05T05:00Z"),  # the clock shows midnight twice
    ("Pacific/Apia", "2011-12-30T10:00Z"),  # the calendar skips a day
    ("Asia/Kolkata", "2023-04-01T00:00Z"),
    ("UTC", "2024-02-29T00:00Z"),
]
PACES = [
    (Fixed(HOUR), 10 * MINUTE),
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


@st.composite
def calendar_cases(draw):
    """Draw rows and a grid of days, weeks or months around a change of the clock."""
    zone, change = draw(st.sampled_from(CLOCK_CHANGES))
    # pandas converts the midnight of a skipped day wrongly; only a business day can begin there.
    paces = [pace for pace in PACES if zone != "Pacific/Apia" or pace[0] != Calendar("B")]
    freq, pace = draw(st.sampled_from(paces))
    about = pd.Timestamp(change).value // 1000
    moments = st.integers(-100, 100).map(lambda step: about + step * pace)
    rows, _ = draw(books(times=moments, most=10, openings=False))
    hours = st.integers(-60, 60).map(lambda step: about + step * max(pace, HOUR))
    return rows, _grid(draw(st.none() | hours), draw(st.none() | hours), freq, zone)
