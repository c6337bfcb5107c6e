"""What a table knows: the intervals in which it has every change, its start, and its rows.

Rows alone don't say what they leave out. A load notes in `attrs` what the nodes that answered could
know; files and archives keep it. Outside of the known intervals a balance may have changed without
a row.

A table has every change from its `start` on. Its older rows are *openings*: of each account the
last row before `start`. They say what was held at `start`, and are no changes of the interval.

pandas copies attrs to every selection, even to one that took rows out of accounts. So a table also
notes a digest of each account's rows, which is compared when the table is opened.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from balance_analysis.errors import logger
from balance_analysis.table.evidence import Answer, Evidence, Node, SetAside, from_json, to_json
from balance_analysis.table.filters import Filters
from balance_analysis.table.rows import are_heads
from balance_analysis.table.schema import ACCOUNT_KEY, ATTRS_KEY, COLUMNS, Instant, to_microseconds
from balance_analysis.table.spans import EVER, Span, between, clipped, joined, overlap
from balance_analysis.table.text import iso_text, spans_text

if TYPE_CHECKING:
    import pandas as pd

KNOWN_KEY: Final = "known"
"""The key in `attrs[ATTRS_KEY]` of the known intervals: [start, end) as ISO 8601 in UTC."""

EVIDENCE_KEY: Final = "evidence"
"""The key of the evidence from which these intervals follow: JSON as one text. It is `None` of a
selection of rows."""

START_KEY: Final = "start"
"""The key of the moment from which on the table has every change, as ISO 8601 in UTC."""

NOTHING_BEFORE_KEY: Final = "nothing_before"
"""The key of `True` where an account without an opening held nothing at the start."""

ROWS_KEY: Final = "account_rows"
"""The key of the number of rows, followed by a word for each account in base64."""

_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
"""An odd constant, 2**64 over the golden ratio, that spreads the bits of a time."""

_LOW: Final = np.uint64(24)
"""Bits of a word that are a digest of an account's times; those above are one of its ids."""

T = TypeVar("T")

Known = tuple[Span, ...]
"""Known intervals, half-open, in microseconds, ascending; none touches the next."""


class _Shared(list[list[str]]):
    """A list that `copy.deepcopy` returns unchanged, so that pandas' copying of attrs is free."""

    def __deepcopy__(self, _: object) -> _Shared:
        return self

    def __reduce__(self) -> tuple[type, tuple[list[list[str]]]]:
        return list, ([*self],)


Stated = Iterable[tuple[Instant, Instant]]
"""Known intervals as a caller states them: pairs of a start and an end."""


def to_known(intervals: Stated) -> Known:
    """Return intervals [start, end) that somebody states as known ones.

    Raises
    ------
    ValueError, TypeError
        If one is no pair of moments, or its start is not before its end.
    """
    spans = []
    for interval in intervals:
        if isinstance(interval, str) or len(interval) != 2:  # noqa: PLR2004 - a pair
            raise ValueError(f"known must be pairs of a start and an end, not {interval!r}")
        start, end = map(to_microseconds, interval)
        if start >= end:
            raise ValueError(f"a known interval must start before its end, but {interval!r}")
        spans.append((start, end))
    return tuple(joined(spans))


def _noted(metadata: object, key: str, kind: type[T]) -> T | None:
    """Return what a table's attrs or a file's note have under a key, if it is of this type."""
    value = metadata.get(key) if isinstance(metadata, dict) else None
    return value if isinstance(value, kind) else None


def read_known(metadata: object) -> Known | None:
    """Return the known intervals in a table's attrs or a file's note."""
    stated = _noted(metadata, KNOWN_KEY, list)
    return None if stated is None else to_known(stated)


def gaps_of(metadata: Mapping[str, Any]) -> list[Span]:
    """Return the parts of a load's interval that it doesn't know, by its attrs."""
    known = read_known(metadata)
    if known is None:
        return []
    return between(known, to_microseconds(metadata["start"]), to_microseconds(metadata["end"]))


def note_known(
    table: pd.DataFrame,
    known: Iterable[Span] | None,
    *,
    start: int | None = None,
    nothing_before: bool = False,
) -> None:
    """Note in a table's attrs what it knows, in place of evidence.

    Parameters
    ----------
    table
        The table.
    known
        The known intervals; `None` for all time.
    start
        The moment from which on it has every change; `None` keeps what is noted.
    nothing_before
        Whether an account without an opening held nothing at the start.
    """
    metadata: dict[str, Any] = {**table.attrs.get(ATTRS_KEY, {})}
    for name in (KNOWN_KEY, EVIDENCE_KEY, NOTHING_BEFORE_KEY):
        metadata.pop(name, None)
    if known is not None:
        metadata[KNOWN_KEY] = known_json(known)
    if start is not None:
        metadata[START_KEY] = iso_text(start)
    if nothing_before:
        metadata[NOTHING_BEFORE_KEY] = True
    table.attrs[ATTRS_KEY] = metadata


def note_evidence(table: pd.DataFrame, evidence: Evidence) -> None:
    """Note in a table's attrs the evidence for its rows, and what follows from it."""
    metadata = {**table.attrs.get(ATTRS_KEY, {})}
    metadata.pop(NOTHING_BEFORE_KEY, None)
    table.attrs[ATTRS_KEY] = {**metadata, **evidence_json(evidence)}


def evidence_json(evidence: Evidence) -> dict[str, Any]:
    """Return evidence as attrs and files have it: known intervals, and all of it as one text."""
    text = msgspec.json.encode(to_json(evidence)).decode()
    # Behind a first stretch that isn't complete, accounts may hold what it doesn't show.
    starts = [start for start, _ in evidence.complete_for_others[:1]]
    is_whole = evidence.from_first_block and starts == [evidence.bounds[0]]
    nothing_before = {NOTHING_BEFORE_KEY: True} if is_whole else {}
    return {KNOWN_KEY: known_json(evidence.complete), EVIDENCE_KEY: text, **nothing_before}


def read_evidence(metadata: object) -> Evidence | None:
    """Return the evidence in a table's attrs or a file's note, from the start on.

    `None` where there is none. Intervals that a caller stated are the caller's word: their node has
    no origin.
    """
    evidence = _whole_evidence(metadata)
    start = start_of(metadata)
    return evidence if evidence is None or start is None else evidence.within(start, EVER[1])


def _whole_evidence(metadata: object) -> Evidence | None:
    """Return the evidence also before the start: whether the openings still held at the start."""
    known = read_known(metadata)
    if not isinstance(metadata, dict) or known is None:
        return None
    if EVIDENCE_KEY in metadata:
        text = _noted(metadata, EVIDENCE_KEY, str)
        return None if text is None else _evidence_of(text)
    answers = (Answer(span, Node("the caller"), (0, 0)) for span in known)
    return Evidence(answers=tuple(answers), from_first_block=says_nothing_before(metadata))


def start_of(metadata: object) -> int | None:
    """Return from when on a table has every change, microseconds; `None` where nothing says."""
    start = _noted(metadata, START_KEY, str)
    return None if start is None else to_microseconds(start)


def without_evidence(metadata: object) -> object:
    """Return what attrs or a note say of rows, for a selection of these that nobody noted."""
    if not isinstance(metadata, dict) or read_evidence(metadata) is None:
        return metadata
    return {**metadata, EVIDENCE_KEY: None}


@lru_cache(maxsize=8)
def _evidence_of(text: str) -> Evidence:
    return from_json(msgspec.json.decode(text))


def known_by_account(metadata: object) -> tuple[Known | None, tuple[SetAside, ...]]:
    """Return the known intervals of accounts without a bad row of their own, and all bad rows.

    The moment of a bad row is no known interval. But if its account can be read, all changes of
    every other account are known then.
    """
    evidence = _whole_evidence(metadata)
    if evidence is None:  # of a selection the known intervals alone are left
        return read_known(metadata), ()
    return tuple(evidence.complete_for_others), evidence.set_aside


def table_evidence(table: pd.DataFrame, *, is_sorted: bool = False) -> Evidence | None:
    """Return the evidence for all rows of a table; `None` where it has none.

    Rows in the table's order need no sorting.

    A selection that took rows or accounts out of the table leaves evidence of what is no longer
    there: it proves nothing of the rest, as nobody knows which accounts these are.
    """
    metadata = table.attrs.get(ATTRS_KEY)
    evidence, noted = read_evidence(metadata), _noted_words(metadata)
    if evidence is None or noted is None:
        return evidence
    words, _ = _words_of(table if is_sorted else _in_order(table))
    return evidence if np.array_equal(np.sort(words), noted) else None


def says_nothing_before(metadata: object) -> bool:
    """Whether attrs say that an account without an opening held nothing at the start."""
    return _noted(metadata, NOTHING_BEFORE_KEY, bool) is True


def known_json(known: Iterable[Span]) -> list[list[str]]:
    """Return known intervals as attrs and Parquet metadata have them: all of it is JSON."""
    return _Shared([*map(iso_text, span)] for span in known)


def note_rows(table: pd.DataFrame, *, is_sorted: bool = True) -> None:
    """Note in a table's attrs which rows each account has, beside what these say already.

    Rows of one account and timestamp count once.
    """
    words, count = _words_of(table if is_sorted else _in_order(table))
    packed = base64.b64encode(np.sort(words).astype("<u8").tobytes()).decode()
    table.attrs.setdefault(ATTRS_KEY, {})[ROWS_KEY] = f"{count} {packed}"


def noted_rows(metadata: object) -> int | None:
    """Return how many rows attrs or a note say that there are; `None` if they don't."""
    count = (_noted(metadata, ROWS_KEY, str) or "").partition(" ")[0]
    return int(count) if count.isdecimal() else _noted(metadata, "rows", int)


def are_changed(
    metadata: object, accounts: pd.DataFrame, heads: NDArray[np.int64], times: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which accounts lost or gained rows since their table was made.

    Parameters
    ----------
    metadata
        What the table's attrs say.
    accounts, heads, times
        The accounts that it has now, where the rows of each begin, and their times.
    """
    noted = _noted_words(metadata)
    if noted is None or not len(accounts):
        return np.zeros(len(accounts), bool)
    return ~np.isin(_words(accounts, heads, times), noted)


def note_cut(
    cut: pd.DataFrame, whole: pd.DataFrame, known: Iterable[Span], start: int, end: int
) -> None:
    """Note in the attrs of a part of a table, [start, end) with openings, what it knows.

    Parameters
    ----------
    cut
        The part, in the table's order, with the attrs of the whole.
    whole
        The table.
    known
        The known intervals up to `end`, for a table without evidence.
    start, end
        The interval, microseconds.
    """
    metadata = whole.attrs.get(ATTRS_KEY)
    evidence = None if table_evidence(whole, is_sorted=True) is None else _whole_evidence(metadata)
    if evidence is None:
        note_known(cut, known, nothing_before=says_nothing_before(metadata))
        if read_known(metadata) is not None:  # its accounts are unknown
            cut.attrs[ATTRS_KEY][EVIDENCE_KEY] = None
    else:
        note_evidence(cut, evidence.within(EVER[0], end))
    bounds = {START_KEY: iso_text(start), "end": iso_text(end), "rows": len(cut)}
    cut.attrs[ATTRS_KEY] = {**cut.attrs[ATTRS_KEY], **bounds}
    note_rows(cut)


def note_accounts(chosen: pd.DataFrame, whole: pd.DataFrame, filters: Filters) -> None:
    """Note in the attrs of all rows of some accounts of a table what it knows of them."""
    metadata = whole.attrs.get(ATTRS_KEY)
    if table_evidence(whole) is None or (evidence := _whole_evidence(metadata)) is None:
        return  # the notes of the table are true of whole accounts
    note_evidence(chosen, evidence.narrow(filters))
    note_rows(chosen, is_sorted=False)


def join_notes(table: pd.DataFrame, parts: Sequence[pd.DataFrame]) -> None:
    """Note in the attrs of the rows of several tables what these know together.

    Tables of the same filters know what any of them does, from its own start on. Others know only
    what each of them does. The openings of the first one stay openings. A part without notes, or
    one that lost rows, is no part of what is noted, so functions find that its accounts have
    changed.
    """
    notes = [part.attrs.get(ATTRS_KEY) for part in parts]
    table.attrs[ATTRS_KEY] = {**next((x for x in notes if isinstance(x, dict)), {})}
    if not all(_has_its_rows(part) for part in parts):
        return
    evidence = [table_evidence(part) for part in parts]
    starts = sorted(
        (start, read_known(note) or (), place)
        for place, note in enumerate(notes)
        if (start := start_of(note)) is not None
    )
    if all(evidence) and len({each.filters for each in evidence if each}) == 1:
        if starts:
            first = starts[0][2]
            evidence[first] = _whole_evidence(notes[first])
        note_evidence(table, reduce(or_, (each for each in evidence if each)))
    else:
        # From its own start on a part knows its accounts, and not those of the others.
        knows = [[*clipped(read_known(x) or (), start_of(x) or EVER[0], EVER[1])] for x in notes]
        known = reduce(overlap, knows)
        note_known(table, known)
        table.attrs[ATTRS_KEY][EVIDENCE_KEY] = None
        logger.warning(
            "tables of different accounts were put together: of all of them every change is known "
            "in %s",
            spans_text(known) or "no interval",
        )
    if starts:
        table.attrs[ATTRS_KEY][START_KEY] = iso_text(starts[0][0])
    note_rows(table, is_sorted=False)


def _has_its_rows(table: pd.DataFrame) -> bool:
    """Whether it is a table that notes rows, and each of its accounts has all of them."""
    noted = _noted_words(table.attrs.get(ATTRS_KEY))
    if noted is None or not {*COLUMNS} <= {*getattr(table, "columns", ())}:
        return False
    return bool(np.isin(_words_of(_in_order(table))[0], noted).all())


def _in_order(table: pd.DataFrame) -> pd.DataFrame:
    rows = table.copy(deep=False)
    rows.attrs = {}  # which pandas copies with each column that is taken
    rows = rows.astype(dict.fromkeys(ACCOUNT_KEY, "category"))
    return rows.sort_values([*ACCOUNT_KEY, "timestamp"], ignore_index=True)


def _noted_words(metadata: object) -> NDArray[np.uint64] | None:
    """Return the words that attrs note, ascending; `None` where they note none."""
    note = _noted(metadata, ROWS_KEY, str)
    return None if note is None else _unpacked(note.partition(" ")[2])


@lru_cache(maxsize=8)
def _unpacked(note: str) -> NDArray[np.uint64]:
    try:
        return np.frombuffer(base64.b64decode(note), "<u8").astype(np.uint64)
    except ValueError:  # of a file that others wrote
        return np.empty(0, np.uint64)


def _words_of(table: pd.DataFrame) -> tuple[NDArray[np.uint64], int]:
    """Return a word for each account of rows in the table's order, and how many rows there are."""
    table = table.copy(deep=False)
    table.attrs = {}
    times = table["timestamp"].to_numpy("M8[us]").view(np.int64)
    codes = [table[name].array.codes for name in ACCOUNT_KEY]
    is_head = are_heads(codes)
    is_first = is_head.copy()
    is_first[1:] |= times[1:] != times[:-1]
    heads = np.flatnonzero(is_head[is_first])
    kept = table if is_first.all() else table[is_first]
    return _words(kept.iloc[heads], heads, times[is_first]), int(np.count_nonzero(is_first))


def _words(
    accounts: pd.DataFrame, heads: NDArray[np.int64], times: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return a digest of each account and of the times of its rows."""
    from pandas.util import hash_pandas_object  # noqa: PLC0415 - pandas takes long

    ids: Any = hash_pandas_object(accounts[ACCOUNT_KEY], index=False)
    mixed = times.astype(np.uint64) * _MIX
    mixed ^= mixed >> np.uint64(31)
    mixed *= _MIX
    sums = np.add.reduceat(mixed, heads) if len(heads) else mixed
    words: NDArray[np.uint64] = (ids.to_numpy() >> _LOW << _LOW) | (sums >> np.uint64(40))
    return words
