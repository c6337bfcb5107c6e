"""What a load holds over what the process held before: `python held.py WHAT URL SINCE UNTIL`.

It prints a line of JSON: in MB the `peak` over the start and the `size` of the table; `seconds`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import balance_analysis as ba


def memory(name: str) -> float:
    """Return a figure of this process' memory in MB of 10^6 bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024 / 1e6


def main(what: str, url: str, since: str, until: str) -> None:
    size = 0.0
    with ba.Client(url) as client:
        ba.load_balance_changes(client, start=since, end="2023-04-01T00:01Z", progress=False)
        Path("/proc/self/clear_refs").write_text("5")
        base, began = memory("VmRSS"), time.perf_counter()
        bounds = {"start": since, "end": until, "progress": False}
        if what == "table":
            table = ba.load_balance_changes(client, **bounds)
            size = table.memory_usage(deep=True).sum() / 1e6
        else:
            for _ in ba.iter_balance_changes(client, **bounds):
                pass
    told = {"peak": memory("VmHWM") - base, "size": size, "seconds": time.perf_counter() - began}
    print(json.dumps(told))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
