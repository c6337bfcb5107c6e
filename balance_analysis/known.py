"""What a table knows: the stretches of time of which it has every change, and how many rows.

Rows alone don't say what they leave out. A load notes what each node that answered could know,
files and archives keep it, `attrs` carry it through selections of rows, and whatever computes or
draws goes by it: in a stretch that is not known, a balance may have changed without a row.

pandas carries attrs through every selection, also through one that takes rows out of accounts, of
which what attrs tell is untrue from then on. So whatever makes a table notes how many rows each
account has, and whatever opens one compares. The note is one text, which pandas copies for nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from balance_analysis.evidence import Answer, Evidence, Node, SetAside, from_json, to_json
from balance_analysis.schema import ACCOUNT_KEY, ATTRS_KEY, Instant, to_microseconds
from balance_analysis.spans import Span, between, joined
from balance_analysis.text import count_text, iso_text

if TYPE_CHECKING:
    import pandas as pd

KNOWN_KEY: Final = "known"
"""Where `attrs[ATTRS_KEY]` has the known intervals: [start, end) as ISO 8601 in UTC, ascending."""

EVIDENCE_KEY: Final = "evidence"
"""Where it has the evidence from which these intervals follow: JSON as one text; `None` of rows
that were selected from those that it was of."""

NOTHING_BEFORE_KEY: Final = "nothing_before"
"""Where it says that no account held anything before the table's first known interval."""

ROWS_KEY: Final = "account_rows"
"""Where `attrs[ATTRS_KEY]` has them, packed: base64 of a word of 64 bits for each account."""

_COUNT: Final = np.uint64(24)
"""Bits of a word that count rows; above them stands a digest of the account's ids."""

_MASK: Final = np.uint64((1 << 24) - 1)

_ALL: Final = slice(None)
_Places = slice | NDArray[np.int64]

Known = tuple[Span, ...]
"""Known intervals, half-open, in microseconds, ascending; none touches the next."""


class _Shared(list[list[str]]):
    """What attrs have as a list, of which pandas' copies of attrs, one an operation, are one."""

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


def known_of(table: pd.DataFrame) -> Known | None:
    """Return the known intervals that a table's attrs tell; `None` where they don't."""
    return read_known(table.attrs.get(ATTRS_KEY))


def read_known(metadata: object) -> Known | None:
    """Return the known intervals in what a table's attrs or a file tell of its load."""
    if not isinstance(metadata, dict) or not isinstance(metadata.get(KNOWN_KEY), list):
        return None
    return to_known(metadata[KNOWN_KEY])


def gaps_of(metadata: Mapping[str, Any]) -> list[Span]:
    """Return what of its interval a load doesn't know, by what is said of it."""
    known = read_known(metadata)
    if known is None:
        return []
    return between(known, to_microseconds(metadata["start"]), to_microseconds(metadata["end"]))


def note_stated(table: pd.DataFrame, stated: Stated) -> None:
    """Note in a table's attrs intervals that somebody states as known, in place of evidence."""
    note_known(table, to_known(stated))
    table.attrs[ATTRS_KEY].pop(EVIDENCE_KEY, None)
    note_rows(table)


def note_known(table: pd.DataFrame, known: Iterable[Span], *, nothing_before: bool = False) -> None:
    """Note the known intervals in a table's attrs, in place of the evidence that these have.

    `nothing_before` says that no account held anything before the first of them.
    """
    metadata: dict[str, Any] = {**table.attrs.get(ATTRS_KEY, {}), KNOWN_KEY: known_json(known)}
    for name in (EVIDENCE_KEY, NOTHING_BEFORE_KEY):
        metadata.pop(name, None)
    table.attrs[ATTRS_KEY] = {**metadata, **({NOTHING_BEFORE_KEY: True} if nothing_before else {})}


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
    """Return the evidence in a table's attrs or a file's note; `None` where there is none.

    Intervals that a caller stated are the caller's word: their node has no origin.
    """
    known = read_known(metadata)
    if not isinstance(metadata, dict) or known is None:
        return None
    if EVIDENCE_KEY in metadata:
        text = metadata[EVIDENCE_KEY]
        return _evidence_of(text) if isinstance(text, str) else None
    answers = (Answer(span, Node("the caller"), (0, 0)) for span in known)
    return Evidence(answers=tuple(answers), from_first_block=_says_nothing_before(metadata))


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
    evidence = read_evidence(metadata)
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
    evidence = read_evidence(metadata)
    note = metadata.get(ROWS_KEY) if isinstance(metadata, dict) else None
    if evidence is None or not isinstance(note, str):
        return evidence
    rows = table.copy(deep=False)
    rows.attrs = {}
    if not is_sorted:
        rows = rows.sort_values([*ACCOUNT_KEY, "timestamp"], ignore_index=True)
    heads, counts = _counted(rows)
    kept = _words(rows, counts, heads)
    return evidence if np.array_equal(kept, _read(note)[0][:-1]) else None


def has_nothing_before(*frames: pd.DataFrame | None) -> bool:
    """Whether one of frames tells that no account held anything before it."""
    return any(_says_nothing_before(getattr(x, "attrs", {}).get(ATTRS_KEY)) for x in frames)


def _says_nothing_before(metadata: object) -> bool:
    return isinstance(metadata, dict) and metadata.get(NOTHING_BEFORE_KEY) is True


def known_json(known: Iterable[Span]) -> list[list[str]]:
    """Return known intervals as attrs and Parquet metadata have them: all of it is JSON."""
    return _Shared([*map(iso_text, span)] for span in known)


def note_rows(table: pd.DataFrame, counts: NDArray[np.int64] | None = None) -> None:
    """Note in a table's attrs how many rows each account has, beside what these tell already.

    Parameters
    ----------
    table
        Rows in the table's order; those of one account and timestamp count once.
    counts
        How many rows each account has, in their order; by default they are counted.
    """
    metadata, table = table.attrs.setdefault(ATTRS_KEY, {}), table.copy(deep=False)
    table.attrs = {}  # which pandas copies with each column that is taken
    heads, counts = _counted(table) if counts is None else (np.cumsum(counts) - counts, counts)
    words = _words(table, counts, heads)
    # Of accounts whose digests are the same, nothing is told.
    same = np.diff(words >> _COUNT, prepend=np.uint64(0), append=np.uint64(0)) == 0
    kept = words[~(same[:-1] | same[1:])].astype("<u8")
    metadata[ROWS_KEY] = base64.b64encode(kept.tobytes()).decode()


def _counted(table: pd.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each account's rows begin, and how many they are."""
    times = table["timestamp"].to_numpy("M8[us]")
    codes = [table[name].array.codes for name in ACCOUNT_KEY]
    is_head = np.ones(len(times), bool)
    is_head[1:] = np.logical_or.reduce([code[1:] != code[:-1] for code in codes])
    heads = np.flatnonzero(is_head)
    is_head[1:] |= times[1:] != times[:-1]
    return heads, np.add.reduceat(is_head, heads, dtype=np.int64) if len(heads) else heads


def noted_rows(metadata: object) -> int | None:
    """Return how many rows attrs or a note say that there are; `None` if they don't."""
    if not isinstance(metadata, dict):
        return None
    note, rows = metadata.get(ROWS_KEY), metadata.get("rows")
    return _read(note)[1] if isinstance(note, str) else rows if isinstance(rows, int) else None


def lost_rows(metadata: object, accounts: pd.DataFrame, counts: NDArray[np.int64]) -> str | None:
    """Return how many rows were taken out of accounts, in words; `None` where none was.

    Parameters
    ----------
    metadata
        What the table's attrs tell.
    accounts, counts
        The accounts that it has, and how many rows each.
    """
    note = metadata.get(ROWS_KEY) if isinstance(metadata, dict) else None
    if not isinstance(note, str):
        return None
    noted, total = _read(note)
    if total == counts.sum():
        return None
    words = _words(accounts, counts)
    there = noted[np.minimum(np.searchsorted(noted, words & ~_MASK), len(noted) - 1)]
    lost = (there & _MASK).astype(np.int64) - (words & _MASK).astype(np.int64)
    lost = lost[(there >> _COUNT == words >> _COUNT) & (lost > 0)]
    if not len(lost):
        return None
    return f"{count_text(int(lost.sum()), 'row')} of {count_text(len(lost), 'account')}"


def deselected(metadata: object, accounts: pd.DataFrame, others: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which of other accounts had rows in a table that was selected from, and have none now.

    Parameters
    ----------
    metadata
        What the attrs of the table of `accounts` tell.
    accounts, others
        Accounts, ids as text or categories of it.
    """
    note = metadata.get(ROWS_KEY) if isinstance(metadata, dict) else None
    if not isinstance(note, str):
        return np.zeros(len(others), bool)
    asked = _digests_of(others.astype("category"))
    return np.isin(asked, _read(note)[0] & ~_MASK) & ~np.isin(asked, _digests_of(accounts))


@lru_cache(maxsize=8)
def _read(note: str) -> tuple[NDArray[np.uint64], int]:
    """Return the words of a note, ascending, one at least, and how many rows they count."""
    try:
        words = np.frombuffer(base64.b64decode(note), "<u8").astype(np.uint64)
    except ValueError:  # of a file that others wrote
        words = np.empty(0, np.uint64)
    return np.append(words, ~np.uint64(0)), int((words & _MASK).sum())


def _words(
    accounts: pd.DataFrame, counts: NDArray[np.int64], heads: _Places = _ALL
) -> NDArray[np.uint64]:
    """Return accounts, of the rows `heads`, with how many rows each has, ascending."""
    words: NDArray[np.uint64] = _digests_of(accounts, heads) | (counts.astype(np.uint64) & _MASK)
    words.sort()
    return words


def _digests_of(accounts: pd.DataFrame, heads: _Places = _ALL) -> NDArray[np.uint64]:
    """Return a digest of each account, of the rows `heads`, as it stands in words."""
    from pandas.util import hash_pandas_object  # noqa: PLC0415 - pandas takes long

    digests: Any = hash_pandas_object(accounts[ACCOUNT_KEY].iloc[heads], index=False)
    return digests.to_numpy() & ~_MASK  # type: ignore[no-any-return]
