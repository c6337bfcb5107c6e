"""Where an amount comes from, by a click; own names; what can be copied; what is said of gaps."""

from __future__ import annotations

import pytest

import balance_analysis as ba
from balance_analysis.evidence import Node
from tests.analysis.tables import DAY, HOUR, START, table_of
from tests.archive.exporting import node_of, run_export, spread_history
from tests.archive.writing import writer_of
from tests.browser.conftest import BEGIN, settle
from tests.moments import from_microseconds
from tests.serving import serving

END = BEGIN + 5 * DAY
CLIPBOARD = "() => navigator.clipboard.readText()"
ALL_OF_ALICE = """() => {
    const found = [...document.querySelectorAll("#found li span")];
    return found.length > 0 && found.every((one) => one.textContent.includes("Alice"));
}"""
COPYING = {"permissions": ["clipboard-read", "clipboard-write"]}


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """An archive with a gap of a day, whose assets, parties and an account have names."""
    folder = tmp_path_factory.mktemp("named") / "archive"
    rows = spread_history(4, start=BEGIN, end=END, accounts=8)
    first = rows[0]
    names = {
        "assets": {first.asset_id: {"symbol": "tUSD", "decimals": 2}},
        "labels": {first.party_id: "Alice"},
    }
    with node_of(rows, head=END) as node:
        run_export(node, folder, start=BEGIN + 2 * DAY, end=END, **names)
        run_export(node, folder, start=BEGIN, end=BEGIN + DAY)
    return ba.Archive(folder)


@pytest.fixture(scope="module")
def named(archive):
    with serving(archive) as url:
        yield f"{url}/"


def facts(page):
    told = page.locator("#panel .facts > div").all_inner_texts()
    return dict(one.split("\n", 1) for one in told)


def explained(archive, account, at):
    """What the library says of a balance, as the page writes it."""
    found = archive.explain(account, at=from_microseconds(at))
    rows = [one for one in (found.before, found.row, found.after) if one]
    return found, [one.file for one in rows]


def cited(page):
    rows = page.locator("table[aria-label^='The row'] tbody tr").all()
    return [row.locator("td").nth(3).inner_text() for row in rows]


def focus(page):
    """The account and the moment that are explained."""
    return page.evaluate(
        """() => {
            const told = new URLSearchParams(location.hash.slice(1));
            const ids = told.get("focus").split("|").map(decodeURIComponent);
            return [ids, told.get("at") && Number(told.get("at"))];
        }"""
    )


@pytest.mark.parametrize(
    "amount",
    [
        "#panel tbody tr:nth-child(2) .origin",
        "#readout .origin",
        "#each .tile:nth-child(4) .origin",
    ],
    ids=["in a table", "under the pointer", "in a tile"],
)
def test_a_click_on_an_amount_tells_where_it_comes_from(open_page, archive, named, amount):
    page = open_page(named)
    wanted = page.locator(amount).first
    text = wanted.inner_text()
    wanted.click()
    settle(page)
    assert page.get_by_role("tab", name="Explain").get_attribute("aria-selected") == "true"
    account, at = focus(page)
    found, rows = explained(archive, account, END - 1 if at is None else at)
    told = facts(page)
    assert told["held"] == text == f"{found.balance // 100:,}.{found.balance % 100:02}"
    assert told["came from"] == found.source
    assert told["what is known of that time"] == found.state == "complete"
    assert cited(page) == rows
    assert open_page(page.url).locator("#panel").inner_text() == page.locator("#panel").inner_text()


def test_a_row_of_an_account_is_told_at_its_own_moment_and_another_one_by_its_field(
    open_page, archive, named
):
    page = open_page(f"{named}#tab=account&range=ALL")
    page.locator("table[aria-label^=Rows] tbody tr:nth-child(3) .origin").click()
    settle(page)
    account, at = focus(page)
    found, rows = explained(archive, account, at)
    assert found.row.timestamp == from_microseconds(at)
    assert cited(page) == rows
    page.locator("#when").fill("2023-04-04 12:00")  # in the gap
    page.keyboard.press("Enter")
    settle(page)
    assert (facts(page)["held"], "is not known to be complete" in facts(page)["why"]) == (
        "unknown",
        True,
    )


def test_a_report_offers_no_click_that_it_could_not_answer(open_page, frozen):
    page = open_page(frozen)
    assert page.locator(".origin").count() == 0
    assert page.get_by_role("tab", name="Explain").is_hidden()
    page.get_by_role("tab", name="Party").press("ArrowRight")
    settle(page)
    chosen = page.locator("#tabs [aria-selected=true]").inner_text()
    assert chosen == "Coverage and limits"


def test_own_names_are_shown_searched_and_taken_in_the_address(open_page, named):
    page = open_page(named)
    page.get_by_role("combobox", name="Add an account").fill("ALIC")
    page.wait_for_function(ALL_OF_ALICE)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    settle(page)
    assert any("Alice" in one for one in page.locator("#readout .link").all_inner_texts())
    page = open_page(f"{named}#asset=TUSD&tab=party&party=alice")
    assert page.locator("#left").is_hidden()
    assert page.get_by_label("Asset").locator("option:checked").inner_text() == "tUSD"
    assert page.locator("#panel h3").first.inner_text() == "Party Alice"
    assert page.locator("#panel tbody tr").count() > 0


def test_what_is_copied_is_whole(open_page, archive, named):
    page = open_page(f"{named}#tab=account", **COPYING)
    ids = page.locator("#panel .ids dd").all_inner_texts()
    page.get_by_role("button", name="Copy party").click()
    page.get_by_text("Copied", exact=True).wait_for()
    party = page.evaluate(CLIPBOARD)
    assert ids[1].startswith(party)
    assert len(party) == 64
    page.get_by_role("tab", name="Holders").click()
    settle(page)
    page.get_by_role("button", name="Copy Holders").click()
    page.get_by_text("Copied", exact=True).wait_for()
    head, *rows = (line.split("\t") for line in page.evaluate(CLIPBOARD).splitlines())
    assert head[:5] == [*ba.ACCOUNT_KEY, "balance"]
    asset = rows[0][0]
    held = ba.holders(
        archive.select(asset_id=f"id:{asset}").read(partial=True), from_microseconds(END - 1)
    )
    assert {row[2] for row in rows} == {*held["party_id"]}
    assert len(rows) == len(held)


def test_the_button_beside_a_moment_opens_the_browser_s_own_days(open_page, named):
    page = open_page(named)
    page.evaluate("""() => {
        window.opened = [];
        HTMLInputElement.prototype.showPicker = function () { opened.push(this.value); };
    }""")
    for name in ("on which it starts", "on which it ends"):
        page.get_by_role("button", name=f"Pick the day {name}").press("Enter")
    page.get_by_role("button", name="Pick the day", exact=True).press("Enter")
    start, end, at = page.evaluate("opened")
    assert page.get_by_label("From").input_value().startswith(start)
    assert page.get_by_label("To", exact=True).input_value().startswith(end)
    assert at == end


def test_a_range_may_begin_some_days_before_the_end(open_page, named):
    page = open_page(named)
    page.get_by_label("From").fill("36h")
    page.keyboard.press("Enter")
    settle(page)
    assert page.locator("#wrong").is_hidden()
    begun = from_microseconds(END - 36 * HOUR)
    assert page.get_by_label("From").input_value() == f"{begun:%Y-%m-%d %H:%M:%S}"


def test_a_page_says_whether_its_rows_are_complete_and_confirmed(
    open_page, archive, named, tmp_path
):
    page = open_page(named)
    assert page.locator("#said .verdict.bad").inner_text() == "not complete"
    with node_of(spread_history(4, start=BEGIN, end=END), head=END) as node:
        run_export(node, tmp_path / "a", start=BEGIN, end=END)
    whole, writer = ba.Archive(tmp_path / "a"), writer_of(tmp_path / "a")
    another = Node("http://another.node", frozenset({"192.0.2.1:80"}))
    for shared, word in (([], "complete"), ([(BEGIN, END)], "confirmed")):
        writer.prove(writer.manifest.evidence.with_words(another, shared, []))
        ba.write_report(whole, tmp_path / f"{word}.html")
        with serving(whole) as url:
            assert open_page(url).locator("#said .verdict:not(.bad)").inner_text() == word
        page = open_page((tmp_path / f"{word}.html").as_uri())
        assert page.locator("#said .verdict:not(.bad)").inner_text() == word


def test_first_balances_of_a_party_s_accounts_make_up_what_it_holds(open_page, tmp_path):
    kinds = ("ACCOUNT_TYPE_GENERAL", "ACCOUNT_TYPE_MARGIN")
    general, margin = (("VOTE", kind, "a" * 64, "") for kind in kinds)
    rows = [(*general, START, 10), (*general, START + HOUR, 15), (*margin, START + 2 * HOUR, 4)]
    ba.write_report(table_of(rows), tmp_path / "report.html")
    page = open_page(f"{(tmp_path / 'report.html').as_uri()}#tab=party")
    told = facts(page)
    assert (told["held at the start"], told["change"], told["held at the end"]) == (
        *("unknown", "5", "19"),
    )
    note = page.locator("#panel .note", has_text="first balances").inner_text()
    assert note == (
        "2 of its 2 accounts have their first balances in this range, together 14. "
        "These are neither change nor what came in."
    )


def test_a_party_s_other_assets_have_their_flows_by_a_click(open_page, demo):
    page = open_page(f"{demo}#tab=party")
    party = page.locator("#panel .ids dd").first.inner_text()
    page.get_by_role("button", name="Show its flows of tDAI").click()
    settle(page)
    assert page.get_by_label("Asset").locator("option:checked").inner_text().startswith("tDAI")
    assert page.locator("#panel .ids dd").first.inner_text() == party
    assert page.locator("table[aria-label^='Flows with others']").count() == 1


def test_a_log_scale_says_what_it_leaves_out_and_an_index_stands_beside_the_amount(
    open_page, tmp_path
):
    account = ("VOTE", "ACCOUNT_TYPE_GENERAL", "a" * 64, "")
    levels = (40, 0, 20, 10)
    rows = [(*account, START + n * HOUR, level) for n, level in enumerate(levels)]
    ba.write_report(table_of(rows), tmp_path / "report.html")
    page = open_page(f"{(tmp_path / 'report.html').as_uri()}#log=1&as=index")
    said = page.locator("#drawn-as").inner_text()
    assert "A logarithmic scale has no 0" in said
    assert "each line is 100" in said
    assert page.locator("#readout .how").inner_text().endswith("index 25.00")
    page.get_by_label("Log scale").uncheck()
    assert "logarithmic" not in page.locator("#drawn-as").inner_text()


def test_a_page_opens_with_a_range_at_whose_start_balances_are_known(open_page, demo, named):
    page = open_page(demo)
    assert page.locator("#ranges [aria-pressed=true]").inner_text() == "1W"
    assert "the page opens with a later range" in page.locator("#headline .note").inner_text()
    tiles = page.locator("#headline .tile dt").all_inner_texts()
    assert tiles[:2] == ["total held", "change"]
    assert tiles[4:] == ["parties that hold it"]
    assert page.locator("#headline .lacking").count() == 0
    page.locator("#chart").dblclick()
    settle(page)
    assert page.locator("#ranges [aria-pressed=true]").inner_text() == "ALL"


@pytest.mark.parametrize("width", [768, 1024])
def test_no_tile_stands_alone_in_a_row(open_page, demo, width):
    page = open_page(demo, width=width)
    for tiles in page.locator(".tiles").all():
        rows = tiles.locator(".tile").evaluate_all("(all) => all.map((one) => one.offsetTop)")
        assert min(rows.count(top) for top in rows) > 1


def test_on_a_small_screen_the_tabs_are_near_and_on_a_large_one_the_tiles(open_page, demo):
    page = open_page(demo, width=390)
    assert page.locator("#did").get_attribute("open") is None
    assert page.locator("#tabs").bounding_box()["y"] < 2 * 900
    assert open_page(demo).locator("#each .tile").first.is_visible()
