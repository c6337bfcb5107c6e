"""Archives of given rows, committed as an export does, without a node."""

import json

from balance_analysis import Archive
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.lock import one_writer
from balance_analysis.archive.manifest import BoundQuery
from balance_analysis.table.evidence import from_json
from tests.moments import to_microseconds


def store_of(place):
    return (place if isinstance(place, Archive) else Archive(place)).store


def begin(folder, partition="day", **query):
    """Make an empty archive, bound to a query, and return its writer."""
    bound = BoundQuery(_evidence((), query).filters, partition)
    writer = Writer(Archive(folder).store, bound)
    writer.write_manifest(writer.manifest)
    return writer


def writer_of(archive):
    """Return the writer of an archive, or of one in a folder."""
    return Writer(store_of(archive))


def answered(span, source, asked_at, *, reached=True, height=None, **query):
    """Return the evidence of one answer: its span in microseconds, its node and its time."""
    answer = {
        "span": span,
        "node": {"name": source, "origin": [source]},
        "asked": [to_microseconds(asked_at)] * 2,
        "heights": None if height is None else [height] * 2,
        "reached": reached,
    }
    return _evidence([answer], query)


def _evidence(answers, query):
    """Return evidence from its JSON in a manifest."""
    filters = {name: ids if name == "asset_id" else sorted({*ids}) for name, ids in query.items()}
    return from_json({"filters": filters, "answers": answers})


def locked(archive):
    """Hold the lock of an archive, or of one in a folder."""
    return one_writer(store_of(archive))


def holder_of(archive):
    """Return the noted writer of an archive, or of one in a folder; empty if there is none."""
    return json.loads(store_of(archive).read("_lock.json") or b"{}")
