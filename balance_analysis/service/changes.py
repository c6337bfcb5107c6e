"""The list of balance changes: one page of an archive, and where rows of it may be missing.

`parameters` reads what is asked, `reader` finds the rows, `listing` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from starlette.responses import Response

from balance_analysis.archive.snapshot import Snapshot, with_snapshot
from balance_analysis.archive.store import Store
from balance_analysis.evidence import Evidence
from balance_analysis.service.parameters import ChangesQuery, read_parameters
from balance_analysis.service.reader import Finder, Reader
from balance_analysis.spans import Span

_MOST: Final = 50
"""Stretches that a header has room for."""

_ALWAYS: Final = -(2**63) // 1000 + 1, 2**63 // 1000
"""All microseconds that 64 bits of nanoseconds hold."""


def answer_changes(
    store: Store,
    reader: Reader,
    items: Sequence[tuple[str, str]],
    check: Callable[[], None] = lambda: None,
) -> Response:
    """Return one page of the balance changes of an archive.

    Parameters
    ----------
    store, reader
        The archive's files, and their reader; an export may go on meanwhile.
    items
        Names and values of the query, decoded, in its order.
    check
        Called now and then; raises once nobody waits for the page.

    Raises
    ------
    HTTPException
        If the request is wrong.
    ArchiveError, OSError
        If the archive can't be read.
    """

    def read(snapshot: Snapshot) -> Response:
        check()
        finder = Finder(snapshot, reader, check)
        query = read_parameters(items, is_known_type=finder.has_account_type)
        headers = evidence_headers(snapshot.evidence)
        if spans := _incomplete(snapshot.evidence, query):
            # Where they are very many, one stretch that holds them all.
            shown = spans if len(spans) <= _MOST else [(spans[0][0], spans[-1][1])]
            headers["X-Incomplete"] = ", ".join(f"{a * 1000}-{b * 1000}" for a, b in shown)
        return Response(finder.page(query), media_type="application/json", headers=headers)

    return with_snapshot(store, read)


def evidence_headers(evidence: Evidence) -> dict[str, str]:
    """Return the headers that say up to where the archive answers, and where its rows are from.

    `X-Block-Timestamp` is where its answers end, in nanoseconds, and `X-Block-Height` the last
    block that the node held which gave the last of them. `X-Origins` has the origins of all
    answers: whoever compares this service with them has no second source.
    """
    headers = {"X-Origins": ", ".join(sorted({x for y in evidence.answers for x in y.node.origin}))}
    for newest in evidence.answers[-1:]:
        headers["X-Block-Timestamp"] = str(newest.span[1] * 1000)
        if newest.heights is not None:
            headers["X-Block-Height"] = str(newest.heights[1])
    return headers


def _incomplete(evidence: Evidence, query: ChangesQuery) -> list[Span]:
    """Return the stretches of which an answer may lack rows: of time, or of accounts.

    A side without a bound ends where the archive's coverage does: whoever doesn't say how far back
    to go asks for what there is. Where the other bound lies beyond that, it has no end.
    """
    if query.filters is None:
        return []
    start, end = (
        bound if given is None else given
        for given, bound in zip((query.start, query.end), evidence.bounds, strict=True)
    )
    if start >= end:
        start, end = (
            bound if given is None else given
            for given, bound in zip((query.start, query.end), _ALWAYS, strict=True)
        )
    held, asked = evidence.filters.allowed(), query.filters.allowed()
    if not all(asked.get(name) and {*asked[name]} <= {*held[name]} for name in held):
        return [(start, end)] if start < end else []
    spans = evidence.narrow(query.filters).incomplete(start, end)
    # Careful clients send a bound that lies one before, as some server's start may be exclusive.
    is_margin = start + 1 < end and spans[:1] == [(start, start + 1)]
    return spans[1:] if is_margin else spans
