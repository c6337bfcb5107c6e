"""What is damaged is exported again, or stays as it is where a node can't help."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

import balance_analysis as ba
from tests.archive.exporting import (
    DAY,
    END,
    HOUR,
    MONTH,
    START,
    content_of,
    edit_manifest,
    lasting,
    node_of,
    run_export,
    spans_of,
    spread_history,
    state_of,
    unchanged,
)
from tests.cli.running import run
from tests.moments import from_microseconds
from tests.proof.damages import (
    FIRST,
    MANIFEST,
    ROWS,
    SECOND,
    change_a_balance_of_the_checkpoint,
    changed_node,
    damage_checkpoint,
    drop_a_column,
    edit_answers,
    flip_a_byte,
    lacking,
    mend,
    name_of,
    pruned,
    prunes_meanwhile,
    text,
    truncate,
    verify,
)


@pytest.mark.parametrize("damage", [damage_checkpoint, change_a_balance_of_the_checkpoint])
def test_a_damaged_checkpoint_is_not_built_upon(tmp_path, damage):
    end = START + 40 * DAY
    with node_of(spread_history(5, rows=60, end=end), head=end) as node:
        run_export(node, tmp_path / "x", start=START, end=END)
        noted = (tmp_path / "x" / MANIFEST).read_bytes()
        damage(tmp_path / "x")
        (tmp_path / "x" / MANIFEST).write_bytes(noted)
        run_export(node, tmp_path / "x")
        run_export(node, tmp_path / "y", start=START)
    later = "_checkpoints/2023-06-01.pq"
    assert (tmp_path / "x" / later).read_bytes() == (tmp_path / "y" / later).read_bytes()


@pytest.mark.parametrize("content", [None, b"\x00" * 100])
def test_a_lost_coverage_is_rebuilt_from_the_files_and_proven_by_a_node(
    node, undisturbed, folder, content
):
    coverage = folder / MANIFEST
    coverage.unlink() if content is None else coverage.write_bytes(content)
    assert verify(folder).problems[0].mend.endswith(" --repair")

    done = mend(node, folder)
    assert done.is_rebuilt
    assert done.left.is_whole
    assert not any(proven for _, _, proven in spans_of(folder))
    assert content_of(folder, "changes/", "_checkpoints/", "_limits") == content_of(
        undisturbed, "changes/", "_checkpoints/", "_limits"
    )
    with pytest.raises(ba.IncompleteError, match="nothing is known to be complete"):
        ba.Archive(folder).read()
    assert len(ba.Archive(folder).read(partial=True)) == len(ROWS)
    kept = folder / "_quarantine" / MANIFEST
    assert (kept.read_bytes() if kept.exists() else None) == content

    run_export(node, folder, start=START, end=END, fill_gaps=True)
    assert lasting(folder) == lasting(undisturbed)


def test_a_coverage_is_rebuilt_even_where_no_node_answers(folder):
    (folder / MANIFEST).unlink()
    (folder / name_of(SECOND)).unlink()
    with ba.Client("http://127.0.0.1:9") as client:
        done = ba.repair(client, ba.Archive(folder))
    assert done.is_rebuilt
    assert SECOND not in state_of(folder).files
    assert "missing" in set(ba.Archive(folder).coverage()["state"])


def test_a_rebuilt_coverage_names_no_damaged_file(node, undisturbed, folder, caplog):
    flip_a_byte(folder)
    (folder / MANIFEST).unlink()
    done = mend(node, folder)
    assert f"{name_of(SECOND)} is left out" in caplog.text
    assert SECOND not in state_of(folder).files
    assert [problem.where for problem in done.left.problems] == [name_of(SECOND)]
    run_export(node, folder, start=START, end=END, fill_gaps=True)
    assert lasting(folder) == lasting(undisturbed)


def test_a_rebuilt_archive_of_months_begins_and_ends_with_its_rows(node, tmp_path):
    run_export(node, tmp_path / "a", start=START, partition="month")
    (tmp_path / "a" / MANIFEST).unlink()
    assert mend(node, tmp_path / "a").left.is_whole
    times = [row.timestamp_ns // 1000 for row in ROWS]
    assert spans_of(tmp_path / "a") == [(min(times), max(times) + 1, False)]


def test_what_ends_with_the_last_block_of_a_stopped_node_is_compared_and_mended(tmp_path):
    folder, last = tmp_path / "x", max(row.timestamp_ns for row in ROWS) // 1000
    with node_of(ROWS, head=last) as stopped:
        run_export(stopped, folder, start=START)
        before = lasting(folder)
        assert spans_of(folder) == [(START, last + 1, True)]
        assert verify(folder, against=stopped.url).compared[0].is_same
        (folder / name_of("2023-05-03")).unlink()
        assert mend(stopped, folder).left.is_whole
    assert lasting(folder) == before


def test_a_period_that_differs_is_replaced_where_it_is_asked_for(folder, tmp_path):
    with changed_node(lambda row: replace(row, balance=77)) as node:
        done = mend(node, folder, start="2023-04-29", end="2023-04-30")
        assert (done.periods, done.changed) == ((SECOND,), (SECOND,))
        assert verify(folder, against=node.url).is_whole
        run_export(node, tmp_path / "again", start=START, end=END)
    assert lasting(folder) == lasting(tmp_path / "again")


def test_an_archive_of_some_accounts_is_compared_and_mended_with_its_filters(node, tmp_path):
    party = max((row.party_id for row in ROWS), key=[row.party_id for row in ROWS].count)
    run_export(node, tmp_path / "x", start=START, party_ids=party, partition="hour")
    shutil.copytree(tmp_path / "x", tmp_path / "y")
    assert verify(tmp_path / "x", against=node.url).is_whole
    last = max((tmp_path / "x" / "changes").glob("*/*.parquet"))
    last.write_bytes(last.read_bytes()[:-20])
    assert mend(node, tmp_path / "x").left.is_whole
    assert content_of(tmp_path / "x") == content_of(tmp_path / "y")
    (tmp_path / "x" / MANIFEST).unlink()
    assert mend(node, tmp_path / "x").is_rebuilt
    assert state_of(tmp_path / "x").query == state_of(tmp_path / "y").query


def held_until(moment):
    return node_of([row for row in ROWS if row.timestamp_ns < moment * 1000], head=moment)


HELPLESS = {
    "has forgotten it": (pruned, "2023-04-29 stays as it is: .* may have forgotten"),
    "forgets it": (
        lambda: prunes_meanwhile(node_of(ROWS), START + 16 * HOUR),
        "2023-04-29 stays as it is: .* may have forgotten",
    ),
    "holds less yet": (lambda: held_until(START + DAY), "as it is.*doesn't hold all of it"),
    "is another": (
        lambda: node_of(spread_history(6, rows=400, accounts=20)),
        "of another network",
    ),
    "has lost it": (
        lambda: changed_node(lambda _: None),
        "sends no row that the archive holds",
    ),
    "says that it lacks it": (
        lambda: lacking(ROWS, START + 10 * HOUR, START + 16 * HOUR),
        "says itself that it may",
    ),
}


@pytest.mark.parametrize("harm", [truncate, drop_a_column])
@pytest.mark.parametrize("kind", HELPLESS)
def test_what_a_node_cannot_know_is_not_repaired(folder, kind, harm):
    harm(folder)
    serve, said = HELPLESS[kind]
    with serve() as node, unchanged(folder), pytest.raises(ba.ArchiveError, match=said):
        mend(node, folder)


def test_a_node_that_may_lack_rows_replaces_nothing_of_what_is_proven(folder):
    start = START + 10 * HOUR  # in the second file
    with (
        lacking(ROWS, start, start + 6 * HOUR) as node,
        unchanged(folder),
        pytest.raises(ba.ArchiveError, match="says itself that it may"),
    ):
        mend(node, folder, start=text(start), end=text(start + HOUR))


def test_a_repair_of_a_whole_archive_asks_for_nothing_and_changes_nothing(node, folder):
    before = len(node.requests)
    with unchanged(folder):
        done = mend(node, folder)
    assert (done.periods, done.left.is_whole) == ((), True)
    assert len(node.requests) == before


def test_the_only_file_is_repaired_by_a_node_that_sends_as_many_rows_of_that_time(node, tmp_path):
    run_export(node, tmp_path / "x", start=START, end=MONTH, partition="month")
    before = lasting(tmp_path / "x")
    edit_manifest(tmp_path / "x", lambda c: c["files"]["2023-04"].update(sha256="0" * 64))
    shutil.copytree(tmp_path / "x", tmp_path / "y")
    assert mend(node, tmp_path / "x").changed == ("2023-04",)
    assert lasting(tmp_path / "x") == before
    with (
        node_of(spread_history(6, rows=400, accounts=20)) as other,
        unchanged(tmp_path / "y"),
        pytest.raises(ba.NetworkMismatchError, match="sends no row that the archive holds"),
    ):
        mend(other, tmp_path / "y")


def test_a_repair_reports_what_it_asked_for_and_put_in_place(node, folder):
    edit_answers((START, START + 6 * HOUR), (START + 9 * HOUR, END))(folder)
    reports, before = [], len(node.requests)
    done = mend(node, folder, start="2023-04-29", end="2023-04-30", on_report=reports.append)
    day = START + 4 * HOUR
    asked = [(day, START + 6 * HOUR), (START + 9 * HOUR, day + DAY)]
    report = reports[-1]
    assert done.periods == (SECOND,)
    spans = [(from_microseconds(a), from_microseconds(b)) for a, b in asked]
    assert report.spans == report.committed == spans
    assert (report.rows, report.conflicts, report.source) == (0, 0, node.url)
    assert report.block_height is not None
    assert report.requests == len(node.requests) - before


def test_bad_rows_are_left_out_of_a_repair_as_they_were(tmp_path):
    bad = next(row for row in ROWS if row.timestamp_ns > (START + 5 * HOUR) * 1000)

    def spoil(row):
        return {**row, "balance": "1e5"} if row["timestamp"] == str(bad.timestamp_ns) else row

    with node_of(ROWS, edit_row=spoil) as node:
        run_export(node, tmp_path / "x", start=START)
        shutil.copytree(tmp_path / "x", tmp_path / "y")
        truncate(tmp_path / "x")
        done = mend(node, tmp_path / "x")
    assert done.bad_rows
    assert lasting(tmp_path / "x") == lasting(tmp_path / "y")


def test_a_bad_row_takes_no_sound_row_away(folder):
    before = lasting(folder)
    bad = next(row for row in ROWS if from_microseconds(row.timestamp_ns // 1000).day == 29)

    def spoil(row):
        return {**row, "balance": "1e5"} if row["timestamp"] == str(bad.timestamp_ns) else row

    with node_of(ROWS, edit_row=spoil) as node:
        done = mend(node, folder, start="2023-04-29", end="2023-04-30")
    assert done.bad_rows
    assert lasting(folder) == before


def test_unproven_intervals_stay_so_in_a_repair(tmp_path):
    early = START - 3 * HOUR
    with node_of(ROWS) as node:
        run_export(node, tmp_path / "x", start=early)
        shutil.copytree(tmp_path / "x", tmp_path / "y")
        (tmp_path / "x" / name_of(FIRST)).unlink()
        assert mend(node, tmp_path / "x").left.is_whole
    assert lasting(tmp_path / "x") == lasting(tmp_path / "y")
    assert not state_of(tmp_path / "x").evidence.answers[0].reached


def test_a_manifest_whose_query_no_report_has_is_not_made_again(node, folder):
    for report in (folder / "_runs").iterdir():
        report.unlink()
    (folder / MANIFEST).unlink()
    with unchanged(folder), pytest.raises(ba.ArchiveDamagedError, match="which accounts it is"):
        mend(node, folder)


def test_the_command_says_that_there_is_nothing_to_repair(node, folder):
    assert "Nothing to repair" in run("export", folder, node.url, "--repair").stderr
