"""How long figures take: with a million points, and with the sample data.

Each is drawn into a new figure and rendered to memory, as a file would be.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import balance_analysis as ba
from balance_analysis.archive.status import coverage_frame
from balance_analysis.demo import sample_assets, sample_data
from balance_analysis.evidence import Answer, Evidence, Node

POINTS = 1_000_000
DAY = 86_400_000_000

TABLE_PLOTS = {
    "balances": lambda table, ax: ba.plot_balances(table, ax=ax, assets={"VOTE": 6}),
    "totals": lambda table, ax: ba.plot_totals(table, ax=ax, assets={"VOTE": 6}),
    "totals an hour, shares": lambda table, ax: ba.plot_totals(
        table, ax=ax, freq="1h", shares=True
    ),
    "flows a day": lambda table, ax: ba.plot_flows(table, ax=ax, assets={"VOTE": 6}),
    "flows a minute": lambda table, ax: ba.plot_flows(table, ax=ax, freq="1min"),
    "drawdown": lambda table, ax: ba.plot_drawdown(_longest(table), ax=ax),
    "calendar": lambda table, ax: ba.plot_activity(table, ax=ax),
    "week": lambda table, ax: ba.plot_activity(table, ax=ax, kind="week"),
}


def _longest(table):
    """Return the rows of the account that has most."""
    numbers = table.groupby(ba.ACCOUNT_KEY, observed=True).ngroup()
    return table[numbers == numbers.mode()[0]]


def walks(accounts):
    """Return a million rows over 30 days, the same number of each account, made from a seed."""
    rng = np.random.default_rng(3)
    count = POINTS // accounts
    parts = []
    for number in range(accounts):
        seconds = np.sort(rng.choice(30 * 86_400, count, replace=False))
        account = {
            "asset_id": "VOTE",
            "account_type": ba.ACCOUNT_TYPES[1 + number % 8],
            "party_id": f"party {number:04}",
            "market_id": "",
        }
        times = pd.to_datetime(1_680_307_200 + seconds, unit="s", utc=True)
        levels = np.abs(np.cumsum(rng.normal(0, 1e9, count))).astype(np.int64)
        parts.append(pd.DataFrame({**account, "timestamp": times, "balance": levels}))
    return ba.to_table(pd.concat(parts, ignore_index=True))


def render(plot, *data):
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    plot(*data, figure.subplots())
    canvas.draw()
    return figure


@pytest.fixture(scope="module", params=[8, 1000], ids=lambda count: f"{count} accounts")
def million(request):
    return walks(request.param)


@pytest.fixture(scope="module")
def sample():
    asset = next(iter(sample_assets()))
    table = ba.read_parquet(sample_data() / "changes.parquet")
    return table[table["asset_id"] == asset]


@pytest.mark.parametrize("plot", TABLE_PLOTS.values(), ids=TABLE_PLOTS)
def test_a_million_points_take_some_time(plot, million, benchmark):
    figure = benchmark.pedantic(render, args=(plot, million), rounds=3, warmup_rounds=1)
    assert figure.axes[0].has_data()


@pytest.mark.parametrize("plot", TABLE_PLOTS.values(), ids=TABLE_PLOTS)
def test_the_sample_takes_some_time(plot, sample, benchmark):
    figure = benchmark.pedantic(render, args=(plot, sample), rounds=3, warmup_rounds=1)
    assert figure.axes[0].has_data()


def test_a_coverage_of_a_thousand_gaps_takes_some_time(benchmark):
    node, spans = (
        Node("https://node.example"),
        ((2 * n * DAY, (2 * n + 1) * DAY) for n in range(1000)),
    )
    answers = tuple(Answer(span, node, (0, 0)) for span in spans)
    frame = coverage_frame(Evidence(answers=answers))
    benchmark.pedantic(
        render, args=(lambda data, ax: ba.plot_coverage(data, ax=ax), frame), rounds=3
    )


def test_a_thousand_snapshots_of_limits_take_some_time(benchmark):
    seen = pd.date_range("2020-01-01", periods=1000, freq="1D", tz="UTC").as_unit("us")
    flags = dict.fromkeys(
        ("can_propose_asset", "propose_asset_enabled", "genesis_loaded"), [True] * 1000
    )
    changing = dict.fromkeys(("can_propose_market", "propose_market_enabled"), [True, False] * 500)
    frame = pd.DataFrame(
        {"first_seen": seen, "last_seen": seen + pd.Timedelta("12h"), **flags, **changing}
    )
    benchmark.pedantic(render, args=(lambda data, ax: ba.plot_limits(data, ax=ax), frame), rounds=3)
