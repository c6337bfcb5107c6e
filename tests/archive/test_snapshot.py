"""Each answer is from one state of the archive, whatever an export commits meanwhile."""

import contextlib
import pickle
import threading
from functools import partial
from operator import attrgetter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.archive.snapshot import LruCache
from tests.archive.exporting import content_of, node_of, run_export, spread_history
from tests.report.reading import write_key
from tests.serving import CHANGES, answering

START, END = 1_676_000_000_000_000, 1_682_000_000_000_000  # 2023-02-10 to 2023-04-20
EARLIER, PROVEN, MIDDLE = START + 900_000_000_000, 1_678_000_000_000_000, 1_680_700_000_000_000
ROWS = spread_history(8, start=START, end=END, rows=60, accounts=12)
WIDE = {"start": "2020-01-01", "end": "2100-01-01", "partial": True}
EVER = {"dateRange.startTimestamp": 1, "dateRange.endTimestamp": 2 * END * 1000}
ACCOUNT = write_key(max(row.account for row in ROWS))
FIELDS = ("complete", "missing", "unproven", "rows", "accounts", "files", "checkpoints", "size")


def answer_of(frame):
    attrs = frame.attrs.get("balance_analysis", {})
    return frame.to_csv(), attrs.get("known"), attrs.get("nothing_before")


def answered(archive, path, *, begin=lambda: None, **query):
    """Return the service's answers about an archive; `begin` is called after the start."""
    with answering(archive) as service:
        begin()
        answer = service.get(query, path)
    return answer.body, answer.headers.get("x-incomplete")


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
"""Reads of a state that may be fixed."""

SERVED = {
    "a page of the service": partial(answered, path=CHANGES, **EVER),
    "rows of the explorer": partial(answered, path="/explore/rows", account=ACCOUNT),
    "start of the explorer": partial(answered, path="/explore/about"),
    "totals of the explorer": partial(answered, path="/explore/totals"),
}
ANSWERS = READS | SERVED


def watch(archive, look):
    """Let something happen before each look at an archive's files, and return the archive."""
    turn = threading.Lock()

    def looking(read, *names):
        with turn:
            look()
            return read(*names)

    for name in ("read", "open", "sizes"):
        setattr(archive.store, name, partial(looking, getattr(archive.store, name)))
    return archive


class States:
    """The states that exports bring an archive to, one changed file apart, and reads of each."""

    def __init__(self, folder):
        self.folder, self.files, self.answers = folder, [], {}

    def put(self, number, folder):
        """Bring an archive into a state, and return it."""
        files, now = self.files[number], content_of(folder)
        for name in now.keys() - files.keys():
            (folder / name).unlink()
        for name, data in files.items():
            if now.get(name) != data:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / f"{name}.new").write_bytes(data)
                (folder / f"{name}.new").replace(folder / name)
        return ba.Archive(folder)

    def answer(self, number, name):
        """Return the result of a read in a state."""
        if (number, name) not in self.answers:
            self.answers[number, name] = ANSWERS[name](self.put(number, self.folder))
        return self.answers[number, name]


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """The states while newer rows come, then older ones, then the proof of forgotten ones."""
    folder = tmp_path_factory.mktemp("archive") / "a"
    states, month = States(folder), {"partition": "month"}

    def note():
        if (files := content_of(folder)) not in states.files[-1:]:
            states.files.append(files)

    node = node_of([row for row in ROWS if row.time >= PROVEN], head=END)
    run_export(node, folder, start=EARLIER, end=MIDDLE, **month)
    archive = ba.Archive(folder)
    archive.store.guard = note  # before each write
    run_export(node, archive, end=END, **month)
    note()
    states.grown = len(states.files) - 1
    node.replace(ROWS)
    run_export(node, archive, start=START, end=END, **month)
    run_export(node, archive, start=START, end=END, fill_gaps=True, **month)
    note()
    return states


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch") / "a"


places = st.integers(0, 10**6)
paces = st.tuples(st.integers(1, 5), st.sampled_from([1, 2, 3, 99]))


def check_answer(states, scratch, name, begin, pace):
    """Check the answer while an export commits before some reads of files.

    A pace is the number of states per commit, and the number of reads that commits precede.
    """
    now, (stride, commits) = begin, pace

    def commit():
        nonlocal now
        if now + stride < min(len(states.files), begin + stride * commits + 1):
            now += stride
            states.put(now, scratch)

    archive = states.put(begin, scratch)
    start = partial(watch, archive, commit)
    answer = SERVED[name](archive, begin=start) if name in SERVED else READS[name](start())
    assert any(answer == states.answer(number, name) for number in range(now, begin - 1, -1))


@settings(max_examples=8)
@given(name=st.sampled_from([*READS]), begin=places, pace=paces)
def test_an_answer_is_that_of_one_state_that_existed_meanwhile(states, scratch, name, begin, pace):
    check_answer(states, scratch, name, begin % len(states.files), pace)


@pytest.mark.parametrize("name", SERVED)
def test_a_served_answer_is_that_of_one_state_that_existed_meanwhile(states, scratch, name):
    for begin in range(len(states.files)):
        check_answer(states, scratch, name, begin, (1 + begin % 3, 1 + begin % 4))


@settings(max_examples=8)
@given(name=st.sampled_from([*READS]), begin=places, later=places)
def test_a_fixed_state_answers_from_that_state_or_says_that_it_is_gone(
    states, scratch, name, begin, later
):
    begin %= len(states.files)
    archive = states.put(begin, scratch)
    then = archive.at(archive.snapshot())
    states.put(begin + later % (len(states.files) - begin), scratch)
    # Of a file that is being replaced either one belongs to the state.
    same = states.files[begin]["_archive.json"]
    numbers = [n for n, files in enumerate(states.files) if files["_archive.json"] == same]
    with contextlib.suppress(ba.SnapshotGoneError):
        answer = READS[name](then)
        assert any(answer == states.answer(number, name) for number in numbers)


def test_a_state_is_never_gone_if_the_archive_only_grew(states, scratch):
    archive = states.put(0, scratch)
    then = archive.at(archive.snapshot())
    connection, rows = archive.connect(), ba.summarize_accounts(archive)["rows"].sum()
    states.put(states.grown, scratch)
    assert answer_of(then.read(**WIDE)) == states.answer(0, "read")
    assert archive.snapshot() != then.snapshot() == pickle.loads(pickle.dumps(then.snapshot()))
    # So are views in SQL of the state in which they were made.
    counts = connection.sql("select sum(rows), (select count(*) from changes) from accounts")
    assert counts.fetchall() == [(rows, rows)]


def test_a_state_is_never_gone_if_its_single_file_only_grew(tmp_path):
    run_export(node_of(ROWS), tmp_path, start=START, end=START + 10**12, partition="month")
    then = (archive := ba.Archive(tmp_path)).at(archive.snapshot())
    before = answer_of(then.read(**WIDE))
    run_export(node_of(ROWS), tmp_path, end=END)
    assert answer_of(then.read(**WIDE)) == before != answer_of(archive.read(**WIDE))


def test_each_state_has_its_own_version_and_equal_states_have_the_same(states, scratch):
    versions = {}
    for number, files in enumerate(states.files):
        version = states.put(number, scratch).snapshot().version
        assert versions.setdefault(files["_archive.json"], version) == version
        assert len(version) == 16
    assert len({*versions.values()}) == len(versions) > 10


def test_a_state_is_read_from_one_read_of_its_manifest(states, scratch):
    looks = []
    watch(states.put(0, scratch), lambda: looks.append(1)).coverage()
    assert len(looks) == 1


def test_the_least_recently_used_entries_are_dropped_when_the_cache_is_full():
    cache = LruCache(10)
    for key, made in [("a", "a"), ("b", "b"), ("a", "not again"), ("b", "not again"), ("c", "c")]:
        cache.get(key, lambda made=made: (made, 4))
    assert [cache.peek(key) for key in "abc"] == [None, "b", "c"]
    cache.get("d", lambda: ("d", 99))
    assert [cache.peek(key) for key in "bcd"] == [None, None, "d"]
