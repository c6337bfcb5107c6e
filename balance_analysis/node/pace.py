"""Keep requests at or under a rate, whoever sends them, and stop them all when a node says so."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_SLOWER: Final = 2.0
_FASTER: Final = 0.99
_FIRST_RATE: Final = 16.0
"""Requests a second to go on with after a first refusal: real nodes refill 20 a second."""

logger = logging.getLogger("balance_analysis")


class Pace:
    """Slots in time, handed out at a rate to any number of threads.

    Parameters
    ----------
    per_second
        The most slots a second; `None` for no limit.
    clock, sleep
        Where the time comes from and how it passes.
    """

    def __init__(
        self,
        per_second: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if per_second is not None and not per_second > 0:
            raise ValueError(f"max_requests_per_second must be more than 0, not {per_second!r}")
        self._least = self._interval = 0.0 if per_second is None else 1.0 / per_second
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._next = self._held_until = clock()

    def wait(self) -> float:
        """Return when the next slot has come; tells how many seconds that took."""
        with self._lock:
            now = self._clock()
            slot = max(now, self._next)
            self._next = slot + self._interval
            # After a refusal the rate is regained slowly, so that it settles below the node's.
            self._interval = max(self._least, self._interval * _FASTER)
        if slot > now:
            self._sleep(slot - now)
        return slot - now

    def hold(self, seconds: float, reason: str) -> None:
        """Give no slot for so long, and then fewer a second; several threads may say so at once."""
        with self._lock:
            now = self._clock()
            if now >= self._held_until:
                self._interval = max(self._interval * _SLOWER, 1.0 / _FIRST_RATE)
                logger.warning("%s; all requests wait %.1f s", reason, seconds)
            self._held_until = max(self._held_until, now + seconds)
            self._next = max(self._next, self._held_until)
