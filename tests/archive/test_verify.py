"""Verify names whatever is wrong with an archive, and repair brings back every byte."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import balance_analysis as ba
from balance_analysis.archive import verify as verifying
from balance_analysis.archive.commit import Writer
from balance_analysis.archive.datafile import encode_rows, read_footer
from balance_analysis.archive.lock import one_writer
from balance_analysis.ingest.repair import repair
from balance_analysis.schema import ARROW_SCHEMA, from_microseconds
from tests.archive.exporting import (
    DAY,
    END,
    HOUR,
    MONTH,
    START,
    content_of,
    edit_coverage,
    lasting,
    node_of,
    run_export,
    spans_of,
    spread_history,
    state_of,
    unchanged,
)
from tests.loopback.node import V71_LIMITS

ROWS = spread_history(5, rows=400, accounts=20)
FIRST, SECOND, THIRD = "2023-04-28", "2023-04-29", "2023-05-01"
CHECKPOINT = "checkpoints/2023-05-01.parquet"
COVERAGE = "_coverage.json"


@pytest.fixture(scope="module")
def node():
    with node_of(ROWS) as serving:
        yield serving


@pytest.fixture(scope="module")
def undisturbed(node, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "archive"
    run_export(node, folder, start=START, end=END)
    return folder


@pytest.fixture
def folder(undisturbed, tmp_path):
    shutil.copytree(undisturbed, tmp_path / "archive")
    return tmp_path / "archive"


def verify(folder, **options):
    return ba.Archive(folder).verify(**options)


def mend(node, folder, **options):
    with ba.Client(node.url) as client:
        return repair(client, ba.Archive(folder), **options)


def compare(node, folder, **options):
    with ba.Client(node.url) as client:
        return verify(folder, against=client, **options)


def name_of(period):
    return f"changes/date={period}/changes.parquet"


def rows_in(folder, name):
    return pq.read_table(folder / name).cast(ARROW_SCHEMA)


def put(folder, name, rows, **note):
    """Replace a file, and note it in the coverage as what it is now."""
    pq.write_table(rows, folder / name)
    data = (folder / name).read_bytes()
    found = {"rows": rows.num_rows, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    found["footer"] = hashlib.sha256(read_footer(pa.BufferReader(data))).hexdigest()

    def edit(content):
        named = {name_of(period): said for period, said in content["files"].items()}
        (named[CHECKPOINT],) = content["checkpoints"].values()
        named[name].update(found, **note)

    edit_coverage(folder, edit)


def text(moment):
    return from_microseconds(moment).isoformat(timespec="microseconds")


def moved(rows, moment):
    """Return the last row of some, at another time."""
    time = pa.array([moment], pa.int64()).cast(ARROW_SCHEMA.field("timestamp").type)
    return rows.slice(rows.num_rows - 1).set_column(4, ARROW_SCHEMA.field("timestamp"), [time])


def with_balance(rows, place, balance):
    balances = rows["balance"].to_pylist()
    balances[place] = balance
    column = pa.array(balances, ARROW_SCHEMA.field("balance").type)
    return rows.set_column(5, ARROW_SCHEMA.field("balance"), column)


def cast_column(rows, name, kind):
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, pa.field(name, kind, nullable=False), rows[name].cast(kind))


def flip_a_byte(folder):
    path = folder / name_of(SECOND)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(folder):
    path = folder / name_of(SECOND)
    path.write_bytes(path.read_bytes()[:-20])


def make_empty(folder):
    (folder / name_of(SECOND)).write_bytes(b"")


def delete(folder):
    (folder / name_of(SECOND)).unlink()


def swap(folder):
    one, other = folder / name_of(SECOND), folder / name_of(THIRD)
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def note_another(**note):
    return lambda folder: edit_coverage(folder, lambda c: c["files"][SECOND].update(note))


def add_a_row_outside_coverage(folder):
    rows, moment = rows_in(folder, name_of(FIRST)), START - HOUR
    content, _ = encode_rows(pa.concat_tables([rows, moved(rows, moment)]))
    put(folder, name_of(FIRST), pq.read_table(pa.BufferReader(content)), first=text(moment))


def add_a_row_of_another_day(folder):
    rows, moment = rows_in(folder, name_of(SECOND)), START + 40 * HOUR
    put(
        folder,
        name_of(SECOND),
        pa.concat_tables([rows, moved(rows, moment)]),
        last=text(moment),
    )


def repeat_the_last_row(folder):
    rows = rows_in(folder, name_of(SECOND))
    put(folder, name_of(SECOND), pa.concat_tables([rows, rows.slice(rows.num_rows - 1)]))


def repeat_the_first_row_at_the_end(folder):
    rows = rows_in(folder, name_of(SECOND))
    put(folder, name_of(SECOND), pa.concat_tables([rows, rows.slice(0, 1)]))


def turn_around(folder):
    rows = rows_in(folder, name_of(SECOND))
    put(folder, name_of(SECOND), rows.take(list(range(rows.num_rows))[::-1]))


def turn_an_account_around(folder):
    rows = rows_in(folder, name_of(SECOND))
    plain = rows.to_pylist()
    accounts = [[row[name] for name in ba.ACCOUNT_KEY] for row in plain]
    place = next(i for i, (one, other) in enumerate(pairwise(accounts)) if one == other)
    order = list(range(rows.num_rows))
    order[place : place + 2] = [place + 1, place]
    put(folder, name_of(SECOND), rows.take(order))


def make_balances_floats(folder):
    rows = rows_in(folder, name_of(SECOND))
    put(folder, name_of(SECOND), cast_column(rows, "balance", pa.float64()))


def make_nanoseconds(folder):
    rows = rows_in(folder, name_of(SECOND))
    put(folder, name_of(SECOND), cast_column(rows, "timestamp", pa.timestamp("ns", "UTC")))


def drop_a_column(folder):
    put(folder, name_of(SECOND), rows_in(folder, name_of(SECOND)).drop_columns(["market_id"]))


def drop_all_rows(folder):
    put(folder, name_of(SECOND), rows_in(folder, name_of(SECOND)).slice(0, 0))


FILES = [
    (flip_a_byte, "its SHA-256 is"),
    (truncate, "bytes, not"),
    (make_empty, "it has 0 bytes"),
    (delete, "is missing"),
    (swap, "is not what was written"),
    (note_another(sha256="0" * 64), "not 0000"),
    (note_another(size=1), "bytes, not 1$"),
    (note_another(rows=1), "rows, not 1$"),
    (note_another(first=text(START + 5 * HOUR)), "has rows from"),
    (note_another(last=text(START + 25 * HOUR)), "has rows from"),
    (add_a_row_outside_coverage, "^1 of its rows are outside of what is covered$"),
    (add_a_row_of_another_day, "1 of its rows are not of its period"),
    (repeat_the_last_row, "^1 of its rows repeat the account and timestamp of another$"),
    (repeat_the_first_row_at_the_end, "not in the order .*; 1 of its rows repeat"),
    (turn_around, "^its rows are not in the order party_id"),
    (turn_an_account_around, "^its rows are not in the order party_id"),
    (make_balances_floats, "column balance is double"),
    (make_nanoseconds, "column timestamp is timestamp.ns"),
    (drop_a_column, "has the columns asset_id, account_type, party_id, timestamp"),
    (drop_all_rows, "has 0 rows"),
]


def damage_checkpoint(folder):
    path = folder / CHECKPOINT
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def delete_checkpoint(folder):
    (folder / CHECKPOINT).unlink()


def change_a_balance_of_the_checkpoint(folder):
    put(folder, CHECKPOINT, with_balance(rows_in(folder, CHECKPOINT), 3, 12345))


def drop_an_account_from_the_checkpoint(folder):
    rows = rows_in(folder, CHECKPOINT)
    put(folder, CHECKPOINT, rows.slice(0, rows.num_rows - 1))


def make_balances_of_the_checkpoint_floats(folder):
    rows = rows_in(folder, CHECKPOINT)
    put(folder, CHECKPOINT, cast_column(rows, "balance", pa.float64()))


CHECKPOINTS = [
    (damage_checkpoint, "is not what was written"),
    (delete_checkpoint, "is missing"),
    (change_a_balance_of_the_checkpoint, "it has 12345, not [0-9]+ of asset_id"),
    (drop_an_account_from_the_checkpoint, "it has [0-9]+ balances, not"),
    (make_balances_of_the_checkpoint_floats, "column balance is double"),
]


def split_coverage(content, *bounds):
    (whole,) = content["intervals"]
    content["intervals"] = [
        {**whole, "start": text(start), "end": text(end)} for start, end in bounds
    ]


def edit_intervals(*bounds):
    return lambda folder: edit_coverage(folder, lambda content: split_coverage(content, *bounds))


def turn_files_around(folder):
    edit_coverage(folder, lambda c: c.update(files=dict(reversed(c["files"].items()))))


MIDDLE = START + 30 * HOUR
COVERAGES = [
    (edit_intervals((START, MIDDLE), (MIDDLE - HOUR, END)), "overlaps"),
    (edit_intervals((MIDDLE, END), (START, MIDDLE)), "stands before"),
    (edit_intervals((START, END), (END, END)), "ends before it begins"),
    (turn_files_around, "out of time order"),
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


@pytest.mark.parametrize("partition", ["month", "hour"])
def test_archives_of_other_periods_are_whole(node, tmp_path, partition):
    run_export(node, tmp_path / "x", start=START, partition=partition)
    report = verify(tmp_path / "x")
    assert (report.problems, report.rows, report.checkpoints) == ((), len(ROWS), 1)


def test_a_file_of_several_row_groups_is_whole(folder):
    name = name_of(SECOND)
    rows = rows_in(folder, name)
    pq.write_table(rows, folder / name, row_group_size=3)
    data = (folder / name).read_bytes()
    note_another(size=len(data), sha256=hashlib.sha256(data).hexdigest())(folder)
    assert pq.read_metadata(folder / name).num_row_groups > 5
    assert verify(folder).problems == ()


@pytest.mark.parametrize("place", [2, 3, 4])
def test_a_row_that_repeats_across_row_groups_is_named(folder, place):
    name = name_of(SECOND)
    rows = rows_in(folder, name)
    doubled = pa.concat_tables([rows.slice(0, place), rows.slice(place - 1)])
    pq.write_table(doubled, folder / name, row_group_size=3)
    data = (folder / name).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    note_another(size=len(data), sha256=digest, rows=doubled.num_rows)(folder)
    (problem,) = verify(folder).problems
    assert problem.what == "1 of its rows repeat the account and timestamp of another"


@pytest.mark.parametrize(("damage", "said"), FILES)
def test_a_wrong_file_is_named_and_mended(node, undisturbed, folder, damage, said):
    damage(folder)
    problems = [p for p in verify(folder).problems if p.kind != "checkpoint"]
    names = {problem.where for problem in problems}
    assert {problem.kind for problem in problems} == {"rows"}
    assert names <= {name_of(FIRST), name_of(SECOND), name_of(THIRD)}
    assert len(names) == (2 if damage is swap else 1)
    assert problems[0].mend.endswith(f"{folder} --repair")
    assert all(re.search(said, problem.what) for problem in problems)
    done = mend(node, folder)
    assert done.left.is_whole
    assert tuple(sorted(names)) == tuple(map(name_of, done.periods))
    assert lasting(folder) == lasting(undisturbed)


@pytest.mark.parametrize("damage", [flip_a_byte, truncate, make_empty, delete, swap])
def test_a_file_that_comes_back_as_it_was_changes_nothing_else(node, undisturbed, folder, damage):
    damage(folder)
    assert mend(node, folder).changed == ()
    assert content_of(folder) == content_of(undisturbed)


@pytest.mark.parametrize(("damage", "said"), CHECKPOINTS)
def test_a_wrong_checkpoint_is_named_and_made_anew(node, undisturbed, folder, damage, said):
    damage(folder)
    (problem,) = verify(folder).problems
    assert (problem.kind, problem.where) == ("checkpoint", CHECKPOINT)
    assert problem.mend.endswith(" --repair")
    assert re.search(said, problem.what)
    before = len(node.requests)
    assert mend(node, folder).left.is_whole
    assert len(node.requests) == before
    assert lasting(folder) == lasting(undisturbed)


@pytest.mark.parametrize("damage", [damage_checkpoint, change_a_balance_of_the_checkpoint])
def test_a_damaged_checkpoint_is_not_built_upon(tmp_path, damage):
    end = START + 40 * DAY
    with node_of(spread_history(5, rows=60, end=end), head=end) as node:
        run_export(node, tmp_path / "x", start=START, end=END)
        noted = (tmp_path / "x" / COVERAGE).read_bytes()
        damage(tmp_path / "x")
        (tmp_path / "x" / COVERAGE).write_bytes(noted)
        run_export(node, tmp_path / "x")
        run_export(node, tmp_path / "y", start=START)
    later = "checkpoints/2023-06-01.parquet"
    assert (tmp_path / "x" / later).read_bytes() == (tmp_path / "y" / later).read_bytes()


def test_a_damaged_file_and_a_wrong_checkpoint_are_mended_together(node, undisturbed, folder):
    flip_a_byte(folder)
    change_a_balance_of_the_checkpoint(folder)
    assert {p.kind for p in verify(folder).problems} == {"rows"}
    assert mend(node, folder).left.is_whole
    assert lasting(folder) == lasting(undisturbed)


def test_a_balance_changed_before_the_checkpoint_is_found_by_it(folder):
    name = name_of("2023-04-30")
    rows = rows_in(folder, name)
    put(folder, name, with_balance(rows, rows.num_rows - 1, 7))
    (problem,) = verify(folder).problems
    assert problem.where == CHECKPOINT


@pytest.mark.parametrize(("damage", "said"), COVERAGES)
def test_a_coverage_that_contradicts_itself_is_named_and_mended(
    node, undisturbed, folder, damage, said
):
    damage(folder)
    problem = verify(folder).problems[0]
    assert (problem.kind, problem.where) == ("coverage", COVERAGE)
    assert re.search(said, problem.what)
    assert mend(node, folder).left.is_whole
    assert lasting(folder) == lasting(undisturbed)


def test_a_doubtful_coverage_is_asked_for_again(node, folder):
    edit_intervals((START, MIDDLE), (MIDDLE - HOUR, END))(folder)
    edit_coverage(folder, lambda content: content["intervals"][0].update(asked_at="2020-01-01"))
    before = len(node.requests)
    done = mend(node, folder)
    assert len(done.periods) == 6
    assert len(node.requests) >= before + 6
    assert done.changed == ()


def test_a_doubtful_coverage_is_unproven_until_it_was_asked_for_again(folder):
    edit_intervals((START, MIDDLE), (MIDDLE - HOUR, END))(folder)

    def spoil(page, request):
        return page if request.params["pagination.first"] == ["1"] else {}

    with node_of(ROWS, edit_page=spoil) as node, pytest.raises(ba.DecodeError):
        mend(node, folder)
    assert [proven for *_, proven in spans_of(folder)] == [False]


def test_of_a_doubtful_coverage_what_the_node_forgets_as_it_answers_stays_unproven(tmp_path):
    forgotten = START + 16 * HOUR

    def prune(page, request):
        if request.params["pagination.first"] != ["1"]:
            node.replace([row for row in ROWS if row.timestamp_ns >= forgotten * 1000])
        return page

    with node_of(ROWS) as node:
        run_export(node, tmp_path / "x", start=START, end=MONTH, partition="month")
        edit_intervals((START, MIDDLE), (MIDDLE - HOUR, MONTH))(tmp_path / "x")
        node.edit_page = prune
        assert mend(node, tmp_path / "x").changed == ()
    (first, *rest) = spans_of(tmp_path / "x")
    assert (first[0], first[2]) == (START, False)
    assert first[1] >= forgotten
    assert [proven for *_, proven in rest] == [True]


def test_what_one_of_two_overlapping_intervals_has_unproven_stays_so(node, folder):
    edit_intervals((START, MIDDLE), (MIDDLE - HOUR, END))(folder)
    edit_coverage(folder, lambda content: content["intervals"][1].update(proven=False))
    assert mend(node, folder).left.is_whole
    edge = MIDDLE - HOUR
    assert spans_of(folder) == [(START, edge, True), (edge, END, False)]


def test_rows_of_time_that_is_not_covered_are_told_with_the_way_to_cover_it(node, folder):
    until = START + 4 * HOUR
    edit_intervals((START, until), (until + DAY, END))(folder)
    (problem,) = (p for p in verify(folder).problems if p.kind == "rows")
    assert problem.where == name_of(SECOND)
    assert "are outside of what is covered" in problem.what
    assert problem.mend.endswith("--fill-gaps")
    assert not mend(node, folder).left.is_whole
    run_export(node, folder, fill_gaps=True)
    assert verify(folder).is_whole


@pytest.mark.parametrize("content", ["", "{}", '{"version": 1}', "\udcff", "[]"])
def test_a_coverage_that_cannot_be_read_is_named(folder, content):
    (folder / COVERAGE).write_bytes(content.encode(errors="surrogateescape"))
    (problem,) = verify(folder).problems
    assert (problem.kind, problem.where) == ("coverage", COVERAGE)
    assert "put back a copy" in problem.mend


def test_a_coverage_that_is_gone_is_named(folder):
    (folder / COVERAGE).unlink()
    (problem,) = verify(folder).problems
    assert "has lost its _coverage.json" in problem.what


def test_a_file_of_no_period_is_named(folder):
    edit_coverage(folder, lambda c: c["files"].update({"2023-13-01": c["files"][SECOND]}))
    problem = verify(folder).problems[0]
    assert "names a period '2023-13-01', which is none" in problem.what


# A node that says itself what it lacks


def lacking(folder, rows, start, end):
    """Return a node without some rows, which says so."""
    there = [row for row in rows if not start <= row.timestamp_ns // 1000 < end]
    return node_of(there, extra_headers={"X-Incomplete": f"{start * 1000}-{end * 1000}"})


@pytest.mark.parametrize("harm", [None, flip_a_byte, truncate])
def test_a_node_that_may_lack_rows_repairs_nothing_of_what_is_proven(folder, harm):
    start = START + 10 * HOUR  # in the second file
    with lacking(folder, ROWS, start, start + 6 * HOUR) as node:
        if harm is not None:
            harm(folder)
        bounds = {} if harm else {"start": text(start), "end": text(start + HOUR)}
        with unchanged(folder), pytest.raises(ba.ArchiveError, match="says itself that it may"):
            mend(node, folder, **bounds)


def test_windows_of_which_a_node_may_lack_rows_are_not_compared(folder):
    headers = {"X-Incomplete": f"{START * 1000}-{END * 1000}"}
    changed = [replace(row, balance=row.balance + 1) for row in ROWS]
    with node_of(changed, extra_headers=headers) as node:
        report = compare(node, folder, sample=5)
    assert report.is_whole
    assert report.windows == 0
    assert all("may lack rows" in why for why in report.not_compared)


@pytest.mark.parametrize("harm", [lambda path: path.unlink(), lambda path: path.write_bytes(b"{")])
def test_a_lost_description_is_named_with_the_way_back(node, undisturbed, folder, harm):
    about = folder / "_archive.json"
    harm(about)
    for use in (lambda: verify(folder), lambda: run_export(node, folder, start=START)):
        with pytest.raises(ba.ArchiveDamagedError, match="into an empty folder makes one that is"):
            use()
    about.write_bytes((undisturbed / "_archive.json").read_bytes())
    assert verify(folder).is_whole


def test_a_proof_tells_of_gaps_too(node, tmp_path):
    run_export(node, tmp_path / "a", start=MONTH, end=END)
    run_export(node, tmp_path / "a", start=START - DAY, end=START + HOUR)
    said = str(verify(tmp_path / "a"))
    assert "whole" in said
    assert "its coverage has 1 gap and 1 unproven part: `status` tells which" in said


# A coverage that is lost


@pytest.mark.parametrize("content", [None, b"", b'{"version": 1, "inter', b"\x00" * 100])
def test_a_lost_coverage_is_rebuilt_from_the_files_and_proven_by_a_node(
    node, undisturbed, folder, content
):
    coverage = folder / COVERAGE
    coverage.unlink() if content is None else coverage.write_bytes(content)
    assert "export --repair" in verify(folder).problems[0].mend

    done = mend(node, folder)
    assert done.is_rebuilt
    assert done.left.is_whole
    assert not any(proven for _, _, proven in spans_of(folder))
    assert content_of(folder, "changes/", "checkpoints/", "limits") == content_of(
        undisturbed, "changes/", "checkpoints/", "limits"
    )
    with pytest.raises(ba.IncompleteError, match="nothing is known to be complete"):
        ba.Archive(folder).read()
    assert len(ba.Archive(folder).read(partial=True)) == len(ROWS)
    kept = folder / "_quarantine" / COVERAGE
    assert (kept.read_bytes() if kept.exists() else None) == content

    run_export(node, folder, start=START, end=END, fill_gaps=True)
    assert lasting(folder) == lasting(undisturbed)


def test_a_coverage_is_rebuilt_even_where_no_node_answers(folder):
    (folder / COVERAGE).unlink()
    (folder / name_of(SECOND)).unlink()
    with ba.Client("http://127.0.0.1:9") as client:
        done = repair(client, ba.Archive(folder))
    assert done.is_rebuilt
    assert SECOND not in state_of(folder).files
    assert "gap" in set(ba.Archive(folder).coverage()["state"])


@pytest.mark.parametrize("harm", [flip_a_byte, truncate])
def test_a_rebuilt_coverage_names_no_damaged_file(node, undisturbed, folder, harm, caplog):
    harm(folder)
    (folder / COVERAGE).unlink()
    done = mend(node, folder)
    assert f"{name_of(SECOND)} is left out" in caplog.text
    assert SECOND not in state_of(folder).files
    assert {problem.where for problem in done.left.problems} == {name_of(SECOND), CHECKPOINT}
    run_export(node, folder, start=START, end=END, fill_gaps=True)
    assert lasting(folder) == lasting(undisturbed)


def test_a_rebuilt_archive_of_months_begins_and_ends_with_its_rows(node, tmp_path):
    run_export(node, tmp_path / "a", start=START, partition="month")
    (tmp_path / "a" / COVERAGE).unlink()
    assert mend(node, tmp_path / "a").left.is_whole
    times = [row.timestamp_ns // 1000 for row in ROWS]
    assert spans_of(tmp_path / "a") == [(min(times), max(times) + 1, False)]


# Limits that are lost


@pytest.mark.parametrize("content", [None, b"PAR1"])
def test_lost_limits_are_named_and_made_anew_from_the_reports(tmp_path, content):
    folder, limits = tmp_path / "a", tmp_path / "a" / "limits.parquet"
    with node_of(ROWS) as node:
        run_export(node, folder, start=START, end=START + DAY)
        node.limits = {**V71_LIMITS, "canProposeAsset": not V71_LIMITS["canProposeAsset"]}
        run_export(node, folder, end=START + 2 * DAY)
        run_export(node, folder, end=END)
        before = limits.read_bytes()
        limits.unlink() if content is None else limits.write_bytes(content)
        (problem,) = verify(folder).problems
        assert (problem.kind, problem.where) == ("limits", "limits.parquet")
        assert mend(node, folder).left.is_whole
    assert limits.read_bytes() == before
    assert len(ba.Archive(folder).limits()) == 2


def test_a_file_that_the_coverage_has_lost_is_no_stranger(node, undisturbed, folder):
    edit_coverage(folder, lambda content: content["files"].pop(SECOND))
    problem = verify(folder).problems[-1]
    assert (problem.kind, problem.where) == ("rows", name_of(SECOND))
    assert problem.periods == (SECOND,)
    assert mend(node, folder).left.is_whole
    assert lasting(folder) == lasting(undisturbed)


def test_a_damaged_file_whose_time_is_not_covered_can_only_be_put_back(node, folder):
    edit_intervals((START, START + 4 * HOUR), (START + 28 * HOUR, END))(folder)
    truncate(folder)
    (problem,) = (p for p in verify(folder).problems if p.kind == "rows")
    assert problem.mend.startswith("put back a copy")
    assert mend(node, folder).left.problems


def test_what_is_no_archive_is_refused(node, tmp_path):
    with pytest.raises(ba.ArchiveError, match="is no archive"):
        verify(tmp_path)
    with pytest.raises(ba.ArchiveError, match="is no archive"):
        mend(node, tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


STRANGERS = [
    "notes.txt",
    "changes/date=2023-04-29/part-0.parquet",
    "changes/date=2022-01-01/changes.parquet",
    "checkpoints/2022-01-01.parquet",
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


@pytest.mark.parametrize("name", ["_coverage.json", name_of(SECOND)])
def test_what_an_interrupted_write_left_is_told_as_such_and_swept_up(node, folder, name):
    head, _, tail = name.rpartition("/")
    leftover = f"{head}/.{tail}.0123abcd.tmp".lstrip("/")
    (folder / leftover).write_text("half")
    (problem,) = verify(folder).problems
    assert (problem.kind, problem.where) == ("leftover", leftover)
    assert mend(node, folder).left.is_whole
    assert not (folder / leftover).exists()


def test_a_checkpoint_that_the_coverage_does_not_name_yet_is_a_leftover(undisturbed, node, folder):
    edit_coverage(folder, lambda content: content.update(checkpoints={}))
    (problem,) = verify(folder).problems
    assert (problem.kind, problem.where) == ("leftover", CHECKPOINT)
    assert mend(node, folder).left.is_whole
    assert lasting(folder) == lasting(undisturbed)


def interrupt(folder, *, is_replaced):
    """Leave what a run leaves that is killed before or after it replaces a file."""
    store = ba.Archive(folder).store
    writer = Writer(store)
    rows = rows_in(folder, name_of(SECOND))
    content, note = encode_rows(rows.slice(1))
    writer.amend(writer.state.announce(SECOND, note, writer.state.intervals[:1]))
    if is_replaced:
        store.write(name_of(SECOND), content)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_run_that_was_cut_off_is_told_and_its_file_is_no_problem(folder, is_replaced):
    interrupt(folder, is_replaced=is_replaced)
    problems = [p for p in verify(folder).problems if p.kind != "checkpoint"]
    assert [p.kind for p in problems] == ["interrupted"]
    assert name_of(SECOND) in problems[0].what


def test_damaged_limits_are_named(folder):
    (folder / "limits.parquet").write_bytes(b"PAR1")
    (problem,) = verify(folder).problems
    assert (problem.kind, problem.where) == ("limits", "limits.parquet")


def test_a_report_is_told_as_text_and_as_json(folder):
    said = str(verify(folder))
    assert said.startswith(f"{folder}: whole (")
    truncate(folder)
    report = verify(folder)
    lines = str(report).splitlines()
    assert lines[0].startswith(f"{folder}: 1 problem (")
    assert lines[1].startswith(name_of(SECOND))
    assert lines[2].strip() == f"balance-analysis export URL {folder} --repair"
    content = json.loads(report.to_json())
    assert content["is_whole"] is False
    assert content["problems"][0]["periods"] == [SECOND]


def test_an_archive_that_is_written_to_meanwhile_is_looked_at_again(node, folder, monkeypatch):
    look, times = verifying.wrong_bytes, []

    def run_meanwhile(store, name, note):
        if not times:
            edit_coverage(folder, lambda c: c["intervals"][0].update(asked_at="2020-01-01"))
        times.append(name)
        return "is not what it was" if len(times) == 1 else look(store, name, note)

    monkeypatch.setattr(verifying, "wrong_bytes", run_meanwhile)
    assert verify(folder).is_whole
    assert len(times) > len(state_of(folder).files) + 1


def test_a_node_of_the_same_rows_agrees_with_the_archive(node, folder):
    report = compare(node, folder, sample=20, seed=1)
    assert (report.problems, report.windows, report.not_compared) == ((), 20, ())


def test_what_ends_with_the_last_block_of_a_stopped_node_is_compared_and_mended(tmp_path):
    folder, last = tmp_path / "x", max(row.timestamp_ns for row in ROWS) // 1000
    with node_of(ROWS, head=last) as stopped:
        run_export(stopped, folder, start=START)
        before = lasting(folder)
        assert spans_of(folder) == [(START, last + 1, True)]
        assert compare(stopped, folder, sample=20, seed=1).not_compared == ()
        (folder / name_of("2023-05-03")).unlink()
        assert mend(stopped, folder).left.is_whole
    assert lasting(folder) == before


def test_the_same_seed_asks_for_the_same_windows(node, folder):
    asked = []
    for seed in (1, 1, 2):
        before = len(node.requests)
        compare(node, folder, sample=5, seed=seed)
        asked.append([request.params for request in node.requests[before:]])
    assert asked[0] == asked[1] != asked[2]


def changed_node(change):
    """Return a node whose rows of the second day are changed, one by one; `None` drops one."""
    day = range(START + 4 * HOUR, START + 28 * HOUR)
    rows = [change(row) if row.timestamp_ns // 1000 in day else row for row in ROWS]
    return node_of([row for row in rows if row is not None])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda row: replace(row, balance=77), "the node 77 of asset_id"),
        (lambda _: None, "the node no row of asset_id"),
    ],
)
def test_a_difference_from_a_node_is_a_problem_with_its_window_and_rows(folder, change, said):
    with changed_node(change) as node:
        report = compare(node, folder, sample=20, seed=1)
    assert report.problems
    problem = report.problems[0]
    assert problem.kind == "difference"
    assert problem.where.startswith("[2023-04-29")
    assert problem.periods == (SECOND,)
    assert said in problem.what
    assert "the archive has" in problem.what
    assert "--repair --since 2023-04-29" in problem.mend


def test_a_period_that_differs_is_replaced_where_it_is_asked_for(folder, tmp_path):
    with changed_node(lambda row: replace(row, balance=77)) as node:
        done = mend(node, folder, start="2023-04-29", end="2023-04-30")
        assert (done.periods, done.changed) == ((SECOND,), (SECOND,))
        assert compare(node, folder, sample=20, seed=1).is_whole
        run_export(node, tmp_path / "anew", start=START, end=END)
    assert lasting(folder) == lasting(tmp_path / "anew")


def test_a_damaged_file_is_a_difference_that_names_it(node, folder):
    truncate(folder)
    report = compare(node, folder, sample=20, seed=1)
    kinds = [problem.kind for problem in report.problems]
    assert set(kinds) == {"rows", "difference"}
    assert name_of(SECOND) in report.problems[-1].what


def pruned():
    return node_of([row for row in ROWS if row.timestamp_ns >= (START + DAY) * 1000])


def test_what_a_node_has_forgotten_could_not_be_compared(folder):
    with pruned() as node:
        report = compare(node, folder, sample=20, seed=1)
    assert report.problems == ()
    assert report.windows == 20
    (said,) = report.not_compared
    assert said.startswith("[2023-04-28T20:00:00+00:00, 2023-04-29")
    assert said.endswith("the node has forgotten rows of it")


def test_a_node_that_has_forgotten_everything_proves_nothing(folder):
    with node_of([]) as node:
        report = compare(node, folder, seed=1)
    assert (report.problems, report.windows, len(report.not_compared)) == ((), 0, 1)


def test_what_a_node_does_not_hold_yet_could_not_be_compared(folder):
    held = [row for row in ROWS if row.timestamp_ns < MONTH * 1000]
    with node_of(held, head=MONTH) as node:
        report = compare(node, folder, sample=20, seed=1)
    assert report.problems == ()
    assert 0 < report.windows < 20
    assert all("doesn't hold all of it yet" in said for said in report.not_compared)


def prunes_meanwhile(node, moment):
    """Let a node forget what was before a moment when it is asked for more than its oldest row."""

    def prune(_, request):
        if request.params.get("pagination.first", ["1"]) != ["1"]:
            node.replace([row for row in ROWS if row.timestamp_ns >= moment * 1000])

    node.faults = prune
    return node


def test_what_a_node_forgets_meanwhile_is_no_difference(folder):
    with node_of(ROWS) as node:
        report = compare(prunes_meanwhile(node, MONTH), folder, sample=20, seed=1)
    assert report.problems == ()
    assert 0 < report.windows < 20
    assert len(report.not_compared) == 20 - report.windows


def test_what_a_node_forgets_meanwhile_is_not_repaired(folder):
    truncate(folder)
    with (
        node_of(ROWS) as node,
        unchanged(folder),
        pytest.raises(ba.ArchiveError, match="2023-04-29 can't be asked for again"),
    ):
        mend(prunes_meanwhile(node, START + 16 * HOUR), folder)


@pytest.mark.parametrize("seed", range(3))
def test_rows_are_compared_though_most_of_the_time_is_quiet(tmp_path, seed):
    rows = spread_history(5, rows=200, accounts=20, end=START + 3 * HOUR)
    with node_of(rows, head=START + 100 * DAY) as node:
        run_export(node, tmp_path / "x", start=START)
        node.edit_row = lambda row: {**row, "balance": "77"}
        assert compare(node, tmp_path / "x", sample=2, seed=seed).problems


def test_nothing_is_compared_of_an_archive_of_nothing(tmp_path):
    with node_of([]) as node:
        run_export(node, tmp_path / "x", start=START)
        report = compare(node, tmp_path / "x")
    assert report.not_compared == ("nothing is known to be complete",)


def test_an_archive_of_some_accounts_is_compared_and_mended_with_its_filters(node, tmp_path):
    party = max((row.party_id for row in ROWS), key=[row.party_id for row in ROWS].count)
    run_export(node, tmp_path / "x", start=START, party_ids=party)
    shutil.copytree(tmp_path / "x", tmp_path / "y")
    assert compare(node, tmp_path / "x", sample=10, seed=1).is_whole
    truncate(tmp_path / "x")
    assert mend(node, tmp_path / "x").left.is_whole
    assert content_of(tmp_path / "x") == content_of(tmp_path / "y")


def test_a_repair_of_a_whole_archive_asks_for_nothing_and_changes_nothing(node, folder):
    before = len(node.requests)
    with unchanged(folder):
        done = mend(node, folder)
    assert (done.periods, done.left.is_whole) == ((), True)
    assert len(node.requests) == before


def test_what_the_node_has_forgotten_is_not_repaired(folder):
    truncate(folder)
    (folder / name_of(THIRD)).unlink()
    with (
        pruned() as node,
        unchanged(folder),
        pytest.raises(ba.ArchiveError, match="2023-04-29 can't be asked for again"),
    ):
        mend(node, folder)


def test_what_the_node_does_not_hold_yet_is_not_repaired(folder):
    (folder / name_of(THIRD)).unlink()
    held = [row for row in ROWS if row.timestamp_ns < (MONTH + 20 * HOUR) * 1000]
    with (
        node_of(held, head=MONTH + 20 * HOUR) as node,
        unchanged(folder),
        pytest.raises(ba.ArchiveError, match=r"2023-05-01 stays as it is.*doesn't hold all of it"),
    ):
        mend(node, folder)


@pytest.mark.parametrize("damage", [truncate, turn_around, drop_a_column])
def test_a_node_of_another_network_repairs_nothing(folder, damage):
    damage(folder)
    other = spread_history(6, rows=400, accounts=20)
    with (
        node_of(other) as node,
        unchanged(folder),
        pytest.raises(ba.ArchiveError, match="of another network"),
    ):
        mend(node, folder)


def test_the_only_file_is_repaired_by_a_node_that_sends_a_row_of_it(node, tmp_path):
    run_export(node, tmp_path / "x", start=START, end=MONTH, partition="month")
    before = lasting(tmp_path / "x")
    edit_coverage(tmp_path / "x", lambda c: c["files"]["2023-04"].update(sha256="0" * 64))
    shutil.copytree(tmp_path / "x", tmp_path / "y")
    assert mend(node, tmp_path / "x").changed == ("2023-04",)
    assert lasting(tmp_path / "x") == before
    with (
        node_of([replace(row, balance=77) for row in ROWS]) as other,
        unchanged(tmp_path / "y"),
        pytest.raises(ba.NetworkMismatchError, match="sends no row that the archive holds"),
    ):
        mend(other, tmp_path / "y")


def test_a_repair_reports_what_it_asked_for_and_put_in_place(node, folder):
    edit_intervals((START, START + 6 * HOUR), (START + 9 * HOUR, END))(folder)
    reports, before = [], len(node.requests)
    done = mend(node, folder, start="2023-04-29", end="2023-04-30", on_report=reports.append)
    day = START + 4 * HOUR
    asked = [(day, START + 6 * HOUR), (START + 9 * HOUR, day + DAY)]
    report = reports[-1]
    assert done.periods == (SECOND,)
    assert report.spans == report.committed == [[text(a), text(b)] for a, b in asked]
    assert (report.rows, report.conflicts, report.source) == (0, 0, node.url)
    assert report.block_height is not None
    assert report.requests == len(node.requests) - before


def test_a_node_that_has_lost_a_whole_day_repairs_nothing(folder):
    truncate(folder)
    with (
        changed_node(lambda _: None) as node,
        unchanged(folder),
        pytest.raises(ba.ArchiveError, match="sends none of its"),
    ):
        mend(node, folder)


def test_a_repair_does_not_run_beside_another_run(node, folder):
    with one_writer(ba.Archive(folder).store), pytest.raises(ba.ArchiveLockedError):
        mend(node, folder)


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


def test_unproven_intervals_stay_so_in_a_repair(tmp_path):
    early = START - 3 * HOUR
    with node_of(ROWS) as node:
        run_export(node, tmp_path / "x", start=early)
        shutil.copytree(tmp_path / "x", tmp_path / "y")
        (tmp_path / "x" / name_of(FIRST)).unlink()
        assert mend(node, tmp_path / "x").left.is_whole
    assert lasting(tmp_path / "x") == lasting(tmp_path / "y")
    assert not state_of(tmp_path / "x").intervals[0].proven


def test_intervals_of_a_mended_coverage_follow_each_other(node, folder):
    edit_intervals((START, MIDDLE), (MIDDLE - HOUR, END))(folder)
    mend(node, folder)
    intervals = state_of(folder).intervals
    assert all(before.end == after.start for before, after in pairwise(intervals))
    assert all(interval.proven for interval in intervals)
