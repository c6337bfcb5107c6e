"""Fail where the main job costs more than it did, beside the floor: `-m tests.benchmarks.ratchet`.

Both load half a million rows from one node in turn, a pair after the other. Processor time and
memory count, as ratios of a pair: they depend little on the machine, and on what else it does.
Whoever makes the main job cheaper lowers `KEPT`; whoever raises it says why.
"""

import sys
import tempfile
from pathlib import Path
from statistics import median

from tests.benchmarks.figures import module, ratios
from tests.benchmarks.loads import ROWS, cost_of, fetch, serve

PAIRS = 9
KEPT = {"cpu": 0.75, "peak": 0.75}
"""The ratios of main job and floor that were reached on the slower of two machines."""

ROOM = 1.1
"""How many times the kept ratio is allowed."""


def main() -> int:
    with serve(ROWS) as node, tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "changes.parquet")
        floor = module("floor", node.url, node.since, node.until, str(file))
        commands = (fetch(node, file), floor)
        pairs = [[cost_of(node, command, file) for command in commands] for _ in range(PAIRS)]
    is_worse = False
    for what, kept in KEPT.items():
        ours, theirs = ([getattr(cost, what) for cost in each] for each in zip(*pairs, strict=True))
        reached, limit = median(ratios(ours, theirs)), kept * ROOM
        is_worse |= reached > limit
        sys.stdout.write(f"{what}: {reached:.2f} of the floor; at most {limit:.2f}\n")
    return int(is_worse)


if __name__ == "__main__":
    sys.exit(main())
