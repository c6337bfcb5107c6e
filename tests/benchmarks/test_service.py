"""The service over 20,000,000 rows, on loopback, as a process of its own."""

from __future__ import annotations

import http.client
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import truediv
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import pytest

import balance_analysis as ba
from tests.benchmarks.archived import ARCHIVE
from tests.benchmarks.contestants import Node, fetch_command, loaded
from tests.benchmarks.levels import DAY, DAYS, SINCE
from tests.benchmarks.processes import run
from tests.benchmarks.served import served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.benchmarks.served import Service

PAGE = 5000
CLIENTS, PAGES_EACH, ROUNDS = 16, 4, 3
DEEP = 1000
QUARTER = 25
ASKED = 40


class Client:
    """One connection; it counts rows and decodes nothing, so that the service is measured."""

    def __init__(self, service: Service) -> None:
        address = urlsplit(service.url)
        self._connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self, **asked: object) -> tuple[float, bytes]:
        """Return the seconds that a page took, and its body."""
        names = {"first": "pagination.first", "after": "pagination.after"}
        names |= {"start": "dateRange.startTimestamp", "end": "dateRange.endTimestamp"}
        names |= {"party": "filter.partyIds"}
        query = urlencode([(names[name], value) for name, value in asked.items()])
        began = time.perf_counter()
        self._connection.request("GET", f"/api/v2/balance/changes?{query}")
        answer = self._connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return time.perf_counter() - began, body


@pytest.fixture
def tell(report):
    return partial(report.tell, "the service, 20,000,000 rows over 90 days")


@pytest.fixture(scope="module")
def archive(large_archive) -> Path:
    return large_archive[0] / ARCHIVE


@pytest.fixture
def client(service) -> Iterator[Client]:
    with Client(service) as client:
        yield client


@pytest.fixture(scope="module")
def service(archive) -> Iterator[Service]:
    with served(archive) as service:
        yield service


def day(number: int) -> dict[str, int]:
    """The bounds of a day, nanoseconds."""
    start = (SINCE + number % DAYS * DAY) * 1000
    return {"start": start, "end": start + DAY * 1000}


def rows_of(body: bytes) -> int:
    return body.count(b'"cursor":')


def median_ms(seconds: list[float]) -> float:
    return 1000 * statistics.median(seconds)


def test_the_first_page_of_a_day_takes_some_time(client, tell):
    client.ask(first=1)
    days = [number * 37 % DAYS for number in range(ASKED)]
    for says in ("first page of a day, 5,000 rows", "the same again, days asked before"):
        answers = [client.ask(first=PAGE, **day(number)) for number in days[-ASKED:]]
        assert {rows_of(body) for _, body in answers} == {PAGE}
        tell(says, median_ms([took for took, _ in answers]), unit="ms", most=60)
        days = days[-5:] * 8


@pytest.mark.parametrize("size", [1000, PAGE])
def test_a_page_of_one_party_takes_some_time(size, archive, client, tell):
    accounts = ba.summarize_accounts(ba.Archive(archive))
    rows = accounts.groupby("party_id", observed=True)["rows"].sum()
    parties = rows.sort_values(ascending=False).index
    # Of middling activity: a page of 5,000 rows is all that they have.
    middle = len(parties) // 2
    chosen = parties[middle - 2 * ASKED : middle + 2 * ASKED : 4]
    answers = [client.ask(first=size, party=party) for party in chosen]
    assert min(rows_of(body) for _, body in answers) > 900
    says = f"one party out of 90 days, a page of {size:,} rows"
    tell(says, median_ms([took for took, _ in answers]), unit="ms", most=60)


def test_many_clients_at_once_get_as_many_rows_as_one(service, tell):
    def pull(number: int) -> int:
        days = range(number * 7, number * 7 + PAGES_EACH)
        with Client(service) as client:
            return sum(rows_of(client.ask(first=PAGE, **day(each))[1]) for each in days)

    rates = {1: [], CLIENTS: []}
    for clients, found in [*rates.items()] * ROUNDS:
        began = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            rows = sum(pool.map(pull, range(CLIENTS)))
        found.append(rows / (time.perf_counter() - began))
        assert rows == CLIENTS * PAGES_EACH * PAGE
    one, many = rates.values()
    tell("one client, first pages of many days", *one, unit="rows/s")
    tell(f"{CLIENTS} clients at once, the same", *many, unit="rows/s")
    tell(f"{CLIENTS} clients / one", *map(truediv, many, one), unit="times", least=1)


def test_a_late_page_costs_no_more_than_the_first(client, tell):
    cursors, seconds = [None], []
    for _ in range(DEEP):
        after = {} if cursors[-1] is None else {"after": cursors[-1]}
        took, body = client.ask(first=PAGE, **after)
        seconds.append(took)
        cursors.append(json.loads(body[body.rindex(b'"pageInfo":') + 11 : -2])["endCursor"])
    asked = {"page 1": {}, "page 1,000": {"after": cursors[-2]}}
    first, late = zip(
        *([client.ask(first=PAGE, **each)[0] for each in asked.values()] for _ in range(ASKED)),
        strict=True,
    )
    for name, found in zip(asked, (first, late), strict=True):
        tell(name, *(1000 * each for each in found), unit="ms")
    tell("page 1,000 / page 1", *map(truediv, late, first), unit="times", most=1.2)
    for name, part in (("1 to 100", seconds[:100]), ("901 to 1,000", seconds[-100:])):
        tell(f"pages {name} on the way there", median_ms(part), unit="ms")


@pytest.mark.parametrize("workers", [4])
def test_our_own_loader_pulls_a_quarter_of_the_archive(workers, archive, service, tell, tmp_path):
    since, until = (f"{moment / 1e6:.0f}" for moment in (SINCE, SINCE + QUARTER * DAY))
    since, until = (
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(each))) for each in (since, until)
    )
    file = tmp_path / "changes.parquet"
    node = Node(service.url, since, until, 0, "")
    cost = run(fetch_command(node, file, workers=workers))
    days = sorted(archive.rglob("changes.parquet"))[:QUARTER]
    rows, total = loaded([file])
    assert (rows, total) == loaded(days)
    says = f"{QUARTER} days by `fetch` with {workers} workers"
    tell(says, rows / cost.seconds, unit="rows/s", least=150_000)


def test_the_service_held_little_memory(service, tell):
    tell("the most memory that it held", service.memory("VmHWM"), unit="MB", most=1000)
