"""Diagnose a node: look for each finding by itself, and report them all."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

from balance_analysis.errors import BalanceAnalysisError
from balance_analysis.node.doctor.asking import Asker
from balance_analysis.node.doctor.contents import (
    judge_account_types,
    judge_fields,
    judge_filters,
    judge_network_limits,
    judge_oldest_row,
    judge_rows,
)
from balance_analysis.node.doctor.paging import judge_cursors, judge_page_size
from balance_analysis.node.doctor.ranges import (
    judge_range_bounds,
    judge_range_required,
    judge_timestamps,
)
from balance_analysis.node.doctor.report import Finding, NodeReport
from balance_analysis.node.doctor.seen import Seen
from balance_analysis.node.doctor.transport import (
    check_reachable,
    judge_block,
    judge_compression,
    judge_latency,
    judge_rate_limit,
    judge_reachable,
)
from balance_analysis.node.doctor.wording import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from balance_analysis.node.client import Client
    from balance_analysis.node.doctor.report import Said


def diagnose_node(client: Client, *, max_requests_per_second: float = 10.0) -> NodeReport:
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
    seen = Seen(Asker(client, max_requests_per_second))
    check_reachable(seen)
    findings = tuple(_examine(name, look, seen) for name, look in _LOOKS.items())
    return NodeReport(client.base_url, asked_at, seen.asker.allowance.requests, findings)


def _examine(name: str, look: Callable[[Seen], Said], seen: Seen) -> Finding:
    try:
        return Finding(name, *look(seen))
    except BalanceAnalysisError as error:
        return Finding(name, None, "unknown", sentence(str(error)))


_LOOKS: Final[Mapping[str, Callable[[Seen], Said]]] = {
    "reachable": judge_reachable,
    "block": judge_block,
    "oldest_row": judge_oldest_row,
    "network_limits": judge_network_limits,
    "page_size": judge_page_size,
    "cursors": judge_cursors,
    "range_bounds": judge_range_bounds,
    "range_required": judge_range_required,
    "timestamps": judge_timestamps,
    "filters": judge_filters,
    "rows": judge_rows,
    "fields": judge_fields,
    "account_types": judge_account_types,
    "latency": judge_latency,
    "compression": judge_compression,
    "rate_limit": judge_rate_limit,
}
"""In the order in which they are looked for: the last are about all answers together."""
