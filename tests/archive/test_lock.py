"""One run at a time writes to an archive, and what a dead one left behind doesn't block."""

from __future__ import annotations

import fcntl
import os
import pickle
import signal

import pytest

from balance_analysis import Archive, ArchiveError, ArchiveLockedError
from balance_analysis.archive.lock import one_writer, read_holder
from tests.archive.exporting import content_of, node_of, run_export, spread_history
from tests.archive.writing import holding

ROWS = spread_history(1, rows=40, accounts=9)


@pytest.fixture
def holder(tmp_path):
    with holding(tmp_path / "a") as process:
        yield process


def test_a_second_writer_is_refused_at_once_and_the_holder_named(holder, tmp_path):
    with pytest.raises(ArchiveLockedError) as caught, one_writer(Archive(tmp_path / "a").store):
        pass
    assert f"process {holder.pid} on {os.uname().nodename}" in str(caught.value)
    note = read_holder(Archive(tmp_path / "a").store)
    assert set(note) == {"pid", "host", "since"}
    assert caught.value.holder == note
    (tmp_path / "a" / "_lock.json").write_text("{")
    with (
        pytest.raises(ArchiveLockedError, match="another run"),
        one_writer(Archive(tmp_path / "a").store),
    ):
        pass


def test_a_killed_holder_blocks_nobody_though_its_note_stays(holder, tmp_path):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    store = Archive(tmp_path / "a").store
    assert read_holder(store)["pid"] == holder.pid
    with one_writer(store):
        assert read_holder(store)["pid"] == os.getpid()
    assert read_holder(store) == {}


def test_the_lock_is_free_again_after_an_error(tmp_path):
    store = Archive(tmp_path / "a").store
    with pytest.raises(RuntimeError, match="x"), one_writer(store):
        raise RuntimeError("x")
    with one_writer(store):
        pass


def test_who_has_opened_the_lock_before_it_is_released_keeps_out_the_next_one(tmp_path):
    store = Archive(tmp_path / "new").store
    with one_writer(store):
        waiting = os.open(tmp_path / "new" / "_lock", os.O_RDWR)
    fcntl.flock(waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with pytest.raises(ArchiveLockedError), one_writer(store):
        pass
    os.close(waiting)
    with one_writer(store):
        pass


@pytest.mark.parametrize("name", ["_lock", "_lock.json"])
def test_a_link_in_the_place_of_the_lock_is_refused(tmp_path, name):
    (tmp_path / "a").mkdir()
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "a" / name).symlink_to(tmp_path / "mine.txt")
    with (
        pytest.raises(ArchiveError, match="symbolic link"),
        one_writer(Archive(tmp_path / "a").store),
    ):
        pass
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_an_export_holds_the_lock_while_it_asks(tmp_path):
    seen = []

    def look(_answer, _request):
        seen.append(read_holder(Archive(tmp_path / "a").store))
        return _answer

    with node_of(ROWS, edit_page=look) as node:
        run_export(node, tmp_path / "a")
    assert seen
    assert {holder["pid"] for holder in seen} == {os.getpid()}


def test_an_export_into_a_locked_archive_changes_nothing(holder, tmp_path):
    before = content_of(tmp_path / "a")
    with node_of(ROWS) as node, pytest.raises(ArchiveLockedError):
        run_export(node, tmp_path / "a")
    assert node.requests == []
    assert content_of(tmp_path / "a") == before


def test_an_export_beside_other_files_leaves_no_lock_there(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with node_of(ROWS) as node, pytest.raises(ArchiveError, match=r"notes\.txt"):
        run_export(node, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_the_error_pickles_with_its_holder():
    error = pickle.loads(pickle.dumps(ArchiveLockedError("x", holder={"pid": 1})))
    assert (str(error), error.holder) == ("x", {"pid": 1})
