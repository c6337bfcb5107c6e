"""A real browser, and pages for it to open: over an archive, and frozen on disk."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

import balance_analysis as ba
from balance_analysis import demo as samples
from tests.analysis.oracle import World
from tests.analysis.tables import DAY, HOUR, LARGEST, START, table_of
from tests.archive.writing import writer_of
from tests.moments import to_microseconds
from tests.service.archives import Stretch, write_archive
from tests.service.rows import Row
from tests.serving import serving

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--in-process-gpu"),
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
"""Of the browser, which draws by itself, without pages of its own, and reaches no other machine."""

ROOT = Path(__file__).parents[2]
SCRIPT = "<script>alert(1)</script>"
MARKET = "bda439ade276efe1567fedec94ea5b9c040c5f89f72382ef1cf893faf0454f32"
BEGIN = 1_680_480_000_000_000


def party(place: int) -> str:
    return f"{place:02x}" * 32


@pytest.fixture(scope="package")
def chromium():
    """A browser; for this package only, as it keeps an event loop running in the tests' thread."""
    path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if path is None:
        pytest.skip("no browser on the path: install Debian's chromium-headless-shell")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - long to import

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def frozen(tmp_path_factory):
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
    ba.write_report(table_of(rows), path)
    return path.as_uri()


@pytest.fixture(scope="session")
def demo(sample):
    """The address of the explorer over the sample data."""
    with serving(sample) as url:
        yield url


LONG = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" * 2 + "ABCDEFGHIJ"
HIDDEN = "p\nq\x01\u202ez"
GAP = BEGIN + 6 * DAY + 5 * HOUR, BEGIN + 7 * DAY + 11 * HOUR
UNPROVEN = BEGIN + 12 * DAY, BEGIN + 12 * DAY + 6 * HOUR
STOP = BEGIN + 20 * DAY


@pytest.fixture(scope="session")
def gapped(tmp_path_factory):
    """An archive with gaps, 38 digits and a symbol of 62 letters: address, accounts, archive.

    The accounts are those of the asset with the long symbol, by their ids.
    """
    rng, asset, general = random.Random(7), "aa" * 32, "ACCOUNT_TYPE_GENERAL"
    keys = [(asset, general, party(n), "") for n in range(1, 6)]
    keys += [(asset, "ACCOUNT_TYPE_MARGIN", party(n), MARKET) for n in (1, 2)]
    times = {key: rng.sample(range(BEGIN + n * DAY // 3, STOP), 30) for n, key in enumerate(keys)}
    held = [(key, time, rng.randrange(10**37)) for key in keys for time in times[key]]
    held += [((asset, general, "network", ""), BEGIN + HOUR, 10**36 + 1)]  # quiet since
    held += [((asset, general, party(9), ""), BEGIN + 9 * DAY, 7)]  # its first row behind the gap
    held += [((asset, general, HIDDEN, ""), BEGIN + 8 * DAY, 5)]
    held += [(("BIG", general, party(n), ""), BEGIN, LARGEST) for n in (1, 2)]
    held = [row for row in held if not GAP[0] <= row[1] < GAP[1]]
    edges = (
        (BEGIN, GAP[0], True),
        (GAP[1], UNPROVEN[0], True),
        (*UNPROVEN, False),
        (UNPROVEN[1], STOP, True),
    )
    archive = write_archive(
        tmp_path_factory.mktemp("gapped") / "archive",
        [Row(*key, time, balance) for key, time, balance in held],
        stretches=[Stretch(*one) for one in edges],
    )
    names = {
        "assets": {asset: {"symbol": LONG, "decimals": 18}},
        "labels": {party(1): "Alice & co"},
    }
    rows = [(*key, *row) for key, *row in held if key[0] == asset]
    book = World(rows, known=tuple(each[:2] for each in edges if each[2])).book()
    with serving(archive, **names) as url:
        yield f"{url}/", book, archive


@pytest.fixture(scope="session")
def thick(tmp_path_factory):
    """An archive of an account with more rows than a chart has points, and limits that changed."""
    key, first = ("f" * 64, "ACCOUNT_TYPE_GENERAL", party(1), ""), to_microseconds("2023-04-01")
    rows = [Row(*key, first + n * 60_000_000, n * 7919 % 10_007) for n in range(40_000)]
    month = Stretch(first, first + 30 * DAY)
    folder = tmp_path_factory.mktemp("thick") / "archive"
    archive = write_archive(folder, rows, stretches=[month], partition="month")
    limits = ba.read_network_limits(samples.sample_data() / "network_limits.json")
    for day, change in [
        (2, {}),
        (4, {}),
        (9, {"can_propose_market": False, "extra": {"new one": True}}),
    ]:
        at = pd.Timestamp(2023, 4, day, tz="UTC")
        writer_of(archive).keep_limits(replace(limits, **{"extra": {}, **change}, fetched_at=at))
    with serving(archive) as url:
        yield f"{url}/", archive


def listen(page, said):
    """Keep a page's messages to the console, its errors and its dialogs."""
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(f"dialog: {dialog.message}"))


@pytest.fixture
def seen():
    """What pages said, and what they asked for."""
    return SimpleNamespace(said=[], asked=[])


@pytest.fixture
def open_page(chromium, seen):
    """Open a page in a window of its own, in some theme, and wait until it shows all."""
    contexts = []

    def open_it(address, *, theme="light", is_frame=False, script="", **options):
        context = chromium.new_context(
            viewport={"width": 1280, "height": 900}, color_scheme=theme, **options
        )
        contexts.append(context)
        page = context.new_page()
        page.add_init_script(script)
        listen(page, seen.said)
        page.on("request", lambda request: seen.asked.append(request.url))
        page.goto(address)
        if options.get("java_script_enabled", True) and not is_frame:
            settle(page)
        return page

    yield open_it
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def visit(chromium):
    """Show a link on the one page that is open at an address: what a page shows is its address."""
    pages, said, number = {}, [], itertools.count()

    def show(address, link="", *, width=1280, theme="light"):
        page = pages.get(address)
        if not page:
            page = pages[address] = chromium.new_page()
            listen(page, said)
            page.goto(address)
            settle(page)
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)
        page.mouse.move(0, 0)
        page.evaluate(GO, f"visit={next(number)}&{link}")
        settle(page)
        return page

    yield show
    for page in pages.values():
        page.close()
    assert [one for one in said if "status of 416" not in one] == []  # sums that don't fit


GO = """(link) => new Promise((done) => {
    addEventListener("popstate", () => setTimeout(done), {once: true});
    scrollTo(0, 0);
    location.hash = link;
})"""


def settle(page):
    """Wait until the chart and the panel show what was asked for."""
    page.locator("main[aria-busy=false]").wait_for()


@pytest.fixture(scope="session")
def axe():
    """The source of axe-core, where it is installed."""
    places = [ROOT / "node_modules" / "axe-core" / "axe.min.js"]
    if os.environ.get("AXE_CORE"):
        places.insert(0, Path(os.environ["AXE_CORE"]))
    place = next((place for place in places if place.is_file()), None)
    if place is None:
        pytest.skip("no axe-core: run `npm install --no-save axe-core`, or name it in AXE_CORE")
    return place.read_text(encoding="utf-8")
