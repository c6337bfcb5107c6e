from __future__ import annotations

import datetime as dt
import email.utils
import itertools
import pickle
import re

import msgspec
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from balance_analysis import Client, RequestError, TooLargeError, __version__
from balance_analysis.node.client import ATTEMPTS, LONGEST_WAIT, Throttle
from tests.loopback import Fault, Kind, LoopbackNode, random_history
from tests.loopback.query import BALANCE_CHANGES
from tests.node.answers import page_of
from tests.node.asking import NOWHERE, session_to
from tests.waits import without_waits

ROWS = random_history(5, rows=20, accounts=8)
RANGE = [
    ("dateRange.startTimestamp", "1680307200000000000"),
    ("dateRange.endTimestamp", "1690307200000000000"),
]
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
    "half a document": Fault.answer(200, '{"balances": {'),
    "nothing": Fault.answer(200, ""),
    "not JSON": Fault.answer(200, "hello"),
}
NOT_RETRIED = {
    "400": Fault.code(400, 3),
    "401": Fault.status(401),
    "403": Fault.status(403),
    "404": Fault.code(404, 5),
    "414": Fault.html(414),
    "501": Fault.code(501, 12),
    "ban of 600 s": Fault.banned(600),
    "503 for 61 s": Fault.status(503, {"Retry-After": str(int(LONGEST_WAIT) + 1)}),
    "HTML": Fault.html(200),
    **{f"500 with code {code}": Fault.code(500, code) for code in (3, 5, 6, 7, 9, 11, 12, 16)},
}


@pytest.fixture(autouse=True)
def retries_without_waits():
    with without_waits():
        yield


@pytest.fixture
def node():
    return LoopbackNode(ROWS)


@pytest.fixture
def client(node):
    return Client(NOWHERE, session=session_to(node))


def failure(client, path=BALANCE_CHANGES):
    with pytest.raises(RequestError) as caught:
        client.get(path, RANGE, msgspec.json.decode)
    return caught.value


def test_a_request_accepts_json_and_names_package_and_version(node, client):
    client.get(BALANCE_CHANGES, RANGE, msgspec.json.decode)
    headers = node.requests[0].headers
    assert headers["accept"] == "application/json"
    assert headers["user-agent"].startswith(f"balance_analysis/{__version__} (")


@pytest.mark.parametrize("name", ["User-Agent", "user-agent"])
def test_the_callers_headers_win(node, name):
    headers = {name: "mine", "Authorization": "Bearer x"}
    with Client(NOWHERE, session=session_to(node), headers=headers) as client:
        client.get(BALANCE_CHANGES, RANGE, msgspec.json.decode)
    sent = node.requests[0].headers
    assert (sent["user-agent"], sent["authorization"]) == ("mine", "Bearer x")
    assert sent["accept"] == "application/json"


class Session(requests.Session):
    """A session that knows whether it has been closed."""

    closed = False

    def close(self):
        self.closed = True
        super().close()


def test_the_callers_session_is_not_closed():
    with Client("http://127.0.0.1", session=(session := Session())):
        pass
    assert not session.closed


def test_the_callers_session_may_stream():
    with LoopbackNode(ROWS, faults=[Fault(Kind.TRUNCATED)]) as node, requests.Session() as session:
        session.stream = True
        with Client(node.url, session=session) as client:
            client.get(BALANCE_CHANGES, RANGE, msgspec.json.decode)
    assert len(node.requests) == 2


@pytest.mark.parametrize("path", ["", "/", "/a/b//"])
def test_a_base_address_may_have_a_path_and_a_slash(node, path):
    node.faults = [Fault.answer(200, page_of())]
    Client(NOWHERE + path, session=session_to(node)).get(
        BALANCE_CHANGES, RANGE, msgspec.json.decode
    )
    assert node.requests[0].path == path.rstrip("/") + BALANCE_CHANGES


@pytest.mark.parametrize(
    "address",
    [
        "",
        "node.example.org",
        "localhost:3008",
        "ftp://node.example.org",
        "http://",
        "http:///api",
        "http://host:port",
        "http://host:99999",
        "http://[::1",
        "https://host/?x=1",
        "https://host/#top",
        None,
        5,
        b"http://host",
    ],
)
def test_what_is_not_an_address_is_refused_at_once(address):
    with pytest.raises(ValueError, match="is not the address of a node") as caught:
        Client(address)
    assert repr(address) in str(caught.value)


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "https://[::1]:3008/x", "HTTP://host"])
def test_an_address_passes(address):
    assert Client(address).base_url == address


@pytest.mark.parametrize("name", ["timeout", "max_requests_per_second", "max_answer_bytes"])
def test_a_number_that_is_not_positive_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be more than 0"):
        Client("http://host", **{name: 0})


def test_no_address_is_refused():
    with pytest.raises(ValueError, match="at least one node"):
        Client([])


def test_the_rate_is_kept_over_retries_too(node, client):
    slept = []
    client._throttle = Throttle(50, clock=lambda: 0.0, sleep=slept.append)
    node.faults = [Fault.status(503)] * 3
    client.get(BALANCE_CHANGES, RANGE, msgspec.json.decode)
    client.get(BALANCE_CHANGES, RANGE, msgspec.json.decode)
    slots = [seconds for seconds in slept if seconds < 0.5]
    assert slots == pytest.approx([1 / 50, 2 / 50, 3 / 50, 4 / 50])


def test_a_pause_before_another_try_is_longer_each_time(node):
    slept = []
    node.faults = lambda *_: Fault.status(503)
    with Client(NOWHERE, session=session_to(node), sleep=slept.append) as client:
        failure(client)
    assert len(slept) == ATTEMPTS - 1
    for number, seconds in enumerate(slept):
        assert 0.5 * 2**number <= seconds <= min(0.5 * 2**number + 1, 15)


def test_it_gives_up_after_all_attempts(node, client):
    node.faults = lambda *_: Fault.status(503)
    error = failure(client)
    assert len(node.requests) == ATTEMPTS
    assert (error.status, error.retryable) == (503, True)
    assert error.url.startswith(f"{NOWHERE}{BALANCE_CHANGES}?dateRange.startTimestamp=")


@pytest.mark.parametrize("fault", RETRIED.values(), ids=RETRIED)
def test_what_may_pass_is_asked_again(node, client, fault):
    node.faults = [fault] * (ATTEMPTS - 1)
    answer = client.get(BALANCE_CHANGES, RANGE, msgspec.json.decode).value
    assert len(answer["balances"]["edges"]) == len(ROWS)
    assert len(node.requests) == ATTEMPTS


@pytest.mark.parametrize("fault", NOT_RETRIED.values(), ids=NOT_RETRIED)
def test_what_would_fail_again_is_asked_once(node, client, fault):
    node.faults = lambda *_: fault
    error = failure(client)
    assert len(node.requests) == 1
    assert error.status == fault.http_status
    assert NOWHERE in str(error)


def test_an_unchanged_too_large_request_is_never_repeated(node, client):
    node.faults = lambda *_: Fault.too_large()
    error = failure(client)
    assert len(node.requests) == 1
    assert isinstance(error, TooLargeError)
    assert not error.retryable
    assert "ask for a smaller page_size" in str(error)


def test_an_error_has_the_nodes_code_and_its_useful_text(node, client):
    node.faults = [Fault.code(400, 3, "one or more party id is invalid")]
    error = failure(client)
    assert (error.status, error.code, error.retryable) == (400, 3, False)
    assert str(error) == (
        f"{NOWHERE} answered 400: invalid argument: one or more party id is invalid"
    )


@pytest.mark.parametrize(
    "body",
    ["", "[]", "5", '{"code": "x"}', '{"details": [1]}', '{"message": null}', "<html>", "\x00"],
)
def test_any_body_of_an_error_gives_its_status(node, client, body):
    node.faults = lambda *_: Fault.answer(400, body)
    assert failure(client).status == 400


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        (Fault.banned(600), 600),
        (Fault.status(403, {"Retry-After": "1", "Ratelimit-Retry-After": "300"}), 300),
    ],
)
def test_a_ban_beyond_the_cap_says_how_long(node, client, fault, seconds):
    node.faults = lambda *_: fault
    error = failure(client)
    assert error.retry_after == seconds
    assert re.search("asks to wait [0-9]+ s, longer than the 60 s", str(error))


def test_a_retry_after_may_be_a_date(node, client):
    moment = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=500)
    header = email.utils.format_datetime(moment, usegmt=True)
    node.faults = lambda *_: Fault.status(429, {"Retry-After": header})
    assert failure(client).retry_after == pytest.approx(500, abs=60)


@pytest.mark.parametrize("text", ["0", "0.0", "-5", "soon", "", "nan", "Thu, 01 Jan 1970"])
def test_an_odd_retry_after_does_not_stop_the_retry(node, client, text):
    node.faults = [Fault.status(503, {"Retry-After": text})]
    client.get(BALANCE_CHANGES, RANGE, msgspec.json.decode)
    assert len(node.requests) == 2


def test_a_node_that_says_1_s_again_and_again_is_asked_again_after_1_s_each_time(caplog):
    now, slept = [50.0], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    pauses = ATTEMPTS - 1
    node = LoopbackNode(faults=[Fault.rate_limited(1)] * pauses)
    with Client(NOWHERE, session=session_to(node)) as client:
        client._throttle = Throttle(0.8, clock=lambda: now[0], sleep=sleep)
        client.get(BALANCE_CHANGES, RANGE, msgspec.json.decode)
    assert slept == pytest.approx([1.25] * pauses)
    ours = [record for record in caplog.records if record.name == "balance_analysis"]
    said = [record.getMessage() for record in ours]
    assert [line.rpartition("; ")[2] for line in said] == ["it is asked again in 1.2 s"] * pauses


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault(Kind.RESET), "can't be reached.*reset"),
        (Fault(Kind.RESET_MIDWAY), "(broke off its answer|no connection)"),
        (Fault(Kind.TRUNCATED), "broke off its answer"),
        (Fault(Kind.STALLED, 5), "did not answer within 0.2 s"),
        (Fault(Kind.SLOW_HEADERS, 5), "did not answer within 0.2 s"),
        (Fault(Kind.HALF_JSON), "bytes that are not whole JSON"),
    ],
)
def test_a_fault_of_the_network_is_asked_again_and_then_named(fault, says):
    with (
        LoopbackNode(ROWS, faults=lambda *_: fault) as node,
        Client(node.url, timeout=0.2 if "did not" in says else 60) as client,
    ):
        error = failure(client)
        assert re.search(says, str(error))
        assert node.url in str(error)
        assert error.retryable
        assert len(node.requests) == ATTEMPTS


def test_a_damaged_encoding_is_asked_again_and_then_named():
    fault = Fault.answer(200, b"xx", {"Content-Encoding": "gzip"})
    with (
        LoopbackNode(ROWS, faults=lambda *_: fault) as node,
        Client(node.url, headers={"Accept-Encoding": "identity"}) as client,
    ):
        error = failure(client)
    assert "sent a damaged answer" in str(error)
    assert len(node.requests) == ATTEMPTS


def test_a_server_without_tls_is_not_asked_again():
    with LoopbackNode(ROWS) as node, Client(node.url.replace("http", "https")) as client:
        error = failure(client)
    assert "no secure connection" in str(error)
    assert not error.retryable


def test_the_last_block_of_the_node_comes_with_the_answer(node, client):
    node.block_height, node.block_timestamp = 77, 1_690_000_000_123_456_789
    answer = client.get(BALANCE_CHANGES, RANGE, msgspec.json.decode)
    assert (answer.block_height, answer.block_time) == (77, 1_690_000_000_123_456)


@pytest.mark.parametrize("text", ["", "-1", "x", "1.5", "²", "9" * 5000])
def test_a_block_that_is_no_number_is_unknown(node, client, text):
    headers = {"X-Block-Height": text, "X-Block-Timestamp": text}
    node.faults = [Fault.answer(200, page_of(), headers)]
    answer = client.get(BALANCE_CHANGES, RANGE, msgspec.json.decode)
    assert (answer.block_height, answer.block_time) == (None, None)


@pytest.mark.parametrize("kind", [RequestError, TooLargeError])
def test_an_error_pickles_with_its_attributes(kind):
    error = kind("it", url="u", status=429, code=8, retryable=True, retry_after=5.0)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (copy.args, vars(copy)) == (error.args, vars(error))


class Clock:
    """A clock that only sleeping and the test move."""

    def __init__(self):
        self.now = 100.0
        self.slept = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def throttle_of(per_second):
    clock = Clock()
    return Throttle(per_second, clock=clock, sleep=clock.sleep), clock


@given(st.floats(0.1, 100), st.lists(st.floats(0, 20), min_size=2, max_size=20))
def test_two_requests_are_never_closer_than_the_rate_allows(per_second, pauses):
    throttle, clock = throttle_of(per_second)
    moments = []
    for pause in pauses:
        clock.now += pause
        throttle.wait()
        moments.append(clock.now)
    for before, after in itertools.pairwise(moments):
        assert after - before >= 1 / per_second - 1e-6


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_a_rate_that_is_not_positive_is_refused(rate):
    with pytest.raises(ValueError, match=f"max_requests_per_second .*{rate!r}"):
        Throttle(rate)


def refused(throttle, seconds):
    """Return how long a thread waits that was refused."""
    throttle.hold(seconds)
    return throttle.wait()


@pytest.mark.parametrize("per_second", [None, 100, 0.9, 0.5])
def test_a_pause_is_waited_as_it_is_again_and_again(per_second):
    throttle, clock = throttle_of(per_second)
    throttle.wait()
    waits = [refused(throttle, 1.0) for _ in range(8)]
    slot = 0.0 if per_second is None else 1 / per_second
    assert waits == pytest.approx([max(1.0, slot)] * 8)
    assert clock.slept == waits


def test_a_pause_keeps_to_the_rate_of_the_caller():
    clock = Clock()
    throttle = Throttle(2, clock=clock, sleep=lambda _: None)
    slots = [throttle.wait() for _ in range(4)]
    slots += [refused(throttle, 1.0) for _ in range(3)]
    slots += [throttle.wait() for _ in range(3)]
    gaps = [after - before for before, after in itertools.pairwise(sorted(slots))]
    assert min(gaps) >= 0.5 - 1e-9


def test_a_pause_spreads_those_that_were_refused():
    clock = Clock()
    throttle = Throttle(None, clock=clock, sleep=lambda _: None)
    waits = [refused(throttle, 0.5) for _ in range(4)]
    assert waits == pytest.approx([0.5 + place / 16 for place in range(4)], abs=0.01)


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_refusals_slow_the_rate_down_to_a_pause_at_most(seconds):
    throttle, _ = throttle_of(None)
    for _ in range(20):
        refused(throttle, seconds)
    throttle.wait()
    assert throttle.wait() <= max(seconds, 1 / 16)
