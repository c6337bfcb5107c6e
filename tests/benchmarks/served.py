"""An archive to serve, 20,000,000 rows of 5,000 accounts over 100 days, and the process that does.

`python served.py FOLDER` serves the archive in that folder. When it is ready it prints its address;
it ends with its standard input.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from balance_analysis.archive import layout
from balance_analysis.archive.archive import Archive
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.coverage import Interval
from balance_analysis.archive.manifest import About, write_about
from balance_analysis.archive.store import Store
from balance_analysis.filters import Filters
from balance_analysis.frame import to_arrow
from balance_analysis.service.app import create_app
from balance_analysis.service.server import serve
from tests.benchmarks import levels
from tests.benchmarks.levels import DAY, SINCE, make_table
from tests.benchmarks.processes import environment

if TYPE_CHECKING:
    from collections.abc import Iterator

DAYS: Final = 100
UNTIL: Final = SINCE + DAYS * DAY
HEIGHT: Final = 12_345_678


@dataclass(frozen=True)
class Service:
    """A service under way.

    Attributes
    ----------
    url
        Its address.
    process
        What it runs in.
    """

    url: str
    process: int

    def memory(self, name: str) -> float:
        """Return `VmHWM`, the most memory that it held, or another such figure, in MB (10**6)."""
        status = Path(f"/proc/{self.process}/status").read_text(encoding="ascii")
        (line,) = (line for line in status.splitlines() if line.startswith(name))
        return int(line.split()[1]) * 1024 / 1e6


def make_served(folder: Path, rows: int, accounts: int) -> list[str]:
    """Write an archive of 100 days; return its parties, busiest first."""
    table = to_arrow(make_table(rows, accounts))
    # The same blocks, a little further apart.
    times = SINCE + (table["timestamp"].cast(pa.int64()).to_numpy() - SINCE) * DAYS // levels.DAYS
    table = table.set_column(4, "timestamp", pa.array(times, pa.timestamp("us", "UTC")))
    order = np.argsort(times, kind="stable")
    bounds = np.searchsorted(times[order], SINCE + np.arange(DAYS + 1) * DAY)
    store = Store(folder)
    write_about(store, About(Filters(), "day"))
    writer = Writer(store)
    for day in range(DAYS):
        begin = SINCE + day * DAY
        own = table.take(pa.array(np.sort(order[bounds[day] : bounds[day + 1]])))
        made = Interval(begin, begin + DAY, True, "made", HEIGHT, "2023-07-10T00:00:00+00:00")
        writer.commit(layout.period_of(begin, "day"), own, [made])
    parties = table["party_id"].combine_chunks()
    counts = np.bincount(parties.indices.to_numpy(), minlength=len(parties.dictionary))
    return [parties.dictionary[place].as_py() for place in np.argsort(-counts)]


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Service]:
    """Serve an archive from a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.benchmarks.served", str(folder)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Service(process.stdout.readline().strip(), process.pid)


if __name__ == "__main__":
    with serve(create_app(Archive(sys.argv[1]))) as url:
        print(url, flush=True)  # noqa: T201
        sys.stdin.read()
