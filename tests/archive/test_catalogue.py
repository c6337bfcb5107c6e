"""Accounts, parties and markets of an archive are what pandas makes of its rows."""

from __future__ import annotations

from typing import get_args

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis import demo
from balance_analysis.archive import accounts
from balance_analysis.archive.layout import Partition
from balance_analysis.archive.snapshot import Scan
from tests.analysis.tables import arrow_from, table_from
from tests.archive.writing import writer_of
from tests.cluster.archives import archive_of

KEY = list(ba.ACCOUNT_KEY)
MICROSECOND = pd.Timedelta("1us")
PARTS = st.sampled_from([(0, 0), (0, 0.4), (0.3, 0.6), (0.6, 1), (0, 1)])


@pytest.fixture(scope="module")
def sample():
    """The sample data, as of three months."""
    table = ba.read_parquet(demo.sample_data() / "changes.parquet")
    begin = table["timestamp"].min()
    return table.assign(timestamp=begin + (table["timestamp"] - begin) * 3)


def some_of(sample, seed, count):
    return table_from(arrow_from(sample.sample(count, random_state=seed)))


def with_checkpoints(archive):
    writer_of(archive).checkpoint()
    return archive


def expected(archive, *, partial):
    """Return the accounts by way of the rows, in pandas alone but for what is held at the end."""
    rows = archive.read(partial=partial)
    end = archive.coverage().loc[lambda x: partial | (x["state"] == "complete"), "end"].max()
    held = archive.balance_at(end - MICROSECOND, partial=partial)
    found = rows.groupby(KEY, observed=True)["timestamp"].agg(["min", "max", "size"])
    found = found.set_axis(["first_seen", "last_seen", "rows"], axis="columns").reset_index()
    return found.astype(dict.fromkeys(KEY, "str")).merge(
        held.astype(dict.fromkeys(KEY, "str")).drop(columns="since"), on=KEY, how="left"
    )


@settings(max_examples=4)
@example(rows=(7, 900), files=("day", (0, 0.6)), has_checkpoints=True, partial=False)
@example(rows=(7, 900), files=("day", (0.4, 1)), has_checkpoints=True, partial=False)
@given(
    rows=st.tuples(st.integers(0, 99), st.integers(1, 200)),
    files=st.tuples(st.sampled_from(get_args(Partition)), PARTS),
    has_checkpoints=st.booleans(),
    partial=st.booleans(),
)
def test_accounts_are_those_of_the_rows_with_what_is_known_at_the_end(
    sample, rows, files, has_checkpoints, partial
):
    with archive_of(some_of(sample, *rows), *files) as archive:
        if has_checkpoints:
            with_checkpoints(archive)
        try:
            wanted = expected(archive, partial=partial)
        except ba.IncompleteError:
            with pytest.raises(ba.IncompleteError):
                archive.accounts(partial=partial)
            return
        found = archive.accounts(partial=partial)
        pd.testing.assert_frame_equal(
            found.astype(dict.fromkeys(KEY, "str")), wanted, check_like=True
        )


def test_accounts_are_sorted_and_typed_as_a_table_is(sample):
    with archive_of(some_of(sample, 1, 500)) as archive:
        found, rows = archive.accounts(), archive.read()
        for frame in (found, archive.accounts(party_ids="0" * 64)):
            kinds = frame.dtypes.astype("str").to_dict()
            assert list(kinds) == [*KEY, "first_seen", "last_seen", "rows", "balance"]
            assert kinds["last_seen"] == "datetime64[us, UTC]"
            assert (kinds["rows"], kinds["balance"]) == ("int64", "decimal128(38, 0)[pyarrow]")
        firsts = rows.drop_duplicates(KEY)[KEY].reset_index(drop=True)
        pd.testing.assert_frame_equal(found[KEY], firsts)


def test_filters_leave_the_accounts_that_they_name(sample):
    with archive_of(some_of(sample, 2, 800)) as archive:
        with_checkpoints(archive)
        every = archive.accounts()
        party = every["party_id"].mode()[0]
        for filters, mask in (
            ({"party_ids": party}, every["party_id"] == party),
            ({"account_types": "general"}, every["account_type"] == "ACCOUNT_TYPE_GENERAL"),
            ({"asset_id": every["asset_id"][0]}, every["asset_id"] == every["asset_id"][0]),
        ):
            found = archive.accounts(**filters)
            left = every[mask].reset_index(drop=True)
            pd.testing.assert_frame_equal(found, left, check_categorical=False, check_dtype=False)


@pytest.mark.parametrize(
    ("name", "other", "nobody"),
    [("party_id", "market_id", ""), ("market_id", "party_id", "network")],
)
def test_parties_and_markets_are_counted_from_the_rows(sample, name, other, nobody):
    with archive_of(some_of(sample, 3, 2000)) as archive:
        method = {"party_id": archive.parties, "market_id": archive.markets}[name]
        found = method().astype({name: "str"}).set_index(name)
        rows = archive.read().astype(dict.fromkeys(KEY, "str"))
        wanted = {key: own for key, own in rows.groupby(name) if key}
        assert list(found.index) == sorted(wanted)
        for key, own in wanted.items():
            row = found.loc[key]
            assert row["accounts"] == len(own[KEY].drop_duplicates())
            assert row["assets"] == own["asset_id"].nunique()
            others = set(own[other]) - {nobody}
            assert row["markets" if other == "market_id" else "parties"] == len(others)
            assert row["rows"] == len(own)
            times = own["timestamp"]
            assert (row["first_seen"], row["last_seen"]) == (times.min(), times.max())
        none = method(asset_id="id:x")
        assert (len(none), list(none.columns)) == (0, [name, *found.columns])


def test_accounts_of_files_add_up_in_rounds(sample, monkeypatch):
    with archive_of(some_of(sample, 4, 3000)) as archive:
        whole = with_checkpoints(archive).accounts()
        monkeypatch.setattr(accounts, "_WAITING", 3)
        pd.testing.assert_frame_equal(archive.accounts(), whole)


def test_balances_come_from_the_last_checkpoint_and_the_files_since(sample, monkeypatch):
    with archive_of(some_of(sample, 5, 500)) as archive:
        with_checkpoints(archive)
        asked = {}
        look = Scan.accounts

        def noted(scan, columns):
            asked.update({file.name: "balance" in columns for file in scan.files})
            return look(scan, columns)

        monkeypatch.setattr(Scan, "accounts", noted)
        archive.accounts()
        whole = {name for name, has_balance in asked.items() if has_balance}
        begin = max(name for name in whole if name.startswith("_checkpoints/"))[-13:-3]
        since = {name for name in asked if name >= f"changes/date={begin}"}
        assert whole == {f"_checkpoints/{begin}.pq", *since}


def test_a_lost_checkpoint_is_told(sample):
    with archive_of(some_of(sample, 6, 500)) as archive:
        with_checkpoints(archive)
        for path in (archive.store.folder / "_checkpoints").iterdir():
            path.unlink()
        with pytest.raises(ba.ArchiveError, match=r"_checkpoints/.* can't be read"):
            archive.accounts()
