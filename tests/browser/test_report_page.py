"""What a reader of a report sees and does."""

from __future__ import annotations

import io
import json
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pytest

from balance_analysis.figures.styles import COLOURS
from balance_analysis.report.report import _template, write_report
from tests.analysis import tables
from tests.browser.conftest import MARKET, SCRIPT, party

ACCOUNTS = "All 12 accounts, by balance"


def table_of(page, caption=ACCOUNTS):
    return page.get_by_role("table", name=caption)


def column(page, label, caption=ACCOUNTS):
    """Return the shown texts of a column, from top to bottom."""
    return table_of(page, caption).evaluate(
        """(table, label) => {
            const heads = Array.from(table.tHead.rows[0].cells);
            const place = heads.findIndex((head) => head.textContent.startsWith(label));
            const rows = Array.from(table.tBodies[0].rows).filter((row) => !row.hidden);
            return rows.map((row) => row.cells[place].textContent);
        }""",
        label,
    )


def head(page, label):
    return table_of(page).get_by_role("columnheader").filter(has_text=label)


def numbers(texts):
    return [int(text.replace(",", "")) for text in texts]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1440])
def test_a_page_is_no_wider_than_its_window_and_says_nothing_to_the_console(
    open_page, seen, report, width, theme
):
    page = open_page(width=width, theme=theme)
    page.get_by_text("Flows and activity by day").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.mouse.wheel(0, 100_000)
    assert seen.said == []
    assert {url for url in seen.asked if not url.startswith("data:")} == {report.as_uri()}


def test_numbers_sort_by_size_and_back_to_the_last_of_38_digits(open_page):
    page = open_page()
    closing = numbers(column(page, "closing"))
    assert closing == sorted(closing, reverse=True)
    assert head(page, "closing").get_attribute("aria-sort") == "descending"
    head(page, "closing").get_by_role("button").click()
    assert numbers(column(page, "closing")) == closing[::-1]
    assert head(page, "closing").get_attribute("aria-sort") == "ascending"


def test_what_is_less_than_a_share_that_can_be_written_sorts_below_it(tmp_path, open_page):
    key = ("VOTE", "ACCOUNT_TYPE_GENERAL")
    amounts = (10**7, 1000, 10, 0)
    rows = [(*key, party(place), "", tables.START, held) for place, held in enumerate(amounts)]
    path = tmp_path / "report.html"
    write_report(tables.table_of(rows), path, largest=0)
    page = open_page(path=path)
    caption = "All 4 accounts, by balance"
    share = table_of(page, caption).get_by_role("columnheader").filter(has_text="share")
    for order in (1, -1):
        share.get_by_role("button").click()
        assert column(page, "share", caption)[::order] == ["99.99", "0.01", "<0.01", "0.00"]


def test_a_new_column_of_numbers_sorts_by_the_largest_first_with_the_keys_alone(open_page):
    page = open_page()
    head(page, "net").get_by_role("button").focus()
    page.keyboard.press("Enter")
    net = numbers(column(page, "net"))
    assert net == sorted(net, reverse=True)
    assert head(page, "net").get_attribute("aria-sort") == "descending"
    assert head(page, "closing").get_attribute("aria-sort") is None
    page.keyboard.press("Space")
    assert numbers(column(page, "net")) == net[::-1]


def test_text_sorts_from_a_on_and_what_is_empty_comes_last(open_page):
    page = open_page()
    for order in ("ascending", "descending"):
        head(page, "market").get_by_role("button").click()
        assert head(page, "market").get_attribute("aria-sort") == order
        assert column(page, "market") == ["bda439…4f32", *[""] * 11]
    head(page, "party").get_by_role("button").click()
    assert column(page, "party") == sorted(column(page, "party"))


def test_what_is_unknown_sorts_last_either_way(open_page):
    page = open_page()
    caption = "Largest movers"
    for _ in range(2):
        page.get_by_role("table", name=caption).get_by_role("button", name="opening").click()
        shown = column(page, "opening", caption)
        assert "unknown" not in shown[: len(shown) - shown.count("unknown")]


def test_a_filter_finds_whole_ids_and_says_how_many_rows_it_leaves(open_page):
    page = open_page()
    box = page.locator(".sheet", has=table_of(page))
    field = box.get_by_label("Filter")
    assert box.locator("output").inner_text() == "12 rows"
    field.fill(party(1)[:40])
    assert column(page, "type") == ["margin", "general"]
    assert box.locator("output").inner_text() == "2 of 12 rows"
    field.fill(MARKET.upper())
    assert column(page, "type") == ["margin"]
    field.fill("no such thing")
    assert column(page, "type") == []
    field.fill("")
    assert len(column(page, "type")) == 12


def test_a_filter_and_an_order_go_together(open_page):
    page = open_page()
    page.locator(".sheet", has=table_of(page)).get_by_label("Filter").fill("general")
    head(page, "closing").get_by_role("button").click()
    closing = numbers(column(page, "closing"))
    assert len(closing) == 11
    assert closing == sorted(closing)


def test_an_account_leads_to_its_section(open_page):
    page = open_page(width=375)
    link = table_of(page).get_by_role("link").first
    link.click()
    section = page.locator(link.get_attribute("href"))
    section.wait_for(state="visible")
    page.wait_for_function(
        "(section) => Math.abs(section.getBoundingClientRect().top) < innerHeight / 2",
        arg=section.element_handle(),
    )
    assert page.evaluate("(s) => s.matches(':target')", section.element_handle())


def test_every_link_leads_somewhere(open_page):
    page = open_page()
    lost = page.evaluate(
        """() => Array.from(document.links).map((link) => link.getAttribute("href"))
            .filter((to) => !to.startsWith("#") || !document.getElementById(to.slice(1)))"""
    )
    assert lost == []
    assert page.evaluate("document.links.length") > 5


def test_a_hostile_id_shows_as_text(open_page, seen):
    page = open_page()
    assert page.get_by_title(SCRIPT).first.inner_text() == "<scrip…ipt>"
    assert page.locator("dd", has_text=SCRIPT).first.is_visible()
    assert page.locator("svg text", has_text="<scrip…ipt>").count() > 0
    assert page.evaluate("document.scripts.length") == 1
    assert seen.said == []


def test_the_policy_refuses_other_scripts_styles_and_requests(open_page, seen, report):
    page = open_page()
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
    assert {url for url in seen.sent if not url.startswith("data:")} == {report.as_uri()}


def test_what_is_copied_has_whole_ids(open_page):
    page = open_page()
    copied = table_of(page).evaluate(
        """(table) => {
            const row = Array.from(table.tBodies[0].rows).find((r) => r.cells[2].textContent);
            document.getSelection().selectAllChildren(row);
            const data = new DataTransfer();
            const options = { clipboardData: data, cancelable: true };
            return document.dispatchEvent(new ClipboardEvent("copy", options))
                || data.getData("text/plain");
        }"""
    )
    assert copied.split("\t")[:3] == ["margin", party(1), MARKET]


def test_one_id_is_copied_whole(open_page):
    page = open_page()
    copied = page.evaluate(
        """() => {
            const id = document.querySelector("span.id");
            document.getSelection().selectAllChildren(id);
            const data = new DataTransfer();
            const options = { clipboardData: data, cancelable: true };
            return [
                document.dispatchEvent(new ClipboardEvent("copy", options))
                    || data.getData("text/plain"),
                id.title,
            ];
        }"""
    )
    assert copied[0] == copied[1]


def test_a_box_that_scrolls_can_be_reached_by_the_keys(open_page):
    page = open_page(width=375)
    page.get_by_text("Flows and activity by day").first.click()
    page.wait_for_function(
        """() => Array.from(document.querySelectorAll(":not(details:not([open]) *).box")).every(
            (box) => (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight)
                === (box.tabIndex === 0))""",
        timeout=10_000,
    )
    assert page.locator("details[open] .box[tabindex='0']").count() == 1


def test_dark_paper_has_light_ink_in_text_and_pictures(open_page):
    colours = """() => ["backgroundColor", "color"].map((name) => Math.max(
        ...getComputedStyle(document.body)[name].match(/\\d+/g).slice(0, 3).map(Number)))"""
    for theme, has_light_ink in (("light", False), ("dark", True)):
        page = open_page(theme=theme)
        paper, ink = page.evaluate(colours)
        assert (paper < 60, ink > 200) == (has_light_ink, has_light_ink)
        shown = plt.imread(io.BytesIO(page.locator("svg").first.screenshot()))[..., :3].mean(axis=2)
        assert abs(np.median(shown) - paper / 255) < 0.1
        farthest = shown.max() > 0.85 if has_light_ink else shown.min() < 0.15
        assert farthest


def test_colours_of_the_palette_stand_out_and_differ_on_dark_paper(chromium):
    boxes = "".join(f'<rect x="{9 * n}" width="9" height="9" fill="{colour}"/>'
                    for n, colour in enumerate(COLOURS))  # fmt: skip
    style = _template("report.css")
    context = chromium.new_context(color_scheme="dark", viewport={"width": 9 * 8, "height": 9})
    page = context.new_page()
    page.set_content(f"<style>{style} body{{padding:0}} svg{{min-width:0}}</style>"
                     f'<svg viewBox="0 0 72 9">{boxes}</svg>')  # fmt: skip
    shown = plt.imread(io.BytesIO(page.screenshot()))[4, 4::9, :3].tolist()
    context.close()
    paper = brightness((0x15 / 255, 0x18 / 255, 0x1D / 255))
    assert len(shown) == len(COLOURS)
    assert all((brightness(colour) + 0.05) / (paper + 0.05) > 3 for colour in shown)
    differ = [np.abs(np.subtract(a, b)).max() for a, b in combinations(shown, 2)]
    assert min(differ) > 0.08


def brightness(colour):
    parts = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour
    ]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def test_without_scripts_the_page_still_reads(open_page):
    page = open_page(java_script_enabled=False)
    assert page.get_by_role("table", name=ACCOUNTS).is_visible()
    assert page.get_by_role("heading", level=1).is_visible()


def test_it_prints_without_what_is_for_the_screen(open_page):
    page = open_page()
    page.emulate_media(media="print", color_scheme="dark")
    assert not page.get_by_role("navigation").is_visible()
    assert not page.locator(".filter").first.is_visible()
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"
    assert page.pdf()[:5] == b"%PDF-"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1440])
def test_axe_finds_no_serious_violation(open_page, axe, theme, width):
    page = open_page(width=width, theme=theme)
    page.get_by_text("Flows and activity by day").first.click()
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    serious = [
        (violation["id"], [node["html"][:200] for node in violation["nodes"][:3]])
        for violation in found["violations"]
        if violation["impact"] in {"serious", "critical"}
    ]
    assert serious == [], json.dumps(serious, indent=1)
    assert found["testEngine"]["name"] == "axe-core"
