"""`accounts` lists what an archive has in 80 columns, and `sql` asks it without touching it."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

import balance_analysis as ba
from balance_analysis import demo
from tests.archive.exporting import (
    DAY,
    END,
    in_spans,
    node_of,
    run_export,
    spans_of,
    spread_history,
)
from tests.archive.exporting import START as BEGIN
from tests.cli.running import fails, run

ROWS = spread_history(7, rows=200, accounts=30)
ASSETS = Path(__file__).parents[2] / "sample_data" / "assets.toml"


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "archive"
    with node_of(ROWS) as node:
        run_export(node, folder, start=BEGIN + DAY, end=END)
        run_export(node, folder, start=BEGIN, end=BEGIN + DAY // 2)
    return folder


def lines(result):
    return result.stdout.rstrip("\n").split("\n")


def accounts_of(archive):
    found = ba.summarize_accounts(ba.Archive(archive)).rename(columns={"closing": "balance"})
    found = found[[*ba.ACCOUNT_KEY, "first_seen", "last_seen", "rows", "balance"]]
    return found.sort_values("rows", ascending=False, kind="stable", ignore_index=True)


def test_a_summary_and_a_list_of_accounts_count_the_same_rows(archive):
    first, other = (
        lines(run(command, archive, "--partial", "--format", "csv"))
        for command in ("summary", "accounts")
    )
    columns = (*ba.ACCOUNT_KEY, "rows")
    first, other = (
        sorted([each[name] for name in columns] for each in csv.DictReader(told))
        for told in (first, other)
    )
    assert first == other
    shown = (lines(run(c, archive, "--partial"))[0] for c in ("summary", "accounts"))
    assert all("rows" in header and "changes" not in header for header in shown)


def test_accounts_fit_80_columns_the_most_active_first(archive):
    told = lines(run("accounts", archive, "--partial", "--limit", "5"))
    assert max(map(len, told)) <= 80
    assert told[-1] == "... the 5 most active of 30 accounts"
    header, *rows = [line.split() for line in told[:6]]
    assert header[:5] == ["asset", "type", "party", "market", "rows"]
    counts = [f"{count:,}" for count in accounts_of(archive)["rows"].head(5)]
    assert all(count in row for count, row in zip(counts, rows, strict=True))
    assert len(lines(run("accounts", archive, "--partial", "--limit", "0"))) == 31


def test_wide_shows_whole_ids_and_every_digit(archive):
    told = run("accounts", archive, "--partial", "--wide", "--limit", "0").stdout
    for row in accounts_of(archive).itertuples(index=False):
        held = "unknown" if pd.isna(row.balance) else str(row.balance)
        line = next(x for x in told.split("\n") if f" {row.party_id} " in x and held in x.split())
        assert row.asset_id in line


def test_balances_stand_in_whole_units_where_assets_are_known(tmp_path):
    folder = tmp_path / "a"
    with demo.serve_sample() as url, ba.Client(url) as client:
        ba.export(client, ba.Archive(folder), start="2023-04-01", end="2023-04-03")
    told = lines(run("accounts", folder, "--asset-id", "tUSD", "--assets", ASSETS, "--limit", "1"))
    chosen = ba.Archive(folder).select(asset_id="tUSD", assets=ASSETS)
    (held,) = ba.summarize_accounts(chosen).nlargest(1, "rows")["closing"]
    assert told[1].startswith("tUSD ")
    assert f"{int(held) / 10**6:,.2f}" in told[1].split()


def test_accounts_are_written_with_every_digit(archive, tmp_path):
    wanted = accounts_of(archive)
    told = run("accounts", archive, "--partial", "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(told)))
    assert [row["balance"] for row in rows] == [
        "" if pd.isna(x) else str(x) for x in wanted["balance"]
    ]
    result = run("accounts", archive, "--partial", "-o", tmp_path / "a.parquet")
    assert result.stderr == f"30 accounts: {tmp_path / 'a.parquet'}\n"
    held = pq.read_table(tmp_path / "a.parquet")["balance"].to_pylist()
    assert held == [None if pd.isna(x) else x for x in wanted["balance"]]


def test_accounts_of_an_incomplete_archive_want_partial(archive):
    assert "is missing" in fails("accounts", archive, code=3, folder=archive)


def test_sql_prints_a_table_with_every_digit(archive):
    query = (
        "select party_id, timestamp, balance from changes order by balance desc, timestamp limit 2"
    )
    header, *rows = lines(run("sql", archive, query))
    assert header.split() == ["party_id", "timestamp", "balance"]
    largest = sorted((int(row.balance) for row in _covered(archive)), reverse=True)[:2]
    assert [int(row.split()[-1]) for row in rows] == largest
    assert all(len(row.split()[0]) <= 12 for row in rows)
    whole = run("sql", archive, "select distinct party_id from changes", "--wide").stdout
    assert set(whole.split()) == {"party_id"} | {row.party_id for row in _covered(archive)}


def test_sql_prints_decimals_without_an_exponent_or_zeros_at_the_end(archive):
    amounts = ["0", "100", "1.5", "12345678901234567890.000000000000000001"]
    query = f"select unnest([{', '.join(amounts)}]::decimal(38, 18)[]) as amount"
    assert [line.strip() for line in lines(run("sql", archive, query))] == ["amount", *amounts]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("interval '2 months 3 days'", "2 months 3 days"),
        ("timestamp '2023-04-03' - timestamp '2023-04-01 23:00'", "1 day 01:00:00"),
        ("[interval '1 day']", "[1 day]"),
        ("'12:03:00+02'::timetz", "12:03:00+02"),
        ("340282366920938463463374607431768211455::uhugeint", str(2**128 - 1)),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "json", "parquet", "xlsx"])
def test_sql_gives_what_files_cannot_hold_as_text(query, text, ending, archive, tmp_path):
    query, target = f'select {query} as "a b"', tmp_path / f"x.{ending}"
    assert [line.strip() for line in lines(run("sql", archive, query))] == ["a b", text]
    run("sql", archive, query, "-o", target)
    read = {
        "csv": lambda: list(csv.DictReader(io.StringIO(target.read_text()))),
        "json": lambda: json.loads(target.read_text()),
        "parquet": lambda: pq.read_table(target).to_pylist(),
        "xlsx": lambda: pd.read_excel(target, dtype=str).to_dict("records"),
    }[ending]()
    assert read == [{"a b": text}]


def test_sql_shows_the_first_rows_of_many_and_says_so(archive):
    told = lines(run("sql", archive, "from changes", "--limit", "3"))
    assert len(told) == 5
    assert told[-1] == "... the first 3 rows; --limit 0 shows all, -o FILE writes them"
    assert lines(run("sql", archive, "select null as a"))[1] == "NULL"


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ("asset_id = 'tUSD'", "tUSD is a symbol, not an id: write symbol = 'tUSD'"),
        ("asset_id in ('x', 'tusd')", "tusd is a symbol, not an id: write symbol = 'tUSD'"),
        (
            "account_type in ('margin')",
            "margin is short for an account type: write 'ACCOUNT_TYPE_MARGIN'",
        ),
        ("account_type = 'ACCOUNT_TYPE_MARGIN' or market_id = ''", ""),
        ("market_id = '0ab1'", "0ab1 is a part of an id: --wide shows whole ids"),
        ("party_id = 'ab…cd'", "ab…cd is a part of an id: --wide shows whole ids"),
        ("party_id != 'alice'", "alice is a label, not an id: the view labels has its ids"),
        ("symbol = 'tUSD' and party_id = 'x'", ""),
    ],
)
def test_sql_says_where_a_name_stands_in_the_place_of_an_id(condition, hint, tmp_path):
    names = {"assets": {ROWS[0].asset_id: {"symbol": "tUSD", "decimals": 5}}}
    with node_of(ROWS) as node:
        run_export(node, tmp_path / "a", labels={ROWS[0].party_id: "Alice"}, **names)
    said = run("sql", tmp_path / "a", f"select count(*) from changes where {condition}").stderr
    assert said.strip() == hint


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_sql_writes_every_row_and_digit(archive, tmp_path, ending):
    target = tmp_path / f"x.{ending}"
    run("sql", archive, "select balance, asset_id from changes", "-o", target)
    read = {
        "csv": lambda: list(csv.DictReader(io.StringIO(target.read_text()))),
        "json": lambda: json.loads(target.read_text()),
        "parquet": lambda: pq.read_table(target).to_pylist(),
    }[ending]()
    wanted = sorted((int(row.balance), row.asset_id) for row in _covered(archive))
    assert sorted((int(row["balance"]), row["asset_id"]) for row in read) == wanted


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select no from changes", 'Referenced column "no" not found'),
        ("selec 1", 'syntax error at or near "selec"'),
        ("select 1; select 2", "only a single SELECT"),
        ("copy (select 1) to 'x.csv'", "only a single SELECT"),
        ("", "only a single SELECT"),
        ("from '/etc/passwd'", "/etc/passwd"),
        ("select 1 as a, 2 as a", "two columns are called a"),
    ],
)
def test_what_sql_refuses_is_told_in_one_line(archive, query, said):
    assert said in fails("sql", archive, query, "--format", "csv", code=2, folder=archive)


def test_without_duckdb_sql_tells_what_to_install(archive, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    said = fails("sql", archive, "select 1", code=2, folder=archive)
    assert "pip install 'balance-analysis[sql]'" in said


def _covered(archive):
    return in_spans(ROWS, spans_of(archive))
