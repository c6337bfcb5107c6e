"""Whatever executor loads the periods, the archive is the one that one process makes alone."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import urllib.request
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balance_analysis import Archive, ArchiveError, Client, DecodeError, RequestError, export
from tests.archive.crashing import Crasher
from tests.archive.exporting import (
    DAY,
    END,
    HOUR,
    MONTH,
    START,
    Inline,
    assert_holds,
    content_of,
    lasting,
    node_of,
    run_export,
    spans_of,
    spread_history,
)
from tests.loopback import Fault
from tests.loopback.rates import RateLimit
from tests.moments import from_microseconds, range_text, to_microseconds
from tests.waits import without_waits

ROWS = spread_history(7)
STAGED = "_staged/"
TIMES = sorted({row.timestamp_ns // 1000 for row in ROWS})
LAST = TIMES[-1]
WHOLE = {"start": START, "end": END}


@pytest.fixture(autouse=True, scope="module")
def retries_without_waits():
    with without_waits():
        yield


@pytest.fixture
def node():
    with node_of(ROWS) as running:
        yield running


@pytest.fixture(scope="module")
def threads():
    with ThreadPoolExecutor(3) as pool:
        yield pool


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process makes of the whole history."""
    folder = tmp_path_factory.mktemp("alone") / "archive"
    with node_of(ROWS) as running:
        run_export(running, folder, **WHOLE)
    return lasting(folder)


@pytest.fixture
def bucket(monkeypatch):
    """The address of an empty bucket in an S3 on loopback."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server.start()
    host = "{}:{}".format(*server.get_host_and_port())
    with urllib.request.urlopen(urllib.request.Request(f"http://{host}/spread", method="PUT")):
        pass
    yield f"s3://spread/a?endpoint_override={host}&scheme=http&region=us-east-1"
    server.stop()


def asked_in(request):
    """Return the interval that a request asks for, microseconds; `None` of another one."""
    bounds = [request.params.get(f"dateRange.{name}Timestamp") for name in ("start", "end")]
    return tuple(int(bound[0]) // 1000 for bound in bounds) if all(bounds) else None


def of_day(day):
    """Return whether a request begins in that day of the history: only a task's does, at first."""
    begin = START - START % DAY + day * DAY

    def is_of(request):
        asked = asked_in(request)
        return asked is not None and begin - 1 <= asked[0] < asked[1] <= begin + DAY

    return is_of


# The same archive


def runs():
    near = st.sampled_from([START, END, MONTH, *TIMES]) | st.integers(START, END)
    bounds = st.lists(near, min_size=2, max_size=2, unique=True).map(sorted).map(tuple)
    return st.lists(bounds, max_size=2)


@settings(max_examples=2)
@given(
    runs(),
    st.sampled_from(["day", "month", "hour"]),
    st.sampled_from([5, 40, 5000]),
    st.sampled_from([1, 2, 7]),
)
def test_any_executor_and_any_split_of_runs_leave_the_archive_of_one_process(
    tmp_path_factory, split, partition, page_size, width
):
    folder = tmp_path_factory.mktemp("any")
    common = {"partition": partition, "page_size": page_size, "workers": 2}
    with node_of(ROWS) as node, ThreadPoolExecutor(width) as pool:
        for start, end in split:
            both = [
                run_export(node, folder / name, start=start, end=end, executor=executor, **common)
                for name, executor in (("one", None), ("many", pool))
            ]
            assert lasting(folder / "many") == lasting(folder / "one")
            assert both[0].committed == both[1].committed
            assert both[0].rows == both[1].rows
            assert_holds(folder / "many", ROWS)
        whole = {**WHOLE, **common, "fill_gaps": True}
        run_export(node, folder / "many", executor=pool, **whole)
        run_export(node, folder / "one", **whole)
    assert lasting(folder / "many") == lasting(folder / "one")
    assert_holds(folder / "many", ROWS, whole=(START, END))


def test_processes_leave_the_archive_of_one_process(processes, node, alone, tmp_path):
    run_export(node, tmp_path / "a", executor=processes, **WHOLE)
    assert lasting(tmp_path / "a") == alone
    assert content_of(tmp_path / "a", STAGED) == {}
    assert Archive(tmp_path / "a").verify().is_whole


def test_a_path_that_is_relative_is_the_driver_s(processes, node, alone, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_export(node, "a", executor=processes, **WHOLE)
    assert lasting(tmp_path / "a") == alone


def test_in_an_object_store_too(node, alone, bucket, threads):
    run_export(node, bucket, executor=threads, **WHOLE)
    store = pickle.loads(pickle.dumps(Archive(bucket).store))
    files = {name: store.read(name) for name in store.names() if name.startswith("changes/")}
    assert files == {name: data for name, data in alone[0].items() if name.startswith("changes/")}
    assert not [name for name in store.names() if name.startswith(STAGED)]


# A node that doesn't know everything


def test_coverage_ends_where_the_one_that_knew_least_ended(tmp_path, threads):
    """Behind one address one of several nodes lags, in the middle of the third day."""
    lag, is_third = START - START % DAY + 2 * DAY + 7 * HOUR, of_day(2)
    with node_of(ROWS) as node:

        def lagging(_, request):
            node.block_timestamp = (lag if is_third(request) else END) * 1000

        node.faults = lagging
        run_export(node, tmp_path / "a", executor=threads, workers=1, **WHOLE)
    assert spans_of(tmp_path / "a") == [(START, lag, True)]
    assert_holds(tmp_path / "a", ROWS, whole=(START, lag))


def test_what_a_node_says_that_it_may_lack_is_unproven(tmp_path, threads, caplog):
    start, end = START + 30 * HOUR, START + 40 * HOUR
    header = {"X-Incomplete": f"{start * 1000}-{end * 1000}"}
    found = []
    for name, executor in (("one", None), ("many", threads)):
        with node_of(ROWS, extra_headers=header) as node:
            run_export(node, tmp_path / name, executor=executor, **WHOLE)
        found.append(lasting(tmp_path / name))
        lacking = f"may lack rows of {range_text(start, end)}"
        assert [lacking in each.message for each in caplog.records].count(True) == 1
        caplog.clear()
    assert found[0] == found[1]
    assert not all(proven for *_, proven in spans_of(tmp_path / "many"))


# What goes wrong


def test_an_error_arrives_as_itself_and_names_the_period_and_what_is_before_it_stays(
    processes, alone, tmp_path
):
    executor, is_third = processes, of_day(2)
    fault = Fault.status(403)
    with node_of(ROWS, faults=lambda _, asked: fault if is_third(asked) else None) as node:
        with pytest.raises(RequestError) as failed:
            run_export(node, tmp_path / "a", executor=executor, **WHOLE)
        assert (failed.value.status, failed.value.url[: len(node.url)]) == (403, node.url)
        assert failed.value.__notes__ == ["in the task of the period 2023-04-30"]
        third = START - START % DAY + 2 * DAY
        assert_holds(tmp_path / "a", ROWS, whole=(START, third))
        assert spans_of(tmp_path / "a") == [(START, third, True)]
        node.faults = ()
        run_export(node, tmp_path / "a", executor=executor, end=END)
    assert lasting(tmp_path / "a") == alone


def test_a_bad_row_that_raises_arrives_with_the_row(processes, tmp_path):
    def spoil(row):
        return {**row, "balance": "x"} if row["timestamp"] == str(LAST * 1000) else row

    with node_of(ROWS, edit_row=spoil) as node, pytest.raises(DecodeError) as failed:
        run_export(node, tmp_path / "a", executor=processes, on_bad_rows="raise", **WHOLE)
    assert '"x"' in failed.value.row


def test_a_process_that_is_killed_ends_the_run_and_the_next_one_completes_it(alone, tmp_path):
    is_third, pids = of_day(2), []

    def killing(_, asked):
        if is_third(asked) and pids:
            os.kill(pids.pop(), signal.SIGKILL)

    with node_of(ROWS, faults=killing) as node:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            pids.append(pool.submit(os.getpid).result())
            with pytest.raises(BrokenProcessPool) as failed:
                run_export(node, tmp_path / "a", executor=pool, **WHOLE)
        assert failed.value.__notes__ == ["in the task of the period 2023-04-30"]
        assert_holds(tmp_path / "a", ROWS, whole=(START, START - START % DAY + 2 * DAY))
        run_export(node, tmp_path / "a", executor=Inline(), end=END)
    assert lasting(tmp_path / "a") == alone


class Elsewhere(Inline):
    """An executor whose workers have another folder under the archive's path."""

    def __init__(self, folder):
        self._folder = folder

    def submit(self, function, task):
        return super().submit(function, replace(task, store=Archive(self._folder).store))


def test_a_worker_that_does_not_see_the_archive_says_so_and_writes_nothing(node, tmp_path):
    (tmp_path / "other").mkdir()
    run_export(node, tmp_path / "other" / "a", **WHOLE)
    before = content_of(tmp_path / "other")
    with pytest.raises(ArchiveError, match="a folder with the same path on all"):
        run_export(node, tmp_path / "a", executor=Elsewhere(tmp_path / "other" / "a"), **WHOLE)
    assert content_of(tmp_path / "other") == before
    assert spans_of(tmp_path / "a") == []


class Twice(Inline):
    """An executor that loses each first result, as a cluster does with a worker."""

    def submit(self, function, task):
        first = super().submit(function, task).result()
        second = super().submit(function, task)
        assert second.result().note == first.note
        return second


def test_a_task_that_runs_twice_does_what_it_does_once(node, alone, tmp_path):
    run_export(node, tmp_path / "a", executor=Twice(), **WHOLE)
    assert lasting(tmp_path / "a") == alone


def test_what_a_lost_task_leaves_is_no_stranger_and_the_next_run_sweeps_it(node, tmp_path):
    run_export(node, tmp_path / "a", executor=Inline(), **WHOLE)
    before = lasting(tmp_path / "a")
    Archive(tmp_path / "a").store.write(f"{STAGED}.{'ab' * 32}.{'ab' * 4}.tmp", b"half of a file")
    assert Archive(tmp_path / "a").verify().is_whole
    assert_holds(tmp_path / "a", ROWS, whole=(START, END))
    run_export(node, tmp_path / "a", end=END)
    assert content_of(tmp_path / "a", STAGED) == {}
    assert lasting(tmp_path / "a") == before


def test_what_is_no_executor_is_refused_before_anything_is_done(node, tmp_path):
    with pytest.raises(TypeError, match="an executor of concurrent"):
        run_export(node, tmp_path / "a", executor="tcp://scheduler:8786", **WHOLE)
    assert not (tmp_path / "a").exists()
    assert node.requests == []


# Killed at any step


SHORT = {"start": to_microseconds("2023-04-30T18:00"), "end": to_microseconds("2023-05-01T06:00")}
FEW = spread_history(3, rows=40, accounts=10, **SHORT)


def test_killed_at_any_step_the_archive_is_whole_and_the_next_run_completes_it(tmp_path):
    """One process does the tasks as well, so that each step of a worker is one too."""
    run = {**SHORT, "page_size": 10, "workers": 1, "executor": "inline"}
    with node_of(FEW, head=SHORT["end"]) as node, Crasher() as crasher:
        crasher.export(node.url, tmp_path / "whole", **{**run, "executor": None})
        whole = lasting(tmp_path / "whole")
        undisturbed = crasher.export(node.url, tmp_path / "a", **run)
        assert lasting(tmp_path / "a") == whole
        steps = undisturbed.steps
        tried = [at for at, (kind, _) in enumerate(steps) if kind in ("rename", "remove")]
        for step in tried[::2]:
            folder = tmp_path / str(step)
            outcome = crasher.export(node.url, folder, mode="kill", step=step, **run)
            assert outcome.killed
            if (folder / "_archive.json").exists():
                assert_holds(folder, FEW)
            assert crasher.export(node.url, folder, **run).error is None
            assert lasting(folder) == whole, f"killed before step {step}, {steps[step]}"
            assert content_of(folder, STAGED) == {}


@pytest.mark.parametrize("executor", ["inline", "threads"])
def test_interrupted_what_is_complete_stays_and_no_further_task_begins(
    *, executor, node, alone, tmp_path, threads
):
    pool = threads if executor == "threads" else Inline()
    seen = []

    def interrupt(share, _):
        seen.append(share)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_export(node, tmp_path / "a", executor=pool, progress=interrupt, **WHOLE)
    second = START - START % DAY + 2 * DAY
    assert_holds(tmp_path / "a", ROWS, whole=(START, second))
    run_export(node, tmp_path / "a", executor=pool, end=END)
    assert lasting(tmp_path / "a") == alone


# As many at once as there is room for


class Counting:
    """Threads that note what they are given, and how much of it at once.

    None ends before as many as are expected have begun.
    """

    _max_workers = 2

    def __init__(self, pool, expected):
        self._pool, self._under_way = pool, set()
        self._expected, self._full = expected, threading.Event()
        self.rates, self.most = set(), 0

    def submit(self, function, task):
        self.rates.add(task.load.client.max_requests_per_second)
        future = self._pool.submit(self._wait, function, task)
        self._under_way = {other for other in self._under_way if not other.done()} | {future}
        self.most = max(self.most, len(self._under_way))
        if self.most >= self._expected:
            self._full.set()
        return future

    def _wait(self, function, task):
        self._full.wait(10)
        return function(task)


@pytest.mark.parametrize(("rate", "share", "at_once"), [(None, None, 4), (600, 300, 2)])
def test_tasks_that_run_at_once_share_the_rate(tmp_path, rate, share, at_once):
    bounds = {"start": from_microseconds(START), "end": from_microseconds(END)}
    with node_of(ROWS) as node, ThreadPoolExecutor(8) as pool:
        counting = Counting(pool, at_once)
        with Client(node.url, max_requests_per_second=rate) as client:
            export(client, Archive(tmp_path / "a"), executor=counting, **bounds)
    assert counting.rates == {share}
    assert counting.most == at_once


def test_gaps_are_filled_side_by_side(node, alone, tmp_path):
    midnights = range(START - START % DAY + DAY, END, DAY)
    for midnight in reversed(midnights):  # an earlier run leaves a gap before a later one
        run_export(node, tmp_path / "a", start=midnight - HOUR, end=midnight + HOUR)
    with ThreadPoolExecutor(8) as pool:
        counting = Counting(pool, 4)
        run = run_export(node, tmp_path / "a", fill_gaps=True, executor=counting, **WHOLE)
    assert len(run.spans) == len(midnights) + 1 > 4
    assert counting.most == 4
    assert lasting(tmp_path / "a") == alone


def test_gaps_in_one_file_are_filled_one_after_the_other(node, alone, tmp_path, threads):
    for hour in range(START + 5 * HOUR, END, 13 * HOUR)[::-1]:
        run_export(node, tmp_path / "a", start=hour, end=hour + HOUR)
    run = run_export(node, tmp_path / "a", fill_gaps=True, executor=threads, **WHOLE)
    assert len(run.spans) > 8
    assert lasting(tmp_path / "a") == alone


def test_all_together_keep_a_rate_that_the_node_does_not_forgive_to_exceed(tmp_path, threads):
    limit = RateLimit(per_second=40, burst=12, patience=0)
    bounds = {name: from_microseconds(moment) for name, moment in SHORT.items()}
    with (
        node_of(FEW, head=SHORT["end"], rate_limit=limit) as node,
        Client(node.url, max_requests_per_second=40) as client,
    ):
        archive = Archive(tmp_path / "a")
        export(client, archive, executor=threads, partition="hour", page_size=5, **bounds)
    assert len(node.requests) > 40
    assert_holds(tmp_path / "a", FEW, whole=(SHORT["start"], SHORT["end"]))
