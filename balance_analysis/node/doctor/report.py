"""What was found out about a node, as a table for the terminal and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from balance_analysis.node.doctor.wording import printable

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator

Verdict = Literal["ok", "note", "warning", "unknown"]
Said = tuple[Any, Verdict, str]

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
class NodeReport:
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
        for finding in self.findings:
            if finding.name == name:
                return finding
        raise KeyError(name)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that are warnings."""
        return tuple(finding for finding in self.findings if finding.verdict == "warning")

    def to_json(self) -> str:
        """Return the report as JSON."""
        content = {
            "node": self.node,
            "asked_at": self.asked_at.isoformat(),
            "requests": self.requests,
            "findings": [asdict(finding) for finding in self.findings],
        }
        return json.dumps(content, indent=2)

    def __str__(self) -> str:
        return "\n".join(_table(self))


def _table(report: NodeReport) -> Iterator[str]:
    """Yield the lines of a report, at most `_WIDTH` wide except for the address."""
    counts = Counter(finding.verdict for finding in report.findings)
    kinds = {"warning": "warnings", "note": "notes", "unknown": "unknown"}
    said = [
        f"{count} {kind if count == 1 else kinds[kind]}"
        for kind in kinds
        if (count := counts[kind])  # type: ignore[index]
    ]
    yield f"{report.node}, {report.asked_at:%Y-%m-%d %H:%M} UTC, {report.requests} requests"
    yield ", ".join(said) or "nothing to remark"
    yield ""
    width = max((len(finding.name) for finding in report.findings), default=0)
    reasons: dict[str, str] = {}
    for finding in report.findings:
        verdict = finding.verdict.upper() if finding.verdict == "warning" else finding.verdict
        head = f"{verdict:7}  {finding.name.replace('_', ' '):{width}}  "
        text = printable(finding.explanation)
        if finding.verdict == "unknown":
            first = reasons.setdefault(text, finding.name)
            text = text if first == finding.name else f"As for {first.replace('_', ' ')}."
        yield textwrap.fill(
            text,
            _WIDTH,
            initial_indent=head,
            subsequent_indent=" " * len(head),
            break_on_hyphens=False,
        )
