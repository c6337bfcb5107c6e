"""Tasks side by side: results in their order, bounded waiting, and clusters that can't work."""

from __future__ import annotations

import importlib.metadata
import threading
import time
from concurrent.futures import CancelledError, Future

import pytest

from balance_analysis.ingest import executor as pool
from balance_analysis.ingest.executor import AHEAD, Pool

OWN = {name: importlib.metadata.version(name) for name in ("balance-analysis", "pyarrow")}


class Late:
    """An executor whose tasks end when the test says so."""

    _max_workers = 3

    def __init__(self):
        self.futures = []

    def submit(self, _, item):
        self.futures.append((item, Future()))
        return self.futures[-1][1]

    def end(self, *numbers):
        for number in numbers:
            item, future = self.futures[number]
            future.set_result(-item)


def test_results_come_in_order_and_tasks_are_handed_out_as_others_end():
    executor, found = Late(), []
    taking = Pool.of(executor).run_in_order(None, range(40), 3)

    def take():
        found.append(next(taking))

    thread = threading.Thread(target=lambda: [take() for _ in range(2)], daemon=True)
    thread.start()
    wait_until(lambda: len(executor.futures) == 3)
    executor.end(2, 1)
    wait_until(lambda: len(executor.futures) == 5)
    assert found == []
    executor.end(*range(3, 5))
    wait_until(lambda: len(executor.futures) == 7)
    executor.end(0)
    thread.join(10)
    assert found == [(0, 0), (1, -1)]
    taking.close()
    assert all(future.cancelled() or future.done() for _, future in executor.futures)


def test_what_waits_for_the_slowest_task_is_bounded():
    class AllButTheFirst(Late):
        def submit(self, function, item):
            future = super().submit(function, item)
            if item:
                future.set_result(-item)
            return future

    executor = AllButTheFirst()
    taking = Pool.of(executor).run_in_order(None, range(1000), 3)
    thread = threading.Thread(target=lambda: next(taking), daemon=True)
    thread.start()
    wait_until(lambda: len(executor.futures) == 3 * AHEAD)
    time.sleep(0.05)
    assert len(executor.futures) == 3 * AHEAD
    executor.end(0)
    thread.join(10)
    taking.close()


def test_one_at_a_time_is_taken_of_what_may_wait():
    executor = Late()
    taking = Pool.of(executor).map(None, range(1000))
    thread = threading.Thread(target=lambda: next(taking), daemon=True)
    thread.start()
    wait_until(lambda: len(executor.futures) == 6)
    executor.end(1, 2, 3, 4, 5)
    time.sleep(0.05)
    assert len(executor.futures) == 6
    executor.end(0)
    thread.join(10)
    taking.close()


def test_a_task_that_is_cancelled_from_outside_says_so(monkeypatch):
    monkeypatch.setattr(pool, "_LOOK", 0.01)
    executor = Late()
    taking = Pool.of(executor).map(None, ["the day"])

    def cancel():
        wait_until(lambda: executor.futures)
        executor.futures[0][1].cancel()

    threading.Thread(target=cancel).start()
    with pytest.raises(CancelledError, match="the cluster was lost") as failed:
        next(taking)
    assert failed.value.__notes__ == ["in the task of the day"]


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

    def cancel(self, number):
        future = self.futures[number][1]
        future.cancel()
        future.set_running_or_notify_cancel()

    def nthreads(self):
        return self.threads

    def run(self, function, text, *, on_error):
        assert on_error == "return"
        if self.found == {0: "asked"}:
            return {0: function(text)}
        return self.found


def test_workers_with_the_same_packages_are_counted():
    assert Pool.of(Cluster("asked")).width == 2


def test_a_task_that_a_cluster_cancels_says_so():
    cluster = Cluster(OWN)
    taking = Pool.of(cluster).map(None, ["the day"])
    threading.Timer(0.1, lambda: cluster.cancel(0)).start()
    with pytest.raises(CancelledError, match="the cluster was lost"):
        next(taking)


def test_what_is_not_taken_is_cancelled_on_the_cluster():
    cluster = Cluster(OWN)
    taking = Pool.of(cluster).map(None, range(9))
    threading.Timer(0.1, lambda: cluster.end(0)).start()
    assert next(taking) == 0
    taking.close()
    others = [future for _, future in cluster.futures[1:]]
    assert others
    assert all(future.cancelled() for future in others)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (ModuleNotFoundError("No module named 'balance_analysis'"), "No module named"),
        ({**OWN, "pyarrow": "12.0"}, "the worker 1 has .*pyarrow 12.0: install balance-analysis"),
    ],
)
def test_a_worker_that_can_not_do_the_work_is_refused_before_any(found, said):
    cluster = Cluster(OWN, found)
    with pytest.raises(ValueError, match=said):
        Pool.of(cluster)
    assert cluster.futures == []


def test_a_cluster_without_workers_is_waited_for_and_told_of(monkeypatch, caplog):
    monkeypatch.setattr(pool, "_LOOK", 0.01)
    cluster = Cluster(threads={})
    taking = Pool.of(cluster).map(None, [1, 2])
    thread = threading.Thread(target=lambda: [next(taking) for _ in range(2)], daemon=True)
    thread.start()
    wait_until(lambda: caplog.records)
    time.sleep(0.1)
    assert [each.message for each in caplog.records] == [
        "the cluster has no workers: waiting for one to join"
    ]
    cluster.end(0, 1)
    thread.join(10)
    assert not thread.is_alive()


def test_a_cluster_that_works_is_not_told_of(monkeypatch, caplog):
    monkeypatch.setattr(pool, "_LOOK", 0.01)
    cluster = Cluster(OWN)
    taking = Pool.of(cluster).map(None, [1])
    threading.Timer(0.2, lambda: cluster.end(0)).start()
    assert next(taking) == -1
    assert not caplog.records


def wait_until(is_so):
    for _ in range(1000):
        if is_so():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")
