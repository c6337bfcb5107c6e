"""A real browser, and pages for it to open: over an archive, and frozen on disk."""

import itertools
import random
import re
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.analysis.oracle import World
from tests.analysis.tables import DAY, HOUR, LARGEST
from tests.loopback import Row
from tests.service.archives import Stretch, write_archive
from tests.serving import serving

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--in-process-gpu"),
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
"""Of the browser, which draws by itself, without pages of its own, and reaches no other machine."""

ROOT = Path(__file__).parents[2]
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


LONG = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" * 2 + "ABCDEFGHIJ"
HIDDEN = "p\nq\x01\u202ez"
GAP = BEGIN + 6 * DAY + 5 * HOUR, BEGIN + 7 * DAY + 11 * HOUR
UNPROVEN = BEGIN + 12 * DAY, BEGIN + 12 * DAY + 6 * HOUR
STOP = BEGIN + 20 * DAY


@pytest.fixture(scope="session")
def gapped(tmp_path_factory):
    """An archive with gaps, 38 digits and a long symbol: address, accounts, archive.

    The accounts are those of the asset with the symbol of 62 letters, by their ids.
    """
    rng, asset, general = random.Random(7), "aa" * 32, "ACCOUNT_TYPE_GENERAL"
    keys = [(asset, general, party(n), "") for n in range(1, 6)]
    keys += [(asset, "ACCOUNT_TYPE_MARGIN", party(n), MARKET) for n in (1, 2)]
    times = {key: rng.sample(range(BEGIN + n * DAY // 3, STOP), 30) for n, key in enumerate(keys)}
    rows = [Row(*key, time, rng.randrange(10**37)) for key in keys for time in times[key]]
    rows += [Row(asset, general, "network", "", BEGIN + HOUR, 10**36 + 1)]  # quiet since
    rows += [Row(asset, general, party(9), "", BEGIN + 9 * DAY, 7)]  # its first row behind the gap
    rows += [Row(asset, general, HIDDEN, "", BEGIN + 8 * DAY, 5)]
    rows += [Row("BIG", general, party(n), "", BEGIN, LARGEST) for n in (1, 2)]
    rows = [row for row in rows if not GAP[0] <= row.time < GAP[1]]
    known = ((BEGIN, GAP[0]), (GAP[1], UNPROVEN[0]), (UNPROVEN[1], STOP))
    archive = write_archive(
        tmp_path_factory.mktemp("gapped") / "archive",
        rows,
        stretches=[*(Stretch(*span) for span in known), Stretch(*UNPROVEN, proven=False)],
        partition="month",
    )
    assets, labels = {asset: {"symbol": LONG, "decimals": 18}}, {party(1): "Alice & co"}
    book = World([row for row in rows if row.asset_id == asset], known=known).book()
    with serving(archive, assets=assets, labels=labels) as url:
        yield f"{url}/", book, archive


@contextmanager
def windows(chromium):
    """Open each address in its own window, which must neither log an error nor ask other hosts."""
    pages, said = [], []

    def open_page(address, *, is_explorer=True, script="", **options):
        def note(request):
            if not request.url.startswith((address.partition("#")[0], "data:", "blob:")):
                said.append(request.url)

        page = chromium.new_page(viewport={"width": 1280, "height": 900}, **options)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(f"dialog: {dialog.message}"))
        page.on("request", note)
        page.add_init_script(script)
        pages.append(page)
        page.goto(address)
        if is_explorer:
            settle(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert [one for one in said if not EXPECTED.search(one)] == []


@pytest.fixture
def open_page(chromium):
    """Open a page in a window of its own, and wait until it shows all."""
    with windows(chromium) as open_page:
        yield open_page


@pytest.fixture(scope="module")
def visit(chromium):
    """Show a link's view on the page that is open at an address."""
    with windows(chromium) as open_page:
        pages, number = {}, itertools.count()

        def show(address, link="", *, width=1280, theme="light"):
            if address not in pages:
                pages[address] = open_page(address)
            page = pages[address]
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=theme)
            page.mouse.move(0, 0)
            page.evaluate(GO, f"visit={next(number)}&{link}")
            settle(page)
            return page

        yield show


EXPECTED = re.compile("status of 4(09|16)|ERR_(FAILED|CONNECTION_REFUSED)")
"""What a browser says of sums that don't fit, states that are gone and services that were."""

GO = """(link) => new Promise((done) => {
    addEventListener("popstate", () => setTimeout(done), {once: true});
    scrollTo(0, 0);
    location.hash = link;
})"""


def settle(page):
    """Wait until the chart and the panel show the requested view."""
    page.locator("main[aria-busy=false]").wait_for()


@pytest.fixture(scope="session")
def axe():
    """The source of axe-core, where it is installed."""
    place = ROOT / "node_modules" / "axe-core" / "axe.min.js"
    if not place.is_file():
        pytest.skip("no axe-core: run `npm install --no-save axe-core`")
    return place.read_text(encoding="utf-8")
