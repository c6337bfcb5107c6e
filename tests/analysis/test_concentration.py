from __future__ import annotations

import math
from collections import defaultdict

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.errors import CheckError
from balance_analysis.frame import empty_table
from balance_analysis.schema import ACCOUNT_KEY
from tests.analysis import oracle
from tests.analysis.tables import (
    GENERAL,
    HOUR,
    LARGEST,
    MARGIN,
    OTHER,
    START,
    asked,
    books,
    calendar_cases,
    disorder,
    dtypes_of,
    expected_dtypes,
    fixed_grids,
    instant,
    instants,
    moderate,
    odd,
    opening_frame,
    records,
    rows,
    split,
    table_of,
)

SHARE_DTYPES = {
    **expected_dtypes(ACCOUNT_KEY, times=["timestamp"], amounts=["balance"], floats=["share"]),
    **expected_dtypes((), counts=["unknown"]),
}
CONCENTRATION_COLUMNS = {
    "times": ["timestamp"],
    "amounts": ["total"],
    "counts": ["holders", "unknown"],
    "floats": ["largest", "herfindahl", "gini"],
}
MOVER_DTYPES = expected_dtypes(
    ACCOUNT_KEY,
    amounts=["opening", "closing", "net", "inflow", "outflow"],
    counts=["changes"],
)

groupings = st.sets(st.sampled_from(ACCOUNT_KEY[1:])).flatmap(
    lambda names: st.permutations(["asset_id", *sorted(names)])
)
positive = st.integers(0, 3) | odd
moments = st.lists(instants, min_size=1, max_size=4)
PARTIES = [("VOTE", "ACCOUNT_TYPE_GENERAL", f"p{number}", "") for number in range(8)]


def held_by(*balances):
    """Return a table in which each of these balances is another account's."""
    return table_of(
        [(*party, START, balance) for party, balance in zip(PARTIES, balances, strict=False)]
    )


def share_records(*args, **options):
    return records(ba.share(*args, **options))


def concentration_records(*args, **options):
    return records(ba.concentration(*args, **options))


def measures_of(*balances, **options):
    """Return the holders, what the largest hold, the Herfindahl index and the Gini coefficient."""
    found = ba.concentration(held_by(*balances), instant(START), **options)
    [(_, _, _, holders, _, *measures)] = records(found)
    return holders, *measures


@settings(max_examples=40)
@given(books(moderate), groupings, moments)
def test_a_share_is_the_exact_quotient_rounded_once(book, by, whens):
    rows, opening = book
    found = share_records(
        table_of(rows),
        [instant(when) for when in whens],
        by=by,
        opening=opening_frame(opening),
    )
    assert found == oracle.shares(rows, opening, sorted(set(whens)), by)


@settings(max_examples=15)
@given(st.data(), books(positive))
def test_shares_stand_at_each_point_of_a_grid(data, book):
    rows, opening = book
    grid = data.draw(fixed_grids(rows))
    found = share_records(table_of(rows), **asked(grid), opening=opening_frame(opening))
    assert found == oracle.shares(rows, opening, grid.points(rows), ["asset_id"])


@settings(max_examples=10)
@given(calendar_cases())
def test_shares_and_concentrations_of_days_follow_the_clock_on_the_wall(case):
    rows, opening, grid = case
    points = grid.points(rows)
    found = share_records(table_of(rows), **asked(grid))
    assert found == oracle.shares(rows, opening, points, ["asset_id"])
    found = concentration_records(table_of(rows), **asked(grid), n=2)
    assert found == oracle.concentration(rows, opening, points, ["asset_id"], 2)


@settings(max_examples=40)
@given(books(positive), groupings, instants)
def test_shares_of_a_group_add_up_to_1(book, by, when):
    rows, opening = book
    found = ba.share(table_of(rows), instant(when), by=by, opening=opening_frame(opening))
    for _, group in found.dropna(subset="share").groupby(list(by), observed=True):
        assert math.isclose(group["share"].sum(), 1)


def test_a_share_of_38_digits_is_rounded_once():
    # 38 digits make the quotient that floats of them round away from.
    one, other = 3 * 10**37 + 1, 6 * 10**37 + 5
    table = held_by(one, other)
    found = [row[6] for row in share_records(table, instant(START))]
    assert found == [one / (one + other), other / (one + other)]


def test_shares_that_differ_in_the_last_digit_of_an_amount_are_told_apart():
    [(*_, found, _), _] = share_records(held_by(2**53 + 1, 1), instant(START))
    assert found == 1 - 2**-53


def test_an_account_of_unknown_balance_has_no_share_and_is_counted():
    table = table_of([(*GENERAL, START, 4), (*MARGIN, START + 1, 7)])
    assert share_records(table, instant(START)) == [
        (*GENERAL, START, 4, 1.0, 1),
        (*MARGIN, START, None, None, 1),
    ]


def test_shares_of_nothing_are_unknown():
    table = held_by(0, 0)
    assert [row[5:] for row in share_records(table, instant(START))] == [(0, None, 0)] * 2


def test_shares_are_of_the_asset_unless_told():
    table = table_of([(*GENERAL, START, 1), (*MARGIN, START, 3), (*OTHER, START, 5)])
    assert [row[6] for row in share_records(table, instant(START))] == [0.25, 0.75, 1.0]


@settings(max_examples=40)
@given(books(), groupings, moments, st.integers(1, 5))
def test_concentration_is_what_its_definitions_say(book, by, whens, n):
    rows, opening = book
    found = concentration_records(
        table_of(rows),
        [instant(when) for when in whens],
        n=n,
        by=by,
        opening=opening_frame(opening),
    )
    assert found == oracle.concentration(rows, opening, sorted(set(whens)), by, n)


@settings(max_examples=15)
@given(st.data(), books(positive))
def test_concentrations_stand_at_each_point_of_a_grid(data, book):
    rows, opening = book
    grid = data.draw(fixed_grids(rows))
    found = concentration_records(
        table_of(rows), **asked(grid), n=3, opening=opening_frame(opening)
    )
    assert found == oracle.concentration(rows, opening, grid.points(rows), ["asset_id"], 3)


@settings(max_examples=15)
@given(st.data(), books(positive))
def test_the_total_of_a_concentration_is_that_of_totals(data, book):
    rows, opening = book
    arguments = asked(data.draw(fixed_grids(rows))) | {"opening": opening_frame(opening)}
    found = concentration_records(table_of(rows), **arguments)
    total = records(ba.totals(table_of(rows), **arguments, by=["asset_id"]))
    assert [(*row[:3], row[4]) for row in found] == [(*row[:3], row[4]) for row in total]


@pytest.mark.parametrize(
    ("balances", "expected"),
    [
        ((5,), (1, 1.0, 1.0, 0.0)),
        ((5, 5), (2, 0.5, 0.5, 0.0)),
        ((1, 3), (2, 0.75, 0.625, 0.25)),
        ((1, 3, 0, 0), (2, 0.75, 0.625, 0.25)),
        ((1, 1, 2), (3, 0.5, 0.375, 1 / 6)),
        ((LARGEST - 3, 3), (2, 1.0, 1.0, 0.5)),
        ((2, 2, 2, 2), (4, 0.25, 0.25, 0.0)),
        ((0, 0), (0, None, None, None)),
    ],
)
def test_a_few_holders_are_as_concentrated_as_by_hand(balances, expected):
    assert measures_of(*balances, n=1) == expected


def test_more_of_the_largest_than_holders_hold_everything():
    assert measures_of(1, 2, 3, n=10)[:2] == (3, 1.0)


def test_an_equal_holding_of_38_digits_is_exactly_equal():
    third = LARGEST // 3
    assert measures_of(third, third, third, n=1) == (3, 1 / 3, 1 / 3, 0.0)


def test_a_difference_in_the_38th_digit_is_no_equal_holding():
    held = 4 * 10**37 + 1
    assert measures_of(held, held + 2, n=1)[3] == 1 / (2 * held + 2)


def test_a_concentration_beyond_38_digits_raises_and_names_the_group():
    with pytest.raises(OverflowError, match=r"VOTE.* 38 digits"):
        ba.concentration(held_by(LARGEST, 1), instant(START))


@pytest.mark.parametrize("function", [ba.share, ba.concentration])
def test_several_instants_are_sorted_and_each_stands_once(function):
    table = table_of([(*GENERAL, START, 1), (*MARGIN, START, 1), (*GENERAL, START + 2, 3)])
    whens = pd.DatetimeIndex([instant(START + 2), instant(START), instant(START + 2)])
    one_by_one = [function(table, instant(when)) for when in (START, START + 2)]
    expected = sorted(row for one in one_by_one for row in records(one))
    assert records(function(table, whens)) == expected


@pytest.mark.parametrize("function", [ba.share, ba.concentration])
def test_either_an_instant_or_a_frequency_is_asked_for(function):
    with pytest.raises(ValueError, match="freq"):
        function(empty_table())
    with pytest.raises(ValueError, match="freq"):
        function(empty_table(), "2023-04-01", freq="1D")


@pytest.mark.parametrize("function", [ba.share, ba.concentration])
def test_holders_of_different_assets_are_never_mixed(function):
    with pytest.raises(ValueError, match="asset_id"):
        function(empty_table(), "2023-04-01", by=["party_id"])


@pytest.mark.parametrize("function", [ba.share, ba.concentration])
@pytest.mark.parametrize(("day", "hours"), [("2023-03-26", 23), ("2023-10-29", 25)])
def test_the_days_of_berlin_have_23_or_25_hours_when_the_clock_changes(function, day, hours):
    midnight = pd.Timestamp(day, tz="Europe/Berlin").value // 1000
    table = table_of([(*GENERAL, midnight, 1), (*GENERAL, midnight + hours * HOUR, 2)])
    found = function(table, freq="1D", tz="Europe/Berlin")
    assert str(found["timestamp"].dtype) == "datetime64[us, Europe/Berlin]"
    assert found["timestamp"].tolist() == [instant(midnight), instant(midnight + hours * HOUR)]


@settings(max_examples=40)
@given(st.data(), books(moderate), st.integers(1, 4))
def test_the_top_movers_are_those_of_the_largest_net(data, book, n):
    rows, opening = book
    grid = data.draw(fixed_grids(rows, freqs=st.none()))
    if grid.start is None and not rows:
        return
    found = ba.top_movers(
        table_of(rows), instant(grid.start), instant(grid.end), n, opening=opening_frame(opening)
    )
    assert records(found) == oracle.top_movers(rows, opening, grid, n)


@settings(max_examples=15)
@given(st.data(), rows)
def test_all_movers_together_are_what_the_summary_says(data, rows):
    grid = data.draw(fixed_grids(rows, freqs=st.none()))
    bounds = {"start": instant(grid.start), "end": instant(grid.end)}
    summary = ba.summarize_accounts(table_of(rows), **bounds)
    moved = summary[(summary["net"] != 0).fillna(False).astype(bool)]
    found = ba.top_movers(table_of(rows), **bounds, n=100)
    assert sorted(records(found)) == records(moved[list(found.columns)])


def test_movers_of_one_amount_stand_in_the_order_of_accounts():
    levels = {PARTIES[2]: 0, PARTIES[0]: 8, PARTIES[1]: 0}
    table = table_of(
        [
            row
            for key, level in levels.items()
            for row in ((*key, START, 4), (*key, START + 1, level))
        ]
    )
    assert [row[2] for row in records(ba.top_movers(table, n=2))] == ["p0", "p1"]


def test_movers_are_told_apart_by_the_last_of_38_digits():
    table = table_of(
        [
            (*PARTIES[0], START, 0),
            (*PARTIES[1], START, 0),
            (*PARTIES[0], START + 1, LARGEST - 1),
            (*PARTIES[1], START + 1, LARGEST),
        ]
    )
    found = records(ba.top_movers(table))
    assert [(row[2], row[6]) for row in found] == [("p1", LARGEST), ("p0", LARGEST - 1)]


def test_who_takes_in_and_pays_out_the_same_is_no_mover():
    table = table_of([(*GENERAL, START + at, level) for at, level in enumerate((5, 9, 5))])
    assert ba.top_movers(table).empty


def test_a_move_beyond_38_digits_raises_and_names_the_account():
    table = table_of([(*GENERAL, START, -LARGEST), (*GENERAL, START + 1, LARGEST)])
    with pytest.raises(OverflowError, match=r"'a1'.* 38 digits"):
        ba.top_movers(table)


def test_ten_movers_of_each_asset_are_shown_unless_told():
    keys = [(asset, "T", f"p{number}", "") for asset in ("a", "b") for number in range(12)]
    table = table_of(
        [(*key, START + at, at * (place + 1)) for place, key in enumerate(keys) for at in (0, 1)]
    )
    found = records(ba.top_movers(table))
    assert [row[6] for row in found] == [*range(12, 2, -1), *range(24, 14, -1)]


@settings(max_examples=15)
@given(books(), moments, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_and_identical_duplicates_do_not_matter(book, whens, random):
    table, opening = table_of(book[0]), opening_frame(book[1])
    mixed, when = disorder(table, random), [instant(moment) for moment in whens]
    for function, arguments in (
        (ba.share, {"when": when}),
        (ba.concentration, {"when": when}),
        (ba.top_movers, {"start": min(when)}),
    ):
        pd.testing.assert_frame_equal(
            function(mixed, **arguments, opening=opening.iloc[::-1]),
            function(table, **arguments, opening=opening),
        )


@settings(max_examples=15)
@given(rows, instants, moments)
def test_the_balances_at_a_split_open_what_holders_have_after_it(rows, when, whens):
    table = table_of(rows)
    early, late = split(table, when)
    opening = ba.balance_at(early, instant(when))
    after = [instant(max(when, moment)) for moment in whens]
    for function in (ba.share, ba.concentration):
        resumed = function(late, after, opening=opening)
        pd.testing.assert_frame_equal(resumed, function(table, after))
    bounds = instant(when + 1), instant(START + 20)
    resumed = ba.top_movers(late, *bounds, opening=opening)
    pd.testing.assert_frame_equal(resumed, ba.top_movers(table, *bounds))


@settings(max_examples=10)
@given(rows, groupings, instants)
def test_columns_and_dtypes_are_the_same_for_any_rows(rows, by, when):
    table = table_of(rows)
    shares = ba.share(table, instant(when), by=by)
    assert list(dtypes_of(shares).items()) == list(SHARE_DTYPES.items())
    found = ba.concentration(table, instant(when), by=by)
    expected = expected_dtypes(by, **CONCENTRATION_COLUMNS)
    assert list(dtypes_of(found).items()) == list(expected.items())
    movers = ba.top_movers(table)
    assert list(dtypes_of(movers).items()) == list(MOVER_DTYPES.items())


def test_no_rows_have_no_holders():
    assert ba.share(empty_table(), "2023-04-01").empty
    assert ba.share(empty_table(), freq="1D").empty
    assert ba.concentration(empty_table(), "2023-04-01").empty
    assert ba.concentration(empty_table(), freq="1D").empty
    assert ba.top_movers(empty_table()).empty


@pytest.mark.parametrize(
    "function",
    [
        lambda table, **rest: ba.share(table, "2023-04-01", **rest),
        lambda table, **rest: ba.concentration(table, "2023-04-01", **rest),
        ba.top_movers,
    ],
)
def test_what_contradicts_itself_is_refused(function):
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 5, 6)])
    with pytest.raises(CheckError, match="conflicting"):
        function(pd.concat([table, table_of([(*GENERAL, START, 6)])]))
    with pytest.raises(CheckError):
        function(table, opening=opening_frame({GENERAL: (5, START + 2)}))


@settings(max_examples=15)
@given(rows, instants)
def test_each_party_has_its_share_of_each_account_type(rows, when):
    found = ba.share(table_of(rows), instant(when), by=("account_type", "asset_id"))
    sums = defaultdict(int)
    for asset, kind, _, _, _, balance, _, _ in records(found):
        sums[asset, kind] += balance or 0
    for asset, kind, _, _, _, balance, part, _ in records(found):
        known = balance is not None and sums[asset, kind]
        assert part == (balance / sums[asset, kind] if known else None)
