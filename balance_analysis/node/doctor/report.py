"""What was found out about a node, in words."""

from __future__ import annotations

import datetime as dt
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from balance_analysis.presentation import Record
from balance_analysis.text import count_text, moment_text

Verdict = Literal["ok", "note", "warning", "unknown"]
Outcome = tuple[Any, Verdict, str]

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
    """Yield the lines of a report, at most `_WIDTH` wide."""
    counts = Counter(finding.verdict for finding in findings)
    said = [count_text(counts[kind], kind) for kind in ("warning", "note") if counts[kind]]
    said += [f"{counts['unknown']} unknown"] * (counts["unknown"] > 0)
    yield ", ".join(said) or "nothing to remark"
    yield ""
    width = max((len(finding.name) for finding in findings), default=0)
    reasons: dict[str, str] = {}
    for finding in findings:
        verdict = finding.verdict.upper() if finding.verdict == "warning" else finding.verdict
        name, text = finding.name.replace("_", " "), printable(finding.explanation)
        head = f"{verdict:7}  {name:{width}}  "
        if verdict == "unknown" and reasons.setdefault(text, name) != name:
            text = f"As for {reasons[text]}."
        indent = " " * len(head)
        yield textwrap.fill(
            text, _WIDTH, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False
        )


def listed(words: list[str]) -> str:
    """Return words as a sentence lists them."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def sentence(text: str) -> str:
    """Return an error's words as a sentence; an address stays as it is."""
    said = printable(text).rstrip(".")
    return f"{said if '://' in said[:8] else said[:1].upper() + said[1:]}."


def printable(text: str) -> str:
    """Return a node's words on one line, without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
