"""Turns: of what takes long so much is worked on at once, and so much waits.

A question's time counts from when it came. Once it is over, or its client has left, nobody waits
for the answer: the question gets no turn any more, and work on it ends where it next checks.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from starlette.responses import Response
from starlette.types import Receive

from balance_analysis.service.errors import Code, RefusedError


class Turns:
    """Takes questions in turn.

    Parameters
    ----------
    timeout
        Seconds that a question may take, with the time that it waits.
    most
        How many may wait or be worked on.
    """

    def __init__(self, timeout: float, *, most: int) -> None:
        self._timeout, self._most = timeout, most
        self._asked: set[object] = set()

    async def answer(
        self,
        find: Callable[[Callable[[], None]], Response],
        receive: Receive,
        pool: Executor | None,
    ) -> Response:
        """Return what is found for a question.

        Parameters
        ----------
        find
            Finds it, in a thread; what it is given is to be called now and then, and raises once
            nobody waits any more.
        receive
            Tells when the client leaves.
        pool
            The threads, as many as there are turns; `None` for those of the event loop.

        Raises
        ------
        RefusedError
            If too many wait, it takes too long, or the client has left.
        """
        if len(self._asked) >= self._most:
            raise RefusedError(
                f"{self._most} such questions are under way already: ask again in a moment",
                code=Code.UNAVAILABLE,
            )
        is_over = threading.Event()
        work = asyncio.get_running_loop().run_in_executor(pool, find, partial(_check, is_over))
        leaving = asyncio.ensure_future(_has_left(receive))
        self._asked.add(is_over)
        try:
            either = (work, leaving)
            await asyncio.wait(either, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            raise _left() if leaving.done() else _too_long()
        finally:
            self._asked.discard(is_over)
            is_over.set()
            work.cancel()
            leaving.cancel()


def _check(is_over: threading.Event) -> None:
    if is_over.is_set():
        raise _too_long()


async def _has_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _too_long() -> RefusedError:
    return RefusedError(
        "the query took too long: ask for a shorter range or for fewer rows",
        code=Code.DEADLINE_EXCEEDED,
    )


def _left() -> RefusedError:
    return RefusedError("the client left before it was answered", code=Code.CANCELLED)
