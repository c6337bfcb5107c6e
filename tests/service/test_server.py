"""A server is up inside its block and gone after it, or until a signal."""

import asyncio
import contextlib
import gc
import itertools
import json
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import balance_analysis as ba
from balance_analysis.service import server
from tests.cli.running import child, invoke
from tests.service.archives import write_archive
from tests.service.rows import block_of, ordered
from tests.serving import CHANGES, application

PATIENCE = 60


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return write_archive(tmp_path_factory.mktemp("embedded") / "archive", block_of(5000))


@pytest.fixture(scope="module")
def app(archive):
    return application(archive)


def _address(url):
    host, port = url.removeprefix("http://").split(":")
    return host, int(port)


def _status(url):
    return requests.get(url + CHANGES, timeout=10).status_code


def _request(path, host="localhost"):
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


# In a block


def test_two_servers_serve_one_application_and_their_ports_are_free_at_once(app):
    with server.serve(app) as one, server.serve(app) as other:
        assert one != other
        assert (_status(one), _status(other)) == (200, 200)
    with server.serve(app, port=_address(one)[1]) as again:
        assert again == one
        with pytest.raises(OSError, match="in use"), server.serve(app, port=_address(one)[1]):
            pytest.fail("two servers share a port")


def test_an_error_in_the_block_stops_the_server_and_its_threads_and_keeps_handlers(app):
    before = set(threading.enumerate()), signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), server.serve(app) as url:  # noqa: PT012 - a block is tested
        assert (_status(url), signal.getsignal(signal.SIGINT)) == (200, before[1])
        raise KeyboardInterrupt
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(_address(url), timeout=1)
    for thread in set(threading.enumerate()) - before[0]:
        thread.join(2)
    assert (set(threading.enumerate()), signal.getsignal(signal.SIGINT)) == before


def test_nothing_is_printed_and_only_requests_are_logged(app, capfd, caplog):
    caplog.set_level(logging.INFO, logger="balance_analysis")
    with server.serve(app) as url, socket.create_connection(_address(url)) as client:
        _status(url)
        client.sendall(b"this is not HTTP\r\n\r\n")
        client.recv(1000)
    assert capfd.readouterr() == ("", "")
    logged = {(record.levelname, record.name) for record in caplog.records}
    assert logged == {("INFO", "balance_analysis")}
    assert f"GET {CHANGES} " in caplog.text


def test_the_server_listens_on_ipv6_too(app):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with server.serve(app, host="::1") as url:
        assert url.startswith("http://[::1]:")
        assert _status(url) == 200


# Misbehaving clients


HALF_SENT = [
    b"",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nab",
]


def is_closed(client, drips):
    """Whether the server has closed a connection, possibly after a few more bytes."""
    try:
        if drips:
            client.sendall(b"x")
        return client.recv(1 << 16) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_a_half_sent_request_is_closed_soon_even_if_it_trickles_in(app, monkeypatch):
    monkeypatch.setattr(server, "UNSENT", 0.2)
    assert server.UNREAD <= 75
    with server.serve(app) as url, contextlib.ExitStack() as stack:
        waiting = []
        for sent, drips in itertools.product(HALF_SENT, [False, True]):
            client = stack.enter_context(socket.create_connection(_address(url)))
            client.sendall(sent)
            client.settimeout(0.02)
            waiting.append((client, drips))
        began = time.monotonic()
        while waiting := [each for each in waiting if not is_closed(*each)]:
            assert time.monotonic() - began < 5


def _ask_slowly(url, sent):
    """A client that has sent a request and reads the answer slowly."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(20)
    client.connect(_address(url))
    client.sendall(sent)
    assert client.recv(1)
    return client


def _rest(client):
    answer = b""
    while not answer.endswith(b"}}}"):
        answer += client.recv(1 << 20)
    return answer


def test_many_connections_get_their_answers_beside_a_slow_reader(app):
    rows = ordered(block_of(5000))
    with server.serve(app) as url, contextlib.ExitStack() as stack:
        slow = _ask_slowly(url, _request(f"{CHANGES}?pagination.first=5000", "[::1]"))
        made = [slow, *(socket.create_connection(_address(url), timeout=20) for _ in range(40))]
        _, *clients = [stack.enter_context(client) for client in made]
        for number, client in enumerate(clients, 1):
            client.sendall(_request(f"{CHANGES}?pagination.first={number}"))
        for number, client in enumerate(clients, 1):
            assert _rest(client).count(b'"node"') == number
        edges = json.loads(_rest(slow).partition(b"\r\n\r\n")[2])["balances"]["edges"]
    assert [edge["node"] for edge in edges] == [row.to_json() for row in rows]


def test_a_server_stops_soon_and_closes_all_connections_despite_a_stalled_reader(app, monkeypatch):
    monkeypatch.setattr(server, "PATIENCE", 0.1)
    with contextlib.ExitStack() as stack:
        with server.serve(app) as url:
            more = _request(f"{CHANGES}?pagination.first=5000") * 8
            stack.enter_context(_ask_slowly(url, more))
            with socket.create_connection(_address(url)) as gone:  # one who leaves in the middle
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                gone.sendall(_request(CHANGES))
                gone.recv(1)
            assert [_status(url) for _ in range(3)] == [200] * 3
            began = time.monotonic()
        assert time.monotonic() - began < 5
        gc.collect()  # a connection that is left open warns then


# Until a signal


class Slow:
    """An application that answers when it is told to, in the event loop or in a thread."""

    def __init__(self, *, in_thread):
        self.asked, self.go = threading.Event(), threading.Event()
        self.app = Starlette(routes=[Route("/", self.wait if in_thread else self.sleep)])

    def wait(self, _request):
        self.asked.set()
        self.go.wait(PATIENCE)
        return PlainTextResponse("x" * 1_000_000)

    async def sleep(self, _request):
        self.asked.set()
        while not self.go.is_set():
            await asyncio.sleep(0.01)
        return PlainTextResponse("x" * 1_000_000)

    def end(self, *signals, is_answered=False):
        """What a client received, after signals to this process ended the server."""
        asked, got = [], []

        def send():
            assert self.asked.wait(PATIENCE)
            for number in signals:
                os.kill(os.getpid(), number)
                time.sleep(0.1)
            if is_answered:
                self.go.set()

        with ThreadPoolExecutor(2) as pool:

            def begin(url):
                asked.append(pool.submit(requests.get, url, timeout=PATIENCE))
                pool.submit(send)

            try:
                server.serve_until_signal(self.app, on_up=begin)
            except KeyboardInterrupt:
                got.append(KeyboardInterrupt)
            finally:
                self.go.set()
        error = asked[0].exception()
        return [*got, type(error) if error else len(asked[0].result().content)]


async def _wait_closed(self):
    while self._active_count:
        await asyncio.sleep(0.01)


IS_OLD = sys.version_info < (3, 12)


@pytest.fixture(params=[False, *[True] * IS_OLD], ids=["", *["3.13"] * IS_OLD])
def _harmless(request, monkeypatch):
    """Ignore late signals, which would end the tests; a closed server may wait for clients."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    if request.param:  # as from Python 3.12 on
        monkeypatch.setattr(asyncio.base_events.Server, "wait_closed", _wait_closed)
    yield
    signal.signal(signal.SIGTERM, before)
    gc.collect()  # a connection that is left open warns then


@pytest.mark.usefixtures("_harmless")
def test_a_running_answer_is_finished_after_a_signal():
    for number in (signal.SIGTERM, signal.SIGINT):
        assert Slow(in_thread=False).end(number, is_answered=True) == [1_000_000]


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.usefixtures("_harmless")
def test_a_too_slow_answer_is_abandoned_and_a_second_signal_ends_everything(monkeypatch, in_thread):
    got = Slow(in_thread=in_thread).end(signal.SIGTERM, signal.SIGINT)
    assert KeyboardInterrupt in got
    assert 1_000_000 not in got
    monkeypatch.setattr(server, "PATIENCE", 0.1)
    (got,) = Slow(in_thread=in_thread).end(signal.SIGTERM)
    assert got != 1_000_000


# The command


def test_a_port_in_use_is_named(archive):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = invoke(["serve", archive.uri, "--port", port])
    assert result.exit_code == 2
    assert f"127.0.0.1, port {port} can't be listened on: Address already in use" in result.stderr


def test_the_sample_is_served_with_all_options_and_logged_until_a_signal(sample, tmp_path):
    names = tmp_path / "names.csv"
    (party, *_) = ba.summarize_accounts(sample)["party_id"]
    names.write_text(f"id,label\n{party},Alice & Co\n")
    options = ["--allow-origin", "https://b.example", "--allow-origin", "https://a.example"]
    (tmp_path / "tmp").mkdir()
    own = {"env": {**os.environ, "TMPDIR": str(tmp_path / "tmp")}}
    with child("serve", "--demo", "--port", 0, "-v", *options, "--labels", names, **own) as process:
        try:
            line = process.stderr.readline()
            url = re.fullmatch(r"Serving .* at (http://127\.0\.0\.1:\d+), .*\n", line)[1]
            origin = {"Origin": "https://a.example"}
            answers = {
                host: requests.get(f"{url}/health", headers={**origin, "Host": host}, timeout=10)
                for host in ("localhost", "a.example", "c.example")
            }
            about = requests.get(f"{url}/explore/about", timeout=10).json()
            process.terminate()
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert (process.returncode, out) == (0, "")
    assert re.search(r"127\.0\.0\.1:\d+ 200 \d\.\d+ s: GET /health 1\.1\n", err)
    assert [*(tmp_path / "tmp").iterdir()] == []
    assert [each.status_code for each in answers.values()] == [200, 200, 400]
    assert answers["localhost"].json()["rows"] > 60_000
    assert answers["localhost"].headers["Access-Control-Allow-Origin"] == "https://a.example"
    assert about["labels"][party] == "Alice & Co"
