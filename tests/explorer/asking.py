"""Ask a service for views of the explorer, as a page does."""

from __future__ import annotations

from contextlib import contextmanager

import requests

from tests.report.reading import as_dicts, write_key
from tests.serving import serving

__all__ = ["as_dicts", "asking", "write_key"]


class Page:
    """Views by name, from a service at an address; `accounts` are tuples of ids."""

    def __init__(self, url, session):
        self.url, self._session = url, session

    def get(self, view, *, accounts=(), **query):
        items = [("account", write_key(account)) for account in accounts]
        items += [(name, str(value)) for name, value in query.items() if value is not None]
        return self._session.get(f"{self.url}/explore/{view}", params=items, timeout=60)

    def __call__(self, view, **query):
        answer = self.get(view, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, view, **query):
        answer = self.get(view, **query)
        return answer.status_code, answer.json()["details"][0]["inner"]


@contextmanager
def asking(archive, **options):
    with serving(archive, **options) as url, requests.Session() as session:
        yield Page(url, session)
