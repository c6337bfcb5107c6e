from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
from typing import NamedTuple
from urllib.parse import urlencode

import pytest
import requests

from tests.service.archives import write_archive
from tests.service.rows import block_of
from tests.serving import CHANGES, application, serving


def read_error(body):
    """Code and useful text of an error body, which must have the interface's form."""
    (detail,) = body["details"]
    assert (detail["code"], detail["message"]) == (body["code"], body["message"])
    assert isinstance(body["code"], int), body
    assert detail["@type"] == "type.googleapis.com/vega.ErrorDetail"
    assert re.fullmatch(r"([A-Z][a-z]+)+ error", detail["message"])
    assert (*body, *detail) == ("code", "message", "details", "@type", "code", "message", "inner")
    inside = ("Traceback", "/tmp", "parquet", "duckdb", "balance_analysis", '.py"', "Error(")
    assert [word for word in inside if word in str(body)] == []
    return body["code"], detail["inner"]


class Node:
    """The service over an archive that a test may replace."""

    def __init__(self, url, path, session):
        self.url, self.path, self.session = url, path, session

    def hold(self, rows, **held):
        """Put another archive in the place of the one that is served."""
        replace_archive(self.path, rows, **held)

    def get(self, parameters=(), path=CHANGES, **how):
        return self.session.get(self.url + path, params=parameters, timeout=20, **how)

    def page(self, parameters=()):
        response = self.get(parameters)
        assert response.status_code == 200, response.text
        assert set(response.json()) == {"balances"}
        return response.json()["balances"]

    def refusal(self, parameters=()):
        """The text of a refusal of wrong parameters."""
        response = self.get(parameters)
        code, text = read_error(response.json())
        assert (response.status_code, code) == (400, 3), response.text
        return text


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

    def get(self, items, *, path=CHANGES):
        return self._runner.run(_ask(self.app, path, urlencode(items)))


async def _ask(app, path, query):
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1")],
    }
    sent = []

    async def send(message):
        sent.append(message)

    await app(scope, None, send)
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
    """Yield what puts an archive before a service that has no socket, and returns the service."""
    archive = write_archive(path)
    with asyncio.Runner() as runner:
        service = InProcess(runner, application(archive))

        def hold(held):
            replace_archive(path, **held._asdict())
            return service

        yield hold


@pytest.fixture(scope="module")
def held_in(tmp_path_factory):
    with holding(tmp_path_factory.mktemp("held") / "archive") as hold:
        yield hold
