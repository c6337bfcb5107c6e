"""An archive is filled from a node and from segments alike, here and on an executor."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import balance_analysis as ba
from tests.archive.exporting import (
    END,
    START,
    Inline,
    assert_holds,
    content_of,
    lasting,
    node_of,
    run_export,
    spans_of,
    spread_history,
)
from tests.segments.writer import flip, write_segments

ROWS = spread_history(5, rows=240)
TIMES = sorted({row.timestamp_ns // 1000 for row in ROWS})
HOW = pytest.mark.parametrize("executor", [None, Inline()], ids=["here", "on an executor"])


@pytest.fixture(scope="module")
def segments(tmp_path_factory):
    """Segments of seven blocks each, in their order."""
    return write_segments(tmp_path_factory.mktemp("segments"), ROWS)


@pytest.fixture(scope="module")
def node():
    with node_of(ROWS) as running:
        yield running


def import_all(folder, paths, **how):
    return ba.import_segments(ba.Archive(folder), paths, **how)


def with_gaps(folder, segments):
    """Return an archive that lacks some segments between others."""
    import_all(folder, [*segments[:2], *segments[4:5], segments[-1]])
    return folder


@HOW
@pytest.mark.parametrize("source", ["a node", "segments"])
def test_progress_runs_once_from_nothing_to_all_over_several_gaps(
    tmp_path, segments, node, source, executor
):
    folder, told = with_gaps(tmp_path / "archive", segments), []
    how = {"executor": executor, "progress": lambda share, rows: told.append((share, rows))}
    if source == "segments":
        run = import_all(folder, segments, **how)
    else:
        run = run_export(node, folder, end=END, fill_gaps=True, **how)
    assert len(run.spans) >= 2
    assert told == sorted(told)
    assert told[0][0] > 0
    assert told[-1][0] == pytest.approx(1)
    assert told[-1][1] >= run.rows > 0
    assert_holds(folder, ROWS)


@HOW
def test_gaps_are_filled_from_segments_as_from_a_node(tmp_path, segments, node, executor):
    for name in ("imported", "exported"):
        with_gaps(tmp_path / name, segments)
    imported = import_all(tmp_path / "imported", segments, executor=executor)
    exported = run_export(
        node, tmp_path / "exported", end=TIMES[-1] + 1, fill_gaps=True, executor=executor
    )
    assert imported.spans == exported.spans
    assert imported.rows == exported.rows
    assert lasting(tmp_path / "imported") == lasting(tmp_path / "exported")


@HOW
def test_a_dry_run_tells_what_the_run_asks_for(tmp_path, segments, node, executor):
    folder = with_gaps(tmp_path / "archive", segments)
    before = content_of(folder)
    told = import_all(folder, segments, dry_run=True, executor=executor).spans
    assert content_of(folder) == before
    assert told == import_all(folder, segments, executor=executor).spans
    shutil.rmtree(folder)
    told = run_export(node, folder, start=START, end=END, dry_run=True, executor=executor).spans
    assert not folder.exists()
    assert told == run_export(node, folder, start=START, end=END, executor=executor).spans


@HOW
def test_nothing_is_imported_where_any_stretch_is_of_another_network(
    tmp_path, segments, node, executor
):
    folder, middle = tmp_path / "archive", TIMES[len(TIMES) // 2]
    run_export(node, folder, start=middle, end=TIMES[-1] + 1)
    late = {row.timestamp_ns: row for row in ROWS if row.timestamp_ns // 1000 > TIMES[-20]}
    others = [row for row in ROWS if row.timestamp_ns not in late]
    others += [replace(row, party_id="ab" * 32) for row in late.values()]
    paths = write_segments(tmp_path / "others", others)
    before = content_of(folder, "changes/", "_coverage.json", "_blocks/")
    with pytest.raises(ba.NetworkMismatchError, match="it is of another network"):
        import_all(folder, [*paths[:1], *paths[-2:]], executor=executor)
    assert content_of(folder, "changes/", "_coverage.json", "_blocks/") == before


@HOW
def test_a_damaged_segment_keeps_the_stretches_before_it(tmp_path, segments, executor):
    paths = [Path(shutil.copy(path, tmp_path)) for path in segments]
    flip(paths[-2])
    with pytest.raises(ba.DecodeError, match="can't be read"):
        import_all(tmp_path / "archive", [*paths[:2], *paths[5:]], executor=executor)
    first, *_ = spans_of(tmp_path / "archive")
    assert first == (TIMES[0], TIMES[13] + 1, True)
    assert_holds(tmp_path / "archive", ROWS)
    held = ba.Archive(tmp_path / "archive").blocks()["timestamp"]
    assert [*held[:14].astype("int64")] == TIMES[:14]
