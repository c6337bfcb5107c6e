"""What is read of a file is enough for a page, and only what was asked for."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance_analysis import Archive, ArchiveError
from balance_analysis.archive import datafile
from balance_analysis.archive.datafile import Predicate
from balance_analysis.archive.snapshot import File, LruCache
from balance_analysis.archive.store import Store
from balance_analysis.service.reader import Nearest, Reader
from balance_analysis.spans import EVER
from tests.columns import ARROW_SCHEMA
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
WHOLE = BEGIN, END = BASE - 48 * HOUR, BASE + 48 * HOUR
KEPT = pytest.mark.parametrize("kept_rows", [0, 1_000_000])
PARTY = block_of(1)[0].party_id


def write(folder, rows, group):
    """Write rows as an archive does, with smaller row groups; return what is known of the file."""
    with patch.object(datafile, "ROW_GROUP", group):
        content, note = datafile.encode_rows(to_table(rows))
    (folder / NAME).write_bytes(content)
    return File(NAME, (note,), BEGIN, END, (WHOLE,))


def read(reader, file, nearest, *, span=WHOLE, allowed=None, check=lambda: None):
    return lines(reader.rows(file, Predicate(allowed or {}, (span,)), nearest, check))


def lines(table):
    assert table.schema.equals(ARROW_SCHEMA)
    return sorted(tuple(str(value) for value in row.values()) for row in table.to_pylist())


@st.composite
def some_ids(draw):
    values = {"asset_id": ASSETS, "party_id": PARTIES, "market_id": MARKETS, "account_type": TYPES}
    filtered = draw(st.lists(st.sampled_from(sorted(values)), max_size=2, unique=True))
    some = {
        name: st.lists(st.sampled_from(values[name]), min_size=1, max_size=2) for name in values
    }
    return {name: draw(some[name]) for name in filtered}


class CountingStore(Store):
    """Files, and how many were opened."""

    opened = 0

    def open(self, name):
        self.opened += 1
        return super().open(name)


@KEPT
@given(
    rows=row_lists(min_size=1, max_size=90),
    allowed=some_ids(),
    nearest=st.builds(lambda n, old: Nearest(n, old, EVER[old]), st.integers(1, 8), st.booleans()),
    bounds=st.tuples(st.sampled_from(MOMENTS), st.sampled_from(MOMENTS)),
)
def test_the_nearest_rows_of_a_span_are_read(kept_rows, rows, allowed, nearest, bounds):
    start, end = (BASE + moment for moment in sorted(bounds))
    inside = [
        row
        for row in rows
        if start <= row.time <= end
        and all(getattr(row, name) in values for name, values in allowed.items())
    ]
    times = sorted((row.time for row in inside), reverse=nearest.descending)[: nearest.count]
    with tempfile.TemporaryDirectory() as folder:
        file = write(Path(folder), rows, 1 + len(rows) % 4)
        reader = Reader(Archive(folder).store, kept_rows=kept_rows)
        found = read(reader, file, nearest, span=(start, end + 1), allowed=allowed)
    assert found == lines(to_table([row for row in inside if row.time in times]))


@KEPT
@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("count", [1, 2, 5, 6])
def test_the_whole_block_of_a_cursor_is_read_besides_the_count(
    tmp_path, kept_rows, descending, count
):
    rows = [row for off in range(5) for row in block_of(10, time=BASE + off)]
    file = write(tmp_path, rows, 3)
    reader = Reader(Archive(tmp_path).store, kept_rows=kept_rows)
    block = BASE + (4 if descending else 0)
    found = read(reader, file, Nearest(count, descending, block), span=(BASE, BASE + 5))
    next_to_it = block + (-1 if descending else 1)
    assert found == lines(to_table([row for row in rows if row.time in (block, next_to_it)]))


@KEPT
@pytest.mark.parametrize("descending", [True, False])
def test_a_block_that_lies_beyond_the_span_changes_nothing(tmp_path, kept_rows, descending):
    rows = [block_of(1, time=BASE + off)[0] for off in range(9)]
    file = write(tmp_path, rows, 2)
    reader = Reader(Archive(tmp_path).store, kept_rows=kept_rows)
    block = BASE + (8 if descending else 0)
    found = read(reader, file, Nearest(2, descending, block), span=(BASE + 3, BASE + 6))
    assert found == lines(to_table(rows[4:6] if descending else rows[3:5]))


@pytest.mark.parametrize("allowed", [{}, {"party_id": [PARTY]}])
@pytest.mark.parametrize("damage", ["gone", "cut", "longer", "no Parquet"])
def test_a_file_that_is_not_what_was_noted_is_never_read_as_if_it_were(tmp_path, allowed, damage):
    file = write(tmp_path, block_of(40), 7)
    path, reader = tmp_path / NAME, Reader(Archive(tmp_path).store)
    nearest = Nearest(5, descending=True, block=EVER[1])
    content, before = path.read_bytes(), read(reader, file, nearest, allowed=allowed)
    others = {"cut": content[:-9], "longer": content + b"x", "no Parquet": b"x" * len(content)}
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(others[damage])
    # What is kept was read from the right file, and its like is not read again.
    reader = Reader(Archive(tmp_path).store)
    with pytest.raises(ArchiveError):
        read(reader, file, nearest, allowed=allowed)
    path.write_bytes(content)
    assert read(reader, file, nearest, allowed=allowed) == before


def test_a_file_that_is_being_replaced_is_read_as_it_was_or_as_it_will_be(tmp_path):
    old, new = block_of(4), block_of(7)
    notes = tuple(write(tmp_path, rows, 3).notes[0] for rows in (old, new))
    file = replace(write(tmp_path, old, 3), notes=notes)
    nearest = Nearest(99, descending=True, block=EVER[1])
    for rows in (old, new):
        write(tmp_path, rows, 3)
        reader = Reader(Archive(tmp_path).store)
        for allowed in ({"party_id": [row.party_id for row in new]}, {}):
            assert read(reader, file, nearest, allowed=allowed) == lines(to_table(rows))


def test_reading_stops_when_it_has_taken_too_long(tmp_path):
    file = write(tmp_path, block_of(40), 1)

    def check():
        raise RuntimeError("too long")

    allowed, nearest = {"account_type": [TYPES[0]]}, Nearest(99, descending=True, block=EVER[1])
    with pytest.raises(RuntimeError, match="too long"):
        read(Reader(Archive(tmp_path).store), file, nearest, allowed=allowed, check=check)


@pytest.mark.parametrize("room", [1, 10**9])
def test_of_files_that_were_read_whole_the_last_are_kept_as_far_as_memory_goes(tmp_path, room):
    reader, files = Reader(store := CountingStore(tmp_path), cache=LruCache(room)), []
    for count in (4, 5):
        file = write(tmp_path, block_of(count), 2)
        files.append(replace(file, name=f"{count}.parquet"))
        (tmp_path / NAME).rename(tmp_path / files[-1].name)
    for file in files * 2:
        assert (
            len(read(reader, file, Nearest(9, descending=True, block=EVER[1])))
            == file.notes[0].rows
        )
    assert store.opened == (4 if room == 1 else 2)
