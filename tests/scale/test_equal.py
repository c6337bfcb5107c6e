"""A function returns the same for an archive and its table, whatever the slices and files."""

from dataclasses import dataclass
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis.cases import CASES, Case, keyed
from tests.analysis.oracle import Grid
from tests.analysis.tables import (
    GENERAL,
    HOUR,
    OTHER,
    START,
    accounts,
    books,
    calendar_cases,
    groupings,
    many_rows,
    moderate,
    near,
    outcome,
    table_of,
)
from tests.columns import ATTRS_KEY
from tests.scale.archives import archive_of, assert_same

PACE = 5 * HOUR
TIMES = st.integers(0, 14).map(lambda step: START + step * PACE)

bad_rows = st.builds(
    lambda account, time, span: ((time, time + span), account),
    st.none() | accounts,
    TIMES,
    st.integers(1, PACE),
)
archives = st.tuples(
    st.sampled_from(["hour", "day", "month"]),
    st.lists(st.floats(0, 1), min_size=2, max_size=2).map(sorted) | st.just((0, 0)),
    st.lists(bad_rows, max_size=2),
)
"""How an archive is cut into files, what of it is unproven, and rows that were set aside."""

MOVES = [(*key, START + step * PACE, 3) for key in (GENERAL, OTHER) for step in range(14)]
LEDGER = table_of([*MOVES, ("none", *OTHER[1:], START, 1)]).rename(columns={"balance": "net"})
"""Flows of two accounts that a table may have, and of one that none has."""

CALLS = CASES | {
    "drawdowns of holders": Case(ba.drawdown, None, ("balance",), bounds="nothing"),
    "holders at the end": Case(ba.holders, None, ("balance",), bounds="nothing"),
    "reconciliation": keyed(partial(ba.reconcile, flows=LEDGER), None, ("net",), bounds="nothing"),
}
several = st.lists(st.sampled_from([*CALLS]), min_size=6, max_size=6, unique=True)


@dataclass(frozen=True)
class Sliced:
    """An archive that functions read some rows at a time."""

    archive: ba.Archive
    size: int

    def by_slices(self, work):
        return self.archive.by_slices(work, rows=self.size)


def check(case, table, sliced, grid, by):
    """Check that slices return or refuse the same as the whole table."""
    expected, actual = (outcome(case.of, source, grid, by) for source in (table, sliced))
    if isinstance(expected, str) or isinstance(actual, str):
        assert actual == expected
    elif case.columns:
        assert_same(actual, expected)
        notes = [frame.attrs.get(ATTRS_KEY, {}).get("not_compared") for frame in (actual, expected)]
        assert notes[0] == notes[1]
    else:
        assert actual.columns.equals(expected.columns)
        assert actual.equals(expected)
        assert actual.index.equals(expected.index)


@settings(max_examples=10)
@given(st.data(), archives, st.booleans(), st.integers(1, 12), groupings)
def test_a_function_returns_the_same_for_an_archive_and_its_table(data, how, first, size, by):
    """Of all rows or of a selection; amounts may be too large for a sum."""
    calendar = None
    if data.draw(st.booleans()):
        rows, calendar = data.draw(calendar_cases())
    else:
        amounts = data.draw(st.sampled_from([moderate, moderate, near]))
        rows, _ = data.draw(books(amounts, TIMES, most=15, openings=False))
    cases = [CALLS[name] for name in data.draw(several)]
    grids = [data.draw(case.grids(PACE)) for case in cases]
    is_selection = rows and data.draw(st.integers(0, 4)) == 0
    asset, kind, *_ = rows[size % len(rows)] if is_selection else (None, ())
    with archive_of(table_of(rows), *how, from_first_block=first) as whole:
        archive = whole.select(asset_id=asset and f"id:{asset}", account_types=kind)
        table, sliced = archive.read(partial=True), Sliced(archive, size)
        for case, grid in zip(cases, grids, strict=True):
            is_calendar = calendar and case.bounds in {"points", "periods"}
            if rows or case.columns:
                check(case, table, sliced, calendar if is_calendar else grid, by)


def test_totals_at_changes_count_known_accounts_of_other_slices():
    rows = [row for row in many_rows(300) if row[4] > START + 30]
    with archive_of(table_of(rows), "day", (0.3, 0.5)) as archive:
        sources = archive.read(partial=True), Sliced(archive, 60)
        for by in (["asset_id"], ["party_id", "asset_id"]):
            check(CASES["totals"], *sources, Grid(start=START + 50), by)
