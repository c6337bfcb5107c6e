"""The service over 20,000,000 rows, as a process of its own on loopback."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from http.client import HTTPConnection
from pathlib import Path

import balance_analysis as ba
from tests.benchmarks.archives import large_archive, middling_party
from tests.benchmarks.figures import Figure, memory, program, running
from tests.benchmarks.levels import DAY, DAYS, SINCE

PAGE, CLIENTS, ASKED = 5000, 8, 40


def serving(folder: Path) -> AbstractContextManager[tuple[int, str]]:
    """Serve an archive; give the number of the process, and its host and port."""
    return running(program("serve", str(folder), "--port", "0"), r"(?<=http://)[\d.]+:\d+")


def connect(place: str) -> HTTPConnection:
    """Return a connection to a host and port."""
    return HTTPConnection(place, timeout=120)


def ask(connection: HTTPConnection, path: str) -> tuple[float, bytes]:
    """Return the seconds that an answer took, and its body."""
    began = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status} {body[:200]!r}")
    return time.perf_counter() - began, body


def page(number: int = 0) -> str:
    """Return the path of the first page of a day."""
    start = (SINCE + number % DAYS * DAY) * 1000
    ends = f"dateRange.startTimestamp={start}&dateRange.endTimestamp={start + DAY * 1000}"
    return f"/api/v2/balance/changes?pagination.first={PAGE}&{ends}"


def measure(data: Path, rounds: int):
    """Yield how long pages take, and the rows a second that one client and eight get."""
    folder = large_archive(data)
    party = middling_party(ba.Archive(folder))
    with serving(folder) as (process, place):
        connection = connect(place)
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
            rates = tuple(_rate(place, clients) for _ in range(rounds))
            yield Figure(f"the service, {clients} clients at once", rates, "rows/s")
        yield Figure("the service", (memory("VmHWM", process),), "MB", at_most=1000)


def _rate(place: str, clients: int) -> float:
    def pull(number: int) -> int:
        connection = connect(place)
        bodies = [ask(connection, page(number * 7 + day))[1] for day in range(4)]
        return sum(body.count(b'"cursor":') for body in bodies)

    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        rows = sum(pool.map(pull, range(CLIENTS)))
    return rows / (time.perf_counter() - began)
