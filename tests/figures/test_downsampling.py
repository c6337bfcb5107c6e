from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.analysis import int128
from balance_analysis.analysis.steps import downsample, starts_of_known, thinned
from tests.analysis.tables import GENERAL, START

SECOND = 1_000_000


@st.composite
def step_functions(draw):
    count = draw(st.integers(1, 80))
    gaps = draw(st.lists(st.integers(1, 10**9), min_size=count, max_size=count))
    levels = st.lists(st.integers(-5, 5), min_size=count, max_size=count)
    functions = draw(st.lists(levels, min_size=1, max_size=3))
    return np.cumsum(gaps), [np.array(each, float) for each in functions]


def columns_of(times, columns):
    """Return the column of each time, exactly: the oracle for what may be left out."""
    length = int(times[-1] - times[0])
    return [min((int(t) - int(times[0])) * columns // max(length, 1), columns - 1) for t in times]


@given(step_functions(), st.integers(1, 20))
def test_a_column_keeps_its_first_lowest_highest_and_last_level(function, columns):
    times, levels = function
    places = downsample(times, *levels, columns=columns)
    kept = set(places.tolist())
    assert list(places) == sorted(kept)
    assert len(places) <= max(4 * columns, (2 + 2 * len(levels)) * columns)
    if len(times) <= 4 * columns:
        assert len(kept) == len(times)
        return
    for start in range(columns):
        members = [n for n, c in enumerate(columns_of(times, columns)) if c == start]
        for level in levels if members else ():
            inside = [level[n] for n in members if n in kept]
            assert {members[0], members[-1]} <= kept
            assert min(inside) == min(level[members])
            assert max(inside) == max(level[members])


@given(step_functions(), st.integers(1, 20), st.data())
def test_each_side_of_a_gap_keeps_its_own_lowest_and_highest_level(function, columns, data):
    times, levels = function
    known = st.lists(st.booleans() | st.just(True), min_size=len(times), max_size=len(times))
    is_known = np.array(data.draw(known))
    words = [int128.words_from([*map(int, level)]) for level in levels]
    kept = set(thinned(times, is_known, *words, columns=columns).tolist())
    starts_known = starts_of_known(is_known)
    sides = list(zip(columns_of(times, columns), np.cumsum(starts_known), strict=True))
    for side in set(sides):
        members = [n for n, each in enumerate(sides) if each == side]
        assert {members[0], members[-1]} <= kept
        for level in levels:
            inside = [level[n] for n in members if n in kept]
            assert {min(inside), max(inside)} == {min(level[members]), max(level[members])}


def test_a_picture_shows_the_lowest_balance_before_a_gap_and_where_it_begins(tmp_path):
    count, middle = 40_000, START + 20_000 * SECOND
    table = noisy(count)
    table["timestamp"] = pd.to_datetime(
        [START + n * SECOND for n in range(count)], unit="us", utc=True
    )
    table.loc[19_990, "balance"] = -7
    known = [(START, middle), (middle + 100 * SECOND, START + count * SECOND)]
    moments = [tuple(pd.Timestamp(bound, unit="us", tz="UTC") for bound in span) for span in known]
    (line,) = ba.plot_balances(ba.to_table(table, known=moments)).lines
    levels = line.get_ydata()
    assert np.nanmin(levels) == -7
    assert np.isnan(levels).any()
    plt.close("all")


def noisy(count, *, seed=7):
    """Return a walk of many changes with rare spikes that last for one of them."""
    rng = np.random.default_rng(seed)
    times = START + np.sort(rng.choice(30 * 86_400, count, replace=False)) * SECOND
    levels = np.abs(np.cumsum(rng.normal(0, 1e6, count))).astype(np.int64)
    levels[rng.integers(0, count, 20)] = int(levels.max() * 1.5)
    return pd.DataFrame(
        {
            **dict(zip(ba.ACCOUNT_KEY, GENERAL, strict=True)),
            "timestamp": pd.to_datetime(times, unit="us", utc=True),
            "balance": levels,
        }
    )


def pixels(ax):
    ax.figure.canvas.draw()
    return np.asarray(ax.figure.canvas.buffer_rgba())[..., :3].astype(int)


def reach(image):
    """Return the highest and the lowest coloured pixel of each column, both counted from 0."""
    is_blue = image[..., 2] - image[..., 0] > 60
    rows = np.arange(len(image))[:, None]
    return (
        np.where(is_blue, rows, len(image)).min(axis=0),
        np.where(is_blue, len(image) - rows, len(image)).min(axis=0),
    )


def best_of_three(edges):
    """Return how far each column or one beside it reaches."""
    padded = np.pad(edges, 1, mode="edge")
    return np.minimum(np.minimum(padded[:-2], padded[1:-1]), padded[2:])


def replace_line(ax, times, levels):
    (line,) = ax.lines
    line.set_data(np.append(times, times[-1]), np.append(levels, levels[-1]))


def replace_area(ax, times, levels):
    (area,) = ax.patches
    edges = plt.matplotlib.dates.date2num(times)
    area.set_data(values=levels[:-1], edges=edges)


@pytest.mark.parametrize(
    ("plot", "replace"), [(ba.plot_balances, replace_line), (ba.plot_totals, replace_area)]
)
def test_a_thinned_history_looks_like_the_whole_one(plot, replace):
    table = noisy(200_000)
    times = table["timestamp"].to_numpy("M8[us]")
    levels = table["balance"].to_numpy(float)
    _, ax = plt.subplots(figsize=(4, 4), layout="constrained")
    thinned = pixels(plot(table, ax=ax))
    replace(ax, times, levels)
    whole = pixels(ax)
    difference = np.abs(whole - thinned).max(axis=2)
    assert difference.mean() < 1  # of 255
    assert (difference > 100).mean() < 0.001
    if plot is ba.plot_balances:  # an area may fill a pixel in part, a line is there or not
        for ours, true in zip(reach(thinned), reach(whole), strict=True):
            assert (best_of_three(ours) <= true + 1).all()
            assert (best_of_three(true) <= ours + 1).all()
