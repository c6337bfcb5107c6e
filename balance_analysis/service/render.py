"""A page as the interface's JSON, made in columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from balance_analysis.service.cursors import encode_accounts, encode_times

_SPECIAL: Final = r"[^ !#-\[\]-~]"
"""Any character but those that JSON writes as they are in ASCII."""

if TYPE_CHECKING:
    from balance_analysis.service.page_query import Page
    from balance_analysis.service.sorting import Listed


def render(page: Page) -> bytes:
    """Return the body of an answer."""
    edges, first, last = _edges(page.rows)
    info = {
        "hasNextPage": page.has_next,
        "hasPreviousPage": page.has_previous,
        "startCursor": first,
        "endCursor": last,
    }
    return b"".join(
        (
            b'{"balances":{"edges":[',
            edges,
            b'],"pageInfo":',
            msgspec.json.encode(info),
            b"}}",
        )
    )


def _edges(rows: Listed) -> tuple[bytes | pa.Buffer, str, str]:
    """Return the edges, with commas, and the first and the last cursor."""
    if not len(rows):
        return b"", "", ""
    beginnings = pa.array(encode_accounts(rows.ids))
    accounts = pa.array(rows.accounts)
    numbers = pa.array(encode_times(rows.times, rows.ids[rows.accounts])).cast(pa.string())
    edges = pc.binary_join_element_wise(
        '{"node":{"timestamp":"',
        pa.array(rows.times).cast(pa.string()),
        '000","balance":"',
        rows.balances.cast(pa.string()),
        _nodes(rows, beginnings).take(accounts),
        numbers,
        '"}',
        "",
    )
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(edges)], edges), ",")
    cursors = [f"{beginnings[accounts[end].as_py()]}{numbers[end]}" for end in (0, len(edges) - 1)]
    return joined[0].as_buffer(), cursors[0], cursors[1]


def _nodes(rows: Listed, beginnings: pa.StringArray) -> pa.StringArray:
    """Return for each account what stands between a row's balance and its cursor's number."""
    ids = {name: _quoted(rows.keys[name]) for name in rows.keys.column_names}
    return pc.binary_join_element_wise(
        '","assetId":',
        ids["asset_id"],
        ',"partyId":',
        ids["party_id"],
        ',"marketId":',
        ids["market_id"],
        ',"accountType":',
        ids["account_type"],
        '},"cursor":"',
        beginnings,
        "",
    )


def _quoted(ids: pa.ChunkedArray) -> pa.StringArray:
    """Return ids as strings of JSON: they may hold anything."""
    encoded = ids.combine_chunks().dictionary_encode()
    texts = encoded.dictionary
    if pc.any(pc.match_substring_regex(texts, _SPECIAL)).as_py():
        quoted = [msgspec.json.encode(text).decode() for text in texts.to_pylist()]
        return pa.array(quoted, pa.string()).take(encoded.indices)
    return pc.binary_join_element_wise('"', texts, '"', "").take(encoded.indices)
