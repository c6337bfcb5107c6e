"""One writer at a time.

The operating system's lock on a file decides, so that what a dead process left behind never blocks.
Who holds it stands in a file beside it, for the message alone. In an object store that file is the
lock, where the store has conditional puts: see `lease`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock

from balance_analysis.archive import layout
from balance_analysis.archive.holder import NoLockError, holder_of, locked, myself
from balance_analysis.files.atomic import name_file
from balance_analysis.text import without_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from balance_analysis.archive.store import Store

logger = logging.getLogger("balance_analysis")


@contextlib.contextmanager
def one_writer(store: Store) -> Iterator[None]:
    """Hold the lock of an archive, without waiting for it.

    In an object store whoever has lost it meanwhile can write nothing more. Where there can be
    none a warning is logged, and the caller must see to it that runs don't overlap.

    Raises
    ------
    ArchiveLockedError
        If another run holds it; in an object store also from `Store.write` and `Store.delete`, if
        another run has taken it over.
    OSError
        If the folder can't be written to, or the object store can't be asked.
    """
    lock = _object_lock(store) if store.folder is None else _lock_file(store, store.folder)
    with lock:
        yield


def read_holder(store: Store) -> dict[str, Any]:
    """Return who noted that it writes to an archive: `pid`, `host`, `since`; it may be dead."""
    return holder_of(store.read(layout.HOLDER))


def writer_of(store: Store) -> str | None:
    """Return who is writing to an archive, in words; `None` if nobody is known to."""
    holder = read_holder(store)
    if not holder:
        return None
    if holder.get("host") == platform.node() and not _is_alive(holder.get("pid")):
        return None
    who = f"process {holder.get('pid')} on {holder.get('host')}"
    return f"{who}, since {holder.get('since')}"


def _is_alive(pid: object) -> bool:
    try:
        os.kill(int(str(pid)), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


@contextlib.contextmanager
def _lock_file(store: Store, folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    # The lock's file stays: whoever has opened it, and waits, would lock one that has no name.
    lock = filelock.FileLock(store.place(layout.LOCK)[1], timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise locked(store.uri, read_holder(store)) from error
    note = Path(store.place(layout.HOLDER)[1])
    try:
        try:
            note.write_text(f"{json.dumps(myself())}\n", encoding="utf-8")
        except OSError as error:
            name_file(error, note)
            raise
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()


@contextlib.contextmanager
def _object_lock(store: Store) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        try:
            store.guard = stack.enter_context(_lease(store))
        except NoLockError as reason:
            logger.warning(
                "%s has no lock: %s; let only one run write to it at a time",
                without_credentials(store.uri),
                reason,
            )
        try:
            yield
        finally:
            store.guard = None


def _lease(store: Store) -> AbstractContextManager[Callable[[], None]]:
    files, _ = store.place(layout.HOLDER)
    if files.type_name != "s3":
        raise NoLockError("its kind of store has none")
    try:
        from balance_analysis.archive.lease import leased  # noqa: PLC0415 - boto3 is an extra
    except ModuleNotFoundError as error:
        if error.name not in {"boto3", "botocore"}:
            raise
        raise NoLockError("that takes boto3, from pip install 'balance-analysis[s3]'") from error
    return leased(store)
