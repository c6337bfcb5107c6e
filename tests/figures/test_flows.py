import re

import numpy as np
import pytest
from hypothesis import given, settings

import balance_analysis as ba
from tests.analysis.oracle import flows
from tests.analysis.tables import GENERAL, HOUR, START, asked, fixed_grids, opened, table_of
from tests.figures.drawn import history, micros, one_asset, said, us


def bars(ax, label):
    """Return {left edge, microseconds: height} of the bars with a label."""
    (collection,) = (each for each in ax.collections if each.get_label() == label)
    corners = (path.vertices.T for path in collection.get_paths())
    return [(x.min(), x.max(), y[np.abs(y).argmax()]) for x, y in corners]


@given(one_asset, fixed_grids())
@settings(max_examples=15)
def test_bars_are_the_flows_of_wholly_known_periods(world, grid):
    ax = ba.plot_flows(opened(world), **asked(grid), assets={"VOTE": 0})
    expected = flows(world, grid, ["asset_id"])
    for label, sign, place in (("inflow", 1, 3), ("outflow", -1, 4), ("net", 1, 5)):
        heights = [height for *_, height in bars(ax, label)] if expected else []
        amounts = [np.nan if row[place] is None else sign * row[place] for row in expected]
        assert heights == pytest.approx(amounts, nan_ok=True)
    counted = re.search(r"(\d+) first row|$", said(ax) if expected else "")[1]
    assert int(counted or 0) == sum(unknown for *_, unknown in expected)


def test_a_bar_is_within_its_period_and_the_net_spans_it():
    rows = [(*GENERAL, us("2023-04-01"), 5), (*GENERAL, us("2023-04-02T12:00"), 7)]
    ax = ba.plot_flows(table_of(rows))
    left, right, height = bars(ax, "inflow")[1]
    assert us("2023-04-02") < micros([left])[0] < micros([right])[0] < us("2023-04-03")
    assert height == 2
    assert [micros(bar[:2]) for bar in bars(ax, "net")][1] == [us("2023-04-02"), us("2023-04-03")]


@pytest.mark.parametrize(
    ("freq", "measure"),
    [
        ("1D", "flows per day"),
        ("1h", "flows per hour"),
        ("6h", "flows per 6 hours"),
        ("MS", "flows per month"),
        ("W-MON", "flows per week"),
        ("2QS", "flows per 2 quarters"),
        ("B", "flows per B"),
        (None, "flows"),
    ],
)
def test_the_axis_names_the_period(freq, measure):
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + HOUR, 7)])
    ax = ba.plot_flows(table, freq=freq, assets={"VOTE": {"symbol": "VEGA", "decimals": 0}})
    assert ax.get_ylabel() == f"{measure} (VEGA)"


def topmost(ax):
    """Return the amount at which the highest blue pixel is, and how many columns have blue."""
    ax.get_legend().set_visible(False)
    ax.figure.canvas.draw()
    image = np.asarray(ax.figure.canvas.buffer_rgba()).astype(int)
    box = ax.get_window_extent()
    inside = image[:, int(box.x0) + 2 : int(box.x1) - 2]
    rows, columns = np.nonzero(inside[..., 2] > inside[..., 0] + 60)
    y = len(image) - rows.min()
    return ax.transData.inverted().transform((0, y))[1], len(set(columns))


def test_the_largest_inflow_is_visible_if_bars_are_narrower_than_a_pixel():
    table = history(3000, days=60)
    largest = ba.flows(table, freq="10min", by="asset_id")["inflow"].max()
    top, columns = topmost(ba.plot_flows(table, freq="10min"))
    assert top == pytest.approx(float(largest), rel=0.02)
    assert columns > 200


def test_flows_of_zero_have_an_axis_of_zero():
    for freq in ("1D", "1h", None):
        assert ba.plot_flows(table_of([(*GENERAL, START + 7, 5)]), freq=freq).get_ylim()[0] == -0.05
