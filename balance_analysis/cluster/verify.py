"""Prove that an archive is what it says, its files at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from balance_analysis.archive.archive import Archive
from balance_analysis.cluster.runner import running
from balance_analysis.maintenance import verify as verifying

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from distributed import Client

    from balance_analysis.archive.verify_report import VerifyReport
    from balance_analysis.load.progress import Report
    from balance_analysis.node.client import Client as Node


def verify(
    archive: Archive,
    *,
    against: Node | None = None,
    sample: int = 10,
    seed: int | None = None,
    client: Client | Executor | None = None,
    progress: bool | Report | None = False,
) -> VerifyReport:
    """Check that an archive is what it says, as `Archive.verify` does, each file somewhere else.

    Only the last row of each account in a file comes back: checkpoints are computed from these.

    Parameters
    ----------
    archive
        The archive.
    against, sample, seed
        A node to compare with, as for `Archive.verify`; it is asked from here.
    client
        Where to run: see `cluster.Options`.
    progress
        As for `load_balance_changes`.

    Returns
    -------
    VerifyReport
        As of `Archive.verify`; it names a folder by its absolute path, as the workers do.

    Raises
    ------
    ArchiveError
        If there is no archive, or a worker doesn't reach it.
    RequestError, DecodeError, IncompleteError, CheckError, ValueError
        As `Archive.verify`, if a node is asked; or if a worker has not this process's packages.
    """
    folder = archive.store.folder
    with running(client) as runner:
        anywhere = archive if folder is None else Archive(folder.absolute())
        return verifying.verify(
            anywhere,
            against=against,
            sample=sample,
            seed=seed,
            progress=progress,
            look=runner.map,
        )
