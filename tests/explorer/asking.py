"""Ask a service for views of the explorer, as a page does."""

from contextlib import contextmanager

from tests.report.reading import as_dicts, write_key
from tests.serving import answering

__all__ = ["as_dicts", "asking", "rows_of", "write_key"]


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


def rows_of(records, *names):
    """The rows of an answer, amounts as integers; of all columns, or some."""
    names = names or [one["name"] for one in records["columns"]]
    kinds = {one["name"]: one["kind"] for one in records["columns"]}
    return [
        tuple(int(x[n]) if kinds[n] == "amount" and x[n] is not None else x[n] for n in names)
        for x in as_dicts(records)
    ]


@contextmanager
def asking(archive, **options):
    with answering(archive, **options) as service:
        yield Page(service)
