"""Spans: the same moments, whatever way they are joined or clipped."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from balance_analysis.spans import clipped, joined

spans = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 10)).map(lambda p: (p[0], p[0] + p[1])), max_size=8
)


def moments(some):
    return {moment for start, end in some for moment in range(start, end)}


@given(spans)
def test_joined_spans_have_the_same_moments_and_lie_apart(some):
    united = joined(some)
    assert moments(united) == moments(some)
    assert all(before[1] < after[0] for before, after in pairwise(united))


@given(spans, st.integers(-1, 42), st.integers(-1, 42))
def test_clipped_spans_have_the_moments_of_an_interval(some, start, end):
    parts = list(clipped(some, start, end))
    assert moments(parts) == moments(some) & set(range(start, end))
    assert all(begin < stop for begin, stop in parts)
