"""The Dask cluster that a command uses; it never starts one."""

from __future__ import annotations

import contextlib
import logging
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Final

from balance_analysis.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed import Client

SECONDS: Final = 20
"""How long to wait for a scheduler, and then for its first worker."""


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[Client | None]:
    """Give a client of the cluster whose scheduler is there; `None` without an address.

    Raises
    ------
    RequestError
        If it can't be reached, has no workers, or is lost in the block.
    ValueError
        If Dask is not installed.
    """
    if address is None:
        yield None
        return
    try:
        from distributed import Client
        from distributed.comm.core import CommClosedError
        from distributed.scheduler import KilledWorker
    except ModuleNotFoundError as error:
        raise ValueError(
            f"--scheduler needs Dask ({error.name} is missing): "
            "pip install 'balance-analysis[cluster]'"
        ) from error
    # What Dask logs of a lost connection is a traceback; what becomes of it is told below.
    for name in ("asyncio", "distributed", "distributed.client", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = Client(address, timeout=SECONDS, set_as_default=False)  # type: ignore[no-untyped-call]
    except OSError as error:
        raise _failed(address, f"the scheduler can't be reached: {error}") from error
    except (TypeError, ValueError, ImportError, RuntimeError) as error:
        raise ValueError(
            f"--scheduler {address}: {error}; give it as Dask does when it starts one, such as "
            "tcp://host:8786"
        ) from error
    with contextlib.closing(client):
        try:
            client.wait_for_workers(1, timeout=SECONDS)
        except TimeoutError as error:
            raise _failed(address, "the cluster has no workers; start some") from error
        try:
            yield client
        except (KilledWorker, CancelledError, CommClosedError) as error:
            raise _failed(
                address, f"the cluster was lost in the middle of the run: {error}"
            ) from error


def _failed(address: str, what: str) -> RequestError:
    return RequestError(f"{address}: {what}", url=address, retryable=True)
