"""Compute exactly with millions of integers of up to 38 digits.

Arrow's decimals compare and add, but have no running maximum, no sum that reports overflow and no
division that rounds half to even. Here an amount is its 128 bits: two *words*, the lower first. To
add or multiply, it is split into *digits* of some width in bits, each in an int64, the lowest
first. The caller chooses the width so that no sum of digits exceeds 62 bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.table.schema import BALANCE_DIGITS

ROOM: Final = 62
"""Maximum bits of a sum of digits: an int64 holds it and a carry."""

CELL_DIGIT: Final = 32
"""Bits per digit in `add_to_cells`."""

_WORD: Final = 64
_HALF: Final = np.int64(32)
_TYPE: Final = pa.decimal128(BALANCE_DIGITS, 0)
_ONE_AMOUNT: Final = "V16"


def words_of(amounts: pa.Array[Any] | pa.ChunkedArray[Any]) -> NDArray[np.int64]:
    """Return decimals of `BALANCE_DIGITS` digits as words; those of nulls are arbitrary."""
    whole = amounts.combine_chunks() if isinstance(amounts, pa.ChunkedArray) else amounts
    if not len(whole):
        return np.empty((0, 2), np.int64)
    words = np.frombuffer(whole.buffers()[1], np.int64).reshape(-1, 2)
    return words[whole.offset : whole.offset + len(whole)]


def words_from(values: Sequence[int]) -> NDArray[np.int64]:
    """Return Python integers as words."""
    return words_of(pa.array(values, _TYPE))


def to_balances(
    words: NDArray[np.int64], known: NDArray[np.bool_] | None = None
) -> pd.arrays.ArrowExtensionArray:
    """Return words as a column of amounts, NA where unknown."""
    return pd.arrays.ArrowExtensionArray(to_decimals(words, known))


def to_decimals(words: NDArray[np.int64], known: NDArray[np.bool_] | None = None) -> pa.Array[Any]:
    """Return words as Arrow decimals, null where unknown."""
    bits = None if known is None else pa.py_buffer(np.packbits(known, bitorder="little"))
    words = np.ascontiguousarray(words)
    return pa.Array.from_buffers(_TYPE, len(words), [bits, pa.py_buffer(words)])


def take(values: NDArray[np.int64], positions: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return the amounts at some positions."""
    amounts = np.ascontiguousarray(values).view(_ONE_AMOUNT)[:, 0]
    return amounts.take(positions).view(np.int64).reshape(-1, 2)


def is_zero(words: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the amounts that are 0."""
    result: NDArray[np.bool_] = (words[:, 0] | words[:, 1]) == 0
    return result


def is_less(words: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the amounts that are less than the others."""
    lower = words[:, 0].view(np.uint64) < others[:, 0].view(np.uint64)
    result: NDArray[np.bool_] = words[:, 1] < others[:, 1]
    result |= (words[:, 1] == others[:, 1]) & lower
    return result


def subtract(
    words: NDArray[np.int64], others: NDArray[np.int64], *, out: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return differences, in `out` if given, and a mask of those with more than 38 digits."""
    result = np.subtract(words, others, out=out)
    result[:, 1] -= words[:, 0].view(np.uint64) < others[:, 0].view(np.uint64)
    return result, _is_too_large(result)


_LIMIT: Final = 10**BALANCE_DIGITS
_LEAST: Final = words_from([-_LIMIT + 1])
_MOST: Final = words_from([_LIMIT - 1])


def _is_too_large(words: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the sums or differences of two amounts that have more than 38 digits.

    They are less than 2 * 10**38 in size, so one that overflows 128 bits has 39 digits.
    """
    high = words[:, 1]
    if high.min(initial=0) > _LEAST[0, 1] and high.max(initial=0) < _MOST[0, 1]:
        return np.zeros(len(words), bool)
    return is_less(_MOST, words) | is_less(words, _LEAST)


def digits_of(words: NDArray[np.int64], width: int) -> Iterator[NDArray[np.int64]]:
    """Yield amounts digit by digit, the lowest first, as many as the largest amount needs.

    Parameters
    ----------
    words
        The amounts.
    width
        Bits per digit, from 1 to 62. All digits but the last are from 0 to 2**width - 1; the last
        has the sign.
    """
    low, high = halves(words)
    count = -(-_bits(low, high) // width)
    for place in range(count):
        digit = _shifted(low, high, place * width, width)
        if place < count - 1:
            digit &= np.int64((1 << width) - 1)
        yield digit


def _bits(low: NDArray[np.uint64], high: NDArray[np.int64]) -> int:
    """Return the number of bits that every amount fits in, including the sign."""
    if not len(high):
        return 1
    least, most = int(high.min()), int(high.max())
    if least == most == 0:
        return int(low.max()).bit_length() + 1
    return _WORD + max(most.bit_length(), (~least).bit_length()) + 1


def _shifted(
    low: NDArray[np.uint64], high: NDArray[np.int64], places: int, width: int
) -> NDArray[np.int64]:
    """Return at least the `width` lowest bits of amounts shifted to the right, as a copy.

    For the last digit, these are all bits, including those of the upper word.
    """
    if places >= _WORD:
        return high >> np.int64(min(places - _WORD, _WORD - 1))
    shifted = low >> np.uint64(places)
    if places + width > _WORD:
        shifted |= high.view(np.uint64) << np.uint64(_WORD - places)
    return shifted.view(np.int64)


def compose(
    digits: Sequence[NDArray[np.int64]], width: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the words of amounts given as digits, and a mask of those over 38 decimal digits.

    Parameters
    ----------
    digits
        Sums of digits, the lowest first, of any sign and at most `ROOM` bits each.
    width
        Bits per digit.
    """
    low, high = np.zeros(len(digits[0]), np.uint64), np.zeros(len(digits[0]), np.int64)
    too_large = np.zeros(len(high), bool)
    for digit in reversed(digits):
        bits, sign = digit.view(np.uint64), np.int64(_WORD - 1)
        too_large |= high >> np.int64(_WORD - 1 - width) != high >> sign  # significant bits lost
        high = (high << np.int64(width)) | (low >> np.uint64(_WORD - width)).view(np.int64)
        low = (low << np.uint64(width)) + bits
        high += (digit >> sign) + (low < bits)
    words = np.stack([low.view(np.int64), high], axis=1)
    return words, too_large | _is_too_large(words)


def sum_runs(
    values: NDArray[Any], begins: NDArray[np.int64], ends: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return the sums of the numbers in [begin, end); by default, each run ends at the next one.

    Each sum must fit into an int64. The running sum may overflow: its differences are still right,
    and for short runs much faster than `numpy.add.reduceat`.
    """
    running = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values.astype(np.int64, copy=False), out=running[1:])
    ends = np.append(begins[1:], len(values))[: len(begins)] if ends is None else ends
    sums: NDArray[np.int64] = running.take(ends)
    sums -= running.take(begins)
    return sums


def halves(words: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the lower and the upper words as contiguous copies, which are faster to work with."""
    return words[:, 0].copy().view(np.uint64), words[:, 1].copy()


def running_sums(low: NDArray[np.uint64], high: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the running sums of amounts, beginning with 0, in parts for `difference`.

    The parts are the lower and the upper words of the sums. These may overflow: their differences
    are still right modulo 2**128. If a difference can overflow too, a third part has the running
    sums of the upper halves of the upper words: exact for up to 2**30 amounts, however large.
    """
    lower, upper, rough = np.zeros((3, len(low) + 1), np.int64)
    np.cumsum(low, out=lower[1:].view(np.uint64))
    np.cumsum(high + (lower[1:].view(np.uint64) < low), out=upper[1:])
    largest = max(int(high.max(initial=0)), -int(high.min(initial=0)), 1)
    if largest.bit_length() + len(high).bit_length() < _WORD - 1:
        return [lower, upper]
    np.cumsum(high >> _HALF, out=rough[1:])
    return [lower, upper, rough]


def difference(
    sums: Sequence[NDArray[np.int64]], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the sums of the amounts in [begin, end), and a mask of those over 38 digits."""
    words = np.empty((len(begins), 2), np.int64)
    low, high = (part.take(ends) for part in sums[:2])
    before = sums[0].take(begins)
    high -= low.view(np.uint64) < before.view(np.uint64)
    np.subtract(low, before, out=words[:, 0])
    np.subtract(high, sums[1].take(begins), out=words[:, 1])
    too_large = _is_too_large(words)
    for rough in sums[2:]:
        error = (words[:, 1] >> _HALF) - (rough.take(ends) - rough.take(begins))
        too_large |= np.abs(error) > 1 << 31  # an overflow is at least 2**32, less the carries
    return words, too_large


def sum_words(
    words: NDArray[np.int64], begins: NDArray[np.int64], ends: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the sums of amounts (see `sum_runs`), and a mask of those over 38 digits."""
    ends = np.append(begins[1:], len(words))[: len(begins)] if ends is None else ends
    return difference(running_sums(*halves(words)), begins, ends)


def add_to_cells(
    digits: NDArray[np.int64], cells: NDArray[np.int64], words: NDArray[np.int64]
) -> None:
    """Add amounts to those of some cells, in place: four digits of `CELL_DIGIT` bits each."""
    for sums, digit in zip(digits, digits_of(words, CELL_DIGIT), strict=False):
        np.add.at(sums, cells, digit)


def divide(
    digits: Sequence[NDArray[np.int64]], width: int, divisors: NDArray[np.int64] | np.int64
) -> list[NDArray[np.int64]]:
    """Return the digits of amounts divided by positive integers, rounded half to even.

    Parameters
    ----------
    digits
        The lowest first, each at most 2**62 in size, all but the last not negative.
    width
        Bits per digit; plus those of a divisor at most `ROOM`.
    divisors
        One for each amount, or one for all.
    """
    quotients = []
    remainder = np.zeros(len(digits[0]), np.int64)
    for digit in reversed(digits):
        remainder = (remainder << np.int64(width)) + digit
        quotients.append(remainder // divisors)  # several times as fast as divmod
        remainder -= quotients[-1] * divisors
    quotients.reverse()
    doubled = 2 * remainder
    is_odd = (quotients[0] & 1).astype(bool)
    quotients[0] += (doubled > divisors) | ((doubled == divisors) & is_odd)
    return quotients


def extremes(
    words: NDArray[np.int64], starts: NDArray[np.int64], *, largest: bool
) -> NDArray[np.int64]:
    """Return the largest, or smallest, amount of each run of amounts.

    Parameters
    ----------
    words
        The amounts.
    starts
        Where each run begins; the first at 0, no run is empty.
    largest
        Whether to return the largest amounts, not the smallest.
    """
    reduce, never = (np.maximum, 0) if largest else (np.minimum, 2**_WORD - 1)
    low, high = halves(words)
    result = np.empty((len(starts), 2), np.int64)
    result[:, 1] = reduce.reduceat(high, starts)
    # Only the lower words of amounts that have the extreme upper word are compared.
    is_candidate = high == np.repeat(result[:, 1], np.diff(starts, append=len(high)))
    low[~is_candidate] = never
    result[:, 0] = reduce.reduceat(low, starts).view(np.int64)
    return result


def first_places(
    words: NDArray[np.int64], values: NDArray[np.int64], starts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the position of the first amount of each run that is equal to the run's value."""
    lengths = np.diff(starts, append=len(words))
    low, high = (words[:, side] == np.repeat(values[:, side], lengths) for side in (0, 1))
    hits = np.flatnonzero(low & high)
    return hits[np.searchsorted(hits, starts)]


def running_maxima(words: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each amount the position at which its run's maximum so far was first reached.

    Parameters
    ----------
    words
        The amounts.
    starts
        Where each run begins; the first at 0, no run is empty.
    """
    count = len(words)
    is_peak = np.zeros(count, bool)
    is_peak[starts] = True
    segments = np.cumsum(is_peak)
    width = ROOM - count.bit_length()
    *lower, last = digits_of(words, width)
    leads = np.ones(count, bool)
    # A segment is a stretch in which the maximum's digits compared so far are the same. The next
    # digit's maximum is then one over (segment, digit), without amounts whose digits are less.
    for digit in (last + (1 << (width - 1)), *reversed(lower)):
        keys = segments << np.int64(width)
        keys += digit * leads
        maxima = np.maximum.accumulate(keys)
        leads &= keys == maxima
        is_peak[1:] = maxima[1:] != maxima[:-1]
        segments = np.cumsum(is_peak)
    result: NDArray[np.int64] = np.flatnonzero(is_peak)[segments - 1]
    return result


def integers_of(words: NDArray[np.int64]) -> list[int]:
    """Return the amounts as Python integers."""
    return [
        (high << _WORD) | low
        for low, high in zip(
            words[:, 0].view(np.uint64).tolist(), words[:, 1].tolist(), strict=True
        )
    ]


def quotients(parts: Iterable[int | None], wholes: Iterable[int]) -> NDArray[np.float64]:
    """Return exact quotients of integers, each rounded once; NaN for `None` and division by 0."""
    pairs = zip(parts, wholes, strict=True)
    return np.array([np.nan if a is None or not b else a / b for a, b in pairs], float)
