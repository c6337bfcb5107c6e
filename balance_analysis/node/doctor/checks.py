"""Each finding on a node by itself: its value, its verdict, and what it means in a sentence."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final, Literal

import pandas as pd

from balance_analysis.errors import BalanceAnalysisError, IncompleteError, RequestError
from balance_analysis.filters import Filters
from balance_analysis.node import limits
from balance_analysis.node.doctor.probe import Probe, SentPage, is_refusal
from balance_analysis.node.walk import FILTER_NAMES
from balance_analysis.schema import FIELD_NAMES
from balance_analysis.text import count_text, duration_text, iso_text, moment_text

Verdict = Literal["ok", "note", "warning", "unknown"]
Outcome = tuple[Any, Verdict, str]

_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND
_LONGEST_LAG: Final = 60.0
_SHORT_HISTORY_DAYS: Final = 31
_NOT_FOUND: Final = 404
_CURSOR_PAGES: Final = 8


def failure(ask: Callable[[], object]) -> BalanceAnalysisError | None:
    """Return how a question fails, if it does."""
    try:
        ask()
    except BalanceAnalysisError as error:
        return error
    return None


def _first(*cases: tuple[object, Verdict, str]) -> tuple[Verdict, str]:
    """Return verdict and words of the first case that holds."""
    return next((verdict, text) for holds, verdict, text in cases if holds)


def _listed(words: list[str]) -> str:
    """Return words as a sentence lists them."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def reachable(probe: Probe) -> Outcome:
    """Tell which of the two operations are answered."""
    error = failure(probe.newest)
    return True, *_first(
        (error, "warning", f"The node answers no balance changes: {error}."),
        (failure(probe.limits), "note", "The node answers balance changes, but no limits."),
        (True, "ok", "The node answers balance changes and network limits."),
    )


def block(probe: Probe) -> Outcome:
    """Tell which block it holds last, and how old that is."""
    at, height = probe.latest_block
    if not at:
        raise IncompleteError("the node doesn't say which block it holds last")
    lag = time.time() - at / _SECOND
    value = {"height": height, "time": iso_text(at), "lag_seconds": round(lag, 1)}
    number = "?" if height is None else f"{height:,}"
    age = duration_text(dt.timedelta(seconds=abs(lag)))
    said = f"The node's last block is {number} of {moment_text(at, 'seconds')}, {age}"
    return value, *_first(
        (lag > _LONGEST_LAG, "warning", f"{said} ago. The node lags: newer rows are missing."),
        (lag < -_LONGEST_LAG, "note", f"{said} ahead of this machine's clock."),
        (True, "ok", f"{said} ago."),
    )


def oldest_row(probe: Probe) -> Outcome:
    """Tell how far back its rows go."""
    if not probe.newest().edges:
        text = "The node has no balance change since 2020. Nothing happened, or it kept nothing."
        return None, "note", text
    oldest = min(probe.oldest().times, default=None)
    if oldest is None:
        raise IncompleteError("the oldest rows have no time that can be read")
    days = (max(probe.rows().times) - oldest) / _DAY
    before = (
        f"{duration_text(dt.timedelta(days))} before the newest" if days else "as is the newest"
    )
    said = f"The oldest row is from {moment_text(oldest, 'seconds')}, {before}"
    if days > _SHORT_HISTORY_DAYS:
        return iso_text(oldest), "ok", f"{said}."
    pruned = "The node may have pruned older ones, which looks like no changes."
    return iso_text(oldest), "note", f"{said}. {pruned}"


def network_limits(probe: Probe) -> Outcome:
    """Tell whether the network limits are there and can be read."""
    error = failure(lambda: limits.network_limits(probe.limits(), pd.Timestamp.now("UTC")))
    if isinstance(error, RequestError) and (error.status != _NOT_FOUND or not is_refusal(error)):
        raise error
    return error is None, *_first(
        (not error, "ok", "The node sends its network limits as the interface describes."),
        (isinstance(error, RequestError), "note", "A node has no limits before its first block."),
        (True, "warning", f"The network limits can't be read: {error}."),
    )


def cursors(probe: Probe) -> Outcome:
    """Tell whether following the cursors gives every row once."""
    start, end, page = probe.stretch()
    keys = page.keys
    if len(keys) < 2:  # noqa: PLR2004 - a page, and one to go on to
        raise IncompleteError("the node sent too few rows to follow a cursor")
    size, cuts = _cutting_size(page.times)
    found, is_whole = probe.follow_cursors(size, most=_CURSOR_PAGES + 1)
    distinct = set(found)
    if not is_whole:
        keys = keys[: max((i for i, key in enumerate(keys, 1) if key in distinct), default=None)]
    lost, twice = len(set(keys) - distinct), len(found) - len(distinct)
    counts = {"rows": len(keys), "lost": lost, "twice": twice, "page_size": size, "cuts": cuts}
    value = counts | {"start": iso_text(start), "end": iso_text(end)}
    since = moment_text(page.times[0], "seconds")
    of = f"the {len(keys):,} rows that it sends when asked by time ({since})"
    said = f"Following its cursors, {count_text(size, 'row')} a page,"
    faults = [f"silently loses {lost:,}"] * bool(lost) + [f"repeats {twice:,}"] * bool(twice)
    advice = "Never follow them: load_balance_changes walks by time instead."
    return value, *_first(
        (faults, "warning", f"{said} {' and '.join(faults)} of {of}. {advice}"),
        (cuts, "ok", f"{said} gives all of {of}; {count_text(cuts, 'page')} ended inside a block."),
        (True, "unknown", f"{said} gives all of {of}, but no page ended inside a block."),
    )


def _cutting_size(times: list[int]) -> tuple[int, int]:
    """Return the page size whose pages end inside a block most often, and how often that is.

    Of several, it is the smallest that reaches furthest, since full pages show most.
    """

    def cuts(size: int) -> int:
        ends = range(size, min(len(times), _CURSOR_PAGES * size + 1), size)
        return sum(times[i - 1] == times[i] for i in ends)

    sizes = range(1, len(times))
    size = max(sizes, key=lambda size: (cuts(size), min(_CURSOR_PAGES * size, len(times)), -size))
    return size, cuts(size)


def range_bounds(probe: Probe) -> Outcome:
    """Tell whether a range holds the rows on its bounds."""
    if probe.rows().grain > 1 or probe.unit != "ns":
        raise IncompleteError("the unit of the rows is too coarse to show what is on a bound")
    value = _try_bounds(probe)
    ignored = [side for side, how in value.items() if how == "ignored"]
    unlike = f"Unlike on other nodes, the start is {value['start']} and the end {value['end']}"
    is_usual = value == {"start": "inclusive", "end": "exclusive"}
    return value, *_first(
        (ignored, "warning", f"The {_listed(ignored)} of a range has no effect: loads fail."),
        (is_usual, "ok", "A range holds the row at its start and not the one at its end."),
        (True, "note", f"{unlike}: loads allow for it."),
    )


def _try_bounds(probe: Probe) -> dict[str, str]:
    """Return how each bound of a range is read, tried on a row that has older and newer ones."""
    times = sorted(set(probe.rows().times))
    at = times[len(times) // 2]
    after = probe.page(at, at + 1, first=1).times
    before = probe.page(at - 1, at, first=1, newest_first=True).times
    later = probe.page(at + 1, at + 2, first=1).times if at in before else []
    start = "inclusive" if at in after else "exclusive"
    end = "inclusive" if at in before else "exclusive"
    if min([at, *after]) < at or min([at, *before]) < at - 1 or min([at + 1, *later]) <= at:
        start = "ignored"
    if max([at, *before]) > at or max([at, *after]) > at + 1:
        end = "ignored"
    return {"start": start, "end": end}


def timestamps(probe: Probe) -> Outcome:
    """Tell in which unit rows and bounds are."""
    probe.rows()
    units = sorted({unit for page in probe.pages for unit in page.units})
    is_whole = not any(moment % 1000 for page in probe.pages for moment in page.nanoseconds)
    value = {"rows": units, "bounds": probe.unit, "whole_microseconds": is_whole}
    said = f"Rows come in {_listed(units)}, not in ns: loads fail on them."
    return value, *_first(
        (probe.unit != "ns", "warning", f"Bounds are in {probe.unit}, not in ns: loads fail."),
        (units != ["ns"], "warning", said),
        (not is_whole, "warning", "Rows have parts of a microsecond: loads fail on them."),
        (True, "ok", "Rows and bounds are in nanoseconds, rows on whole microseconds."),
    )


def filters(probe: Probe) -> Outcome:
    """Tell which filters leave exactly the rows that they should."""
    _, _, page = probe.stretch()
    value: dict[str, str] = {}
    for each, (column, parameter) in zip(fields(Filters), FILTER_NAMES.items(), strict=True):
        name, field = each.name, FIELD_NAMES[column]
        values = dict.fromkeys(str(node.get(field) or "") for node in page.nodes)
        texts = [text for text in values if text and not text.isdecimal()]
        if texts and len(values) > 1:
            value[name] = _try_filter(probe, parameter, field, texts[0])
    if not value:
        raise IncompleteError("all rows have the same ids, so no filter could leave one out")
    words = {name.replace("_", " "): how for name, how in value.items()}
    wrong = ", ".join(f"{name} {how}" for name, how in words.items() if how != "honoured")
    if wrong:
        advice = "Load without it and select from the table."
        return value, "warning", f"Not every filter works: {wrong}. {advice}"
    names = _listed([*words])
    return value, "ok", f"Filters by {names} leave exactly the rows that they should."


def _try_filter(probe: Probe, parameter: str, field: str, text: str) -> str:
    """Return what a filter does in the stretch, all rows of which are known."""
    start, end, whole = probe.stretch()
    page = probe.page_or_refusal(start, end, first=probe.size, also=[(parameter, text)])
    if not isinstance(page, SentPage):
        return "refused"
    if any(node.get(field) != text for node in page.nodes):
        return "ignored"
    pairs = zip(whole.keys, whole.nodes, strict=True)
    wanted = {key for key, node in pairs if node.get(field) == text}
    return "honoured" if wanted <= set(page.keys) else "too narrow"


def rows(probe: Probe) -> Outcome:
    """Tell whether the rows that came can be loaded, and are in order."""
    probe.newest()
    count = sum(page.edges for page in probe.pages)
    bad = [reason for page in probe.pages for reason in page.bad]
    value = {"rows": count, "bad": len(bad), "out_of_order": probe.out_of_order}
    if not count:
        raise IncompleteError("the node sent no row to tell by")
    if bad:
        return value, "warning", f"{len(bad):,} of {count:,} rows can't be loaded: {bad[0]}."
    if probe.out_of_order:
        return value, "warning", "Rows came out of order, so a load can't notice missing ones."
    text = f"Every row sent ({count:,}) is as the interface describes, and they are in order."
    return value, "ok", text


CHECKS: Final = (
    reachable, block, oldest_row, network_limits, cursors, range_bounds, timestamps, filters, rows,
)  # fmt: skip
"""In the order in which they are looked for: the last are about all answers together."""
