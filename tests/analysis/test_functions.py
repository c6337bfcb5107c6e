"""What all functions over a table have in common: each against its oracle, in the same ways."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis import oracle
from tests.analysis.oracle import Fixed, Grid
from tests.analysis.tables import (
    DAY,
    GENERAL,
    HOUR,
    MARGIN,
    OTHER,
    START,
    amount,
    asked,
    books,
    calendar_cases,
    disorder,
    dtypes_of,
    edge_rows,
    expected_dtypes,
    fixed_grids,
    gaps,
    instant,
    instants,
    many_rows,
    moderate,
    moment,
    opened,
    outcome,
    records,
    rows,
    signed,
    since_openings,
    table_of,
)
from tests.columns import empty_table

if TYPE_CHECKING:
    from collections.abc import Callable

PERIOD = {"times": ["start", "end"]}
ASSET = ["asset_id"]
TYPES = ["asset_id", "account_type"]


@dataclass(frozen=True)
class Case:
    """A function, the loop that it must agree with, and what its result looks like.

    `amounts` are the balances it is tried on; `grids` the frequencies it takes, none of them where
    it takes no grid.
    """

    function: Callable[..., Any]
    expected: Callable[..., Any]
    dtypes: dict[str, Any]
    amounts: Any = signed
    grids: str = "points"
    by: list[str] = field(default_factory=lambda: ba.ACCOUNT_KEY)

    def call(self, table, grid=None):
        options = {} if grid is None or self.grids == "none" else asked(grid)
        return self.function(table, **options)

    def found(self, rows, opening, grid, known=None):
        return records(self.call(opened(rows, opening, known), grid))

    def oracle(self, rows, opening, grid, known=None):
        by = () if self.by == ba.ACCOUNT_KEY and self.function is not ba.flows else (self.by,)
        return self.expected(rows, opening, grid, *by, known)


def long(table, **options):
    return ba.balance_series(table, layout="long", **options)


def key_dtypes(**columns):
    return expected_dtypes(ba.ACCOUNT_KEY, **columns)


FLOWS = {"amounts": ["inflow", "outflow", "net"], "counts": ["changes", "active", "unknown"]}
TOTALS = {"times": ["timestamp"], "amounts": ["total"], "counts": ["known", "unknown"]}
FALLS = key_dtypes(times=["timestamp"], amounts=["balance", "peak"])
CASES = {
    "series": Case(
        long,
        oracle.series,
        key_dtypes(times=["timestamp"], amounts=["balance"]) | {"state": "category"},
    ),
    "flows": Case(
        ba.flows,
        oracle.flows,
        key_dtypes(**PERIOD, **FLOWS),
        grids="periods",
    ),
    "flows of assets": Case(
        lambda table, **options: ba.flows(table, by="asset_id", **options),
        oracle.flows,
        expected_dtypes(ASSET, **PERIOD, **FLOWS),
        grids="periods",
        by=ASSET,
    ),
    "averages": Case(
        ba.time_weighted_average,
        oracle.averages,
        key_dtypes(**PERIOD, amounts=["average"]),
        grids="periods",
    ),
    "averages of parts": Case(
        lambda table, **options: ba.time_weighted_average(table, partial=True, **options),
        oracle.parts_of_averages,
        key_dtypes(**PERIOD, amounts=["average"]) | {"known_share": "float64"},
        grids="periods",
    ),
    "candles": Case(
        ba.ohlc, oracle.ohlc, key_dtypes(**PERIOD, amounts=["open", "high", "low", "close"])
    ),
    "totals": Case(
        lambda table, **options: ba.totals(table, by=["asset_id"], **options),
        oracle.totals,
        expected_dtypes(ASSET, **TOTALS),
        grids="periods",
        by=ASSET,
    ),
    "deltas": Case(
        ba.deltas,
        oracle.deltas,
        key_dtypes(times=["timestamp"], amounts=["balance", "delta"]),
        grids="none",
    ),
    "drawdowns": Case(
        ba.drawdown,
        oracle.drawdowns,
        FALLS | expected_dtypes((), times=["peak_at"], amounts=["depth"]),
        grids="none",
    ),
}
GRIDDED = [name for name, case in CASES.items() if case.grids != "none"]
OTHERS = {
    "summary": ba.summarize_accounts,
    "balances": lambda table, **options: ba.balance_at(table, "2024-01-01", **options),
    "wide series": ba.balance_series,
}
EVERY = {name: case.call for name, case in CASES.items()} | OTHERS

names = pytest.mark.parametrize("name", CASES)
gridded = pytest.mark.parametrize("name", GRIDDED)


def grid_for(data, case, rows):
    """Draw a grid of those that a function takes: of a frequency, or the interval as a whole."""
    if case.grids == "periods" and data.draw(st.booleans()):
        return data.draw(fixed_grids(rows, freqs=st.none()))
    return data.draw(fixed_grids(rows))


@names
@settings(max_examples=12)
@given(data=st.data())
def test_it_is_what_a_loop_over_integers_finds(name, data):
    case = CASES[name]
    rows, opening = data.draw(books(case.amounts))
    grid = grid_for(data, case, rows)
    found = outcome(case.found, rows, opening, grid)
    assert found == outcome(case.oracle, rows, opening, since_openings(grid, opening))


@names
@settings(max_examples=12)
@given(book=books(), known=gaps, length=st.integers(1, 7))
def test_where_a_change_may_be_missing_it_is_what_a_loop_finds(name, book, known, length):
    grid = Grid(Fixed(length), START - 3, START + 16)
    case = CASES[name]
    assert case.found(*book, grid, known) == case.oracle(*book, grid, known)


@settings(max_examples=12)
@given(book=books(), known=gaps, length=st.integers(1, 7), by=st.sampled_from([ASSET, TYPES]))
def test_wide_flows_tell_quiet_from_not_known(book, known, length, by):
    grid = Grid(Fixed(length), START - 3, START + 16)
    expected = defaultdict(list)
    for *group, _, _, inflow, outflow, net, changes, active, unknown in oracle.flows(
        *book, grid, by, known, full=True
    ):
        expected[tuple(group)].append((inflow, outflow, net, changes, active, unknown))
    values = (*FLOWS["amounts"], *FLOWS["counts"])
    for place, value in enumerate(values):
        how = {"by": by, "layout": "wide", "value": value}
        wide = ba.flows(opened(*book, known), **how, **asked(grid))
        assert [moment(start) for start in wide.index] == [x for x, _ in grid.periods([])]
        found = {group: [amount(cell) for cell in column] for group, column in wide.items()}
        keys = {group if len(by) > 1 else group[0]: cells for group, cells in expected.items()}
        assert found == {key: [cell[place] for cell in cells] for key, cells in keys.items()}


@gridded
@settings(max_examples=6)
@given(made=calendar_cases())
def test_days_weeks_and_months_follow_the_clock_on_the_wall(name, made):
    rows, opening, grid = made
    assert CASES[name].found(rows, opening, grid) == CASES[name].oracle(
        rows, opening, since_openings(grid, opening)
    )


@gridded
@pytest.mark.parametrize(("day", "hours"), [("2023-03-26", 23), ("2023-10-29", 25)])
def test_a_day_in_berlin_has_23_or_25_hours_when_the_clock_changes(name, day, hours):
    midnight = pd.Timestamp(day, tz="Europe/Berlin").value // 1000
    next_midnight = midnight + hours * HOUR
    levels = [(midnight - 1, 1), (midnight, 3), (next_midnight - 1, 8), (next_midnight, 20)]
    rows = [(*GENERAL, time, level) for time, level in levels]
    grid = Grid(oracle.Days(1), zone="Europe/Berlin")
    found = CASES[name].call(table_of(rows), grid)
    assert records(found) == CASES[name].oracle(rows, {}, grid)
    begins = found["start" if "start" in found else "timestamp"]
    assert str(begins.dtype) == "datetime64[us, Europe/Berlin]"
    assert begins.tolist()[1:3] == [instant(midnight), instant(next_midnight)]


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].amounts is signed])
def test_many_rows_are_exact(name):
    rows, grid = many_rows(), Grid(Fixed(301), START - 5)
    assert CASES[name].found(rows, {}, grid) == CASES[name].oracle(rows, {}, grid)


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].amounts is signed])
def test_amounts_at_the_edges_of_words_are_exact(name):
    rows = edge_rows()
    if CASES[name].by == ASSET:
        rows += [(*MARGIN, time, level) for *_, time, level in [*rows[1:], rows[0]]]
    for length in (2, 3):
        grid = Grid(Fixed(length), START)
        assert CASES[name].found(rows, {}, grid) == CASES[name].oracle(rows, {}, grid)


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=4)
@given(data=st.data(), book=books(), random=st.randoms(use_true_random=False))
def test_the_order_of_the_rows_and_identical_duplicates_do_not_matter(name, data, book, random):
    table = opened(*book)
    grid = () if name in OTHERS else (grid_for(data, CASES[name], book[0]),)
    mixed = disorder(table, random)
    mixed.attrs = table.attrs
    found, expected = (EVERY[name](each, *grid) for each in (mixed, table))
    if name in ("deltas", "drawdowns"):  # which keep the index of rows that came sorted
        found, expected = (each.reset_index(drop=True) for each in (found, expected))
    pd.testing.assert_frame_equal(found, expected)


@gridded
@settings(max_examples=6)
@given(rows=rows, when=instants, length=st.integers(1, 9))
def test_openings_at_a_split_open_what_comes_after_it(name, rows, when, length):
    table = table_of(rows)
    grid = Grid(Fixed(length), when + 1, START + 20)
    part = table.balances.between(instant(when + 1), instant(START + 20))
    resumed = CASES[name].call(part, grid)
    columns = [column for column in resumed if column != "state"]
    whole = CASES[name].call(table, grid)
    pd.testing.assert_frame_equal(resumed[columns], whole[columns])


@names
@settings(max_examples=4)
@given(rows=rows)
def test_columns_and_dtypes_are_the_same_for_any_rows(name, rows):
    found = CASES[name].call(table_of(rows), Grid(Fixed(5)))
    assert list(dtypes_of(found).items()) == list(CASES[name].dtypes.items())


@names
def test_no_rows_give_no_rows_with_all_dtypes(name):
    found = CASES[name].call(empty_table(), Grid(oracle.Days(1)))
    assert found.empty
    assert dtypes_of(found) == CASES[name].dtypes


@pytest.mark.parametrize("name", [*GRIDDED, "summary", "wide series"])
def test_a_start_that_is_not_before_the_end_is_refused(name):
    function = OTHERS.get(name) or CASES[name].function
    freq = {} if name == "summary" else {"freq": "1D"}
    with pytest.raises(ValueError, match=r"start must be before end.*2023-04-02"):
        function(empty_table(), **freq, start="2023-04-02", end="2023-04-02")


@pytest.mark.parametrize("name", EVERY)
def test_what_contradicts_itself_is_refused(name):
    grid = () if name in OTHERS else (Grid(Fixed(5)),)
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 5, 6)])
    with pytest.raises(ba.CheckError, match="conflicting"):
        EVERY[name](pd.concat([table, table_of([(*GENERAL, START, 6)])]), *grid)


@pytest.mark.parametrize("column", [*ba.ACCOUNT_KEY, "timestamp", "balance"])
@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_row_that_lacks_a_value_is_refused(row, column):
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 1, 6), (*OTHER, START, 7)])
    table.loc[row, column] = pd.NA if column != "timestamp" else pd.NaT
    with pytest.raises(ValueError, match=column):
        ba.balance_series(table)


@pytest.mark.parametrize(
    "function",
    [ba.balance_series, *(CASES[name].function for name in ("averages", "candles", "totals"))],
)
def test_more_cells_than_fit_into_memory_are_refused_before_they_are_made(function):
    keys = [(f"a{place}", "T", "p", "") for place in range(5000)]
    table = table_of([(*key, START, 5) for key in keys] + [(*keys[0], START + 10_000_000, 5)])
    with pytest.raises(ValueError, match=r"need some 1,600 GB, but this machine has .*freq"):
        function(table, freq="1us")


GROUPING = {
    "flows": lambda table, by: ba.flows(table, freq=None, by=by),
    "totals": lambda table, by: ba.totals(table, by=by, start=instant(START)),
    "holders": lambda table, by: ba.holders(table, by=by),
    "parties": lambda table, by: ba.summarize_parties(table, by=by),
    "comparison": lambda table, by: ba.compare(table, at=(instant(START), "2024-01-01"), by=by),
    "series": lambda table, by: ba.balance_series(table, by=by),
    "averages": lambda table, by: ba.time_weighted_average(table, by=by),
}


@pytest.mark.parametrize("name", GROUPING)
@pytest.mark.parametrize("by", ["party_id", (), ("account_type",), ("party_id", "market_id")])
def test_different_assets_are_never_added_named_or_not(name, by):
    keys = [(asset, *GENERAL[1:]) for asset in ("DAI", "VOTE")]
    table = table_of([(*key, START + at, 5 + at) for key in keys for at in (0, 9)])
    found = GROUPING[name](table, by)
    names = ["asset_id", *([by] if isinstance(by, str) else by)]
    pd.testing.assert_frame_equal(found, GROUPING[name](table, names))
    if name != "series":
        assert found["asset_id"].tolist() == sorted(found["asset_id"])
        assert set(found["asset_id"]) == {"DAI", "VOTE"}


@pytest.mark.parametrize("name", GROUPING)
def test_a_column_that_there_is_not_is_refused_with_what_there_is(name):
    table = table_of([(*GENERAL, START, 5)]).assign(desk="east")
    with pytest.raises(ValueError, match=r"not \['party'\]; did you mean 'party_id'\?"):
        GROUPING[name](table, "party")
    with pytest.raises(
        ValueError, match=r"by must name columns of .*'market_id'.*table\['desk'\] ="
    ):
        GROUPING[name](table, "floor")


def test_a_number_of_holders_is_a_whole_one_of_at_least_one():
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 1, 6)])
    for n in (2.5, "3"):
        with pytest.raises(TypeError, match=f"n must be a whole number, not {n!r}"):
            ba.holders(table, n=n)
    with pytest.raises(ValueError, match="n must be at least 1, not 0"):
        ba.holders(table, n=0)


@pytest.mark.parametrize("function", [ba.flows, ba.totals])
@pytest.mark.parametrize("by", [["asset_id", "balance"], ["asset_id", "asset_id"]])
def test_groups_by_what_is_no_part_of_an_account_are_refused(function, by):
    with pytest.raises(ValueError, match="each once"):
        function(empty_table(), freq="1D", by=by)


def test_groups_by_what_names_nothing_are_refused():
    with pytest.raises(TypeError, match="by must name columns"):
        ba.flows(empty_table(), by=5)


groupings = st.sets(st.sampled_from(ba.ACCOUNT_KEY[1:])).flatmap(
    lambda names: st.permutations(["asset_id", *sorted(names)])
)
GROUPED = {
    "flows": (ba.flows, oracle.flows),
    "totals": (ba.totals, oracle.totals),
}


@pytest.mark.parametrize("name", GROUPED)
@settings(max_examples=10)
@given(data=st.data(), book=books(), by=groupings)
def test_groups_are_those_of_the_columns_in_the_order_asked_for(name, data, book, by):
    function, expected = GROUPED[name]
    rows, opening = book
    grid = data.draw(fixed_grids(rows))
    found = function(opened(rows, opening), **asked(grid), by=by)
    assert records(found) == expected(rows, opening, since_openings(grid, opening), by)


def test_days_without_rows_are_listed_but_in_flows():
    table = table_of([(*GENERAL, START, 1), (*GENERAL, START + 5 * DAY, 2)])
    assert len(ba.ohlc(table, "1D")) == 6
    assert len(ba.flows(table)) == 2


RESULTS = {
    **{
        name: lambda table, by, f=f: f(table, by)
        for name, f in GROUPING.items()
        if name != "series"
    },
    "long series": lambda table, by: ba.balance_series(table, by=by, layout="long"),
    "shares of totals": lambda table, by: ba.totals(table, by=by, share=True),
    "internal flows": lambda table, by: ba.flows(table, by=by, internal=True),
    "candles": lambda table, by: ba.ohlc(table, "1D", by=by),
    "drawdowns": lambda table, by: ba.drawdown(table, by=by),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_column_of_ones_own_never_gives_way_to_one_of_a_result(name):
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + DAY, 6)])
    columns = RESULTS[name](table, "party_id").columns.difference(table.columns)
    assert not columns.empty
    for column in columns:
        with pytest.raises(ValueError, match=rf"by=\['{column}'\]: a result has a column"):
            RESULTS[name](table.assign(**{column: "east"}), column)


@pytest.mark.parametrize(
    "by", [["asset_id"], ["asset_id", "account_type"], ["asset_id", "party_id"]]
)
@settings(max_examples=8)
@given(data=st.data(), book=books(moderate))
def test_a_share_of_a_total_is_the_exact_quotient_rounded_once(by, data, book):
    rows, opening = book
    grid = data.draw(fixed_grids(rows, freqs=st.none() | st.builds(Fixed, st.integers(1, 9))))
    how = {**asked(grid), "by": by}
    table = opened(rows, opening)
    found = ba.totals(table, share=True, **how)
    shares = found.pop("share")
    pd.testing.assert_frame_equal(found, ba.totals(table, **how))
    members_of = oracle.groups(oracle.book(rows, opening), ASSET)
    expected = []
    for asset, *_, time, total, _, _ in records(found):
        whole, _, _ = oracle.total_at(members_of[asset,], time)
        expected.append(total / whole if total is not None and whole else None)
    assert [None if pd.isna(share) else share for share in shares] == expected
