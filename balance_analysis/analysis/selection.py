"""Parts of a table: some of its accounts, or an interval with the openings of its accounts."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from balance_analysis.analysis.checks import microseconds, to_table
from balance_analysis.analysis.history import History, open_history
from balance_analysis.filters import make_filters
from balance_analysis.known import note_accounts, note_cut
from balance_analysis.names import names_of
from balance_analysis.rows import are_heads
from balance_analysis.schema import ACCOUNT_KEY, COLUMNS, Instant
from balance_analysis.spans import EVER, clipped
from balance_analysis.text import list_text


def select(
    table: pd.DataFrame,
    *,
    asset_id: str | None = None,
    party_ids: str | Iterable[str] = (),
    market_ids: str | Iterable[str] = (),
    account_types: str | Iterable[str] = (),
) -> pd.DataFrame:
    """Return the rows of some accounts: see `table.balances.select`."""
    held = {name: {*map(str, table[name].unique())} for name in ACCOUNT_KEY}
    filters = make_filters(
        asset_id=asset_id,
        party_ids=party_ids,
        market_ids=market_ids,
        account_types=account_types,
        names=lambda: names_of(table),
        held=held,
    )
    for name, values in filters.allowed().items():
        if missing := [value for value in values if value not in held[name]]:
            raise ValueError(f"no row of the table has the {name} {list_text(missing)}")
    chosen = filters.select(table)
    note_accounts(chosen, table, filters)
    return chosen


def between(
    table: pd.DataFrame, start: Instant | None = None, end: Instant | None = None
) -> pd.DataFrame:
    """Return an interval with openings: see `table.balances.between`."""
    return cut(table, open_history(table), start, end)


def cut(
    table: pd.DataFrame, history: History, start: Instant | None, end: Instant | None
) -> pd.DataFrame:
    """Return an interval, with openings, of a table whose history is open."""
    whole = to_table(table)
    edges = history.grid(start=start, end=end).edges
    begin, stop = (int(edges[0]), int(edges[-1])) if len(edges) else (0, 1)
    if start is None and history.known:
        begin = min(begin, history.known[0][0])
    begin = max(begin, history.start)
    times = microseconds(whole)
    is_before = times < begin
    ids = [whole[name].array.codes for name in ACCOUNT_KEY]
    goes_on = ~are_heads(ids)[1:] & is_before[1:]
    is_opening = is_before & ~np.append(goes_on, False)[: len(times)]
    part: pd.DataFrame = whole[is_opening | ~is_before & (times < stop)].reset_index(drop=True)
    if others := [name for name in table if name not in COLUMNS]:
        keys = [*ACCOUNT_KEY, "timestamp"]
        own = table[[*keys, *others]].drop_duplicates(keys)
        part = part.merge(own.astype(dict.fromkeys(ACCOUNT_KEY, "str")), "left", keys)
        part = part.astype({name: whole[name].dtype for name in ACCOUNT_KEY})
    part.attrs = dict(whole.attrs)
    first = min(begin, int(times.min(initial=begin)))
    known = [(first, stop)] if history.known is None else [*clipped(history.known, EVER[0], stop)]
    note_cut(part, whole, known if history.is_changed is None else [], begin, stop)
    return part
