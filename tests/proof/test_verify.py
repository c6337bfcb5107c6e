"""Verify names whatever is wrong with an archive, and repair brings back every byte."""

from __future__ import annotations

import json
import re
import shutil

import pyarrow as pa
import pytest

import balance_analysis as ba
from tests.archive.exporting import (
    DAY,
    END,
    HOUR,
    MONTH,
    START,
    edit_manifest,
    lasting,
    node_of,
    run_export,
    spans_of,
    state_of,
)
from tests.proof.damages import (
    CHECKPOINT,
    FIRST,
    MANIFEST,
    MIDDLE,
    ROWS,
    SECOND,
    change_a_balance_of_the_checkpoint,
    damage_checkpoint,
    drop_a_column,
    edit_answers,
    flip_a_byte,
    mend,
    name_of,
    note_another,
    put,
    rewritten,
    rows_in,
    truncate,
    turned_around,
    verify,
    with_balance,
    with_floats,
    with_row_at,
)

NAME, EARLY, OTHER_DAY = name_of(SECOND), START - HOUR, START + 40 * HOUR

FILES = [
    (flip_a_byte, NAME, "its SHA-256 is"),
    (truncate, NAME, "bytes, not"),
    (note_another(sha256="0" * 64), NAME, "not 0000"),
    (note_another(size=1), NAME, "bytes, not 1$"),
    (note_another(rows=1), NAME, r"rows from \S+ to \S+, not 1 row from"),
    (note_another(first=START + 5 * HOUR), NAME, r"has \d+ rows from \S+ to \S+, not \d+ rows"),
    (
        rewritten(name_of(FIRST), with_row_at(EARLY), first=EARLY),
        name_of(FIRST),
        "1 of its rows are outside of the answered time$",
    ),
    (
        rewritten(NAME, with_row_at(OTHER_DAY), last=OTHER_DAY),
        NAME,
        "1 of its rows are not of its period",
    ),
    (
        rewritten(NAME, lambda rows: pa.concat_tables([rows, rows.slice(rows.num_rows - 1)])),
        NAME,
        "^1 of its rows repeat the account and timestamp of another$",
    ),
    (
        rewritten(NAME, lambda rows: pa.concat_tables([rows, rows.slice(0, 1)])),
        NAME,
        "not in the order .*; 1 of its rows repeat",
    ),
    (rewritten(NAME, turned_around), NAME, "^its rows are not in the order party_id"),
    (rewritten(NAME, with_floats), NAME, "column balance is double"),
    (drop_a_column, NAME, "has the columns asset_id, account_type, party_id, timestamp"),
    (rewritten(NAME, lambda rows: rows.slice(0, 0)), NAME, "has 0 rows"),
]

CHECKPOINTS = [
    (damage_checkpoint, "is not what was written"),
    (lambda folder: (folder / CHECKPOINT).unlink(), "is missing"),
    (
        change_a_balance_of_the_checkpoint,
        "is not what the rows before 2023-05-01T00:00Z add up to",
    ),
    (rewritten(CHECKPOINT, lambda rows: rows.slice(1)), "is not what the rows before"),
    (rewritten(CHECKPOINT, with_floats), "column balance is double"),
]


MANIFESTS = [
    (edit_answers((START, MIDDLE), (MIDDLE - HOUR, END)), "overlap or are out of order"),
    (edit_answers((MIDDLE, END), (START, MIDDLE)), "overlap or are out of order"),
    (edit_answers((START, END), (END, END)), "ends before it begins"),
    (
        lambda folder: edit_manifest(
            folder, lambda c: c.update(files=dict(reversed(c["files"].items())))
        ),
        "out of time order",
    ),
]


def test_an_untouched_archive_is_whole(folder):
    report = verify(folder)
    state = state_of(folder)
    assert report.problems == ()
    assert report.is_whole
    assert (report.files, report.checkpoints) == (len(state.files), 1)
    assert report.rows == len(ROWS)


def test_an_empty_archive_is_whole(tmp_path):
    with node_of([]) as node:
        run_export(node, tmp_path / "x", start=START)
    report = verify(tmp_path / "x")
    assert (report.is_whole, report.files) == (True, 0)


@pytest.mark.parametrize(("damage", "name", "said"), FILES)
def test_a_wrong_file_is_named_and_mended(*, node, undisturbed, folder, damage, name, said):
    damage(folder)
    (problem,) = (p for p in verify(folder).problems if p.kind != "checkpoint")
    assert (problem.kind, problem.where) == ("rows", name)
    assert problem.mend.endswith(" --repair")
    assert re.search(said, problem.what)
    done = mend(node, folder)
    assert done.left.is_whole
    assert [name] == [*map(name_of, done.periods)]
    assert lasting(folder) == lasting(undisturbed)


@pytest.mark.parametrize(("damage", "said"), CHECKPOINTS)
def test_a_wrong_checkpoint_is_named_and_made_again(node, undisturbed, folder, damage, said):
    damage(folder)
    (problem,) = verify(folder).problems
    assert (problem.kind, problem.where) == ("checkpoint", CHECKPOINT)
    assert problem.mend.endswith(" --repair")
    assert re.search(said, problem.what)
    before = len(node.requests)
    assert mend(node, folder).left.is_whole
    assert len(node.requests) == before
    assert lasting(folder) == lasting(undisturbed)


def test_a_balance_changed_before_the_checkpoint_is_found_by_it(folder):
    name = name_of("2023-04-30")
    rows = rows_in(folder, name)
    put(folder, name, with_balance(rows, rows.num_rows - 1, 7))
    (problem,) = verify(folder).problems
    assert problem.where == CHECKPOINT


@pytest.mark.parametrize(("damage", "said"), MANIFESTS)
def test_a_manifest_that_contradicts_itself_is_named_and_made_again(
    node, undisturbed, folder, damage, said
):
    damage(folder)
    problem = verify(folder).problems[0]
    assert (problem.kind, problem.where) == ("manifest", MANIFEST)
    assert re.search(said, problem.what)
    assert problem.mend.endswith(" --repair")
    done = mend(node, folder)
    assert (done.is_rebuilt, done.left.is_whole) == (True, True)
    assert not any(is_complete for *_, is_complete in spans_of(folder))
    run_export(node, folder, start=START, end=END, fill_gaps=True)
    assert lasting(folder)[0] == lasting(undisturbed)[0]


def test_rows_of_time_that_is_not_covered_are_named_with_the_way_to_cover_it(node, folder):
    until = START + 4 * HOUR
    edit_answers((START, until), (until + DAY, END))(folder)
    (problem,) = (p for p in verify(folder).problems if p.kind == "rows")
    assert problem.where == name_of(SECOND)
    assert "are outside of the answered time" in problem.what
    assert problem.mend.endswith("--fill-gaps`")
    assert not mend(node, folder).left.is_whole
    run_export(node, folder, fill_gaps=True)
    assert verify(folder).is_whole


def test_a_report_counts_gaps_too(node, tmp_path):
    run_export(node, tmp_path / "a", start=MONTH, end=END)
    run_export(node, tmp_path / "a", start=START - DAY, end=START + HOUR)
    said = str(verify(tmp_path / "a"))
    assert "no problem (" in said
    status = f"balance-analysis status {tmp_path / 'a'}"
    assert f"\ncoverage: 1 missing and 1 unproven part\n    `{status}` shows which" in said


def test_a_file_that_the_manifest_has_lost_is_no_stranger(node, undisturbed, folder):
    edit_manifest(folder, lambda content: content["files"].pop(SECOND))
    problem = verify(folder).problems[-1]
    assert (problem.kind, problem.where) == ("rows", name_of(SECOND))
    assert problem.periods == (SECOND,)
    assert problem.mend.endswith(" --repair")
    assert mend(node, folder).left.is_whole
    assert lasting(folder) == lasting(undisturbed)


def test_what_is_no_archive_is_refused(node, tmp_path):
    with pytest.raises(ba.ArchiveError, match="is no archive"):
        verify(tmp_path)
    with pytest.raises(ba.ArchiveError, match="is no archive"):
        mend(node, tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [MANIFEST, name_of(SECOND)])
def test_what_an_interrupted_write_left_is_no_problem_and_swept_up(node, folder, name):
    head, _, tail = name.rpartition("/")
    leftover = f"{head}/.{tail}.0123abcd.tmp".lstrip("/")
    (folder / leftover).write_text("half")
    assert verify(folder).is_whole
    assert mend(node, folder).left.is_whole
    assert not (folder / leftover).exists()


def test_a_checkpoint_that_the_manifest_does_not_name_is_made_again(undisturbed, node, folder):
    edit_manifest(folder, lambda content: content.update(checkpoints={}))
    assert verify(folder).is_whole
    run_export(node, folder, end=END)
    assert lasting(folder) == lasting(undisturbed)


def test_a_report_is_given_as_text_and_as_json(folder):
    said = str(verify(folder))
    assert said.startswith(f"{folder}: no problem (")
    truncate(folder)
    report = verify(folder)
    lines = str(report).splitlines()
    assert lines[0].startswith(f"{folder}: 1 problem (")
    assert lines[1].startswith(name_of(SECOND))
    assert re.fullmatch(rf"balance-analysis export {folder} http://\S+ --repair", lines[2].strip())
    content = json.loads(report.to_json())
    assert content["is_whole"] is False
    assert content["problems"][0]["periods"] == [SECOND]


STRANGERS = [
    "notes.txt",
    "changes/date=2023-04-29/part-0.parquet",
    "changes/date=2022-01-01/changes.parquet",
    "changes/readme.md",
]


@pytest.mark.parametrize("name", STRANGERS)
def test_a_stranger_is_named_and_never_deleted(node, folder, name):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("mine")
    (problem,) = verify(folder).problems
    assert (problem.kind, problem.where) == ("stranger", name)
    assert mend(node, folder).left.problems == (problem,)
    assert (folder / name).read_text() == "mine"


def test_a_link_among_the_files_leads_elsewhere_and_is_named(folder, tmp_path):
    (tmp_path / "mine").write_text("x")
    (folder / "mine").symlink_to(tmp_path / "mine")
    (problem,) = ba.Archive(folder).verify().problems
    assert (problem.kind, problem.where) == ("stranger", "mine")


HARMS = {
    "removed": lambda path, _: path.unlink(),
    "truncated": lambda path, _: path.write_bytes(path.read_bytes()[:-1]),
    "exchanged": lambda path, other: shutil.copyfile(other / path.name, path),
}


@pytest.mark.parametrize("harm", HARMS)
def test_limits_that_are_not_those_that_were_written_are_named_and_the_next_run_begins_others(
    node, folder, tmp_path, caplog, harm
):
    limits, kept = folder / "_limits.parquet", (folder / "_limits.parquet").read_bytes()
    run_export(node, tmp_path / "other", start=END - HOUR, end=END)
    HARMS[harm](limits, tmp_path / "other")
    (problem,) = verify(folder).problems
    assert (problem.kind, problem.where) == ("limits", "_limits.parquet")
    assert "put back a copy of it; else remove what is there" in problem.mend
    assert re.search(r"is missing$|is not what was written: \S+ \S+", problem.what)
    assert str(verify(folder)).count("put back a copy") == 1
    for read in (ba.Archive(folder).limits, ba.Archive(folder).connect):
        with pytest.raises(ba.ArchiveDamagedError, match=r"_limits\.parquet"):
            read()
    assert (harm != "exchanged") == (ba.Archive(folder).status().lost == ("_limits.parquet",))
    changed = shutil.copytree(folder, tmp_path / "copy")
    (changed / "_limits.parquet").write_bytes(kept)
    assert verify(changed).is_whole
    limits.unlink(missing_ok=True)
    assert run_export(node, folder, end=END).damaged == []
    assert "without the older limits" in caplog.text
    assert verify(folder).is_whole
    assert len(ba.Archive(folder).limits()) == 1


def test_limits_that_the_manifest_does_not_name_are_a_problem(tmp_path):
    with node_of(ROWS, limits=None) as node:
        run_export(node, tmp_path / "a", start=START, end=END)
    assert verify(tmp_path / "a").is_whole
    (tmp_path / "a/_limits.parquet").write_bytes(b"")
    (problem,) = verify(tmp_path / "a").problems
    assert (problem.kind, "is not in the manifest" in problem.what) == ("limits", True)
