from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from balance_analysis.analysis import int128

LIMIT = 10**38
EDGES = [0, 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, LIMIT - 1]

sizes = st.sampled_from([1, 3, 20, 62, 63, 64, 65, 100, 126])
whole = st.one_of(
    sizes.flatmap(lambda bits: st.integers(0, min(2**bits, LIMIT) - 1)), st.sampled_from(EDGES)
)
numbers = st.one_of(whole, whole.map(lambda value: -value))
lists = st.lists(numbers, min_size=1, max_size=20)
widths = st.integers(1, 62)
repeated = st.builds(
    lambda value, times: [value] * times,
    st.sampled_from([LIMIT - 1, 1 - LIMIT, 2**125 - 1, -(2**94), 2**94 - 1]),
    st.integers(1, 20),
)
"""Amounts whose sums need most bits."""


few = st.lists(numbers, min_size=1, max_size=4).flatmap(
    lambda few: st.lists(st.sampled_from(few), min_size=1, max_size=20)
)
"""Amounts of which many are equal."""


@st.composite
def runs(draw, amounts):
    """Draw amounts, and the starts of runs of them."""
    values = draw(amounts)
    starts = draw(st.sets(st.integers(0, len(values) - 1)).map(lambda places: {0, *places}))
    return values, np.array(sorted(starts))


def summable(values):
    """Return integers as words that can be added and subtracted."""
    return int128.summable(int128.words_from(list(values)))


def in_three_words(values):
    digits = [[value >> place & (2**60 - 1) for value in values] for place in (0, 60)]
    return int128.compose(np.array([*digits, [value >> 120 for value in values]]), 60)


ways = st.sampled_from([int128.words_from, in_three_words])
"""Two words, or three."""


def spans(values, starts):
    return zip(starts, [*starts[1:], len(values)], strict=True)


@given(st.lists(st.none() | numbers, min_size=1))
def test_integers_become_words_and_decimals_and_are_null_where_unknown(values):
    whole, known = [value or 0 for value in values], [value is not None for value in values]
    words = int128.words_from(whole)
    assert int128.integers_of(words) == whole
    decimals = int128.to_balances(words, np.array(known))
    assert [None if value is pd.NA else int(value) for value in decimals] == values


@given(st.lists(st.tuples(numbers, numbers), min_size=1))
@example([(LIMIT - 1, 1 - LIMIT)])
def test_differences_are_exact(pairs):
    one, other = map(list, zip(*pairs, strict=True))
    both = summable(one + other)
    change = int128.subtract(both[: len(pairs)], both[len(pairs) :])
    assert int128.integers_of(change) == [a - b for a, b in pairs]


@given(lists, ways)
def test_amounts_of_0_are_found(values, way):
    assert int128.is_zero(way(values)).tolist() == [value == 0 for value in values]


@given(lists, lists)
def test_columns_with_different_numbers_of_words_are_joined(one, other):
    parts = [int128.words_from(one), summable(other), in_three_words(one)]
    assert int128.integers_of(int128.joined(parts)) == [*one, *other, *one]
    assert int128.joined([np.array([1, 2]), np.array([3])]).tolist() == [1, 2, 3]


@given(lists, widths, ways)
def test_digits_add_up_to_the_amount_and_compose_it_again(values, width, way):
    digits = list(int128.digits_of(way(values), width))
    for lower in digits[:-1]:
        assert lower.min() >= 0
        assert int(lower.max()) < 2**width
    for place, value in enumerate(values):
        assert sum(int(digit[place]) << (width * k) for k, digit in enumerate(digits)) == value
    assert int128.integers_of(int128.compose(digits, width)) == values


SIZES = [LIMIT - 1, LIMIT, 2**127 - 1, 2**127, 2**128 - 1, 2**128, 2**128 + 5, 2**130]
both_signs = [*SIZES, *(-size for size in SIZES)]


@pytest.mark.parametrize("width", range(1, 63))
def test_amounts_beyond_38_digits_are_exact_at_any_width_and_are_refused_where_known(width):
    for size in both_signs:
        digits, rest = [], size
        while not -2 < rest < 1:
            digits.append(np.array([rest & (2**width - 1)]))
            rest >>= width
        words = int128.compose([*digits, np.array([rest])], width)
        assert int128.integers_of(words) == [size]
        assert int128.to_balances(words, np.array([False])).isna().all()
        if abs(size) < LIMIT:
            assert int(int128.to_balances(words)[0]) == size
        else:
            with pytest.raises(OverflowError, match=r"^amount 0 has more than 38 digits"):
                int128.to_balances(words)


@given(st.lists(st.integers(-(2**61), 2**61), min_size=1, max_size=4), st.integers(1, 40))
@example([-1, 0, 0, 2**60], 40)
@example([2**60, 2**40 - 1, 2**40 - 1, 2**8 - 1], 40)
def test_digits_of_any_sign_are_composed_exactly(digits, width):
    words = int128.compose([np.array([digit]) for digit in digits], width)
    exact = sum(digit << (width * place) for place, digit in enumerate(digits))
    assert int128.integers_of(words) == [exact]


@given(runs(lists | repeated))
def test_amounts_add_up_run_by_run(case):
    values, starts = case
    expected = [sum(values[a:b]) for a, b in spans(values, starts)]
    assert int128.integers_of(int128.sum_words(summable(values), starts)) == expected


@given(st.data(), st.integers(1, 53))
def test_quotients_are_rounded_half_to_even(data, bits):
    values = data.draw(lists)
    width = 61 - bits
    divisors = data.draw(ints(1, 2**bits - 1, len(values)))
    factors = [data.draw(st.integers(0, divisor)) for divisor in divisors]
    digits = list(int128.digits_of(int128.words_from(values), width))
    products = [digit * np.array(factors) for digit in digits]

    def quotients(digits, by):
        return int128.integers_of(int128.compose(int128.divide(digits, width, by), width))

    cases = zip(values, factors, divisors, strict=True)
    expected = [round(Fraction(v * f, d)) for v, f, d in cases]
    assert quotients(products, np.array(divisors)) == expected
    by_one = [round(Fraction(value, divisors[0])) for value in values]
    assert quotients(digits, divisors[0]) == by_one


def ints(least, most, count):
    return st.lists(
        st.one_of(st.integers(least, most), st.sampled_from([least, min(2, most), most])),
        min_size=count,
        max_size=count,
    )


@given(runs(few), ways)
def test_extremes_and_running_maxima_are_where_they_were_first_reached(case, way):
    values, starts = case
    words, places = way(values), [*spans(values, starts)]
    for largest, sign in ((True, -1), (False, 1)):
        firsts = [min(range(*span), key=lambda i: (sign * values[i], i)) for span in places]
        extremes = int128.extremes(words, starts, largest=largest)
        assert int128.integers_of(extremes) == [values[first] for first in firsts]
        assert int128.first_places(words, extremes, starts).tolist() == firsts
    assert int128.running_maxima(words, starts).tolist() == [
        min(range(start, place + 1), key=lambda i: (-values[i], i))
        for start, stop in places
        for place in range(start, stop)
    ]
