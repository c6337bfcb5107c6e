"""An export on a cluster of real processes ends as on one machine, whichever of them dies."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from distributed import Client

from balance_analysis import Archive, RequestError
from tests.archive.exporting import (
    DAY,
    END,
    START,
    assert_holds,
    content_of,
    lasting,
    node_of,
    run_export,
    spans_of,
    spread_history,
)
from tests.cli.running import fails
from tests.loopback import Fault

ROWS = spread_history(7)
WHOLE = {"start": START, "end": END}
SINCE = ("--since", "2023-04-28T20:00", "--until", "2023-05-03T08:00")
NOWHERE = ("export", "http://127.0.0.1:1")
SCHEDULER = ("--scheduler", "tcp://127.0.0.1:1")
THIRD = START - START % DAY + 2 * DAY
"""Where the third day begins."""


class Cluster:
    """A scheduler and two worker processes, each a child; all on loopback."""

    def __init__(self, folder):
        self._folder, self._children, self.address = folder, [], None

    def start(self):
        file = self._folder / f"scheduler-{len(self._children)}.json"
        quiet = ("--host", "127.0.0.1", "--no-dashboard")
        self._start("scheduler", *quiet, "--port", "0", "--scheduler-file", file)
        self._start(
            *("worker", *quiet, "--scheduler-file", file, "--nworkers", "2", "--nthreads", "1"),
            *("--memory-limit", "0", "--local-directory", self._folder),
        )
        until(lambda: file.exists() and file.read_text().endswith("}"))
        self.address = json.loads(file.read_text())["address"]

    def _start(self, *arguments):
        log = (self._folder / f"{len(self._children)}.log").open("w")
        command = [sys.executable, "-m", "dask", *map(str, arguments)]
        # In a session of its own, so that what it starts ends with it.
        child = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self._children.append(child)
        log.close()

    def kill_scheduler(self):
        self._children[-2].kill()

    def stop(self):
        for child in reversed(self._children):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait(10)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def client(cluster):
    with Client(cluster.address, set_as_default=False, timeout=60) as client:
        client.wait_for_workers(2, timeout=60)
        yield client


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process makes of the whole history."""
    folder = tmp_path_factory.mktemp("alone") / "archive"
    with node_of(ROWS) as running:
        run_export(running, folder, **WHOLE)
    return lasting(folder)


def until(is_so, seconds=60):
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def begins_in_third_day(request):
    start = request.params.get("dateRange.startTimestamp", ["0"])[0]
    return THIRD - 1 <= int(start) // 1000 < THIRD + DAY - 1


def is_load_of_third_day(request):
    """Whether a request is a task's; what the driver asks for are pages of one row."""
    return request.params.get("pagination.first") == ["5000"] and begins_in_third_day(request)


@contextlib.contextmanager
def driver(node, folder, address):
    """Run the command as a child, which is killed at the end if it is still there."""
    arguments = ("export", node.url, folder, *SINCE, "--scheduler", address)
    process = subprocess.Popen(
        [sys.executable, "-m", "balance_analysis", *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process):
    """Return the exit code of a driver, and what it said."""
    said = process.communicate(timeout=60)[1]
    return process.returncode, said


def test_two_processes_leave_the_archive_of_one_machine(cluster, alone, tmp_path):
    with node_of(ROWS) as node, driver(node, tmp_path / "a", cluster.address) as process:
        code, said = ended(process)
    assert (code, said.count("\n")) == (0, 1), said
    assert said.startswith(f"{len(ROWS)} new rows")
    assert lasting(tmp_path / "a") == alone
    assert content_of(tmp_path / "a", "_staged/") == {}


def test_a_worker_that_is_killed_in_the_middle_of_a_task_changes_nothing(client, alone, tmp_path):
    pids, killed = client.run(os.getpid), []

    def killing(_, request):
        if is_load_of_third_day(request) and not killed:
            killed.extend(pids.values())
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    with node_of(ROWS, faults=killing) as node:
        run_export(node, tmp_path / "a", executor=client, **WHOLE)
    assert killed
    assert not set(client.run(os.getpid).values()) & set(killed)
    assert lasting(tmp_path / "a") == alone


def test_an_error_of_a_task_is_itself_and_what_is_before_it_stays(client, alone, tmp_path):
    def refusing(_, request):
        return Fault.status(403) if begins_in_third_day(request) else None

    with node_of(ROWS, faults=refusing) as node:
        with pytest.raises(RequestError) as failed:
            run_export(node, tmp_path / "a", executor=client.get_executor(), **WHOLE)
        assert failed.value.status == 403
        assert failed.value.__notes__ == ["in the task of the period 2023-04-30"]
        assert spans_of(tmp_path / "a") == [(START, THIRD, True)]
        node.faults = ()
        run_export(node, tmp_path / "a", executor=client.get_executor(), end=END)
    assert lasting(tmp_path / "a") == alone


class Gate:
    """A node's answers for the third day wait until the test opens it."""

    def __init__(self):
        self._opened = threading.Event()

    def __call__(self, _, request):
        if is_load_of_third_day(request):
            self._opened.wait(60)

    def open(self):
        self._opened.set()


@contextlib.contextmanager
def stopped_in_the_third_day(folder, address):
    """Run a driver until two days are committed and the third one is being loaded."""
    gate = Gate()
    with node_of(ROWS, faults=gate) as node, driver(node, folder, address) as process:
        try:
            until(lambda: (folder / "_coverage.json").exists() and covers_two_days(folder))
            yield process
        finally:
            gate.open()
            process.kill()
            process.wait(10)


def covers_two_days(folder):
    return [end for _, end, _ in spans_of(folder)] == [THIRD]


def test_a_driver_that_is_killed_is_started_again_and_ends_equal(cluster, alone, tmp_path):
    with stopped_in_the_third_day(tmp_path / "a", cluster.address) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        assert_holds(tmp_path / "a", ROWS, whole=(START, THIRD))
    with node_of(ROWS) as node, driver(node, tmp_path / "a", cluster.address) as process:
        assert ended(process)[0] == 0
    assert lasting(tmp_path / "a") == alone
    assert Archive(tmp_path / "a").verify().is_whole


def test_a_scheduler_that_restarts_ends_the_run_and_the_next_one_completes_it(
    cluster, alone, tmp_path
):
    with stopped_in_the_third_day(tmp_path / "a", cluster.address) as process:
        cluster.kill_scheduler()
        code, said = ended(process)
    assert (code, "the cluster was lost" in said) == (3, True), said
    assert "Traceback" not in said
    assert_holds(tmp_path / "a", ROWS, whole=(START, THIRD))
    cluster.start()
    with node_of(ROWS) as node, driver(node, tmp_path / "a", cluster.address) as process:
        assert ended(process)[0] == 0
    assert lasting(tmp_path / "a") == alone


def test_a_scheduler_that_is_not_there_is_a_source_that_is_not_available(tmp_path, monkeypatch):
    monkeypatch.setattr("balance_analysis.cli.archive.SECONDS", 1)
    said = fails(*NOWHERE, tmp_path / "a", *SCHEDULER, code=4, folder=tmp_path)
    assert "tcp://127.0.0.1:1: the scheduler can't be reached" in said


def test_without_dask_the_command_tells_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    said = fails(*NOWHERE, tmp_path / "a", *SCHEDULER, code=2, folder=tmp_path)
    assert "pip install 'balance-analysis[cluster]'" in said


@pytest.mark.parametrize("option", ["--repair", "--dry-run"])
def test_what_asks_from_here_takes_no_scheduler(tmp_path, option):
    said = fails(*NOWHERE, tmp_path / "a", option, *SCHEDULER, code=2, folder=tmp_path)
    assert f"{option} works without a cluster: leave --scheduler out" in said


@pytest.mark.parametrize("address", ["hello", "nothing://127.0.0.1:1"])
def test_an_address_that_is_none_is_a_slip_of_the_caller(tmp_path, address):
    said = fails("verify", tmp_path, "--scheduler", address, code=2, folder=tmp_path)
    assert f"--scheduler {address}: " in said
