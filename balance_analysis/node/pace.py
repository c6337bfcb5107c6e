"""Keep requests at or under a rate, whoever sends them."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Pace:
    """Slots in time, handed out at a steady rate to any number of threads.

    Parameters
    ----------
    per_second
        Slots a second; `None` for no limit.
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
        self._interval = 0.0 if per_second is None else 1.0 / per_second
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._next = clock()

    def wait(self) -> None:
        """Return when the next slot has come."""
        if not self._interval:
            return
        with self._lock:
            now = self._clock()
            slot = max(now, self._next)
            self._next = slot + self._interval
        if slot > now:
            self._sleep(slot - now)
