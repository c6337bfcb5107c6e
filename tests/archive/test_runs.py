"""Every run leaves a report, whatever its end."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace

import pytest

from balance_analysis import Archive, RequestError
from tests.archive.exporting import DAY, END, START, node_of, run_export, spread_history, state_of
from tests.loopback import Fault
from tests.moments import from_microseconds

ROWS = spread_history(3, rows=150, accounts=12)


def reports(folder):
    """Return what the reports of an archive's runs say, the newest first."""
    paths = sorted(folder.glob("_runs/*.json"), reverse=True)
    return [json.loads(path.read_text()) for path in paths]


def test_a_report_is_incomplete_while_the_run_lasts_and_then_says_what_it_did(tmp_path):
    seen, outcomes = [], []

    def look(answer, _):
        seen.extend(report["outcome"] for report in reports(tmp_path / "a"))
        return answer

    with node_of(ROWS, edit_page=look) as node:
        run = run_export(
            node, tmp_path / "a", end=END, on_report=lambda x: outcomes.append(x.outcome)
        )
        (report,) = reports(tmp_path / "a")
        assert (report["id"], report["outcome"], report["rows"]) == (run.id, "complete", len(ROWS))
        assert report["requests"] == len(node.requests)
        assert (report["source"], report["error"]) == (node.url, None)
        assert report["coverage_end"] == from_microseconds(END).isoformat()
        assert report["started"] <= report["ended"]
        assert (set(seen), outcomes) == ({"incomplete"}, ["incomplete", "complete"])
        run_export(node, tmp_path / "a")
    assert [x["outcome"] for x in reports(tmp_path / "a")] == ["nothing new", "complete"]


@pytest.mark.parametrize(("kept", "outcome"), [(0, "failed"), (2, "partial")])
def test_a_run_that_fails_is_reported_with_what_it_kept(tmp_path, kept, outcome):
    def refuse(_, request):
        start = int(request.params.get("dateRange.startTimestamp", ["0"])[0])
        is_late = start >= (START + kept * DAY) * 1000
        return Fault.status(400) if is_late or (request.params and not kept) else None

    with node_of(ROWS, faults=refuse) as node, pytest.raises(RequestError):
        run_export(node, tmp_path / "a", start=START, page_size=20, workers=1)
    (report,) = reports(tmp_path / "a")
    assert (report["outcome"], bool(report["rows"])) == (outcome, bool(kept))
    assert "400" in report["error"]
    assert report["rows"] < len(ROWS)
    assert bool(state_of(tmp_path / "a").evidence.answers) == bool(kept)


def test_a_report_has_at_most_a_hundred_rows_of_conflicts(tmp_path):
    rows = spread_history(4, rows=300, accounts=150, largest_block=140)
    with node_of(rows) as node:
        run_export(node, tmp_path / "a")
        node.replace([replace(row, balance=int(row.balance) + 1) for row in rows])
        node.block_timestamp = (END + DAY) * 1000
        run_export(node, tmp_path / "a", overlap=dt.timedelta(days=9))
    report = reports(tmp_path / "a")[0]
    assert report["conflicts"] == len(rows)
    assert len(report["conflicting_rows"]) == 100


def spoil(answer):
    return {**answer, "balance": "1e5"} if answer["balance"] == str(ROWS[70].balance) else answer


def test_bad_rows_are_kept_raw_with_their_reasons(tmp_path):
    with node_of(ROWS, edit_row=spoil) as node:
        run = run_export(node, tmp_path / "a")
    lines = (tmp_path / "a" / "_quarantine" / f"{run.id}.jsonl").read_text().splitlines()
    (report,) = reports(tmp_path / "a")
    assert report["bad_rows"] == len(lines) > 0
    kept = json.loads(lines[0])
    assert json.loads(kept["row"])["balance"] == "1e5"
    assert "1e5" in kept["reason"]


def test_credentials_of_a_node_are_not_written(tmp_path):
    with node_of(ROWS) as node:
        run_export(node.url.replace("://", "://me:secret@"), tmp_path / "a")
    for path in (tmp_path / "a").rglob("*"):
        assert path.is_dir() or b"secret" not in path.read_bytes()


@pytest.mark.parametrize("content", ["{", "", "null", '{"id": 5, "started": "x"}', "[" * 100_000])
def test_a_damaged_report_is_named_and_skipped(tmp_path, caplog, content):
    with node_of(ROWS) as node:
        before, damaged = (run_export(node, tmp_path / "a").id for _ in range(2))
    path = tmp_path / "a" / "_runs" / f"{damaged}.json"
    path.write_text(content)
    assert Archive(tmp_path / "a").status().last_run.id == before
    assert f"{damaged}.json is damaged (" in caplog.text
    assert "DecodeError" not in caplog.text
    flipped = path.with_name(f"{before}.json")
    flipped.write_text(flipped.read_text().replace('"started": "2', '"started": "r'))
    assert Archive(tmp_path / "a").status().last_run is None


def put_reports(folder, count, *, outcome="complete", days=0):
    """Put reports of runs beside those of an archive: one a minute, up to some days ago."""
    last, like, ids = dt.datetime.now(dt.UTC) - dt.timedelta(days=days), reports(folder)[0], []
    for number in range(count):
        began = last - dt.timedelta(minutes=number)
        ids.append(f"{began:%Y%m%dT%H%M%S.%fZ}-{number:06x}")
        content = {**like, "id": ids[-1], "started": began.isoformat(), "outcome": outcome}
        (folder / "_runs" / f"{ids[-1]}.json").write_text(json.dumps(content))
    return ids


def test_the_reports_of_the_400_newest_runs_are_kept(tmp_path):
    folder = tmp_path / "a"
    with node_of(ROWS) as node:
        run_export(node, folder)
        recent = put_reports(folder, 500, days=1)
        put_reports(folder, 3, outcome="failed", days=20)
        (folder / "_runs" / "mine.json").write_text("{}")
        last = run_export(node, folder).id
    kept = {path.stem for path in (folder / "_runs").iterdir()} - {"mine"}
    assert (folder / "_runs" / "mine.json").exists()
    assert len(kept) == 400
    assert last in kept
    assert kept & {*recent} == {*recent[:398]}
