"""`sql` prints and writes the rows of an archive, and never changes it."""

import sys

import pytest

from tests.archive.exporting import ROWS, in_spans, spans_of
from tests.cli.running import fails, run
from tests.files.test_tables import read


def test_sql_prints_a_table_with_every_digit(gapped):
    query = "select party_id, timestamp, balance from changes order by balance desc limit 2"
    header, *rows = run("sql", gapped, query).stdout.splitlines()
    assert header.split() == ["party_id", "timestamp", "balance"]
    largest = sorted((int(row.balance) for row in _covered(gapped)), reverse=True)[:2]
    assert [int(row.split()[-1]) for row in rows] == largest
    assert all(len(row.split()[0]) <= 12 for row in rows)
    whole = run("sql", gapped, "select distinct party_id from changes", "--wide").stdout
    assert set(whole.split()) == {"party_id"} | {row.party_id for row in _covered(gapped)}


def test_sql_prints_decimals_without_an_exponent_or_zeros_at_the_end(gapped):
    amounts = ["0", "100", "1.5", "12345678901234567890.000000000000000001"]
    query = f"select unnest([{', '.join(amounts)}]::decimal(38, 18)[]) as amount"
    assert run("sql", gapped, query).stdout.split() == ["amount", *amounts]


AS_TEXT = {
    "interval '2 months 3 days'": "2 months 3 days",
    "timestamp '2023-04-03' - timestamp '2023-04-01 23:00'": "1 day 01:00:00",
    "[interval '1 day']": "[1 day]",
    "'12:03:00+02'::timetz": "12:03:00+02",
    "340282366920938463463374607431768211455::uhugeint": str(2**128 - 1),
}


@pytest.mark.parametrize("ending", ["csv", "json", "parquet", "xlsx"])
def test_sql_writes_every_row_and_digit_and_unsupported_types_as_text(ending, gapped, tmp_path):
    named = {f"a {n}": text for n, text in enumerate(AS_TEXT.values())}
    columns = ", ".join(f'{query} as "a {n}"' for n, query in enumerate(AS_TEXT))
    query, target = f"select balance, {columns} from changes", tmp_path / f"x.{ending}"
    run("sql", gapped, query, "-o", target)
    header, lines = read(target)
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    balances = sorted(int(row.balance) for row in _covered(gapped))
    assert sorted(int(row.pop("balance")) for row in rows) == balances
    assert rows == [named] * len(balances)
    printed = run("sql", gapped, f"select {columns}", "--wide").stdout
    assert all(text in printed for text in AS_TEXT.values())


def test_sql_shows_the_first_rows_of_many_and_says_so(gapped):
    said = run("sql", gapped, "from changes", "--limit", "3").stdout.splitlines()
    assert len(said) == 6  # one says which columns find no room
    assert said[-1] == f"... 3 of {len(_covered(gapped))} rows; --limit 0 shows all"
    assert run("sql", gapped, "select null as a").stdout.splitlines()[1] == "NULL"
    narrow = run("sql", gapped, "from coverage", env={"COLUMNS": "80"}).stdout.splitlines()
    assert narrow[0].split()[:3] == ["start", "end", "state"]


def test_without_duckdb_sql_says_what_to_install(gapped, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    said = fails("sql", gapped, "select 1", code=2, folder=gapped)
    assert "pip install 'balance-analysis[sql]'" in said


def _covered(gapped):
    return in_spans(ROWS, spans_of(gapped))
