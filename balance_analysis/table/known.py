"""A table's metadata: the intervals in which it has every change, its start, and its rows.

Rows alone don't show what is missing. So a load notes in `attrs` the *known* intervals, in which
the nodes provably sent every change; files and archives keep this note. Outside them a balance may
have changed without a row.

A table has every change from its `start` on. Older rows are *openings*: each account's last row
before `start`. They give the balances at `start` and aren't changes of the interval.

pandas copies attrs to every selection, even if accounts lost rows. So a table also notes a digest
of each account's rows, which functions compare with the rows that are there.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from balance_analysis.errors import logger
from balance_analysis.table.evidence import Answer, Evidence, Node, SetAside, from_json, to_json
from balance_analysis.table.filters import Filters
from balance_analysis.table.moments import (
    EVER,
    Moment,
    Span,
    clipped,
    gaps_in,
    iso_text,
    joined,
    overlap,
    to_microseconds,
    without,
)
from balance_analysis.table.schema import ACCOUNT_KEY, ATTRS_KEY, COLUMNS, Ints, Mask, are_heads
from balance_analysis.table.text import spans_text

if TYPE_CHECKING:
    import pandas as pd

KNOWN_KEY: Final = "known"
"""The key in `attrs[ATTRS_KEY]` of the known intervals: [start, end) as ISO 8601 in UTC."""

EVIDENCE_KEY: Final = "evidence"
"""The key of the evidence from which these intervals follow: JSON as one text. `None` on a
selection of rows."""

START_KEY: Final = "start"
"""The key of the moment since which the table has every change, as ISO 8601 in UTC."""

END_KEY: Final = "end"
"""The key of the end of the interval that was loaded, read or cut, as ISO 8601 in UTC."""

NOTHING_BEFORE_KEY: Final = "nothing_before"
"""The key of a flag: accounts without an opening held nothing at the start."""

ROWS_KEY: Final = "account_rows"
"""The key of a text: the number of rows, and a digest of each account's rows in base64."""

_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
"""An odd constant, 2**64 over the golden ratio, that spreads the bits of a time."""

_TIME_BITS: Final = np.uint64(24)
"""Number of low bits that hash an account's times; the higher bits hash its ids."""

Known = tuple[Span, ...]
"""Known intervals: half-open, in microseconds, ascending, with gaps between them."""

Stated = Iterable[tuple[Moment, Moment]]
"""Known intervals that a caller states: pairs of a start and an end."""


@dataclass(frozen=True, slots=True)
class Notes:
    """What metadata states about a table's rows.

    Attributes
    ----------
    known
        The known intervals; `None` if not stated.
    start
        Since when the table has every change (in microseconds); `None` if not stated.
    nothing_before
        Whether accounts without an opening held nothing at the start.
    evidence
        The evidence for the rows, openings included; `None` if the table's accounts are unknown.
    digests
        A digest of each account's rows, ascending; `None` if not noted.
    """

    known: Known | None = None
    start: int | None = None
    nothing_before: bool = False
    evidence: Evidence | None = None
    digests: NDArray[np.uint64] | None = None

    @property
    def since_start(self) -> Evidence | None:
        """The evidence for the changes, without the time before the start.

        That time shows only whether the openings' balances still held at the start.
        """
        if self.evidence is None or self.start is None:
            return self.evidence
        return self.evidence.within(self.start, EVER[1])

    @property
    def known_by_account(self) -> tuple[Known | None, tuple[SetAside, ...]]:
        """The known intervals of accounts without a bad row of their own, and all bad rows.

        A bad row makes its moment unknown; if its account can be read, only for that account.
        """
        if self.evidence is None:
            return self.known, ()
        return tuple(self.evidence.complete_for_others), self.evidence.set_aside

    def are_changed(self, accounts: pd.DataFrame, heads: Ints, times: Ints) -> Mask:
        """Return a mask of the accounts that lost or gained rows since their table was made.

        Parameters
        ----------
        accounts, heads, times
            The accounts that the table has now, where each one's rows begin, and the rows' times
            (in microseconds).
        """
        if self.digests is None or not len(accounts):
            return np.zeros(len(accounts), bool)
        return ~np.isin(_account_digests(accounts, heads, times), self.digests)

    def would_have(self, accounts: pd.DataFrame) -> Mask:
        """Return a mask of the accounts whose rows the table would contain, if they had any.

        The table's filters, or a selection of its rows, may exclude an account.

        Parameters
        ----------
        accounts
            Accounts without a row in the table, without repeats.
        """
        if self.evidence is None and self.known is not None:  # its accounts aren't recorded
            return np.zeros(len(accounts), bool)
        chosen = accounts if self.evidence is None else self.evidence.filters.select(accounts)
        is_there: Mask = accounts.index.isin(chosen.index)
        if self.digests is not None:
            is_there &= ~np.isin(_id_digests(accounts) >> _TIME_BITS, self.digests >> _TIME_BITS)
        return is_there


def read_notes(metadata: object) -> Notes:
    """Return the notes in a table's or file's metadata; values of a wrong type are ignored.

    Intervals that a caller stated count as answers of a node without an origin.
    """
    content = metadata if isinstance(metadata, dict) else {}
    known, start, text, rows = (
        value if isinstance(value := content.get(key), kind) else None
        for key, kind in _KINDS.items()
    )
    known = None if known is None else to_known(known)
    nothing_before = content.get(NOTHING_BEFORE_KEY) is True
    evidence = None
    if known is not None and text is not None:
        evidence = _evidence_of(text)
    elif known is not None and EVIDENCE_KEY not in content:
        answers = (Answer(span, Node("the caller"), (0, 0)) for span in known)
        evidence = Evidence(answers=tuple(answers), from_first_block=nothing_before)
    return Notes(
        known,
        None if start is None else to_microseconds(start),
        nothing_before,
        evidence,
        None if rows is None else _decode_digests(rows.partition(" ")[2]),
    )


_KINDS: Final[dict[str, Any]] = {KNOWN_KEY: list, START_KEY: str, EVIDENCE_KEY: str, ROWS_KEY: str}


def notes_of(table: pd.DataFrame, *, is_sorted: bool = False) -> Notes:
    """Return a table's notes, without evidence if a selection dropped rows or accounts.

    Evidence of all accounts proves nothing about an unknown part of them.

    Parameters
    ----------
    table
        The table.
    is_sorted
        Whether its rows are in the table's order, so that they needn't be sorted.
    """
    notes = read_notes(table.attrs.get(ATTRS_KEY))
    if notes.evidence is None or notes.digests is None:
        return notes
    digests, _ = _digests_of(table, is_sorted=is_sorted)
    return notes if np.array_equal(digests, notes.digests) else replace(notes, evidence=None)


def to_known(intervals: Stated) -> Known:
    """Convert a caller's known intervals to spans.

    Raises
    ------
    ValueError, TypeError
        If an interval isn't a pair of moments, or its start isn't before its end.
    """
    spans = []
    for interval in [intervals] if isinstance(intervals, str) else intervals:
        if isinstance(interval, str) or len(interval) != 2:  # noqa: PLR2004 - a pair
            raise ValueError(
                f"known must be pairs of a start and an end, not {interval!r}: for example "
                "known=[('2023-04-01', '2023-04-05')]"
            )
        start, end = map(to_microseconds, interval)
        if start >= end:
            raise ValueError(f"known interval {interval!r} must start before it ends")
        spans.append((start, end))
    return tuple(joined(spans))


def gaps_of(metadata: Mapping[str, Any]) -> list[Span]:
    """Return the parts of a load's interval that aren't known, according to its metadata."""
    bounds = (to_microseconds(metadata[name]) for name in (START_KEY, END_KEY))
    return gaps_in(read_notes(metadata).known or (), *bounds)


class _Shared(list[list[str]]):
    """A list that `copy.deepcopy` returns unchanged, so that pandas' copying of attrs is free."""

    def __deepcopy__(self, _: object) -> _Shared:
        return self


def evidence_json(evidence: Evidence) -> dict[str, Any]:
    """Return evidence as metadata: its known intervals, and all of it as one text."""
    # After a first stretch that isn't complete, accounts may hold a balance that no row shows.
    starts = [start for start, _ in evidence.complete_for_others[:1]]
    is_whole = evidence.from_first_block and starts == [evidence.bounds[0]]
    text = msgspec.json.encode(to_json(evidence)).decode()
    return {**_known_json(evidence.complete, nothing_before=is_whole), EVIDENCE_KEY: text}


def _known_json(known: Iterable[Span] | None, *, nothing_before: bool = False) -> dict[str, Any]:
    """Return known intervals as metadata: pairs of ISO 8601 texts, ready for JSON."""
    noted = {} if known is None else {KNOWN_KEY: _Shared([*map(iso_text, span)] for span in known)}
    return noted | ({NOTHING_BEFORE_KEY: True} if nothing_before else {})


def _note(
    table: pd.DataFrame, known: dict[str, Any], start: int | None = None, end: int | None = None
) -> None:
    """Replace what a table's attrs state about its known intervals; set its bounds if given."""
    replaced = {KNOWN_KEY, EVIDENCE_KEY, NOTHING_BEFORE_KEY}
    kept = {key: x for key, x in table.attrs.get(ATTRS_KEY, {}).items() if key not in replaced}
    bounds = {START_KEY: start, END_KEY: end}
    given = {key: iso_text(bound) for key, bound in bounds.items() if bound is not None}
    table.attrs[ATTRS_KEY] = {**kept, **known, **given}


def note_known(
    table: pd.DataFrame, known: Stated | None, start: Moment | None, *, nothing_before: bool
) -> None:
    """Set what a caller states in a table's attrs, replacing its evidence, and note its rows.

    Parameters
    ----------
    table
        The table.
    known
        The known intervals; `None` keeps the noted ones.
    start
        The moment since which the table has every change; `None` keeps the noted one.
    nothing_before
        Whether accounts without an opening held nothing at the start.

    Raises
    ------
    ValueError, TypeError
        If `known` or `start` is invalid.
    """
    noted = read_notes(table.attrs.get(ATTRS_KEY)).known
    json = _known_json(noted if known is None else to_known(known), nothing_before=nothing_before)
    _note(table, json, None if start is None else to_microseconds(start))
    table.attrs[ATTRS_KEY].pop(END_KEY, None)
    note_rows(table)


def note_evidence(
    table: pd.DataFrame, evidence: Evidence, start: int | None = None, end: int | None = None
) -> None:
    """Set the evidence for a table's rows in its attrs, and the known intervals that follow."""
    _note(table, evidence_json(evidence), start, end)


def note_rows(table: pd.DataFrame, *, is_sorted: bool = True) -> None:
    """Add a digest of each account's rows to a table's attrs.

    Rows of one account and timestamp count once.
    """
    digests, count = _digests_of(table, is_sorted=is_sorted)
    packed = base64.b64encode(digests.astype("<u8").tobytes()).decode()
    table.attrs.setdefault(ATTRS_KEY, {})[ROWS_KEY] = f"{count} {packed}"


def noted_rows(metadata: Mapping[str, Any]) -> int | None:
    """Return the number of rows according to metadata; `None` if not noted."""
    count = str(metadata.get(ROWS_KEY, "")).partition(" ")[0]
    rows = metadata.get("rows")
    if count.isdecimal():
        return int(count)
    return rows if isinstance(rows, int) else None


def without_evidence(metadata: object) -> object:
    """Return metadata without its evidence, for a selection whose metadata wasn't updated."""
    if not isinstance(metadata, dict) or read_notes(metadata).evidence is None:
        return metadata
    return {**metadata, EVIDENCE_KEY: None}


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
    notes = notes_of(whole, is_sorted=True)
    if notes.evidence is not None:
        note_evidence(cut, notes.evidence.within(EVER[0], end), start, end)
    else:
        # Nothing states which accounts the table covers.
        stated = _known_json(known, nothing_before=notes.nothing_before)
        _note(cut, {**stated, EVIDENCE_KEY: None}, start, end)
    cut.attrs[ATTRS_KEY]["rows"] = len(cut)
    note_rows(cut)


def note_selection(selection: pd.DataFrame, whole: pd.DataFrame, filters: Filters) -> None:
    """Set the attrs of a selection of whole accounts."""
    evidence = read_notes(whole.attrs.get(ATTRS_KEY)).evidence
    if evidence is None:  # the table's metadata is true of whole accounts
        return
    note_evidence(selection, evidence.narrow(filters))
    if notes_of(whole).evidence is not None:  # otherwise the lost rows stay noted
        note_rows(selection, is_sorted=False)


def merge_notes(table: pd.DataFrame, parts: Sequence[pd.DataFrame]) -> None:
    """Set a concatenated table's attrs from its parts'.

    An interval is known if it is known to every part, or to a part whose filters select all
    accounts of the others; a part knows nothing before its start. Openings of the earliest part
    stay openings. If a part has no metadata or lost rows, the first part's metadata stays as it
    is, and functions notice that accounts have changed.
    """
    metadata: list[Any] = [part.attrs.get(ATTRS_KEY) for part in parts]
    table.attrs[ATTRS_KEY] = {**next((each for each in metadata if isinstance(each, dict)), {})}
    if not all(map(_has_its_rows, parts)):
        return
    notes = [*map(notes_of, parts)]
    start = min((part.start for part in notes if part.start is not None), default=None)
    ends = [each.get(END_KEY) for each in metadata]
    end = max(map(to_microseconds, ends)) if all(isinstance(x, str) for x in ends) else None
    table.attrs[ATTRS_KEY].pop(END_KEY, None)
    spans = [[*clipped(x.known or (), x.start or EVER[0], EVER[1])] for x in notes]
    proofs = [part.evidence if part.start == start else part.since_start for part in notes]
    filters = [proof.filters for proof in proofs if proof is not None]
    widest = next((x for x in filters if all(map(x.covers, filters))), None)
    if widest is not None and len(filters) == len(parts):
        own = (proof for proof in proofs if proof is not None and proof.filters.covers(widest))
        same = (replace(proof, filters=widest) for proof in own)
        note_evidence(table, reduce(Evidence.updated, same), start, end)
    else:  # each part knows its own accounts only
        _note(table, {**_known_json(reduce(overlap, spans)), EVIDENCE_KEY: None}, start, end)
    known = read_notes(table.attrs[ATTRS_KEY]).known or ()
    are_same = len({*filters}) == 1 and len(filters) == len(parts)
    if not are_same and without(joined(itertools.chain(*spans)), known):
        logger.warning(
            "concatenated tables cover different accounts, so changes are known only in %s; "
            "select the accounts that all have before you concatenate",
            spans_text(known) or "no interval",
        )
    note_rows(table, is_sorted=False)


def _has_its_rows(table: pd.DataFrame) -> bool:
    """Whether a table notes its rows, and each of its accounts still has all of them."""
    noted = read_notes(table.attrs.get(ATTRS_KEY)).digests
    if noted is None or not {*COLUMNS} <= {*getattr(table, "columns", ())}:
        return False
    return bool(np.isin(_digests_of(table, is_sorted=False)[0], noted).all())


@lru_cache(maxsize=8)
def _evidence_of(text: str) -> Evidence:
    return from_json(msgspec.json.decode(text))


@lru_cache(maxsize=8)
def _decode_digests(text: str) -> NDArray[np.uint64]:
    try:
        return np.frombuffer(base64.b64decode(text), "<u8").astype(np.uint64)
    except ValueError:  # another program wrote the file
        return np.empty(0, np.uint64)


def _digests_of(table: pd.DataFrame, *, is_sorted: bool) -> tuple[NDArray[np.uint64], int]:
    """Return a digest per account, ascending, and the number of rows.

    Rows of one account and timestamp count once.
    """
    table = table.copy(deep=False)
    table.attrs = {}  # pandas would copy them with each column
    if not is_sorted:
        table = table.astype(dict.fromkeys(ACCOUNT_KEY, "category"))
        table = table.sort_values([*ACCOUNT_KEY, "timestamp"])
    times = table["timestamp"].to_numpy("M8[us]").view(np.int64)
    is_head = are_heads([table[name].array.codes for name in ACCOUNT_KEY])
    is_first = is_head.copy()
    is_first[1:] |= times[1:] != times[:-1]
    heads = np.flatnonzero(is_head[is_first])
    accounts = (table if is_first.all() else table[is_first]).iloc[heads]
    digests = _account_digests(accounts, heads, times[is_first])
    return np.sort(digests), int(np.count_nonzero(is_first))


def _account_digests(accounts: pd.DataFrame, heads: Ints, times: Ints) -> NDArray[np.uint64]:
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
