import pytest

import balance_analysis as ba
from tests.analysis.tables import DAY, GENERAL, MARGIN, START, instant, table_of
from tests.figures.drawn import entries, said

OTHER = ("VOTE", "ACCOUNT_TYPE_GENERAL", "b2", "")
ROWS = [
    *((*GENERAL, START + at * DAY, level) for at, level in enumerate([10, 4, 6])),
    *((*MARGIN, START + at * DAY, level) for at, level in enumerate([0, 6, 6])),
    *((*OTHER, START + at * DAY, level) for at, level in enumerate([3, 4, 4])),
]
END = {"end": instant(START + 3 * DAY)}


def test_a_line_is_the_sum_of_a_partys_accounts():
    ax = ba.plot_balances(table_of(ROWS), by="party_id", **END)
    levels = {line.get_label(): line.get_ydata().tolist() for line in ax.get_lines()}
    assert {name: (ys[0], ys[-1]) for name, ys in levels.items()} == {"a1": (10, 12), "b2": (3, 4)}
    assert ax.get_title("left") == "VOTE balances of 2 parties"


def test_lines_and_areas_are_named_by_a_column_of_the_table_or_its_missing_value():
    table = table_of(ROWS)
    table["desk"] = table["party_id"].map({"a1": "east"})
    ax = ba.plot_balances(table, by="desk", **END)
    assert [line.get_label() for line in ax.get_lines()] == ["east", "no desk"]
    ax = ba.plot_totals(table, by=["asset_id", "desk"], **END)
    assert entries(ax) == ["no desk 4", "east 12"]
    with pytest.raises(ValueError, match="by must name columns"):
        ba.plot_balances(table, by="floor")


def test_a_party_that_holds_nothing_in_the_interval_has_no_area():
    rows = [(*GENERAL, START, 5), (*OTHER, START + 9 * DAY, 7)]
    assert entries(ba.plot_totals(table_of(rows), by="party_id", **END)) == ["a1 5"]


def test_the_largest_holders_have_the_callers_names():
    names = {"a1": "Alice"}
    ax = ba.plot_totals(table_of(ROWS), by="party_id", share=True, labels=names, **END)
    assert "Alice 75%" in entries(ax)


def test_a_drawdown_is_that_of_one_party():
    mine = table_of([row for row in ROWS if row[2] == "a1"])
    assert said(ba.plot_drawdown(mine, by="party_id", **END)) == "never below its peak"
    with pytest.raises(ValueError, match="draws one account or holder"):
        ba.plot_drawdown(mine)
