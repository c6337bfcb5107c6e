"""In an object store one run at a time writes too, and what a dead one left is free in time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from balance_analysis import Archive, ArchiveLockedError
from balance_analysis.archive import lock
from balance_analysis.archive.lock import one_writer, read_holder
from tests.archive.exporting import END, START, node_of, run_export, spread_history
from tests.archive.writing import holding

DEAD = {"pid": 7, "host": "gone", "since": "2023-04-01T00:00:00+00:00", "seconds": 60, "token": "x"}
ROWS = spread_history(1, rows=40, accounts=9)


@pytest.fixture
def put(s3, bucket):
    """Return what puts a note in the lock's place, whoever holds it."""

    def put(note):
        s3.put_object(Bucket=bucket, Key="a/_lock.json", Body=json.dumps(note))

    return put


@contextlib.contextmanager
def leased(store, seconds=60.0):
    """Hold the lock for so long at a time, and give what a write asks first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lock, "SECONDS", seconds)
        with one_writer(store):
            yield store.guard


def eventually(ask, seconds=60):
    """Return the first answer that is true."""
    until = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return answer


def contest(address, count=5):
    """Let several try at once; return of each whether it got the lock."""
    ready, done = (threading.Barrier(count, timeout=20) for _ in range(2))

    def run(_):
        with contextlib.ExitStack() as stack, contextlib.suppress(ArchiveLockedError):
            stack.callback(done.wait)
            ready.wait()
            with leased(Archive(address).store):
                stack.close()
                return True
        return False

    with ThreadPoolExecutor(count) as pool:
        return [*pool.map(run, range(count))]


def is_lost(check):
    try:
        check()
    except ArchiveLockedError:
        return True
    return False


def test_a_second_writer_is_refused_and_the_holder_named(address):
    with one_writer(Archive(address).store):
        with pytest.raises(ArchiveLockedError) as caught, one_writer(Archive(address).store):
            pass
        assert f"process {os.getpid()} on" in str(caught.value)
        assert "if it was killed, in 60 s" in str(caught.value)
        note = read_holder(Archive(address).store)
        assert (caught.value.holder, note["pid"]) == (note, os.getpid())
        assert set(note) == {"pid", "host", "since", "seconds", "token", "renewed"}


def test_the_lock_is_removed_at_the_end_and_after_an_error(address):
    store = Archive(address).store
    with pytest.raises(RuntimeError, match="x"), one_writer(store):
        raise RuntimeError("x")
    assert list(store.names()) == []
    with one_writer(store):
        assert list(store.names()) == ["_lock.json"]
    assert (list(store.names()), store.guard) == ([], None)


@pytest.mark.parametrize("left", [None, {**DEAD, "seconds": -2}])
def test_of_several_at_once_one_gets_the_lock(address, put, left):
    if left is not None:
        put(left)
    assert sorted(contest(address)) == [False] * 4 + [True]
    assert list(Archive(address).store.names()) == []


def test_a_lock_that_is_held_is_renewed_over_and_over(address):
    store = Archive(address).store
    with leased(store, seconds=0.3):
        first = read_holder(store)["renewed"]
        eventually(lambda: read_holder(store)["renewed"] > first + 3)


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_killed_holders_lock_is_free_when_its_time_is_over_by_the_stores_clock(
    address, front, put, hours
):
    put(DEAD)
    front.clock = hours * 3600
    with pytest.raises(ArchiveLockedError), leased(Archive(address).store):
        pass
    front.aged = 63
    with leased(Archive(address).store):
        assert read_holder(Archive(address).store)["pid"] != 7


def test_a_holder_that_was_stopped_writes_nothing_when_another_took_over(address, front):
    store = Archive(address).store
    with holding(address, seconds=1) as process:
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.7)
        front.aged = 3
        with one_writer(store):
            mine = read_holder(store)
            process.send_signal(signal.SIGCONT)
            _, errors = process.communicate("write\n")
            assert "ArchiveLockedError" in errors
            assert f"process {mine['pid']} on" in errors
            assert (store.read("late"), read_holder(store)) == (None, mine)


def test_a_write_finds_out_itself_what_the_background_did_not(address, put, monkeypatch):
    monkeypatch.setattr(lock._Lease, "keep", lambda _: None)
    store = Archive(address).store
    with leased(store, seconds=0.3):
        put(DEAD)
        time.sleep(0.2)
        with pytest.raises(ArchiveLockedError, match="process 7 on gone"):
            store.write("late", b"")
        with pytest.raises(ArchiveLockedError, match="process 7 on gone"):
            store.delete("_archive.json")
    assert list(store.names()) == ["_lock.json"]


def test_a_lock_that_is_gone_is_lost_though_the_store_would_put_it_again(
    address, front, s3, bucket
):
    store = Archive(address).store
    with leased(store, seconds=0.3) as check:
        front.refuse = lambda environ: 400 if environ["REQUEST_METHOD"] == "PUT" else None
        s3.delete_object(Bucket=bucket, Key="a/_lock.json")
        time.sleep(0.4)
        front.forget = ["HTTP_IF_MATCH"]
        front.refuse = lambda environ: None
        eventually(lambda: is_lost(check))
    assert list(store.names()) == []


def test_a_store_that_was_out_of_reach_costs_no_lock_that_nobody_took(address, front):
    with leased(Archive(address).store, seconds=0.3) as check:
        front.refuse = lambda environ: 400
        time.sleep(0.5)
        with pytest.raises(OSError, match=r"_lock\.json"):
            check()
        front.refuse = lambda environ: None
        check()


@pytest.mark.parametrize("when", ["making", "renewing"])
def test_an_answer_that_got_lost_does_not_lose_the_lock(address, front, when):
    front.lose = 1 if when == "making" else 0
    with leased(Archive(address).store, seconds=0.6) as check:
        front.lose = 2 if when == "renewing" else 0
        eventually(lambda: front.lose == 0)
        time.sleep(0.4)
        check()
    assert list(Archive(address).store.names()) == []


@pytest.mark.parametrize("condition", ["HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"])
@pytest.mark.parametrize(
    ("is_refused", "said"),
    [(False, "ignores the conditions of a write"), (True, "has no conditional writes")],
)
def test_a_store_without_conditional_puts_has_no_lock(
    *, address, front, condition, is_refused, said, caplog
):
    if is_refused:
        front.refuse = lambda environ: 501 if condition in environ else None
    else:
        front.forget = [condition]
    with one_writer(Archive(address).store), one_writer(Archive(address).store):
        assert f"has no lock: the store {said}" in caplog.text
    assert list(Archive(address).store.names()) == []


def test_without_boto3_there_is_no_lock_and_the_way_to_one_is_named(address, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "boto3", None)
    with one_writer(Archive(address).store), one_writer(Archive(address).store):
        pass
    assert "has no lock: a lock takes boto3: pip install 'balance-analysis[s3]'" in caplog.text
    assert "?" not in caplog.text


def test_a_store_out_of_reach_is_named(address, serving):
    where = address.replace("s3://", "s3://nowhere-")
    with (
        pytest.raises(OSError, match=r"s3://nowhere-.*NoSuchBucket"),
        one_writer(Archive(where).store),
    ):
        pass
    away = address.replace(serving[1], "127.0.0.1:1")
    with (
        pytest.raises(OSError, match=r"_lock\.json.*127\.0\.0\.1:1"),
        one_writer(Archive(away).store),
    ):
        pass


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_the_lock_is_where_pyarrow_has_the_archive(address, serving, monkeypatch, tmp_path, name):
    monkeypatch.setenv(name, f"http://{serving[1]}")
    store = Archive(address.partition("?")[0] + "?region=us-east-1").store
    with one_writer(store):
        assert list(store.names()) == ["_lock.json"]
    # The address goes before the environment, and pyarrow heeds no file.
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    with one_writer(Archive(address).store):
        assert read_holder(Archive(address).store)
    monkeypatch.delenv(name)
    (tmp_path / "config").write_text("[default]\nendpoint_url = http://127.0.0.1:1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with contextlib.closing(
        lock._client(Archive("s3://bucket/a?region=eu-west-1").store)
    ) as client:
        assert client.meta.endpoint_url == "https://s3.eu-west-1.amazonaws.com"


def test_a_lock_that_the_store_fails_to_confirm_is_not_left_behind(address, front):
    front.refuse = lambda environ: 403 if "HTTP_IF_MATCH" in environ else None
    with pytest.raises(OSError, match=r"_lock\.json"), one_writer(Archive(address).store):
        pass
    assert list(Archive(address).store.names()) == []


def test_an_export_that_loses_the_lock_stops_before_its_next_write(
    address, front, put, monkeypatch
):
    monkeypatch.setattr(lock, "SECONDS", 0.3)
    with node_of(ROWS) as node:
        run_export(node, address, start=START, end=(START + END) // 2)
    before = Archive(address).store.read("_archive.json")

    def steal(answer, _request):
        put(DEAD)
        time.sleep(0.4)
        front.writes.clear()
        return answer

    with node_of(ROWS, edit_page=steal) as node, pytest.raises(ArchiveLockedError):
        run_export(node, address, end=END)
    assert Archive(address).store.read("_archive.json") == before
    assert all("_lock.json" in path for path in front.writes)
