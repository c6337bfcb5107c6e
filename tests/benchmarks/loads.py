"""Loads of half a million rows and more from a node that answers at once."""

import contextlib
import json
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tests.benchmarks.figures import Cost, Figure, module, program, ratios, run, running

ROWS = 500_000
LARGER = (2_000_000, 8_000_000)
FLOOR, LOOP = "floor", "requests + json_normalize"


@dataclass(frozen=True)
class Node:
    """A node under way: its address, the interval of its rows, their number and their total."""

    url: str
    since: str
    until: str
    rows: int
    total: str


@contextlib.contextmanager
def serve(rows: int):
    """Run a node as a process of its own."""
    with running(module("server", str(rows)), r"\{.*\}") as (_, about):
        yield Node(**json.loads(about))


def fetch(node: Node, file: Path, workers: int = 1) -> list[str]:
    """Return the command `fetch` of all rows of a node."""
    return _load(node, "fetch", node.url, "-o", str(file), "--workers", str(workers))


def export(node: Node, folder: Path) -> list[str]:
    """Return the command `export` of all rows of a node."""
    return _load(node, "export", str(folder), node.url)


def _load(node: Node, *command: str) -> list[str]:
    return program(*command, "-q", "--since", node.since, "--until", node.until)


def check_rows(node: Node, file: Path) -> None:
    """Fail unless a file, or an archive's data, holds all rows of a node."""
    changes = file / "changes" if file.is_dir() else file
    balances = ds.dataset(changes, format="parquet").to_table(columns=["balance"])["balance"]
    loaded = len(balances), str(pc.sum(balances.cast(pa.decimal128(38, 0))))
    if loaded != (node.rows, node.total):
        raise RuntimeError(f"{file} has {loaded}, the node {(node.rows, node.total)}")


def cost_of(node: Node, command: list[str], target: Path) -> Cost:
    """Return what a load cost, having checked its rows."""
    cost = run(command)
    check_rows(node, target)
    return cost


def measure(data: Path, rounds: int):
    """Yield the costs of loads, of the floor and of a plain loop."""
    with tempfile.TemporaryDirectory(dir=data) as scratch:
        yield from _whole_processes(Path(scratch), rounds)
        yield from _sizes(Path(scratch))


def _whole_processes(scratch: Path, rounds: int):
    costs = defaultdict(list)
    with serve(ROWS) as node:
        where = (node.url, node.since, node.until)
        for number in range(rounds):
            file, folder = scratch / f"{number}.parquet", scratch / f"archive{number}"
            commands = {
                FLOOR: (module("floor", *where, str(file)), file),
                "fetch, 1 worker": (fetch(node, file), file),
                "fetch, 4 workers": (fetch(node, file, 4), file),
                "export": (export(node, folder), folder),
                "export with nothing new": (export(node, folder), folder),
                LOOP: (module("normalize_loop", *where, str(file)), file),
            }
            for name, (command, target) in commands.items():
                costs[name].append(cost_of(node, command, target))
    for name, each in costs.items():
        for what, unit in (("seconds", "s"), ("cpu", "s cpu"), ("peak", "MB")):
            values = tuple(getattr(cost, what) for cost in each)
            yield Figure(f"{ROWS:,} rows, {name}", values, unit)
    yield _ratio(costs, "fetch, 1 worker", FLOOR, "seconds", at_most=0.8)
    yield _ratio(costs, "fetch, 1 worker", FLOOR, "cpu", at_most=0.8)
    yield _ratio(costs, "export", "fetch, 4 workers", "seconds", at_most=1.3)
    yield _ratio(costs, LOOP, "fetch, 4 workers", "seconds", at_least=2.5)


def _ratio(costs: dict[str, list[Cost]], one: str, other: str, what: str, **goal: float) -> Figure:
    ours, theirs = ([getattr(cost, what) for cost in costs[name]] for name in (one, other))
    return Figure(f"{one} / {other}, {what}", ratios(ours, theirs), "times", **goal)


def _sizes(scratch: Path):
    for rows in (ROWS, *LARGER):
        with serve(rows) as node:
            cost = cost_of(node, fetch(node, scratch / "x.parquet"), scratch / "x.parquet")
        yield Figure(f"{rows:,} rows, fetch, 1 worker, memory", (cost.peak,), "MB", at_most=180)
