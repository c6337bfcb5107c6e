"""Find out what a node does, gently, and say what that means for who loads from it.

Nodes differ in what the interface leaves open, and some lose rows. `probe` sends the questions, at
most `MOST_REQUESTS` and at a slow pace, and leaves a node alone that refuses, bans or falls silent;
`checks` says what the answers mean, each for itself: what can't be found out is unknown, with the
reason, and the rest goes on.
"""

from __future__ import annotations

import datetime as dt
import shutil
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from balance_analysis.errors import BalanceAnalysisError, RequestError
from balance_analysis.node.client import Client, check_client
from balance_analysis.node.doctor.checks import CHECKS, Outcome, Verdict, failure
from balance_analysis.node.doctor.probe import Probe, is_range_refusal
from balance_analysis.presentation import Record
from balance_analysis.text import count_text, moment_text

_WIDTH: Final = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found out about a node, or why it was not.

    Attributes
    ----------
    name
        What it is about.
    value
        What was found, of JSON's types; `None` where nothing was.
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
        What was found, always the same names in the same order.
    """

    node: str
    asked_at: dt.datetime
    requests: int
    findings: tuple[Finding, ...]

    def __getitem__(self, name: str) -> Finding:
        """Return the finding of that name."""
        return {finding.name: finding for finding in self.findings}[name]

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that are warnings."""
        return tuple(finding for finding in self.findings if finding.verdict == "warning")

    _header = ("verdict", "what", "found")

    def _title(self) -> str:
        return f"{self.node}, {moment_text(self.asked_at, 'minutes')}, {self.requests} requests"

    def _findings(self) -> Iterator[tuple[str, str, str]]:
        for each in self.findings:
            yield each.verdict, each.name.replace("_", " "), each.explanation

    def __str__(self) -> str:
        return "\n".join([self._title(), *_table(self.findings)])


def _table(findings: tuple[Finding, ...]) -> Iterator[str]:
    """Yield the lines of a report, at most `_WIDTH` wide, and as wide as the terminal."""
    room = min(_WIDTH, shutil.get_terminal_size((_WIDTH, 0)).columns)
    counts = Counter(finding.verdict for finding in findings)
    said = [count_text(counts[kind], kind) for kind in ("warning", "note") if counts[kind]]
    said += [f"{counts['unknown']} unknown"] * (counts["unknown"] > 0)
    yield ", ".join(said) or "nothing to remark"
    yield ""
    width = max((len(finding.name) for finding in findings), default=0)
    reasons: dict[str, str] = {}
    for finding in findings:
        verdict = finding.verdict.upper() if finding.verdict == "warning" else finding.verdict
        name, text = finding.name.replace("_", " "), _printable(finding.explanation)
        head = f"{verdict:7}  {name:{width}}  "
        if verdict == "unknown" and reasons.setdefault(text, name) != name:
            text = f"As for {reasons[text]}."
        indent = " " * len(head)
        yield textwrap.fill(
            text, room, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False
        )


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
    return NodeReport(client.base_url, asked_at, probe.stats.requests, findings)


def _examine(check: Callable[[Probe], Outcome], probe: Probe) -> Finding:
    try:
        return Finding(check.__name__, *check(probe))
    except BalanceAnalysisError as error:
        said = _printable(str(error)).rstrip(".")
        # A sentence; but an address stays as it is.
        said = said if "://" in said[:8] else said[:1].upper() + said[1:]
        return Finding(check.__name__, None, "unknown", f"{said}.")


def _printable(text: str) -> str:
    """Return a node's words on one line, without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
