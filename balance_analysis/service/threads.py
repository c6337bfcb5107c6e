"""Run blocking questions beside the event loop, a few at once."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import anyio.lowlevel
import anyio.to_thread

from balance_analysis.service.errors import Code, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

AT_ONCE: Final = 8
PATIENCE: Final = 20.0

T = TypeVar("T")


class Queries:
    """Threads for questions; who finds them all busy waits, but not for long.

    Parameters
    ----------
    at_once
        How many questions are asked at the same time.
    patience
        Seconds after which a question that still waits is refused.
    """

    def __init__(self, *, at_once: int = AT_ONCE, patience: float = PATIENCE) -> None:
        self._at_once, self._patience = at_once, patience
        # An application may be served by several event loops, in turn or at once.
        self._turns: anyio.lowlevel.RunVar[asyncio.Semaphore] = anyio.lowlevel.RunVar("turns")

    async def run(self, ask: Callable[..., T], *arguments: object) -> T:
        """Return what a blocking function returns.

        Raises
        ------
        RefusedError
            If its turn doesn't come in time; and whatever it raises.
        """
        turns = self._turns.get(None)
        if turns is None:
            turns = asyncio.Semaphore(self._at_once)
            self._turns.set(turns)
        try:
            async with asyncio.timeout(self._patience):
                await turns.acquire()
        except TimeoutError:
            raise RefusedError(
                "too many questions at once: ask again in a moment", code=Code.UNAVAILABLE
            ) from None
        try:
            return await anyio.to_thread.run_sync(partial(ask, *arguments))
        finally:
            turns.release()
