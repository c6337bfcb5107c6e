from __future__ import annotations

import itertools
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance_analysis.node.pace import Pace


class Clock:
    """A clock that only sleeping and the test move."""

    def __init__(self):
        self.now = 100.0
        self.slept = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def pace_of(per_second):
    clock = Clock()
    return Pace(per_second, clock=clock, sleep=clock.sleep), clock


def test_the_first_request_does_not_wait():
    pace, clock = pace_of(2)
    pace.wait()
    assert clock.slept == []


def test_further_requests_wait_for_their_slots():
    pace, clock = pace_of(2)
    for _ in range(4):
        pace.wait()
    assert clock.slept == pytest.approx([0.5, 0.5, 0.5])


def test_a_pause_of_the_caller_is_not_waited_again():
    pace, clock = pace_of(2)
    pace.wait()
    clock.now += 0.4
    pace.wait()
    assert clock.slept == pytest.approx([0.1])


def test_idle_time_is_not_saved_up():
    pace, clock = pace_of(2)
    clock.now += 1000
    for _ in range(3):
        pace.wait()
    assert clock.slept == pytest.approx([0.5, 0.5])


@given(st.floats(0.1, 100), st.lists(st.floats(0, 20), min_size=2, max_size=20))
def test_two_requests_are_never_closer_than_the_rate_allows(per_second, pauses):
    pace, clock = pace_of(per_second)
    moments = []
    for pause in pauses:
        clock.now += pause
        pace.wait()
        moments.append(clock.now)
    for before, after in itertools.pairwise(moments):
        assert after - before >= 1 / per_second - 1e-6


def test_threads_share_the_slots():
    slept, lock = [], threading.Lock()

    def sleep(seconds):
        with lock:
            slept.append(seconds)

    pace = Pace(10, clock=lambda: 5.0, sleep=sleep)
    threads = [threading.Thread(target=pace.wait) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(slept) == pytest.approx([0.1 * slot for slot in range(1, 8)])


def test_no_rate_is_no_waiting():
    pace, clock = pace_of(None)
    for _ in range(5):
        pace.wait()
    assert clock.slept == []


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_a_rate_that_is_not_positive_is_refused(rate):
    with pytest.raises(ValueError, match=f"max_requests_per_second .*{rate!r}"):
        Pace(rate)
