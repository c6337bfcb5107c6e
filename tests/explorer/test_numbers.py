"""Each number of each view is one of sums in plain integers, over archives with gaps."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import settings

import balance_analysis as ba
from tests.archive.writing import writer_of
from tests.explorer.asking import as_dicts, asking, write_key
from tests.explorer.truth import Truth, joined
from tests.report.reading import read_page
from tests.service.archives import Stretch, write_archive
from tests.service.rows import ASSETS, HOUR, PARTIES, TYPES, Row

DAY = 24 * HOUR
BEGIN = 1_675_555_200_000_000
LONGEST = {"hour": 50 * HOUR, "day": 50 * DAY, "month": 1300 * DAY}
ARCHIVES = settings.default.max_examples // 8


def random_archive(folder, seed):
    """An archive with gaps and unproven stretches, some at its end, and what is true of it."""
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
    rows = [(*each, rng.choice((0, rng.randrange(most)))) for each in sorted(rows)]
    archive = write_archive(
        folder,
        [Row(*account, time, balance) for account, time, balance in rows],
        stretches=rng.sample(stretches, len(stretches)),
        partition=partition,
    )
    is_first = rng.random() < 0.3 and stretches[0].proven
    if is_first:
        writer = writer_of(archive)
        writer.prove(replace(writer.manifest.evidence, from_first_block=True))
    known = [(one.start, one.end) for one in stretches if one.proven]
    return archive, Truth(rows, known, from_first_block=is_first), rng


def moment(rng, stretches):
    """A moment in a stretch, maybe its first or last, or a midnight."""
    start, end, *_ = rng.choice(stretches)
    time = rng.choice((start, end - 1, rng.randrange(start, end)))
    midnight = time // DAY * DAY
    return midnight if rng.random() < 0.2 and start <= midnight else time


def text(number):
    return None if number is None else str(number)


def check_flows(periods, truth, accounts, names=("inflow", "outflow", "net")):
    """Periods in a row: where nothing but first balances came, amounts are unknown."""
    assert all(one["end"] == other["start"] for one, other in pairwise(periods))
    for one in periods:
        span = one["start"], one["end"]
        expected = truth.flows(accounts, *span)
        if not truth.knows(*span) or (expected["unknown"] and not expected["changes"]):
            assert [one[name] for name in names] == [None] * len(names)
        else:
            assert [one[name] for name in names] == [str(expected[name]) for name in names]
        if truth.knows(*span) or expected["unknown"] + expected["changes"]:
            assert (one["changes"], one["unknown"]) == (expected["changes"], expected["unknown"])


def check_holders(page, truth, asset, at, last):
    time = last if at is None else at
    accounts = truth.accounts(asset)
    held = {one: truth.held(one, time, until_end=True) for one in accounts}
    total, _, unknown = truth.level(accounts, time)
    answer = page("holders", asset=asset, at=at)
    rows = as_dicts(answer["holders"])
    assert {one["account"]: one["balance"] for one in rows} == {
        write_key(one): text(level) for one, level in held.items()
    }
    levels = [int(one["balance"]) for one in rows if one["balance"] is not None]
    assert levels == sorted(levels, reverse=True)
    for one in rows:
        is_part = total and one["balance"] is not None
        assert one["share"] == (float(Fraction(int(one["balance"]), total)) if is_part else None)
    (level,) = as_dicts(answer["level"]) or [dict.fromkeys(("total", "holders"), None)]
    assert (level["total"], level.get("unknown_accounts", 0)) == (text(total), unknown)
    assert level["holders"] == (sum(one > 0 for one in levels) if levels else None)
    parties = {}
    for (_, _, party, _), level in held.items():
        parties.setdefault(party, []).append(level)
    by_party = {
        one["party_id"]: one
        for one in as_dicts(page("holders", asset=asset, at=at, by="party")["holders"])
    }
    for party, each in parties.items():
        known = [one for one in each if one is not None]
        assert by_party[party]["balance"] == (text(sum(known)) if known else None)
        assert (by_party[party]["accounts"], by_party[party]["unknown"]) == (
            len(each),
            each.count(None),
        )


def check_headline(page, truth, asset, start, end):
    accounts = truth.accounts(asset)
    if not accounts:
        return
    answer = page("headline", asset=asset, start=start, end=end)
    ((level,), (change,)) = (as_dicts(answer[name]) for name in ("level", "change"))
    total, _, unknown = truth.level(accounts, end - 1)
    assert (level["total"], level["unknown_accounts"]) == (text(total), unknown)
    ends = [
        [truth.held(one, at, until_end=True) for one in accounts] for at in (start - 1, end - 1)
    ]
    is_known = None not in ends[0] + ends[1]
    assert change["change"] == (str(sum(ends[1]) - sum(ends[0])) if is_known else None)
    parties = {one[2]: [] for one in accounts}
    for one, level_ in zip(accounts, ends[1], strict=True):
        parties[one[2]].append(level_)
    sums = [sum(x for x in one if x is not None) for one in parties.values() if set(one) != {None}]
    assert level["parties"] == (sum(one > 0 for one in sums) if sums else None)
    assert level["unknown_parties"] == sum(None in one for one in parties.values())


def check_sums(page, truth, asset, start, end):
    accounts = truth.accounts(asset)
    kinds = {one[1] for one in accounts}
    for one in as_dicts(page("totals", asset=asset, start=start, end=end)["totals"]):
        own = [each for each in accounts if each[1] == one["account_type"]]
        total, known, unknown = truth.level(own, one["timestamp"])
        assert (one["total"], one["known"], one["unknown"]) == (text(total), known, unknown)
        kinds.discard(one["account_type"])
    assert not kinds
    answer = page("flows", asset=asset, start=start, end=end)
    periods = as_dicts(answer["flows"])
    check_flows(periods, truth, accounts)
    whole = truth.flows(accounts, start, end)
    if whole["unknown"] and not whole["changes"]:
        whole |= dict.fromkeys(("inflow", "outflow", "net"))
    if periods:
        names = ("inflow", "outflow", "net")
        assert [answer["sum"][name] for name in names] == [text(whole[name]) for name in names]
        assert answer["sum"]["unknown"] == whole["unknown"]


def moved(truth, account, start, end):
    """The balances at the ends of a range, and the change between."""
    opening, closing = (truth.held(account, at - 1) for at in (start, end))
    is_known = None not in (opening, closing)
    net = closing - opening if is_known else truth.flows([account], start, end)["net"]
    return opening, closing, net


def check_movers(page, truth, asset, start, end):
    expected, unknown = {}, 0
    for account in truth.accounts(asset):
        opening, closing, net = moved(truth, account, start, end)
        is_known = None not in (opening, closing)
        unknown += not is_known
        if is_known and net:
            part = float(Fraction(net, opening)) if opening else None
            expected[write_key(account)] = (*map(text, (opening, closing, net)), part)
    answer = page("movers", asset=asset, start=start, end=end)
    rows = answer["movers"]["rows"]
    assert (answer["count"], answer["unknown"]) == (len(expected), unknown)
    assert {key: tuple(row) for key, *row in rows} == expected
    sizes = [abs(int(row[3])) for row in rows]
    assert sizes == sorted(sizes, reverse=True)


def check_account(page, truth, account, start, end):
    answer = page("account", accounts=[account], start=start, end=end)
    ((one,), periods) = (as_dicts(answer[name]) for name in ("summary", "periods"))
    opening, closing, net = moved(truth, account, start, end)
    flows = truth.flows([account], start, end)
    assert [one[name] for name in ("opening", "closing", "net")] == [
        *map(text, (opening, closing, net))
    ]
    assert [one[name] for name in ("inflow", "outflow")] == [
        text(flows[n]) for n in ("inflow", "outflow")
    ]
    assert one["average"] == text(truth.average(account, start, end))
    deltas = truth.deltas(account, start, end)
    is_counted = deltas or truth.knows(start, end)
    assert one["rows"] == (len(deltas) if is_counted else None)
    assert one["changes"] == (flows["changes"] if is_counted else None)
    check_flows(periods, truth, [account])
    for period in periods:
        assert period["average"] == text(truth.average(account, period["start"], period["end"]))
    listing = page("rows", accounts=[account], start=start, end=end, page=9)
    shown = [
        (time, int(balance), delta and int(delta))
        for time, balance, delta in listing["rows"]["rows"]
    ]
    assert (listing["count"], listing["page"], shown) == (len(deltas), 0, deltas[::-1])
    (line,) = page("series", accounts=[account], start=start, end=end)["series"]
    steps = [*zip(line["times"], line["balances"], strict=True)]
    edges = {bound + by for span in truth.known for bound in span for by in (-1, 0)}
    for at in {start, end - 1, *(time for time, *_ in deltas), *edges}:
        if start <= at < end:
            drawn = next((level for time, level in reversed(steps) if time <= at), None)
            assert drawn == text(truth.held(account, at))


def check_party(page, truth, party, start, end):
    for one in page("party", party=party, start=start, end=end)["assets"]:
        accounts = truth.accounts(one["id"], party=party)
        (whole,) = as_dicts(one["totals"])
        rows = {row["account"]: row for row in as_dicts(one["accounts"])}
        assert rows.keys() == {*map(write_key, accounts)}
        ends = [[truth.held(each, at - 1) for each in accounts] for at in (start, end)]
        sums = [text(sum(each)) if None not in each else None for each in ends]
        assert [whole["opening"], whole["closing"]] == sums
        for account in accounts:
            expected = [*map(text, moved(truth, account, start, end))]
            assert [
                rows[write_key(account)][name] for name in ("opening", "closing", "net")
            ] == expected
        check_flows(as_dicts(one["flows"]), truth, accounts, names=("net",))


@pytest.mark.hypothesis  # so that a longer run tries more of them
@pytest.mark.parametrize("seed", range(ARCHIVES))
def test_every_number_is_one_of_sums_in_plain_integers(tmp_path, seed, monkeypatch):
    monkeypatch.setattr("balance_analysis.explorer.source._PART_ROWS", 20)  # flows in parts
    archive, truth, rng = random_archive(tmp_path / "archive", seed)
    with asking(archive) as page:
        about = page("about")
        first, last = about["start"], about["end"]
        lacking = [(max(a, first), min(b, last)) for a, b in Truth([], truth.known).gaps]
        assert about["gaps"] == [[a, b] for a, b in joined(lacking) if a < b]
        for asset in (one["id"] for one in about["assets"]):
            for at in (None, last, first, rng.randrange(first, last)):
                check_holders(page, truth, asset, at, last - 1)
            for start, end in ((first, last), span(rng, first, last)):
                check_headline(page, truth, asset, start, end)
                check_sums(page, truth, asset, start, end)
                check_movers(page, truth, asset, start, end)
                for account in truth.accounts(asset)[-1:]:
                    check_account(page, truth, account, start, end)
        for party in rng.sample(PARTIES, 2):
            check_party(page, truth, party, *span(rng, first, last))


class Frozen:
    """The views of a report, asked for as those of a service."""

    def __init__(self, path):
        self._page = read_page(path)

    def __call__(
        self, view, *, accounts=(), asset=None, by=None, at=None, start=None, end=None, page=0
    ):
        last = {"rows": 0, "series": 4000}.get(view)
        values = [*map(write_key, accounts), asset, by, at, start, end, last]
        return self._page.view(view, *(value for value in values if value is not None))


@pytest.mark.hypothesis
@pytest.mark.parametrize("seed", range(ARCHIVES, 2 * ARCHIVES))
def test_every_number_of_a_report_is_one_of_sums_in_plain_integers(tmp_path, seed):
    archive, truth, _ = random_archive(tmp_path / "archive", seed)
    ba.write_report(archive, tmp_path / "report.html")
    page = Frozen(tmp_path / "report.html")
    about = page("about")
    first, last = about["start"], about["end"]
    for asset in (one["id"] for one in about["assets"]):
        for start in {first, *(max(first, last - days * DAY) for days in (1, 7, 30, 91))}:
            check_holders(page, truth, asset, start, last - 1)
            check_headline(page, truth, asset, start, last)
            check_sums(page, truth, asset, start, last)
            check_movers(page, truth, asset, start, last)
        check_holders(page, truth, asset, None, last - 1)
        for account in truth.accounts(asset)[:2]:
            check_account(page, truth, account, first, last)


def span(rng, first, last):
    unit = rng.choice((1, HOUR, DAY))
    ends = sorted(rng.randrange(first, last) // unit * unit for _ in range(2))
    low = max(ends[0], first)
    return low, max(ends[1], low + 1)
