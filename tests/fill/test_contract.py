"""What holds of every fill, from whichever source: a node, or segments of the same history.

What is special to one source is tested beside it, and what commands print in `tests/cli`.
"""

import bisect
import inspect
import json
import shutil

import pytest

import balance_analysis as ba
from tests.archive.exporting import (
    DAY,
    HOUR,
    assert_holds,
    content_of,
    in_spans,
    lasting,
    node_of,
    reports,
    run_export,
    spans_of,
    spread_history,
    unchanged,
)
from tests.cli.running import moment, run
from tests.loopback import Fault
from tests.moments import to_microseconds
from tests.node.truth import lines_of_rows, lines_of_table, matching
from tests.segments.writer import flip, write_segments

START = to_microseconds("2023-04-30T18:00")
ROWS = spread_history(17, start=START, end=START + 36 * HOUR, rows=70, accounts=10)
TIMES = sorted({row.time for row in ROWS})
LAST = TIMES[-1]
END = LAST + 1
THIRD = START - START % DAY + 2 * DAY
"""Where the third and last day begins."""

GAPS = [(TIMES[3] + 1, TIMES[6]), (TIMES[9] + 1, TIMES[12])]
"""What an archive lacks between exports: two blocks each, which are a segment."""

MADE = {}
"""What archives of the whole history have in common, by partition: the first is the measure."""

AGAIN = {"end": END + HOUR, "overlap": "9d"}
"""Asks a node whose chain went on for all that an archive has."""

TOO_LONG = "1" + "0" * 39
SPOILT = [x._replace(balance=TOO_LONG) if x.time == LAST else x for x in ROWS]
"""The rows of the last block have a balance that no table holds."""


class Source:
    """A node, and segments of two blocks each, of one history.

    Parameters
    ----------
    broken
        From this time on the node refuses, and the segment is unreadable.
    chain
        The name of the network that wrote the segments.
    """

    def __init__(self, folder, rows=ROWS, *, broken=None, chain="one", head=END):
        self._folder, self._rows = folder / "segments", rows
        self._broken, self._chain = broken, chain
        self.node = node_of(rows, head=head, faults=self._refuse)

    def _refuse(self, _, request):
        begin = int(request.get("dateRange.startTimestamp", "0")) // 1000
        return Fault.status(400) if self._broken and begin >= self._broken - 1 else None

    def segments(self):
        """Write the segments, and return their paths."""
        paths = write_segments(self._folder, self._rows, each=2, quiet=TIMES, chain=self._chain)
        if self._broken:
            flip(paths[bisect.bisect_left(TIMES, self._broken) // 2])
        return paths


def exported(source, folder, **options):
    return run_export(source.node, folder, **options)


def imported(source, folder, **options):
    """Import segments, which have not all options."""
    known = {*options} & {*inspect.signature(ba.import_segments).parameters}
    options = {name: options[name] for name in known}
    return ba.import_segments(ba.Archive(folder), source.segments(), **options)


@pytest.fixture(scope="module", params=[exported, imported])
def fill(request):
    """One way to bring an archive up to date; it returns the run."""
    return request.param


@pytest.fixture(scope="module")
def filled(fill, tmp_path_factory):
    """The run of a fill of the whole history, and its archive; not to be changed."""
    folder = tmp_path_factory.mktemp("filled")
    options = {"start": START, "end": END}
    return fill(Source(folder), folder / "a", **options), folder / "a"


@pytest.fixture
def archive(filled, tmp_path):
    """A copy of that archive."""
    return shutil.copytree(filled[1], tmp_path / "a")


@pytest.fixture(scope="module")
def with_gaps(fill, tmp_path_factory):
    """An archive that lacks `GAPS`, of the same source; not to change."""
    folder = tmp_path_factory.mktemp("gaps")
    source, (first, second) = Source(folder), GAPS
    if fill is imported:
        paths = source.segments()
        ba.import_segments(ba.Archive(folder / "a"), [*paths[:2], *paths[3:5], *paths[6:]])
        return folder / "a"
    for start, end in ((second[1], END), (first[1], second[0]), (START, first[0])):
        run_export(source.node, folder / "a", start=start, end=end)
    return folder / "a"


def assert_whole(folder, partition="day"):
    """Check an archive against the history, and against the archives of other fills."""
    assert spans_of(folder) == [(START, END, True)]
    assert_holds(folder, ROWS)
    assert lasting(folder) == MADE.setdefault(partition, lasting(folder))
    assert ba.Archive(folder).verify().is_whole


@pytest.mark.parametrize(
    ("partition", "first"), [("month", "month=2023-04"), ("hour", "hour=2023-04-30T18")]
)
def test_each_period_has_one_file_under_its_name(fill, tmp_path, partition, first):
    folder = tmp_path / "a"
    fill(Source(tmp_path), folder, start=START, end=END, partition=partition)
    names = content_of(folder, "changes/")
    assert min(names) == f"changes/{first}/changes.parquet"
    assert all(name.count("/") == 2 for name in names)
    assert_whole(folder, partition)


def test_rows_and_coverage_are_true_and_the_report_matches(fill, filled):
    done, folder = filled
    assert_whole(folder)
    [report] = reports(folder)
    assert report == json.loads(done.to_json())
    assert report["kind"] == ("import" if fill is imported else "export")
    assert (report["outcome"], report["error"]) == ("complete", None)
    assert done.spans == done.committed == [(moment(START), moment(END))]
    assert (done.rows, done.conflicts, done.bad_rows) == (len(ROWS), 0, 0)
    assert done.coverage_end == moment(END)
    assert (done.requests > 0) is (fill is exported)


def test_gaps_stay_until_they_are_filled_and_nothing_else_is_asked_for(fill, with_gaps, tmp_path):
    folder, shares = shutil.copytree(with_gaps, tmp_path / "a"), []
    if fill is exported:
        assert fill(Source(tmp_path), folder, start=START, end=END).spans == []
        with pytest.raises(ba.IncompleteError, match="missing"):
            ba.Archive(folder).read()
    how = {"end": END, "fill_gaps": True, "progress": lambda *now: shares.append(now)}
    done = fill(Source(tmp_path), folder, **how)
    assert done.spans == [tuple(map(moment, gap)) for gap in GAPS]
    assert done.rows == len(in_spans(ROWS, [(*gap, False) for gap in GAPS]))
    assert_whole(folder)
    # Progress runs once from nothing to all.
    assert shares == sorted(shares)
    assert shares[0][0] > 0
    assert shares[-1] == (pytest.approx(1), done.rows)


def test_a_dry_run_changes_nothing_and_lists_the_spans_of_the_run(fill, with_gaps, tmp_path):
    options = {"start": START, "end": END, "fill_gaps": True, "dry_run": True}
    done = fill(Source(tmp_path), tmp_path / "none", **options)
    assert done.spans == [(moment(START), moment(END))]
    assert not (tmp_path / "none").exists()
    folder = shutil.copytree(with_gaps, tmp_path / "a")
    source = Source(tmp_path)
    with unchanged(folder):
        done = fill(source, folder, **options)
    assert len(source.node.requests) < 10
    assert done.spans == [tuple(map(moment, gap)) for gap in GAPS]
    assert reports(folder) == reports(with_gaps)


def test_bad_rows_are_set_aside_and_the_rest_is_kept(fill, tmp_path):
    folder = tmp_path / "a"
    done = fill(Source(tmp_path, SPOILT), folder, start=START, end=END)
    good = [row for row in ROWS if row.time != LAST]
    assert (done.rows, done.bad_rows) == (len(good), len(ROWS) - len(good))
    [(name, kept)] = content_of(folder, "_quarantine/").items()
    assert name == f"_quarantine/{done.id}.jsonl"
    lines = [json.loads(line) for line in kept.splitlines()]
    said = [(TOO_LONG in x["row"], "of at most 38 digits" in x["reason"]) for x in lines]
    assert said == [(True, True)] * done.bad_rows
    assert lines_of_table(ba.Archive(folder).read()) == lines_of_rows(good)


def test_a_different_row_is_a_conflict_and_the_newer_one_is_kept(fill, archive, tmp_path):
    if fill is imported:  # which leaves out the blocks of other segments that an archive has
        archive = tmp_path / "of a node"
        run_export(node_of(ROWS, head=END), archive, start=START, end=END)
    changed, gone = ROWS[-1], ROWS[30]
    others = {row.account for row in matching(ROWS, start=LAST)}
    late = next(row for row in ROWS if row.account not in others)
    came = [row for row in ROWS[:-1] if row is not gone]
    came += [changed._replace(balance=changed.balance + 1)]
    came += [late._replace(time=changed.time)]
    came.sort(key=lambda row: row.order)
    done = fill(Source(tmp_path, came, head=END + HOUR), archive, **AGAIN)
    assert (done.rows, done.conflicts) == (1, 2)
    held = sorted([*came, gone], key=lambda row: row.order)
    assert_holds(archive, held, whole=(START, END))
    before = [
        (*map(row.get, ba.ACCOUNT_KEY), to_microseconds(row["timestamp"]), int(row["balance"]))
        for row in done.conflicting_rows
    ]
    assert sorted(before) == sorted(lines_of_rows([gone, changed]))


def test_another_network_is_refused_and_the_archive_unchanged(fill, archive, tmp_path):
    others = [row._replace(time=row.time + 1) for row in ROWS]
    before = lasting(archive)
    source = Source(tmp_path, others, chain="two", head=END + HOUR)
    with pytest.raises(ba.NetworkMismatchError):
        fill(source, archive, **AGAIN)
    assert lasting(archive) == before


def test_an_archive_is_bound_to_its_query(fill, archive, tmp_path):
    kinds = ["ACCOUNT_TYPE_GENERAL", "ACCOUNT_TYPE_MARGIN"]
    parties = sorted({row.party_id for row in ROWS if row.account_type in kinds})[1:]
    some, own = tmp_path / "some", {"account_types": kinds, "party_ids": parties}
    fill(Source(tmp_path), some, start=START, end=END, **own)
    expected = lines_of_rows(matching(ROWS, **own))
    assert lines_of_table(ba.Archive(some).read()) == expected != []
    words = {"account_types": ["margin", "GENERAL", "margin"], "party_ids": parties[::-1]}
    assert fill(Source(tmp_path), some, end=END, **words).outcome == "nothing new"
    for folder, other in (
        (some, {}),
        (archive, own),
        (archive, {"party_ids": [ROWS[0].party_id]}),
        (archive, {"asset_id": ROWS[0].asset_id}),
        (archive, {"partition": "hour"}),
    ):
        source = Source(tmp_path)
        with unchanged(folder), pytest.raises(ba.ArchiveError, match="bound to another query"):
            fill(source, folder, end=END, **other)
        assert source.node.requests == []


WRONG = {
    "partition": "week",
    "on_bad_rows": "eat",
    "account_types": ["odd"],
    "asset_id": "",
    "party_ids": ["ab"],
    "assets": "none.toml",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_refused_before_anything_is_asked_or_written(fill, tmp_path, name):
    source = Source(tmp_path)
    with pytest.raises((ValueError, FileNotFoundError), match=r"week|eat|odd|asset|'ab'|none"):
        fill(source, tmp_path / "a", **{name: WRONG[name]})
    assert not (tmp_path / "a").exists()
    assert source.node.requests == []


@pytest.mark.parametrize("is_bad", [True, False], ids=["a bad row", "the source"])
def test_a_run_that_fails_midway_keeps_earlier_rows_and_the_next_run_continues(
    fill, tmp_path, is_bad
):
    folder, last = tmp_path / "a", LAST if is_bad else THIRD
    source = Source(tmp_path, SPOILT) if is_bad else Source(tmp_path, broken=THIRD)
    options = {"start": START, "end": END, "page_size": 5, "on_bad_rows": "raise"}
    with pytest.raises((ba.RequestError, ba.DecodeError)):
        fill(source, folder, **options)
    [report] = reports(folder)
    assert report["outcome"] == "partial"
    start, end, _ = spans_of(folder)[0]
    assert START == start < end <= last
    assert_holds(folder, ROWS)
    done = fill(Source(tmp_path), folder, end=END)
    if fill is imported:
        assert moment(START) < done.spans[0][0] <= moment(end)
    assert_whole(folder)


def test_a_command_exits_with_the_code_of_its_result_and_a_message(tmp_path):
    folder, end = tmp_path / "a", END + HOUR
    changed = [*ROWS[:-1], ROWS[-1]._replace(balance=ROWS[-1].balance + 1)]
    others = [row._replace(time=row.time + 1) for row in ROWS]
    for source, code, said, *options in (
        (Source(tmp_path, broken=THIRD), 3, "Complete parts are committed"),
        (Source(tmp_path), 0, "new rows"),
        (Source(tmp_path, changed, head=end), 5, "1 conflict"),
        (Source(tmp_path, others, head=end), 76, "another network"),
        (Source(tmp_path), 2, "bound to another query", "--partition", "hour"),
        (Source(tmp_path), 2, "odd", "--account-type", "odd"),
    ):
        until = moment(source.node.block_timestamp // 1000)
        bounds = ["--since", moment(START), "--until", until, "--overlap", "9d", "--page-size", 5]
        with source.node as node:
            assert said in run("export", folder, node.url, *bounds, *options, code=code).stderr
