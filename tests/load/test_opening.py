"""Opening balances: the last row before a moment, by few requests, honest about pruning."""

from __future__ import annotations

import json
import time

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balance_analysis import (
    ACCOUNT_KEY,
    CheckError,
    Client,
    IncompleteError,
    balance_at,
    load_balance_changes,
    load_opening_balances,
)
from tests.columns import BALANCE_DTYPE, empty_table
from tests.loopback import Fault, LoopbackNode, Row, histories, random_history

SECOND = 10**9
DAY = 86_400 * SECOND
FIRST, NEWEST = "pagination.first", "pagination.newestFirst"
TYPES = "filter.accountTypes"
AT = 1_680_307_200 * SECOND  # 2023-04-01
ASSET, OTHER_ASSET = "a" * 64, "b" * 64
GENERAL, MARGIN, EXTERNAL = (f"ACCOUNT_TYPE_{name}" for name in ("GENERAL", "MARGIN", "EXTERNAL"))
YEARS = 4  # from 2020-01-01 to 2023-04-01, in requests of 364 days


def an_id(number):
    return f"{number:064x}"


def general(party, asset=ASSET):
    return asset, GENERAL, an_id(party), ""


def external(asset=ASSET):
    return asset, EXTERNAL, "network", ""


def before(nanoseconds, account, balance=1):
    return Row(AT - nanoseconds, *account, balance)


def accounts_of(*accounts):
    return pd.DataFrame(accounts, columns=ACCOUNT_KEY, dtype="str")


def moment(nanoseconds):
    return pd.Timestamp(nanoseconds, unit="ns", tz="UTC")


def opening(node, accounts, *, at=AT, timeout=30.0, **options):
    with Client(node.url, timeout=timeout) as client:
        return load_opening_balances(client, accounts, at=moment(at), **options)


def requests_for(rows, accounts, **options):
    with LoopbackNode(rows) as node:
        return opening(node, accounts, **options), node.requests


def in_brief(frame):
    """Return what a frame says of each account: balance, nanoseconds and state."""
    return {
        tuple(row[:4]): (
            None if pd.isna(row[4]) else int(row[4]),
            None if pd.isna(row[5]) else row[5].value,
            row[6],
        )
        for row in frame.itertuples(index=False)
    }


def naively(rows, accounts, at):
    """Return the same by a loop over all rows."""
    found = {account: (None, None, naive_state(rows, account[0])) for account in accounts}
    for row in sorted(rows, key=lambda row: row.timestamp_ns):
        if row.account in found and row.timestamp_ns < at:
            found[row.account] = row.balance, row.timestamp_ns, "known"
    return found


def naive_state(rows, asset):
    times = [row.timestamp_ns for row in rows if row.asset_id == asset]
    oldest = [r for r in rows if r.asset_id == asset and r.timestamp_ns == min(times)]
    begins = any(r.account_type == EXTERNAL for r in oldest) and all(r.balance == 0 for r in oldest)
    return "none" if begins else "pruned"


@st.composite
def nodes_rows(draw):
    """Histories some of whose assets have a beginning, over minutes or a year, pruned or not."""
    rows = draw(histories(most_rows=120, most_accounts=40, largest_block=30))
    stretch = draw(st.sampled_from([1, 1, 40, 2000]))
    start = min((row.timestamp_ns for row in rows), default=AT)
    rows = [
        Row(start + (r.timestamp_ns - start) // 1000 * stretch * 1000, *r.account, r.balance)
        for r in rows
        if r.account_type != EXTERNAL
    ]
    for asset in sorted({row.asset_id for row in rows}):
        kind = draw(st.sampled_from(["begins", "restored", "unseen"]))
        if kind != "unseen":
            time = start - draw(st.integers(1, 400)) * 3600 * SECOND
            rows.append(Row(time, *external(asset), 0))
            rows.append(Row(time, asset, GENERAL, an_id(1), "", int(kind == "restored")))
    rows.sort(key=lambda row: row.order)
    return rows[draw(st.sampled_from([0, 0, 0, len(rows) // 2])) :]


def moments(rows):
    times = [row.timestamp_ns for row in rows] or [AT]
    near = st.builds(lambda time, by: time + by, st.sampled_from(times), st.integers(-1, 1))
    exact = st.builds(lambda time, by: time + by * 1000, st.sampled_from(times), st.integers(-1, 1))
    after = max(times) + 9 * DAY
    return st.one_of(near, exact, st.sampled_from([after, AT + 365 * DAY, 1_500_000_000 * SECOND]))


@st.composite
def questions(draw):
    rows = draw(nodes_rows())
    known = sorted({row.account for row in rows})
    unknown = [general(1, "c" * 64), (*(known or [general(2)])[0][:2], an_id(3), an_id(4))]
    accounts = draw(st.lists(st.sampled_from(known + unknown), max_size=40))
    if draw(st.booleans()):
        accounts += known
    return rows, accounts, draw(moments(rows))


node_options = st.fixed_dictionaries(
    {},
    optional={
        "release": st.sampled_from(["v0.71", "v0.73", "v0.75", "v0.79"]),
        "lossy_cursors": st.just(False),
        "end_inclusive": st.just(True),
        "start_exclusive": st.just(True),
    },
)


@settings(max_examples=20)
@given(questions(), node_options, st.sampled_from([1, 2, 3, 7, 50, 5000]), st.integers(1, 3))
def test_each_account_gets_what_a_loop_over_all_rows_finds(question, options, page_size, workers):
    rows, accounts, at = question
    with LoopbackNode(rows, **options) as node:
        found = opening(node, accounts_of(*accounts), at=at, page_size=page_size, workers=workers)
    # Bounds between microseconds are rounded up, which no row notices.
    assert in_brief(found) == naively(rows, accounts, at)
    assert list(in_brief(found)) == sorted(set(accounts))


@settings(max_examples=8)
@given(st.integers(0, 99), st.randoms())
def test_the_order_of_the_accounts_and_repeats_of_them_do_not_matter(seed, rng):
    rows = random_history(seed, rows=60, accounts=20)
    accounts = sorted({row.account for row in rows})
    shuffled = rng.sample(accounts * 2, len(accounts) * 2)
    at = rows[40].timestamp_ns
    with LoopbackNode(rows) as node:
        sorted_once = opening(node, accounts_of(*accounts), at=at)
        pd.testing.assert_frame_equal(opening(node, accounts_of(*shuffled), at=at), sorted_once)


def test_with_it_a_part_of_a_history_tells_the_same_balances_as_the_whole():
    rows = random_history(5, rows=200)
    at, when = rows[100].timestamp_ns, moment(rows[150].timestamp_ns)
    with LoopbackNode(rows) as node, Client(node.url) as client:
        whole = load_balance_changes(client, start=moment(AT), end=moment(AT + 30 * DAY))
        part = load_balance_changes(client, start=moment(at), end=moment(AT + 30 * DAY))
        known = load_opening_balances(client, whole, at=moment(at))
    pd.testing.assert_frame_equal(balance_at(part, when, opening=known), balance_at(whole, when))


def test_the_result_has_the_dtypes_that_it_promises():
    found, _ = requests_for([before(SECOND, general(1))], accounts_of(general(1), general(2)))
    assert list(found.columns) == [*ACCOUNT_KEY, "balance", "since", "state"]
    assert [str(found[name].cat.categories.dtype) for name in ACCOUNT_KEY] == ["str"] * 4
    assert found["balance"].dtype == BALANCE_DTYPE
    assert str(found["since"].dtype) == "datetime64[us, UTC]"
    assert list(found["state"].cat.categories) == ["known", "none", "pruned"]


def test_no_accounts_make_no_requests_and_an_empty_frame_of_the_same_dtypes():
    found, requests = requests_for([before(SECOND, general(1))], empty_table())
    other, _ = requests_for([before(SECOND, general(1))], accounts_of(general(1)))
    assert not requests
    assert found.empty
    assert list(found.columns) == list(other.columns)
    assert found["balance"].dtype == other["balance"].dtype
    assert found["since"].dtype == other["since"].dtype


def test_a_row_is_found_however_long_ago_it_was():
    rows = [before(days * DAY, general(days)) for days in (1, 7, 300, 500, 1100)]
    found, _ = requests_for(rows, accounts_of(*(row.account for row in rows)))
    assert in_brief(found) == naively(rows, {row.account for row in rows}, AT)


def test_ids_are_brought_into_the_form_that_nodes_have():
    account = (ASSET.upper(), "general", an_id(171).upper(), "")
    found, _ = requests_for([before(SECOND, general(171), 5)], accounts_of(account))
    assert in_brief(found) == {general(171): (5, AT - SECOND, "known")}


# What can be told of pruning


def test_an_asset_that_begins_later_has_accounts_with_no_row_before():
    rows = [before(-DAY, external(), 0), before(DAY, general(1, OTHER_ASSET))]
    found, _ = requests_for(rows, accounts_of(general(1), general(1, OTHER_ASSET)))
    assert in_brief(found)[general(1)] == (None, None, "none")


def test_a_first_block_of_many_rows_proves_nothing():
    rows = [before(30 * DAY, external(), 0)]
    rows += [before(30 * DAY, general(n), 0) for n in range(2, 150)]
    found, _ = requests_for(rows, accounts_of(general(1)))
    assert in_brief(found) == {general(1): (None, None, "pruned")}


@pytest.mark.parametrize("answers", [1, 2])
def test_what_is_pruned_while_it_is_looked_for_is_never_called_none(answers):
    rows = [before(30 * DAY, external(), 0), before(20 * DAY, general(1))]
    told = []

    def prune(answer, _):
        told.extend(answer["balances"]["edges"])
        if len(told) >= answers:
            node.replace([before(DAY // 2, general(2))])

    with LoopbackNode(rows, edit_page=prune) as node:
        found = opening(node, accounts_of(general(1)))
    assert found["state"].tolist() == ["pruned" if answers == 1 else "known"]


def test_rows_that_are_announced_but_not_sent_may_be_older():
    rows = [before(400 * DAY, general(2, OTHER_ASSET)), before(10 * DAY, external(), 0)]

    def withhold(answer, request):
        is_first_window = int(request.get("dateRange.endTimestamp")) < AT - 20 * DAY
        if is_first_window and request.get(NEWEST) == "false" and request.get(FIRST) != "1":
            answer["balances"]["pageInfo"]["hasNextPage"] = True

    with LoopbackNode(rows, edit_page=withhold) as node:
        found = opening(node, accounts_of(general(1), general(1, OTHER_ASSET)))
    assert found["state"].tolist() == ["pruned", "pruned"]


# How many requests


def test_a_busy_account_takes_one_request_of_one_row():
    rows = [before(n * SECOND, general(1), n) for n in range(1, 500)]
    found, requests = requests_for(rows, accounts_of(general(1)))
    assert in_brief(found) == {general(1): (1, AT - SECOND, "known")}
    assert [request.get(FIRST) for request in requests] == ["1"]


def test_200_accounts_of_the_last_day_take_a_request_for_each_60_parties():
    accounts = [general(n) for n in range(200)]
    rows = [before((n + 1) * 60 * SECOND, account) for n, account in enumerate(accounts)]
    found, requests = requests_for(rows, accounts_of(*accounts))
    assert set(found["state"]) == {"known"}
    assert len(requests) == 4


def test_those_quiet_for_a_day_are_asked_for_together():
    accounts = [general(n) for n in range(200)]
    rows = [
        before((1 if n % 10 else 4 * 86_400) * SECOND + n * 1000, account)
        for n, account in enumerate(accounts)
    ]
    found, requests = requests_for(rows, accounts_of(*accounts))
    assert set(found["state"]) == {"known"}
    assert len(requests) == 4 + 1


def test_those_without_a_row_take_the_oldest_row_and_one_request_more_an_asset():
    rows = [before(7 * DAY, general(9, asset)) for asset in (ASSET, OTHER_ASSET)]
    accounts = [general(n, asset) for n in range(50) for asset in (ASSET, OTHER_ASSET)]
    _, requests = requests_for(rows, accounts_of(*accounts))
    assert len(requests) == 2 + YEARS + 2


@pytest.mark.parametrize("quiet", [1, 10, 50])
def test_a_busy_neighbour_does_not_drag_its_history_along(quiet):
    """The filters that the quiet ones share let the busy one's 5,000 rows through."""
    market = an_id(7)
    busy = [before((n + 1) * SECOND, (ASSET, MARGIN, an_id(1), market), n) for n in range(5000)]
    accounts = [general(p) for p in range(1, quiet + 1)]
    accounts += [(ASSET, MARGIN, an_id(p), market) for p in range(2, quiet + 2)]
    rows = busy + [before(20 * 3600 * SECOND, account) for account in accounts]
    found, requests = requests_for(rows, accounts_of(*accounts), page_size=100)
    assert set(found["state"]) == {"known"}
    assert len(requests) < 30


def test_a_moment_to_come_takes_no_more_requests():
    now = time.time_ns() // 1000 * 1000
    with LoopbackNode([Row(now - SECOND, *general(1), 5)]) as node:
        found = opening(node, accounts_of(general(1)), at=now + 100 * DAY)
        assert len(node.requests) == 1
    assert found["balance"].tolist() == [5]


# Nodes as they are


def test_a_block_larger_than_the_page_is_settled():
    accounts = [general(n) for n in range(50)]
    rows = [before(SECOND, account, n) for n, account in enumerate(accounts)]
    found, _ = requests_for(rows, accounts_of(*accounts), page_size=7)
    assert in_brief(found) == naively(rows, accounts, AT)


def test_a_block_that_no_request_can_show_whole_raises():
    accounts = [general(n) for n in range(50)]
    rows = [before(SECOND, (ASSET, MARGIN, an_id(1), an_id(n)), n) for n in range(50)]
    with LoopbackNode(rows, max_page_size=5) as node, pytest.raises(IncompleteError):
        opening(node, accounts_of(*accounts, (ASSET, MARGIN, an_id(1), "")), page_size=5)


def test_a_node_that_includes_the_end_does_not_hide_the_row_before_it():
    rows = [before(0, general(n), 9) for n in range(1, 20)] + [before(1000, general(1), 4)]
    with LoopbackNode(rows, end_inclusive=True) as node:
        found = opening(node, accounts_of(general(1), general(2)), page_size=5)
    assert in_brief(found)[general(1)] == (4, AT - 1000, "known")


def test_an_account_type_that_has_no_name_is_found():
    numbered = Row(AT - SECOND, ASSET, 137, an_id(1), "", 5)
    found, requests = requests_for([numbered], accounts_of((ASSET, "137", an_id(1), "")))
    assert found["balance"].tolist() == [5]
    assert TYPES not in requests[0].params


def test_a_node_older_than_an_account_type_is_asked_without_it():
    later = (ASSET, "ACCOUNT_TYPE_VESTED_REWARDS", an_id(1), "")
    rows = [before(SECOND, general(1), 5)]
    with LoopbackNode(rows, release="v0.71") as node:
        found = in_brief(opening(node, accounts_of(general(1), later)))
    assert found == {general(1): (5, AT - SECOND, "known"), later: (None, None, "pruned")}


def test_a_page_that_the_node_refuses_is_made_smaller():
    accounts = [general(n) for n in range(40)]
    rows = [before(n * SECOND, accounts[n % 20], n) for n in range(1, 100)]
    rows += [before(n * SECOND, accounts[20 + n % 20], n) for n in range(100, 200)]
    with LoopbackNode(rows, max_page_size=60) as node:
        found = opening(node, accounts_of(*accounts))
        refused = [request for request in node.requests if int(request.get(FIRST)) > 60]
    assert in_brief(found) == naively(rows, accounts, AT)
    assert len({request.get(FIRST) for request in refused}) == len(refused)


def test_a_window_that_takes_too_long_is_looked_through_in_parts():
    rows = [before(3 * DAY, general(1), 4), before(20 * 3600 * SECOND, general(3), 4)]

    def is_slow(request):
        start, end = (int(request.get(f"dateRange.{side}Timestamp")) for side in ("start", "end"))
        return request.get(NEWEST) == "true" and end - start > 13 * 3600 * SECOND

    with LoopbackNode(rows, faults=lambda _, r: Fault.stalled(60) if is_slow(r) else None) as node:
        found = opening(node, accounts_of(general(1), general(2), general(3)), timeout=1)
        assert sum(map(is_slow, node.requests)) == 1
    assert found["balance"].tolist() == [4, pd.NA, 4]


def test_rows_that_contradict_each_other_raise():
    rows = [before(SECOND, general(1), 5), before(SECOND, general(1), 6)]
    with LoopbackNode(rows) as node, pytest.raises(CheckError, match="differ") as caught:
        opening(node, accounts_of(general(1), general(2)))
    assert sorted(map(int, caught.value.rows["balance"])) == [5, 6]


def test_a_node_that_withholds_the_rest_of_a_block_is_caught():
    pool = (ASSET, "ACCOUNT_TYPE_INSURANCE", "network")
    rows = [before(SECOND, (*pool, an_id(n)), n) for n in range(4)]
    rows += [before(2 * SECOND, (*pool, an_id(n)), n) for n in range(8)]

    def withhold(answer, request):
        if request.index == 2:  # after a page of one row, and one that ends in the older block
            answer["balances"]["edges"] = []
            answer["balances"]["pageInfo"]["hasNextPage"] = False

    with (
        LoopbackNode(rows, edit_page=withhold) as node,
        pytest.raises(IncompleteError, match="lost or withheld"),
    ):
        opening(node, accounts_of((*pool, "")), page_size=6)


def test_of_several_nodes_the_next_answers_where_one_fails():
    rows = [before(SECOND, general(1), 5)]
    with (
        LoopbackNode(rows, faults=lambda *_: Fault.status(401)) as failing,
        LoopbackNode(rows) as answering,
        Client([failing.url, answering.url]) as client,
    ):
        found = load_opening_balances(client, accounts_of(general(1)), at=moment(AT))
        assert found["balance"].tolist() == [5]
        assert found.attrs["balance_analysis"]["source"] == answering.url


def test_of_several_nodes_the_one_that_holds_more_is_asked():
    rows = [before(9 * SECOND, general(1), 5)]
    with (
        LoopbackNode(rows) as behind,
        LoopbackNode([*rows, before(SECOND, general(1), 6)]) as ahead,
        Client([behind.url, ahead.url]) as client,
    ):
        found = load_opening_balances(client, accounts_of(general(1)), at=moment(AT))
    assert found["balance"].tolist() == [6]


def test_the_result_tells_how_it_was_loaded():
    with LoopbackNode([before(SECOND, general(1), 5)]) as node:
        told = opening(node, accounts_of(general(1))).attrs["balance_analysis"]
        assert json.loads(json.dumps(told)) == told
        assert told["source"] == node.url
        assert told["requests"] == len(node.requests)
        assert told["at"] == "2023-04-01T00:00:00+00:00"
        assert told["block_time"] == "2023-03-31T23:59:59+00:00"


# A caller's slips


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"party_id": [an_id(1)]}),
        accounts_of((ASSET, GENERAL, "not hex", "")),
        accounts_of((ASSET, GENERAL, "", "")),
        accounts_of((ASSET, MARGIN, an_id(1), "m")),
        accounts_of(("", GENERAL, an_id(1), "")),
        accounts_of((ASSET, "no such type", an_id(1), "")),
        accounts_of((ASSET, GENERAL, an_id(1), None)),
    ],
    ids=["column", "party", "empty party", "market", "asset", "type", "missing"],
)
def test_a_frame_that_names_no_accounts_is_refused_before_the_first_request(frame):
    with LoopbackNode() as node:
        with pytest.raises(ValueError, match=r".+"):
            opening(node, frame)
        assert not node.requests


@pytest.mark.parametrize("name", ["page_size", "workers"])
def test_a_number_below_1_is_refused(name):
    with LoopbackNode() as node, pytest.raises(ValueError, match=name):
        opening(node, accounts_of(general(1)), **{name: 0})
