"""A read of an archive returns what was written, or an error names the file."""

import contextlib
import shutil
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.archive.exporting import (
    DAY,
    END,
    HOUR,
    ROWS,
    START,
    content_of,
    edit_manifest,
    lasting,
    mend,
    run_export,
)
from tests.damage import damaged
from tests.moments import between, from_microseconds

DAY_FILE = "changes/date=2023-04-29/changes.parquet"
CHECKPOINT = "_checkpoints/2023-05-01.pq"
MANIFEST = "_archive.json"


READS = {
    "all": lambda archive: archive.read(),
    "a party": lambda archive: archive.select(party_ids=ROWS[0].party_id).read(partial=True),
    "a column": lambda archive: archive.read(columns=["balance"]),
    "balances": lambda archive: ba.balance_at(archive, from_microseconds(START + 2 * DAY)),
    "later balances": lambda archive: ba.balance_at(archive, "2023-05-02"),
    "accounts": ba.summarize_accounts,
}


@pytest.fixture(scope="module")
def expected(whole):
    return {name: read(ba.Archive(whole)) for name, read in READS.items()}


def errors_of(folder, expected):
    """Return the errors of all reads; a read without an error must return what it did before."""
    errors = []
    for name, read in READS.items():
        try:
            assert read(ba.Archive(folder)).equals(expected[name]), name
        except ba.ArchiveError as error:
            errors.append(str(error))
    return errors


@pytest.mark.parametrize("name", [DAY_FILE, CHECKPOINT, MANIFEST])
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_makes_a_read_return_other_rows_and_a_repair_restores_the_file(
    *, node, whole, expected, tmp_path, name, data
):
    folder = tmp_path / "archive"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    files = content_of(folder, "changes/", "_checkpoints/", MANIFEST)
    others = st.sampled_from([*files.values()])
    spoilt = data.draw(st.none() | others | damaged(files[name]), "content")
    assume(spoilt != files[name])
    (folder / name).unlink() if spoilt is None else (folder / name).write_bytes(spoilt)
    errors_of(folder, expected)
    problem = next(each for each in ba.Archive(folder).verify().problems if each.where == name)
    assert ("is missing" in problem.what) == (spoilt is None)
    assert spoilt is None or name == MANIFEST or "is not what was written" in problem.what
    assert problem.remedy.endswith(" --repair")
    before = len(node.requests)
    done = mend(node, folder)
    assert (len(node.requests) > before) == (name == DAY_FILE)
    assert (done.is_rebuilt, done.left.is_whole) == (name == MANIFEST, True)
    if not done.is_rebuilt:
        content, copies = content_of(folder), content_of(folder, "_quarantine/")
        assert [*copies.values()] == [spoilt] * (name == DAY_FILE and spoilt is not None)
        assert {x: content[x] for x in content if x not in copies} == content_of(whole)
        return
    kept = folder / "_quarantine" / MANIFEST
    assert (kept.read_bytes() if kept.exists() else None) == spoilt
    assert ba.Archive(folder).status().complete == ()
    with pytest.raises(ba.IncompleteError, match="nothing is known to be complete"):
        ba.Archive(folder).read()
    assert len(ba.Archive(folder).read(partial=True)) == len(ROWS)
    run_export(node, folder, start=START, end=END, fill_gaps=True)
    assert lasting(folder) == lasting(whole)


def test_no_flipped_bit_in_a_file_gives_other_rows(folder):
    content, day = (folder / DAY_FILE).read_bytes(), {"start": "2023-04-29", "end": "2023-04-30"}
    expected = ba.Archive(folder).read(**day)
    # The heads of pages have no checksum.
    for place in chain(range(0, 8 * 600, 59), range(8 * 600, 8 * len(content), 97)):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        (folder / DAY_FILE).write_bytes(flipped)
        with contextlib.suppress(ba.ArchiveDamagedError):
            assert ba.Archive(folder).read(**day).equals(expected)


@pytest.mark.parametrize("name", [DAY_FILE, CHECKPOINT])
@pytest.mark.parametrize(("rows", "is_size_noted"), [(None, False), (3, False), (None, True)])
def test_a_sound_file_with_other_rows_is_never_read(folder, expected, name, rows, is_size_noted):
    table, size = pq.read_table(folder / name), (folder / name).stat().st_size
    values = pa.array(range(table.num_rows)).cast(pa.decimal128(38, 0))
    table = table.set_column(5, table.schema.field("balance"), values).slice(0, rows)
    pq.write_table(table, folder / name)

    def note_size(content):
        for note in (*content["files"].values(), *content["checkpoints"].values()):
            if note["size"] == size:
                note["size"] = (folder / name).stat().st_size

    if is_size_noted:
        edit_manifest(folder, note_size)
    errors = errors_of(folder, expected)
    assert len(errors) == {DAY_FILE: len(READS) - 1, CHECKPOINT: 3}[name]
    assert all(name in error for error in errors)


@pytest.mark.parametrize("name", [DAY_FILE, "_limits.parquet", MANIFEST, "changes", CHECKPOINT])
def test_a_link_in_the_place_of_a_file_or_folder_is_refused_and_never_written_through(
    *, node, folder, expected, tmp_path, name
):
    elsewhere = tmp_path / "elsewhere"
    (folder / name).rename(elsewhere)
    (folder / name).symlink_to(elsewhere)
    kept = content_of(elsewhere) if elsewhere.is_dir() else elsewhere.read_bytes()
    problems = ba.Archive(folder).verify().problems
    assert any(x.where.startswith(name) and "symbolic link" in x.what for x in problems)
    if name != "_limits.parquet":
        assert any("symbolic link" in error for error in errors_of(folder, expected))
    with contextlib.suppress(ba.ArchiveError):
        mend(node, folder, **between(START, END))
    with contextlib.suppress(ba.ArchiveError):
        run_export(node, folder, start=START, end=END + HOUR, fill_gaps=True)
    assert (folder / name).is_symlink()
    assert kept == (content_of(elsewhere) if elsewhere.is_dir() else elsewhere.read_bytes())


def test_the_folder_of_an_archive_may_itself_be_reached_through_a_link(node, folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    run_export(node, tmp_path / "link", end=END)
    assert ba.Archive(tmp_path / "link").verify().is_whole
    assert lasting(tmp_path / "link") == lasting(folder)
