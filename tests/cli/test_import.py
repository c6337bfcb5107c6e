"""`import` brings segments into an archive, and says what it did in one line."""

from __future__ import annotations

import zipfile

import balance_analysis as ba
from tests.archive.exporting import spread_history
from tests.cli.running import fails, printed_commands, run
from tests.node.truth import lines_of_rows, lines_of_table
from tests.segments.writer import flip, make_segments, old_segment, write_segments

ROWS = spread_history(6, rows=90)


def test_segments_become_an_archive_and_again_are_nothing_new(tmp_path):
    write_segments(tmp_path / "segments", ROWS)
    said = run("import", tmp_path / "archive", tmp_path / "segments").stderr
    assert f"{len(ROWS)} new rows of 2023-04-28T20:00" in said
    assert lines_of_table(ba.Archive(tmp_path / "archive").read()) == lines_of_rows(ROWS)
    said = run("import", tmp_path / "archive", tmp_path / "segments/*.zip").stderr
    assert "Nothing new from segments of" in said


def test_filters_are_those_of_an_export(tmp_path):
    write_segments(tmp_path / "segments", ROWS, assets={ROWS[0].asset_id: ("tUSD", 6)})
    run("import", tmp_path / "archive", tmp_path / "segments", "--asset-id", "tUSD")
    assert set(ba.Archive(tmp_path / "archive").read()["asset_id"]) == {ROWS[0].asset_id}


def test_a_dry_run_prints_what_is_there_and_what_is_missing(tmp_path):
    paths = write_segments(tmp_path / "segments", ROWS)
    paths[1].unlink()
    said = run("import", tmp_path / "archive", tmp_path / "segments", "--dry-run").stdout
    for words in (
        "blocks   1 to 7, 2023",
        "chain    vega-test-0011, 3 segments",
        "missing  8 to 14",
        "before   nothing: they begin with the first block",
        "start",
    ):
        assert words in said
    assert not (tmp_path / "archive").exists()
    run("import", tmp_path / "archive", tmp_path / "segments", code=3)
    said = run("import", tmp_path / "archive", tmp_path / "segments", "--dry-run").stdout
    assert "Nothing to import: the archive has all of it" in said


def test_what_is_wrong_is_said_in_one_line(tmp_path):
    parts = make_segments(ROWS)
    parts[1].tables["history/balances"][0]["balance"] = "x"
    parts[1].metadata["ChainID"] = "other"
    for part in parts:
        part.write(tmp_path / "segments")
    arguments = ("import", tmp_path / "archive", tmp_path / "segments")
    assert "give those of one network" in fails(*arguments, code=76, folder=tmp_path)
    assert "there is no segment" in fails(*arguments, "nowhere", code=2, folder=tmp_path)
    parts[1].write(tmp_path / "segments")
    for part in make_segments(ROWS)[2:]:
        part.write(tmp_path / "broken")
    next((tmp_path / "broken").iterdir()).write_bytes(b"PK")
    said = fails("import", tmp_path / "archive", tmp_path / "broken", code=5, folder=tmp_path)
    assert "is no segment, or not all of one" in said


def test_bad_rows_and_damage_end_with_5_and_what_is_before_is_kept(tmp_path):
    parts = make_segments(ROWS)
    parts[1].tables["history/balances"][0]["balance"] = "x"
    paths = [part.write(tmp_path / "segments") for part in parts]
    said = run("import", tmp_path / "archive", tmp_path / "segments", code=5).stderr
    assert "1 bad row set aside, with reasons, in _quarantine/" in said
    flip(paths[-1])
    said = run("import", tmp_path / "other", tmp_path / "segments", code=5).stderr
    assert "history/balances can't be read" in said
    assert len(ba.Archive(tmp_path / "other").read(partial=True))


def test_a_damaged_archive_is_reported_with_what_mends_it(tmp_path):
    write_segments(tmp_path / "segments", ROWS)
    run("import", tmp_path / "a", tmp_path / "segments")
    damaged = min((tmp_path / "a" / "changes").rglob("*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    said = run("import", tmp_path / "a", tmp_path / "segments", code=5).stderr
    assert "1 file damaged or gone" in said
    show, mend = printed_commands(said)
    assert show == ["verify", str(tmp_path / "a")]
    # No node was asked so far: segments are no address.
    assert mend == ["export", str(tmp_path / "a"), "URL", "--repair"]
    assert f"balance-analysis export {tmp_path / 'a'} URL " in run(*show, code=5).stdout


def test_segments_in_the_place_of_the_archive_are_refused(tmp_path):
    write_segments(tmp_path / "segments", ROWS)
    arguments = ("import", tmp_path / "segments", tmp_path / "hist")
    said = fails(*arguments, code=2, folder=tmp_path)
    assert "the archive comes first" in said
    with zipfile.ZipFile(next((tmp_path / "segments").iterdir())) as packed:
        packed.extractall(tmp_path / "deeper" / "unpacked" / "one")
    for place in ("deeper", "deeper/unpacked/one", "segments/*.zip"):
        swapped = fails("import", tmp_path / place, tmp_path / "x", code=2, folder=tmp_path)
        assert "the archive comes first" in swapped
    (command,) = printed_commands(said)
    run(*command)
    assert len(ba.Archive(tmp_path / "hist").read()) == len(ROWS)


def test_segments_of_old_nodes_are_named_by_every_command(tmp_path):
    write_segments(tmp_path / "segments", ROWS)
    run("import", tmp_path / "archive", tmp_path / "segments")
    for path in (old_segment(tmp_path / "old"), tmp_path / "old"):
        for arguments in (
            ("import", tmp_path / "other", path),
            ("verify", tmp_path / "archive", "--against", path),
            ("import", tmp_path / "other", path, "--dry-run"),
        ):
            said = fails(*arguments, code=5, folder=tmp_path)
            assert "written by a node older than v0.71" in said
            assert "take the zips of a node of v0.71 or newer" in said
    old_segment(tmp_path / "segments")
    said = run("import", tmp_path / "other", tmp_path / "segments").stderr
    assert "1 segment left out" in said
    assert "written by a node older than v0.71" in said
