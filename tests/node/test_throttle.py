from __future__ import annotations

import itertools
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance_analysis import RequestError
from balance_analysis.node.client import Throttle


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


def throttle_of(per_second):
    clock = Clock()
    return Throttle(per_second, clock=clock, sleep=clock.sleep), clock


def test_idle_time_is_not_saved_up():
    throttle, clock = throttle_of(2)
    clock.now += 1000
    for _ in range(3):
        throttle.wait()
    assert clock.slept == pytest.approx([0.5, 0.5])


@given(st.floats(0.1, 100), st.lists(st.floats(0, 20), min_size=2, max_size=20))
def test_two_requests_are_never_closer_than_the_rate_allows(per_second, pauses):
    throttle, clock = throttle_of(per_second)
    moments = []
    for pause in pauses:
        clock.now += pause
        throttle.wait()
        moments.append(clock.now)
    for before, after in itertools.pairwise(moments):
        assert after - before >= 1 / per_second - 1e-6


def test_threads_share_the_slots():
    slept, lock = [], threading.Lock()

    def sleep(seconds):
        with lock:
            slept.append(seconds)

    throttle = Throttle(10, clock=lambda: 5.0, sleep=sleep)
    threads = [threading.Thread(target=throttle.wait) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(slept) == pytest.approx([0.1 * slot for slot in range(1, 8)])


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_a_rate_that_is_not_positive_is_refused(rate):
    with pytest.raises(ValueError, match=f"max_requests_per_second .*{rate!r}"):
        Throttle(rate)


def refused(throttle, *, seconds, is_told):
    told = seconds if is_told else None
    error = RequestError("refused", url="u", status=429, retryable=True, retry_after=told)
    return throttle.wait_again(error, 0)


@pytest.mark.parametrize("per_second", [None, 100, 0.9, 0.5])
def test_a_told_pause_is_waited_as_it_is_again_and_again(per_second, caplog):
    throttle, clock = throttle_of(per_second)
    throttle.wait()
    waits = [refused(throttle, seconds=1.0, is_told=True) for _ in range(8)]
    slot = 0.0 if per_second is None else 1 / per_second
    assert waits == pytest.approx([max(1.0, slot)] * 8)
    assert clock.slept == waits
    told = [float(record.getMessage().split()[-2]) for record in caplog.records]
    assert told == pytest.approx(waits, abs=0.05)


def test_a_told_pause_keeps_to_the_rate_of_the_caller():
    clock = Clock()
    throttle = Throttle(2, clock=clock, sleep=lambda _: None)
    slots = [throttle.wait() for _ in range(4)]
    slots += [refused(throttle, seconds=1.0, is_told=True) for _ in range(3)]
    slots += [throttle.wait() for _ in range(3)]
    gaps = [after - before for before, after in itertools.pairwise(sorted(slots))]
    assert min(gaps) >= 0.5 - 1e-9


def test_a_guessed_pause_spreads_those_that_were_refused():
    clock = Clock()
    throttle = Throttle(None, clock=clock, sleep=lambda _: None)
    waits = [refused(throttle, seconds=0.5, is_told=False) for _ in range(4)]
    assert waits == pytest.approx([0.5 + place / 16 for place in range(4)])


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_refusals_slow_the_rate_down_to_a_pause_at_most(seconds):
    throttle, _ = throttle_of(None)
    for _ in range(20):
        refused(throttle, seconds=seconds, is_told=True)
    throttle.wait()
    assert throttle.wait() <= max(seconds, 1 / 16)
