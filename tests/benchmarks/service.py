"""The service over 20,000,000 rows, as a process of its own on loopback."""

from __future__ import annotations

import contextlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

import balance_analysis as ba
from tests.benchmarks.archives import large_archive, middling_party
from tests.benchmarks.figures import Figure, memory, program, running
from tests.benchmarks.levels import DAY, DAYS, SINCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE, CLIENTS, ASKED = 5000, 8, 40


@dataclass(frozen=True)
class Service:
    """`balance-analysis serve` of an archive: the number of its process, and its host and port."""

    process: int
    place: str

    def connect(self) -> HTTPConnection:
        """Return a connection."""
        return HTTPConnection(self.place, timeout=120)

    def json(self, path: str) -> Any:
        """Return the document at a path."""
        return json.loads(ask(self.connect(), path)[1])


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Service]:
    """Serve an archive."""
    command = program("serve", str(folder), "--port", "0")
    with running(command, r"(?<=http://)[\d.]+:\d+") as (process, place):
        yield Service(process, place)


def ask(connection: HTTPConnection, path: str) -> tuple[float, bytes]:
    """Return the seconds that an answer took, and its body."""
    began = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status} {body[:200]!r}")
    return time.perf_counter() - began, body


def page(number: int = 0, **others: object) -> str:
    """Return the path of the first page of a day."""
    start = (SINCE + number % DAYS * DAY) * 1000
    ends = f"dateRange.startTimestamp={start}&dateRange.endTimestamp={start + DAY * 1000}"
    more = "".join(f"&{name.replace('_', '.')}={value}" for name, value in others.items())
    return f"/api/v2/balance/changes?pagination.first={PAGE}&{ends}{more}"


def measure(data: Path, rounds: int) -> Iterator[Figure]:
    """Yield how long pages take, and the rows a second that one client and eight get."""
    folder = large_archive(data)
    party = middling_party(ba.Archive(folder))
    with serving(folder) as service:
        connection = service.connect()
        ask(connection, page())
        whole = f"/api/v2/balance/changes?pagination.first=1000&filter.partyIds={party}"
        for name, paths in {
            "first page of a day": [page(37 * number) for number in range(ASKED)],
            "first page of a day that was asked before": [page(37)] * ASKED,
            "a page of one party out of 90 days": [whole] * ASKED,
        }.items():
            took = tuple(1000 * ask(connection, path)[0] for path in paths)
            yield Figure(f"the service, {name}", took, "ms", at_most=60)
        for clients in (1, CLIENTS):
            rates = tuple(_rate(service, clients) for _ in range(rounds))
            yield Figure(f"the service, {clients} clients at once", rates, "rows/s")
        yield Figure("the service", (memory("VmHWM", service.process),), "MB", at_most=1000)


def _rate(service: Service, clients: int) -> float:
    def pull(number: int) -> int:
        connection = service.connect()
        bodies = [ask(connection, page(number * 7 + day))[1] for day in range(4)]
        return sum(body.count(b'"cursor":') for body in bodies)

    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        rows = sum(pool.map(pull, range(CLIENTS)))
    return rows / (time.perf_counter() - began)
