"""Slices: together all accounts, none too large, and enough to keep all workers busy."""

from bisect import bisect_right

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance_analysis.slices import cut
from tests.analysis.tables import HOUR, many_rows, table_of
from tests.scale.archives import write_archive

owners = st.tuples(*[st.text("ab\U0010ffff", max_size=3)] * 2)
counted = st.dictionaries(owners, st.tuples(st.integers(1, 50), st.integers(1, 9)), max_size=40)


def parts_of(numbers, rows, accounts):
    """Cut {owner: (rows, accounts)}, of which each owner is a stretch of rows of its own."""
    keys = sorted(numbers)
    groups = [(key, key, numbers[key][0]) for key in keys]
    return cut(
        keys, np.array([numbers[key][1] for key in keys]), groups, rows=rows, accounts=accounts
    )


@given(counted, st.integers(1, 80), st.integers(1, 10))
def test_slices_have_all_owners_whole_and_about_equal_work(numbers, rows, accounts):
    slices = parts_of(numbers, rows, accounts)
    lows = [part.low for part in slices]
    assert lows == sorted(set(lows))
    assert [part.high for part in slices] == [*lows[1:], None]
    assert set(lows[1:]) <= set(numbers)
    own = [[] for _ in slices]
    for key in sorted(numbers):
        work = numbers[key][0] / rows + numbers[key][1] / accounts
        own[bisect_right(lows, key) - 1].append(work)
    for part in own if len(slices) > 1 else ():
        # The first is the one that an edge falls into: it stands behind it, whole.
        assert sum(part[1:]) <= 1 + 1e-9


@pytest.mark.parametrize(
    ("rows", "parts"), [(950, 1), (450, 1), (310, 3), (230, 4), (200, 8), (95, 12)]
)
def test_the_last_round_of_slices_keeps_two_or_four_workers_busy(rows, parts):
    numbers = {(f"{place:04}", "a"): (1, 0) for place in range(900)}
    assert len(parts_of(numbers, rows, float("inf"))) == parts


def test_rows_of_an_uncut_row_group_count_as_evenly_spread():
    owners = [(f"{place:04}", "a") for place in range(100)]
    parts = cut(owners, np.ones(100), [(("",), ("z",), 1000)], rows=100, accounts=float("inf"))
    places = [bisect_right(owners, part.low) for part in parts]
    assert len(parts) == 12
    assert max(np.diff(places)) - min(np.diff(places)) <= 2


def test_owners_are_those_of_all_accounts_in_the_order_of_files(tmp_path):
    rows = many_rows(500)
    archive = write_archive(tmp_path / "archive", table_of(rows), "hour")
    result, sizes = archive.by_slices(lambda slices: slices.owners)
    accounts = {row[:4] for row in rows}
    assert result == sorted({(key[2], key[0]) for key in accounts})
    assert [*sizes] == [sum((key[2], key[0]) == one for key in accounts) for one in result]


def test_some_files_are_named_by_the_first_and_the_last(tmp_path):
    rows = [(*row[:4], row[4] + n * HOUR, row[5]) for n, row in enumerate(many_rows(500))]
    archive = write_archive(tmp_path / "archive", table_of(rows))
    scan = archive.snapshot().scan()
    names = [file.name for file in scan.files]
    assert len(names) > 2
    assert str(scan) == f"{names[0]} to {names[-1]}"
    assert [str(part) for part in scan.split(1)] == names
