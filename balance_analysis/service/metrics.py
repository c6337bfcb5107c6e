"""What the service has done so far, as Prometheus reads it."""

from __future__ import annotations

import bisect
import threading
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from balance_analysis.archive.status import ArchiveStatus

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_PREFIX: Final = "balance_analysis_service_"
_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds: where the histogram's buckets end."""

_Sample = tuple[str, float]
"""What follows a metric's name, such as `{path="/docs"}`, and its value."""


class Metrics:
    """Counts requests, from any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._buckets: dict[str, list[int]] = {}
        self._rows = 0
        self._in_flight = 0

    def begin(self) -> int:
        """Note that a request has come; return how many are under way with it."""
        with self._lock:
            self._in_flight += 1
            return self._in_flight

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
            self._in_flight -= 1
            self._requests[path, status] += 1
            self._seconds[path] += seconds
            buckets = self._buckets.setdefault(path, [0] * (len(_BOUNDS) + 1))
            buckets[bisect.bisect_left(_BOUNDS, seconds)] += 1

    def add_rows(self, count: int) -> None:
        """Note that rows are served."""
        with self._lock:
            self._rows += count

    def text(self, status: ArchiveStatus | None) -> str:
        """Return all of it in Prometheus' text format.

        Parameters
        ----------
        status
            What the archive holds; `None` where it can't be read.
        """
        with self._lock:
            lines = [*self._lines(), *_archive_lines(status)]
        return "\n".join(lines) + "\n"

    def _lines(self) -> Iterator[str]:
        counts = (
            (_labels(path=path, status=str(status)), float(count))
            for (path, status), count in sorted(self._requests.items())
        )
        yield from _family("requests_total", "counter", "Requests that are done with.", counts)
        yield from _family(
            "request_seconds",
            "histogram",
            "How long requests took until their answer was handed over.",
            self._histogram(),
        )
        yield from _family("rows_total", "counter", "Rows served.", [("", self._rows)])
        yield from _family("in_flight", "gauge", "Requests under way.", [("", self._in_flight)])

    def _histogram(self) -> Iterator[_Sample]:
        for path, buckets in sorted(self._buckets.items()):
            below = 0
            for bound, count in zip((*map(str, _BOUNDS), "+Inf"), buckets, strict=True):
                below += count
                yield f"_bucket{_labels(path=path, le=bound)}", below
            yield f"_sum{_labels(path=path)}", self._seconds[path]
            yield f"_count{_labels(path=path)}", below


def _archive_lines(status: ArchiveStatus | None) -> Iterator[str]:
    figures: Mapping[str, tuple[str, float | None]] = {
        "archive_readable": ("Whether the archive can be read.", int(status is not None))
    }
    if status is not None:
        end = status.complete[-1][1].timestamp() if status.complete else None
        age = None if status.age is None else status.age.total_seconds()
        figures = {
            **figures,
            "archive_rows": ("Rows that the archive holds.", status.rows),
            "coverage_end_timestamp_seconds": ("Where what is complete ends.", end),
            "coverage_age_seconds": ("How long ago what is complete ends.", age),
        }
    for name, (about, value) in figures.items():
        if value is not None:
            yield from _family(name, "gauge", about, [("", value)])


def _family(name: str, kind: str, about: str, samples: Iterable[_Sample]) -> Iterator[str]:
    full = f"{_PREFIX}{name}"
    yield f"# HELP {full} {about}"
    yield f"# TYPE {full} {kind}"
    for rest, value in samples:
        yield f"{full}{rest} {value:.15g}"


def _labels(**labels: str) -> str:
    """Return labels as text; their values have no quotes, backslashes or line breaks."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"
