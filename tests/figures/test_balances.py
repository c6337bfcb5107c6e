import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis.tables import DAY, GENERAL, HOUR, LARGEST, MARGIN, START, table_of
from tests.figures.drawn import entries, history, lines, said, visible_labels

VEGA = {"VOTE": {"symbol": "VEGA", "decimals": 18}}


def test_a_known_asset_is_drawn_in_whole_units_under_its_symbol(tmp_path):
    table = table_of([(*GENERAL, START, 15 * 10**17)])
    path = tmp_path / "assets.json"
    path.write_text(json.dumps(VEGA))
    ba.write_parquet(table, tmp_path / "changes.parquet")
    noted = ba.read_parquet(tmp_path / "changes.parquet", assets=VEGA)
    given = ((table, VEGA), (table, path), (table, ba.read_assets(VEGA)), (noted, None))
    for data, assets in given:
        ax = ba.plot_balances(data, assets=assets)
        assert lines(ax)["general · a1"][0][1] == 1.5
        assert ax.get_ylabel() == "balance (VEGA)"
        assert ax.get_title("left") == "VEGA balance of general · a1"


def test_an_unknown_asset_is_drawn_in_its_smallest_unit_and_the_axis_says_so():
    asset = "e46bed5b0745e4778e9be69108c8d9e81eedd6f92271ef8af77cff45d48a55b1"
    ax = ba.plot_balances(table_of([(asset, *GENERAL[1:], START, 15)]), assets=VEGA)
    assert lines(ax)["general · a1"][0][1] == 15
    assert ax.get_ylabel() == "balance\n(smallest unit of e46bed…55b1)"
    assert ax.get_title("left") == "e46bed…55b1 balance of general · a1"


def test_two_assets_are_refused_with_the_way_to_select_one():
    table = table_of([(*GENERAL, START, 5), ("other", *GENERAL[1:], START, 5)])
    with pytest.raises(ValueError, match=r"table.balances.select\(asset_id='VOTE'\)"):
        ba.plot_balances(table)


def test_a_balance_held_for_one_moment_is_marked():
    ax = ba.plot_balances(table_of([(*GENERAL, START, 5), (*MARGIN, START - DAY, 5)]))
    assert [line.get_marker() for line in ax.lines] == ["o", "None"]
    assert {*lines(ax)} <= {*entries(ax)}


def test_the_title_or_else_a_legend_names_a_single_account():
    one = table_of([(*GENERAL, START, 5)])
    assert ba.plot_balances(one).get_legend() is None
    assert entries(ba.plot_balances(one, title="Mine")) == ["general · a1"]


def test_the_largest_of_many_accounts_are_drawn_and_the_rest_counted():
    rows = [("VOTE", "ACCOUNT_TYPE_GENERAL", f"p{i:02}", "", START + i, i) for i in range(20)]
    ax = ba.plot_balances(table_of(rows))
    assert list(lines(ax)) == [f"p{i:02}" for i in range(19, 19 - 8, -1)]
    assert said(ax) == "not drawn: 12 others with smaller maxima"


LEVELS = st.lists(
    st.one_of(st.integers(0, 5), st.integers(0, LARGEST), st.integers(10**9, 10**9 + 50)),
    min_size=1,
    max_size=5,
)


@given(LEVELS, st.sampled_from([None, 0, 6, 18]), st.sampled_from([1, HOUR, 100 * DAY]))
@settings(max_examples=5)
@example([0, 1], None, DAY)
def test_any_history_draws_with_amounts_that_differ_and_never_splits_a_unit(levels, decimals, step):
    rows = [(*GENERAL, START + at * step, level) for at, level in enumerate(levels)]
    ax = ba.plot_balances(table_of(rows), assets={} if decimals is None else {"VOTE": decimals})
    ax.figure.draw_without_rendering()
    texts = [label.get_text() for label in visible_labels(ax.yaxis)]
    assert 0 < len(texts) == len(set(texts))
    assert decimals or all(float(tick).is_integer() for tick in ax.get_yticks())


def test_an_always_empty_account_is_at_the_bottom_of_an_axis_from_0_to_1():
    ax = ba.plot_balances(table_of([(*GENERAL, START, 0), (*GENERAL, START + DAY, 0)]))
    assert ax.get_ylim() == (-0.05, 1.05)


def test_large_amounts_have_si_prefixes():
    ax = ba.plot_balances(history(50, scale=10**12), assets={"VOTE": 6})
    ax.figure.canvas.draw()
    assert {label.get_text()[-1] for label in visible_labels(ax.yaxis)} <= {"k", "M", "0"}


def test_one_row_shows_its_day_and_not_years():
    ax = ba.plot_balances(table_of([(*GENERAL, START, 5)]))
    left, right = ax.get_xlim()
    assert right - left == pytest.approx(1)
