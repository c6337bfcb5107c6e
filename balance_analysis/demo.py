"""Run the main workflow on sample data: serve it, export it into an archive over HTTP, plot it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import balance_analysis as ba
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.datafile import encode_rows
from balance_analysis.archive.manifest import BoundQuery
from balance_analysis.archive.sidecars import write_archive_names
from balance_analysis.files.atomic import check_outside
from balance_analysis.service.app import create_app
from balance_analysis.service.server import serve
from balance_analysis.table.evidence import Answer, Evidence, Node
from balance_analysis.table.filters import Filters
from balance_analysis.table.frame import to_arrow
from balance_analysis.table.moments import to_microseconds
from balance_analysis.table.names import Names

PAGE_SIZE: Final = 2000
"""Rows per page; small enough that some of the sample's pages end within a block."""

SAMPLE_START: Final = "2023-04-01"
SAMPLE_END: Final = "2023-05-01"


def sample_data() -> Path:
    """Return the folder of the sample data: in the installed package, or beside it."""
    package = Path(__file__).parent
    installed = package / "sample_data"
    return installed if installed.is_dir() else package.parent / "sample_data"


def sample_assets() -> dict[str, ba.Asset]:
    """Return the assets of the sample data."""
    return ba.read_assets(sample_data() / "assets.toml")


@contextmanager
def serve_sample() -> Iterator[str]:
    """Serve the sample data from an embedded node and yield its base address."""
    with sample_archive() as archive, serve(create_app(archive)) as url:
        yield url


@contextmanager
def sample_archive() -> Iterator[ba.Archive]:
    """Yield an archive of the sample data; it is deleted after the `with` block."""
    with tempfile.TemporaryDirectory(prefix="balance-analysis-") as folder:
        archive = ba.Archive(Path(folder, "Sample data"))
        limits = ba.read_network_limits(sample_data() / "network_limits.json")
        writer = Writer(archive.store, BoundQuery(Filters(), "month"))
        height = limits.block_height
        answer = Answer(
            (to_microseconds(SAMPLE_START), to_microseconds(SAMPLE_END)),
            Node(limits.source, frozenset({limits.source})),
            (to_microseconds(limits.fetched_at),) * 2,
            None if height is None else (height, height),
        )
        rows = to_arrow(ba.read_parquet(sample_data() / "changes.parquet"))
        writer.put(SAMPLE_START[:7], encode_rows(rows), Evidence(answers=(answer,)))
        writer.keep_limits(limits)
        write_archive_names(archive.store, Names(sample_assets()))
        yield archive


def run_demo(out: Path, *, say: Callable[[str], None]) -> ba.Archive:
    """Export the sample from an embedded node into an archive, verify the archive and plot it.

    A second archive is imported from a few network history segments and compared with their ledger.

    Parameters
    ----------
    out
        The folder for the archives and the other files; created if missing. An archive of an
        earlier demo is continued.
    say
        Called with one line per step.

    Raises
    ------
    ArchiveError
        If the folder `archive` in `out` isn't an archive of the sample.
    CheckError
        If verifying an archive finds a problem.
    ValueError
        If the folder is an archive, or is inside one.
    OSError
        If the folder can't be written to.
    """
    import matplotlib.pyplot as plt  # noqa: PLC0415 - it chooses a backend when it is imported

    check_outside(out)
    out.mkdir(parents=True, exist_ok=True)
    archive, assets = ba.Archive(out / "archive"), sample_assets()
    with serve_sample() as url, ba.Client(url) as client:
        say(f"An embedded node answers at {url}")
        run = ba.export(client, archive, end=SAMPLE_END, page_size=PAGE_SIZE, assets=assets)
        say(f"Exported {run.rows:,} balance changes in {run.requests} requests: {archive.uri}")
        ba.write_network_limits(ba.load_network_limits(client), out / "network_limits.json")
    _check(archive.verify(), say)
    history, segments = ba.Archive(out / "history"), sample_data() / "segments"
    imported = ba.import_segments(history, segments, progress=False)
    say(f"Imported {imported.rows:,} balance changes from network history segments: {history.uri}")
    _check(history.verify(segments=segments), say)
    ba.write_parquet(archive.read(), out / "changes.parquet")
    shutil.copyfile(sample_data() / "assets.toml", out / "assets.toml")
    for asset in assets.values():
        figure: Any = ba.plot_totals(archive.select(asset_id=asset.symbol)).get_figure(root=True)
        figure.savefig(out / f"totals-{asset.symbol}.png", dpi=150)
        plt.close(figure)
    say(f"Wrote changes.parquet, network_limits.json, assets.toml and pictures to {out}")
    return archive


def _check(verified: ba.VerifyReport, say: Callable[[str], None]) -> None:
    say(str(verified))
    if verified.problems:
        raise ba.CheckError(f"{verified.uri} failed verification: {verified}")
