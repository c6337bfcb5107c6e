"""The functions of analysis over archives of any size, on this machine or on a Dask cluster.

A slice of accounts, over all time, is one task: it is read out of every file of the archive, and
the very function of the laptop runs on it. So nothing has to be carried from day to day, and no row
is read twice or moved between machines, but the few beside the edges of slices. Each slice is of
bounded size; only results come back. Of an account that has too many rows for that, a stretch of
time is one task: with the row before it and the one behind it, it tells what the whole does.

Nothing here starts a cluster. `client` is a `distributed.Client`, or any executor of
`concurrent.futures`; without it, the client that the caller has made is used, and without one some
threads of this process.
"""

from __future__ import annotations

from balance_analysis.cluster.functions import (
    flows,
    series,
    summarize_accounts,
    time_weighted_average,
    totals,
    verify,
)
from balance_analysis.cluster.tasks import Options

__all__ = [
    "Options",
    "flows",
    "series",
    "summarize_accounts",
    "time_weighted_average",
    "totals",
    "verify",
]
