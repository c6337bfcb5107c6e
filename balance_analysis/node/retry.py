"""Asking a node again: stamina waits between the tries, longer from one to the next."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from balance_analysis.errors import RequestError

if TYPE_CHECKING:
    from balance_analysis.node.exchange import Answer, RequestStats


ATTEMPTS: Final = 6
TOO_MANY: Final = 429

logger: logging.Logger = logging.getLogger("balance_analysis")
# Without this, stamina's notice of each retry reaches stderr in programs that never set up logging.
logging.getLogger("stamina").addHandler(logging.NullHandler())

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Retry:
    """How often to try in all on faults that may pass; once `stopped` is set, nothing more.

    Whoever can ask for less leaves `timeouts` out: answers that took too long. Whoever can ask
    another node leaves `refusals` out: connections that didn't come about.
    """

    attempts: int = ATTEMPTS
    timeouts: bool = True
    refusals: bool = True
    stopped: threading.Event | None = None

    def wants(self, error: Exception) -> bool:
        """Whether the same request may succeed soon; one told to slow down has had its pauses."""
        return (
            isinstance(error, RequestError)
            and error.retryable
            and error.retry_after is None
            and error.status != TOO_MANY
            and (self.timeouts or not error.timed_out)
            and (self.refusals or not error.refused)
            and not (self.stopped is not None and self.stopped.is_set())
        )

    def run(self, ask: Callable[[], Answer[T]], stats: RequestStats) -> Answer[T]:
        """Ask until there is an answer, or the tries are used up."""
        try:
            return ask()
        except RequestError as error:
            if not self.wants(error):
                raise
            return self._ask_again(ask, error, stats)

    def _ask_again(
        self, ask: Callable[[], Answer[T]], failure: RequestError, stats: RequestStats
    ) -> Answer[T]:
        import stamina  # noqa: PLC0415 - seldom needed, and slower to import than a node answers

        failed, tries = [failure], itertools.count(2)

        def is_wanted(error: Exception) -> bool:
            if not self.wants(error):
                return False
            if (number := next(tries)) <= self.attempts:
                logger.warning("%s; trying again (%d of %d)", error, number, self.attempts)
                stats.add(retries=1)
            return True

        def attempt() -> Answer[T]:
            if failed:  # the first try, which was made without stamina
                raise failed.pop()
            return ask()

        retrying = stamina.RetryingCaller(
            attempts=self.attempts, timeout=None, wait_initial=0.5, wait_max=15.0, wait_jitter=1.0
        )
        return retrying(is_wanted, attempt)


ONCE: Final = Retry(attempts=1)
