"""Nothing is drawn as held where it is unknown: every plot uses the known intervals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis.tables import DAY, GENERAL, instant, opened, spans, table_of
from tests.figures.drawn import (
    areas,
    entries,
    is_area,
    lines,
    micros,
    one_asset,
    roughly,
    said,
    shaded,
    shown,
    steps_of,
    us,
)
from tests.moments import between

START = us("2023-04-01")
HATCH = "\\\\\\\\"
INCOMPLETE = "rows may be missing"
OF_TIME = [ba.plot_balances, ba.plot_totals, ba.plot_flows, ba.plot_drawdown]
ROWS = [(*GENERAL, START + day * DAY, level) for day, level in ((0, 5), (1, 6), (6, 4))]


def knowing(*days, rows=ROWS, since=None):
    """Return a table that knows some stretches of days, and has every change since a moment."""
    known = [(instant(START + int(a * DAY)), instant(START + int(b * DAY))) for a, b in days]
    return ba.to_table(table_of(rows), known=known, start=instant(since))


@given(one_asset, spans)
def test_lines_are_at_the_known_balance_at_every_moment(world, span):
    ax = ba.plot_balances(opened(world), **between(*span), assets={"VOTE": 0})
    held = [[roughly(x.level(when)) for when in range(*span)] for x in world.book().values()]
    known = [levels for levels in held if {*levels} != {None}]
    drawn = [shown(steps, span) for steps in lines(ax).values()]
    assert sorted(drawn, key=str) == sorted(known, key=str)
    assert {line.get_drawstyle() for line in ax.lines} <= {"steps-post"}
    lost = len(held) - len(known)
    assert not (known and lost) or f"{lost} unknown throughout" in said(ax)


@given(one_asset, spans, st.booleans())
def test_areas_reach_the_known_sums_of_positive_and_negative_balances_at_every_moment(
    world, span, share
):
    options = {"by": ba.ACCOUNT_KEY, "assets": {"VOTE": 0}, "share": share}
    ax = ba.plot_totals(opened(world), **between(*span), **options)
    drawn = [shown(steps_of(patch), span) for patch in ax.patches if is_area(patch)]
    for n, when in enumerate(range(*span)):
        levels = [account.level(when) for account in world.book().values()]
        known = [level for level in levels if level is not None]
        reached, whole = [levels[n] for levels in drawn], sum(known) if share else 1
        if share and abs(whole) * 10**6 < max(map(abs, known), default=0):
            continue  # floats may cancel
        if not known or whole <= 0:
            assert {*reached} <= {None}
            continue
        up, down = (sum(x for x in known if x * sign > 0) / whole for sign in (1, -1))
        assert max([*reached, 0]) == pytest.approx(up, rel=1e-8)
        assert min([*reached, 0]) == pytest.approx(down, rel=1e-8)


@pytest.mark.parametrize("plot", OF_TIME)
def test_the_axis_ends_with_the_known_intervals_or_the_last_row(plot):
    for table, days in ((knowing((0, 30)), 30), (table_of(ROWS), 6)):
        ax = plot(table)
        assert START + days * DAY <= micros([ax.get_xlim()[1]])[0] < START + (days + 2) * DAY
        assert not shaded(ax, HATCH)


@pytest.mark.parametrize("plot", OF_TIME)
def test_gaps_and_the_time_after_the_known_intervals_are_hatched(plot):
    end = instant(START + 12 * DAY)
    table = knowing((-2, 3), (5, 8), rows=[(*GENERAL, START - DAY, 3), *ROWS[1:]], since=START)
    ax = plot(table, start=instant(START), end=end)
    assert START - DAY < micros(ax.get_xlim()[:1])[0] <= START
    spans = [(START + 3 * DAY, START + 5 * DAY), (START + 8 * DAY, START + 12 * DAY)]
    assert [span[1:] for span in shaded(ax, HATCH)] == spans
    assert entries(ax).count(INCOMPLETE) == 1


def test_an_unknown_stretch_too_short_to_see_is_not_hatched():
    table = knowing((0, 8), rows=[(*GENERAL, START + 1, 5)])
    assert not ba.plot_balances(table, start=instant(START)).patches


@pytest.mark.parametrize("freq", ["1D", "5D"])
def test_a_periods_step_ends_where_a_gap_begins(freq):
    options = {"freq": freq, "start": instant(START)}
    ax = ba.plot_totals(knowing((0, 2.5), (5, 8)), **options)
    (steps,) = areas(ax).values()
    assert START + 2.5 * DAY in [time for time, level in steps if np.isnan(level)]


def test_a_partly_unknown_period_of_flows_is_hatched_whole():
    rows = [(*GENERAL, START + n * DAY // 2, n) for n in range(10)]
    ax = ba.plot_flows(knowing((0, 1.5), (3, 5), rows=rows))
    assert shaded(ax, HATCH)[0][1:] == (START + DAY, START + 3 * DAY)


def test_an_account_known_for_a_moment_is_a_dot():
    rows = [*ROWS, (*GENERAL, START + 4 * DAY, 7)]
    (line,) = ba.plot_balances(knowing((0, 3), (5, 8), rows=rows)).lines
    dots = line.get_markevery()
    assert line.get_marker() == "o"
    assert [(line.get_ydata()[n], micros(line.get_xdata(orig=True))[n]) for n in dots] == [
        (7.0, START + 4 * DAY)
    ]


def test_totals_name_left_out_accounts_unless_all_is_known_since_the_first_block():
    lacks = "left out: accounts without a known row"
    for table in (knowing((0, 8)), knowing((0, 8), since=START), knowing((-2, 8), since=START)):
        assert lacks in said(ba.plot_totals(table))
    assert lacks not in said(ba.plot_totals(ba.to_table(table_of(ROWS), nothing_before=True)))


def test_a_figure_of_a_wholly_unknown_interval_says_so():
    bounds = between(START + 9 * DAY, START + 12 * DAY)
    for plot in (ba.plot_balances, ba.plot_totals, ba.plot_drawdown):
        assert plot(knowing((0, 8)), **bounds).texts[0].get_text().startswith("no balance is known")


def test_partly_unknown_days_are_hatched_in_the_calendar():
    ax = ba.plot_activity(knowing((0, 3), (5, 8.5)))
    cells, hatched = ax.collections
    assert cells.get_array().count() == 9
    assert [np.ptp(path.vertices[:, 0]) for path in hatched.get_paths()] == [7, 7]
    assert entries(ax) == [INCOMPLETE]
    assert ba.plot_activity(table_of(ROWS)).collections[0].get_array().count() == 7
    assert ba.plot_activity(knowing((0, 9))).collections[0].get_array().shape == (7, 2)
