"""Nothing is drawn as held where it is unknown: every plot goes by the known intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot as plt

import balance_analysis as ba
from tests.analysis.tables import DAY, GENERAL, HOUR, instant, opened, spans, table_of, worlds
from tests.figures.drawn import areas, entries, is_area, lines, micros, said, shaded, steps_of, us

START = us("2023-04-01")
HATCH = "\\\\\\\\"
INCOMPLETE = "rows may be missing"
OF_TIME = [ba.plot_balances, ba.plot_totals, ba.plot_flows, ba.plot_drawdown]
NAMES = ["balances", "totals", "flows", "drawdown"]
ROWS = [(*GENERAL, START + day * DAY, level) for day, level in ((0, 5), (1, 6), (6, 4))]


def moment(microseconds):
    return pd.Timestamp(microseconds, unit="us", tz="UTC")


def knowing(*days, rows=ROWS, since=None):
    """Return a table that knows some stretches of days, and has every change since a moment."""
    known = [(moment(START + int(a * DAY)), moment(START + int(b * DAY))) for a, b in days]
    return ba.to_table(table_of(rows), known=known, start=since and moment(since))


def drawn(ax):
    """Return the points of the balance's line, or the edges of the only area."""
    line = lines(ax).get("balance") or lines(ax).get("general · a1")
    return line or next(iter(areas(ax).values()))


def unknown_from(steps):
    return [time for time, level in steps if np.isnan(level)]


def own(world):
    """Return the part of a world that is of one asset, and of no market."""
    rows = [row for row in world.rows if (row[0], row[3]) == ("VOTE", "")]
    opening = {key: x for key, x in world.opening.items() if (key[0], key[3]) == ("VOTE", "")}
    return replace(world, rows=rows, opening=opening)


def at(steps, when):
    """Return the level of drawn steps at a moment, roughly; `None` where nothing is drawn."""
    levels = [level for time, level in steps if time <= when]
    return None if not levels or np.isnan(levels[-1]) else roughly(levels[-1])


def roughly(level):
    return None if level is None else float(f"{level:.9g}")


one_asset = worlds().map(own).filter(lambda world: world.book())


@given(one_asset, spans)
def test_lines_are_at_every_moment_at_what_accounts_hold_as_far_as_that_is_known(world, span):
    plt.close("all")
    bounds = dict(zip(("start", "end"), map(instant, span), strict=True))
    ax = ba.plot_balances(opened(world), **bounds, assets={"VOTE": 0})
    held = [[roughly(x.level(when)) for when in range(*span)] for x in world.book().values()]
    known = [levels for levels in held if {*levels} != {None}]
    drawn = [[at(steps, when) for when in range(*span)] for steps in lines(ax).values()]
    assert sorted(drawn, key=str) == sorted(known, key=str)
    assert {line.get_drawstyle() for line in ax.lines} <= {"steps-post"}
    lost = len(held) - len(known)
    assert not (known and lost) or f"{lost} unknown throughout" in said(ax)


@given(one_asset, spans, st.booleans())
def test_areas_reach_at_every_moment_as_far_as_what_is_known_to_be_held_and_owed(
    world, span, share
):
    plt.close("all")
    bounds = dict(zip(("start", "end"), map(instant, span), strict=True))
    ax = ba.plot_totals(opened(world), **bounds, by=ba.ACCOUNT_KEY, assets={"VOTE": 0}, share=share)
    stacks = [steps_of(patch) for patch in ax.patches if is_area(patch)]
    for when in range(*span):
        levels = [account.level(when) for account in world.book().values()]
        known = [level for level in levels if level is not None]
        reached, whole = [at(steps, when) for steps in stacks], sum(known) if share else 1
        if share and abs(whole) * 10**6 < max(map(abs, known), default=0):
            continue  # floats may cancel
        if not known or whole <= 0:
            assert {*reached} <= {None}
            continue
        up, down = (sum(x for x in known if x * sign > 0) / whole for sign in (1, -1))
        assert max(*reached, 0) == pytest.approx(up, rel=1e-8)
        assert min(*reached, 0) == pytest.approx(down, rel=1e-8)


@pytest.mark.parametrize("plot", OF_TIME, ids=NAMES)
def test_the_axis_reaches_to_the_end_of_what_is_known_or_to_the_last_row(plot):
    for table, days in ((knowing((0, 30)), 30), (table_of(ROWS), 6)):
        ax = plot(table)
        high = micros([ax.get_xlim()[1]])[0]
        assert START + days * DAY <= high < START + (days + 2) * DAY
        assert not shaded(ax, HATCH)


@pytest.mark.parametrize("plot", OF_TIME, ids=NAMES)
def test_gaps_and_what_lies_past_the_known_end_are_hatched(plot):
    end = moment(START + 12 * DAY)
    ax = plot(knowing((0, 3), (5, 8)), start=moment(START), end=end)
    spans = [(START + 3 * DAY, START + 5 * DAY), (START + 8 * DAY, START + 12 * DAY)]
    assert [span[1:] for span in shaded(ax, HATCH)] == spans
    assert entries(ax).count(INCOMPLETE) == 1


def test_behind_a_gap_a_drawdown_has_a_balance_alone_as_the_table_of_drawdowns_does():
    table = knowing((0, 3), (5, 8))
    ax = ba.plot_drawdown(table)
    assert ba.drawdown(table)["peak"].isna().tolist() == [False, False, True]
    balances = [level for _, level in lines(ax)["balance"]]
    assert [level for level in balances if not np.isnan(level)] == [5, 6, 4, 4]
    ((_, area),) = areas(ax).items()
    peaks = [level for _, level in lines(ax)["its peak so far"]]
    assert [level for level in peaks if not np.isnan(level)] == [5, 6]
    assert [level for _, level in area if not np.isnan(level)] == [0, 0]
    assert said(ax) == "never below its peak"


@pytest.mark.parametrize("freq", ["1D", "5D"])
def test_a_step_of_a_period_ends_where_a_gap_begins(freq):
    options = {"freq": freq, "start": moment(START)}
    ax = ba.plot_totals(knowing((0, 2.5), (5, 8)), **options)
    assert START + 2.5 * DAY in unknown_from(next(iter(areas(ax).values())))


def test_no_bar_stands_in_a_period_that_is_not_known_throughout():
    rows = [(*GENERAL, START + n * DAY // 2, n) for n in range(10)]
    ax = ba.plot_flows(knowing((0, 1.5), (3, 5), rows=rows))
    bars = [path.vertices[:4] for path in ax.collections[0].get_paths()]
    begins = [round((micros([bar[0][0]])[0] - START) / DAY) for bar in bars if bar[1][1] > 0]
    assert begins == [0, 3, 4]
    assert shaded(ax, HATCH)[0][1:] == (START + DAY, START + 3 * DAY)


def test_an_account_that_is_seen_for_a_moment_is_a_dot():
    rows = [*ROWS, (*GENERAL, START + 4 * DAY, 7)]
    (line,) = ba.plot_balances(knowing((0, 3), (5, 8), rows=rows)).lines
    dots = line.get_markevery()
    assert line.get_marker() == "o"
    assert [(line.get_ydata()[n], micros(line.get_xdata(orig=True))[n]) for n in dots] == [
        (7.0, START + 4 * DAY)
    ]


@pytest.mark.parametrize("plot", OF_TIME, ids=NAMES)
def test_an_opening_is_drawn_from_the_start_on(plot):
    table = knowing((-2, 8), rows=[(*GENERAL, START - DAY, 3), *ROWS[1:]], since=START)
    ax = plot(table, start=moment(START))
    assert micros([ax.get_xlim()[0]])[0] < START + HOUR
    if plot is OF_TIME[2]:
        assert "inflow" in entries(ax)
        assert not any("first row" in entry for entry in entries(ax))
    else:
        time, level = drawn(ax)[0]
        assert level == 3
        assert time == START


def test_totals_say_what_they_lack_unless_all_is_known_from_the_first_block_on():
    lacks = "left out: accounts without a known row"
    for table in (knowing((0, 8)), knowing((0, 8), since=START), knowing((-2, 8), since=START)):
        assert lacks in said(ba.plot_totals(table))
    assert lacks not in said(ba.plot_totals(ba.to_table(table_of(ROWS), nothing_before=True)))


def test_an_interval_of_which_nothing_is_known_says_so():
    bounds = {n: moment(START + d * DAY) for n, d in (("start", 9), ("end", 12))}
    for plot in (ba.plot_balances, ba.plot_totals, ba.plot_drawdown):
        assert plot(knowing((0, 8)), **bounds).texts[0].get_text().startswith("no balance is known")


def test_days_of_which_a_part_is_not_known_are_hatched_in_the_calendar():
    ax = ba.plot_activity(knowing((0, 3), (5, 8.5)))
    cells, hatched = ax.collections
    assert cells.get_array().count() == 9
    assert len(hatched.get_paths()) == 2
    assert entries(ax) == [INCOMPLETE]
    assert ba.plot_activity(table_of(ROWS)).collections[0].get_array().count() == 7
