"""What is held over what the process held before: `python held.py WHAT WHERE SINCE UNTIL`.

WHAT is a load to a `table` or as a `stream` from the node at WHERE, or a read of the `archive`
there. It prints a line of JSON: in MB the `peak` over the start and the `size` of the table;
`seconds`.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

import balance_analysis as ba

if TYPE_CHECKING:
    from collections.abc import Callable


def memory(name: str) -> float:
    """Return a figure of this process' memory in MB of 10^6 bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024 / 1e6


def table_from(what: str, where: str) -> Callable[..., pd.DataFrame]:
    """Return what makes a table of an interval."""
    if what == "archive":
        return ba.Archive(where).read
    return partial(ba.load_balance_changes, ba.Client(where), progress=False)


def main(what: str, where: str, since: str, until: str) -> None:
    size, read = 0.0, table_from(what, where)
    read(start=since, end=pd.Timestamp(since) + pd.Timedelta("1min"))
    Path("/proc/self/clear_refs").write_text("5")
    base, began = memory("VmRSS"), time.perf_counter()
    if what == "stream":
        for _ in ba.iter_balance_changes(ba.Client(where), start=since, end=until, progress=False):
            pass
    else:
        size = read(start=since, end=until).memory_usage(deep=True).sum() / 1e6
    told = {"peak": memory("VmHWM") - base, "size": size, "seconds": time.perf_counter() - began}
    print(json.dumps(told))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
