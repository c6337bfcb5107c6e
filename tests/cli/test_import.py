"""`import` brings segments into an archive, and says what it did in one line."""

import zipfile

import pytest

import balance_analysis as ba
from tests.archive.exporting import spread_history
from tests.cli.running import fails, play, printed_commands, run
from tests.segments.writer import flip, make_segments, old_segment, write_segments

ROWS = spread_history(6, rows=90)
USD = ROWS[0].asset_id


DRY = r"chain +vega-test-0011, 3 segments\nblocks +1 to 7, 2023.+missing +8 to 14\n"
DRY += "before +nothing: the segments have the first block\nstart "
SESSIONS = {
    "segments, and again": [
        ("import {a} {s}", 0, "90 new rows of 2023-04-28T20:00"),
        ("import {a} {s}/*.zip", 0, "Nothing new from segments of"),
        ("spoil changes/date=2023-04-28/changes.parquet", 0, ""),
        # No node was asked so far: segments are no address.
        ("import {a} {s}", 5, r"(?s)1 file damaged or missing.+ verify .+ export \S+ URL --rep"),
        ("verify {a}", 5, r"^ +balance-analysis export \S+ URL --repair$"),
    ],
    "a filter, which is that of an export": [
        ("import {a} {s} --asset-id tUSD", 0, "new rows"),
        ("sql {a} 'select distinct asset_id from changes' --wide", 0, rf"\A\w+\n{USD}\n\Z"),
    ],
    "a segment that is missing": [
        ("remove {second}", 0, ""),
        ("import {a} {s} --dry-run", 0, f"(?s){DRY}"),
        ("status {a}", 2, "not an archive"),
        ("import {a} {s}", 3, "new rows"),
        ("import {a} {s} --dry-run", 0, "Nothing to import: the archive has all of it"),
    ],
}


@pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS)
def test_an_import_exits_with_its_code_and_says_what_it_did(session, tmp_path):
    paths = write_segments(tmp_path / "segments", ROWS, assets={USD: ("tUSD", 6)})
    play(session, tmp_path / "archive", s=tmp_path / "segments", second=paths[1])


def test_a_fault_is_reported_in_one_line(tmp_path):
    parts = make_segments(ROWS)
    parts[1].tables["history/balances"][0]["balance"] = "x"
    parts[1].metadata["ChainID"] = "other"
    for part in parts:
        part.write(tmp_path / "segments")
    arguments = ("import", tmp_path / "archive", tmp_path / "segments")
    assert "give segments of one chain" in fails(*arguments, code=76, folder=tmp_path)
    assert "there is no segment" in fails(*arguments, "nowhere", code=2, folder=tmp_path)
    parts[1].write(tmp_path / "segments")
    for part in make_segments(ROWS)[2:]:
        part.write(tmp_path / "broken")
    next((tmp_path / "broken").iterdir()).write_bytes(b"PK")
    said = fails("import", tmp_path / "archive", tmp_path / "broken", code=5, folder=tmp_path)
    assert "is not a whole segment" in said


def test_bad_rows_and_damage_exit_with_5_and_earlier_segments_stay_imported(tmp_path):
    parts = make_segments(ROWS)
    parts[1].tables["history/balances"][0]["balance"] = "x"
    paths = [part.write(tmp_path / "segments") for part in parts]
    said = run("import", tmp_path / "archive", tmp_path / "segments", code=5).stderr
    assert "1 bad row set aside, with reasons, in _quarantine/" in said
    flip(paths[-1])
    said = run("import", tmp_path / "other", tmp_path / "segments", code=5).stderr
    assert "history/balances can't be read" in said
    assert len(ba.Archive(tmp_path / "other").read(partial=True))


def test_segments_in_the_place_of_the_archive_are_refused(tmp_path):
    write_segments(tmp_path / "segments", ROWS)
    said = fails("import", tmp_path / "segments", tmp_path / "hist", code=2, folder=tmp_path)
    assert "the archive comes first" in said
    with zipfile.ZipFile(next((tmp_path / "segments").iterdir())) as packed:
        packed.extractall(tmp_path / "deeper" / "unpacked" / "one")
    for place in ("deeper", "deeper/unpacked/one", "segments/*.zip"):
        swapped = fails("import", tmp_path / place, tmp_path / "x", code=2, folder=tmp_path)
        assert "the archive comes first" in swapped
    (command,) = printed_commands(said)
    run(*command)
    assert len(ba.Archive(tmp_path / "hist").read()) == len(ROWS)


def test_every_command_names_segments_of_old_nodes(tmp_path):
    write_segments(tmp_path / "segments", ROWS)
    run("import", tmp_path / "archive", tmp_path / "segments")
    old = old_segment(tmp_path / "old")
    for arguments in (
        ("import", tmp_path / "other", old),
        ("verify", tmp_path / "archive", "--against", old.parent),
        ("import", tmp_path / "other", old, "--dry-run"),
    ):
        said = fails(*arguments, code=5, folder=tmp_path)
        assert "written by a node older than v0.71" in said
        assert "take the zips of a node of v0.71 or newer" in said
    old_segment(tmp_path / "segments")
    said = run("import", tmp_path / "other", tmp_path / "segments").stderr
    assert "1 segment left out" in said
    assert "written by a node older than v0.71" in said
