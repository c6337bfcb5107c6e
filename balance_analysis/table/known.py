"""A table's metadata: the intervals in which it has every change, its start, and its rows.

Rows alone don't show what is missing. So a load notes in `attrs` the intervals that the nodes could
answer for, the *known* ones; files and archives keep this note. Outside of the known intervals a
balance may have changed without a row.

A table has every change from its `start` on. Older rows are *openings*: each account's last row
before `start`. They give the balances at `start` and aren't changes of the interval.

pandas copies attrs to every selection, even if accounts lost rows. So a table also notes a digest
of each account's rows, which functions compare with the rows that are there.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, reduce
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
"""The key of the evidence from which these intervals follow: JSON as one text. `None` on a
selection of rows."""

START_KEY: Final = "start"
"""The key of the moment since which the table has every change, as ISO 8601 in UTC."""

NOTHING_BEFORE_KEY: Final = "nothing_before"
"""The key of a flag: accounts without an opening held nothing at the start."""

ROWS_KEY: Final = "account_rows"
"""The key of a text: the number of rows, and a digest of each account's rows in base64."""

_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
"""An odd constant, 2**64 over the golden ratio, that spreads the bits of a time."""

_TIME_BITS: Final = np.uint64(24)
"""Number of low bits that hash an account's times; the higher bits hash its ids."""

T = TypeVar("T")

Known = tuple[Span, ...]
"""Known intervals: half-open, in microseconds, ascending, with gaps between them."""


class _Shared(list[list[str]]):
    """A list that `copy.deepcopy` returns unchanged, so that pandas' copying of attrs is free."""

    def __deepcopy__(self, _: object) -> _Shared:
        return self

    def __reduce__(self) -> tuple[type, tuple[list[list[str]]]]:
        return list, ([*self],)


Stated = Iterable[tuple[Instant, Instant]]
"""Known intervals that a caller states: pairs of a start and an end."""


def to_known(intervals: Stated) -> Known:
    """Convert a caller's known intervals to spans.

    Raises
    ------
    ValueError, TypeError
        If an interval isn't a pair of moments, or its start isn't before its end.
    """
    spans = []
    for interval in intervals:
        if isinstance(interval, str) or len(interval) != 2:  # noqa: PLR2004 - a pair
            raise ValueError(f"known must be pairs of a start and an end, not {interval!r}")
        start, end = map(to_microseconds, interval)
        if start >= end:
            raise ValueError(f"known interval {interval!r} must start before it ends")
        spans.append((start, end))
    return tuple(joined(spans))


def _noted(metadata: object, key: str, kind: type[T]) -> T | None:
    """Return the value under a key of a table's or file's metadata; `None` if of another type."""
    value = metadata.get(key) if isinstance(metadata, dict) else None
    return value if isinstance(value, kind) else None


def read_known(metadata: object) -> Known | None:
    """Return the known intervals in a table's or file's metadata; `None` if not stated."""
    stated = _noted(metadata, KNOWN_KEY, list)
    return None if stated is None else to_known(stated)


def gaps_of(metadata: Mapping[str, Any]) -> list[Span]:
    """Return the parts of a load's interval that aren't known, according to its metadata."""
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
    """Set the known intervals in a table's attrs, replacing its evidence.

    Parameters
    ----------
    table
        The table.
    known
        The known intervals; `None` for all time.
    start
        The moment since which the table has every change; `None` keeps the noted one.
    nothing_before
        Whether accounts without an opening held nothing at the start.
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
    """Set the evidence for a table's rows in its attrs, and the known intervals that follow."""
    metadata = {**table.attrs.get(ATTRS_KEY, {})}
    metadata.pop(NOTHING_BEFORE_KEY, None)
    table.attrs[ATTRS_KEY] = {**metadata, **evidence_json(evidence)}


def evidence_json(evidence: Evidence) -> dict[str, Any]:
    """Return evidence as metadata: its known intervals, and all of it as one text."""
    text = msgspec.json.encode(to_json(evidence)).decode()
    # After a first stretch that isn't complete, accounts may hold a balance that no row shows.
    starts = [start for start, _ in evidence.complete_for_others[:1]]
    is_whole = evidence.from_first_block and starts == [evidence.bounds[0]]
    nothing_before = {NOTHING_BEFORE_KEY: True} if is_whole else {}
    return {KNOWN_KEY: known_json(evidence.complete), EVIDENCE_KEY: text, **nothing_before}


def read_evidence(metadata: object) -> Evidence | None:
    """Return the evidence in a table's or file's metadata, from the start on; `None` without any.

    Intervals that a caller stated count as answers of a node without an origin.
    """
    evidence = _whole_evidence(metadata)
    start = start_of(metadata)
    return evidence if evidence is None or start is None else evidence.within(start, EVER[1])


def _whole_evidence(metadata: object) -> Evidence | None:
    """Return all evidence, including the time before the start.

    That part shows whether the openings' balances still held at the start.
    """
    known = read_known(metadata)
    if not isinstance(metadata, dict) or known is None:
        return None
    if EVIDENCE_KEY in metadata:
        text = _noted(metadata, EVIDENCE_KEY, str)
        return None if text is None else _evidence_of(text)
    answers = (Answer(span, Node("the caller"), (0, 0)) for span in known)
    return Evidence(answers=tuple(answers), from_first_block=starts_empty(metadata))


def start_of(metadata: object) -> int | None:
    """Return since when a table has every change (in microseconds), or `None` if unknown."""
    start = _noted(metadata, START_KEY, str)
    return None if start is None else to_microseconds(start)


def is_opening(times: NDArray[np.int64], start: int) -> NDArray[np.bool_]:
    """Return a mask of a table's openings: its rows before `start`; the others are changes."""
    return times < start


def without_evidence(metadata: object) -> object:
    """Return metadata without its evidence, for a selection whose metadata wasn't updated."""
    if not isinstance(metadata, dict) or read_evidence(metadata) is None:
        return metadata
    return {**metadata, EVIDENCE_KEY: None}


@lru_cache(maxsize=8)
def _evidence_of(text: str) -> Evidence:
    return from_json(msgspec.json.decode(text))


def known_by_account(metadata: object) -> tuple[Known | None, tuple[SetAside, ...]]:
    """Return the known intervals of accounts without a bad row of their own, and all bad rows.

    The moment of a bad row isn't known. But if its account can be read, every change of the other
    accounts at that moment is known.
    """
    evidence = _whole_evidence(metadata)
    if evidence is None:  # a selection keeps its known intervals only
        return read_known(metadata), ()
    return tuple(evidence.complete_for_others), evidence.set_aside


def table_evidence(table: pd.DataFrame, *, is_sorted: bool = False) -> Evidence | None:
    """Return the evidence for all rows of a table, or `None`.

    It is `None` without evidence, and after a selection dropped rows or accounts: evidence of all
    accounts proves nothing about an unknown part of them.

    Parameters
    ----------
    table
        The table.
    is_sorted
        Whether its rows are in the table's order, so that they needn't be sorted.
    """
    metadata = table.attrs.get(ATTRS_KEY)
    evidence, noted = read_evidence(metadata), _noted_digests(metadata)
    if evidence is None or noted is None:
        return evidence
    digests, _ = _digests_of(table if is_sorted else _in_order(table))
    return evidence if np.array_equal(np.sort(digests), noted) else None


def starts_empty(metadata: object) -> bool:
    """Whether accounts without an opening held nothing at the start, according to metadata."""
    return _noted(metadata, NOTHING_BEFORE_KEY, bool) is True


def known_json(known: Iterable[Span]) -> list[list[str]]:
    """Return known intervals as metadata: pairs of ISO 8601 texts, ready for JSON."""
    return _Shared([*map(iso_text, span)] for span in known)


def note_rows(table: pd.DataFrame, *, is_sorted: bool = True) -> None:
    """Add a digest of each account's rows to a table's attrs.

    Rows of one account and timestamp count once.
    """
    digests, count = _digests_of(table if is_sorted else _in_order(table))
    packed = base64.b64encode(np.sort(digests).astype("<u8").tobytes()).decode()
    table.attrs.setdefault(ATTRS_KEY, {})[ROWS_KEY] = f"{count} {packed}"


def noted_rows(metadata: object) -> int | None:
    """Return the number of rows according to metadata; `None` if not noted."""
    count = (_noted(metadata, ROWS_KEY, str) or "").partition(" ")[0]
    return int(count) if count.isdecimal() else _noted(metadata, "rows", int)


def find_changed_accounts(
    metadata: object, accounts: pd.DataFrame, heads: NDArray[np.int64], times: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return a mask of the accounts that lost or gained rows since their table was made.

    Parameters
    ----------
    metadata
        The table's metadata.
    accounts, heads, times
        The accounts that it has now, where each one's rows begin, and the rows' times (in
        microseconds).
    """
    noted = _noted_digests(metadata)
    if noted is None or not len(accounts):
        return np.zeros(len(accounts), bool)
    return ~np.isin(_account_digests(accounts, heads, times), noted)


def would_have(metadata: object, accounts: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which accounts' rows a table would contain, if they had any.

    The table's filters, or a selection of its rows, may have left an account out.

    Parameters
    ----------
    metadata
        The table's metadata.
    accounts
        Accounts without a row in the table, without repeats.
    """
    evidence, noted = _whole_evidence(metadata), _noted_digests(metadata)
    if evidence is None and read_known(metadata) is not None:  # its accounts aren't recorded
        return np.zeros(len(accounts), bool)
    chosen = accounts if evidence is None else evidence.filters.select(accounts)
    is_there: NDArray[np.bool_] = accounts.index.isin(chosen.index)
    if noted is not None:
        is_there &= ~np.isin(_id_digests(accounts) >> _TIME_BITS, noted >> _TIME_BITS)
    return is_there


def note_interval(
    cut: pd.DataFrame, whole: pd.DataFrame, known: Iterable[Span], start: int, end: int
) -> None:
    """Set the attrs of a table's rows in [start, end), with openings.

    Parameters
    ----------
    cut
        These rows, in the table's order, with the attrs of the whole.
    whole
        The table.
    known
        The known intervals up to `end`, for a table without evidence.
    start, end
        The interval (in microseconds).
    """
    metadata = whole.attrs.get(ATTRS_KEY)
    evidence = None if table_evidence(whole, is_sorted=True) is None else _whole_evidence(metadata)
    if evidence is None:
        note_known(cut, known, nothing_before=starts_empty(metadata))
        if read_known(metadata) is not None:  # its accounts are unknown
            cut.attrs[ATTRS_KEY][EVIDENCE_KEY] = None
    else:
        note_evidence(cut, evidence.within(EVER[0], end))
    bounds = {START_KEY: iso_text(start), "end": iso_text(end), "rows": len(cut)}
    cut.attrs[ATTRS_KEY] = {**cut.attrs[ATTRS_KEY], **bounds}
    note_rows(cut)


def note_selection(selection: pd.DataFrame, whole: pd.DataFrame, filters: Filters) -> None:
    """Set the attrs of a selection of whole accounts."""
    metadata = whole.attrs.get(ATTRS_KEY)
    if table_evidence(whole) is None or (evidence := _whole_evidence(metadata)) is None:
        return  # the table's metadata is true of whole accounts
    note_evidence(selection, evidence.narrow(filters))
    note_rows(selection, is_sorted=False)


def merge_notes(table: pd.DataFrame, parts: Sequence[pd.DataFrame]) -> None:
    """Set a concatenated table's attrs from its parts'.

    If all parts have the same filters, an interval is known if any part knows it, from that part's
    start on. Otherwise it is known only if every part knows it. Openings of the earliest part stay
    openings. If a part has no metadata or lost rows, the first part's metadata stays as it is, and
    functions find that accounts have changed.
    """
    notes = [part.attrs.get(ATTRS_KEY) for part in parts]
    table.attrs[ATTRS_KEY] = {**next((note for note in notes if isinstance(note, dict)), {})}
    if not all(_has_its_rows(part) for part in parts):
        return
    evidence = [table_evidence(part) for part in parts]
    starts = sorted(
        (start, read_known(note) or (), place)
        for place, note in enumerate(notes)
        if (start := start_of(note)) is not None
    )
    if all(evidence) and len({proof.filters for proof in evidence if proof}) == 1:
        if starts:
            first = starts[0][2]
            evidence[first] = _whole_evidence(notes[first])
        note_evidence(table, reduce(Evidence.updated, (proof for proof in evidence if proof)))
    else:
        # Each part knows its own accounts only, from its own start on.
        spans = [[*clipped(read_known(x) or (), start_of(x) or EVER[0], EVER[1])] for x in notes]
        known = reduce(overlap, spans)
        note_known(table, known)
        table.attrs[ATTRS_KEY][EVIDENCE_KEY] = None
        logger.warning(
            "concatenated tables cover different accounts; all changes are known only in %s",
            spans_text(known) or "no interval",
        )
    if starts:
        table.attrs[ATTRS_KEY][START_KEY] = iso_text(starts[0][0])
    note_rows(table, is_sorted=False)


def _has_its_rows(table: pd.DataFrame) -> bool:
    """Whether a table notes its rows, and each of its accounts still has all of them."""
    noted = _noted_digests(table.attrs.get(ATTRS_KEY))
    if noted is None or not {*COLUMNS} <= {*getattr(table, "columns", ())}:
        return False
    return bool(np.isin(_digests_of(_in_order(table))[0], noted).all())


def _in_order(table: pd.DataFrame) -> pd.DataFrame:
    rows = table.copy(deep=False)
    rows.attrs = {}  # pandas would copy them with each column
    rows = rows.astype(dict.fromkeys(ACCOUNT_KEY, "category"))
    return rows.sort_values([*ACCOUNT_KEY, "timestamp"], ignore_index=True)


def _noted_digests(metadata: object) -> NDArray[np.uint64] | None:
    """Return the accounts' digests in metadata, ascending; `None` if not noted."""
    note = _noted(metadata, ROWS_KEY, str)
    return None if note is None else _decode_digests(note.partition(" ")[2])


@lru_cache(maxsize=8)
def _decode_digests(text: str) -> NDArray[np.uint64]:
    try:
        return np.frombuffer(base64.b64decode(text), "<u8").astype(np.uint64)
    except ValueError:  # another program wrote the file
        return np.empty(0, np.uint64)


def _digests_of(table: pd.DataFrame) -> tuple[NDArray[np.uint64], int]:
    """Return a digest per account of rows in the table's order, and the number of rows."""
    table = table.copy(deep=False)
    table.attrs = {}
    times = table["timestamp"].to_numpy("M8[us]").view(np.int64)
    codes = [table[name].array.codes for name in ACCOUNT_KEY]
    is_head = are_heads(codes)
    is_first = is_head.copy()
    is_first[1:] |= times[1:] != times[:-1]
    heads = np.flatnonzero(is_head[is_first])
    accounts = (table if is_first.all() else table[is_first]).iloc[heads]
    return _account_digests(accounts, heads, times[is_first]), int(np.count_nonzero(is_first))


def _account_digests(
    accounts: pd.DataFrame, heads: NDArray[np.int64], times: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return a digest of each account and of its rows' times."""
    mixed = times.astype(np.uint64) * _MIX
    mixed ^= mixed >> np.uint64(31)
    mixed *= _MIX
    sums = np.add.reduceat(mixed, heads) if len(heads) else mixed
    high_bits: NDArray[np.uint64] = _id_digests(accounts) >> _TIME_BITS << _TIME_BITS
    return high_bits | (sums >> np.uint64(40))


def _id_digests(accounts: pd.DataFrame) -> NDArray[np.uint64]:
    """Return a digest of each account's ids."""
    from pandas.util import hash_pandas_object  # noqa: PLC0415 - pandas takes long

    ids: Any = hash_pandas_object(accounts[ACCOUNT_KEY], index=False)
    digests: NDArray[np.uint64] = ids.to_numpy()
    return digests
