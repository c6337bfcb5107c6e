"""What is read of a file is enough for a page, and only what was asked for."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balance_analysis.archive.coverage import FileNote
from balance_analysis.archive.store import Store
from balance_analysis.service.catalog import File
from balance_analysis.service.row_groups import Reader, StaleError, Wanted
from tests.service.rows import (
    ASSETS,
    BASE,
    HOUR,
    MARKETS,
    MOMENTS,
    PARTIES,
    TYPES,
    block_of,
    row_lists,
    to_table,
)

NAME = "changes.parquet"
BEGIN, END = BASE - 48 * HOUR, BASE + 48 * HOUR
FILE_ORDER = ("party_id", "asset_id", "account_type", "market_id", "time")


def write(folder, rows, group):
    """Write rows as an archive does, with smaller row groups; return what is known of the file."""
    ordered = sorted(rows, key=lambda row: [getattr(row, name) for name in FILE_ORDER])
    pq.write_table(to_table(ordered), folder / NAME, row_group_size=group)
    content = (folder / NAME).read_bytes()
    times = [row.time for row in rows]
    digest = hashlib.sha256(content).hexdigest()
    note = FileNote(len(rows), len(content), digest, min(times), max(times))
    return File("2023-05-01", NAME, BEGIN, END, (note,))


def lines(table):
    return [tuple(str(value) for value in row.values()) for row in table.to_pylist()]


@st.composite
def wanteds(draw):
    values = {"asset_id": ASSETS, "party_id": PARTIES, "market_id": MARKETS, "account_type": TYPES}
    filtered = draw(st.lists(st.sampled_from(sorted(values)), max_size=2, unique=True))
    return Wanted(
        {
            name: draw(st.lists(st.sampled_from(values[name]), min_size=1, max_size=2, unique=True))
            for name in filtered
        },
        draw(st.integers(1, 8)),
        draw(st.booleans()),
    )


@pytest.mark.parametrize("kept_rows", [0, 1_000_000])
@given(
    rows=row_lists(min_size=1, max_size=90),
    group=st.integers(1, 4),
    wanted=wanteds(),
    bounds=st.tuples(st.sampled_from(MOMENTS), st.sampled_from(MOMENTS)),
)
@settings(deadline=None, max_examples=60)
def test_the_nearest_rows_of_a_span_are_read(kept_rows, rows, group, wanted, bounds):
    start, end = (BASE + moment for moment in sorted(bounds))
    inside = [
        row
        for row in rows
        if start <= row.time <= end
        and all(getattr(row, name) in values for name, values in wanted.allowed.items())
    ]
    nearest = sorted(inside, key=lambda row: row.time, reverse=wanted.descending)
    with tempfile.TemporaryDirectory() as folder:
        file = write(Path(folder), rows, group)
        reader = Reader(Store(folder), kept_rows=kept_rows)
        found = lines(reader.rows(file, (start, end + 1), wanted, lambda: None))
        reader.close()
    blocks = {row.time for row in nearest[: wanted.count]}
    assert sorted(found) == sorted(lines(to_table([r for r in inside if r.time in blocks])))


@pytest.mark.parametrize("kept_rows", [0, 1_000_000])
@pytest.mark.parametrize("descending", [True, False])
def test_the_whole_block_of_a_cursor_is_read_besides_the_count(tmp_path, kept_rows, descending):
    rows = [row for off in range(5) for row in block_of(10, time=BASE + off)]
    file = write(tmp_path, rows, 3)
    whole = BASE + (4 if descending else 0)
    reader = Reader(Store(tmp_path), kept_rows=kept_rows)
    wanted = Wanted({}, 4, descending, whole)
    found = reader.rows(file, (BASE, BASE + 5), wanted, lambda: None)
    reader.close()
    next_to_it = whole + (-1 if descending else 1)
    expected = [row for row in rows if row.time in (whole, next_to_it)]
    assert sorted(lines(found)) == sorted(lines(to_table(expected)))


@pytest.mark.parametrize("kept_rows", [0, 1_000_000])
@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("count", [1, 2, 5, 6])
def test_no_more_blocks_are_read_than_are_needed(tmp_path, kept_rows, descending, count):
    rows = [block_of(1, time=BASE + off)[0] for off in range(5)]
    file = write(tmp_path, rows, 2)
    reader = Reader(Store(tmp_path), kept_rows=kept_rows)
    found = reader.rows(file, (BASE, BASE + 5), Wanted({}, count, descending), lambda: None)
    reader.close()
    expected = rows[-count:] if descending else rows[:count]
    assert sorted(lines(found)) == sorted(lines(to_table(expected)))


PARTY = block_of(1)[0].party_id


@pytest.mark.parametrize("allowed", [{}, {"party_id": [PARTY]}])
@pytest.mark.parametrize("damage", ["gone", "cut", "longer", "no Parquet"])
def test_a_file_that_is_not_what_was_noted_is_never_read_as_if_it_were(tmp_path, allowed, damage):
    file = write(tmp_path, block_of(40), 7)
    path, reader = tmp_path / NAME, Reader(Store(tmp_path))
    content, wanted = path.read_bytes(), Wanted(allowed, 5, descending=True)
    before = lines(reader.rows(file, (BEGIN, END), wanted, lambda: None))
    if damage == "gone":
        path.unlink()
    else:
        others = {"cut": content[:-9], "longer": content + b"x", "no Parquet": b"x" * len(content)}
        path.write_bytes(others[damage])
        # What is kept was read from the right file, and its like is not read again.
        reader = Reader(Store(tmp_path))
    with pytest.raises(StaleError, match="2023-05-01"):
        reader.rows(file, (BEGIN, END), wanted, lambda: None)
    path.write_bytes(content)
    assert lines(reader.rows(file, (BEGIN, END), wanted, lambda: None)) == before
    reader.close()


def test_a_file_that_is_being_replaced_is_read_as_it_was_or_as_it_will_be(tmp_path):
    old, new = block_of(4), block_of(7)
    notes = [write(tmp_path, rows, 3).notes[0] for rows in (new, old)]
    file = File("2023-05-01", NAME, BEGIN, END, tuple(reversed(notes)))
    reader = Reader(Store(tmp_path))
    counts = []
    for rows in (old, new):
        write(tmp_path, rows, 3)
        for allowed in ({"party_id": [row.party_id for row in new]}, {}):
            wanted = Wanted(allowed, 99, descending=True)
            counts.append(reader.rows(file, (BEGIN, END), wanted, lambda: None).num_rows)
    reader.close()
    assert counts == [4, 4, 7, 7]


def test_reading_stops_when_it_has_taken_too_long(tmp_path):
    file = write(tmp_path, block_of(40), 1)

    def check():
        raise RuntimeError("too long")

    reader = Reader(Store(tmp_path))
    wanted = Wanted({"account_type": [TYPES[0]]}, 99, descending=True)
    with pytest.raises(RuntimeError, match="too long"):
        reader.rows(file, (BEGIN, END), wanted, check)
    reader.close()


def test_the_rows_of_a_file_keep_the_archive_s_types(tmp_path):
    file = write(tmp_path, block_of(4), 2)
    reader = Reader(Store(tmp_path))
    found = reader.rows(file, (BEGIN, END), Wanted({}, 9, descending=True), lambda: None)
    reader.close()
    assert found.schema.field("balance").type == pa.decimal128(38, 0)
