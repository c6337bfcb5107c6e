"""What a node sends can't take all memory or all time, and what it is told goes nowhere else."""

from __future__ import annotations

import base64
import gzip
import itertools
import logging
import pickle
import time
import tracemalloc
import zlib

import pytest
import requests
import stamina

import balance_analysis as ba
from balance_analysis.node.retry import ONCE
from tests.loopback import Fault, LoopbackNode, random_history
from tests.loopback.query import BALANCE_CHANGES, NETWORK_LIMITS
from tests.loopback.raw import raw_server

ROWS = random_history(5, rows=200, accounts=8)
MOST = 1_000_000
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
ME = "Basic " + base64.b64encode(b"me:s3cret/\xc3\xa9").decode()
SECRETS = ("s3cret", ME.split()[1])


@pytest.fixture(autouse=True)
def one_try():
    with stamina.set_testing(True, attempts=1):
        yield


def failure(url, *, timeout=5.0, **options):
    with (
        ba.Client(url, timeout=timeout, **options) as client,
        pytest.raises(ba.RequestError) as caught,
    ):
        client.get(NETWORK_LIMITS, [], len, retry=ONCE)
    return caught.value


def with_user(url):
    return url.replace("://", "://me:s3cret%2F%C3%A9@")


def sized(head, body):
    return lambda _: [head + b"Content-Length: %d\r\n\r\n" % len(body) + body]


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
    body = pack(bytes(60_000_000))
    head = OK + b"Content-Encoding: %s\r\n" % encoding.encode()
    with raw_server(sized(head, body)) as url:
        tracemalloc.start()
        try:
            error = failure(url, max_answer_bytes=MOST)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert isinstance(error, ba.TooLargeError)
    assert "sent more than 1,000,000 bytes" in str(error)
    assert peak < 12 * MOST


@pytest.mark.parametrize("status", [b"200 OK", b"500 Internal Server Error", b"302 Found"])
def test_an_endless_answer_is_left(status):
    def pieces(_):
        yield b"HTTP/1.1 %s\r\nLocation: /x\r\n\r\n" % status
        yield from itertools.repeat(bytes(100_000))

    with raw_server(pieces) as url:
        error = failure(url, max_answer_bytes=MOST)
    assert error.status == (None if status.startswith(b"302") else int(status[:3]))


@pytest.mark.parametrize("status", [200, 500])
def test_an_answer_of_just_the_maximum_is_read(status):
    with LoopbackNode(faults=[Fault.answer(status, b" " * MOST)]) as node:
        if status == 200:
            with ba.Client(node.url, max_answer_bytes=MOST) as client:
                assert client.get(NETWORK_LIMITS, [], len).value == MOST
        else:
            assert failure(node.url, max_answer_bytes=MOST).status == status


def test_a_load_asks_for_less_where_an_answer_is_too_large():
    with LoopbackNode(ROWS) as node, ba.Client(node.url, max_answer_bytes=20_000) as client:
        table = ba.load_balance_changes(client, start="2023-01-01", end="2023-12-01", workers=1)
        sizes = {int(request.get("pagination.first", "0")) for request in node.requests}
    assert len(table) == len(ROWS)
    assert min(sizes - {0, 1}) < 50


def trickled(*pieces):
    """Return an answer that goes on and on in steps shorter than any timeout."""

    def send(_):
        first, again = pieces
        yield first
        while True:
            time.sleep(0.01)
            yield again

    return send


def test_a_body_that_trickles_in_without_end_is_left():
    with raw_server(trickled(OK + b"\r\n", b" ")) as url:
        assert "did not answer within 0.1 s" in str(failure(url, timeout=0.1))


def test_redirects_without_end_are_left():
    answer = b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"
    with raw_server(lambda _: [answer]) as url:
        assert "redirects without an end" in str(failure(url))


@pytest.mark.parametrize("location", ["http://[::1", "\xff", "ftp://host/x", "", "http://", "//"])
def test_any_place_of_a_redirect_is_answered_or_told(location):
    answer = b"HTTP/1.1 302 Found\r\nLocation: %s\r\n\r\n" % location.encode("latin-1")
    with raw_server(lambda head: [OK + b"\r\n" if b"GET /?" in head else answer]) as url:
        assert failure(url).url == url + NETWORK_LIMITS


def test_a_user_in_the_address_is_sent_to_the_node_and_appears_nowhere_else(caplog, tmp_path):
    caplog.set_level(logging.DEBUG)
    with LoopbackNode(ROWS, faults=[None, None, Fault.status(503)]) as node:
        client = ba.Client(with_user(node.url))
        limits = ba.load_network_limits(client)
        table = ba.load_balance_changes(client, start="2023-01-01", end="2023-12-01")
        node.faults = lambda *_: Fault.status(401)
        with pytest.raises(ba.RequestError) as caught:
            ba.load_balance_changes(client, start="2023-01-01", end="2023-12-01")
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


def test_a_client_that_is_pickled_or_shared_keeps_the_user():
    with LoopbackNode(ROWS) as node, ba.Client(with_user(node.url)) as client:
        for copy in (pickle.loads(pickle.dumps(client)), client.paced(2.0)):
            with copy:
                copy.get(NETWORK_LIMITS, [], len)
    assert [request.headers["authorization"] for request in node.requests] == [ME, ME]


@pytest.mark.parametrize("address", ["https://me:s3cret@host/?x=1", "me:s3cret@host"])
def test_a_malformed_address_is_told_without_its_user(address):
    with pytest.raises(ValueError, match="is not the address of a node") as caught:
        ba.Client(address)
    assert "s3cret" not in str(caught.value)


def moved(url):
    return lambda _, request: Fault.status(307, {"Location": url + request.path})


@pytest.mark.parametrize("own_session", [True, False])
def test_headers_and_user_dont_follow_a_redirect_to_another_port(own_session):
    session = None if own_session else requests.Session()
    headers = {"X-Api-Key": "k", "Cookie": "c=1", "User-Agent": "mine"}
    with (
        LoopbackNode(ROWS) as new,
        LoopbackNode(ROWS, faults=moved(new.url)) as old,
        ba.Client(with_user(old.url), headers=headers, session=session) as client,
    ):
        answer = client.get(NETWORK_LIMITS, [], len)
    first, second = old.requests[0].headers, new.requests[0].headers
    assert (first["x-api-key"], first["cookie"], first["authorization"]) == ("k", "c=1", ME)
    assert not {"x-api-key", "cookie", "authorization"} & second.keys()
    assert (first["user-agent"], second["accept"]) == ("mine", "application/json")
    assert second["user-agent"].startswith("balance_analysis/")
    assert answer.source == new.url


def test_headers_follow_a_redirect_within_the_host(tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    def fault(index, request):
        return None if index else Fault.status(308, {"Location": f"/v3{BALANCE_CHANGES}"})

    with (
        LoopbackNode(ROWS, faults=fault) as node,
        ba.Client(with_user(node.url), headers={"X-Api-Key": "k"}) as client,
        pytest.raises(ba.RequestError, match="404"),
    ):
        client.get(BALANCE_CHANGES, [], len)
    for request in node.requests:
        assert (request.headers["x-api-key"], request.headers["authorization"]) == ("k", ME)
    assert node.requests[1].path == f"/v3{BALANCE_CHANGES}"


@pytest.mark.parametrize("name", ["Authorization", "authorization"])
def test_a_netrc_doesnt_replace_a_given_header(tmp_path, monkeypatch, name):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with LoopbackNode(ROWS) as node:
        for headers in ({name: "Bearer x"}, {}):
            with ba.Client(node.url, headers=headers) as client:
                client.get(NETWORK_LIMITS, [], len)
    given, found = (request.headers["authorization"] for request in node.requests)
    assert given == "Bearer x"
    assert found.startswith("Basic ")


def test_a_proxy_of_the_environment_is_used(monkeypatch):
    with LoopbackNode(ROWS) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        with (
            ba.Client("http://node.test", headers={"Authorization": "Bearer x"}) as client,
            pytest.raises(ba.RequestError),
        ):
            client.get("/nowhere", [], len)
    assert proxy.requests[0].headers["host"] == "node.test"


def test_the_source_of_a_load_is_the_node_that_answered():
    def to(_, request):
        query = "&".join(
            f"{name}={value}" for name, all_ in request.params.items() for value in all_
        )
        return Fault.status(302, {"Location": f"{new.url}{request.path}?{query}"})

    with (
        LoopbackNode(ROWS) as new,
        LoopbackNode(ROWS, faults=to) as old,
        ba.Client(old.url) as client,
    ):
        table = ba.load_balance_changes(client, start="2023-01-01", end="2023-12-01")
    assert len(table) == len(ROWS)
    assert table.attrs["balance_analysis"]["source"] == new.url


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
    ],
)
def test_http_that_is_none_is_a_request_error(answer):
    with raw_server(lambda _: [answer]) as url:
        assert isinstance(failure(url), ba.RequestError)
