"""A node that uses one value of a filter's list is noticed, and no other is mistaken for one."""

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.archive.exporting import END, START, knowing, loaded, run_export, spread_history
from tests.columns import known_of
from tests.loopback import Fault, LoopbackNode, spoilt
from tests.node.truth import lines_of_rows, lines_of_table, matching
from tests.serving import serving

ROWS = spread_history(47, rows=400, largest_block=5)
TIMES = sorted({row.time for row in ROWS})
COLUMNS = {"party_ids": "party_id", "market_ids": "market_id", "account_types": "account_type"}
VALUES = {
    name: sorted({getattr(row, column) for row in ROWS} - {""}) for name, column in COLUMNS.items()
}
NOBODY = "f" * 64
PARTIES = Counter(row.party_id for row in ROWS if row.party_id != "network")
ONE, OTHER = (party for party, _ in PARTIES.most_common(2))
WITH_NOBODY = [{name: [VALUES[name][0], NOBODY]} for name in ("party_ids", "market_ids")]
SAID = "seems to use one value of a list"


def lists_of(name):
    values = st.sampled_from(VALUES[name])
    return st.lists(values, min_size=2, max_size=5, unique=True).map(lambda some: {name: some})


lists = st.one_of(map(lists_of, VALUES))


@given(
    lists,
    st.sampled_from([0, -1]),
    st.sampled_from([START, TIMES[20], TIMES[len(TIMES) // 2]]),
    st.sampled_from([7, 5000]),
    st.sampled_from([50, 5000]),
)
@settings(max_examples=10)
def test_a_node_that_uses_one_value_of_a_list_is_noticed(asked, place, start, page_size, most):
    node = knowing(ROWS, takes_one=place, max_page_size=most)
    with pytest.raises(ba.IncompleteError, match=SAID):
        loaded(node, start=start, page_size=page_size, **asked)
    ((name, values),) = asked.items()
    for value in values:
        table = loaded(node, start=start, **{name: value})
        due = matching(ROWS, start=start, **{name: [value]})
        assert lines_of_table(table) == lines_of_rows(due)


EDGE = TIMES.index(ROWS[-200].time)
"""Where the newest 200 rows begin."""


@given(
    st.sampled_from(TIMES[EDGE : EDGE + 6]).map(lambda head: {"head": head})
    | st.sampled_from(TIMES[-12:]).map(lambda since: {"since": since})
    | st.integers(1, 4).map(lambda size: {"max_page_size": size, "cap_silently": True}),
    st.booleans(),
    st.sampled_from([(0, 0, 1), (0, 1), (0, 1, 0, 0, 1)]) | st.tuples(*[st.integers(0, 1)] * 4),
    st.sampled_from([None, *TIMES[-12:]]),
    st.sampled_from(WITH_NOBODY),
)
@example({"head": TIMES[EDGE + 2]}, True, (0, 0, 1), None, WITH_NOBODY[1])
@example({"max_page_size": 1, "cap_silently": True}, True, (0, 0, 1), None, WITH_NOBODY[0])
@settings(max_examples=20)
def test_nodes_that_use_lists_are_never_refused_for_missing_or_bad_rows(
    lacks, headers, turns, bad, asked
):
    """Of two nodes behind one address, one lags, forgot, or sends short pages."""
    spoil = spoilt(lambda row: bad is not None and int(row["timestamp"]) >= bad * 1000)
    backends = [knowing(ROWS), knowing(ROWS, **lacks, block_headers=headers, edit_row=spoil)]
    said = ""
    try:
        loaded(LoopbackNode(backends=backends, turns=turns), on_bad_rows="quarantine", **asked)
    except (ba.IncompleteError, ba.RequestError) as error:
        said = str(error)
    assert SAID not in said


def test_a_node_that_stops_answering_after_the_rows_is_not_refused():
    gone = knowing(ROWS, faults=lambda index, _: Fault.status(503) if index else None)
    table = loaded(gone, party_ids=[ONE, NOBODY])
    assert lines_of_table(table) == lines_of_rows(matching(ROWS, party_ids=[ONE]))


def requests_for(**asked):
    node = knowing(ROWS)
    loaded(node, workers=1, **asked)
    return len(node.requests)


def test_a_list_costs_two_requests_if_fewer_than_two_of_its_values_have_rows():
    alone = requests_for(party_ids=[ONE])
    assert requests_for(party_ids=[ONE, OTHER]) == alone
    assert requests_for(party_ids=[ONE, NOBODY]) == alone + 2


@pytest.mark.parametrize("start", [START, START - 86_400_000_000])
def test_a_served_archive_uses_lists(tmp_path, start):
    run_export(knowing(ROWS), tmp_path / "a", start=START, end=END, party_ids=[ONE, OTHER])
    with serving(ba.Archive(tmp_path / "a")) as url:
        table = loaded(url, start=start, party_ids=[ONE, NOBODY])
    assert lines_of_table(table) == lines_of_rows(matching(ROWS, party_ids=[ONE]))


@pytest.mark.parametrize("order", [1, -1])
def test_each_address_that_sends_rows_is_checked(order):
    middle = TIMES[len(TIMES) // 2]
    with (
        knowing(ROWS, head=middle) as behind,
        knowing(ROWS, takes_one=0) as node,
        pytest.raises(ba.IncompleteError, match=f"{node.url} .*{SAID}"),
    ):
        loaded([behind, node][::order], party_ids=[ONE, OTHER])


def test_an_archive_from_a_node_that_uses_one_value_is_unproven_until_another_is_asked(tmp_path):
    asked, archive = {"party_ids": [ONE, OTHER]}, ba.Archive(tmp_path / "a")
    with pytest.raises(ba.IncompleteError, match=SAID):
        run_export(knowing(ROWS, takes_one=0), archive, start=START, end=END, **asked)
    assert archive.status().complete == ()
    run_export(knowing(ROWS), archive, start=START, end=END, **asked)
    table = archive.read()
    assert known_of(table) == ((START, END),)
    assert lines_of_table(table) == lines_of_rows(matching(ROWS, **asked))
