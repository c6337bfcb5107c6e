"""Clients that retry without waiting, and waits for other threads and processes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from unittest import mock

import balance_analysis as ba


@contextlib.contextmanager
def sleeping(sleep: Callable[[float], None]) -> Iterator[None]:
    """Change the default `sleep` of clients made meanwhile, also of those in commands."""
    defaults = {**ba.Client.__init__.__kwdefaults__, "sleep": sleep}
    with mock.patch.object(ba.Client.__init__, "__kwdefaults__", defaults):
        yield


def dont_wait(_: float) -> None:
    """Return at once instead of sleeping."""


def eventually(is_so: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)
