"""The words "same", "confirmed" and "no problem" are attacked where they come easily too soon."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from decimal import Decimal

import pandas as pd
import pytest

import balance_analysis as ba
from tests.archive.exporting import DAY, END, HOUR, START, node_of, run_export, state_of
from tests.moments import from_microseconds
from tests.proof.damages import (
    ROWS,
    SECOND,
    changed_node,
    interrupt,
    mend,
    name_of,
    text,
    truncate,
    verify,
)

SPAN = [(from_microseconds(0), from_microseconds(10))]
DAY_AFTER = (START + 4 * HOUR, START + 28 * HOUR)
"""The second file's day."""


def table_of(balances, moments, accounts):
    """Return a table that states that it has every row."""
    frame = pd.DataFrame(
        {
            "asset_id": "c" * 64,
            "account_type": "ACCOUNT_TYPE_GENERAL",
            "party_id": accounts,
            "market_id": "",
            "timestamp": pd.to_datetime(moments, unit="us", utc=True),
            "balance": balances,
        }
    )
    return ba.to_table(frame, known=SPAN)


@pytest.mark.parametrize("step", [1, 2**64, -(2**64), 10**37])
def test_balances_that_differ_in_any_of_128_bits_are_not_the_same(step):
    ids = [f"{n:064x}" for n in range(3)]
    ours = [Decimal(10**37)] * 3
    theirs = [ours[0], Decimal(10**37 + step), ours[2]]
    one, other = (table_of(balances, [1, 2, 3], ids) for balances in (ours, theirs))
    found = ba.diff(one, other)
    assert (found.is_same, found.rows["party_id"].tolist()) == (False, [ids[1]])
    assert ba.diff(one, table_of(ours, [1, 2, 3], ids)).is_same


def test_one_row_among_more_of_a_moment_than_are_compared_at_once_is_not_overlooked(monkeypatch):
    monkeypatch.setattr("balance_analysis.proof.compare._PART", 1000)
    count = 3000
    ids = [f"{n:064x}" for n in range(count)]
    moments = [5] * (count - 1) + [6]
    one = table_of(range(count), moments, ids)
    other = one.iloc[::-1].reset_index(drop=True)
    other.attrs = one.attrs
    assert ba.diff(one, other).is_same
    changed = table_of([*range(count - 2), 7, count - 1], moments, ids)
    for sides in ((one, changed), (changed, one)):
        found = ba.diff(*sides)
        assert (found.is_same, found.compared) == (False, (count, count))
        assert found.rows["party_id"].tolist() == [ids[-2]]


def confirmed_in(folder, span):
    both = (
        (max(start, span[0]), min(end, span[1]))
        for start, end in state_of(folder).evidence.confirmed
    )
    return [(start, end) for start, end in both if start < end]


@pytest.mark.parametrize("harm", [None, truncate])
def test_rows_that_a_repair_replaced_are_not_confirmed_by_who_agreed_with_the_old(
    node, folder, harm
):
    victim = next(x for x in ROWS if DAY_AFTER[0] <= x.timestamp_ns // 1000 < DAY_AFTER[1])
    moment = victim.timestamp_ns // 1000
    with node_of(ROWS) as second:
        ba.confirm(folder, second.url)
    assert confirmed_in(folder, (moment, moment + 1))
    if harm is not None:
        harm(folder)
    bounds = {} if harm else {"start": text(moment), "end": text(moment + 1)}
    with changed_node(lambda row: replace(row, balance=77) if row == victim else row) as other:
        assert mend(other, folder, **bounds).changed == (SECOND,)
    assert not confirmed_in(folder, (moment, moment + 1))
    assert confirmed_in(folder, (END - DAY, END))
    if harm is not None:
        # Of a file that was damaged nobody knows which rows were others.
        assert not confirmed_in(folder, DAY_AFTER)


@pytest.mark.parametrize("harm", [None, truncate])
def test_a_run_that_replaces_files_meanwhile_is_no_problem_and_hides_none(tmp_path, harm):
    folder, shown = tmp_path / "x", []
    late = [row for row in ROWS if row.timestamp_ns // 1000 < END - HOUR]
    with node_of(ROWS) as node:
        run_export(node, folder, start=START, end=START + 2 * DAY)
        if harm is not None:
            harm(folder)

        def meanwhile(*_):
            if not shown:
                shown.append(True)
                # A damaged file ends the run that reads it for a checkpoint.
                with contextlib.suppress(ba.ArchiveDamagedError):
                    run_export(node, folder, end=END - HOUR)

        report = ba.Archive(folder).verify(progress=meanwhile)
    if harm is None:
        assert (report.problems, report.rows) == ((), len(late))
    else:
        assert [problem.where for problem in report.problems] == [name_of(SECOND)]


def test_a_file_that_is_neither_the_old_nor_the_announced_one_is_a_problem(folder):
    interrupt(folder, is_replaced=False)
    truncate(folder)
    kinds = {problem.kind: problem.where for problem in verify(folder).problems}
    assert kinds["rows"] == name_of(SECOND)
