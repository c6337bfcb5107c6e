"""A real browser, and a report for it to open from disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from balance_analysis.report.report import write_report
from tests.analysis.tables import DAY, HOUR, LARGEST, START, table_of

ROOT = Path(__file__).parents[2]
SCRIPT = "<script>alert(1)</script>"
MARKET = "bda439ade276efe1567fedec94ea5b9c040c5f89f72382ef1cf893faf0454f32"


def party(place: int) -> str:
    return f"{place:02x}" * 32


@pytest.fixture(scope="session")
def report(tmp_path_factory):
    """A report on twelve accounts of one asset and one of another, all of them troublesome."""
    general, margin = "ACCOUNT_TYPE_GENERAL", "ACCOUNT_TYPE_MARGIN"
    keys = [("VOTE", general, party(place), "") for place in range(10)]
    keys += [("VOTE", general, SCRIPT, ""), ("VOTE", margin, party(1), MARKET)]
    # The largest three are the same number to a float.
    rows = [
        (*key, START + day * DAY + place * HOUR, 10 ** min(3 * place, 27) * (day + 1) + place)
        for place, key in enumerate(keys)
        for day in range(3)
    ]
    rows.append(("f" * 64, general, party(1), "", START, LARGEST))
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(table_of(rows), path, largest=3)
    return path


@dataclass
class Seen:
    """What a page did: its messages to the console and its errors; what it asked for and got."""

    said: list[str]
    asked: list[str]
    sent: list[str]


@pytest.fixture
def seen():
    return Seen([], [], [])


@pytest.fixture
def open_page(chromium, report, seen):
    """Open the report in a window of some width and theme."""
    contexts = []

    def open_it(*, width=1440, theme="light", path=report, **options):
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, **options
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: seen.said.append(message.text))
        page.on("pageerror", lambda error: seen.said.append(str(error)))
        page.on("dialog", lambda dialog: seen.said.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: seen.asked.append(request.url))
        page.on("requestfinished", lambda request: seen.sent.append(request.url))
        page.goto(path.as_uri())
        return page

    yield open_it
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def axe():
    """The source of axe-core, where it is installed."""
    places = [ROOT / "node_modules" / "axe-core" / "axe.min.js"]
    if os.environ.get("AXE_CORE"):
        places.insert(0, Path(os.environ["AXE_CORE"]))
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        pytest.skip("no axe-core: run `npm install --no-save axe-core`, or name it in AXE_CORE")
    return found.read_text(encoding="utf-8")
