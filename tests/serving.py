"""An archive behind the interface: over HTTP at an address, or in process for many requests."""

import asyncio
import json
import re
import tempfile
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlencode

from balance_analysis.service.app import create_app as application
from balance_analysis.service.server import serve
from tests.loopback import CHANGES, LIMITS

__all__ = ["CHANGES", "LIMITS", "Answer", "Service", "answering", "application", "serving"]


@contextmanager
def serving(archive, **options):
    """Serve an archive from this process; yield the address."""
    with serve(application(archive, **options)) as url:
        yield url


class Answer(NamedTuple):
    """An answer; names of headers are in small letters."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """Status, code and useful text of an error, which must have the interface's form."""
        body = self.json()
        (detail,) = body["details"]
        assert (detail["code"], detail["message"]) == (body["code"], body["message"])
        assert isinstance(body["code"], int), body
        assert detail["@type"] == "type.googleapis.com/vega.ErrorDetail"
        assert re.fullmatch(r"([A-Z][a-z]+)+ error", detail["message"])
        names = "code", "message", "details", "@type", "code", "message", "inner"
        assert (*body, *detail) == names
        inside = ("Traceback", "parquet", "duckdb", "balance_analysis", '.py"', "Error(")
        assert [word for word in (tempfile.gettempdir(), *inside) if word in str(body)] == []
        return self.status, body["code"], detail["inner"]


class Service:
    """The service over an archive, asked without a socket."""

    def __init__(self, app, runner):
        self.app, self._runner = app, runner

    def run(self, *asked):
        """Return the answers of questions that are asked at the same time."""

        async def all_():
            return await asyncio.gather(*asked)

        return self._runner.run(all_())

    def get(self, items=(), path=CHANGES, **how):
        return self.run(self.ask(items, path, **how))[0]

    def page(self, items=()):
        answer = self.get(items)
        assert answer.status == 200, answer.body
        assert set(answer.json()) == {"balances"}
        return answer.json()["balances"]

    def pages(self, items):
        """Yield the pages of a list, each requested when it is needed."""
        asked, more = dict(items), True
        while more:
            page = self.page(asked)
            yield page
            info = page["pageInfo"]
            more, asked["pagination.after"] = info["hasNextPage"], info["endCursor"]

    async def ask(self, items=(), path=CHANGES, *, method="GET", **headers):
        """Return an answer; a header's name is written with _ for -."""
        sent, named = [], {"host": "127.0.0.1", **headers}
        raw = [(name.replace("_", "-").encode(), text.encode()) for name, text in named.items()]
        scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": raw}

        async def send(message):
            sent.append(message)

        await self.app({**scope, "query_string": urlencode(items).encode()}, None, send)
        received = {name.decode(): text.decode() for name, text in sent[0]["headers"]}
        body = b"".join(part.get("body", b"") for part in sent[1:])
        return Answer(sent[0]["status"], received, body)


@contextmanager
def answering(archive, **options):
    """Yield the service over an archive, without a socket."""
    with asyncio.Runner() as runner:
        yield Service(application(archive, **options), runner)
