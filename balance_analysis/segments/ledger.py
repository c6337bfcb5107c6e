"""What a segment's ledger moved, as flows of accounts: read to be compared with, never kept."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.errors import DecodeError
from balance_analysis.schema import BALANCE_DIGITS
from balance_analysis.segments.rows import Accounts, are_balances, batch_of, one_chunk, read_blocks
from balance_analysis.segments.segment import LEDGER, Segment

_COLUMNS: Final = ("account_from_id", "account_to_id", "quantity", "vega_time")


def read_flows(segment: Segment, accounts: Accounts) -> pa.RecordBatch:
    """Return what each entry of a segment's ledger gave to and took from accounts.

    Returns
    -------
    pyarrow.RecordBatch
        `ARROW_SCHEMA`, where `balance` is the flow, negative where it was taken: two rows an entry,
        of the accounts that are wanted, in no order.

    Raises
    ------
    DecodeError
        If the ledger is damaged, names an account that there isn't, or has too many digits.
    IncompleteError
        If a block is missing.
    """
    blocks = read_blocks(segment)
    table = segment.table(LEDGER, _COLUMNS).combine_chunks()
    givers, takers, quantities, moments = (one_chunk(table[name]) for name in _COLUMNS)
    block = pc.index_in(moments, value_set=blocks.texts)
    places = np.concatenate([accounts.find(takers), accounts.find(givers)])
    is_whole = pc.and_(are_balances(quantities), block.is_valid())
    known = np.split(places >= 0, 2)
    is_good = is_whole.to_numpy(zero_copy_only=False) & known[0] & known[1]
    if not is_good.all():
        row = table.slice(int(np.argmin(is_good)), 1).to_pylist()[0]
        raise DecodeError(f"{segment}: an entry of the ledger can't be read: {row}", row=str(row))
    amounts = quantities.cast(pa.decimal128(BALANCE_DIGITS, 0))
    flows = pa.concat_arrays([amounts, pc.negate(amounts)])
    heights = np.tile(block.to_numpy(), 2)
    kept = accounts.wanted[places] & (heights >= blocks.since)
    order = np.flatnonzero(kept)
    return batch_of(accounts, places[order], blocks.times[heights[order]], flows, order)
