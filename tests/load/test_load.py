from __future__ import annotations

import dataclasses
import datetime as dt
import json
import re
import tempfile
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from balance_analysis import (
    ACCOUNT_KEY,
    CheckError,
    Client,
    DecodeError,
    IncompleteError,
    RequestError,
    balance_at,
    check_table,
    iter_balance_changes,
    iter_pages,
    load_balance_changes,
    load_network_limits,
    load_to_parquet,
    read_parquet,
)
from balance_analysis.load import changes
from tests.analysis.tables import table_from
from tests.columns import ARROW_SCHEMA, ATTRS_KEY, empty_table, lacking
from tests.loopback import Fault, Kind, LoopbackNode, Row, follow_cursors, histories, random_history
from tests.moments import from_microseconds
from tests.node.asking import NOWHERE, client_to
from tests.node.truth import lines_of_rows, lines_of_table, matching
from tests.waits import without_waits

LIST = "/api/v2/balance/changes"
DAY_365 = 365 * 86_400 * 10**9
START, END = "2023-03-01", "2023-12-01"
ALL = {"start": START, "end": END}
UNKNOWN = "0" * 64

HISTORY = random_history(11, rows=120, accounts=40, largest_block=15)
TIMES = sorted({row.timestamp_ns for row in HISTORY})
PAGE = 20


@pytest.fixture(autouse=True, scope="module")
def retries_without_waits():
    with without_waits():
        yield


def load(node, **arguments):
    """Load from a node that need not run, and that refuses a load which asks without end."""
    node.faults = node.faults or stop_after(3000)
    client = client_to(node)
    return load_balance_changes(client, **{**ALL, **arguments})


def load_file(node, **arguments):
    """Load into a file, of small row groups in time order and sorted inside, and read it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(changes, "ROW_GROUP", 20),
        client_to(node) as client,
    ):
        path = Path(folder) / "x.parquet"
        load_to_parquet(client, path, **{**ALL, **arguments})
        with pq.ParquetFile(path) as file:
            groups = [file.read_row_group(n).to_pandas() for n in range(file.num_row_groups)]
        for before, after in pairwise(groups):
            assert before["timestamp"].max() < after["timestamp"].min()
        for group in groups:
            rows = group.astype(dict.fromkeys(ACCOUNT_KEY, "str"))
            assert rows.equals(rows.sort_values([*ACCOUNT_KEY, "timestamp"], ignore_index=True))
        return read_parquet(path)


def load_stream(node, **arguments):
    """Load batches, which are in time order, and make a table of them."""
    with client_to(node) as client:
        batches = list(iter_balance_changes(client, **{**ALL, **arguments}))
    assert all(batch.schema == ARROW_SCHEMA and batch.num_rows for batch in batches)
    times = [time for batch in batches for time in batch["timestamp"].to_pylist()]
    assert times == sorted(times)
    for before, after in pairwise(batches):
        assert before["timestamp"][-1].as_py() < after["timestamp"][0].as_py()
    return table_from(pa.Table.from_batches(batches, ARROW_SCHEMA))


def load_over_http(node, *, timeout=10.0, **arguments):
    node.faults = node.faults or stop_after(3000)
    with Client(node.url, timeout=timeout) as client:
        return load_balance_changes(client, **{**ALL, **arguments})


def assert_exact(table, rows):
    check_table(table)
    assert lines_of_table(table) == lines_of_rows(rows)


def stop_after(requests):
    """Return faults that end a load which asks too often."""

    def fault(index, _request):
        return Fault.code(400, 3, "asked too often") if index >= requests else None

    return fault


def subset(values):
    return st.lists(st.sampled_from(sorted(values)), max_size=6)


def test_a_row_that_is_taken_out_of_a_load_is_noticed(caplog):
    table = load(LoopbackNode(HISTORY))
    balance_at(table, END)
    assert "lost or gained rows" not in caplog.text
    balance_at(table.drop(index=table.index[table.duplicated(ACCOUNT_KEY)][0]), END)
    assert "1 account lost or gained rows" in caplog.text


@st.composite
def situations(draw, *, largest_block=30):
    """Return a history, and filters and a window around its rows."""
    history = draw(histories(most_rows=100, most_accounts=50, largest_block=largest_block))
    times = sorted({row.timestamp_ns // 1000 for row in history}) or [1_680_307_200_000_000]
    query = draw(windows(times))
    choices = {
        "asset_id": st.sampled_from([*sorted({row.asset_id for row in history}), UNKNOWN]),
        "party_ids": subset({row.party_id for row in history} | {UNKNOWN}),
        "market_ids": subset({row.market_id for row in history} - {""} | {UNKNOWN}),
        "account_types": subset(
            {row.account_type for row in history} | {"ACCOUNT_TYPE_UNSPECIFIED"}
        ),
    }
    for name in draw(st.sets(st.sampled_from(sorted(choices)))):
        query[name] = draw(choices[name])
    return history, query


@st.composite
def windows(draw, times):
    """Return a start and an end: beyond all rows, or on, just before and just after some row."""
    start, end = times[0] - 10**9, times[-1] + 10**9
    offsets = st.sampled_from([-1, 0, 1, 300_000])
    if draw(st.booleans()):
        start = draw(st.sampled_from(times)) + draw(offsets)
    if draw(st.booleans()):
        end = draw(st.sampled_from([time for time in times if time >= start] or times))
        end += draw(offsets)
    assume(start < end)
    return {"start": start, "end": end}


def arguments_of(query):
    moments = {name: from_microseconds(query[name]) for name in ("start", "end")}
    return {**query, **moments}


page_sizes = st.integers(1, 12) | st.integers(1, 1000)
releases = st.sampled_from(["v0.71", "v0.73", "v0.75", "v0.76", "v0.79"])


@given(
    situations(),
    page_sizes,
    st.integers(1, 4),
    st.fixed_dictionaries(
        {
            "release": releases,
            "lossy_cursors": st.booleans(),
            "start_exclusive": st.booleans(),
            "end_inclusive": st.booleans(),
        }
    ),
    st.sampled_from([load, load_file, load_stream]),
)
def test_a_load_brings_exactly_the_nodes_rows(situation, page_size, workers, quirks, way):
    history, query = situation
    node = LoopbackNode(history, **quirks)
    table = way(node, page_size=page_size, workers=workers, **arguments_of(query))
    assert_exact(table, matching(history, **query))


@given(
    situations(largest_block=10),
    page_sizes,
    st.integers(1, 4),
    st.fixed_dictionaries({"max_page_size": st.integers(30, 60), "cap_silently": st.booleans()})
    | st.fixed_dictionaries({"max_answer_rows": st.integers(30, 60), "release": releases}),
)
@settings(max_examples=15)
def test_a_node_with_small_pages_is_loaded_exactly(situation, page_size, workers, quirks):
    history, query = situation
    node = LoopbackNode(history, **quirks)
    table = load(node, page_size=page_size, workers=workers, **arguments_of(query))
    assert_exact(table, matching(history, **query))


@given(
    histories(most_rows=80, most_accounts=50, largest_block=30),
    st.integers(1, 12),
    st.integers(2, 12),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=6)
def test_blocks_beyond_the_largest_page_are_loaded_exactly_or_named(
    history, page_size, largest, lossy, silent
):
    node = LoopbackNode(history, max_page_size=largest, lossy_cursors=lossy, cap_silently=silent)
    try:
        table = load(node, page_size=page_size, workers=1)
    except IncompleteError as error:
        named = int(re.search(r"the block at \S+ \((\d+) ns\)", str(error))[1])
        close = [row for row in history if abs(row.timestamp_ns - named) <= 1000]
        assert len(close) >= largest
    else:
        assert_exact(table, history)


@pytest.mark.parametrize(("page_size", "workers"), [(5, 2), (50, 4)])
def test_workers_do_not_multiply_the_requests(page_size, workers):
    alone = LoopbackNode(HISTORY)
    load(alone, page_size=page_size, workers=1)
    together = LoopbackNode(HISTORY)
    load(together, page_size=page_size, workers=workers)
    assert len(together.requests) <= 10 * len(alone.requests) + 50


def test_a_load_over_http_loses_no_row_where_following_cursors_does():
    bounds = {"start": str(TIMES[0]), "end": str(TIMES[-1] + 1000)}
    span = {f"dateRange.{name}Timestamp": bound for name, bound in bounds.items()}
    with LoopbackNode(HISTORY) as node:
        followed = follow_cursors(node.url, page_size=10, params=span)
        table = load_over_http(node, page_size=10, workers=1)
    assert len(set(followed)) < len(HISTORY)
    assert_exact(table, HISTORY)


@pytest.mark.parametrize(("page_size", "workers"), [(1, 4), (50, 1), (1000, 4)])
def test_the_recording_comes_back_exactly(recorded_rows, page_size, workers):
    with LoopbackNode(recorded_rows) as node:
        table = load_over_http(
            node, start=None, end="2027-01-01", page_size=page_size, workers=workers
        )
    assert_exact(table, recorded_rows)


@given(histories(most_rows=20, most_accounts=10), st.integers(0, 6 * 366), st.integers(1, 4))
@settings(max_examples=8)
def test_both_bounds_are_sent_of_at_most_365_days(history, days, workers):
    start = dt.date(2020, 1, 1) + dt.timedelta(days)
    node = LoopbackNode(history)
    load(node, start=start, end="2026-06-01T00:00:00.000001Z", workers=workers)
    for request in node.requests:
        first, last = (int(request.get(f"dateRange.{name}Timestamp")) for name in ("start", "end"))
        assert 0 <= last - first <= DAY_365


def test_without_a_start_the_load_begins_at_the_oldest_row():
    table = load(LoopbackNode(HISTORY), start=None)
    assert_exact(table, HISTORY)
    assert pd.Timestamp(table.attrs[ATTRS_KEY]["start"]).value == TIMES[0]


@pytest.mark.parametrize("release", ["v0.71", "v0.76"])
def test_without_a_start_and_a_row_the_table_is_empty(release):
    table = load(LoopbackNode(release=release), start=None)
    pd.testing.assert_frame_equal(table, empty_table())
    info = table.attrs[ATTRS_KEY]
    assert info["start"] == info["end"]


def test_without_an_end_it_is_the_moment_before_the_first_request():
    before = pd.Timestamp.now("UTC")
    node = LoopbackNode(HISTORY, block_timestamp=4_000_000_000 * 10**9)
    table = load(node, end=None)
    after = pd.Timestamp.now("UTC")
    assert before <= pd.Timestamp(table.attrs[ATTRS_KEY]["end"]) <= after
    assert_exact(table, HISTORY)
    assert {request.get("dateRange.endTimestamp") for request in node.requests} >= {
        str(pd.Timestamp(table.attrs[ATTRS_KEY]["end"]).value)
    }


def test_long_lists_are_split_into_short_urls():
    parties = [f"{number:064x}" for number in range(300)]
    template = HISTORY[0]
    rows = [
        dataclasses.replace(template, timestamp_ns=TIMES[0] + number % 7 * 1000, party_id=party)
        for number, party in enumerate([*parties, UNKNOWN[:-1] + "f" * 1, "f" * 64])
    ]
    rows = list({row.order: row for row in rows}.values())
    node = LoopbackNode(rows, max_url_length=8191)
    table = load(node, party_ids=parties, page_size=13, workers=2)
    assert_exact(table, matching(rows, party_ids=parties))
    assert max(request.url_length for request in node.requests) < 8192


MEASURED = {"seconds", "bytes", "rows_per_second", "account_rows", "evidence"}


def test_the_table_knows_how_it_was_loaded():
    node = LoopbackNode(HISTORY, block_height=9, block_timestamp=TIMES[-1])
    table = load(node, account_types="general", page_size=PAGE, workers=1)
    note = table.attrs[ATTRS_KEY]
    steps = [x for x in node.requests if x.get("pagination.newestFirst") == "false"]
    assert note["seconds"] > 0
    assert note["bytes"] > len(table)
    assert {name: note[name] for name in note if name not in MEASURED} == {
        "source": NOWHERE,
        "steps_by_node": {NOWHERE: len(steps)},
        "start": "2023-03-01T00:00:00+00:00",
        "end": "2023-12-01T00:00:00+00:00",
        "filters": [["filter.accountTypes", "ACCOUNT_TYPE_GENERAL"]],
        "requests": len(node.requests),
        "retries": 0,
        "throttled_seconds": 0.0,
        "rows": len(table),
        "block_height": 9,
        "block_time": from_microseconds(TIMES[-1] // 1000).isoformat(),
        "known": [[from_microseconds(at // 1000).isoformat() for at in (TIMES[0], TIMES[-1])]],
        "quarantined": [],
    }


@pytest.mark.parametrize("workers", [1, 3])
def test_progress_grows_to_one_and_to_all_rows(workers):
    seen = []
    load(
        LoopbackNode(HISTORY),
        page_size=PAGE,
        workers=workers,
        progress=lambda share, rows: seen.append((share, rows)),
    )
    assert seen == sorted(seen)
    assert seen[-1] == (1.0, len(HISTORY))


def test_an_error_of_the_callers_progress_ends_the_load():
    node = LoopbackNode(HISTORY)

    def progress(_share, _rows):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        load(node, page_size=2, workers=3, progress=progress)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"start": "2023-01-02", "end": "2023-01-02"}, ValueError, "start must be before end"),
        ({"start": "2023-01-02", "end": "2023-01-01"}, ValueError, "start must be before end"),
        ({"start": "2999-01-01T", "end": None}, ValueError, "ISO 8601"),
        ({"start": "2100-01-01", "end": None}, ValueError, "start must be before end"),
        ({"page_size": 0}, ValueError, "page_size must be at least 1, not 0"),
        ({"page_size": 1.5}, TypeError, "page_size must be a whole number, not 1.5"),
        ({"page_size": True}, TypeError, "page_size must be a whole number, not True"),
        ({"workers": 0}, ValueError, "workers must be at least 1, not 0"),
        ({"on_bad_rows": "skip"}, ValueError, "on_bad_rows must be .* not 'skip'"),
        ({"party_ids": "x"}, ValueError, "party id 'x'"),
        ({"account_types": "generel"}, ValueError, "did you mean GENERAL"),
        ({"start": 5}, TypeError, "a moment is a"),
    ],
)
def test_a_callers_mistake_raises_before_the_first_request(arguments, kind, message):
    node = LoopbackNode(HISTORY)
    with pytest.raises(kind, match=message):
        load(node, **arguments)
    assert node.requests == []


def test_faults_that_pass_leave_no_trace_in_the_table():
    kinds = [Kind.RESET, Kind.HALF_JSON, Kind.TRUNCATED]
    slow = [Fault(Kind.STALLED, 5), Fault(Kind.TRICKLED, 0.1), Fault.banned(20), Fault.status(503)]
    faults = [*map(Fault, kinds), None, Fault.html(502), None, *slow]
    with LoopbackNode(HISTORY, faults=faults) as node:
        table = load_over_http(node, timeout=0.5, page_size=PAGE)
    assert_exact(table, HISTORY)


@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize(
    ("fault", "says"),
    [(Fault.status(503), "answered 503"), (Fault(Kind.TRUNCATED), "broke off its answer")],
)
def test_a_fault_that_stays_leaves_no_short_table(fault, says, at):
    with (
        LoopbackNode(HISTORY, faults=lambda i, _: fault if i >= at else None) as node,
        pytest.raises(RequestError, match=says) as caught,
    ):
        load_over_http(node, page_size=PAGE)
    assert caught.value.url.startswith(f"{node.url}{LIST}?")


def edges_of(answer):
    return answer["balances"]["edges"]


def empty_with_next(answer, request):
    if request.index >= 2:
        answer["balances"]["edges"] = []
        answer["balances"]["pageInfo"]["hasNextPage"] = True


def reverse(answer, _request):
    edges_of(answer).reverse()


def swap(answer, _request):
    edges = edges_of(answer)
    for place in range(len(edges) - 1):
        if edges[place]["node"]["timestamp"] != edges[place + 1]["node"]["timestamp"]:
            edges[place], edges[place + 1] = edges[place + 1], edges[place]
            return


def outside_before(answer, request):
    bound = int(request.get("dateRange.startTimestamp"))
    if edges := edges_of(answer):
        edges[0]["node"]["timestamp"] = str(bound - 1000)


def outside_after(answer, request):
    bound = int(request.get("dateRange.endTimestamp"))
    if edges := edges_of(answer):
        edges[-1]["node"]["timestamp"] = str(bound + 1000)


def lost_at_the_restart(answer, request):
    """Leave out the block at which a request restarts."""
    edges = edges_of(answer)
    if edges and int(edges[0]["node"]["timestamp"]) == (
        int(request.get("dateRange.startTimestamp")) + 1000
    ):
        first = edges[0]["node"]["timestamp"]
        edges[:] = [edge for edge in edges if edge["node"]["timestamp"] != first]


EDITS = {
    "an empty page with a next page": (empty_with_next, "announced more rows in .* but sent none"),
    "rows in reverse": (reverse, "rows came out of order in"),
    "two rows swapped": (swap, "rows came out of order in"),
    "a row before the window": (outside_before, "ignores or misreads the range"),
    "a row after the window": (outside_after, "ignores or misreads the range"),
    "a restart that begins elsewhere": (lost_at_the_restart, "the node has lost or withheld rows"),
}


@pytest.mark.parametrize(("edit", "says"), EDITS.values(), ids=EDITS)
def test_answers_that_do_not_add_up_are_incomplete(edit, says):
    node = LoopbackNode(HISTORY, edit_page=edit)
    with pytest.raises(IncompleteError, match=says) as caught:
        load(node, page_size=PAGE)
    assert "2023-" in str(caught.value)


def duplicated(change):
    def edit(answer, _request):
        edges = edges_of(answer)
        if edges:
            copy = json.loads(json.dumps(edges[0]))
            copy["node"]["balance"] += change
            edges.insert(0, copy)

    return edit


def test_an_identical_duplicate_is_dropped():
    table = load(LoopbackNode(HISTORY, edit_page=duplicated("")), page_size=PAGE)
    assert_exact(table, HISTORY)


def test_a_conflicting_duplicate_is_a_check_error_with_its_rows():
    rows = [dataclasses.replace(row, balance=5) for row in HISTORY]
    node = LoopbackNode(rows, edit_page=duplicated("1"))
    with pytest.raises(CheckError, match="conflicting duplicates") as caught:
        load(node, page_size=PAGE)
    assert set(map(int, caught.value.rows["balance"])) == {5, 51}


FILTERS = {
    "filter.assetId": ("asset_id", HISTORY[0].asset_id),
    "filter.partyIds": ("party_ids", HISTORY[0].party_id),
    "filter.marketIds": ("market_ids", next(row.market_id for row in HISTORY if row.market_id)),
    "filter.accountTypes": ("account_types", HISTORY[0].account_type),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_node_that_ignores_a_filter_is_incomplete(name):
    argument, value = FILTERS[name]
    node = LoopbackNode(HISTORY, ignores=[name])
    with pytest.raises(IncompleteError, match="ignores or misreads that filter"):
        load(node, page_size=PAGE, **{argument: value})


@pytest.mark.parametrize("page_size", [1, 2, 3])
def test_a_node_that_ignores_the_order_is_incomplete(page_size):
    node = LoopbackNode(HISTORY, ignores=["pagination.newestFirst"])
    with pytest.raises(IncompleteError):
        load(node, page_size=page_size)


@pytest.mark.parametrize("page_size", [1, 20])
def test_a_node_that_ignores_the_page_size_is_loaded_exactly(page_size):
    node = LoopbackNode(HISTORY, ignores=["pagination.first"])
    assert_exact(load(node, page_size=page_size), HISTORY)


def changing(place, **changes):
    """Return an edit that changes one row of the history; `...` takes a field away."""
    chosen = HISTORY[place].to_json()

    def edit(node):
        if node["timestamp"] != chosen["timestamp"] or any(
            node[name] != chosen[name] for name in ("assetId", "accountType", "partyId", "marketId")
        ):
            return node
        changed = {**node, **changes}
        return {name: value for name, value in changed.items() if value is not ...}

    return edit


@pytest.mark.parametrize("changes", [{"balance": "9" * 39}, {"partyId": ...}, {"timestamp": ...}])
def test_a_bad_row_is_raised_or_kept_aside_once_and_the_rest_is_right(changes):
    edit = changing(30, **changes)
    spoilt = edit(HISTORY[30].to_json())
    with pytest.raises(DecodeError) as caught:
        load(LoopbackNode(HISTORY, edit_row=edit), page_size=PAGE)
    assert json.loads(caught.value.row) == spoilt
    for page_size in (1, PAGE):
        node = LoopbackNode(HISTORY, edit_row=edit)
        table = load(node, page_size=page_size, on_bad_rows="quarantine")
        assert_exact(table, [*HISTORY[:30], *HISTORY[31:]])
        (aside,) = table.attrs[ATTRS_KEY]["quarantined"]
        assert json.loads(aside["row"]) == spoilt
        assert aside["reason"]


@given(
    st.sets(st.integers(0, len(HISTORY) - 1)),
    st.integers(1, 40),
    st.integers(1, 3),
    st.sampled_from([load, load_file]),
)
@settings(max_examples=6)
def test_any_bad_balances_are_quarantined_once_each(places, page_size, workers, way):
    rows = [
        dataclasses.replace(row, balance=f"x{place}") if place in places else row
        for place, row in enumerate(HISTORY)
    ]
    options = {"page_size": page_size, "workers": workers, "on_bad_rows": "quarantine"}
    table = way(LoopbackNode(rows), **options)
    assert_exact(table, [row for place, row in enumerate(HISTORY) if place not in places])
    aside = [json.loads(one["row"])["balance"] for one in table.attrs[ATTRS_KEY]["quarantined"]]
    assert sorted(aside) == sorted(f"x{place}" for place in places)


def test_quarantined_rows_outside_the_window_are_left_out():
    rows = [dataclasses.replace(row, balance="x") for row in HISTORY]
    start, end = TIMES[5], TIMES[9]
    table = load(
        LoopbackNode(rows, end_inclusive=True),
        start=from_microseconds(start // 1000),
        end=from_microseconds(end // 1000),
        on_bad_rows="quarantine",
    )
    times = [
        int(json.loads(one["row"])["timestamp"]) for one in table.attrs[ATTRS_KEY]["quarantined"]
    ]
    assert sorted(times) == [row.timestamp_ns for row in rows if start <= row.timestamp_ns < end]


def test_an_account_type_that_is_newer_may_be_asked_for():
    rows = [
        dataclasses.replace(row, account_type="ACCOUNT_TYPE_NEWER") if number % 3 else row
        for number, row in enumerate(HISTORY)
    ]
    table = load(
        LoopbackNode(rows),
        account_types=["new:ACCOUNT_TYPE_NEWER", "general"],
        page_size=PAGE,
    )
    wanted = ("ACCOUNT_TYPE_NEWER", "ACCOUNT_TYPE_GENERAL")
    assert_exact(table, matching(rows, account_types=wanted))


def wide_block(size, kind="ACCOUNT_TYPE_GENERAL"):
    block = [Row(TIMES[10], UNKNOWN, kind, f"{number:064x}", "", number) for number in range(size)]
    return sorted([*HISTORY, *block], key=lambda row: row.order)


def slow(_, request):
    return Fault(Kind.STALLED, 9) if int(request.get("pagination.first")) > PAGE else None


@pytest.mark.parametrize(
    ("size", "options"),
    [
        (35, {"max_page_size": 20}),
        (35, {"max_page_size": 20, "cap_silently": True}),
        (35, {"faults": slow}),
        (200, {"release": "v0.71"}),
    ],
    ids=["both ends", "both ends, capped silently", "both ends, in time", "a larger page"],
)
def test_a_block_larger_than_a_page_is_resolved(size, options):
    rows = wide_block(size)
    assert_exact(load(LoopbackNode(rows, **options), page_size=PAGE), rows)


AT = from_microseconds(TIMES[10] // 1000)
PARTIES = [f"{number:064x}" for number in range(55)]


def test_a_block_larger_than_a_page_is_resolved_by_the_callers_parties():
    rows = wide_block(55)
    table = load(LoopbackNode(rows, max_page_size=20), page_size=PAGE, party_ids=PARTIES)
    assert_exact(table, matching(rows, party_ids=PARTIES))


def test_a_half_that_is_refused_is_not_taken_for_empty():
    def refuse(_, request):
        parties = request.params.get("filter.partyIds", PARTIES)
        return Fault.code(400, 3) if len(parties) < 55 and PARTIES[-1] in parties else None

    node = LoopbackNode(wide_block(55), max_page_size=20, faults=refuse)
    with pytest.raises(RequestError, match="answered 400"):
        load(node, page_size=PAGE, party_ids=PARTIES)


def test_halves_that_lack_a_row_of_the_whole_are_not_complete():
    def lose(answer, request):
        if len(request.params.get("filter.partyIds", PARTIES)) < 55:
            edges = edges_of(answer)
            edges[:] = [edge for edge in edges if edge["node"]["partyId"] != lost]

    rows = wide_block(55)
    lost = next(row.party_id for row in rows if row.party_id in PARTIES)
    with pytest.raises(IncompleteError, match="the block at"):
        load(
            LoopbackNode(rows, max_page_size=20, edit_page=lose), page_size=PAGE, party_ids=PARTIES
        )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cap_silently": True},
        {"lossy_cursors": False},
        # Alike from both ends: the two pages meet, and lack what follows.
        {"ignores": ["pagination.newestFirst"]},
    ],
)
def test_a_block_that_can_not_be_resolved_is_named(options):
    node = LoopbackNode(wide_block(55), max_page_size=20, **options)
    with pytest.raises(IncompleteError, match=rf"the block at .* \({TIMES[10]} ns\) holds more"):
        load(node, start=AT, end=AT + dt.timedelta(microseconds=1), page_size=PAGE)


def test_too_large_answers_are_asked_for_in_smaller_pages():
    node = LoopbackNode(HISTORY, max_answer_rows=30)
    assert_exact(load(node, page_size=1000), HISTORY)
    pages = [request for request in node.requests if request.get("pagination.first") != "1"]
    asked = [str(request.params) for request in pages]
    assert len(asked) == len(set(asked))


SPAN = {
    "start": from_microseconds(TIMES[0] // 1000),
    "end": from_microseconds(TIMES[-1] // 1000 + 1),
}


def pages(node, **arguments):
    client = client_to(node)
    return iter_pages(client, **{**SPAN, **arguments})


def lines_in_order(walked):
    return [line for page in walked for line in lines_of_table(page.table)]


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("size", [7, 1000])
@pytest.mark.parametrize(("way", "back"), [("first", "after"), ("last", "before")])
def test_pages_bring_every_row_once_in_the_lists_order(way, back, size, newest_first):
    node = LoopbackNode(HISTORY, lossy_cursors=False)
    walked = list(pages(node, newest_first=newest_first, **{way: size}))
    assert len(node.requests) == len(walked)
    assert all(len(page.table) == size for page in walked[:-1])
    ends = (walked[0], walked[-1]) if way == "first" else (walked[-1], walked[0])
    assert (ends[0].has_previous_page, ends[1].has_next_page) == (False, False)
    ordered = HISTORY[::-1] if newest_first else HISTORY
    in_order = walked if way == "first" else walked[::-1]
    assert lines_in_order(in_order) == [lines_of_rows([row])[0] for row in ordered]
    cursor = walked[0].end_cursor if way == "first" else walked[0].start_cursor
    rest = pages(node, newest_first=newest_first, **{way: size, back: cursor})
    assert lines_in_order(rest) == lines_in_order(walked[1:])


def test_pages_are_newest_first_and_of_1000_rows_by_default():
    node = LoopbackNode(HISTORY)
    list(pages(node))
    assert node.requests[0].get("pagination.first") == "1000"
    assert node.requests[0].get("pagination.newestFirst") == "true"


def test_pages_are_fetched_lazily():
    node = LoopbackNode(HISTORY)
    walking = pages(node, first=10)
    assert len(node.requests) == 0
    next(walking)
    assert len(node.requests) == 1
    next(walking)
    assert len(node.requests) == 2


def test_pages_of_nothing_are_one_empty_page():
    (page,) = pages(LoopbackNode())
    pd.testing.assert_frame_equal(page.table, empty_table())
    assert (page.start_cursor, page.end_cursor) == ("", "")


def test_pages_without_a_start_begin_at_the_oldest_row():
    walked = pages(LoopbackNode(HISTORY, lossy_cursors=False), start=None, first=50)
    assert sorted(lines_in_order(walked)) == lines_of_rows(HISTORY)


@pytest.mark.parametrize("way", [{"first": 10}, {"last": 10}], ids=["forward", "backward"])
def test_a_cursor_that_comes_back_is_incomplete(way):
    def edit(answer, _request):
        answer["balances"]["pageInfo"] = {
            "startCursor": "eyJ4Ijp7fX0=",
            "endCursor": "eyJ4Ijp7fX0=",
            "hasNextPage": True,
            "hasPreviousPage": True,
        }

    with pytest.raises(IncompleteError, match="cursor 'eyJ4Ijp7fX0=' came back on page 2"):
        list(pages(LoopbackNode(HISTORY, edit_page=edit), **way))


@pytest.mark.parametrize("way", [{"first": 10}, {"last": 10}], ids=["forward", "backward"])
def test_a_next_page_without_a_cursor_is_incomplete(way):
    def edit(answer, _request):
        answer["balances"]["pageInfo"].update(startCursor="", endCursor="")

    walking = pages(LoopbackNode(HISTORY, edit_page=edit), **way)
    next(walking)
    with pytest.raises(IncompleteError, match="page 1 announces another but gives no cursor"):
        next(walking)


def test_a_bad_row_of_a_page_is_a_decode_error():
    node = LoopbackNode(HISTORY, edit_row=changing(30, balance="x"))
    with pytest.raises(DecodeError, match="balance 'x' is not an integer"):
        list(pages(node))


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"first": 1, "last": 1}, ValueError, "first .* or last"),
        ({"last": 1, "after": "x"}, ValueError, "first .* or last"),
        ({"before": "x", "after": "y"}, ValueError, "first .* or last"),
        ({"first": 1, "before": "x"}, ValueError, "first .* or last"),
        ({"first": 0}, ValueError, "first must be at least 1"),
        ({"last": 0}, ValueError, "last must be at least 1"),
        ({"first": "1"}, TypeError, "first must be a whole number"),
        ({"party_ids": "x"}, ValueError, "party id"),
        ({"start": "2024-01-01", "end": "2023-01-01"}, ValueError, "start must be before end"),
    ],
)
def test_a_mistake_about_pages_raises_at_the_call(arguments, kind, message):
    node = LoopbackNode(HISTORY)
    with pytest.raises(kind, match=message):
        pages(node, **arguments)
    assert node.requests == []


def limits(node):
    return load_network_limits(client_to(node))


def test_the_limits_come_typed_with_where_and_when_they_were_asked_for():
    before = pd.Timestamp.now("UTC")
    answer = limits(LoopbackNode(block_height=12))
    assert answer.can_propose_market is True
    assert answer.genesis_loaded is True
    assert answer.propose_asset_enabled_from == pd.Timestamp("2022-01-01", tz="UTC")
    assert before <= answer.fetched_at <= pd.Timestamp.now("UTC")
    assert (answer.source, answer.block_height) == (NOWHERE, 12)
    assert "canUseAmm" in answer.extra


def test_before_the_first_block_the_limits_are_a_request_error():
    with pytest.raises(RequestError, match="network limits not available") as caught:
        limits(LoopbackNode(limits=None))
    assert (caught.value.status, caught.value.code) == (404, 5)


def test_what_the_node_says_it_may_lack_is_logged_and_noted(caplog):
    middle = TIMES[len(TIMES) // 2]
    said = f"{TIMES[0] - 5000}-{TIMES[0] + 1000}, {middle}-{middle + 1000}"
    end = from_microseconds(TIMES[-1] // 1000)
    node = LoopbackNode(HISTORY, extra_headers={"X-Incomplete": said})
    table = load(node, end=end, page_size=7)
    stretches = [(start * 1000, end * 1000) for start, end in lacking(table.attrs[ATTRS_KEY])]
    assert stretches == [(TIMES[0] - 5000, TIMES[0] + 1000), (middle, middle + 1000)]
    assert caplog.text.count("says that it may lack rows of") == 1
