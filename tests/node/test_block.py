from __future__ import annotations

import dataclasses

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from balance_analysis import IncompleteError, RequestError
from balance_analysis.filters import Filters
from balance_analysis.node.decode import decode_page
from balance_analysis.node.walk import complete_block
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


def test_a_larger_page_that_takes_too_long_is_not_needed():
    answer = asking(LoopbackNode(block(12, types=TYPES[:1])))

    def ask(question):
        if question.page_size > 8:
            raise RequestError("too slow", url="u", retryable=True, timed_out=True)
        return answer(question)

    assert completed(ask, 8) == lines_of_rows(block(12, types=TYPES[:1]))


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
