"""What somebody who explores sees and does: live over an archive, and in a report."""

from __future__ import annotations

import csv
import io
import json
import re
from decimal import Decimal
from urllib.parse import parse_qs, urlencode

import pandas as pd
import pytest

import balance_analysis as ba
from tests.analysis.tables import DAY, HOUR, LARGEST, START, table_of
from tests.archive.writing import begin
from tests.browser.conftest import BEGIN, MARKET, SCRIPT, party, settle
from tests.columns import note_known
from tests.moments import from_microseconds
from tests.serving import serving

TABS = [
    "Holders",
    "Totals",
    "Flows",
    "Movers",
    "Account",
    "Party",
    "Explain",
    "Coverage and limits",
]
WINDOWS = [(width, theme) for width in (375, 1440) for theme in ("light", "dark")]
FEW = """() => {
    for (const row of document.querySelectorAll("tbody tr:nth-child(n+6)")) row.remove();
}"""
INK = "(one) => getComputedStyle(one).stroke"
INKS = """[...document.querySelectorAll(".chart text")].map((one) => getComputedStyle(one).fill)
    .filter((ink) => ink !== getComputedStyle(document.querySelector(".interval")).color)"""
PICK = """(one, day) => {
    one.value = day;
    one.dispatchEvent(new Event("change"));
}"""
BOTH = pytest.mark.parametrize("kind", ["demo", "frozen"])


@pytest.fixture
def address(kind, request):
    return request.getfixturevalue(kind)


GOV = "#asset=7c659862a95a05c7985326abc698392e45e67aab32f89db41fc4ded2b7ab179e"


def chips(page):
    return page.locator("#readout .link").all_inner_texts()


def column(page, place, caption="Holders"):
    rows = page.locator(f"table[aria-label^='{caption}'] tbody tr")
    return rows.locator(f"td:nth-child({place})").all_inner_texts()


def amounts(texts):
    return [Decimal(text.replace(",", "")) for text in texts]


def state(page):
    return parse_qs(page.url.partition("#")[2])


def find(page, text, wanted):
    """Type into the search, and wait until it offers something."""
    page.get_by_role("combobox", name="Add an account").fill(text)
    page.locator("#found li:first-child span", has_text=wanted).first.wait_for()
    return page.locator("#found li span").all_inner_texts()


def views(page, windows=WINDOWS):
    """Go through windows and tabs."""
    for width, theme in windows:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)
        for tab in TABS:
            if tab == "Explain" and page.url.startswith("file:"):
                continue  # a report has none
            page.get_by_role("tab", name=tab).click()
            settle(page)
            yield width, theme, tab


def readout(page):
    """What the page says under the pointer: the moment, and each account's balance and how."""
    rows = page.locator("#readout tr").all_inner_texts()
    moment = page.locator("#readout caption").inner_text().partition(" UTC")[0]
    return moment, [row.split("\t")[1:3] for row in rows]


@BOTH
def test_a_page_fits_its_window_says_nothing_to_the_console_and_asks_nobody_else(
    open_page, seen, address
):
    page = open_page(address)
    for width, theme, tab in views(page):
        size = page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
        )
        assert size[0] == width, (theme, tab)
        assert page.locator("#panel [role=alert]").count() == 0, tab
        assert width == 375 or size[1] <= 8 * 900
    assert seen.said == []
    others = [url for url in seen.asked if not url.startswith((address.partition("#")[0], "data:"))]
    assert others == []


@BOTH
def test_axe_finds_no_violation_and_leaves_nothing_about_contrast_open(
    open_page, axe, kind, address
):
    page = open_page(address)
    page.evaluate(f"{axe}; 0")
    for view in views(page, WINDOWS):
        page.evaluate(FEW)  # the other rows are as these
        # It can't tell what is behind text in SVG: nothing is, and its ink is that of notes.
        assert page.evaluate(INKS) == []
        found = page.evaluate(
            "axe.run({exclude: '.chart text'}, {resultTypes: ['violations', 'incomplete']})"
        )
        unsure = [one for one in found["incomplete"] if one["id"] == "color-contrast"]
        wrong = [
            (one["id"], [n["html"][:200] for n in one["nodes"][:3]])
            for one in found["violations"] + unsure
        ]
        assert wrong == [], f"{view}: {json.dumps(wrong, indent=2)}"


def test_accounts_are_found_by_any_part_of_an_id_a_type_or_another_asset_s_symbol(open_page, demo):
    page = open_page(demo + GOV)
    page.keyboard.press("/")
    assert find(page, "treasury", "treasury") == ["network treasury · network"]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    settle(page)
    assert "network treasury · network" in chips(page)
    assert "general · c26ede…0a46" in find(page, "c26eded4177", "c26ede")
    page.keyboard.press("Escape")
    assert page.locator("#found").is_hidden()
    assert find(page, "tusd", "asset")[0] == "asset tUSD"
    page.keyboard.press("Enter")
    settle(page)
    assert page.get_by_label("Asset").locator("option:checked").inner_text().startswith("tUSD")
    page.locator("#readout tr").nth(2).wait_for()


@BOTH
def test_a_link_opens_the_same_view(open_page, address):
    page = open_page(address)
    page.get_by_role("button", name="1D", exact=True).click()
    page.get_by_label("Log scale").check()
    page.locator("#units").select_option("smallest")
    page.get_by_label("Theme").select_option("dark")
    page.get_by_role("tab", name="Movers").click()
    page.locator(".remove").first.click()
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
def test_a_link_with_what_is_not_there_opens_the_rest_of_it(open_page, seen, address):
    link = "#asset=none&account=a|b&account=0|ACCOUNT_TYPE_GENERAL|other|&focus=x&range=9..2&tab=no"
    page = open_page(f"{address}{link}")
    assert len(chips(page)) > 0
    assert "general · other" not in chips(page)
    asset = page.get_by_label("Asset").locator("option:checked").inner_text().partition(" ")[0]
    shown = page.locator("#headline .note").inner_text().partition(" UTC")[0]
    assert page.locator("#left").inner_text() == (
        "Not all of this address can be used: "
        f"“asset=none” (shown: the asset {asset}); “account=a|b” (shown: accounts of {asset}); "
        f"“account=0|ACCOUNT_TYPE_GENERAL|other|” (shown: accounts of {asset}); “focus=x”; "
        f"“range=9..2” (shown: {shown}); “tab=no” (shown: holders)."
    )
    assert page.get_by_role("tab", name="Holders").get_attribute("aria-selected") == "true"
    page.get_by_label("Log scale").check()
    assert page.locator("#left").is_hidden()
    assert state(page).keys() == {"asset", "account", "log"}
    assert seen.said == []


@BOTH
@pytest.mark.parametrize(
    "link",
    [
        "range=constructor&tab=__proto__&units=toString&theme=hasOwnProperty",
        "account=VOTE|ACCOUNT_TYPE_GENERAL|%25E0%25A4%25A|&focus=%|%|%|%&hide=%E0%A4%A",
        "range=1e30..2e30&at=1e99&page=-7",
        "range=-5..7&at=-1&page=1.5&tab=account",
    ],
)
def test_a_link_of_which_nothing_makes_sense_opens_what_the_page_begins_with(
    open_page, seen, address, kind, link
):
    page = open_page(f"{address}#{link}")
    assert len(chips(page)) > 0
    assert page.locator("[role=alert]:visible").count() == 0
    first = {"demo": "1W", "frozen": "1D"}[kind]
    assert page.locator("#ranges [aria-pressed=true]").inner_text() == first
    assert page.locator("#panel td").count() > 0
    page.get_by_role("tab", name="Movers").click()
    settle(page)
    assert page.locator("table[aria-label^=Movers]").is_visible()
    assert seen.said == []


@BOTH
def test_the_wheel_a_drag_the_keys_the_buttons_and_two_dates_zoom(open_page, address):
    page = open_page(address)
    box = page.locator("#chart .plot").bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def bounds():
        settle(page)
        return list(map(int, state(page)["range"][0].split("..")))

    page.mouse.move(*middle)
    page.mouse.wheel(0, -200)
    page.wait_for_url(re.compile("range="))
    start, end = bounds()
    wheeled = page.url
    page.mouse.move(box["x"] + 200, middle[1])
    page.mouse.down()
    page.mouse.move(box["x"] + 500, middle[1], steps=4)
    page.mouse.up()
    page.wait_for_url(lambda url: url != wheeled)
    first, last = bounds()
    assert start < first < last < end
    page.locator("#chart").focus()
    page.keyboard.press("-")
    assert bounds()[0] < first
    page.get_by_role("button", name="Zoom in").click()
    assert bounds()[1] - bounds()[0] == pytest.approx(last - first, rel=0.01)
    start, end = bounds()
    page.keyboard.press("Escape")
    page.locator("#chart").focus()
    for move, by in (("PageUp", -0.5), ("PageDown", 0.5)):
        page.keyboard.press(move)
        assert bounds() == pytest.approx([at + by * (end - start) for at in (start, end)], abs=2e6)
        start, end = bounds()
    page.mouse.move(*middle)
    moved = page.url
    page.mouse.wheel(100, 0)
    page.wait_for_url(lambda url: url != moved)
    assert bounds()[0] - start == pytest.approx((end - start) / 8, abs=2e6)
    page.locator("#chart").focus()
    page.keyboard.press("0")
    settle(page)
    assert state(page)["range"] == ["ALL"]
    held = page.get_by_label("From").input_value()
    page.get_by_label("From").fill(held[:10] + " 12:30")
    page.keyboard.press("Enter")
    assert page.get_by_label("From").input_value() == held[:10] + " 12:30:00"
    page.get_by_label("From").fill("April")
    page.keyboard.press("Enter")
    assert page.get_by_label("From").get_attribute("aria-invalid") == "true"


@BOTH
def test_beside_a_field_of_the_range_stands_what_cannot_be_read_and_days_can_be_picked(
    open_page, address
):
    page = open_page(f"{address}#range=ALL")
    held = page.get_by_label("From").input_value()
    for text, said in [
        ("April", "“April” can't be read as a moment. Write a day such as 2023-04-01"),
        ("2023-02-30", "“2023-02-30” can't be read"),
        ("2099-01-01", "The data end at 20"),
    ]:
        page.get_by_label("From").fill(text)
        page.keyboard.press("Enter")
        assert page.locator("#wrong").inner_text().startswith(said)
        assert page.get_by_label("From").get_attribute("aria-invalid") == "true"
    page.get_by_label("To", exact=True).fill("2099-02-01 12:00Z")
    page.keyboard.press("Enter")
    assert page.locator("#wrong").inner_text().startswith("The data end at 20")
    page.get_by_label("To", exact=True).fill("2023-04-20 12:00 UTC")
    next_day = f"{pd.Timestamp(held[:10]) + pd.Timedelta('1D'):%Y-%m-%d %H:%M:%S}"
    page.locator(".days").first.evaluate(PICK, next_day[:10])
    settle(page)
    assert page.get_by_label("From").input_value() == next_day
    assert page.locator("#wrong").is_hidden()


def test_what_was_held_before_a_range_is_drawn_from_its_start(open_page, demo):
    noon = BEGIN + 24 * DAY + 12 * HOUR
    page = open_page(f"{demo}{GOV}&range={noon}..{noon + DAY}")
    page.wait_for_function(
        """() => {
            const lines = [...document.querySelectorAll("#chart .line")];
            return lines.length === 3 && lines.every((line) => line.getBBox().x < 1);
        }""",
        timeout=5000,
    )


def test_flows_in_a_report_are_drawn_over_the_time_that_the_chart_shows(open_page, frozen):
    start = START + DAY
    page = open_page(f"{frozen}#tab=account&range={start}..{start + 6 * HOUR}")
    plot = page.locator("#panel .plot")
    plot.hover(position={"x": plot.bounding_box()["width"] - 2, "y": 50})
    told = page.locator("#panel .tip text").all_text_contents()
    assert told[0].startswith("2023-03-29 16:00:00 to ")
    assert told[1::2] == ["came in", "went out"]


def test_hovering_tells_exact_balances_and_how_they_are_known(open_page, demo):
    page = open_page(f"{demo}{GOV}&digits=all&range=ALL")
    box = page.locator("#chart .plot").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 50)
    page.locator("#readout .how", has_text="since 2023-04-16").first.wait_for()
    moment, [row, *_] = readout(page)
    party_id = page.locator("#readout .link").first.get_attribute("title")
    with ba.demo.sample_archive() as archive:
        account = ba.balance_at(archive.select(party_ids=party_id), moment.replace(" ", "T"))
    held = account[account["asset_id"].str.startswith("7c65")]["balance"].iloc[0]
    assert amounts([row[0]]) == [Decimal(int(held)).scaleb(-18)]
    page.mouse.move(box["x"] + 2, box["y"] + 50)
    page.locator("#readout .how", has_text="before its first row").first.wait_for()
    assert readout(page)[1][0][0] == "unknown"


def test_the_pointer_has_balances_beside_it_and_a_click_sets_the_moment_of_holders(open_page, demo):
    page = open_page(f"{demo}#range=ALL")
    box = page.locator("#chart .plot").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 50)
    page.locator("#readout .how", has_text="since 2023-04-16").first.wait_for()
    moment, rows = readout(page)
    tip = page.locator("#chart .tip text").all_text_contents()
    assert tip[0] == moment
    assert tip[1::2] == chips(page)
    assert tip[2::2] == [balance for balance, _ in rows]
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url(re.compile("at="))
    settle(page)
    assert page.get_by_text(f"Held at {moment} UTC.").is_visible()
    assert page.locator("#chart .mark").count() == 1
    assert page.locator("#chart .tip text").all_text_contents() == tip


@BOTH
def test_without_its_last_line_a_chart_says_so_in_a_sentence_and_offers_the_largest(
    open_page, address
):
    page = open_page(address)
    many = len(chips(page))
    for _ in range(many):
        page.locator(".remove").first.click()
    said = page.locator("#readout p")
    assert said.inner_text().startswith("Add an account above, or")
    assert said.bounding_box()["width"] > 300
    assert page.locator("#chart text", has_text="No account is chosen.").count() == 1
    page.get_by_role("button", name="Show the largest").click()
    page.locator(".remove").nth(many - 1).wait_for()


def test_two_lines_have_a_difference_and_an_index_and_neither_where_one_is_unknown(
    open_page, tmp_path
):
    one, other = (("A", "ACCOUNT_TYPE_GENERAL", party(n), "") for n in (1, 2))
    rows = [(*one, START, LARGEST), (*other, START + DAY, 4), (*other, START + 2 * DAY, 6)]
    table = table_of([*rows, (*other, START + 5 * DAY, 2)])
    note_known(table, [(START, START + 3 * DAY), (START + 4 * DAY, START + 6 * DAY)])
    ba.write_report(table, tmp_path / "report.html", end=from_microseconds(START + 6 * DAY))
    link = urlencode([("range", "ALL"), *(("account", "|".join(key)) for key in (one, other))])
    page = open_page(f"{(tmp_path / 'report.html').as_uri()}#{link}")
    page.get_by_label("Show", exact=True).select_option("difference")

    captions = []

    def tips():
        """What stands beside the pointer on each day, apart from names."""
        box, told = page.locator("#chart .plot").bounding_box(), []
        for day in range(6):
            page.mouse.move(box["x"] + box["width"] * (day + 0.5) / 6, box["y"] + 50)
            told.append(page.locator("#chart .tip text").all_text_contents()[2::2])
            captions.append(page.locator("#moment").inner_text().rpartition(" is ")[2])
        return told

    assert tips() == [["unknown"], *[["≈ 1E38"]] * 2, *[["unknown"]] * 3]
    whole = [f"{LARGEST - 4:,}", f"{LARGEST - 6:,}"]
    assert captions == ["unknown", *whole, *["unknown"] * 3]
    assert page.locator("#chart .line:not(.thick)").count() == 1
    assert "A difference: general · 010101…0101 less" in page.locator("#drawn-as").inner_text()
    page.get_by_label("Show", exact=True).select_option("index")
    gone = ["unknown", "unknown"]
    index = ["100.00", "unknown"], ["100.00", "100.00"], ["100.00", "150.00"]
    assert tips() == [*index, gone, gone, ["unknown", "50.00"]]
    page.get_by_label("Show", exact=True).select_option("difference")
    other = open_page(page.url)
    assert other.locator("#drawn-as").inner_text() == page.locator("#drawn-as").inner_text()
    page.locator(".remove").first.click()
    assert "Choose two" in page.locator("#drawn-as").inner_text()


def test_shares_are_left_out_where_a_type_is_unknown_even_a_hidden_one(open_page, frozen):
    link = "#asset=VOTE&range=ALL&tab=totals&totals=shares&hide=ACCOUNT_TYPE_MARGIN"
    page = open_page(frozen + link)  # its first row is 11 hours behind the others' first ones
    (path,) = page.locator("#panel .bar").evaluate_all(
        "(all) => all.map((one) => one.getAttribute('d'))"
    )
    width = page.locator("#panel .plot").evaluate("(one) => one.getBBox().width")
    first = float(re.match(r"M([\d.]+) ", path).group(1))
    assert 11 / 59 <= first / width < 13 / 59


def test_a_log_scale_of_the_chart_leaves_the_bars_of_flows_as_they_are(open_page, demo):
    page = open_page(f"{demo}{GOV}&tab=flows&range=ALL")
    bars = page.locator("#panel .bar").evaluate_all("(all) => all.map((one) => one.outerHTML)")
    ticks = page.locator("#chart .ends").all_text_contents()
    page.get_by_label("Log scale").check()
    settle(page)
    after = page.locator("#panel .bar").evaluate_all("(all) => all.map((one) => one.outerHTML)")
    assert bars == after
    assert len(page.locator("#chart .ends").all_text_contents()) > 1
    assert page.locator("#chart .ends").all_text_contents() != ticks


@BOTH
def test_a_chart_is_saved_as_a_picture_that_needs_no_page(open_page, seen, address, tmp_path):
    page = open_page(address, theme="dark")
    title = page.locator("#chart-h").inner_text()
    with page.expect_download() as waited:
        page.locator("#saved").get_by_role("button", name="SVG").click()
    assert waited.value.suggested_filename == f"{title.lower().replace(' ', '-')}.svg"
    waited.value.save_as(tmp_path / "chart.svg")
    other = open_page((tmp_path / "chart.svg").as_uri(), java_script_enabled=False)
    texts = other.locator("text").all_text_contents()
    assert texts[0] == title == other.locator("title").text_content()
    assert set(chips(page)) <= set(texts)
    line = other.locator(".line").first
    assert line.evaluate(INK) == page.locator("#chart .line").first.evaluate(INK)
    assert other.locator("[class=cursor]").count() == 0
    with page.expect_download() as waited:
        page.locator("#saved").get_by_role("button", name="PNG").click()
    assert waited.value.path().read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert seen.said == []


def test_nothing_is_carried_into_what_is_not_known(open_page, tmp_path):
    key = ("VOTE", "ACCOUNT_TYPE_GENERAL", party(1), "")
    table = table_of([(*key, START, 5), (*key, START + DAY, 7), (*key, START + 6 * DAY, 9)])
    note_known(table, [(START, START + 2 * DAY), (START + 4 * DAY, START + 8 * DAY)])
    ba.write_report(table, tmp_path / "report.html", end=from_microseconds(START + 10 * DAY))
    page = open_page(f"{(tmp_path / 'report.html').as_uri()}#range=ALL")
    box = page.locator("#chart .plot").bounding_box()
    told = []
    for day in (0.5, 1.5, 2.5, 5, 7, 9):
        page.mouse.move(box["x"] + box["width"] * day / 10, box["y"] + 50)
        told += [tuple(row) for row in readout(page)[1]]
    since = [f"{from_microseconds(START + day * DAY):%Y-%m-%d %H:%M:%S}" for day in range(9)]
    gone = ("unknown", f"since {since[2]}")
    assert told == [
        ("5", f"since {since[0]}"),
        ("7", f"since {since[1]}"),
        gone,
        gone,
        ("9", f"since {since[6]}"),
        ("unknown", f"since {since[8]}"),
    ]


def test_hovering_over_thinned_steps_tells_the_very_row_at_that_time(open_page, thick):
    url, archive = thick
    page = open_page(url)
    box = page.locator("#chart .plot").bounding_box()
    for part in (0.2, 0.43, 0.7):
        page.mouse.move(box["x"] + box["width"] * part, box["y"] + 50)
        page.locator("#readout .n", has_text="…").wait_for(state="detached")
        page.locator("#readout .how", has_text=re.compile("since|changed")).wait_for()
        moment, [(balance, how)] = readout(page)
        held = ba.balance_at(archive, moment.replace(" ", "T")).iloc[0]
        assert amounts([balance]) == [int(held["balance"])]
        since = f"{held['since']:%Y-%m-%d %H:%M:%S}"
        assert how == ("changed then" if since == moment else f"since {since}")


def test_limits_that_changed_are_drawn_and_the_others_listed(open_page, thick):
    page = open_page(thick[0] + "#tab=notes")
    charts = page.locator(".many [role=img]")
    first, second = (charts.nth(n).get_attribute("aria-label") for n in range(charts.count()))
    assert first.startswith("can propose market: yes from 2023-04-02 00:00:00 to 2023-04-04")
    assert first.endswith("no from 2023-04-09 00:00:00 to 2023-04-09 00:00:00")
    assert re.fullmatch("new one: not sent from .*; yes from .*", second)
    # Seen the same from the 2nd to the 4th, and changed on the 9th: nothing tells when.
    is_drawn = charts.first.evaluate(
        """(chart) => [0.15, 0.65].map((part) => {
            const line = chart.querySelector(".line");
            const plot = chart.querySelector(".plot").getBBox();
            const heights = Array.from({length: Math.ceil(plot.height)}, (_, y) => y);
            return heights.some((y) => line.isPointInStroke(new DOMPoint(plot.width * part, y)));
        })"""
    )
    assert is_drawn == [True, False]
    kept = page.locator("table[aria-label='Limits that did not change'] td").all_inner_texts()
    assert kept[:2] == ["can propose asset", "yes"]
    assert "can propose market" not in kept


def test_the_focus_stays_where_it_was_while_what_is_around_it_changes(open_page, demo):
    page = open_page(f"{demo}{GOV}&tab=totals")

    def focused():
        settle(page)
        return page.evaluate(
            "(one => one.id || one.ariaLabel || one.innerText)(document.activeElement)"
        )

    page.get_by_role("button", name="network treasury").focus()
    page.keyboard.press("Enter")
    assert focused() == "network treasury"
    page.get_by_label("Show as").select_option("stacked")
    page.get_by_label("Show as").focus()
    page.get_by_role("button", name="network treasury").dispatch_event("click")
    assert focused() == "Show as"
    page.get_by_label("From").fill("2023-04-12")
    page.keyboard.press("Enter")
    assert focused() == "from"
    page.locator("#readout .link").nth(1).focus()
    page.keyboard.press("Enter")
    assert focused() == "panel"


def test_keys_read_the_chart_row_by_row(open_page, frozen):
    page = open_page(frozen)
    page.locator("#chart").focus()
    page.keyboard.press("ArrowLeft")
    assert "changed then" in page.locator("#readout .how").all_inner_texts()
    before = readout(page)[0]
    page.keyboard.press("ArrowLeft")
    assert readout(page)[0] < before


@BOTH
def test_a_table_sorts_by_size_to_the_last_digit_with_the_keys_alone(open_page, address):
    page = open_page(address)
    head = page.get_by_role("columnheader", name="held").get_by_role("button")
    held = amounts(column(page, 2))
    assert held == sorted(held, reverse=True)
    head.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Space")
    again = amounts(column(page, 2))
    assert again == sorted(again)
    assert page.get_by_role("columnheader", name="held").get_attribute("aria-sort") == "ascending"


def test_a_filter_finds_whole_ids_and_says_how_many_rows_it_leaves(open_page, frozen):
    page = open_page(frozen + "#asset=VOTE")
    field, count = page.get_by_label("Filter Holders"), page.locator(".sheet output").first
    assert count.inner_text() == "12 rows"
    field.fill(party(1)[:40])
    assert count.inner_text() == "2 of 12 rows"
    field.fill(MARKET.upper())
    assert column(page, 1) == ["margin · 010101…0101 · market bda439…4f32 party"]


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


def test_a_download_has_the_cells_that_write_table_writes(open_page, tmp_path):
    starts = ["=HYPERLINK(1)", "+1", "-1+1", "@a", "\tb", "\rc", "\nd", 'e"f', "g,h", "i\nj=", "k"]
    rows = [("VOTE", f"{text}x", text, text, START, place - 3) for place, text in enumerate(starts)]
    table = table_of(rows)
    ba.write_report(table, tmp_path / "report.html")
    held = ba.balance_at(table, from_microseconds(START)).drop(columns="state", errors="ignore")
    ba.write_table(held, tmp_path / "held.csv")
    page = open_page((tmp_path / "report.html").as_uri())
    with page.expect_download() as waited:
        page.locator(".sheet").first.get_by_role("button", name="CSV").click()

    def cells(path):
        with path.open(encoding="utf-8", newline="") as file:
            return sorted(
                [one[name] for name in (*ba.ACCOUNT_KEY, "balance", "since")]
                for one in csv.DictReader(file)
            )

    assert cells(waited.value.path()) == cells(tmp_path / "held.csv")


def test_a_view_of_sums_that_pass_38_digits_says_so_and_the_others_are_there(open_page, tmp_path):
    rows = [("BIG", "ACCOUNT_TYPE_GENERAL", party(n), "", START, LARGEST) for n in range(3)]
    ba.write_report(table_of(rows), tmp_path / "report.html")
    page = open_page(f"{(tmp_path / 'report.html').as_uri()}#tab=totals")
    assert "more than 38 digits" in page.locator("#panel [role=alert]").inner_text()
    assert f"{LARGEST:,}" in page.locator("#readout").inner_text()
    page.get_by_role("tab", name="Account").click()
    settle(page)
    assert page.locator("#panel td").count() > 0


def test_balances_of_38_digits_are_shown_whole(open_page, frozen):
    page = open_page(frozen + f"#asset={'f' * 64}")
    assert f"{LARGEST:,}" in page.locator("#readout").inner_text()
    assert column(page, 2) == [f"{LARGEST:,}"]
    assert len(chips(page)) == 1


def test_the_account_page_is_two_actions_away_and_pages_its_rows(open_page, demo):
    page = open_page(demo + GOV)
    find(page, "treasury", "treasury")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="network treasury").first.click()
    page.locator("#panel dt", has_text="held at the end").wait_for()
    facts = dict(
        zip(
            page.locator("#panel .facts dt").all_inner_texts(),
            page.locator("#panel .facts dd").all_inner_texts(),
            strict=True,
        )
    )
    assert facts["held at the end"] == "24,999,364,000"
    assert amounts([facts["held at the end"]])[0] in amounts(column(page, 2, "Rows"))


def test_a_view_of_other_accounts_keeps_the_largest_out_by_a_click(open_page, demo):
    page = open_page(f"{demo}{GOV}&tab=totals")
    page.get_by_role("button", name="network treasury").click()
    settle(page)
    assert state(page)["hide"] == ["ACCOUNT_TYPE_NETWORK_TREASURY"]
    page.get_by_label("Show as").select_option("shares")
    assert state(page)["totals"] == ["shares"]


def test_a_gap_is_said_at_the_top_where_a_view_touches_it_and_a_new_export_offers_to_reload(
    open_page, growing
):
    url, export = growing
    page = open_page(f"{url}/#range=ALL")
    assert (
        "Not known to be complete: 2023-04-04 to 2023-04-05."
        in page.locator("#notice").inner_text()
    )
    inside = BEGIN + DAY + DAY // 2
    hatched, drawn = page.evaluate(
        """(part) => {
            const plot = document.querySelector("#chart .plot").getBBox(), points = Array.from(
                {length: Math.ceil(plot.height)}, (_, y) => new DOMPoint(part * plot.width, y));
            const gap = document.querySelector("#chart .gap");
            return [points.slice(1).every((point) => gap.isPointInFill(point)),
                [...document.querySelectorAll("#chart .line")].some((line) =>
                    points.some((point) => line.isPointInStroke(point)))];
        }""",
        0.3,
    )
    assert (hatched, drawn) == (True, False)
    other = open_page(f"{url}/#at={inside}")
    assert set(column(other, 2)) == {"unknown"}
    away = open_page(f"{url}/#range=1D")
    assert away.locator("#notice").is_hidden()
    assert page.locator("#stale").is_hidden()
    export()
    page.locator("#stale").wait_for(timeout=20_000)
    page.get_by_role("button", name="Reload").click()
    settle(page)
    assert "to 2023-04-08" in page.locator("#interval").inner_text()


def test_an_empty_archive_says_so(open_page, seen, tmp_path):
    begin(tmp_path)
    with serving(ba.Archive(tmp_path)) as url:
        page = open_page(url)
        assert "nothing in it yet" in page.locator("#interval").inner_text()
        assert page.locator("#chart").is_hidden()
    assert seen.said == []


def test_a_hostile_id_is_text(open_page, seen, frozen):
    page = open_page(frozen + "#asset=VOTE")
    assert find(page, "script", "scrip") == ["general · <scrip…ipt>"]
    page.keyboard.press("Enter")
    page.get_by_role("button", name="<scrip").first.click()
    page.locator("#panel dd", has_text=SCRIPT).first.wait_for()
    assert page.evaluate("document.scripts.length") == 2
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


def test_it_prints_light_with_whole_ids_and_rows_and_without_what_is_for_the_screen(
    open_page, demo
):
    page = open_page(demo + GOV, theme="dark")
    ink = page.locator("#chart .line").first.evaluate(INK)
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    for gone in (
        "[role=tablist]",
        "#find",
        "#asset",
        "#from",
        ".remove",
        "#panel input",
        ".of-party",
    ):
        assert not page.locator(gone).first.is_visible(), gone
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"
    assert page.locator("#chart .line").first.evaluate(INK) == "rgb(0, 114, 178)" != ink
    accounts = page.locator("#panel tbody td:first-child .link")
    assert accounts.nth(2).is_visible()
    assert accounts.nth(2).inner_text() == "general · c26ede…0a46"
    assert page.locator("#panel .note", has_text="Held just before 2023-05-01").is_visible()
    shown = page.locator("#panel tbody tr").evaluate_all(
        "(rows) => rows.filter((row) => row.checkVisibility()).length"
    )
    assert shown == 250
    assert page.get_by_text("Rows 1 to 250 of 451.").is_visible()
    id_ = page.evaluate(
        "getComputedStyle(document.querySelectorAll('#panel .link')[2], '::after').content"
    )
    assert re.search("[0-9a-f]{64}", id_)
    for tab in TABS:
        page.get_by_role("tab", name=tab, include_hidden=True).dispatch_event("click")
        settle(page)
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        ends = page.locator(".chart svg").evaluate_all(
            """(charts) => charts.map((one) => one.getBoundingClientRect().right
                - document.body.getBoundingClientRect().left)"""
        )
        assert max(ends) <= 1032, tab  # A4, landscape
        if tab == "Totals":
            assert page.get_by_role("button", name="network treasury").is_visible()
    page.emulate_media(media="screen", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("#chart .line").first.evaluate(INK) == ink
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
    ba.write_report(table_of(rows), tmp_path / "r.html")
    page = open_page((tmp_path / "r.html").as_uri())
    assert column(page, 1)[0] == f"general · 000000…{1499:04x} party"
    page.get_by_role("button", name="Next").click()
    assert column(page, 1)[0] == f"general · 000000…{1479:04x} party"
    assert page.get_by_text("21 to 40 of 1,500").is_visible()
    assert page.evaluate("document.documentElement.scrollHeight") < 8 * 900


def test_a_page_whose_state_is_gone_begins_anew_with_the_current_one(open_page, demo):
    page, asked = open_page(demo), []
    page.on("request", lambda request: asked.append(request.url))
    page.route("**/explore/movers*", lambda route: route.fulfill(status=409, json={}), times=1)
    with page.expect_request("**/explore/about*"):
        page.get_by_role("tab", name="Movers").click()
    settle(page)
    assert column(page, 4, "Movers")
    version = page.request.get(f"{demo}/explore/version").json()["version"]
    views = [url for url in asked if re.search("/explore/(?!about|version)", url)]
    assert views
    assert {parse_qs(url.partition("?")[2])["version"][0] for url in views} == {version}


def tiles(page, box):
    """What stands in tiles, and the small print below, by their words."""
    found = page.locator(f"{box} .tile").evaluate_all(
        "(all) => all.map((one) => [one.querySelector('dt').textContent, one.innerText])"
    )
    return {name: text.split("\n")[1:] for name, text in found}


def test_an_asset_and_its_accounts_are_told_at_a_glance(open_page, demo):
    page = open_page(f"{demo}{GOV}&range=1W&digits=all")
    with ba.demo.sample_archive() as archive:
        rows = archive.select(asset_id="tGOV").read()
    flows = ba.flows(rows, freq=None, by="asset_id", start="2023-04-24", end="2023-05-01").iloc[0]
    found = tiles(page, "#headline")
    held = ba.holders(rows, "2023-04-30T23:59:59.999999Z", by="party_id")
    total = sum(int(level) for level in held["balance"].dropna())
    assert amounts([found["total held"][0]]) == [Decimal(total).scaleb(-18)]
    assert found["parties that hold it"][0] == f"{(held['balance'].dropna() > 0).sum()}"
    for name, text in (("inflow", "came in"), ("outflow", "went out")):
        assert amounts([found[text][0]]) == [Decimal(int(flows[name])).scaleb(-18)]
    party_id = page.locator("#each .link").first.get_attribute("title")
    own = rows[rows["party_id"] == party_id].reset_index(drop=True)
    own = ba.summarize_accounts(own, start="2023-04-24", end="2023-05-01").iloc[0]
    found = tiles(page, "#each .of:first-child")
    names = {
        "held at the start": "opening",
        "held at the end": "closing",
        "change": "net",
        "highest": "maximum",
        "lowest": "minimum",
    }
    for text, name in names.items():
        assert amounts([found[text][0]]) == [Decimal(int(own[name])).scaleb(-18)], text
    assert found["change"][1] == f"+{100 * int(own['net']) / int(own['opening']):.2f}\xa0%"


def test_what_was_before_a_range_is_unknown_in_a_report_s_tiles_too(open_page, frozen):
    page = open_page(frozen + "#asset=VOTE&range=ALL")
    assert tiles(page, "#headline")["change"] == ["unknown", "before the range: unknown"]
    assert tiles(page, "#each .of:first-child")["change"][1].startswith("+")


def test_amounts_show_what_matters_and_have_every_digit_where_asked(open_page, demo):
    page = open_page(demo + GOV)
    short, whole = column(page, 2), page.locator("#panel tbody td:nth-child(2)")
    exact = [one.get_attribute("title") or one.inner_text() for one in whole.all()][: len(short)]
    assert {len(text.partition(".")[2]) for text in short} == {2}
    assert any(len(text.partition(".")[2]) > 10 for text in exact)
    for near, far in zip(amounts(short), amounts(exact), strict=True):
        assert abs(near - far) <= Decimal("0.005")
    page.get_by_label("Digits").select_option("all")
    settle(page)
    assert column(page, 2) == exact


@BOTH
def test_a_party_s_page_opens_by_a_click_and_from_its_address(open_page, address, kind):
    page = open_page(address)
    page.get_by_role("button", name=re.compile("^party ")).first.click()
    settle(page)
    (wanted,) = state(page)["party"]
    assert page.locator("#panel .ids dd").first.inner_text().startswith(wanted)
    words = page.locator("#panel .facts dt").all_inner_texts()
    assert {"between its own accounts", "came in", "went out"} <= {*words}
    other = open_page(f"{address.partition('#')[0]}#party={wanted}")
    assert other.locator("#panel").inner_text() == page.locator("#panel").inner_text()
    page.get_by_role("tab", name="Holders").click()
    page.locator("#panel .when select").last.select_option("party")
    settle(page)
    assert page.locator("#panel tbody .link").first.get_attribute("title")
    assert page.locator("#panel a").count() == (0 if kind == "frozen" else 1)


def test_each_view_links_to_its_data(open_page, demo):
    page = open_page(demo + GOV)
    for tab in TABS:
        page.get_by_role("tab", name=tab).click()
        settle(page)
        links = page.locator("#panel .data a").evaluate_all("(all) => all.map((one) => one.href)")
        assert links
        for link in links:
            answer = page.request.get(link)
            assert (answer.status, answer.headers["content-type"]) == (200, "application/json")


def test_an_answer_that_comes_late_does_not_open_the_search_again(open_page, demo):
    page = open_page(demo)
    waiting = []

    def hold(route):
        waiting.append(route)

    page.route("**/explore/accounts*text=gen*", hold)
    field = page.get_by_role("combobox", name="Add an account")
    field.fill("gen")
    for _ in range(100):
        if waiting:
            break
        page.wait_for_timeout(20)
    field.press("Escape")
    with page.expect_response("**/explore/accounts*text=gen*"):
        waiting[0].continue_()
    page.wait_for_timeout(100)
    assert page.locator("#found").is_hidden()


def test_a_report_says_that_an_account_and_a_party_are_of_all_of_the_time(open_page, frozen):
    for tab in ("account", "party"):
        page = open_page(f"{frozen}#tab={tab}&range=1D")
        said = page.locator("#panel > .note").first.inner_text()
        assert said.endswith("UTC. In a report, this tab is always about all of the time.")


def test_a_range_after_all_data_and_one_without_a_moment_are_told_as_such(open_page, frozen):
    page = open_page(frozen)
    page.locator("#from").fill("2099-01-01")
    page.locator("#from").press("Enter")
    assert page.locator("#wrong").inner_text().startswith("The data end at 20")
    page.locator("#from").fill("")
    page.locator("#from").press("Enter")
    assert page.locator("#wrong").inner_text().startswith("Give a moment: a day such as")
