"""What is read of an archive is what was written, or an error names the file."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from balance_analysis import (
    Archive,
    ArchiveDamagedError,
    ArchiveError,
    Client,
    balance_at,
    repair,
)
from balance_analysis.archive.datafile import (
    DataFile,
    KeyRange,
    OtherFileError,
    check_footer,
    read_footer,
)
from balance_analysis.archive.store import Store
from balance_analysis.filters import Filters
from balance_analysis.service.parameters import ChangesQuery
from balance_analysis.service.reader import Finder, Reader
from tests.archive.exporting import (
    DAY,
    END,
    HOUR,
    START,
    content_of,
    lasting,
    node_of,
    run_export,
    spread_history,
    state_of,
)
from tests.archive.writing import writer_of
from tests.columns import ARROW_SCHEMA
from tests.moments import from_microseconds

ROWS = spread_history(7, rows=60, accounts=9)
NOON = END - DAY - 20 * HOUR  # of 1 May, with rows of that day on both sides
SECOND = "2023-04-29"
DAY_FILE = f"changes/date={SECOND}/changes.parquet"
CHECKPOINT = "_checkpoints/2023-05-01.pq"
PARTY = next(row.party_id for row in ROWS if row.party_id)


@pytest.fixture(scope="module")
def node():
    with node_of(ROWS) as serving:
        yield serving


@pytest.fixture(scope="module")
def whole(node, tmp_path_factory):
    made = tmp_path_factory.mktemp("whole") / "archive"
    run_export(node, made, start=START, end=END)
    return made


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "archive")


def serve(archive, **filters):
    """Read all files as the service does."""
    finder = Finder(archive.snapshot(), Reader(archive.store), lambda: None)
    finder.page(ChangesQuery(Filters(**filters), size=5000, newest_first=False))


READS = {
    "all": lambda archive: archive.read(),
    "a party": lambda archive: archive.select(party_ids=PARTY).read(partial=True),
    "a column": lambda archive: archive.read(columns=["balance"]),
    "a slice": lambda archive: archive.scan().read(KeyRange()),
    "its counts": lambda archive: archive.scan().accounts(),
    "its extent": lambda archive: archive.scan().extent(),
    "balances": lambda archive: balance_at(archive, from_microseconds(START + 2 * DAY)),
    "serve": serve,
    "serve a party": lambda archive: serve(archive, party_ids=(PARTY,)),
}


def rows_of(folder):
    return pq.read_table(folder / DAY_FILE, partitioning=None).cast(ARROW_SCHEMA)


def write(folder, rows, *, size=None):
    """Put other rows in a day's place, of the size of the old file if that is wanted."""
    path, pad = folder / DAY_FILE, 200
    for _ in range(2):
        with pq.ParquetWriter(path, rows.schema, compression="zstd", store_schema=False) as writer:
            writer.write_table(rows)
            writer.add_key_value_metadata({"pad": "x" * pad})
        pad += (size or path.stat().st_size) - path.stat().st_size
    assert size in (None, path.stat().st_size)


def as_float(folder):
    rows = rows_of(folder)
    at = rows.schema.get_field_index("balance")
    write(folder, rows.set_column(at, "balance", rows["balance"].cast(pa.float64())))


def other_rows(folder):
    rows = rows_of(folder)
    write(folder, rows.slice(0, rows.num_rows - 1))


def other_balances(folder):
    rows = rows_of(folder)
    at = rows.schema.get_field_index("balance")
    others = pa.array(range(rows.num_rows)).cast(pa.decimal128(38, 0))
    write(folder, rows.set_column(at, ARROW_SCHEMA.field("balance"), others))


def same_size(folder):
    size = (folder / DAY_FILE).stat().st_size
    rows = rows_of(folder)
    at = rows.schema.get_field_index("balance")
    others = pa.array(range(rows.num_rows)).cast(pa.decimal128(38, 0))
    write(folder, rows.set_column(at, ARROW_SCHEMA.field("balance"), others), size=size)


def another_day(folder):
    other = "changes/date=2023-05-01/changes.parquet"
    shutil.copy(folder / other, folder / DAY_FILE)


REPLACED = [as_float, other_rows, other_balances, same_size, another_day]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("put", REPLACED)
def test_a_day_that_was_replaced_by_another_valid_file_is_never_read(folder, put, read):
    READS[read](Archive(folder))
    put(folder)
    if read == "its extent":
        shutil.rmtree(folder / "changes/date=2023-04-28")
        shutil.copytree(folder / DAY_FILE.rpartition("/")[0], folder / "changes/date=2023-04-28")
    with pytest.raises(ArchiveDamagedError, match=r"2023-04-2\d"):
        READS[read](Archive(folder))


def test_a_checkpoint_that_was_replaced_is_never_read(folder):
    rows = pq.read_table(folder / CHECKPOINT)
    pq.write_table(rows.slice(1), folder / CHECKPOINT)
    with pytest.raises(ArchiveDamagedError, match=CHECKPOINT):
        balance_at(Archive(folder), "2023-05-02")
    assert Archive(folder).status().lost == (CHECKPOINT,)


def opened(content, note):
    source = pa.BufferReader(content)
    return DataFile(source, check_footer(source, [note]))


def test_no_flipped_bit_of_a_footer_lets_a_file_be_read(whole):
    content = (whole / DAY_FILE).read_bytes()
    note = state_of(whole).files[SECOND]
    begin = len(content) - len(read_footer(pa.BufferReader(content)))
    assert opened(content, note).read().num_rows == note.rows
    for place in range(8 * begin, 8 * len(content)):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises((OtherFileError, pa.ArrowException)):
            opened(bytes(flipped), note)


def test_no_flipped_bit_of_a_page_s_head_gives_other_rows(whole):
    content, note = (whole / DAY_FILE).read_bytes(), state_of(whole).files[SECOND]
    expected = opened(content, note).read()
    for place in range(8 * 4, 8 * 600):  # the heads of the ids' pages among them
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        file = opened(bytes(flipped), note)
        with contextlib.suppress(OSError, pa.ArrowException):
            assert file.read([0]).equals(expected)


@pytest.mark.parametrize("read", ["all", "a party"])
def test_no_flipped_bit_of_a_file_gives_other_rows(folder, read):
    expected = READS[read](Archive(folder))
    content = (folder / DAY_FILE).read_bytes()
    for place in range(0, 8 * len(content), 97):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        (folder / DAY_FILE).write_bytes(flipped)
        with contextlib.suppress(ArchiveDamagedError):
            assert READS[read](Archive(folder)).equals(expected)


def test_limits_that_cannot_be_read_are_told_by_all(folder):
    content = (folder / "_limits.parquet").read_bytes()
    (folder / "_limits.parquet").write_bytes(content[:-9])
    archive = Archive(folder)
    for read in (archive.limits, archive.status, archive.connect):
        with pytest.raises(ArchiveDamagedError, match=r"_limits\.parquet is damaged .* remove it"):
            read()
    (problem,) = archive.verify().problems
    assert (problem.kind, problem.where) == ("limits", "_limits.parquet")


# Links.


LINKED = [DAY_FILE, "_limits.parquet", "_archive.json", "changes", CHECKPOINT]


def refusal_of(read):
    try:
        read()
    except ArchiveDamagedError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", LINKED)
def test_a_link_in_the_place_of_a_file_or_folder_is_refused_and_never_written_through(
    node, folder, tmp_path, name
):
    elsewhere = tmp_path / "elsewhere"
    (folder / name).rename(elsewhere)
    (folder / name).symlink_to(elsewhere)
    kept = content_of(elsewhere) if elsewhere.is_dir() else elsewhere.read_bytes()
    archive = Archive(folder)
    assert any(
        problem.where.startswith(name) and "symbolic link" in problem.what
        for problem in archive.verify().problems
    )
    reads = [archive.limits, archive.read, lambda: balance_at(archive, "2023-05-02")]
    assert any("symbolic link" in refusal_of(read) for read in reads)
    for use in (repair, None):
        with contextlib.suppress(ArchiveError), Client(node.url) as client:
            if use is None:
                run_export(node, folder, start=START, end=END + HOUR, fill_gaps=True)
            else:
                repair(client, archive, start=from_microseconds(START), end=from_microseconds(END))
    assert (folder / name).is_symlink()
    assert kept == (content_of(elsewhere) if elsewhere.is_dir() else elsewhere.read_bytes())


def test_the_folder_of_an_archive_may_itself_be_reached_through_a_link(node, folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    run_export(node, tmp_path / "link", end=END)
    assert Archive(tmp_path / "link").verify().is_whole
    assert lasting(tmp_path / "link") == lasting(folder)


# An export beside a reader.


def at_every_step(monkeypatch, look):
    """Let `look` be called before and after each change that a store makes."""
    busy = []

    def stepping(plain):
        def changed(self, *arguments):
            if busy:
                return plain(self, *arguments)
            busy.append(True)
            try:
                look()
                found = plain(self, *arguments)
                look()
            finally:
                busy.clear()
            return found

        return changed

    for name in ("write", "delete"):
        monkeypatch.setattr(Store, name, stepping(getattr(Store, name)))
    plain = os.fsync

    def fsync(handle):
        if not busy:
            return plain(handle)
        look()
        return plain(handle)

    monkeypatch.setattr(os, "fsync", fsync)


def test_a_verification_beside_an_export_finds_nothing_wrong(node, tmp_path, monkeypatch):
    folder = tmp_path / "archive"
    run_export(node, folder, start=START + 2 * DAY, end=NOON)
    found = []

    def look():
        found.append(Archive(folder).verify().problems)

    at_every_step(monkeypatch, look)
    run_export(node, folder, start=START, end=END)
    assert len(found) > 40
    assert [problems for problems in found if problems] == []


def test_a_verification_that_an_export_overtakes_finds_nothing_wrong(node, tmp_path, monkeypatch):
    """The export runs between the reading of the manifest and that of each file."""
    folder = tmp_path / "archive"
    run_export(node, folder, start=START + 2 * DAY, end=NOON)
    before, ends = state_of(folder), iter(range(NOON + 11 * HOUR, END + 1, 11 * HOUR))
    plain = Store.read

    def overtaken(self, name):
        end = next(ends, None) if name.startswith("changes/") else None
        if end is not None:
            with monkeypatch.context() as own:
                own.setattr(Store, "read", plain)
                run_export(node, folder, start=START + (END - end), end=end)
        return plain(self, name)

    monkeypatch.setattr(Store, "read", overtaken)
    assert Archive(folder).verify().problems == ()
    assert state_of(folder).files["2023-05-01"] != before.files["2023-05-01"]


@pytest.mark.parametrize("read", ["all", "balances", "its counts"])
def test_a_read_that_an_export_overtakes_is_of_one_state(node, tmp_path, monkeypatch, read):
    folder = tmp_path / "archive"
    run_export(node, folder, start=START, end=NOON)
    expected = READS[read](Archive(folder))
    plain, seen = Store.open, []

    def overtaken(self, name):
        if not seen:
            seen.append(name)
            with monkeypatch.context() as own:
                own.setattr(Store, "open", plain)
                run_export(node, folder, end=END)
        return plain(self, name)

    monkeypatch.setattr(Store, "open", overtaken)
    found = READS[read](Archive(folder))
    if read != "its counts":  # which count rows of a file that aren't asked for as well
        assert found.equals(expected)


def test_balances_are_read_anew_where_an_export_drops_those_of_the_month_s_start(
    folder, monkeypatch
):
    expected, plain = balance_at(Archive(folder), "2023-05-02"), Store.open

    def overtaken(self, name):
        if name == CHECKPOINT:
            writer = writer_of(Archive(folder))
            writer.amend(replace(writer.manifest, checkpoints={}))
            (folder / CHECKPOINT).unlink(missing_ok=True)
        return plain(self, name)

    monkeypatch.setattr(Store, "open", overtaken)
    assert balance_at(Archive(folder), "2023-05-02").equals(expected)
