from __future__ import annotations

import dataclasses

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance_analysis import IncompleteError, RequestError
from balance_analysis.filters import Filters
from balance_analysis.node.decode import decode_page
from balance_analysis.node.walk import LARGEST_PAGE, _page_sizes, complete_block
from tests.loopback import LoopbackNode, Row
from tests.node.answers import page_of
from tests.node.asking import asking, refusal
from tests.node.truth import lines_of_batch, lines_of_rows

T = 1_680_307_200_000_000
TYPES = ("ACCOUNT_TYPE_GENERAL", "ACCOUNT_TYPE_MARGIN", "ACCOUNT_TYPE_BOND")


def block(size, *, types=TYPES, time=T):
    """Return a block of so many accounts, in the order of a node."""
    rows = [
        Row(time * 1000, "a" * 64, types[number % len(types)], f"{number:064x}", "", number)
        for number in range(size)
    ]
    return sorted(rows, key=lambda row: row.order)


def completed(ask, page_size, filters=Filters()):  # noqa: B008 - frozen
    # What came in two answers stands twice: the load drops it.
    return sorted(set(lines_of_batch(complete_block(ask, filters, T, page_size).rows)))


def page(rows, *, more, cursor=""):
    return decode_page(
        page_of(*(row.to_json() for row in rows), hasNextPage=more, endCursor=cursor)
    )


@given(st.integers(1, 60), st.integers(1, 30), st.booleans(), st.integers(0, 20))
def test_a_block_is_completed_whole_or_named(size, largest, lossy, before):
    rows = block(size)
    others = [*block(before, time=T - 1), *block(3, time=T + 1)]
    node = LoopbackNode([*rows, *others], max_page_size=largest, lossy_cursors=lossy)
    try:
        found = completed(asking(node), largest)
    except IncompleteError as error:
        message = str(error)
    else:
        assert found == lines_of_rows(rows)
        return
    assert "2023-04-01T00:00Z (1680307200000000000 ns)" in message
    assert size + before > largest


def test_a_larger_page_completes_a_block_where_there_is_no_maximum():
    node = LoopbackNode(block(40), release="v0.71")
    assert completed(asking(node), 7) == lines_of_rows(block(40))
    assert [request.get("pagination.first") for request in node.requests] == ["5000"]


def test_a_larger_page_that_takes_too_long_is_not_needed():
    answer = asking(LoopbackNode(block(12, types=TYPES[:1])))

    def ask(question):
        if question.page_size > 8:
            raise RequestError("too slow", url="u", retryable=True, timed_out=True)
        return answer(question)

    assert completed(ask, 8) == lines_of_rows(block(12, types=TYPES[:1]))


@pytest.mark.parametrize(
    ("accepted", "sizes"),
    [
        (1, [5000, 2500, 1250, 625, 312, 156, 78, 39, 19, 9, 4, 2]),
        (2000, [5000, 2500]),
        (4999, [5000]),
        (5000, [1_000_000, 500_000, 250_000, 125_000, 62_500, 31_250, 15_625, 7812]),
        (600_000, [1_000_000]),
        (LARGEST_PAGE, []),
    ],
)
def test_larger_pages_are_tried_largest_first(accepted, sizes):
    assert list(_page_sizes(accepted)) == sizes


def test_a_block_of_less_than_two_pages_is_completed_from_both_ends():
    node = LoopbackNode(block(15, types=TYPES[:1]), max_page_size=8)
    assert completed(asking(node), 8) == lines_of_rows(block(15, types=TYPES[:1]))


def test_the_callers_own_lists_are_halved():
    rows = block(50, types=TYPES[:1])
    filters = Filters(party_ids=tuple(row.party_id for row in rows))
    node = LoopbackNode(rows, max_page_size=8)
    assert completed(asking(node), 8, filters) == lines_of_rows(rows)


@pytest.mark.parametrize("unlisted", [0, 3])
def test_a_block_of_unknown_types_is_not_completed_by_the_known_ones(unlisted):
    """8,003 rows, of which three are of a type that the list lacks and stand at neither end."""
    rows = block(8003)
    for place in range(3000, 3000 + unlisted):
        rows[place] = dataclasses.replace(rows[place], account_type="ACCOUNT_TYPE_BRAND_NEW")
    rows.sort(key=lambda row: row.order)
    ends = {row.account_type for row in (*rows[:1000], *rows[-1000:])}
    assert ends == set(TYPES)
    node = LoopbackNode(rows, max_page_size=1000)
    with pytest.raises(IncompleteError, match=r"2023-04-01T00:00Z.* name the account types"):
        completed(asking(node), 1000)


def test_a_half_that_is_refused_is_not_taken_for_empty():
    later = "ACCOUNT_TYPE_HOLDING"
    answer = asking(LoopbackNode(block(30, types=(*TYPES, later)), max_page_size=10))

    def ask(question):
        if later in question.filters.account_types[:2]:
            raise refusal(400)
        return answer(question)

    with pytest.raises(RequestError, match="400"):
        completed(ask, 10, Filters(account_types=(*TYPES, later)))


def test_halves_that_lack_a_row_that_was_seen_are_no_whole():
    rows = block(30)
    answer, seen = asking(LoopbackNode(rows, max_page_size=10)), sorted(rows, key=lambda r: r.order)
    lost = seen[0].party_id

    def ask(question):
        page = answer(question)
        if len(question.filters.account_types) == 3:
            return page
        kept = pc.not_equal(page.rows["party_id"].cast(pa.string()), lost)
        times = page.times[kept.to_numpy(zero_copy_only=False)]
        return dataclasses.replace(page, rows=page.rows.filter(kept), times=times)

    with pytest.raises(IncompleteError):
        completed(ask, 10, Filters(account_types=TYPES))


def test_a_server_that_orders_a_block_alike_from_both_ends_does_not_pass_for_whole():
    rows = block(12, types=TYPES[:1])

    def ask(question):
        if question.page_size > 5:
            raise refusal(400)
        if question.cursor is None:
            return page(rows[:5], more=True, cursor="x")
        raise refusal(400)

    with pytest.raises(IncompleteError):
        completed(ask, 5)


@pytest.mark.parametrize("lossy", [False, True])
def test_a_block_above_two_pages_is_not_completed_by_cursors(lossy):
    node = LoopbackNode(block(17, types=TYPES[:1]), max_page_size=8, lossy_cursors=lossy)
    with pytest.raises(IncompleteError, match="name the account types"):
        completed(asking(node), 8)
    assert not any(request.get("pagination.after") for request in node.requests)


def test_the_types_asked_for_may_be_refused_when_they_are_the_callers():
    def ask(question):
        raise refusal(400, b"unknown type" if question.filters.account_types else b"no")

    with pytest.raises(RequestError):
        completed(ask, 5, Filters(account_types=("ACCOUNT_TYPE_GENERAL",)))
