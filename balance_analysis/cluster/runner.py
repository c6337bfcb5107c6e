"""Where tasks run: on the client that is given, on the caller's own one, or in threads."""

from __future__ import annotations

import contextlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from balance_analysis.ingest.executor import Pool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

    from distributed import Client

_LOCAL: Final = 4
"""The most threads that are used without a cluster: each holds a task's rows."""


@contextlib.contextmanager
def running(client: Client | Executor | None) -> Iterator[Pool]:
    """Give what runs tasks.

    Parameters
    ----------
    client
        A client of a cluster or an executor; `None` stands for the client that the caller has made,
        and where there is none for threads, which end with the context.

    Raises
    ------
    TypeError, ValueError
        If it is something else, or its workers can't do the work.
    """
    client = _current() if client is None else client
    if client is not None:
        yield Pool.of(client)
        return
    width = min(os.cpu_count() or 1, _LOCAL)
    with ThreadPoolExecutor(width, "balance-analysis") as pool:
        yield Pool(pool, width)


def _current() -> Any:  # noqa: ANN401 - a Client, of a package that may not be there
    """Return the client that the caller has made, if there is one."""
    if "distributed" not in sys.modules:
        return None
    try:
        return sys.modules["distributed"].Client.current()
    except ValueError:
        return None
