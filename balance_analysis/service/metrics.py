"""What the service has done so far, as Prometheus reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as MEDIA_TYPE

if TYPE_CHECKING:
    from balance_analysis.archive.status import ArchiveStatus

__all__ = ["MEDIA_TYPE", "Metrics"]

_PREFIX: Final = "balance_analysis_service_"


class Metrics:
    """What is counted, from any number of threads."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            f"{_PREFIX}requests",
            "Requests that are done with.",
            ["path", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            f"{_PREFIX}request_seconds",
            "How long requests took until their answer was handed over.",
            ["path"],
            registry=registry,
        )
        self.rows = Counter(f"{_PREFIX}rows", "Rows served.", registry=registry)
        self.in_flight = Gauge(f"{_PREFIX}in_flight", "Requests under way.", registry=registry)

    def text(self, status: ArchiveStatus | None) -> bytes:
        """Return all of it, and what the archive holds, in Prometheus' text format.

        Parameters
        ----------
        status
            Of the archive; `None` where it can't be read.
        """
        archive = CollectorRegistry()
        for name, (about, value) in _archive_figures(status).items():
            if value is not None:
                Gauge(f"{_PREFIX}{name}", about, registry=archive).set(value)
        return generate_latest(self._registry) + generate_latest(archive)


def _archive_figures(status: ArchiveStatus | None) -> dict[str, tuple[str, float | None]]:
    figures: dict[str, tuple[str, float | None]] = {
        "archive_readable": ("Whether the archive can be read.", int(status is not None))
    }
    if status is None:
        return figures
    end = status.complete[-1][1].timestamp() if status.complete else None
    age = None if status.age is None else status.age.total_seconds()
    return {
        **figures,
        "archive_rows": ("Rows that the archive holds.", status.rows),
        "coverage_end_timestamp_seconds": ("Where what is complete ends.", end),
        "coverage_age_seconds": ("How long ago what is complete ends.", age),
    }
