"""That accounts held nothing before the first block is known up to the first gap."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.archive.exporting import START
from tests.cli.running import run
from tests.loopback import Row
from tests.segments.writer import write_segments

HOUR = 3_600_000_000
WIDE = {"start": "2020-01-01", "end": "2100-01-01", "partial": True}
BALANCES = {"aa": {1: 5, 2: 8, 3: 9}, "bb": {2: 100, 3: 107}, "cc": {3: 3}, "dd": {1: 4}}


def moment(block):
    return START + block * 31 * HOUR


def at(block, shift=0):
    return pd.Timestamp(moment(block) + shift, unit="us", tz="UTC")


def imported(folder, balances, held, blocks):
    """Import the blocks that are held of a history: balances by party and block."""
    rows = [
        Row(moment(block) * 1000, "VOTE", "ACCOUNT_TYPE_GENERAL", party, "", balance)
        for party, changes in balances.items()
        for block, balance in changes.items()
    ]
    rows.sort(key=lambda row: (row.timestamp_ns, row.account_id))
    quiet = [moment(block) * 1000 for block in range(1, blocks + 1)]
    paths = write_segments(folder / "segments", rows, each=1, quiet=quiet)
    archive = ba.Archive(folder / "archive")
    ba.import_segments(archive, [paths[block - 1] for block in held])
    return archive


def cells(frame, name):
    return {
        party: None if pd.isna(value) else int(value)
        for party, value in zip(frame["party_id"], frame[name], strict=True)
    }


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return imported(tmp_path_factory.mktemp("gap"), BALANCES, [1, 3], 3)


@pytest.fixture(scope="module")
def cut(archive):
    """Return what follows the gap, with openings from before it."""
    return archive.read(start=at(3), end=at(3, 1), opening=True, partial=True)


def test_balances_in_a_gap_and_behind_it_are_those_of_rows_alone(archive, cut):
    expected = {"aa": 9, "bb": 107, "cc": 3, "dd": None}
    assert cells(ba.balance_at(cut, at(3)), "balance") == expected
    assert cells(ba.balance_at(archive, at(3)), "balance") == expected
    held = ba.balance_at(archive, at(2))
    assert cells(held, "balance") == {"aa": None, "bb": None, "cc": None, "dd": None}
    later = ba.balance_at(cut, at(2, 1))
    assert set(cells(later, "balance").values()) == {None}


def test_segments_are_compared_as_far_as_what_was_before_is_known(archive, tmp_path):
    paths = sorted((Path(archive.uri).parent / "segments").iterdir())
    others = [shutil.copy(path, tmp_path) for path in (paths[0], paths[2])]
    assert "no problem" in run("verify", archive.uri, "--against", paths[0].parent).stdout
    for some in (paths, others):
        report = archive.verify(segments=some)
        assert report.problems == ()
    said = "3 changes of accounts with unknown balances before"
    assert any(said in each for each in report.not_compared)


@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_deltas_of_a_cut_are_those_of_all_blocks_where_these_are_known(data):
    blocks = data.draw(st.integers(2, 5))
    held = data.draw(st.sets(st.integers(1, blocks), min_size=1))
    balances = data.draw(
        st.dictionaries(
            st.sampled_from(["aa", "bb", "cc", "dd"]),
            st.dictionaries(st.integers(1, blocks), st.integers(0, 99), min_size=1),
            min_size=1,
        )
    )
    since = data.draw(st.integers(1, blocks))
    with TemporaryDirectory() as folder:
        archive = imported(Path(folder), balances, sorted(held), blocks)
        table = archive.read(**{**WIDE, "start": at(since)}, opening=True)
        deltas = ba.deltas(table)
    expected = []
    for party, changes in sorted(balances.items()):
        for block in sorted(held & changes.keys()):
            before = max((each for each in changes if each < block), default=0)
            if block >= since:
                is_known = all(each in held for each in range(max(before, 1), block))
                delta = changes[block] - changes.get(before, 0) if is_known else None
                expected.append((party, at(block), delta))
    assert expected == [
        (party, time, None if pd.isna(delta) else int(delta))
        for party, time, delta in zip(
            deltas["party_id"], deltas["timestamp"], deltas["delta"], strict=True
        )
    ]
