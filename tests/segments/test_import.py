"""An archive is filled from segments as it is from a node, in any order, whatever happens."""

import shutil
from itertools import pairwise

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.archive.exporting import (
    assert_holds,
    lasting,
    mend,
    node_of,
    run_export,
    spans_of,
    state_of,
    unchanged,
)
from tests.columns import known_of
from tests.moments import from_microseconds
from tests.node.asking import NOWHERE
from tests.node.truth import lines_of_rows, lines_of_table, matching
from tests.segments.writer import CHAIN, ROWS, START, limits_at, make_segments, write_segments

TIMES = sorted({row.time for row in ROWS})
LAST = TIMES[-1] + 1
FEW = 20
"""Blocks of a shorter history, over several days all the same."""


NODE = node_of(ROWS)


@given(data=st.data())
@settings(max_examples=4, deadline=None)
def test_segments_and_exports_in_any_order_give_the_same_archive(
    tmp_path_factory, segments, imported, data
):
    folder = tmp_path_factory.mktemp("any") / "archive"
    paths = data.draw(st.permutations(sorted(segments.iterdir())))
    runs = []
    while paths:
        count = data.draw(st.integers(1, len(paths)))
        runs.append(ba.import_segments(folder, paths[:count]))
        paths = paths[count:]
        if data.draw(st.booleans()):
            end = data.draw(st.sampled_from(TIMES[20:]))
            runs.append(run_export(NODE, folder, end=end, fill_gaps=True))
    assert sum(run.rows for run in runs) == len(ROWS)
    assert not any(run.conflicts for run in runs)
    assert spans_of(folder) == [(TIMES[0], LAST, True)]
    assert_holds(folder, ROWS)
    assert lasting(folder) == lasting(imported)
    assert not ba.deltas(ba.Archive(folder).read())["delta"].isna().any()
    assert ba.Archive(folder).verify().is_whole


def test_already_imported_segments_are_left_out_packed_or_not(tmp_path, imported):
    for segment in make_segments(ROWS):
        segment.write(tmp_path / "unpacked", zipped=False)
    with unchanged(imported):
        assert ba.import_segments(imported, tmp_path / "unpacked").spans == []


def test_nodes_rows_that_replaced_segments_rows_are_compared_with_them(
    tmp_path, segments, imported
):
    archive = ba.Archive(shutil.copytree(imported, tmp_path / "archive"))
    lost = ROWS[len(ROWS) // 2]
    day = from_microseconds(lost.time).date()
    (tmp_path / f"archive/changes/date={day}/changes.parquet").unlink()
    mend(node_of([row for row in ROWS if row != lost]), archive.uri)
    assert len(archive.read()) == len(ROWS) - 1
    assert ba.import_segments(archive.uri, segments).rows == 1
    assert lines_of_table(archive.read(partial=True)) == lines_of_rows(ROWS)
    # The row is disputed: the next answer proves it.
    assert known_of(archive.read(partial=True)) != known_of(ba.Archive(imported).read())
    ba.import_segments(archive.uri, segments)
    assert known_of(archive.read()) == known_of(ba.Archive(imported).read())
    assert ba.import_segments(archive.uri, segments).spans == []
    assert archive.verify(segments=segments).is_whole


def test_a_gap_between_segments_is_a_gap_of_the_archive(tmp_path, segments, caplog):
    paths = sorted(segments.iterdir(), key=lambda path: int(path.stem.split("-")[-1]))
    folder = tmp_path / "archive"
    ba.import_segments(folder, [*paths[:2], *paths[4:]])
    assert "no segment has the blocks 15 to 28" in caplog.text
    ba.read_segments([*paths[:2], *paths[4:]])
    assert "no segment has the blocks 15 to 28: their time is missing" in caplog.text
    assert list(ba.Archive(folder).coverage()["state"]) == ["complete", "missing", "complete"]
    ba.import_segments(folder, paths[2:4])
    assert spans_of(folder) == [(TIMES[0], LAST, True)]
    [answer] = state_of(folder).evidence.answers
    assert (answer.node.name, answer.heights) == (f"segments {CHAIN}", (1, len(TIMES)))


@given(data=st.data())
@settings(max_examples=5, deadline=None)
def test_rows_set_aside_are_unknown_in_any_order_of_segments(tmp_path_factory, data):
    folder, rows = tmp_path_factory.mktemp("aside"), matching(ROWS, end=TIMES[FEW])
    # Most of them beside a segment's end.
    ends = {TIMES[n] for n in range(FEW) if n % 4 in {0, 3}}
    near = [n for n, row in enumerate(rows) if row.time in ends]
    bad = data.draw(st.sets(st.sampled_from(near), min_size=1, max_size=4))

    def edit(parts):
        lines = [line for part in parts for line in part.tables["history/balances"]]
        for n in bad:
            lines[n]["balance"] = "9" * 39

    paths = write_segments(folder / "segments", rows, each=4, edit=edit)
    for path in data.draw(st.permutations(paths)):
        ba.import_segments(folder / "archive", path)
    moments = sorted({rows[n].time for n in bad})
    edges = [TIMES[0], *(edge for at in moments for edge in (at, at + 1)), TIMES[FEW - 1] + 1]
    known = zip(edges[::2], edges[1::2], strict=True)
    table = ba.Archive(folder / "archive").read(partial=True)
    assert known_of(table) == tuple((start, end) for start, end in known if start < end)
    good = [row for n, row in enumerate(rows) if n not in bad]
    assert lines_of_table(table) == lines_of_rows(good)


@pytest.fixture(scope="module")
def middle(tmp_path_factory):
    """An archive of the middle of the history, as the node has it."""
    folder = tmp_path_factory.mktemp("middle") / "archive"
    run_export(NODE, folder, start=TIMES[30], end=TIMES[40])
    return folder


@given(
    ends=st.lists(st.integers(5, 44), min_size=2, max_size=2, unique=True).map(sorted),
    each=st.integers(1, 9),
    shift=st.sampled_from([0, 333]),
    has_true_ones=st.booleans(),
)
@settings(max_examples=16, deadline=None)
def test_segments_of_another_network_leave_an_archive_with_rows_in_their_time_unchanged(
    *, tmp_path_factory, middle, ends, each, shift, has_true_ones
):
    folder, (first, last) = tmp_path_factory.mktemp("other"), (TIMES[place] for place in ends)
    times = {row.time: row for row in matching(ROWS, start=first, end=last + 1)}
    others = [row._replace(time=row.time + shift, party_id="ab" * 32) for row in times.values()]
    early = matching(ROWS, end=TIMES[4]) if has_true_ones else []
    write_segments(folder / "segments", others, each=each, first=1000)
    write_segments(folder / "segments", early)
    archive = shutil.copytree(middle, folder / "archive")
    if any(first + shift <= time <= last + shift for time in TIMES[30:40]):
        with unchanged(archive), pytest.raises(ba.NetworkMismatchError, match="of another network"):
            ba.import_segments(archive, folder / "segments")
    else:
        done = ba.import_segments(archive, folder / "segments")
        assert done.rows == len(others) + len(early)


@pytest.mark.parametrize("each", [1, 20])
def test_segments_of_the_same_network_surround_an_archives_rows(tmp_path, middle, each):
    archive = shutil.copytree(middle, tmp_path / "archive")
    ba.import_segments(archive, write_segments(tmp_path / "segments", ROWS, each=each))
    assert lines_of_table(ba.Archive(archive).read()) == lines_of_rows(ROWS)


def test_limits_from_segments_have_their_true_timeline_whatever_nodes_sent_before(tmp_path):
    changes = [
        limits_at(TIMES[0], can_propose_market=False, genesis_loaded=False),
        limits_at(TIMES[10], can_propose_market=False),
        limits_at(TIMES[40], propose_asset_enabled_from=TIMES[3]),
    ]
    changes[0] |= {"propose_asset_enabled_from": -(10**12), "propose_market_enabled_from": 0}
    first, *_ = paths = write_segments(tmp_path / "segments", ROWS, limits=changes)
    for kind in ("before", "after"):
        folder = tmp_path / kind
        if kind == "after":
            run_export(NODE, folder, start=START, end=LAST)
        ba.import_segments(folder, paths)
        ba.import_segments(folder, first)
        if kind == "before":
            run_export(NODE, folder, end=LAST)
        timeline = ba.Archive(folder).limits()
        assert list(timeline["can_propose_market"][:3]) == [False, False, True]
        assert list(timeline["genesis_loaded"][:3]) == [False, True, True]
        moments = timeline[["first_seen", "last_seen"]][:3].astype("int64")
        edges = [TIMES[0], TIMES[10], TIMES[40], TIMES[-1]]
        assert moments.to_numpy().tolist() == [*map(list, pairwise(edges))]
        assert timeline["block_height"][:3].isna().all()
        enabled = timeline["propose_asset_enabled_from"]
        assert [enabled[0].value, enabled[2].value] == [-(10**15), TIMES[3] * 1000]
        assert pd.isna(timeline["propose_market_enabled_from"][0])
        assert list(timeline["source"][3:]) == [NOWHERE]
        assert ba.Archive(folder).verify().is_whole


@pytest.mark.parametrize("year", ["0001", "9999"])
def test_limits_with_an_impossible_year_are_named_before_anything_is_written(tmp_path, year):
    def edit(parts):
        for part in parts:
            [row] = part.tables["currentstate/network_limits"]
            row["propose_asset_enabled_from"] = f"{year}-01-01 00:00:00+00"

    write_segments(tmp_path / "segments", ROWS, limits=[limits_at(TIMES[0])], edit=edit)
    with pytest.raises(ba.DecodeError, match=f"'{year}-01-01 00:00:00.00' is not a moment in UTC"):
        ba.import_segments(tmp_path / "archive", tmp_path / "segments")
    assert not (tmp_path / "archive").exists()


def test_the_assets_of_the_newest_segment_are_the_archives(tmp_path):
    asset = ROWS[0].asset_id
    write_segments(tmp_path / "new", ROWS, assets={asset: ("NEW", 6)})
    old = make_segments(ROWS, assets={asset: ("OLD", 6), "fUSDC": ("fUSDC", 5)})
    folder, first = tmp_path / "archive", old[0].write(tmp_path / "old")
    ba.import_segments(folder, tmp_path / "new")
    ba.import_segments(folder, first, assets={"VOTE": 18})
    known = ba.Archive(folder).names().assets
    assert {known[asset].symbol, known["fUSDC"].symbol} == {"NEW", "fUSDC"}
    assert known["VOTE"].decimals == 18
