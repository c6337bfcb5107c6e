"""Every run leaves a report, whatever its end."""

import datetime as dt
import json
import os

import pytest

from balance_analysis import Archive
from tests.archive.exporting import DAY, END, ROWS, node_of, reports, run_export, spread_history
from tests.archive.writing import holder_of


def test_a_run_holds_the_lock_and_its_report_is_incomplete_while_it_lasts(tmp_path):
    folder, seen, outcomes = tmp_path / "a", [], []

    def look(*_):
        pid = holder_of(folder)["pid"]
        seen.extend((pid, report["outcome"]) for report in reports(folder))

    with node_of(ROWS, edit_page=look) as node:
        run = run_export(node, folder, end=END, on_report=lambda x: outcomes.append(x.outcome))
        (report,) = reports(folder)
        assert (report["id"], report["requests"]) == (run.id, len(node.requests))
        assert report["source"] == node.url
        assert report["started"] <= report["ended"]
    assert (set(seen), outcomes) == ({(os.getpid(), "incomplete")}, ["incomplete", "complete"])


@pytest.mark.parametrize(
    ("error", "said"),
    [(KeyboardInterrupt("^C"), "interrupted"), (OSError("the\n disk"), "the disk")],
)
def test_a_failed_run_has_its_error_in_its_report(tmp_path, error, said):
    def end(*_):
        raise error

    with node_of(ROWS) as node, pytest.raises(type(error)):
        run_export(node, tmp_path / "a", end=END, progress=end)
    (report,) = reports(tmp_path / "a")
    assert (report["outcome"] in {"partial", "failed"}, report["error"]) == (True, said)


def test_a_report_has_at_most_a_hundred_rows_of_conflicts(tmp_path):
    rows = spread_history(4, rows=300, accounts=150, largest_block=140)
    node = node_of(rows)
    run_export(node, tmp_path / "a")
    node.replace([row._replace(balance=row.balance + 1) for row in rows])
    node.block_timestamp = (END + DAY) * 1000
    run_export(node, tmp_path / "a", overlap=dt.timedelta(days=9))
    report = reports(tmp_path / "a")[0]
    assert report["conflicts"] == len(rows)
    assert len(report["conflicting_rows"]) == 100


def test_credentials_of_a_node_are_not_written(node, tmp_path):
    run_export(node.url.replace("://", "://me:secret@"), tmp_path / "a")
    for path in (tmp_path / "a").rglob("*"):
        assert path.is_dir() or b"secret" not in path.read_bytes()


@pytest.mark.parametrize("content", ["{", "", "null", '{"id": 5, "started": "x"}', "[" * 100_000])
def test_a_damaged_report_is_named_and_skipped(*, node, folder, caplog, content):
    run_export(node, folder)
    before, damaged = (report["id"] for report in reversed(reports(folder)))
    path = folder / "_runs" / f"{damaged}.json"
    path.write_text(content)
    path.with_name("20990101T000000.000000Z-abcdef.json").mkdir()
    assert Archive(folder).status().last_run.id == before
    assert f"{damaged}.json is damaged (" in caplog.text
    assert "DecodeError" not in caplog.text
    flipped = path.with_name(f"{before}.json")
    flipped.write_text(flipped.read_text().replace('"started": "2', '"started": "r'))
    assert Archive(folder).status().last_run is None


def put_reports(folder, count, *, outcome="complete", days=0):
    """Add records of runs to an archive: one a minute, up to some days ago."""
    last, like, ids = dt.datetime.now(dt.UTC) - dt.timedelta(days=days), reports(folder)[0], []
    for number in range(count):
        began = last - dt.timedelta(minutes=number)
        ids.append(f"{began:%Y%m%dT%H%M%S.%fZ}-{number:06x}")
        content = {**like, "id": ids[-1], "started": began.isoformat(), "outcome": outcome}
        (folder / "_runs" / f"{ids[-1]}.json").write_text(json.dumps(content))
    return ids


def test_the_reports_of_the_400_newest_runs_are_kept(node, folder):
    recent = put_reports(folder, 500, days=1)
    put_reports(folder, 3, outcome="failed", days=20)
    (folder / "_runs" / "mine.json").write_text("{}")
    last = run_export(node, folder).id
    kept = {path.stem for path in (folder / "_runs").iterdir()} - {"mine"}
    assert (folder / "_runs" / "mine.json").exists()
    assert len(kept) == 400
    assert last in kept
    assert kept & {*recent} == {*recent[:398]}
