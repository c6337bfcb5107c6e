"""How many requests an address may send: a bucket of tokens each, and a ban for who keeps on.

A request takes a token, and tokens come back at a steady rate. A request without one is refused and
takes a token of a second, equal bucket; when that is empty too, the address is banned for a while.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_ADDRESSES: Final = 10_000
"""So many are remembered; who has been quiet for longest is forgotten first."""

_SITE: Final = 64
"""The bits of an IPv6 address that its holder can't choose."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """How many requests an address may send. The defaults are those of real nodes.

    Attributes
    ----------
    per_second
        How many tokens come back.
    burst
        How many a full bucket holds.
    ban_seconds
        How long a ban lasts.
    """

    per_second: float = 20.0
    burst: int = 100
    ban_seconds: float = 600.0

    def __post_init__(self) -> None:
        if not self.per_second > 0 or self.burst < 1:
            raise ValueError(f"a rate limit must let some requests through, which {self} does not")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a request.

    Attributes
    ----------
    is_admitted
        Whether it is answered.
    remaining
        Whole tokens that are left.
    banned_for
        Seconds until the end of a ban; 0 without one.
    """

    is_admitted: bool
    remaining: int
    banned_for: float = 0.0


@dataclass(slots=True)
class _Bucket:
    tokens: float
    patience: float
    seen: float
    banned_until: float = 0.0


class Meter:
    """Counts the requests of each address; of an IPv6 address, those of its /64.

    Parameters
    ----------
    limit
        What each may send.
    clock
        Where the time comes from, in seconds.
    most
        How many addresses are remembered.
    """

    def __init__(
        self,
        limit: RateLimit,
        *,
        clock: Callable[[], float] = time.monotonic,
        most: int = MOST_ADDRESSES,
    ) -> None:
        self.limit = limit
        self._clock, self._most = clock, most
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._buckets)

    def judge(self, address: str) -> Verdict:
        """Count a request, and return what becomes of it."""
        with self._lock:
            now = self._clock()
            bucket = self._bucket(_site(address), now)
            if now < bucket.banned_until:
                return Verdict(False, 0, bucket.banned_until - now)
            self._refill(bucket, now)
            if bucket.tokens >= 1:
                bucket.tokens -= 1
                return Verdict(True, int(bucket.tokens))
            if bucket.patience >= 1:
                bucket.patience -= 1
                return Verdict(False, 0)
            bucket.banned_until = now + self.limit.ban_seconds
            return Verdict(False, 0, self.limit.ban_seconds)

    def _bucket(self, site: str, now: float) -> _Bucket:
        full = float(self.limit.burst)
        bucket = self._buckets.setdefault(site, _Bucket(full, full, now))
        self._buckets.move_to_end(site)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return bucket

    def _refill(self, bucket: _Bucket, now: float) -> None:
        gained, full = (now - bucket.seen) * self.limit.per_second, float(self.limit.burst)
        bucket.tokens = min(full, bucket.tokens + gained)
        bucket.patience = min(full, bucket.patience + gained)
        bucket.seen = now


def _site(address: str) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:  # noqa: PLR2004 - IPv4
        return str(found)
    mapped = found.ipv4_mapped
    return str(mapped or ipaddress.ip_network((found, _SITE), strict=False))
