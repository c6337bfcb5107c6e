"""What the explorer searches, lists and refuses, and the state that its answers come from."""

import itertools
import re
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.archive.writing import writer_of
from tests.explorer.asking import as_dicts, asking, rows_of, write_key
from tests.loopback import Row
from tests.moments import from_microseconds, to_microseconds
from tests.service.archives import Stretch, commit, write_archive
from tests.service.rows import ASSETS, HOUR, PARTIES, TYPES

DAY = 24 * HOUR
BEGIN = 1_675_555_200_000_000
MIDDLE, LAST = BEGIN + 3 * DAY, BEGIN + 6 * DAY
LARGEST = 10**38 - 1
GENERAL, MARGIN = "ACCOUNT_TYPE_GENERAL", "ACCOUNT_TYPE_MARGIN"
ALICE, BOB, MARKET = "a1" * 32, "b2" * 32, "c3" * 32
HIDDEN = "p\nq\x01\u202er"
HERS = ("VOTE", GENERAL, ALICE, "")
STEPS = [(BEGIN + n * 60_000_000, n * 7919 % 1009) for n in range(500)]
GROWING = [
    Row(ASSETS[0], TYPES[0], party, "", BEGIN + day * DAY, 100 * day + n)
    for day in range(1, 6)
    for n, party in enumerate(PARTIES)
]
NOTED = tuple(GROWING[0][:4])
NEVER = None, None


def archive_of(folder, rows, *stretches, **options):
    return write_archive(folder, rows, stretches=stretches or [Stretch(BEGIN, LAST)], **options)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """An archive of few accounts, with names, a number that passes 38 digits, and 500 rows."""
    rows = [Row(*HERS, *step) for step in STEPS]
    rows += [Row("VOTE", MARGIN, ALICE, MARKET, BEGIN, 5)]
    rows += [Row("VOTE", GENERAL, HIDDEN, "", BEGIN, 1)]
    rows += [Row("VOTE", GENERAL, f"{n:064x}", "", BEGIN, 10**6 + n) for n in range(40)]
    rows += [Row("BIG", GENERAL, party, "", BEGIN, LARGEST) for party in (ALICE, BOB)]
    rows += [Row("BIG", MARGIN, ALICE, MARKET, BEGIN, LARGEST)]
    archive = archive_of(tmp_path_factory.mktemp("few") / "archive", rows)
    labels = {BOB: "Desk 7", MARKET: "Her bets"}
    assets = {"VOTE": {"symbol": "tVote", "decimals": 2}}
    with asking(archive, assets=assets, labels=labels) as page:
        yield page


def matches(page, text, asset="VOTE"):
    keys = [key for key, _ in page("accounts", asset=asset, text=text)["accounts"]["rows"]]
    return [tuple(map(unquote, key.split("|")))[1:3] for key in keys]


def test_a_search_finds_accounts_by_each_word_that_the_page_shows(page):
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


def test_a_search_returns_the_largest_accounts_and_the_number_of_all(page):
    answer = page("accounts", asset="VOTE", text="0000")
    assert answer["count"] == 40
    balances = [int(balance) for _, balance in answer["accounts"]["rows"]]
    assert balances == [10**6 + n for n in range(39, 9, -1)]
    assert len(balances) == 30


def test_rows_come_in_pages_each_once_and_the_last_page_replaces_a_missing_one(page):
    pages = [page("rows", accounts=[HERS], page=n) for n in range(4)]
    assert [(one["page"], one["pages"], one["count"]) for one in pages] == [
        *((n, 3, 500) for n in (0, 1, 2, 2))
    ]
    rows = [row for one in pages[:3] for row in rows_of(one["rows"], "timestamp", "balance")]
    assert rows == STEPS[::-1]
    assert len(pages[0]["rows"]["rows"]) == 200


def test_a_thinned_line_keeps_real_rows_including_the_ends_the_lowest_and_the_highest(page):
    line, *_ = page("series", accounts=[HERS] * 8, width=20)["series"]
    drawn = list(zip(line["times"], map(int, line["balances"]), strict=True))
    assert {STEPS[column * 499 // 20] for column in range(21)} <= set(drawn) <= set(STEPS)
    levels = [level for _, level in STEPS]
    assert {min(levels), max(levels)} <= {level for _, level in drawn}
    assert (len(drawn) < 100, line["rows"]) == (True, 500)


def test_a_sum_of_more_than_38_digits_is_replaced_by_a_sentence_and_the_rest_is_shown(page):
    status, _, said = page.get("totals", asset="BIG").error
    assert status == 416
    assert re.fullmatch(r"This can't be shown: the total of .* has more than 38 digits\.", said)
    big, vote = page("party", party=ALICE)["assets"]
    assert "has more than 38 digits." in big["refused"]
    assert as_dicts(vote["totals"])[0]["accounts"] == 2


def test_an_asset_is_chosen_by_id_or_symbol(page):
    for view in ("headline", "holders", "totals", "flows", "movers", "accounts"):
        assert page(view, asset="VOTE") == page(view, asset="TVOTE"), view
    assert [one["id"] for one in page("about")["assets"]] == ["VOTE", "BIG"]  # most rows first


@pytest.mark.parametrize(
    ("view", "query", "status", "says"),
    [
        ("totals", {"asset": "zzz"}, 404, "no account has the asset 'zzz'"),
        ("totals", {"start": 7, "end": 5}, 400, "start must be before end"),
        ("totals", {"at": 5}, 400, "totals has no parameter 'at'"),
        ("holders", {"at": -5}, 400, "at must be a whole number from 0"),
        ("holders", {"by": "market"}, 400, "by must be party"),
        ("series", {"account": "x"}, 400, "a key, as /explore/accounts lists them"),
        ("series", {"accounts": [NOTED] * 9}, 400, "at most 8 accounts"),
        ("series", {"accounts": [NOTED], "width": 0}, 400, "width must be"),
        *(
            (view, {}, 400, f"{view} needs the parameter account")
            for view in ("account", "rows", "series", "explain")
        ),
        ("party", {}, 400, "party needs the parameter party"),
        ("holders", {"version": "0123456789abcdef"}, 409, "ask /explore/about for the new one"),
    ],
)
def test_an_invalid_query_is_refused_with_the_reason(page, view, query, status, says):
    code, _, said = page.get(view, **query).error
    assert (code, says in said) == (status, True), said


@given(st.tuples(*[st.text()] * 4))
def test_a_key_names_its_account_whatever_characters_the_ids_have(page, account):
    (line,) = page("series", accounts=[account])["series"]
    assert line["key"] == write_key(account)


@pytest.mark.parametrize("rows", [[], [Row(*NOTED, BEGIN, 5)]], ids=["nothing", "one row"])
def test_every_view_answers_for_few_rows_or_none(tmp_path, rows):
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


def test_a_balances_origin_is_that_of_the_archives_explanation(tmp_path):
    stretches = Stretch(BEGIN, MIDDLE), Stretch(MIDDLE, LAST, proven=False)
    archive = archive_of(tmp_path / "archive", GROWING, *stretches)
    with asking(archive) as page:
        for at in (BEGIN, BEGIN + 2 * DAY, MIDDLE + 1, LAST):
            expected = archive.explain(NOTED, at=from_microseconds(at))
            answer = page("explain", accounts=[NOTED], at=at)
            names = "balance", "why", "state", "source"
            said = tuple(getattr(expected, name) for name in names)
            asked = tuple(each and to_microseconds(each) for each in expected.asked or NEVER)
            names += "first_asked_at", "asked_at", "first_block_height", "block_height"
            said += asked + (expected.heights or NEVER)
            assert rows_of(answer["explanation"], *names) == [said]
            cited = filter(None, (expected.before, expected.row, expected.after))
            cited = [(row.file, row.balance) for row in cited]
            assert rows_of(answer["cited"], "file", "balance") == cited


def test_an_answer_is_from_the_state_that_it_names(tmp_path):
    archive = archive_of(tmp_path / "archive", GROWING, Stretch(BEGIN, MIDDLE))
    with asking(archive) as page:
        before, version = page("totals"), page("version")["version"]
        commit(writer_of(archive), GROWING, Stretch(MIDDLE, LAST))
        assert page("totals", version=version) == before != page("totals")


def test_a_state_whose_files_were_replaced_by_others_is_gone(tmp_path):
    """Unproven stretches may have had other rows, and nothing records which."""
    first = Stretch(BEGIN, MIDDLE, proven=False)
    rows = [row for row in GROWING if row.time < MIDDLE and row.party_id == PARTIES[0]]
    archive = archive_of(tmp_path / "a", rows, first, partition="month")
    with asking(archive) as page:
        version = page("about")["version"]
        commit(writer_of(archive), [row for row in GROWING if row not in rows], first)
        commit(writer_of(archive), [], Stretch(BEGIN, MIDDLE))
        assert page.get("rows", accounts=[NOTED], version=version).error[0] == 409
        assert page("rows", accounts=[NOTED])["count"] > 0


def test_a_view_that_needs_too_many_rows_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("balance_analysis.explorer.source.MOST_ROWS", 10)
    with asking(archive_of(tmp_path / "archive", GROWING)) as page:
        assert "choose a shorter range" in page.get("totals").error[2]


def test_flows_without_an_account_are_unknown(tmp_path):
    with asking(archive_of(tmp_path / "archive", [])) as page:
        assert page("flows")["sum"] == dict.fromkeys(("inflow", "outflow", "net")) | {"unknown": 0}


@pytest.mark.parametrize("view", ["totals", "flows", "rows"])
def test_an_abandoned_view_stops_and_caches_nothing(tmp_path, monkeypatch, view):
    archive = archive_of(tmp_path / "archive", GROWING)
    query = {"accounts": [NOTED]} if view == "rows" else {}
    times = itertools.chain([0, 0], itertools.repeat(99))  # too late behind the first file
    with asking(archive) as page, asking(archive) as other:
        with monkeypatch.context() as patch:
            clock = SimpleNamespace(monotonic=lambda: next(times))
            patch.setattr("balance_analysis.service.app.time", clock)
            assert page.get(view, **query).error[:2] == (504, 4)
        assert page(view, **query) == other(view, **query)
