"""A client retries passing faults, names others, and protects secrets, memory and time."""

import base64
import copy
import datetime as dt
import email.utils
import gzip
import itertools
import logging
import math
import pickle
import re
import time
import tracemalloc
import zlib

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.node.client import Throttle
from tests.columns import ATTRS_KEY
from tests.loopback import LIMITS, Fault, Kind, LoopbackNode, random_history
from tests.node.asking import NOWHERE, client_to, session_to

ROWS = random_history(5, rows=200, accounts=8)
ATTEMPTS = 6
MOST = 1_000_000
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
ME = "Basic " + base64.b64encode(b"me:s3cret/\xc3\xa9").decode()
SECRETS = ("s3cret", ME.split()[1])

RETRIED = {
    "429": Fault.rate_limited(),
    "429 with Retry-After": Fault.rate_limited(7),
    "502 HTML": Fault.html(502),
    "503": Fault.status(503),
    "504": Fault.code(504, 4),
    "500 with code 13": Fault.code(500, 13),
    "500 with code 2": Fault.code(500, 2),
    "500 without a body": Fault.status(500),
    "500 with HTML": Fault.html(500),
    "ban of 5 s": Fault.banned(5),
    "half a document": Fault.answer(200, '{"limits": {'),
    "nothing": Fault.answer(200, ""),
    "not JSON": Fault.answer(200, "hello"),
    **{
        f"503 and Retry-After {text!r}": Fault.status(503, {"Retry-After": text})
        for text in ("0", "0.0", "-5", "soon", "", "nan", "Thu, 01 Jan 1970")
    },
}
NOT_RETRIED = {
    "400": Fault.code(400, 3),
    **{f"{code}": Fault.status(code) for code in (401, 403)},
    "404": Fault.code(404, 5),
    "414": Fault.html(414),
    "501": Fault.code(501, 12),
    "ban of 600 s": Fault.banned(600),
    "503 for 61 s": Fault.status(503, {"Retry-After": "61"}),
    "HTML": Fault.html(200),
    "too large": Fault.too_large(),
    **{f"500 with code {code}": Fault.code(500, code) for code in (3, 5, 6, 7, 9, 11, 12, 16)},
}


def ask(client):
    with client:
        return ba.load_network_limits(client)


def failure(client, ask=ask):
    with pytest.raises(ba.RequestError) as caught:
        ask(client)
    return caught.value


def always(fault):
    return LoopbackNode(ROWS, faults=lambda *_: fault)


def load(client, start="2023-01-01"):
    return ba.load_balance_changes(client, start=start, end="2023-12-01")


def test_a_request_accepts_json_and_names_the_package_and_its_version():
    ask(client_to(node := LoopbackNode()))
    headers = node.requests[0].headers
    assert headers["accept"] == "application/json"
    assert headers["user-agent"].startswith(f"balance_analysis/{ba.__version__} (")


@pytest.mark.parametrize("name", ["User-Agent", "user-agent"])
def test_the_callers_headers_win(name):
    ask(client_to(node := LoopbackNode(), headers={name: "mine", "Authorization": "Bearer x"}))
    sent = node.requests[0].headers
    assert (sent["user-agent"], sent["authorization"]) == ("mine", "Bearer x")
    assert sent["accept"] == "application/json"


def test_the_callers_session_may_stream_and_is_not_closed():
    with LoopbackNode(faults=[Fault(Kind.TRUNCATED)]) as node, requests.Session() as session:
        session.stream = True
        ask(ba.Client(node.url, session=session))
        # A session that was closed has forgotten its connections.
        assert session.get_adapter(node.url).poolmanager.pools
    assert len(node.requests) == 2


@pytest.mark.parametrize("path", ["", "/", "/a/b//"])
def test_a_base_address_may_have_a_path_and_a_slash(path):
    node = LoopbackNode(faults=[Fault.status(404)])
    failure(ba.Client(NOWHERE + path, session=session_to(node)))
    assert node.requests[0].path == path.rstrip("/") + LIMITS


@pytest.mark.parametrize(
    "address",
    ["", "node.example.org", "localhost:3008", "ftp://node.example.org", "http://", "http:///api",
     "http://host:port", "http://host:99999", "http://[::1", "https://host/?x=1",
     "https://host/#top", None, 5, b"http://host",
     "https://me:s3cret@host/?x=1", "me:s3cret@host"],
)  # fmt: skip
def test_a_malformed_address_is_refused_at_once_and_named_without_its_user(address):
    with pytest.raises(ValueError, match="is not the address of a node") as caught:
        ba.Client(address)
    assert "s3cret" not in str(caught.value)
    assert "s3cret" in str(address) or repr(address) in str(caught.value)


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "https://[::1]:3008/x", "HTTP://host"])
def test_a_valid_address_is_accepted(address):
    assert ba.Client(address).base_url == address


@pytest.mark.parametrize("number", [0, -1, float("nan")])
@pytest.mark.parametrize("name", ["timeout", "max_requests_per_second", "max_answer_bytes"])
def test_a_number_that_is_not_positive_is_refused(name, number):
    with pytest.raises(ValueError, match=f"{name} must be more than 0, not {number!r}"):
        ba.Client("http://host", **{name: number})


@pytest.mark.parametrize("timeout", [(1, 2), None, "30"])
def test_a_timeout_is_one_number(timeout):
    with pytest.raises(ValueError, match="timeout must be more than 0, not "):
        ba.Client("http://host", timeout=timeout)


def test_a_proxy_that_does_not_answer_is_named_as_a_proxy():
    session = requests.Session()
    session.proxies = {"http": "http://127.0.0.1:1"}
    error = failure(ba.Client("http://node.example", session=session))
    assert "can't be reached through the proxy: connection refused" in str(error)


def test_a_client_without_an_address_is_refused():
    with pytest.raises(ValueError, match="at least one node"):
        ba.Client([])


def test_a_client_gives_up_after_all_attempts_with_a_longer_pause_each_time():
    slept = []
    error = failure(client_to(node := always(Fault.status(503)), sleep=slept.append))
    assert len(node.requests) == ATTEMPTS
    assert (error.status, error.retryable, error.url) == (503, True, NOWHERE + LIMITS)
    assert len(slept) == ATTEMPTS - 1
    for number, seconds in enumerate(slept):
        assert 0.5 * 2**number <= seconds <= min(0.5 * 2**number + 1, 15)


@pytest.mark.parametrize("fault", RETRIED.values(), ids=RETRIED)
def test_a_passing_fault_is_retried_as_often_as_allowed(fault):
    node = LoopbackNode(faults=[fault] * (ATTEMPTS - 1))
    assert ask(client_to(node)).genesis_loaded
    assert len(node.requests) == ATTEMPTS
    failure(client_to(lasting := always(fault)))
    assert len(lasting.requests) == ATTEMPTS


@pytest.mark.parametrize("fault", NOT_RETRIED.values(), ids=NOT_RETRIED)
def test_a_permanent_fault_is_not_retried(fault):
    error = failure(client_to(node := always(fault)))
    assert len(node.requests) == 1
    assert error.status == fault.sent.status
    assert NOWHERE in str(error)
    assert isinstance(error, ba.TooLargeError) == ("larger than max" in str(error))


def test_an_error_has_the_nodes_code_and_its_useful_text():
    error = failure(client_to(always(Fault.code(400, 3, "a party id is invalid"))))
    assert (error.status, error.code, error.retryable) == (400, 3, False)
    assert str(error) == f"{NOWHERE} answered 400: invalid argument: a party id is invalid"


def in_500_s():
    moment = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=500)
    return Fault.status(429, {"Retry-After": email.utils.format_datetime(moment, usegmt=True)})


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        (Fault.banned(600), 600),
        (Fault.status(403, {"Retry-After": "1", "Ratelimit-Retry-After": "300"}), 300),
        (None, 500),
    ],
)
def test_a_ban_longer_than_the_maximum_wait_says_how_long(fault, seconds):
    error = failure(client_to(always(fault or in_500_s())))
    assert error.retry_after == pytest.approx(seconds, abs=60)
    assert re.search("asks to wait [0-9]+ s, longer than the 60 s", str(error))


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault(Kind.RESET), "can't be reached.*reset"),
        (Fault(Kind.RESET_MIDWAY), "(broke off its answer|no connection)"),
        (Fault(Kind.TRUNCATED), "broke off its answer"),
        (Fault(Kind.STALLED, 5), "did not answer within 0.1 s"),
        (Fault(Kind.SLOW_HEADERS, 5), "did not answer within 0.1 s"),
        (Fault(Kind.HALF_JSON), "bytes that are not whole JSON"),
        (Fault.answer(200, b"xx", {"Content-Encoding": "gzip"}), "sent a damaged answer"),
    ],
)
def test_a_network_fault_is_retried_and_then_named(fault, says, caplog):
    with always(fault) as node:
        headers = {"Accept-Encoding": "identity"} if "damaged" in says else None
        timeout = 0.1 if "did not" in says else 60
        way = (lambda client: load(client, "2016-01-01")) if "reset" in says else ask
        error = failure(ba.Client(node.url, timeout=timeout, headers=headers), way)
    assert re.search(says, str(error))
    assert node.url in str(error)
    assert error.retryable
    assert sorted(re.findall(r"trying again \((\d) of 6\)", caplog.text)) == [*"23456"]


def test_a_server_without_tls_is_not_retried():
    with LoopbackNode() as node:
        error = failure(ba.Client(node.url.replace("http", "https")))
    assert "no secure connection" in str(error)
    assert not error.retryable


@pytest.mark.parametrize("text", ["", "-1", "x", "1.5", "²", "9" * 5000])
def test_a_block_height_that_is_not_a_number_is_unknown(text):
    headers = dict.fromkeys(("X-Block-Height", "X-Block-Timestamp"), text)
    note = load(client_to(LoopbackNode(ROWS, extra_headers=headers))).attrs[ATTRS_KEY]
    assert (note["block_height"], note["block_time"]) == (None, None)


class Clock:
    """A clock that only sleeping and the test move."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def refused(throttle, seconds):
    """Return how long a thread waits that was refused."""
    throttle.hold(seconds)
    return throttle.wait()


idle = st.tuples(st.just(0.0) | st.floats(0, 20), st.none() | st.floats(0.1, 5))


@given(st.none() | st.floats(0.1, 100), st.lists(idle, min_size=2, max_size=20))
def test_requests_keep_the_rate_and_wait_as_long_as_the_node_asks(per_second, requests):
    clock, slot, last = Clock(), 1 / per_second if per_second else 0, -math.inf
    longest = max(slot, 1 / 16)
    throttle = Throttle(per_second, clock=clock, sleep=clock.sleep)
    for seconds, pause in requests:
        clock.now += seconds
        waited = throttle.wait() if pause is None else refused(throttle, pause)
        assert clock.now >= last + slot - 1e-6
        longest = max(longest, pause or 0)
        assert (pause or 0) - 1e-6 <= waited <= longest + 1e-6
        last = clock.now


@pytest.mark.parametrize(("per_second", "gap"), [(2, 0.5), (None, 1 / 16)])
def test_requests_after_a_pause_keep_the_rate_and_are_spread(per_second, gap):
    throttle = Throttle(per_second, clock=Clock(), sleep=lambda _: None)
    slots = [throttle.wait() for _ in range(4 if per_second else 0)]
    slots += [refused(throttle, 1.0) for _ in range(4)]
    slots += [throttle.wait() for _ in range(3)]
    gaps = [after - before for before, after in itertools.pairwise(sorted(slots))]
    assert gap * 0.9 <= min(gaps) <= max(gaps) <= 2 * gap + 1e-9
    assert per_second is None or min(gaps) >= gap - 1e-9


def sized(head, body):
    return Fault.raw(lambda: [head + b"Content-Length: %d\r\n\r\n" % len(body) + body])


def raw_deflate(body):
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", raw_deflate),
        ("gzip, gzip", lambda body: gzip.compress(gzip.compress(body))),
        ("deflate, gzip", lambda body: gzip.compress(zlib.compress(body))),
        ("gzip", lambda body: gzip.compress(body[: len(body) // 50]) * 50),
    ],
)
def test_a_small_answer_that_unpacks_to_a_large_one_takes_little_memory(encoding, pack):
    head = OK + b"Content-Encoding: %s\r\n" % encoding.encode()
    with always(sized(head, pack(bytes(40_000_000)))) as node:
        tracemalloc.start()
        try:
            error = failure(ba.Client(node.url, max_answer_bytes=MOST))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert isinstance(error, ba.TooLargeError)
    assert not error.retryable
    assert "sent more than 1,000,000 bytes" in str(error)
    assert peak < 12 * MOST


@pytest.mark.parametrize("status", [b"200 OK", b"500 Internal Server Error", b"302 Found"])
def test_an_endless_answer_is_abandoned(status):
    def pieces():
        yield b"HTTP/1.1 %s\r\nLocation: /x\r\n\r\n" % status
        yield from itertools.repeat(bytes(100_000))

    with always(Fault.raw(pieces)) as node:
        assert failure(ba.Client(node.url, max_answer_bytes=MOST)).status == int(status[:3])


@pytest.mark.parametrize(("most", "is_read"), [(MOST, True), (MOST - 1, False)])
def test_an_answer_of_exactly_the_maximum_size_is_read(most, is_read):
    with (
        always(Fault.answer(200, b"[" + b" " * (MOST - 2) + b"]")) as node,
        pytest.raises(ba.DecodeError if is_read else ba.TooLargeError),
    ):
        ask(ba.Client(node.url, max_answer_bytes=most))


def test_a_trickling_body_is_abandoned_long_before_its_end(caplog):
    def trickle():
        yield OK + b"\r\n"
        for _ in range(1000):
            time.sleep(0.01)  # shorter than any timeout
            yield b" "

    with LoopbackNode(faults=[Fault.raw(trickle)]) as node:
        ask(ba.Client(node.url, timeout=0.1))
    assert "did not answer within 0.1 s; trying again" in caplog.text


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\xff" * 70_000,
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200,
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
        b"HTTP/9.9 2000 x\r\n\r\n",
        OK + b"Content-Length: 9\r\n\r\n1",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        OK + b"Content-Encoding: gzip\r\n\r\nxx",
        OK + b"Content-Encoding: gzip, gzip, gzip, gzip, gzip, gzip\r\n\r\nxx",
        *(
            b"HTTP/1.1 302 Found\r\nLocation: %s\r\n\r\n" % location
            for location in (b"http://[::1", b"\xff", b"ftp://host/x", b"", b"http://", b"//")
        ),
    ],
)
def test_an_answer_that_is_not_http_is_a_request_error(answer):
    with always(Fault.raw(lambda: [answer])) as node:
        assert failure(ba.Client(node.url)).url == node.url + LIMITS


def test_a_user_in_the_address_is_sent_to_the_node_and_appears_nowhere_else(caplog, tmp_path):
    caplog.set_level(logging.DEBUG)
    with LoopbackNode(ROWS, faults=[None, None, Fault.status(503)]) as node:
        client = ba.Client(node.url.replace("://", "://me:s3cret%2F%C3%A9@"))
        limits = ba.load_network_limits(client)
        table = load(pickle.loads(pickle.dumps(client)))
        node.faults = lambda *_: Fault.status(401)
        with pytest.raises(ba.RequestError) as caught:
            load(client)
        client.close()
    assert {request.headers["authorization"] for request in node.requests} == {ME}
    assert (client.base_url, limits.source) == (node.url, node.url)
    ba.write_parquet(table, tmp_path / "x.parquet")
    said = [
        *(repr(each) for each in (client, limits, table.attrs, caught.value, vars(caught.value))),
        str(caught.value),
        caplog.text,
        pickle.dumps(caught.value).decode("latin-1"),
        (tmp_path / "x.parquet").read_bytes().decode("latin-1"),
    ]
    assert not [text for text in said for secret in SECRETS if secret in text]


def test_a_copied_client_uses_the_session_that_it_was_given():
    client = client_to(LoopbackNode(ROWS))
    assert copy.copy(client).session is client.session
    with ba.Client(NOWHERE) as own:
        assert copy.copy(own).session is not own.session


@pytest.mark.parametrize(
    ("location", "address"),
    [
        ("https://new.test" + LIMITS, "https://new.test"),
        ("http://me:s3cret@new.test:3008/v/" + LIMITS[1:] + "?a=b", "http://***@new.test:3008/v"),
        ("/v3" + LIMITS, "{url}/v3"),
        ("/login", "{url}/login"),
    ],
)
@pytest.mark.parametrize("own_session", [True, False])
def test_a_redirect_is_not_followed_but_names_the_new_address(location, address, own_session):
    session = None if own_session else requests.Session()
    with always(Fault.status(307, {"Location": location})) as node:
        error = failure(ba.Client(node.url, session=session))
    address = address.format(url=node.url)
    assert str(error) == f"{node.url} redirects to {address}: give that address"
    assert (error.status, error.retryable, len(node.requests)) == (307, False, 1)


@pytest.mark.parametrize("name", ["Authorization", "authorization"])
def test_a_netrc_doesnt_replace_a_given_header(tmp_path, monkeypatch, name):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with LoopbackNode() as node:
        for headers in ({name: "Bearer x"}, {}):
            ask(ba.Client(node.url, headers=headers))
    given, of_netrc = (request.headers["authorization"] for request in node.requests)
    assert given == "Bearer x"
    assert of_netrc.startswith("Basic ")


def test_a_proxy_from_the_environment_is_used(monkeypatch):
    with LoopbackNode(limits=None) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        failure(ba.Client("http://node.test", headers={"Authorization": "Bearer x"}))
    assert proxy.requests[0].headers["host"] == "node.test"
