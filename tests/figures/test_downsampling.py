"""A picture of more rows than it has pixels shows what one of all rows would show."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis.tables import GENERAL, START, instant
from tests.figures.drawn import areas, lines

SECOND = 1_000_000
LENGTH = 30 * 86_400 * SECOND


def noisy(count, seed):
    """Return a walk of many changes with rare spikes, each one change long."""
    rng = np.random.default_rng(seed)
    times = START + np.sort(rng.choice(LENGTH // SECOND, count, replace=False)) * SECOND
    levels = np.abs(np.cumsum(rng.normal(0, 1e6, count))).astype(np.int64)
    levels[rng.integers(0, count, 20)] = int(levels.max() * 1.5)
    levels[rng.integers(0, count, 20)] = 0
    return pd.DataFrame({"at": times, "level": levels})


def table_of(history, known):
    columns = dict(zip(ba.ACCOUNT_KEY, GENERAL, strict=True))
    columns["timestamp"] = pd.to_datetime(history["at"], unit="us", utc=True)
    rows = pd.DataFrame({**columns, "balance": history["level"]})
    return ba.to_table(rows, known=[tuple(map(instant, span)) for span in known])


def reach(history, known, pixel):
    """Return the first, lowest, highest and last row of each pixel, and of each known stretch."""
    inside = [history[history["at"].between(start, end - 1)] for start, end in known]
    levels = [rows.groupby((rows["at"] - START) // pixel)["level"] for rows in inside]
    ends = [rows["at"].agg(["min", "max"]).tolist() for rows in inside]
    return [each.agg(["min", "max"]) for each in levels], ends


@pytest.mark.parametrize("plot", [ba.plot_balances, ba.plot_totals, ba.plot_drawdown])
@settings(max_examples=4)
@given(seed=st.integers(0, 10**6), gaps=st.sets(st.integers(1, 99), max_size=4))
def test_each_pixel_has_the_extremes_of_all_rows_on_each_side_of_every_gap(plot, seed, gaps):
    history, bounds = noisy(40_000, seed), [START, START + LENGTH]
    # Between seconds, so that no row lies at an edge itself.
    edges = (SECOND // 2, SECOND // 2 + 90 * SECOND)
    bounds += [START + LENGTH // 100 * gap + edge for gap in gaps for edge in edges]
    known = [*zip(sorted(bounds)[::2], sorted(bounds)[1::2], strict=True)]
    ax = plot(table_of(history, known), assets={"VOTE": 0})
    steps, *_ = [*lines(ax).values(), *areas(ax).values()]
    shown = pd.DataFrame(steps, columns=["at", "level"])
    assert len(shown) < 20_000
    shown = shown[shown["at"] <= history["at"].iloc[-1]].dropna()
    (drawn, own), (whole, ends) = (reach(x, known, LENGTH // 800) for x in (shown, history))
    assert own == ends
    for ours, true in zip(drawn, whole, strict=True):
        # A point at the edge of a pixel may be drawn in the neighbouring one.
        beside = ours.reindex(true.index).rolling(3, center=True, min_periods=1)
        assert (beside.min()["min"] <= true["min"]).all()
        assert (beside.max()["max"] >= true["max"]).all()
        assert (ours["min"] >= true["min"].reindex(ours.index)).all()
        assert (ours["max"] <= true["max"].reindex(ours.index)).all()
