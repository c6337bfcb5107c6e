"""Each answer is of one state of the archive, whatever an export commits while it is made."""

from __future__ import annotations

import contextlib
import pickle
import threading
from operator import attrgetter

import pandas as pd
import pytest

import balance_analysis as ba
from balance_analysis.archive.snapshot import LruCache
from balance_analysis.archive.store import Store
from tests.archive.exporting import content_of, dont_wait, node_of, spread_history

START, END = 1_676_000_000_000_000, 1_682_000_000_000_000  # 2023-02-10 to 2023-04-20
EARLIER, MIDDLE = START + 900_000_000_000, 1_680_700_000_000_000
ROWS = spread_history(8, start=START, end=END, rows=60, accounts=12)
WIDE = {"start": "2020-01-01", "end": "2100-01-01", "partial": True}
FIELDS = ("complete", "missing", "unproven", "rows", "accounts", "files", "checkpoints", "size")


def answer_of(frame):
    attrs = frame.attrs.get("balance_analysis", {})
    return frame.to_csv(), attrs.get("known"), attrs.get("nothing_before")


READS = {
    "read": lambda archive: answer_of(archive.read(**WIDE)),
    "some columns": lambda archive: answer_of(
        archive.read(columns=["balance", "timestamp"], **WIDE)
    ),
    "openings": lambda archive: answer_of(
        archive.read(start="2023-03-20", end="2023-04-02", opening=True, partial=True)
    ),
    "balance_at": lambda archive: answer_of(ba.balance_at(archive, "2023-04-10")),
    "summaries": lambda archive: answer_of(ba.summarize_accounts(archive)),
    "flows": lambda archive: answer_of(ba.flows(archive, by="asset_id")),
    "status": lambda archive: attrgetter(*FIELDS)(archive.status()),
}


class Watched(Store):
    """The files of an archive: something happens before each look and after each change."""

    def __init__(self, folder, looks=lambda: None, changes=lambda: None):
        super().__init__(folder)
        self.looks, self.changes, self.turn = looks, changes, threading.Lock()

    def read(self, name):
        with self.turn:
            self.looks()
            return super().read(name)

    def open(self, name):
        with self.turn:
            self.looks()
            return super().open(name)

    def sizes(self, folder=""):
        with self.turn:
            self.looks()
            return super().sizes(folder)

    def write(self, name, content):
        super().write(name, content)
        self.changes()

    def delete(self, name):
        super().delete(name)
        self.changes()


def archive_of(folder, **happens):
    archive = ba.Archive(folder)
    archive.store = Watched(folder, **happens)
    return archive


def files_of(folder):
    return {name: data for name, data in content_of(folder).items() if "_lock" not in name}


def put(folder, files):
    """Bring an archive into another state."""
    now = files_of(folder)
    for name in now.keys() - files.keys():
        (folder / name).unlink()
    for name, data in files.items():
        if now.get(name) != data:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.new").write_bytes(data)
            (folder / f"{name}.new").replace(folder / name)


def exported(node, archive, start, end=END, **how):
    start, end = (pd.Timestamp(at, unit="us", tz="UTC") for at in (start, end))
    with ba.Client(node.url, sleep=dont_wait) as client:
        ba.export(client, archive, start=start, end=end, partition="month", **how)


def grows(node, archive):
    exported(node, archive, START, MIDDLE)
    yield
    exported(node, archive, START)


def goes_back(node, archive):
    exported(node, archive, EARLIER)
    yield
    exported(node, archive, START)


def is_proven(node, archive):
    node.replace([row for row in ROWS if row.timestamp_ns >= MIDDLE * 1000])
    exported(node, archive, START)
    node.replace(ROWS)
    yield
    exported(node, archive, START, fill_gaps=True)


@pytest.fixture(scope="module", params=[grows, goes_back, is_proven])
def history(request, tmp_path_factory):
    """All states that an export brings an archive to, file by file, and each read of each."""
    folder = tmp_path_factory.mktemp("archive") / "a"
    states = []
    with node_of(ROWS, head=END) as node:
        archive = ba.Archive(folder)
        run = request.param(node, archive)
        next(run)
        states.append(files_of(folder))
        archive.store = Watched(folder, changes=lambda: states.append(files_of(folder)))
        next(run, None)
    answers, before = {name: [] for name in READS}, None
    for files in states:
        put(folder, files)
        # Files that the manifest doesn't name yet change no answer.
        is_other = files["_archive.json"] != before
        before = files["_archive.json"]
        for name, read in READS.items():
            answers[name].append(read(ba.Archive(folder)) if is_other else answers[name][-1])
    return states, answers


@pytest.mark.parametrize("stride", [1, 4])
@pytest.mark.parametrize("name", READS)
def test_an_answer_is_of_one_state_while_an_export_commits(history, tmp_path, name, stride):
    states, answers = history
    for begin in range(stride // 2, len(states), 9):
        folder, coming = tmp_path / f"{begin}", iter(states[begin + 1 :: stride])
        put(folder, states[begin])

        def commit(folder=folder, coming=coming):
            if (files := next(coming, None)) is not None:
                put(folder, files)

        assert READS[name](archive_of(folder, looks=commit)) in answers[name][begin:]


@pytest.mark.parametrize("name", READS)
def test_answers_of_a_state_are_of_that_state_or_say_that_it_is_gone(history, tmp_path, name):
    states, answers = history
    put(tmp_path / "a", states[0])
    archive = ba.Archive(tmp_path / "a")
    then = archive.at(archive.snapshot())
    for files in states:
        put(tmp_path / "a", files)
        with contextlib.suppress(ba.SnapshotGoneError):
            assert READS[name](then) == answers[name][0]


@pytest.mark.parametrize("history", [grows], indirect=True)
def test_a_state_that_only_grew_is_never_gone(history, tmp_path):
    states, answers = history
    put(tmp_path / "a", states[0])
    archive = ba.Archive(tmp_path / "a")
    then = archive.at(archive.snapshot())
    put(tmp_path / "a", states[-1])
    assert answer_of(then.read(**WIDE)) == answers["read"][0]
    assert archive.snapshot() != then.snapshot() == pickle.loads(pickle.dumps(then.snapshot()))


@pytest.mark.parametrize("history", [grows], indirect=True)
def test_views_in_sql_are_of_the_state_in_which_they_were_made(history, tmp_path):
    states, _ = history
    put(tmp_path / "a", states[0])
    rows = ba.summarize_accounts(ba.Archive(tmp_path / "a"))["rows"]
    connection = ba.Archive(tmp_path / "a").connect()
    put(tmp_path / "a", states[-1])
    counts = connection.sql("select sum(rows), (select count(*) from changes) from accounts")
    assert counts.fetchall() == [(rows.sum(), rows.sum())]


def test_each_state_has_a_version_of_its_own_and_equal_ones_the_same(history, tmp_path):
    states, _ = history
    texts = [files["_archive.json"] for files in states]
    versions = []
    for files in states:
        put(tmp_path / "a", files)
        versions.append(ba.Archive(tmp_path / "a").snapshot().version)
    assert [len(version) for version in versions] == [16] * len(states)
    assert len(set(zip(texts, versions, strict=True))) == len(set(texts)) == len(set(versions))


def test_a_state_is_read_by_one_look_at_its_manifest(history, tmp_path):
    states, _ = history
    put(tmp_path / "a", states[0])
    looks = []
    archive = archive_of(tmp_path / "a", looks=lambda: looks.append(1))
    archive.coverage()
    assert len(looks) == 1


def test_what_was_used_longest_ago_is_let_go_where_all_is_too_much():
    cache = LruCache(10)
    for key, size in [("a", 4), ("b", 4), ("a", 3)]:
        cache.put(key, key, size)
    assert cache.get("b", lambda: ("again", 4)) == "b"
    cache.put("c", "c", 4)
    assert [cache.peek(key) for key in "abc"] == [None, "b", "c"]
    cache.put("d", "d", 99)
    assert [cache.peek(key) for key in "bcd"] == [None, None, "d"]
