"""Tasks side by side: results in their order, bounded waiting, and clusters that can't work."""

from __future__ import annotations

import importlib.metadata
import threading
import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor

import pytest
from balance_analysis.ingest import executor as executing
from balance_analysis.ingest.executor import Pool

OWN = {name: importlib.metadata.version(name) for name in ("balance-analysis", "pyarrow")}


class Late:
    """An executor whose tasks end when the test says so, but for those that end at once."""

    _max_workers = 3

    def __init__(self, at_once=lambda _: False):
        self.futures, self.ends_at_once = [], at_once

    def submit(self, _, item):
        future = Future()
        self.futures.append((item, future))
        if self.ends_at_once(item):
            future.set_result(-item)
        return future

    def end(self, *numbers):
        for number in numbers:
            item, future = self.futures[number]
            future.set_result(-item)


class Cluster(Late):
    """What a client of a cluster has, with workers of given versions."""

    def __init__(self, *found, threads=None):
        super().__init__()
        self.found = dict(enumerate(found))
        self.threads = dict.fromkeys(self.found, 2) if threads is None else threads

    def get_executor(self):
        raise AssertionError("Dask's own executor loses results")

    def submit(self, function, item, *, pure):
        assert not pure
        return super().submit(function, item)

    def nthreads(self):
        return self.threads

    def run(self, function, text, *, on_error):
        assert on_error == "return"
        return {0: function(text)} if self.found == {0: "asked"} else self.found


def until(is_so):
    for _ in range(6000):
        if is_so():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


@pytest.fixture
def beside():
    """Run a function beside the test."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


def test_results_come_in_order_and_tasks_are_handed_out_as_others_end(beside):
    executor = Late()
    taking = Pool.of(executor).map(None, range(40), 3, ahead=8)
    found = beside(lambda: [next(taking) for _ in range(2)])
    until(lambda: len(executor.futures) == 3)
    executor.end(2, 1)
    until(lambda: len(executor.futures) == 5)
    assert not found.done()
    executor.end(3, 4)
    until(lambda: len(executor.futures) == 7)
    executor.end(0)
    assert found.result(60) == [0, -1]
    taking.close()
    assert all(future.cancelled() or future.done() for _, future in executor.futures)


@pytest.mark.parametrize(("how", "most"), [((3,), 3 * 4), ((), 6)])
def test_what_waits_for_the_slowest_task_is_bounded(beside, how, most):
    executor = Late(lambda item: item > 0)
    taking = Pool.of(executor).map(None, range(1000), *how, ahead=4 if how else 1)
    first = beside(next, taking)
    until(lambda: len(executor.futures) == most)
    time.sleep(0.05)
    assert len(executor.futures) == most
    executor.end(0)
    assert first.result(60) == 0
    taking.close()


@pytest.mark.parametrize("executor", [Late(), Cluster(OWN)])
def test_a_task_that_is_cancelled_from_outside_says_so(beside, executor):
    taking = Pool.of(executor).map(None, ["the day"])
    failing = beside(next, taking)
    until(lambda: executor.futures)
    executor.futures[0][1].cancel()
    with pytest.raises(CancelledError, match="the cluster was lost") as failed:
        failing.result(60)
    assert failed.value.__notes__ == ["in the task of the day"]


def test_an_executor_that_takes_no_more_fails_the_task_when_its_turn_has_come(beside):
    executor = Late(lambda item: 1 / (item < 2))
    taking = Pool.of(executor).map(None, [1, 2])
    assert next(taking) == -1
    with pytest.raises(ZeroDivisionError) as failed:
        next(taking)
    assert failed.value.__notes__ == ["in the task of 2"]


def test_what_is_not_taken_is_cancelled_on_the_cluster(beside):
    cluster = Cluster(OWN)
    taking = Pool.of(cluster).map(None, range(9))
    first = beside(next, taking)
    until(lambda: len(cluster.futures) == 4)
    cluster.end(0)
    assert first.result(60) == 0
    taking.close()
    assert all(future.cancelled() for _, future in cluster.futures[1:])


def test_workers_with_the_same_packages_are_counted():
    assert Pool.of(Cluster("asked")).width == 2


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (ModuleNotFoundError("No module named 'balance_analysis'"), "No module named"),
        ({**OWN, "pyarrow": "12.0"}, r"the worker 1 has .*'12\.0'.*: install balance-analysis"),
    ],
)
def test_a_worker_that_can_not_do_the_work_is_refused_before_any(found, said):
    cluster = Cluster(OWN, found)
    with pytest.raises(ValueError, match=said):
        Pool.of(cluster)
    assert cluster.futures == []


@pytest.mark.parametrize("threads", [{}, {"a": 2}])
def test_a_cluster_without_workers_is_waited_for_and_told_of(monkeypatch, caplog, threads, beside):
    monkeypatch.setattr(executing, "_LOOK", 0.01)
    looked = threading.Event()

    class Watched(Cluster):
        def nthreads(self):
            looked.set()
            return super().nthreads()

    cluster = Watched(threads=threads)
    taking = Pool.of(cluster).map(None, [1])
    looked.clear()
    first = beside(next, taking)
    assert looked.wait(10)
    cluster.end(0)
    assert first.result(60) == -1
    said = {each.message for each in caplog.records}
    assert said == (set() if threads else {"the cluster has no workers: waiting for one to join"})
