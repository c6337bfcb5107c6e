"""A read of an archive returns what a load returns, cut to the request."""

import shutil

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balance_analysis import ACCOUNT_KEY, Archive, ArchiveError, IncompleteError, balance_at
from tests.archive.exporting import DAY, edit_manifest, node_of, run_export, state_of
from tests.archive.months import APRIL, DOUBTED, END, HELD, MARCH, MAY, MOMENTS, ROWS, START, filled
from tests.columns import COLUMNS, empty_table, known_of
from tests.moments import between, both, from_microseconds, moment_text, range_text, uncovered
from tests.node.truth import lines_of_rows, lines_of_table, matching

PARTIES = sorted({row.party_id for row in HELD})
MARKETS = sorted({row.market_id for row in HELD} - {""})
TYPES = sorted({row.account_type for row in HELD})
ASSETS = sorted({row.asset_id for row in HELD})
FILE_KEY = ("party_id", "asset_id", "account_type", "market_id")


@pytest.fixture(scope="module", autouse=True)
def _small_rounds():
    """Merge accounts in small rounds, so that later rounds choose among row groups.

    One task reads several files on any machine. Each footer is as a large file's: longer than what
    is read first.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.cpu_count", lambda: 1)
        patch.setattr("balance_analysis.archive.datafile._BUFFER_ROWS", 3)
        patch.setattr("balance_analysis.archive.datafile._TAIL", 8)
        patch.setattr("balance_analysis.archive.snapshot._ROWS_EACH", 0)
        yield


def records(frame):
    return frame.astype(object).to_numpy().tolist()


def held_at(source, moment):
    """Return the known balances at a moment."""
    held = balance_at(source, from_microseconds(moment)).dropna(subset="balance")
    keys = held[list(ACCOUNT_KEY)].itertuples(index=False, name=None)
    return dict(zip(keys, map(int, held["balance"]), strict=True))


def subsets(values, *, largest=3):
    return st.lists(st.sampled_from(values), max_size=largest, unique=True)


@settings(max_examples=15)
@given(
    st.tuples(MOMENTS, MOMENTS).map(sorted).filter(lambda pair: pair[0] < pair[1]),
    st.just({})
    | st.fixed_dictionaries(
        {
            "asset_id": st.none() | st.sampled_from(ASSETS),
            "party_ids": subsets(PARTIES),
            "market_ids": subsets(MARKETS),
            "account_types": subsets(TYPES),
        }
    ),
    st.booleans(),
    st.sampled_from(["months", "days", "bare", "torn"]),
)
def test_any_interval_filters_and_openings_give_the_matching_rows_and_opening_balances(
    request, bounds, filters, opening, which
):
    (start, end), is_torn = bounds, which == "torn"
    archive = Archive(request.getfixturevalue(which)).select(**filters)
    known = uncovered([DOUBTED] if is_torn else [], start, end)
    is_partial = known != [(start, end)]
    back = archive.read(**between(start, end), opening=opening, partial=is_partial)
    assert both(known_of(back), [(start, end)]) == known
    rows = HELD if is_torn else ROWS
    older = sorted(matching(rows, end=start + 1, **filters), key=lambda row: row.time)
    # A balance from before a gap is unknown after it.
    held_on = matching(older, start=MARCH) if is_torn and start > MARCH else older
    balances = {row.account: int(row.balance) for row in held_on}
    for source in [archive, back][: 1 + opening]:
        assert held_at(source, start) == balances
    older = [row for row in older if row.time < start]
    openings = {row.account: row for row in older} if opening else {}
    expected = [*openings.values(), *matching(rows, start=start, end=end, **filters)]
    assert lines_of_table(back) == lines_of_rows(expected)
    assert back.attrs["balance_analysis"]["start"] == from_microseconds(start).isoformat()
    if not expected:
        pd.testing.assert_frame_equal(back, empty_table())


NOBODY = "0" * 64
REFUSED = [
    ("no row has the party '0", {"party_ids": [PARTIES[0], NOBODY]}, {}),
    ("no row has the asset '0", {"asset_id": NOBODY}, {}),
    ("no row has the market '0", {"market_ids": NOBODY}, {}),
    ("no row has the account type 'OTHER'", {"account_types": "new:OTHER"}, {}),
    ("delta", {}, {"columns": ["balance", "delta"]}),
    ("before end", {}, {"start": "2023-04-02", "end": "2023-04-01"}),
    ("before end", {}, {"start": "2023-04-01", "end": "2023-04-01"}),
    ("yesterday", {}, {"start": "yesterday"}),
    (".", {}, {"start": from_microseconds(START - 1)}),
    (f"ends at {moment_text(END)}, where the next", {}, {"end": from_microseconds(END + 1)}),
    (".", {}, {"start": from_microseconds(END)}),
    (".", {}, {"start": from_microseconds(END + DAY)}),
    (".", {}, {"end": from_microseconds(START)}),
    (".", {}, between(END + DAY, END + 2 * DAY)),
]


@pytest.mark.parametrize(("said", "filters", "bounds"), REFUSED)
def test_filters_that_match_nothing_and_uncovered_time_are_refused(months, said, filters, bounds):
    with pytest.raises((ValueError, IncompleteError), match=said):
        Archive(months).select(**filters).read(**bounds)


def test_a_selection_narrows_a_selection(months):
    row = ROWS[0]
    party = Archive(months).select(party_ids=row.party_id)
    assert repr(party) == f"{Archive(months)!r} of party_id {row.party_id}"
    both = party.select(asset_id=f"id:{row.asset_id}").read()
    expected = matching(ROWS, party_ids=[row.party_id], asset_id=row.asset_id)
    assert lines_of_table(both) == lines_of_rows(expected)
    other = next(one for one in PARTIES if one != row.party_id)
    with pytest.raises(ValueError, match="no row has the party"):
        party.select(party_ids=other)


def test_a_mask_that_drops_a_row_makes_its_account_unknown(months):
    table = Archive(months).read()
    unknown = balance_at(table[1:], from_microseconds(END))["balance"].isna()
    assert [*unknown] == [True, *[False] * (len(unknown) - 1)]


def test_an_empty_market_id_selects_the_accounts_without_a_market(months):
    whole = Archive(months).read()
    expected = whole[whole["market_id"] == ""]
    for selected in (
        Archive(months).select(market_ids="").read(),
        whole.balances.select(market_ids=[""]),
    ):
        assert lines_of_table(selected) == lines_of_table(expected) != []


@settings(max_examples=8)
@given(st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True), subsets(PARTIES))
def test_chosen_columns_are_those_of_the_table_in_the_order_of_files(days, columns, parties):
    archive = Archive(days).select(party_ids=parties)
    whole, back = archive.read(), archive.read(columns=columns)
    assert [dtype.kind for dtype in back.dtypes] == [whole[name].dtype.kind for name in columns]
    order = [whole["timestamp"].dt.floor("D"), *(whole[name].astype("str") for name in FILE_KEY)]
    ordered = whole.iloc[np.lexsort([whole["timestamp"], *reversed(order)])][columns]
    is_table = len(columns) == len(COLUMNS)
    assert records(back) == records(whole[columns] if is_table else ordered)


def test_files_without_a_selected_row_are_not_opened(months, tmp_path):
    late = Archive(shutil.copytree(months, tmp_path / "copy"))
    for path in (tmp_path / "copy" / "changes").glob("month=2023-0[234]/changes.parquet"):
        path.unlink()
    back = late.read(start=from_microseconds(MAY))
    assert lines_of_table(back) == lines_of_rows(matching(ROWS, start=MAY))
    held = balance_at(late, from_microseconds(END - 1))
    pd.testing.assert_frame_equal(held, balance_at(Archive(months), from_microseconds(END - 1)))


def test_an_archive_that_covers_nothing_is_not_complete(tmp_path):
    run_export(node_of([], head=START), tmp_path / "a", start=START, end=END)
    with pytest.raises(IncompleteError):
        Archive(tmp_path / "a").read()
    assert Archive(tmp_path / "a").read(partial=True).empty


def test_a_gap_and_an_unproven_part_are_refused(torn):
    archive, begin = Archive(torn), APRIL - DAY
    unproven = f"{range_text(begin, DOUBTED[1])} is unproven: the node may have forgotten rows"
    whole = f"{range_text(START, MARCH)}, {range_text(DOUBTED[1], END)} are complete"
    for bounds, said in (
        ({}, f"{range_text(MARCH, begin)} is missing; `export --fill-gaps` fetches .*; {unproven}"),
        (between(begin, END), unproven),
        (
            between(START - 1, MARCH),
            f"is missing: the archive begins at {moment_text(START)}; pass",
        ),
        (between(START - 1, END + 1), "begins at .*; `export --fill-gaps` .*: the archive ends at"),
        ({"start": from_microseconds(END)}, f"only {whole}, outside the requested interval"),
    ):
        with pytest.raises(IncompleteError, match=said):
            archive.read(**bounds)


def test_an_account_that_the_archive_is_not_bound_to_is_refused(tmp_path):
    archive = Archive(filled(tmp_path / "a", "month", party_ids=PARTIES[:2]))
    with pytest.raises(ArchiveError, match="holds only accounts of party_id"):
        archive.select(party_ids=PARTIES[1:3])
    back = archive.select(party_ids=PARTIES[:1]).read()
    assert lines_of_table(back) == lines_of_rows(matching(ROWS, party_ids=PARTIES[:1]))
    assert set(balance_at(archive, from_microseconds(MAY))["party_id"]) <= set(PARTIES[:2])


# Balances at a moment


@pytest.fixture(scope="module")
def bare(months, tmp_path_factory):
    """The archive without checkpoints."""
    copy = shutil.copytree(months, tmp_path_factory.mktemp("bare") / "archive")
    for path in (copy / "_checkpoints").glob("*"):
        path.unlink()
    edit_manifest(copy, lambda content: content.update(checkpoints={}))
    return copy


def test_each_month_before_the_first_gap_has_a_checkpoint(months, days, torn, bare):
    starts = [MARCH, APRIL, MAY]
    for each, moments in ((months, starts), (days, starts), (torn, [MARCH]), (bare, [])):
        assert [*state_of(each).checkpoints] == moments
        assert len([*each.glob("_checkpoints/*")]) == len(moments)
        assert Archive(each).verify().is_whole


def test_balances_at_a_moment_not_covered_are_unknown_and_at_its_end_are_known(months, bare):
    archive = Archive(months)
    for at in (START - 1, END + 1, END + DAY):
        assert balance_at(archive, from_microseconds(at))["balance"].isna().all()
    last = balance_at(Archive(bare), from_microseconds(END - 1))
    pd.testing.assert_frame_equal(balance_at(archive, from_microseconds(END)), last)


@pytest.mark.parametrize("columns", ["balance", [], ["balance", "balance"]])
def test_columns_are_a_list_of_at_least_one_each_once(days, columns):
    with pytest.raises(ValueError, match="each once"):
        Archive(days).read(columns=columns)
