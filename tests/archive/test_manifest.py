"""The manifest keeps the whole state of an archive, and whatever is no state is damage."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance_analysis import Archive, ArchiveDamagedError, ArchiveError
from balance_analysis.archive.datafile import NO_ROWS
from balance_analysis.archive.manifest import FileEntry, Manifest, parse, sign, to_bytes
from balance_analysis.archive.store import Store
from balance_analysis.evidence import Answer, Evidence, Node, SetAside
from balance_analysis.filters import Filters
from tests.archive.writing import answered, begin, writer_of
from tests.cli.running import fails
from tests.test_evidence import histories, runs

NOTE = FileEntry(3, 900, "ab" * 32, 2, 1_680_307_200_000_001, "12" * 32)
NOTES = st.builds(
    FileEntry,
    *[st.integers(0, 9)] * 2,
    st.just("cd" * 32),
    *[st.integers(0, 2**51)] * 2,
    st.just("ef" * 32),
)
ONE = Node("http://one", frozenset({"1.1.1.1:80"}))
STATE = Manifest(
    "day",
    Evidence(
        Filters("a1", ("p1",)),
        (Answer((0, 9), ONE, (5, 6), (4, 7)),),
        (SetAside((3, 4), ("a1", "t1", "p1", "")), SetAside((5, 8))),
        (((0, 3), Node("http://two", frozenset({"2.2.2.2:80"}))),),
        (((1, 2), Node("elsewhere")),),
        from_first_block=True,
    ),
    {"2023-04-01": NOTE},
    {0: NOTE},
).announce("2023-04-02", NOTE, Evidence(Filters("a1", ("p1",))))


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def content_of(state):
    return json.loads(to_bytes(state))


def changed(edit):
    content = content_of(STATE)
    del content["sha256"]
    edit(content)
    return content


@given(histories(), runs(), NOTES)
def test_what_is_announced_holds_once_it_is_settled_and_not_before(made, run, note):
    before, both = Manifest("day", made[0]), made[0] | run[0]
    announced = before.announce("2023-04-01", note, both)
    assert (announced.evidence, announced.files) == (before.evidence, {})
    settled = announced.settle()
    assert (settled.evidence, settled.files) == (both, {"2023-04-01": note})
    assert settled.pending is None
    assert settled.settle() == settled
    earlier = settled.announce("2023-03-31", note, both).settle()
    assert list(earlier.files) == ["2023-03-31", "2023-04-01"]


@given(
    histories(),
    st.dictionaries(st.sampled_from(["2023-04-01", "2023-04-02"]), NOTES),
    st.dictionaries(st.integers(0, 2**51), NOTES),
    st.none() | NOTES,
)
def test_its_file_keeps_every_part(made, files, checkpoints, pending):
    state = Manifest("day", made[0], dict(sorted(files.items())), checkpoints)
    if pending is not None:
        state = state.announce("2023-04-03", pending, made[0])
    again = parse(Store("."), to_bytes(state))
    assert (again, to_bytes(again)) == (state, to_bytes(state))


@pytest.mark.parametrize("key", ["partition", "evidence", "files", "checkpoints", "pending"])
def test_a_file_without_one_of_its_keys_is_damaged(store, key):
    content = changed(lambda content: content.pop(key))
    with pytest.raises(ArchiveDamagedError, match=key):
        parse(store, sign(content))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"{}",
        b'"1"',
        b'{"format": 2}',
        b'{"format": "2", "files": {}}',
        b'{"format": 2, "files": [1], "sha256": ""}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_state_is_damaged(store, content):
    with pytest.raises(ArchiveDamagedError, match=r"_archive\.json is damaged"):
        parse(store, content)


def test_no_flipped_bit_and_no_cut_makes_it_tell_anything_else(store):
    content = to_bytes(STATE)
    for place in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(ArchiveError):
            parse(store, bytes(flipped))
    for cut in range(len(content) - 1):
        with pytest.raises(ArchiveError, match=r"_archive\.json is damaged \((?!\w+Error)"):
            parse(store, content[:cut])


@pytest.mark.parametrize(
    "edit",
    [
        lambda c: c.update(partition="week"),
        lambda c: c["evidence"]["answers"][0].update(reached=1),
        lambda c: c["evidence"]["answers"][0].update(reached="true"),
        lambda c: c["evidence"]["answers"][0].update(heights=[4.5, 7]),
        lambda c: c["evidence"]["answers"][0].update(span=[9, 0]),
        lambda c: c["evidence"]["answers"][0].update(asked=["yesterday", "today"]),
        lambda c: c["evidence"]["set_aside"][0].update(account="a1"),
        lambda c: c["files"].update({"2023-02-30": c["files"]["2023-04-01"]}),
        lambda c: c["files"].update({"2023-03-31": c["files"]["2023-04-01"]}),
        lambda c: c["files"].update({"2023-04": c["files"]["2023-04-01"]}),
        lambda c: c["files"]["2023-04-01"].pop("sha256"),
        lambda c: c["checkpoints"].update({"April": c["files"]["2023-04-01"]}),
        lambda c: c["pending"].update(period="2023-02-30"),
        lambda c: c["pending"]["evidence"]["filters"].update(asset_id="a2"),
    ],
)
def test_whatever_is_no_value_of_its_kind_is_damage(store, edit):
    with pytest.raises(ArchiveDamagedError):
        parse(store, sign(changed(edit)))
    assert parse(store, sign(changed(lambda content: content))) == STATE


def test_who_has_no_digest_is_damaged(store):
    with pytest.raises(ArchiveDamagedError, match="match its digest"):
        parse(store, json.dumps(changed(lambda content: content)).encode())


def test_blanks_and_the_order_of_keys_do_not_matter(store):
    content = dict(reversed(content_of(STATE).items()))
    assert parse(store, json.dumps(content, indent=4).encode()) == STATE


def test_a_newer_format_asks_for_a_newer_package(store):
    with pytest.raises(ArchiveError, match="format 3, which is newer than this package reads"):
        parse(store, to_bytes(STATE).replace(b'"format": 2', b'"format": 3'))


def test_an_archive_of_the_first_format_is_refused_and_stays_as_it_is(tmp_path):
    about = {"format_version": 1, "partition": "day", "filters": {}, "sha256": ""}
    (tmp_path / "_archive.json").write_text(json.dumps(about))
    for read in (Archive(tmp_path).read, Archive(tmp_path).status, lambda: begin(tmp_path)):
        with pytest.raises(ArchiveError, match="older format, which this package doesn't read"):
            read()
    assert "export" in fails("status", tmp_path, code=2, folder=tmp_path)
    assert json.loads((tmp_path / "_archive.json").read_text()) == about


def test_an_archive_keeps_to_its_query(tmp_path):
    begin(tmp_path, asset_id="a1")
    for query in ({"asset_id": "a2"}, {"asset_id": "a1", "partition": "month"}):
        with pytest.raises(ArchiveError, match="bound to another query"):
            begin(tmp_path, **query)
    others = answered((0, 9), "http://one", "2023-04-01", asset_id="a2")
    with pytest.raises(ValueError, match="different accounts"):
        writer_of(tmp_path).commit("1970-01-01", NO_ROWS, others)


def test_the_frame_tells_states_in_time_order_and_gaps_between_them(tmp_path):
    writer, evidence = begin(tmp_path), Evidence()
    asked_at = "2023-04-01T00:00:00+00:00"
    evidence |= answered((0, 2), "http://one", asked_at, reached=False)
    evidence |= answered((2, 4), "http://user:secret@one", asked_at, height=7)
    evidence |= answered((9, 12), "http://two", "2023-04-02T00:00:00+00:00", height=8)
    evidence |= answered((12, 14), "http://two", "2023-04-03T00:00:00+00:00", height=11)
    writer.prove(evidence.with_words(Node("http://you:secret@three", frozenset("3")), [(3, 4)], []))
    frame = Archive(tmp_path).coverage()
    assert frame["state"].tolist() == ["unproven", "complete", "confirmed", "missing", "complete"]
    assert frame["start"].astype("int64").tolist() == [0, 2, 3, 4, 9]
    assert frame["end"].astype("int64").tolist() == [2, 3, 4, 9, 14]
    assert frame["block_height"].dropna().tolist() == [7, 7, 11]
    assert frame["first_block_height"].dropna().tolist() == [7, 7, 8]
    assert frame["asked_at"].dt.day.dropna().tolist() == [1, 1, 1, 3]
    assert frame["first_asked_at"].dt.day.dropna().tolist() == [1, 1, 1, 2]
    assert frame["source"].dropna().str[-3:].tolist() == ["one", "one", "one", "two"]
    assert frame["confirmed_by"].dropna().str[-5:].tolist() == ["three"]
    assert "secret" not in frame.to_csv() + str(Archive(tmp_path).status())
    begin(tmp_path / "empty")
    assert frame.dtypes.equals(Archive(tmp_path / "empty").coverage().dtypes)
    assert [str(frame.dtypes[name]) for name in ("start", "end", "asked_at", "first_asked_at")] == [
        "datetime64[us, UTC]"
    ] * 4
