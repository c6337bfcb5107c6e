"""A load's known intervals are true, whatever nodes forget, lag or share, and it names the rest.

They reach from the oldest row of the node that sent the rows to the lowest last block.
"""

import contextlib
import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.archive.exporting import DAY, END, START, knowing, loaded, node_of, spread_history
from tests.cli.running import run
from tests.columns import ATTRS_KEY, known_of, lacking
from tests.loopback import LIMITS, Fault, Kind, LoopbackNode, histories, random_history, spoilt
from tests.moments import between, from_microseconds, moment_text, range_text
from tests.node.asking import NOWHERE, client_to, session_to
from tests.node.truth import lines_of_rows, lines_of_table, matching
from tests.serving import serving

ROWS = spread_history(21, rows=600, accounts=60, largest_block=12)
TIMES = sorted({row.time for row in ROWS})
LATER, MIDDLE = TIMES[30], TIMES[len(TIMES) // 2]
NEWEST = max(time for time in TIMES if time < MIDDLE)
QUIET = next(time - 2 for before, time in itertools.pairwise(TIMES) if time - before > 9)
PARTY = next(row.party_id for row in ROWS if row.party_id not in (ROWS[0].party_id, "network"))


def assert_true(table, truth=ROWS, **asked):
    """Check that a table has every true row of its known intervals."""
    held = set(lines_of_table(table))
    for start, end in known_of(table):
        assert asked.get("start", start) <= start < end <= asked.get("end", end)
        due = matching(truth, **{**asked, "start": start, "end": end})
        assert set(lines_of_rows(due)) <= held


def noted(table, name):
    return table.attrs[ATTRS_KEY][name]


LAGS = f"knows blocks only up to {moment_text(MIDDLE)}"
FORGOT = f"may have forgotten rows of {range_text(START, MIDDLE)}"
SILENT = f"its newest row is of {moment_text(NEWEST)}"
KNOWN = {
    "up to the last block": ({"head": MIDDLE}, {}, (START, MIDDLE), LAGS),
    "no end": ({"head": TIMES[-1]}, {"end": None}, (START, TIMES[-1]), ""),
    "forgotten": ({"since": MIDDLE}, {}, (MIDDLE, END), FORGOT),
    "no start": ({"since": MIDDLE}, {"start": None}, (MIDDLE, END), ""),
    "an older row of another account": (
        {}, {"start": START + 1, "party_ids": [PARTY]}, (START + 1, END), ""
    ),
    "forgotten, and no row of the account": (
        {"since": MIDDLE}, {"party_ids": ["f" * 64]}, (MIDDLE, END), FORGOT
    ),
    "no headers": ({"head": MIDDLE, "block_headers": False}, {}, (START, NEWEST), SILENT),
    "no headers, and a row at the end": (
        {"block_headers": False}, {"end": MIDDLE}, (START, MIDDLE), ""
    ),
}  # fmt: skip


@pytest.mark.parametrize(("node", "asked", "known", "said"), KNOWN.values(), ids=KNOWN)
def test_known_intervals_are_those_that_answers_prove_and_one_warning_names_the_rest(
    caplog, node, asked, known, said
):
    table = loaded(knowing(ROWS, **node), **asked)
    assert known_of(table) == (known,)
    assert caplog.text.count(said) == 1 if said else not caplog.text
    bounds = (asked.get("start", START) or known[0], asked.get("end", END) or known[1])
    for name, bound in zip(("start", "end"), bounds, strict=True):
        assert noted(table, name) == from_microseconds(bound).isoformat()
    assert bool(lacking(table.attrs[ATTRS_KEY])) == bool(said)


def test_a_failing_node_does_not_prove_a_forgetful_nodes_rows(caplog):
    """The first node is asked what it remembers, and is gone when the rows are."""

    def only_the_oldest_row(_, request):
        is_row = request.path != LIMITS and request.get("pagination.first") != "1"
        return Fault.status(503) if is_row else None

    with node_of(ROWS, faults=only_the_oldest_row) as deep, knowing(ROWS, MIDDLE) as shallow:
        table = loaded([deep, shallow])
    assert known_of(table) == ((MIDDLE, END),)
    assert caplog.text.count("going on with another address") == 1
    assert_true(table)


def test_a_node_whose_reach_is_unknown_is_asked_for_what_another_lacks():
    with knowing(ROWS, head=MIDDLE) as behind, knowing(ROWS, faults=[Fault.status(503)]) as late:
        table = loaded([behind, late])
    assert known_of(table) == ((START, END),)


@pytest.mark.parametrize("index", range(1, 8))
def test_rows_that_a_node_forgets_meanwhile_come_from_another_or_are_missed_aloud(index):
    def forget(number, _):
        if number >= index:
            forgetful.replace(matching(ROWS, start=MIDDLE))

    whole, forgetful = node_of(ROWS, head=END), node_of(ROWS, head=END + 1, faults=forget)
    with whole, forgetful, contextlib.suppress(ba.IncompleteError):
        table = loaded([whole, forgetful], start=TIMES[1], workers=1)
        assert lines_of_table(table) == lines_of_rows(matching(ROWS, start=TIMES[1]))


def test_time_whose_answers_come_too_late_is_not_proven():
    """The node that sends the rows forgot one, and the other is slow to find a year's newest."""
    rows = [ROWS[0]._replace(time=START + days * DAY) for days in (0, 200, 210)]
    start, end = START + 199 * DAY, START + 220 * DAY
    node = LoopbackNode(backends=[node_of(some, head=end) for some in (rows[2:], rows)])
    node.turns = (0, *[1] * 60)
    late, wide = Fault(Kind.STALLED), str(rows[1].time * 1000)
    node.faults = lambda n, x: late if n and x.get("dateRange.endTimestamp") > wide else None
    assert known_of(loaded(node, start, end, workers=1)) == ((rows[2].time, end),)


@pytest.mark.parametrize(("start", "more"), [(START, 0), (QUIET, 1)])
def test_proving_the_time_before_the_first_row_costs_one_more_row(start, more):
    node = node_of(ROWS)
    assert known_of(loaded(node, start, workers=1)) == ((start, END),)
    assert len(node.requests) == 1 + more


def test_a_bad_row_of_another_account_does_not_fail_a_load():
    spoil = spoilt(lambda row: row["partyId"] == ROWS[0].party_id)
    table = loaded(node_of(ROWS, edit_row=spoil), party_ids=[PARTY])
    assert known_of(table) == ((START, END),)


def test_without_block_headers_rows_from_before_a_node_caught_up_are_not_known():
    """It lags when it is asked for rows, and has caught up when it is asked again."""

    def catching_up(index, _):
        pages = [x for x in node.requests[:index] if x.get("pagination.first") != "1"]
        if len(pages) > 1:  # the first shows that it names no block
            node.replace(ROWS)

    node = knowing(ROWS, head=MIDDLE, block_headers=False, faults=catching_up)
    table = loaded(node, page_size=1000, workers=1)
    assert len(table) == len(matching(ROWS, end=MIDDLE))
    assert_true(table)


def test_a_node_that_does_not_answer_after_the_load_has_proven_only_its_pages(caplog):
    def gone(index, _):
        has_sent = any(x.get("pagination.first") != "1" for x in node.requests[:index])
        return Fault.status(503) if has_sent else None

    node = node_of(ROWS, faults=gone)
    table = loaded(node, start=START - 1, workers=1)
    assert len(table) == len(ROWS)
    assert known_of(table) == ((START, END),)
    assert "it is unknown whether the node has forgotten rows" in caplog.text


def test_rows_received_before_pruning_stay_proven():
    due = matching(ROWS, start=LATER)

    def forget(_share, rows):
        if rows < len(due):
            node.replace(due[rows:])

    node = node_of(ROWS)
    table = loaded(node, start=LATER, page_size=20, workers=1, progress=forget)
    assert len(node.rows) <= 20
    assert known_of(table) == ((LATER, END),)
    assert lines_of_table(table) == lines_of_rows(due)


def test_the_order_of_addresses_does_not_matter(caplog):
    """One remembers less, one lags, one names no block, and one is gone."""
    with (
        knowing(ROWS, TIMES[60]) as shallow,
        knowing(ROWS, head=MIDDLE) as behind,
        knowing(ROWS, head=TIMES[40], block_headers=False) as silent,
        LoopbackNode() as gone,
    ):
        gone.stop()
        nodes = [shallow, behind, silent, gone]
        for turn in range(len(nodes)):
            table = loaded([*nodes[turn:], *nodes[:turn]], START if turn else None, page_size=100)
            assert known_of(table) == ((START, END),)
            assert lines_of_table(table) == lines_of_rows(ROWS)
            assert gone.url not in noted(table, "steps_by_node")
    assert f"{behind.url} lags" in caplog.text


def origins(table):
    answers = json.loads(noted(table, "evidence"))["answers"]
    return {tuple(sorted(answer["node"]["origin"])) for answer in answers}


@pytest.mark.parametrize(
    ("header", "named"),
    [("10.0.0.1:3008, segments:test", ("10.0.0.1:3008", "segments:test")), ("", ())],
)
def test_a_served_archive_names_the_origins_of_its_answers(header, named):
    node = node_of(ROWS, extra_headers={"X-Origins": header})
    assert origins(loaded(node)) == {named}


ADDRESSES = [
    ("http://192.0.2.7", {}, ("192.0.2.7:80",)),
    ("http://[2001:DB8::1]:3008", {}, ("[2001:db8::1]:3008",)),
    *((f"http://{x}:1", {}, ("127.0.0.1:1",)) for x in ("127.0.0.2", "0.0.0.0", "[::1]")),
    ("https://localhost", {"trust_env": False}, ("127.0.0.1:443",)),
    ("https://localhost", {}, ()),
    ("http://192.0.2.7", {"proxies": {"http": "http://proxy.test"}}, ()),
]


@pytest.mark.parametrize(("url", "options", "named"), ADDRESSES)
def test_an_address_has_an_origin_unless_a_proxy_resolves_it(monkeypatch, url, options, named):
    monkeypatch.setenv("https_proxy", "http://proxy.test")
    monkeypatch.setenv("no_proxy", "")
    vars(session := session_to(node_of(ROWS))).update(options)
    session.mount(url, session.get_adapter(NOWHERE))
    client = ba.Client(url, session=session)
    assert origins(ba.load_balance_changes(client, end="2023-05-03")) == {named}


def test_a_bad_row_makes_its_moment_unknown_for_its_account_alone(caplog):
    bad = ROWS[300]
    moment, spoil = bad.time, spoilt(bad.to_json().__eq__)
    table = loaded(node_of(ROWS, edit_row=spoil), on_bad_rows="quarantine")
    assert known_of(table) == ((START, moment), (moment + 1, END))
    assert caplog.text.count("1 bad row set aside") == 1
    held = ba.balance_at(table, from_microseconds(END - 1))
    keys = held[[*ba.ACCOUNT_KEY]].astype(str).apply(tuple, axis=1)
    later = [row for row in ROWS if row.account == bad.account and row.order > bad.order]
    assert set(keys[held["balance"].isna()]) == (set() if later else {bad.account})


def test_a_bad_row_without_a_time_makes_its_step_unknown():
    spoil = spoilt(lambda row: row["timestamp"] == str(ROWS[300].time * 1000), timestamp="x")
    options = {"on_bad_rows": "quarantine", "page_size": 100, "workers": 1}
    table = loaded(node_of(ROWS, edit_row=spoil), **options)
    assert_true(table)
    assert 0 < sum(end - start for start, end in known_of(table)) < END - START


def test_a_loaded_archive_is_known_only_where_it_is_complete(caplog, whole):
    with serving(ba.Archive(whole)) as url:
        table = loaded(url, "2023-03-01", "2023-06-01")
    assert known_of(table) == ((START, END),)
    assert caplog.text.count("known to be complete") == 1


def test_a_stream_warns_at_its_end_about_unknown_time(caplog):
    with client_to(knowing(ROWS, head=MIDDLE)) as client:
        batches = list(ba.iter_balance_changes(client, **between(START, END)))
    assert sum(batch.num_rows for batch in batches) == len(matching(ROWS, end=MIDDLE))
    assert caplog.text.count("known to be complete") == 1


@pytest.mark.parametrize(("part", "code"), [({}, 0), ({"head": MIDDLE}, 3), ({"since": MIDDLE}, 3)])
def test_fetch_exits_with_3_unless_all_is_known(part, code, tmp_path):
    path = tmp_path / "x.parquet"
    bounds = ("--since", moment_text(START), "--until", moment_text(END))
    with knowing(ROWS, **part) as node:
        done = run("fetch", node.url, "-o", path, *bounds, code=code)
    assert ("the node may lack rows of the interval" in done.stderr) == (code == 3)
    assert "No row matches" not in done.stderr
    assert lines_of_table(ba.read_parquet(path)) == lines_of_rows(node.rows)


def stretched(history, days):
    """Return a history that takes as many days, if it took less."""
    if not history:
        return []
    begin, end = history[0].time, history[-1].time
    factor = max(1, days * DAY // max(end - begin, 1))
    return [row._replace(time=begin + (row.time - begin) * factor) for row in history]


OLDEST_FIRST = {"pagination.newestFirst": ["false"]}


@st.composite
def balancers(draw):
    """Return rows, a load's arguments, and an address that hands each request to another node."""
    rows = stretched(
        draw(histories(most_rows=120, most_accounts=12, largest_block=6)),
        draw(st.sampled_from([0, 300, 1000])),
    )
    times = sorted({row.time for row in rows}) or [1_680_307_200_000_000]
    nodes, are_whole = [], draw(st.booleans())
    for _ in range(draw(st.integers(1, 3))):
        since, until = draw(st.sampled_from(times)), draw(st.sampled_from(times))
        if are_whole or draw(st.booleans()):
            since, until = times[0], times[-1]
        headers = are_whole or draw(st.booleans())
        sets = {} if are_whole or draw(st.booleans()) else OLDEST_FIRST
        nodes.append(knowing(rows, since, until, block_headers=headers, sets=sets))
    turns = draw(st.lists(st.integers(0, 2), min_size=1, max_size=9))
    start = draw(st.sampled_from(times)) + draw(st.sampled_from([-DAY, -1, 0, 1]))
    asked = {"start": start, "end": times[-1] + DAY}
    for name in sorted(draw(st.sets(st.sampled_from(["asset_id", *LISTS]), max_size=2))):
        values = {getattr(row, name.removesuffix("s")) for row in rows} - {""}
        if values:
            value = draw(st.sampled_from(sorted(values)))
            asked[name] = value if name == "asset_id" else [value]
    if "party_ids" in asked and draw(st.booleans()):
        # More than fit into one request, or nobody who has a row.
        some = sorted({x.party_id for x in rows}) if draw(st.booleans()) else []
        asked["party_ids"] = [*(f"{n:064x}" for n in range(60)), *some]
    first, last = max(start, times[0]), times[-1]
    # A request whose range, of a year at most, has no row proves nothing; nor does one that names
    # markets, before the first row of a market.
    is_dense = all(later - earlier < 364 * DAY for earlier, later in itertools.pairwise(times))
    is_dense &= "market_ids" not in asked or any(x.market_id for x in rows if x.time == times[0])
    known = ((first, last),) if are_whole and is_dense and first < last else None
    return rows, asked, LoopbackNode(backends=nodes, turns=turns), known


LISTS = ("party_ids", "market_ids", "account_types")


@settings(max_examples=30)
@given(balancers(), st.sampled_from([3, 10, 1000]), st.integers(1, 3))
def test_known_is_never_false_for_nodes_at_one_address_and_everything_for_whole_ones(
    balancer, page_size, workers
):
    rows, asked, node, known = balancer
    try:
        table = loaded(node, **asked, page_size=page_size, workers=workers)
    except ba.IncompleteError:
        assert known is None
        return
    assert_true(table, rows, **asked)
    assert known in (None, known_of(table))


LONG = stretched(random_history(3, rows=400, accounts=30), 1000)
DAYS = sorted({row.time for row in LONG})
ONE, OTHER = sorted({row.party_id for row in LONG[:80]} - {"network"})[:2]
LATE = next(row.time for row in LONG[80:] if row.party_id == OTHER)
PARTIES = [ONE, *(f"{n:064x}" for n in range(59)), OTHER]
"""More than fit into one request: the last is asked for in another one."""


def holding(since=DAYS[0], head=DAYS[-1]):
    """Return a node of some of the rows."""
    return knowing(LONG, since, head)


OLDER = [LONG[0]._replace(time=DAYS[0] - 1, party_id=f"{n:064x}") for n in range(40)] + LONG
NAMELESS = [node_of(rows, block_headers=False) for rows in (LONG[:80], LONG)]
BEHIND = {
    "one that forgot and one that lags": (
        (0, 1), [holding(since=DAYS[6]), holding(head=DAYS[0] + 2)],
        {"start": DAYS[0] + 2, "end": DAYS[12]}, ((DAYS[6], DAYS[12]),),
    ),
    "one that forgot and one that lists its oldest rows first": (
        (0, 1), [holding(since=DAYS[6]), node_of(OLDER, head=DAYS[-1], sets=OLDEST_FIRST)],
        {"start": DAYS[2]}, None,
    ),
    "one that forgot a part of a list": (
        (0, 1, 1, 1, 1), [holding(), holding(since=LATE)], {"party_ids": PARTIES}, None
    ),
    "one that lags for a part of a list, and names no block": (
        (0, 1), NAMELESS, {"party_ids": PARTIES}, None
    ),
}  # fmt: skip
"""The order in which nodes behind an address answer, what is asked, and what is known then."""


@pytest.mark.parametrize(("turns", "nodes", "asked", "known"), BEHIND.values(), ids=BEHIND)
def test_a_node_does_not_prove_another_nodes_rows(turns, nodes, asked, known):
    asked = {"start": DAYS[0], "end": DAYS[-1], **asked}
    table = loaded(LoopbackNode(backends=nodes, turns=turns), **asked, workers=1)
    assert_true(table, LONG, **asked)
    assert len(table) < len(matching(LONG, **asked))
    assert known in (None, known_of(table))


def test_a_block_that_a_page_cuts_is_not_proven():
    # In a block, newest first, the other account's row comes first.
    one_each = (LONG[0]._replace(party_id=f"{number:064x}") for number in (1, 2))
    own, other = sorted(one_each, key=lambda row: row.account_id)
    rows = [own._replace(time=DAYS[n]) for n in (2, 5)]
    rows += [other._replace(time=DAYS[n]) for n in (0, 2, 3, 4)]
    forgetful = knowing(rows, DAYS[4] + 1, DAYS[9])
    whole = node_of(rows, head=DAYS[9], max_page_size=4, cap_silently=True)
    node = LoopbackNode(backends=[forgetful, whole], turns=(0, 0, 1, 1, 1, 1))
    table = loaded(node, start=DAYS[0], end=DAYS[9], party_ids=[own.party_id])
    assert known_of(table) == ((DAYS[2] + 1, DAYS[9]),)
