"""A stream waits for its reader and says what it cost; a file is whole or absent."""

import logging
import sys
import time

import pytest

import balance_analysis as ba
from tests.archive.exporting import loaded
from tests.loopback import Fault, Kind, LoopbackNode, random_history
from tests.moments import between, from_microseconds
from tests.node.asking import client_to

ROWS = random_history(5, rows=1200, accounts=150, largest_block=40)
FIRST, LATE = ROWS[0].time, ROWS[-1].time + 1
HELD = 10
START = "2023-04-01"
INTERVAL = {"start": START, "end": "2023-05-01"}


def test_requests_begin_and_stop_with_the_reader():
    with client_to(node := LoopbackNode(ROWS)) as client:
        batches = ba.iter_balance_changes(client, **INTERVAL, page_size=25, workers=2)
        assert node.requests == []
        next(batches)
        time.sleep(0.2)
        assert len(node.requests) < 30
        batches.close()
        assert sum(1 for _ in ba.iter_balance_changes(client, **INTERVAL, page_size=25)) > 30


def test_the_best_of_several_nodes_is_asked():
    late = Fault(Kind.STALLED, 0.5)
    with LoopbackNode(ROWS, faults=lambda *_: late) as slow, LoopbackNode(ROWS) as fast:
        table = loaded([slow, fast], **INTERVAL)
    assert table.attrs["balance_analysis"]["steps_by_node"].keys() == {fast.url}


def test_a_load_succeeds_with_nodes_that_fail_in_turn():
    def flaky(index, _):
        return Fault.status(503) if index % 3 == 2 else None

    with LoopbackNode(ROWS, faults=flaky) as one, LoopbackNode(ROWS, faults=flaky) as two:
        table = loaded([one, two], **INTERVAL, page_size=30, workers=1)
    assert len(table) == len(ROWS)


def test_when_every_node_fails_the_last_failure_is_raised():
    with (
        LoopbackNode(faults=lambda *_: Fault.html(503)) as one,
        LoopbackNode(faults=lambda *_: Fault.html(503)) as two,
        pytest.raises(ba.RequestError, match="answered 503"),
    ):
        loaded([one, two], **INTERVAL)


def test_a_rate_is_kept_by_all_workers_together_and_over_retries():
    waits, began = [], time.monotonic()
    node = LoopbackNode(ROWS, faults=[Fault.status(503)] * 3)
    with client_to(node, max_requests_per_second=0.001, sleep=waits.append) as client:
        ba.load_balance_changes(client, **INTERVAL, page_size=30, workers=8)
    assert len(node.requests) > 20
    slots = [turn * 1000 for turn in range(1, len(node.requests))]
    waits = sorted(seconds for seconds in waits if seconds > 15)  # others are those of retries
    assert waits == pytest.approx(slots, abs=time.monotonic() - began)


def test_a_node_that_says_too_many_is_obeyed_by_all_workers(caplog):
    caplog.set_level(logging.WARNING, "balance_analysis")
    refusals = [None, None, *[Fault.rate_limited(10)] * 4]
    waits = []
    with client_to(LoopbackNode(ROWS, faults=refusals), sleep=waits.append) as client:
        table = ba.load_balance_changes(client, **INTERVAL, page_size=100, workers=4)
    assert len(table) == len(ROWS)
    loaded = table.attrs["balance_analysis"]
    asked_again = [r for r in caplog.records if "asking again in 10.0 s" in r.getMessage()]
    assert 1 <= len(asked_again) <= loaded["retries"] == 4
    assert loaded["throttled_seconds"] == pytest.approx(sum(waits), abs=0.01)
    assert max(waits) > 5


def test_a_progress_bar_is_drawn_when_asked_for_and_on_a_terminal(capsys, monkeypatch):
    with client_to(LoopbackNode(ROWS)) as client:
        ba.load_balance_changes(client, **INTERVAL, page_size=50, progress=True)
        assert "rows/s" in capsys.readouterr().err
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        ba.load_balance_changes(client, **INTERVAL, progress=False)
        assert capsys.readouterr().err == ""
        ba.load_balance_changes(client, **INTERVAL, page_size=50)
    assert "rows/s" in capsys.readouterr().err


def rows_of_blocks(count):
    """Return rows of one account, a block each, without a pause."""
    return [ROWS[0]._replace(time=FIRST + n, balance=1) for n in range(count)]


def stream_of(node, **how):
    with client_to(node) as client:
        return list(ba.iter_balance_changes(client, **between(FIRST, LATE), **how))


def test_few_steps_finish_ahead_of_a_slow_one():
    """One answer is held back until no further request has come for a while."""
    # A block each, so that a step is one request.
    rows, workers, ahead = rows_of_blocks(1200), 2, []

    def wait(index, _):
        while index == HELD and ahead[-2:] != [len(node.requests)] * 2:
            ahead.append(len(node.requests))
            time.sleep(0.3)

    node = LoopbackNode(rows, block_timestamp=LATE * 1000, faults=wait)
    batches = stream_of(node, page_size=12, workers=workers)
    assert 2 * workers < ahead[-1] - HELD <= 6 * workers + 1
    times = [time for batch in batches for time in batch["timestamp"].to_pylist()]
    assert times == [from_microseconds(row.time) for row in rows]


@pytest.mark.parametrize("workers", [1, 4])
def test_pages_keep_the_size_that_a_node_answers(workers):
    def shrink(index, _):
        node.max_page_size = 50 if index >= 3 else 5000

    node = LoopbackNode(rows_of_blocks(4000), block_timestamp=LATE * 1000, faults=shrink)
    stream_of(node, page_size=200, workers=workers)
    asked = [int(each.get("pagination.first")) for each in node.requests]
    sizes = [size for size in asked if size != 30]
    assert len(sizes) > 48
    assert {*sizes[-24:]} == {50}


OF_OPENINGS = {"start": from_microseconds(ROWS[600].time), "opening": True}


def interrupt(share, rows):
    if rows > 100:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("refused", "asked", "earlier"),
    [
        (range(9999), {}, None),
        (range(30, 9999), {}, b"an earlier load"),
        (range(6, 16), OF_OPENINGS, None),
        ((), {"progress": interrupt}, None),
    ],
)
def test_a_failed_or_interrupted_load_leaves_the_folder_unchanged(
    *, refused, asked, earlier, tmp_path
):
    path = tmp_path / "x.parquet"
    if earlier:
        path.write_bytes(earlier)
    refuse = lambda index, _: Fault.status(503) if index in refused else None  # noqa: E731
    node, how = LoopbackNode(ROWS, faults=refuse), {"start": START, "page_size": 20, "workers": 1}
    with client_to(node) as client:
        with pytest.raises((ba.RequestError, KeyboardInterrupt)):
            ba.load_to_parquet(client, path, **{**how, **asked})
        assert [*tmp_path.iterdir()] == ([path] if earlier else [])
        assert not earlier or path.read_bytes() == earlier
        node.faults = []
        ba.load_to_parquet(client, path, start=START)
    assert len(ba.read_parquet(path)) == len(ROWS)
