"""In an object store too, only one run at a time writes, and a dead run's lease expires."""

import contextlib
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import boto3
import pytest

from balance_analysis import Archive, ArchiveLockedError
from tests.archive.exporting import END, ROWS, START, node_of, run_export
from tests.archive.writing import begin, holder_of, locked
from tests.waits import eventually

DEAD = {"pid": 7, "host": "gone", "since": "2023-04-01T00:00:00+00:00", "seconds": 60, "token": "x"}


SECONDS = "balance_analysis.archive.lock.SECONDS"


def put(address, note):
    """Write a lock's note, even if somebody holds the lock."""
    Archive(address).store.write("_lock.json", json.dumps(note).encode())


@pytest.fixture
def archive(address):
    return Archive(address)


@contextlib.contextmanager
def leased(archive, seconds=60.0, *, is_asleep=False):
    """Hold the lock with a lease of this length, and yield the check before each write.

    A sleeping holder renews the lease only by writes.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SECONDS, seconds)
        if is_asleep:
            patch.setattr("balance_analysis.archive.lock._Lease.keep", lambda _: None)
        with locked(archive):
            yield archive.store.guard


def refusing(status, name):
    """Let the store refuse requests that have a header."""
    return lambda environ: status if name in environ else None


def test_a_second_writer_is_refused_and_the_lock_is_removed_at_the_end(address, archive):
    with contextlib.suppress(LookupError), locked(archive):
        with pytest.raises(ArchiveLockedError) as caught, locked(Archive(address)):
            pass
        assert f"process {os.getpid()} on" in str(caught.value)
        assert "in 60 s if it was killed" in str(caught.value)
        note = holder_of(archive)
        assert (caught.value.holder, note["pid"]) == (note, os.getpid())
        assert set(note) == {"pid", "host", "since", "seconds", "token", "renewed"}
        assert list(archive.store.names()) == ["_lock.json"]
        raise LookupError
    assert (list(archive.store.names()), archive.store.guard) == ([], None)


@pytest.mark.parametrize("left", [None, {**DEAD, "seconds": -2}])
def test_one_of_several_simultaneous_writers_gets_the_lock(address, archive, left):
    ready, done = (threading.Barrier(5, timeout=20) for _ in range(2))

    def try_(_):
        ready.wait()
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(address))
            except ArchiveLockedError:
                return done.wait() < 0
            return done.wait() >= 0

    if left is not None:
        put(address, left)
    with ThreadPoolExecutor(5) as pool:
        assert sorted(pool.map(try_, range(5))) == [False] * 4 + [True]
    assert list(archive.store.names()) == []


def test_a_held_lock_is_renewed_repeatedly(archive):
    with leased(archive, seconds=0.3):
        first = holder_of(archive)["renewed"]
        eventually(lambda: holder_of(archive)["renewed"] > first + 3)


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_killed_holders_lock_expires_by_the_stores_clock(address, archive, front, hours):
    put(address, DEAD)
    front.clock, front.aged = hours * 3600, 61
    with pytest.raises(ArchiveLockedError), leased(archive):
        pass
    front.aged = 62
    with leased(archive):
        assert holder_of(archive)["pid"] != 7


def test_a_run_that_slept_past_its_lease_writes_nothing_after_a_takeover(address, archive, front):
    with leased(archive, seconds=0.3, is_asleep=True):
        front.aged = 3
        time.sleep(0.2)
        with leased(Archive(address)):
            mine = holder_of(archive)
            for use, *given in (("write", "late", b""), ("delete", "_archive.json")):
                with pytest.raises(ArchiveLockedError, match=f"process {mine['pid']} on"):
                    getattr(archive.store, use)(*given)
            assert (list(archive.store.names()), holder_of(archive)) == (["_lock.json"], mine)


def test_a_deleted_lock_is_lost_although_the_store_would_accept_it_again(address, archive, front):
    with leased(archive, seconds=0.3, is_asleep=True) as check:
        front.forget = ["HTTP_IF_MATCH"]
        Archive(address).store.delete("_lock.json")
        time.sleep(0.1)
        with pytest.raises(ArchiveLockedError, match="another run took it over"):
            check()
    assert list(archive.store.names()) == []


def test_a_store_that_was_unreachable_loses_no_lock_that_nobody_took(archive, front):
    with leased(archive, seconds=0.3) as check:
        front.refuse = lambda environ: 400
        time.sleep(0.5)
        with pytest.raises(OSError, match=r"_lock\.json"):
            check()
        front.refuse = lambda environ: None
        check()


@pytest.mark.parametrize("when", ["making", "renewing"])
def test_a_lost_answer_does_not_lose_the_lock(archive, front, when):
    front.lose = 1 if when == "making" else 0
    with leased(archive, seconds=0.6) as check:
        front.lose = 2 if when == "renewing" else 0
        eventually(lambda: front.lose == 0)
        time.sleep(0.4)
        check()
    assert list(archive.store.names()) == []


@pytest.mark.parametrize("name", ["HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"])
def test_a_store_without_conditional_puts_has_no_lock(archive, front, caplog, name):
    front.forget = [name]
    with locked(archive):
        assert "has no lock: the store ignores the conditions of a write" in caplog.text
    front.forget, front.refuse = (), refusing(501, name)
    with locked(archive):
        assert "has no lock: the store has no conditional writes" in caplog.text
    assert list(archive.store.names()) == []


def test_without_boto3_there_is_no_lock_and_the_message_says_what_to_install(
    archive, monkeypatch, caplog
):
    monkeypatch.setitem(sys.modules, "boto3", None)
    with locked(archive), locked(archive):
        assert "has no lock: a lock needs boto3: pip install 'balance-analysis[s3]'" in caplog.text
        assert "?" not in caplog.text


def test_an_unreachable_store_is_named(address, serving):
    away = address.replace(serving[1], "127.0.0.1:1")
    with pytest.raises(OSError, match=r"_lock\.json.*127\.0\.0\.1:1"), locked(away):
        pass


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_the_lock_is_at_the_address_that_pyarrow_uses(
    address, serving, monkeypatch, tmp_path, name
):
    monkeypatch.setenv(name, f"http://{serving[1]}")
    archive = Archive(address.partition("?")[0] + "?region=us-east-1")
    with locked(archive):
        assert list(archive.store.names()) == ["_lock.json"]
    # The address goes before the environment, and pyarrow heeds no file.
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    # Such a server may have buckets in paths only, even if it has a name.
    with locked(address.replace("127.0.0.1", "localhost")):
        assert holder_of(address)
    monkeypatch.delenv(name)
    (tmp_path / "config").write_text("[default]\nendpoint_url = http://127.0.0.1:1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    make = boto3.Session.client

    def look(*arguments, **options):
        with contextlib.closing(make(*arguments, **options)) as client:
            raise LookupError(client.meta.endpoint_url)

    monkeypatch.setattr(boto3.Session, "client", look)
    where = "s3://bucket/a?region=eu-west-1"
    with pytest.raises(LookupError, match=r"https://s3\.eu-west-1\.amazonaws\.com"), locked(where):
        pass


def test_a_lock_that_the_store_fails_to_confirm_is_not_left_behind(archive, front):
    front.refuse = refusing(403, "HTTP_IF_MATCH")
    with pytest.raises(OSError, match=r"_lock\.json"), locked(archive):
        pass
    assert list(archive.store.names()) == []


def test_an_export_that_loses_the_lock_stops_before_a_write(address, archive, front, monkeypatch):
    monkeypatch.setattr(SECONDS, 0.3)
    begin(address)
    before = archive.store.read("_archive.json")

    def steal(*_):
        if holder_of(archive) != DEAD:
            put(address, DEAD)
            time.sleep(0.2)
            front.writes.clear()

    with node_of(ROWS, edit_page=steal) as node, pytest.raises(ArchiveLockedError, match="gone"):
        run_export(node, archive, start=START, end=END)
    assert archive.store.read("_archive.json") == before
    assert all("_lock.json" in path for path in front.writes)
