"""Find out what a node does, gently, and say what that means for who loads from it.

Nodes differ in what the interface leaves open, and some lose rows. `probe` sends the questions, at
most `MOST_REQUESTS` and at a slow pace, and leaves a node alone that refuses, bans or falls silent;
`checks` says what the answers mean, each for itself: what can't be found out is unknown, with the
reason, and the rest goes on.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from balance_analysis.errors import BalanceAnalysisError, RequestError
from balance_analysis.node.client import Client, check_client
from balance_analysis.node.doctor.checks import CHECKS, failure
from balance_analysis.node.doctor.probe import Probe, is_range_refusal
from balance_analysis.node.doctor.report import Finding, NodeReport, Outcome, sentence


def diagnose_node(client: Client, *, max_requests_per_second: float = 10.0) -> NodeReport:
    """Find out what a node does where the interface leaves it open, and where it misbehaves.

    Asks at most 40 times, and for few rows each time. Every request has a range: without one, some
    nodes read their whole table.

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
    check_client(client)
    asked_at = dt.datetime.now(dt.UTC)
    rate = min(max_requests_per_second, client.max_requests_per_second or max_requests_per_second)
    with client.paced(rate) as own:
        probe = Probe(own)
        errors = [failure(ask) for ask in (probe.limits, probe.newest)]
        strange = [e for e in errors if isinstance(e, RequestError) and not is_range_refusal(e)]
        if len(strange) == len(errors):
            raise strange[-1]
        findings = tuple(_examine(check, probe) for check in CHECKS)
    return NodeReport(client.base_url, asked_at, probe.allowance.requests, findings)


def _examine(check: Callable[[Probe], Outcome], probe: Probe) -> Finding:
    try:
        return Finding(check.__name__, *check(probe))
    except BalanceAnalysisError as error:
        said = sentence(str(error))
        return Finding(check.__name__, None, "unknown", said)
