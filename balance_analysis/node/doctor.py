"""Examine a node: how far it reaches, and whether its cursors, times and lists can be trusted.

A check that fails gives the finding "unknown" with the reason, and the other checks continue. A
request that fails is sent once more.
"""

from __future__ import annotations

import datetime as dt
import shutil
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal, TypeVar

import pandas as pd
import pyarrow as pa

from balance_analysis.errors import BalanceAnalysisError, IncompleteError, RequestError
from balance_analysis.node import walk
from balance_analysis.node.client import Client, RequestStats, Retry, check_client
from balance_analysis.node.limits import fetch_limits, network_limits
from balance_analysis.node.reach import Asker
from balance_analysis.table.filters import Filters
from balance_analysis.table.moments import iso_text, moment_text
from balance_analysis.table.schema import FIRST_MOMENT, LAST_MOMENT, Account, accounts_in, within
from balance_analysis.table.text import Record, count_text, duration_text, printable

Verdict = Literal["ok", "note", "warning", "unknown"]
Outcome = tuple[Any, Verdict, str]

_WIDTH: Final = 100
_SAMPLE: Final = 200
_PAGES: Final = 8
_LONGEST_LAG: Final = 60.0
_ONE_RETRY: Final = Retry(attempts=2, pauses=1, timeouts=False)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact about a node, or the reason why it is unknown.

    Attributes
    ----------
    name
        The subject: "reachable", "reach", "cursors", "timestamps" or "lists".
    value
        The fact, as JSON types; `None` if unknown.
    verdict
        "ok", "note" (good to know), "warning" (rows or answers may be missing or misread) or
        "unknown".
    explanation
        The meaning, in a sentence.
    """

    name: str
    value: Any
    verdict: Verdict
    explanation: str


@dataclass(frozen=True, slots=True)
class NodeReport(Record):
    """The findings about a node. `str` gives a table for the terminal.

    Attributes
    ----------
    node
        The node's address.
    asked_at
        When it was asked, UTC.
    requests
        Number of requests sent.
    findings
        The findings, always with the same names in the same order.
    """

    node: str
    asked_at: dt.datetime
    requests: int
    findings: tuple[Finding, ...]

    def __getitem__(self, name: str) -> Finding:
        """Return the finding of that name."""
        return {finding.name: finding for finding in self.findings}[name]

    _header = ("verdict", "what", "finding")

    def _title(self) -> str:
        return f"{self.node}, {moment_text(self.asked_at, 'minutes')}, {self.requests} requests"

    def _findings(self) -> Iterator[tuple[str, str, str]]:
        for finding in self.findings:
            yield finding.verdict, finding.name.replace("_", " "), finding.explanation

    def __str__(self) -> str:
        width = min(_WIDTH, shutil.get_terminal_size((_WIDTH, 0)).columns)
        lines = [self._title(), ""]
        for verdict, name, text in self._findings():
            head = f"{verdict.upper() if verdict == 'warning' else verdict:7}  {name:10}  "
            lines.append(textwrap.fill(head + text, width, subsequent_indent=" " * len(head)))
        return "\n".join(lines)


def diagnose_node(client: Client) -> NodeReport:
    """Find out how far a node reaches, and whether its cursors, times and lists can be trusted.

    Sends about 20 requests, each for few rows of a range: without a range, some nodes read their
    whole table.

    Parameters
    ----------
    client
        The node; the first if there are several.

    Returns
    -------
    NodeReport
        `print` it, or select a finding by name: `report["cursors"].value`.

        - `reachable`: whether the node answers `changes` and `limits`.
        - `reach`: times of its oldest row (`start`) and of its last block (`end`; of its newest row
          if it sends no block headers), the block's `height`, and `lag_seconds` behind now.
        - `cursors`: how many of the newest `rows` are `lost` and how many come `twice` if you
          follow cursors with `page_size` rows per page; `cuts` pages ended inside a block.
        - `timestamps`: how many `rows` were read, and how many are `bad`.
        - `lists`: for each filter that takes a list, whether the node uses more than one of its
          values; `None` if the newest rows don't show it.

    Raises
    ------
    RequestError
        If the node can't be reached, or the address isn't a node's.
    """
    check_client(client)
    asked_at = dt.datetime.now(dt.UTC)
    ask = Asker(client, client.base_url, RequestStats(), _ONE_RETRY)
    now = time.time_ns() // 1000 + 1
    sample = _outcome(partial(walk.find_newest, ask, walk.EARLIEST, now, _SAMPLE))
    findings = [_examine(name, find, ask, sample) for name, find in _CHECKS.items()]
    get = partial(fetch_limits, client, stats=ask.stats, retry=_ONE_RETRY)
    limits = _outcome(lambda: network_limits(get(), pd.Timestamp(asked_at)))
    failures = [error for error in (limits, sample) if isinstance(error, RequestError)]
    # A node's own refusal has a code.
    if len(failures) > 1 and all(error.code is None or error.retryable for error in failures):
        raise failures[-1]
    findings.insert(0, Finding("reachable", *_reachable(sample, limits)))
    return NodeReport(client.base_url, asked_at, ask.stats.requests, tuple(findings))


def _outcome(ask: Callable[[], T]) -> T | BalanceAnalysisError:
    """Return a function's result, or the package's error that it raised."""
    try:
        return ask()
    except BalanceAnalysisError as error:
        return error


def _examine(
    name: str, find: Check, ask: Asker, sample: walk.Listing | BalanceAnalysisError
) -> Finding:
    try:
        if isinstance(sample, BalanceAnalysisError):
            raise sample
        return Finding(name, *find(ask, sample))
    except BalanceAnalysisError as error:
        is_misread = name == "timestamps" and isinstance(error, IncompleteError)
        return Finding(name, None, "warning" if is_misread else "unknown", f"{_printable(error)}.")


def _reachable(sample: object, limits: object) -> Outcome:
    changes, others = (not isinstance(each, BalanceAnalysisError) for each in (sample, limits))
    value = {"changes": changes, "limits": others}
    if not changes:
        return value, "warning", f"The node answers no balance changes: {_printable(sample)}."
    if not others:
        return value, "note", f"The node answers changes, but no limits: {_printable(limits)}."
    return value, "ok", "The node answers balance changes and network limits."


def _reach(ask: Asker, sample: walk.Listing) -> Outcome:
    newest = _times(sample)[0]
    start = walk.find_oldest(ask, newest + 1) or newest
    is_named = FIRST_MOMENT <= (ask.head or 0) < LAST_MOMENT
    end, height = (ask.head or 0, ask.height) if is_named else (newest, None)
    lag = time.time() - end / 1_000_000
    value = {"start": iso_text(start), "end": iso_text(end), "height": height}
    last = f"last block is {height or '?'}," if is_named else "newest row is"
    age = f"{duration_text(dt.timedelta(seconds=abs(lag)))} {'ago' if lag > 0 else 'ahead'}"
    verdict: Verdict = "ok" if abs(lag) <= _LONGEST_LAG else "warning" if lag > 0 else "note"
    first, then = moment_text(start, "seconds"), moment_text(end, "seconds")
    text = f"The oldest row is from {first}. The {last} from {then}, {age}."
    return {**value, "lag_seconds": round(lag, 1)}, verdict, text


def _cursors(ask: Asker, sample: walk.Listing) -> Outcome:
    times = _times(sample)
    # A page's last block may be cut.
    start, end = times[-1] + (sample.more and times[0] > times[-1]), times[0] + 1
    keys = _keys(sample.rows, start, end)
    if len(keys) < 2:  # noqa: PLR2004 - two pages
        raise IncompleteError("the node sent too few rows to follow a cursor")
    cuts = {size: _cuts(keys, size) for size in range(-(-len(keys) // _PAGES), len(keys))}
    size = max(cuts, key=cuts.__getitem__)
    request = walk.PageRequest(Filters(), start - 1, end, size, newest_first=True)
    listed: list[tuple[int, Account]] = []
    more, cursors = True, {""}
    while more and len(listed) < len(keys) and len(cursors) <= 2 * _PAGES:
        page = ask(request)
        listed += _keys(page.rows, start, end)
        request = replace(request, cursor=page.info.end_cursor)
        more = page.info.has_next_page and page.info.end_cursor not in cursors
        cursors.add(page.info.end_cursor)
    if more:
        keys = keys[: max((i for i, key in enumerate(keys, 1) if key in {*listed}), default=0)]
    lost, twice = len({*keys} - {*listed}), len(listed) - len({*listed})
    value = {"rows": len(keys), "lost": lost, "twice": twice, "page_size": size, "cuts": cuts[size]}
    of = f"of the newest {len(keys):,} rows; {count_text(cuts[size], 'page')} ended inside a block."
    if lost or twice:
        advice = "Never follow them: load_balance_changes walks by time instead."
        return value, "warning", f"Cursors lose {lost:,} and repeat {twice:,} {of} {advice}"
    return value, "ok" if cuts[size] else "unknown", f"Cursors lose and repeat none {of}"


def _timestamps(ask: Asker, sample: walk.Listing) -> Outcome:
    rows, bad = sample.rows.num_rows + len(sample.bad_rows), sample.bad_rows
    value = {"rows": rows, "bad": len(bad)}
    if bad:
        text = f"{len(bad):,} of {rows:,} rows can't be loaded: {_printable(bad[0].reason)}."
        return value, "warning", text
    times = _times(sample)
    at = times[len(times) // 2]
    for end, newest_first in ((times[0] + 1, False), (at + 1, True)):
        window = walk.Window(at, end, _SAMPLE)
        if not len(walk.fetch(ask, Filters(), window, newest_first=newest_first).times):
            raise IncompleteError(f"a row at {iso_text(at)} isn't sent if that time is requested")
    return value, "ok", "Rows and bounds are in nanoseconds, and ranges and order are respected."


def _lists(ask: Asker, sample: walk.Listing) -> Outcome:
    _, *names = walk.FILTER_NAMES  # the asset's filter takes one value
    reads = {name: ask.reads_list(name, sample) for name in names if _times(sample)}
    if False in reads.values():
        return reads, "warning", "The node uses only one value of a list: load each alone."
    if True not in reads.values():
        raise IncompleteError("the newest rows have no two values to try a filter's list with")
    return reads, "ok", "Filters use several values of a list."


Check = Callable[[Asker, walk.Listing], Outcome]
_CHECKS: Final[dict[str, Check]] = {
    "reach": _reach,
    "cursors": _cursors,
    "timestamps": _timestamps,
    "lists": _lists,
}


def _times(sample: walk.Listing) -> list[int]:
    """Return the times of a sample's rows (in microseconds), newest first; never empty."""
    times: list[int] = sample.times.tolist()
    if not times:
        raise BalanceAnalysisError("the node sent no row with a readable time since 2020")
    return times


def _keys(rows: pa.RecordBatch, start: int, end: int) -> list[tuple[int, Account]]:
    """Return each row's time and account, for rows in [start, end)."""
    rows = within(rows, start, end)
    return list(zip(rows["timestamp"].cast(pa.int64()).to_pylist(), accounts_in(rows), strict=True))


def _cuts(keys: list[tuple[int, Account]], size: int) -> int:
    """Return how many pages of `size` rows end inside a block."""
    return sum(keys[i - 1][0] == keys[i][0] for i in range(size, len(keys), size))


def _printable(text: object) -> str:
    """Return a node's text on one line, without control characters."""
    return printable(" ".join(str(text).split()).rstrip("."))
