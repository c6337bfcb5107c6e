"""Draw README's pictures from the sample data: `python notebooks/gallery.py [FOLDER]`.

They go beside this file, into `pictures/`, or into another folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

import balance_analysis as ba
from balance_analysis.demo import sample_assets, sample_data

END = "2023-05-01"
METADATA = {"Software": None}  # without matplotlib's release, the same picture is the same file


def draw(folder: Path) -> list[Path]:
    """Draw all pictures into a folder, which is made where it doesn't exist, and return them."""
    folder.mkdir(parents=True, exist_ok=True)
    table = ba.read_parquet(sample_data() / "changes.parquet")
    assets = sample_assets()
    usd = table[table["asset_id"] == assets.find("tUSD").asset_id]
    is_maker = usd["party_id"].isin(usd.loc[usd["account_type"] == "ACCOUNT_TYPE_BOND", "party_id"])
    traders = usd[(usd["account_type"] == "ACCOUNT_TYPE_GENERAL") & ~is_maker]
    busiest = traders["party_id"].value_counts().index[:3]
    some = traders[traders["party_id"].isin(busiest)]

    figure, axes = plt.subplots(2, 2, figsize=(15, 7.5), layout="constrained")
    shown = {"end": END, "assets": assets}
    ba.plot_balances(some, ax=axes[0, 0], title="What three traders held", **shown)
    ba.plot_totals(usd, ax=axes[0, 1], freq="1h", title="What the asset consists of", **shown)
    words = "What came to traders and left them"
    ba.plot_flows(traders, ax=axes[1, 0], assets=assets, title=words)
    ba.plot_activity(table, ax=axes[1, 1], kind="week", title="When things happen")
    light = save(figure, folder / "gallery.png")

    with mpl.rc_context(ba.DARK_STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(15, 3.9), layout="constrained")
        one = some[some["party_id"] == busiest[0]]
        words = "How far a balance lies below its peak"
        ba.plot_drawdown(one, ax=axes[0], title=words, **shown)
        words = "Who holds the most"
        ba.plot_concentration(traders, ax=axes[1], kind="largest", n=5, title=words, assets=assets)
        dark = save(figure, folder / "gallery-dark.png")
    return [light, dark]


def save(figure: plt.Figure, path: Path) -> Path:
    """Save a figure, and close it."""
    figure.savefig(path, dpi=80, metadata=METADATA)
    plt.close(figure)
    return path


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "pictures"
    for written in draw(target):
        print(written)  # noqa: T201 - it is a command
