"""A table cut in time, with what it knows, and what its accounts held before."""

from __future__ import annotations

from typing import Any

import pandas as pd

from balance_analysis.analysis.balances import held_at
from balance_analysis.analysis.checks import microseconds
from balance_analysis.analysis.history import History, open_history
from balance_analysis.analysis.units import in_units
from balance_analysis.known import (
    NOTHING_BEFORE_KEY,
    note_evidence,
    note_known,
    note_rows,
    table_evidence,
    without_evidence,
)
from balance_analysis.schema import ATTRS_KEY, Instant, from_microseconds
from balance_analysis.spans import clipped
from balance_analysis.text import iso_text


def cut_between(
    table: pd.DataFrame | History,
    start: Instant | None = None,
    end: Instant | None = None,
    *,
    opening: pd.DataFrame | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of a table in [start, end), and what its accounts held before them.

    A selection by `timestamp` says no longer what was before its rows, and what it knows. This pair
    does: what functions make of the cut with the opening, over its interval, is what they make of
    the whole. It is that of `Archive.read` and `Archive.opening_balances`.

    Parameters
    ----------
    table
        A table of balance changes, its rows in any order.
    start, end
        The interval, half-open; without a time zone UTC. By default from the beginning to the end
        of what is known, else from the table's first row to just after its last one.
    opening
        What accounts held before the rows of the whole table: see `balance_at`.

    Returns
    -------
    tuple of pandas.DataFrame
        The cut, a table of its own, whose attrs tell what of the interval is known; and the
        opening, as of `balance_at`, of every account of the table.

    Raises
    ------
    ValueError
        If `start` is not before `end`.
    CheckError
        If rows contradict each other or `opening`: see `balance_at`.

    Examples
    --------
    >>> import pandas as pd
    >>> import balance_analysis as ba
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL", "party_id": "a1",
    ...     "market_id": "", "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03"], utc=True),
    ...     "balance": [5, 7],
    ... })
    >>> cut, opening = table.balances.between("2023-04-02", "2023-04-08")
    >>> ba.deltas(cut, opening=opening)[["timestamp", "balance", "delta"]]
                      timestamp  balance  delta
    0 2023-04-03 00:00:00+00:00        7      2
    """
    history = open_history(table, opening)
    edges = history.grid(start=start, end=end).edges
    begin, stop = (int(edges[0]), int(edges[-1])) if len(edges) else (0, 1)
    if start is None and history.known:
        begin = min(begin, history.known[0][0])
    times = microseconds(history.rows)
    cut = history.rows[(begin <= times) & (times < stop)].reset_index(drop=True)
    known = [(begin, stop)] if history.known is None else [*clipped(history.known, begin, stop)]
    metadata: dict[str, Any] = history.attrs.get(ATTRS_KEY, {})
    if "rows" in metadata:
        metadata = {**metadata, "start": iso_text(begin), "end": iso_text(stop), "rows": len(cut)}
    cut.attrs = {**history.attrs, ATTRS_KEY: metadata}
    is_from_first = history.known is not None and known[:1] == [*history.known[:1]]
    note_known(
        cut, known, nothing_before=is_from_first and metadata.get(NOTHING_BEFORE_KEY) is True
    )
    whole = history.rows.copy(deep=False)
    whole.attrs = history.attrs
    evidence = table_evidence(whole, is_sorted=True)
    if evidence is None:
        cut.attrs[ATTRS_KEY] = without_evidence(cut.attrs[ATTRS_KEY])
    else:
        note_evidence(cut, evidence.within(begin, stop))
    note_rows(cut)
    opening = held_at(history, from_microseconds(begin - 1))
    return cut, in_units(opening, None, history.attrs)
