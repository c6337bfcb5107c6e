"""In S3 a file is put only where nobody has put it since: of two writers one stops."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from balance_analysis import Archive, ArchiveLockedError
from balance_analysis.archive.s3 import NoConditionsError, Objects


@pytest.fixture
def open_store(address):
    """Return what opens the files of one archive, each time as another process does."""
    opened = []

    def open_one():
        store = Archive(address).store
        store.objects = Objects(store.place("x")[0])
        opened.append(store.objects)
        return store

    yield open_one
    for each in opened:
        each.close()


def test_a_file_is_put_where_its_tag_is_the_same(open_store):
    store = open_store()
    assert store.read_tagged("x") == (None, "")
    tag = store.write("x", b"1", unless_changed_since="")
    assert store.read_tagged("x") == (b"1", tag)
    newer = store.write("x", b"2", unless_changed_since=tag)
    assert store.read_tagged("x") == (b"2", newer)
    assert newer != tag


def test_a_file_that_another_has_put_is_left_alone(open_store):
    one, other = open_store(), open_store()
    with pytest.raises(ArchiveLockedError, match=r"another run has written s3://.*/a/x"):
        other.write("x", b"2", unless_changed_since=one.write("y", b"1", unless_changed_since=""))
    tag = one.write("x", b"1", unless_changed_since="")
    with pytest.raises(ArchiveLockedError):
        other.write("x", b"2", unless_changed_since="")
    one.write("x", b"3", unless_changed_since=tag)
    with pytest.raises(ArchiveLockedError):
        other.write("x", b"2", unless_changed_since=tag)
    assert other.read("x") == b"3"


def test_of_several_at_once_one_puts(open_store):
    tag = open_store().write("x", b"", unless_changed_since="")
    ready, stores = threading.Barrier(5, timeout=20), [open_store() for _ in range(5)]
    won, lost = [], []

    def put(number):
        ready.wait()
        try:
            stores[number].write("x", b"%d" % number, unless_changed_since=tag)
            won.append(b"%d" % number)
        except ArchiveLockedError:
            lost.append(number)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 4)
    assert open_store().read("x") == won[0]


def test_an_answer_that_got_lost_is_no_other_writer(open_store, front):
    store = open_store()
    tag = store.write("x", b"1", unless_changed_since="")
    front.lose = 1
    tag = store.write("x", b"2", unless_changed_since=tag)
    assert front.lose == 0
    assert store.read_tagged("x") == (b"2", tag)


def test_a_folder_has_no_tags(tmp_path):
    store = Archive(tmp_path).store
    assert store.write("x", b"1", unless_changed_since=None) is None
    assert store.read_tagged("x") == (b"1", None)


def test_conditions_that_are_heeded_leave_nothing_behind(open_store):
    store = open_store()
    store.objects.check(store.place("probe")[1])
    assert store.names() == []


@pytest.mark.parametrize("forgotten", ["HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"])
def test_a_store_that_ignores_conditions_is_noticed(open_store, front, forgotten):
    store, front.forget = open_store(), [forgotten]
    with pytest.raises(NoConditionsError, match="ignores the conditions"):
        store.objects.check(store.place("probe")[1])
    assert store.names() == []


def test_a_store_that_knows_no_conditions_is_noticed(open_store, front):
    store = open_store()
    front.refuse = lambda environ: 501 if "HTTP_IF_MATCH" in environ else None
    with pytest.raises(NoConditionsError, match="has no conditional writes"):
        store.objects.check(store.place("probe")[1])


def test_other_stores_have_no_conditions(tmp_path):
    files = Archive(tmp_path).store.place("x")[0]
    with pytest.raises(NoConditionsError, match="this kind of store"), closing(Objects(files)):
        pass
