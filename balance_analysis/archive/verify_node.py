"""Ask a node again for what an archive holds, and compare."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from balance_analysis.archive import layout
from balance_analysis.archive.manifest import read_about, read_coverage
from balance_analysis.archive.verify_report import Problem, VerifyReport
from balance_analysis.errors import ArchiveError
from balance_analysis.load.changes import PartialLoad
from balance_analysis.load.nodes import NodePool
from balance_analysis.load.request import LoadRequest, check_positive
from balance_analysis.load.stream import Load
from balance_analysis.redact import without_credentials
from balance_analysis.schema import ACCOUNT_KEY, from_microseconds
from balance_analysis.spans import clipped
from balance_analysis.text import iso_text, list_text, range_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from balance_analysis.archive.coverage import Coverage
    from balance_analysis.archive.layout import Partition
    from balance_analysis.archive.store import Store
    from balance_analysis.filters import Filters
    from balance_analysis.node.client import Client
    from balance_analysis.spans import Span

_PAGE: Final = 5000
_FILL: Final = 0.5
"""How full of rows a window's one page should be: rows don't come evenly."""

Row = tuple[Any, ...]


def verify_against(
    store: Store,
    read: Callable[..., pd.DataFrame],
    client: Client,
    *,
    sample: int = 10,
    seed: int | None = None,
) -> VerifyReport:
    """Ask a node again for some windows of what is known to be complete, and compare exactly.

    Parameters
    ----------
    store
        The archive.
    read
        Reads its rows of an interval: `Archive.read`.
    client
        The node, or several nodes of one network.
    sample
        How many windows, each about half a page of rows: one half of them where rows are, the other
        anywhere.
    seed
        Makes the choice of windows the same each time.

    Returns
    -------
    VerifyReport
        For each window that differs a problem, with the first rows that do. What the node has
        forgotten, or doesn't hold yet, is told in `not_compared`.

    Raises
    ------
    ArchiveError
        If there is no archive, or it is damaged.
    RequestError, DecodeError, IncompleteError, CheckError
        As `load_balance_changes`.
    ValueError, TypeError
        If `sample` is no whole number of at least 1.
    """
    check_positive("sample", sample)
    about, state = read_about(store), read_coverage(store)
    report = VerifyReport(without_credentials(store.uri))
    proven = [(each.start, each.end) for each in state.intervals if each.proven]
    if not proven:
        return replace(report, not_compared=("nothing is known to be complete",))
    first, last = proven[0][0], proven[-1][1]
    remembered = _remembered(client, first, last)
    skipped = []
    if remembered > first:
        skipped.append(
            f"{range_text(first, min(remembered, last))}: the node has forgotten rows of it"
        )
    spans = [(max(start, remembered), end) for start, end in proven if end > remembered]
    problems, windows = [], 0
    rng = random.Random(seed)  # noqa: S311 - nobody is to be kept from guessing
    for window in _windows(state, about.partition, spans, sample, rng):
        said, why_not = _compare(read, client, about.filters, window)
        if why_not:
            skipped.append(f"{range_text(*window)}: {why_not}")
            continue
        windows += 1
        if said:
            problems.append(_problem(report.uri, about.partition, window, said))
    return replace(report, problems=tuple(problems), windows=windows, not_compared=tuple(skipped))


def _compare(
    read: Callable[..., pd.DataFrame], client: Client, filters: Filters, window: Span
) -> tuple[str, str]:
    """Return what differs in a window, if anything does, and why it can't be compared, if so."""
    load = Load(LoadRequest(*window, filters, _PAGE, 1, "quarantine"), is_part=True)
    loaded = PartialLoad(client, load).finish(progress=False)
    if load.head.lags(window[1] - 1):  # a finished last block ends what is covered
        return "", "the node doesn't hold all of it yet"
    if load.incomplete:
        return "", "the node says itself that it may lack rows of it"
    start, end = map(from_microseconds, window)
    try:
        said = _difference(read(start=start, end=end), loaded)
    except ArchiveError as error:
        said = without_credentials(str(error))
    if said and _remembered(client, *window) > window[0]:
        return "", "the node has forgotten rows of it"
    return said, ""


def _remembered(client: Client, start: int, end: int) -> int:
    return NodePool(client, "quarantine").remembered(start, end)


def _windows(
    state: Coverage, partition: Partition, spans: list[Span], sample: int, rng: random.Random
) -> Iterator[Span]:
    """Yield random windows inside spans, about half a page of rows each."""
    spans = [(start, end) for start, end in spans if start < end]
    if not spans:
        return
    files = {
        period: note.rows
        for period, note in state.files.items()
        if any(note.first < end and note.last >= start for start, end in spans)
    }
    for number in range(sample):
        if number % 2 == 0 and files:
            period = rng.choices(list(files), weights=list(files.values()))[0]
            note = state.files[period]
            inside = list(clipped(spans, note.first, note.last + 1))
        else:
            inside = spans
        moment = _moment_in(inside, rng)
        period = layout.period_of(moment, partition)
        begin, stop = layout.bounds_of(period, partition)
        rows = state.files[period].rows if period in state.files else 0
        width = stop - begin
        if rows > _PAGE * _FILL:
            width = max(1, int(width * _PAGE * _FILL / rows))
        span = next(span for span in spans if span[0] <= moment < span[1])
        yield moment, min(moment + width, span[1], stop)


def _moment_in(spans: list[Span], rng: random.Random) -> int:
    """Return a random moment in spans."""
    place = rng.randrange(sum(end - start for start, end in spans))
    for start, end in spans:
        if place < end - start:
            return start + place
        place -= end - start
    raise AssertionError("the place lies in one of the spans")


def _problem(uri: str, partition: Partition, window: Span, said: str) -> Problem:
    since, until = map(iso_text, window)
    return Problem(
        "difference",
        said,
        range_text(*window),
        f"balance-analysis export URL {uri} --repair --since {since} --until {until}",
        tuple(layout.periods_between(*window, partition)),
    )


def _difference(held: pd.DataFrame, loaded: pd.DataFrame) -> str:
    """Return what differs between two tables; nothing where they are equal."""
    ours, theirs = _rows(held), _rows(loaded)
    places = sorted({place for place, _ in set(ours.items()) ^ set(theirs.items())})
    if not places:
        return ""
    said = [
        f"at {pd.Timestamp(place[0]).isoformat()} the archive has {ours.get(place, 'no row')}, the "
        f"node {theirs.get(place, 'no row')} of "
        + ", ".join(f"{name} {value!r}" for name, value in zip(ACCOUNT_KEY, place[1:], strict=True))
        for place in places
    ]
    return list_text(said, sep="; ", rest="{} rows more differ")


def _rows(table: pd.DataFrame) -> dict[Row, int]:
    """Return balances by time and account."""
    plain = table.astype(dict.fromkeys(ACCOUNT_KEY, "str"))
    places = zip(table["timestamp"], *(plain[name] for name in ACCOUNT_KEY), strict=True)
    return dict(zip(places, map(int, table["balance"]), strict=True))
