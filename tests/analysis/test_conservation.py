from __future__ import annotations

from collections import defaultdict

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis import oracle
from tests.analysis.tables import (
    GENERAL,
    LARGEST,
    OTHER,
    START,
    accounts,
    books,
    dtypes_of,
    expected_dtypes,
    instant,
    opened,
    recorded_table,
    records,
    rows,
    table_of,
    times,
)
from tests.columns import BALANCE_DTYPE, EXTERNAL, TIMESTAMP_DTYPE, empty_table

MOVE_DTYPES = {
    **expected_dtypes(["asset_id"], times=["timestamp"], amounts=["move", "known", "first"]),
    **expected_dtypes((), counts=["rows", "first_rows"]),
}
MOVED_DTYPES = expected_dtypes(ba.ACCOUNT_KEY, times=["timestamp"], amounts=["balance", "delta"])
DIFFERENCE_DTYPES = expected_dtypes(
    ba.ACCOUNT_KEY, times=["timestamp"], amounts=["delta", "net", "difference"]
)
OUTSIDE = ("VOTE", EXTERNAL, "network", "")


def with_outside(book):
    """Return rows and openings in which the party `network` stands for what is outside."""
    rows, opening = book
    renamed = {
        account: (account[0], EXTERNAL, *account[2:]) if account[2] == "network" else account
        for account in {*(row[:4] for row in rows), *opening}
    }
    # Two types become one here, and of two rows or openings the last one stays.
    levels = {(*renamed[row[:4]], row[4]): row[5] for row in rows}
    kept = {key: state for key, state in opening.items() if renamed[key] == key}
    return [(*key, level) for key, level in levels.items()], kept


def report_records(*args, **options):
    report = ba.check_conservation(*args, **options)
    return records(report.moves), records(report.rows)


def flow_frame(entries):
    """Return a list of (account, microseconds, net) as a frame of flows."""
    keys = pd.DataFrame([key for key, _, _ in entries], columns=ba.ACCOUNT_KEY, dtype="str")
    moments = pd.array([instant(time) for _, time, _ in entries], dtype=TIMESTAMP_DTYPE)
    nets = pd.array([net for _, _, net in entries], dtype=BALANCE_DTYPE)
    return keys.assign(timestamp=moments, net=nets)


def difference_records(table, entries, **options):
    """Return the records of a comparison, with 0 where a side has nothing."""
    found = records(ba.reconcile(table, flow_frame(entries), **options))
    return [(*row[:5], row[5] or 0, row[6] or 0, *row[7:]) for row in found]


def ledger_entries(recorded_ledger):
    return [
        (
            (entry.asset_id, entry.account_type, entry.party_id, entry.market_id),
            entry.timestamp_ns // 1000,
            entry.net,
        )
        for entry in recorded_ledger
    ]


@settings(max_examples=12)
@given(books().map(with_outside))
def test_the_blocks_whose_total_moves_are_shown_with_their_rows(book):
    rows, opening = book
    moves, moved = report_records(opened(rows, opening))
    assert moves == oracle.moves(rows, opening)
    assert sorted(moved, key=str) == sorted(oracle.moved_rows(rows, opening), key=str)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((), (LARGEST, 1)),
        ((-LARGEST, -1), (0, 0)),
        ((0, 0), (-LARGEST, -1)),
        ((0,), (LARGEST, 1)),
        ((LARGEST,), (0, LARGEST, 1)),
        ((0, 0), (LARGEST, LARGEST, -LARGEST)),
        ((LARGEST, LARGEST), (0, 0, LARGEST, LARGEST)),
    ],
)
def test_a_sum_of_a_block_beyond_38_digits_raises_and_names_the_asset(before, after):
    keys = [("VOTE", "T", f"p{place}", "") for place in range(4)]
    table = table_of(
        [
            *(
                (*key, START - place - 1, level)
                for place, (key, level) in enumerate(zip(keys, before, strict=False))
            ),
            *((*key, START, level) for key, level in zip(keys, after, strict=False)),
        ]
    )
    with pytest.raises(OverflowError, match=r"VOTE.* 38 digits"):
        ba.check_conservation(table)


def test_a_report_says_in_words_how_many_blocks_of_which_asset_move():
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 1, 7), (*GENERAL, START + 2, 7)])
    text = str(ba.check_conservation(table))
    assert "2 of 3 blocks" in text
    assert "VOTE: 2 blocks, 1 of them with an account's first row" in text


def test_a_report_of_no_moves_says_so():
    text = str(ba.check_conservation(empty_table()))
    assert text.strip()
    assert "VOTE" not in text


@settings(max_examples=10)
@given(rows)
def test_columns_and_dtypes_are_the_same_for_any_rows(rows):
    report = ba.check_conservation(table_of(rows))
    assert list(dtypes_of(report.moves).items()) == list(MOVE_DTYPES.items())
    assert list(dtypes_of(report.rows).items()) == list(MOVED_DTYPES.items())
    found = dtypes_of(ba.reconcile(table_of(rows), flow_frame([(OTHER, START + 99, 1)])))
    assert found.pop("reason")
    assert list(found.items()) == list(DIFFERENCE_DTYPES.items())


entries = st.lists(
    st.tuples(accounts, times, st.integers(-3, 3).filter(bool) | st.integers(1, LARGEST // 100)),
    max_size=12,
)


@settings(max_examples=12)
@given(st.data(), books(), entries)
def test_rows_and_flows_are_compared_for_each_account_and_block(data, book, others):
    rows, opening = book
    true = [(row[:4], row[4], row[6]) for row in oracle.deltas(rows, opening) if row[6]]
    kept = data.draw(st.lists(st.sampled_from(true), unique=True)) if true else []
    found = difference_records(opened(rows, opening), kept + others)
    sums = defaultdict(int)
    for key, time, net in kept + others:
        sums[key, time] += net
    expected = oracle.differences(rows, opening, kept + others)
    assert [row[:8] for row in found] == [row[:8] for row in expected]
    # Whether flows that add up to 0 are one of 0 or none is not said.
    assert [row[8] for row in found if sums[row[:4], row[4]]] == [
        row[8] for row in expected if sums[row[:4], row[4]]
    ]


@pytest.mark.parametrize(
    ("levels", "nets", "expected"),
    [
        ((5, 9), (3,), (4, 3, 1, "other amount")),
        ((5, 5), (3,), (0, 3, -3, "other amount")),
        ((5, 9), (), (4, 0, 4, "no flow")),
        ((5,), (3,), (0, 3, -3, "no row")),
        ((LARGEST - 1, LARGEST), (2,), (1, 2, -1, "other amount")),
        ((0, LARGEST), (LARGEST - 1,), (LARGEST, LARGEST - 1, 1, "other amount")),
    ],
)
def test_a_difference_has_its_reason(levels, nets, expected):
    table = table_of([(*GENERAL, START + at, level) for at, level in enumerate(levels)])
    found = difference_records(table, [(GENERAL, START + 1, net) for net in nets])
    assert found == [(*GENERAL, START + 1, *expected)]


def test_what_is_outside_is_not_compared():
    table = table_of([(*OUTSIDE, START, 0), (*OUTSIDE, START + 1, 3)])
    assert difference_records(table, [(OUTSIDE, START + 1, -3), (OUTSIDE, START + 2, 1)]) == []


@pytest.mark.parametrize("dtype", ["int64", "object", str(BALANCE_DTYPE)])
def test_flows_may_be_integers_of_any_kind(dtype):
    table = table_of([(*GENERAL, START, 5), (*GENERAL, START + 1, 9)])
    flow = flow_frame([(GENERAL, START + 1, 4)])
    nets = pd.Series([4], dtype=BALANCE_DTYPE if "decimal" in dtype else dtype)
    assert ba.reconcile(table, flow.assign(net=nets)).empty


def test_flows_of_floats_are_refused():
    flow = flow_frame([(GENERAL, START, 4)]).astype({"net": "float64"})
    with pytest.raises(TypeError, match="float"):
        ba.reconcile(empty_table(), flow)


def test_recorded_blocks_move_by_what_came_from_outside(recorded_rows, recorded_ledger):
    given = defaultdict(int)
    for (asset, kind, _, _), time, net in ledger_entries(recorded_ledger):
        if kind == EXTERNAL:
            given[asset, time] -= net
    moves, _ = report_records(recorded_table(recorded_rows))
    assert {row[:2]: row[2] for row in moves} == {block: net for block, net in given.items() if net}
    assert len(moves) == 29


def test_a_row_dropped_from_the_recording_shows_as_a_jump_of_its_block(recorded_rows):
    rows = [(*row.account, row.timestamp_ns // 1000, row.balance) for row in recorded_rows]
    none_yet = {row[:4]: (0, None) for row in rows}
    whole = {move[:2]: move[2] for move in oracle.moves(rows, none_yet)}
    dropped = 0
    for *key, time, _, delta in oracle.deltas(rows, none_yet):
        block = [row for row in rows if row[0] == key[0] and row[4] == time and row[1] != EXTERNAL]
        if not delta or len(block) == 1:
            continue
        left = [row for row in rows if row[:5] != (*key, time)]
        moves, moved = report_records(ba.to_table(table_of(left), nothing_before=True))
        found = {move[:2]: move[2] for move in moves}
        assert found.get((key[0], time), 0) == whole.get((key[0], time), 0) - delta
        if whole.get((key[0], time), 0) != delta:
            others = [row for row in block if row[:4] != tuple(key)]
            shown = [row[:6] for row in moved if row[0] == key[0] and row[4] == time]
            assert shown == sorted(others)
        dropped += 1
    assert dropped > 50


def test_the_recording_agrees_with_its_ledger(recorded_rows, recorded_ledger):
    table, entries = recorded_table(recorded_rows), ledger_entries(recorded_ledger)
    assert difference_records(table, entries) == []
    assert difference_records(ba.to_table(table, nothing_before=True), entries) == []


def test_a_falsified_row_of_the_recording_is_found_with_its_reason(recorded_rows, recorded_ledger):
    entries = ledger_entries(recorded_ledger)
    rows = [(*row.account, row.timestamp_ns // 1000, row.balance) for row in recorded_rows]
    nets = {(key, time): net for key, time, net in entries}
    last = {row[:4]: row for row in rows if row[1] != EXTERNAL}
    for key, row in list(last.items())[::6]:
        raised = [(*other[:5], other[5] + (other == row)) for other in rows]
        found = difference_records(ba.to_table(table_of(raised), nothing_before=True), entries)
        net = nets.get((key, row[4]), 0)
        reason = "other amount" if net else "no flow"
        assert found == [(*row[:5], net + 1, net, 1, reason)]
        removed = [other for other in rows if other != row]
        found = difference_records(ba.to_table(table_of(removed), nothing_before=True), entries)
        assert found == ([(*row[:5], 0, net, -net, "no row")] if net else [])
