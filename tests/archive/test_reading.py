"""What is read from an archive is what a load gives, cut to what was asked for."""

from __future__ import annotations

import shutil

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balance_analysis import ACCOUNT_KEY, Archive, ArchiveError, IncompleteError, balance_at
from balance_analysis.frame import to_columns
from tests.analysis.tables import table_from
from tests.archive.exporting import (
    DAY,
    HOUR,
    edit_manifest,
    node_of,
    run_export,
    spread_history,
    state_of,
)
from tests.columns import ARROW_SCHEMA, COLUMNS, empty_table
from tests.moments import from_microseconds, moment_text
from tests.node.truth import lines_of_rows, lines_of_table, matching

START, END = 1_676_000_000_000_000, 1_684_000_000_000_000  # 2023-02-10 to 2023-05-13
MARCH, APRIL, MAY = 1_677_628_800_000_000, 1_680_307_200_000_000, 1_682_899_200_000_000
ROWS = spread_history(5, start=START, end=END, rows=100, accounts=20)
TIMES = sorted({row.timestamp_ns // 1000 for row in ROWS})
PARTIES = sorted({row.party_id for row in ROWS})
MARKETS = sorted({row.market_id for row in ROWS} - {""})
TYPES = sorted({row.account_type for row in ROWS})
ASSETS = sorted({row.asset_id for row in ROWS})
MOMENTS = st.sampled_from(
    [at + shift for at in (START, MARCH, APRIL, MAY, END - 1, *TIMES) for shift in (-1, 0, 1)]
).filter(lambda at: START <= at < END)


@pytest.fixture(scope="module", autouse=True)
def _small_row_groups():
    """Let filters choose among several row groups of each file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("balance_analysis.archive.datafile.ROW_GROUP", 3)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An archive of the whole history; not to be changed."""
    made = tmp_path_factory.mktemp("archive") / "archive"
    with node_of(ROWS, head=END) as node:
        run_export(node, made, start=START, end=END)
    return made


@pytest.fixture(scope="module")
def months(tmp_path_factory):
    """The same, with a file a month."""
    made = tmp_path_factory.mktemp("archive") / "months"
    with node_of(ROWS, head=END) as node:
        run_export(node, made, start=START, end=END, partition="month")
    return made


@pytest.fixture(scope="module")
def torn(tmp_path_factory):
    """An archive with a gap in March, and an unproven beginning."""
    made = tmp_path_factory.mktemp("archive") / "torn"
    with node_of([row for row in ROWS if row.timestamp_ns >= APRIL * 1000], head=END) as node:
        run_export(node, made, start=APRIL - DAY, end=END)
    with node_of(ROWS, head=END) as node:
        run_export(node, made, start=START, end=MARCH)
    return made


@pytest.fixture(scope="module")
def table(folder):
    return Archive(folder).read()


def moment(at):
    return from_microseconds(at)


def subsets(values, *, largest=3):
    return st.lists(st.sampled_from(values), max_size=largest, unique=True)


@settings(max_examples=20)
@given(
    st.tuples(MOMENTS, MOMENTS).map(sorted).filter(lambda pair: pair[0] < pair[1]),
    st.fixed_dictionaries(
        {
            "asset_id": st.none() | st.sampled_from(ASSETS),
            "party_ids": subsets(PARTIES),
            "market_ids": subsets(MARKETS),
            "account_types": subsets(TYPES),
        }
    ),
    st.booleans(),
    st.sampled_from(["folder", "months", "bare"]),
)
def test_any_interval_filters_and_openings_give_the_rows_that_match(
    request, bounds, filters, opening, which
):
    start, end = bounds
    archive = Archive(request.getfixturevalue(which)).select(**filters)
    back = archive.read(start=moment(start), end=moment(end), opening=opening)
    older = sorted(matching(ROWS, end=start, **filters), key=lambda row: row.timestamp_ns)
    openings = {row.account: row for row in older} if opening else {}
    expected = [*openings.values(), *matching(ROWS, start=start, end=end, **filters)]
    assert lines_of_table(back) == lines_of_rows(expected)
    assert back.attrs["balance_analysis"]["start"] == moment(start).isoformat()


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        ({"party_ids": [PARTIES[0], "0" * 64]}, f"no row has the party '{'0' * 64}'; there is"),
        ({"asset_id": "0" * 64}, "no row has the asset '0"),
        ({"market_ids": "0" * 64}, "no row has the market '0"),
        ({"account_types": "new:OTHER"}, "no row has the account type 'OTHER'"),
    ],
)
def test_what_stands_for_no_account_is_refused(folder, filters, said):
    with pytest.raises(ValueError, match=said):
        Archive(folder).select(**filters)


def test_a_selection_of_a_selection_is_narrower(folder):
    row = ROWS[0]
    party = Archive(folder).select(party_ids=row.party_id)
    both = party.select(asset_id=f"id:{row.asset_id}").read()
    expected = matching(ROWS, party_ids=[row.party_id], asset_id=row.asset_id)
    assert lines_of_table(both) == lines_of_rows(expected)
    other = next(one for one in PARTIES if one != row.party_id)
    with pytest.raises(ValueError, match="no row has the party"):
        party.select(party_ids=other)


def test_accounts_that_never_come_together_are_an_empty_table(folder):
    by_party = {row.party_id: {*()} for row in ROWS}
    for row in ROWS:
        by_party[row.party_id].add(row.market_id)
    party, market = next(
        (party, market)
        for party, own in by_party.items()
        for market in sorted({*MARKETS} - own - {""})
    )
    back = Archive(folder).select(party_ids=party, market_ids=market).read()
    pd.testing.assert_frame_equal(back, empty_table())


def test_some_columns_of_one_account_are_in_time_order(folder):
    row = next(row for row in ROWS if row.market_id)
    account = {
        "asset_id": row.asset_id,
        "account_types": row.account_type,
        "party_ids": row.party_id,
        "market_ids": row.market_id,
    }
    archive = Archive(folder).select(**account)
    back = archive.read(columns=["timestamp", "balance"])
    expected = archive.read()[["timestamp", "balance"]]
    pd.testing.assert_frame_equal(back, expected)


def counted(frame):
    """Return how often a frame has each row, whatever its order and its categories."""
    return frame.astype(object).value_counts(dropna=False).to_dict()


@settings(max_examples=12)
@given(st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True), subsets(PARTIES))
def test_some_columns_are_those_of_the_table(folder, columns, parties):
    archive = Archive(folder).select(party_ids=parties)
    whole, back = archive.read(), archive.read(columns=columns)
    assert list(back.columns) == columns
    assert [dtype.kind for dtype in back.dtypes] == [whole[name].dtype.kind for name in columns]
    assert counted(back) == counted(whole[columns])
    batches = archive.iter_batches(columns=columns)
    schema = pa.schema([ARROW_SCHEMA.field(name) for name in columns])
    assert counted(to_columns(pa.Table.from_batches(batches, schema))) == counted(back)


def test_batches_come_in_time_order_from_file_to_file(folder):
    batches = list(Archive(folder).iter_batches())
    days = [set(batch["timestamp"].cast("date32").to_pylist()) for batch in batches if batch]
    assert all(len(day) == 1 for day in days)
    firsts = [min(day) for day in days]
    assert firsts == sorted(firsts)
    assert lines_of_table(table_from(pa.Table.from_batches(batches))) == lines_of_rows(ROWS)


def test_files_without_any_wanted_row_are_not_opened(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    for path in (copy / "changes").glob("date=2023-0[234]-*/changes.parquet"):
        path.unlink()
    back = Archive(copy).read(start=moment(MAY))
    assert lines_of_table(back) == lines_of_rows(matching(ROWS, start=MAY))


@pytest.mark.parametrize(
    "options",
    [
        {"columns": ["balance", "delta"]},
        {"start": "2023-04-02", "end": "2023-04-01"},
        {"start": "2023-04-01", "end": "2023-04-01"},
        {"start": "yesterday"},
    ],
)
def test_a_malformed_question_is_a_value_error_before_the_first_batch(folder, options):
    with pytest.raises(ValueError, match=r"."):
        Archive(folder).read(**options)


@pytest.mark.parametrize(
    "bounds",
    [
        {"start": moment(START - 1)},
        {"end": moment(END + 1)},
        {"start": moment(END)},
        {"start": moment(END + DAY)},
        {"end": moment(START)},
        {"start": moment(END + DAY), "end": moment(END + 2 * DAY)},
    ],
)
def test_what_is_not_covered_is_refused_or_what_there_is(folder, bounds):
    with pytest.raises((IncompleteError, ValueError)):
        Archive(folder).read(**bounds)


def test_an_archive_that_covers_nothing_is_not_complete(tmp_path):
    with node_of([], head=START) as node:
        run_export(node, tmp_path / "a", start=START, end=END)
    with pytest.raises(IncompleteError):
        Archive(tmp_path / "a").read()
    assert Archive(tmp_path / "a").read(partial=True).empty


def test_a_gap_is_refused_and_partial_reads_around_it(torn):
    with pytest.raises(IncompleteError, match="is missing; `export --fill-gaps` asks for it"):
        Archive(torn).read()
    back = Archive(torn).read(partial=True)
    expected = matching(ROWS, end=MARCH) + matching(ROWS, start=APRIL)
    assert lines_of_table(back) == lines_of_rows(expected)


def test_an_unproven_part_is_refused_as_such(torn):
    with pytest.raises(IncompleteError, match="may have forgotten rows"):
        Archive(torn).read(start=moment(APRIL - HOUR), end=moment(APRIL + HOUR))


def test_beside_the_gap_all_is_complete(torn):
    first = next(row.timestamp_ns // 1000 for row in ROWS if row.timestamp_ns >= APRIL * 1000)
    for start, end in [(START, MARCH), (first, END)]:
        back = Archive(torn).read(start=moment(start), end=moment(end))
        assert lines_of_table(back) == lines_of_rows(matching(ROWS, start=start, end=end))


def test_an_account_that_the_archive_is_not_bound_to_is_refused(tmp_path):
    with node_of(ROWS, head=END) as node:
        run_export(node, tmp_path / "a", start=START, end=END, party_ids=PARTIES[:2])
    archive = Archive(tmp_path / "a")
    with pytest.raises(ArchiveError, match="holds only accounts of party_id"):
        archive.select(party_ids=PARTIES[1:3])
    back = archive.select(party_ids=PARTIES[:1]).read()
    assert lines_of_table(back) == lines_of_rows(matching(ROWS, party_ids=PARTIES[:1]))
    both = balance_at(archive, moment(MAY))
    assert set(both["party_id"]) <= set(PARTIES[:2])


# Balances at a moment


def without_checkpoints(folder, copy):
    shutil.copytree(folder, copy)
    for path in (copy / "_checkpoints").glob("*"):
        path.unlink()
    edit_manifest(copy, lambda content: content.update(checkpoints={}))
    return copy


@pytest.fixture(scope="module")
def bare(folder, tmp_path_factory):
    """The archive without checkpoints."""
    return without_checkpoints(folder, tmp_path_factory.mktemp("bare") / "archive")


def test_each_month_that_is_covered_has_a_checkpoint(folder, months, bare):
    assert list(state_of(folder).checkpoints) == [MARCH, APRIL, MAY]
    assert list(state_of(months).checkpoints) == [MARCH, APRIL, MAY]
    assert list(state_of(bare).checkpoints) == []


@settings(max_examples=12)
@given(MOMENTS, subsets(PARTIES), st.sampled_from(["folder", "months", "bare"]))
def test_balances_at_any_moment_are_those_of_the_whole_table(request, at, parties, which):
    archive = Archive(request.getfixturevalue(which)).select(party_ids=parties)
    back = balance_at(archive, moment(at))
    pd.testing.assert_frame_equal(back, balance_at(archive.read(), moment(at)))


def test_balances_late_in_a_month_read_only_its_files_and_the_checkpoint(folder, tmp_path, table):
    copy = shutil.copytree(folder, tmp_path / "copy")
    for path in (copy / "changes").glob("date=2023-0[234]-*/changes.parquet"):
        path.unlink()
    back = balance_at(Archive(copy), moment(END - 1))
    pd.testing.assert_frame_equal(back, balance_at(table, moment(END - 1)))


def test_openings_from_before_a_gap_are_there_and_unknown(torn):
    archive = Archive(torn)
    gap = archive.coverage().query("state == 'missing'").iloc[0]
    rows = archive.read(partial=True)
    back = archive.read(start=gap["end"], opening=True, partial=True)
    old = rows[rows["timestamp"] < gap["start"]].drop_duplicates(ACCOUNT_KEY, keep="last")
    there = set(map(tuple, back[list(ACCOUNT_KEY)].astype("str").to_numpy()))
    assert set(map(tuple, old[list(ACCOUNT_KEY)].astype("str").to_numpy())) <= there
    assert balance_at(back, gap["end"] - pd.Timedelta("1us"))["balance"].isna().all()


@pytest.mark.parametrize("at", [START - 1, START - DAY, END + 1, END + DAY])
def test_balances_at_a_moment_that_is_not_covered_are_unknown(folder, at):
    assert balance_at(Archive(folder), moment(at))["balance"].isna().all()


def test_at_the_end_of_an_archive_accounts_hold_what_they_held_until_then(folder):
    back = balance_at(Archive(folder), moment(END))
    pd.testing.assert_frame_equal(back, balance_at(Archive(folder), moment(END - 1)))


def test_where_an_archive_ends_is_said_to_whoever_asks_for_more(folder):
    with pytest.raises(IncompleteError, match=f"ends at {moment_text(END)}, where the next"):
        Archive(folder).read(end=moment(END + 1))


def test_balances_after_a_gap_go_by_what_there_is(torn):
    back = balance_at(Archive(torn), moment(MAY))
    rows = Archive(torn).read(partial=True)
    pd.testing.assert_frame_equal(back, balance_at(rows, moment(MAY)))
    assert back["balance"].isna().any()


def test_no_checkpoint_goes_by_rows_on_both_sides_of_a_gap(torn):
    assert list(state_of(torn).checkpoints) == [MARCH]


def test_accounts_are_counted_and_merged_in_rounds(folder, monkeypatch):
    archive = Archive(folder)
    whole = balance_at(archive, moment(END - 1))
    monkeypatch.setattr("balance_analysis.archive.datafile._WAITING", 3)
    pd.testing.assert_frame_equal(balance_at(archive, moment(END - 1)), whole)
    assert archive.status().accounts == len({row.account for row in ROWS}) == len(whole)
