"""The page as one file: what it shows without a service, and what it can't be made to do."""

from __future__ import annotations

import csv

import balance_analysis as ba
from tests.analysis.tables import LARGEST, START, table_of
from tests.browser.conftest import MARKET, SCRIPT, party, settle
from tests.browser.test_live import check_tabs, chips, click, find, press, readout, sheet, tab
from tests.moments import from_microseconds

TABS = ["holders", "totals", "flows", "movers", "account", "notes"]


def test_it_fits_says_nothing_to_the_console_and_asks_nobody(open_page, seen, frozen):
    page = open_page(frozen)
    check_tabs(page, TABS, (390, 1280))
    for gone in ("#tab-party", "#tab-explain", "#api", ".origin"):
        assert not page.locator(gone).filter(visible=True).count()
    assert seen.said == []
    assert not [one for one in seen.asked if not one.startswith(("file:", "data:"))]


def test_the_holders_of_each_range_s_start_are_there_by_account_and_by_party(visit, frozen):
    page = visit(frozen, "asset=VOTE")
    for name in ("party", ""):
        page.locator("#panel select").last.select_option(name)
        settle(page)
        for n in range(page.locator("#panel select").first.locator("option").count()):
            page.locator("#panel select").first.select_option(index=n)
            settle(page)
            assert sheet(page, "Holders")
    page = visit(frozen, f"asset=VOTE&at={START + 5}")
    assert page.locator("#panel select").first.input_value() == ""
    said = page.locator("#panel > .note").inner_text()
    assert said.startswith("This report has no holders at 2023-03-28 10:40:00.000005. Held just")
    assert len(sheet(page, "Holders")) == 12


def test_a_table_sorts_by_size_to_the_last_digit_and_filters_by_whole_ids(visit, frozen):
    page = visit(frozen, "asset=VOTE&digits=all")
    held = [int(row["balance"].replace(",", "")) for row in sheet(page, "Holders")]
    assert (held, len(held)) == (sorted(held, reverse=True), 12)
    page.get_by_role("columnheader", name="balance").get_by_role("button").focus()
    press(page, "Enter", "Enter")
    assert [int(row["balance"].replace(",", "")) for row in sheet(page, "Holders")] == sorted(held)
    field, count = page.get_by_label("Filter Holders"), page.locator(".sheet output").first
    field.fill(party(1)[:40])
    assert count.inner_text() == "2 of 12 rows"
    field.fill(MARKET.upper())
    assert [row["account"] for row in sheet(page, "Holders")] == [
        "margin · 010101…0101 · market bda439…4f32"
    ]


def test_a_download_has_the_cells_that_write_table_writes_and_a_unit(visit, tmp_path):
    starts = ["=HYPERLINK(1)", "+1", "-1+1", "@a", "\tb", "\rc", "\nd", 'e"f', "g,h", "i\nj=", "k"]
    rows = [("VOTE", f"{text}x", text, text, START, place) for place, text in enumerate(starts)]
    table = table_of(rows)
    ba.write_report(table, tmp_path / "report.html")
    held = ba.balance_at(table, from_microseconds(START)).drop(columns="state", errors="ignore")
    ba.write_table(held, tmp_path / "held.csv")
    page = visit((tmp_path / "report.html").as_uri())
    with page.expect_download() as waited:
        page.locator(".sheet").first.get_by_role("button", name="CSV").click()

    def read(path):
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def cells(path):
        names = (*ba.ACCOUNT_KEY, "balance", "since")
        return sorted([one[name] for name in names] for one in read(path))

    assert cells(waited.value.path()) == cells(tmp_path / "held.csv")
    assert {one["unit"] for one in read(waited.value.path())} == {"VOTE, smallest units"}


def test_balances_of_38_digits_are_whole_and_sums_that_do_not_fit_are_said(visit, tmp_path):
    rows = [("BIG", "ACCOUNT_TYPE_GENERAL", party(n), "", START, LARGEST) for n in range(3)]
    ba.write_report(table_of(rows), tmp_path / "report.html")
    page = visit((tmp_path / "report.html").as_uri(), "tab=totals")
    assert page.locator("#panel [role=alert]").inner_text().endswith("has more than 38 digits.")
    assert f"{LARGEST:,}" in page.locator("#readout").inner_text()
    tab(page, "account")
    assert sheet(page, "Rows")[0]["balance"] == f"{LARGEST:,}"


def test_a_hostile_id_is_text(visit, frozen):
    page = visit(frozen, "asset=VOTE")
    assert find(page, "script", "scrip") == ["general · <scrip…ipt>"]
    page.keyboard.press("Enter")
    page.get_by_role("button", name="<scrip").first.click()
    page.locator("#panel dd", has_text=SCRIPT).first.wait_for()
    assert page.evaluate("document.scripts.length") == 2


def test_without_scripts_it_says_what_it_is_of(open_page, frozen):
    page = open_page(frozen, java_script_enabled=False)
    assert "need scripts" in page.locator("noscript").inner_text()
    assert page.get_by_text("not known to be complete").is_visible()


def test_an_account_s_chart_table_and_figures_are_of_all_of_the_time(visit, frozen):
    page = visit(frozen, "asset=VOTE&tab=account&range=1D")
    assert "about all of the time" in page.locator("#panel .note").first.inner_text()
    rows = sheet(page, "Flows and average per period")
    names = ["start", "end", "average", "inflow", "outflow", "net", "changes"]
    assert [*rows[0]] == [*names, "unknown"]
    moved = [row for row in rows if row["inflow"] not in ("0", "unknown")]
    assert len(moved) > 1
    drawn = page.locator("#panel .bar").first.get_attribute("d")
    assert drawn.count("M") == len(moved)


def test_an_account_beyond_the_largest_is_said_to_have_no_history_here(visit, tmp_path):
    rows = [("A", "ACCOUNT_TYPE_GENERAL", f"{n:064x}", "", START + n, n) for n in range(30)]
    ba.write_report(table_of(rows), tmp_path / "r.html", largest=3)
    page = visit((tmp_path / "r.html").as_uri())
    assert chips(page) == [f"general · 000000…{n:04x}" for n in (29, 28, 27)]
    page.get_by_role("button", name="Next").click()
    assert sheet(page, "Holders")[0]["account"] == f"general · 000000…{9:04x}"
    click(page.get_by_role("button", name=f"general · 000000…{9:04x}"))
    said = page.locator("#panel .note").first.inner_text()
    assert "doesn't have this account's history" in said
    assert readout(page)[1][-1] == ("unknown", "its history is not in this report")


def test_a_table_is_explored_in_a_frame_of_a_notebook(open_page, tmp_path):
    table = table_of([("VOTE", "ACCOUNT_TYPE_GENERAL", party(1), "", START, 5)])
    (tmp_path / "cell.html").write_text(table.balances.explore()._repr_html_(), encoding="utf-8")
    page = open_page((tmp_path / "cell.html").as_uri(), is_frame=True)
    frame = page.frame_locator("iframe")
    frame.get_by_role("tab", name="Movers").click()
    frame.get_by_role("tab", name="Holders").click()
    assert frame.locator("#panel td").nth(1).inner_text() == "5"
