"""Ask a service for views of the explorer, as a page does."""

from __future__ import annotations

from contextlib import contextmanager

from tests.report.reading import as_dicts, write_key
from tests.serving import answering

__all__ = ["as_dicts", "asking", "write_key"]


class Page:
    """Views by name; `accounts` are tuples of ids."""

    def __init__(self, service):
        self.service = service

    def get(self, view, *, accounts=(), **query):
        items = [("account", write_key(account)) for account in accounts]
        items += [(name, str(value)) for name, value in query.items() if value is not None]
        return self.service.get(items, f"/explore/{view}")

    def __call__(self, view, **query):
        answer = self.get(view, **query)
        assert answer.status == 200, answer.body
        return answer.json()


@contextmanager
def asking(archive, **options):
    with answering(archive, **options) as service:
        yield Page(service)
