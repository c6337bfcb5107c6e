"""`summary` lists what an archive has in 80 columns, and `sql` asks it without touching it."""

from __future__ import annotations

import sys

import pytest

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
from tests.cli.running import fails, run, written

ROWS = spread_history(7, rows=200, accounts=30)


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "archive"
    with node_of(ROWS) as node:
        run_export(node, folder, start=BEGIN + DAY, end=END)
        run_export(node, folder, start=BEGIN, end=BEGIN + DAY // 2)
    return folder


def lines(result):
    return result.stdout.rstrip("\n").split("\n")


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
    assert written(target) == [{"a b": text}]


def test_sql_shows_the_first_rows_of_many_and_says_so(archive):
    said = lines(run("sql", archive, "from changes", "--limit", "3"))
    assert len(said) == 6  # one says which columns find no room
    assert said[-1] == f"... 3 of {len(_covered(archive))} rows; --limit 0 shows all"
    assert lines(run("sql", archive, "select null as a"))[1] == "NULL"


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_sql_writes_every_row_and_digit(archive, tmp_path, ending):
    target = tmp_path / f"x.{ending}"
    run("sql", archive, "select balance, asset_id from changes", "-o", target)
    wanted = sorted((int(row.balance), row.asset_id) for row in _covered(archive))
    assert sorted((int(row["balance"]), row["asset_id"]) for row in written(target)) == wanted


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
def test_what_sql_refuses_is_said_in_one_line(archive, query, said):
    assert said in fails("sql", archive, query, "--format", "csv", code=2, folder=archive)


def test_without_duckdb_sql_says_what_to_install(archive, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    said = fails("sql", archive, "select 1", code=2, folder=archive)
    assert "pip install 'balance-analysis[sql]'" in said


def _covered(archive):
    return in_spans(ROWS, spans_of(archive))
