"""Of each number an archive tells the rows it rests on, where these stand and who sent them."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis.oracle import book, half_even
from tests.archive.exporting import DAY, node_of, run_export, spread_history, state_of
from tests.cli.running import fails, run
from tests.moments import from_microseconds, moment_text
from tests.segments.writer import write_segments

START, END = 1_676_000_000_000_000, 1_684_000_000_000_000  # 2023-02-10 to 2023-05-13
MARCH, APRIL = 1_677_628_800_000_000, 1_680_307_200_000_000
ROWS = spread_history(5, start=START, end=END, rows=150, accounts=25)
TIMES = sorted({row.timestamp_ns // 1000 for row in ROWS})
ACCOUNTS = sorted({row.account for row in ROWS})
MOMENTS = st.sampled_from([at + n for at in (START, MARCH, APRIL, *TIMES) for n in (-1, 0, 1, DAY)])


@pytest.fixture(scope="module", params=["day", "month"])
def folder(request, tmp_path_factory):
    """An archive with a gap in March, and an unproven beginning of April."""
    made = tmp_path_factory.mktemp("explain") / "a"
    late = [row for row in ROWS if row.timestamp_ns // 1000 >= APRIL]
    with node_of(late, head=END) as node:
        run_export(node, made, start=APRIL - DAY, end=END, partition=request.param)
    with node_of(ROWS, head=END) as node:
        run_export(node, made, start=START, end=MARCH)
    return made


HELD = [row for row in ROWS if not MARCH <= row.timestamp_ns // 1000 < APRIL]
LINES = [(*row.account, row.timestamp_ns // 1000, int(row.balance)) for row in HELD]


def stretches(folder):
    """Return what is known to be complete, microseconds."""
    return tuple((x.start, x.end) for x in state_of(folder).intervals if x.proven)


def by_account(frame):
    return dict(list(frame.astype(dict.fromkeys(ba.ACCOUNT_KEY, "str")).groupby(ba.ACCOUNT_KEY)))


@given(moment=MOMENTS)
def test_the_balances_behind_a_total_add_up_to_it(folder, moment):
    archive, at = ba.Archive(folder), from_microseconds(moment)
    found = archive.rows_behind(at=at, partial=True)

    levels = {key: one.level(moment) for key, one in book(LINES, known=stretches(folder)).items()}
    held = {key: own["balance"].iloc[0] for key, own in by_account(found).items()}
    assert {key: int(x) for key, x in held.items() if pd.notna(x)} == {
        key: level for key, level in levels.items() if level is not None
    }
    told = ba.totals(
        archive.read(end=from_microseconds(moment + 1), partial=True), by="asset_id", start=at
    )
    sums = dict(told.groupby("asset_id", observed=True)["total"].last())
    for asset, own in found.groupby("asset_id", observed=True):
        known = [int(balance) for balance in own["balance"].dropna()]
        assert sum(known) == (sums[asset] if known else 0)
        assert bool(known) == pd.notna(sums[asset])


@given(bounds=st.tuples(MOMENTS, MOMENTS).filter(lambda x: x[0] < x[1]))
def test_the_rows_behind_flows_and_averages_add_up_to_them(folder, bounds):
    archive, accounts = ba.Archive(folder), book(LINES, known=stretches(folder))
    begin, stop = bounds
    start, end = map(from_microseconds, bounds)
    found = archive.rows_behind(start=start, end=end, partial=True)
    parts = by_account(found)

    changes = found[found["timestamp"] == found["start"]].astype({"timestamp": "int64"})
    assert sorted(
        (
            *(row[name] for name in (*ba.ACCOUNT_KEY, "timestamp")),
            int(row["balance"]),
            None if pd.isna(row["delta"]) else int(row["delta"]),
        )
        for row in changes.to_dict("records")
    ) == sorted(
        (*key, time, balance, delta)
        for key, one in accounts.items()
        for time, balance, delta in one.deltas()
        if begin <= time < stop
    )
    carried = found[(found["timestamp"] != found["start"]) & found["balance"].notna()]
    assert (carried["delta"] == 0).all()
    for key, one in accounts.items():
        average = one.average(begin, stop)
        own = parts.get(key)
        is_known = own is not None and own["held_for"].sum() == stop - begin
        assert is_known == (average is not None)
        if is_known:
            assert Fraction(int(own["product"].sum()), stop - begin) == average

    table = archive.read(start=start, end=end, partial=True)
    opening = archive.opening_balances(at=start, partial=True)
    how = {"start": start, "end": end, "opening": opening}
    for row in ba.time_weighted_average(table, **how).to_dict("records"):
        own = parts[tuple(row[name] for name in ba.ACCOUNT_KEY)]
        is_known = own["held_for"].sum() == stop - begin
        total = Fraction(int(own["product"].sum()), stop - begin)
        assert (half_even(total) if is_known else None) == (
            None if pd.isna(row["average"]) else int(row["average"])
        )
    for row in ba.flows(table, freq=None, **how).to_dict("records"):
        delta = parts[tuple(row[name] for name in ba.ACCOUNT_KEY)]["delta"]
        if pd.notna(row["net"]):
            assert row["net"] == delta.sum()
            assert row["inflow"] == delta[delta > 0].sum()
            assert row["outflow"] == -int(delta[delta < 0].sum())
        assert row["changes"] == (delta.dropna() != 0).sum()


def test_each_row_behind_a_number_is_cited_as_explain_does(folder):
    archive = ba.Archive(folder)
    bounds = {"start": from_microseconds(APRIL - DAY), "end": from_microseconds(END)}
    intervals = archive.rows_behind(**bounds, partial=True)
    for found in (intervals, archive.rows_behind(at=from_microseconds(END - 1), partial=True)):
        assert found["timestamp"].notna().any()
        for row in found.iloc[::7].to_dict("records"):
            if pd.isna(row["timestamp"]):
                assert pd.isna(row["file"])
                assert pd.isna(row["run"])
                continue
            told = archive.explain([row[x] for x in ba.ACCOUNT_KEY], at=row["timestamp"])
            assert (told.row.file, told.row.row_group) == (row["file"], row["row_group"])
            assert (told.run, told.source, told.state, told.asked_at) == tuple(
                row[x] for x in ("run", "source", "state", "asked_at")
            )


def test_rows_behind_a_number_are_of_a_moment_or_an_interval_that_is_known(folder):
    archive = ba.Archive(folder)
    with pytest.raises(ba.IncompleteError, match="2023-03-01"):
        archive.rows_behind()
    with pytest.raises(ba.IncompleteError, match="2023-03-01"):
        archive.rows_behind(at="2023-03-15")
    with pytest.raises(ValueError, match="a moment, or an interval"):
        archive.rows_behind(at="2023-02-15", start="2023-02-15")


@given(account=st.sampled_from(ACCOUNTS), moment=MOMENTS)
def test_a_balance_rests_on_the_last_row_and_stands_between_its_neighbours(folder, account, moment):
    archive = ba.Archive(folder)
    at = from_microseconds(moment)
    found = archive.explain(account, at=at)

    held = [x for x in ROWS if x.account == account and not MARCH <= x.timestamp_ns // 1000 < APRIL]
    lines = sorted((x.timestamp_ns // 1000, int(x.balance)) for x in held)
    until = [line for line in lines if line[0] <= moment]
    later = [line for line in lines if line[0] > moment]
    wanted = [next(iter(some), None) for some in (until[::-1], until[-2::-1], later)]
    if len(until) < 2:
        wanted[1] = None
    cited = [found.row, found.before, found.after]
    assert [x and (x.timestamp, x.balance) for x in cited] == [
        x and (from_microseconds(x[0]), x[1]) for x in wanted
    ]
    for row in filter(None, cited):
        group = pq.ParquetFile(folder / row.file).read_row_group(row.row_group).to_pylist()
        assert any(
            (x["timestamp"], int(x["balance"]), *(x[name] for name in ba.ACCOUNT_KEY))
            == (row.timestamp, row.balance, *account)
            for x in group
        )

    known = archive.balance_at(at, partial=True)
    own = known[(known[ba.ACCOUNT_KEY].astype(str) == [*account]).all(axis=1)]
    balance = own["balance"].iloc[0] if len(own) else pd.NA
    assert found.balance == (None if pd.isna(balance) else int(balance))
    assert (found.why is None) == (found.balance is not None)
    assert found.carried == (at - found.row.timestamp if found.row else None)


def test_the_node_the_run_and_the_state_are_those_of_the_rows_time(folder):
    archive = ba.Archive(folder)
    covered = archive.coverage()
    for row in ROWS[::10]:
        at = row.timestamp_ns // 1000
        if MARCH <= at < APRIL:
            continue
        found = archive.explain(row.account, at=from_microseconds(at))
        (own,) = covered[(covered["start"] <= found.at) & (covered["end"] > found.at)].to_dict(
            "records"
        )
        assert (found.source, found.state, found.source_height, found.asked_at) == (
            *(own[name] for name in ("source", "state", "block_height")),
            own["asked_at"],
        )
        report = json.loads((folder / "_runs" / f"{found.run}.json").read_text())
        assert report["source"] == found.source


def test_the_run_that_is_told_is_the_last_one_that_asked_for_the_time(tmp_path):
    with node_of(ROWS, head=END) as node:
        run_export(node, tmp_path / "a", start=START, end=MARCH)
        last = run_export(node, tmp_path / "a", end=END, overlap="5d")
    found = ba.Archive(tmp_path / "a").rows_behind()
    is_late = found["timestamp"] >= from_microseconds(MARCH - 5 * DAY)
    assert (found["timestamp"][is_late] < from_microseconds(MARCH)).any()
    assert set(found["run"][is_late]) == {last.id}


def test_what_was_before_the_first_block_is_known_from_segments(tmp_path):
    write_segments(tmp_path / "segments", ROWS)
    ba.import_segments(tmp_path / "a", tmp_path / "segments")
    archive = ba.Archive(tmp_path / "a")
    row = ROWS[70]
    at = from_microseconds(row.timestamp_ns // 1000)
    found = archive.explain(dict(zip(ba.ACCOUNT_KEY, row.account, strict=True)), at=at)
    assert found.row.timestamp == at
    behind = archive.rows_behind(start=at)
    own = behind[behind["timestamp"] >= at]
    assert len(own) == sum(x.timestamp_ns >= row.timestamp_ns for x in ROWS)
    first = archive.rows_behind(end=from_microseconds(TIMES[1]))
    unborn = first[first["timestamp"].isna()]
    assert (unborn["balance"] == 0).all()
    assert unborn["file"].isna().all()

    accounts = archive.accounts()[ba.ACCOUNT_KEY]
    held = {*accounts.itertuples(index=False, name=None)}
    strangers = {*product(*(accounts[name].unique() for name in ba.ACCOUNT_KEY))} - held
    nobody = archive.explain(min(strangers), at=at)
    assert (nobody.balance, nobody.row) == (0, None)
    assert "since the network's first block" in nobody.why


def test_a_command_explains_the_account_that_its_options_name(folder):
    row = ROWS[-1]
    at = moment_text(row.timestamp_ns // 1000)
    names = ("--asset", row.asset_id, "--party", row.party_id, "--account-type", row.account_type)
    market = ("--market", row.market_id) if row.market_id else ()
    told = run("explain", folder, *names, *market, "--at", at, "--format=json").stdout
    content = json.loads(told)
    assert content["balance"] == content["row"]["balance"] == str(row.balance)
    assert (
        f"{int(row.balance):,} since {at}"
        in run("explain", folder, *names, *market, "--at", at).stdout
    )


def test_a_command_lists_the_rows_behind_totals_and_flows(folder, tmp_path):
    archive, asset = ba.Archive(folder), ROWS[0].asset_id
    at, since = from_microseconds(END - 1), moment_text(APRIL + DAY)
    wanted = archive.rows_behind(at=at, asset_id=asset, partial=True)
    command = ("explain", folder, "--asset", asset, "--partial")
    told = run(*command, "--at", moment_text(END - 1), "--limit", 3).stdout
    count = f"{wanted['balance'].count():,} of {len(wanted):,}"
    assert f"{count} balances add up to {wanted['balance'].sum():,}," in told

    behind = archive.rows_behind(start=since, asset_id=asset, partial=True)
    between = (*command, "--since", since, "--until", moment_text(END))
    run(*between, "-o", tmp_path / "x.parquet")
    assert (
        pd.read_parquet(tmp_path / "x.parquet", dtype_backend="pyarrow")["product"].sum()
        == behind["product"].sum()
    )
    delta = behind["delta"]
    assert (
        f"in {delta[delta > 0].sum():,}, out {-int(delta[delta < 0].sum()):,},"
        in run(*between).stdout
    )
    assert "no such account" in fails(
        "explain", folder, "--party", "f" * 64, "--at", "2023-04-05", code=2, folder=folder
    )
    assert "a moment, or an interval" in fails(*between, "--at", since, code=2, folder=folder)


def test_what_is_no_account_is_refused(folder):
    with pytest.raises(ValueError, match="an account has asset_id"):
        ba.Archive(folder).explain(["x"], at="2023-04-01")
    short = [name[:6] for name in ROWS[0].account]
    found = ba.Archive(folder).explain(short, at="2023-04-01")
    assert found.balance is None
    assert f"no row has the asset_id '{short[0]}'" in found.why
