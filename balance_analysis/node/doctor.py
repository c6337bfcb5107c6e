"""Ask one node how far it reaches, and whether its cursors and timestamps can be trusted.

A finding that fails is "unknown", with the reason; the others don't depend on it. A question that
fails is asked once more.
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
from balance_analysis.node.client import NETWORK_LIMITS, Client, RequestStats, Retry, check_client
from balance_analysis.node.limits import decode_limits, network_limits
from balance_analysis.node.reach import Asker, find_newest
from balance_analysis.table.filters import Filters
from balance_analysis.table.presentation import Record
from balance_analysis.table.rows import Account, accounts_in, within
from balance_analysis.table.schema import FIRST_MOMENT, LAST_MOMENT
from balance_analysis.table.text import count_text, duration_text, iso_text, moment_text, printable

Verdict = Literal["ok", "note", "warning", "unknown"]
Outcome = tuple[Any, Verdict, str]

_WIDTH: Final = 100
_SAMPLE: Final = 200
_PAGES: Final = 8
_LONGEST_LAG: Final = 60.0
_GENTLY: Final = Retry(attempts=2, pauses=1, timeouts=False)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about a node, or why it is not known.

    Attributes
    ----------
    name
        What it is about: "reachable", "reach", "cursors" or "timestamps".
    value
        The fact, of JSON's types; `None` where it is not known.
    verdict
        "ok", "note" (good to know), "warning" (rows or answers may be missing or misread) or
        "unknown".
    explanation
        What it means, in a sentence.
    """

    name: str
    value: Any
    verdict: Verdict
    explanation: str


@dataclass(frozen=True, slots=True)
class NodeReport(Record):
    """What a node does. As text it is a table for the terminal.

    Attributes
    ----------
    node
        Its address.
    asked_at
        When it was asked, UTC.
    requests
        How many requests that took.
    findings
        Always the same names in the same order.
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
        for each in self.findings:
            yield each.verdict, each.name.replace("_", " "), each.explanation

    def __str__(self) -> str:
        room = min(_WIDTH, shutil.get_terminal_size((_WIDTH, 0)).columns)
        lines = [self._title(), ""]
        for verdict, name, text in self._findings():
            head = f"{verdict.upper() if verdict == 'warning' else verdict:7}  {name:10}  "
            lines.append(textwrap.fill(head + text, room, subsequent_indent=" " * len(head)))
        return "\n".join(lines)


def diagnose_node(client: Client) -> NodeReport:
    """Ask a node how far it reaches, and whether its cursors and timestamps can be trusted.

    Sends some 20 requests, each for a range and for few rows: without a range, some nodes read
    their whole table.

    Parameters
    ----------
    client
        The node; of several, the first.

    Returns
    -------
    NodeReport
        `print` it, or take its findings by name: `report["cursors"].value`.

        - `reachable`: whether the node answers `changes` and `limits`.
        - `reach`: times of its oldest row (`start`) and of its last block (`end`; without block
          headers, its newest row), the block's `height`, and `lag_seconds` behind now.
        - `cursors`: of the newest `rows`, how many are `lost` and how many come `twice` where
          cursors are followed, `page_size` rows a page; `cuts` pages ended inside a block.
        - `timestamps`: how many `rows` came, and how many are `bad`.

    Raises
    ------
    RequestError
        If the node can't be reached, or nothing at the address answers as a node does.
    """
    check_client(client)
    asked_at = dt.datetime.now(dt.UTC)
    ask = Asker(client, client.base_url, RequestStats(), _GENTLY)
    now = time.time_ns() // 1000 + 1
    sample = _outcome(partial(find_newest, ask, walk.EARLIEST, now, _SAMPLE))
    findings = [_examine(name, find, ask, sample) for name, find in _CHECKS.items()]
    get = partial(client.get, NETWORK_LIMITS, [], decode_limits, stats=ask.stats, retry=_GENTLY)
    limits = _outcome(lambda: network_limits(get(), pd.Timestamp(asked_at)))
    failures = [each for each in (limits, sample) if isinstance(each, RequestError)]
    # A node refuses with a code.
    if len(failures) > 1 and all(each.code is None or each.retryable for each in failures):
        raise failures[-1]
    findings.insert(0, Finding("reachable", *_reachable(sample, limits)))
    return NodeReport(client.base_url, asked_at, ask.stats.requests, tuple(findings))


def _outcome(ask: Callable[[], T]) -> T | BalanceAnalysisError:
    """Return an answer, or the error that came instead."""
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
    text = f"The oldest row is of {first}. The {last} of {then}, {age}."
    return {**value, "lag_seconds": round(lag, 1)}, verdict, text


def _cursors(ask: Asker, sample: walk.Listing) -> Outcome:
    times = _times(sample)
    # The last block of a page may be cut.
    start, end = times[-1] + (sample.more and times[0] > times[-1]), times[0] + 1
    keys = _keys(sample.rows, start, end)
    if len(keys) < 2:  # noqa: PLR2004 - a page, and one to go on to
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
        said = f"{len(bad):,} of {rows:,} rows can't be loaded: {_printable(bad[0].reason)}."
        return value, "warning", said
    times = _times(sample)
    at = times[len(times) // 2]
    for end, newest_first in ((times[0] + 1, False), (at + 1, True)):
        window = walk.Window(at, end, _SAMPLE)
        if not len(walk.fetch(ask, Filters(), window, newest_first=newest_first).times):
            raise IncompleteError(f"no row comes for the time of one, {iso_text(at)}")
    return value, "ok", "Rows and bounds are in nanoseconds, and ranges and order are kept."


Check = Callable[[Asker, walk.Listing], Outcome]
_CHECKS: Final[dict[str, Check]] = dict(reach=_reach, cursors=_cursors, timestamps=_timestamps)  # noqa: C408


def _times(sample: walk.Listing) -> list[int]:
    """Return the rows' microseconds, newest first; there is at least one."""
    times: list[int] = sample.times.tolist()
    if not times:
        raise BalanceAnalysisError("the node sent no row since 2020 whose time can be read")
    return times


def _keys(rows: pa.RecordBatch, start: int, end: int) -> list[tuple[int, Account]]:
    """Return time and account of each row in [start, end)."""
    rows = within(rows, start, end)
    return list(zip(rows["timestamp"].cast(pa.int64()).to_pylist(), accounts_in(rows), strict=True))


def _cuts(keys: list[tuple[int, Account]], size: int) -> int:
    """Return how many pages of a size end inside a block."""
    return sum(keys[i - 1][0] == keys[i][0] for i in range(size, len(keys), size))


def _printable(text: object) -> str:
    """Return a node's words on one line, without what a terminal would obey."""
    return printable(" ".join(str(text).split()).rstrip("."))
