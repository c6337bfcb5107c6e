"""What was read last, kept as long as it fits: parsed states, footers, rows."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any


class LruCache:
    """What was used last, for any number of threads.

    Parameters
    ----------
    most
        How much is kept, in whatever its users measure: entries, rows or bytes. The newest entry
        is kept in any case.
    """

    def __init__(self, most: int) -> None:
        self._most, self._size, self._lock = most, 0, threading.Lock()
        self._found: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], tuple[Any, int]]) -> Any:  # noqa: ANN401
        """Return what is kept under a key, or else make it; `make` tells its size as well."""
        found = self.peek(key)
        if found is None:
            found, size = make()
            self.put(key, found, size)
        return found

    def peek(self, key: Hashable) -> Any:  # noqa: ANN401 - whatever was kept
        """Return what is kept under a key, or `None`."""
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
            return self._found.get(key, (None, 0))[0]

    def put(self, key: Hashable, made: Any, size: int) -> None:  # noqa: ANN401 - likewise
        """Keep something, and let go of what wasn't used for longest where that is too much."""
        with self._lock:
            self._size += size - self._found.pop(key, (None, 0))[1]
            self._found[key] = made, size
            while len(self._found) > 1 and self._size > self._most:
                self._size -= self._found.popitem(last=False)[1][1]
