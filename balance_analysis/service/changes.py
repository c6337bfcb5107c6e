"""The list of balance changes: one page of an archive, with what the archive may lack of it.

`parameters` reads what is asked, `reader` finds the rows, `listing` writes them. What may be
missing is time that is not covered, or not proven to be complete, and accounts that the archive
doesn't hold. A side without a bound is taken to end where the archive's coverage does: whoever
doesn't say how far back to go asks for what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from balance_analysis.archive.snapshot import LruCache, Snapshot, with_snapshot
from balance_analysis.evidence import Evidence
from balance_analysis.explorer.source import go_on
from balance_analysis.filters import Filters
from balance_analysis.schema import from_microseconds
from balance_analysis.service.errors import Code, RefusedError, refusing_while_unreadable
from balance_analysis.service.parameters import ChangesQuery, read_parameters
from balance_analysis.service.reader import Finder, Reader
from balance_analysis.spans import Span
from balance_analysis.text import list_text

if TYPE_CHECKING:
    from balance_analysis.archives import Archive

_MOST: Final = 50
"""Stretches that a header has room for."""


class Changes:
    """The balance changes of an archive, for any number of threads.

    Parameters
    ----------
    archive
        The archive; an export may go on meanwhile.
    strict_coverage
        Whether to refuse a request that reaches outside of what the archive vouches for, rather
        than to answer it with a warning.
    cache
        Where to keep what was read last, in bytes; by default one of its own.
    """

    def __init__(
        self, archive: Archive, *, strict_coverage: bool = False, cache: LruCache | None = None
    ) -> None:
        self._store, self._reader = archive.store, Reader(archive.store, cache=cache)
        self._strict = strict_coverage

    def answer(
        self, items: Sequence[tuple[str, str]], check: Callable[[], None] = go_on
    ) -> Response:
        """Return one page.

        Parameters
        ----------
        items
            Names and values of the query, decoded, in its order.
        check
            Called now and then; raises once nobody waits for the page.

        Raises
        ------
        RefusedError
            If the request is wrong, reaches outside of the coverage though that is refused, or the
            archive can't be read.
        """

        def read(snapshot: Snapshot) -> Response:
            check()
            return self._answer(items, Finder(snapshot, self._reader, check))

        with refusing_while_unreadable():
            return with_snapshot(self._store, read)

    def _answer(self, items: Sequence[tuple[str, str]], finder: Finder) -> Response:
        query = read_parameters(items, is_known_type=finder.has_account_type)
        lacks, gaps = _what_lacks(finder.snapshot, query)
        headers = evidence_headers(finder.snapshot.evidence)
        if lacks:
            said = list_text(lacks, sep="; ", rest="and {} more")
            if self._strict:
                raise RefusedError(
                    f"the archive does not vouch for all of this: {said}", code=Code.OUT_OF_RANGE
                )
            # Nanoseconds; where the gaps are very many, one stretch that holds them all.
            shown = gaps if len(gaps) <= _MOST else [(gaps[0][0], gaps[-1][1])]
            headers["Warning"] = f'199 - "{said}"'
            headers["X-Incomplete"] = ", ".join(f"{a * 1000}-{b * 1000}" for a, b in shown)
        body = finder.page(query)
        return Response(body, media_type="application/json", headers=headers)


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


def _what_lacks(snapshot: Snapshot, query: ChangesQuery) -> tuple[list[str], list[Span]]:
    """Return what may be missing in an answer, in words, and all stretches that may lack rows."""
    if query.filters is None:
        return [], []
    evidence = snapshot.evidence
    first, last = evidence.bounds
    start = first if query.start is None else query.start
    end = last if query.end is None else query.end
    accounts = list(_missing_accounts(evidence.filters, query.filters))
    if not accounts:
        evidence = evidence.narrow(query.filters)
    lacks = [*_missing_times(evidence, query, start, end), *accounts]
    if accounts:
        return lacks, [(start, end)] if start < end else []
    return lacks, _without_margin(evidence.incomplete(start, end), start, end)


def _missing_times(evidence: Evidence, query: ChangesQuery, start: int, end: int) -> Iterator[str]:
    if start >= end and query.start is not None and query.end is not None:
        return
    if not evidence.answers:
        yield "nothing is covered yet"
    elif start >= end:
        beyond = f"from {_iso(end)} on" if query.end is None else f"before {_iso(start)}"
        yield f"not covered: {beyond}"
    else:
        gaps = evidence.missing(start, end)
        doubted = evidence.within(start, end).unproven
        for what, spans in (("not covered", gaps), ("not known to be complete", doubted)):
            for begin, stop in _without_margin(spans, start, end):
                yield f"{what}: {_iso(begin)} to {_iso(stop)}"


def _without_margin(stretches: list[Span], start: int, end: int) -> list[Span]:
    """Return stretches without the range's first microsecond, if that is one.

    Careful clients send a bound that lies one before, as some server's start may be exclusive.
    """
    is_margin = start + 1 < end and stretches[:1] == [(start, start + 1)]
    return stretches[1:] if is_margin else stretches


def _missing_accounts(held: Filters, filters: Filters) -> Iterator[str]:
    asked = filters.allowed()
    for name, bound in held.allowed().items():
        if not asked.get(name) or not {*asked[name]} <= {*bound}:
            yield f"only accounts of some values of {name} are held"


def _iso(moment: int) -> str:
    return f"{from_microseconds(moment).replace(tzinfo=None).isoformat()}Z"
