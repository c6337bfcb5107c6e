"""What holds of every fill, whichever surface begins it: the library, or a command.

Rows come from a node or from segments of the same history. What is special to one surface is
tested beside it.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
from dataclasses import dataclass, field, replace

import pandas as pd
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
    run_export,
    spans_of,
    spread_history,
    unchanged,
)
from tests.cli.running import invoke, moment
from tests.loopback import Fault
from tests.moments import to_microseconds
from tests.node.truth import lines_of_rows, lines_of_table, matching
from tests.segments.writer import flip, make_segments, pg_time
from tests.waits import without_waits

START = to_microseconds("2023-04-30T18:00")
ROWS = spread_history(17, start=START, end=START + 36 * HOUR, rows=70, accounts=10)
TIMES = sorted({row.timestamp_ns // 1000 for row in ROWS})
LAST = TIMES[-1]
END = LAST + 1
THIRD = START - START % DAY + 2 * DAY
"""Where the third and last day begins."""

GAPS = [(TIMES[3] + 1, TIMES[6]), (TIMES[9] + 1, TIMES[12])]
"""What an archive lacks between exports: two blocks each, which are a segment."""

AGAIN = {"end": END + HOUR, "overlap": "9d"}
"""Asks a node whose chain went on for all that an archive has."""

OPTIONS = {
    "start": "--since",
    "end": "--until",
    "party_ids": "--party-id",
    "account_types": "--account-type",
}


class Source:
    """A node, and segments of two blocks each, of one history that may be damaged.

    Parameters
    ----------
    bad
        Rows at this time have a balance that no table holds.
    broken
        From this time on the node refuses, and a segment can't be read.
    chain
        The name of the network that wrote the segments.
    """

    def __init__(self, folder, rows=ROWS, *, bad=None, broken=None, chain="one", head=END):
        self._folder, self._rows, self._bad, self._broken = folder, rows, bad, broken
        self._chain = chain
        self.node = node_of(rows, head=head, edit_row=self._spoil, faults=self._refuse)

    def _spoil(self, row):
        is_bad = self._bad is not None and row["timestamp"] == str(self._bad * 1000)
        return {**row, "balance": "1" + "0" * 39} if is_bad else row

    def _refuse(self, _, request):
        begin = int(request.params.get("dateRange.startTimestamp", ["0"])[0]) // 1000
        return Fault.status(400) if self._broken and begin >= self._broken - 1 else None

    def segments(self):
        """Write the segments, and return where they are."""
        quiet = [time * 1000 for time in TIMES]
        for segment in make_segments(self._rows, each=2, quiet=quiet, chain=self._chain):
            balances = segment.tables["history/balances"]
            times = {row["vega_time"] for row in segment.tables["history/blocks"]}
            for row in balances:
                if self._bad is not None and row["vega_time"] == pg_time(self._bad * 1000):
                    row["balance"] = "1" + "0" * 39
            path = segment.write(self._folder)
            if self._broken and max(times) >= pg_time(self._broken * 1000):
                flip(path)
                break
        return self._folder


@dataclass
class Done:
    """How a fill ended; a command by a code, the library by an error.

    Attributes
    ----------
    before
        The rows that it held and that came otherwise or not again, as lines; of the library.
    reasons
        Why rows are bad; of the library.
    """

    spans: list
    rows: int = 0
    conflicts: int = 0
    bad_rows: int = 0
    before: list = field(default_factory=list)
    reasons: set = field(default_factory=set)
    code: int | None = None
    error: BaseException | None = None
    said: str = ""

    def ended(self, code):
        """Return whether a command ended with this code, and anything else without an error."""
        return self.error is None if self.code is None else self.code == code

    def failed(self, kind, code):
        """Return whether it failed so: a command by its code."""
        return isinstance(self.error, kind) if self.code is None else self.code == code


class Surface:
    """One way to fill an archive."""

    def __init__(self, name):
        self.imports, self.is_command = name.startswith("import"), name.endswith("command")

    def fill(self, source, folder, **options):
        """Bring an archive up to date; what segments have no word for is left out."""
        how = self._command if self.is_command else self._call
        if self.imports:
            own = {"party_ids", "account_types", "asset_id", "partition", "on_bad_rows"}
            kept = own | {"dry_run", "progress"}
            options = {name: value for name, value in options.items() if name in kept}
            return how(source, folder, source.segments(), options)
        with source.node as node:
            return how(source, folder, node.url, options)

    def _call(self, _, folder, where, options):
        kind = self._import if self.imports else run_export
        try:
            run = kind(where, folder, **options)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            return Done([], error=error)
        before = [
            (
                *(row[name] for name in ba.ACCOUNT_KEY),
                to_microseconds(row["timestamp"]),
                int(row["balance"]),
            )
            for row in run.conflicting_rows
        ]
        aside = folder / "_quarantine" / f"{run.id}.jsonl"
        lines = aside.read_text().splitlines() if run.bad_rows else []
        reasons = {json.loads(line)["reason"] for line in lines}
        return Done(run.spans, run.rows, run.conflicts, run.bad_rows, before, reasons)

    @staticmethod
    def _import(where, folder, **options):
        return ba.import_segments(ba.Archive(folder), where, **options)

    def _command(self, _, folder, where, options):
        begin = ("import", folder, where) if self.imports else ("export", folder, where)
        before = reports(folder)
        result = invoke([*begin, *arguments(options)])
        new = [report for name, report in reports(folder).items() if name not in before]
        done = Done(printed_spans(result.stdout), code=result.exit_code, said=result.stderr)
        for report in new:
            done.spans = [tuple(map(dt.datetime.fromisoformat, span)) for span in report["spans"]]
            done.rows, done.conflicts = report["rows"], report["conflicts"]
            done.bad_rows = report["bad_rows"]
        return done


def arguments(options):
    """Return options of `ba.export` as words of a command."""
    for name, value in options.items():
        option = OPTIONS.get(name, f"--{name.replace('_', '-')}")
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, bool):
                yield from [option] * each
            else:
                yield from (option, moment(each).isoformat() if name in ("start", "end") else each)


def printed_spans(text):
    """Return the intervals that a dry run prints, after its other lines."""
    _, header, table = text.partition("start  ")
    lines = table.splitlines()[1:] if header else []
    return [tuple(dt.datetime.fromisoformat(word) for word in line.split()) for line in lines]


def reports(folder):
    """Return the reports of an archive's runs, by name."""
    return {path.name: json.loads(path.read_text()) for path in folder.glob("_runs/*.json")}


NODES = ["export", "export command"]
SEGMENTS = ["import", "import command"]
of_nodes = pytest.mark.parametrize("surface", NODES, indirect=True)
of_calls = pytest.mark.parametrize(
    "surface", [name for name in NODES + SEGMENTS if "command" not in name], indirect=True
)


@pytest.fixture(autouse=True, scope="module")
def retries_without_waits():
    with without_waits():
        yield


@pytest.fixture(scope="module", params=NODES + SEGMENTS)
def surface(request):
    return Surface(request.param)


@pytest.fixture(scope="module")
def filled(surface, tmp_path_factory):
    """The whole history as a surface brings it: how it ended, and the archive; not to change."""
    folder = tmp_path_factory.mktemp("filled")
    options = {"start": START, "end": END}
    return surface.fill(Source(folder / "segments"), folder / "a", **options), folder / "a"


@pytest.fixture
def archive(filled, tmp_path):
    """A copy of that archive."""
    return shutil.copytree(filled[1], tmp_path / "a")


@pytest.fixture(scope="module")
def made():
    """What archives of the whole history have in common, by partition: the first is the measure."""
    return {}


@pytest.fixture(scope="module")
def with_gaps(surface, tmp_path_factory):
    """An archive that lacks `GAPS`, of the same source; not to change."""
    folder = tmp_path_factory.mktemp("gaps")
    source, (first, second) = Source(folder / "segments"), GAPS
    if surface.imports:
        paths = sorted(source.segments().iterdir(), key=lambda path: int(path.stem.split("-")[-1]))
        ba.import_segments(ba.Archive(folder / "a"), [*paths[:2], *paths[3:5], *paths[6:]])
        return folder / "a"
    with source.node as node:
        for start, end in ((second[1], END), (first[1], second[0]), (START, first[0])):
            run_export(node, folder / "a", start=start, end=end)
    return folder / "a"


def source_at(tmp_path, *given, **options):
    return Source(tmp_path / "segments", *given, **options)


def assert_whole(folder, made, partition="day"):
    """Check an archive against the history, and against what the other surfaces made of it."""
    assert spans_of(folder) == [(START, END, True)]
    assert_holds(folder, ROWS)
    assert lasting(folder) == made.setdefault(partition, lasting(folder))
    assert ba.Archive(folder).verify().is_whole


def test_rows_and_coverage_are_the_truth(filled, made):
    done, folder = filled
    assert done.ended(0), done
    assert (done.rows, done.conflicts, done.bad_rows) == (len(ROWS), 0, 0)
    assert_whole(folder, made)


@pytest.mark.parametrize(
    ("partition", "first"), [("month", "month=2023-04"), ("hour", "hour=2023-04-30T18")]
)
def test_each_period_has_one_file_under_its_name(surface, tmp_path, made, partition, first):
    folder = tmp_path / "a"
    done = surface.fill(source_at(tmp_path), folder, start=START, end=END, partition=partition)
    assert done.ended(0), done
    names = content_of(folder, "changes/")
    assert min(names) == f"changes/{first}/changes.parquet"
    assert all(name.count("/") == 2 for name in names)
    assert_whole(folder, made, partition)


def test_the_report_of_a_run_says_what_it_did(surface, filled):
    done, folder = filled
    [report] = reports(folder).values()
    assert report["kind"] == ("import" if surface.imports else "export")
    assert (report["outcome"], report["error"]) == ("complete", None)
    asked = [[pd.Timestamp(each) for each in span] for span in report["spans"]]
    assert asked == [[moment(START), moment(END)]] == [list(span) for span in done.spans]
    assert report["committed"] == report["spans"]
    assert (report["rows"], report["conflicts"], report["bad_rows"]) == (len(ROWS), 0, 0)
    assert pd.Timestamp(report["coverage_end"]) == moment(END)
    assert (report["requests"] > 0) is not surface.imports


def test_a_rerun_brings_nothing_new(surface, archive, tmp_path):
    source = source_at(tmp_path)
    before = lasting(archive)
    done = surface.fill(source, archive, end=END)
    assert done.ended(0), done
    assert (done.spans, done.rows) == ([], 0)
    assert lasting(archive) == before
    assert len(source.node.requests) <= 5
    assert max(reports(archive).items())[1]["outcome"] == "nothing new"


def test_gaps_stay_until_just_they_are_filled(surface, with_gaps, tmp_path, made):
    folder = shutil.copytree(with_gaps, tmp_path / "a")
    if not surface.imports:
        assert surface.fill(source_at(tmp_path), folder, start=START, end=END).spans == []
        with pytest.raises(ba.IncompleteError, match="is missing"):
            ba.Archive(folder).read()
    done = surface.fill(source_at(tmp_path), folder, end=END, fill_gaps=True)
    assert done.ended(0), done
    assert done.spans == [tuple(map(moment, gap)) for gap in GAPS]
    assert done.rows == len(in_spans(ROWS, [(*gap, False) for gap in GAPS]))
    assert_whole(folder, made)


@of_calls
def test_progress_runs_once_from_nothing_to_all(surface, with_gaps, tmp_path):
    folder, shares = shutil.copytree(with_gaps, tmp_path / "a"), []
    options = {"progress": lambda share, rows: shares.append((share, rows))}
    done = surface.fill(source_at(tmp_path), folder, end=END, fill_gaps=True, **options)
    assert shares == sorted(shares)
    assert shares[0][0] > 0
    assert shares[-1] == (pytest.approx(1), done.rows)


def test_a_dry_run_changes_nothing_and_lists_the_spans_of_the_run(surface, with_gaps, tmp_path):
    options = {"start": START, "end": END, "fill_gaps": True, "dry_run": True}
    done = surface.fill(source_at(tmp_path), tmp_path / "none", **options)
    assert done.ended(0), done
    assert done.spans == [(moment(START), moment(END))]
    assert not (tmp_path / "none").exists()
    folder = shutil.copytree(with_gaps, tmp_path / "a")
    source = source_at(tmp_path)
    with unchanged(folder):
        done = surface.fill(source, folder, **options)
    assert len(source.node.requests) < 10
    assert [[each.floor("s") for each in map(pd.Timestamp, span)] for span in done.spans] == [
        [moment(each).floor("s") for each in gap] for gap in GAPS
    ]
    assert reports(folder) == reports(with_gaps)


def test_bad_rows_are_set_aside_and_the_rest_is_kept(surface, tmp_path):
    folder = tmp_path / "a"
    done = surface.fill(source_at(tmp_path, bad=LAST), folder, start=START, end=END)
    good = [row for row in ROWS if row.timestamp_ns != LAST * 1000]
    assert done.ended(5), done
    assert (done.rows, done.bad_rows) == (len(good), len(ROWS) - len(good))
    assert len(content_of(folder, "_quarantine/")) == 1
    assert lines_of_table(ba.Archive(folder).read()) == lines_of_rows(good)
    if surface.is_command:
        assert "_quarantine/" in done.said
    else:
        assert all("has more than 38 digits" in reason for reason in done.reasons)


def test_bad_rows_can_end_the_run_with_what_came_before_committed(surface, tmp_path):
    options = {"start": START, "end": END, "page_size": 10, "on_bad_rows": "raise"}
    done = surface.fill(source_at(tmp_path, bad=LAST), tmp_path / "a", **options)
    assert done.failed(ba.DecodeError, 5), done
    assert START < spans_of(tmp_path / "a")[-1][1] <= LAST
    assert_holds(tmp_path / "a", ROWS)


def test_what_differs_is_a_conflict_and_the_newer_is_kept(surface, archive, tmp_path):
    if surface.imports:  # which leaves out the blocks of other segments that an archive has
        archive = tmp_path / "of a node"
        with node_of(ROWS, head=END) as node:
            run_export(node, archive, start=START, end=END)
    changed, gone = ROWS[-1], ROWS[30]
    came = [row for row in ROWS[:-1] if row is not gone]
    came.append(replace(changed, balance=changed.balance + 1))
    done = surface.fill(source_at(tmp_path, came, head=END + HOUR), archive, **AGAIN)
    assert done.ended(5), done
    assert (done.rows, done.conflicts) == (0, 2)
    held = sorted([*came, gone], key=lambda row: row.order)
    assert_holds(archive, held, whole=(START, END))
    if surface.is_command:
        assert "conflict" in done.said
    else:
        assert sorted(done.before) == sorted(lines_of_rows([gone, changed]))


def test_another_network_is_refused_with_the_archive_as_it_was(surface, archive, tmp_path):
    others = [replace(row, timestamp_ns=row.timestamp_ns + 1000) for row in ROWS]
    before = lasting(archive)
    source = source_at(tmp_path, others, chain="two", head=END + HOUR)
    done = surface.fill(source, archive, **AGAIN)
    assert done.failed(ba.NetworkMismatchError, 76), done
    assert lasting(archive) == before


def test_an_archive_is_bound_to_its_query(surface, archive, tmp_path):
    kinds = ["ACCOUNT_TYPE_GENERAL", "ACCOUNT_TYPE_MARGIN"]
    parties = sorted({row.party_id for row in ROWS if row.account_type in kinds})[1:]
    some, own = tmp_path / "some", {"account_types": kinds, "party_ids": parties}
    surface.fill(source_at(tmp_path), some, start=START, end=END, **own)
    expected = lines_of_rows(matching(ROWS, **own))
    assert lines_of_table(ba.Archive(some).read()) == expected != []
    for folder, other in (
        (some, {}),
        (archive, own),
        (archive, {"party_ids": [ROWS[0].party_id]}),
        (archive, {"asset_id": ROWS[0].asset_id}),
        (archive, {"partition": "hour"}),
    ):
        source = source_at(tmp_path)
        with unchanged(folder):
            done = surface.fill(source, folder, end=END, **other)
        assert done.failed(ba.ArchiveError, 2), done
        assert "bound to another query" in (done.said or str(done.error))
        assert source.node.requests == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"partition": "week"},
        {"on_bad_rows": "eat"},
        {"account_types": ["odd"]},
        {"asset_id": ""},
        {"party_ids": ["ab"]},
    ],
    ids=lambda option: next(iter(option)),
)
def test_a_wrong_argument_is_refused_before_anything_is_asked_or_written(surface, tmp_path, wrong):
    source = source_at(tmp_path)
    done = surface.fill(source, tmp_path / "a", **wrong)
    assert done.failed(ValueError, 2), done
    assert not (tmp_path / "a").exists()
    assert source.node.requests == []


def test_a_run_that_fails_half_way_keeps_what_is_before_and_the_next_goes_on(
    surface, tmp_path, made
):
    folder, options = tmp_path / "a", {"start": START, "end": END, "page_size": 5}
    done = surface.fill(source_at(tmp_path, broken=THIRD), folder, **options)
    assert done.failed((ba.RequestError, ba.DecodeError), 5 if surface.imports else 3), done
    [report] = reports(folder).values()
    assert report["outcome"] == "partial"
    start, end, _ = spans_of(folder)[0]
    assert START == start < end < END
    assert_holds(folder, ROWS)
    if surface.is_command and not surface.imports:
        assert "What was complete is committed" in done.said
    done = surface.fill(source_at(tmp_path), folder, end=END)
    assert done.ended(0), done
    if surface.imports:
        assert moment(START) < done.spans[0][0] <= moment(end)
    assert_whole(folder, made)


@of_nodes
def test_what_a_node_may_have_forgotten_is_unproven_until_another_has_it(surface, tmp_path, made):
    folder, oldest = tmp_path / "a", GAPS[1][1]
    kept = [row for row in ROWS if row.timestamp_ns >= oldest * 1000]
    done = surface.fill(source_at(tmp_path, kept), folder, start=START, end=END)
    assert done.ended(3), done
    assert spans_of(folder) == [(START, oldest, False), (oldest, END, True)]
    assert_holds(folder, kept)
    with pytest.raises(ba.IncompleteError, match="may have forgotten rows"):
        ba.Archive(folder).read(start=moment(START))
    done = surface.fill(source_at(tmp_path), folder, end=END, fill_gaps=True)
    assert done.ended(0), done
    assert_whole(folder, made)
