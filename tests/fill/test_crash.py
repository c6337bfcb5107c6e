"""Whatever ends a run, and wherever, the archive is whole and the next run completes it.

A run writes nothing between two writes of its store, so one that is killed at any moment leaves
what one leaves that may write no more from a write on: an archive of whole files, and maybe
a part of the next one under a temporary name. A few real kills show that this is so.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import shutil
import stat
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import pytest

import balance_analysis as ba
from tests.archive.crashing import export_in_child
from tests.archive.exporting import (
    HOUR,
    MONTH,
    assert_holds,
    content_of,
    dont_wait,
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
WORKERS = {"workers": 1, "page_size": 9}
FIRST = {"start": START, "end": END, **WORKERS}


class KilledError(BaseException):
    """Ends a run as a kill does."""


@dataclass
class Writes:
    """Count a run's writes; from one of them on, or at that one `only`, raise an error instead."""

    stop: int = -1
    error: object = KilledError
    only: bool = False
    count: int = 0

    def __call__(self):
        number, self.count = self.count, self.count + 1
        if number == self.stop or (0 <= self.stop < number and not self.only):
            raise self.error


@dataclass
class Scenario:
    """A kind of run: the archive before it, what it asks, and what it leaves undisturbed."""

    before: Path
    url: str
    options: dict
    whole: object = None

    def run(self, folder, progress=False, **writes):
        """Run in an archive; return the number of its writes."""
        archive = ba.Archive(folder)
        archive.store.guard = Writes(**writes)
        if self.options.get("confirm"):
            ba.confirm(archive, self.url)
        else:
            bounds = {x: from_microseconds(y) for x, y in self.options.items() if x in BOUNDS}
            with ba.Client(self.url, sleep=dont_wait) as client:
                ba.export(client, archive, **{**self.options, **bounds}, progress=progress)
        return archive.store.guard.count

    def copied(self, folder):
        shutil.rmtree(folder, ignore_errors=True)
        return shutil.copytree(self.before, folder)

    def assert_completes(self, folder):
        """Check that the archive is whole, and that another run completes it."""
        assert_whole(folder)
        self.run(folder)
        assert left_by(folder) == self.whole
        assert not [name for name in content_of(folder) if name.endswith(".tmp")]


BOUNDS = ("start", "end")
KINDS = ["the first run", "a backfill", "a confirmation"]


@pytest.fixture(scope="module")
def node():
    with node_of(ROWS) as running:
        yield running


@pytest.fixture(scope="module")
def scenarios(node, tmp_path_factory):
    """For each kind of run what it is; the second node is of another origin."""
    folder = tmp_path_factory.mktemp("scenarios")
    (folder / "nothing").mkdir()
    # So a backfill makes one file, and replaces another.
    run_export(node, folder / "late", start=MONTH + HOUR, end=END, **WORKERS)
    run_export(node, folder / "whole", **FIRST)
    other = replace(ROWS[5], balance=int(ROWS[5].balance) + 1)
    with node_of([other if row is ROWS[5] else row for row in ROWS]) as second:
        made = {
            "the first run": Scenario(folder / "nothing", node.url, FIRST),
            "a backfill": Scenario(folder / "late", node.url, FIRST),
            "a confirmation": Scenario(folder / "whole", second.url, {"confirm": True}),
        }
        for kind, scenario in made.items():
            scenario.run(scenario.copied(folder / f"after {kind}"))
            scenario.whole = left_by(folder / f"after {kind}")
        whole = [made[kind].whole for kind in KINDS]
        assert whole[0] == whole[1] != whole[2]
        yield made


@pytest.fixture
def scenario(scenarios, request):
    return scenarios[request.param]


of_exports = pytest.mark.parametrize("scenario", KINDS[:2], indirect=True)
of_first = pytest.mark.parametrize("scenario", KINDS[:1], indirect=True)


def left_by(folder):
    """Return what a run leaves: the files, and which rows are confirmed or disputed."""
    state = state_of(folder)
    words = state.evidence.confirmed, [span for span, _ in state.evidence.disputed]
    return *lasting(folder), words, len([*folder.glob("_disputes/*")])


def assert_whole(folder):
    """Check that an archive can be read at once, as exactly the intervals that it says."""
    if not (folder / "_archive.json").exists():
        assert content_of(folder, "changes/") == {}
        with pytest.raises(ba.ArchiveError, match="is not an archive"):
            ba.Archive(folder).read()
        return
    assert_holds(folder, ROWS)
    assert ba.Archive(folder).verify().is_whole
    for path in (folder / "changes").glob("*/*.parquet"):
        rows = lines_of_table(pd.read_parquet(path, partitioning=None))
        assert set(rows) <= set(lines_of_rows(ROWS))
        assert len(set(rows)) == len(rows)


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
ENDS = [(KINDS[0], KilledError, 0, 2), (KINDS[1], KilledError, 1, 2), (KINDS[2], KilledError, 0, 1)]
ENDS += [(KINDS[0], FULL, 0, 4), (KINDS[0], KeyboardInterrupt, 1, 4)]


@pytest.mark.parametrize(("scenario", "error", "first", "step"), ENDS, indirect=["scenario"])
def test_ended_at_any_write_the_archive_is_whole_and_the_next_run_completes_it(
    *, scenario, tmp_path, error, first, step
):
    folder, only = tmp_path / "archive", error is KeyboardInterrupt
    for stop in range(first, scenario.run(scenario.copied(folder)), step):
        with pytest.raises(error if isinstance(error, type) else type(error)) as caught:
            scenario.run(scenario.copied(folder), stop=stop, error=error, only=only)
        assert error is not FULL or "No space left on device" in str(caught.value)
        scenario.assert_completes(folder)


@pytest.mark.parametrize("mode", ["kill", "full"])
@of_first
def test_ended_in_the_midst_of_a_write_it_is_so_too_and_a_full_disk_keeps_nothing_of_it(
    scenario, tmp_path, mode
):
    folder, rng = tmp_path / "archive", random.Random(0)
    steps = export_in_child(scenario.url, scenario.copied(folder), **FIRST).steps
    assert left_by(folder) == scenario.whole
    # What a run leaves on disk has all gone through a step.
    renamed = {name.lstrip(".").rsplit(".", 2)[0] for step, name in steps if step == "rename"}
    assert {name.rpartition("/")[2] for name in content_of(folder)} <= renamed
    places = {kind: [at for at, (each, _) in enumerate(steps) if each == kind] for kind, _ in steps}
    assert {*places} >= {"open", "half", "fsync", "rename"}
    halves = places["half"][:: len(places["half"]) // 3]
    for step in map(rng.choice, places.values()) if mode == "kill" else halves:
        scenario.copied(folder)
        outcome = export_in_child(scenario.url, folder, mode=mode, step=step, **FIRST)
        if mode == "full":
            assert outcome.errno == errno.ENOSPC, (steps[step], outcome.said)
            assert not [name for name in content_of(folder) if name.endswith(".tmp")]
        else:
            assert outcome.killed
            # The next one finds what was left, and is killed as well.
            export_in_child(scenario.url, folder, mode="kill", step=rng.randrange(60), **FIRST)
        scenario.assert_completes(folder)


@of_first
def test_interrupted_at_any_step_what_is_complete_is_committed(scenario, tmp_path):
    folder, ends, steps = tmp_path / "archive", [], []
    scenario.run(scenario.copied(folder), progress=lambda *_: steps.append(1))
    for stop in range(len(steps)):
        interrupting = Writes(stop, KeyboardInterrupt(), only=True)
        with pytest.raises(KeyboardInterrupt):
            scenario.run(scenario.copied(folder), progress=lambda *_, due=interrupting: due())
        ends.append(spans_of(folder)[-1][1])
        assert state_of(folder).evidence.complete
        scenario.assert_completes(folder)
    assert ends == sorted({*ends})
    assert ends[-1] == END


@pytest.fixture
def public():
    """A folder that a process without rights can reach."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def let_write(folder, *, allowed):
    for path in [folder, *folder.rglob("*")]:
        mode = 0o755 if path.is_dir() or allowed else 0o644
        path.chmod(mode if allowed else mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))


@of_exports
def test_a_folder_that_may_not_be_written_to_is_named_and_stays_as_it_was(scenario, public):
    folder = scenario.copied(public / "archive")
    let_write(folder, allowed=False)
    kept = content_of(folder)
    outcome = export_in_child(scenario.url, folder, mode="nobody", **scenario.options)
    let_write(folder, allowed=True)
    assert outcome.error == "PermissionError", outcome.said
    assert str(folder) in outcome.said
    assert content_of(folder) == kept
    scenario.assert_completes(folder)


def test_killed_at_any_write_rows_on_which_a_node_and_segments_differ_prove_nothing(tmp_path):
    write_segments(tmp_path / "segments", ROWS)
    other = replace(ROWS[5], balance=int(ROWS[5].balance) + 1)
    moment = from_microseconds(other.timestamp_ns // 1000)
    with node_of([other if row is ROWS[5] else row for row in ROWS]) as node:
        run_export(node, tmp_path / "before", **FIRST)
    for stop in itertools.count():
        archive = ba.Archive(shutil.copytree(tmp_path / "before", tmp_path / f"{stop}"))
        archive.store.guard = Writes(stop)
        with contextlib.suppress(KilledError):
            ba.import_segments(archive, tmp_path / "segments")
        is_new = lines_of_rows([ROWS[5]])[0] in lines_of_table(archive.read(partial=True))
        complete = archive.status().complete
        assert not is_new or not any(start <= moment < end for start, end in complete)
        if archive.store.guard.count < stop:
            break
    assert is_new


def test_readers_see_a_whole_archive_at_every_moment_of_a_run(scenarios, tmp_path):
    scenario = scenarios["a backfill"]
    folder, seen = scenario.copied(tmp_path / "archive"), Counter()

    def reading(index, _):
        # The run waits for this answer, with whatever it has written so far.
        assert_whole(folder)
        seen[len(spans_of(folder))] += 1

    with node_of(ROWS, faults=reading) as node:
        run_export(node, folder, **{**FIRST, "page_size": 25})
    assert seen.total() > 3
