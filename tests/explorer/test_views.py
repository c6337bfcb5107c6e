"""What the explorer searches, lists and refuses, and which state its answers are made from."""

from __future__ import annotations

import re
import shutil
from urllib.parse import unquote

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.archive.store import Store
from balance_analysis.explorer.views import Explorer
from balance_analysis.explorer.wire import Query
from tests.archive.writing import writer_of
from tests.explorer.asking import as_dicts, asking, write_key
from tests.moments import from_microseconds
from tests.service.archives import Stretch, commit, write_archive
from tests.service.rows import ASSETS, HOUR, PARTIES, TYPES, Row

DAY = 24 * HOUR
BEGIN = 1_675_555_200_000_000
MIDDLE, LAST = BEGIN + 3 * DAY, BEGIN + 6 * DAY
LARGEST = 10**38 - 1
GENERAL, MARGIN = "ACCOUNT_TYPE_GENERAL", "ACCOUNT_TYPE_MARGIN"
ALICE, BOB, MARKET = "a1" * 32, "b2" * 32, "c3" * 32
HIDDEN = "p\nq\x01\u202er"
GROWING = [
    Row(ASSETS[0], TYPES[0], party, "", BEGIN + day * DAY, 100 * day + n)
    for day in range(1, 6)
    for n, party in enumerate(PARTIES)
]
NOTED = tuple(GROWING[0][:4])


def archive_of(folder, rows, *stretches, **options):
    return write_archive(folder, rows, stretches=stretches or [Stretch(BEGIN, LAST)], **options)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """An archive of few accounts, with names, a number that passes 38 digits, and 500 rows."""
    rows = [
        Row("VOTE", GENERAL, ALICE, "", BEGIN + n * 60_000_000, n * 7919 % 1009) for n in range(500)
    ]
    rows += [
        Row("VOTE", MARGIN, ALICE, MARKET, BEGIN, 5),
        Row("VOTE", GENERAL, HIDDEN, "", BEGIN, 1),
    ]
    rows += [Row("VOTE", GENERAL, f"{n:064x}", "", BEGIN, 10**6 + n) for n in range(40)]
    rows += [Row("BIG", GENERAL, party, "", BEGIN, LARGEST) for party in (ALICE, BOB)]
    rows += [Row("BIG", MARGIN, ALICE, MARKET, BEGIN, LARGEST)]
    archive = archive_of(tmp_path_factory.mktemp("few") / "archive", rows)
    labels = {BOB: "Desk 7", f"VOTE/{MARGIN}/{ALICE}/{MARKET}": "Her bets"}
    assets = {"VOTE": {"symbol": "tVote", "decimals": 2}}
    with asking(archive, assets=assets, labels=labels) as page:
        yield page


def matches(page, text, asset="VOTE"):
    keys = [key for key, _ in page("accounts", asset=asset, text=text)["accounts"]["rows"]]
    return [tuple(map(unquote, key.split("|")))[1:3] for key in keys]


def test_accounts_are_found_by_each_word_of_what_the_page_shows_of_them(page):
    hers, bets = (GENERAL, ALICE), (MARGIN, ALICE)
    for text, expected in {
        "general · a1a1a1…a1a1": [hers],
        "margin · a1a1a1…a1a1 · market c3c3c3…c3c3": [bets],
        "TYPE_MARGIN": [bets],
        f"{ALICE} · {MARKET}": [bets],
        "bets her": [bets],
        "general p\\u000aq\\u0001\\u202er": [(GENERAL, HIDDEN)],
        "general zz": [],
    }.items():
        assert matches(page, text) == expected, text
    assert matches(page, "desk", "BIG") == [(GENERAL, BOB)]


def test_a_search_sends_the_largest_few_and_how_many_there_are(page):
    answer = page("accounts", asset="VOTE", text="0000")
    assert answer["count"] == 40
    balances = [int(balance) for _, balance in answer["accounts"]["rows"]]
    assert balances == [10**6 + n for n in range(39, 9, -1)]
    assert len(balances) == 30


def test_rows_come_page_by_page_each_once_and_the_last_page_for_one_that_is_not_there(page):
    account = ("VOTE", GENERAL, ALICE, "")
    pages = [page("rows", accounts=[account], page=n) for n in range(4)]
    assert [(one["page"], one["pages"], one["count"]) for one in pages] == [
        *((n, 3, 500) for n in (0, 1, 2, 2)),
    ]
    times = [row[0] for one in pages[:3] for row in one["rows"]["rows"]]
    assert times == [BEGIN + n * 60_000_000 for n in range(499, -1, -1)]
    assert len(pages[0]["rows"]["rows"]) == 200


def test_what_is_held_at_moments_of_one_day_is_what_the_rows_say(page):
    for n in (499, 3, 250, 100):
        answer = page("holders", asset="VOTE", at=BEGIN + n * 60_000_000)
        held = {one["account"]: one["balance"] for one in as_dicts(answer["holders"])}
        assert held[write_key(("VOTE", GENERAL, ALICE, ""))] == str(n * 7919 % 1009)


def test_a_thinned_line_keeps_real_rows_with_the_ends_the_lowest_and_the_highest(page):
    account = ("VOTE", GENERAL, ALICE, "")
    (line,) = page("series", accounts=[account], width=20)["series"]
    drawn = list(zip(line["times"], map(int, line["balances"]), strict=True))
    real = [(BEGIN + n * 60_000_000, n * 7919 % 1009) for n in range(500)]
    assert set(drawn) <= set(real)
    assert {real[0], real[-1]} <= set(drawn)
    levels = [level for _, level in real]
    assert {min(levels), max(levels)} <= {level for _, level in drawn}
    assert (len(drawn) < 100, line["rows"]) == (True, 500)


def test_a_sum_of_more_than_38_digits_is_said_in_plain_words_and_the_rest_is_there(page):
    status, _, said = page.get("totals", asset="BIG").error
    assert status == 416
    assert re.fullmatch(r"This can't be shown: the total of .* has more than 38 digits\.", said)
    big, vote = page("party", party=ALICE)["assets"]
    assert "has more than 38 digits." in big["refused"]
    assert as_dicts(vote["totals"])[0]["accounts"] == 2


def test_an_asset_is_asked_for_by_id_or_symbol(page):
    for view in ("headline", "holders", "totals", "flows", "movers", "accounts"):
        assert page(view, asset="VOTE") == page(view, asset="TVOTE"), view
    assert [one["id"] for one in page("about")["assets"]] == ["VOTE", "BIG"]  # most rows first


@pytest.mark.parametrize(
    ("view", "query", "status", "says"),
    [
        ("totals", {"asset": "zzz"}, 404, "there is no account of an asset 'zzz'"),
        ("totals", {"start": 7, "end": 5}, 400, "start must be before end"),
        ("totals", {"at": 5}, 400, "totals has no parameter 'at'"),
        ("holders", {"at": -5}, 400, "at must be a whole number from 0"),
        ("holders", {"by": "market"}, 400, "by must be party"),
        ("series", {"account": "x"}, 400, "key of the list of accounts"),
        ("series", {"accounts": [NOTED] * 9}, 400, "at most 8 accounts"),
        ("series", {"accounts": [NOTED], "width": 0}, 400, "width must be"),
        *(
            (view, {}, 400, f"{view} needs the parameter account")
            for view in ("account", "rows", "series", "explain")
        ),
        ("party", {}, 400, "party needs the parameter party"),
        ("holders", {"version": "0123456789abcdef"}, 409, "ask /explore/about for the current one"),
    ],
)
def test_a_question_that_means_nothing_is_refused_and_says_why(page, view, query, status, says):
    code, _, said = page.get(view, **query).error
    assert (code, says in said) == (status, True), said


@given(st.tuples(*[st.text()] * 4))
def test_a_key_names_its_account_whatever_is_in_it(page, account):
    (line,) = page("series", accounts=[account])["series"]
    assert line["key"] == write_key(account)


@pytest.mark.parametrize("rows", [[], [Row(*NOTED, BEGIN, 5)]], ids=["nothing", "one row"])
def test_every_view_answers_where_there_is_little(tmp_path, rows):
    with asking(archive_of(tmp_path / "archive", rows)) as page:
        paths = page.service.get(path="/openapi.json").json()["paths"]
        views = {path.removeprefix("/explore/"): paths[path]["get"] for path in paths}
        assert {"about", "holders", "flows", "explain", "notes"} < {*views}
        for view in [view for view in views if "/" not in view]:
            names = {each["name"] for each in views[view]["parameters"]}
            query = {"accounts": [NOTED]} if "account" in names else {}
            query |= {"party": PARTIES[0]} if "party" in names else {}
            for more in ({}, {"start": LAST + DAY} if "start" in names else {}):
                assert isinstance(page(view, **query, **more), dict)


def test_where_a_balance_comes_from_is_what_the_archive_explains(tmp_path):
    stretches = Stretch(BEGIN, MIDDLE), Stretch(MIDDLE, LAST, proven=False)
    archive = archive_of(tmp_path / "archive", GROWING, *stretches)
    with asking(archive) as page:
        for at in (BEGIN, BEGIN + 2 * DAY, MIDDLE + 1, LAST):
            expected = archive.explain(NOTED, at=from_microseconds(at))
            answer = page("explain", accounts=[NOTED], at=at)
            (one,) = as_dicts(answer["explanation"])
            balance = None if expected.balance is None else str(expected.balance)
            assert (one["at"], one["balance"], one["why"]) == (at, balance, expected.why)
            assert (one["state"], one["source"]) == (expected.state, expected.source)
            asked = [pd.Timestamp(each).value // 1000 for each in expected.asked or ()]
            assert [one["first_asked_at"], one["asked_at"]] == (asked or [None, None])
            assert [one["first_block_height"], one["block_height"]] == [
                *(expected.heights or (None, None))
            ]
            cited = [row for row in (expected.before, expected.row, expected.after) if row]
            assert [(row["file"], row["balance"]) for row in as_dicts(answer["cited"])] == [
                (row.file, str(row.balance)) for row in cited
            ]


class BusyStore(Store):
    """Files that somebody may write between any two reads."""

    left = -1

    def read(self, name):
        self.happen()
        return super().read(name)

    def open(self, name):
        self.happen()
        return super().open(name)

    def happen(self):
        self.left -= 1
        if self.left == -1:
            self.write_more()


@pytest.fixture(params=["day", "month"])
def growing(request, tmp_path):
    """An archive of three days, and what writes three more."""
    rows = [row for row in GROWING if row.time < MIDDLE]
    archive = archive_of(
        tmp_path / "archive", rows, Stretch(BEGIN, MIDDLE), partition=request.param
    )
    return archive, lambda: commit(writer_of(archive), GROWING, Stretch(MIDDLE, LAST))


QUERIES = [
    *((view, Query(ASSETS[0])) for view in ("holders", "totals", "flows")),
    *(("rows", Query(accounts=(NOTED,))), ("notes", Query())),
]


@pytest.mark.parametrize(
    ("view", "query"), QUERIES, ids=lambda each: each if isinstance(each, str) else ""
)
def test_an_answer_is_of_the_state_that_it_names_and_never_mixes_two(
    growing, tmp_path, view, query
):
    archive, write_more = growing
    shutil.copytree(archive.uri, tmp_path / "older")
    explorer = Explorer(archive)
    before, version = explorer.encode(view, query), explorer_version(explorer)
    write_more()
    after = Explorer(archive).encode(view, query)
    assert explorer.encode(view, Query(query.asset, query.accounts, version=version)) == before
    assert explorer.encode(view, query) == after
    assert after != before
    for place in range(30):
        folder = tmp_path / f"busy{place}"
        shutil.copytree(tmp_path / "older", folder)
        busy = ba.Archive(folder)
        busy.store = BusyStore(folder)
        busy.store.write_more = lambda folder=folder: commit(
            writer_of(ba.Archive(folder)), GROWING, Stretch(MIDDLE, LAST)
        )
        busy.store.left = place
        if view != "notes":
            assert Explorer(busy).encode(view, query) in (before, after)
        if busy.store.left >= 0:
            return
    pytest.fail("it reads without an end")


def explorer_version(explorer):
    return re.search(rb'"version":"(\w+)"', explorer.encode("version", Query()))[1].decode()


def test_a_state_whose_files_were_replaced_by_others_is_gone(tmp_path):
    """What is not proven may have had other rows: nothing says any more which."""
    first = Stretch(BEGIN, MIDDLE, proven=False)
    rows = [row for row in GROWING if row.time < MIDDLE and row.party_id == PARTIES[0]]
    archive = archive_of(tmp_path / "a", rows, first, partition="month")
    with asking(archive) as page:
        version = page("about")["version"]
        commit(writer_of(archive), [row for row in GROWING if row not in rows], first)
        commit(writer_of(archive), [], Stretch(BEGIN, MIDDLE))
        assert page.get("rows", accounts=[NOTED], version=version).error[0] == 409
        assert page("rows", accounts=[NOTED])["count"] > 0


def test_of_a_range_beyond_the_archive_nothing_is_known(tmp_path):
    with asking(archive_of(tmp_path / "archive", GROWING)) as page:
        for start, end in ((LAST + 1, LAST + DAY), (BEGIN - 9, BEGIN)):
            query = {"asset": ASSETS[0], "start": start, "end": end}
            flows = page("flows", **query)
            unknown = {
                (one["inflow"], one["net"], one["changes"]) for one in as_dicts(flows["flows"])
            }
            assert unknown <= {(None, None, None)}
            assert flows["sum"]["net"] is None
            assert {one["total"] for one in as_dicts(page("totals", **query)["totals"])} <= {None}
            assert page("movers", **query)["movers"]["rows"] == []


def test_a_view_of_too_many_rows_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("balance_analysis.explorer.source.MOST_ROWS", 10)
    with asking(archive_of(tmp_path / "archive", GROWING)) as page:
        assert "choose a shorter range" in page.get("totals").error[2]


@pytest.mark.parametrize("view", ["totals", "flows", "rows"])
def test_a_view_that_nobody_waits_for_stops_and_keeps_nothing(tmp_path, view):
    archive, asked = archive_of(tmp_path / "archive", GROWING), []
    explorer, query = Explorer(archive), Query(ASSETS[0], (NOTED,))

    def give_up():
        asked.append(view)
        if len(asked) > 1:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        explorer.encode(view, query, check=give_up)
    assert explorer.encode(view, query) == Explorer(archive).encode(view, query)
