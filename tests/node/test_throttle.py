from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_a_rate_that_is_not_positive_is_refused(rate):
    with pytest.raises(ValueError, match=f"max_requests_per_second .*{rate!r}"):
        Throttle(rate)


def refused(throttle, seconds):
    """Return how long a thread waits that was refused."""
    throttle.hold(seconds)
    return throttle.wait()


@pytest.mark.parametrize("per_second", [None, 100, 0.9, 0.5])
def test_a_pause_is_waited_as_it_is_again_and_again(per_second):
    throttle, clock = throttle_of(per_second)
    throttle.wait()
    waits = [refused(throttle, 1.0) for _ in range(8)]
    slot = 0.0 if per_second is None else 1 / per_second
    assert waits == pytest.approx([max(1.0, slot)] * 8)
    assert clock.slept == waits


def test_a_pause_keeps_to_the_rate_of_the_caller():
    clock = Clock()
    throttle = Throttle(2, clock=clock, sleep=lambda _: None)
    slots = [throttle.wait() for _ in range(4)]
    slots += [refused(throttle, 1.0) for _ in range(3)]
    slots += [throttle.wait() for _ in range(3)]
    gaps = [after - before for before, after in itertools.pairwise(sorted(slots))]
    assert min(gaps) >= 0.5 - 1e-9


def test_a_pause_spreads_those_that_were_refused():
    clock = Clock()
    throttle = Throttle(None, clock=clock, sleep=lambda _: None)
    waits = [refused(throttle, 0.5) for _ in range(4)]
    assert waits == pytest.approx([0.5 + place / 16 for place in range(4)], abs=0.01)


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_refusals_slow_the_rate_down_to_a_pause_at_most(seconds):
    throttle, _ = throttle_of(None)
    for _ in range(20):
        refused(throttle, seconds)
    throttle.wait()
    assert throttle.wait() <= max(seconds, 1 / 16)
