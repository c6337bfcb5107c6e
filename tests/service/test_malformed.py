"""Whatever comes over the wire is answered or refused as documented, and the service goes on."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote, urlsplit

import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st

from balance_analysis.service.app import create_app
from balance_analysis.service.server import serve
from tests.service import rules
from tests.service.archives import Held, write_archive
from tests.service.conftest import CHANGES, read_error
from tests.service.rows import BASE, PARTIES, Row, block_of
from tests.service.rules import Refused, expected, ordered, snake

ROWS = block_of(120)
WHOLE = [row.node for row in ordered(ROWS, newest_first=True)]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    archive = write_archive(tmp_path_factory.mktemp("malformed") / "archive", ROWS)
    with serve(create_app(archive)) as address:
        yield address


@pytest.fixture(autouse=True)
def goes_on(url):
    """After each test the service answers, and what it holds is as before."""
    yield
    body = requests.get(url + CHANGES, timeout=10).json()
    assert [edge["node"] for edge in body["balances"]["edges"]] == WHOLE


@pytest.fixture(scope="module")
def cursor(url):
    return requests.get(url + CHANGES, timeout=10).json()["balances"]["edges"][60]["cursor"]


@contextlib.contextmanager
def connected(url, timeout=20):
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=timeout) as client:
        yield client


def answer_to(client, method="GET"):
    with contextlib.closing(http.client.HTTPResponse(client, method=method)) as response:
        response.begin()
        return response.status, dict(response.headers), response.read()


def ask(url, target, method="GET", headers=""):
    """Send a request line as it stands, and return status, headers and body."""
    with connected(url) as client:
        line = target if isinstance(target, bytes) else target.encode("latin-1")
        head = f" HTTP/1.1\r\nHost: x\r\n{headers}Connection: close\r\n\r\n".encode()
        # A server may answer a request that is too long before it has read all of it.
        with contextlib.suppress(ConnectionError):
            client.sendall(method.encode() + b" " + line + head)
        return answer_to(client, method)


def refused(answer):
    """Status, code and useful text of an answer that must be an error."""
    status, headers, body = answer
    assert headers["content-type"].startswith("application/json"), answer
    return status, *read_error(json.loads(body))


def nodes(answer):
    status, _, body = answer
    assert status == 200, answer
    return [edge["node"] for edge in json.loads(body)["balances"]["edges"]]


NUMBERS = ("", " ", "x", "1.0", "1.5", "1e3", "0x10", "1_000", "--1", "NaN", "inf", "true", "1,2")
SIZES = (
    *NUMBERS,
    "0",
    "-1",
    "-0",
    "5001",
    str(2**31 - 1),
    str(2**31),
    str(-(2**31) - 1),
    "9" * 400,
)
BOUNDS = (*NUMBERS, str(2**63), str(-(2**63) - 1), "9" * 400, "2023-04-01", "2023-04-01T00:00:00Z")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in (rules.FIRST, rules.LAST) for value in SIZES),
        *((name, value) for name in (rules.START, rules.END) for value in BOUNDS),
        *((rules.NEWEST, value) for value in ("", "yes", "2", "TrUe", "null", "true,false")),
        *(
            (name, value)
            for name in (rules.PARTY, rules.MARKET)
            for value in ("", "x", "0x" + "a" * 62)
        ),
        (rules.MARKET, "network"),
        *(
            (rules.TYPE, value)
            for value in ("", "4", "general", "ACCOUNT_TYPE_GENERAL,ACCOUNT_TYPE_BOND")
        ),
    ],
)
def test_a_value_that_means_nothing_is_refused_by_name(url, name, value):
    for spelling in {name, snake(name)}:
        status, code, inner = refused(ask(url, f"{CHANGES}?{spelling}={quote(value)}"))
        assert (status, code) == (400, 3)
        assert name in inner or snake(name) in inner


@pytest.mark.parametrize("name", [name for name in rules.NAMES if name not in rules.LISTS])
def test_a_parameter_of_one_value_is_refused_when_it_comes_twice(url, cursor, name):
    values = {rules.NEWEST: "true", rules.AFTER: cursor, rules.BEFORE: cursor}
    value = quote(values.get(name, "5"))
    for second in {name, snake(name)}:
        status, code, inner = refused(ask(url, f"{CHANGES}?{name}={value}&{second}={value}"))
        assert (status, code) == (400, 3)
        assert name in inner or snake(name) in inner


@pytest.mark.parametrize("form", ["{}[]", "{}[0]", "{}%5B%5D", "{}s", "{}.", "{}.x", "x{}"])
@pytest.mark.parametrize("name", rules.NAMES)
def test_a_misspelt_name_in_a_group_is_refused_with_the_right_one(url, name, form):
    group, own = name.split(".")
    wrong = f"{group}.{form.format(own)}"
    status, code, inner = refused(ask(url, f"{CHANGES}?{wrong}=1"))
    assert (status, code) == (400, 3)
    assert name in inner or snake(name) in inner


@pytest.mark.parametrize("name", ["dateRange.start_timestamp", "date_range.startTimestamp"])
def test_a_name_in_two_spellings_at_once_is_never_ignored(url, name):
    answer = ask(url, f"{CHANGES}?{name}={(BASE + 1) * 1000}")
    if answer[0] == 200:
        assert nodes(answer) == []
    else:
        assert refused(answer)[:2] == (400, 3)


HOSTILE = (
    "' OR '1'='1",
    "'; DROP TABLE changes; --",
    '" OR ""="',
    "x' UNION SELECT content FROM read_text('/etc/passwd') --",
    "$path",
    "?",
    "{asset_id}",
    "%(x)s",
    "../../etc/passwd",
    "\0",
    "a\0b",
    "\r\nX-Injected: 1",
    "ä",
    "\U0001d7d9",
    "٣",
    "\u202e",
    "😀" * 50,
    "<script>alert(1)</script>",
    "\\",
    "NULL",
    "[1]",
    "{}",
)


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("name", rules.NAMES)
def test_no_parameter_gives_its_value_a_meaning(url, name, value):
    status, headers, body = answer = ask(url, f"{CHANGES}?{name}={quote(value)}")
    if name == rules.ASSET:
        assert nodes(answer) == []
    else:
        assert refused(answer)[:2] == (400, 3)
    assert "x-injected" not in {header.lower() for header in headers}
    assert b"root:" not in body
    assert status in (200, 400)


@pytest.mark.parametrize("value", ["%", "%zz", "%FF%FE", "%ED%A0%80", "%C0%80", "+", "%F0%9F", "é"])
@pytest.mark.parametrize("name", [rules.ASSET, rules.PARTY, rules.AFTER, rules.FIRST])
def test_bytes_that_are_no_text_are_a_value_like_another(url, name, value):
    answer = ask(url, f"{CHANGES}?{name}={value}")
    if answer[0] == 200:
        assert (name, nodes(answer)) == (rules.ASSET, [])
    else:
        assert refused(answer)[0] == 400


@pytest.mark.parametrize("query", ["", "&", "&&&", "=", "=&=", "?", "a", "&=1&", ";", "%26", "#x"])
def test_a_query_without_parameters_restricts_nothing(url, query):
    assert nodes(ask(url, f"{CHANGES}?{query}")) == WHOLE


@given(data=st.data())
@settings(max_examples=60)
def test_over_a_socket_requests_get_what_the_rules_give(url, data):
    held = Held(tuple(ROWS))
    items = data.draw(rules.requests(held, {}))
    right = expected(held, items, {})
    answer = ask(url, f"{CHANGES}?" + "&".join(f"{quote(n)}={quote(v)}" for n, v in items))
    if isinstance(right, Refused):
        assert refused(answer)[:2] == (400, 3)
    else:
        assert nodes(answer) == [row.node for row in right.rows]


@given(text=st.text(max_size=40) | st.binary(max_size=40).map(lambda b: b.decode("latin-1")))
@settings(max_examples=60)
def test_no_query_makes_the_service_fail(url, text):
    raw = quote(text, safe="=&.?/;:@!$'()*+,[]")
    answer = ask(url, f"{CHANGES}?{raw}")
    assert answer[0] == 200 or refused(answer)[:2] == (400, 3)


@pytest.mark.parametrize("name", [rules.AFTER, rules.BEFORE])
@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "=",
        "====",
        "x",
        "a" * 3000,
        base64.b64encode(b"not ours").decode(),
        base64.b64encode(b'{"vega_time":"2023-05-01T00:00:00Z","AccountID":null}').decode(),
        base64.b64encode(b"\0" * 40).decode(),
        "' OR 1=1 --",
        "é",
        "\0",
    ],
)
def test_a_cursor_that_is_none_is_refused(url, name, wrong):
    status, code, inner = refused(ask(url, f"{CHANGES}?{name}={quote(wrong)}"))
    assert (status, code, name in inner) == (400, 3, True)


def test_two_cursors_are_refused(url, cursor):
    query = f"{rules.AFTER}={quote(cursor)}&{rules.BEFORE}={quote(cursor)}"
    assert refused(ask(url, f"{CHANGES}?{query}"))[:2] == (400, 3)


def test_a_changed_cursor_is_refused(url, cursor):
    """A slip of a finger, or a row that somebody made up."""
    for place in range(0, len(cursor) - 4, 7):
        other = "A" if cursor[place] != "A" else "B"
        changed = cursor[:place] + other + cursor[place + 1 :]
        assert refused(ask(url, f"{CHANGES}?{rules.AFTER}={quote(changed)}"))[:2] == (400, 3)


@pytest.mark.parametrize("cut", [1, 2, 4, 30])
def test_a_cursor_that_was_cut_is_refused(url, cursor, cut):
    assert refused(ask(url, f"{CHANGES}?{rules.AFTER}={quote(cursor[:-cut])}"))[:2] == (400, 3)


def test_a_cursor_of_another_archive_s_row_is_refused(url, tmp_path):
    stranger = Row("b" * 64, "ACCOUNT_TYPE_BOND", PARTIES[1], "c" * 64, BASE, 1)
    other = write_archive(tmp_path / "other", [stranger])
    with serve(create_app(other)) as address:
        edges = requests.get(address + CHANGES, timeout=10).json()["balances"]["edges"]
    for name in (rules.AFTER, rules.BEFORE):
        answer = ask(url, f"{CHANGES}?{name}={quote(edges[0]['cursor'])}")
        assert refused(answer)[:2] == (400, 3)


def test_as_many_ids_as_our_client_sends_are_answered(url):
    parties = "&".join(f"{rules.PARTY}={row.party_id}" for row in ROWS[:90])
    target = f"{CHANGES}?{parties}"
    assert len(target) < 8192
    held = Held(tuple(ROWS))
    right = expected(held, [(rules.PARTY, row.party_id) for row in ROWS[:90]], {})
    assert nodes(ask(url, target)) == [row.node for row in right.rows]


@pytest.mark.parametrize("count", [130, 1000, 10_000])
@pytest.mark.parametrize("name", [rules.PARTY, rules.MARKET])
def test_a_url_of_too_many_ids_is_refused(url, name, count):
    query = "&".join(f"{name}={number:064x}" for number in range(count))
    status, code, _ = refused(ask(url, f"{CHANGES}?{query}"))
    assert (status in (400, 414), code) == (True, 3)


@pytest.mark.parametrize("length", [9000, 70_000, 1_000_000])
@pytest.mark.parametrize("target", ["/{}", CHANGES + "?foo={}", CHANGES + "?filter.assetId={}"])
def test_a_very_long_url_is_refused(url, target, length):
    status, code, _ = refused(ask(url, target.format("x" * length)))
    assert (status in (400, 404, 414), code in (3, 5)) == (True, True)


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json", "/health", "/metrics"])
def test_a_page_beside_the_interface_answers_something(url, path):
    assert ask(url, path)[0] in (200, 307)


@pytest.mark.parametrize(
    "path",
    [
        "/api",
        "/api/v2/balance/changes/",
        "/api/v2//balance/changes",
        "/..%2f..%2fetc",
        "/%00",
        "/%c3%a4",
    ],
)
def test_another_path_is_not_found(url, path):
    assert refused(ask(url, path))[:2] == (404, 5)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE", "PROPFIND"])
@pytest.mark.parametrize("path", [CHANGES, "/api/v2/network/limits"])
def test_only_reading_is_supported(url, path, method):
    status, code, inner = refused(ask(url, path, method, "Content-Length: 0\r\n"))
    assert (status in (405, 501), code, method in inner) == (True, 12, True)


def test_head_is_get_without_a_body(url):
    status, headers, body = ask(url, CHANGES, "HEAD")
    _, wanted, whole = ask(url, CHANGES)
    assert (status, body) == (200, b"")
    assert headers["content-length"] == wanted["content-length"] == str(len(whole))


def test_options_tells_what_is_allowed(url):
    status, headers, body = ask(url, CHANGES, "OPTIONS")
    assert (status in (200, 204), body) == (True, b"")
    assert "GET" in headers["allow"]


def test_a_get_with_a_body_is_answered(url):
    with connected(url) as client:
        head = f"GET {CHANGES} HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
        client.sendall(head.encode())
        assert nodes(answer_to(client)) == WHOLE


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n\r\n",
        b"this is not HTTP\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /\xe4 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-Long: " + b"x" * 1_000_000 + b"\r\n\r\n",
        b"GET " + CHANGES.encode() + b"?filter.assetId=\0 HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_what_is_no_request_gets_an_error_body_or_is_cut_off(url, sent):
    with connected(url) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
        try:
            answer = answer_to(client)
        except (ConnectionError, http.client.HTTPException):
            return
        status, code, _ = refused(answer)
        assert (status in (400, 414, 431, 505), code) == (True, 3)


def test_a_request_that_comes_byte_by_byte_is_answered(url):
    with connected(url) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in f"GET {CHANGES}?pagination.first=3 HTTP/1.1\r\nHost: x\r\n\r\n".encode():
            client.sendall(bytes([byte]))
        assert nodes(answer_to(client)) == WHOLE[:3]


def test_a_slow_reader_gets_all_and_keeps_nobody_waiting(tmp_path):
    rows = block_of(5000)
    archive = write_archive(tmp_path / "archive", rows)
    with serve(create_app(archive)) as url, socket.socket() as client:
        parts = urlsplit(url)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(20)
        client.connect((parts.hostname, parts.port))
        client.sendall(f"GET {CHANGES}?pagination.first=5000 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        client.recv(1)
        for _ in range(5):
            assert len(nodes(ask(url, f"{CHANGES}?pagination.first=7"))) == 7
        rest = b"H"
        while not rest.endswith(b"}}}"):
            rest += client.recv(1 << 20)
    body = json.loads(rest.partition(b"\r\n\r\n")[2])
    found = [edge["node"] for edge in body["balances"]["edges"]]
    assert found == [row.node for row in ordered(rows, newest_first=True)]


@pytest.mark.parametrize("taken", [0, 1, 3000])
def test_clients_that_leave_in_the_middle_leave_nothing_behind(url, taken):
    threads = threading.active_count()
    for _ in range(20):
        with connected(url) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.sendall(f"GET {CHANGES} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            if taken:
                client.recv(taken)
    assert nodes(ask(url, CHANGES)) == WHOLE
    # Threads that answer are kept, but never one for each client.
    assert threading.active_count() <= threads + 10


def test_two_hundred_connections_at_once_are_all_answered(url):
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(url)) for _ in range(200)]
        for number, client in enumerate(clients):
            target = f"{CHANGES}?pagination.first={number % 100 + 1}"
            client.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        for number, client in enumerate(clients):
            assert nodes(answer_to(client)) == WHOLE[: number % 100 + 1]


def test_refusals_and_answers_side_by_side_do_not_mix(url):
    def work(number):
        if number % 3:
            return nodes(ask(url, f"{CHANGES}?pagination.first={number}")) == WHOLE[:number]
        return (
            refused(ask(url, f"{CHANGES}?pagination.first=-{number}"))[2].count(f"-{number}") == 1
        )

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(1, 100)))


def test_many_requests_on_one_connection_are_answered_in_turn(url):
    with connected(url) as client:
        for number in range(1, 30):
            target = f"{CHANGES}?pagination.first={number}"
            client.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        response = b""
        began = time.monotonic()
        while response.count(b"HTTP/1.1 200") < 29 and time.monotonic() - began < 15:
            response += client.recv(1 << 20)
    assert response.count(b"HTTP/1.1 200") == 29
