"""A report has what the library computes, frozen, and says how complete it is."""

import base64
import hashlib
import os
import shutil
import subprocess
import sys

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis.tables import DAY, GENERAL, HOUR, LARGEST, MARGIN, OTHER, START, table_of
from tests.archive.exporting import node_of, run_export, spread_history
from tests.columns import note_known
from tests.moments import from_microseconds, range_text, to_microseconds
from tests.report.reading import as_dicts, read_page, write_key, write_view

SCRIPT = "<script>alert(1)</script>"
CONFUSING = [
    SCRIPT,
    "</script><!--",
    "'\" onmouseover=alert(1) x=",
    "\u202eabc\x01\n\ud7ff😀",
    "&lt;b&gt;",
    "{{ 7 * 7 }}",
    "a|b%7Cc",
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
ACCOUNTS = (GENERAL, MARGIN, OTHER)


def write(table, folder, *, name="report.html", **options):
    path = folder / name
    ba.write_report(table, path, **options)
    return path


@pytest.fixture(scope="module")
def table():
    return table_of(ROWS)


@pytest.fixture(scope="module")
def page(table, tmp_path_factory):
    return read_page(write(table, tmp_path_factory.mktemp("report")))


def test_an_interval_begins_with_opening_balances_and_a_row_at_its_start(tmp_path):
    table = table_of([row for row in ROWS if row[0] == "VOTE"])
    start, end = from_microseconds(START + DAY), from_microseconds(START + 3 * DAY)
    assets = {"VOTE": {"symbol": "VOTE", "decimals": 18}}
    page = read_page(write(table, tmp_path, start=start, end=end, assets=assets))
    assert [(one["id"], one["decimals"]) for one in page.view("about")["assets"]] == [("VOTE", 18)]
    assert [page.summary(one)["closing"] for one in (GENERAL, MARGIN)] == [str(BIG), "40"]
    assert [page.summary(one)["net"] for one in (GENERAL, MARGIN)] == [str(BIG - 5), "0"]
    assert page.summary(MARGIN)["last_seen"] is None
    line = page.line(MARGIN)
    assert (line["opening"], line["times"]) == (True, [START + DAY])


def test_each_assets_largest_accounts_and_the_first_shown_ones_have_histories(tmp_path):
    accounts = [("VOTE", "ACCOUNT_TYPE_GENERAL", f"{party:064x}", "") for party in range(60)]
    rows = [
        (*key, START + n * HOUR, 10**20 * m + n) for m, key in enumerate(accounts) for n in (0, 1)
    ]
    chosen = pd.DataFrame(accounts[5:7], columns=ba.ACCOUNT_KEY)
    for options, expected in (({}, 20), ({"largest": 2}, 2), ({"largest": 0}, 0)):
        named = accounts[5:7] if options else chosen
        page = read_page(write(table_of(rows), tmp_path, accounts=named, **options))
        largest = [*accounts[: -expected - 1 : -1], *accounts[6:4:-1]]
        assert page.histories() == [*map(write_key, largest)]
        assert page.frozen["first"] == [*map(write_key, accounts[5:7])]
        assert len(page.view("holders", "VOTE")["holders"]["rows"]) == 60


def test_the_policy_allows_only_this_pages_scripts_and_style(page):
    policy = next(a["content"] for a in page.all("meta") if "http-equiv" in a)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    texts = [text for tag, text in page.texts if tag in {"script", "style"} and len(text) > 2]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
    assert [digest in policy for digest in digests].count(False) == 1  # the data, which don't run
    assert not [name for _, a in page.elements for name in a if name == "style" or name[:2] == "on"]


def test_nothing_is_fetched(page):
    for tag, attributes in page.elements:
        for name in {"src", "href", "srcset", "action", "data"} & set(attributes):
            to = attributes[name]
            assert to == "openapi.json" or to[:1] in "#d", (tag, attributes)


IDS = ["A", f"A\n{START}", f"A\n{START}\n{START + DAY}", 'A","', "A\r"]
ids = st.sampled_from(CONFUSING) | st.text(max_size=80)


@settings(max_examples=4)
@example(IDS, "p\nq", "")
@given(st.lists(ids, min_size=1, max_size=3, unique=True), ids, ids)
def test_an_id_with_any_characters_is_only_in_the_data_and_has_its_own_views(
    tmp_path_factory, assets, party, market
):
    accounts = [(asset, "ACCOUNT_TYPE_X", party, market) for asset in assets]
    table = table_of([(*account, START, n) for n, account in enumerate(accounts)])
    end = from_microseconds(START + DAY)
    page = read_page(write(table, tmp_path_factory.mktemp("ids"), end=end))
    assert len(page.all("script")) == 2
    assert not page.all("img")
    for n, account in enumerate(accounts):
        assert page.summary(account)["closing"] == str(n)
        for more in ((), (START,)):
            holders = as_dicts(page.view("holders", account[0], *more)["holders"])
            assert [one["balance"] for one in holders] == [str(n)]
        totals = as_dicts(page.view("totals", account[0], *page.bounds())["totals"])
        assert {one["total"] for one in totals} == {str(n)}


def test_sums_beyond_38_digits_refuse_only_the_views_of_their_asset(tmp_path):
    general, end = "ACCOUNT_TYPE_GENERAL", START + 8 * HOUR
    rows = [("BIG", general, f"p{n}", "", START, LARGEST) for n in range(3)]
    rows += [("FLAPS", general, "p", "", START + n * HOUR, (n % 2) * LARGEST) for n in range(8)]
    rows += [("FLAPS", general, "calm", "", START, 7), ("VOTE", general, "p", "", START, 5)]
    page = read_page(write(table_of(rows), tmp_path, end=from_microseconds(end)))
    refused = [key for key, view in page.frozen["views"].items() if view and "refused" in view]
    shown = {key: view for key, view in page.frozen["views"].items() if key not in refused}
    assert "38 digits" in page.view("totals", "BIG", START, end)["refused"]
    flapping = write_key(("FLAPS", general, "p", ""))
    assert "can't be shown" in page.view("account", flapping, START, end)["refused"]
    assert page.summary(("FLAPS", general, "calm", ""))["closing"] == "7"
    assert all('"BIG"' in key or '"FLAPS"' in key or flapping in key for key in refused)
    for account in {tuple(row[:4]) for row in rows}:
        assert page.line(account)["rows"] > 0
    assert shown[write_view("holders", "VOTE")]["holders"]["rows"]
    assert shown[write_view("totals", "VOTE", START, end)]["totals"]["rows"]


NOT_THERE = ("a1", [("A", "B", "C", "D")], [("VOTE", "a1")], [(1, 2, 3, 4)])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"largest": -1}, "largest"),
        *(({"accounts": accounts}, "account") for accounts in NOT_THERE),
        ({"assets": "x.txt"}, "assets"),
        ({"start": "2030-01-01"}, "must start before it ends"),
        (dict.fromkeys(["start", "end"], "2023-04-03"), "must start before it ends"),
    ],
)
def test_a_failed_report_leaves_only_the_previous_one(options, says, table, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("before", encoding="utf-8")
    with pytest.raises((ValueError, TypeError), match=says):
        ba.write_report(table, path, **options)
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text(encoding="utf-8") == "before"
    with pytest.raises(FileNotFoundError):
        ba.write_report(table, tmp_path / "none" / "report.html")


@pytest.mark.parametrize(
    ("balances", "says"),
    [
        ([], ["No balance changes"]),
        ([-5], ["checks failed", "balances are never negative"]),
        ([5], ["not known to be complete"]),
    ],
    ids=["empty", "negative", "without evidence"],
)
def test_the_gaps_of_a_table_are_at_the_top(balances, says, tmp_path):
    table = table_of([(*GENERAL, START, balance) for balance in balances])
    bounds = {} if balances else {"start": from_microseconds(START)}
    page = read_page(write(table, tmp_path, **bounds))
    assert [one["id"] for one in page.view("about")["assets"]] == ["VOTE"] * len(balances)
    assert all(words in page.text("p") for words in says)


def test_a_tables_description_of_its_load_is_shown(table, tmp_path):
    loaded = table.copy()
    loaded.attrs["balance_analysis"] = {
        "source": "https://me:secret@node.example.org",
        "start": "2023-03-28T00:00:00+00:00",
        "end": "2023-04-01T00:00:00+00:00",
        "rows": len(table),
        "filters": [],
        "block_height": 1234,
        "quarantined": [{"row": "x", "reason": "y"}],
    }
    page = read_page(write(loaded, tmp_path))
    assert "https://***@node.example.org" in page.text("dd")
    assert "secret" not in page.text()
    assert "the load set aside 1 bad row" in page.text("p")
    assert "checks failed" in page.text("p")
    assert from_microseconds(page.bounds()[1]).isoformat() == "2023-04-01T00:00:00+00:00"
    part = read_page(write(loaded.iloc[1:], tmp_path, name="part.html"))
    assert part.bounds()[1] == END


def test_known_time_is_named_and_balances_outside_it_are_unknown(tmp_path):
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + DAY, 6)])
    note_known(table, [(START, START + 2 * DAY)])
    page = read_page(write(table, tmp_path))
    assert "complete" in [text for tag, text in page.texts if tag == "p"]
    assert page.bounds() == (START, START + 2 * DAY)
    assert page.summary(GENERAL)["closing"] == "6"
    page = read_page(write(table, tmp_path, end=from_microseconds(START + 4 * DAY)))
    assert "not complete" in page.text("p")
    assert range_text(START + 2 * DAY, START + 4 * DAY) in page.text("p")
    assert page.view("about")["gaps"] == [[START + 2 * DAY, START + 4 * DAY]]
    assert page.summary(GENERAL)["closing"] is None
    holders = as_dicts(page.view("holders", "VOTE")["holders"])
    assert [one["balance"] for one in holders] == [None]


RISING = to_microseconds("2023-04-03")
STOP = RISING + 5 * DAY
SPREAD = spread_history(3, start=RISING, end=STOP)
OF_ONE = [row for row in SPREAD if row.asset_id == SPREAD[0].asset_id]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An archive with a gap of a day in it."""
    folder = tmp_path_factory.mktemp("archive") / "mainnet"
    with node_of(OF_ONE, head=STOP) as node:
        run_export(node, folder, start=RISING + 2 * DAY, end=STOP)
        run_export(node, folder, start=RISING, end=RISING + DAY)
    return folder


def test_a_gap_is_at_the_top_and_coverage_and_limits_are_included(folder, tmp_path, caplog):
    page = read_page(write(folder, tmp_path))
    assert page.bounds() == (RISING, STOP)
    assert "not complete" in page.text("p")
    gap = range_text(RISING + DAY, RISING + 2 * DAY)
    assert f"Not complete: {gap}. Rows may be missing." in page.text("p")
    write(ba.Archive(folder).read(partial=True), tmp_path)
    said = "the {} is not complete for {}: rows may be missing"
    assert caplog.messages == [said.format(name, gap) for name in ("archive", "table")]
    notes = page.view("notes")
    states = [row["state"] for row in as_dicts(notes["coverage"])]
    assert states == list(ba.Archive(folder).coverage()["state"])
    assert states[:2] == ["complete", "missing"]
    assert len(notes["limits"]["rows"]) == len(ba.Archive(folder).limits())
    assert f"{len(ba.Archive(folder).read(partial=True)):,}" in page.text("dd")


def test_a_part_of_an_archive_is_complete_and_time_beyond_it_a_gap(folder, tmp_path):
    start, end = (from_microseconds(moment) for moment in (RISING + 3 * DAY, STOP))
    page = read_page(write(ba.Archive(folder), tmp_path, start=start, end=end))
    assert "complete" in [text for tag, text in page.texts if tag == "p"]
    assert "Not known" not in page.text("p")
    table = ba.Archive(folder).read(partial=True)
    other = read_page(write(table, tmp_path, start=start, end=end))
    for key, view in page.frozen["views"].items():
        assert key in ('["about"]', '["notes"]') or other.frozen["views"][key] == view, key
    beyond = from_microseconds(STOP + HOUR)
    page = read_page(write(ba.Archive(folder), tmp_path, start=start, end=beyond))
    assert f"Not complete: {range_text(STOP, STOP + HOUR)}" in page.text("p")


def test_a_damaged_archive_says_so_at_the_top(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "stranger.txt").write_text("who?", encoding="utf-8")
    page = read_page(write(ba.Archive(copy), tmp_path, start=from_microseconds(STOP - DAY)))
    assert "checks failed" in page.text("p")
    assert "stranger.txt" in page.text("p")


def test_another_process_in_another_folder_writes_the_same_bytes(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder.parent)
    shutil.copytree(folder, tmp_path / "mainnet")
    code = "import balance_analysis as ba; ba.write_report('mainnet', 'other.html')"
    environment = {**os.environ, "PYTHONHASHSEED": "77", "TZ": "Asia/Tokyo"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=tmp_path)
    assert write("mainnet", tmp_path).read_bytes() == (tmp_path / "other.html").read_bytes()
