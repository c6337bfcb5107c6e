"""The same rows are the same bytes, come back equal, and no wanted row group is skipped."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balance_analysis import ACCOUNT_KEY
from balance_analysis.archive import datafile as rowfiles
from balance_analysis.archive.datafile import (
    FILE_ORDER,
    DataFile,
    Footer,
    Predicate,
    encode_rows,
    read_footer,
)
from tests.analysis.tables import table_from
from tests.columns import ARROW_SCHEMA, COLUMNS
from tests.loopback import histories, random_history
from tests.node.truth import lines_of_rows, lines_of_table

SMALL_GROUP = 7


@pytest.fixture(autouse=True, scope="module")
def _small_row_groups():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rowfiles, "ROW_GROUP", SMALL_GROUP)
        yield


def some_rows(**options):
    return histories(**options).filter(bool)


def arrow_of(rows):
    """Return a node's rows in `ARROW_SCHEMA`, as they stand."""
    columns = list(zip(*[(*row.account, row.timestamp_ns // 1000) for row in rows], strict=True))
    balances = pa.array([row.balance for row in rows], ARROW_SCHEMA.field("balance").type)
    arrays = [*map(pa.array, columns), balances]
    plain = pa.table(dict(zip(COLUMNS, arrays, strict=True)))
    return plain.cast(ARROW_SCHEMA)


def opened(content):
    return pq.ParquetFile(pa.BufferReader(content))


def data_file(content):
    source = pa.BufferReader(content)
    return DataFile(source, Footer(read_footer(source)))


def read(content, *, spans=None, columns=COLUMNS, **allowed):
    file = data_file(content)
    schema = pa.schema([ARROW_SCHEMA.field(name) for name in columns])
    parts = file.rows(Predicate(allowed, spans), columns)
    return pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in parts)])


@settings(max_examples=15)
@given(some_rows(), st.randoms(use_true_random=False), st.integers(1, 50))
def test_the_same_rows_are_the_same_bytes_in_any_order_and_any_chunks(rows, rng, width):
    expected = encode_rows(arrow_of(rows))
    shuffled = list(rows)
    rng.shuffle(shuffled)
    # Each chunk has a dictionary of its own, with its values in the order in which they came.
    chunks = [shuffled[at : at + width] for at in range(0, len(shuffled), width)]
    assert encode_rows(pa.concat_tables(map(arrow_of, chunks))) == expected


@settings(max_examples=15)
@given(some_rows())
def test_values_of_a_dictionary_that_no_row_has_leave_no_trace(rows):
    half = arrow_of(rows).slice(0, max(1, len(rows) // 2))
    fresh = arrow_of(rows[: half.num_rows])
    assert encode_rows(half) == encode_rows(fresh)


@settings(max_examples=15)
@given(some_rows())
def test_rows_come_back_with_every_digit(rows):
    content, _ = encode_rows(arrow_of(rows))
    assert lines_of_table(table_from(read(content))) == lines_of_rows(rows)


@settings(max_examples=15)
@given(some_rows())
def test_the_note_tells_what_the_file_is(rows):
    content, note = encode_rows(arrow_of(rows))
    times = [row.timestamp_ns // 1000 for row in rows]
    assert (note.rows, note.size) == (len(rows), len(content))
    assert note.sha256 == hashlib.sha256(content).hexdigest()
    assert (note.first, note.last) == (min(times), max(times))


@settings(max_examples=15)
@given(some_rows())
def test_rows_stand_by_party_first_and_in_time_order_within_an_account(rows):
    content, _ = encode_rows(arrow_of(rows))
    found = read(content, columns=FILE_ORDER).to_pylist()
    keys = [tuple(row[name] for name in FILE_ORDER) for row in found]
    assert keys == sorted(keys)


@settings(max_examples=15)
@given(some_rows(most_rows=120, most_accounts=20), st.data())
def test_no_filter_and_no_bound_loses_a_row_or_lets_another_in(rows, data):
    content, _ = encode_rows(arrow_of(rows))
    times = sorted({row.timestamp_ns // 1000 for row in rows})
    near = st.sampled_from(times).flatmap(lambda time: st.integers(time - 1, time + 1))
    edges = sorted(data.draw(st.lists(near, min_size=2, max_size=4, unique=True)))
    spans = tuple(zip(edges[::2], edges[1::2], strict=False))
    allowed = {}
    for place, name in enumerate(ACCOUNT_KEY):
        values = sorted({row.account[place] for row in rows} | {"0", "zz", "ACCOUNT_TYPE_H"})
        scan = data.draw(st.none() | st.lists(st.sampled_from(values), min_size=1, max_size=3))
        if scan is not None:
            allowed[name] = scan
    found = read(content, spans=spans, **allowed)
    expected = [
        row
        for row in rows
        if any(start <= row.timestamp_ns // 1000 < end for start, end in spans)
        and all(row.account[ACCOUNT_KEY.index(name)] in values for name, values in allowed.items())
    ]
    assert lines_of_table(table_from(found)) == lines_of_rows(expected)


@settings(max_examples=15)
@given(some_rows(), st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=6, unique=True))
def test_columns_come_as_they_are_asked_for(rows, columns):
    content, _ = encode_rows(arrow_of(rows))
    party = rows[0].party_id
    found = read(content, columns=columns, party_id=[party])
    assert found.column_names == columns
    assert found.equals(read(content, party_id=[party]).select(columns))


def test_the_rows_of_one_party_are_read_out_of_few_row_groups():
    rows = random_history(5, rows=2000, accounts=400)
    content, _ = encode_rows(arrow_of(rows))
    parties = [row.party_id for row in rows if row.party_id != "network"]
    party = max(set(parties), key=parties.count)
    file, predicate = data_file(content), Predicate({"party_id": [party]})
    groups = file.row_groups(predicate)
    assert len(groups) <= parties.count(party) // SMALL_GROUP + 2
    assert sum(part.num_rows for part in file.rows(predicate, groups=groups)) == parties.count(
        party
    )


@pytest.mark.parametrize("length", [1, 5000])
def test_parties_of_any_length_are_found_in_all_their_row_groups(length):
    rows = [
        replace(row, party_id=row.party_id[:4] * length)
        for row in random_history(5, rows=100, accounts=30)
    ]
    content, _ = encode_rows(arrow_of(rows))
    file = data_file(content)
    whole = read(content)["party_id"].to_pylist()
    for party in {*whole, "", "\U0010ffff"}:
        groups = file.row_groups(Predicate({"party_id": [party]}))
        found = [each for n in groups for each in file.read([n])["party_id"].to_pylist()]
        assert found.count(party) == whole.count(party)


def test_row_groups_of_a_rare_type_are_found_by_a_look():
    rows = random_history(5, rows=2000, accounts=400)
    content, _ = encode_rows(arrow_of(rows))
    file = data_file(content)
    types = [row.account_type for row in rows]
    predicate = Predicate({"account_type": [min(set(types), key=types.count)]})
    groups = file.row_groups(predicate)
    found = file.matching(groups, predicate)
    assert found == [n for n in groups if predicate.select(file.read([n])).num_rows]
    assert len(found) < len(groups)


def test_each_row_group_has_only_the_ids_of_its_own_rows():
    content, _ = encode_rows(arrow_of(random_history(5, rows=200)))
    with opened(content) as file:
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number)
            for place, name in enumerate(ARROW_SCHEMA.names[: len(ACCOUNT_KEY)]):
                found = file.metadata.row_group(number).column(place).statistics
                values = rows[name].to_pylist()
                assert (found.min, found.max) == (min(values), max(values))


def test_plain_pandas_reads_a_file(tmp_path):
    rows = random_history(6, rows=150)
    (tmp_path / "changes.parquet").write_bytes(encode_rows(arrow_of(rows))[0])
    table = pd.read_parquet(tmp_path / "changes.parquet")
    assert list(table.columns) == list(COLUMNS)
    assert sorted(lines_of_table(table)) == lines_of_rows(rows)


def test_duckdb_reads_a_file(tmp_path):
    rows = random_history(6, rows=150)
    (tmp_path / "changes.parquet").write_bytes(encode_rows(arrow_of(rows))[0])
    columns = ", ".join(COLUMNS).replace("timestamp", "epoch_us(timestamp)")
    with duckdb.connect() as database:
        found = database.sql(f"SELECT {columns} FROM '{tmp_path}/changes.parquet'").fetchall()
    assert sorted((*row[:5], int(row[5])) for row in found) == lines_of_rows(rows)


def test_a_file_tells_its_order_and_what_it_is():
    content, _ = encode_rows(arrow_of(random_history(6, rows=20)))
    with opened(content) as file:
        note = json.loads(file.metadata.metadata[b"balance_analysis"])
        assert note == {"format_version": 1, "kind": "balance changes"}
        order = file.metadata.row_group(0).sorting_columns
        names = [file.schema_arrow.names[column.column_index] for column in order]
    assert tuple(names) == FILE_ORDER
