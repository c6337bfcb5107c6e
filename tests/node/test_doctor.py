"""The doctor finds out what a node does, gently, and says what it couldn't find out."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import socket
import time
from collections import Counter
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis import demo
from tests.loopback import Fault, LoopbackNode, histories, random_history
from tests.waits import without_waits

ROWS = random_history(1)
MOST_REQUESTS = 40
NAMES = (
    "reachable",
    "block",
    "oldest_row",
    "network_limits",
    "cursors",
    "range_bounds",
    "timestamps",
    "filters",
    "rows",
)
VERDICTS = {"ok", "note", "warning", "unknown"}


@pytest.fixture(autouse=True)
def retries_without_waits():
    with without_waits():
        yield


def diagnose(rows=ROWS, **options):
    """Return the report on a node; whatever the node does, the report keeps its promises."""
    with LoopbackNode(rows, **options) as node:
        report = ask(node)
    check(report, node)
    return report


def ask(node, **options):
    with ba.Client(node.url, **options) as client:
        return ba.diagnose_node(client, max_requests_per_second=10_000)


def check(report, node):
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


@given(histories(), st.booleans())
@settings(max_examples=10)
def test_the_verdict_on_cursors_is_right_for_any_history(rows, lossy):
    found = diagnose(rows, lossy_cursors=lossy)["cursors"]
    cut = found.value is not None and found.value["cuts"] > 0
    if not lossy:
        assert found.verdict == ("ok" if cut else "unknown")
    elif cut or len(rows) > 2:
        assert found.verdict == "warning"
    if max(Counter(row.timestamp_ns for row in rows).values(), default=0) > 1 and len(rows) > 1:
        assert cut


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
            "ignores": st.sets(
                st.sampled_from(
                    ["dateRange", "filter", "pagination.after", "pagination.newestFirst"]
                )
            ).map(tuple),
            "timestamp_unit": st.sampled_from(["ns", "us", "ms", "s"]),
            "bounds_unit": st.sampled_from(["ns", "us", "ms", "s"]),
            "limits": st.none() | st.dictionaries(st.text(max_size=3), st.integers()),
            "block_timestamp": st.integers(0, 2**66),
            "max_answer_rows": st.integers(1, 300),
        },
    ),
)
@settings(max_examples=12)
def test_any_node_gets_a_report(rows, options):
    diagnose(rows, **options)


def row_faults():
    def drop(row):
        row.pop("balance")

    def replace(name, value):
        return lambda row: {**row, name: value}

    yield drop
    for name in ("timestamp", "accountType", "balance"):
        for value in (None, {}, 7, "", "9" * 30):
            yield replace(name, value)
    yield lambda _: {}


@pytest.mark.parametrize("edit", list(row_faults()))
def test_rows_that_are_not_the_interface_s_are_reported(edit):
    diagnose(edit_row=edit)


@pytest.mark.parametrize(
    ("options", "start", "end", "verdict"),
    [
        ({}, "inclusive", "exclusive", "ok"),
        ({"start_exclusive": True}, "exclusive", "exclusive", "note"),
        ({"end_inclusive": True}, "inclusive", "inclusive", "note"),
        (
            {"start_exclusive": True, "end_inclusive": True},
            "exclusive",
            "inclusive",
            "note",
        ),
        ({"ignores": ("dateRange",)}, "ignored", "ignored", "warning"),
        ({"ignores": ("dateRange.startTimestamp",)}, "ignored", "exclusive", "warning"),
        ({"ignores": ("dateRange.endTimestamp",)}, "inclusive", "ignored", "warning"),
    ],
)
def test_the_bounds_of_a_range_are_read_off(options, start, end, verdict):
    found = diagnose(**options)["range_bounds"]
    assert found.value == {"start": start, "end": end}
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("options", "name", "verdict", "value"),
    [
        ({"timestamp_unit": "us"}, "timestamps", "warning", {"rows": ["us"]}),
        ({"timestamp_unit": "s"}, "rows", "warning", {}),
        ({"bounds_unit": "us", "release": "v0.71"}, "timestamps", "warning", {"bounds": "us"}),
        ({"bounds_unit": "s", "release": "v0.76"}, "timestamps", "warning", {"bounds": "s"}),
        ({"bounds_unit": "s", "release": "v0.76"}, "cursors", "warning", {}),
        ({"ignores": ("pagination.newestFirst",)}, "rows", "warning", {}),
        ({"ignores": ("pagination.after",)}, "cursors", "warning", {}),
    ],
)
def test_what_is_odd_is_told(options, name, verdict, value):
    found = diagnose(**options)[name]
    assert found.verdict == verdict
    assert found.value | value == found.value


def test_parts_of_a_microsecond_are_a_warning():
    rows = [dataclasses.replace(row, timestamp_ns=row.timestamp_ns + 1) for row in ROWS]
    found = diagnose(rows)["timestamps"]
    assert found.value["whole_microseconds"] is False
    assert found.verdict == "warning"


def test_the_last_block_and_its_age_are_told():
    now = time.time_ns()
    found = diagnose(block_height=1234, block_timestamp=now - 3 * 10**9)["block"]
    assert found.value["height"] == 1234
    assert 3 <= found.value["lag_seconds"] < 60
    assert "The node's last block is 1,234 of " in found.explanation
    assert found.verdict == "ok"


def test_a_node_that_stands_still_is_a_warning():
    found = diagnose(block_timestamp=time.time_ns() - 7200 * 10**9)["block"]
    assert found.verdict == "warning"
    assert "2 hours ago" in found.explanation


@pytest.mark.parametrize("timestamp", [0, 5, 2**62, 10**40])
def test_a_last_block_of_no_possible_time_is_unknown(timestamp):
    report = diagnose(block_timestamp=timestamp)
    assert report["block"].verdict == "unknown"
    assert report["cursors"].verdict == "warning"


def test_the_oldest_row_is_found():
    found = diagnose()["oldest_row"]
    assert found.value == "2023-04-01T00:00:00+00:00"
    assert found.verdict == "note"  # a history this short may have been pruned


def test_a_long_history_is_no_remark():
    old = dataclasses.replace(ROWS[0], timestamp_ns=ROWS[0].timestamp_ns - 2 * 365 * 86400 * 10**9)
    found = diagnose([old, *ROWS])["oldest_row"]
    assert found.value == "2021-04-01T00:00:00+00:00"
    assert found.verdict == "ok"


def test_missing_limits_are_a_note():
    report = diagnose(limits=None)
    assert report["network_limits"].value is False
    assert report["network_limits"].verdict == report["reachable"].verdict == "note"


def test_limits_that_can_t_be_read_are_a_warning():
    found = diagnose(limits={"canProposeMarket": "yes"})["network_limits"]
    assert found.verdict == "warning"
    assert "canProposeMarket" in found.explanation


def test_what_a_node_made_up_can_t_steer_the_terminal():
    fault = Fault.json({"code": 3, "message": "\x1b[2J\nevil"}, 400)
    text = str(diagnose(faults=lambda _, request: None if "limits" in request.path else fault))
    assert "\x1b" not in text
    assert "evil" in text


@pytest.mark.parametrize(
    ("wire", "name"),
    [
        ("filter.assetId", "asset_id"),
        ("filter.partyIds", "party_ids"),
        ("filter.marketIds", "market_ids"),
        ("filter.accountTypes", "account_types"),
    ],
)
def test_a_filter_without_effect_is_a_warning(wire, name):
    found = diagnose(ignores=(wire,))["filters"]
    assert found.verdict == "warning"
    assert {key for key, how in found.value.items() if how == "ignored"} == {name}


def test_a_filter_that_can_t_leave_anything_out_is_not_judged():
    rows = [dataclasses.replace(row, asset_id=ROWS[0].asset_id) for row in ROWS]
    rows = list({(row.account, row.timestamp_ns): row for row in rows}.values())
    found = diagnose(rows, ignores=("filter.assetId",))["filters"]
    assert found.verdict == "ok"
    assert "asset_id" not in found.value


def test_a_filter_that_leaves_too_little_is_a_warning():
    def shorten(answer, request):
        if request.get("filter.assetId"):
            answer["balances"]["edges"].pop()

    found = diagnose(edit_page=shorten)["filters"]
    assert found.verdict == "warning"
    assert found.value["asset_id"] == "too narrow"


def test_a_start_that_is_exclusive_hides_no_block_from_the_cursors():
    block = [dataclasses.replace(row, timestamp_ns=ROWS[0].timestamp_ns) for row in ROWS]
    rows = list({row.account: row for row in block}.values())
    found = diagnose(rows, start_exclusive=True)["cursors"]
    assert found.verdict == "warning"
    assert found.value["lost"] > 0


@pytest.mark.parametrize("release", ["v0.71", "v0.75"])
def test_an_empty_node_gets_an_honest_report(release):
    report = diagnose([], release=release, limits=None)
    assert report["oldest_row"].value is None
    assert report["oldest_row"].verdict == "note"
    for name in ("cursors", "range_bounds", "timestamps", "filters", "rows"):
        assert report[name].verdict == "unknown"
        assert "no row" in report[name].explanation
    assert report.warnings == ()


def test_a_refusal_as_too_many_slows_down_and_is_told():
    node = LoopbackNode(ROWS, faults=[None, Fault.rate_limited(1)])
    with node, ba.Client(node.url) as client:
        report = ba.diagnose_node(client, max_requests_per_second=20)
    check(report, node)
    assert report["cursors"].verdict == "warning"
    slow = [request.time for request in node.requests[2:]]
    assert (len(slow) - 1) / (slow[-1] - slow[0]) <= 17


def test_a_node_that_keeps_refusing_is_left_alone():
    faults = [None, None, *[Fault.rate_limited(0)] * 100]
    report = diagnose(faults=faults)
    assert report.requests <= 10
    assert report["cursors"].verdict == "unknown"
    assert "rate limit exceeded" in report["cursors"].explanation


def test_a_ban_ends_the_questions():
    report = diagnose(faults=lambda index, _: Fault.banned(600) if index > 2 else None)
    assert report.requests == 4
    assert "600 s" in report["cursors"].explanation


@given(st.integers(0, 24))
@settings(max_examples=6)
def test_a_passing_fault_changes_no_finding(index):
    def fault(i, _):
        return Fault.reset() if i == index else None

    found = {f.name: f.value for f in diagnose(faults=fault).findings if f.name != "block"}
    assert found == {name: undisturbed()[name].value for name in found}


@cache
def undisturbed():
    return diagnose()


@pytest.mark.parametrize(
    "fault", [Fault.status(503), Fault.code(500, 13), Fault.html(200), Fault.html(502)]
)
@pytest.mark.parametrize("index", [1, 16])
def test_a_finding_that_fails_does_not_stop_the_rest(fault, index):
    report = diagnose(faults=lambda i, _: fault if i >= index else None)
    assert report["network_limits"].verdict == "ok"
    assert "unknown" in {finding.verdict for finding in report.findings}


def test_no_more_than_forty_requests_are_sent_whatever_fails():
    """A node whose clock is decades ahead of its rows, and that answers when asked again."""
    report = diagnose(
        block_timestamp=4 * 10**18, faults=lambda i, _: Fault.reset() if i % 2 == 0 else None
    )
    assert report.requests == MOST_REQUESTS
    assert report["network_limits"].verdict == "ok"
    assert any("40 requests" in finding.explanation for finding in report.findings)


def test_a_node_that_falls_silent_is_left_alone():
    report = diagnose(faults=lambda i, _: Fault.reset() if i > 3 else None)
    assert report.requests < 10
    assert report["filters"].verdict == "unknown"


def test_a_node_that_takes_too_long_is_left_alone():
    with LoopbackNode(ROWS) as node:
        node.faults = lambda i, _: Fault.stalled(60) if i > 3 else None
        report = ask(node, timeout=0.5)
    check(report, node)
    assert report.requests == 6
    assert "0.5 s" in report["filters"].explanation


def test_an_unreachable_node_raises():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with (
        ba.Client(f"http://127.0.0.1:{port}") as client,
        pytest.raises(ba.RequestError, match="refused"),
    ):
        ba.diagnose_node(client)


@pytest.mark.parametrize(
    "fault",
    [
        Fault.html(200),
        Fault.html(404),
        Fault.html(502),
        Fault.status(503),
        Fault.banned(600),
        Fault.rate_limited(0),
        Fault.json({"message": "Not Found"}, 404),
    ],
)
def test_what_is_no_node_raises(fault):
    with LoopbackNode(ROWS, faults=lambda _i, _r: fault) as node:
        with pytest.raises(ba.RequestError):
            ask(node)
        assert len(node.requests) <= 8


def test_the_package_s_own_service_has_no_warnings():
    with demo.serve_sample() as url, ba.Client(url) as client:
        report = ba.diagnose_node(client, max_requests_per_second=10_000)
    assert [finding.name for finding in report.warnings] == ["block"]  # of long ago
    assert report["cursors"].verdict == "ok"
    assert report["cursors"].value["cuts"] > 0
    assert report.requests <= MOST_REQUESTS


@pytest.mark.parametrize(("own", "asked"), [(None, 100), (100, 1000)])
def test_the_rate_is_at_most_that_asked_for_and_the_client_s(own, asked):
    with LoopbackNode(ROWS[:1]) as node, ba.Client(node.url, max_requests_per_second=own) as client:
        began = time.monotonic()
        ba.diagnose_node(client, max_requests_per_second=asked)
        assert time.monotonic() - began >= (len(node.requests) - 1) / 100


def test_the_caller_s_client_is_left_as_it_was():
    node = LoopbackNode(ROWS, faults=[None, Fault.rate_limited(0)])
    with node, ba.Client(node.url, timeout=20) as client:
        ba.diagnose_node(client, max_requests_per_second=10_000)
        assert (client.timeout, client.max_requests_per_second) == (20, None)
        assert ba.load_network_limits(client).source == node.url


def test_a_rate_that_is_not_positive_is_a_caller_s_slip():
    with ba.Client("http://127.0.0.1:1") as client, pytest.raises(ValueError, match="per_second"):
        ba.diagnose_node(client, max_requests_per_second=0)


def report_of(*findings):
    return ba.NodeReport("http://n", dt.datetime(2023, 4, 1, 12, tzinfo=dt.UTC), 3, findings)


def test_the_table_shows_warnings_without_colour():
    text = str(
        report_of(
            ba.Finding("page_size", 1, "ok", "Fine."),
            ba.Finding("cursors", None, "warning", "Rows are lost."),
        )
    )
    assert text == (
        "http://n, 2023-04-01T12:00Z, 3 requests\n"
        "1 warning\n"
        "\n"
        "ok       page size  Fine.\n"
        "WARNING  cursors    Rows are lost."
    )


@given(st.text(min_size=1, max_size=400))
def test_the_table_is_never_wider_than_a_hundred_columns(text):
    report = report_of(ba.Finding("cursors", None, "note", f"{text} {'x' * 150}"))
    assert max(map(len, str(report).split("\n"))) <= 100
