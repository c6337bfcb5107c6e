"""What the service has done so far, as Prometheus reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from balance_analysis.archive.status import ArchiveStatus

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

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

        def tell(name: str, about: str, value: float) -> None:
            Gauge(f"{_PREFIX}{name}", about, registry=archive).set(value)

        tell("archive_readable", "Whether the archive can be read.", status is not None)
        if status is not None:
            tell("archive_rows", "Rows that the archive holds.", status.rows)
        if status is not None and status.age is not None:
            end, age = status.complete[-1][1].timestamp(), status.age.total_seconds()
            tell("coverage_end_timestamp_seconds", "Where what is complete ends.", end)
            tell("coverage_age_seconds", "How long ago what is complete ends.", age)
        return generate_latest(self._registry) + generate_latest(archive)
