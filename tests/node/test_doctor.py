"""The doctor asks a node gently, and says what it couldn't find out."""

import dataclasses
import datetime as dt
import json
import time
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.loopback import Fault, Kind, LoopbackNode, histories, random_history, spoilt
from tests.moments import from_microseconds
from tests.node.asking import client_to
from tests.waits import sleeping

ROWS = random_history(1)
MOST_REQUESTS = 40
NAMES = ("reachable", "reach", "cursors", "timestamps", "lists")
VERDICTS = {"ok", "note", "warning", "unknown"}


def diagnose(rows=ROWS, **options):
    """Return the report on a node; whatever the node does, the report keeps its promises."""
    with client_to(node := LoopbackNode(rows, **options)) as client:
        report = ba.diagnose_node(client)
    assert len(node.requests) == report.requests <= MOST_REQUESTS
    assert tuple(finding.name for finding in report.findings) == NAMES
    assert {finding.verdict for finding in report.findings} <= VERDICTS
    assert all(finding.explanation for finding in report.findings)
    content = json.loads(report.to_json())
    assert content["findings"] == [dataclasses.asdict(finding) for finding in report.findings]
    assert max(map(len, str(report).splitlines())) <= 100
    assert str(report).replace("\n", "").isprintable()
    for request in node.requests:
        # Without both bounds, a node that checks nothing may read its whole table.
        bounds = (request.get(f"dateRange.{name}Timestamp") for name in ("start", "end"))
        assert "limits" in request.path or all(bounds), request
    return report


@example(ROWS[:2], False)
@given(histories(), st.booleans())
@settings(max_examples=10)
def test_the_verdict_on_cursors_is_right_for_any_history(rows, lossy):
    cursors = diagnose(rows, lossy_cursors=lossy)["cursors"]
    blocks = Counter(row.time for row in rows)
    if len(rows) < 2:
        assert cursors.verdict == "unknown"
    elif not lossy:
        assert (cursors.value["lost"], cursors.value["twice"]) == (0, 0)
        assert cursors.verdict == ("ok" if cursors.value["cuts"] else "unknown")
        size, times = cursors.value["page_size"], [row.time for row in reversed(rows)]
        ends = range(size, cursors.value["rows"], size)
        assert cursors.value["rows"] == len(rows) or len(rows) >= 200
        assert cursors.value["cuts"] == sum(times[end - 1] == times[end] for end in ends)
    elif cursors.value and cursors.value["cuts"]:
        assert cursors.verdict == "warning"
        assert cursors.value["lost"] > 0
    if 1 < len(rows) <= 200 and max(blocks.values()) > 1:
        assert cursors.value["cuts"] > 0


def in_units(nanoseconds):
    """Return an edit that sends a row's time in another unit."""
    return lambda row: {**row, "timestamp": str(int(row["timestamp"]) // nanoseconds)}


ignored = st.sampled_from(["dateRange", "filter", "pagination.after", "pagination.newestFirst"])


@given(
    histories(most_rows=60),
    st.fixed_dictionaries(
        {},
        optional={
            "release": st.sampled_from(["v0.71", "v0.73", "v0.75", "v0.76"]),
            "lossy_cursors": st.booleans(),
            "max_page_size": st.integers(1, 400),
            "cap_silently": st.booleans(),
            "start_exclusive": st.booleans(),
            "end_inclusive": st.booleans(),
            "ignores": st.sets(ignored).map(tuple),
            "edit_row": st.none() | st.sampled_from([1, 10**3, 10**9]).map(in_units),
            "limits": st.none() | st.dictionaries(st.text(max_size=3), st.integers()),
            "block_timestamp": st.integers(0, 2**66),
            "max_answer_rows": st.integers(1, 300),
        },
    ),
)
@settings(max_examples=12)
def test_any_node_gets_a_report(rows, options):
    diagnose(rows, **options)


def of_sample(edit):
    """Return an edit of the edges of pages of 200 rows, newest first."""

    def edit_page(answer, request):
        edges = answer["balances"]["edges"]
        if len(edges) == 200 and request.get("pagination.newestFirst") == "true":
            edit(edges)

    return edit_page


EXACT = {"lossy_cursors": False}
LAST = sum(row.time == ROWS[-1].time for row in ROWS)
SWAPPED = of_sample(lambda edges: edges.insert(LAST - 1, edges.pop(LAST)))
CUT_ELSEWHERE = of_sample(lambda edges: edges[-1]["node"].update(partyId="f" * 64))
"""The sample's last row is one that smaller pages have after others of its block."""
PARTS = spoilt(bool, timestamp="1680307200000000001")
"""Sends a time that is no whole number of microseconds."""
VERDICT_OF = [
    ("timestamps", "warning", {"edit_row": PARTS}),
    *(("timestamps", "warning", {"edit_row": in_units(unit)}) for unit in (10**3, 10**9)),
    *(
        ("timestamps", "warning", {"ignores": [name]})
        for name in ("pagination.newestFirst", "dateRange", "dateRange.endTimestamp")
    ),
    ("timestamps", "warning", {"edit_page": SWAPPED}),
    ("cursors", "ok", {**EXACT, "edit_page": CUT_ELSEWHERE}),
    ("cursors", "warning", {"ignores": ["pagination.after"]}),
    *(("lists", "warning", {"takes_one": place}) for place in (0, -1)),
    ("cursors", "warning", {}),
    *(
        (name, "ok", {**EXACT, **options})
        for name in ("timestamps", "cursors", "lists")
        # As a load allows for any of these readings of a range.
        for options in ({}, {"start_exclusive": True}, {"end_inclusive": True})
    ),
    ("lists", "ok", {"rows": [row._replace(time=ROWS[0].time) for row in ROWS]}),
    *(("reachable", "note", {"limits": limits}) for limits in (None, {"canProposeMarket": "yes"})),
]


@pytest.mark.parametrize(("name", "verdict", "options"), VERDICT_OF)
def test_a_quirk_has_its_verdict(name, verdict, options):
    assert diagnose(**options)[name].verdict == verdict


@pytest.mark.parametrize("value", [None, {}, 7, "", "9" * 19, "9" * 30])
@pytest.mark.parametrize("name", ["timestamp", "accountType", "balance"])
def test_rows_that_violate_the_interface_are_reported(name, value):
    report = diagnose(ROWS[:60], edit_row=lambda row: {**row, name: value})
    assert report["timestamps"].value is not None


@pytest.mark.parametrize(
    ("seconds", "verdict", "said"), [(3, "ok", "last block is 1234"), (7200, "warning", "2 hours")]
)
def test_the_reach_is_from_the_oldest_row_to_the_last_block(seconds, verdict, said):
    last = time.time_ns() - seconds * 10**9
    reach = diagnose(block_height=1234, block_timestamp=last)["reach"]
    assert reach.value["start"] == "2023-04-01T00:00:00+00:00"
    assert reach.value["height"] == 1234
    assert seconds <= reach.value["lag_seconds"] < seconds + 57
    assert reach.verdict == verdict
    assert said in reach.explanation


@pytest.mark.parametrize("timestamp", [0, 5, 2**62, 10**40])
def test_without_a_last_block_of_a_possible_time_the_newest_row_is_the_head(timestamp):
    reach = diagnose(block_timestamp=timestamp)["reach"]
    newest = max(row.time for row in ROWS)
    assert reach.value["end"] == from_microseconds(newest).isoformat()
    assert reach.value["height"] is None


def test_a_nodes_text_cant_control_the_terminal():
    fault = Fault.code(400, 3, "\x1b[2J\nevil")
    text = str(diagnose(faults=lambda _, request: None if "limits" in request.path else fault))
    assert "\x1b" not in text
    assert "evil" in text


@pytest.mark.parametrize("release", ["v0.71", "v0.75"])
def test_an_empty_node_gets_an_honest_report(release):
    report = diagnose([], release=release, limits=None)
    assert report["reachable"].value == {"changes": True, "limits": False}
    for name in NAMES[1:]:
        assert report[name].verdict == "unknown"
        assert "no row with a readable time since 2020" in report[name].explanation


def test_a_refusal_as_too_many_slows_requests_down():
    waits = []
    with sleeping(waits.append):
        report = diagnose(faults=[None, Fault.rate_limited(1)])
    assert any(wait == pytest.approx(1, abs=0.1) for wait in waits)
    assert report["cursors"].verdict == "warning"


def test_a_ban_leaves_the_rest_unknown():
    report = diagnose(faults=lambda index, _: Fault.banned(600) if index > 5 else None)
    assert report.requests <= 12
    assert "600 s" in " ".join(finding.explanation for finding in report.findings)


@given(st.integers(0, 24))
@settings(max_examples=3)
def test_a_passing_fault_changes_no_finding(index):
    def fault(i, _):
        return Fault(Kind.RESET) if i == index else None

    disturbed, calm = diagnose(faults=fault), diagnose()
    for name in ("reachable", "cursors", "timestamps"):
        assert disturbed[name] == calm[name]


@pytest.mark.parametrize(
    "fault", [Fault.status(503), Fault.code(500, 13), Fault.html(200), Fault.html(502)]
)
def test_a_failing_check_does_not_stop_the_rest(fault):
    report = diagnose(faults=lambda _, request: fault if request.get("pagination.after") else None)
    verdicts = {finding.name: finding.verdict for finding in report.findings}
    assert verdicts["cursors"] == "unknown"
    assert (verdicts["reachable"], verdicts["timestamps"]) == ("ok", "ok")


@pytest.mark.parametrize(
    "fault",
    [
        *map(Fault.html, (200, 404, 502)),
        Fault.status(503),
        Fault.banned(600),
        Fault.rate_limited(0),
        Fault.answer(404, '{"message": "Not Found"}'),
    ],
)
def test_an_address_without_a_node_raises(fault):
    node = LoopbackNode(ROWS, faults=lambda _i, _r: fault)
    with client_to(node) as client, pytest.raises(ba.RequestError):
        ba.diagnose_node(client)
    assert len(node.requests) <= 8


def test_the_package_s_own_service_is_trusted(sample_node):
    with ba.Client(sample_node) as client:
        report = ba.diagnose_node(client)
    # Its last block is of long ago.
    assert [finding.verdict for finding in report.findings] == ["ok", "warning", "ok", "ok", "ok"]
    assert report["cursors"].value["cuts"] > 0
    assert report.requests <= MOST_REQUESTS


def text_of(*findings):
    return str(ba.NodeReport("http://n", dt.datetime(2023, 4, 1, 12, tzinfo=dt.UTC), 3, findings))


def test_the_table_shows_warnings_without_colour():
    lost = ba.Finding("cursors", None, "warning", "Rows are lost.")
    assert text_of(ba.Finding("timestamps", 1, "ok", "Fine."), lost) == (
        "http://n, 2023-04-01T12:00Z, 3 requests\n"
        "\n"
        "ok       timestamps  Fine.\n"
        "WARNING  cursors     Rows are lost."
    )


@given(st.text(min_size=1, max_size=400))
def test_the_table_is_never_wider_than_a_hundred_columns(text):
    said = text_of(ba.Finding("cursors", None, "note", f"{text} {'x' * 150}"))
    assert max(map(len, said.split("\n"))) <= 100
