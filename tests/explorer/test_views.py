"""What a view tells is what the library computes, digit for digit."""

from __future__ import annotations

import json
from fractions import Fraction

import msgspec
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis import demo
from balance_analysis.analysis.history import open_history
from balance_analysis.explorer import source as sources
from balance_analysis.explorer import views
from balance_analysis.explorer.live import Explorer
from balance_analysis.explorer.source import TableState
from balance_analysis.explorer.views import Look, answer
from balance_analysis.explorer.wire import VIEWS, Query, keys_of, read_query
from tests.analysis.tables import DAY, GENERAL, HOUR, LARGEST, MARGIN, OTHER, START, table_of
from tests.archive.exporting import node_of, run_export, spread_history
from tests.columns import ATTRS_KEY, BALANCE_DTYPE, known_of, note_known
from tests.moments import from_microseconds
from tests.report.reading import as_dicts, write_key

BEGIN = 1_680_480_000_000_000
END = BEGIN + 5 * DAY


@pytest.fixture(scope="module")
def archive():
    with demo.sample_archive() as archive:
        yield archive


@pytest.fixture(scope="module")
def explorer(archive):
    return Explorer(archive)


@pytest.fixture(scope="module")
def gapped(tmp_path_factory):
    """An archive of daily files and two months, with a gap of a day in it."""
    folder = tmp_path_factory.mktemp("gapped") / "archive"
    rows = spread_history(4, start=BEGIN - 6 * DAY, end=END)
    with node_of(rows, head=END) as node:
        run_export(node, folder, start=BEGIN + DAY, end=END)
        run_export(node, folder, start=BEGIN - 6 * DAY, end=BEGIN)
    return ba.Archive(folder)


def state_of(table, **options):
    """A table as a state, from its first row to its last, or what it knows."""
    times = [time.value // 1000 for time in table["timestamp"]]
    ends = [bound for span in known_of(table) or () for bound in span]
    ends += [min(times), max(times) + 1] if times else []
    bounds = (min(ends, default=0), max(ends, default=0))
    return TableState(open_history(table), **{"bounds": bounds, **options})


def encode(source, view, query):
    """A view of an archive, or of a table's state, as it goes over the wire."""
    if isinstance(source, Explorer):
        return source.encode(view, query)
    return msgspec.json.encode(answer(view, Look(source, query)))


def ask(source, view, **query):
    return json.loads(encode(source, view, Query(**query)))


def told(frame, name):
    """A column of a frame as a view tells it."""
    values = frame[name]
    if isinstance(values.dtype, pd.DatetimeTZDtype):
        return [None if pd.isna(x) else x.value // 1000 for x in values]
    if isinstance(values.dtype, pd.ArrowDtype):
        return [None if pd.isna(x) else str(int(x)) for x in values]
    if isinstance(values.dtype, pd.CategoricalDtype):
        return list(values.astype("str"))
    return [None if pd.isna(x) else x for x in values]


def check(sheet, frame):
    """Every column of a sheet is that of a frame."""
    assert len(sheet["rows"]) == len(frame)
    for place, column in enumerate(sheet["columns"]):
        if column["name"] != "account":
            shown = [row[place] for row in sheet["rows"]]
            assert shown == told(frame, column["name"]), column


def check_asset(explorer, asset, rows, start, end):
    """What is told of an asset in a range is what the library makes of all rows up to its end."""
    query = {"asset": asset, "start": start, "end": end}
    rows = rows.balances.between(end=from_microseconds(end))
    totals = as_dicts(ask(explorer, "totals", **query)["totals"])
    moments = sorted({one["timestamp"] for one in totals})
    assert moments[0] == start
    assert len({(later - moments[1]) % (moments[2] - moments[1]) for later in moments[1:]}) == 1
    held = ba.balance_at(rows, [from_microseconds(moment) for moment in moments])
    expected = {}
    for kind, time, balance in zip(
        held["account_type"], told(held, "timestamp"), told(held, "balance"), strict=True
    ):
        expected.setdefault((kind, time), []).append(balance)
    for one in totals:
        levels = expected.pop((one["account_type"], one["timestamp"]))
        known = [int(level) for level in levels if level is not None]
        assert one["total"] == (str(sum(known)) if known else None)
        assert (one["known"], one["unknown"]) == (len(known), len(levels) - len(known))
    assert not expected
    bounds = {"start": from_microseconds(start), "end": from_microseconds(end)}
    check_headline(ask(explorer, "headline", **query)["headline"], rows, start, end)
    flows = as_dicts(ask(explorer, "flows", **query)["flows"])
    assert [start, *(one["end"] for one in flows[:-1])] == [one["start"] for one in flows]
    assert all(one["start"] % 60_000_000 == 0 for one in flows[1:])
    check_flows(flows[:1], rows)  # which may be a shorter period than the others
    check_flows(flows[1:], rows)
    try:
        moved = moved_in(rows, **bounds)
    except OverflowError:
        return
    movers = ask(explorer, "movers", **query)["movers"]
    check(movers, with_relative(moved))
    assert [row[0] for row in movers["rows"]] == [write_key(key) for key in keys_of(moved)]


def check_headline(sheet, rows, start, end):
    """It is of just before a range and of its end, as far as a balance is known then."""
    moments = [from_microseconds(moment) for moment in (start - 1, end - 1)]
    held = ba.balance_at(rows, moments)
    known = {*held.loc[held["balance"].notna(), "timestamp"]} or {moments[1]}
    moments = [moment for moment in moments if moment in known]
    levels = pd.DataFrame({"timestamp": moments, **levels_of(rows, moments)})
    held = [ba.holders(rows, moment, by="party_id") for moment in moments]
    levels["parties"] = [sum(x > 0 for x in one["balance"] if pd.notna(x)) for one in held]
    levels["unknown_parties"] = [int((one["unknown"] > 0).sum()) for one in held]
    check(sheet, levels)


def levels_of(rows, moments):
    """What all accounts of an asset hold at moments, how many hold something or are unknown."""
    held = [told(ba.balance_at(rows, moment), "balance") for moment in moments]
    known = [[int(level) for level in each if level is not None] for each in held]
    return {
        "total": [str(sum(each)) if each else None for each in known],
        "holders": [sum(level > 0 for level in each) for each in known],
        "unknown": [each.count(None) for each in held],
    }


def moved_in(rows, **bounds):
    """The accounts whose balance moved in a range, those of an asset that moved most first."""
    found = ba.summarize_accounts(rows, **bounds)
    found = found[[pd.notna(net) and net != 0 for net in found["net"]]]
    order = sorted(found.index, key=lambda n: (found["asset_id"][n], -abs(found["net"][n]), n))
    return found.loc[order]


def with_relative(moved):
    """Movers, with what they moved by as a part of what they had."""
    ends = zip(told(moved, "opening"), told(moved, "closing"), strict=True)
    return moved.assign(
        relative=[
            float(Fraction(int(now) - int(was), int(was))) if int(was or 0) else None
            for was, now in ends
        ]
    )


def check_flows(flows, rows):
    """What is told of periods of one length is what the library makes of each."""
    if not flows:
        return
    first, last = flows[0], flows[-1]
    how = {"freq": pd.Timedelta(first["end"] - first["start"], "us"), "by": "asset_id"}
    bounds = {"start": from_microseconds(first["start"]), "end": from_microseconds(last["end"])}
    for name in ("inflow", "outflow", "net", "changes", "unknown"):
        wide = ba.flows(rows, layout="wide", value=name, **how, **bounds)
        expected = [None if pd.isna(each) else int(each) for each in wide.iloc[:, 0]]
        assert [None if one[name] is None else int(one[name]) for one in flows] == expected


@pytest.mark.parametrize("part", [{}, {"start": 10, "end": 17}, {"start": 3.7001, "end": 5.2}])
def test_what_is_told_of_an_asset_is_the_library_s(archive, explorer, part):
    bounds = {"start": 0, "end": 30, **part}
    start, end = (1_680_307_200_000_000 + int(days * DAY) for days in bounds.values())
    asset = ask(explorer, "about")["assets"][0]["id"]
    check_asset(explorer, asset, archive.select(asset_id=asset).read(), start, end)


@pytest.mark.parametrize("days", [(0, 11), (0.3, 10.2), (2.1, 2.6), (5.5, 8.5), (6.2, 9.9)])
def test_of_an_archive_with_a_gap_every_range_is_told_as_the_library_does(
    gapped, monkeypatch, days
):
    monkeypatch.setattr(sources, "_PART_ROWS", 50)  # so that flows are told in parts
    explorer = Explorer(gapped)
    start, end = (BEGIN - 6 * DAY + int(day * DAY) for day in days)
    for asset in ask(explorer, "about")["assets"]:
        rows = gapped.select(asset_id=asset["id"]).read(partial=True)
        check_asset(explorer, asset["id"], rows, start, end)


def test_a_page_opens_on_the_asset_of_most_rows_wherever_they_come_from(archive, gapped):
    for each in (archive, gapped):
        table = each.read(partial=True)
        ranked = table["asset_id"].astype("str").value_counts()
        for source in (Explorer(each), state_of(table)):
            shown = [ranked[one["id"]] for one in ask(source, "about")["assets"]]
            assert shown == sorted(ranked, reverse=True)


@pytest.mark.parametrize("at", [None, 1_681_300_000_000_000])
def test_holders_are_the_library_s(archive, explorer, at):
    asset = ask(explorer, "about")["assets"][0]["id"]
    when = from_microseconds(at or 1_682_899_199_999_999)
    found = ask(explorer, "holders", asset=asset, at=at)
    rows = archive.select(asset_id=asset).read()
    expected = ba.holders(rows, when)
    shares = {
        write_key(key): (told_balance, share)
        for key, told_balance, share in zip(
            keys_of(expected), told(expected, "balance"), told(expected, "share"), strict=True
        )
    }
    assert {row[0]: (row[1], row[2]) for row in found["holders"]["rows"]} == shares
    held = [int(row[1]) for row in found["holders"]["rows"] if row[1] is not None]
    assert held == sorted(held, reverse=True)
    level = {"asset_id": pd.Categorical([asset]), **levels_of(rows, [when])}
    check(found["level"], pd.DataFrame(level))


def test_an_account_s_page_is_the_library_s(archive, explorer):
    asset = ask(explorer, "about")["assets"][0]["id"]
    for key, _ in ask(explorer, "accounts", asset=asset)["accounts"]["rows"][::150]:
        account = read_query("rows", [("account", key)]).accounts
        rows = archive.select(
            party_ids=account[0][2], account_types=account[0][1], asset_id=asset
        ).read()
        rows = rows[rows["market_id"] == account[0][3]].reset_index(drop=True)
        moments = {"start": "2023-04-01", "end": "2023-05-01"}
        found = ask(explorer, "account", accounts=account)
        check(found["summary"], ba.summarize_accounts(rows, **moments))
        average = ba.time_weighted_average(rows, freq="1D", **moments)
        periods = as_dicts(found["periods"])
        assert [one["average"] for one in periods] == told(average, "average")
        kinds = {column["name"]: column["kind"] for column in found["periods"]["columns"]}
        assert (kinds["inflow"], kinds["changes"], kinds["unknown"]) == ("amount", "count", "count")
        for name in ("inflow", "outflow", "net", "changes", "unknown"):
            flows = ba.flows(rows, freq="1D", layout="wide", value=name, **moments)
            (column,) = flows
            assert [one[name] for one in periods] == told(flows, column)
        whole = archive.select(asset_id=asset).read()
        part = ba.holders(whole, "2023-04-30T23:59:59.999999")
        part = dict(zip(keys_of(part), part["share"], strict=True))
        own = ba.summarize_accounts(rows, **moments).assign(share=part[account[0]])
        check(ask(explorer, "summary", accounts=account)["summary"], own)
        listing = ask(explorer, "rows", accounts=account)
        deltas = ba.deltas(rows).iloc[::-1].head(views.PAGE)
        shown = as_dicts(listing["rows"])
        assert listing["count"] == len(rows)
        assert [one["delta"] for one in shown] == told(deltas, "delta")
        assert [one["timestamp"] for one in shown] == told(deltas, "timestamp")


@pytest.mark.parametrize("part", [{}, {"start": 10, "end": 17.3}])
def test_a_party_s_page_is_the_library_s(archive, explorer, part):
    bounds = {"start": 0, "end": 30, **part}
    query = {name: 1_680_307_200_000_000 + int(days * DAY) for name, days in bounds.items()}
    moments = {name: from_microseconds(time) for name, time in query.items()}
    ranked = ba.summarize_accounts(archive)["party_id"].astype("str").value_counts().index
    for party in (*ranked[:3], "network"):
        rows = archive.select(party_ids=party).read(end=moments["end"])
        found = ask(explorer, "party", party=party, **query)
        check(found["totals"], ba.summarize_parties(rows, **moments))
        accounts = ba.summarize_accounts(rows, **moments)
        check(found["accounts"], accounts)
        keys = [one["account"] for one in as_dicts(found["accounts"])]
        assert keys == [*map(write_key, keys_of(accounts))]
        flows = as_dicts(found["flows"])
        for one in flows[::7]:
            own = rows[rows["asset_id"] == one["asset_id"]].reset_index(drop=True)
            span = {name: from_microseconds(one[name]) for name in ("start", "end")}
            for name in ("inflow", "outflow", "internal", "net"):
                how = {"freq": None, "by": "asset_id", "layout": "wide", "internal": True}
                wide = ba.flows(own, value=name, **how, **span)
                expected = told(wide, wide.columns[0])
                assert one[name] == expected[0] or int(one[name]) == int(expected[0])


def test_holders_by_party_are_the_library_s(archive, explorer):
    asset = ask(explorer, "about")["assets"][0]["id"]
    at = 1_681_300_000_000_000
    found = ask(explorer, "holders", asset=asset, at=at, by="party")
    rows = archive.select(asset_id=asset).read()
    held = ba.holders(rows, from_microseconds(at), by="party_id")
    check(found["holders"], held.drop(columns="cumulative_share"))
    total = sum(int(row[1] or 0) for row in found["holders"]["rows"])
    assert str(total) == as_dicts(found["level"])[0]["total"]


def test_rows_come_page_by_page_each_once():
    count = 2 * views.PAGE + 3
    table = table_of([(*GENERAL, START + n * HOUR, n) for n in range(count)])
    explorer = state_of(table)
    pages = [ask(explorer, "rows", accounts=(GENERAL,), page=page) for page in range(4)]
    balances = [int(row[1]) for page in pages for row in page["rows"]["rows"]]
    assert balances == list(range(count))[::-1]
    assert pages[0]["pages"] == 3


def steps_of(line):
    return list(zip(line["times"], line["balances"], strict=True))


def test_a_chart_has_every_row_of_a_range_that_has_few_and_the_one_before():
    table = table_of([(*GENERAL, START + n * HOUR, 10**37 + n) for n in range(20)])
    explorer = state_of(table)
    query = {"start": START + 5 * HOUR + 1, "end": START + 9 * HOUR}
    (line,) = ask(explorer, "series", accounts=(GENERAL,), **query)["series"]
    assert steps_of(line) == [(START + n * HOUR, str(10**37 + n)) for n in range(5, 9)]
    assert line["rows"] == 4


@given(st.lists(st.integers(0, LARGEST), min_size=200, max_size=400), st.integers(1, 20))
def test_a_thinned_line_keeps_real_rows_with_the_ends_the_lowest_and_the_highest(levels, width):
    table = table_of([(*GENERAL, START + n * HOUR, level) for n, level in enumerate(levels)])
    explorer = state_of(table)
    (line,) = ask(explorer, "series", accounts=(GENERAL,), width=width)["series"]
    real = [(START + n * HOUR, str(level)) for n, level in enumerate(levels)]
    assert set(steps_of(line)) <= set(real)
    assert {real[0], real[-1]} <= set(steps_of(line))
    drawn = [float(balance) for balance in line["balances"]]
    assert (min(drawn), max(drawn)) == (float(min(levels)), float(max(levels)))
    assert line["rows"] == len(levels)


def test_a_line_ends_where_a_balance_ceases_to_be_known():
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 3 * DAY, 7)])
    note_known(table, [(START, START + DAY), (START + 2 * DAY, START + 4 * DAY)])
    explorer = state_of(table)
    (line,) = ask(explorer, "series", accounts=(GENERAL,))["series"]
    assert steps_of(line) == [(START, "5"), (START + DAY, None), (START + 3 * DAY, "7")]
    assert ask(explorer, "about")["gaps"] == [[START + DAY, START + 2 * DAY]]


def test_what_was_held_before_a_table_is_told_as_its_opening():
    rows = table_of([(*GENERAL, START, 5), (*GENERAL, START + DAY, 7)])
    table = ba.to_table(rows, start=from_microseconds(START + 1))
    held = state_of(table, bounds=(START + HOUR, START + 2 * DAY))
    (line,) = ask(held, "series", accounts=(GENERAL,))["series"]
    assert steps_of(line) == [(START + HOUR, "5"), (START + DAY, "7")]
    assert line["opening"]


@pytest.fixture(scope="module")
def found(gapped):
    return Explorer(gapped)


@pytest.mark.parametrize("place", range(0, 11 * 24, 7))
def test_balances_of_an_archive_found_file_by_file_are_those_of_balance_at(gapped, found, place):
    at = BEGIN - 6 * DAY + place * HOUR + 17
    for asset in (one["id"] for one in ask(found, "about")["assets"]):
        chosen = gapped.select(asset_id=asset)
        until = chosen.read(end=from_microseconds(at + 1), partial=True)
        expected = ba.balance_at(until, from_microseconds(at))
        held = as_dicts(ask(found, "holders", asset=asset, at=at)["holders"])
        balances = zip(map(write_key, keys_of(expected)), told(expected, "balance"), strict=True)
        assert {one["account"]: one["balance"] for one in held} == dict(balances)


def test_a_gap_of_an_archive_is_told_and_nothing_is_made_up_in_it(gapped):
    explorer = Explorer(gapped)
    about = ask(explorer, "about")
    assert about["gaps"] == [[BEGIN, BEGIN + DAY]]
    assert [said.split(" are ")[0][:23] for said in about["left_out"]] == [
        "accounts without a chan",
        "accounts that changed o",
    ]
    for asset in about["assets"]:
        found = ask(explorer, "holders", asset=asset["id"], at=BEGIN + DAY // 2)
        assert {row[1] for row in found["holders"]["rows"]} == {None}


def test_an_export_that_goes_on_is_seen(tmp_path):
    rows = spread_history(2, start=BEGIN, end=END)
    with node_of(rows, head=END) as node:
        run_export(node, tmp_path / "a", start=BEGIN, end=BEGIN + DAY)
        explorer = Explorer(ba.Archive(tmp_path / "a"))
        before = ask(explorer, "about")
        run_export(node, tmp_path / "a", start=BEGIN + DAY, end=BEGIN + 2 * DAY)
    after = ask(explorer, "about")
    assert after["end"] == before["end"] + DAY
    assert ask(explorer, "version")["version"] == after["version"] != before["version"]


def test_accounts_are_found_by_any_part_of_an_id_or_a_type():
    table = table_of([(*account, START, 5) for account in (GENERAL, MARGIN, OTHER)])
    explorer = state_of(table)

    def found(text):
        rows = ask(explorer, "accounts", asset="VOTE", text=text)["accounts"]["rows"]
        return {row[0] for row in rows}

    assert found("M1") == found("margin") == found("TYPE_MARGIN") == {write_key(MARGIN)}
    assert found("a1") == {write_key(GENERAL), write_key(MARGIN)}
    assert found("zz") == set()
    assert found("") == {write_key(GENERAL), write_key(MARGIN)}


@given(st.lists(st.none() | st.integers(-LARGEST, LARGEST), max_size=20))
def test_accounts_stand_the_largest_first_then_those_of_which_nothing_is_known(levels):
    held = pd.DataFrame({"balance": pd.Series(levels, dtype=BALANCE_DTYPE)})
    held["asset_id"] = pd.Categorical([place % 3 for place in held.index])
    expected = sorted(held.index, key=lambda at: (at % 3, levels[at] is None, -(levels[at] or 0)))
    assert views.by_size(held["asset_id"], held["balance"]).tolist() == expected


def test_own_labels_are_told_and_searched():
    table = table_of([(*account, START, 5) for account in (GENERAL, MARGIN, OTHER)])
    table.attrs[ATTRS_KEY] = {"labels": {"a1": "Alice", "/".join(MARGIN): "Her bets"}}
    explorer = state_of(table)
    assert ask(explorer, "about")["labels"] == {"a1": "Alice", write_key(MARGIN): "Her bets"}
    for text, found in {"lic": {GENERAL, MARGIN}, "BETS": {MARGIN}, "zz": set()}.items():
        rows = ask(explorer, "accounts", asset="VOTE", text=text)["accounts"]["rows"]
        assert {row[0] for row in rows} == {*map(write_key, found)}, text


def test_a_view_of_too_many_rows_is_refused(archive, monkeypatch):
    monkeypatch.setattr(sources, "MOST_ROWS", 1000)
    explorer = Explorer(archive)
    with pytest.raises(sources.ViewTooLargeError, match="choose a shorter range"):
        explorer.encode("totals", Query(ask(explorer, "about")["assets"][1]["id"]))


@given(st.tuples(*[st.text(st.characters(codec="utf-8"))] * 4))
def test_a_key_tells_its_account_whatever_is_in_it(account):
    assert read_query("rows", [("account", write_key(account))]).accounts == (account,)


@pytest.mark.parametrize(
    ("view", "items", "says"),
    [
        ("totals", [("at", "5")], "totals has no parameter 'at'"),
        ("holders", [("at", "-5")], "at must be a whole number from 0"),
        ("holders", [("at", "5"), ("at", "6")], "there twice"),
        ("series", [("account", "x")], "what the list of accounts gives"),
        ("series", [("account", "a|b|c|d")] * 9, "at most 8 accounts"),
        ("series", [("width", "0")], "width must be"),
        ("totals", [("start", "7"), ("end", "7")], "start must be before end"),
        ("holders", [("by", "market")], "by must be party"),
    ],
)
def test_a_question_that_means_nothing_is_refused_and_says_why(view, items, says):
    with pytest.raises(ValueError, match=says):
        read_query(view, items)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("rows", [[], [(*GENERAL, START, 5)]], ids=["nothing", "one row"])
def test_every_view_answers_where_there_is_little(view, rows):
    explorer = state_of(table_of(rows))
    for query in (Query(), Query("VOTE"), Query("VOTE", (GENERAL,), start=START + DAY)):
        assert isinstance(json.loads(encode(explorer, view, query)), dict)


@pytest.mark.parametrize("view", [view for view, (_, names) in VIEWS.items() if "asset" in names])
def test_an_asset_is_asked_for_by_id_or_symbol_and_is_told_where_there_is_none(view):
    table = table_of([(*GENERAL, START, 5), (*OTHER, START, 7), (*OTHER, START + HOUR, 9)])
    table.attrs[ATTRS_KEY] = {"assets": {OTHER[0]: {"symbol": "tOther", "decimals": 2}}}
    explorer = state_of(table)
    by_symbol, by_id, other = (
        ask(explorer, view, asset=asset) for asset in ("TOTHER", OTHER[0], "VOTE")
    )
    assert by_symbol == by_id != other
    with pytest.raises(sources.UnknownAssetError, match="no account of an asset 'zzz'"):
        ask(explorer, view, asset="zzz")


def test_the_largest_comes_first_to_the_last_digit():
    most = 10**37
    rows = [("VOTE", "T", f"{n}", "", START, most + n) for n in (1, 3, 2)]
    found = ask(state_of(table_of(rows)), "holders")["holders"]["rows"]
    assert [int(row[1]) - most for row in found] == [3, 2, 1]


@pytest.mark.parametrize("view", ["accounts", "holders", "series", "totals", "flows", "rows"])
def test_a_view_that_nobody_waits_for_stops_and_keeps_nothing(gapped, view):
    explorer = Explorer(gapped)
    held = ba.balance_at(gapped, from_microseconds(BEGIN))
    first = next(iter(held[list(ba.ACCOUNT_KEY)].itertuples(index=False)))
    query = Query(first.asset_id, (tuple(first),))
    asked = []

    def give_up():
        asked.append(view)
        if len(asked) > 1:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        explorer.encode(view, query, check=give_up)
    assert explorer.encode(view, query) == Explorer(gapped).encode(view, query)
