"""Write a report: an HTML file that shows an archive's or a table's data without a service."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from html import escape
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd

from balance_analysis.analysis.balances import by_size, held_at
from balance_analysis.analysis.history import History, cut_table, open_history
from balance_analysis.archive.snapshot import LruCache, Snapshot, with_snapshot
from balance_analysis.archives import Archive, to_archive
from balance_analysis.errors import CheckError, logger
from balance_analysis.explorer import views, wire
from balance_analysis.explorer.page import freeze_page
from balance_analysis.explorer.source import (
    KEPT_BYTES,
    ArchiveState,
    State,
    TableState,
    ViewTooLargeError,
    asset_ids,
    completeness,
    gaps_of,
    in_silence,
)
from balance_analysis.explorer.views import ViewRequest
from balance_analysis.files.atomic import PathLike, check_output, replacing
from balance_analysis.table import moments, schema
from balance_analysis.table.frame import check_table
from balance_analysis.table.known import noted_rows
from balance_analysis.table.names import AssetsLike, LabelsLike, Names, carried, read_names
from balance_analysis.table.text import count_text, spans_text, without_credentials

_MOST_PAGES: Final = 50
"""Maximum pages of an account's rows in a report; older pages are omitted."""

_RANGES: Final = tuple(days * 86_400_000_000 for days in (1, 7, 30, 91))
"""Lengths of the ranges that the page has buttons for (in microseconds)."""

_Subject = tuple[State, dict[str, str], list[str]]
"""A report's data, facts about its origin, and problems."""

_Bounds = tuple[int | None, int | None]


def write_report(
    source: Archive | PathLike | pd.DataFrame,
    path: PathLike,
    *,
    start: moments.Moment | None = None,
    end: moments.Moment | None = None,
    accounts: pd.DataFrame | Iterable[wire.Key] = (),
    largest: int = 20,
    assets: AssetsLike | None = None,
    labels: LabelsLike | None = None,
) -> None:
    """Write a report on an archive or a table: the explorer, frozen into one HTML file.

    The file needs no network. It shows each asset's totals, flows, holders and movers over the last
    day, week, month and three months, and over all time; the history of the largest accounts, row
    by row; and the network's limits. Tables have every digit.

    The top of the page lists missing and unproven stretches and failed checks; balances that may
    have changed in such a stretch are unknown. A sum of more than 38 digits is replaced by a
    sentence that says so. An archive is verified, which reads all of its files.

    Parameters
    ----------
    source
        An archive, or its address; or a table of balance changes.
    path
        The file; an existing one is replaced atomically. The same source and options give the same
        bytes.
    start, end
        The half-open interval; moments without a time zone are UTC. By default the interval that
        the archive or the table was loaded for, else the table's known stretches and its rows.
    accounts
        The accounts that the page shows first: a frame with `ACCOUNT_KEY`, or tuples of it. By
        default the largest.
    largest
        Number of accounts per asset whose history the page has: those that hold most at the end.
        The page also has the history of `accounts`.
    assets, labels
        Names and decimals of assets, as `read_assets` takes them, and your own names, as
        `read_labels` takes them; they override those of the archive or the table. Amounts of other
        assets are in the smallest unit.

    Raises
    ------
    ArchiveError
        If there is no archive, or it can't be read.
    CheckError
        If two rows of one account and timestamp differ in balance.
    ValueError, TypeError
        If an account is not in the data, an option is malformed, `start` is not before the end, or
        the file would lie in an archive or replace a file of names.
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
    inputs = [names for names in (assets, labels) if isinstance(names, str | os.PathLike)]
    check_output(path, inputs=inputs)
    if largest < 0:
        raise ValueError(f"largest must be at least 0, not {largest}")
    names, bounds = read_names(assets, labels), moments.to_bounds(start, end)
    keys = wire.keys_of(accounts) if isinstance(accounts, pd.DataFrame) else accounts
    first = [*dict.fromkeys(keys)]
    if isinstance(source, pd.DataFrame):
        page = _write_page(_table_subject(source, bounds, names), first, largest)
    else:
        archive = to_archive(source)

        def write(now: Snapshot) -> str:
            return _write_page(_archive_subject(archive.at(now), bounds, names), first, largest)

        page = with_snapshot(archive.store, write)
    with replacing(path) as temporary:
        temporary.write_bytes(page.encode())


def _write_page(subject: _Subject, first: list[wire.Key], largest: int) -> str:
    """Return the page, and log where its data is incomplete."""
    state, facts, problems = subject
    _check_accounts(state, first)
    with in_silence():
        data = _freeze(state, first, largest)
    if gaps := gaps_of(state):
        what = "table" if isinstance(state, TableState) else "archive"
        message = "the %s is not complete for %s: rows may be missing"
        logger.warning(message, what, spans_text(gaps))
    else:
        state.outline.warn_about_missing_accounts()
    return freeze_page(state.name, _head(state, facts, problems), data)


def _check_accounts(state: State, accounts: list[wire.Key]) -> None:
    """Raise ValueError unless the data has each of these accounts."""
    assets = {account[:1] for account in accounts if isinstance(account, tuple)}
    parts = (state.in_memory(asset) for asset in asset_ids(state) if (asset,) in assets)
    known = {account for part in parts for account in wire.keys_of(part.history.accounts)}
    if missing := [account for account in accounts if account not in known]:
        raise ValueError(
            f"{count_text(len(missing), 'account')} not in the data, such as {missing[0]!r}; pass "
            f"accounts as a frame or tuples of {schema.ACCOUNT_KEY}, for instance rows of a summary"
        )


def _freeze(state: State, first: list[wire.Key], largest: int) -> bytes:
    """Return a page's views by key, as JSON. One asset's rows are in memory at once."""
    contents: dict[str, Any] = {}

    def add(state: State, view: str, *items: tuple[str, object]) -> None:
        parameters = [(name, str(value)) for name, value in items]
        try:
            content = views.answer(view, ViewRequest(state, wire.read_query(view, parameters)))
        except ViewTooLargeError as error:
            content = {"refused": str(error)}
        contents[wire.write_view(view, *(value for _, value in items))] = content

    start, end = state.start, max(state.end, state.start + 1)
    starts = sorted({max(start, end - length) for length in _RANGES} | {start})
    add(state, "about")
    add(state, "notes")
    for asset in asset_ids(state):
        part, name = state.in_memory(asset), ("asset", asset)
        for by in ((), (("by", "party"),)):
            for at in ((), *((("at", moment),) for moment in starts)):
                add(part, "holders", name, *by, *at)
        for begin in starts:
            for view in ("headline", "totals", "flows", "movers"):
                add(part, view, name, ("start", begin), ("end", end))
        ranked = enumerate(_ranked(part, asset))
        wanted = tuple(key for place, key in ranked if place < largest or key in first)
        query = wire.Query(asset, wanted, start, end, width=wire.WIDEST)
        contents |= _histories(ViewRequest(part, query))
    return msgspec.json.encode({"views": contents, "first": [*map(wire.write_key, first)]})


def _histories(request: ViewRequest) -> dict[str, Any]:
    """Return the views of a query's accounts, by key."""
    query, contents = request.query, {}
    for view, compute in _OF_ACCOUNTS.items():
        for key, pages in zip(query.accounts, _compute_each(compute, request), strict=True):
            for page, rows in enumerate(pages[:_MOST_PAGES]):
                more = {"series": [wire.WIDEST], "rows": [page]}.get(view, [])
                values = wire.write_key(key), query.start, query.end, *more
                contents[wire.write_view(view, *values)] = rows
    return contents


_OF_ACCOUNTS: Final[dict[str, Callable[[ViewRequest], list[list[dict[str, Any]]]]]] = {
    "series": lambda request: [[{"series": [one]}] for one in views.lines(request)],
    "account": lambda request: [[one] for one in views.summaries(request)],
    "rows": views.row_pages,
}
"""Views of accounts, each with a function that returns every account's pages."""


def _compute_each(compute: Callable[[ViewRequest], list[Any]], request: ViewRequest) -> list[Any]:
    """Return `compute`'s pages of each account; a refusal for an account whose sum overflows."""
    accounts = request.query.accounts
    try:
        return compute(request) if accounts else []
    except OverflowError as error:
        if len(accounts) == 1:
            return [[{"refused": views.refusal(error)}]]
    queries = (replace(request.query, accounts=(account,)) for account in accounts)
    return [_compute_each(compute, replace(request, query=query))[0] for query in queries]


def _ranked(state: State, asset: str) -> list[wire.Key]:
    """Return an asset's accounts; those that hold most at the end come first."""
    request = ViewRequest(state, wire.Query(asset))
    held = held_at(request.at(request.moment), np.array([request.moment]))
    return wire.keys_of(held.iloc[by_size(held["asset_id"], held["balance"])])


def _archive_subject(archive: Archive, bounds: _Bounds, given: Names) -> _Subject:
    extent = archive.snapshot().evidence.bounds
    span = _interval(bounds, extent if extent[0] < extent[1] else None)
    state, verified = ArchiveState(archive, LruCache(KEPT_BYTES), given, span), archive.verify()
    checked = (
        f"the whole archive was read and compared with its own records: {verified.files:,} files "
        f"with {verified.rows:,} rows, and its checkpoints"
    )
    facts = {
        "archive": without_credentials(archive.uri),
        "holds": str(archive.snapshot().manifest.query),
        "checked": checked,
    }
    problems = [f"{one.where}: {one.what}; {one.remedy}" for one in verified.problems]
    return state, facts, problems


def _table_subject(data: pd.DataFrame, bounds: _Bounds, given: Names) -> _Subject:
    history, load = open_history(data), data.attrs.get(schema.ATTRS_KEY)
    if not isinstance(load, dict) or noted_rows(load) != len(data):
        load = {}  # the table no longer has exactly the rows of that load
    span, shown = _interval(bounds, _extent(history, load)), data
    if span is not None:
        shown = cut_table(data, history, *map(moments.from_microseconds, span))
    part, notes = open_history(shown), shown.attrs.get(schema.ATTRS_KEY, {})
    # The page has the names, so no view needs columns of them.
    unnamed = {schema.ATTRS_KEY: {key: notes[key] for key in notes.keys() - carried(notes)}}
    # Cutting a table must not make it state what is known.
    known = None if history.known is None else part.notes.known
    state = TableState(
        replace(part, attrs=unnamed), *(span or (0, 0)), known, history.names.updated(given)
    )
    problems = []
    if bad := load.get("quarantined"):
        problems = [f"the load set aside {count_text(len(bad), 'bad row')}"]
    try:
        check_table(history.rows)
    except CheckError as error:
        problems.append(str(error))
    source = without_credentials(str(load.get("source", "unknown")))
    checked = "every rule for tables of balance changes was checked"
    return state, {"source": source, "checked": checked}, problems


def _interval(bounds: _Bounds, extent: moments.Span | None) -> moments.Span | None:
    """Return the interval of a report, or `None` if one of its ends is unknown."""
    ends = zip(bounds, extent or (None, None), strict=True)
    start, end = (default if bound is None else bound for bound, default in ends)
    if start is None or end is None:
        return None
    if start >= end:
        raise ValueError(
            "a report must start before it ends, but it would be from "
            f"{moments.range_text(start, end)}"
        )
    return start, end


def _extent(history: History, load: dict[str, Any]) -> moments.Span | None:
    """Return the interval of a table's load, else that of its known stretches and its rows."""
    if load.get("start") and load.get("end"):
        return moments.to_microseconds(load["start"]), moments.to_microseconds(load["end"])
    bounds = [*np.ravel(history.known or ()).tolist()]
    bounds += [bound + at for at, bound in enumerate(history.steps.extent.tolist())]
    return (min(bounds), max(bounds)) if bounds else None


def _head(state: State, facts: dict[str, str], problems: list[str]) -> str:
    """Return the HTML at the top of a report, shown even without scripts."""
    verdict = completeness(state)
    warnings = [f"A check failed: {problem}" for problem in problems]
    if gaps := gaps_of(state):
        warnings.append(f"Not complete: {spans_text(gaps)}. Rows may be missing.")
    elif verdict == "not known to be complete":
        warnings.append("Completeness unknown: load from a node, or state it in ba.to_table.")
    facts = {"balance changes": f"{state.changes.total():,}", **facts}
    paragraphs = _joined('<p class="warned">{}</p>', [(warning,) for warning in warnings])
    terms = _joined('<div><dt>{0}</dt><dd title="{1}">{1}</dd></div>', facts.items())
    is_good = verdict in {"complete", "confirmed"} and not problems
    result = "checks failed" if problems else verdict
    has_rows = state.start < state.end
    extent = moments.range_text(state.start, state.end) if has_rows else "No balance changes"
    return f"""\
<p class="verdict{"" if is_good else " bad"}">{escape(result)}</p>{paragraphs}\
<details><summary>About this data</summary><dl class="facts">{terms}</dl></details>\
<noscript><p>{extent}. The charts and tables need scripts, which this file has.</p></noscript>"""


def _joined(part: str, items: Iterable[tuple[str, ...]]) -> str:
    """Return the HTML `part` filled with each item's escaped texts, joined."""
    return "".join(part.format(*map(escape, item)) for item in items)
