"""One writer at a time.

In a folder the operating system locks a file, so what a dead process left behind never blocks. A
file beside it names the holder, for the message alone.

In S3 that file is the lock: a lease, which only one run can put. A run makes it if there is none,
renews it while it is still its own, and removes it at the end. A lease that is not renewed in time
was left by a killed run, and another may take it. The store accepts one of several puts with the
same condition, and only its clock is used for a lease's age. The commits themselves can't be such
puts: `pyarrow.fs`, which writes all other files, drops their conditions without a word.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import email.utils
import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import filelock
import pyarrow.fs as pafs

from balance_analysis.archive import layout
from balance_analysis.archive.store import Store
from balance_analysis.errors import ArchiveLockedError, logger
from balance_analysis.files.atomic import name_file
from balance_analysis.table.text import moment_text, without_credentials

SECONDS: Final = 60.0
"""How long a lease lasts that is not renewed."""

_TRIES: Final = 5
_NO_ETAG: Final = f'"{"0" * 32}"'
_TIMEOUTS: Final = {"connect_timeout": 5, "read_timeout": 5}
_REFUSED: Final = {409, 412}
_NOT_IMPLEMENTED: Final = 501


class NoLockError(OSError):
    """An object store has no lock; the message says why."""


def one_writer(store: Store) -> AbstractContextManager[None]:
    """Hold the lock of an archive; don't wait for it.

    A run that has lost its lease in an object store can write nothing more. If a store can have no
    lock, a warning is logged, and the caller must keep runs from overlapping.

    Raises
    ------
    ArchiveLockedError
        If another run holds it; in an object store also from `Store.write` and `Store.delete`, if
        another run has taken it over.
    OSError
        If the folder can't be written to, or the object store can't be asked.
    """
    return _object_lock(store) if store.folder is None else _folder_lock(store, store.folder)


def writer_of(store: Store) -> str | None:
    """Return the process that is writing to an archive, in words; `None` if none is known."""
    holder = _holder_of(store.read(layout.HOLDER))
    is_here = holder.get("host") == platform.node()
    if not holder or (is_here and not _is_alive(holder.get("pid"))):
        return None
    return _name_of(holder)


def _is_alive(pid: object) -> bool:
    try:
        os.kill(int(str(pid)), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _myself() -> dict[str, Any]:
    since = moment_text(dt.datetime.now(dt.UTC), "seconds")
    return {"pid": os.getpid(), "host": platform.node(), "since": since}


def _holder_of(note: bytes | None) -> dict[str, Any]:
    """Return the holder in a note, which may be dead; nothing if none is noted or it is damaged."""
    try:
        holder = json.loads(note or b"{}")
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}


def _name_of(holder: dict[str, Any]) -> str:
    if not holder:
        return "another run"
    return f"process {holder.get('pid')} on {holder.get('host')}, since {holder.get('since')}"


def _locked(uri: str, holder: dict[str, Any], advice: str = "") -> ArchiveLockedError:
    return ArchiveLockedError(
        f"{uri} is being written to by {_name_of(holder)}; try again when it is done{advice}",
        holder=holder,
    )


@contextlib.contextmanager
def _folder_lock(store: Store, folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    # The lock's file stays: a process that has opened it would otherwise lock a deleted file.
    lock = filelock.FileLock(store.place(layout.LOCK)[1], timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise _locked(store.uri, _holder_of(store.read(layout.HOLDER))) from error
    note = Path(store.place(layout.HOLDER)[1])
    try:
        try:
            note.write_text(f"{json.dumps(_myself())}\n", encoding="utf-8")
        except OSError as error:
            name_file(error, note)
            raise
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()


@contextlib.contextmanager
def _object_lock(store: Store) -> Iterator[None]:
    """Hold the lease of an archive in S3, which each write of the store checks first."""
    with contextlib.ExitStack() as stack:
        try:
            lease = _Lease(store, stack.enter_context(contextlib.closing(_client(store))))
            lease.take()
        except NoLockError as reason:
            said = "%s has no lock: %s; let only one run write to it at a time"
            logger.warning(said, without_credentials(store.uri), reason)
            yield
            return
        keeper = threading.Thread(target=lease.keep, name="lease", daemon=True)
        store.guard = lease.check
        try:
            keeper.start()
            yield
        finally:
            store.guard = None
            lease.release()
            keeper.join()


def _client(store: Store) -> Any:  # noqa: ANN401 - boto3 makes its classes as it runs
    """Return a client for the same endpoint as pyarrow's.

    Raises
    ------
    NoLockError
        If the store is not S3, or there is no boto3.
    """
    files: pafs.FileSystem = store.place(layout.HOLDER)[0]
    if files.type_name != "s3":
        raise NoLockError("this kind of store has no locks")
    try:
        import boto3  # noqa: PLC0415 - an extra
        from botocore.config import Config  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise NoLockError("a lock takes boto3: pip install 'balance-analysis[s3]'") from error
    # Only its pickle has what pyarrow makes of an address and the environment. Both look for
    # credentials in the same places.
    options = files.__reduce__()[1][0]
    endpoint = options["endpoint_override"]
    if endpoint and "://" not in endpoint:
        endpoint = f"{options['scheme']}://{endpoint}"
    config = Config(
        **_TIMEOUTS,
        retries={"mode": "standard", "total_max_attempts": 2},
        s3={"addressing_style": "path" if endpoint else "auto"},
        ignore_configured_endpoint_urls=True,
        # Other stores than Amazon's refuse the checksums that boto3 asks for.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return boto3.Session().client(
        "s3",
        region_name=files.region,
        endpoint_url=endpoint or None,
        verify=options.get("tls_ca_file_path") or None,
        config=config,
    )


class _Lease:
    """An object that only one run can put, though its client may send a put twice."""

    def __init__(self, store: Store, client: Any) -> None:  # noqa: ANN401 - likewise
        bucket, _, key = store.place(layout.HOLDER)[1].partition("/")
        self._client, self._object = client, {"Bucket": bucket, "Key": key}
        self._uri, self._seconds = store.uri, SECONDS
        self._note = {**_myself(), "seconds": SECONDS, "token": secrets.token_hex(8), "renewed": -1}
        self._since = (0.0, 0.0)
        self._lost: ArchiveLockedError | None = None
        self._busy, self._ended = threading.Lock(), threading.Event()

    def take(self) -> None:
        """Make the lease, or take over one that is over.

        Raises
        ------
        ArchiveLockedError
            If another run holds it.
        NoLockError
            If the store doesn't heed the conditions of a put, as some don't.
        OSError
            If the store can't be asked, or refuses.
        """
        try:
            holder = self._put_unless_taken(is_new=True)
            if holder is not None:
                lasts = f"; if it was killed, in {holder.get('seconds', SECONDS):.0f} s"
                raise _locked(self._uri, holder, lasts)
            if self._put(IfNoneMatch="*") or self._put(IfMatch=_NO_ETAG):
                raise NoLockError("the store ignores the conditions of a write")
        except OSError:
            if any(self._since):
                with contextlib.suppress(OSError):
                    self._ask("delete_object")
            raise

    def check(self) -> None:
        """Renew the lease if it is time to; ArchiveLockedError if it is another's by now."""
        with self._busy:
            is_held = self._lost is None and not self._ended.is_set()
            is_due = is_held and self._age() > self._seconds / 4
            if is_due and (holder := self._put_unless_taken(is_new=False)) is not None:
                self._lost = ArchiveLockedError(
                    f"{self._uri}: this run could not renew its lock within {self._seconds:.0f} s, "
                    f"and {_name_of(holder)} took it over; this run stops, and what it has "
                    "committed stays",
                    holder=holder,
                )
            if self._lost is not None:
                raise self._lost

    def keep(self) -> None:
        """Renew the lease until it is released or another's."""
        while not self._ended.wait(self._seconds / 3):
            try:
                self.check()
            except ArchiveLockedError:
                return
            except OSError as error:
                logger.warning("%s; trying again", error)

    def release(self) -> None:
        """Remove the lease, if it is still the run's own."""
        try:
            # Nobody takes over a lease that is fresh, so that it can be removed without condition.
            self.check()
            with self._busy:  # nor is it renewed meanwhile
                self._ended.set()
                self._ask("delete_object")
        except (ArchiveLockedError, OSError) as error:
            logger.warning("the lock is not removed: %s", error)
        finally:
            self._ended.set()

    def _put_unless_taken(self, *, is_new: bool) -> dict[str, Any] | None:
        """Put the lease; return the holder if it is another's, or was lost."""
        for _ in range(_TRIES):
            # Some stores accept a put with the ETag of a deleted object: look first.
            answer = self._ask("get_object")
            holder = _holder_of(None if answer is None else answer["Body"])
            is_mine = holder.get("token") == self._note["token"]
            if answer is None and is_new:
                condition = {"IfNoneMatch": "*"}
            elif answer is not None and (is_mine or (is_new and _is_over(answer, holder))):
                condition = {"IfMatch": answer["ETag"]}
            else:
                return holder
            if self._put(**condition):
                return None
        raise OSError(f"{self._uri}: the lock can't be put: the store reports conflicts")

    def _age(self) -> float:
        """Return the seconds since the lease was renewed, rounded up where clocks differ."""
        # The one clock stands still while the machine sleeps, the other may be set back.
        monotonic, wall = self._since
        return max(time.monotonic() - monotonic, time.time() - wall)

    def _put(self, **condition: str) -> bool:
        """Put the lease if the condition holds, and return whether it did."""
        self._note["renewed"] += 1  # no two are the same, so that no two ETags are
        since = (time.monotonic(), time.time())
        body = json.dumps(self._note).encode() + b"\n"
        answer = self._ask("put_object", Body=body, ContentType="application/json", **condition)
        self._since = self._since if answer is None else since
        return answer is not None

    def _ask(self, operation: str, **options: str | bytes) -> dict[str, Any] | None:
        """Return the store's answer; `None` if a condition doesn't hold or there is no lease."""
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - an extra

        try:
            answer: dict[str, Any] = getattr(self._client, operation)(**self._object, **options)
            if "Body" in answer:
                answer["Body"] = answer["Body"].read()
        except (BotoCoreError, ClientError) as error:
            response = getattr(error, "response", {})
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if status in _REFUSED or response.get("Error", {}).get("Code") == "NoSuchKey":
                return None
            if status == _NOT_IMPLEMENTED:
                raise NoLockError("the store has no conditional writes") from error
            raise OSError(f"{self._uri}/{layout.HOLDER}: {error}") from error
        return answer


def _is_over(answer: dict[str, Any], holder: dict[str, Any]) -> bool:
    """Return whether the holder of a lease must have died: by the store's clock it is too old."""
    date = answer["ResponseMetadata"]["HTTPHeaders"]["date"]
    now = email.utils.parsedate_to_datetime(date).replace(tzinfo=dt.UTC)
    # Both are cut to whole seconds, so that their difference may be one too many.
    age = (now - answer["LastModified"]).total_seconds() - 1
    return bool(age > holder.get("seconds", SECONDS))
