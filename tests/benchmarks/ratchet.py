"""Fail where the main job costs more than it did, beside the floor: `-m tests.benchmarks.ratchet`.

Both load half a million rows from one node in turn, a pair after the other. Processor time and
memory count, as ratios of a pair: they depend little on the machine, and on what else it does.
Whoever makes the main job cheaper lowers `KEPT`; whoever raises it says why.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import median

from tests.benchmarks.figures import module
from tests.benchmarks.loads import ROWS, cost_of, fetch, serve

PAIRS = 5
KEPT = {"cpu": 0.85, "peak": 0.8}
"""The ratios of main job and floor that were reached."""

ROOM = 1.1
"""How many times the kept ratio is allowed."""


def main() -> int:
    ratios: dict[str, list[float]] = {what: [] for what in KEPT}
    with serve(ROWS) as node, tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "changes.parquet")
        for _ in range(PAIRS):
            command = module("floor", node.url, node.since, node.until, str(file))
            floor = cost_of(node, command, file)
            ours = cost_of(node, fetch(node, file), file)
            for what, measured in ratios.items():
                measured.append(getattr(ours, what) / getattr(floor, what))
            sys.stdout.write(f"floor {floor}\nours  {ours}\n")
    is_worse = False
    for what, measured in ratios.items():
        limit = KEPT[what] * ROOM
        is_worse |= median(measured) > limit
        sys.stdout.write(f"{what}: {median(measured):.2f} of the floor; at most {limit:.2f}\n")
    return int(is_worse)


if __name__ == "__main__":
    sys.exit(main())
