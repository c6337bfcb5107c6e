"""SQL over an archive gives what its methods give, and touches nothing."""

from __future__ import annotations

import shutil
from fractions import Fraction

import duckdb
import pandas as pd
import pytest

import balance_analysis as ba
from balance_analysis.archive.sql import views_of
from tests.analysis.tables import table_from
from tests.archive.exporting import (
    DAY,
    END,
    MONTH,
    START,
    content_of,
    node_of,
    run_export,
    spread_history,
)
from tests.node.truth import lines_of_table

ROWS = spread_history(5, rows=90, accounts=40)
CHANGES = [*ba.ACCOUNT_KEY, "timestamp", "balance", "symbol", "amount"]
VIEWS = ("changes", "accounts", "coverage", "limits", "assets", "labels")
WRITES = [
    "copy (select 1) to '{folder}/x.csv'",
    "attach '{folder}/x.db'",
    "select * from read_csv('{folder}/_archive.json')",
    "set enable_external_access = true",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An archive with an unproven beginning and a gap, in a folder of an awkward name."""
    made = tmp_path_factory.mktemp("sql") / "it's [a] *.folder"
    with node_of([row for row in ROWS if row.timestamp_ns >= (MONTH - DAY) * 1000]) as node:
        run_export(node, made, start=MONTH - DAY, end=END)
    with node_of(ROWS) as node:
        run_export(node, made, start=START, end=MONTH - DAY - DAY // 2)
    return made


def read(connection, view):
    return connection.sql(f"from {view}").to_arrow_table()


def cells(columns):
    """Return the rows of some columns, sorted, each cell as exact text."""
    return sorted(zip(*([_text(x) for x in column] for column in columns), strict=True))


def _text(cell):
    if pd.isna(cell):
        return ""
    return str(pd.Timestamp(cell).value) if hasattr(cell, "timestamp") else str(cell)


def test_views_are_what_is_read_summarized_covered_and_limited(folder):
    archive = ba.Archive(folder)
    connection = archive.connect()
    changes = read(connection, "changes")
    assert changes.column_names == CHANGES
    wanted = archive.read(partial=True)
    assert lines_of_table(table_from(changes)) == lines_of_table(wanted)
    accounts = ba.summarize_accounts(archive).rename(columns={"closing": "balance"})
    accounts = accounts[[*ba.ACCOUNT_KEY, "first_seen", "last_seen", "rows", "balance"]]
    assert accounts["balance"].isna().any()
    for view, frame in (
        ("accounts", accounts),
        ("coverage", archive.coverage()),
        ("limits", archive.limits()),
    ):
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
    labels = {ROWS[0].party_id: "Alice's", tuple(getattr(ROWS[0], n) for n in ba.ACCOUNT_KEY): "x"}
    with node_of(ROWS) as node:
        run_export(node, tmp_path / "a", start=START, end=END, assets=about, labels=labels)
    archive = ba.Archive(tmp_path / "a")
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


def test_an_archive_in_s3_is_asked_in_the_same_way(folder, address):
    store = ba.Archive(address).store
    for name in (local := ba.Archive(folder).store).names():
        store.write(name, local.read(name))
    one, other = (views_of(ba.Archive(x).snapshot(), is_locked=True) for x in (folder, address))
    for view in VIEWS:
        tables = [read(each, view) for each in (one, other)]
        assert tables[0].schema == tables[1].schema
        both = [cells(column.to_pylist() for column in table.columns) for table in tables]
        assert both[0] == both[1]


def test_an_archive_of_nothing_has_all_views(tmp_path):
    with node_of([]) as node:
        run_export(node, tmp_path / "a", start=START, end=END)
    connection = ba.Archive(tmp_path / "a").connect()
    for view in ("changes", "accounts", "assets", "labels"):
        assert read(connection, view).num_rows == 0
    assert read(connection, "changes").column_names == CHANGES
    assert read(connection, "coverage").num_rows == 1


def test_files_that_the_coverage_does_not_name_are_not_read(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    name = min((copy / "changes").iterdir())
    shutil.copytree(name, copy / "changes" / "date=2023-01-01")
    answer = ba.Archive(copy).connect().sql("select count(*) from changes").fetchall()
    assert answer == [(len(ba.Archive(copy).read(partial=True)),)]
    (name / "changes.parquet").unlink()
    with pytest.raises(ba.ArchiveDamagedError, match=f"{name.name}/changes.parquet missing"):
        ba.Archive(copy).connect()


@pytest.mark.parametrize("query", WRITES)
def test_a_locked_connection_reaches_no_other_file(folder, query):
    connection = views_of(ba.Archive(folder).snapshot(), is_locked=True)
    before = content_of(folder)
    with pytest.raises(duckdb.Error):
        connection.execute(query.format(folder=str(folder).replace("'", "''")))
    assert content_of(folder) == before
    assert connection.sql("select count(*) > 0 from changes").fetchall() == [(True,)]
