"""A load brings exactly the rows that a node has, or says what is wrong."""

import datetime as dt
import json
import re
import tempfile
from itertools import pairwise, product
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis.tables import table_from
from tests.columns import ARROW_SCHEMA, ATTRS_KEY, empty_table, known_of, lacking
from tests.loopback import CHANGES, Fault, Kind, LoopbackNode, histories, random_history, spoilt
from tests.moments import from_microseconds
from tests.node.asking import NOWHERE, client_to
from tests.node.truth import lines_of_rows, lines_of_table, matching

DAY_365 = 365 * 86_400 * 10**9
ALL = {"start": "2023-03-01", "end": "2023-12-01"}
UNKNOWN = "0" * 64

HISTORY = random_history(11, rows=120, accounts=40, largest_block=15)
TIMES = sorted({row.time for row in HISTORY})
PAGE = 20


SIZES = {"merge._PIECE": 7, "merge._BLOCKS": 3, "changes._BUFFER_ROWS": 3, "changes.ROW_GROUP": 40}
"""So that few rows make many parts, blocks and row groups."""


@pytest.fixture(scope="module", autouse=True)
def _small_parts():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("balance_analysis.table.schema.PART", 30)
        for name, size in SIZES.items():
            patch.setattr(f"balance_analysis.load.{name}", size)
        yield


def asked_too_often(index, _request):
    """Return a fault that ends a load which asks without end."""
    return Fault.code(400, 3, "asked too often") if index >= 3000 else None


def load(node, **arguments):
    """Load from a node that need not run; whole numbers are microseconds."""
    node.faults = node.faults or asked_too_often
    return ba.load_balance_changes(client_to(node), **spelt(arguments))


def spelt(arguments):
    """Return the arguments of a load, whose bounds may be microseconds."""
    given = {**ALL, **arguments}
    moments = {x: from_microseconds(given[x]) for x in ALL if type(given[x]) is int}
    return given | moments


def load_file(node, **arguments):
    """Load into a file, and read it."""
    with tempfile.TemporaryDirectory() as folder, client_to(node) as client:
        ba.load_to_parquet(client, Path(folder) / "x.parquet", **spelt(arguments))
        return ba.read_parquet(Path(folder) / "x.parquet")


def load_stream(node, **arguments):
    """Load batches, which are in time order, and make a table of them."""
    with client_to(node) as client:
        batches = list(ba.iter_balance_changes(client, **spelt(arguments)))
    assert all(batch.schema == ARROW_SCHEMA and batch.num_rows for batch in batches)
    times = [batch["timestamp"].to_pylist() for batch in batches]
    assert all(batch == sorted(batch) for batch in times)
    assert all(before[-1] < after[0] for before, after in pairwise(times))
    return table_from(pa.Table.from_batches(batches, ARROW_SCHEMA))


def assert_exact(table, rows):
    ba.check_table(table)
    assert lines_of_table(table) == lines_of_rows(rows)


def subset(values):
    return st.lists(st.sampled_from(sorted(values)), max_size=6)


@st.composite
def situations(draw, *, largest_block=30):
    """Return a history, and filters and a window around its rows."""
    history = draw(histories(most_rows=100, most_accounts=50, largest_block=largest_block))
    times = sorted({row.time for row in history}) or [1_680_307_200_000_000]
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
    offsets = st.sampled_from([-1, 0, 1, 1, 300_000])
    if draw(st.sampled_from([True, True, False])):
        start = draw(st.sampled_from(times)) + draw(offsets)
    if draw(st.booleans()):
        end = draw(st.sampled_from([time for time in times if time >= start] or times))
        end += draw(offsets)
    assume(start < end)
    return {"start": start, "end": end}


def none_follows(answer, request):
    """Mark a full page as the last one."""
    is_full = len(answer["balances"]["edges"]) == int(request.get("pagination.first"))
    answer["balances"]["pageInfo"]["hasNextPage"] &= not is_full


page_sizes = st.integers(1, 12) | st.integers(1, 1000)
releases = st.sampled_from(["v0.71", "v0.73", "v0.75", "v0.76", "v0.79"])
quirks = st.fixed_dictionaries(
    {
        "release": releases,
        "lossy_cursors": st.booleans(),
        "start_exclusive": st.booleans(),
        "end_inclusive": st.booleans(),
        "block_headers": st.booleans(),
        "edit_page": st.sampled_from([None, none_follows]),
    }
)
small_pages = st.fixed_dictionaries(
    {"max_page_size": st.integers(30, 60), "cap_silently": st.booleans()}
) | st.fixed_dictionaries({"max_answer_rows": st.integers(30, 60), "release": releases})


@given(
    st.tuples(situations(), quirks) | st.tuples(situations(largest_block=10), small_pages),
    page_sizes,
    st.integers(1, 4),
    st.sampled_from([load, load_file, load_stream]),
    st.booleans(),
)
@settings(max_examples=25)
def test_a_load_has_exactly_the_nodes_rows_and_openings(case, page_size, workers, way, opening):
    (history, query), options = case
    asked = {} if way is load_stream else {"opening": opening}
    table = way(
        LoopbackNode(history, **options),
        **{**query, **asked, "page_size": page_size, "workers": workers},
    )
    older = matching(history, **{**query, "start": None, "end": query["start"]})
    openings = {row.account: row for row in older} if asked.get("opening") else {}
    assert_exact(table, [*openings.values(), *matching(history, **query)])


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
    except ba.IncompleteError as error:
        named = int(re.search(r"the block at \S+ \((\d+) ns\)", str(error))[1])
        close = [row for row in history if abs(row.time * 1000 - named) <= 1000]
        assert len(close) >= largest
    else:
        assert_exact(table, history)


def test_a_large_file_has_row_groups_in_time_order_sorted_inside(tmp_path):
    with client_to(LoopbackNode(HISTORY)) as client:
        ba.load_to_parquet(client, tmp_path / "x", **ALL, page_size=PAGE, workers=1)
    with pq.ParquetFile(tmp_path / "x") as file:
        groups = [file.read_row_group(n).to_pylist() for n in range(file.num_row_groups)]
    assert len(groups) > 1
    times = [[row["timestamp"] for row in group] for group in groups]
    assert all(max(before) < min(after) for before, after in pairwise(times))
    for group in groups:
        accounts = [[row[name] for name in ba.ACCOUNT_KEY] for row in group]
        assert accounts == sorted(accounts)
    assert_exact(ba.read_parquet(tmp_path / "x"), HISTORY)


def test_workers_do_not_multiply_the_requests():
    alone, together = LoopbackNode(HISTORY), LoopbackNode(HISTORY)
    load(alone, page_size=5, workers=1)
    load(together, page_size=5, workers=4)
    assert len(together.requests) <= 10 * len(alone.requests) + 50


def test_the_recording_is_loaded_exactly(recorded_rows):
    table = load(LoopbackNode(recorded_rows), start=None, end="2027-01-01", page_size=7)
    assert_exact(table, recorded_rows)


@given(histories(most_rows=20, most_accounts=10), st.integers(0, 6 * 366), st.integers(1, 4))
@settings(max_examples=8)
def test_both_bounds_are_sent_at_most_365_days_apart(history, days, workers):
    start = dt.date(2020, 1, 1) + dt.timedelta(days)
    node = LoopbackNode(history)
    load(node, start=start, end="2026-06-01T00:00:00.000001Z", workers=workers)
    for request in node.requests:
        first, last = (int(request.get(f"dateRange.{name}Timestamp")) for name in ("start", "end"))
        assert 0 <= last - first <= DAY_365


@pytest.mark.parametrize("release", ["v0.71", "v0.76"])
def test_without_a_start_and_a_row_the_table_is_empty(release):
    table = load(LoopbackNode(release=release), start=None)
    pd.testing.assert_frame_equal(table, empty_table())
    info = table.attrs[ATTRS_KEY]
    assert info["start"] == info["end"]


def test_the_default_end_is_the_moment_before_the_first_request():
    before = pd.Timestamp.now("UTC")
    node = LoopbackNode(HISTORY, block_timestamp=4_000_000_000 * 10**9)
    table = load(node, end=None)
    end = pd.Timestamp(table.attrs[ATTRS_KEY]["end"])
    assert before <= end <= pd.Timestamp.now("UTC")
    assert_exact(table, HISTORY)
    assert str(end.value) in {request.get("dateRange.endTimestamp") for request in node.requests}


def test_long_lists_are_split_into_short_urls():
    *parties, _ = ids = [f"{number:064x}" for number in range(301)]
    rows = [HISTORY[0]._replace(time=TIMES[n % 7], party_id=party) for n, party in enumerate(ids)]
    node = LoopbackNode(rows)
    table = load(node, party_ids=parties, page_size=60, workers=2)
    assert_exact(table, matching(rows, party_ids=parties))
    assert max(request.url_length for request in node.requests) < 8192


MEASURED = {"seconds", "bytes", "rows_per_second", "account_rows", "evidence"}


def test_a_table_describes_its_load():
    node = LoopbackNode(HISTORY, block_height=9, block_timestamp=TIMES[-1] * 1000)
    table = load(node, account_types="general", page_size=PAGE, workers=1)
    note = table.attrs[ATTRS_KEY]
    steps = [x for x in node.requests if x.get("pagination.first") == str(PAGE)]
    assert note.keys() >= MEASURED
    assert min(note["seconds"], note["rows_per_second"]) > 0
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
        "block_time": from_microseconds(TIMES[-1]).isoformat(),
        "known": [[from_microseconds(at).isoformat() for at in (TIMES[0], TIMES[-1])]],
        "quarantined": [],
    }


@pytest.mark.parametrize("workers", [1, 3])
def test_progress_grows_to_1_and_to_all_rows(workers):
    seen = []
    options = {"page_size": PAGE, "workers": workers}
    load(LoopbackNode(HISTORY), **options, progress=lambda *said: seen.append(said))
    assert seen == sorted(seen)
    assert seen[-1] == (1.0, len(HISTORY))


def test_an_error_in_the_callers_progress_function_ends_the_load():
    with pytest.raises(ZeroDivisionError):
        load(LoopbackNode(HISTORY), page_size=2, workers=3, progress=lambda *_: 1 / 0)


LOADS = [
    ba.load_balance_changes,
    ba.iter_balance_changes,
    lambda client, **how: ba.load_to_parquet(client, tempfile.gettempdir() + "/x.none", **how),
]
MISTAKES = [
    ({"start": "2023-01-02", "end": "2023-01-02"}, ValueError, "start must be before end"),
    ({"start": "2023-01-02", "end": "2023-01-01"}, ValueError, "start must be before end"),
    ({"party_ids": "x"}, ValueError, "party id 'x'"),
]
OF_LOADS = [
    ({"start": "2999-01-01T", "end": None}, ValueError, "ISO 8601"),
    ({"start": "2100-01-01", "end": None}, ValueError, "start must be before end"),
    ({"page_size": 0}, ValueError, "page_size must be at least 1, not 0"),
    ({"page_size": 1.5}, TypeError, "page_size must be a whole number, not 1.5"),
    ({"page_size": True}, TypeError, "page_size must be a whole number, not True"),
    ({"workers": 0}, ValueError, "workers must be at least 1, not 0"),
    ({"on_bad_rows": "skip"}, ValueError, "on_bad_rows must be .* not 'skip'"),
    ({"account_types": "generel"}, ValueError, "did you mean GENERAL"),
    ({"start": 5}, TypeError, "a moment is a"),
    ({"assets": "none.toml"}, FileNotFoundError, r"none\.toml"),
]
OF_PAGES = [
    ({"first": 1, "last": 1}, ValueError, "first .* or last"),
    ({"last": 1, "after": "x"}, ValueError, "first .* or last"),
    ({"before": "x", "after": "y"}, ValueError, "first .* or last"),
    ({"first": 1, "before": "x"}, ValueError, "first .* or last"),
    ({"first": 0}, ValueError, "first must be at least 1"),
    ({"last": 0}, ValueError, "last must be at least 1"),
    ({"first": "1"}, TypeError, "first must be a whole number"),
]
EVERY = [*product(LOADS, MISTAKES + OF_LOADS), *product([ba.iter_pages], MISTAKES + OF_PAGES)]


@pytest.mark.parametrize(("way", "mistake"), EVERY)
def test_a_callers_mistake_raises_at_the_call_and_before_the_first_request(way, mistake):
    node, (arguments, kind, message) = LoopbackNode(HISTORY), mistake
    with pytest.raises(kind, match=message):
        way(client_to(node), **{**ALL, **arguments})
    assert node.requests == []


def test_faults_that_pass_leave_no_trace_in_the_table():
    kinds = [Kind.RESET, Kind.HALF_JSON, Kind.TRUNCATED]
    slow = [Fault(Kind.STALLED, 5), Fault(Kind.STALLED, 0.1), Fault.banned(20)]
    faults = [*map(Fault, kinds), None, Fault.html(502), None, *slow, Fault.status(503)]
    with LoopbackNode(HISTORY, faults=faults) as node, ba.Client(node.url, timeout=0.5) as client:
        table = ba.load_balance_changes(client, **ALL, page_size=PAGE)
    assert_exact(table, HISTORY)


@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize(
    ("fault", "says"),
    [(Fault.status(503), "answered 503"), (Fault(Kind.TRUNCATED), "can't be reached|broke off")],
)
def test_a_lasting_fault_never_leaves_a_short_table(fault, says, at):
    node = LoopbackNode(HISTORY, faults=lambda index, _: fault if index >= at else None)
    with pytest.raises(ba.RequestError, match=says) as caught:
        load(node, page_size=PAGE)
    assert caught.value.url.startswith(f"{NOWHERE}{CHANGES}?")


def on_edges(edit):
    """Return an edit of a page from a change of its edges."""
    return lambda answer, request: edit(answer["balances"]["edges"], request)


def empty_with_next(answer, request):
    if request.index >= 2:
        answer["balances"]["edges"] = []
        answer["balances"]["pageInfo"]["hasNextPage"] = True


def swap(edges, _request):
    for place in range(len(edges) - 1):
        if edges[place]["node"]["timestamp"] != edges[place + 1]["node"]["timestamp"]:
            edges[place], edges[place + 1] = edges[place + 1], edges[place]
            return


def outside(name, place, step):
    def move(edges, request):
        if edges:
            bound = int(request.get(f"dateRange.{name}Timestamp"))
            edges[place]["node"]["timestamp"] = str(bound + step)

    return move


def at_the_restart(change):
    """Return an edit of the block at which a request restarts."""

    def edit(edges, request):
        first = str(int(request.get("dateRange.startTimestamp")) + 1000)
        block = [edge for edge in edges if edge["node"]["timestamp"] == first]
        edges[: len(block)] = change(block)

    return on_edges(edit)


def with_more(block):
    for edge in block[:1]:
        edge["node"]["balance"] += "7"
    return block


def repeat(change):
    def insert(edges, _request):
        if edges:
            copy = json.loads(json.dumps(edges[0]))
            copy["node"]["balance"] += change
            edges.insert(0, copy)

    return insert


def wide_block(size):
    own = HISTORY[0]._replace(time=TIMES[10])
    block = [own._replace(party_id=f"{number:064x}", balance=number) for number in range(size)]
    return sorted([*HISTORY, *block], key=lambda row: row.order)


PARTIES = [f"{number:064x}" for number in range(55)]
WIDE = wide_block(55)
LOST = next(row.party_id for row in WIDE if row.party_id in PARTIES)


def is_part(request):
    return len(request.params.get("filter.partyIds", PARTIES)) < 55


def refuse_a_half(_, request):
    refused = is_part(request) and PARTIES[-1] in request.params["filter.partyIds"]
    return Fault.code(400, 3) if refused else None


def lose_in_parts(edges, request):
    if is_part(request):
        edges[:] = [edge for edge in edges if edge["node"]["partyId"] != LOST]


FILTERS = {
    "filter.assetId": {"asset_id": HISTORY[0].asset_id},
    "filter.partyIds": {"party_ids": HISTORY[0].party_id},
    "filter.marketIds": {"market_ids": next(x.market_id for x in HISTORY if x.market_id)},
    "filter.accountTypes": {"account_types": HISTORY[0].account_type},
}
NO_ORDER = {"ignores": ["pagination.newestFirst"]}
SMALL = {"rows": WIDE, "max_page_size": 20}
BY_PARTY = {"party_ids": PARTIES}
BLOCK = {"start": TIMES[10], "end": TIMES[10] + 1}
NAMED = rf"the block at .* \({TIMES[10]}000 ns\) holds more"
UNORDERED = "came out of order in .*2023-"
WRONG = {
    "a next page of none": ({"edit_page": empty_with_next}, {}, "announced more rows .* sent none"),
    "reversed": ({"edit_page": on_edges(lambda edges, _: edges.reverse())}, {}, UNORDERED),
    "two swapped": ({"edit_page": on_edges(swap)}, {}, UNORDERED),
    "a row before": (
        {"edit_page": on_edges(outside("start", 0, -1000))}, {}, "misreads the range"
    ),
    "a row after": ({"edit_page": on_edges(outside("end", -1, 1000))}, {}, "misreads the range"),
    **{
        f"a restart with {name}": ({"edit_page": at_the_restart(change)}, {}, "begins there, lacks")
        for name, change in {
            "no row": lambda _: [], "a row less": lambda block: block[1:], "more held": with_more
        }.items()
    },
    **{
        name: ({"ignores": [name]}, asked, "ignores or misreads that filter")
        for name, asked in FILTERS.items()
    },
    **{
        f"no order, {size} rows a page, headers: {headers}": (
            {**NO_ORDER, "block_headers": headers}, {"page_size": size}, "."
        )
        for size in (1, 2, 3) for headers in (True, False)
    },
    "no order, no start": (NO_ORDER, {"start": None}, "each older than the one before"),
    "parts that lack a row": (
        {**SMALL, "edit_page": on_edges(lose_in_parts)}, BY_PARTY, "the block at"
    ),
    "a block": (SMALL, BLOCK, NAMED),
    "a block, silently": ({**SMALL, "cap_silently": True}, BLOCK, NAMED),
    "a block, exact cursors": ({**SMALL, "lossy_cursors": False}, BLOCK, NAMED),
    # The same from both ends: the two pages meet, and lack the following rows.
    "a block without order": ({**SMALL, **NO_ORDER}, BLOCK, NAMED),
}  # fmt: skip


@pytest.mark.parametrize(("options", "asked", "says"), WRONG.values(), ids=WRONG)
def test_answers_that_do_not_add_up_are_incomplete(options, asked, says):
    with pytest.raises(ba.IncompleteError, match=says):
        load(LoopbackNode(**{"rows": HISTORY, **options}), **{"page_size": PAGE, **asked})


def test_a_refused_half_is_not_taken_for_empty():
    with pytest.raises(ba.RequestError, match="answered 400"):
        load(LoopbackNode(**SMALL, faults=refuse_a_half), page_size=PAGE, **BY_PARTY)


@pytest.mark.parametrize("asked", [{}, {"start": "2023-11-01", "opening": True}])
def test_a_conflicting_duplicate_is_a_check_error_with_its_rows(asked):
    rows = [row._replace(balance=5) for row in HISTORY]
    node = LoopbackNode(rows, edit_page=on_edges(repeat("1")))
    with pytest.raises(ba.CheckError, match="conflicting duplicates") as caught:
        load(node, page_size=PAGE, **asked)
    assert set(map(int, caught.value.rows["balance"])) == {5, 51}


def slow(_, request):
    return Fault(Kind.STALLED, 9) if int(request.get("pagination.first")) > PAGE else None


def refuse_pages(_, request):
    return None if request.get("pagination.first") == "1" else Fault.code(400, 3)


NEWER = [
    row._replace(account_type="ACCOUNT_TYPE_NEWER") if number % 3 else row
    for number, row in enumerate(HISTORY)
]
RESOLVED = {
    "identical duplicates": (HISTORY, {"edit_page": on_edges(repeat(""))}, {}),
    "no page size of 1": (HISTORY, {"ignores": ["pagination.first"]}, {"page_size": 1}),
    "no page size": (HISTORY, {"ignores": ["pagination.first"]}, {}),
    "a block from both ends": (wide_block(35), {"max_page_size": 20}, {}),
    "capped silently": (wide_block(35), {"max_page_size": 20, "cap_silently": True}, {}),
    "a block in time": (wide_block(35), {"faults": slow}, {}),
    "pages in time": (HISTORY, {"faults": slow}, {"page_size": 100}),
    "a larger page": (wide_block(200), {"release": "v0.71"}, {}),
    "by parties": (WIDE, {"max_page_size": 20}, BY_PARTY),
    "single rows": (random_history(2, rows=9, largest_block=1), {"faults": refuse_pages}, {}),
    "a newer account type": (
        NEWER, {}, {"account_types": ["new:ACCOUNT_TYPE_NEWER", "ACCOUNT_TYPE_GENERAL"]}
    ),
    # The node is asked beyond the end, and sends its newest row first.
    "no order, no headers, and no row at the start": (
        HISTORY, {**NO_ORDER, "block_headers": False},
        {"start": TIMES[10] + 1, "end": TIMES[12], "page_size": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "options", "asked"), RESOLVED.values(), ids=RESOLVED)
def test_resolvable_quirks_are_loaded_exactly(rows, options, asked):
    table = load(LoopbackNode(rows, **options), **{"page_size": PAGE, **asked})
    chosen = {
        name: [x.removeprefix("new:") for x in value] if isinstance(value, list) else value
        for name, value in asked.items()
        if name != "page_size"
    }
    assert_exact(table, matching(rows, **chosen))


@pytest.mark.parametrize("options", [{"max_answer_rows": 30}, {"faults": slow}])
def test_answers_that_are_too_large_or_slow_are_requested_in_smaller_pages(options):
    node = LoopbackNode(HISTORY, **options)
    assert_exact(load(node, page_size=100), HISTORY)
    asked = [str(request.params) for request in node.requests]
    assert 1 < len(asked) == len(set(asked))


@given(
    st.sets(st.integers(0, len(HISTORY) - 1)),
    st.sampled_from([{"balance": "9" * 39}, {"partyId": None}]),
    st.lists(st.sampled_from([*TIMES, TIMES[-1] + 1]), min_size=2, max_size=2, unique=True),
    st.tuples(st.integers(2, 40), st.integers(1, 3), st.booleans()),
    st.sampled_from([load, load_file]),
)
@settings(max_examples=12)
def test_bad_rows_are_raised_or_set_aside_once_each_and_their_moments_are_unknown(
    places, change, bounds, how, way
):
    page_size, workers, is_inclusive = how
    start, end = sorted(bounds)
    bad = [row for place, row in enumerate(HISTORY) if place in places]
    spoil = spoilt(lambda row: row in [each.to_json() for each in bad], **change)
    options = {"edit_row": spoil, "end_inclusive": is_inclusive, "block_timestamp": 2**61}
    asked = {"start": start, "end": end, "page_size": page_size, "workers": workers}
    inside = matching(bad, start=start, end=end)
    bad_rows = sorted(json.dumps({**row.to_json(), **change}) for row in inside)
    if inside:
        with pytest.raises(ba.DecodeError) as caught:
            way(LoopbackNode(HISTORY, **options), **asked)
        assert json.dumps(json.loads(caught.value.row)) in bad_rows
    table = way(LoopbackNode(HISTORY, **options), **asked, on_bad_rows="quarantine")
    rows = matching(HISTORY, start=start, end=end)
    assert_exact(table, [row for row in rows if row not in inside])
    aside = table.attrs[ATTRS_KEY]["quarantined"]
    assert all(one["reason"] for one in aside)
    assert sorted(json.dumps(json.loads(one["row"])) for one in aside) == bad_rows
    moments = sorted({row.time for row in inside})
    edges = [start, *(edge for moment in moments for edge in (moment, moment + 1)), end]
    known = zip(edges[::2], edges[1::2], strict=True)
    if not is_inclusive:
        assert known_of(table) == tuple((since, until) for since, until in known if since < until)


def test_stretches_that_a_node_says_it_may_lack_are_logged_and_noted(caplog):
    middle = TIMES[len(TIMES) // 2]
    stretches = [(TIMES[0] - 5, TIMES[0] + 1), (middle, middle + 1)]
    said = ", ".join(f"{start}000-{end}000" for start, end in stretches)
    node = LoopbackNode(HISTORY, extra_headers={"X-Incomplete": said})
    table = load(node, end=TIMES[-1], page_size=7)
    assert lacking(table.attrs[ATTRS_KEY]) == stretches
    assert caplog.text.count("says that it may lack rows of") == 1


def pages(node, **arguments):
    return ba.iter_pages(client_to(node), **spelt(arguments))


def lines_in_order(walked):
    return [line for page in walked for line in lines_of_table(page.table)]


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("size", [25, 1000])
@pytest.mark.parametrize(("way", "back"), [("first", "after"), ("last", "before")])
def test_pages_have_every_row_once_in_the_lists_order(way, back, size, newest_first):
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
    for count in range(3):
        assert len(node.requests) == count
        next(walking)


def test_an_empty_list_is_one_empty_page():
    (page,) = pages(LoopbackNode())
    pd.testing.assert_frame_equal(page.table, empty_table())
    assert (page.start_cursor, page.end_cursor) == ("", "")


def test_pages_without_a_start_begin_at_the_oldest_row():
    walked = pages(LoopbackNode(HISTORY, lossy_cursors=False), start=None, first=50)
    assert sorted(lines_in_order(walked)) == lines_of_rows(HISTORY)


CURSOR = "eyJ2ZWdhX3RpbWUiOiAwLCAiQWNjb3VudElEIjogbnVsbH0="


@pytest.mark.parametrize("way", [{"first": 10}, {"last": 10}], ids=["forward", "backward"])
@pytest.mark.parametrize(
    ("cursor", "says"),
    [
        (CURSOR, f"cursor {CURSOR!r} came back on page 2"),
        ("", "page 1 announces another but gives no cursor"),
    ],
)
def test_a_repeated_or_missing_cursor_is_an_incomplete_error(cursor, says, way):
    def edit(answer, _request):
        info = answer["balances"]["pageInfo"]
        info.update(dict.fromkeys(("startCursor", "endCursor"), cursor))
        info.update(dict.fromkeys(("hasNextPage", "hasPreviousPage"), True))

    walking = pages(LoopbackNode(HISTORY, edit_page=edit), **way)
    next(walking)
    with pytest.raises(ba.IncompleteError, match=says):
        list(walking)


def test_a_bad_row_in_a_page_is_a_decode_error():
    node = LoopbackNode(HISTORY, edit_row=spoilt(bool))
    with pytest.raises(ba.DecodeError, match="balance 'x' is not an integer"):
        list(pages(node))
