"""The same rows are the same bytes, come back equal, and no wanted row group is skipped."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balance_analysis import ACCOUNT_KEY
from balance_analysis.archive.datafile import (
    FILE_ORDER,
    DataFile,
    Footer,
    Predicate,
    encode_rows,
    read_footer,
)
from tests.columns import ARROW_SCHEMA, COLUMNS
from tests.loopback import histories, random_history

SMALL_GROUP = 7


@pytest.fixture(autouse=True, scope="module")
def _small_row_groups():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("balance_analysis.archive.datafile.ROW_GROUP", SMALL_GROUP)
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
def test_rows_stand_by_party_first_and_in_time_order_within_an_account(rows):
    content, _ = encode_rows(arrow_of(rows))
    rows_read = read(content, columns=FILE_ORDER).to_pylist()
    keys = [tuple(row[name] for name in FILE_ORDER) for row in rows_read]
    assert keys == sorted(keys)


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
        rows_read = [each for n in groups for each in file.read([n])["party_id"].to_pylist()]
        assert rows_read.count(party) == whole.count(party)


def test_row_groups_of_a_rare_type_are_found_by_a_look():
    rows = random_history(5, rows=2000, accounts=400)
    content, _ = encode_rows(arrow_of(rows))
    file = data_file(content)
    types = [row.account_type for row in rows]
    predicate = Predicate({"account_type": [min(set(types), key=types.count)]})
    groups = file.row_groups(predicate)
    rows_read = file.matching(groups, predicate)
    assert rows_read == [n for n in groups if predicate.select(file.read([n])).num_rows]
    assert len(rows_read) < len(groups)


def test_each_row_group_has_only_the_ids_of_its_own_rows():
    content, _ = encode_rows(arrow_of(random_history(5, rows=200)))
    with opened(content) as file:
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number)
            for place, name in enumerate(ARROW_SCHEMA.names[: len(ACCOUNT_KEY)]):
                rows_read = file.metadata.row_group(number).column(place).statistics
                values = rows[name].to_pylist()
                assert (rows_read.min, rows_read.max) == (min(values), max(values))


def test_a_file_names_its_order_and_what_it_is():
    content, _ = encode_rows(arrow_of(random_history(6, rows=20)))
    with opened(content) as file:
        note = json.loads(file.metadata.metadata[b"balance_analysis"])
        assert note == {"format_version": 1, "kind": "balance changes"}
        order = file.metadata.row_group(0).sorting_columns
        names = [file.schema_arrow.names[column.column_index] for column in order]
    assert tuple(names) == FILE_ORDER
