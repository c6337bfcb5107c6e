"""Whatever ends an export, and wherever, the archive is whole and the next run completes it."""

from __future__ import annotations

import errno
import random
import shutil
import stat
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from balance_analysis import Archive, ArchiveError
from tests.archive.crashing import Crasher
from tests.archive.exporting import (
    HOUR,
    MONTH,
    assert_holds,
    content_of,
    lasting,
    node_of,
    spans_of,
    spread_history,
    state_of,
)
from tests.moments import to_microseconds
from tests.node.truth import lines_of_rows, lines_of_table

START = to_microseconds("2023-04-30T18:00")
END = to_microseconds("2023-05-01T06:00")
ROWS = spread_history(3, start=START, end=END, rows=40, accounts=10)
MIDDLE = START + HOUR
WORKERS = {"workers": 1, "page_size": 9}
SHARES = 2
"""In how many tests the steps of a run are tried, so that they run side by side."""


@pytest.fixture(scope="module")
def node():
    with node_of(ROWS) as running:
        yield running


@pytest.fixture(scope="module")
def crasher():
    with Crasher() as running:
        yield running


@pytest.fixture(scope="module")
def second():
    """A node of another origin, one of whose rows is another."""
    other = replace(ROWS[5], balance=int(ROWS[5].balance) + 1)
    with node_of([other if row is ROWS[5] else row for row in ROWS]) as running:
        yield running


@pytest.fixture(scope="module")
def scenarios(node, second, crasher, tmp_path_factory):
    """For each kind of run: the archive before it, what the run is, and the undisturbed archive."""
    folder = tmp_path_factory.mktemp("scenarios")
    (folder / "nothing").mkdir()
    first = {"start": START, "end": END, **WORKERS}
    ended(crasher.export(node.url, folder / "whole", **first))
    ended(crasher.export(node.url, folder / "half", start=START, end=MIDDLE, **WORKERS))
    ended(crasher.export(node.url, folder / "late", start=MONTH, end=END, **WORKERS))
    shutil.copytree(folder / "whole", folder / "confirmed")
    ended(crasher.export(second.url, folder / "confirmed", confirm=True))
    whole, confirmed = left_by(folder / "whole"), left_by(folder / "confirmed")
    assert whole != confirmed
    return {
        "a confirmation": (folder / "whole", {"confirm": True}, confirmed),
        "the first run": (folder / "nothing", first, whole),
        "a later run": (folder / "half", {"end": END, **WORKERS}, whole),
        "a backfill": (folder / "late", first, whole),
    }


def ended(outcome):
    """Return the steps of a run that nothing disturbed."""
    assert (outcome.error, outcome.killed) == (None, False), outcome.told
    return outcome.steps


def left_by(folder):
    """Return what a run leaves: the files, and which rows are confirmed or disputed."""
    evidence = state_of(folder).evidence if (folder / "_archive.json").exists() else None
    words = evidence and (evidence.confirmed, [span for span, _ in evidence.disputed])
    return *lasting(folder), words, len([*folder.glob("_disputes/*")])


def copied(before, folder):
    shutil.rmtree(folder, ignore_errors=True)
    return shutil.copytree(before, folder)


def assert_whole(folder):
    """Check that an archive can be read at once, as exactly the intervals that it says."""
    if not (folder / "_archive.json").exists():
        assert content_of(folder, "changes/") == {}
        with pytest.raises(ArchiveError, match="is no archive"):
            Archive(folder).read()
        return
    assert_holds(folder, ROWS)
    assert Archive(folder).verify().is_whole
    for path in (folder / "changes").glob("*/*.parquet"):
        rows = lines_of_table(pd.read_parquet(path, partitioning=None))
        assert set(rows) <= set(lines_of_rows(ROWS))
        assert len(set(rows)) == len(rows)


def leftovers(folder):
    return [name for name in content_of(folder) if name.endswith(".tmp")]


KINDS = ["the first run", "a later run", "a backfill", "a confirmation"]


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_any_step_the_archive_is_whole_and_the_next_run_completes_it(
    *, scenarios, node, second, crasher, tmp_path, kind, share
):
    before, run, whole = scenarios[kind]
    folder, url = tmp_path / "archive", second.url if kind == "a confirmation" else node.url
    steps = ended(crasher.export(url, copied(before, folder), **run))
    assert left_by(folder) == whole
    # Between one change of a name and the next only what no reader sees changes on disk.
    tried = [at for at, (step, _) in enumerate(steps) if step in ("rename", "remove")]
    if kind == "the first run":
        for other in ("open", "half", "mkdir"):
            tried += [at for at, (step, _) in enumerate(steps) if step == other][::5]
    for step in tried[share::SHARES]:
        outcome = crasher.export(url, copied(before, folder), mode="kill", step=step, **run)
        assert outcome.killed
        assert len(outcome.steps) == step + 1
        assert_whole(folder)
        ended(crasher.export(url, folder, **run))
        assert left_by(folder) == whole, f"killed before step {step}, {steps[step]}"
        assert leftovers(folder) == []


def test_killed_again_and_again_the_archive_gets_there(scenarios, node, crasher, tmp_path):
    before, run, whole = scenarios["the first run"]
    folder, rng = copied(before, tmp_path / "archive"), random.Random(0)
    for _ in range(8):
        crasher.export(node.url, folder, mode="kill", step=rng.randrange(60), **run)
        assert_whole(folder)
    ended(crasher.export(node.url, folder, **run))
    assert left_by(folder) == whole


@pytest.mark.parametrize("kind", ["the first run", "a later run"])
def test_a_disk_that_fills_up_at_any_step_is_told_and_leaves_the_archive_whole(
    scenarios, node, crasher, tmp_path, kind
):
    before, run, whole = scenarios[kind]
    folder = tmp_path / "archive"
    steps = ended(crasher.export(node.url, copied(before, folder), **run))
    writes = [at for at, (step, _) in enumerate(steps) if step == "half"]
    for step in writes[kind == "a later run" :: 2]:
        outcome = crasher.export(node.url, copied(before, folder), mode="full", step=step, **run)
        assert outcome.errno == errno.ENOSPC, (steps[step], outcome.told)
        assert "No space left on device" in outcome.told
        assert_whole(folder)
        assert leftovers(folder) == []
        ended(crasher.export(node.url, folder, **run))
        assert left_by(folder) == whole


@pytest.mark.parametrize(("signal", "on"), [("SIGTERM", ""), ("SIGINT", "request")])
def test_interrupted_anywhere_what_is_complete_is_committed(
    *, scenarios, node, crasher, tmp_path, signal, on
):
    before, run, whole = scenarios["the first run"]
    folder = tmp_path / "archive"
    steps = ended(crasher.export(node.url, copied(before, folder), on=on, **run))
    ends = []
    for step in range(0, len(steps), 2 if on else 17):
        copied(before, folder)
        outcome = crasher.export(node.url, folder, mode=signal, step=step, on=on, **run)
        assert not outcome.killed
        # Once everything is committed there is nothing left to interrupt.
        assert outcome.error in ("KeyboardInterrupt", None), outcome.told
        assert_whole(folder)
        if (folder / "_archive.json").exists():
            ends += [end for _, end, _ in spans_of(folder)[-1:]]
        ended(crasher.export(node.url, folder, **run))
        assert left_by(folder) == whole
    assert ends == sorted(ends)
    assert max(ends) > MONTH


def test_interrupted_within_its_first_period_a_run_keeps_what_is_complete(
    scenarios, node, crasher, tmp_path
):
    before, run, _ = scenarios["the first run"]
    folder, run = tmp_path / "archive", {**run, "partition": "month", "end": MONTH}
    steps = ended(crasher.export(node.url, copied(before, folder), on="request", **run))
    whole, ends, proven = left_by(folder), [], set()
    for step in range(len(steps)):
        copied(before, folder)
        outcome = crasher.export(node.url, folder, mode="SIGTERM", step=step, on="request", **run)
        assert outcome.error == "KeyboardInterrupt", outcome.told
        assert_whole(folder)
        if (folder / "_archive.json").exists():
            ends += [end for _, end, _ in spans_of(folder)[-1:]]
            proven |= {end for _, end, is_proven in spans_of(folder) if is_proven}
        ended(crasher.export(node.url, folder, **run))
        assert left_by(folder) == whole
    assert ends == sorted(ends)
    assert len({*ends} - {MONTH}) > 1
    assert proven - {MONTH}


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


@pytest.mark.parametrize("kind", ["the first run", "a later run"])
def test_a_folder_that_may_not_be_written_to_is_told_and_stays_as_it_was(
    scenarios, node, crasher, public, kind
):
    before, run, whole = scenarios[kind]
    folder = copied(before, public / "archive")
    let_write(folder, allowed=False)
    kept = content_of(folder)
    outcome = crasher.export(node.url, folder, mode="nobody", **run)
    let_write(folder, allowed=True)
    assert outcome.error == "PermissionError", outcome.told
    assert str(folder) in outcome.told
    assert content_of(folder) == kept
    ended(crasher.export(node.url, folder, **run))
    assert left_by(folder) == whole


def test_readers_see_a_whole_archive_at_every_moment_of_a_run(scenarios, crasher, tmp_path):
    before, run, _ = scenarios["a backfill"]
    folder, seen = copied(before, tmp_path / "archive"), Counter()

    def reading(index, _):
        # The run waits for this answer, with whatever it has written so far.
        assert_whole(folder)
        seen[len(spans_of(folder))] += 1

    with node_of(ROWS, faults=reading) as node:
        ended(crasher.export(node.url, folder, **run))
    assert seen.total() > 4


def test_every_step_is_seen(scenarios, node, crasher, tmp_path):
    """What a run leaves on disk has all gone through a step."""
    before, run, _ = scenarios["the first run"]
    folder = copied(before, tmp_path / "archive")
    steps = ended(crasher.export(node.url, folder, **run))
    renamed = {name.lstrip(".").rsplit(".", 2)[0] for step, name in steps if step == "rename"}
    assert {name.rpartition("/")[2] for name in content_of(folder)} <= renamed
