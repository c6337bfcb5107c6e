"""What all functions over a table have in common: each against its oracle, in the same ways."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis import oracle
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
    cells_of,
    disorder,
    dtypes_of,
    edge_rows,
    fixed_grids,
    groupings,
    instant,
    many_rows,
    moderate,
    opened,
    outcome,
    recorded_table,
    records,
    signed,
    spans,
    table_of,
    tables,
    worlds,
)
from tests.columns import BALANCE_DTYPE, EXTERNAL, empty_table

if TYPE_CHECKING:
    from collections.abc import Callable

MOMENT, AMOUNT = "datetime64[us, {zone}]", str(BALANCE_DTYPE)
DTYPES = {
    MOMENT: ("timestamp", "start", "end"),
    MOMENT.format(zone="UTC"): (
        *("since", "peak_at", "first_seen", "last_seen", "minimum_at", "maximum_at"),
        "drawdown_at",
    ),
    "int64": ("accounts", "active", "changes", "known", "rows", "unknown"),
    "float64": ("change_percent", "cumulative_share", "known_share", "share", "zero_share"),
    "category": (*ba.ACCOUNT_KEY, "state", "reason"),
}
SUMMARY = (
    *("first_seen", "last_seen", "rows", "changes", "opening", "closing", "minimum", "maximum"),
    *("minimum_at", "maximum_at", "inflow", "outflow", "net"),
)
FALL = ("average", "drawdown", "drawdown_at", "zero_share")


@dataclass(frozen=True)
class Case:
    """A function, the loop that it must agree with, and the columns that it adds to ids.

    Attributes
    ----------
    function, expected
        The function of a table, and that of a world, a grid and columns to group by.
    columns
        The columns of its result behind the ids; a number of them in a wide layout.
    bounds
        What it takes of a grid: its "points"; its "periods", so that it takes no frequency as well;
        the "interval" alone; two "moments"; "nothing".
    by
        What it groups by: anything that is drawn, or these columns.
    amounts
        The balances that it is tried on.
    """

    function: Callable[..., Any]
    expected: Callable[..., Any]
    columns: tuple[str, ...] = ()
    bounds: str = "points"
    by: Any = groupings
    amounts: Any = moderate

    def of(self, table, grid, by=ba.ACCOUNT_KEY):
        how = {} if self.bounds == "nothing" else asked(grid)
        if self.bounds in {"interval", "moments"}:
            del how["freq"]
        if self.by is groupings:
            how["by"] = by
        return self.function(table, **how)

    def result(self, table, grid, by):
        frame = self.of(table, grid, by)
        if not self.columns:
            return cells_of(frame)
        assert dtypes_of(frame, table) == self.dtypes(by, grid.zone)
        return records(frame)

    def dtypes(self, by=ba.ACCOUNT_KEY, zone="UTC"):
        kinds = {name: kind for kind, names in DTYPES.items() for name in names}
        names = [*by, *self.columns]
        return {name: kinds.get(name, AMOUNT).format(zone=zone) for name in names}

    def grids(self):
        if self.bounds in {"nothing", "moments"}:
            return spans.map(lambda span: Grid(None, *span))
        free = {"interval": st.none(), "periods": st.none() | st.builds(Fixed, st.integers(1, 30))}
        return fixed_grids(freqs=free.get(self.bounds))


def keyed(*args, **options):
    """Return a case of a function that takes no columns to group by."""
    return Case(*args, by=ba.ACCOUNT_KEY, amounts=signed, **options)


long = partial(ba.balance_series, layout="long")
FLOWS = ("start", "end", "inflow", "outflow", "net", "changes", "active", "unknown")
MOVED = (*FLOWS[:5], "internal", *FLOWS[5:])
TOTALS = ("timestamp", "total", "known", "unknown")


def balances(table, start, end):
    return ba.balance_at(table, [end, start])


def holder_series(table, **how):
    return long(table, **how).drop(columns="state")


def holders(table, start, end, by):
    return ba.holders(table, start, by=by)


def comparison(table, start, end, by):
    return ba.compare(table, (start, end), by=by)


def wide_flows(world, grid, by, place):
    flows = oracle.flows(world, grid, by, full=True)
    return [(*row[: len(by) + 1], row[len(by) + 2 + place]) for row in flows]


def wide(value):
    return Case(
        partial(ba.flows, layout="wide", value=value),
        partial(wide_flows, place=FLOWS.index(value) - 2),
        bounds="periods",
    )


CASES = {
    "balances": keyed(
        balances, oracle.balances_at, ("timestamp", "balance", "since"), bounds="moments"
    ),
    "series": Case(holder_series, oracle.series, ("timestamp", "balance")),
    "series of accounts": keyed(long, oracle.series_with_states, ("timestamp", "balance", "state")),
    "wide series": Case(ba.balance_series, oracle.series),
    "wide series of accounts": keyed(ba.balance_series, oracle.series),
    "changes": keyed(long, oracle.changes, ("timestamp", "balance", "state"), bounds="interval"),
    "wide changes": keyed(ba.balance_series, oracle.wide_changes, bounds="interval"),
    "deltas": keyed(ba.deltas, oracle.deltas, ("timestamp", "balance", "delta"), bounds="nothing"),
    "flows": Case(ba.flows, oracle.flows, FLOWS, bounds="periods"),
    "flows of accounts": keyed(ba.flows, oracle.flows, FLOWS, bounds="periods"),
    "internal flows": Case(
        partial(ba.flows, internal=True),
        partial(oracle.flows, internal=True),
        MOVED,
        bounds="periods",
    ),
    "wide net": wide("net"),
    "wide active": wide("active"),
    "averages": Case(
        ba.time_weighted_average, oracle.averages, ("start", "end", "average"), bounds="periods"
    ),
    "averages of accounts": keyed(
        ba.time_weighted_average, oracle.averages, ("start", "end", "average"), bounds="periods"
    ),
    "averages of parts": Case(
        partial(ba.time_weighted_average, partial=True),
        oracle.parts_of_averages,
        ("start", "end", "average", "known_share"),
        bounds="periods",
    ),
    "candles": Case(ba.ohlc, oracle.ohlc, ("start", "end", "open", "high", "low", "close")),
    "candles of accounts": keyed(
        ba.ohlc, oracle.ohlc, ("start", "end", "open", "high", "low", "close")
    ),
    "drawdowns": keyed(
        ba.drawdown,
        oracle.drawdowns,
        ("timestamp", "balance", "peak", "peak_at", "depth"),
        bounds="nothing",
    ),
    "totals": Case(ba.totals, oracle.totals, TOTALS, bounds="periods"),
    "totals of any size": Case(
        partial(ba.totals), oracle.totals, TOTALS, bounds="periods", amounts=signed
    ),
    "shares": Case(
        partial(ba.totals, share=True), oracle.shares, (*TOTALS, "share"), bounds="periods"
    ),
    "summaries": keyed(
        ba.summarize_accounts, oracle.summaries, (*SUMMARY, *FALL), bounds="interval"
    ),
    "parties": Case(
        ba.summarize_parties,
        oracle.party_summaries,
        ("accounts", "unknown", *SUMMARY, "internal", *FALL),
        bounds="interval",
    ),
    "holders": Case(
        holders,
        oracle.ranked_holders,
        ("balance", "share", "cumulative_share", "accounts", "unknown"),
        bounds="moments",
        amounts=signed,
    ),
    "first holders": Case(
        lambda table, start, end, by: ba.holders(table, start, by=by, n=2),
        partial(oracle.ranked_holders, n=2),
        ("balance", "share", "cumulative_share", "accounts", "unknown"),
        bounds="moments",
        amounts=signed,
    ),
    "comparison": Case(
        comparison,
        oracle.comparison,
        ("before", "after", "change", "change_percent", "state", "accounts", "unknown"),
        bounds="moments",
        amounts=signed,
    ),
}
GRIDDED = [name for name, case in CASES.items() if case.bounds in {"points", "periods"}]
LARGE = [name for name, case in CASES.items() if case.amounts is signed]

names = pytest.mark.parametrize("name", CASES)


@names
@settings(max_examples=16)
@given(data=st.data())
def test_it_is_what_a_loop_over_integers_gives(name, data):
    """Of any rows, openings, gaps, bad rows, intervals, lost rows, groups and bounds."""
    case = CASES[name]
    (table, world), grid = data.draw(tables(case.amounts)), data.draw(case.grids())
    by = data.draw(groupings) if case.by is groupings else case.by
    assert outcome(case.result, table, grid, by) == outcome(case.expected, world, grid, by)


@pytest.mark.parametrize("name", GRIDDED)
@settings(max_examples=6)
@given(made=calendar_cases(), by=groupings)
def test_days_weeks_and_months_follow_the_clock_on_the_wall(name, made, by):
    (rows, grid), case = made, CASES[name]
    by = by if case.by is groupings else case.by
    assert case.result(table_of(rows), grid, by) == case.expected(World(rows), grid, by)


CENTURY = 84 * 365 * DAY
HISTORIES = {
    "edges": (edge_rows(), Grid(Fixed(2), START, START + 2000)),
    "two of them": (
        [*edge_rows(), *((*MARGIN, time, level) for *_, time, level in edge_rows()[::-1])],
        Grid(Fixed(3), START, START + 2000),
    ),
    "many": (many_rows(), Grid(Fixed(301), START - 5, START + 2000)),
    "a century": (
        [(*GENERAL, START, LARGEST), (*GENERAL, START + CENTURY - 1, LARGEST - 7)],
        Grid(Fixed(CENTURY), START, START + CENTURY),
    ),
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("history", HISTORIES)
def test_many_rows_and_amounts_at_the_edges_of_words_are_exact(name, history):
    case, (rows, grid) = CASES[name], HISTORIES[history]
    by = ["asset_id"] if case.by is groupings else case.by
    assert outcome(case.result, table_of(rows), grid, by) == outcome(
        case.expected, World(rows), grid, by
    )


@names
@settings(max_examples=5)
@given(data=st.data(), world=worlds(), random=st.randoms(use_true_random=False))
def test_the_order_of_the_rows_and_identical_duplicates_do_not_matter(name, data, world, random):
    table, grid = opened(world), data.draw(CASES[name].grids())
    mixed = disorder(table, random)
    mixed.attrs = table.attrs
    result, expected = (CASES[name].of(each, grid) for each in (mixed, table))
    if name in {"deltas", "drawdowns"}:  # which keep the index of rows that came sorted
        result, expected = (each.reset_index(drop=True) for each in (result, expected))
    pd.testing.assert_frame_equal(result, expected)


@names
def test_no_rows_give_no_rows_with_all_dtypes(name):
    case, grid = CASES[name], Grid(oracle.Days(1), START, START + DAY)
    by = ["asset_id"] if case.by is groupings else case.by
    result = case.of(empty_table(), grid, by)
    assert result.empty
    assert not case.columns or dtypes_of(result, empty_table()) == case.dtypes(by)


@pytest.mark.parametrize(
    "name", [name for name in CASES if CASES[name].bounds not in {"nothing", "moments"}]
)
def test_a_start_that_is_not_before_the_end_is_refused(name):
    with pytest.raises(ValueError, match=r"start must be before end, but start=datetime"):
        CASES[name].of(empty_table(), Grid(Fixed(5), START, START))


@names
def test_what_contradicts_itself_is_refused(name):
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 5, 6)])
    both = pd.concat([table, table_of([(*GENERAL, START, 6)])])
    with pytest.raises(ba.CheckError, match="conflicting"):
        CASES[name].of(both, Grid(Fixed(5), START, START + 9))


@pytest.mark.parametrize("column", [*ba.ACCOUNT_KEY, "timestamp", "balance"])
@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_row_that_lacks_a_value_is_refused(row, column):
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 1, 6), (*OTHER, START, 7)])
    table.loc[row, column] = pd.NA if column != "timestamp" else pd.NaT
    with pytest.raises(ValueError, match=column):
        ba.balance_series(table)


@pytest.mark.parametrize("name", ["wide series", "averages", "candles", "totals"])
def test_more_cells_than_fit_into_memory_are_refused_before_they_are_made(name):
    keys = [(f"a{place}", "T", "p", "") for place in range(5000)]
    table = table_of([(*key, START, 5) for key in keys] + [(*keys[0], START + 10_000_000, 5)])
    with pytest.raises(ValueError, match=r"need some 1,600 GB, but this machine has .*freq"):
        CASES[name].of(table, Grid(Fixed(1)))


GROUPED = [name for name, case in CASES.items() if case.by is groupings]
grouped = pytest.mark.parametrize("name", GROUPED)
TWO_DAYS = Grid(oracle.Days(1), START, START + 2 * DAY)


@grouped
@pytest.mark.parametrize("by", ["party_id", (), ("account_type",), ("party_id", "market_id")])
def test_different_assets_are_never_added_named_or_not(name, by):
    keys = [(asset, *GENERAL[1:]) for asset in ("DAI", "VOTE")]
    table = table_of([(*key, START + at, 5 + at) for key in keys for at in (0, 9)])
    result = CASES[name].of(table, TWO_DAYS, by)
    names = ["asset_id", *([by] if isinstance(by, str) else by)]
    assets = result if "asset_id" in result else result.columns.to_frame()
    pd.testing.assert_frame_equal(result, CASES[name].of(table, TWO_DAYS, names))
    assert {*assets["asset_id"]} == {"DAI", "VOTE"}


@grouped
@settings(max_examples=5)
@given(world=worlds(), grid=spans)
def test_groups_are_made_by_a_column_that_the_table_has_besides(name, world, grid):
    """Of a column that says as much as the party, but is NA where that is network."""
    table, case = opened(world), CASES[name]
    table["desk"] = table["party_id"].astype("str").replace("network", pd.NA)
    grid = Grid(Fixed(3), *grid)
    result, expected = (case.of(table, grid, ["asset_id", by]) for by in ("desk", "party_id"))
    plain = records if case.columns else cells_of
    named = [tuple(None if x == "network" else x for x in row) for row in plain(expected)]
    assert [tuple(None if pd.isna(x) else x for x in row) for row in plain(result)] == named


def test_an_account_with_two_values_in_a_column_belongs_to_no_group():
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + DAY, 1), (*OTHER, START, 9)])
    table["desk"] = ["east", "west", "west"]
    with pytest.raises(ValueError, match=r"by=\['desk'\].*party_id='a1'.*more than one value"):
        ba.totals(table, by=["asset_id", "desk"])


@grouped
def test_a_column_that_there_is_not_is_refused_with_what_there_is(name):
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
def test_a_column_of_ones_own_never_gives_way_to_one_of_a_result(name):
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
    one, other = instant(START), instant(START + 1)
    for work, rows in [
        (ba.deltas, own),
        (ba.flows, own),
        (ba.drawdown, own),
        (ba.summarize_accounts, own),
        (lambda table: ba.compare(table, (one, other)), own),
        (lambda table: ba.flows(table, by="party_id"), both),
        (lambda table: ba.totals(table, by="party_id"), both),
        (lambda table: ba.totals(table, by="party_id", freq="1us"), both),
        (lambda table: ba.holders(table, by="party_id"), both),
        (ba.summarize_parties, both),
    ]:
        with pytest.raises(OverflowError, match=r"'VOTE'.*'a1'.* 38 digits"):
            work(table_of(rows))


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


@settings(max_examples=20)
@given(
    worlds(),
    st.lists(st.sampled_from([*SUMMARY, *FALL]), unique=True),
    st.sampled_from([ba.summarize_accounts, ba.summarize_parties]),
)
def test_columns_that_are_asked_for_are_those_of_the_whole_summary(world, columns, function):
    whole = function(opened(world))
    keys = [name for name in ba.ACCOUNT_KEY if name in whole]
    result = function(opened(world), columns=columns)
    pd.testing.assert_frame_equal(result, whole[[*keys, *columns]])


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
    (partial(ba.holders, n=0), "n must be at least 1, not 0"),
    (partial(ba.holders, n=2.5), "n must be a whole number, not 2.5"),
    (partial(ba.holders, n="3"), "n must be a whole number, not '3'"),
]


@pytest.mark.parametrize(("work", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_makes_no_sense_is_refused(work, message):
    with pytest.raises(TypeError if "whole" in message else ValueError, match=message):
        work(empty_table())


# What is meant where nothing is said


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
def test_instants_may_be_given_in_many_ways(when):
    table = table_of([(*GENERAL, 19448 * DAY, 5), (*GENERAL, 19449 * DAY, 6)])
    assert records(ba.balance_at(table, when)) == [
        (*GENERAL, 19449 * DAY, 6, 19449 * DAY),
        (*GENERAL, 19448 * DAY, 5, 19448 * DAY),
    ]
    one = ba.balance_at(table, when[0])
    assert records(one) == [(*GENERAL, 6, 19449 * DAY)]


def test_a_part_of_a_microsecond_is_rounded_down():
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


def test_deltas_of_a_selection_stand_at_the_selections_rows(recorded_rows):
    table = recorded_table(recorded_rows)
    chosen = table[table["party_id"] != "network"].iloc[3:]
    assert [*chosen.index] != [*range(len(chosen))]
    deltas = ba.deltas(chosen)
    assert deltas.index.equals(chosen.index)
    assert deltas["balance"].equals(chosen["balance"])
    assert [*ba.deltas(chosen[::-1]).index] == [*range(len(chosen))]


def test_deltas_of_the_recording_are_the_ledger(recorded_rows, recorded_ledger):
    nets = defaultdict(int)
    for account, time, net in recorded_ledger:
        nets[*account, time] += net
    deltas = ba.deltas(ba.to_table(recorded_table(recorded_rows), nothing_before=True))
    compared = {row[:5]: row[6] for row in records(deltas) if row[1] != EXTERNAL}
    assert {key: delta for key, delta in compared.items() if delta} == {
        key: net for key, net in nets.items() if net and key[1] != EXTERNAL
    }
    assert len(compared) > 100
