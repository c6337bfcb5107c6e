"""Slices: together all accounts, none too large, and so many that all workers are busy."""

from __future__ import annotations

import pickle
from bisect import bisect_right

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance_analysis import ACCOUNT_KEY
from balance_analysis.archive.datafile import FILE_KEY, combine_accounts, cut
from balance_analysis.archive.snapshot import Scan
from tests.analysis.tables import HOUR, many_rows, table_of
from tests.scale.archives import write_archive

ids = st.tuples(*[st.text("ab\U0010ffff", max_size=3)] * len(FILE_KEY))
counted = st.dictionaries(ids, st.integers(1, 50), max_size=40)


def counts_of(numbers):
    """Return {account: rows} as `Scan.accounts` does."""
    keys = sorted(numbers)
    columns = {name: [key[place] for key in keys] for place, name in enumerate(FILE_KEY)}
    ids = pa.dictionary(pa.int32(), pa.string())
    texts = {
        name: pa.DictionaryArray.from_arrays(
            pa.array([sorted({*own}).index(one) for one in own], pa.int32()),
            pa.array(sorted({*own}), pa.string()),
        )
        for name, own in columns.items()
    }
    schema = pa.schema([*((name, ids) for name in FILE_KEY), ("rows", pa.int64())])
    return pa.table({**texts, "rows": [numbers[key] for key in keys]}, schema)


@given(counted, st.integers(1, 80), st.integers(1, 10))
def test_slices_are_all_accounts_and_none_is_too_large(numbers, rows, accounts):
    slices = cut(counts_of(numbers), rows=rows, accounts=accounts)
    lows = [part.low for part in slices]
    assert lows == sorted(set(lows))
    assert [part.high for part in slices] == [*lows[1:], None]
    own = [{} for _ in slices]
    for key in sorted(numbers):
        place = bisect_right(lows, key) - 1
        own[place].setdefault(key[:2], []).append(key)
    # What a party has of one asset is never split.
    owners = [owner for part in own for owner in part]
    assert len(owners) == len(set(owners))
    for part in own:
        # The first is the one that an edge falls into: it stands behind it, whole.
        others = [key for keys in [*part.values()][1:] for key in keys]
        assert sum(numbers[key] for key in others) <= rows
        assert len(others) <= accounts


@pytest.mark.parametrize(("rows", "parts"), [(950, 1), (310, 3), (230, 4), (200, 8), (95, 12)])
def test_the_last_round_keeps_two_or_four_workers_busy(rows, parts):
    numbers = {(f"{place:04}", "a", "t", ""): 1 for place in range(900)}
    assert len(cut(counts_of(numbers), rows=rows, accounts=float("inf"))) == parts


def test_counts_of_some_files_add_up_to_those_of_all(tmp_path):
    rows = many_rows(500)
    archive = write_archive(tmp_path / "archive", table_of(rows), "hour")
    scan = archive.scan()
    expected = {}
    for row in rows:
        ids = dict(zip(ACCOUNT_KEY, row, strict=False))
        key = tuple(ids[name] for name in FILE_KEY)
        expected[key] = expected.get(key, 0) + 1
    for size in (1, 2, 100):
        parts = [pickle.loads(pickle.dumps(part)) for part in scan.split(size)]
        assert [file for part in parts for file in part.files] == list(scan.files)
        found = combine_accounts(map(Scan.accounts, parts)).select([*FILE_KEY, "rows"])
        assert found.to_pylist() == counts_of(expected).to_pylist()


def test_some_files_are_named_by_the_first_and_the_last(tmp_path):
    rows = [(*row[:4], row[4] + n * HOUR, row[5]) for n, row in enumerate(many_rows(500))]
    archive = write_archive(tmp_path / "archive", table_of(rows))
    scan = archive.scan()
    names = [file.name for file in scan.files]
    assert len(names) > 2
    assert str(scan) == f"{names[0]} to {names[-1]}"
    assert [str(part) for part in scan.split(1)] == names
