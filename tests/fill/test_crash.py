"""Whatever ends a run, and wherever, the archive is whole and the next run completes it.

A step is one change on disk: a file opened for writing, half of its content written, flushed,
renamed or deleted, or a folder made. Between two steps nothing on disk changes, so a run that may
change nothing from a step on leaves what a run leaves that is killed right before it. Python's
audit events notice the steps, so that no way of writing a file goes unnoticed.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
TIMES = sorted({row.timestamp_ns // 1000 for row in ROWS})
OTHER = replace(ROWS[5], balance=int(ROWS[5].balance) + 1)
OTHERS = [OTHER if row is ROWS[5] else row for row in ROWS]
NODE = node_of(ROWS)
FIRST = {"start": START, "end": END, "workers": 1, "page_size": 9}


class KilledError(BaseException):
    """Ends a run as a kill does."""


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
WRITING = os.O_WRONLY | os.O_RDWR
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir"}
NEEDS_SPACE = {"open", "half", "mkdir"}
WATCHING = []
sys.addaudithook(lambda *event: [disk.notice(*event) for disk in WATCHING])


@dataclass
class Disk:
    """Note each step in a folder; from one of them on, or at that one `only`, raise an error."""

    folder: Path
    stop: int = -1
    error: object = KilledError
    only: bool = False
    steps: list = field(default_factory=list)

    def notice(self, event, arguments):
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
            self.take("open", arguments[0])
        elif event in CHANGES and (event != "os.mkdir" or not Path(arguments[0]).exists()):
            self.take(event.removeprefix("os."), arguments[0])

    def take(self, kind, path):
        # The system frees the lock of a process that is killed.
        is_inside = str(path).startswith(f"{self.folder}/")
        if not is_inside or Path(path).name.startswith("_lock"):
            return
        number = len(self.steps)
        self.steps.append((kind, Path(path).name))
        is_due = number == self.stop or (0 <= self.stop < number and not self.only)
        if is_due and (self.error is not FULL or kind in NEEDS_SPACE):
            raise self.error

    @contextlib.contextmanager
    def watched(self):
        """Give the archive, whose store asks before it deletes, which Python doesn't notice."""
        archive = ba.Archive(self.folder)
        archive.store.guard = lambda: self.take("ask", self.folder / "any")

        def write(path, data):
            with path.open("wb", buffering=0) as file:
                file.write(data[: len(data) // 2])
                self.take("half", path)
                file.write(data[len(data) // 2 :])

        def flush(handle):
            self.take("flush", Path(f"/proc/self/fd/{handle}").readlink())

        with mock.patch.object(Path, "write_bytes", write), mock.patch.object(os, "fsync", flush):
            WATCHING.append(self)
            try:
                yield archive
            finally:
                WATCHING.remove(self)


@dataclass
class Scenario:
    """A kind of run: the archive before it, what it does, and what it leaves undisturbed."""

    before: Path
    fill: Callable
    made: Path
    whole: object = None
    steps: object = None

    def run(self, folder, **how):
        """Run in an archive; return the steps."""
        disk = Disk(folder, **how)
        with disk.watched() as archive:
            self.fill(archive)
        return disk.steps

    def copied(self, folder):
        shutil.rmtree(folder, ignore_errors=True)
        return shutil.copytree(self.before, folder)

    def assert_completes(self, folder):
        """Check that the archive is whole, and that another run completes it."""
        assert_whole(folder)
        self.run(folder)
        assert left_by(folder) == self.whole
        assert not [name for name in content_of(folder) if name.endswith(".tmp")]


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory):
    """For each kind of run what it is; the second node is of another origin."""
    folder = tmp_path_factory.mktemp("scenarios")
    (folder / "nothing").mkdir()
    # So a backfill makes one file, and replaces another.
    run_export(NODE, folder / "late", **{**FIRST, "start": MONTH + HOUR})
    run_export(NODE, folder / "whole", **FIRST)
    run_export(NODE, folder / "middle", start=TIMES[5], end=TIMES[-5])
    paths = write_segments(folder / "segments", ROWS, each=8)

    def import_last_and_all(archive, partition="day"):
        ba.import_segments(archive, paths[-1], partition=partition)
        assert_holds(archive.uri, ROWS)
        ba.import_segments(archive, paths)

    def export(archive):
        run_export(NODE, archive, **FIRST)

    with node_of(OTHERS) as second:
        made = {
            "a first run": ("nothing", export),
            "a backfill": ("late", export),
            "a confirmation": ("whole", lambda archive: ba.confirm(archive, second.url)),
            "an import": ("nothing", partial(import_last_and_all, partition="hour")),
            "an import over rows of a node": ("middle", import_last_and_all),
        }
        for kind, (before, fill) in made.items():
            scenario = made[kind] = Scenario(folder / before, fill, folder / f"after {kind}")
            scenario.steps = scenario.run(scenario.copied(scenario.made))
            scenario.whole = left_by(scenario.made)
        whole = [scenario.whole for scenario in made.values()]
        assert whole[0] == whole[1] != whole[2]
        yield made


def left_by(folder):
    """Return what a run leaves: the files, and which rows are confirmed or disputed."""
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


SAME = {("ask", "open"), ("ask", "mkdir")}
ENDS = [
    ("a first run", KilledError, 0, 5),
    ("a backfill", KilledError, 1, 5),
    ("a confirmation", KilledError, 0, 2),
    ("an import", KilledError, 0, 29),
    ("an import over rows of a node", KilledError, 1, 9),
    ("a first run", FULL, 0, 9),
    ("a backfill", KeyboardInterrupt, 0, 9),
]


@pytest.mark.parametrize(("kind", "error", "first", "stride"), ENDS)
def test_ended_at_any_step_the_archive_is_whole_and_the_next_run_completes_it(
    *, scenarios, tmp_path, kind, error, first, stride
):
    scenario, folder = scenarios[kind], tmp_path / "archive"
    kinds = [*(step for step, _ in scenario.steps), "end"]
    # Nothing changes between asking to write a file and opening it, nor while one is flushed.
    stops = [n for n, pair in enumerate(itertools.pairwise(kinds)) if pair not in SAME]
    stops = [n for n in stops if kinds[n] != "flush"]
    ends = error if isinstance(error, type) else type(error)
    for stop in stops[first::stride]:
        scenario.copied(folder)
        with pytest.raises(ends):
            scenario.run(folder, stop=stop, error=error, only=error is KeyboardInterrupt)
        if error is KilledError:
            # The next one meets what was left, and is killed as well.
            with contextlib.suppress(KilledError):
                scenario.run(folder, stop=stop * 7 % len(scenario.steps))
        else:
            assert not [name for name in content_of(folder) if name.endswith(".tmp")]
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


def test_interrupted_at_any_progress_what_is_complete_is_committed(scenarios, tmp_path):
    scenario, folder, ends, steps = scenarios["a first run"], tmp_path / "archive", [], []
    run_export(NODE, scenario.copied(folder), **FIRST, progress=lambda *_: steps.append(1))

    for stop in range(len(steps)):
        left = iter(range(stop))

        def interrupt(*_, left=left):
            if next(left, None) is None:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_export(NODE, scenario.copied(folder), **FIRST, progress=interrupt)
        ends.append(spans_of(folder)[-1][1])
        assert state_of(folder).evidence.complete
        scenario.assert_completes(folder)
    assert ends == sorted({*ends})
    assert ends[-1] == END


@contextlib.contextmanager
def unwritable(folder):
    """Take away the right to write to a folder, from root too."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    user = os.geteuid()
    if not user:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o755)


@pytest.mark.parametrize("kind", ["a first run", "a backfill"])
def test_a_folder_that_may_not_be_written_to_is_named_and_stays_as_it_was(scenarios, kind):
    scenario = scenarios[kind]
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)  # pytest's own are closed to others
        folder = scenario.copied(Path(name, "archive"))
        kept = content_of(folder)
        with unwritable(folder), pytest.raises(PermissionError, match=str(folder)):
            scenario.run(folder)
        assert content_of(folder) == kept
        scenario.assert_completes(folder)


def test_killed_at_any_step_rows_on_which_a_node_and_segments_differ_prove_nothing(tmp_path):
    write_segments(tmp_path / "segments", ROWS)
    moment = from_microseconds(OTHER.timestamp_ns // 1000)
    run_export(node_of(OTHERS), tmp_path / "before", **FIRST)
    for stop in itertools.count(step=5):
        disk = Disk(shutil.copytree(tmp_path / "before", tmp_path / f"{stop}"), stop)
        with contextlib.suppress(KilledError), disk.watched() as archive:
            ba.import_segments(archive, tmp_path / "segments")
        archive = ba.Archive(disk.folder)
        is_new = lines_of_rows([ROWS[5]])[0] in lines_of_table(archive.read(partial=True))
        complete = archive.status().complete
        assert not is_new or not any(start <= moment < end for start, end in complete)
        if len(disk.steps) < stop:
            break
    assert is_new
