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
    """Slots in time, at most so many a second, handed out to any number of threads."""

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
        self._slots: list[float] = []
        self._held_until = clock()

    def wait(self) -> float:
        """Return when the next slot has come; tells how many seconds that took."""
        with self._lock:
            now = self._clock()
            slot = self._take(now, max(now, self._held_until), self._interval)
            # After a refusal the rate is regained slowly, so that it settles below the node's.
            self._interval = max(self._least, self._interval * _FASTER)
        return self._pass(now, slot)

    def wait_again(self, seconds: float, reason: str, *, is_told: bool) -> float:
        """Hold all for so long, and then give fewer slots a second; return as `wait` does.

        Several threads may be refused at once, of which the first logs the `reason`. Where the node
        told the seconds, the slower rate doesn't add to them.
        """
        with self._lock:
            now = self._clock()
            is_first = now >= self._held_until
            if is_first:
                slower = max(self._interval * _SLOWER, 1.0 / _FIRST_RATE)
                # Never so slow that the rate is a longer pause than what a refusal costs.
                widest = max(seconds, 1.0 / _FIRST_RATE)
                self._interval = max(self._interval, min(slower, widest))
            self._held_until = max(self._held_until, now + seconds)
            gap = self._least if is_told else self._interval
            slot = self._take(now, now + seconds, gap)
            if is_first:
                logger.warning("%s; it is asked again in %.1f s", reason, slot - now)
        return self._pass(now, slot)

    def _take(self, now: float, earliest: float, gap: float) -> float:
        """Return the first moment that is as far as a gap from all that were handed out."""
        self._slots = [slot for slot in self._slots if slot > now - self._interval]
        place = earliest
        for slot in sorted(self._slots):
            if slot - gap < place < slot + gap:
                place = slot + gap
        self._slots.append(place)
        return place

    def _pass(self, now: float, slot: float) -> float:
        if slot > now:
            self._sleep(slot - now)
        return slot - now
