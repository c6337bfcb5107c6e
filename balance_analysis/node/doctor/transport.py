"""Whether and how a node answers at all: its block, its speed, its limits of rate."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Final

from balance_analysis.errors import BalanceAnalysisError, IncompleteError, RequestError
from balance_analysis.node.doctor.asking import is_range_refusal
from balance_analysis.node.doctor.page import SECOND
from balance_analysis.node.doctor.wording import (
    duration,
    how_often,
    moment,
    printable,
    sentence,
    some,
)
from balance_analysis.schema import from_microseconds

if TYPE_CHECKING:
    from balance_analysis.node.doctor.report import Said
    from balance_analysis.node.doctor.seen import Seen

_MEASURABLE: Final = 2_000
"""Bytes from which an answer is worth compressing."""

_LONGEST_LAG: Final = 60.0
_SLOW_MS: Final = 1_000.0


def check_reachable(seen: Seen) -> None:
    """Raise the node's error if neither operation answers, nor refuses as a node does."""
    for ask in (seen.limits, seen.newest):
        try:
            ask()
        except RequestError as error:
            if is_range_refusal(error):
                return
            failure = error
        except BalanceAnalysisError:
            return
        else:
            return
    raise failure


def judge_reachable(seen: Seen) -> Said:
    """Tell which of the two operations are answered."""
    failures = {}
    for name, ask in (("balance changes", seen.newest), ("network limits", seen.limits)):
        try:
            ask()
        except BalanceAnalysisError as error:
            failures[name] = str(error)
    if "balance changes" in failures:
        return True, "warning", f"It gives no balance changes: {failures['balance changes']}."
    if failures:
        return True, "note", "Balance changes are answered, the network limits are not."
    return True, "ok", "Balance changes and network limits are both answered."


def judge_block(seen: Seen) -> Said:
    """Tell which block it holds last, and how old that is."""
    head = seen.asker.head
    if head is None or head.block_time is None:
        text = "It doesn't say which block it holds last, so whether it lags can't be told."
        return None, "unknown", text
    lag = time.time() - head.block_time / SECOND
    value = {
        "height": head.block_height,
        "time": from_microseconds(head.block_time).isoformat(),
        "lag_seconds": round(lag, 1),
    }
    height = "?" if head.block_height is None else f"{head.block_height:,}"
    said = f"Its last block is {height} of {moment(head.block_time)}"
    if lag > _LONGEST_LAG:
        text = f"{said}, {duration(lag)} ago: it lags or stands still, and newer rows are missing."
        return value, "warning", text
    if lag < -_LONGEST_LAG:
        return value, "note", f"{said}, {duration(-lag)} ahead of this machine's clock."
    return value, "ok", f"{said}, {duration(abs(lag))} ago."


def judge_latency(seen: Seen) -> Said:
    """Tell how long an answer takes."""
    seconds = [answer.seconds for answer in seen.asker.answers]
    if not seconds:
        raise IncompleteError("nothing was answered")
    value = round(statistics.median(seconds) * 1000, 1)
    said = f"An answer took {value:,g} ms, the median of {len(seconds)}"
    if value > _SLOW_MS:
        return value, "note", f"{said}: load with more workers."
    return value, "ok", f"{said}."


def judge_compression(seen: Seen) -> Said:
    """Tell whether answers come compressed."""
    large = [answer for answer in seen.asker.answers if answer.size >= _MEASURABLE]
    if not large:
        raise IncompleteError("no answer was large enough to be worth compressing")
    kinds = {answer.headers.get("Content-Encoding") or "none" for answer in large}
    value = ", ".join(sorted(kinds))
    if "none" in kinds:
        text = "Answers are not compressed, though asked for: they are some ten times as large."
        return value, "note", text
    return value, "ok", f"Answers are compressed ({printable(value)})."


def judge_rate_limit(seen: Seen) -> Said:
    """Tell whether it refuses requests as too many."""
    allowance = seen.asker.allowance
    headers = {
        name: value
        for answer in seen.asker.answers
        for name, value in answer.headers.items()
        if "ratelimit" in name.lower().replace("-", "")
    }
    value = {"headers": headers, "refused": allowance.retries}
    told = [f"{name}: {text}" for name, text in headers.items()]
    said = f" Headers tell: {some(told)}." if headers else " No header tells its limit."
    ended = seen.asker.ended
    if ended is not None and ended.status is not None:
        return value, "warning", f"{sentence(str(ended))}{said}"
    if allowance.retries:
        text = (
            f"It refused {how_often(allowance.retries)} as too many, in {allowance.requests} "
            f"requests.{said} Loads slow down by themselves."
        )
        return value, "note", text
    text = f"None of {allowance.requests} unhurried requests was refused as too many.{said}"
    return value, "ok", text
