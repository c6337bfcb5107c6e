"""What the service takes from the network, and what it doesn't."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import threading
import time
from urllib.parse import urlsplit

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import Response

from balance_analysis.service import middleware as guards
from balance_analysis.service.app import create_app
from balance_analysis.service.changes import Changes
from balance_analysis.service.errors import Code, RefusedError
from balance_analysis.service.metrics import Metrics
from balance_analysis.service.middleware import LONGEST_URL, Guards
from balance_analysis.service.openapi import CHANGES, LIMITS
from balance_analysis.service.protocol import Connection, Sweeper
from balance_analysis.service.rate_limit import Meter, RateLimit
from balance_analysis.service.server import serve
from balance_analysis.service.threads import Queries
from tests.service.archives import write_archive
from tests.service.conftest import read_error
from tests.service.rows import block_of


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return write_archive(tmp_path_factory.mktemp("guarded") / "archive", block_of(5000))


@pytest.fixture(scope="module")
def url(archive):
    with serve(create_app(archive)) as url:
        yield url


def ask(url, path=CHANGES, method="GET", **options):
    return requests.request(method, url + path, timeout=20, **options)


def spoken(url, sent):
    """Head and body that come back for bytes that no HTTP library would send."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as client:
        for start in range(0, len(sent), 100_000):
            client.sendall(sent[start : start + 100_000])
            time.sleep(0.02)
        received = client.makefile("rb")
        head = b"".join(iter(received.readline, b"\r\n"))
        length = int(re.search(rb"content-length: (\d+)", head)[1])
        return head, received.read(length)


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


# Methods and addresses


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE", "BREW"])
@pytest.mark.parametrize("path", [CHANGES, LIMITS, "/health", "/docs"])
def test_other_methods_are_refused_with_those_that_are_supported(url, method, path):
    response = ask(url, path, method, data=b"{}" if method == "POST" else None)
    assert response.status_code == 405
    assert response.headers["Allow"] == "GET, HEAD, OPTIONS"
    assert read_error(response.json()) == (12, f"{method} is not supported: use GET")


def test_a_head_has_the_headers_of_a_get_and_no_body(url):
    get, head = ask(url), ask(url, method="HEAD")
    assert (head.status_code, head.content) == (200, b"")
    dated = {"date"}
    assert {k: v for k, v in head.headers.items() if k not in dated} == {
        k: v for k, v in get.headers.items() if k not in dated
    }


@pytest.mark.parametrize(
    "path", ["/nope", "/api/v2/balance/changes/", "/api", "//docs", "/%2e%2e/x"]
)
def test_an_unknown_address_is_not_found(url, path):
    response = ask(url, path)
    assert (response.status_code, read_error(response.json())[0]) == (404, 5)


def test_a_url_of_the_longest_length_is_read_and_a_longer_one_refused(url):
    room = LONGEST_URL - len(f"{CHANGES}?other=")
    assert ask(url, f"{CHANGES}?other={'x' * room}").status_code == 200
    response = ask(url, f"{CHANGES}?other={'x' * (room + 1)}")
    assert (response.status_code, read_error(response.json())[0]) == (414, 3)


@pytest.mark.parametrize("length", [70_000, 800_000])
def test_a_url_too_long_to_be_read_is_refused_in_the_same_way(url, length):
    head, body = spoken(url, b"GET /?" + b"x" * length + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 414 ")
    assert read_error(json.loads(body))[0] == 3


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"this is not HTTP\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 300_000 + b"\r\n\r\n", 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_gets_an_error_body(url, sent, status):
    head, body = spoken(url, sent)
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"application/json" in head
    assert read_error(json.loads(body))[0] == 3


# Browsers


@pytest.mark.parametrize("path", [CHANGES, LIMITS, "/nope", "/health"])
def test_any_origin_may_read_every_answer(url, path):
    response = ask(url, path, headers={"Origin": "https://example.org"})
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    assert "X-Block-Height" in response.headers["Access-Control-Expose-Headers"]


def test_a_browser_that_asks_first_is_told_what_it_may(url):
    asked = {"Origin": "https://example.org", "Access-Control-Request-Method": "GET"}
    response = ask(url, method="OPTIONS", headers=asked)
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["Access-Control-Allow-Methods"] == "GET, HEAD, OPTIONS"


def test_answers_are_compressed_only_for_who_takes_that(url):
    plain = ask(url, headers={"Accept-Encoding": "identity"})
    packed = ask(url, headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert plain.content == packed.content


# Rates


def test_a_burst_is_let_through_then_refused_then_banned():
    clock = Clock()
    meter = Meter(RateLimit(per_second=2, burst=3, ban_seconds=10), clock=clock)
    verdicts = [meter.judge("192.0.2.1") for _ in range(8)]
    assert [v.is_admitted for v in verdicts] == [True] * 3 + [False] * 5
    assert [v.remaining for v in verdicts] == [2, 1, 0, 0, 0, 0, 0, 0]
    assert [v.banned_for for v in verdicts] == [0] * 6 + [10, 10]
    clock.now += 9
    assert meter.judge("192.0.2.1").banned_for == 1
    clock.now += 1
    assert meter.judge("192.0.2.1").is_admitted


@given(
    steps=st.lists(st.floats(0, 5), max_size=60),
    rate=st.floats(0.5, 20),
    burst=st.integers(1, 30),
)
def test_no_more_is_let_through_than_burst_and_rate_allow(steps, rate, burst):
    clock = Clock()
    meter = Meter(RateLimit(per_second=rate, burst=burst, ban_seconds=3), clock=clock)
    began, admitted = clock.now, 0
    for step in steps:
        clock.now += step
        admitted += meter.judge("192.0.2.1").is_admitted
        assert admitted <= burst + (clock.now - began) * rate + 1e-6


@given(rate=st.floats(0.5, 20), burst=st.integers(1, 30))
def test_who_keeps_to_the_rate_is_never_refused(rate, burst):
    clock = Clock()
    meter = Meter(RateLimit(per_second=rate, burst=burst), clock=clock)
    for _ in range(3 * burst):
        assert meter.judge("192.0.2.1").is_admitted
        clock.now += 1.001 / rate


def test_who_was_quiet_for_long_has_no_more_than_a_burst():
    clock = Clock()
    meter = Meter(RateLimit(per_second=2, burst=3), clock=clock)
    meter.judge("192.0.2.1")
    clock.now += 1000
    assert [meter.judge("192.0.2.1").is_admitted for _ in range(5)] == [True] * 3 + [False] * 2


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::2:3", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("unknown", "unknown", True),
    ],
)
def test_addresses_share_a_bucket_where_one_holder_can_choose_both(one, other, is_same):
    meter = Meter(RateLimit(burst=1), clock=Clock())
    assert meter.judge(one).is_admitted
    assert meter.judge(other).is_admitted is not is_same


def test_only_so_many_addresses_are_remembered():
    meter = Meter(RateLimit(burst=1), clock=Clock(), most=10)
    for number in range(100):
        meter.judge(f"192.0.2.{number}")
    assert len(meter) == 10
    assert not meter.judge("192.0.2.99").is_admitted


@pytest.mark.parametrize("limit", [{"per_second": 0}, {"burst": 0}, {"per_second": -1}])
def test_a_limit_that_lets_nothing_through_is_refused(limit):
    with pytest.raises(ValueError, match="let some requests through"):
        RateLimit(**limit)


def test_the_rate_is_told_as_nodes_tell_it(archive):
    limit = RateLimit(per_second=0.001, burst=2, ban_seconds=600)
    with serve(create_app(archive, rate_limit=limit)) as url:
        found = [ask(url, LIMITS) for _ in range(5)]
    assert [each.status_code for each in found] == [404, 404, 429, 429, 403]
    assert [each.headers.get("Ratelimit-Remaining") for each in found] == ["1", "0", "0", "0", None]
    assert {each.headers["Ratelimit-Limit"] for each in found[:4]} == {"2"}
    assert [read_error(each.json())[0] for each in found[2:]] == [8, 8, 7]
    assert [each.headers.get("Ratelimit-Retry-After") for each in found] == [None] * 4 + ["600"]
    assert not [each for each in found if "Retry-After" in each.headers]


def test_behind_a_proxy_on_this_machine_the_client_s_address_counts(archive):
    with serve(create_app(archive, rate_limit=RateLimit(per_second=0.001, burst=1))) as url:
        clients = ["192.0.2.1", "192.0.2.2", "192.0.2.1"]
        found = [ask(url, LIMITS, headers={"X-Forwarded-For": each}) for each in clients]
    assert [each.status_code for each in found] == [404, 404, 429]


# Many at once


def test_questions_beyond_those_at_once_wait_and_then_are_refused():
    done = threading.Event()
    running, most = [], []

    def question():
        running.append(1)
        most.append(len(running))
        done.wait(10)
        running.pop()
        return "answer"

    async def ask_all():
        queries = Queries(at_once=2, patience=0.3)
        asked = [asyncio.create_task(queries.run(question)) for _ in range(5)]
        await asyncio.wait(asked, timeout=0.6)
        done.set()
        first = await asyncio.gather(*asked, return_exceptions=True)
        return first, await queries.run(question)

    found, again = asyncio.run(ask_all())
    assert max(most) == 2
    assert found[:2] == ["answer"] * 2
    assert {(type(each), each.code) for each in found[2:]} == {(RefusedError, Code.UNAVAILABLE)}
    assert again == "answer"


def test_who_watches_a_busy_service_is_answered(archive, monkeypatch):
    done = threading.Event()
    monkeypatch.setattr(Changes, "answer", lambda _self, _items: done.wait(10))
    with serve(create_app(archive)) as url:
        asking = [threading.Thread(target=ask, args=(url,)) for _ in range(20)]
        for thread in asking:
            thread.start()
        status = ask(url, "/health").status_code
        done.set()
        for thread in asking:
            thread.join(20)
    assert status == 200


def test_a_question_that_fails_gives_its_turn_back():
    async def ask_both():
        queries = Queries(at_once=1, patience=0.3)
        with pytest.raises(ZeroDivisionError):
            await queries.run(divmod, 1, 0)
        return await queries.run(divmod, 7, 2)

    assert asyncio.run(ask_both()) == (3, 1)


def test_two_hundred_connections_are_answered(url):
    found = []

    def one():
        found.append(ask(url, f"{CHANGES}?pagination.first=50").status_code)

    threads = [threading.Thread(target=one) for _ in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [200] * 200


def test_more_requests_under_way_than_there_is_room_for_are_refused(monkeypatch, archive):
    monkeypatch.setattr(guards, "MOST_AT_ONCE", 0)
    with serve(create_app(archive)) as url:
        response = ask(url)
    assert (response.status_code, read_error(response.json())[0]) == (503, 14)


# Slow readers


def _guarded(body, taken, *, sending=5.0):
    """The sizes of the pieces in which an answer is handed over; `taken` waits for a reader."""
    sizes = []

    async def app(scope, receive, send):
        await Response(body)(scope, receive, send)

    async def send(message):
        if message["type"] == "http.response.body":
            sizes.append((len(message.get("body", b"")), message.get("more_body", False)))
            await taken()

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
    guarded = Guards(app, metrics=Metrics(), meter=None, paths=(), sending=sending)
    asyncio.run(guarded(scope, None, send))
    return sizes


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 300_000])
def test_an_answer_is_handed_over_in_pieces(size):
    async def taken():
        pass

    sizes = _guarded(b"x" * size, taken)
    assert sum(length for length, _ in sizes) == size
    assert max(length for length, _ in sizes) <= 65_536
    assert [more for _, more in sizes] == [True] * (len(sizes) - 1) + [False]


def test_a_reader_that_takes_too_long_is_given_up():
    async def taken():
        await asyncio.sleep(0.2)

    with pytest.raises(guards.NotTakenError):
        _guarded(b"x" * 1_000_000, taken, sending=0.5)


class _Transport:
    aborted = False

    def abort(self):
        self.aborted = True


def _connection(*, busy):
    connection = object.__new__(Connection)
    connection.transport = _Transport()
    connection.cycle = type("Cycle", (), {"response_complete": not busy})() if busy else None
    return connection


def test_connections_on_which_nothing_goes_on_are_cut_off():
    idle, busy = _connection(busy=False), _connection(busy=True)
    sweeper = Sweeper(idle=30)
    for now in (0, 10, 20, 30):
        sweeper.sweep([idle, busy], now)
    assert not idle.transport.aborted
    sweeper.sweep([idle, busy], 31)
    assert (idle.transport.aborted, busy.transport.aborted) == (True, False)


def test_a_connection_that_was_busy_in_between_starts_anew():
    connection, sweeper = _connection(busy=False), Sweeper(idle=30)
    sweeper.sweep([connection], 0)
    connection.cycle = type("Cycle", (), {"response_complete": False})()
    sweeper.sweep([connection], 20)
    connection.cycle = None
    sweeper.sweep([connection], 40)
    sweeper.sweep([connection], 60)
    assert not connection.transport.aborted


# What it tells


def figures(url):
    """Every figure by its name and labels."""
    lines = ask(url, "/metrics").text.splitlines()
    return {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))
    }


def test_metrics_are_prometheus_text(url):
    ask(url)
    response = ask(url, "/metrics")
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    number = r"-?[0-9.]+(e[+-]?[0-9]+)?"
    sample = rf'[a-z_]+(\{{[a-z]+="[^"\\]*"(,[a-z]+="[^"\\]*")*\}})? {number}'
    assert re.fullmatch(
        rf"(# HELP [a-z_]+ [^\n]+\n# TYPE [a-z_]+ (counter|gauge|histogram)\n({sample}\n)*)+",
        response.text,
    )


def test_metrics_are_those_of_the_service_alone(archive):
    with serve(create_app(archive)) as url:
        ask(url)
        families = list(text_string_to_metric_families(ask(url, "/metrics").text))
    told = {
        (family.type, sample.name.removeprefix("balance_analysis_service_"), *sorted(sample.labels))
        for family in families
        for sample in family.samples
    }
    assert told == {
        ("counter", "requests_total", "path", "status"),
        ("histogram", "request_seconds_bucket", "le", "path"),
        ("histogram", "request_seconds_sum", "path"),
        ("histogram", "request_seconds_count", "path"),
        ("counter", "rows_total"),
        ("gauge", "in_flight"),
        ("gauge", "archive_readable"),
        ("gauge", "archive_rows"),
        ("gauge", "coverage_end_timestamp_seconds"),
        ("gauge", "coverage_age_seconds"),
    }


def test_metrics_count_requests_and_rows(archive):
    prefix = "balance_analysis_service_"
    with serve(create_app(archive)) as url:
        for size in (7, 5000):
            ask(url, f"{CHANGES}?pagination.first={size}")
        ask(url, f"{CHANGES}?pagination.first=0")
        for path in ("/one", "/two"):
            ask(url, path)
        found = figures(url)
    counted = f'{prefix}requests_total{{path="%s",status="%d"}}'
    assert found[counted % (CHANGES, 200)] == 2
    assert found[counted % (CHANGES, 400)] == 1
    assert found[counted % ("other", 404)] == 2
    assert found[f"{prefix}rows_total"] == 5007
    assert found[f"{prefix}in_flight"] == 1
    assert found[f'{prefix}request_seconds_count{{path="{CHANGES}"}}'] == 3
    assert found[f'{prefix}request_seconds_bucket{{le="+Inf",path="{CHANGES}"}}'] == 3


def test_metrics_and_health_tell_of_the_archive(archive, url):
    status = archive.status()
    found, health = figures(url), ask(url, "/health").json()
    assert found["balance_analysis_service_archive_rows"] == health["rows"] == 5000
    end = status.complete[-1][1]
    assert found["balance_analysis_service_coverage_end_timestamp_seconds"] == end.timestamp()
    assert health["coverage_end"] == end.isoformat()
    assert (health["status"], health["gaps"]) == ("ok", 0)


def test_a_service_whose_archive_is_gone_says_so_and_recovers(tmp_path):
    archive = write_archive(tmp_path / "archive", block_of(3))
    with serve(create_app(archive)) as url:
        (tmp_path / "archive").rename(tmp_path / "away")
        gone, gone_figures = ask(url, "/health"), figures(url)
        (tmp_path / "away").rename(tmp_path / "archive")
        back = ask(url, "/health")
    assert (gone.status_code, read_error(gone.json())[0]) == (503, 14)
    assert gone_figures["balance_analysis_service_archive_readable"] == 0
    assert (back.status_code, back.json()["rows"]) == (200, 3)


@pytest.fixture
def failing(archive, monkeypatch):
    def fail(_self, _items):
        raise ZeroDivisionError("a secret of the inside")

    monkeypatch.setattr(Changes, "answer", fail)
    with serve(create_app(archive)) as url:
        yield url


def test_an_unexpected_error_tells_the_client_nothing(failing, caplog):
    response = ask(failing)
    assert response.status_code == 500
    assert read_error(response.json()) == (13, "unexpected error: the log of the service has it")
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    assert "a secret of the inside" in str(caplog.records[0].exc_info)


def test_requests_are_logged_one_line_each_and_no_client_writes_its_own(url, caplog):
    caplog.set_level(logging.INFO, logger="balance_analysis")
    ask(url, "/one%0Atwo?x=%1B[31m" + "y" * 300)
    spoken(url, b"GET /a\x7f HTTP/1.1\r\nHost: x\r\n\r\n")
    patience = time.monotonic() + 5
    while not caplog.messages and time.monotonic() < patience:
        time.sleep(0.01)
    assert re.fullmatch(
        r"127\.0\.0\.1 404 \d+ ms: GET /one%0Atwo\?x=%1B\S+\.\.\.", caplog.messages[0]
    )
    assert len(caplog.messages[0]) < 260
    assert all(message.isprintable() for message in caplog.messages)
