"""Draw README's pictures from the sample data: `python notebooks/gallery.py [FOLDER]`.

They go beside this file, `balances.png` and the others in `pictures/`, or into another folder.
That of the explorer is what Chromium shows, which must be installed.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

import balance_analysis as ba
from balance_analysis.demo import sample_archive, sample_assets, sample_data
from balance_analysis.service.app import create_app
from balance_analysis.service.server import serve
from balance_analysis.table.moments import to_microseconds

END = "2023-05-01"
DAYS = {"start": "2023-04-09", "end": "2023-04-16"}
METADATA = {"Software": None}  # without matplotlib's release, the same picture is the same file
WIDTH, HEIGHT = 1200, 900


def draw(folder: Path) -> list[Path]:
    """Draw all figures into a folder, which is made where it doesn't exist, and return them."""
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    table = ba.read_parquet(sample_data() / "changes.parquet", assets=sample_assets())
    usd = table.balances.select(asset_id="tUSD")
    is_maker = usd["party_id"].isin(usd.loc[usd["account_type"] == "ACCOUNT_TYPE_BOND", "party_id"])
    traders = usd[(usd["account_type"] == "ACCOUNT_TYPE_GENERAL") & ~is_maker]
    busiest = traders["party_id"].value_counts().index
    some = traders[traders["party_id"].isin(busiest[:3])]

    figure, ax = plt.subplots(figsize=(10, 4.5), layout="constrained")
    four = traders[traders["party_id"].isin(busiest[:4])]
    words = "What four traders held in tUSD around the volatile 12 April, without market makers"
    ba.plot_balances(four, ax=ax, title=words, **DAYS)
    first = save(figure, folder / "balances.png", dpi=150)

    figure, axes = plt.subplots(2, 2, figsize=(15, 7.5), layout="constrained")
    words = "What the three busiest traders held, without market makers"
    ba.plot_balances(some, ax=axes[0, 0], title=words, end=END)
    ba.plot_totals(usd, ax=axes[0, 1], freq="1h", title="What the asset consists of", end=END)
    words = "What came to traders and left them, without market makers"
    ba.plot_flows(traders, ax=axes[1, 0], title=words)
    words = "When things happen: not at all from 17 to 23 April"
    ba.plot_activity(table, ax=axes[1, 1], title=words)
    light = save(figure, folder / "pictures" / "gallery.png")

    with mpl.rc_context(ba.DARK_STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(15, 3.9), layout="constrained")
        one = some[some["party_id"] == busiest[0]]
        words = "How far a balance lies below its peak"
        ba.plot_drawdown(one, ax=axes[0], title=words, end=END)
        words = "Which part each of the largest traders held, without market makers"
        who = {"by": "party_id", "freq": "1D", "share": True}
        ba.plot_totals(traders, ax=axes[1], title=words, **who, end=END)
        dark = save(figure, folder / "pictures" / "gallery-dark.png")
    return [first, light, dark]


def save(figure: plt.Figure, path: Path, *, dpi: int = 80) -> Path:
    """Save a figure, and close it."""
    figure.savefig(path, dpi=dpi, metadata=METADATA)
    plt.close(figure)
    return path


def photograph(path: Path) -> Path:
    """Save what the explorer of the sample data shows in a window of a fixed size."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only this needs a browser

    with (
        sample_archive() as archive,
        serve(create_app(archive)) as url,
        sync_playwright() as playwright,
    ):
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        page = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(f"{url}/#range={to_microseconds(DAYS['start'])}..{to_microseconds(DAYS['end'])}")
        page.wait_for_load_state("networkidle")
        page.screenshot(path=path, animations="disabled")
        chromium.close()
    return path


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for written in [*draw(target), photograph(target / "pictures" / "explorer.png")]:
        print(written)  # noqa: T201 - it is a command
