"""Who loads the same rows: commands to run, and how to see that all rows arrived."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.benchmarks.processes import environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FLOOR = "floor"
LOOP = "requests + json_normalize"
TABLE = "load_balance_changes + write_parquet"
DLT = "dlt"

_MODULES = {FLOOR: "floor", LOOP: "normalize_loop", TABLE: "table", DLT: "dlt_pipeline"}


@dataclass(frozen=True)
class Node:
    """A benchmarks' node under way, and what it holds.

    Attributes
    ----------
    url
        Its address.
    since, until
        The interval of its rows, ISO 8601.
    rows
        How many they are.
    total
        The sum of their balances.
    """

    url: str
    since: str
    until: str
    rows: int
    total: str


@contextlib.contextmanager
def serve(rows: int, latency: float = 0.0) -> Iterator[Node]:
    """Run a node as a process of its own, which ends when its standard input is closed."""
    command = [sys.executable, "-P", "-m", "tests.benchmarks.server"]
    with subprocess.Popen(
        [*command, "--rows", str(rows), "--latency", str(latency)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        yield Node(**json.loads(process.stdout.readline()))


def fetching(workers: int) -> str:
    """Return the name of `fetch` with so many workers."""
    return f"fetch, {workers} worker{'s' * (workers > 1)}"


def fetch_command(node: Node, file: Path, *, workers: int, page_size: int = 5000) -> list[str]:
    """Return the command line's `fetch`."""
    return [
        *(sys.executable, "-P", "-m", "balance_analysis", "fetch", node.url, "-o", str(file), "-q"),
        *("--since", node.since, "--until", node.until),
        *("--workers", str(workers), "--page-size", str(page_size)),
    ]


def script_command(name: str, node: Node, file: Path, python: str = sys.executable) -> list[str]:
    """Return the command of a contestant that is a module beside this one."""
    module = f"tests.benchmarks.{_MODULES[name]}"
    return [python, "-P", "-m", module, node.url, node.since, node.until, str(file)]


def loaded(files: list[Path]) -> tuple[int, str]:
    """Return how many rows Parquet files hold, and the total of their balances."""
    tables = [pq.read_table(file, columns=["balance"]) for file in files]
    balances = pa.concat_tables(tables)["balance"].cast(pa.decimal128(38, 0))
    return len(balances), str(pc.sum(balances))
