"""One HTML file that tells what an archive or a table holds: for a team to open each morning."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd
from markupsafe import Markup

from balance_analysis.analysis.checks import check_table
from balance_analysis.analysis.history import History, open_history
from balance_analysis.analysis.selection import cut
from balance_analysis.archive.snapshot import with_snapshot
from balance_analysis.archives import Archive, to_archive
from balance_analysis.errors import CheckError
from balance_analysis.explorer.page import freeze_page
from balance_analysis.explorer.source import TableState, completeness, notes_of, title_of
from balance_analysis.explorer.wire import Key, keys_of
from balance_analysis.files.atomic import PathLike, check_output, replacing
from balance_analysis.names import AssetsLike, LabelsLike, Names, carried, note_names, read_names
from balance_analysis.schema import (
    ACCOUNT_KEY,
    ATTRS_KEY,
    Instant,
    from_microseconds,
    to_bounds,
    to_microseconds,
)
from balance_analysis.spans import Span, between
from balance_analysis.text import count_text, moment_text, range_text, without_credentials

_ROOM: Final = 3_500_000
"""Bytes of packed data that, as text and with the page around it, are less than 5 MB."""

_MOST_WARNED: Final = 20


def write_report(
    source: Archive | PathLike | pd.DataFrame,
    path: PathLike,
    *,
    start: Instant | None = None,
    end: Instant | None = None,
    accounts: pd.DataFrame | Iterable[Key] = (),
    largest: int | None = None,
    assets: AssetsLike | None = None,
    labels: LabelsLike | None = None,
) -> None:
    """Write a report on an archive or a table: the explorer, frozen into one HTML file.

    It needs no network. It shows the balances of accounts over time, and of each asset what its
    accounts hold by type, what flowed, who holds most and who moved most, over the last day, week,
    month and three months, and over all; the network's limits; and what each account did, row by
    row. Tables have every digit. The file has at most 5 MB: of more accounts than fit, it has the
    largest, and says so.

    A source is reported on as it is: what is missing, unproven or not known in it stands at the
    top, and what may have changed there is unknown. Where a sum has more than 38 digits, the page
    says so instead of that view. An archive is verified, for which all of its files are read.

    Parameters
    ----------
    source
        An archive, or its address; or a table of balance changes.
    path
        The file; one that stands there is replaced, whole. The same source and options give the
        same bytes.
    start, end
        The interval, half-open; without a time zone UTC. By default all that the archive was asked
        for, or the table was loaded for; else all that is known of the table, and its rows.
    accounts
        The accounts that the page begins with: a frame with `ACCOUNT_KEY`, or tuples of it. By
        default the largest.
    largest
        The most accounts of each asset whose history the page has, those that hold most at the end
        first; by default as many as fit.
    assets, labels
        What assets are called and how many decimals they have, as `read_assets` takes it, and own
        names, as `read_labels` does, over what the archive or the table tells. Amounts of an asset
        of which nothing tells are in the smallest unit.

    Raises
    ------
    ArchiveError
        If there is no archive, or it can't be read.
    CheckError
        If two rows of one account and timestamp differ in balance.
    ValueError, TypeError
        If an account is not in the data, an option is malformed, or `start` is not before the end;
        or if the file would lie in an archive, or replace that of names.
    OSError
        If a file can't be read or written.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL", "party_id": "a1",
    ...     "market_id": "", "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03"], utc=True),
    ...     "balance": [5, 7],
    ... })
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = pathlib.Path(folder, "report.html")
    ...     write_report(table, page)
    ...     page.read_text(encoding="utf-8")[:15]
    '<!doctype html>'
    """
    read = [each for each in (assets, labels) if isinstance(each, str | os.PathLike)]
    check_output(path, inputs=read)
    if largest is not None and largest < 0:
        raise ValueError(f"largest must be at least 0, not {largest}")
    given = read_names(assets, labels)
    wanted = [*dict.fromkeys(keys_of(accounts) if isinstance(accounts, pd.DataFrame) else accounts)]
    bounds = to_bounds(start, end)
    if isinstance(source, pd.DataFrame):
        found = _of_table(source, bounds, given)
    else:
        archive = to_archive(source)
        found = with_snapshot(
            archive.store, lambda now: _of_archive(archive.at(now), bounds, given)
        )
    known = {*keys_of(found.state.history.accounts)} if wanted else set()
    if missing := [account for account in wanted if account not in known]:
        raise ValueError(
            f"{len(missing)} of the accounts are not in the data, such as {missing[0]!r}; take "
            f"accounts, a frame or tuples of {ACCOUNT_KEY}, from the archive's or table's summary"
        )
    page = freeze_page(found.state, _head(found), room=_ROOM, first=wanted, largest=largest)
    with replacing(path) as temporary:
        temporary.write_bytes(page.encode())


@dataclass(frozen=True, slots=True)
class _Subject:
    """What a report is about.

    Attributes
    ----------
    state
        What the page shows.
    facts
        What is known of where the rows come from: names and texts.
    checked, problems
        What was checked, in words, and what is wrong.
    """

    state: TableState
    facts: tuple[tuple[str, str], ...]
    checked: str
    problems: tuple[str, ...]


def _of_archive(archive: Archive, asked: tuple[int | None, int | None], given: Names) -> _Subject:
    coverage, extent = archive.coverage(), None
    if not coverage.empty:
        extent = to_microseconds(coverage["start"].min()), to_microseconds(coverage["end"].max())
    span = _interval(asked, extent)
    start, end = (None, None) if span is None else map(from_microseconds, span)
    table = archive.read(start=start, end=end, opening=True, partial=True)
    verified = archive.verify()
    return _Subject(
        TableState(
            _named(open_history(table), given),
            bounds=span or (0, 0),
            name=title_of(archive),
            notes=notes_of(archive),
        ),
        facts=tuple(_facts_of(archive, coverage)),
        checked=(
            f"the whole archive was read and compared with its own records: "
            f"{verified.files:,} files with {verified.rows:,} rows, and its checkpoints"
        ),
        problems=tuple(f"{found.where}: {found.what}; {found.mend}" for found in verified.problems),
    )


def _interval(asked: tuple[int | None, int | None], extent: Span | None) -> Span | None:
    """Return the interval of a report; `None` where one of its ends is not known."""
    ends = zip(asked, extent or (None, None), strict=True)
    start, end = (bound if given is None else given for given, bound in ends)
    if start is None or end is None:
        return None
    if start >= end:
        raise ValueError(
            f"a report must start before it ends, but it would be from {range_text(start, end)}"
        )
    return start, end


def _facts_of(archive: Archive, coverage: pd.DataFrame) -> Iterator[tuple[str, str]]:
    yield "archive", without_credentials(archive.uri)
    yield "holds", str(archive.snapshot().manifest.query)
    asked = coverage[coverage["asked_at"].notna()]
    if asked.empty:
        yield "filled", "never"
        return
    last = asked.iloc[asked["asked_at"].argmax()]
    yield "source", without_credentials(last["source"])
    yield "last asked", moment_text(last["asked_at"])
    if pd.notna(last["block_height"]):
        yield "last block", f"{last['block_height']:,}"


def _of_table(data: pd.DataFrame, asked: tuple[int | None, int | None], given: Names) -> _Subject:
    whole, load = open_history(data), data.attrs.get(ATTRS_KEY)
    if not isinstance(load, dict) or load.get("rows") != len(data):
        load = {}  # it is no longer the whole of that load
    span = _interval(asked, _extent(whole, load))
    shown = whole if span is None else _within(data, whole, span)
    problems = []
    if bad := load.get("quarantined"):
        problems = [f"the load put aside {count_text(len(bad), 'bad row')}"]
    try:
        check_table(whole.rows)
    except CheckError as error:
        problems.append(str(error))
    name = "Balances of a table of balance changes"
    return _Subject(
        TableState(_named(shown, given), bounds=span or (0, 0), name=name),
        facts=tuple(_facts_of_load(load)),
        checked="every rule of a table of balance changes was checked",
        problems=tuple(problems),
    )


def _named(history: History, names: Names) -> History:
    """Return a history with the names that it tells, and those that are given over them."""
    told = carried(history.attrs.get(ATTRS_KEY))
    return replace(history, attrs={ATTRS_KEY: note_names(told, names)})


def _extent(history: History, load: dict[str, Any]) -> Span | None:
    """Return what a table was loaded for, else all that is known of it and its rows."""
    if load.get("start") and load.get("end"):
        return to_microseconds(load["start"]), to_microseconds(load["end"])
    bounds = [bound for span in history.known or () for bound in span]
    bounds += [bound + at for at, bound in enumerate(history.steps.extent.tolist())]
    return (min(bounds), max(bounds)) if bounds else None


def _within(data: pd.DataFrame, history: History, span: Span) -> History:
    """Return the history of a table's accounts up to the end of an interval, from its start on."""
    within = open_history(cut(data, history, *map(from_microseconds, span)))
    # What states nothing is taken at its word, and not as known.
    return replace(within, known=None) if history.known is None else within


def _facts_of_load(load: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if not load:
        yield "source", "not known: the table doesn't tell how it was loaded"
        return
    yield "source", without_credentials(str(load.get("source")))
    if load.get("filters"):
        yield "holds", "; ".join(f"{name} {value}" for name, value in load["filters"])
    if load.get("block_height") is not None:
        yield "last block", f"{load['block_height']:,}"


def _head(found: _Subject) -> Markup:
    """Return what a report tells at its top, without scripts, too."""
    verdict = _verdict(found)
    warnings = list(_warnings(found))
    more = len(warnings) - _MOST_WARNED
    warnings = warnings[:_MOST_WARNED] + ([f"{more} more."] if more > 0 else [])
    items = Markup("").join(Markup("<li>{}</li>").format(each) for each in warnings)
    state, rows = found.state, f"{len(found.state.history.rows):,}"
    interval = "No balance changes"
    if state.start < state.end:
        interval = range_text(state.start, state.end)
    facts = (*found.facts, ("balance changes", rows), ("checked", found.checked))
    told = Markup("").join(
        Markup("<div><dt>{}</dt><dd>{}</dd></div>").format(*fact) for fact in facts
    )
    return Markup(
        '<p class="verdict{}">{}</p>{}<details><summary>What this is made of</summary>'
        '<dl class="facts">{}</dl></details>'
        "<noscript><p>{}. The charts and tables need scripts: this file has them.</p></noscript>"
    ).format(
        "" if verdict in {"complete", "confirmed"} else " bad",
        verdict,
        Markup('<ul class="warned">{}</ul>').format(items) if items else "",
        told,
        interval,
    )


def _verdict(found: _Subject) -> str:
    return "checks failed" if found.problems else completeness(found.state)


def _gaps(state: TableState) -> list[Span]:
    """Return the parts of the interval that are not known to be complete."""
    return [] if state.known is None else between(state.known, state.start, state.end)


def _warnings(found: _Subject) -> Iterator[str]:
    yield from (f"A check failed: {problem}" for problem in found.problems)
    for gap in _gaps(found.state):
        yield f"{range_text(*gap)} is not known to be complete: rows may be missing."
    if completeness(found.state) == "not known to be complete":
        yield "Nothing proves that no rows are missing. A load or a filled archive would."
