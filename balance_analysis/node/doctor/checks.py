"""Each finding on a node by itself: its value, its verdict, and what it means in a sentence."""

from __future__ import annotations

import copy
import datetime as dt
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import pandas as pd

from balance_analysis.errors import BalanceAnalysisError, IncompleteError, RequestError
from balance_analysis.node import limits
from balance_analysis.node.doctor import report, trials
from balance_analysis.node.doctor.probe import Probe, is_range_refusal, is_refusal
from balance_analysis.node.walk import USUAL_MAXIMUM
from balance_analysis.node.window import EARLIEST
from balance_analysis.schema import ACCOUNT_TYPES, FIELD_NAMES
from balance_analysis.text import count_text, iso_text, moment_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from balance_analysis.node.client import Client
    from balance_analysis.node.doctor.report import Outcome
    from balance_analysis.schema import NetworkLimits

_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND
_LONG_AFTER: Final = EARLIEST + 400 * _DAY
_LONGEST_LAG: Final = 60.0
_SHORT_HISTORY_DAYS: Final = 31
_SLOW_MS: Final = 1_000.0
_OK, _NOT_FOUND = 200, 404

_MEASURABLE: Final = 2_000
"""Bytes from which an answer is worth compressing."""

_PATIENCE: Final = 5.0
"""Seconds for what a node that checks nothing might take long to answer."""


def diagnose_node(client: Client, *, max_requests_per_second: float = 10.0) -> report.NodeReport:
    """Find out what a node does where the interface leaves it open, and where it misbehaves.

    Asks at most 40 times, and for few rows each time. A request without a start, which some nodes
    answer by reading their whole table, is sent only with an end before any row.

    Parameters
    ----------
    client
        The node; of several, the first.
    max_requests_per_second
        Upper bound of the rate; the client's own holds as well.

    Returns
    -------
    NodeReport
        `print` it, or take its findings by name: `report["cursors"].value`.

    Raises
    ------
    RequestError
        If the node can't be reached, or nothing at the address answers as a node does.
    ValueError
        If the rate is not positive.
    """
    asked_at = dt.datetime.now(dt.UTC)
    probe = Probe(client, max_requests_per_second)
    errors = [_failure(ask) for ask in (probe.limits, probe.newest)]
    strange = [e for e in errors if isinstance(e, RequestError) and not is_range_refusal(e)]
    if len(strange) == len(errors):
        raise strange[-1]
    findings = tuple(_examine(check, probe) for check in _CHECKS)
    return report.NodeReport(client.base_url, asked_at, probe.allowance.requests, findings)


def _failure(ask: Callable[[], object]) -> BalanceAnalysisError | None:
    try:
        ask()
    except BalanceAnalysisError as error:
        return error
    return None


def _examine(check: Callable[[Probe], Outcome], probe: Probe) -> report.Finding:
    try:
        return report.Finding(check.__name__, *check(probe))
    except BalanceAnalysisError as error:
        said = report.sentence(str(error))
        return report.Finding(check.__name__, None, "unknown", said)


def reachable(probe: Probe) -> Outcome:
    """Tell which of the two operations are answered."""
    error = _failure(probe.newest)
    if error is not None:
        return True, "warning", f"It gives no balance changes: {error}."
    if _failure(probe.limits) is not None:
        return True, "note", "Balance changes are answered, the network limits are not."
    return True, "ok", "Balance changes and network limits are both answered."


def block(probe: Probe) -> Outcome:
    """Tell which block it holds last, and how old that is."""
    at, height = probe.head
    if not at:
        said = "it doesn't say which block it holds last, so whether it lags can't be told"
        raise IncompleteError(said)
    lag = time.time() - at / _SECOND
    value = {"height": height, "time": iso_text(at), "lag_seconds": round(lag, 1)}
    number = "?" if height is None else f"{height:,}"
    said = f"Its last block is {number} of {moment_text(at, 'seconds')}"
    if lag > _LONGEST_LAG:
        missing = "it lags or stands still, and newer rows are missing"
        return value, "warning", f"{said}, {report.duration(lag)} ago: {missing}."
    if lag < -_LONGEST_LAG:
        return value, "note", f"{said}, {report.duration(-lag)} ahead of this machine's clock."
    return value, "ok", f"{said}, {report.duration(abs(lag))} ago."


def oldest_row(probe: Probe) -> Outcome:
    """Tell how far back its rows go."""
    if not probe.newest().edges:
        text = "It holds no balance change since 2020: nothing happened, or nothing was kept."
        return None, "note", text
    oldest = min(probe.oldest().times, default=None)
    if oldest is None:
        raise IncompleteError("the oldest rows have no time that can be read")
    days = (max(probe.rows().times) - oldest) / _DAY
    before = f"{report.duration(days * 86_400)} before the newest" if days else "as is the newest"
    value, said = iso_text(oldest), f"The oldest row is of {moment_text(oldest, 'seconds')}"
    if days > _SHORT_HISTORY_DAYS:
        return value, "ok", f"{said}, {before}."
    pruned = "the node may have pruned what was before, which looks like no changes"
    return value, "note", f"{said}, {before}: {pruned}."


def _limits(probe: Probe) -> NetworkLimits:
    return limits.network_limits(probe.limits(), pd.Timestamp.now("UTC"))


def network_limits(probe: Probe) -> Outcome:
    """Tell whether the network limits are there and can be read."""
    try:
        _limits(probe)
    except RequestError as error:
        if error.status != _NOT_FOUND or not is_refusal(error):
            raise
        text = "The network limits are not there: a node has none before its first block."
        return False, "note", text
    except BalanceAnalysisError as error:
        return False, "warning", f"The network limits can't be read: {error}."
    return True, "ok", "The network limits are there, and as the interface describes."


def page_size(probe: Probe) -> Outcome:
    """Tell how many rows a page may have, and whether it comes cut."""
    too_large = USUAL_MAXIMUM + 1
    accepted, refused = trials.page_limits(probe)
    is_too_large = refused is None and not trials.sends_large_page(probe)
    value = {"accepted": accepted, "refused": refused, "cut_at": probe.cut_at}
    value["too_large"] = too_large if is_too_large else None
    value["most_rows_sent"] = max((page.edges for page in probe.pages), default=0)
    if probe.cut_at is not None:
        said = f"It accepts {accepted:,} rows a page but sends at most {probe.cut_at:,}"
        return value, "warning", f"{said} without a word: a page that is not full is not the last."
    if is_too_large:
        said = f"Any number of rows a page is accepted, but {too_large:,} rows are more than it can"
        return value, "note", f"{said} send: a load comes down to what it can."
    if refused is None:
        return value, "ok", f"There is no maximum: even {accepted:,} rows a page are accepted."
    said = f"Pages of {accepted:,} rows are accepted, of {refused:,} refused"
    if accepted < USUAL_MAXIMUM:
        return value, "note", f"{said}: a load comes down to that, and needs more requests."
    return value, "ok", f"{said}."


def cursors(probe: Probe) -> Outcome:
    """Tell whether following the cursors gives every row once."""
    start, end, page = probe.stretch()
    keys = page.keys
    if len(keys) < 2:  # noqa: PLR2004 - a page, and one to go on to
        raise IncompleteError("the node sent too few rows to follow a cursor")
    size, cuts = trials.cutting_size(page.times)
    found, is_whole = trials.follow_cursors(probe, size)
    distinct = set(found)
    if not is_whole:
        keys = keys[: max((i for i, key in enumerate(keys, 1) if key in distinct), default=None)]
    lost, twice = len(set(keys) - distinct), len(found) - len(distinct)
    counts = {"rows": len(keys), "lost": lost, "twice": twice, "page_size": size, "cuts": cuts}
    value = counts | {"start": iso_text(start), "end": iso_text(end)}
    since = moment_text(page.times[0], "seconds")
    of = f"the {len(keys):,} rows that it sends when asked by time ({since})"
    said = f"Following its cursors, {count_text(size, 'row')} a page,"
    if lost or twice:
        what = [f"silently loses {lost:,}"] * bool(lost) + [f"repeats {twice:,}"] * bool(twice)
        advice = "never follow them; load_balance_changes walks by time instead"
        return value, "warning", f"{said} {report.listed(what)} of {of}: {advice}."
    if not cuts:
        but = "but no page ended inside a block, where nodes are known to lose rows"
        return value, "unknown", f"{said} gives all of {of}, {but}."
    ended = f"{report.how_often(cuts)} a page ended inside a block"
    return value, "ok", f"{said} gives all of {of}; {ended}."


def range_bounds(probe: Probe) -> Outcome:
    """Tell whether a range holds the rows on its bounds."""
    if probe.rows().grain > 1 or probe.unit != "ns":
        raise IncompleteError("rows or bounds are in a unit too coarse to tell what is on a bound")
    value = trials.try_bounds(probe)
    ignored = [side for side, how in value.items() if how == "ignored"]
    if ignored:
        text = f"It ignores the {report.listed(ignored)} of a range: a load notices and fails."
        return value, "warning", text
    if value == {"start": "inclusive", "end": "exclusive"}:
        return value, "ok", "A range holds the row at its start and not the one at its end."
    said = f"Unlike on other nodes, the start is {value['start']} and the end {value['end']}"
    risk = "windows put side by side would lose or repeat rows; loads allow for it"
    return value, "note", f"{said}: {risk}."


def range_required(probe: Probe) -> Outcome:
    """Tell which requests are refused for their range."""
    # Neither long nor early, so that only the missing end can be refused.
    lately = max([*probe.newest().times, time.time_ns() // 1000 - _DAY])
    # What has no end is answered by every release: there a 500 is a failure.
    ranges = {
        # Before any row, so that a node that checks nothing has nothing to read.
        "without_start": (None, EARLIEST + _SECOND, is_range_refusal, "without a start"),
        "without_end": (lately, None, is_refusal, "without an end"),
        "over_365_days": (EARLIEST, _LONG_AFTER, is_range_refusal, "of more than 365 days"),
    }
    value, refused = dict.fromkeys(ranges, _OK), []
    with copy.copy(probe.client) as brief:
        brief.timeout = min(brief.timeout, _PATIENCE)
        for name, (start, end, is_no, words) in ranges.items():
            try:
                probe.page(start, end, first=1, client=brief)
            except RequestError as error:
                if not is_no(error):
                    raise
                value[name] = error.status or 0
                refused.append(f"{words} ({value[name]})")
    if value["without_start"] != _OK:
        said = f"Requests {report.listed(refused)} are refused"
        return value, "ok", f"{said}; loads always send a range of under a year."
    others = f"; refused are those {report.listed(refused)}" if refused else ""
    never = "Never send them: a node that checks nothing may read its whole table."
    said = f"Requests without a start are answered{others}. {never} Loads always send a range."
    return value, "note", said


def timestamps(probe: Probe) -> Outcome:
    """Tell in which unit rows and bounds are."""
    probe.rows()
    units = sorted({unit for page in probe.pages for unit in page.units})
    is_whole = not any(moment % 1000 for page in probe.pages for moment in page.nanoseconds)
    value = {"rows": units, "bounds": probe.unit, "whole_microseconds": is_whole}
    if probe.unit != "ns":
        unlike = "where nodes read nanoseconds: a load from here is refused or comes back empty"
        return value, "warning", f"Bounds are read in {probe.unit}, {unlike}."
    if units != ["ns"]:
        unlike = "where nodes send nanoseconds: a load fails on them"
        return value, "warning", f"Rows come in {report.listed(units)}, {unlike}."
    if not is_whole:
        text = "Rows have parts of a microsecond, which the table doesn't hold: loads fail on them."
        return value, "warning", text
    return value, "ok", "Rows and bounds are in nanoseconds, rows on whole microseconds."


def filters(probe: Probe) -> Outcome:
    """Tell which filters leave exactly the rows that they should."""
    _, _, page = probe.stretch()
    value: dict[str, str] = {}
    for name, (parameter, field) in _FILTERS.items():
        values = dict.fromkeys(str(node.get(field) or "") for node in page.nodes)
        texts = [text for text in values if text and not text.isdecimal()]
        if texts and len(values) > 1:
            value[name] = trials.try_filter(probe, parameter, field, texts[0])
    if not value:
        raise IncompleteError("the rows that were looked at have nothing to tell them apart by")
    words = {name.replace("_", " "): how for name, how in value.items()}
    wrong = [f"{name} {how}" for name, how in words.items() if how != "honoured"]
    if wrong:
        text = f"Not every filter works: {', '.join(wrong)}; load without it and select afterwards."
        return value, "warning", text
    names = report.listed([*words])
    return value, "ok", f"Filters by {names} leave exactly the rows that they should."


_FILTERS: Final = {
    "asset_id": ("filter.assetId", "assetId"),
    "party_ids": ("filter.partyIds", "partyId"),
    "market_ids": ("filter.marketIds", "marketId"),
    "account_types": ("filter.accountTypes", "accountType"),
}


def rows(probe: Probe) -> Outcome:
    """Tell whether the rows that came can be loaded, and are in order."""
    probe.newest()
    count = sum(page.edges for page in probe.pages)
    bad = [reason for page in probe.pages for reason in page.bad]
    value = {"rows": count, "bad": len(bad), "out_of_order": probe.out_of_order}
    if bad:
        text = f"Of {count:,} rows that were sent, {len(bad):,} can't be loaded: {bad[0]}."
        return value, "warning", text
    if probe.out_of_order:
        text = "Rows came out of order: what was left out can't be told, so loads fail and say so."
        return value, "warning", text
    if not count:
        raise IncompleteError("the node sent no row to tell by")
    text = f"Every row sent ({count:,}) is as the interface describes, and they are in order."
    return value, "ok", text


def fields(probe: Probe) -> Outcome:
    """Tell which fields come beyond the interface's."""
    names = {name for node in probe.nodes for name in node}
    unknown = sorted(names - set(FIELD_NAMES.values()))
    is_read = _failure(partial(_limits, probe)) is None
    in_limits = sorted(_limits(probe).extra) if is_read else []
    value = {"rows": unknown, "limits": in_limits}
    said = [f"rows have {report.some(unknown)}, which loads leave out"] * bool(unknown)
    said += [f"the limits have {report.some(in_limits)}, kept in `extra`"] * bool(in_limits)
    if said:
        return value, "note", f"Fields beyond the interface's: {'; '.join(said)}."
    if not names:
        raise IncompleteError("the node sent no row to tell by")
    return value, "ok", "Rows and limits have no fields beyond the interface's."


def account_types(probe: Probe) -> Outcome:
    """Tell which account types come beyond this package's list."""
    probe.rows()
    kinds = (node.get(FIELD_NAMES["account_type"]) for node in probe.nodes)
    known = {kind for kind in kinds if isinstance(kind, str | int)}
    unknown = sorted(known - set(ACCOUNT_TYPES), key=str)
    value = {"seen": len(known), "unknown": unknown}
    if not unknown:
        types = count_text(len(known), "type")
        return value, "ok", f"{types} came, all on this package's list."
    advice = "They stay as they come; filter by `new:NAME`."
    if any(isinstance(kind, int) for kind in unknown):
        advice = "A number is a type that the node has no name for; both stay as they come."
    return value, "note", f"Types beyond the list of this package: {report.some(unknown)}. {advice}"


def latency(probe: Probe) -> Outcome:
    """Tell how long an answer takes."""
    seconds = [answer.seconds for answer in probe.answers]
    if not seconds:
        raise IncompleteError("nothing was answered")
    value = round(statistics.median(seconds) * 1000, 1)
    said = f"An answer took {value:,g} ms, the median of {len(seconds)}"
    if value > _SLOW_MS:
        return value, "note", f"{said}: load with more workers."
    return value, "ok", f"{said}."


def compression(probe: Probe) -> Outcome:
    """Tell whether answers come compressed."""
    large = [answer for answer in probe.answers if answer.size >= _MEASURABLE]
    if not large:
        raise IncompleteError("no answer was large enough to be worth compressing")
    kinds = {answer.headers.get("Content-Encoding") or "none" for answer in large}
    value = ", ".join(sorted(kinds))
    if "none" in kinds:
        text = "Answers are not compressed, though asked for: they are some ten times as large."
        return value, "note", text
    return value, "ok", f"Answers are compressed ({report.printable(value)})."


def rate_limit(probe: Probe) -> Outcome:
    """Tell whether it refuses requests as too many."""
    spent, ended = probe.allowance, probe.ended
    pairs = [pair for answer in probe.answers for pair in answer.headers.items()]
    headers = {name: text for name, text in pairs if "ratelimit" in name.lower().replace("-", "")}
    value = {"headers": headers, "refused": spent.retries}
    told = report.some(f"{name}: {text}" for name, text in headers.items())
    said = f"Headers tell: {told}." if headers else "No header tells its limit."
    if ended is not None and ended.status is not None:
        return value, "warning", f"{report.sentence(str(ended))} {said}"
    if spent.retries:
        often = f"{report.how_often(spent.retries)} as too many, in {spent.requests} requests"
        return value, "note", f"It refused {often}. {said} Loads slow down by themselves."
    text = f"None of {spent.requests} unhurried requests was refused as too many. {said}"
    return value, "ok", text


_CHECKS: Final = (
    reachable, block, oldest_row, network_limits, page_size, cursors, range_bounds, range_required,
    timestamps, filters, rows, fields, account_types, latency, compression, rate_limit,
)  # fmt: skip
"""In the order in which they are looked for: the last are about all answers together."""
