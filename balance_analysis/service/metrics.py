"""What the service has done so far, as Prometheus reads it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from balance_analysis.archive.status import ArchiveStatus

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_PREFIX: Final = "balance_analysis_service_"
_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds: where the histogram's buckets end."""


class Metrics:
    """Counts requests, from any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way = 0
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            f"{_PREFIX}requests",
            "Requests that are done with.",
            ["path", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            f"{_PREFIX}request_seconds",
            "How long requests took until their answer was handed over.",
            ["path"],
            buckets=_BOUNDS,
            registry=registry,
        )
        self._rows = Counter(f"{_PREFIX}rows", "Rows served.", registry=registry)
        in_flight = Gauge(f"{_PREFIX}in_flight", "Requests under way.", registry=registry)
        in_flight.set_function(lambda: self._under_way)

    def begin(self) -> int:
        """Note that a request has come; return how many are under way with it."""
        with self._lock:
            self._under_way += 1
            return self._under_way

    def end(self, path: str, status: int, seconds: float) -> None:
        """Note that a request is done with.

        Parameters
        ----------
        path
            One of few: each makes lines of its own.
        status
            Of its answer.
        seconds
            From when it came until its answer was handed over.
        """
        with self._lock:
            self._under_way -= 1
        self._requests.labels(path, status).inc()
        self._seconds.labels(path).observe(seconds)

    def add_rows(self, count: int) -> None:
        """Note that rows are served."""
        self._rows.inc(count)

    def text(self, status: ArchiveStatus | None) -> bytes:
        """Return all of it in Prometheus' text format.

        Parameters
        ----------
        status
            What the archive holds; `None` where it can't be read.
        """
        return generate_latest(_Families(self._registry, status))


@dataclass(frozen=True)
class _Families:
    registry: CollectorRegistry
    status: ArchiveStatus | None

    def collect(self) -> Iterator[Metric]:
        """Yield what the library counted, but for when it began to, and what the archive holds."""
        for family in self.registry.collect():
            family.samples = [s for s in family.samples if not s.name.endswith("_created")]
            yield family
        for name, (about, value) in _archive_figures(self.status).items():
            if value is not None:
                yield GaugeMetricFamily(f"{_PREFIX}{name}", about, value)


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
