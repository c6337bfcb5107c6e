"""The service over 20,000,000 rows, as a process of its own on loopback."""

from __future__ import annotations

import json
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import balance_analysis as ba
from tests.benchmarks.archives import large_archive, middling_party
from tests.benchmarks.figures import Figure, environment, memory, program
from tests.benchmarks.levels import DAY, DAYS, SINCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE, CLIENTS, ASKED = 5000, 8, 40


class Service:
    """`balance-analysis serve` of an archive.

    Attributes
    ----------
    process
        The number of its process.
    """

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            program("serve", str(folder), "--port", "0"),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.process = self._process.pid

    def __enter__(self) -> Self:
        for line in self._process.stdout:
            if address := re.search(r"http://[\d.]+:\d+", line):
                self._address = urlsplit(address.group())
                return self
        raise RuntimeError("the service ended before it named its address")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()

    def connect(self) -> HTTPConnection:
        """Return a connection."""
        return HTTPConnection(self._address.hostname, self._address.port, timeout=120)

    def json(self, path: str) -> Any:
        """Return the document at a path."""
        return json.loads(ask(self.connect(), path)[1])


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
    with Service(folder) as service:
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
