"""Ask a node again for what an archive holds, and compare."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from balance_analysis.archive import layout
from balance_analysis.archive.coverage import Coverage
from balance_analysis.archive.layout import Partition
from balance_analysis.archive.manifest import export_command
from balance_analysis.archive.snapshot import read_snapshot, with_snapshot
from balance_analysis.archive.status import Problem, VerifyReport
from balance_analysis.archive.store import Store
from balance_analysis.errors import ArchiveError
from balance_analysis.filters import Filters
from balance_analysis.frame import to_frame
from balance_analysis.load.nodes import NodePool
from balance_analysis.load.request import LoadRequest, check_positive
from balance_analysis.load.stream import Load
from balance_analysis.node.client import Client
from balance_analysis.schema import ACCOUNT_KEY, ARROW_SCHEMA, from_microseconds
from balance_analysis.spans import Span, clipped
from balance_analysis.text import list_text, moment_text, range_text, without_credentials

_PAGE: Final = 5000
_FILL: Final = 0.5
"""How full of rows a window's one page should be: rows don't come evenly."""

_FORGOTTEN: Final = "the node has forgotten rows of it"


def verify_against(
    report: VerifyReport, store: Store, client: Client, *, sample: int, seed: int | None
) -> VerifyReport:
    """Ask a node again for some windows of what is known to be complete, and compare exactly.

    Parameters
    ----------
    report
        What was found out before.
    sample, seed
        As for `Archive.verify`. One half of the windows are where rows are, the others anywhere.

    Returns
    -------
    VerifyReport
        With a problem for each window that differs, with the first rows that do. What the node has
        forgotten, or doesn't hold yet, is told in `not_compared`.
    """
    check_positive("sample", sample)
    snapshot = read_snapshot(store)
    about, state = snapshot.about, snapshot.coverage
    known = state.known()
    if not known:
        return replace(report, not_compared=("nothing is known to be complete",))
    first, last = state.bounds()
    retention = _retention_start(client, first, last)
    skipped = []
    if retention > first:
        skipped.append(f"{range_text(first, min(retention, last))}: {_FORGOTTEN}")
    spans = list(clipped(known, retention, last))
    problems, windows = [*report.problems], 0
    rng = random.Random(seed)  # noqa: S311 - nobody is to be kept from guessing
    for window in _windows(state, about.partition, spans, sample, rng):
        said, why_not = _compare(store, client, about.filters, window)
        if why_not:
            skipped.append(f"{range_text(*window)}: {why_not}")
            continue
        windows += 1
        if said:
            problems.append(_problem(store, client.base_url, about.partition, window, said))
    return replace(report, problems=tuple(problems), windows=windows, not_compared=tuple(skipped))


def _compare(store: Store, client: Client, filters: Filters, window: Span) -> tuple[str, str]:
    """Return what differs in a window, if anything does, and why it can't be compared, if so."""
    load = Load(LoadRequest(*window, filters, _PAGE, 1, "quarantine"))
    with NodePool(client, "quarantine") as pool:
        steps = list(load.steps(pool))
    if load.evidence.latest_block.lags(window[1] - 1):  # a finished last block ends what is covered
        return "", "the node doesn't hold all of it yet"
    if load.evidence.incomplete:
        return "", "the node says itself that it may lack rows of it"
    start, end = map(from_microseconds, window)
    try:
        held = with_snapshot(store, lambda x: x.read(Filters(), start=start, end=end))
        batches = [batch for step in steps for batch in step.batches]
        loaded = to_frame(pa.Table.from_batches(batches, ARROW_SCHEMA))
        said = difference(held, loaded, "the node")
    except ArchiveError as error:
        said = without_credentials(str(error))
    if said and _retention_start(client, *window) > window[0]:
        return "", _FORGOTTEN
    return said, ""


def _retention_start(client: Client, start: int, end: int) -> int:
    return NodePool(client, "quarantine").best_retention_start(start, end)


def _windows(
    state: Coverage, partition: Partition, spans: list[Span], sample: int, rng: random.Random
) -> Iterator[Span]:
    """Yield random windows inside spans, about half a page of rows each."""
    inside = {
        period: found
        for period, note in state.files.items()
        if (found := list(clipped(spans, note.first, note.last + 1)))
    }
    weights = [state.files[period].rows for period in inside]
    for number in range(sample if spans else 0):
        chosen = spans
        if number % 2 == 0 and inside:
            chosen = inside[rng.choices(list(inside), weights)[0]]
        moment = _moment_in(chosen, rng)
        period = layout.period_of(moment, partition)
        begin, stop = layout.period_bounds(period, partition)
        rows = state.files[period].rows if period in state.files else 0
        width = int((stop - begin) * min(1.0, _PAGE * _FILL / max(rows, 1)))
        yield next(clipped(spans, moment, min(moment + max(width, 1), stop)))


def _moment_in(spans: list[Span], rng: random.Random) -> int:
    """Return a random moment in spans."""
    start, end = rng.choices(spans, [end - start for start, end in spans])[0]
    return rng.randrange(start, end)


def _problem(store: Store, url: str, partition: Partition, window: Span, said: str) -> Problem:
    since, until = map(moment_text, window)
    return Problem(
        "difference",
        said,
        range_text(*window),
        export_command(store, "--repair", "--since", since, "--until", until, url=url),
        tuple(layout.periods_between(*window, partition)),
    )


def difference(held: pd.DataFrame, loaded: pd.DataFrame, source: str) -> str:
    """Return what differs between an archive's table and another; nothing where they are equal."""
    ours, theirs = _rows(held), _rows(loaded)
    places = sorted({place for place, _ in set(ours.items()) ^ set(theirs.items())})
    said = [
        f"at {moment_text(place[0])} the archive has {ours.get(place, 'no row')}, "
        f"{source} {theirs.get(place, 'no row')} of "
        + ", ".join(f"{name} {value!r}" for name, value in zip(ACCOUNT_KEY, place[1:], strict=True))
        for place in places
    ]
    return list_text(said, sep="; ", rest="{} rows more differ")


def _rows(table: pd.DataFrame) -> dict[tuple[Any, ...], int]:
    """Return balances by time and account."""
    plain = table.astype(dict.fromkeys(ACCOUNT_KEY, "str"))
    places = zip(table["timestamp"], *(plain[name] for name in ACCOUNT_KEY), strict=True)
    return dict(zip(places, map(int, table["balance"]), strict=True))
