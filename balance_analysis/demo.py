"""The main job on sample data: an embedded node, an archive filled over real HTTP, and pictures."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pandas as pd

import balance_analysis as ba
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.inspection import ArchiveStatus
from balance_analysis.archive.manifest import BoundQuery, write_empty
from balance_analysis.archive.sidecars import write_archive_names
from balance_analysis.evidence import Answer, Evidence, Node
from balance_analysis.files.atomic import check_outside, replacing
from balance_analysis.filters import Filters
from balance_analysis.frame import to_arrow
from balance_analysis.names import Names
from balance_analysis.schema import to_microseconds
from balance_analysis.service.app import create_app
from balance_analysis.service.server import serve

PAGE_SIZE: Final = 2000
"""Small enough that the sample's pages cut blocks."""


SAMPLE_START: Final = "2023-04-01"
SAMPLE_END: Final = "2023-05-01"
TRADERS: Final = 4


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What a demo made.

    Attributes
    ----------
    table
        The balance changes, as the archive holds them.
    limits
        The network limits, as loaded.
    status
        What the archive holds.
    summary
        One row per account, as of `summarize_accounts`.
    files
        What was written beside the archive, in order.
    """

    table: pd.DataFrame
    limits: ba.NetworkLimits
    status: ArchiveStatus
    summary: pd.DataFrame
    files: tuple[Path, ...]


def sample_data() -> Path:
    """Return the folder of the sample data: inside an installed package, or beside a checkout's."""
    package = Path(__file__).parent
    installed = package / "sample_data"
    return installed if installed.is_dir() else package.parent / "sample_data"


def sample_assets() -> ba.Assets:
    """Return the assets of the sample data."""
    return ba.read_assets(sample_data() / "assets.toml")


@contextmanager
def serve_sample() -> Iterator[str]:
    """Serve the sample data from an embedded node, whose base address the `with` block gets."""
    with sample_archive() as archive, serve(create_app(archive)) as url:
        yield url


@contextmanager
def sample_archive() -> Iterator[ba.Archive]:
    """Yield an archive of the sample data, which is gone after the `with` block."""
    with tempfile.TemporaryDirectory(prefix="balance-analysis-") as folder:
        archive = ba.Archive(Path(folder, "Sample data"))
        limits = ba.read_network_limits(sample_data() / "network_limits.json")
        write_empty(archive.store, BoundQuery(Filters(), "month"))
        writer, height = Writer(archive.store), limits.block_height
        answer = Answer(
            (to_microseconds(SAMPLE_START), to_microseconds(SAMPLE_END)),
            Node(limits.source, frozenset({limits.source})),
            (to_microseconds(limits.fetched_at),) * 2,
            None if height is None else (height, height),
        )
        rows = to_arrow(ba.read_parquet(sample_data() / "changes.parquet"))
        writer.commit(SAMPLE_START[:7], rows, Evidence(answers=(answer,)))
        writer.keep_limits(limits)
        write_archive_names(archive.store, Names(sample_assets()))
        yield archive


def run_demo(out: Path, *, say: Callable[[str], None]) -> DemoResult:
    """Export the sample from an embedded node into an archive, verify it, and draw what it holds.

    Beside it, an archive is made of a few network history segments, and compared with their ledger.

    Parameters
    ----------
    out
        The folder for the archive and the files; made where it doesn't exist. An archive of an
        earlier demo goes on.
    say
        Called with a line on each step.

    Raises
    ------
    ArchiveError
        If the folder `archive` in it is no archive of the sample.
    CheckError
        If the archive is not what it says.
    ValueError
        If the folder is an archive, or lies in one.
    OSError
        If the folder can't be written to.
    """
    check_outside(out)
    out.mkdir(parents=True, exist_ok=True)
    archive = ba.Archive(out / "archive")
    with serve_sample() as url, ba.Client(url) as client:
        say(f"An embedded node answers at {url}")
        run = ba.export(
            client, archive, end=SAMPLE_END, page_size=PAGE_SIZE, assets=sample_assets()
        )
        say(f"Exported {run.rows:,} balance changes in {run.requests} requests: {archive.uri}")
        limits = ba.load_network_limits(client)
    _check(archive.verify(), say)
    history = ba.Archive(out / "history")
    segments = sample_data() / "segments"
    imported = ba.import_segments(history, segments, progress=False)
    say(f"Imported {imported.rows:,} balance changes from network history segments: {history.uri}")
    _check(history.verify(segments=segments), say)
    table, status = archive.read(), archive.status()
    files = [out / "changes.parquet", out / "network_limits.json", out / "assets.toml"]
    ba.write_parquet(table, files[0])
    ba.write_network_limits(limits, files[1])
    with replacing(files[2]) as temporary:
        shutil.copyfile(sample_data() / "assets.toml", temporary)
    files += _draw(table, out)
    return DemoResult(table, limits, status, ba.summarize_accounts(table), tuple(files))


def _check(verified: ba.VerifyReport, say: Callable[[str], None]) -> None:
    say(str(verified))
    if verified.problems:
        raise ba.CheckError(f"{verified.uri} is not what it says: {verified}")


def _draw(table: pd.DataFrame, out: Path) -> Iterator[Path]:
    """Draw the general accounts of each asset's busiest traders."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 - it chooses a backend when it is imported

    end = table["timestamp"].max().ceil("D")
    assets = sample_assets()
    for asset, about in assets.items():
        figure, ax = plt.subplots(figsize=(10, 4.5), layout="constrained")
        ba.plot_balances(
            _busiest_traders(table[table["asset_id"] == asset]),
            ax=ax,
            assets=assets,
            end=end,
            title=f"What the busiest traders held in {about.symbol}, without market makers",
        )
        path = out / f"balances-{about.symbol}.png"
        with replacing(path) as temporary:
            figure.savefig(temporary, format="png", dpi=150)
        plt.close(figure)
        yield path


def _busiest_traders(table: pd.DataFrame) -> pd.DataFrame:
    """Return the general accounts with most rows, those of market makers, who hold bonds, aside."""
    makers = table.loc[table["account_type"] == "ACCOUNT_TYPE_BOND", "party_id"]
    is_general = table["account_type"] == "ACCOUNT_TYPE_GENERAL"
    general = table[is_general & ~table["party_id"].isin(makers)]
    busiest = general["party_id"].value_counts().index[:TRADERS]
    return general[general["party_id"].isin(busiest)]
