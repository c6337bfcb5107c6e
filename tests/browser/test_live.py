"""What a user sees and does on an archive's page."""

import csv
import io
import re
from dataclasses import replace
from itertools import product
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pandas as pd
import pytest
from playwright.sync_api import expect

import balance_analysis as ba
from balance_analysis import demo as samples
from tests.analysis.tables import DAY, HOUR
from tests.archive.writing import answered, begin, writer_of
from tests.browser.conftest import BEGIN, GAP, HIDDEN, LONG, STOP, UNPROVEN, party, settle
from tests.explorer.asking import as_dicts, write_key
from tests.loopback import Row
from tests.moments import from_microseconds, to_microseconds
from tests.service.archives import Stretch, commit, write_archive
from tests.serving import serving

TABS = ["holders", "totals", "flows", "movers", "account", "party", "explain", "notes"]
FEW = "() => document.querySelectorAll('tbody tr:nth-child(n+6)').forEach((one) => one.remove())"
INK = "(one) => getComputedStyle(one).stroke"
INKS = """[...document.querySelectorAll(".chart text")].map((one) => getComputedStyle(one).fill)
    .filter((ink) => ink !== getComputedStyle(document.querySelector(".interval")).color)"""
WRAPPED = """() => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), wrapped = [];
    const whole = /\\d{4}-\\d\\d-\\d\\d( [\\d:.]+)?|https?:\\/\\/[^\\s,]+|\\S+…\\S+|-?\\d[\\d,.]*/g;
    while (texts.nextNode()) {
        const text = texts.currentNode, range = document.createRange();
        const holder = text.parentElement;
        if (!holder.checkVisibility() || holder.closest("svg")) continue;
        for (const {0: part, index} of text.data.matchAll(whole)) {
            range.setStart(text, index);
            range.setEnd(text, index + part.length);
            const tops = new Set([...range.getClientRects()].map((one) => Math.round(one.top)));
            if (tops.size > 1) wrapped.push(text.data);
        }
    }
    return wrapped;
}"""
FITS = """() => {
    const field = document.getElementById("find");
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = getComputedStyle(field).font;
    const middle = ({top, bottom}) => Math.round((top + bottom) / 20);
    const lines = [...document.querySelectorAll(".sheet .tools:has(h3)")].map((tools) =>
        new Set([...tools.children].filter((one) => one.checkVisibility())
            .map((one) => middle(one.getBoundingClientRect()))));
    return [pen.measureText(field.placeholder).width < field.clientWidth - 16,
        lines.every(({size}) => size === (innerWidth < 700 ? 2 : 1)),
        [...document.querySelectorAll(".wide, .stacked td")].every(
            (one) => one.scrollWidth <= one.clientWidth)];
}"""
CELLS = "(all) => all.map((row) => [...row.cells].map((one) => one.textContent))"
FIRST = "(all) => all.map((one) => one.firstChild.textContent)"
HURRIED = "((every) => { setInterval = (run, time) => every(run, time / 20); })(setInterval)"
CLIPBOARD = "() => navigator.clipboard.readText()"


def click(locator):
    """Click on a part of a page, and wait until the page shows the result."""
    locator.click()
    settle(locator.page)


def press(page, *keys):
    """Press keys, one after the other."""
    for key in keys:
        page.keyboard.press(key)
    settle(page)


def point(page, part):
    """Move the pointer over the chart, to a part of its time."""
    box = page.locator("#chart .plot").bounding_box()
    page.mouse.move(box["x"] + box["width"] * part, box["y"] + 50)


def chips(page):
    return page.locator("#readout .link").all_inner_texts()


def state(page):
    return parse_qs(page.url.partition("#")[2])


def tab(page, name):
    click(page.locator(f"#tab-{name}"))


def sheet(page, caption):
    """The rows of a table on its first page, as dicts by the words of their columns."""
    table = page.locator(f"table[aria-label^='{caption}']").first
    names = table.locator("thead th").evaluate_all("(all) => all.map((one) => one.dataset.name)")
    rows = table.locator("tbody tr").evaluate_all(
        "(all) => all.map((row) => [...row.cells].map((one) => one.innerText))"
    )
    return [dict(zip(names, row, strict=True)) for row in rows]


def tiles(page):
    all_ = page.locator(".tile").evaluate_all(
        """(all) => all.map((one) => [one.querySelector("dt").textContent,
            one.querySelector("dd").firstChild.textContent,
            one.querySelector("small")?.textContent ?? ""])"""
    )
    return {name: (text, small) for name, text, small in all_}


def facts_of(page):
    rows = page.locator("#panel .facts > div").all_inner_texts()
    return dict(one.split("\n")[:2] for one in rows)


def written(number, decimals=18):
    """An amount with every digit, as the page writes it."""
    if number is None:
        return "unknown"
    whole, part = divmod(abs(number), 10**decimals)
    text = f"{whole:,}.{part:0{decimals}}".rstrip("0").rstrip(".")
    return f"-{text}" if number < 0 else text


def readout(page):
    rows = page.locator("#readout tr").all_inner_texts()
    moment = page.locator("#readout caption").inner_text().partition(" UTC")[0]
    return moment, [tuple(row.split("\t")[1:3]) for row in rows]


def find(page, text, wanted):
    """Type into the search, and wait until it offers something."""
    page.get_by_role("combobox", name="Add an account").fill(text)
    page.locator("#found li:first-child > span", has_text=wanted).first.wait_for()
    return page.locator("#found li > span").all_inner_texts()


def check_tabs(page, tabs, widths):
    """Nothing is cut off, no number, moment or address breaks, and no tab fails."""
    for name in tabs:
        tab(page, name)
        for width in widths:
            page.locator("#chart svg").evaluate("(one) => { one.id = 'before'; }")
            page.set_viewport_size({"width": width, "height": 900})
            page.locator("#before").wait_for(state="detached")
            page.wait_for_function(f"document.documentElement.scrollWidth === {width}")
            assert page.evaluate(WRAPPED) == [], (width, name)
            assert page.evaluate(FITS) == [True, True, True], (width, name)
            assert page.locator("#panel [role=alert]").count() == 0, (width, name)


def test_the_page_fits_and_digits_stay_on_one_line_with_long_names_and_numbers(visit, gapped):
    check_tabs(visit(gapped[0], "digits=all&range=ALL"), TABS, (390, 768, 1280))


def test_axe_finds_no_violation_and_checks_all_contrast(visit, axe, gapped):
    page = visit(gapped[0], "range=ALL")
    page.evaluate(f"{axe}; 0")
    for (width, theme), name in product(((1280, "light"), (390, "dark")), TABS):
        visit(gapped[0], f"range=ALL&tab={name}", width=width, theme=theme)
        page.evaluate(FEW)  # the other rows are as these
        # axe can't see the background of SVG text, which has none; its colour is that of notes.
        assert page.evaluate(INKS) == []
        result = page.evaluate(
            "axe.run({exclude: '.chart text'}, {resultTypes: ['violations', 'incomplete']})"
        )
        unsure = [one for one in result["incomplete"] if one["id"] == "color-contrast"]
        wrong = [(one["id"], one["nodes"][0]["html"]) for one in result["violations"] + unsure]
        assert wrong == [], (name, theme)


def cell(value, kind):
    """An answer's value as the page writes it, with all digits; `None` if it may differ."""
    if kind in ("text", "ratio", "flag") or (value is None and kind == "moment"):
        return None
    if value is None:
        return "unknown"
    if kind == "moment":
        return re.sub(r"\.?0{1,6}$", "", f"{from_microseconds(value):%Y-%m-%d %H:%M:%S.%f}")
    return written(int(value)) if kind == "amount" else f"{value:,}"


def texts_of(records):
    columns = [one["kind"] for one in records["columns"]]
    return [[*map(cell, row, columns)] for row in records["rows"]]


def is_of(seen, texts):
    pairs = zip(seen, texts, strict=False)
    return all([b and a for a, b in zip(*row, strict=False)] == row[1] for row in pairs)


@pytest.mark.parametrize("name", TABS)
def test_each_visible_number_is_that_of_the_answer(visit, gapped, name):
    """Those of answers are sums in plain integers: see `tests/explorer/test_numbers`."""
    url, book, _ = gapped
    account = quote(write_key([*book][2]))
    page, asked = visit(url, "tab=notes&range=1W"), {}

    def keep(request):
        asked[urlsplit(request.url).path.rpartition("/")[2]] = request

    page.on("requestfinished", keep)
    visit(url, f"digits=all&range={GAP[1] - DAY}..{UNPROVEN[0]}&focus={account}&tab={name}")
    page.remove_listener("requestfinished", keep)
    views = {view: request.response().json() for view, request in asked.items()}
    shown = views[name]["assets"][0] if name == "party" else views[name] | views.get("rows", {})
    records = [one for one in shown.values() if isinstance(one, dict) and one.get("rows")]
    for table in page.locator("#panel table").all():
        seen = table.locator("tbody tr").evaluate_all(CELLS)
        (own,) = [one for one in records if is_of(seen, texts_of(one))]
        assert len(seen) == min(len(own["rows"]), 250)
        records.remove(own)
    facts = page.locator("#panel .facts :is(dd, small)").evaluate_all(FIRST)
    assert {text for one in records for row in texts_of(one) for text in row} <= {*facts, None}
    (level,), (change,) = map(as_dicts, views["headline"].values())
    flows = views["flows"]["sum"]
    amounts = level["total"], change["change"] or flows["net"], flows["inflow"], flows["outflow"]
    figures = [*(cell(each, "amount") for each in amounts), cell(level["parties"], "count")]
    assert [text.lstrip("+") for text, _ in tiles(page).values()] == figures


def test_nothing_is_drawn_or_made_up_in_a_gap(visit, gapped):
    url, book, _ = gapped
    inside = (GAP[0] + GAP[1]) // 2
    page = visit(url, f"range=ALL&at={inside}")
    assert "Not complete: 2023-04-" in page.locator("#notice").inner_text()
    assert {row["balance"] for row in sheet(page, "Holders")} == {"unknown"}
    facts = facts_of(page)
    assert facts == {"total": "unknown", "unknown accounts": str(len(book)), "holders": "unknown"}
    note = page.locator("#panel > .note").first.inner_text()
    assert "balances that may have changed in 2023-04-09 05:00:00 to 2023-04-10 11:00:00" in note
    lines = [line.get_attribute("d") for line in page.locator("#chart .line").all()]
    assert min(path.count("M") for path in lines) > 1
    assert page.locator("#chart .gap").get_attribute("d").count("M") == 2
    point(page, (inside - BEGIN) / (STOP - BEGIN))
    assert {held for held, _ in readout(page)[1]} == {"unknown"}


def test_figures_over_a_gap_say_what_they_cover_and_tabs_what_is_unknown(visit, gapped):
    url, book, _ = gapped
    account = next(iter(book))
    link = f"tab=account&focus={quote(write_key(account))}&digits=all&range="
    inside = facts_of(visit(url, f"{link}{GAP[0] + HOUR}..{GAP[1] - HOUR}"))
    names = [f"{name}, known part only" for name in ("rows", "changes", "minimum")]
    assert [inside[name] for name in names] == ["unknown"] * 3
    start, end = GAP[0] - DAY, GAP[1] + DAY
    over = facts_of(visit(url, f"{link}{start}..{end}"))
    assert over[names[0]] == str(len(book[account].deltas_in(start, end)))
    assert {"rows", "changes", "minimum"} <= {*facts_of(visit(url, f"{link}{start}..{GAP[0]}"))}
    page = visit(url, f"digits=all&range={start}..{GAP[1] + 1}")
    assert tiles(page)["inflow"] == ("unknown", "rows may be missing")
    facts, lacking = facts_of(page), [one.shown(GAP[1]) for one in book.values()].count(None)
    assert facts["unknown accounts"] == str(lacking)
    then = f"just before 2023-04-10 11:00:00.000001, {lacking} unknown accounts"
    assert tiles(page)["total"] == (facts["total"], then)
    tab(page, "movers")
    assert "No account is known to hold more or less" in page.locator("#panel").inner_text()
    assert page.locator("#panel table").count() == 0


def test_hidden_characters_are_shown_and_shown_text_can_be_searched(visit, gapped):
    page = visit(gapped[0], "range=ALL")
    label = "general · p\\u000aq\\u0001\\u202ez"
    assert find(page, label, "p") == [label]
    press(page, "ArrowDown", "Enter")
    click(page.get_by_role("button", name=label).first)
    assert "p\\u000aq\\u0001\\u202ez" in page.locator("#panel .ids dd").all_inner_texts()[1]
    assert HIDDEN not in page.locator("body").inner_text()


def test_a_sum_of_too_many_digits_is_replaced_by_a_plain_sentence(visit, gapped):
    page = visit(gapped[0], "asset=BIG&tab=totals&range=ALL")
    assert page.locator("#panel [role=alert]").inner_text().endswith("has more than 38 digits.")
    assert page.get_by_role("button", name="Try again").count() == 0
    assert page.locator("#chart .line").count() == 2


def test_try_again_restores_the_page_after_the_service_was_down(visit, gapped):
    page = visit(gapped[0], "range=ALL")
    page.route("**/explore/*", lambda route: route.abort())
    page.locator("#ranges button", has_text="1W").click()
    page.locator("#tab-movers").click()
    page.get_by_role("button", name="Try again").nth(2).wait_for()
    said = page.locator("[role=alert]:visible").all_inner_texts()
    assert said == ["The service doesn't answer. Try again"] * 3
    page.unroute("**/explore/*")
    page.get_by_role("button", name="Try again").last.click()
    page.locator("table[aria-label^=Movers] td").first.wait_for()
    settle(page)
    assert page.locator("[role=alert]:visible").count() == 0
    assert page.locator("#chart .line").count() == 3
    assert page.locator(".tile").count() == 5


def test_a_missing_page_of_rows_is_named_and_the_last_one_shown(visit, gapped):
    page = visit(gapped[0], "tab=account&range=ALL&page=41")
    note = page.locator("#panel .sheet .note").last.inner_text()
    assert note == "There is no part 42; this is part 1. Newest first."
    assert len(sheet(page, "Rows")) > 0


def test_a_link_opens_the_same_view_and_invalid_parts_of_it_are_ignored(visit, gapped):
    url = gapped[0]
    page = visit(url, "range=1D&tab=movers")
    click(page.locator(".remove").first)
    seen = [chips(page), *page.locator("#panel table, #headline").all_inner_texts()]
    page.reload()
    settle(page)
    assert [chips(page), *page.locator("#panel table, #headline").all_inner_texts()] == seen
    page.go_back()
    page.locator("#readout .link").nth(2).wait_for()
    settle(page)
    assert len(chips(page)) == 3
    for link in (
        "asset=none&account=a|b&account=0|ACCOUNT_TYPE_GENERAL|other|&focus=x&range=9..2&tab=no",
        "account=VOTE|ACCOUNT_TYPE_GENERAL|%25E0%25A4%25A|&hide=%E0%A4%A&digits=toString",
        "range=constructor&focus=%|%|%|%&at=1e99&page=-7&tab=__proto__",
    ):
        page = visit(url, link)
        assert len(chips(page)) == 3
        assert page.locator("[role=alert]:visible").count() == 0
        assert page.locator("#ranges [aria-pressed=true]").inner_text() == "1W"
        assert page.locator("#panel td").count() > 0


def test_the_wheel_a_drag_the_keys_the_buttons_and_two_fields_zoom(visit, gapped):
    page = visit(gapped[0])
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
    page.locator("#chart").focus()
    page.keyboard.press("PageUp")
    assert bounds() == pytest.approx([at - (end - start) / 2 for at in (start, end)], abs=2e6)
    press(page, "0")
    assert state(page)["range"] == ["ALL"]
    page.get_by_label("From (UTC)").fill("2023-04-12T12:30:00")
    settle(page)
    assert bounds()[0] == BEGIN + 9 * DAY + 12 * HOUR + HOUR // 2
    page.get_by_label("From (UTC)").fill("2099-04-12T12:30:00")
    assert page.locator("#wrong").inner_text() == "The range must end after it starts."


def test_the_pointer_reads_exact_balances_and_a_click_sets_the_moment_of_holders(visit, gapped):
    url, book, _ = gapped
    page = visit(url, "range=ALL&digits=all")
    point(page, 0.55)
    page.locator("#readout .how", has_text="since 2023-04-1").first.wait_for()
    moment, rows = readout(page)
    keys = [tuple(map(unquote, one.split("|"))) for one in state(page)["account"]]
    held = [book[key].shown(to_microseconds(moment.replace(" ", "T"))) for key in keys]
    assert [balance for balance, _ in rows] == [*map(written, held)]
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url(re.compile("at="))
    settle(page)
    assert page.get_by_text(f"Held at {moment} UTC, in {LONG}.").is_visible()
    assert page.locator("#chart .mark").count() == 1
    page.locator("#chart").focus()
    page.keyboard.press("ArrowLeft")
    assert "changed then" in page.locator("#readout .how").all_inner_texts()


def test_the_pointer_over_thinned_steps_reads_the_very_row_at_that_time(visit, sample_node, sample):
    archive = sample.select(asset_id="tUSD", account_types="fees_infrastructure")
    key = write_key(ba.balance_at(archive, "2023-05-01").iloc[0][[*ba.ACCOUNT_KEY]])
    link = f"asset=tUSD&range=ALL&digits=all&account={quote(key)}"
    page = visit(sample_node, link, width=480)
    for part in (0.35, 0.9):
        with page.expect_request("**/explore/series*width=1&*"):
            point(page, part)
        page.locator("#readout .how", has_text=re.compile("since|changed")).wait_for()
        moment, _ = readout(page)
        balance, how = page.locator("#readout tr").locator(".n, .how").all_inner_texts()
        held = ba.balance_at(archive, moment.replace(" ", "T")).iloc[0]
        assert balance == written(int(held["balance"]), 6)
        since = cell(to_microseconds(held["since"]), "moment")
        assert how == ("changed then" if since == moment else f"since {since}")


def test_without_its_last_line_a_chart_says_so_and_offers_the_largest(visit, gapped):
    page = visit(gapped[0])
    for _ in range(3):
        page.locator(".remove").first.click()
    assert page.locator("#readout p").inner_text().startswith("Add an account above, or")
    assert page.locator("#chart text", has_text="No account is chosen.").count() == 1
    page.get_by_role("button", name="Show the largest").click()
    page.locator(".remove").nth(2).wait_for()


def test_a_search_leads_to_an_account_and_to_another_asset_by_the_keys_alone(visit, sample_node):
    page = visit(sample_node, "asset=tGOV")
    page.keyboard.press("/")
    find(page, "treasury", "treasury")
    expect(page.locator("#found li > span")).to_have_text(["network treasury · network"])
    press(page, "ArrowDown", "Enter")
    assert "network treasury · network" in chips(page)
    assert find(page, "tusd", "asset")[0] == "asset tUSD"
    press(page, "Enter")
    assert page.get_by_label("Asset").locator("option:checked").inner_text().startswith("tUSD")


def test_a_late_answer_does_not_reopen_the_search(visit, gapped):
    page, waiting, asked = visit(gapped[0]), [], "**/explore/accounts*text=gen*"

    def hold(route):
        waiting.append(route)

    page.route(asked, hold)
    field = page.get_by_role("combobox", name="Add an account")
    with page.expect_request(asked):
        field.fill("gen")
    field.press("Escape")
    with page.expect_response(asked):
        waiting[0].continue_()
    page.unroute(asked)
    page.wait_for_timeout(100)
    assert page.locator("#found").is_hidden()


def test_a_click_on_an_amount_shows_where_it_comes_from(visit, gapped):
    url, _, archive = gapped
    page = visit(url, "digits=all")
    for amount in ("#panel tbody tr:nth-child(2) .origin", "#readout .origin"):
        tab(page, "holders")
        click(page.locator(amount).first)
        assert page.locator("#tab-explain").get_attribute("aria-selected") == "true"
        account = [unquote(part) for part in state(page)["focus"][0].split("|")]
        at = from_microseconds(int(state(page)["at"][0]))
        explained = archive.explain(account, at=at)
        shown = [facts_of(page)[name] for name in ("balance", "came from")]
        assert shown == [written(explained.balance), explained.source]
        assert page.locator("#panel .note").first.inner_text() == f"Amounts are in {LONG}."
        rows = (explained.before, explained.row, explained.after)
        cited = [one.file for one in rows if one]
        assert [row["file"] for row in sheet(page, "The row")] == cited


def test_a_party_s_page_opens_by_a_click_and_its_other_assets_lead_to_theirs(visit, sample_node):
    page = visit(sample_node)
    click(page.get_by_role("button", name=re.compile("^party ")).first)
    (wanted,) = state(page)["party"]
    assert page.locator("#panel .ids dd").first.inner_text().startswith(wanted)
    words = page.locator("#panel .facts dt").all_inner_texts()
    assert {"between its own accounts", "inflow", "outflow"} <= {*words}
    click(page.get_by_role("button", name=re.compile("Show its flows of ")).first)
    assert page.locator("#panel .ids dd").first.inner_text().startswith(wanted)
    assert page.locator("table[aria-label^='Flows with others']").count() == 1


def test_the_address_accepts_own_names(visit, gapped):
    page = visit(gapped[0], "tab=party&party=ALICE %26 CO")
    assert page.locator("#panel h3").first.inner_text() == "Party Alice & co"
    assert len(sheet(page, "Accounts")) == 2


def test_copied_text_is_whole_and_has_its_unit(visit, gapped):
    page = visit(gapped[0])
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy Holders").click()
    page.get_by_text("Copied", exact=True).wait_for()
    head, *rows = csv.reader(io.StringIO(page.evaluate(CLIPBOARD), newline=""), delimiter="\t")
    assert head == [*ba.ACCOUNT_KEY, "balance", "share", "since", "unit"]
    held = [written(gapped[1][tuple(row[:4])].shown(STOP - 1)) for row in rows[:4]]
    assert [row[4].replace(",", "") for row in rows[:4]] == [x.replace(",", "") for x in held]
    assert {row[-1] for row in rows} == {page.locator("#asset option:checked").inner_text()}


def test_limits_that_changed_are_drawn_and_the_others_listed(open_page, tmp_path):
    rows = [Row("VOTE", "ACCOUNT_TYPE_GENERAL", party(1), "", BEGIN, 1)]
    archive = write_archive(tmp_path / "archive", rows, stretches=[Stretch(BEGIN, STOP)])
    limits = ba.read_network_limits(samples.sample_data() / "network_limits.json")
    changed = {"can_propose_market": False, "extra": {"new one": True}}
    for day, change in [(2, {"extra": {}}), (4, {"extra": {}}), (9, changed)]:
        at = pd.Timestamp(2023, 4, day, tz="UTC")
        writer_of(archive).keep_limits(replace(limits, fetched_at=at, **change))
    with serving(archive) as url:
        page = open_page(f"{url}/#tab=notes")
        charts, kept = page.locator(".many [role=img]"), sheet(page, "Limits that did not change")
        first, second = (chart.get_attribute("aria-label") for chart in charts.all())
        path = charts.first.locator(".line").get_attribute("d")
        width = float(charts.first.locator(".plot").get_attribute("width"))
    assert first.startswith("can propose market: yes from 2023-04-02 00:00:00 to 2023-04-04")
    assert first.endswith("no from 2023-04-09 00:00:00 to 2023-04-09 00:00:00")
    assert re.fullmatch("new one: not sent from .*; yes from .*", second)
    # Seen the same from the 2nd to the 4th, and changed on the 9th: nothing says when.
    assert float(re.fullmatch(r"M0 \S+H(\S+)", path)[1]) / width == pytest.approx(2 / 7, abs=0.01)
    names = [row["limit"] for row in kept]
    assert (names[0], "can propose market" in names) == ("can propose asset", False)


def test_the_focus_stays_while_the_content_around_it_changes(visit, sample_node):
    page = visit(sample_node, "asset=tGOV&tab=totals")

    def focused():
        settle(page)
        return page.evaluate(
            "(one => one.id || one.ariaLabel || one.innerText)(document.activeElement)"
        )

    page.get_by_role("button", name="network treasury").focus()
    page.keyboard.press("Enter")
    assert focused() == "network treasury"
    assert state(page)["hide"] == ["ACCOUNT_TYPE_NETWORK_TREASURY"]
    page.locator("#readout .link").nth(1).focus()
    page.keyboard.press("Enter")
    assert focused() == "panel"


def test_a_new_export_offers_to_reload_and_a_gone_state_reloads(open_page, tmp_path):
    key, end = ("VOTE", "ACCOUNT_TYPE_GENERAL", party(1), ""), BEGIN + 5 * DAY
    rows = [Row(*key, BEGIN + day * DAY, 10 - day) for day in range(5)]
    begun = [Stretch(BEGIN, BEGIN + DAY), Stretch(BEGIN + 2 * DAY, end - DAY)]
    archive = write_archive(tmp_path / "archive", rows, stretches=begun)
    with serving(archive) as url:
        page = open_page(f"{url}/#range=1D", script=HURRIED)
        assert page.locator("#stale").is_hidden()
        commit(writer_of(archive), rows, Stretch(end - DAY, end))
        page.locator("#stale").wait_for(timeout=20_000)
        click(page.get_by_role("button", name="Reload"))
        assert "to 2023-04-08" in page.locator("#interval").inner_text()
        page.route("**/explore/movers*", lambda route: route.fulfill(status=409, json={}), times=1)
        with page.expect_request("**/explore/about*"):
            page.locator("#tab-movers").click()
        page.locator("table[aria-label^=Movers] td").first.wait_for()


def test_an_empty_archive_says_so(open_page, tmp_path):
    begin(tmp_path)
    with serving(ba.Archive(tmp_path)) as url:
        page = open_page(url)
        assert "The archive is empty" in page.locator("#interval").inner_text()
        assert page.locator("#chart").is_hidden()


def test_a_page_says_if_its_rows_are_complete_and_confirmed(visit, open_page, gapped, tmp_path):
    assert visit(gapped[0]).locator("#said .verdict.bad").inner_text() == "not complete"
    span, folder = (BEGIN, BEGIN + DAY), tmp_path / "archive"
    key = ("VOTE", "ACCOUNT_TYPE_GENERAL", "network", "")
    whole = write_archive(folder, [Row(*key, BEGIN, 1)], stretches=[Stretch(*span)])
    another, writer = answered(span, "http://another.node", "2023-05-01"), writer_of(folder)
    with serving(whole) as url:
        page = open_page(url)
        assert page.locator("#said .verdict:not(.bad)").inner_text() == "complete"
        node = another.answers[0].node
        writer.set_evidence(writer.manifest.evidence.with_verdict(node, [span], []))
        page.reload()
        expect(page.locator("#said .verdict:not(.bad)")).to_have_text("confirmed")


def test_the_printed_page_is_light_with_whole_ids_and_rows_and_no_screen_controls(
    visit, sample_node
):
    page = visit(sample_node, "asset=tGOV", theme="dark")
    ink = page.locator("#chart .line").first.evaluate(INK)
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    gone = page.locator("[role=tablist], #find, #asset, #from, .remove, .sheet input, .of-party")
    assert gone.filter(visible=True).count() == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("#chart .line").first.evaluate(INK) == "rgb(0, 114, 178)" != ink
    shown = page.locator("#panel tbody tr").evaluate_all(
        "(rows) => rows.filter((row) => row.checkVisibility()).length"
    )
    assert shown == 250
    assert page.get_by_text("Rows 1 to 250 of 451.").is_visible()
    whole = "getComputedStyle(document.querySelectorAll('#panel .link')[2], '::after').content"
    assert re.search("[0-9a-f]{64}", page.evaluate(whole))
    ends = page.locator(".chart svg").evaluate_all(
        """(charts) => charts.map((one) => one.getBoundingClientRect().right
            - document.body.getBoundingClientRect().left)"""
    )
    assert max(ends) <= 1032  # A4, landscape
    page.emulate_media(media="screen", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("#chart .line").first.evaluate(INK) == ink
    assert page.pdf()[:5] == b"%PDF-"


def test_the_page_opens_with_a_range_at_whose_start_balances_are_known(visit, sample_node):
    page = visit(sample_node)
    assert page.locator("#ranges [aria-pressed=true]").inner_text() == "1W"
    assert "the page opens with a later range" in page.locator("#headline .note").inner_text()
    assert [*tiles(page)] == ["total", "net", "inflow", "outflow", "parties"]
    assert page.locator("#headline .lacking").count() == 0
    page.locator("#chart").dblclick()
    settle(page)
    assert page.locator("#ranges [aria-pressed=true]").inner_text() == "ALL"
