"""What the page gets is what the library computes from `Archive.read`, in any archive."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from itertools import pairwise

import pandas as pd
import pytest
from hypothesis import settings

import balance_analysis as ba
from balance_analysis import Archive
from balance_analysis.archive.store import Store
from tests.archive.writing import writer_of
from tests.explorer.test_views import (
    check,
    check_headline,
    levels_of,
    moved_in,
    told,
    with_relative,
)
from tests.moments import from_microseconds
from tests.report.reading import as_dicts, write_key
from tests.service.archives import Stretch, commit, write_archive
from tests.service.conftest import InProcess, read_error
from tests.service.rows import ASSETS, HOUR, PARTIES, TYPES, Row
from tests.serving import application

DAY = 24 * HOUR
BEGIN = 1_675_555_200_000_000
LONGEST = {"hour": 50 * HOUR, "day": 50 * DAY, "month": 1300 * DAY}
ARCHIVES = settings.default.max_examples // 5
"""How many are tried: five, and as many times more as a property has more examples."""


def make_archive(folder, seed):
    """Return an archive with gaps and unproven stretches, some at its end."""
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
    if rng.random() < 0.3:
        stretches[0] = stretches[0]._replace(proven=True, source="segments chain 1-99")
    accounts = [
        (ASSETS[rng.random() < 0.3], rng.choice(TYPES), rng.choice(PARTIES), "") for _ in range(6)
    ]
    times = [moment(rng, stretches) for _ in range(rng.randrange(60))]
    rows = {(account, time) for time in times for account in rng.sample(accounts, 2)}
    rows = [Row(*account, time, balance(rng)) for account, time in sorted(rows)]
    stretches = rng.sample(stretches, len(stretches))
    return write_archive(folder, rows, stretches=stretches, partition=partition)


def moment(rng, stretches):
    """Return a moment in a stretch, maybe its first or last, or a midnight."""
    start, end, *_ = rng.choice(stretches)
    found = rng.choice((start, end - 1, rng.randrange(start, end)))
    midnight = found // DAY * DAY
    return midnight if rng.random() < 0.2 and start <= midnight else found


def balance(rng):
    return rng.choice((0, rng.randrange(5), rng.randrange(10**36)))


class Page:
    """What a page asks of a service."""

    def __init__(self, service):
        self._service = service

    def __call__(self, view, **query):
        return json.loads(self.read(view, **query))

    def read(self, view, **query):
        accounts = query.pop("accounts", ())
        items = [("account", write_key(account)) for account in accounts]
        items += [(name, str(value)) for name, value in query.items() if value is not None]
        answer = self._service.get(items, path=f"/explore/{view}")
        assert answer.status == 200, answer.body
        return answer.body


class Library:
    """The same of the library, of all rows up to a moment."""

    def __init__(self, archive, asset, end):
        self.rows = archive.select(asset_id=f"id:{asset}").read(
            end=from_microseconds(end), partial=True
        )

    def of(self, account):
        picked = self.rows[list(ba.ACCOUNT_KEY)].astype("str") == list(account)
        rows = self.rows[picked.all(axis=1)].reset_index(drop=True)
        for name in ba.ACCOUNT_KEY:
            rows[name] = rows[name].cat.remove_unused_categories()
        return rows


def check_archive(archive, service, seed):
    rng, page = random.Random(-seed), Page(service)
    about = page("about")
    coverage = archive.coverage()
    bounds = [int(x.value) // 1000 for x in (coverage["start"].min(), coverage["end"].max())]
    assert [about["start"], about["end"]] == bounds
    lacking = coverage[coverage["state"] != "complete"]
    gaps = [
        (x.value // 1000, y.value // 1000)
        for x, y in zip(lacking["start"], lacking["end"], strict=True)
    ]
    assert about["gaps"] == merged(gaps)
    check(page("notes")["coverage"], coverage)
    accounts = ba.summarize_accounts(archive)
    for party in rng.sample(PARTIES, 2):
        check_party(archive, page, party, ranges(rng, *bounds))
    for account in accounts.sample(min(len(accounts), 2), random_state=seed).itertuples():
        key = tuple(getattr(account, name) for name in ba.ACCOUNT_KEY)
        check_explanation(archive, page, key, rng.randrange(*bounds))
    for asset in about["assets"]:
        check_holders(archive, page, asset["id"], about, rng)
        for span in (bounds, ranges(rng, *bounds)):
            check_range(archive, page, asset["id"], span, rng)


def check_party(archive, page, party, span):
    bounds = {name: from_microseconds(at) for name, at in zip(("start", "end"), span, strict=True)}
    rows = archive.read(end=bounds["end"], partial=True)
    rows = rows[rows["party_id"] == party]  # maybe none, which a selection refuses
    found = page("party", party=party, start=span[0], end=span[1])
    assert found["untold"] == {}
    check(found["totals"], ba.summarize_parties(rows, **bounds))
    check(found["accounts"], ba.summarize_accounts(rows, **bounds))
    net, flows = {}, as_dicts(found["flows"])
    for one in flows:
        net.setdefault(one["asset_id"], []).append(one["net"])
    for asset, parts in net.items():
        own = rows[rows["asset_id"] == asset].reset_index(drop=True)
        whole = ba.flows(own, freq=None, by="asset_id", layout="wide", value="net", **bounds)
        (expected,) = told(whole, whole.columns[0])
        assert expected == (None if None in parts else str(sum(map(int, parts))))


def check_explanation(archive, page, account, at):
    expected = archive.explain(account, at=from_microseconds(at))
    found = page("explain", accounts=[account], at=at)
    (one,) = as_dicts(found["explanation"])
    assert one["balance"] == (None if expected.balance is None else str(expected.balance))
    assert (one["at"], one["why"], one["state"]) == (at, expected.why, expected.state)
    assert (one["source"], one["confirmed_by"]) == (expected.source, expected.confirmed_by)
    asked = expected.asked and [
        int(moment.value) // 1000 for moment in map(pd.Timestamp, expected.asked)
    ]
    assert [one["first_asked_at"], one["asked_at"]] == (asked or [None, None])
    heights = [one["first_block_height"], one["block_height"]]
    assert heights == [*(expected.heights or (None, None))]
    cited = [row for row in (expected.before, expected.row, expected.after) if row]
    assert [(row["file"], row["balance"]) for row in as_dicts(found["cited"])] == [
        (row.file, str(row.balance)) for row in cited
    ]


def merged(gaps):
    found = []
    for start, end in gaps:
        if found and found[-1][1] == start:
            found[-1][1] = end
        else:
            found.append([start, end])
    return found


def ranges(rng, start, end):
    unit = rng.choice((1, HOUR, DAY))
    found = sorted(rng.randrange(start, end) // unit * unit for _ in range(2))
    low = max(found[0], start)
    return low, max(found[1], low + 1)


def check_holders(archive, page, asset, about, rng):
    first, last = about["start"], about["end"]
    for at in (None, rng.randrange(first, last), rng.choice((last, last + 40 * DAY, first))):
        found = page("holders", asset=asset, at=at)
        when = from_microseconds(last - 1 if at is None else at)
        rows = archive.select(asset_id=f"id:{asset}").read(
            end=when + pd.Timedelta("1us"), partial=True
        )
        shares = ba.holders(rows, when)
        expected = dict(
            zip(
                keys_of(shares),
                zip(told(shares, "balance"), told(shares, "share"), strict=True),
                strict=True,
            )
        )
        assert {row[0]: (row[1], row[2]) for row in found["holders"]["rows"]} == expected
        level = {"asset_id": pd.Categorical([asset]), **levels_of(rows, [when])}
        check(found["level"], pd.DataFrame(level))
        held = ba.balance_at(rows, when)
        assert dict(zip(keys_of(held), told(held, "balance"), strict=True)) == {
            key: level for key, (level, _) in expected.items()
        }
    listed = page("accounts", asset=asset)["accounts"]["rows"]
    chosen = archive.select(asset_id=f"id:{asset}")
    held = ba.balance_at(chosen, from_microseconds(last - 1))
    assert dict(listed) == dict(zip(keys_of(held), told(held, "balance"), strict=True))


def keys_of(frame):
    accounts = frame[list(ba.ACCOUNT_KEY)].astype("str").itertuples(index=False)
    return [write_key(tuple(account)) for account in accounts]


def check_range(archive, page, asset, span, rng):
    start, end = span
    library = Library(archive, asset, end)
    query = {"asset": asset, "start": start, "end": end}
    bounds = {"start": from_microseconds(start), "end": from_microseconds(end)}
    check_totals(as_dicts(page("totals", **query)["totals"]), library.rows, start)
    check_flows(page("flows", **query)["flows"], library.rows, "asset_id", span, rng)
    moved = moved_in(library.rows, **bounds)
    movers = page("movers", **query)["movers"]
    check(movers, with_relative(moved))
    check_headline(page("headline", **query)["headline"], library.rows, start, end)
    assert [row[0] for row in movers["rows"]] == keys_of(moved)
    keys = library.rows[list(ba.ACCOUNT_KEY)].astype("str").drop_duplicates()
    accounts = [tuple(account) for account in keys.itertuples(index=False)]
    del query["asset"]
    found = page("series", accounts=accounts[:8], width=4000, **query)["series"]
    for account, line in zip(accounts, found, strict=False):
        check_line(line, library.of(account), start, end)
    for account in rng.sample(accounts, min(len(accounts), 2)):
        rows = library.of(account)
        told_of = page("account", accounts=[account], **query)
        own = ba.summarize_accounts(rows, **bounds)
        check(told_of["summary"], own)
        share = ba.holders(library.rows, from_microseconds(end - 1))
        (place,) = [n for n, key in enumerate(keys_of(share)) if key == write_key(account)]
        found = page("summary", accounts=[account], **query)["summary"]
        check(found, own.assign(share=share["share"].iloc[place]))
        check_flows(told_of["periods"], rows, list(ba.ACCOUNT_KEY), span, rng)
        check_averages(as_dicts(told_of["periods"]), rows, rng)
        listing = page("rows", accounts=[account], **query)
        changed = ba.deltas(rows).assign(depth=ba.drawdown(rows)["depth"])
        shown = changed[changed["timestamp"] >= bounds["start"]].iloc[::-1]
        assert listing["count"] == len(shown)
        check(listing["rows"], shown)


def check_totals(found, rows, start):
    moments = sorted({one["timestamp"] for one in found})
    expected = {}
    if moments:
        assert moments[0] == start
        held = ba.balance_at(rows, [from_microseconds(moment) for moment in moments])
        for kind, time, level in zip(
            held["account_type"], told(held, "timestamp"), told(held, "balance"), strict=True
        ):
            expected.setdefault((kind, time), []).append(level)
    for one in found:
        levels = expected.pop((one["account_type"], one["timestamp"]))
        known = [int(level) for level in levels if level is not None]
        assert one["total"] == (str(sum(known)) if known else None)
        assert (one["known"], one["unknown"]) == (len(known), len(levels) - len(known))
    assert not expected


def check_flows(sheet, rows, by, span, rng):
    """Every period is there, with 0 where nothing happened and null where that is not known."""
    found = as_dicts(sheet)
    if rows.empty:
        return
    edges = [span[0], *(one["end"] for one in found)]
    assert [(one["start"], one["end"]) for one in found] == list(pairwise(edges))
    assert edges[-1] == span[1]
    for one in rng.sample(found, min(len(found), 3)):
        how = {"freq": None, "by": by, **{x: from_microseconds(one[x]) for x in ("start", "end")}}
        for value in ("inflow", "outflow", "net", "changes", "unknown"):
            wide = ba.flows(rows, **how, layout="wide", value=value)
            (expected,) = told(wide, wide.columns[0])
            assert one[value] == expected or int(one[value]) == int(expected), (one, value)


def check_averages(found, rows, rng):
    for one in rng.sample(found, min(len(found), 3)):
        period = {name: from_microseconds(one[name]) for name in ("start", "end")}
        assert [one["average"]] == told(ba.time_weighted_average(rows, **period), "average")


def check_line(line, rows, start, end):
    """At each moment of a range, a chart shows what `balance_at` tells."""
    changes = [time for time in told(rows, "timestamp") if start <= time < end]
    # A line is right-open: at the very end of what is known there is none any more.
    edges = [x for first, last in known_of(rows) for x in (first - 1, first, last - 1, last + 1)]
    moments = {start, end - 1, *changes, *edges}
    moments = sorted(moment for moment in moments if start <= moment < end)
    steps = list(zip(line["times"], line["balances"], strict=True))
    held = ba.balance_at(rows, [from_microseconds(moment) for moment in moments])
    drawn = [
        next((level for time, level in reversed(steps) if time <= moment), None)
        for moment in moments
    ]
    assert drawn == told(held, "balance")


def known_of(rows):
    known = rows.attrs["balance_analysis"]["known"]
    return [[pd.Timestamp(x).value // 1000 for x in span] for span in known]


def try_archive(folder, seed):
    archive = make_archive(folder, seed)
    with asyncio.Runner() as runner:
        check_archive(archive, InProcess(runner, application(archive)), seed)


@pytest.mark.hypothesis  # so that a longer run tries more of them as well
@pytest.mark.parametrize("seed", range(ARCHIVES))
def test_every_view_of_an_archive_is_what_the_library_computes(tmp_path, seed):
    try_archive(tmp_path / "archive", seed)


class BusyStore(Store):
    """Files between any two reads of which somebody may write."""

    def __init__(self, uri):
        super().__init__(uri)
        self.left = -1

    def read(self, name):
        self.happen()
        return super().read(name)

    def open(self, name):
        self.happen()
        return super().open(name)

    def happen(self):
        self.left -= 1
        if self.left == -1:
            self.write_more()


MIDDLE, LAST = BEGIN + 3 * DAY, BEGIN + 6 * DAY
GROWING = [
    Row(ASSETS[0], TYPES[0], party, "", BEGIN + day * DAY, 100 * day + n)
    for day in range(1, 6)
    for n, party in enumerate(PARTIES)
]
NOTED = write_key(GROWING[0][:4])


@pytest.fixture(params=["day", "month"])
def growing(request, tmp_path):
    """An archive of three days, and what writes three more."""
    stretches = [Stretch(BEGIN, MIDDLE)]
    rows = [row for row in GROWING if row.time < MIDDLE]
    archive = write_archive(
        tmp_path / "archive", rows, stretches=stretches, partition=request.param
    )

    def write_more():
        commit(writer_of(Archive(archive.uri)), GROWING, Stretch(MIDDLE, LAST))

    return archive, write_more


def served(archive):
    """A function that asks a service which has answered nothing yet."""
    app = application(archive)

    def get(view, **query):
        with asyncio.Runner() as runner:
            return InProcess(runner, app).get(list(query.items()), path=f"/explore/{view}")

    return get


QUERIES = [
    ("accounts", {"asset": ASSETS[0]}),
    ("holders", {"asset": ASSETS[0]}),
    ("totals", {"asset": ASSETS[0]}),
    ("flows", {"asset": ASSETS[0]}),
    ("movers", {"asset": ASSETS[0]}),
    ("series", {"account": NOTED}),
    ("account", {"account": NOTED}),
    ("rows", {"account": NOTED}),
    ("notes", {}),
]


@pytest.mark.parametrize(("view", "query"), QUERIES)
def test_a_view_is_of_the_state_that_it_names_whatever_was_written_since(growing, view, query):
    archive, write_more = growing
    get, before = served(archive), served(archive)(view, **query)
    version = get("about").json()["version"]
    write_more()
    assert get(view, version=version, **query).body == before.body
    assert get(view, **query).body == served(archive)(view, **query).body != before.body


@pytest.mark.parametrize(("view", "query"), QUERIES[:-1])
def test_an_answer_never_mixes_two_states(growing, tmp_path, view, query):
    archive, write_more = growing
    shutil.copytree(archive.uri, tmp_path / "older")
    write_more()
    either = {served(one)(view, **query).body for one in (archive, Archive(tmp_path / "older"))}
    assert len(either) == 2
    for place in range(30):
        folder = tmp_path / f"busy{place}"
        shutil.copytree(tmp_path / "older", folder)
        busy = Archive(folder)
        busy.store = BusyStore(folder)
        get = served(busy)
        busy.store.write_more = lambda folder=folder: commit(
            writer_of(ba.Archive(folder)), GROWING, Stretch(MIDDLE, LAST)
        )
        busy.store.left = place
        assert get(view, **query).body in either
        if busy.store.left >= 0:
            return
    pytest.fail("it reads without an end")


def test_a_state_that_is_gone_is_told_as_that(growing):
    archive, _ = growing
    get = served(archive)
    refused = get("holders", version="0123456789abcdef")
    assert refused.status == 409
    code, text = read_error(refused.json())
    assert (code, text.endswith("ask /explore/about for the current one")) == (10, True)


def test_a_state_whose_files_were_replaced_by_others_is_gone(tmp_path):
    """What is not proven may have had other rows: of that state nothing is told any more."""
    first = Stretch(BEGIN, MIDDLE, proven=False)
    rows = [row for row in GROWING if row.time < MIDDLE and row.party_id == PARTIES[0]]
    archive = write_archive(tmp_path / "a", rows, stretches=[first], partition="month")
    get = served(archive)
    version = get("about").json()["version"]
    commit(writer_of(archive), [row for row in GROWING if row not in rows], first)
    commit(writer_of(archive), [], Stretch(BEGIN, MIDDLE))
    refused = get("rows", account=NOTED, version=version)
    assert refused.status == 409
    assert get("rows", account=NOTED).status == 200


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ({"asset": "zzz"}, 404, "there is no account of an asset 'zzz'"),
        ({"start": 7, "end": 5}, 400, "start must be before end"),
    ],
)
def test_an_asset_that_is_not_there_and_a_turned_range_are_refused(growing, query, status, says):
    archive, _ = growing
    refused = served(archive)("totals", **query)
    assert refused.status == status
    assert says in read_error(refused.json())[1]


@pytest.mark.parametrize("bounds", [(LAST, LAST + DAY), (BEGIN - 9, BEGIN)])
def test_of_a_range_beyond_the_archive_nothing_is_known(growing, bounds):
    archive, _ = growing
    query = {"asset": ASSETS[0], **dict(zip(("start", "end"), bounds, strict=True))}
    get = served(archive)
    flows = as_dicts(get("flows", **query).json()["flows"])
    assert {(one["inflow"], one["net"], one["changes"]) for one in flows} <= {(None, None, None)}
    totals = as_dicts(get("totals", **query).json()["totals"])
    assert {one["total"] for one in totals} <= {None}
    assert get("movers", **query).json()["movers"]["rows"] == []
