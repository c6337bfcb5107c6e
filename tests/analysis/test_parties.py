from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis import demo
from tests.analysis import oracle
from tests.analysis.tables import (
    DAY,
    GENERAL,
    MARGIN,
    OTHER,
    START,
    amount,
    cases,
    dtypes_of,
    edges,
    expected_dtypes,
    instant,
    moment,
    opened,
    records,
    table_of,
)
from tests.analysis.test_gaps import POINTS
from tests.columns import empty_table

groupings = st.sampled_from(
    [["party_id"], ["account_type"], ["market_id", "account_type"], ["asset_id"], ba.ACCOUNT_KEY]
)
HELD = ("opening", "closing", "minimum", "maximum", "average", "drawdown", "zero_share")
MOMENTS = ("first_seen", "last_seen", "minimum_at", "maximum_at", "drawdown_at")
KINDS = ["general", "margin"]


@dataclass(frozen=True)
class Party(oracle.Account):
    """Accounts that count as one: it is known only where all of them are."""

    members: tuple[oracle.Account, ...] = ()

    def level(self, when):
        levels = [member.level(when) for member in self.members]
        return None if None in levels else sum(levels)

    def told(self, when):
        """Return what its members are told to have; where that is from, it doesn't say."""
        levels = [member.told(when)[0] for member in self.members]
        return None if None in levels else sum(levels), None

    def pieces(self, start, end):
        bounds = {
            edge for each in self.members for piece in each.pieces(start, end) for edge in piece[:2]
        }
        return [(left, right, self.level(left)) for left, right in pairwise(sorted(bounds))]

    def summary(self, start, end):
        """Return its summary; its flows are those of each block, of what is known of it."""
        found = oracle._summary(self, start, end)
        deltas = [
            (time, delta)
            for member in self.members
            for time, _, delta in member.deltas()
            if start <= time < end
        ]
        blocks = {}
        for time, delta in deltas:
            blocks.setdefault(time, []).append(delta or 0)
        nets = [sum(moves) for moves in blocks.values()]
        gains = [sum(move for move in moves if move > 0) for moves in blocks.values()]
        inflow, before, after = (
            sum(net for net in nets if net > 0),
            found["opening"],
            found["closing"],
        )
        is_whole = all(member.sees_all(start, end - 1) for member in self.members)
        sums = {
            "inflow": inflow,
            "outflow": inflow - sum(nets),
            "internal": sum(gains) - inflow,
            "net": sum(nets),
        }
        if not is_whole:
            sums = dict.fromkeys(sums)
        if before is not None and after is not None:
            sums["net"] = after - before
        return (
            found
            | sums
            | {
                "accounts": len(self.members),
                "unknown": sum(
                    None in (each.level(start - 1), each.level(end - 1)) for each in self.members
                ),
                "rows": len(deltas),
                "changes": sum(bool(delta) for _, delta in deltas),
                "first_seen": min(blocks, default=None),
                "last_seen": max(blocks, default=None),
            }
        )


def parties(rows, opening, known, by):
    """Return {key: Party}, keys ascending."""
    found = {}
    for group, members in oracle.groups(oracle.book(rows, opening, known), by).items():
        times = {time for member in members for time, _ in member.changes}
        found[group] = Party(tuple((time, 0) for time in sorted(times)), members=tuple(members))
    return found


def with_asset(by):
    return by if "asset_id" in by else ["asset_id", *by]


@given(cases, groupings, st.integers(1, 5))
def test_what_a_party_holds_is_what_its_accounts_hold_where_all_are_known(case, by, step):
    rows, opening, known = case
    table, names = opened(rows, opening, known), with_asset(by)
    how = {"start": instant(POINTS[0]), "end": instant(POINTS[-1]), "freq": f"{step}us"}
    how |= {"by": by}
    expected = parties(rows, opening, known, names)
    found = ba.balance_series(table, layout="long", **how)
    assert records(found.drop(columns="state")) == [
        (*key, when, party.told(when)[0])
        for key, party in expected.items()
        for when in range(POINTS[0], POINTS[-1], step)
    ]
    assert dtypes_of(found[names]) == dict.fromkeys(names, "category")
    periods = [*pairwise([*range(POINTS[0], POINTS[-1], step), POINTS[-1]])]
    ranges, averages = [], []
    for party in expected.values():
        for start, end in periods:
            levels = [level for _, _, level in party.known(start, end)]
            low, high = min(levels, default=None), max(levels, default=None)
            ranges.append((party.told(start)[0], high, low, party.level(end - 1)))
            exact = party.average(start, end)
            averages.append(None if exact is None else oracle.half_even(exact))
    found = ba.ohlc(table, **how)[["open", "high", "low", "close"]]
    assert records(found) == ranges
    assert [amount(x) for x in ba.time_weighted_average(table, **how)["average"]] == averages


@given(cases, groupings.filter(lambda by: len(by) < 4), edges, edges)
def test_a_party_is_summarised_as_a_loop_over_its_blocks_does_it(case, by, one, other):
    rows, opening, known = case
    start, end = min(one, other), max(one, other) + 1
    how = {"start": instant(start), "end": instant(end)}
    found = ba.summarize_parties(opened(rows, opening, known), by=by, **how)
    expected = parties(rows, opening, known, with_asset(by))
    assert list(map(tuple, found[with_asset(by)].astype("str").to_numpy())) == [*expected]
    for row, party in zip(found.to_dict("records"), expected.values(), strict=True):
        for name, value in party.summary(start, end).items():
            if name in MOMENTS:
                assert moment(row[name]) == value, name
            elif name == "zero_share":
                assert row[name] == pytest.approx(value) or (value is None and pd.isna(row[name]))
            else:
                assert amount(row[name]) == value, name


@given(cases, groupings, st.sampled_from([*POINTS]), st.none() | st.integers(1, 3))
def test_holders_are_ranked_by_the_sum_of_what_is_known(case, by, when, n):
    rows, opening, known = case
    found = ba.holders(opened(rows, opening, known), instant(when), by=by, n=n)
    book, names = oracle.book(rows, opening, known), with_asset(by)
    whole = {
        key: oracle.total_at(each, when)[0]
        for key, each in oracle.groups(book, ["asset_id"]).items()
    }
    expected = []
    for key, members in oracle.groups(book, names).items():
        total, count, unknown = oracle.total_at(members, when)
        asset = key[names.index("asset_id")]
        share = total / whole[asset,] if total is not None and whole[asset,] else None
        expected.append((*key, total, share, count + unknown, unknown))
    size, place = len(names), names.index("asset_id")
    expected.sort(key=lambda row: (row[place], row[size] is None, -(row[size] or 0)))
    kept, seen, reached = [], {}, {}
    for row in expected:
        asset, total, share = row[place], row[size], row[size + 1]
        seen[asset] = seen.get(asset, 0) + 1
        reached[asset] = reached.get(asset, 0) + (total or 0)
        together = None if share is None else reached[asset] / whole[asset,]
        if n is None or seen[asset] <= n:
            kept.append((*row[: size + 2], together, *row[size + 2 :]))
    assert records(found) == kept
    assert dtypes_of(found) == {
        **expected_dtypes(names, amounts=["balance"]),
        "share": "float64",
        "cumulative_share": "float64",
        "accounts": "int64",
        "unknown": "int64",
    }


DESKS = {"a1": "east", "b2": "west"}


@given(cases, st.sampled_from(POINTS))
def test_groups_are_made_by_a_column_that_the_table_has_besides(case, when):
    rows, opening, known = case
    table = opened(rows, opening, known)
    table["desk"] = table["party_id"].map(DESKS)
    book = oracle.book(rows, opening, known)
    members_of = {}
    for key, account in book.items():
        desk = DESKS.get(key[2])
        members_of.setdefault((key[0], desk), []).append(account)
    ordered = sorted(members_of, key=lambda key: (key[0], key[1] is None, key[1] or ""))
    found = ba.totals(
        table,
        by=["asset_id", "desk"],
        freq="1us",
        start=instant(when),
        end=instant(when + 1),
    )
    assert [
        (asset, None if pd.isna(desk) else desk, *numbers)
        for (asset, desk), numbers in zip(
            found[["asset_id", "desk"]].astype("object").itertuples(index=False),
            records(found[["total", "known", "unknown"]]),
            strict=True,
        )
    ] == [(*key, *oracle.total_at(members_of[key], when)) for key in ordered]


TABLE = table_of([(*GENERAL, START, 5), (*MARGIN, START, 3), (*OTHER, START + DAY, 9)])


@pytest.mark.parametrize(
    ("function", "how"),
    [
        (ba.totals, {"by": ["asset_id", "desk"]}),
        (ba.flows, {"by": ["asset_id", "desk"]}),
        (ba.flows, {"by": ["asset_id", "desk"], "layout": "wide"}),
        (ba.holders, {"by": "desk"}),
        (ba.summarize_parties, {"by": "desk"}),
        (ba.balance_series, {"by": "desk"}),
    ],
)
def test_a_column_that_says_as_much_as_the_party_groups_as_the_party_does(function, how):
    table = TABLE.sample(frac=1, random_state=1)
    table["desk"] = [f"desk of {party}" for party in table["party_id"]]
    found = function(table, **how)
    by = {name: "party_id" if each == "desk" else each for name, each in how.items()}
    if isinstance(how["by"], list):
        by["by"] = ["party_id" if one == "desk" else one for one in how["by"]]
    expected = function(TABLE, **by)
    assert found.shape[0] == expected.shape[0]
    if "desk" in found:
        assert found["desk"].astype("str").str.removeprefix("desk of ").tolist() == (
            expected["party_id"].tolist()
        )
    numbers = [name for name in expected if name not in (*ba.ACCOUNT_KEY, "desk")]
    if "layout" not in how and function is not ba.balance_series:
        pd.testing.assert_frame_equal(found[numbers], expected[numbers])


def test_an_account_with_two_values_in_a_column_belongs_to_no_group():
    table = pd.concat([TABLE, table_of([(*GENERAL, START + DAY, 1)])])
    table["desk"] = ["east", "east", "west", "west"]
    with pytest.raises(ValueError, match=r"by=\['desk'\].*party_id='a1'.*more than one value"):
        ba.totals(table, by=["asset_id", "desk"])
    with pytest.raises(ValueError, match=r"'market_id', 'desk'\], each once"):
        ba.totals(table, by=["asset_id", "floor"])


def test_what_moves_between_a_partys_accounts_is_told_apart():
    rows = [
        *((*GENERAL, START + at * DAY, level) for at, level in enumerate([10, 4, 6])),
        *((*MARGIN, START + at * DAY, level) for at, level in enumerate([0, 5, 5])),
    ]
    how = {"by": ["asset_id", "party_id"], "freq": None}
    found = ba.flows(table_of(rows), internal=True, **how)
    assert records(found[["inflow", "outflow", "internal", "net"]]) == [(2, 1, 5, 1)]
    assert records(ba.flows(table_of(rows), **how)[["inflow", "outflow"]]) == [(7, 6)]
    wide = ba.flows(table_of(rows), by=how["by"], layout="wide", value="internal", internal=True)
    assert [amount(value) for value in wide["VOTE", "a1"]] == [None, 5, 0]
    with pytest.raises(ValueError, match="value must be one of"):
        ba.flows(table_of(rows), layout="wide", value="internal")


def test_the_sample_answers_who_the_top_holders_are():
    table = ba.read_parquet(demo.sample_data() / "changes.parquet")
    last = table.drop_duplicates(ba.ACCOUNT_KEY, keep="last")
    held = {}
    for asset, party, balance in zip(
        last["asset_id"], last["party_id"], last["balance"], strict=True
    ):
        held[asset, party] = held.get((asset, party), 0) + int(balance)
    found = ba.holders(table, by="party_id", n=10)
    for asset, rows in found.groupby("asset_id", observed=True):
        ranked = sorted((size for key, size in held.items() if key[0] == asset), reverse=True)
        assert [int(size) for size in rows["balance"]] == ranked[:10]
    parties = ba.summarize_parties(table)
    assert {(row.asset_id, row.party_id): int(row.closing) for row in parties.itertuples()} == held
    everyone = parties["accounts"].groupby(parties["asset_id"], observed=True).sum()
    assert everyone.to_dict() == last["asset_id"].value_counts().to_dict()
    accounts = ba.summarize_accounts(table)
    assert accounts["inflow"].sum() == parties["inflow"].sum() + parties["internal"].sum()
    assert accounts["outflow"].sum() == parties["outflow"].sum() + parties["internal"].sum()


@pytest.mark.parametrize("function", [ba.holders, ba.summarize_parties])
def test_of_an_empty_table_there_is_no_party(function):
    found = function(empty_table(), by="party_id")
    assert found.empty
    assert "party_id" in found
