"""Whatever ends a run, and wherever, the archive is whole and the next run completes it.

A step is one change on disk: a file opened for writing, half of its content written, flushed,
renamed or deleted, or a folder made. Between two steps nothing on disk changes, so a copy that is
made right before a step is what a run leaves that is killed there. Python's audit events notice
the steps, so that no way of writing a file goes unnoticed.
"""

import contextlib
import errno
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest

import balance_analysis as ba
from tests.archive.exporting import (
    HOUR,
    MONTH,
    assert_holds,
    content_of,
    lasting,
    node_of,
    run_export,
    spans_of,
    spread_history,
    state_of,
)
from tests.moments import from_microseconds, to_microseconds
from tests.node.truth import lines_of_rows, lines_of_table
from tests.segments.writer import write_segments

START = to_microseconds("2023-04-30T18:00")
END = to_microseconds("2023-05-01T06:00")
ROWS = spread_history(3, start=START, end=END, rows=40, accounts=10)
TIMES = sorted({row.time for row in ROWS})
OTHER = ROWS[5]._replace(balance=ROWS[5].balance + 1)
OTHERS = [OTHER if row is ROWS[5] else row for row in ROWS]
NODE = node_of(ROWS)
FIRST = {"start": START, "end": END, "workers": 1, "page_size": 9}


WRITING = os.O_WRONLY | os.O_RDWR
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir"}
NEEDS_SPACE = {"open", "half", "mkdir"}
LISTENERS = []
sys.addaudithook(lambda *event, all_=LISTENERS: [listener(*event) for listener in all_])


def steps_of(fill, folder, react=lambda *_: None):
    """Fill the archive in a folder; return the steps. `react` is called before each is taken."""
    archive, steps = ba.Archive(folder), []

    def take(kind, path):
        # The system frees the lock of a process that is killed.
        if str(path).startswith(f"{folder}/") and not Path(path).name.startswith("_lock"):
            steps.append((kind, Path(path).name))
            react(len(steps) - 1, kind)

    def notice(event, arguments):
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
            take("open", arguments[0])
        elif event in CHANGES and (event != "os.mkdir" or not Path(arguments[0]).exists()):
            take(event.removeprefix("os."), arguments[0])

    def write(path, data):
        with path.open("wb", buffering=0) as file:
            file.write(data[: len(data) // 2])
            take("half", path)
            file.write(data[len(data) // 2 :])

    def flush(handle):
        take("flush", Path(f"/proc/self/fd/{handle}").readlink())

    # The store asks before it deletes, which Python doesn't notice.
    archive.store.guard = lambda: take("ask", folder / "any")
    with mock.patch.object(Path, "write_bytes", write), mock.patch.object(os, "fsync", flush):
        LISTENERS.append(notice)
        try:
            fill(archive)
        finally:
            LISTENERS.remove(notice)
    return steps


def killed(fill, folder, stops):
    """Fill an archive; return copies, as a run killed at each of some steps leaves them."""
    copies = []

    def copy(number, _):
        if number in stops:
            place = tempfile.mkdtemp(dir=folder.parent)
            copies.append(shutil.copytree(folder, place, dirs_exist_ok=True))

    steps_of(fill, folder, copy)
    return copies


def put(copy, folder):
    """Replace a folder's content by a copy of an archive; return the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    return shutil.copytree(copy, folder)


@dataclass
class Scenario:
    """A kind of run: the archive before it, its function, and its undisturbed result."""

    before: Path
    fill: object
    made: Path

    def __post_init__(self):
        self.steps = steps_of(self.fill, put(self.before, self.made))
        self.whole = left_by(self.made)

    def assert_completes(self, folder, *stops):
        """Check that an archive is whole and that a run completes it; return as `killed`."""
        assert_whole(folder)
        copies = killed(self.fill, folder, stops)
        assert left_by(folder) == self.whole
        assert not leftovers(folder)
        return copies


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory):
    """The scenario of each kind of run; the second node is of another origin."""
    folder = tmp_path_factory.mktemp("scenarios")
    (folder / "nothing").mkdir()
    # So a backfill makes one file, and replaces another.
    run_export(NODE, folder / "late", **{**FIRST, "start": MONTH + HOUR})
    run_export(NODE, folder / "whole", **FIRST)
    run_export(NODE, folder / "middle", start=TIMES[5], end=TIMES[-5])
    run_export(NODE, folder / "half", start=START, end=TIMES[5])
    paths = write_segments(folder / "segments", ROWS, each=8)

    def import_last_and_all(archive, partition="day"):
        ba.import_segments(archive, paths[-1], partition=partition)
        assert_holds(archive.uri, ROWS)
        ba.import_segments(archive, paths)

    def export(archive, page_size=9):
        run_export(NODE, archive, **{**FIRST, "page_size": page_size})

    with node_of(OTHERS) as second:
        made = {
            "a first run": ("nothing", export),
            "a backfill": ("late", export),
            "a page that replaces a file and makes one": ("half", partial(export, page_size=90)),
            "a confirmation": ("whole", lambda archive: ba.confirm(archive, second.url)),
            "an import": ("nothing", partial(import_last_and_all, partition="hour")),
            "an import over an export": ("middle", import_last_and_all),
        }
        for kind, (before, fill) in made.items():
            made[kind] = Scenario(folder / before, fill, folder / f"after {kind}")
        whole = [scenario.whole for scenario in made.values()]
        assert whole[0] == whole[1] == whole[2] != whole[3]
        yield made


def left_by(folder):
    """Return a run's result: the files, and the confirmed and disputed rows."""
    state = state_of(folder)
    words = state.evidence.confirmed, [span for span, _ in state.evidence.disputed]
    assets = content_of(folder, "_assets.json")
    return *lasting(folder), words, len([*folder.glob("_disputes/*")]), assets


def assert_whole(folder):
    """Check that an archive can be read at once, as exactly the intervals that it says."""
    if not (folder / "_archive.json").exists():
        assert content_of(folder, "changes/") == {}
        with pytest.raises(ba.ArchiveError, match="is not an archive"):
            ba.Archive(folder).read()
        return
    assert_holds(folder, ROWS)
    assert ba.Archive(folder).verify().is_whole
    if [*folder.glob("changes/*/*.parquet")]:
        rows = lines_of_table(pd.read_parquet(folder / "changes", partitioning=None))
        assert set(rows) <= set(lines_of_rows(ROWS))
        assert len(set(rows)) == len(rows)
    for answer in state_of(folder).evidence.answers:
        if answer.node.name.startswith("segments "):
            first, last = answer.heights  # an import may go by the blocks that one holds
            assert answer.span[0] <= TIMES[first - 1] <= TIMES[last - 1] < answer.span[1]


def leftovers(folder):
    return [name for name in content_of(folder) if name.endswith(".tmp")]


KINDS = ["a first run", "a backfill", "a confirmation", "an import", "an import over an export"]


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_any_step_the_archive_is_whole_and_the_next_run_completes_it(
    scenarios, tmp_path, kind
):
    scenario, folder = scenarios[kind], tmp_path / "archive"
    stops = range(0, len(scenario.steps), len(scenario.steps) // 10)
    copies = killed(scenario.fill, put(scenario.before, folder), stops)
    for stop, copy in zip(stops, copies, strict=True):
        # The next run finds the killed one's traces, and is killed too.
        for again in scenario.assert_completes(put(copy, folder), stop * 7 % len(scenario.steps)):
            scenario.assert_completes(put(again, folder))


@pytest.mark.parametrize(
    ("kind", "error"),
    [("a first run", OSError), ("a page that replaces a file and makes one", KeyboardInterrupt)],
)
def test_failed_at_any_step_the_archive_is_whole_and_the_next_run_completes_it(
    scenarios, tmp_path, kind, error
):
    scenario, folder = scenarios[kind], tmp_path / "archive"
    for stop in range(0, len(scenario.steps), 5):

        def fail(number, step, stop=stop):
            is_full = error is OSError and number > stop and step in NEEDS_SPACE
            if number == stop or is_full:
                raise error(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with pytest.raises(error):
            steps_of(scenario.fill, put(scenario.before, folder), fail)
        assert not leftovers(folder)
        scenario.assert_completes(folder)


def test_each_file_that_a_run_leaves_has_been_flushed_whole_and_renamed(scenarios):
    for scenario in scenarios.values():
        steps = [(step, name.lstrip(".").rsplit(".", 2)[0]) for step, name in scenario.steps]
        renamed = {name: place for place, (step, name) in enumerate(steps) if step == "rename"}
        for name, place in renamed.items():
            its = [step for step, each in steps[:place] if each == name]
            assert its[-4:] == ["open", "open", "half", "flush"], name
        left = {*content_of(scenario.made)} - {*content_of(scenario.before)}
        assert {name.rpartition("/")[2] for name in left} <= {*renamed}


def test_a_run_interrupted_at_any_progress_commits_its_complete_rows(scenarios, tmp_path):
    scenario, folder, ends = scenarios["a first run"], tmp_path / "archive", [START]
    while ends[-1] < END:
        progress = mock.Mock(side_effect=[None] * (len(ends) - 1) + [KeyboardInterrupt])
        with pytest.raises(KeyboardInterrupt):
            run_export(NODE, put(scenario.before, folder), **FIRST, progress=progress)
        ends.append(spans_of(folder)[-1][1])
        assert state_of(folder).evidence.complete
        scenario.assert_completes(folder)
    assert ends == sorted({*ends})


@contextlib.contextmanager
def unwritable(folder):
    """Take away the right to write to a folder, from root too."""
    folders, user = [folder, *filter(Path.is_dir, folder.rglob("*"))], os.geteuid()
    for each in folders:
        each.chmod(0o555)
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)
        for each in folders:
            each.chmod(0o755)


@pytest.mark.parametrize("kind", ["a first run", "a backfill"])
def test_an_unwritable_folder_is_named_and_unchanged(scenarios, kind):
    scenario = scenarios[kind]
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)  # pytest's own are closed to others
        folder = put(scenario.before, Path(name, "archive"))
        kept = content_of(folder)
        with unwritable(folder), pytest.raises(PermissionError, match=str(folder)):
            scenario.fill(folder)
        assert content_of(folder) == kept
        scenario.assert_completes(folder)


def test_rows_on_which_a_node_and_segments_differ_prove_nothing_after_a_kill_at_any_step(tmp_path):
    folder, when = tmp_path / "archive", from_microseconds(OTHER.time)
    paths = write_segments(tmp_path / "segments", ROWS)
    run_export(node_of(OTHERS), folder, **FIRST)
    fill = partial(ba.import_segments, paths=paths)
    for copy in [*killed(fill, folder, range(0, 1000, 5)), folder]:
        archive = ba.Archive(copy)
        is_new = lines_of_rows([ROWS[5]])[0] in lines_of_table(archive.read(partial=True))
        complete = archive.status().complete
        assert not is_new or not any(start <= when < end for start, end in complete)
    assert is_new
