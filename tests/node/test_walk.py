from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balance_analysis import IncompleteError, RequestError, TooLargeError
from balance_analysis.filters import Filters
from balance_analysis.node.decode import decode_page
from balance_analysis.node.walk import (
    EARLIEST,
    HALVINGS,
    Window,
    fetch,
    find_oldest,
    take_step,
)
from tests.loopback import LoopbackNode, Row, histories, random_history
from tests.node.answers import page_of, row
from tests.node.asking import asking, refusal
from tests.node.truth import lines_of_batch, lines_of_rows, matching

T = 1_680_307_200_000_000
EVERYTHING = [Filters()]


def rows_at(*times, **changes):
    """Return rows of accounts of their own at these microseconds after T."""
    base = Row(0, "a" * 64, "ACCOUNT_TYPE_GENERAL", "", "", 1)
    return [
        dataclasses.replace(
            base, timestamp_ns=(T + time) * 1000, party_id=f"{number:064x}", **changes
        )
        for number, time in enumerate(times)
    ]


def settle(ask, parts, window):
    """Return all steps of a window, at most 5,000."""
    steps = []
    while window is not None:
        steps.append(take_step(ask, parts, window))
        window = steps[-1].rest
        assert len(steps) < 5000
    return steps


def lines_of_steps(steps):
    return sorted(
        line for step in steps for batch in step.batches for line in lines_of_batch(batch)
    )


def scripted(*pages):
    """Return a function that answers with these pages in turn; each is its times and `more`."""
    waiting = list(pages)

    def ask(_question):
        times, more = waiting.pop(0)
        nodes = [row(timestamp=str((T + time) * 1000)) for time in times]
        return decode_page(page_of(*nodes, hasNextPage=more))

    return ask


@given(histories(most_rows=80, most_accounts=40, largest_block=20), st.integers(1, 60), st.data())
def test_the_steps_tile_the_window_and_bring_its_rows(history, page_size, data):
    times = sorted({row.timestamp_ns // 1000 for row in history}) or [T]
    start = data.draw(st.sampled_from(times)) + data.draw(st.integers(-1, 1))
    end = start + data.draw(st.sampled_from([1, 2, 10**6, 10**8, 10**12]))
    steps = settle(asking(LoopbackNode(history)), EVERYTHING, Window(start, end, page_size))
    assert [steps[0].start, *(step.end for step in steps)] == [
        *(step.start for step in steps),
        end,
    ]
    assert lines_of_steps(steps) == lines_of_rows(matching(history, start=start, end=end))


@settings(max_examples=15)
@given(histories(most_rows=80, most_accounts=40, largest_block=5), st.integers(1, 30))
def test_parts_that_reach_differently_far_lose_no_row(history, page_size):
    parties = sorted({row.party_id for row in history}) or ["network"]
    parts = [Filters(party_ids=tuple(parties[:1])), Filters(party_ids=tuple(parties[1:]))]
    parts = [part for part in parts if part.party_ids]
    steps = settle(asking(LoopbackNode(history)), parts, Window(T, T + 10**12, page_size))
    assert lines_of_steps(steps) == lines_of_rows(history)


def test_a_step_drops_the_last_block_of_a_page_and_restarts_there():
    node = LoopbackNode(rows_at(0, 5, 5, 9))
    step = take_step(asking(node), EVERYTHING, Window(T, T + 100, 2))
    assert (step.start, step.end) == (T, T + 5)
    assert step.rest == Window(T + 5, T + 100, 2, begins_with_row=True)
    assert lines_of_steps([step]) == lines_of_rows(rows_at(0))


def test_a_block_that_fills_a_page_is_settled_by_itself():
    node = LoopbackNode(rows_at(0, 0, 0, 9))
    step = take_step(asking(node), EVERYTHING, Window(T, T + 100, 2))
    assert step.end == T + 1
    assert step.rest == Window(T + 1, T + 100, 2, begins_with_row=False)
    assert len(lines_of_steps([step])) == 3


def test_a_restart_that_begins_elsewhere_is_incomplete():
    window = Window(T, T + 100, 5, begins_with_row=True)
    with pytest.raises(IncompleteError, match=r"a row stands at 2023-04-01T00:00Z") as got:
        take_step(scripted(([3, 4], False)), EVERYTHING, window)
    assert "begins at 2023-04-01T00:00:00.000003Z" in str(got.value)


def test_a_restart_may_begin_in_any_of_the_parts():
    rows = rows_at(0, 5)
    parts = [Filters(party_ids=(row.party_id,)) for row in rows]
    node = LoopbackNode(rows)
    window = Window(T, T + 100, 5, begins_with_row=True)
    step = take_step(asking(node), parts, window)
    assert lines_of_steps([step]) == lines_of_rows(rows)


def test_an_announced_page_that_is_empty_is_incomplete():
    with pytest.raises(IncompleteError, match=r"announced more rows in .* but sent none"):
        take_step(scripted(([], True), ([], True)), EVERYTHING, Window(T, T + 100, 5))


@pytest.mark.parametrize("times", [[1, 0], [0, 5, 4], [3, 3, 2]])
def test_rows_out_of_order_are_incomplete(times):
    with pytest.raises(IncompleteError, match="rows came out of order in"):
        take_step(scripted((times, False)), EVERYTHING, Window(T, T + 100, 5))


@pytest.mark.parametrize("times", [[-2], [101], [-2, 50], [50, 101]])
def test_rows_outside_the_window_are_incomplete(times):
    with pytest.raises(IncompleteError, match="ignores or misreads the range"):
        take_step(scripted((times, False)), EVERYTHING, Window(T, T + 100, 5))


def test_rows_on_the_other_reading_of_the_bounds_are_dropped():
    step = take_step(scripted(([-1, 0, 99, 100], False)), EVERYTHING, Window(T, T + 100, 5))
    assert [line[4] - T for line in lines_of_steps([step])] == [0, 99]


def test_a_row_beyond_the_end_shows_that_the_window_is_whole():
    step = take_step(scripted(([0, 99, 100], True)), EVERYTHING, Window(T, T + 100, 3))
    assert (step.end, step.rest) == (T + 100, None)


def test_a_page_full_of_the_block_before_is_asked_again_from_the_start():
    questions = []
    answers = scripted(([-1, -1], True), ([0, 3], False))

    def ask(question):
        questions.append(question)
        return answers(question)

    step = take_step(ask, EVERYTHING, Window(T, T + 100, 2))
    assert [question.start for question in questions] == [T - 1, T]
    assert len(lines_of_steps([step])) == 2


def test_rows_that_a_filter_excludes_are_incomplete():
    with pytest.raises(IncompleteError, match="ignores or misreads that filter"):
        take_step(scripted(([0], False)), [Filters(party_ids=("f" * 64,))], Window(T, T + 100, 5))


def test_no_bound_before_2020_is_sent():
    questions = []

    def ask(question):
        questions.append(question)
        return decode_page(page_of(hasNextPage=False))

    fetch(ask, Filters(), Window(EARLIEST, EARLIEST + 5, 1))
    fetch(ask, Filters(), Window(EARLIEST + 1, EARLIEST + 5, 1))
    assert [question.start for question in questions] == [EARLIEST, EARLIEST]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 40])
def test_a_refused_page_size_is_halved_until_it_passes(limit):
    history = random_history(4, rows=60, accounts=30, largest_block=1)
    node = LoopbackNode(history, max_page_size=limit)
    steps = settle(asking(node), EVERYTHING, Window(T, T + 10**12, 1000))
    assert lines_of_steps(steps) == lines_of_rows(history)
    assert limit / 2 <= steps[-1].page_size <= limit


def test_a_refusal_that_no_page_size_explains_is_raised():
    def ask(question):
        assert question.page_size > 0
        raise refusal(400, b"no")

    with pytest.raises(RequestError, match="it answered 400: no"):
        take_step(ask, EVERYTHING, Window(T, T + 100, 1000))


def test_a_node_that_can_not_answer_now_is_not_asked_for_less():
    sizes = []

    def ask(question):
        sizes.append(question.page_size)
        raise refusal(503)

    with pytest.raises(RequestError):
        take_step(ask, EVERYTHING, Window(T, T + 100, 1000))
    assert sizes == [1000]


def test_a_too_large_answer_is_never_asked_for_unchanged():
    questions = []

    def ask(question):
        assert question.page_size > 0
        questions.append(question)
        raise refusal(429, b"received message larger than max")

    with pytest.raises(TooLargeError):
        take_step(ask, EVERYTHING, Window(T, T + 100, 1000))
    assert len(questions) == len(set(questions))
    assert questions[-1].page_size == 1


def too_slow_for(width):
    """Return what answers only where a range is narrow enough; and the ranges asked for."""
    asked = []

    def ask(request):
        asked.append(request)
        if request.end - T > width:
            raise RequestError("too slow", url="u", retryable=True, timed_out=True)
        return decode_page(page_of(hasNextPage=False))

    return ask, asked


def test_a_window_that_takes_too_long_is_halved_on_the_side_where_it_begins():
    ask, _ = too_slow_for(30)
    step = take_step(ask, EVERYTHING, Window(T, T + 100, 80))
    assert (step.start, step.end, step.page_size) == (T, T + 25, 20)


def test_a_window_of_which_every_part_takes_too_long_is_given_up():
    ask, asked = too_slow_for(0)
    with pytest.raises(RequestError, match="too slow"):
        take_step(ask, EVERYTHING, Window(T, T + 10**9, 5000))
    assert len(asked) == 1 + HALVINGS


@given(st.integers(1, 1000), st.integers(1, 50), st.booleans())
def test_a_cut_tiles_the_window(width, page_size, begins):
    window = Window(T, T + 500, 20, begins)
    near, far = window.cut(width, page_size)
    assert (near.start, near.begins_with_row) == (T, begins)
    assert near.page_size == page_size
    assert near.end - near.start == min(width, 500)
    if far is None:
        assert near.end == window.end
    else:
        assert (far.start, far.end, far.begins_with_row) == (near.end, window.end, False)


@given(
    st.lists(st.integers(0, 20), max_size=12).map(sorted), st.integers(-2, 22), st.integers(0, 25)
)
def test_between_keeps_what_stands_there(times, start, width):
    listing = fetch(scripted((times, bool(times))), Filters(), Window(T, T + 100, 50))
    inside = listing.between(T + start, T + start + width)
    expected = [T + time for time in times if start <= time < start + width]
    assert inside.times.tolist() == expected
    assert [line[4] for line in lines_of_batch(inside.rows)] == expected
    assert not inside.more


def test_between_keeps_bad_rows_that_may_stand_there():
    def ask(_):
        nodes = [row(timestamp=str((T + time) * 1000), balance="x") for time in (0, 5, 9)]
        return decode_page(page_of(*nodes, row(timestamp=...), hasNextPage=False))

    listing = fetch(ask, Filters(), Window(T, T + 100, 50)).between(T + 5, T + 9)
    assert [bad.time for bad in listing.bad_rows] == [T + 5, None]
    assert listing.times.tolist() == [T + 5]


@pytest.mark.parametrize("year", [2020, 2021, 2023, 2026])
def test_the_oldest_row_is_found_from_2020_on(year):
    time = EARLIEST + (year - 2020) * 366 * 86_400 * 10**6
    history = rows_at(time - T, time - T + 10**12)
    end = time + 10**13
    assert find_oldest(asking(LoopbackNode(history)), end) == time


def test_no_row_before_the_end_is_no_oldest_row():
    assert find_oldest(asking(LoopbackNode(rows_at(50))), T + 50) is None
    assert find_oldest(asking(LoopbackNode()), T) is None


def test_where_only_bad_rows_are_found_the_window_begins_the_search():
    def ask(_):
        return decode_page(page_of(row(timestamp=...), hasNextPage=True))

    assert find_oldest(ask, T) == EARLIEST


@pytest.mark.parametrize("page_size", [1, 2, 3])
def test_a_node_that_ignores_the_order_does_not_pass_for_complete(page_size):
    node = LoopbackNode(rows_at(0, 5, 9, 9, 9), ignores=["pagination.newestFirst"])
    with pytest.raises(IncompleteError):
        settle(asking(node), EVERYTHING, Window(T, T + 100, page_size))
