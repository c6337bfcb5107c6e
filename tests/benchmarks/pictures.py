"""How long pictures, the report and the page take."""

import json
import tempfile
from itertools import product
from pathlib import Path

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Picture

import balance_analysis as ba
from balance_analysis.demo import sample_archive, sample_data
from tests.benchmarks.archives import large_archive
from tests.benchmarks.figures import Figure, memory, seconds
from tests.benchmarks.levels import make_table
from tests.benchmarks.service import ask, connect, serving

POINTS = 1_000_000
PLOTS = (ba.plot_balances, ba.plot_totals, ba.plot_flows)


def render(plot, table):
    """Draw a picture into memory."""
    picture = Picture(figsize=(10, 4.5), layout="constrained")
    canvas = FigureCanvasAgg(picture)
    plot(table, ax=picture.subplots())
    canvas.draw()


def one_asset(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the first asset."""
    return table.balances.select(asset_id=table["asset_id"].iloc[0])


def measure(data: Path, rounds: int):
    """Yield the seconds of pictures of a million rows, of the report and of the page's views."""
    tables = {
        f"{POINTS:,} rows": one_asset(make_table(POINTS, 5000)),
        "the sample": one_asset(ba.read_parquet(sample_data() / "changes.parquet")),
    }
    for plot, (name, table) in product(PLOTS, tables.items()):
        took = seconds(lambda plot=plot, table=table: render(plot, table), rounds)
        yield Figure(f"{plot.__name__} of {name}", took, "s", at_most=3)
    with sample_archive() as archive, tempfile.TemporaryDirectory(dir=data) as scratch:
        took = seconds(lambda: ba.write_report(archive, Path(scratch) / "report.html"), rounds)
        yield Figure("the report of the sample", took, "s", at_most=4)
    yield from _page(large_archive(data))


def _page(folder: Path):
    """Yield how long each view takes when the page first opens, and then when it moves."""
    with serving(folder) as (process, place):
        about = json.loads(ask(connect(place), "/explore/about")[1])
        asset, start, end = about["assets"][0]["id"], about["start"], about["end"]
        step = (end - start) // 10
        for view in ("totals", "flows", "holders"):
            took = []
            for number in range(10):
                ends = f"start={start + number * step}&end={start + (number + 1) * step}"
                where = f"at={end - number * step}" if view == "holders" else ends
                path = f"/explore/{view}?asset={asset}&{where}"
                took.append(ask(connect(place), path)[0])
            yield Figure(f"the page's {view}, 20,000,000 rows", tuple(took), "s", at_most=1)
        yield Figure("the page's service", (memory("VmHWM", process),), "MB", at_most=1000)
