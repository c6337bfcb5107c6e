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
    with contextlib.ExitStack() as stack:
        try:
            client = Client(address, timeout=SECONDS, set_as_default=False)  # type: ignore[no-untyped-call]
            stack.enter_context(contextlib.closing(client))
            client.wait_for_workers(1, timeout=SECONDS)
        except OSError as error:
            what = f"the scheduler can't be reached, or has no workers: {error}"
            raise _lost(address, what) from error
        except (TypeError, ValueError, ImportError, RuntimeError) as error:
            raise ValueError(
                f"--scheduler {address}: {error}; give it as Dask does when it starts one, such as "
                "tcp://host:8786"
            ) from error
        try:
            yield client
        except (KilledWorker, CancelledError, CommClosedError) as error:
            what = f"the cluster was lost in the middle of the run: {error}"
            raise _lost(address, what) from error


def _lost(address: str, what: str) -> RequestError:
    return RequestError(f"{address}: {what}", url=address, retryable=True)
