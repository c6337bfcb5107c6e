"""The process that serves an archive: `python served.py FOLDER`.

When it is ready it prints its address; it ends with its standard input.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from balance_analysis import Archive
from balance_analysis.service.app import create_app
from balance_analysis.service.server import serve
from tests.benchmarks.processes import environment

if TYPE_CHECKING:
    from collections.abc import Iterator


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
