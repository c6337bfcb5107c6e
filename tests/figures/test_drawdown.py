from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt

import balance_analysis as ba
from tests.analysis.tables import GENERAL, HOUR, MARGIN, START, table_of
from tests.figures.drawn import areas, lines, said, us


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=12))
@settings(max_examples=12)
def test_the_curve_lies_under_zero_by_what_the_balance_lacks_to_its_peak(levels):
    table = table_of([(*GENERAL, START + n * HOUR, level) for n, level in enumerate(levels)])
    ax, falls = ba.plot_drawdown(table), ba.to_integers(ba.drawdown(table))
    ((_, area),) = areas(ax).items()
    assert [level for _, level in lines(ax)["balance"]] == [*levels, levels[-1]]
    assert [-level for _, level in area[:-1]] == falls["depth"].tolist()
    assert [level for _, level in lines(ax)["its peak so far"]][:-1] == falls["peak"].tolist()
    plt.close(ax.figure)


def test_words_name_the_account_and_its_deepest_fall():
    rows = [(us("2023-04-01"), 8), (us("2023-04-02"), 2), (us("2023-04-03T12:00"), 6)]
    ax = ba.plot_drawdown(table_of([(*MARGIN, *row) for row in rows]), assets={"VOTE": 0})
    assert ax.get_title("left") == "VOTE balance and drawdown of margin · a1 · m1"
    assert said(ax) == "deepest: 6 (75%), 2023-04-02"


def test_several_accounts_are_refused_with_the_way_to_select_one():
    table = table_of([(*GENERAL, START, 5), (*MARGIN, START, 5)])
    with pytest.raises(ValueError, match="2; select one, such as that of asset_id='VOTE'"):
        ba.plot_drawdown(table)
