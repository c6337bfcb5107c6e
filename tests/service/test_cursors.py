"""A cursor is the place of its row, and only the service's own cursors are taken."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance_analysis.service.changes import Changes
from balance_analysis.service.errors import RefusedError
from balance_analysis.service.listing import Place, decode_cursor, encode_cursor
from tests.service.archives import write_archive
from tests.service.rows import BASE, block_of


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """What a service over an archive of one block of 30 rows answers, without a socket."""
    changes = Changes(write_archive(tmp_path_factory.mktemp("cursors") / "archive", block_of(30)))
    return lambda **asked: json.loads(
        changes.answer([(f"pagination.{name}", value) for name, value in asked.items()]).body
    )["balances"]


PLACE = Place(BASE, bytes(range(32)))
CURSOR = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh81682899200000000719"


@given(
    time=st.integers(-(10**15), 9 * 10**15),
    account_id=st.binary(min_size=32, max_size=32),
)
def test_a_cursor_carries_the_whole_place(time, account_id):
    place = Place(time, account_id)
    assert decode_cursor("pagination.after", encode_cursor(place)) == place


def test_a_cursor_keeps_its_form_between_releases():
    assert encode_cursor(PLACE) == CURSOR
    assert decode_cursor("pagination.after", CURSOR) == PLACE
    assert not set(CURSOR) & set("+/&?#% ")


def test_nearly_every_slip_in_one_character_shows():
    cursor = CURSOR
    slips = [
        cursor[:spot] + other + cursor[spot + 1 :]
        for spot in range(len(cursor))
        for other in ("0123456789" if spot >= 43 else "ABCDYZabcdyz0189-_")
        if other != cursor[spot]
    ]
    assert sum(map(_is_taken, slips)) <= len(slips) * 0.01


def _is_taken(cursor):
    try:
        decode_cursor("pagination.after", cursor)
    except RefusedError:
        return False
    return True


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "not base64!",
        "\u00e9",
        CURSOR[:-1],
        CURSOR + "0",
        " " + CURSOR,
        CURSOR + "\n",
        CURSOR[:43],
        CURSOR[:43] + "\u0663" * 19,
        CURSOR[:42] + "9" + CURSOR[43:],
        CURSOR[:43] + "9" * 19,
        CURSOR[:43] + "9" * 5000,
        CURSOR[:43] + "0" + CURSOR[43:],
        base64.b64encode(b'{"vega_time": "2023-04-01T00:00:00Z", "account_id": None}').decode(),
        base64.b64encode(b"\xff\xfe" * 30).decode(),
    ],
)
@pytest.mark.parametrize("name", ["after", "before"])
def test_a_cursor_that_no_such_service_made_is_refused(answered, name, cursor):
    with pytest.raises(RefusedError, match=f"pagination.{name}='") as refused:
        answered(**{name: cursor})
    assert (refused.value.status, refused.value.code) == (400, 3)


@given(content=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_forged_cursor_is_taken(content):
    assert not _is_taken(base64.b64encode(content).decode())


@pytest.mark.parametrize("name", ["after", "before"])
@pytest.mark.parametrize("off", [-1, 1, 10**9])
def test_a_cursor_with_right_digits_but_no_row_is_refused(answered, name, off):
    for edge in answered()["edges"]:
        place = decode_cursor(name, edge["cursor"])
        moved = encode_cursor(Place(place.time + off, place.account_id))
        with pytest.raises(RefusedError, match=f"pagination.{name}='{moved}' is not a cursor"):
            answered(**{name: moved})


@pytest.mark.parametrize("name", ["after", "before"])
def test_a_cursor_of_another_archive_is_refused(answered, tmp_path, name):
    other = Changes(write_archive(tmp_path / "other", block_of(3, time=BASE + 1)))
    edges = json.loads(other.answer([]).body)["balances"]["edges"]
    for edge in edges:
        with pytest.raises(RefusedError) as refused:
            answered(**{name: edge["cursor"]})
        assert refused.value.status == 400


def test_another_service_over_the_same_rows_takes_a_cursor(answered, tmp_path):
    copy = Changes(write_archive(tmp_path / "copy", block_of(30), partition="month"))
    cursor = answered(first="9")["pageInfo"]["endCursor"]
    rest = json.loads(copy.answer([("pagination.after", cursor)]).body)["balances"]
    assert rest == answered(after=cursor)


@pytest.mark.parametrize(("count", "cursor"), [("first", "before"), ("last", "after")])
def test_a_cursor_of_the_other_direction_is_ignored(block, count, cursor):
    asked = {f"pagination.{count}": 4}
    other = block.page()["edges"][15]["cursor"]
    assert block.page(asked | {f"pagination.{cursor}": other}) == block.page(asked)
