"""SQL over an archive gives what its methods give, and touches nothing."""

import shutil
from fractions import Fraction

import duckdb
import pandas as pd
import pytest

import balance_analysis as ba
from balance_analysis.archive.sql import views_of
from tests.analysis.tables import table_from
from tests.archive.exporting import content_of, node_of, run_export
from tests.archive.months import END, ROWS, START, filled
from tests.node.truth import lines_of_table

CHANGES = [*ba.ACCOUNT_KEY, "timestamp", "balance", "symbol", "amount"]
VIEWS = ("changes", "accounts", "coverage", "limits", "assets", "labels")
WRITES = [
    "copy (select 1) to '{folder}/x.csv'",
    "attach '{folder}/x.db'",
    "select * from read_csv('{folder}/_archive.json')",
    "set enable_external_access = true",
]


def read(connection, view):
    return connection.sql(f"from {view}").to_arrow_table()


def cells(columns):
    """Return the rows of some columns, sorted, each cell as exact text."""
    return sorted(zip(*([_text(x) for x in column] for column in columns), strict=True))


def _text(cell):
    if pd.isna(cell):
        return ""
    return str(pd.Timestamp(cell).value) if hasattr(cell, "timestamp") else str(cell)


def test_views_have_what_the_archives_methods_return(torn):
    archive = ba.Archive(torn)
    connection = archive.connect()
    changes = read(connection, "changes")
    assert changes.column_names == CHANGES
    wanted = archive.read(partial=True)
    assert lines_of_table(table_from(changes)) == lines_of_table(wanted)
    accounts = ba.summarize_accounts(archive).rename(columns={"closing": "balance"})
    accounts = accounts[[*ba.ACCOUNT_KEY, "first_seen", "last_seen", "rows", "balance"]]
    assert accounts["balance"].isna().any()
    frames = {"accounts": accounts, "coverage": archive.coverage(), "limits": archive.limits()}
    for view, frame in frames.items():
        answer = read(connection, view)
        assert answer.column_names == list(frame.columns)
        lines = cells(column.to_pylist() for column in answer.columns)
        assert lines == cells(frame[name] for name in frame.columns)
    zone = "select current_setting('TimeZone'), min(timestamp)::text from changes"
    first = f"{wanted['timestamp'].min():%Y-%m-%d %H:%M:%S.%f}".rstrip("0").rstrip(".")
    assert connection.sql(zone).fetchall() == [("UTC", f"{first}+00")]


@pytest.mark.parametrize("most", [0, 18, 19])
def test_an_amount_is_the_balance_in_whole_units_exact_up_to_18_decimals(most, tmp_path):
    ids = sorted({row.asset_id for row in ROWS})
    about = {
        one: {"decimals": max(most - place, 0), "symbol": f"it's {place}" * (place > 0)}
        for place, one in enumerate(ids[:-1])  # of the last one nothing is known
    }
    labels = {ROWS[0].party_id: "Alice's", "b2" * 32: "x"}
    archive = ba.Archive(filled(tmp_path / "a", "month", assets=about, labels=labels))
    connection = archive.connect()
    rows = read(connection, "changes").to_pylist()
    assert len(rows) == len(ROWS)
    for row in rows:
        asset = about.get(row["asset_id"])
        assert row["symbol"] == (asset["symbol"] or None if asset else None)
        if asset is None:
            assert row["amount"] is None
        elif most > 18:
            assert row["amount"] == pytest.approx(int(row["balance"]) / 10 ** asset["decimals"])
        else:
            assert Fraction(row["amount"]) * 10 ** asset["decimals"] == Fraction(row["balance"])
    tables = {row.pop("asset_id"): row for row in read(connection, "assets").to_pylist()}
    wanted = {x: {**y, "symbol": y["symbol"] or None, "name": None} for x, y in about.items()}
    assert tables == wanted
    answer = {row["id"]: row["label"] for row in read(connection, "labels").to_pylist()}
    assert ba.read_labels(answer) == archive.names().labels == ba.read_labels(labels)


def test_an_archive_in_s3_is_queried_in_the_same_way(torn, address):
    store = ba.Archive(address).store
    for name in (local := ba.Archive(torn).store).names():
        store.write(name, local.read(name))
    one, other = (views_of(ba.Archive(x).snapshot(), is_restricted=True) for x in (torn, address))
    for view in VIEWS:
        tables = [read(each, view) for each in (one, other)]
        assert tables[0].schema == tables[1].schema
        both = [cells(column.to_pylist() for column in table.columns) for table in tables]
        assert both[0] == both[1]


def test_an_empty_archive_has_all_views(tmp_path):
    run_export(node_of([], head=END), tmp_path / "a", start=START, end=END)
    connection = ba.Archive(tmp_path / "a").connect()
    for view in ("changes", "accounts", "assets", "labels"):
        assert read(connection, view).num_rows == 0
    assert read(connection, "changes").column_names == CHANGES
    assert read(connection, "coverage").num_rows == 1


def test_files_that_the_coverage_does_not_name_are_not_read(torn, tmp_path):
    copy = shutil.copytree(torn, tmp_path / "copy")
    name = min((copy / "changes").iterdir())
    shutil.copytree(name, copy / "changes" / "month=2023-01")
    answer = ba.Archive(copy).connect().sql("select count(*) from changes").fetchall()
    assert answer == [(len(ba.Archive(copy).read(partial=True)),)]
    (name / "changes.parquet").unlink()
    with pytest.raises(ba.ArchiveDamagedError, match=f"missing .*{name.name}/changes.parquet"):
        ba.Archive(copy).connect()


@pytest.mark.parametrize("query", WRITES)
def test_a_locked_connection_reaches_no_other_file(torn, query):
    connection = views_of(ba.Archive(torn).snapshot(), is_restricted=True)
    before = content_of(torn)
    with pytest.raises(duckdb.Error):
        connection.execute(query.format(folder=str(torn).replace("'", "''")))
    assert content_of(torn) == before
    assert connection.sql("select count(*) > 0 from changes").fetchall() == [(True,)]
