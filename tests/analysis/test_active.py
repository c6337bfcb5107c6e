from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis import oracle
from tests.analysis.tables import (
    GENERAL,
    LARGEST,
    START,
    asked,
    books,
    fixed_grids,
    instant,
    opening_frame,
    records,
    table_of,
)


def active_records(*args, **options):
    return records(ba.active_accounts(*args, **options))


@settings(max_examples=40)
@given(st.data(), books().filter(lambda book: book[0]))
def test_all_accounts_together_are_one_group(data, book):
    rows, opening = book
    grid = data.draw(fixed_grids(rows))
    found = active_records(table_of(rows), **asked(grid), by=(), opening=opening_frame(opening))
    assert found == oracle.active_accounts(rows, opening, grid, ())


def test_an_account_that_was_only_touched_is_not_active():
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 1, 5)])
    assert active_records(table, "1us")[1][3:] == (1, 0)


def test_the_first_row_of_an_account_is_no_known_change():
    table = table_of([(*GENERAL, START, 5)])
    assert active_records(table, "1us") == [("VOTE", START, START + 1, 1, 0)]
    opened = active_records(table, "1us", opening=opening_frame({GENERAL: (4, None)}))
    assert opened == [("VOTE", START, START + 1, 1, 1)]


def test_a_change_and_its_return_make_an_account_active():
    table = table_of([(*GENERAL, START + at, level) for at, level in enumerate((5, 9, 5))])
    assert active_records(table, "9us", start=instant(START))[0][3:] == (1, 1)


def test_a_change_of_the_38th_digit_is_a_change():
    table = table_of([(*GENERAL, START, LARGEST - 1), (*GENERAL, START + 1, LARGEST)])
    assert active_records(table, "9us", start=instant(START))[0][3:] == (1, 1)
