"""Each function over a table gives its oracle's result, on the same kinds of tables."""

import datetime as dt
from dataclasses import replace
from functools import partial

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis import oracle
from tests.analysis.cases import CASES, FALL, SUMMARY
from tests.analysis.oracle import Fixed, Grid, World
from tests.analysis.tables import (
    DAY,
    GENERAL,
    HOUR,
    LARGEST,
    MARGIN,
    OTHER,
    START,
    asked,
    calendar_cases,
    disorder,
    edge_rows,
    groupings,
    in_blocks,
    instant,
    many_rows,
    near,
    opened,
    outcome,
    own_groupings,
    records,
    signed,
    table_of,
    tables,
    worlds,
)
from tests.columns import empty_table

GRIDDED = [name for name, case in CASES.items() if case.bounds in {"points", "periods"}]
LARGE = [name for name, case in CASES.items() if case.amounts is signed]

TOGETHER = [
    [name for name in CASES if (name in LARGE) == is_large][n::3]
    for is_large in (True, False)
    for n in range(3)
]
"""Functions that share tables."""

names = pytest.mark.parametrize("name", CASES)
sizes = st.sampled_from([1, 1 << 17])
"""Rows per block."""


@pytest.mark.parametrize("names", TOGETHER, ids=", ".join)
@settings(max_examples=12)
@given(data=st.data(), rng=st.randoms(use_true_random=False), size=sizes, groups=own_groupings())
def test_a_result_is_that_of_a_loop_over_integers(names, data, rng, size, groups):
    """Of any rows in any order, openings, gaps, bad rows, intervals, lost rows, groups, bounds.

    The table's column `desk` groups as the party does, and is NA for the party `network`.
    """
    grids = [data.draw(CASES[name].grids()) for name in names]
    table, world = data.draw(tables(data.draw(st.sampled_from([CASES[names[0]].amounts, near]))))
    table = disorder(table, rng)
    table["desk"] = table["party_id"].astype("str").replace("network", pd.NA)
    for name, grid in zip(names, grids, strict=True):
        case = CASES[name]
        given, by = groups if case.by is groupings else (case.by, case.by)
        with in_blocks(size):
            result = outcome(case.result, table, grid, by, given)
        assert result == outcome(in_groups, case.loop, world, grid, by), name


def in_groups(expected, world, grid, by):
    """Return the expected result of groups; the column `desk` stands for the party."""
    rows = expected(world, grid, ["party_id" if name == "desk" else name for name in by])
    if "desk" not in by:
        return rows
    return [tuple(None if value == "network" else value for value in row) for row in rows]


@pytest.mark.parametrize("name", GRIDDED)
@settings(max_examples=6)
@given(made=calendar_cases(), by=groupings)
def test_days_weeks_and_months_follow_the_local_clock(name, made, by):
    (rows, grid), case = made, CASES[name]
    by = by if case.by is groupings else case.by
    assert case.result(table_of(rows), grid, by) == case.loop(World(rows), grid, by)


CENTURY = 84 * 365 * DAY
MANY = many_rows()
MOMENTS = sorted(row[4] for row in MANY)
HISTORIES = {
    "edges": (edge_rows(), Grid(Fixed(2), START, START + 2000)),
    "two of them": (
        [*edge_rows(), *((*MARGIN, time, level) for *_, time, level in edge_rows()[::-1])],
        Grid(Fixed(3), START, START + 2000),
    ),
    "many": (MANY, Grid(Fixed(301), MOMENTS[20], MOMENTS[-50])),
    "a century": (
        [(*GENERAL, START, LARGEST), (*GENERAL, START + CENTURY - 1, LARGEST - 7)],
        Grid(Fixed(CENTURY), START, START + CENTURY),
    ),
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("history", HISTORIES)
def test_many_rows_and_amounts_near_word_limits_are_exact(name, history):
    case, (rows, grid) = CASES[name], HISTORIES[history]
    grid = replace(grid, freq=None) if case.bounds == "interval" else grid
    by = ["asset_id"] if case.by is groupings else case.by
    assert outcome(case.result, table_of(rows), grid, by) == outcome(
        case.loop, World(rows), grid, by
    )


@pytest.mark.parametrize(
    "name", [name for name in CASES if CASES[name].bounds not in {"nothing", "moments"}]
)
def test_a_start_that_is_not_before_the_end_is_refused(name):
    with pytest.raises(ValueError, match=r"start must be before end, but start=datetime"):
        CASES[name].of(empty_table(), Grid(Fixed(5), START, START))


@names
def test_contradictory_rows_are_refused(name):
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 5, 6)])
    both = pd.concat([table, table_of([(*GENERAL, START, 6)])])
    with pytest.raises(ba.CheckError, match="conflicting"):
        CASES[name].of(both, Grid(Fixed(5), START, START + 9))


@pytest.mark.parametrize("column", [*ba.ACCOUNT_KEY, "timestamp", "balance"])
@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_row_with_a_missing_value_is_refused(row, column):
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 1, 6), (*OTHER, START, 7)])
    table.loc[row, column] = pd.NA if column != "timestamp" else pd.NaT
    with pytest.raises(ValueError, match=column):
        ba.balance_series(table)


def test_numeric_ids_are_refused_even_in_a_frame_with_a_tables_dtypes():
    table = table_of([(*GENERAL, START, 5), (*OTHER, START, 7)])
    with pytest.raises(TypeError, match="party_id must be text, not int64"):
        ba.totals(table.assign(party_id=pd.Categorical([1, 2])), by="party_id")


@pytest.mark.parametrize("name", ["wide series", "averages", "candles", "totals"])
def test_more_cells_than_fit_into_memory_are_refused_before_they_are_computed(name):
    keys = [(f"a{place}", "T", "p", "") for place in range(5000)]
    table = table_of([(*key, START, 5) for key in keys] + [(*keys[0], START + 10_000_000, 5)])
    with pytest.raises(ValueError, match=r"need some 1,600 GB, but this machine has .*freq"):
        CASES[name].of(table, Grid(Fixed(1)))


GROUPED = [name for name, case in CASES.items() if case.by is groupings]
grouped = pytest.mark.parametrize("name", GROUPED)
TWO_DAYS = Grid(oracle.Days(1), START, START + 2 * DAY)


def test_shares_are_of_groups_by_a_column_of_any_name():
    keys = [("VOTE", "T", party, "") for party in "ab"]
    table = table_of([(*keys[0], START, 3), (*keys[1], START, 1)]).assign(whole=["east", "west"])
    assert ba.totals(table, by="whole", share=True)["share"].tolist() == [0.75, 0.25]


def test_an_account_with_two_values_in_a_column_belongs_to_no_group():
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + DAY, 1), (*OTHER, START, 9)])
    table["desk"] = ["east", "west", "west"]
    with pytest.raises(ValueError, match=r"by=\['desk'\].*party_id='a1'.*more than one value"):
        ba.totals(table, by=["asset_id", "desk"])


@grouped
def test_an_unknown_column_is_refused_with_the_known_ones(name):
    table = table_of([(*GENERAL, START, 5)]).assign(desk="east")
    with pytest.raises(ValueError, match=r"not \['party'\]; did you mean 'party_id'\?"):
        CASES[name].of(table, TWO_DAYS, "party")
    message = r"by must name columns of .*'market_id'.*table\['desk'\] ="
    for by in ("floor", ["asset_id", "balance"], ["asset_id", "asset_id"]):
        with pytest.raises(ValueError, match=message if by == "floor" else "each once"):
            CASES[name].of(table, TWO_DAYS, by)
    with pytest.raises(TypeError, match="by must name columns"):
        CASES[name].of(table, TWO_DAYS, 5)


@pytest.mark.parametrize("name", [name for name in GROUPED if CASES[name].columns])
def test_a_callers_own_column_is_never_overwritten_by_a_results_column(name):
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + DAY, 6)])
    for column in {*CASES[name].columns} - {*table}:
        with pytest.raises(ValueError, match=rf"by=\['{column}'\]: a result has a column"):
            CASES[name].of(table.assign(**{column: "east"}), TWO_DAYS, column)


def test_amounts_of_more_than_38_digits_are_refused_with_their_account_or_group():
    """Of one account among others, and of two accounts of one party."""
    levels = (-LARGEST, LARGEST, -LARGEST)
    own = [(*GENERAL, START + at, level) for at, level in enumerate(levels)]
    own.append((*OTHER, START, 1))
    both = [(*key, START + at, at * LARGEST) for key in (GENERAL, MARGIN) for at in (0, 1)]
    party = {"by": "party_id"}
    one, other = instant(START), instant(START + 1)
    for work, rows in [
        *((work, own) for work in (ba.deltas, ba.flows, ba.drawdown, ba.summarize_accounts)),
        (lambda table: ba.compare(table, (one, other)), own),
        *(
            (partial(work, **party), both)
            for work in (ba.flows, ba.totals, ba.drawdown, ba.holders)
        ),
        (partial(ba.flows, **party, layout="wide", value="inflow"), both),
        (partial(ba.totals, **party, freq="1us"), both),
        (partial(ba.balance_series, **party), both),
        (partial(ba.balance_series, **party, layout="long"), both),
        (partial(ba.ohlc, freq="2us", **party), both),
        (partial(ba.time_weighted_average, freq="1us", **party), both),
        (ba.summarize_parties, both),
    ]:
        said = pytest.raises(OverflowError, match=r"'VOTE'.*'a1'.* 38 digits")
        with in_blocks(1), said:
            work(table_of(rows))


def test_intermediate_amounts_may_have_any_size():
    """Sums outside the interval, flows of which some are internal, levels, and wholes of shares."""
    levels = [(0, 0), (LARGEST, LARGEST), (LARGEST, 0), (0, LARGEST), (LARGEST, LARGEST), (5, 6)]
    pairs = [zip((GENERAL, MARGIN), pair, strict=True) for pair in levels]
    table = table_of([(*key, START + n, x) for n, pair in enumerate(pairs) for key, x in pair])
    zero, one, two, four = (instant(START + n) for n in (0, 1, 2, 4))
    inside = {"by": "party_id", "start": two, "end": four}
    assert records(ba.balance_series(table, **inside, layout="long"))[0][3] == LARGEST
    flows = records(ba.flows(table, **inside, freq=None, internal=True))
    assert flows[0][4:8] == (0, LARGEST, -LARGEST, LARGEST)
    average = ba.time_weighted_average(table, zero, two, by="party_id")
    assert average["average"].tolist() == [LARGEST]
    shares = ba.totals(table, by="account_type", start=one, end=two, share=True)
    assert shares["share"].tolist() == [0.5, 0.5]


def test_an_unknown_amount_may_have_any_size():
    times = (START, START + 5)
    known = [(instant(START - 2), instant(START + 2)), (instant(START + 3), instant(START + 9))]
    rows = [(*GENERAL, time, level) for time, level in zip(times, (-LARGEST, LARGEST), strict=True)]
    table = ba.to_table(table_of(rows), known=known)
    assert ba.deltas(table)["delta"].isna().all()
    assert ba.flows(table, freq=None)["net"].isna().all()
    moments = instant(START + 2), instant(START + 3)
    assert ba.compare(table, at=moments)["change"].isna().all()


@pytest.mark.parametrize("level", [2**114 - 1, 1 - 2**114, 2**64 - 1, 2**64 + 1, 2**32])
def test_thousands_of_large_amounts_add_up_exactly(level):
    rows = [(*GENERAL, START + at, level * (at % 2)) for at in range(4001)]
    flows = ba.flows(table_of(rows), freq=None)
    total = 2000 * abs(level)
    assert records(flows)[0][6:] == (total, total, 0, 4000, 1, 1)
    rows = [("VOTE", "T", f"p{place}", "", START, level) for place in range(4000)]
    assert records(ba.totals(table_of(rows))) == [("VOTE", "T", START, 4000 * level, 4000, 0)]


@pytest.mark.parametrize("years", [1, 60])
def test_thousands_of_parties_over_decades_keep_their_own_times(years):
    """Groups and microseconds that fit into one number together, and more than fit."""
    keys = [("VOTE", GENERAL[1], f"p{number:04}", "") for number in range(6000)]
    ends = [(START + place, START + years * 365 * DAY - place) for place in range(len(keys))]
    rows = [
        (*key, at, 5 + n) for key, own in zip(keys, ends, strict=True) for n, at in enumerate(own)
    ]
    totals = ba.totals(table_of(rows), by="party_id")
    assert [(row[1], *row[2:4]) for row in records(totals)] == [row[2:3] + row[4:] for row in rows]
    parties = ba.summarize_parties(table_of(rows))
    assert (parties["net"] == 1).all()
    assert [time.value // 1000 for time in parties["last_seen"]] == [last for _, last in ends]


@settings(max_examples=12)
@given(
    worlds(),
    st.lists(st.sampled_from([*SUMMARY, *FALL]), unique=True) | st.just([*SUMMARY, *FALL]),
    st.sampled_from([ba.summarize_accounts, ba.summarize_parties]),
)
def test_chosen_columns_equal_those_of_the_whole_summary(world, columns, function):
    table = opened(world)
    whole = function(table)
    keys = [name for name in ba.ACCOUNT_KEY if name in whole]
    pd.testing.assert_frame_equal(function(table, columns=columns), whole[[*keys, *columns]])


REFUSED = [
    (partial(ba.summarize_accounts, columns="net"), "columns must be some of"),
    (partial(ba.summarize_accounts, columns=["gross"]), "columns must be some of"),
    (partial(ba.balance_series, layout="tall"), "layout must be"),
    (partial(ba.flows, layout="tall"), "layout must be"),
    (partial(ba.flows, layout="wide", value="balance"), "value must be one of"),
    (partial(ba.flows, layout="wide", value="internal"), "value must be one of"),
    (partial(ba.compare, at="2023-04-01"), "at must be two moments"),
    (partial(ba.compare, at=["2023-04-01"]), "at must be two moments"),
    (
        partial(ba.compare, at=("2023-04-02", "2023-04-01")),
        "the earlier one first, not 2023-04-02 and 2023-04-01",
    ),
    (partial(ba.holders, at=["2023-04-01", "2023-04-02"]), "at must be one moment"),
    (partial(ba.holders, n=0), "n must be at least 1, not 0"),
    (partial(ba.holders, n=2.5), "n must be a whole number, not 2.5"),
    (partial(ba.holders, n="3"), "n must be a whole number, not '3'"),
]


@pytest.mark.parametrize(("work", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_invalid_arguments_are_refused(work, message):
    with pytest.raises(TypeError if "whole" in message else ValueError, match=message):
        work(empty_table())


# Defaults


@pytest.mark.parametrize(
    "when",
    [
        ["2023-04-02", "2023-04-01"],
        ("2023-04-02T00:00Z", "2023-04-01T02:00+02:00"),
        [dt.date(2023, 4, 2), dt.datetime(2023, 4, 1, tzinfo=dt.UTC)],
        pd.DatetimeIndex(["2023-04-02", "2023-04-01"]),
        pd.DatetimeIndex(["2023-04-02T02:00", "2023-04-01T02:00"], tz="Europe/Berlin"),
    ],
)
def test_moments_may_be_given_in_many_ways(when):
    table = table_of([(*GENERAL, 19448 * DAY, 5), (*GENERAL, 19449 * DAY, 6)])
    assert records(ba.balance_at(table, when)) == [
        (*GENERAL, 19449 * DAY, 6, 19449 * DAY),
        (*GENERAL, 19448 * DAY, 5, 19448 * DAY),
    ]
    assert records(ba.balance_at(table, when[0])) == [(*GENERAL, 6, 19449 * DAY)]


def test_a_fraction_of_a_microsecond_is_rounded_down():
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 1, 6)])
    when = pd.Timestamp(START * 1000 + 999, tz="UTC")
    for result in (
        *(ba.balance_at(table, when), ba.holders(table, when)),
        ba.balance_at(table, when.isoformat()),
    ):
        assert result["balance"].tolist() == [5]


def test_flows_are_by_day_and_totals_by_asset_and_type_by_default():
    keys = (GENERAL, MARGIN, OTHER)
    table = table_of([(*key, START + at * HOUR, 1) for key in keys for at in (0, 1, 24)])
    days = Grid(oracle.Days(1))
    pd.testing.assert_frame_equal(ba.flows(table), ba.flows(table, **asked(days)))
    types = ba.totals(table, by=["asset_id", "account_type"])
    pd.testing.assert_frame_equal(ba.totals(table), types)


def test_flows_are_in_the_order_of_groups_which_accounts_neednt_have():
    other = (*GENERAL[:2], "b2", "")
    places = [(other, 0), (other, 1), (MARGIN, DAY), (MARGIN, DAY + 1)]
    table = table_of([(*key, START + place, place) for key, place in places])
    assert ba.flows(table, by="party_id")["party_id"].tolist() == ["a1", "b2"]


def test_deltas_of_a_selection_keep_its_index(recorded_rows):
    table = table_of(recorded_rows)
    chosen = table[table["party_id"] != "network"].iloc[3:]
    assert [*chosen.index] != [*range(len(chosen))]
    deltas = ba.deltas(chosen)
    assert deltas.index.equals(chosen.index)
    assert deltas["balance"].equals(chosen["balance"])
    assert [*ba.deltas(chosen[::-1]).index] == [*range(len(chosen))]


def test_a_party_falls_from_the_highest_sum_of_its_accounts():
    levels = [(GENERAL, 0, 5), (MARGIN, 0, 1), (MARGIN, 1, 4), (GENERAL, 2, 0)]
    falls = ba.drawdown(table_of([(*key, START + n, x) for key, n, x in levels]), by="party_id")
    high = START + 1
    assert records(falls[["timestamp", "balance", "peak", "peak_at", "depth"]]) == [
        (START, 6, 6, START, 0),
        (high, 9, 9, high, 0),
        (START + 2, 4, 9, high, 5),
    ]


@pytest.mark.parametrize("of", [ba.summarize_accounts, partial(ba.flows, freq=None)])
def test_a_change_of_any_size_before_the_start_is_ignored(of):
    rows = [(*GENERAL, START, -LARGEST), (*GENERAL, START + 1, LARGEST), (*GENERAL, START + 3, 7)]
    (row,) = records(of(table_of(rows), start=instant(START + 2))[["inflow", "net"]])
    assert row == (0, 7 - LARGEST)
    with pytest.raises(OverflowError, match="the inflow of"):
        of(table_of(rows))
