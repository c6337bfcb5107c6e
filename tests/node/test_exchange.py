"""What a node sends can't take all memory or all time, and a password goes nowhere else."""

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

import balance_analysis as ba
from balance_analysis.node.client import ONCE
from tests.loopback import Fault, LoopbackNode, random_history
from tests.loopback.query import NETWORK_LIMITS
from tests.loopback.raw import raw_server

ROWS = random_history(5, rows=200, accounts=8)
MOST = 1_000_000
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
ME = "Basic " + base64.b64encode(b"me:s3cret/\xc3\xa9").decode()
SECRETS = ("s3cret", ME.split()[1])


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
    assert error.status == int(status[:3])


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


@pytest.mark.parametrize("location", ["http://[::1", "\xff", "ftp://host/x", "", "http://", "//"])
def test_any_place_of_a_redirect_is_a_request_error(location):
    answer = b"HTTP/1.1 302 Found\r\nLocation: %s\r\n\r\n" % location.encode("latin-1")
    with raw_server(lambda _: [answer]) as url:
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


def test_a_client_that_is_pickled_keeps_the_user():
    with LoopbackNode(ROWS) as node, ba.Client(with_user(node.url)) as client:
        pickle.loads(pickle.dumps(client)).get(NETWORK_LIMITS, [], len)
    assert [request.headers["authorization"] for request in node.requests] == [ME]


@pytest.mark.parametrize("address", ["https://me:s3cret@host/?x=1", "me:s3cret@host"])
def test_a_malformed_address_is_named_without_its_user(address):
    with pytest.raises(ValueError, match="is not the address of a node") as caught:
        ba.Client(address)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("location", "address"),
    [
        ("https://new.test" + NETWORK_LIMITS, "https://new.test"),
        (
            "http://me:s3cret@new.test:3008/v/" + NETWORK_LIMITS[1:] + "?a=b",
            "http://***@new.test:3008/v",
        ),
        ("/v3" + NETWORK_LIMITS, "{url}/v3"),
        ("/login", "{url}/login"),
    ],
)
@pytest.mark.parametrize("own_session", [True, False])
def test_a_redirect_is_not_followed_but_names_the_new_address(location, address, own_session):
    session = None if own_session else requests.Session()
    fault = Fault.status(307, {"Location": location})
    with LoopbackNode(ROWS, faults=lambda *_: fault) as node:
        error = failure(node.url, session=session)
    address = address.format(url=node.url)
    assert str(error) == f"{node.url} redirects to {address}: give that address"
    assert (error.status, error.retryable, len(node.requests)) == (307, False, 1)


@pytest.mark.parametrize("name", ["Authorization", "authorization"])
def test_a_netrc_doesnt_replace_a_given_header(tmp_path, monkeypatch, name):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with LoopbackNode(ROWS) as node:
        for headers in ({name: "Bearer x"}, {}):
            with ba.Client(node.url, headers=headers) as client:
                client.get(NETWORK_LIMITS, [], len)
    given, of_netrc = (request.headers["authorization"] for request in node.requests)
    assert given == "Bearer x"
    assert of_netrc.startswith("Basic ")


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
def test_what_is_no_http_is_a_request_error(answer):
    with raw_server(lambda _: [answer]) as url:
        assert isinstance(failure(url), ba.RequestError)
