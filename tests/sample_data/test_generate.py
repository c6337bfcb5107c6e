from __future__ import annotations

import json
import tomllib
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from balance_analysis import ACCOUNT_KEY, ACCOUNT_TYPES, NetworkLimits
from sample_data.generate import ASSETS, TREASURY, build_history, main
from tests.analysis.tables import arrow_from, table_from
from tests.columns import ARROW_SCHEMA

FOLDER = Path(__file__).parents[2] / "sample_data"
DAY = pd.Timedelta("1D")
OF_THE_INTERFACE = ACCOUNT_TYPES[: ACCOUNT_TYPES.index("ACCOUNT_TYPE_HOLDING")]
"""The account types of the interface document; nodes have later ones as well."""


@pytest.fixture(scope="session")
def arrow():
    return pq.read_table(FOLDER / "changes.parquet")


@pytest.fixture(scope="session")
def table(arrow):
    return table_from(arrow)


@pytest.fixture(scope="session")
def history():
    return build_history()


@pytest.fixture(scope="session")
def rows(table):
    """Plain rows with their delta; a first row's is its balance, since the network began empty."""
    rows = pd.DataFrame({name: table[name].astype(object) for name in [*ACCOUNT_KEY, "timestamp"]})
    rows["balance"] = pd.Series([int(balance) for balance in table["balance"]], dtype=object)
    before = rows.groupby(ACCOUNT_KEY)["balance"].shift()
    rows["first"] = before.isna()
    rows["delta"] = rows["balance"] - before.where(before.notna(), 0)
    return rows


@pytest.fixture(scope="session")
def of_type(rows):
    return lambda kind: rows[rows["account_type"] == f"ACCOUNT_TYPE_{kind}"]


@pytest.fixture(scope="session")
def limits_text():
    return (FOLDER / "network_limits.json").read_text(encoding="utf-8")


def naive_sum_changes(table):
    """Sum every asset over its accounts, row by row in time, and note where it moves."""
    balances, changes = {}, Counter()
    for row in table.sort_values("timestamp", kind="stable").itertuples(index=False):
        if row.account_type != "ACCOUNT_TYPE_EXTERNAL":
            account = row[:4]
            change = int(row.balance) - balances.get(account, 0)
            changes[row.timestamp, row.asset_id] += change
            balances[account] = int(row.balance)
    return {key: change for key, change in changes.items() if change}


def listed_flows(history):
    flows = Counter()
    for flow in history.external_flows:
        flows[pd.Timestamp(flow.timestamp, unit="us", tz="UTC"), flow.asset_id] += flow.amount
    return {key: amount for key, amount in flows.items() if amount}


# The file


def test_the_file_is_at_most_two_megabytes():
    assert (FOLDER / "changes.parquet").stat().st_size <= 2_000_000


def test_the_file_holds_some_60000_rows(table):
    assert 55_000 <= len(table) <= 65_000


def test_the_file_has_the_schema_of_the_table(arrow):
    assert arrow.schema.equals(ARROW_SCHEMA)


def test_the_file_is_sorted_as_the_table(arrow, table):
    ids = [table[name].astype(str).tolist() for name in ACCOUNT_KEY]
    assert ids == [arrow[name].to_pylist() for name in ACCOUNT_KEY]
    assert arrow_from(table)["timestamp"].equals(arrow["timestamp"])


def test_the_file_is_compressed_with_zstd():
    metadata = pq.read_metadata(FOLDER / "changes.parquet")
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def test_no_field_is_missing(arrow):
    assert sum(column.null_count for column in arrow.columns) == 0


def test_an_account_has_at_most_one_row_in_a_block(rows):
    assert not rows.duplicated([*ACCOUNT_KEY, "timestamp"]).any()


def test_no_balance_is_negative(rows):
    assert rows["balance"].min() == 0


# The generator


def test_the_committed_file_is_what_the_generator_makes(table, history):
    assert table.equals(history.table)


def test_under_another_seed_other_sums_change_only_by_deposits_and_withdrawals(history):
    other = build_history(seed=1)
    assert not other.table.equals(history.table)
    assert naive_sum_changes(other.table) == listed_flows(other)


def test_the_command_writes_the_committed_files(tmp_path, limits_text):
    main([str(tmp_path / "new")])
    files = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    assert files.keys() == {"changes.parquet", "network_limits.json"}
    assert files["network_limits.json"] == limits_text.encode()


# Time


def test_the_first_block_opens_april_2023(table):
    start = pd.Timestamp("2023-04-01", tz="UTC")
    assert start <= table["timestamp"].min() < start + pd.Timedelta("1s")


def test_the_last_block_is_on_the_last_of_april_2023(table):
    assert table["timestamp"].max().floor("D") == pd.Timestamp("2023-04-30", tz="UTC")


def test_seven_whole_days_in_a_row_have_no_rows(table):
    blocks = table["timestamp"].drop_duplicates().sort_values()
    gap = blocks.diff().idxmax()
    last_before = blocks[blocks < blocks[gap]].max()
    assert blocks[gap].floor("D") - last_before.ceil("D") == 7 * DAY


def test_all_other_days_have_rows(table):
    assert table["timestamp"].dt.floor("D").nunique() == 23


def test_blocks_are_about_seven_tenths_of_a_second_apart_while_there_is_trading(table):
    gaps = table["timestamp"].drop_duplicates().sort_values().diff().dt.total_seconds()
    assert 0.65 < gaps[gaps < 10].median() < 0.75


def test_one_day_is_much_busier_than_the_others(table):
    days = table["timestamp"].dt.floor("D").value_counts()
    assert days.idxmax() == pd.Timestamp("2023-04-12", tz="UTC")
    assert days.iloc[0] > 1.5 * days.iloc[1]


def test_afternoons_are_busier_than_nights(table):
    hours = table["timestamp"].dt.hour.value_counts()
    assert hours[[13, 14, 15]].min() > 2 * hours[[1, 2, 3]].max()


# Assets, parties, markets


def test_assets_of_18_and_of_6_decimals_occur(table):
    decimals = {asset.asset_id: asset.decimals for asset in ASSETS}
    assert {decimals[asset_id] for asset_id in table["asset_id"].cat.categories} == {6, 18}


def test_assets_toml_names_symbol_and_decimals_of_every_asset(table):
    named = tomllib.loads((FOLDER / "assets.toml").read_text(encoding="utf-8"))
    about = {a.asset_id: {"symbol": a.symbol, "decimals": a.decimals} for a in ASSETS}
    assert named == about
    assert set(named) == set(table["asset_id"].cat.categories)


def test_the_readme_lists_every_asset():
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for asset in ASSETS:
        assert f"| {asset.symbol} | {asset.decimals} | `{asset.asset_id}` |" in readme


@pytest.mark.parametrize("name", ["asset_id", "party_id", "market_id"])
def test_ids_are_64_hex_digits(table, name):
    ids = pd.Series(table[name].cat.categories)
    assert ids[~ids.isin(["network", ""])].str.fullmatch("[0-9a-f]{64}").all()


def test_40_to_60_parties_trade(of_type):
    assert 40 <= of_type("MARGIN")["party_id"].nunique() <= 60


def test_parties_trade_on_several_markets(of_type):
    assert of_type("MARGIN").groupby("party_id")["market_id"].nunique().median() >= 2


def test_four_markets_settle_in_two_assets(of_type):
    margin = of_type("MARGIN")
    assert (margin["market_id"].nunique(), margin["asset_id"].nunique()) == (4, 2)


def test_the_network_owns_accounts(rows):
    assert rows.loc[rows["party_id"] == "network", "account_type"].nunique() >= 8


# What happens


@pytest.mark.parametrize("sign", [1, -1], ids=["from general", "to general"])
def test_margin_moves_to_and_from_general_accounts(of_type, sign):
    by = ["timestamp", "party_id", "asset_id"]
    deltas = of_type("MARGIN").merge(of_type("GENERAL"), on=by, suffixes=("", "_of_general"))
    moved = deltas["delta"] * sign > 0
    assert (deltas["delta_of_general"] * sign < 0)[moved].sum() > 1000


@pytest.mark.parametrize("kind", ["INFRASTRUCTURE", "LIQUIDITY"])
def test_fees_gather_and_are_paid_out(of_type, kind):
    deltas = of_type(f"FEES_{kind}")["delta"]
    assert (deltas > 0).sum() > 1000
    assert (deltas < 0).sum() > 40


def test_maker_fees_only_pass_through(of_type):
    fees = of_type("FEES_MAKER")
    assert len(fees) > 1000
    assert set(fees["balance"]) == {0}


def test_makers_hold_bonds(of_type):
    assert of_type("BOND").groupby(ACCOUNT_KEY)["balance"].last().min() > 0


def test_closed_out_positions_fill_the_insurance_pools(of_type):
    assert (of_type("INSURANCE")["delta"] > 0).sum() > 5


def test_rewards_put_more_than_300_rows_into_one_block(of_type):
    paid = of_type("GLOBAL_REWARD").query("delta < 0")["timestamp"]
    general = of_type("GENERAL").query("delta > 0")
    received = general["timestamp"].value_counts().reindex(paid)
    assert len(received) > 20
    assert received.min() > 300


def test_more_than_half_of_the_accounts_begin_with_a_row_of_0(rows):
    assert (rows.loc[rows["first"], "balance"] == 0).mean() > 0.5


def test_some_accounts_begin_with_another_balance(rows):
    assert (rows.loc[rows["first"], "balance"] > 0).any()


def test_some_rows_repeat_a_balance_that_is_not_0(rows):
    assert ((rows["delta"] == 0) & (rows["balance"] > 0)).sum() > 100


def test_settlement_rows_are_always_0(of_type):
    settlement = of_type("SETTLEMENT")
    assert len(settlement) > 100
    assert set(settlement["balance"]) == {0}


def test_each_asset_has_one_external_row_of_0(of_type):
    external = of_type("EXTERNAL")
    assert sorted(external["asset_id"]) == sorted(asset.asset_id for asset in ASSETS)
    assert set(external["balance"]) == {0}


def test_an_account_type_occurs_that_the_interface_document_does_not_list(table):
    unlisted = set(table["account_type"].cat.categories) - set(OF_THE_INTERFACE)
    assert "ACCOUNT_TYPE_VESTING_REWARDS" in unlisted
    assert unlisted <= set(ACCOUNT_TYPES)


def test_only_the_treasury_holds_more_than_27_digits(rows):
    large = rows[rows["balance"] >= 10**27]
    assert set(large["account_type"]) == {TREASURY.account_type}
    assert {len(str(balance)) for balance in large["balance"]} <= set(range(28, 39))


def test_sums_change_only_by_deposits_and_withdrawals(table, history):
    assert naive_sum_changes(table) == listed_flows(history)


def test_sums_change_in_few_blocks(table, history):
    blocks = {timestamp for timestamp, _ in listed_flows(history)}
    assert len(blocks) < table["timestamp"].nunique() / 10


def test_traders_both_win_and_lose(of_type):
    final = of_type("GENERAL").groupby(ACCOUNT_KEY)["balance"].agg(["last", "max"])
    share = (final["last"] / final["max"])[final["max"] > 0].astype(float)
    assert (share < 0.5).any()
    assert (share > 0.9).any()


# Limits


def test_limits_have_the_fields_of_the_snapshot_in_its_order(limits_text):
    assert list(json.loads(limits_text)) == [entry.name for entry in fields(NetworkLimits)]


def test_limits_are_indented_by_two_and_end_with_a_newline(limits_text):
    assert json.dumps(json.loads(limits_text), indent=2) + "\n" == limits_text


def test_limits_hold_a_later_boolean_under_its_own_name(limits_text):
    assert json.loads(limits_text)["extra"] == {"canProposeSpotMarket": False}


def test_limits_were_fetched_when_the_month_ended(limits_text):
    assert json.loads(limits_text)["fetched_at"] == "2023-05-01T00:00:00Z"
