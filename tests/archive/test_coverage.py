"""What an archive knows follows a naive model: a set of microseconds, each with who answered."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance_analysis import ArchiveDamagedError, ArchiveError
from balance_analysis.archive.coverage import (
    Coverage,
    FileEntry,
    Interval,
    LimitsNote,
    Pending,
    from_json,
    to_json,
    with_checksum,
)

LENGTH = 24
NOTE = FileEntry(rows=3, size=900, sha256="ab" * 32, first=2, last=1_680_307_200_000_001)


@st.composite
def intervals(draw):
    start, end = sorted(draw(st.tuples(st.integers(0, LENGTH), st.integers(0, LENGTH))))
    return Interval(
        start,
        end,
        draw(st.booleans()),
        draw(st.sampled_from(["http://one", "http://two"])),
        draw(st.none() | st.integers(0, 9)),
        f"2023-04-0{draw(st.integers(1, 9))}T00:00:00+00:00",
    )


NOTES = st.builds(
    FileEntry, *[st.integers(0, 9)] * 2, st.just("cd" * 32), *[st.integers(0, 2**51)] * 2
)
MANY = st.lists(intervals(), max_size=7)


def covering(asked):
    state = Coverage()
    for interval in asked:
        state = state.covers([interval])
    return state


def modelled(asked):
    """Return {microsecond: (proven, source)} by a loop over every microsecond."""
    known = {}
    for interval in asked:
        for moment in range(interval.start, interval.end):
            if interval.proven or not known.get(moment, (False, ""))[0]:
                known[moment] = (interval.proven, interval.source)
    return known


def moments(spans):
    return {moment for start, end in spans for moment in range(start, end)}


@given(MANY)
def test_each_microsecond_is_as_the_last_answer_about_it_says(asked):
    state = covering(asked)
    told = {
        moment: (interval.proven, interval.source)
        for interval in state.intervals
        for moment in range(interval.start, interval.end)
    }
    assert told == modelled(asked)


@given(MANY)
def test_intervals_ascend_without_overlap_and_those_that_touch_and_agree_are_one(asked):
    found = covering(asked).intervals
    assert all(interval.start < interval.end for interval in found)
    for a, b in itertools.pairwise(found):
        assert a.end < b.start or (
            a.end == b.start and (a.proven, a.source) != (b.proven, b.source)
        )


@given(MANY, intervals())
def test_what_is_proven_stays_proven(asked, another):
    before = covering(asked)
    after = before.covers([another])
    assert moments(after.missing(0, LENGTH)) <= moments(before.missing(0, LENGTH))


@given(MANY)
def test_covering_several_at_once_is_covering_one_after_the_other(asked):
    assert Coverage().covers(asked).intervals == covering(asked).intervals


@given(MANY, st.integers(-2, LENGTH), st.integers(0, LENGTH + 2), st.booleans())
def test_what_is_missing_is_what_no_answer_covers(asked, start, end, proven):
    known = modelled(asked)
    expected = {
        moment
        for moment in range(start, end)
        if moment not in known or (proven and not known[moment][0])
    }
    gaps = covering(asked).missing(start, end, proven=proven)
    assert moments(gaps) == expected
    assert all(a[1] < b[0] for a, b in itertools.pairwise(gaps))


@given(MANY)
def test_complete_reaches_from_the_first_proven_moment_to_the_last(asked):
    proven = [moment for moment, (is_proven, _) in modelled(asked).items() if is_proven]
    expected = (min(proven), max(proven) + 1) if proven else (0, 0)
    assert covering(asked).bounds() == expected


@given(MANY, st.lists(intervals(), min_size=1, max_size=3), NOTES)
def test_what_is_announced_holds_once_it_is_settled_and_not_before(asked, more, note):
    before = covering(asked)
    announced = before.announce("2023-04-01", note, more)
    assert (announced.intervals, announced.files) == (before.intervals, {})
    settled = announced.settle()
    assert settled.intervals == before.covers(more).intervals
    assert settled.files == {"2023-04-01": note}
    assert settled.pending is None
    assert settled.settle() == settled
    earlier = settled.announce("2023-03-31", note, []).settle()
    assert list(earlier.files) == ["2023-03-31", "2023-04-01"]


@given(
    MANY,
    st.dictionaries(st.sampled_from(["2023-04-01", "2023-04"]), NOTES),
    st.dictionaries(st.integers(0, 2**51), NOTES),
    st.none() | st.builds(Pending, st.just("2023-04-01"), NOTES, MANY.map(tuple)),
)
def test_json_keeps_every_part(asked, files, checkpoints, pending):
    limits = LimitsNote(3, 700, "ef" * 32)
    state = Coverage(covering(asked).intervals, files, checkpoints, limits, pending, limits)
    again = from_json(to_json(state), "_coverage.json")
    assert (again, to_json(again)) == (state, to_json(state))


@pytest.mark.parametrize("key", ["version", "intervals", "files", "checkpoints", "pending"])
def test_a_file_without_one_of_its_keys_is_damaged(key):
    content = json.loads(to_json(Coverage()))
    del content[key]
    with pytest.raises(ArchiveError, match="damaged"):
        from_json(json.dumps(content).encode(), "x")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b'"1"',
        b'{"version": "1", "intervals": [], "files": {}, "checkpoints": {}, "pending": null}',
        b'{"version": 1, "intervals": [7], "files": {}, "checkpoints": {}, "pending": null}',
        b'{"version": 1, "intervals": [], "files": [1], "checkpoints": {}, "pending": null}',
        b'{"version": 1, "intervals": [], "files": {}, "checkpoints": {"x": {}}, "pending": null}',
        b'{"version": 1, "intervals": [], "files": {}, "checkpoints": {}, "pending": 5}',
    ],
)
def test_what_is_no_state_is_damaged(content):
    with pytest.raises(ArchiveError, match="damaged"):
        from_json(content, "x")


STATE = Coverage(
    (Interval(0, 9, True, "http://one", 4, "2023-04-02T00:00:00+00:00"),),
    {"2023-04-01": replace(NOTE, footer="12" * 32)},
    {0: NOTE},
    LimitsNote(1, 5, "ef" * 32),
).announce("2023-04-02", NOTE, [Interval(9, 12, False, "http://two", None, "2023-04-03")])


def test_no_flipped_bit_and_no_cut_makes_it_tell_anything_else():
    content = to_json(STATE)
    for place in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(ArchiveError):
            from_json(bytes(flipped), "x")
    for cut in range(len(content) - 1):
        with pytest.raises(ArchiveError, match=r"^here is damaged \((?!\w+Error)"):
            from_json(content[:cut], "here")


def changed(edit):
    content = json.loads(to_json(STATE))
    del content["sha256"]
    edit(content)
    return content


@pytest.mark.parametrize(
    "edit",
    [
        lambda c: c["intervals"][0].update(proven=1),
        lambda c: c["intervals"][0].update(proven="true"),
        lambda c: c["intervals"][0].update(block_height=4.5),
        lambda c: c["intervals"][0].update(start="2023-04-01T00:00:00"),
        lambda c: c["intervals"][0].update(asked_at="yesterday"),
        lambda c: c["files"].update({"2023-02-30": c["files"]["2023-04-01"]}),
        lambda c: c["pending"].update(period="2023-02-30"),
        lambda c: c["limits"].pop("snapshots"),
    ],
)
def test_whatever_is_no_value_of_its_kind_is_damage(edit):
    with pytest.raises(ArchiveDamagedError):
        from_json(with_checksum(changed(edit)), "x")
    assert from_json(with_checksum(changed(lambda content: content)), "x") == STATE


def test_who_has_no_digest_is_damaged():
    with pytest.raises(ArchiveDamagedError, match="match its digest"):
        from_json(json.dumps(changed(lambda content: content)).encode(), "x")


def test_blanks_and_the_order_of_keys_do_not_matter():
    content = dict(reversed(json.loads(to_json(STATE)).items()))
    assert from_json(json.dumps(content, indent=4).encode(), "x") == STATE


def test_a_newer_version_asks_for_a_newer_package():
    content = to_json(Coverage()).replace(b'"version": 2', b'"version": 3')
    with pytest.raises(ArchiveError, match="version 3, which is newer than this package reads"):
        from_json(content, "x")


def test_the_frame_tells_states_in_time_order_and_gaps_between_them():
    asked = [
        Interval(0, 2, False, "http://one", None, "2023-04-01T00:00:00+00:00"),
        Interval(2, 4, True, "http://one", 7, "2023-04-01T00:00:00+00:00"),
        Interval(9, 12, True, "http://two", 8, "2023-04-02T00:00:00+00:00"),
    ]
    frame = covering(asked).to_frame()
    assert frame["state"].tolist() == ["unproven", "complete", "gap", "complete"]
    assert frame["start"].astype("int64").tolist() == [0, 2, 4, 9]
    assert frame["end"].astype("int64").tolist() == [2, 4, 9, 12]
    assert frame["block_height"].dropna().tolist() == [7, 8]
    assert frame["source"].dropna().tolist() == ["http://one", "http://one", "http://two"]


@given(MANY)
def test_the_frame_has_the_same_columns_and_dtypes_whatever_it_holds(asked):
    dtypes = covering(asked).to_frame().dtypes
    assert dtypes.equals(Coverage().to_frame().dtypes)
    assert [str(dtypes[name]) for name in ("start", "end", "asked_at")] == [
        "datetime64[us, UTC]"
    ] * 3
