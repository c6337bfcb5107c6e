"""A status says what an archive holds, and how old that is."""

import datetime as dt
import json
import os
import platform
import subprocess
from dataclasses import replace

import pytest

import balance_analysis as ba
from tests.archive.exporting import END, ROWS, START, content_of, node_of, run_export, state_of
from tests.archive.writing import begin, locked, writer_of
from tests.moments import from_microseconds

LATER = from_microseconds(END) + dt.timedelta(days=2, hours=3)


def status(folder, **options):
    return ba.Archive(folder).status(**{"now": LATER, **options})


def test_age_counts_from_the_end_of_the_last_complete_interval(whole):
    shown, late = status(whole), (LATER, LATER + dt.timedelta(days=1))
    assert shown.age == replace(shown, unproven=(late,)).age == dt.timedelta(days=2, hours=3)
    assert shown.is_older_than(dt.timedelta(days=2))
    assert not shown.is_older_than(dt.timedelta(days=2, hours=3))
    there = LATER.astimezone(dt.timezone(dt.timedelta(hours=5)))
    assert status(whole, now=LATER.replace(tzinfo=None)) == status(whole, now=there) == shown


def test_an_empty_archive_is_older_than_any_age(tmp_path):
    begin(tmp_path)
    shown = status(tmp_path)
    assert (shown.complete, shown.age, shown.accounts) == ((), None, 0)
    assert (shown.asked_at, shown.source, shown.last_run) == (None, None, None)
    assert shown.is_older_than(dt.timedelta(days=10_000))
    assert "complete    nothing" in str(shown)
    assert "last asked  never" in str(shown)
    assert json.loads(shown.to_json())["asked_at"] is None
    limits = ba.Archive(tmp_path).limits()
    assert limits.empty
    assert str(limits["block_height"].dtype) == "Int64"


def test_an_interrupted_run_is_shown_and_a_running_one_is_not(folder):
    writer = writer_of(folder)
    assert "\ninterrupted" not in str(status(folder))
    name, manifest = "changes/date=2023-04-29/changes.parquet", writer.manifest
    writer.write_manifest(manifest.announce(name, manifest.files["2023-04-29"], manifest.evidence))
    assert status(folder).is_interrupted
    assert "\ninterrupted" in str(status(folder))
    with locked(folder):
        assert not status(folder).is_interrupted
        assert f"writing     process {os.getpid()} on " in str(status(folder))


def test_a_killed_run_is_shown_by_its_report(folder):
    (report,) = (folder / "_runs").iterdir()
    late = {"id": "99990101T000000.000000Z-000000", "started": "9999-01-01T00:00:00+00:00"}
    content = {**json.loads(report.read_text()), **late, "outcome": "incomplete", "ended": None}
    report.with_name(f"{late['id']}.json").write_text(json.dumps(content))
    # A holder that is dead, as after a SIGKILL, holds nothing.
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    for holder in ({}, {"pid": gone.pid, "host": platform.node()}):
        (folder / "_lock.json").write_text(json.dumps(holder))
        assert status(folder).is_interrupted
        assert "last run     9999-01-01T00:00Z, interrupted" in str(status(folder))
    (folder / "_lock.json").write_text(json.dumps({"pid": 1, "host": "elsewhere"}))
    assert not status(folder).is_interrupted
    assert "9999-01-01T00:00Z, under way" in str(status(folder))


def test_the_outcome_of_the_last_run_is_shown(tmp_path):
    with node_of(ROWS) as node:
        run_export(node, tmp_path / "x", start=START)
        assert f"complete, {len(ROWS)} new rows" in str(status(tmp_path / "x"))
        run_export(node, tmp_path / "x")
        assert "nothing new, 0 new rows" in str(status(tmp_path / "x"))
    with pytest.raises(ba.RequestError):
        run_export(node, tmp_path / "x")
    assert "failed, 0 new rows (" in str(status(tmp_path / "x"))
    assert status(tmp_path / "x").last_run.outcome == "failed"


def test_missing_and_truncated_files_are_listed_and_named_by_a_run(node, folder):
    assert not status(folder).lost
    gone, cut, *_ = sorted((folder / "changes").rglob("*.parquet"))
    gone.unlink()
    cut.write_bytes(cut.read_bytes()[1:])
    shown = status(folder, count_accounts=False)
    assert shown.lost == tuple(each.relative_to(folder).as_posix() for each in (gone, cut))
    assert "missing or truncated" in str(shown)
    run = run_export(node, folder, end=END)
    assert run.damaged == [*shown.lost]
    assert all(name in str(run) for name in shown.lost)


def test_a_status_has_all_counts_and_its_text_is_aligned_and_in_utc(node, whole):
    shown, state = status(whole), state_of(whole)
    assert shown.rows == len(ROWS)
    assert shown.accounts == len({row.account for row in ROWS})
    assert shown.complete == ((from_microseconds(START), from_microseconds(END)),)
    assert (shown.files, shown.checkpoints) == (len(state.files), 1)
    assert shown.size == sum(map(len, content_of(whole, "changes/", "_checkpoints/").values()))
    assert shown.block_height == state.evidence.answers[0].heights[1]
    assert abs(dt.datetime.now(dt.UTC) - shown.asked_at) < dt.timedelta(days=1)
    lines = str(shown).splitlines()
    column = len("last asked  ")
    assert all(line[column - 1] == " " and line[column] != " " for line in lines)
    said = {line[:column].strip(): line[column:] for line in lines}
    assert said["archive"] == str(whole)
    assert said["holds"] == "all accounts, a file for each day"
    assert said["complete"] == "2023-04-28T20:00Z to 2023-05-03T08:00Z"
    assert said["age"] == "2 days 3 hours at 2023-05-05T11:00Z"
    assert (said["missing"], said["unproven"]) == ("none", "none")
    assert said["rows"] == f"{len(ROWS)} of {shown.accounts} accounts"
    assert said["files"].startswith("6 files (days with rows), 1 checkpoint, ")
    assert said["files"].endswith(" kB")
    assert node.url in said["last asked"]
    assert said["limits"] == "1 distinct snapshot"


def test_a_statuss_json_keys_are_stable(whole):
    content = json.loads(status(whole).to_json())
    keys = (
        "uri query partition complete confirmed confirmed_by disputed missing unproven rows "
        "accounts files checkpoints bytes asked_at source block_height limits lost last_run "
        "writing now age_seconds is_interrupted"
    )
    assert sorted(content) == sorted(keys.split())
    assert content["complete"] == [["2023-04-28T20:00:00+00:00", "2023-05-03T08:00:00+00:00"]]
    assert content["age_seconds"] == 51 * 3600
