"""One writer at a time.

The operating system's lock on a file decides, so that what a dead process left behind never blocks.
Who holds it stands in a file beside it, for the message alone.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import os
import platform
from typing import TYPE_CHECKING, Any

import filelock

from balance_analysis.archive import layout
from balance_analysis.archive.credentials import without_credentials
from balance_analysis.errors import ArchiveLockedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from balance_analysis.archive.store import Store

logger = logging.getLogger("balance_analysis")


@contextlib.contextmanager
def one_writer(store: Store) -> Iterator[None]:
    """Hold the lock of an archive, without waiting for it.

    An object store has none: `pyarrow.fs` can't make a file only where there is none. There a
    warning is logged, and the caller must see to it that runs don't overlap.

    Raises
    ------
    ArchiveLockedError
        If another run holds it.
    OSError
        If the folder can't be written to.
    """
    if store.folder is None:
        logger.warning(
            "%s is in an object store, which has no lock: let only one run write to it at a time",
            without_credentials(store.uri),
        )
        yield
        return
    is_new = not store.folder.exists()
    store.folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(store.folder / layout.LOCK, timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise _locked(store) from error
    note = store.folder / layout.HOLDER
    try:
        note.write_text(json.dumps(_myself()) + "\n", encoding="utf-8")
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()
        if is_new:
            _remove_empty(store.folder)


def read_holder(store: Store) -> dict[str, Any]:
    """Return who noted that it writes to an archive: `pid`, `host`, `since`; it may be dead."""
    try:
        holder = json.loads(store.read(layout.HOLDER) or b"{}")
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}


def _myself() -> dict[str, Any]:
    since = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": platform.node(), "since": since}


def _locked(store: Store) -> ArchiveLockedError:
    holder = read_holder(store)
    who = "another run"
    if holder:
        who = (
            f"process {holder.get('pid')} on {holder.get('host')}, which began "
            f"{holder.get('since')},"
        )
    return ArchiveLockedError(
        f"{store.uri} is locked: {who} is writing to it; try again when it is done", holder=holder
    )


def _remove_empty(folder: Path) -> None:
    """Remove a folder that was made for a run which then made no archive in it."""
    if [path.name for path in folder.iterdir()] == [layout.LOCK]:
        (folder / layout.LOCK).unlink()
        folder.rmdir()
