from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt

import balance_analysis as ba
from tests.analysis.tables import START, table_of
from tests.figures.drawn import HOUR, areas, entries, said, shaded, us


def holders(balances, *, time=START):
    return table_of(
        [("VOTE", "ACCOUNT_TYPE_GENERAL", f"p{i:03}", "", time, b) for i, b in enumerate(balances)]
    )


@given(st.lists(st.integers(1, 10**30), min_size=1, max_size=30))
@settings(max_examples=10)
def test_the_area_between_the_curve_and_the_diagonal_is_half_the_gini_coefficient(balances):
    ax = ba.plot_concentration(holders(balances))
    parts, shares = ax.lines[0].get_data()
    plt.close(ax.figure)
    gini = ba.concentration(holders(balances), "2100-01-01")["gini"].iloc[0]
    assert 2 * np.trapezoid(parts - shares, parts) == pytest.approx(gini, abs=1e-9)
    assert (parts[0], shares[0], parts[-1], shares[-1]) == (0, 0, 1, 1)


def test_a_curve_of_many_holders_has_fewer_points_on_the_same_curve():
    balances = list(range(1, 2_501))
    parts, shares = ba.plot_concentration(holders(balances)).lines[0].get_data()
    sums = np.cumsum([0, *balances])
    assert len(parts) <= 2_001
    places = np.round(parts * len(balances)).astype(int)
    assert np.allclose(shares, sums[places] / sums[-1])


def test_words_tell_the_moment_the_coefficient_and_the_largest():
    ax = ba.plot_concentration(holders([1, 3], time=us("2023-04-01T12:00")), n=1)
    assert ax.get_title("left") == "How unevenly VOTE is held at 2023-04-01T12:00Z"
    assert entries(ax) == ["Lorenz curve, Gini 0.25", "all hold the same"]
    assert said(ax) == "the largest holds 75%"


def test_unknown_accounts_are_counted():
    rows = holders([1, 2])
    rows.loc[0, "timestamp"] += np.timedelta64(5, "D")
    ax = ba.plot_concentration(rows, when="2023-04-02")
    assert said(ax).endswith("unknown: 1 more account")


def test_before_any_row_nobody_is_known_to_hold_anything():
    ax = ba.plot_concentration(holders([1, 3]), when="2020-01-01")
    assert [text.get_text() for text in ax.texts] == [
        "nobody is known to hold anything\nat 2020-01-01"
    ]


def test_what_is_nearly_all_is_not_said_to_be_all():
    ax = ba.plot_concentration(holders([1, *[1] * 300, 10**9]), n=1)
    assert entries(ax)[0] == "Lorenz curve, Gini >0.99"
    assert said(ax) == "the largest holds >99%"


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 20), st.integers(0, 100)),
        min_size=1,
        max_size=15,
        unique_by=lambda row: row[:2],
    )
)
@settings(max_examples=10)
def test_shares_of_all_holders_add_up_to_the_whole(rows):
    accounts = [("VOTE", "ACCOUNT_TYPE_GENERAL", f"p{who}", "") for who, _, _ in rows]
    table = table_of(
        [(*a, START + when * HOUR, b) for a, (_, when, b) in zip(accounts, rows, strict=True)]
    )
    ax = ba.plot_concentration(table, kind="largest", n=2, freq="1h")
    drawn = list(areas(ax).values())
    if drawn:
        known = [level for _, level in drawn[-1] if not np.isnan(level)]
        assert known
        assert known == pytest.approx([1] * len(known))
    else:
        assert {b for _, _, b in rows} == {0} or ax.texts
    plt.close(ax.figure)


def test_those_that_hold_most_on_average_are_drawn_and_the_others_together():
    rows = [
        ("VOTE", "ACCOUNT_TYPE_GENERAL", f"p{i}", "", us("2023-04-01"), b)
        for i, b in enumerate([50, 30, 15, 5])
    ]
    ax = ba.plot_concentration(table_of(rows), kind="largest", n=2)
    assert entries(ax) == ["general · p0 50%", "general · p1 30%", "2 others 20%"]
    assert [steps[0][1] for steps in areas(ax).values()] == [0.5, 0.8, 1.0]
    assert ax.get_title("left") == "VOTE shares of the 2 that held most on average"
    assert said(ax) == "shares at the end"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"kind": "pie"}, "'lorenz' or 'largest', not 'pie'"),
        ({"freq": "1D"}, "freq has no meaning for kind='lorenz'"),
        ({"kind": "largest", "when": "2023-04-01"}, "when has no meaning for kind='largest'"),
        ({"n": 0}, "n must be at least 1"),
    ],
)
def test_what_has_no_meaning_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        ba.plot_concentration(holders([1, 3]), **arguments)


@pytest.mark.parametrize("kind", ["lorenz", "largest"])
def test_no_rows_give_axes_that_say_so(kind):
    ax = ba.plot_concentration(table_of([]), kind=kind)
    assert [text.get_text() for text in ax.texts] == ["no balance changes"]


@pytest.mark.parametrize("kind", ["lorenz", "largest"])
def test_nobody_holding_anything_gives_axes_that_say_so(kind):
    ax = ba.plot_concentration(holders([0, 0]), kind=kind)
    assert ax.texts[0].get_text().startswith("nobody is known to hold anything")


def test_it_is_hatched_where_nobody_is_known_to_hold_anything():
    rows = [
        (*row[:4], us(day), b)
        for row, day, b in (
            (("VOTE", "ACCOUNT_TYPE_GENERAL", "p1", ""), "2023-04-01T12:00", 5),
            (("VOTE", "ACCOUNT_TYPE_GENERAL", "p1", ""), "2023-04-09", 5),
        )
    ]
    ax = ba.plot_concentration(table_of(rows), kind="largest", freq="1D", start="2023-04-01")
    assert [span[1:] for span in shaded(ax, "////")] == [(us("2023-04-01"), us("2023-04-02"))]
    assert "unknown" in entries(ax)
