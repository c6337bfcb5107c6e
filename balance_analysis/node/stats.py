"""Count requests and what they cost."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from typing import Final

_counting: Final = threading.Lock()


@dataclass(slots=True)
class RequestStats:
    """Counts of requests; safe to share between threads.

    `requests` counts repeated ones too, `retries` only these; `throttled_seconds` were waited
    because of a rate, summed over threads; `bytes` are those of answers, decompressed.
    """

    requests: int = 0
    retries: int = 0
    throttled_seconds: float = 0.0
    bytes: int = 0

    def add(self, **counts: float) -> None:
        """Add to the counts, by their names."""
        with _counting:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def as_json(self) -> dict[str, float]:
        """Return the counts by name."""
        return asdict(self) | {"throttled_seconds": round(self.throttled_seconds, 3)}
