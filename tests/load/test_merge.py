"""The rows of a load are let go while its table is filled."""

import weakref
from operator import itemgetter

import pandas as pd

import balance_analysis.load.merge as merging
from tests.analysis.tables import arrow_of, many_rows, table_from


def test_rows_of_parts_are_released_before_the_last_block_of_the_table_is_filled(monkeypatch):
    monkeypatch.setattr(merging, "_PIECE", 50)
    monkeypatch.setattr(merging, "_BLOCKS", 4)
    rows = arrow_of(sorted(many_rows(), key=itemgetter(4)))
    parts = [x for at in range(0, 2000, 600) for x in merging.sort_parts([rows.slice(at, 600)])]
    pieces = [weakref.ref(piece.base) for part in parts for piece in part.pieces]
    held = []

    def fill_all(fill, blocks):
        for block in blocks:
            held.append(sum(piece() is not None for piece in pieces))
            fill(block)

    monkeypatch.setattr(merging, "map_parallel", fill_all)
    table = merging.merge(parts)
    pd.testing.assert_frame_equal(table, table_from(rows))
    assert parts == []
    assert held == sorted(held, reverse=True)
    assert held[-1] <= len(pieces) // 2
    assert all(piece() is None for piece in pieces)
    table.loc[0, "timestamp"] = pd.Timestamp("2023-01-01", tz="UTC")
    assert table["timestamp"].iloc[0] == pd.Timestamp("2023-01-01", tz="UTC")
