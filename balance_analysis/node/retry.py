"""When a node is asked: in slots of time that all threads share, and again after what may pass.

Stamina waits between the tries, longer from one to the next. A node's "too many requests" is a
pause for everyone, as long as it says.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from balance_analysis.errors import RequestError, logger
from balance_analysis.node.exchange import LONGEST_WAIT, Answer
from balance_analysis.node.stats import RequestStats

ATTEMPTS: Final = 6
PAUSES: Final = 5
TOO_MANY: Final = 429

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0
_SLOWER, _FASTER = 2.0, 0.99
_FIRST_RATE: Final = 16.0
"""Requests a second to go on with after a first refusal: real nodes refill 20 a second."""

# Without this, stamina's notice of each retry reaches stderr in programs that never set up logging.
logging.getLogger("stamina").addHandler(logging.NullHandler())

T = TypeVar("T")


class Throttle:
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

    def wait_again(self, error: RequestError, pauses: int) -> float:
        """Hold all for as long as a node says, and then give fewer slots a second.

        Where it doesn't say, it is longer the more pauses there were. Several threads may be
        refused at once, of which the first logs why. Return as `wait` does.
        """
        usual = min(_FIRST_PAUSE * 2**pauses, _LONGEST_PAUSE)
        seconds = usual if error.retry_after is None else error.retry_after
        with self._lock:
            now = self._clock()
            is_first = now >= self._held_until
            if is_first:
                slower = max(self._interval * _SLOWER, 1.0 / _FIRST_RATE)
                # Never so slow that the rate is a longer pause than what a refusal costs.
                widest = max(seconds, 1.0 / _FIRST_RATE)
                self._interval = max(self._interval, min(slower, widest))
            self._held_until = max(self._held_until, now + seconds)
            # Where the node told the seconds, the slower rate doesn't add to them.
            gap = self._interval if error.retry_after is None else self._least
            slot = self._take(now, now + seconds, gap)
            if is_first:
                logger.warning("%s; it is asked again in %.1f s", error, slot - now)
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


@dataclass(frozen=True, slots=True)
class Retry:
    """How often to try in all on faults that may pass; once `stopped` is set, nothing more.

    A node may tell one request to slow down as often as there are `pauses`. A caller that can ask
    for less doesn't repeat `timeouts`, which are answers that took too long. A caller that can ask
    another node doesn't repeat `refusals`, where there was no connection.
    """

    attempts: int = ATTEMPTS
    pauses: int = PAUSES
    timeouts: bool = True
    refusals: bool = True
    stopped: threading.Event | None = None

    def run(
        self, ask: Callable[[], Answer[T]], throttle: Throttle, stats: RequestStats
    ) -> Answer[T]:
        """Ask until there is an answer, or the tries are used up; count what it costs."""
        stats.add(requests=1, throttled=throttle.wait())
        try:
            return ask()
        except RequestError as error:
            if not self._wants(error, 2):
                raise
            failed = [error]
        import stamina  # noqa: PLC0415 - seldom needed, and slower to import than a node answers

        waited, numbers = list[float](), itertools.count(2)

        def is_wanted(error: Exception) -> bool | float:
            number = next(numbers)
            if not isinstance(error, RequestError) or not self._wants(error, number):
                return False
            stats.add(retries=1)
            if not _is_throttling(error):
                logger.warning("%s; trying again (%d of %d)", error, number, self.attempts)
                return True
            if not stamina.is_testing():  # which skips the waits between tries as well
                waited.append(throttle.wait_again(error, number - 2))
            return 0.0

        def attempt() -> Answer[T]:
            if failed:  # the first try, which was made without stamina
                raise failed.pop()
            stats.add(requests=1, throttled=waited.pop() if waited else throttle.wait())
            return ask()

        retrying = stamina.RetryingCaller(
            attempts=max(self.attempts, self.pauses + 1),
            timeout=None,
            wait_initial=0.5,
            wait_max=15.0,
            wait_jitter=1.0,
        )
        return retrying(is_wanted, attempt)

    def _wants(self, error: RequestError, number: int) -> bool:
        """Whether the same request may succeed soon, as a try of this number."""
        return (
            error.retryable
            and number <= (self.pauses + 1 if _is_throttling(error) else self.attempts)
            and (error.retry_after or 0.0) <= LONGEST_WAIT
            and (self.timeouts or not error.timed_out)
            and (self.refusals or not error.refused)
            and not (self.stopped is not None and self.stopped.is_set())
        )


def _is_throttling(error: RequestError) -> bool:
    """Whether the node says to slow down."""
    return error.retry_after is not None or error.status == TOO_MANY


ONCE: Final = Retry(attempts=1)
