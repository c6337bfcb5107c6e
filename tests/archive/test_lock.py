"""Only one run at a time writes to an archive, and a dead run's lock doesn't block."""

import contextlib
import fcntl
import os
import pickle

import pytest

from balance_analysis import ArchiveError, ArchiveLockedError
from tests.archive.exporting import ROWS, content_of, node_of, run_export
from tests.archive.writing import holder_of, locked
from tests.cli.running import waiting


def test_other_writers_are_refused_while_a_process_writes_and_allowed_once_it_is_killed(tmp_path):
    with node_of(ROWS) as stalled, node_of(ROWS) as node:
        process = waiting(stalled, 0, "export", tmp_path / "a", stalled.url)
        before, note = content_of(tmp_path / "a"), holder_of(tmp_path / "a")
        with pytest.raises(ArchiveLockedError) as caught:
            run_export(node, tmp_path / "a")
        assert f"process {process.pid} on {os.uname().nodename}" in str(caught.value)
        assert set(note) == {"pid", "host", "since"}
        assert pickle.loads(pickle.dumps(caught.value)).holder == caught.value.holder == note
        assert (node.requests, content_of(tmp_path / "a")) == ([], before)
        (tmp_path / "a" / "_lock.json").write_text("{")
        with pytest.raises(ArchiveLockedError, match="another run"), locked(tmp_path / "a"):
            pass
        process.kill()
        process.communicate()
        with locked(tmp_path / "a"):
            assert holder_of(tmp_path / "a")["pid"] == os.getpid()
        assert holder_of(tmp_path / "a") == {}


def test_a_process_that_opened_the_lock_before_its_release_excludes_the_next_one(tmp_path):
    with contextlib.suppress(LookupError), locked(tmp_path / "new"):
        waiting = os.open(tmp_path / "new" / "_lock", os.O_RDWR)
        raise LookupError
    fcntl.flock(waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with pytest.raises(ArchiveLockedError), locked(tmp_path / "new"):
        pass
    os.close(waiting)
    with locked(tmp_path / "new"):
        pass


@pytest.mark.parametrize("name", ["_lock", "_lock.json"])
def test_a_link_in_the_place_of_the_lock_is_refused(tmp_path, name):
    (tmp_path / "a").mkdir()
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "a" / name).symlink_to(tmp_path / "mine.txt")
    with pytest.raises(ArchiveError, match="symbolic link"), locked(tmp_path / "a"):
        pass
    assert (tmp_path / "mine.txt").read_text() == "mine"
