"""Each number of each view equals a sum of plain integers, over archives with gaps."""

import random
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import settings

import balance_analysis as ba
from tests.analysis.oracle import (
    Grid,
    World,
    averages,
    comparison,
    flows,
    ranked_holders,
    summaries,
)
from tests.archive.writing import writer_of
from tests.explorer.asking import asking, rows_of, write_key
from tests.loopback import Row
from tests.moments import uncovered
from tests.report.reading import read_page
from tests.service.archives import Stretch, write_archive
from tests.service.rows import ASSETS, HOUR, PARTIES, TYPES

DAY = 24 * HOUR
BEGIN = 1_675_555_200_000_000
PARTY = ("asset_id", "party_id")
MEASURES = "accounts unknown first_seen last_seen rows changes opening closing minimum maximum"
MEASURES += " minimum_at maximum_at inflow outflow net internal average drawdown drawdown_at"
MEASURES = [*MEASURES.split(), "zero_share"]
LONGEST = {"hour": 50 * HOUR, "day": 50 * DAY, "month": 1300 * DAY}
ARCHIVES = settings.default.max_examples // 6


def random_archive(folder, seed):
    """An archive with gaps and unproven stretches, some at its end, and its expected values."""
    rng = random.Random(seed)
    partition = rng.choice(list(LONGEST))
    unit = rng.choice((1, HOUR, DAY))
    length = rng.randrange(2 * unit, LONGEST[partition])
    begin = (BEGIN + rng.randrange(500 * DAY)) // unit * unit
    cuts = {begin + rng.randrange(1, length // unit) * unit for _ in range(rng.randrange(5))}
    kinds = ["proven", "proven", "proven", "unproven", "gap"]
    stretches = [
        Stretch(start, end, kind == "proven")
        for start, end in pairwise(sorted({begin, *cuts, begin + length // unit * unit}))
        if (kind := rng.choice(kinds)) != "gap"
    ] or [Stretch(begin, begin + length)]
    accounts = [
        (ASSETS[rng.random() < 0.3], rng.choice(TYPES), rng.choice(PARTIES), "") for _ in range(6)
    ]
    moments = [moment(rng, stretches) for _ in range(rng.randrange(60))]
    rows = {(account, time) for time in moments for account in rng.sample(accounts, 2)}
    most = rng.choice((5, 10**20, 10**36))
    rows = [Row(*key, time, rng.choice((0, rng.randrange(most)))) for key, time in sorted(rows)]
    order = rng.sample(stretches, len(stretches))
    archive = write_archive(folder, rows, stretches=order, partition=partition)
    writer, is_first = writer_of(archive), rng.random() < 0.3 and stretches[0].proven
    if rng.random() < 0.5:
        writer.write_checkpoints()
    if is_first:
        writer.set_evidence(replace(writer.manifest.evidence, from_first_block=True))
    ends = begin, begin + length
    gaps = uncovered([one[:2] for one in stretches if one.proven], *ends)
    known = tuple(uncovered(gaps, *ends))
    return archive, World(rows, known=known, nothing_before=is_first), rng


def moment(rng, stretches):
    """A moment in a stretch, maybe its first or last, or a midnight."""
    start, end, *_ = rng.choice(stretches)
    time = rng.choice((start, end - 1, rng.randrange(start, end)))
    midnight = time // DAY * DAY
    return midnight if rng.random() < 0.2 and start <= midnight else time


class Periods(NamedTuple):
    """Periods that are asked for, each on its own."""

    spans: list[tuple[int, int]]

    def periods(self, _world):
        return self.spans


def spans_in(records):
    spans = rows_of(records, "start", "end")
    assert all(one[1] == other[0] for one, other in pairwise(spans))
    return Periods(spans)


def summed(world, start, end, by=ba.ACCOUNT_KEY):
    """The summaries of accounts or parties, each as a dict."""
    rows = summaries(world, Grid(None, start, end), by)
    return {row[: len(by)]: dict(zip(MEASURES, row[len(by) :], strict=True)) for row in rows}


def has_order(sizes):
    """Whether the largest come first and the unknown ones last."""
    known = [size for size in sizes if size is not None]
    return sizes == sorted(known, reverse=True) + [None] * (len(sizes) - len(known))


def check_gaps(about, world):
    gaps = uncovered(world.known, about["start"], about["end"])
    assert about["gaps"] == [[*gap] for gap in gaps]


def check_holders(page, world, asset, at, last):
    time = last if at is None else at
    answer, parties = (page("holders", asset=asset, at=at, by=by) for by in (None, "party"))
    book, total = world.book(), world.holders(["asset_id"])[asset,].total(time)
    rows = rows_of(answer["holders"], "account", "balance", "share", "since")
    assert has_order([row[1] for row in rows])
    assert sorted(rows) == sorted(
        (write_key(row[:4]), *row[4:6], book[row[:4]].since_when(time))
        for row in ranked_holders(world, Grid(start=time), ba.ACCOUNT_KEY)
    )
    assert sorted(rows_of(parties["holders"])) == sorted(
        (party, held, share, *counts)
        for _, party, held, share, _, *counts in ranked_holders(world, Grid(start=time), PARTY)
    )
    held = [row[1] for row in rows if row[1] is not None]
    level = total[0], total[2], sum(one > 0 for one in held) if held else None
    assert rows_of(answer["level"], "total", "unknown_accounts", "holders") == [level]


def check_headline(page, world, asset, start, end):
    answer, ends = page("headline", asset=asset, start=start, end=end), (start - 1, end - 1)
    assert rows_of(answer["change"]) == comparison(world, Grid(None, *ends), ["asset_id"])
    total = world.holders(["asset_id"])[asset,].total(end - 1)
    parties = [each.total(end - 1) for each in world.holders(PARTY).values()]
    held = [each[0] for each in parties if each[1]]
    level = total[0], total[2], sum(one > 0 for one in held) if held else None
    level += (sum(each[2] > 0 for each in parties),)
    names = "total", "unknown_accounts", "parties", "unknown_parties"
    assert rows_of(answer["level"], *names) == [level]


def check_sums(page, world, asset, start, end):
    kinds = world.holders(["account_type"])
    rows = rows_of(page("totals", asset=asset, start=start, end=end)["totals"])
    assert rows == [(kind, time, *kinds[kind,].total(time)) for kind, time, *_ in rows]
    assert {row[:1] for row in rows} == {*kinds}
    answer = page("flows", asset=asset, start=start, end=end)
    expected = flows(world, spans_in(answer["flows"]), ["asset_id"], full=True)
    assert [(asset, *row) for row in rows_of(answer["flows"])] == expected
    whole = Periods([(start, end)])
    ((_, _, _, *sums, _, _, unknown),) = flows(world, whole, ["asset_id"], full=True)
    names = "inflow", "outflow", "net"
    assert [answer["sum"][name] for name in names] == [x if x is None else str(x) for x in sums]
    assert answer["sum"]["unknown"] == (unknown or 0)


def check_movers(page, world, asset, start, end):
    answer, expected = page("movers", asset=asset, start=start, end=end), []
    summaries = summed(world, start, end)
    for account, one in summaries.items():
        opening, closing, net = (one[name] for name in ("opening", "closing", "net"))
        if None not in (opening, closing) and net:
            part = net / opening if opening else None
            expected.append((write_key(account), opening, closing, net, part))
    rows = rows_of(answer["movers"])
    assert (sorted(rows), answer["count"]) == (sorted(expected), len(expected))
    assert has_order([abs(row[3]) for row in rows])
    lacking = [None in (one["opening"], one["closing"]) for one in summaries.values()]
    assert answer["unknown"] == sum(lacking)


def check_account(page, world, account, start, end):
    answer = page("account", accounts=[account], start=start, end=end)
    world = replace(world, rows=[row for row in world.rows if row[:4] == account])
    (own,), expected = world.book().values(), summed(world, start, end)[account]
    ((*_, changes, _, _),) = flows(world, Periods([(start, end)]), full=True)
    rows = None if changes is None else expected["rows"]
    names = [one["name"] for one in answer["summary"]["columns"]]
    expected = {**expected, "rows": rows, "changes": changes}
    assert rows_of(answer["summary"]) == [tuple(expected[name] for name in names)]
    asked = spans_in(answer["periods"])
    both = zip(flows(world, asked, full=True), averages(world, asked), strict=True)
    assert rows_of(answer["periods"]) == [
        (*flow[4:6], average[-1], *flow[6:10], flow[-1]) for flow, average in both
    ]
    deltas = [each for each in own.deltas() if start <= each[0] < end]
    listing = page("rows", accounts=[account], start=start, end=end, page=9)
    assert (listing["count"], listing["page"]) == (len(deltas), 0)
    assert rows_of(listing["rows"]) == deltas[::-1]
    (line,) = page("series", accounts=[account], start=start, end=end)["series"]
    steps = [*zip(line["times"], line["balances"], strict=True)]
    edges = {bound + by for span in world.known for bound in span for by in (-1, 0)}
    for at in {start, end - 1, *(time for time, *_ in deltas), *edges}:
        if start <= at < end:
            drawn = next((held for time, held in reversed(steps) if time <= at), None)
            assert (drawn and int(drawn)) == own.level(at)


def check_party(page, world, party, start, end):
    names = ("opening", "closing", "net", "inflow", "outflow")
    for one in page("party", party=party, start=start, end=end)["assets"]:
        rows = [row for row in world.rows if (row[0], row[2]) == (one["id"], party)]
        own = replace(world, rows=rows)
        (whole,) = summed(own, start, end, PARTY).values()
        expected = tuple(whole[name] for name in ("accounts", *names, "internal"))
        assert rows_of(one["totals"]) == [expected]
        assert sorted(rows_of(one["accounts"])) == sorted(
            (write_key(account), *(each[name] for name in names))
            for account, each in summed(own, start, end).items()
        )
        expected = flows(own, spans_in(one["flows"]), PARTY, full=True, internal=True)
        assert [(one["id"], party, *row) for row in rows_of(one["flows"])] == expected


def of_asset(world, asset):
    return replace(world, rows=[row for row in world.rows if row[0] == asset])


@pytest.mark.hypothesis  # so that a longer run tries more of them
@pytest.mark.parametrize("seed", range(ARCHIVES))
def test_every_number_of_a_view_equals_a_sum_of_plain_integers(tmp_path, seed, monkeypatch):
    # Flows come in parts.
    monkeypatch.setattr("balance_analysis.explorer.source._PART_ROWS", (20, 1)[seed % 2])
    monkeypatch.setattr("balance_analysis.explorer.source._SHARED_ROWS", 30)
    archive, world, rng = random_archive(tmp_path / "archive", seed)
    with asking(archive) as page:
        about = page("about")
        first, last = about["start"], about["end"]
        check_gaps(about, world)
        for asset in (one["id"] for one in about["assets"]):
            own = of_asset(world, asset)
            for at in (None, last, first, rng.randrange(first, last)):
                check_holders(page, own, asset, at, last - 1)
            beyond = rng.choice(((first - 9, first), (last + 1, last + DAY)))
            for start, end in ((first, last), span(rng, first, last), beyond):
                for check in (check_headline, check_sums, check_movers):
                    check(page, own, asset, start, end)
                check_account(page, own, [*own.book()][-1], start, end)
        for party in rng.sample(PARTIES, 2):
            check_party(page, world, party, *span(rng, first, last))


class Frozen:
    """The views of a report, requested as from a service."""

    def __init__(self, path):
        self._page = read_page(path)

    def __call__(self, view, *, accounts=(), **query):
        asked = map(query.get, ("asset", "party", "by", "at", "start", "end"))
        values = [*map(write_key, accounts), *asked, {"rows": 0, "series": 4000}.get(view)]
        return self._page.view(view, *(value for value in values if value is not None))


@pytest.mark.hypothesis
@pytest.mark.parametrize("seed", range(ARCHIVES, 2 * ARCHIVES))
def test_every_number_of_a_report_equals_a_sum_of_plain_integers(tmp_path, seed):
    archive, world, _ = random_archive(tmp_path / "archive", seed)
    ba.write_report(archive, tmp_path / "report.html")
    page = Frozen(tmp_path / "report.html")
    about = page("about")
    check_gaps(about, world)
    first, last = about["start"], about["end"]
    for asset in (one["id"] for one in about["assets"]):
        own = of_asset(world, asset)
        for start in {first, *(max(first, last - days * DAY) for days in (1, 7, 30, 91))}:
            check_holders(page, own, asset, start, last - 1)
            for check in (check_headline, check_sums, check_movers):
                check(page, own, asset, start, last)
        check_holders(page, own, asset, None, last - 1)
        for account in [*own.book()][:2]:
            check_account(page, own, account, first, last)


def span(rng, first, last):
    unit = rng.choice((1, HOUR, DAY))
    ends = sorted(rng.randrange(first, last) // unit * unit for _ in range(2))
    low = max(ends[0], first)
    return low, max(ends[1], low + 1)
