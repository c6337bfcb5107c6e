"""The page as one file: what it shows without a service, and what it can't be made to do."""

import csv

import pytest

import balance_analysis as ba
from tests.analysis.tables import DAY, HOUR, LARGEST, START, table_of
from tests.browser.conftest import MARKET, party, settle
from tests.browser.test_live import check_tabs, chips, click, find, press, sheet, tab
from tests.moments import from_microseconds

TABS = ["holders", "totals", "flows", "movers", "account", "notes"]
SCRIPT = "<script>alert(1)</script>"
STARTS = ["=HYPERLINK(1)", "+1", "-1+1", "@a", "\tb", "\rc", "\nd", 'e"f', "g,h", "i\nj=", "k"]
GENERAL = "ACCOUNT_TYPE_GENERAL"


@pytest.fixture(scope="module")
def table():
    """Twelve troublesome accounts of one asset, and others with large sums and odd ids."""
    keys = [("VOTE", GENERAL, party(place), "") for place in range(10)]
    keys += [("VOTE", GENERAL, SCRIPT, ""), ("VOTE", "ACCOUNT_TYPE_MARGIN", party(1), MARKET)]
    # The largest three are the same number to a float.
    rows = [
        (*key, START + day * DAY + place * HOUR, 10 ** min(3 * place, 27) * (day + 1) + place)
        for place, key in enumerate(keys)
        for day in range(3)
    ]
    rows += [("f" * 64, GENERAL, party(n), "", START, LARGEST) for n in range(3)]
    rows += [("ODD", f"{text}x", text, text, START, n) for n, text in enumerate(STARTS)]
    return table_of(rows)


@pytest.fixture(scope="module")
def frozen(table, tmp_path_factory):
    """A report on them, with the history of all but the smallest of the twelve."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    ba.write_report(table, path, largest=11)
    return path.as_uri()


def test_a_report_fits_the_screen_and_needs_no_service(visit, frozen):
    page = visit(frozen)
    check_tabs(page, TABS, (390, 1280))
    for gone in ("#tab-party", "#tab-explain", "#api", ".origin"):
        assert not page.locator(gone).filter(visible=True).count()


def test_a_report_has_the_holders_at_each_ranges_start_by_account_and_by_party(visit, frozen):
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
    (row,) = sheet(page, "Holders")
    assert row["account"] == "margin · 010101…0101 · market bda439…4f32"


def test_a_download_has_the_cells_of_write_table_and_a_unit(visit, frozen, table, tmp_path):
    held = ba.balance_at(table.balances.select(asset_id="ODD"), from_microseconds(START + 3 * DAY))
    ba.write_table(held, tmp_path / "held.csv")
    page = visit(frozen, "asset=ODD")
    with page.expect_download() as waited:
        page.locator(".sheet").first.get_by_role("button", name="CSV").click()

    def cells(path):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                yield [row[name] for name in (*ba.ACCOUNT_KEY, "balance", "since")], row.get("unit")

    written = sorted(cells(waited.value.path()))
    assert [row for row, _ in written] == sorted(row for row, _ in cells(tmp_path / "held.csv"))
    assert {unit for _, unit in written} == {"ODD, smallest units"}


def test_balances_of_38_digits_are_shown_whole_and_larger_sums_are_replaced_by_a_sentence(
    visit, frozen
):
    page = visit(frozen, f"asset={'f' * 64}&tab=totals")
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


def test_without_scripts_a_report_describes_its_data(open_page, frozen):
    page = open_page(frozen, is_explorer=False, java_script_enabled=False)
    assert "need scripts" in page.locator("noscript").inner_text()
    assert page.get_by_text("not known to be complete").is_visible()


def test_an_accounts_chart_table_and_figures_cover_all_time(visit, frozen):
    page = visit(frozen, "asset=VOTE&tab=account&range=1D")
    assert "covers all time" in page.locator("#panel .note").first.inner_text()
    rows = sheet(page, "Flows and average per period")
    names = ["start", "end", "average", "inflow", "outflow", "net", "changes"]
    assert [*rows[0]] == [*names, "unknown"]
    moved = [row for row in rows if row["inflow"] not in ("0", "unknown")]
    assert len(moved) > 1
    assert page.locator("#panel .bar").first.get_attribute("d").count("M") == len(moved)


def test_an_account_beyond_the_largest_ones_is_shown_to_have_no_history(visit, frozen):
    page = visit(frozen, "asset=VOTE", width=900)
    largest = ["margin · 010101…0101 · market bda439…4f32", "general · <scrip…ipt>"]
    assert chips(page) == [*largest, "general · 090909…0909"]
    page.get_by_role("button", name="Next").click()
    assert [row["account"][10:16] for row in sheet(page, "Holders")] == ["010101", "000000"]
    click(page.get_by_role("button", name="general · 000000…0000").first)
    assert "doesn't have this account's history" in page.locator("#panel .note").first.inner_text()
    texts = page.locator("#readout tr").last.locator(".n, .how").all_inner_texts()
    assert texts == ["unknown", "its history is not in this report"]


def test_a_table_is_explored_in_a_frame_of_a_notebook(open_page, tmp_path):
    table = table_of([("VOTE", "ACCOUNT_TYPE_GENERAL", party(1), "", START, 5)])
    (tmp_path / "cell.html").write_text(table.balances.explore()._repr_html_(), encoding="utf-8")
    page = open_page((tmp_path / "cell.html").as_uri(), is_explorer=False)
    frame = page.frame_locator("iframe")
    for name in ("Movers", "Holders"):
        settle(frame)
        frame.get_by_role("tab", name=name).click()
    assert frame.locator("#panel td").nth(1).inner_text() == "5"
