"""Runs of any shape leave the same archive; wrong data is refused and the archive unchanged."""

import contextlib
import datetime as dt
import random
import re
import shutil
import time
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balance_analysis import Archive, ArchiveError, DecodeError, IncompleteError, RequestError
from tests.archive.exporting import (
    DAY,
    END,
    HOUR,
    MONTH,
    ROWS,
    START,
    assert_holds,
    content_of,
    in_spans,
    lasting,
    loaded,
    node_of,
    run_export,
    spans_of,
    spread_history,
    unchanged,
)
from tests.cli.running import run
from tests.loopback import LIMITS, V71_LIMITS, Fault, Kind
from tests.moments import from_microseconds, moment_text
from tests.node.asking import NOWHERE
from tests.node.truth import matching

TIMES = sorted({row.time for row in ROWS})
LAST = TIMES[-1]
BEFORE_MONTH = max(time for time in TIMES if time < MONTH)


CLOSED = {**V71_LIMITS, "canProposeAsset": False}
FAULTS = (
    *map(Fault, (Kind.RESET, Kind.RESET_MIDWAY, Kind.TRUNCATED, Kind.HALF_JSON)),
    *(Fault.html(), Fault.rate_limited(), Fault.too_large(), Fault.status(500), Fault.status(503)),
    *(Fault.answer(200, body) for body in ('{"balances": null}', "")),
    Fault.code(504, 4, "too late"),
)


@pytest.fixture
def node():
    return node_of(ROWS)


moments = st.sampled_from([START, END, MONTH, *TIMES]) | st.integers(START, END)
bounds = st.lists(moments, min_size=2, max_size=2, unique=True).map(sorted).map(tuple)


@settings(max_examples=6)
@given(
    heads=st.lists(st.integers(START, END - 1), max_size=7).map(sorted),
    runs=st.lists(st.tuples(bounds, st.integers(0, 2)), min_size=7, max_size=7),
    seed=st.integers(0, 10),
    partition=st.sampled_from(["day", "month", "hour"]),
    pages=st.fixed_dictionaries(
        {"page_size": st.sampled_from([7, 40, 5000]), "workers": st.sampled_from([1, 3])}
    ),
)
def test_any_runs_against_a_growing_and_failing_node_leave_the_archive_of_one_run(
    *, tmp_path_factory, heads, runs, seed, partition, pages
):
    rows, rng = spread_history(seed, rows=80, accounts=10, largest_block=20), random.Random(seed)
    folder, troubles = tmp_path_factory.mktemp("split"), [0]
    split, whole = folder / "split", {"start": START, "end": END, "partition": partition}

    def fail(*_):
        return rng.choice(FAULTS) if rng.random() < troubles[0] / 5 else None

    def interrupt(*_):
        if rng.random() < troubles[0] / 10:
            raise KeyboardInterrupt

    node = node_of([], faults=fail)
    for head, ((start, end), troubles[0]) in zip(heads, runs, strict=False):
        node.replace([row for row in rows if row.time <= head])
        node.block_timestamp = head * 1000
        how = {"start": start, "end": end, "progress": interrupt, "partition": partition}
        expected = (RequestError, DecodeError, IncompleteError, KeyboardInterrupt)
        with contextlib.suppress(*expected if troubles[0] else ()):
            run_export(node, split, **how, **pages)
        if (split / "_archive.json").exists():
            assert_holds(split, rows)
    troubles[0] = 0
    node.replace(rows)
    node.block_timestamp = END * 1000
    run_export(node, split, fill_gaps=True, **whole)
    run_export(node, folder / "one", **whole)
    expected = loaded(node, START, END)
    assert spans_of(split) == [(START, END, True)]
    assert lasting(split) == lasting(folder / "one")
    pd.testing.assert_frame_equal(Archive(split).read(), expected)
    assert not [name for name in content_of(split) if name.endswith(".tmp")]


def test_the_default_end_is_now_less_the_lag(node, tmp_path):
    node.block_timestamp = 4_000_000_000 * 10**9
    before = pd.Timestamp.now("UTC")
    run_export(node, tmp_path / "a", lag="5h", partition="month")
    end = pd.Timestamp(spans_of(tmp_path / "a")[-1][1], unit="us", tz="UTC")
    after = pd.Timestamp.now("UTC")
    assert before - pd.Timedelta(hours=5) <= end.ceil("ms") <= after - pd.Timedelta(hours=5)


# Requested spans


@pytest.mark.parametrize(
    ("held", "head", "asked", "spans"),
    [
        ((MONTH, END), END, {"start": START, "end": END}, [(START, MONTH)]),
        ((START, MONTH), END, {"overlap": "0s"}, [(BEFORE_MONTH, END + 1)]),
        ((START, MONTH), END, {"overlap": "30h"}, [(MONTH - 30 * HOUR, END + 1)]),
        ((START, END), MONTH, {"end": END + HOUR}, []),
        ((START, END), START - DAY, {"start": START - HOUR}, []),
        ((START, END), END, {"end": MONTH}, []),
    ],
    ids=["an earlier start", "the last row", "the overlap", "a lag", "a start beyond", "the past"],
)
def test_a_run_asks_only_for_new_rows_and_the_end_again(
    *, node, tmp_path, held, head, asked, spans
):
    folder = tmp_path / "a"
    run_export(node, folder, start=held[0], end=held[1])
    before, node.block_timestamp = lasting(folder), head * 1000
    run = run_export(node, folder, **asked)
    assert run.spans == [tuple(map(from_microseconds, span)) for span in spans]
    known = matching(ROWS, start=held[0], end=held[1])
    assert run.rows == len({*in_spans(ROWS, [(*span, True) for span in spans])} - {*known})
    assert_holds(folder, ROWS)
    assert spans or lasting(folder) == before


def test_repeated_runs_send_one_request_per_window_and_at_most_four_more_per_run(node, tmp_path):
    for end in (MONTH, MONTH + DAY, MONTH + DAY + HOUR, END):
        node.requests.clear()
        run_export(node, tmp_path / "a", end=end, workers=1)
        windows = {request.get("dateRange.startTimestamp") for request in node.requests}
        assert len(node.requests) <= len(windows) + 4


def test_filling_gaps_also_reports_gaps_before_the_end(node, tmp_path):
    run_export(node, tmp_path / "a", start=MONTH, end=END)
    run_export(node, tmp_path / "a", start=START, end=START + HOUR)
    with node:
        given = "export", tmp_path / "a", node.url, "--until", moment_text(START + HOUR)
        run(*given)
        run(*given, "--fill-gaps", code=3)


# Nodes that forget


@pytest.mark.parametrize("some", [True, False])
def test_a_forgetful_node_removes_no_row_and_proves_what_it_has(node, folder, whole, some, caplog):
    node.replace([row for row in ROWS if row.time == LAST and some])
    node.block_timestamp = (END + DAY) * 1000
    run_export(node, folder, end=END + DAY, overlap=dt.timedelta(days=2 * some))
    after = [(START, END + DAY, True)] if some else [(START, END, True), (END, END + DAY, False)]
    assert spans_of(folder) == after
    assert content_of(folder, "changes/") == content_of(whole, "changes/")
    # No warning of stretches that are already proven.
    assert bool(caplog.text) is ("of the same network" in caplog.text) is not some


# Nodes that lag


def never(seconds):
    assert seconds != 10, "there is no next block to wait for"


def test_a_stopped_nodes_last_block_is_exported_after_a_wait_unless_the_end_is_earlier(tmp_path):
    folder, waits = tmp_path / "a", []
    node = node_of(ROWS, head=LAST)
    run_export(node, folder, never, start=START, end=LAST)
    assert spans_of(folder) == [(START, LAST, True)]
    run_export(node, folder, waits.append, end=LAST + HOUR)
    assert waits == [10.0]
    assert_holds(folder, ROWS, whole=(START, LAST + 1))
    before = lasting(folder)
    again = run_export(node, folder, never)
    assert (again.spans, again.rows, lasting(folder)) == ([], 0, before)
    assert again.requests <= 5
    run_export(node, tmp_path / "b", never, start=LAST + 1, end=LAST + HOUR)
    assert spans_of(tmp_path / "b") == []
    node.requests.clear()
    asked = []
    sleep = lambda seconds: asked.append((len(node.requests), seconds))  # noqa: E731
    run = run_export(node, tmp_path / "c", sleep, start=START)
    assert (run.rows, spans_of(tmp_path / "c")) == (len(ROWS), [(START, LAST + 1, True)])
    # The limits and all rows; after that the last block again.
    assert (asked, len(node.requests)) == ([(2, 10.0)], 3)


def test_a_last_block_that_is_newer_than_the_lag_is_not_waited_for(node, tmp_path):
    head = time.time_ns() // 1000
    node.block_timestamp = head * 1000
    options = {"start": START, "sleep": never, "partition": "month"}
    run_export(node, tmp_path / "a", end=head + HOUR, **options)
    assert spans_of(tmp_path / "a")[-1][1] == head


@pytest.mark.parametrize(("answer", "later"), [(1, -1), (2, -1), (1, 1), (2, 1), (5, 1), (8, 1)])
def test_a_last_block_may_be_unfinished_until_a_later_one_follows(tmp_path, answer, later):
    def moving(index, _):
        node.block_timestamp = (LAST + later * HOUR * (index >= answer)) * 1000

    node = node_of(ROWS, head=LAST, faults=moving)
    run_export(node, tmp_path / "a", start=START, page_size=50 if answer > 2 else 5000)
    assert spans_of(tmp_path / "a")[-1][1] <= LAST + (later > 0)
    assert_holds(tmp_path / "a", ROWS, whole=(START, LAST + 1) if later > 0 else None)


def refusing(fault):
    asked = str((LAST - 1) * 1000)
    return lambda _, x: fault if x.params.get("dateRange.startTimestamp") == [asked] else None


@pytest.mark.parametrize(
    "options",
    [
        {"faults": refusing(Fault.status(416))},
        {"faults": refusing(Fault.status(503))},
        # An archive that is served ends before the moment that it names.
        {"extra_headers": {"X-Incomplete": f"{LAST * 1000}-{(LAST + HOUR) * 1000}"}},
    ],
    ids=["refused", "fails", "may lack rows"],
)
def test_a_last_block_that_the_node_may_lack_rows_of_is_left_out(tmp_path, options):
    run_export(node_of(ROWS, head=LAST, **options), tmp_path / "a", start=START)
    assert spans_of(tmp_path / "a") == [(START, LAST, True)]


@pytest.mark.parametrize("fault", [Fault.code(403, 3), Fault.code(500, 3), Fault(Kind.RESET)])
def test_a_refusal_of_the_limits_ends_the_run_before_anything_is_bound_or_covered(
    node, folder, tmp_path, fault
):
    node.faults = lambda _, request: fault if request.path == LIMITS else None
    for place in (folder, tmp_path / "new"):
        with unchanged(place), pytest.raises(RequestError):
            run_export(node, place, end=END + HOUR)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["_lock"]


# Another network


FOREIGN = [row._replace(time=row.time + 4 * HOUR + 1) for row in ROWS]


@pytest.mark.parametrize("failing", [False, True])
def test_no_row_of_another_network_is_kept_before_the_archives_first_row(tmp_path, failing):
    midnight, folder = MONTH + DAY, tmp_path / "a"
    row = ROWS[0]
    ours = [row._replace(time=midnight + at) for at in (-2 * DAY, 5 * HOUR)]
    theirs = [row._replace(time=midnight - HOUR + at) for at in range(9)]
    node = node_of(ours, head=midnight + 6 * HOUR)
    run_export(node, folder, start=START, end=midnight + 6 * HOUR)
    before = lasting(folder)
    node = node_of(theirs, head=midnight + 9 * HOUR)
    node.faults = lambda index, _: Fault.status(503) if failing and index > 8 else None
    with pytest.raises((ArchiveError, RequestError)):
        run_export(node, folder, overlap="8h", page_size=3, workers=1)
    assert lasting(folder) == before


@pytest.mark.parametrize(
    "wanted",
    [
        {"end": END + 4 * HOUR, "overlap": "0s"},
        {"end": END + 4 * HOUR, "overlap": "12h", "page_size": 3},
        {"end": END + 4 * HOUR, "overlap": "80h"},
        {"start": START, "end": END},
        {"end": END + HOUR, "fill_gaps": True},
    ],
)
@pytest.mark.parametrize("head", [END + 4 * HOUR, END - DAY])
def test_a_node_of_another_network_adds_no_row_at_the_end_before_it_or_in_a_gap(
    tmp_path, node, wanted, head
):
    run_export(node, tmp_path / "a", start=MONTH, end=END)
    run_export(node, tmp_path / "a", start=START + HOUR, end=START + 2 * HOUR)
    with (
        node_of(matching(FOREIGN, end=head), head=head, limits=CLOSED) as other,
        unchanged(tmp_path / "a"),
        pytest.raises(ArchiveError, match="another network"),
    ):
        run_export(other, tmp_path / "a", **wanted)


# Failures on the way


def test_bad_rows_are_written_before_the_manifest_shows_the_stretch_as_complete(tmp_path):
    folder, seen = tmp_path / "a", []

    def look(*_):
        if (folder / "_archive.json").exists() and spans_of(folder):
            seen.append(len([*folder.glob("_quarantine/*.jsonl")]))

    node = node_of([ROWS[0]._replace(balance="x"), *ROWS[1:]], faults=look)
    run_export(node, folder, start=START, end=END, page_size=20, workers=1)
    assert set(seen) == {1}


# Limits


def test_a_node_without_limits_is_exported_from_up_to_its_last_block(node, tmp_path):
    node.limits, node.block_timestamp = None, MONTH * 1000
    node.replace(matching(ROWS, end=MONTH))
    assert run_export(node, tmp_path / "a", start=START, end=END).is_success
    assert Archive(tmp_path / "a").limits().empty
    assert spans_of(tmp_path / "a") == [(START, MONTH + 1, True)]
    assert_holds(tmp_path / "a", ROWS)


def test_each_change_of_limits_is_kept_with_the_times_it_was_seen(node, tmp_path):
    allowed = dict(node.limits)
    for number, value in enumerate([True, True, False, True]):
        node.limits = {**allowed, "canProposeAsset": value}
        node.block_height = 100 + number
        run_export(node, tmp_path / "a", start=START, end=END + number)
    limits = Archive(tmp_path / "a").limits()
    moments = ("first_seen", "last_seen", "propose_market_enabled_from")
    assert all(isinstance(limits[name].dtype, pd.DatetimeTZDtype) for name in moments)
    assert (str(limits["block_height"].dtype), {*limits["source"]}) == ("Int64", {NOWHERE})
    rows = limits.to_dict("records")
    assert [row["can_propose_asset"] for row in rows] == [True, False, True]
    assert [row["block_height"] for row in rows] == [101, 102, 103]
    assert rows[0]["first_seen"] < rows[0]["last_seen"] < rows[1]["first_seen"]


# A node that reports its own gaps: a served archive


def test_rows_that_a_node_says_it_lacks_are_not_conflicts(node, folder):
    last = max(row.time for row in ROWS)
    there = [row for row in ROWS if not last - DAY <= row.time < last]
    assert len(there) < len(ROWS)
    said = f"{(last - DAY) * 1000}-{last * 1000}"
    lacking = node_of(there, extra_headers={"X-Incomplete": said}, head=END + HOUR)
    run = run_export(lacking, folder, end=END + HOUR, overlap=dt.timedelta(days=2))
    assert not run.conflicts
    assert_holds(folder, ROWS, whole=(START, END + HOUR))


# Damage


OLDEST = "date=2023-04-28/changes.parquet"
MANIFEST, NEWEST = "_archive.json", "changes/date=2023-05-03/changes.parquet"


def to_oldest(path):
    shutil.copy(path.parents[1] / OLDEST, path)


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        (MANIFEST, lambda path: path.write_bytes(b"[]"), r"is damaged \((?!\w+Error)"),
        (MANIFEST, lambda path: path.write_bytes(b'{"format": 3}'), "is newer"),
        (MANIFEST, Path.unlink, "is missing"),
        (NEWEST, Path.unlink, "is missing"),
        (NEWEST, to_oldest, "is not what was written"),
    ],
)
def test_a_damaged_file_is_named_and_never_overwritten(node, folder, name, damage, said):
    damage(folder / name)
    node.block_timestamp = (END + HOUR) * 1000
    kept, said = folder / "changes" if name == NEWEST else folder, f"{re.escape(name)} .*{said}"
    with unchanged(kept), pytest.raises(ArchiveError, match=said):
        run_export(node, folder, end=END + HOUR)
    assert name == NEWEST or not node.requests
    with unchanged(folder), pytest.raises(ArchiveError, match=re.escape(name)):
        Archive(folder).read()


def test_a_folder_of_other_files_is_refused_and_one_of_them_named(node, tmp_path):
    (tmp_path / "mine.txt").touch()
    with unchanged(tmp_path), pytest.raises(ArchiveError, match=r"has files such as mine\.txt"):
        run_export(node, tmp_path, start=START, end=END)


def test_the_command_that_repairs_an_archive_has_its_filters(node, tmp_path):
    run_export(node, tmp_path, start=START, end=END, account_types="general")
    (tmp_path / min(content_of(tmp_path, "changes/"))).unlink()
    first, *_ = Archive(tmp_path).verify().problems
    assert f" {NOWHERE} --account-type=ACCOUNT_TYPE_GENERAL --repair" in first.remedy


def test_days_after_damaged_files_are_kept_and_each_damaged_one_is_named(
    node, whole, tmp_path, caplog
):
    run_export(node, tmp_path, start=START, end=END - DAY)
    first, name = sorted(content_of(tmp_path, "changes/"))[-2:]
    (tmp_path / first).unlink()
    (tmp_path / name).unlink()
    with pytest.raises(ArchiveError, match=name):
        run_export(node, tmp_path, end=END, overlap="2d")
    assert any(first in each.message for each in caplog.records)
    later = {x: data for x, data in content_of(whole, "changes/").items() if x > name}
    assert later == content_of(tmp_path, *later)
    bounds = {"start": from_microseconds(END - 8 * HOUR), "end": from_microseconds(END)}
    assert Archive(tmp_path).read(**bounds).equals(Archive(whole).read(**bounds))


def test_rows_received_with_another_balance_leave_a_copy_of_the_old_file(folder):
    before = content_of(folder, "changes/")
    with node_of([row._replace(balance=row.balance + 1) for row in ROWS]) as other:
        run_export(other, folder, overlap=dt.timedelta(days=9))
    assert {*before.values()} <= {*content_of(folder, "_quarantine/").values()}
