"""The sample is what its generator makes, its sums follow from deposits, and it is lifelike."""

import json
import tomllib
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

import balance_analysis as ba
from sample_data import generate
from sample_data.generate import ASSETS, TREASURY, build_history
from tests.analysis.tables import table_from
from tests.columns import ARROW_SCHEMA

FOLDER = Path(__file__).parents[2] / "sample_data"
LIMITS = (FOLDER / "network_limits.json").read_text(encoding="utf-8")
OF_THE_INTERFACE = ba.ACCOUNT_TYPES[: ba.ACCOUNT_TYPES.index("ACCOUNT_TYPE_HOLDING")]
"""The account types of the interface document; nodes have later ones as well."""


@pytest.fixture(scope="module")
def arrow():
    return pq.read_table(FOLDER / "changes.parquet")


@pytest.fixture(scope="module")
def table(arrow):
    return table_from(arrow)


@pytest.fixture(scope="module")
def history():
    return build_history()


@pytest.fixture(scope="module")
def rows(table):
    """Plain rows with their delta; a first row's is its balance, since the network began empty."""
    rows = pd.DataFrame(
        {name: table[name].astype(object) for name in [*ba.ACCOUNT_KEY, "timestamp"]}
    )
    rows["balance"] = pd.Series([int(balance) for balance in table["balance"]], dtype=object)
    before = rows.groupby(ba.ACCOUNT_KEY)["balance"].shift()
    rows["first"] = before.isna()
    rows["delta"] = rows["balance"] - before.where(before.notna(), 0)
    return rows


def test_the_file_is_small_and_as_write_parquet_writes_it(arrow, table):
    assert (FOLDER / "changes.parquet").stat().st_size <= 2_000_000
    assert pq.read_metadata(FOLDER / "changes.parquet").row_group(0).column(0).compression == "ZSTD"
    assert arrow.schema.equals(ARROW_SCHEMA)
    assert sum(column.null_count for column in arrow.columns) == 0
    ba.check_table(table)
    for name in ba.ACCOUNT_KEY:
        assert table[name].astype(str).tolist() == arrow[name].to_pylist()


def test_the_committed_files_are_what_the_generator_makes(table, history, tmp_path, monkeypatch):
    assert table.equals(history.table)
    monkeypatch.setattr(generate, "build_history", lambda _: history)
    generate.main([str(tmp_path / "new")])
    files = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    assert files.keys() == {"changes.parquet", "network_limits.json"}
    assert files["network_limits.json"] == LIMITS.encode()


def test_sums_change_only_by_deposits_and_withdrawals(rows, history):
    listed, changes = Counter(), Counter()
    for flow in history.external_flows:
        listed[pd.Timestamp(flow.timestamp, unit="us", tz="UTC"), flow.asset_id] += flow.amount
    for row in rows.itertuples(index=False):
        if row.account_type != "ACCOUNT_TYPE_EXTERNAL":
            changes[row.timestamp, row.asset_id] += row.delta
    assert {key: x for key, x in changes.items() if x} == {k: x for k, x in listed.items() if x}
    assert len({when for when, _ in listed}) < rows["timestamp"].nunique() / 10


def test_each_asset_has_a_name_and_6_or_18_decimals(table):
    named = tomllib.loads((FOLDER / "assets.toml").read_text(encoding="utf-8"))
    about = {a.asset_id: {"symbol": a.symbol, "decimals": a.decimals} for a in ASSETS}
    assert named == about
    assert {*named} == {*table["asset_id"]}
    assert {asset.decimals for asset in ASSETS} == {6, 18}
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for asset in ASSETS:
        assert f"| {asset.symbol} | {asset.decimals} | `{asset.asset_id}` |" in readme


def test_the_month_has_a_quiet_week_and_one_day_busier_than_all_others(table):
    days = table["timestamp"].dt.floor("D").value_counts()
    april = pd.date_range("2023-04-01", "2023-04-30", tz="UTC")
    missing = [day for day in april if day not in days.index]
    assert {*days.index} < {*april}
    assert missing == [*pd.date_range(missing[0], periods=7)]
    assert days.idxmax() == pd.Timestamp("2023-04-12", tz="UTC")
    assert days.iloc[0] > 1.5 * days.iloc[1]
    hours = table["timestamp"].dt.hour.value_counts()
    assert hours[[13, 14, 15]].min() > 2 * hours[[1, 2, 3]].max()
    gaps = table["timestamp"].drop_duplicates().sort_values().diff().dt.total_seconds()
    assert 0.65 < gaps[gaps < 10].median() < 0.75


def test_ids_are_64_hex_digits(table):
    for name in ("asset_id", "party_id", "market_id"):
        ids = pd.Series(table[name].cat.categories)
        assert ids[~ids.isin(["network", ""])].str.fullmatch("[0-9a-f]{64}").all()


def of_type(rows, kind):
    return rows[rows["account_type"] == f"ACCOUNT_TYPE_{kind}"]


def rewarded(rows):
    """Return how many general accounts gain in each block that pays rewards."""
    paid = of_type(rows, "GLOBAL_REWARD").query("delta < 0")["timestamp"]
    gains = of_type(rows, "GENERAL").query("delta > 0")
    return gains["timestamp"].value_counts().reindex(paid)


FACTS = {
    "no balance is negative": lambda x: x["balance"].min() >= 0,
    "a reward is 300 rows in one block": lambda x: rewarded(x).min() > 300,
    "most accounts begin with a row of 0": lambda x: (
        (x.loc[x["first"], "balance"] == 0).mean() > 0.5
    ),
    "some with another balance": lambda x: (x.loc[x["first"], "balance"] > 0).any(),
    "some rows repeat a balance": lambda x: ((x["delta"] == 0) & (x["balance"] > 0)).sum() > 100,
    "settlement rows are always 0": lambda x: {*of_type(x, "SETTLEMENT")["balance"]} == {0},
    "each asset has one external row of 0": lambda x: (
        of_type(x, "EXTERNAL")["balance"].tolist() == [0] * len(ASSETS)
    ),
    "a type is of no interface document": lambda x: (
        "ACCOUNT_TYPE_VESTING_REWARDS" in {*x["account_type"]} - {*OF_THE_INTERFACE}
    ),
    "the treasury holds more than 27 digits": lambda x: (
        {*x.loc[x["balance"] >= 10**27, "account_type"]} == {TREASURY.account_type}
    ),
}


@pytest.mark.parametrize("fact", FACTS.values(), ids=FACTS)
def test_the_history_is_lifelike(fact, rows):
    assert fact(rows)


def test_limits_are_a_snapshot_of_the_month_s_end_with_a_later_boolean():
    limits = json.loads(LIMITS)
    assert [*limits] == [entry.name for entry in fields(ba.NetworkLimits)]
    assert json.dumps(limits, indent=2) + "\n" == LIMITS
    assert limits["extra"] == {"canProposeSpotMarket": False}
    assert limits["fetched_at"] == "2023-05-01T00:00:00Z"
