"""The lock of an archive in S3: a lease, which is an object that only one run can put.

It is made where there is none, renewed where it is still the run's own, and removed at the end. One
that is not renewed in time was left by a run that was killed, and is another's to take. The store
lets through one of several puts with the same condition, and its clock alone tells a lease's age.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import email.utils
import json
import logging
import secrets
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from balance_analysis.archive import layout
from balance_analysis.archive.holder import NoLockError, holder_of, locked, myself, name_of
from balance_analysis.errors import ArchiveLockedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow.fs as pafs

    from balance_analysis.archive.store import Store

logger = logging.getLogger("balance_analysis")

SECONDS: Final = 60
"""How long a lease lasts that is not renewed."""

_TRIES: Final = 5
_NO_ETAG: Final = f'"{"0" * 32}"'
_TIMEOUTS: Final = {"connect_timeout": 5, "read_timeout": 5}
_CONFLICT, _FAILED, _NOT_IMPLEMENTED = 409, 412, 501


@contextlib.contextmanager
def leased(store: Store, *, seconds: float = SECONDS) -> Iterator[Callable[[], None]]:
    """Hold the lease of an archive in S3, without waiting for it.

    Parameters
    ----------
    store
        The archive.
    seconds
        How long the lease lasts when it is not renewed, as it is in the background.

    Yields
    ------
    Callable
        What to call before each write: it raises ArchiveLockedError if the lease is another's by
        now, and OSError if that can't be found out.

    Raises
    ------
    ArchiveLockedError
        If another run holds it.
    NoLockError
        If the store doesn't heed the conditions of a put.
    OSError
        If the store can't be asked, or refuses.
    """
    lease = _Lease(store, seconds)
    with contextlib.closing(lease.client):
        keeper = threading.Thread(target=lease.keep, name="lease", daemon=True)
        lease.take()
        try:
            keeper.start()
            yield lease.check
        finally:
            lease.release()
            keeper.join()


@dataclass(frozen=True, slots=True)
class _Seen:
    """A lease as it stands in the store; `is_over` if whoever holds it must have died."""

    etag: str
    holder: dict[str, Any]
    is_over: bool


class _Lease:
    def __init__(self, store: Store, seconds: float) -> None:
        files, path = store.place(layout.HOLDER)
        bucket, _, key = path.partition("/")
        self.client = _client(files)
        self._uri, self._object = store.uri, {"Bucket": bucket, "Key": key}
        self._seconds = seconds
        self._note = {**myself(), "seconds": seconds, "token": secrets.token_hex(8), "renewed": -1}
        self._etag = ""
        self._since = (0.0, 0.0)
        self._taker: dict[str, Any] | None = None
        self._busy, self._ended = threading.Lock(), threading.Event()

    def take(self) -> None:
        """Make the lease, or take over one that is over."""
        try:
            self._take()
            self._prove()
        except OSError:
            if self._etag:
                with contextlib.suppress(OSError):
                    self._ask("delete_object")
            raise

    def _take(self) -> None:
        for _ in range(_TRIES):
            if self._put(IfNoneMatch="*"):
                return
            seen = self._see()
            if seen is None:
                continue
            if self._is_mine(seen):
                self._renew()
                return
            if not seen.is_over:
                lasts = f"; if it was killed, in {_seconds_of(seen.holder):.0f} s"
                raise locked(self._uri, seen.holder, lasts)
            if self._put(IfMatch=seen.etag):
                return
        raise locked(self._uri, {})

    def _prove(self) -> None:
        """Raise if the store does as it is told whatever the condition, as some do."""
        if self._put(IfNoneMatch="*") or self._put(IfMatch=_NO_ETAG):
            raise NoLockError("its store doesn't heed the conditions of a put")

    def check(self) -> None:
        """Raise if the lease may be another's by now."""
        with self._busy:
            if self._age() > self._seconds / 2 or self._taker is not None:
                self._renew()

    def keep(self) -> None:
        """Renew the lease until it is released or another's."""
        while not self._ended.wait(self._seconds / 3):
            with self._busy:
                if self._ended.is_set():
                    return
                try:
                    self._renew()
                except ArchiveLockedError:
                    return
                except OSError as error:
                    logger.warning("%s; trying again", error)

    def release(self) -> None:
        """Remove the lease, if it is still the run's own."""
        self._ended.set()
        try:
            # Nobody takes over a lease that is fresh, also where a store removes without condition.
            self.check()
            self._remove()
        except (ArchiveLockedError, OSError) as error:
            logger.warning("the lock is not removed: %s", error)

    def _remove(self) -> None:
        try:
            self._ask("delete_object", IfMatch=self._etag)
        except NoLockError:
            self._ask("delete_object")

    def _renew(self) -> None:
        if self._taker is not None:
            raise self._lost(self._taker)
        # Some stores let through a put with the ETag of what is gone: then a look must tell.
        is_known = self._age() < self._seconds
        for _ in range(_TRIES):
            if is_known and self._put(IfMatch=self._etag):
                return
            seen = self._see()
            if seen is None or not self._is_mine(seen):
                self._taker = {} if seen is None else seen.holder
                raise self._lost(self._taker)
            # The store did what an answer that got lost would have told.
            self._etag, is_known = seen.etag, True
        raise OSError(f"{self._uri}: the lock can't be renewed: the store reports conflicts")

    def _lost(self, holder: dict[str, Any]) -> ArchiveLockedError:
        return ArchiveLockedError(
            f"{self._uri}: {name_of(holder)} has taken over the lock, which this run could not "
            f"renew within {self._seconds:.0f} s; it writes no more, what is committed stays",
            holder=holder,
        )

    def _is_mine(self, seen: _Seen) -> bool:
        return bool(seen.holder.get("token") == self._note["token"])

    def _age(self) -> float:
        """Return for how many seconds the lease has not been renewed, rather more than less."""
        # The one clock stands still while the machine sleeps, the other may be set back.
        monotonic, wall = self._since
        return max(time.monotonic() - monotonic, time.time() - wall)

    def _put(self, **condition: str) -> bool:
        """Put the lease where the condition holds; whether it did."""
        self._note["renewed"] += 1  # no two are the same, so that no two ETags are
        since = (time.monotonic(), time.time())
        body = json.dumps(self._note).encode() + b"\n"
        answer = self._ask("put_object", Body=body, ContentType="application/json", **condition)
        if answer is None:
            return False
        self._etag, self._since = answer["ETag"], since
        return True

    def _see(self) -> _Seen | None:
        answer = self._ask("get_object")
        if answer is None:
            return None
        holder = holder_of(answer["Body"])
        now = _moment(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        age = now - answer["LastModified"]
        # Both are cut to whole seconds, so that their difference may be one too many.
        return _Seen(answer["ETag"], holder, age.total_seconds() > _seconds_of(holder) + 1)

    def _ask(self, operation: str, **options: str | bytes) -> dict[str, Any] | None:
        """Return the store's answer; `None` where a condition doesn't hold or there is no lease."""
        try:
            answer: dict[str, Any] = getattr(self.client, operation)(**self._object, **options)
            if "Body" in answer:
                answer["Body"] = answer["Body"].read()
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            if status in {_CONFLICT, _FAILED} or error.response["Error"]["Code"] == "NoSuchKey":
                return None
            if status == _NOT_IMPLEMENTED:
                raise NoLockError("its store knows no conditional put") from error
            raise self._failure(error) from error
        except BotoCoreError as error:
            raise self._failure(error) from error
        return answer

    def _failure(self, error: Exception) -> OSError:
        return OSError(f"{self._uri}/{layout.HOLDER}: {error}")


def _moment(date: str) -> dt.datetime:
    """Return the moment of an HTTP date, which is in UTC however it says so."""
    return email.utils.parsedate_to_datetime(date).replace(tzinfo=dt.UTC)


def _seconds_of(holder: dict[str, Any]) -> float:
    seconds = holder.get("seconds")
    return seconds if isinstance(seconds, int | float) else SECONDS


def _client(files: pafs.FileSystem) -> Any:  # noqa: ANN401 - boto3 makes its classes as it runs
    """Return a client that asks where pyarrow does."""
    # What pyarrow makes of an address and the environment stands in its pickle alone. Credentials
    # don't: both look for them in the same places.
    options = files.__reduce__()[1][0]
    endpoint = options["endpoint_override"]
    if endpoint and "://" not in endpoint:
        endpoint = f"{options['scheme']}://{endpoint}"
    config = Config(
        **_TIMEOUTS,
        retries={"mode": "standard", "total_max_attempts": 2},
        s3={"addressing_style": "path" if endpoint else "auto"},
        ignore_configured_endpoint_urls=True,
        # Others than Amazon's refuse the checksums that it has begun to ask for.
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
