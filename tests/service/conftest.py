from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import socket
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

import pytest
import requests

from tests.service.archives import write_archive
from tests.service.rows import block_of
from tests.serving import application, serving

CHANGES = "/api/v2/balance/changes"


def read_error(body):
    """Code and useful text of an error body, of which all has the interface's form."""
    (detail,) = body["details"]
    assert (detail["code"], detail["message"]) == (body["code"], body["message"])
    assert isinstance(body["code"], int), body
    assert detail["@type"] == "type.googleapis.com/vega.ErrorDetail"
    assert re.fullmatch(r"([A-Z][a-z]+)+ error", detail["message"])
    assert isinstance(detail["inner"], str)
    assert (*body, *detail) == ("code", "message", "details", "@type", "code", "message", "inner")
    inside = ("Traceback", "/tmp", "parquet", "duckdb", "balance_analysis", '.py"', "Error(")
    assert [word for word in inside if word in str(body)] == []
    return body["code"], detail["inner"]


def spoken(url, sent):
    """Head and body that come back for bytes that no HTTP library would send."""
    parts = urlsplit(url)
    address = (parts.hostname, parts.port)
    with (
        socket.create_connection(address, timeout=10) as client,
        client.makefile("rb") as received,
    ):
        client.sendall(sent)
        head = b"".join(iter(received.readline, b"\r\n"))
        length = re.search(rb"content-length: (\d+)", head)
        return head, json.loads(received.read(int(length[1]))) if length else None


class Node:
    """The service over an archive that a test may replace."""

    def __init__(self, url, path, session):
        self.url, self.path, self.session = url, path, session

    def hold(self, rows, **held):
        """Put another archive in the place of the one that is served."""
        replace_archive(self.path, rows, **held)

    def get(self, parameters=(), path=CHANGES):
        return self.session.get(self.url + path, params=parameters, timeout=10)

    def page(self, parameters=()):
        response = self.get(parameters)
        assert response.status_code == 200, response.text
        assert set(response.json()) == {"balances"}
        return response.json()["balances"]


def replace_archive(path, rows, **held):
    """Put an archive in the place of another, by two renames as a person would."""
    part, old = path.with_suffix(".part"), path.with_suffix(".old")
    write_archive(part, rows, **held)
    if path.exists():
        path.rename(old)
    part.rename(path)
    shutil.rmtree(old, ignore_errors=True)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self):
        return json.loads(self.body)


class InProcess:
    """The service without a socket, for many small requests."""

    def __init__(self, runner, app):
        self._runner, self.app = runner, app

    def get(self, items, *, method="GET", path=CHANGES):
        query = items if isinstance(items, str) else urlencode(items)
        return self._runner.run(_ask(self.app, method, path, query))


async def _ask(app, method, path, query):
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1")],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 80),
    }
    unread = [{"type": "http.request", "body": b"", "more_body": False}]
    sent = []

    async def receive():
        return unread.pop() if unread else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], headers, b"".join(part.get("body", b"") for part in sent[1:]))


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "archive"
    with serving(write_archive(path)) as url, requests.Session() as session:
        yield Node(url, path, session)


@pytest.fixture
def block(node):
    """A node that holds one block of 30 rows."""
    node.hold(block_of(30))
    return node


@contextlib.contextmanager
def holding(path):
    """Yield what puts an archive before a lax and a strict service, which have no sockets."""
    archive = write_archive(path)
    with asyncio.Runner() as runner:
        apps = application(archive), application(archive, strict_coverage=True)
        services = [InProcess(runner, app) for app in apps]

        def hold(held):
            replace_archive(path, **held._asdict())
            return services

        yield hold


@pytest.fixture(scope="module")
def held_in(tmp_path_factory):
    with holding(tmp_path_factory.mktemp("held") / "archive") as hold:
        yield hold
