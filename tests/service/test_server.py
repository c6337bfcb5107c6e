"""A server is up inside its block and gone after it, or until a signal."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import requests

from balance_analysis.service import server
from balance_analysis.service.app import create_app
from balance_analysis.service.server import serve
from tests.service.archives import write_archive
from tests.service.rows import block_of
from tests.service.rules import ordered
from tests.serving import CHANGES


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embedded") / "archive"
    return create_app(write_archive(folder, block_of(5000)))


def _address(url):
    host, port = url.removeprefix("http://").split(":")
    return host, int(port)


def _status(url):
    return requests.get(f"{url}/api/v2/balance/changes", timeout=10).status_code


def test_an_application_can_be_served_again_and_by_two_servers_at_once(app):
    for _ in range(2):
        with serve(app) as one, serve(app) as other:
            assert one != other
            assert (_status(one), _status(other)) == (200, 200)


def test_a_port_can_be_chosen_and_is_free_again_at_once(app):
    with serve(app) as url:
        _status(url)
    with serve(app, port=_address(url)[1]) as again:
        assert again == url


def test_answers_on_one_connection_are_not_delayed():
    """Only of a socket that names its protocol does asyncio turn off Nagle's delay."""
    with server._listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_a_port_in_use_raises(app):
    with (
        serve(app) as url,
        pytest.raises(OSError, match="in use"),
        serve(app, port=_address(url)[1]),
    ):
        pytest.fail("two servers share a port")


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
def test_an_error_passes_through_and_stops_the_server(app, error):
    with pytest.raises(error), serve(app) as url:
        raise error
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(_address(url), timeout=1)


def test_no_thread_is_left(app):
    before = set(threading.enumerate())
    with serve(app) as url:
        _status(url)
    for thread in set(threading.enumerate()) - before:
        thread.join(2)
    assert set(threading.enumerate()) <= before


def test_the_signal_handlers_stay_as_they_are(app):
    watched = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in watched]
    with serve(app):
        assert [signal.getsignal(number) for number in watched] == before
    assert [signal.getsignal(number) for number in watched] == before


def test_nothing_is_printed_and_only_requests_are_logged(app, capfd, caplog):
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.INFO, logger="balance_analysis")
    with serve(app) as url, socket.create_connection(_address(url)) as client:
        _status(url)
        client.sendall(b"this is not HTTP\r\n\r\n")
        client.recv(1000)
    assert capfd.readouterr() == ("", "")
    assert {record.levelname for record in caplog.records} == {"INFO"}
    assert {record.name for record in caplog.records} == {"balance_analysis"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_server_that_cannot_start_raises():
    with pytest.raises(RuntimeError, match="ended before"), serve("no_such_module:app"):
        pytest.fail("a server without an application is up")


def test_an_idle_connection_does_not_hold_the_server_up(app, monkeypatch):
    monkeypatch.setattr(server, "_PATIENCE", 60)
    with requests.Session() as session:
        with serve(app) as url:
            session.get(f"{url}/api/v2/network/limits", timeout=10)
            began = time.monotonic()
        assert time.monotonic() - began < 30


def test_a_client_that_does_not_read_is_cut_off(app, capfd):
    """Its unsent answers are dropped without a message or an unclosed socket."""
    request = b"GET /api/v2/balance/changes?pagination.first=5000 HTTP/1.1\r\nHost: [::1]\r\n\r\n"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with serve(app) as url:
            client.connect(_address(url))
            client.sendall(request * 8)
            time.sleep(0.5)
    gc.collect()
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux cuts them off")
def test_who_takes_nothing_of_an_answer_is_cut_off_meanwhile(app, monkeypatch):
    monkeypatch.setattr(server, "UNREAD", 200)
    with serve(app) as url, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(_address(url))
        request = f"GET {CHANGES}?pagination.first=5000 HTTP/1.1\r\nHost: [::1]\r\n\r\n"
        client.sendall(request.encode() * 8)
        line = "balance_analysis_service_in_flight 1.0"
        while line not in requests.get(f"{url}/metrics", timeout=10).text.splitlines():
            pass
        received = iter(lambda: client.recv(1 << 20), b"")
        with pytest.raises(ConnectionError):
            b"".join(received)


def test_a_slow_reader_gets_all_and_keeps_nobody_waiting(app):
    rows = block_of(5000)
    with serve(app) as url, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(20)
        client.connect(_address(url))
        client.sendall(
            f"GET {CHANGES}?pagination.first=5000 HTTP/1.1\r\nHost: [::1]\r\n\r\n".encode()
        )
        client.recv(1)
        assert [_status(url) for _ in range(3)] == [200] * 3
        rest = b"H"
        while not rest.endswith(b"}}}"):
            rest += client.recv(1 << 20)
    edges = json.loads(rest.partition(b"\r\n\r\n")[2])["balances"]["edges"]
    assert [edge["node"] for edge in edges] == [
        row.node for row in ordered(rows, newest_first=True)
    ]


@pytest.mark.parametrize("taken", [0, 3000])
def test_clients_that_leave_in_the_middle_leave_nothing_behind(app, taken):
    with serve(app) as url:
        _status(url)
        threads = threading.active_count()
        for _ in range(10):
            with socket.create_connection(_address(url)) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                client.sendall(f"GET {CHANGES} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                client.recv(taken or 1)
        assert _status(url) == 200
        assert threading.active_count() <= threads + 10


def test_a_hundred_connections_at_once_are_all_answered(app):
    with serve(app) as url, contextlib.ExitStack() as stack:
        found = [socket.create_connection(_address(url), timeout=20) for _ in range(100)]
        clients = [stack.enter_context(client) for client in found]
        for client in clients:
            client.sendall(
                f"HEAD {CHANGES}?pagination.first=1 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            )
        assert {client.recv(15) for client in clients} == {b"HTTP/1.1 200 OK"}


def test_the_server_listens_on_ipv6_too(app):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with serve(app, host="::1") as url:
        assert url.startswith("http://[::1]:")
        assert _status(url) == 200


FEW_FILES = """
import resource, sys
from balance_analysis import Archive
from balance_analysis.service.app import create_app
from balance_analysis.service.server import serve_until_told

resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))
serve_until_told(create_app(Archive(sys.argv[1])), on_up=lambda url: print(url, flush=True))
"""


def test_idle_connections_up_to_the_limit_of_files_stop_no_service(tmp_path):
    write_archive(tmp_path / "a", block_of(50))
    command = [sys.executable, "-c", FEW_FILES, str(tmp_path / "a")]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
        contextlib.ExitStack() as clients,
    ):
        url = server.stdout.readline().strip()
        for _ in range(3):
            for _ in range(100):
                clients.enter_context(socket.create_connection(_address(url), timeout=10))
            assert _status(url) == 200
        server.terminate()
    assert server.returncode == 0


SLOW = """
import asyncio, os, sys, threading
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from balance_analysis.service import server

async def slow(request):
    print("asked", flush=True)
    await asyncio.sleep(float(sys.argv[1]))
    return PlainTextResponse("x" * 1_000_000)

def slow_in_a_thread(request):
    print("asked", flush=True)
    threading.Event().wait(float(sys.argv[1]))
    return PlainTextResponse("x" * 1_000_000)

async def wait_closed(self):
    while self._active_count:
        await asyncio.sleep(0.01)

if "3.13" in sys.argv:  # from 3.12 on a closed server waits for its connections
    asyncio.base_events.Server.wait_closed = wait_closed
if "threads" in sys.argv:
    slow = slow_in_a_thread
server.PATIENCE = int(sys.argv[2])
app = Starlette(routes=[Route("/", slow)])
server.serve_until_told(app, on_up=lambda url: print(url, flush=True))
print("ended", flush=True)
if "threads" in sys.argv:  # as the command line ends
    os._exit(0)
"""


def _end(seconds, *signals, patience, how=()):
    """What a client got of an answer that takes so long, and after how many seconds all ended."""
    command = [sys.executable, "-c", SLOW, str(seconds), str(patience), *how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        got, url = [], server.stdout.readline().strip()

        def ask():
            try:
                got.append(len(requests.get(url, timeout=30).content))
            except requests.RequestException as error:
                got.append(type(error))

        client = threading.Thread(target=ask)
        client.start()
        assert server.stdout.readline() == "asked\n"
        began = time.monotonic()
        for number in signals:
            server.send_signal(number)
            time.sleep(0.2)
        said = server.stdout.read()
        took = time.monotonic() - began
        client.join()
    assert (server.returncode, said) == (0, "ended\n")
    return got, took


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_after_a_signal_an_answer_under_way_is_finished(number):
    got, _ = _end(0.5, number, patience=60)
    assert got == [1_000_000]


def test_after_a_signal_an_answer_that_takes_too_long_is_given_up():
    got, took = _end(60, signal.SIGTERM, patience=1)
    assert got != [1_000_000]
    assert took < 30


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("how", [(), ("3.13",), ("threads",), ("3.13", "threads")])
def test_a_second_signal_ends_the_server_at_once(number, how):
    got, took = _end(60, number, number, patience=60, how=how)
    assert got != [1_000_000]
    assert took < 30
