"""Lock an archive, so that only one run writes to it at a time.

In a folder the operating system locks a file, so a dead process never blocks others. Another file
names the holder, only for error messages.

In S3 that second file is the lock: a lease, which only one run can put. A run creates the lease if
there is none, renews it while it holds it, and removes it at the end. A lease that isn't renewed in
time is that of a killed run, and another run may take it over. The store accepts one of several
puts with the same condition, and only its clock decides a lease's age. Commits can't use such puts:
`pyarrow.fs`, which writes all other files, silently drops their conditions.
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
from balance_analysis.table.moments import moment_text
from balance_analysis.table.text import without_credentials

SECONDS: Final = 60.0
"""How long a lease lasts without renewal."""

_TRIES: Final = 5
_NO_ETAG: Final = f'"{"0" * 32}"'
_TIMEOUTS: Final = {"connect_timeout": 5, "read_timeout": 5}
_REFUSED: Final = {409, 412}
_NOT_IMPLEMENTED: Final = 501


class NoLockError(OSError):
    """An object store can't lock; the message has the reason."""


def one_writer(store: Store) -> AbstractContextManager[None]:
    """Hold an archive's lock, without waiting for it.

    In an object store, a run that has lost its lease can't write any more. If a store can't lock,
    a warning is logged, and the caller must keep runs from overlapping.

    Raises
    ------
    ArchiveLockedError
        If another run holds the lock. In an object store, `Store.write` and `Store.delete` raise it
        too, if another run has taken over the lock.
    OSError
        If the folder can't be written to, or the object store can't be reached.
    """
    return _object_lock(store) if store.folder is None else _folder_lock(store, store.folder)


def writer_of(store: Store) -> str | None:
    """Return a description of the process that is writing to an archive, or `None` if unknown."""
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


def _holder() -> dict[str, Any]:
    since = moment_text(dt.datetime.now(dt.UTC), "seconds")
    return {"pid": os.getpid(), "host": platform.node(), "since": since}


def _holder_of(note: bytes | None) -> dict[str, Any]:
    """Return the holder that a note names, dead or alive; empty without a sound note."""
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
        f"{uri} is being written to by {_name_of(holder)}; try again when it has ended{advice}",
        holder=holder,
    )


@contextlib.contextmanager
def _folder_lock(store: Store, folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    # The lock's file is never deleted: a process that has opened it would lock a deleted file.
    lock = filelock.FileLock(store.place(layout.LOCK)[1], timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise _locked(store.uri, _holder_of(store.read(layout.HOLDER))) from error
    try:
        store.write(layout.HOLDER, f"{json.dumps(_holder())}\n".encode())
        yield
    finally:
        store.delete(layout.HOLDER)
        lock.release()


@contextlib.contextmanager
def _object_lock(store: Store) -> Iterator[None]:
    """Hold the lease of an archive in S3; each write of the store checks it first."""
    with contextlib.ExitStack() as stack:
        try:
            lease = _Lease(store, stack.enter_context(contextlib.closing(_client(store))))
            lease.take()
        except NoLockError as reason:
            message = "%s has no lock: %s; let only one run write to it at a time"
            logger.warning(message, without_credentials(store.uri), reason)
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
        If the store is not S3, or boto3 is not installed.
    """
    files: pafs.FileSystem = store.place(layout.HOLDER)[0]
    if files.type_name != "s3":
        raise NoLockError("this kind of store has no locks")
    try:
        import boto3  # noqa: PLC0415 - an extra
        from botocore.config import Config  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise NoLockError("a lock needs boto3: pip install 'balance-analysis[s3]'") from error
    # Only the file system's pickle has the options that pyarrow takes from an address and the
    # environment. Both clients look for credentials in the same places.
    options = files.__reduce__()[1][0]
    endpoint = options["endpoint_override"]
    if endpoint and "://" not in endpoint:
        endpoint = f"{options['scheme']}://{endpoint}"
    config = Config(
        **_TIMEOUTS,
        retries={"mode": "standard", "total_max_attempts": 2},
        s3={"addressing_style": "auto"},
        ignore_configured_endpoint_urls=True,
        # Stores other than Amazon's refuse the checksums that boto3 sends by default.
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
    """A lease in S3: an object that one run writes, and renews while it holds the lock."""

    def __init__(self, store: Store, client: Any) -> None:  # noqa: ANN401 - likewise
        bucket, _, key = store.place(layout.HOLDER)[1].partition("/")
        self._client, self._object = client, {"Bucket": bucket, "Key": key}
        self._uri, self._seconds = store.uri, SECONDS
        self._note = {**_holder(), "seconds": SECONDS, "token": secrets.token_hex(8), "renewed": -1}
        self._since = (0.0, 0.0)
        self._lost: ArchiveLockedError | None = None
        self._busy, self._ended = threading.Lock(), threading.Event()

    def take(self) -> None:
        """Create the lease, or take over an expired one.

        Raises
        ------
        ArchiveLockedError
            If another run holds it.
        NoLockError
            If the store ignores the conditions of a put, as some do.
        OSError
            If the store can't be reached, or refuses.
        """
        try:
            holder = self._put_unless_taken(is_new=True)
            if holder is not None:
                lasts = f", or in {holder.get('seconds', SECONDS):.0f} s if it was killed"
                raise _locked(self._uri, holder, lasts)
            if self._put(IfNoneMatch="*") or self._put(IfMatch=_NO_ETAG):
                raise NoLockError("the store ignores the conditions of a write")
        except OSError:
            if any(self._since):
                with contextlib.suppress(OSError):
                    self._ask("delete_object")
            raise

    def check(self) -> None:
        """Renew the lease if it is due; ArchiveLockedError if another run has taken it over."""
        with self._busy:
            is_due = self._lost is None and self._age() > self._seconds / 4
            if is_due and (holder := self._put_unless_taken(is_new=False)) is not None:
                self._lost = ArchiveLockedError(
                    f"{self._uri}: this run could not renew its lock within {self._seconds:.0f} s, "
                    f"and {_name_of(holder)} took it over; this run stops, and its commits stay: "
                    "run it again",
                    holder=holder,
                )
            if self._lost is not None:
                raise self._lost

    def keep(self) -> None:
        """Renew the lease until it is released, or another run takes it over."""
        while not self._ended.wait(self._seconds / 3):
            try:
                self.check()
            except ArchiveLockedError:
                return
            except OSError as error:
                logger.warning("%s; trying again", error)

    def release(self) -> None:
        """Remove the lease, if this run still holds it."""
        try:
            # No other run takes over a fresh lease, so it can be removed without a condition.
            self.check()
            with self._busy:  # and `keep` can't renew it meanwhile
                self._ended.set()
                self._ask("delete_object")
        except (ArchiveLockedError, OSError) as error:
            logger.warning("the lock could not be removed: %s", error)
        finally:
            self._ended.set()

    def _put_unless_taken(self, *, is_new: bool) -> dict[str, Any] | None:
        """Put the lease; return the holder if another run holds it, `{}` if the lease is gone."""
        for _ in range(_TRIES):
            # Look first: some stores accept a put with a deleted object's ETag.
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
        raise OSError(f"{self._uri}: the lock can't be written: the store reports conflicts")

    def _age(self) -> float:
        """Return the seconds since the lease was renewed, by the clock that shows more."""
        # The monotonic clock may stop while the machine sleeps, the wall clock may be set back.
        monotonic, wall = self._since
        return max(time.monotonic() - monotonic, time.time() - wall)

    def _put(self, **condition: str) -> bool:
        """Put the lease if the condition holds, and return whether it did."""
        self._note["renewed"] += 1  # so that each put has its own ETag
        since = (time.monotonic(), time.time())
        body = json.dumps(self._note).encode() + b"\n"
        answer = self._ask("put_object", Body=body, ContentType="application/json", **condition)
        self._since = self._since if answer is None else since
        return answer is not None

    def _ask(self, operation: str, **options: str | bytes) -> dict[str, Any] | None:
        """Return the store's answer; `None` if a condition fails or there is no lease."""
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
    """Return whether a lease has expired by the store's clock, so that its holder must be dead."""
    date = answer["ResponseMetadata"]["HTTPHeaders"]["date"]
    now = email.utils.parsedate_to_datetime(date).replace(tzinfo=dt.UTC)
    # Both are cut to whole seconds, so their difference may be one second too large.
    age = (now - answer["LastModified"]).total_seconds() - 1
    return bool(age > holder.get("seconds", SECONDS))
