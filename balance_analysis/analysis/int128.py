"""Compute exactly with millions of integers of up to 38 digits.

Arrow's decimals compare and add, but have no running maximum, no sum that reports overflow and no
division that rounds half to even. Here an amount is its 128 bits: two *words*, the lower first.
Amounts whose sums could need more have three: no sum overflows, and only `to_balances` refuses
amounts of more than 38 digits. To multiply, an amount is split into *digits* of some width in bits,
each in an int64, the lowest first. The caller chooses the width so that no sum of digits exceeds 62
bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.table.schema import BALANCE_DIGITS, Ints, Mask

ROOM: Final = 62
"""Maximum bits of a sum of digits: an int64 holds it and a carry."""

CELL_DIGIT: Final = 33
"""Bits per digit in `add_to_cells`: four hold a difference of two amounts."""

_WORD: Final = 64
_MOST_WORDS: Final = 3
_LARGE: Final = 1 << 28
"""Limit of upper words: 2**33 differences of amounts below it add up to at most 38 digits."""

_TYPE: Final = pa.decimal128(BALANCE_DIGITS, 0)


def words_of(amounts: pa.Array[Any] | pa.ChunkedArray[Any]) -> Ints:
    """Return decimals of `BALANCE_DIGITS` digits as words; those of nulls are arbitrary."""
    whole = amounts.combine_chunks() if isinstance(amounts, pa.ChunkedArray) else amounts
    if not len(whole):
        return np.empty((0, 2), np.int64)
    words = np.frombuffer(whole.buffers()[1], np.int64).reshape(-1, 2)
    return words[whole.offset : whole.offset + len(whole)]


def words_from(values: Sequence[int]) -> Ints:
    """Return Python integers as words."""
    return words_of(pa.array(values, _TYPE))


def summable(words: Ints) -> Ints:
    """Return amounts with as many words as sums of them, or of their differences, can need."""
    high = words[:, 1]
    is_large = high.max(initial=0) >= _LARGE or high.min(initial=0) < -_LARGE
    return widened(words, _MOST_WORDS) if is_large else words


def widened(words: Ints, count: int) -> Ints:
    """Return amounts with at least `count` words each."""
    sign = words[:, -1:] >> np.int64(_WORD - 1)
    missing = count - words.shape[1]
    return np.hstack([words, *[sign] * missing]) if missing > 0 else words


def joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate columns; amounts get as many words as those of any part have."""
    words = max(part.shape[1:] for part in parts)
    return np.concatenate([widened(part, *words) if words else part for part in parts])


def to_balances(
    words: Ints, known: Mask | None = None, name: Callable[[int], str] = "amount {}".format
) -> pd.arrays.ArrowExtensionArray:
    """Return words as a column of amounts, NA where unknown.

    Raises
    ------
    OverflowError
        If a known amount has more than 38 digits; `name` describes it, given its place.
    """
    too_large = _are_too_large(words)
    if known is not None:
        too_large &= known
    if too_large.any():
        raise OverflowError(
            f"{name(int(too_large.argmax()))} has more than {BALANCE_DIGITS} digits, which is too "
            "large for a column of amounts"
        )
    bits = None if known is None else pa.py_buffer(np.packbits(known, bitorder="little"))
    words = np.ascontiguousarray(words[:, :2])
    decimals = pa.Array.from_buffers(_TYPE, len(words), [bits, pa.py_buffer(words)])
    return pd.arrays.ArrowExtensionArray(decimals)


def take(values: Ints, positions: NDArray[np.integer[Any]]) -> Ints:
    """Return the amounts at some positions."""
    count = values.shape[1]
    amounts = np.ascontiguousarray(values).view(f"V{8 * count}")[:, 0]
    return amounts.take(positions).view(np.int64).reshape(-1, count)


def is_zero(words: Ints) -> Mask:
    """Return a mask of the amounts that are 0."""
    result: Mask = reduce(np.bitwise_or, words.T) == 0
    return result


def subtract(words: Ints, others: Ints, *, out: Ints | None = None) -> Ints:
    """Return the differences of `summable` amounts, in `out` (another array) if given."""
    result = np.subtract(words, others, out=out)
    return _borrow([*zip(words.T, others.T, strict=True)], result)


def _borrow(columns: Sequence[tuple[Ints, Ints]], out: Ints) -> Ints:
    """Subtract the borrows from differences of words, given the columns that were subtracted."""
    borrows = None
    for place, (left, right) in enumerate(columns[:-1], start=1):
        is_less = left.view(np.uint64) < right.view(np.uint64)
        borrows = is_less if borrows is None else is_less | (left == right) & borrows
        out[:, place] -= borrows
    return out


_LEAST: Final = widened(words_from([1 - 10**BALANCE_DIGITS]), _MOST_WORDS)
_MOST: Final = widened(words_from([10**BALANCE_DIGITS - 1]), _MOST_WORDS)


def _are_too_large(words: Ints) -> Mask:
    """Return a mask of the amounts that have more than 38 digits."""
    if words.shape[1] < _MOST_WORDS:  # see `_LARGE`
        return np.zeros(len(words), bool)
    return (subtract(_MOST, words)[:, -1] < 0) | (subtract(words, _LEAST)[:, -1] < 0)


def digits_of(words: Ints, width: int) -> Iterator[Ints]:
    """Yield amounts digit by digit, the lowest first, as many as the largest amount needs.

    Parameters
    ----------
    words
        The amounts.
    width
        Bits per digit, from 1 to 62. All digits but the last are from 0 to 2**width - 1; the last
        has the sign.
    """
    columns = columns_of(words)
    count = -(-_bits(columns) // width)
    for place in range(count):
        digit = _shifted(columns, place * width, width)
        if place < count - 1:
            digit &= np.int64((1 << width) - 1)
        yield digit


def _bits(columns: Sequence[Ints]) -> int:
    """Return the number of bits that every amount fits in, including the sign."""
    for place, column in reversed([*enumerate(columns)]):
        high = column if place == len(columns) - 1 else column.view(np.uint64)
        least, most = (int(high.min()), int(high.max())) if len(high) else (0, 0)
        if least or most:
            return _WORD * place + max(most.bit_length(), (~least).bit_length() * (least < 0)) + 1
    return 1


def _shifted(columns: Sequence[Ints], places: int, width: int) -> Ints:
    """Return at least the `width` lowest bits of amounts shifted to the right, as a copy.

    For the last digit, these are all bits, including those of the upper words.
    """
    word, places = divmod(places, _WORD)
    if word >= len(columns) - 1:
        places += _WORD * (word - len(columns) + 1)
        return columns[-1] >> np.int64(min(places, _WORD - 1))
    shifted = columns[word].view(np.uint64) >> np.uint64(places)
    if places + width > _WORD:
        shifted |= columns[word + 1].view(np.uint64) << np.uint64(_WORD - places)
    return shifted.view(np.int64)


def compose(digits: Sequence[Ints], width: int) -> Ints:
    """Return amounts given as digits.

    Parameters
    ----------
    digits
        Sums of digits, the lowest first, of any sign and at most `ROOM` bits each.
    width
        Bits per digit.
    """
    sizes = (width * place + _bits([digit]) for place, digit in enumerate(digits))
    is_large = max(sizes) + len(digits).bit_length() > 2 * _WORD
    words = np.zeros((_MOST_WORDS if is_large else 2, len(digits[0])), np.int64)
    for digit in reversed(digits):
        carried = words[:-1].view(np.uint64) >> np.uint64(_WORD - width)
        words <<= np.int64(width)
        words[1:] |= carried.view(np.int64)
        words[0] += digit
        change = (digit >> np.int64(_WORD - 1)) + (words[0].view(np.uint64) < digit.view(np.uint64))
        words[1] += change
        if is_large:
            words[2] += (change > 0) & (words[1] == 0)
            words[2] -= (change < 0) & (words[1] == -1)
    return np.ascontiguousarray(words.T)


def sum_runs(values: NDArray[Any], begins: Ints, ends: Ints | None = None) -> Ints:
    """Return the sums of the numbers in [begin, end); by default, each run ends at the next one.

    Each sum must fit into an int64. The running sum may overflow: its differences are still right,
    and for short runs much faster than `numpy.add.reduceat`.
    """
    running = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values.astype(np.int64, copy=False), out=running[1:])
    ends = np.append(begins[1:], len(values))[: len(begins)] if ends is None else ends
    sums: Ints = running.take(ends)
    sums -= running.take(begins)
    return sums


def columns_of(words: Ints) -> list[Ints]:
    """Return the words by place as contiguous copies, which are faster to work with."""
    return [column.copy() for column in words.T]


def running_sums(columns: Sequence[Ints]) -> Ints:
    """Return the running sums of amounts, given as `columns_of`, beginning with 0, by place.

    They may overflow: their differences are still right.
    """
    sums = np.zeros((len(columns), len(columns[0]) + 1), np.int64)
    carries = None
    for place, column in enumerate(columns):
        added = column if carries is None else column + carries
        running = np.cumsum(added, out=sums[place, 1:])
        if place < len(columns) - 1:
            overflows = running.view(np.uint64) < added.view(np.uint64)
            carries = overflows if carries is None else overflows | (added == 0) & carries
    return sums


def difference(sums: Ints, begins: Ints, ends: Ints) -> Ints:
    """Return the sums of the amounts in [begin, end), given running sums."""
    out = np.empty((len(begins), len(sums)), np.int64)
    columns = [(column.take(ends), column.take(begins)) for column in sums]
    for place, (after, before) in enumerate(columns):
        np.subtract(after, before, out=out[:, place])
    return _borrow(columns, out)


def sum_words(words: Ints, begins: Ints, ends: Ints | None = None) -> Ints:
    """Return the sums of amounts: see `sum_runs`."""
    ends = np.append(begins[1:], len(words))[: len(begins)] if ends is None else ends
    return difference(running_sums(columns_of(words)), begins, ends)


def add_to_cells(digits: Ints, cells: Ints, words: Ints) -> None:
    """Add amounts to those of some cells, in place: four digits of `CELL_DIGIT` bits each."""
    for sums, digit in zip(digits, digits_of(words, CELL_DIGIT), strict=False):
        np.add.at(sums, cells, digit)


def divide(digits: Sequence[Ints], width: int, divisors: Ints | np.int64) -> list[Ints]:
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


def extremes(words: Ints, starts: Ints, *, largest: bool) -> Ints:
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
    extreme, never = (np.maximum, 0) if largest else (np.minimum, -1)
    lengths, top = np.diff(starts, append=len(words)), words.shape[1] - 1
    result = np.empty((len(starts), top + 1), np.int64)
    is_candidate = np.ones(len(words), bool)
    # Only the lower words of amounts that have the extreme upper words are compared.
    for place in range(top, -1, -1):
        column = words[:, place].copy()
        if place < top:
            column[~is_candidate] = never
            column = column.view(np.uint64)
        result[:, place] = extreme.reduceat(column, starts).view(np.int64)
        if place:
            is_candidate &= words[:, place] == np.repeat(result[:, place], lengths)
    return result


def first_places(words: Ints, values: Ints, starts: Ints) -> Ints:
    """Return the position of the first amount of each run that is equal to the run's value."""
    lengths = np.diff(starts, append=len(words))
    pairs = zip(words.T, values.T, strict=True)
    equal = (column == np.repeat(value, lengths) for column, value in pairs)
    hits = np.flatnonzero(reduce(np.logical_and, equal))
    return hits[np.searchsorted(hits, starts)]


def running_maxima(words: Ints, starts: Ints) -> Ints:
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
    plateaus = np.cumsum(is_peak)
    width = ROOM - count.bit_length()
    *lower, last = digits_of(words, width)
    leads = np.ones(count, bool)
    # On a plateau, the maximum's digits compared so far are the same. The next digit's maximum is
    # then one over (plateau, digit), without amounts whose digits are less.
    for digit in (last + (1 << (width - 1)), *reversed(lower)):
        keys = plateaus << np.int64(width)
        keys += digit * leads
        maxima = np.maximum.accumulate(keys)
        leads &= keys == maxima
        is_peak[1:] = maxima[1:] != maxima[:-1]
        plateaus = np.cumsum(is_peak)
    result: Ints = np.flatnonzero(is_peak)[plateaus - 1]
    return result


def integers_of(words: Ints) -> list[int]:
    """Return the amounts as Python integers."""
    *lower, last = words.T
    values: list[int] = last.tolist()
    for column in reversed(lower):
        pairs = zip(values, column.view(np.uint64).tolist(), strict=True)
        values = [(upper << _WORD) | low for upper, low in pairs]
    return values


def quotients(parts: Iterable[Any], wholes: Iterable[int]) -> NDArray[np.float64]:
    """Return exact quotients of integers, each rounded once; NaN for NA and division by 0."""
    pairs = zip(parts, wholes, strict=True)
    return np.array([np.nan if a is pd.NA or not b else a / b for a, b in pairs], float)
