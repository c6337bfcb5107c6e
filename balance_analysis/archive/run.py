"""What one run did to an archive, as the caller gets it."""

from __future__ import annotations

import datetime as dt
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from balance_analysis.notebook import facts_html
from balance_analysis.spans import joined
from balance_analysis.text import moment_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from balance_analysis.node.decode import BadRow
    from balance_analysis.schema import NetworkLimits
    from balance_analysis.spans import Span

STAMP: Final = "%Y%m%dT%H%M%S.%fZ"
"""How the name of a run begins, so that names sort by time."""


def new_id() -> str:
    """Return a name for a run that begins now."""
    return f"{dt.datetime.now(dt.UTC):{STAMP}}-{secrets.token_hex(3)}"


@dataclass(slots=True)
class Run:
    """What one export did.

    Attributes
    ----------
    id
        Its name: that of its report in `_runs`, and of its bad rows in `_quarantine`.
    spans
        What it asked for, [start, end) each, microseconds.
    committed
        What of it the archive holds now.
    rows
        How many rows came that the archive didn't hold.
    conflicts
        Rows that the archive held and that came with another balance, which it holds now, or did
        not come again.
    bad_rows
        Rows that the table can't hold, kept aside.
    damaged
        Files of the archive that are gone, or of another size than what was written.
    requests
        How many were sent.
    source, block_height, limits
        The node, the last block that it held, and the network's limits, if it has any.
    asked_at
        When it was asked, ISO 8601 in UTC.
    finished
        A node whose chain stands still, and the time of its last block, microseconds: that block is
        finished. `None` where a chain goes on, or the archive needs nothing of the block.
    """

    id: str = field(default_factory=new_id)
    spans: list[Span] = field(default_factory=list)
    committed: list[Span] = field(default_factory=list)
    rows: int = 0
    conflicts: list[pa.Table] = field(default_factory=list)
    bad_rows: dict[BadRow, None] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    requests: int = 0
    source: str = ""
    block_height: int | None = None
    limits: NetworkLimits | None = None
    asked_at: str = field(
        default_factory=lambda: dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    )
    finished: tuple[str, int] | None = None

    def commits(self, start: int, end: int) -> None:
        """Note that [start, end) is in the archive."""
        self.committed = joined([*self.committed, (start, end)])

    def _repr_html_(self) -> str:
        facts = {
            "run": self.id,
            "asked for": _listed(self.spans),
            "committed": _listed(self.committed),
            "new rows": self.rows,
            "conflicts": sum(rows.num_rows for rows in self.conflicts),
            "bad rows": len(self.bad_rows),
            "damaged files": ", ".join(self.damaged) or "none",
            "requests": self.requests,
            "node": self.source or "unknown",
            "block height": "unknown" if self.block_height is None else self.block_height,
            "asked at": dt.datetime.fromisoformat(self.asked_at),
        }
        return facts_html("An export", facts.items())


def _listed(spans: Iterable[Span]) -> str:
    """Return intervals for a person, one a line."""
    return "\n".join(" to ".join(map(moment_text, span)) for span in spans) or "nothing"
