"""How a node reads the range of a request: its bounds, their unit, and whether it needs one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from balance_analysis.errors import IncompleteError, RequestError
from balance_analysis.node.doctor.asking import is_range_refusal, is_refusal
from balance_analysis.node.doctor.page import DAY, SECOND, UNITS
from balance_analysis.node.doctor.wording import listed
from balance_analysis.node.window import EARLIEST

if TYPE_CHECKING:
    from balance_analysis.node.doctor.asking import Asker
    from balance_analysis.node.doctor.report import Said
    from balance_analysis.node.doctor.seen import Seen

_PATIENCE: Final = 5.0
"""Seconds for what a node that checks nothing might take long to answer."""


def judge_range_required(seen: Seen) -> Said:
    """Tell which requests are refused for their range."""
    asker = seen.asker
    # Neither long nor early, so that only the missing end can be refused.
    lately = max([*seen.newest().times, time.time_ns() // 1000 - DAY])
    ranges = {
        # Before any row, so that a node that checks nothing has nothing to read.
        "without_start": (None, EARLIEST + SECOND),
        "without_end": (lately, None),
        "over_365_days": (EARLIEST, EARLIEST + 400 * DAY),
    }
    statuses: dict[str, int] = {}
    for name, (start, end) in ranges.items():
        try:
            asker.page(start, end, first=1, patience=_PATIENCE)
        except RequestError as error:
            # What has no end is answered by every release: there a 500 is a failure.
            is_no = is_refusal if name == "without_end" else is_range_refusal
            if not is_no(error):
                raise
            statuses[name] = error.status or 0
    value = {name: statuses.get(name, 200) for name in ranges}
    names = {
        "without_start": "without a start",
        "without_end": "without an end",
        "over_365_days": "of more than 365 days",
    }
    refused = [f"{names[name]} ({status})" for name, status in statuses.items()]
    if "without_start" not in statuses:
        others = f"; refused are those {listed(refused)}" if refused else ""
        text = (
            f"Requests without a start are answered{others}. Never send them: a node that checks "
            "nothing may read its whole table. Loads always send a range."
        )
        return value, "note", text
    text = f"Requests {listed(refused)} are refused; loads always send a range of under a year."
    return value, "ok", text


def judge_range_bounds(seen: Seen) -> Said:
    """Tell whether a range holds the rows on its bounds."""
    page = seen.row_page()
    if page.grain > 1 or seen.asker.scale > 1:
        raise IncompleteError("rows or bounds are in a unit too coarse to tell what is on a bound")
    value = _try_bounds(seen.asker, sorted(set(page.times)))
    if "ignored" in value.values():
        sides = listed([side for side, how in value.items() if how == "ignored"])
        text = f"It ignores the {sides} of a range: a load notices and fails."
        return value, "warning", text
    if value == {"start": "inclusive", "end": "exclusive"}:
        return value, "ok", "A range holds the row at its start and not the one at its end."
    text = (
        f"Unlike on other nodes, the start is {value['start']} and the end {value['end']}: windows "
        "put side by side would lose or repeat rows; loads allow for it."
    )
    return value, "note", text


def _try_bounds(asker: Asker, times: list[int]) -> dict[str, str]:
    """Return how each bound is read, tried on a row that has older and newer ones."""
    at = times[len(times) // 2]
    after = asker.page(at, at + 1, first=1).times
    before = asker.page(at - 1, at, first=1, newest_first=True).times
    start = "inclusive" if at in after else "exclusive"
    end = "inclusive" if at in before else "exclusive"
    if end == "inclusive" and any(t <= at for t in asker.page(at + 1, at + 2, first=1).times):
        start = "ignored"
    if any(t < at for t in after) or any(t < at - 1 for t in before):
        start = "ignored"
    if any(t > at for t in before) or any(t > at + 1 for t in after):
        end = "ignored"
    return {"start": start, "end": end}


def judge_timestamps(seen: Seen) -> Said:
    """Tell in which unit rows and bounds are."""
    seen.row_page()
    pages = seen.asker.pages
    units = sorted({unit for page in pages for unit in page.units})
    bounds = next(unit for unit, scale in UNITS.items() if scale == seen.asker.scale)
    is_whole = not any(moment % 1000 for page in pages for moment in page.nanoseconds)
    value = {"rows": units, "bounds": bounds, "whole_microseconds": is_whole}
    if bounds != "ns":
        text = (
            f"Bounds are read in {bounds}, where nodes read nanoseconds: a load from here is "
            "refused or comes back empty."
        )
        return value, "warning", text
    if units != ["ns"]:
        text = f"Rows come in {listed(units)}, where nodes send nanoseconds: a load fails on them."
        return value, "warning", text
    if not is_whole:
        text = "Rows have parts of a microsecond, which the table doesn't hold: loads fail on them."
        return value, "warning", text
    return value, "ok", "Rows and bounds are in nanoseconds, rows on whole microseconds."
