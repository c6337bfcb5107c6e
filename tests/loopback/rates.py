"""The rate limit of a node, for all connections together."""

from __future__ import annotations

import threading
from typing import NamedTuple

from tests.loopback.faults import Fault


class RateLimit(NamedTuple):
    """A bucket of `burst` requests that refills; after so many refusals it bans for good."""

    per_second: float = 20
    burst: int = 100
    patience: int = 20


class Meter:
    """The state of a `RateLimit`."""

    def __init__(self, limit: RateLimit) -> None:
        self._limit, self._lock = limit, threading.Lock()
        self._tokens, self._seen, self._refused = float(limit.burst), 0.0, 0

    def refusal(self, now: float) -> Fault | None:
        """Count one request at `now` seconds; return how it is refused, if it is."""
        with self._lock:
            if self._refused > self._limit.patience:
                return Fault.banned()
            refilled = self._tokens + (now - (self._seen or now)) * self._limit.per_second
            self._tokens, self._seen = min(refilled, float(self._limit.burst)), now
            if self._tokens >= 1:
                self._tokens -= 1
                return None
            self._refused += 1
            return Fault.rate_limited() if self._refused <= self._limit.patience else Fault.banned()
