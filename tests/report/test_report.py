from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal

import matplotlib as mpl
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.assets import Assets
from balance_analysis.known import note_known
from balance_analysis.report.content import make_content, read_source
from balance_analysis.report.report import write_report
from balance_analysis.report.sections import make_page
from balance_analysis.schema import ACCOUNT_KEY, from_microseconds
from tests.analysis.tables import DAY, GENERAL, HOUR, MARGIN, OTHER, START, table_of
from tests.report.reading import number, read_page

SCRIPT = "<script>alert(1)</script>"
CONFUSING = [
    SCRIPT,
    "</script><!--",
    "'\" onmouseover=alert(1) x=",
    "$\\frac{1$",
    "\u202eabc\x01\n\ud7ff😀",
    "&lt;b&gt;",
    "{{ 7 * 7 }}",
    "",
]
BIG = 10**37 + 123_456_789

ROWS = [
    (*GENERAL, START, 5),
    (*GENERAL, START + DAY, BIG),
    (*GENERAL, START + 3 * DAY, 7),
    (*MARGIN, START + HOUR, 40),
    (*MARGIN, START + 3 * DAY + HOUR, 1),
    (*OTHER, START + 2 * DAY, 12_345),
    (*OTHER, START + 3 * DAY + 2 * HOUR, 2_345),
]
END = START + 3 * DAY + 2 * HOUR + 1


def write(table, folder, *, name="report.html", **options):
    path = folder / name
    write_report(table, path, **options)
    return path


@pytest.fixture(scope="module")
def table():
    return table_of(ROWS)


@pytest.fixture(scope="module")
def vote():
    """Its first asset alone, which is written faster."""
    return table_of([row for row in ROWS if row[0] == "VOTE"])


@pytest.fixture(scope="module")
def page(table, tmp_path_factory):
    """A report whose tables are about VOTE, the first of its two assets."""
    return read_page(write(table, tmp_path_factory.mktemp("report")))


def of_vote(frame):
    return frame[frame["asset_id"] == "VOTE"]


def whole(column):
    return [None if pd.isna(value) else int(value) for value in column]


def test_the_totals_are_those_of_totals(table, page):
    last = from_microseconds(END - 1)
    sums = of_vote(ba.totals(table, start=last, end=from_microseconds(END), freq="1us"))
    rows = page.table("Totals by account type")
    assert [row["type"] for row in rows] == ["general", "margin"]
    assert [number(row["closing"]) for row in rows] == whole(sums["total"])
    assert [number(row["unknown"]) for row in rows] == list(sums["unknown"])


def test_what_flowed_by_type_is_that_of_flows_to_the_last_digit(table, page):
    bounds = {"start": from_microseconds(START), "end": from_microseconds(END)}
    found = of_vote(ba.flows(table, freq=None, by=("asset_id", "account_type"), **bounds))
    rows = page.table("Totals by account type")
    for name in ("inflow", "outflow", "net", "changes"):
        assert [number(row[name]) for row in rows] == whole(found[name])


def test_under_the_totals_stands_what_all_types_are_together(table, page):
    rows = page.table("Totals by account type")
    (totals,) = page.totals.values()
    for place, name in enumerate(rows[0]):
        if place:
            assert number(totals[place]) == sum(number(row[name]) for row in rows)


def test_the_accounts_are_those_of_the_summary(table, page):
    summary = of_vote(ba.summarize_accounts(table)).sort_values("closing", ascending=False)
    rows = page.table("All 2 accounts")
    assert [row["party"] for row in rows] == list(summary["party_id"])
    for name in ("closing", "net", "inflow", "outflow", "changes"):
        assert [number(row[name]) for row in rows] == whole(summary[name])
    assert [row["share"] for row in rows] == ["87.50", "12.50"]


def test_the_flows_are_those_of_flows_by_calendar_day(table, page):
    found = of_vote(ba.flows(table, by="asset_id"))
    rows = page.table("Flows and activity by day")
    assert [row["from"] for row in rows] == [f"{day:%Y-%m-%d}" for day in found["start"]]
    for name in ("inflow", "outflow", "net", "changes"):
        assert [number(row[name]) for row in rows] == whole(found[name])
    assert [number(row["first rows"]) for row in rows] == list(found["unknown"])


def test_the_movers_are_those_of_top_movers(table, page):
    since, end = from_microseconds(END - DAY), from_microseconds(END)
    found = of_vote(ba.top_movers(table, since, end))
    rows = page.table("Largest movers since")
    for name in ("net", "opening", "closing", "inflow", "outflow", "changes"):
        assert [number(row[name]) for row in rows] == whole(found[name])


def test_the_concentration_is_that_of_concentration(table, page):
    moments = [from_microseconds(moment - 1) for moment in (END - DAY, END)]
    found = of_vote(ba.concentration(table, moments))
    rows = page.table("How unevenly")
    assert [number(row["held"]) for row in rows] == whole(found["total"])
    assert [number(row["holders"]) for row in rows] == list(found["holders"])
    for head, name in (("largest 10", "largest"), ("Gini coefficient", "gini")):
        assert [row[head] for row in rows] == [f"{100 * value:.4f}" for value in found[name]]


@pytest.mark.usefixtures("words_only")
@pytest.mark.parametrize(
    ("days", "period"), [(1, "hour"), (30, "day"), (200, "week"), (2000, "month")]
)
def test_periods_are_those_of_the_calendar_and_called_by_their_names(tmp_path, days, period):
    rows = [(*GENERAL, START + place * days * DAY // 3, place) for place in range(4)]
    page = read_page(write(table_of(rows), tmp_path, largest=0))
    freq = {"hour": "1h", "day": "1D", "week": "W-MON", "month": "MS"}[period]
    starts = ba.flows(table_of(rows), freq=freq, by="asset_id")["start"]
    shown = [pd.Timestamp(row["from"], tz="UTC") for row in page.table("Flows and activity by ")]
    assert shown == list(starts)
    assert f"Flows and activity by {period}" in page.tables
    assert f"by {period}, smallest unit" in page.text("figcaption")


def test_an_account_has_every_fact_of_its_summary(table, page):
    facts = page.text("dt", "dd", "span").splitlines()
    for name in ("closing", "minimum", "maximum", "inflow", "outflow", "drawdown"):
        said = {facts[place + 1] for place, fact in enumerate(facts) if fact.startswith(f"{name},")}
        assert said == {f"{int(value):,}" for value in ba.summarize_accounts(table)[name]}


@pytest.mark.usefixtures("words_only")
def test_with_decimals_amounts_are_in_whole_units_to_the_last_digit(vote, tmp_path):
    file = tmp_path / "assets.toml"
    file.write_text('[VOTE]\nsymbol = "VT"\ndecimals = 18\n', encoding="utf-8")
    page = read_page(write(vote, tmp_path, assets=file, largest=0))
    closing = ba.summarize_accounts(vote)["closing"]
    caption = "All 2 accounts, by balance"
    assert "closing VT" in page.heads[caption]
    shown = [Decimal(row["closing"].replace(",", "")) for row in page.tables[caption]]
    assert sorted(shown) == sorted(Decimal(int(value)).scaleb(-18) for value in closing)


@pytest.mark.usefixtures("words_only")
def test_an_asset_without_decimals_stays_in_its_smallest_unit(table, tmp_path):
    text = read_page(write(table, tmp_path, assets={"VOTE": 2}, largest=1)).text()
    assert "closing, smallest unit" in text
    assert "closing, VOTE" in text


@pytest.mark.usefixtures("words_only")
def test_an_interval_begins_with_what_accounts_brought_into_it_and_a_row_at_its_start(
    vote, tmp_path
):
    start, end = from_microseconds(START + DAY), from_microseconds(START + 3 * DAY)
    page = read_page(write(vote, tmp_path, start=start, end=end, largest=1))
    rows = page.table("All 2 accounts")
    assert [number(row["closing"]) for row in rows] == [BIG, 40]
    assert [number(row["net"]) for row in rows] == [BIG - 5, 0]
    assert [row["last row"] for row in rows] == [f"{start:%Y-%m-%d %H:%M:%S}", "\N{EN DASH}"]
    assert f"{start:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC" in page.text("p")


def test_every_link_of_an_account_leads_to_its_section(page):
    anchors = {a["id"] for _, a in page.elements if "id" in a}
    links = [a["href"] for a in page.all("a")]
    assert {link[1:] for link in links} <= anchors
    assert sum(link.startswith("#account-") for link in links) >= 3


def test_ids_of_elements_are_unique_and_what_refers_to_one_finds_it(page):
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        for name, value in attributes.items():
            if name in {"aria-labelledby", "aria-describedby"}:
                assert set(value.split()) <= set(ids)
            assert set(re.findall(r"url\(#([^)]+)\)", value)) <= set(ids)


def test_every_picture_says_what_it_shows(page):
    pictures = page.all("svg")
    assert len(pictures) == 2 * 4 + 3
    assert all(picture["role"] == "img" for picture in pictures)
    assert all(picture["aria-label"].strip() for picture in pictures)


def test_the_policy_allows_this_page_s_script_and_style_alone(page):
    policy = next(a["content"] for a in page.all("meta") if "http-equiv" in a)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    scripts = [text for tag, text in page.texts if tag == "script"]
    (style,) = (text for tag, text in page.texts if tag == "style")
    for text in (scripts[0], style):
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy
    assert not [name for _, a in page.elements for name in a if name == "style" or name[:2] == "on"]


def test_nothing_is_fetched(page):
    for tag, attributes in page.elements:
        for name in {"src", "href", "srcset", "action", "data"} & set(attributes):
            assert attributes[name].startswith(("#", "data:")), (tag, attributes)


@settings(max_examples=3)
@given(
    st.lists(
        st.one_of(st.sampled_from(CONFUSING), st.text(st.characters(codec="utf-8"), max_size=80)),
        min_size=3,
        max_size=3,
    )
)
def test_an_id_is_text_whatever_is_in_it(tmp_path_factory, ids):
    asset, party, market = ids
    keys = [(asset, "ACCOUNT_TYPE_GENERAL", party, ""), (asset, "ACCOUNT_TYPE_X", party, market)]
    rows = [(*key, START + place * HOUR, 10**place) for place in range(3) for key in keys]
    page = read_page(write(table_of(rows), tmp_path_factory.mktemp("ids"), largest=1))
    assert len(page.all("script")) == 1
    assert not page.all("img")
    titles = {a["title"] for _, a in page.elements if "title" in a}
    expected = {party, market} - {""}
    assert {_as_parsed(value) for value in expected} == {_as_parsed(title) for title in titles}


def _as_parsed(text):
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "\ufffd")


def test_the_same_rows_in_another_order_give_the_same_bytes(vote, tmp_path):
    first = write(vote, tmp_path).read_bytes()
    other = write(vote.sample(frac=1, random_state=1), tmp_path, name="other.html").read_bytes()
    assert first == other


def test_another_process_with_other_hashes_gives_the_same_bytes(vote, tmp_path):
    file = tmp_path / "table.parquet"
    ba.write_parquet(vote, file)
    code = (
        "import sys, balance_analysis as ba\n"
        "ba.write_report(ba.read_parquet(sys.argv[1]), sys.argv[2], largest=1)"
    )
    other = tmp_path / "other.html"
    environment = {**os.environ, "PYTHONHASHSEED": "77", "TZ": "Asia/Tokyo", "MPLBACKEND": "svg"}
    subprocess.run([sys.executable, "-c", code, file, other], check=True, env=environment)
    with mpl.rc_context({"axes.facecolor": "red", "font.size": 30}):  # the caller's own
        assert write(vote, tmp_path, largest=1).read_bytes() == other.read_bytes()
        assert mpl.rcParams["font.size"] == 30


@pytest.mark.usefixtures("words_only")
def test_a_report_that_can_t_be_made_leaves_the_last_one_and_nothing_else(table, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("before", encoding="utf-8")
    for options in ({"largest": -1}, {"accounts": [("A", "B", "C", "D")]}, {"assets": "x.xml"}):
        with pytest.raises(ValueError, match=r"largest|accounts|assets"):
            write_report(table, path, **options)
    with pytest.raises(FileNotFoundError):
        write_report(table, tmp_path / "none" / "report.html", largest=0)
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text(encoding="utf-8") == "before"


@pytest.mark.usefixtures("words_only")
def test_chosen_accounts_have_sections_in_their_order(vote, tmp_path):
    page = read_page(write(vote, tmp_path, accounts=[MARGIN, GENERAL]))
    frame = pd.DataFrame([MARGIN, GENERAL], columns=ACCOUNT_KEY)
    again = read_page(write(vote, tmp_path, accounts=frame))
    assert again.text("h4") == page.text("h4")
    assert [text for tag, text in page.texts if tag == "h4"] == [
        "margin · a1 · market m1",
        "general · a1",
    ]
    assert "Scan accounts" in page.text("h3")


@pytest.mark.parametrize("accounts", ["a1", [("VOTE", "a1")], [(1, 2, 3, 4)]])
def test_accounts_are_four_texts_each(table, tmp_path, accounts):
    with pytest.raises((ValueError, TypeError), match="account"):
        write_report(table, tmp_path / "report.html", accounts=accounts)


def test_an_empty_table_gives_a_page_that_says_so(tmp_path):
    page = read_page(write(table_of([]), tmp_path))
    assert "No balance changes" in page.text("h2")
    assert "no balance changes" in page.text("p")


def test_of_many_assets_those_with_most_rows_are_drawn_and_the_others_say_so():
    rows = [
        (f"asset{place:02}", "ACCOUNT_TYPE_GENERAL", "a1", "", START + hour * HOUR, hour)
        for place in range(14)
        for hour in range(1 if place in {3, 7} else 2)
    ]
    source = read_source(table_of(rows), start=None, end=None)
    content = make_content(source, accounts=(), largest=1)
    drawn = [asset.asset_id for asset in content.assets if asset.is_drawn]
    assert {asset.asset_id for asset in content.assets} - {*drawn} == {"asset03", "asset07"}
    assert [len(asset.chosen) for asset in content.assets].count(1) == 12
    others = replace(content, assets=tuple(asset for asset in content.assets if not asset.is_drawn))
    report = make_page(others, Assets({}))
    assert not any(part.pictures for asset in report["assets"] for part in asset["parts"])
    assert all("It has no pictures" in asset["words"] for asset in report["assets"])


def test_no_more_than_5000_accounts_are_listed_and_the_page_says_so():
    rows = [
        (asset, "ACCOUNT_TYPE_GENERAL", f"{place:064x}", "", START + place, place)
        for asset, count in (("few", 3), ("many", 5_100))
        for place in range(count)
    ]
    source = read_source(table_of(rows), start=None, end=None)
    content = make_content(source, accounts=(), largest=0)
    content = replace(content, assets=tuple(replace(a, is_drawn=False) for a in content.assets))
    report = make_page(content, Assets({}))
    parts = (part for asset in report["assets"] for part in asset["parts"])
    few, many = (part for part in parts if part.title == "Accounts")
    assert len(few.sheets[0]) == 3
    (sheet,) = many.sheets
    assert len(sheet) == 2_500
    assert "The 2,500 accounts with the largest balances, of 5,100" in sheet.note


def test_a_turned_interval_is_refused(table, tmp_path):
    with pytest.raises(ValueError, match="must start before it ends"):
        write_report(table, tmp_path / "report.html", start="2030-01-01")


def test_only_an_archive_or_a_table_is_reported_on(tmp_path):
    with pytest.raises(TypeError, match="an Archive or the path of one is wanted, not 5"):
        write_report(5, tmp_path / "report.html")


@pytest.mark.usefixtures("words_only")
def test_what_a_table_tells_of_its_load_is_told(vote, tmp_path):
    loaded = vote.copy()
    loaded.attrs["balance_analysis"] = {
        "source": "https://me:secret@node.example.org",
        "start": "2023-03-01T00:00:00+00:00",
        "end": "2023-05-01T00:00:00+00:00",
        "rows": len(vote),
        "filters": [],
        "block_height": 1234,
        "quarantined": [{"row": "x", "reason": "y"}],
    }
    page = read_page(write(loaded, tmp_path, largest=0))
    text = page.text()
    assert "https://***@node.example.org" in text
    assert "secret" not in text
    assert "1 was put aside" in text or "1 were put aside" in text
    assert "to 2023-05-01 00:00:00 UTC" in page.text("p")
    part = read_page(write(loaded.iloc[1:], tmp_path, name="part.html", largest=0))
    last = from_microseconds(START + 3 * DAY + HOUR + 1)
    assert f"to {last:%Y-%m-%d %H:%M:%S.%f} UTC" in part.text("p")


@pytest.mark.usefixtures("words_only")
def test_a_negative_balance_stands_at_the_top(tmp_path):
    page = read_page(write(table_of([(*GENERAL, START, -5)]), tmp_path, largest=0))
    assert "checks failed" in page.text("p")
    assert "it is never negative" in page.text("li")


@pytest.mark.usefixtures("words_only")
def test_a_table_that_knows_all_of_its_interval_is_complete(tmp_path):
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + DAY, 6)])
    note_known(table, [(START, START + 10 * DAY)])
    page = read_page(write(table, tmp_path))
    assert "complete" in [text for tag, text in page.texts if tag == "p"]
    assert f"to {from_microseconds(START + 10 * DAY):%Y-%m-%d %H:%M:%S} UTC" in page.text("p")
    assert [row["closing"] for row in page.table("Totals by account type")] == ["6"]


@pytest.mark.usefixtures("words_only")
def test_what_a_table_does_not_know_is_told_and_unknown(tmp_path):
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + DAY, 6)])
    note_known(table, [(START, START + 2 * DAY)])
    page = read_page(write(table, tmp_path, end=from_microseconds(START + 4 * DAY)))
    assert "not complete" in page.text("p")
    stretch = [f"{from_microseconds(START + n * DAY):%Y-%m-%d %H:%M:%S}" for n in (2, 4)]
    (said,) = (text for tag, text in page.texts if tag == "li" and "is not known" in text)
    assert all(moment in said for moment in stretch)
    assert {row["closing"] for row in page.table("Totals by account type")} == {"unknown"}
    assert "Largest movers" not in page.text("caption")
    assert "At the end no account is known" in page.text("p")
    assert page.table("How unevenly")[-1]["unknown"] == "1"


@pytest.mark.usefixtures("words_only")
def test_a_table_that_states_nothing_is_not_known_to_be_complete(tmp_path):
    page = read_page(write(table_of([(*GENERAL, START, 5)]), tmp_path))
    assert "not known to be complete" in page.text("p")
