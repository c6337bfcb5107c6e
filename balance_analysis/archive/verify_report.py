"""What a verification found: problems, and a report of them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from balance_analysis.notebook import rows_html
from balance_analysis.text import count_text

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal[
    "rows",
    "coverage",
    "checkpoint",
    "limits",
    "difference",
    "interrupted",
    "leftover",
    "stranger",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an archive.

    Attributes
    ----------
    kind
        "rows" (a file of balance changes), "coverage", "checkpoint", "limits", "difference" (from
        what a node says), "interrupted" (a run that was cut off, or is under way), "leftover" (of
        an interrupted write), "stranger" (a file that is no part of an archive).
    what
        What is wrong, in words.
    where
        The file, or the window that was compared.
    mend
        What to do about it.
    periods
        The periods that are to be asked for again.
    """

    kind: Kind
    what: str
    where: str
    mend: str
    periods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was found out about an archive. As text it is a list for the terminal.

    Attributes
    ----------
    uri
        Its address.
    problems
        What is wrong; nothing where the archive is proven to be whole.
    files, rows, checkpoints
        How many were checked.
    windows
        How many were asked for again and compared.
    not_compared
        What could not be compared, and why: a node that forgot proves nothing.
    gaps, unproven
        How many gaps and unproven intervals its coverage has: no problems, but not proven either.
    """

    uri: str
    problems: tuple[Problem, ...] = ()
    files: int = 0
    rows: int = 0
    checkpoints: int = 0
    windows: int = 0
    not_compared: tuple[str, ...] = ()
    gaps: int = 0
    unproven: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def to_json(self) -> str:
        """Return the report as JSON."""
        return json.dumps({"is_whole": self.is_whole, **asdict(self)}, indent=2)

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def _repr_html_(self) -> str:
        title, *_ = _lines(self)
        found = [(each.where, each.what, each.mend) for each in self.problems]
        found += [("not compared", said, "") for said in self.not_compared]
        return rows_html(title, ("where", "what", "what to do"), found)


def _lines(report: VerifyReport) -> Iterator[str]:
    names, count = ("file", "row", "checkpoint", "window"), len(report.problems)
    looked = ", ".join(count_text(getattr(report, f"{name}s"), name) for name in names)
    found = count_text(count, "problem") if count else "whole"
    yield f"{report.uri}: {found} ({looked} asked again)"
    if report.gaps or report.unproven:
        gaps = count_text(report.gaps, "gap")
        unproven = count_text(report.unproven, "unproven part")
        yield f"its coverage has {gaps} and {unproven}: `status` tells which"
    for problem in report.problems:
        yield f"{problem.where}: {problem.what}"
        yield f"    {problem.mend}"
    for said in report.not_compared:
        yield f"not compared: {said}"
