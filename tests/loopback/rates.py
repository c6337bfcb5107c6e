"""The rate limit of a node: refuse at first, ban those who keep on."""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass


@dataclass(frozen=True)
class RateLimit:
    """How many requests a node takes.

    Attributes
    ----------
    per_second, burst
        A bucket of `burst` requests that refills at `per_second`.
    patience
        So many refusals (429) are given; the next ends in a ban (403). It starts anew once the
        bucket has been full again.
    ban_seconds
        How long a ban lasts.
    """

    per_second: float = 20
    burst: int = 100
    patience: int = 20
    ban_seconds: float = 600


class Verdict(enum.Enum):
    """What a rate limit says to one request."""

    ADMIT = enum.auto()
    REFUSE = enum.auto()
    BAN = enum.auto()


class Meter:
    """The state of a `RateLimit`, for all connections together."""

    def __init__(self, limit: RateLimit) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._tokens = float(limit.burst)
        self._refused = 0
        self._seen = 0.0
        self._banned_until = 0.0

    def admit(self, now: float) -> tuple[Verdict, float]:
        """Count one request at `now` seconds; return the verdict and the seconds left of a ban."""
        with self._lock:
            return self._judge(now)

    def _judge(self, now: float) -> tuple[Verdict, float]:
        if now < self._banned_until:
            return Verdict.BAN, self._banned_until - now
        self._refill(now)
        if self._tokens >= 1:
            self._tokens -= 1
            return Verdict.ADMIT, 0.0
        self._refused += 1
        if self._refused <= self._limit.patience:
            return Verdict.REFUSE, 0.0
        self._refused = 0
        self._banned_until = now + self._limit.ban_seconds
        return Verdict.BAN, self._limit.ban_seconds

    def _refill(self, now: float) -> None:
        if self._seen:
            self._tokens += (now - self._seen) * self._limit.per_second
        self._seen = now
        if self._tokens >= self._limit.burst:
            self._tokens = float(self._limit.burst)
            self._refused = 0
