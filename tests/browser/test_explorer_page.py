"""What somebody who explores sees and does: live over an archive, and in a report."""

from __future__ import annotations

import csv
import io
import json
import re
from decimal import Decimal
from urllib.parse import parse_qs

import pytest

import balance_analysis as ba
from balance_analysis.archive.manifest import About, write_about
from balance_analysis.archive.store import Store
from balance_analysis.filters import Filters
from balance_analysis.report.report import write_report
from balance_analysis.service.app import create_app
from balance_analysis.service.server import serve
from tests.analysis.tables import DAY, LARGEST, START, table_of
from tests.browser.conftest import BEGIN, MARKET, SCRIPT, party, settle

TABS = ["Holders", "Totals", "Flows", "Movers", "Account", "Coverage and limits"]
OPEN = """@media all {
    .box { max-height: none !important }
    .box tr { display: flex; flex-wrap: wrap }
}"""
BOTH = pytest.mark.parametrize("kind", ["demo", "frozen"])


@pytest.fixture
def address(kind, request):
    return request.getfixturevalue(kind)


def chips(page):
    return page.locator("#chips .link").all_inner_texts()


def column(page, place, caption="Holders"):
    rows = page.locator(f"table[aria-label^='{caption}'] tbody tr")
    return rows.locator(f"td:nth-child({place})").all_inner_texts()


def amounts(texts):
    return [Decimal(text.replace(",", "")) for text in texts]


def state(page):
    return parse_qs(page.url.partition("#")[2])


def find(page, text):
    page.get_by_role("combobox", name="Add an account").fill(text)
    page.wait_for_timeout(500)
    page.locator("#found li").first.wait_for()
    return page.locator("#found li span").all_inner_texts()


@BOTH
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1440])
def test_a_page_fits_its_window_says_nothing_to_the_console_and_asks_nobody_else(
    open_page, seen, address, width, theme
):
    page = open_page(address, width=width, theme=theme)
    for tab in TABS:
        page.get_by_role("tab", name=tab).click()
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") == width, tab
        height = page.evaluate("document.documentElement.scrollHeight")
        assert width == 375 or height <= 8 * 900
    assert seen.said == []
    others = [url for url in seen.asked if not url.startswith((address.partition("#")[0], "data:"))]
    assert others == []


@BOTH
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1440])
def test_axe_finds_no_violation_and_leaves_nothing_about_contrast_open(
    open_page, axe, address, theme, width
):
    page = open_page(address, width=width, theme=theme)
    # It can't tell about what is scrolled out of sight.
    page.evaluate("(rule) => Array.from(document.styleSheets).at(-1).insertRule(rule)", OPEN)
    for tab in TABS:
        page.get_by_role("tab", name=tab).click()
        settle(page)
        if not page.evaluate("Boolean(window.axe)"):
            page.evaluate(f"{axe}; 0")
        found = page.evaluate("axe.run(document)")
        wrong = [
            (one["id"], [n["html"][:200] for n in one["nodes"][:3]]) for one in found["violations"]
        ]
        assert wrong == [], f"{tab}: {json.dumps(wrong, indent=2)}"
        unsure = [
            n["html"][:200]
            for one in found["incomplete"]
            if one["id"] == "color-contrast"
            for n in one["nodes"]
        ]
        assert unsure == [], tab


def test_accounts_are_found_by_any_part_of_an_id_a_type_or_another_asset_s_symbol(open_page, demo):
    page = open_page(demo)
    assert find(page, "treasury") == ["network treasury · network"]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    settle(page)
    assert "network treasury · network" in chips(page)
    assert "general · c26ede…0a46" in find(page, "c26eded4177")
    assert find(page, "tusd")[0] == "asset tUSD"
    page.keyboard.press("Enter")
    settle(page)
    assert page.get_by_label("Asset").locator("option:checked").inner_text().startswith("tUSD")
    page.locator("#chips li").nth(2).wait_for()


@BOTH
def test_a_link_opens_the_same_view(open_page, address):
    page = open_page(address)
    page.get_by_role("button", name="1D", exact=True).click()
    page.get_by_label("Log scale").check()
    page.locator("#units").select_option("smallest")
    page.get_by_label("Theme").select_option("dark")
    page.get_by_role("tab", name="Movers").click()
    page.locator("#chips .remove").first.click()
    settle(page)
    other = open_page(page.url)
    assert chips(other) == chips(page)
    assert other.locator("#readout").inner_text() == page.locator("#readout").inner_text()
    assert other.locator("#panel table").inner_text() == page.locator("#panel table").inner_text()
    assert other.get_by_label("Log scale").is_checked()
    assert other.evaluate("document.documentElement.dataset.theme") == "dark"
    assert (
        other.get_by_role("button", name="1D", exact=True).get_attribute("aria-pressed") == "true"
    )
    page.go_back()
    page.go_back()
    settle(page)
    assert page.get_by_role("tab", name="Holders").get_attribute("aria-selected") == "true"


@BOTH
def test_the_wheel_a_drag_and_the_keys_zoom(open_page, address):
    page = open_page(address)
    box = page.locator("#chart .u-over").bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(*middle)
    page.mouse.wheel(0, -200)
    page.wait_for_url(re.compile("range="))
    start, end = map(int, state(page)["range"][0].split(".."))
    page.wait_for_timeout(500)
    page.mouse.move(box["x"] + 200, middle[1])
    page.mouse.down()
    page.mouse.move(box["x"] + 500, middle[1], steps=4)
    page.mouse.up()
    page.wait_for_timeout(500)
    first, last = map(int, state(page)["range"][0].split(".."))
    assert start < first < last < end
    page.locator("#chart").focus()
    page.keyboard.press("-")
    settle(page)
    assert int(state(page)["range"][0].split("..")[0]) < first
    page.get_by_role("button", name="ALL", exact=True).click()
    assert "range" not in state(page)


def test_hovering_tells_exact_balances_and_how_they_are_known(open_page, demo):
    page = open_page(demo)
    box = page.locator("#chart .u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 50)
    page.wait_for_function(
        "() => document.querySelector('#readout .how').textContent.includes('-16')"
    )
    row = page.locator("#readout tr").first.inner_text().split("\t")
    moment = page.locator("#readout caption").inner_text().partition(" UTC")[0]
    party_id = page.locator("#chips .link").first.get_attribute("title")
    with ba.demo.sample_archive() as archive:
        account = archive.balance_at(moment.replace(" ", "T"), party_ids=party_id)
    held = account[account["asset_id"].str.startswith("7c65")]["balance"].iloc[0]
    assert amounts([row[1]]) == [Decimal(int(held)).scaleb(-18)]
    assert row[2].startswith("carried since 2023-04-16")
    page.mouse.move(box["x"] + 2, box["y"] + 50)
    page.wait_for_function("() => document.querySelector('#readout .n').textContent === 'unknown'")


def test_keys_read_the_chart_row_by_row(open_page, frozen):
    page = open_page(frozen)
    page.locator("#chart").focus()
    page.keyboard.press("ArrowLeft")
    how = page.locator("#readout .how").all_inner_texts()
    assert "observed" in how
    before = page.locator("#readout caption").inner_text()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#readout caption").inner_text() < before


@BOTH
def test_a_table_sorts_by_size_to_the_last_digit_with_the_keys_alone(open_page, address):
    page = open_page(address)
    head = page.get_by_role("columnheader", name="balance").get_by_role("button")
    held = amounts(column(page, 2))
    assert held == sorted(held, reverse=True)
    head.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Space")
    again = amounts(column(page, 2))
    assert again == sorted(again)
    assert (
        page.get_by_role("columnheader", name="balance").get_attribute("aria-sort") == "ascending"
    )


def test_a_filter_finds_whole_ids_and_says_how_many_rows_it_leaves(open_page, frozen):
    page = open_page(frozen + "#asset=VOTE")
    field, count = page.get_by_label("Filter Holders"), page.locator(".sheet output").first
    assert count.inner_text() == "12 rows"
    field.fill(party(1)[:40])
    assert count.inner_text() == "2 of 12 rows"
    field.fill(MARKET.upper())
    assert column(page, 1) == ["margin · 010101…0101 · market bda439…4f32"]


@BOTH
def test_a_download_has_every_digit_and_whole_ids(open_page, address):
    page = open_page(address)
    page.locator("#units").select_option("smallest")
    settle(page)
    with page.expect_download() as waited:
        page.locator(".sheet").first.get_by_role("button", name="CSV").click()
    rows = list(csv.DictReader(io.StringIO(waited.value.path().read_text(encoding="utf-8"))))
    shown = amounts(column(page, 2))
    assert [int(row["balance"]) for row in rows][: len(shown)] == shown
    assert all(len(row["asset_id"]) in {4, 64} for row in rows)
    assert rows[0]["account_type"].startswith("ACCOUNT_TYPE_")


def test_balances_of_38_digits_are_shown_whole(open_page, frozen):
    page = open_page(frozen + f"#asset={'f' * 64}")
    assert f"{LARGEST:,}" in page.locator("#readout").inner_text()
    assert column(page, 2) == [f"{LARGEST:,}"]
    assert len(chips(page)) == 1


def test_the_account_page_is_two_actions_away_and_pages_its_rows(open_page, demo):
    page = open_page(demo)
    find(page, "treasury")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="network treasury").first.click()
    page.locator("#panel dt", has_text="closing").wait_for()
    facts = dict(
        zip(
            page.locator("#panel .facts dt").all_inner_texts(),
            page.locator("#panel .facts dd").all_inner_texts(),
            strict=True,
        )
    )
    assert facts["closing"] == "24,999,364,000"
    assert amounts([facts["closing"]])[0] in amounts(column(page, 2, "Rows"))


def test_a_view_of_other_accounts_keeps_the_largest_out_by_a_click(open_page, demo):
    page = open_page(demo + "#tab=totals")
    page.get_by_role("button", name="network treasury").click()
    settle(page)
    assert state(page)["hide"] == ["ACCOUNT_TYPE_NETWORK_TREASURY"]
    page.get_by_role("button", name="Shares").click()
    assert state(page)["shares"] == ["1"]


def test_a_gap_is_said_at_the_top_where_a_view_touches_it_and_a_new_export_offers_to_reload(
    open_page, growing
):
    url, export = growing
    page = open_page(url)
    assert (
        "Not known to be complete: 2023-04-04 00:00:00 to 2023-04-05 00:00:00"
        in page.locator("#notice").inner_text()
    )
    inside = BEGIN + DAY + DAY // 2
    other = open_page(f"{url}/#at={inside}")
    assert set(column(other, 2)) == {"unknown"}
    away = open_page(f"{url}/#range=1D")
    assert away.locator("#notice").is_hidden()
    assert page.locator("#stale").is_hidden()
    export()
    page.locator("#stale").wait_for(timeout=20_000)
    page.get_by_role("button", name="Reload").click()
    settle(page)
    assert "2023-04-08 00:00:00" in page.locator("#interval").inner_text()


def test_an_empty_archive_says_so(open_page, seen, tmp_path):
    write_about(Store(tmp_path), About(Filters(), "day"))
    with serve(create_app(ba.Archive(tmp_path))) as url:
        page = open_page(url)
        assert "nothing in it yet" in page.locator("#interval").inner_text()
    assert seen.said == []


def test_a_hostile_id_is_text(open_page, seen, frozen):
    page = open_page(frozen + "#asset=VOTE")
    assert find(page, "script") == ["general · <scrip…ipt>"]
    page.keyboard.press("Enter")
    page.get_by_role("button", name="<scrip").first.click()
    page.locator("#panel dd", has_text=SCRIPT).first.wait_for()
    assert page.evaluate("document.scripts.length") == 3
    assert seen.said == []


@BOTH
def test_the_policy_refuses_other_scripts_styles_and_requests(open_page, seen, address):
    page = open_page(address)
    page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.broken = true";
            const picture = document.createElement("img");
            picture.src = "http://127.0.0.1:9/x.png";
            document.body.append(script, picture);
            document.body.setAttribute("style", "color: red");
            return fetch("http://127.0.0.1:9/").catch(() => null);
        }"""
    )
    assert page.evaluate("window.broken") is None
    assert len([said for said in seen.said if "Content Security Policy" in said]) >= 4
    assert not [url for url in seen.sent if ":9/" in url]


def test_without_scripts_a_report_tells_what_it_is_of(open_page, frozen):
    page = open_page(frozen, java_script_enabled=False)
    assert "need scripts" in page.locator("noscript").inner_text()
    assert page.get_by_text("not known to be complete").is_visible()


def test_it_prints_without_what_is_for_the_screen(open_page, frozen):
    page = open_page(frozen, theme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert not page.get_by_role("tablist").is_visible()
    assert not page.locator("#find").is_visible()
    assert not page.locator("#asset").is_visible()
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"
    assert page.pdf()[:5] == b"%PDF-"


def test_a_table_is_explored_in_a_frame_of_a_notebook(open_page, tmp_path):
    table = table_of([("VOTE", "ACCOUNT_TYPE_GENERAL", party(1), "", START, 5)])
    (tmp_path / "cell.html").write_text(table.balances.explore()._repr_html_(), encoding="utf-8")
    context = open_page("about:blank", java_script_enabled=False).context.browser.new_context()
    page = context.new_page()
    page.goto((tmp_path / "cell.html").as_uri())
    frame = page.frame_locator("iframe")
    frame.get_by_role("tab", name="Movers").click()
    frame.get_by_role("tab", name="Holders").click()
    assert frame.locator("#panel td").nth(1).inner_text() == "5"
    context.close()


def test_a_report_of_a_table_with_many_accounts_stays_below_8_screens(open_page, tmp_path):
    rows = [("A", "ACCOUNT_TYPE_GENERAL", f"{n:064x}", "", START + n, n) for n in range(1500)]
    write_report(table_of(rows), tmp_path / "r.html")
    page = open_page((tmp_path / "r.html").as_uri())
    page.get_by_role("button", name="Show all").click()
    assert page.evaluate("document.documentElement.scrollHeight") < 8 * 900
