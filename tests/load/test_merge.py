"""Rows in parts, and the table that they make."""

from __future__ import annotations

import weakref
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis.load.merge as merging
from tests.analysis.tables import arrow_of, rows, table_from
from tests.columns import ARROW_SCHEMA

MANY = 20_000


def arrow(rows):
    return arrow_of(list(zip(*rows, strict=True))).cast(ARROW_SCHEMA)


def many():
    """Return rows in time order: of four accounts, and each in one of its own."""
    numbers = np.arange(MANY)
    common = np.where(numbers % 3 == 0, numbers % 4, numbers)
    parties = pa.array(common.astype(str))
    return pa.table(
        {
            "asset_id": pa.array((common % 7).astype(str)),
            "account_type": pa.array(["GENERAL"] * MANY),
            "party_id": parties,
            "market_id": pa.array([""] * MANY),
            "timestamp": pa.array(10**15 + numbers, pa.timestamp("us", "UTC")),
            "balance": pa.array([n * 10**30 - n**2 for n in range(MANY)], pa.decimal128(38, 0)),
        }
    ).cast(ARROW_SCHEMA)


def parts_of(tables):
    return [part for table in tables for part in merging.sort_parts([table])]


@given(rows, st.lists(st.integers(0, 40), max_size=4))
def test_parts_make_the_table_of_their_rows_wherever_they_are_cut(rows, cuts):
    rows = sorted(rows, key=lambda row: row[4])
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    tables = [arrow(rows[a:b]) for a, b in pairwise(bounds) if a < b]
    whole = table_from(arrow(rows) if rows else ARROW_SCHEMA.empty_table())
    pd.testing.assert_frame_equal(merging.merge(parts_of(tables)), whole)
    pd.testing.assert_frame_equal(merging.merge(list(merging.sort_parts(tables))), whole)


def test_many_parts_make_the_table_of_their_rows_which_are_let_go_before_the_last_block_is_filled(
    monkeypatch,
):
    monkeypatch.setattr(merging, "_PIECE", 500)
    monkeypatch.setattr(merging, "_BLOCKS", 4)
    bounds = np.linspace(0, MANY, 4).astype(int)
    parts = parts_of([many().slice(a, b - a) for a, b in pairwise(bounds)])
    pieces = [weakref.ref(piece.base) for part in parts for piece in part.pieces]
    held = []

    def fill_all(fill, blocks):
        for block in blocks:
            held.append(sum(piece() is not None for piece in pieces))
            fill(block)

    monkeypatch.setattr(merging, "map_parallel", fill_all)
    table = merging.merge(parts)
    pd.testing.assert_frame_equal(table, table_from(many()))
    assert parts == []
    assert held == sorted(held, reverse=True)
    assert held[-1] <= len(pieces) // 2
    assert all(piece() is None for piece in pieces)
    table.loc[0, "timestamp"] = pd.Timestamp("2023-01-01", tz="UTC")
    assert table["timestamp"].iloc[0] == pd.Timestamp("2023-01-01", tz="UTC")
