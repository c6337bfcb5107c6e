"""Let a signal wait until what is under way is done."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait for the end of the block.

    Python runs handlers in the main thread alone, between any two steps of it: an exception that
    one raises would leave an archive's writer with half of a change. Other threads see none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []

    def wait(number: int, _: FrameType | None) -> None:
        waiting.append(number)

    before = {int(number): signal.getsignal(number) for number in _SIGNALS}
    # A handler that Python didn't set can't be set again, and is left alone.
    ours = [number for number, handler in before.items() if handler is not None]
    for number in ours:
        signal.signal(number, wait)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])
        for number in waiting:
            signal.raise_signal(number)
