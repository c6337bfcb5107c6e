"""The explorer over the sample data and over 20,000,000 rows: random views, each over HTTP."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING
from urllib.parse import urlencode
from urllib.request import urlopen

import numpy as np

from balance_analysis.demo import sample_archive
from balance_analysis.explorer.wire import VIEWS
from tests.benchmarks.archived import ARCHIVE
from tests.benchmarks.levels import DAY
from tests.benchmarks.served import served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.report import Report

VIEWED = 200
LENGTHS = (1, 7, 30, 91)


def ask(url: str, view: str, items: list[tuple[str, object]]) -> tuple[float, dict[str, object]]:
    """Return the seconds that a view took, and the view."""
    began = time.perf_counter()
    with urlopen(f"{url}/explore/{view}?{urlencode(items)}", timeout=120) as answer:
        body = answer.read()
    return time.perf_counter() - began, json.loads(body)


def random_views(url: str, seed: int = 5) -> Iterator[tuple[str, list[tuple[str, object]]]]:
    """Yield views as somebody who explores asks for them: of any asset, account and range."""
    chosen = random.Random(seed)
    _, about = ask(url, "about", [])
    assets = [asset["id"] for asset in about["assets"]]
    known = {}
    for _ in range(VIEWED):
        asset = chosen.choice(assets)
        if asset not in known:
            _, found = ask(url, "accounts", [("asset", asset)])
            known[asset] = [row[0] for row in found["accounts"]["rows"]]
        view = chosen.choice([name for name in VIEWS if name != "version"])
        start = chosen.randrange(about["start"], about["end"])
        values = {
            "asset": [asset],
            "account": chosen.sample(known[asset], chosen.randint(1, 8 if view == "series" else 1)),
            "start": [start],
            "end": [start + chosen.choice(LENGTHS) * DAY],
            "at": [start],
            "text": [f"{chosen.randrange(256):02x}"],
            "width": [1200],
            "page": [0],
        }
        yield view, [(name, value) for name in VIEWS[view][1] for value in values[name]]


def measure(url: str) -> dict[str, float]:
    """Return how long views took, in milliseconds."""
    seconds: dict[str, list[float]] = {}
    for view, items in random_views(url):
        seconds.setdefault(view, []).append(ask(url, view, items)[0])
    every = [each for found in seconds.values() for each in found]
    figures = {f"p95 of {VIEWED} views": np.percentile(every, 95), "longest": max(every)}
    figures |= {f"median of {view}": np.median(found) for view, found in seconds.items()}
    return {name: 1000 * float(figure) for name, figure in figures.items()}


def tell(report: Report, group: str, figures: dict[str, float], bounds: dict[str, float]) -> None:
    for says, figure in figures.items():
        report.tell(group, says, figure, unit="ms", most=bounds.get(says))


def test_random_views_of_the_sample(report):
    with sample_archive() as archive, served(archive.store.folder) as service:
        tell(report, "the explorer, sample data", measure(service.url), {"longest": 200})


def test_random_views_of_20_000_000_rows(report, large_archive):
    group, bounds = "the explorer, 20,000,000 rows", {f"p95 of {VIEWED} views": 1000}
    with served(large_archive[0] / ARCHIVE) as service:
        tell(report, group, measure(service.url), bounds)
        report.tell(group, "most memory", service.memory("VmHWM"), unit="MB")
