"""Clients that retry without waiting, and waits for other threads and processes."""

import contextlib
import time
from unittest import mock

import balance_analysis as ba


@contextlib.contextmanager
def sleeping(sleep):
    """Change the default `sleep` of clients made meanwhile, also of those in commands."""
    defaults = {**ba.Client.__init__.__kwdefaults__, "sleep": sleep}
    with mock.patch.object(ba.Client.__init__, "__kwdefaults__", defaults):
        yield


def dont_wait(_):
    """Return at once instead of sleeping."""


def eventually(is_so):
    """Wait until a condition holds."""
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)
