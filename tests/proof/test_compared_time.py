"""A comparison covers what both sides prove, lists the rest, and calls nothing else the same.

The oracle looks at every tick by itself."""

import itertools
import json
from dataclasses import dataclass, field, replace

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.analysis import tables
from tests.archive.exporting import edit_manifest
from tests.cli.running import run
from tests.columns import note_evidence
from tests.moments import from_microseconds, to_microseconds
from tests.scale.archives import write_archive


@pytest.fixture(scope="module", autouse=True)
def _small_parts():
    """Compare fewer rows at once than a moment has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("balance_analysis.proof.diff._PART", 1)
        yield


TICK = 6 * 3_600_000_000
START = to_microseconds("2023-04-28T18:00")
TICKS = 14
NEAR = range(-1, TICKS + 1)
INTERVALS = [(a, b) for a in (None, *NEAR) for b in (None, *NEAR) if None in {a, b} or a < b]
PARTIES = ["a" * 64, "b" * 64]
ASSETS = ["c" * 64, "d" * 64]
ACCOUNTS = [(x, "ACCOUNT_TYPE_GENERAL", y, "") for x, y in itertools.product(ASSETS, PARTIES)]
EVERYONE = {"asset_id": None, "party_ids": (), "market_ids": (), "account_types": ()}
FILTERS = [
    EVERYONE,
    {**EVERYONE, "party_ids": (PARTIES[0],)},
    {**EVERYONE, "asset_id": ASSETS[0]},
    {**EVERYONE, "party_ids": (PARTIES[0],), "asset_id": ASSETS[0]},
    {**EVERYONE, "party_ids": (PARTIES[1],)},
]
ORIGINS = [(), ("1.1.1.1:80",), ("2.2.2.2:80",)]


def at(tick):
    return START + tick * TICK


def span(first, last):
    return from_microseconds(at(first)), from_microseconds(at(last))


def table_of(balances, **knowing):
    """Return a table of {(account, tick): balance}; by default it knows nothing of any time."""
    rows = [(*account, at(tick), balance) for (account, tick), balance in balances.items()]
    return ba.to_table(tables.table_of(rows), **{"known": (), **knowing})


@dataclass(frozen=True)
class Held:
    """One side's content: its balances, and the ticks and the source of each answer."""

    balances: dict
    answers: tuple[tuple[int, int, int, bool], ...]
    """First tick, last one exclusive, number of the origin, and whether it reached."""
    set_aside: tuple[tuple[int, object], ...] = ()
    filters: dict = field(default_factory=EVERYONE.copy)

    @property
    def accounts(self):
        asset, parties = self.filters["asset_id"], self.filters["party_ids"]
        return {x for x in ACCOUNTS if asset in {None, x[0]} and (not parties or x[2] in parties)}

    def answer(self, tick):
        return next((each for each in self.answers if each[0] <= tick < each[1]), None)

    def state(self, tick, accounts=None):
        """Return the state of a tick, naively, for some accounts."""
        answer, accounts = self.answer(tick), accounts or self.accounts
        if answer is None:
            return "missing"
        bad = [x for when, x in self.set_aside if when == tick and (x is None or x in accounts)]
        return "complete" if answer[3] and not bad else "unproven"

    @property
    def evidence(self):
        """The evidence, as files and archives have it."""
        answers = [
            {
                "span": (at(first), at(last)),
                "node": {"name": f"http://n{n}", "origin": ORIGINS[n]},
                "asked": (n, n),
                "heights": None,
                "reached": reached,
            }
            for first, last, n, reached in self.answers
        ]
        bad = [{"span": (at(tick), at(tick) + 1), "account": x} for tick, x in self.set_aside]
        words = {"agreed": [], "disputed": [], "from_first_block": False}
        return {"filters": self.filters, "answers": answers, "set_aside": bad, **words}

    def write(self, folder, form):
        """Return it as an archive, a table, or a file."""
        folder.mkdir(parents=True, exist_ok=True)
        if form not in ("table", "file", "stated"):
            there = {x: y for x, y in self.balances.items() if self.answer(x[1]) is not None}
            is_selection = form == "selection" and bool(there)
            held = replace(self, filters=EVERYONE) if is_selection else self
            if is_selection:
                others = {x: y for x, y in TRUTH.items() if x[0] not in self.accounts}
                there |= {x: y for x, y in others.items() if self.answer(x[1]) is not None}
            partition = "day" if form == "selection" else form
            archive = write_archive(folder / "a", table_of(there), partition)
            edit_manifest(folder / "a", lambda content: content.update(evidence=held.evidence))
            return archive.select(**self.filters) if is_selection else archive
        table = table_of(self.balances)
        ticks = [tick for tick in range(TICKS) if self.state(tick) == "complete"]
        is_plain = not self.set_aside and all(reached for *_, reached in self.answers)
        if form == "stated" and is_plain and self.filters == EVERYONE:
            return ba.to_table(table, known=[span(tick, tick + 1) for tick in ticks])
        complete = [(at(tick), at(tick + 1)) for tick in ticks]
        note_evidence(table, complete, self.evidence)
        if form != "file":
            return table.sample(frac=1, random_state=1)
        ba.write_parquet(table, folder / "x.parquet")
        return folder / "x.parquet"


FORMS = ["day", "hour", "month", "selection", "table", "file", "stated"]
TRUTH = {
    (x, tick): 10**37 + 10 * n + tick
    for n, x in enumerate(ACCOUNTS)
    for tick in range(n % 2, TICKS, 2)
}
STEPS = [1, 2**64, -(2**64), 10**37]
"""What makes another balance of one, in any of its 128 bits."""


@st.composite
def held(draw, origins=(1, 2)):
    """Draw a side: the truth with some rows lost or changed, proven in some stretches."""
    own = Held({}, (), filters=draw(st.sampled_from(FILTERS)))
    edges = sorted(draw(st.sets(st.integers(0, TICKS), min_size=1, max_size=4)) | {0, TICKS})
    answers = tuple(
        (first, last, draw(st.sampled_from(origins)), draw(st.integers(0, 4)) > 0)
        for first, last in itertools.pairwise(edges)
        if draw(st.integers(0, 5)) > 0
    )
    places = st.sampled_from(sorted(TRUTH))
    lost = draw(st.sets(places, max_size=12))
    changed = draw(st.dictionaries(places, st.sampled_from(STEPS), max_size=12))
    balances = {
        place: balance + changed.get(place, 0)
        for place, balance in TRUTH.items()
        if place not in lost and place[0] in own.accounts
    }
    ticks = [tick for tick in range(TICKS) if any(a <= tick < b for a, b, *_ in answers)]
    bad = st.tuples(st.sampled_from(ticks or [0]), st.sampled_from([None, *sorted(own.accounts)]))
    set_aside = draw(st.lists(bad, max_size=1 if ticks else 0))
    return replace(own, balances=balances, answers=answers, set_aside=tuple(set_aside))


anyones, forms = held(origins=(0, 1, 2)), st.sampled_from(FORMS)
FIRST, LAST = from_microseconds(START), from_microseconds(at(TICKS))
WHOLE = Held(TRUTH, ((0, TICKS, 1, True),))
GAPPED = replace(WHOLE, answers=((0, 4, 1, True), (8, TICKS, 1, True)))
LOSSY = Held(
    {place: balance for place, balance in TRUTH.items() if place[1] not in {2, 3}},
    ((0, 3, 1, False), (3, TICKS, 1, True)),
)
OF_PARTY = {place: balance for place, balance in TRUTH.items() if place[0][2] == PARTIES[0]}
PARTY = replace(WHOLE, filters=FILTERS[1], balances=OF_PARTY)


def ticks_of(moments):
    """Return the ticks that lie in intervals."""
    return {t for t in NEAR for a, b in moments if a <= from_microseconds(at(t)) < b}


def compared(ours, theirs, ticks=NEAR):
    """Return the ticks and the accounts that both prove, and the compared rows of each.

    Where both have answers, a row is compared with the other side's. If that has none, the row is
    compared only where the other side is complete.
    """
    accounts = ours.accounts & theirs.accounts
    shared = {
        tick
        for tick in ticks
        if accounts and ours.state(tick, accounts) == theirs.state(tick, accounts) == "complete"
    }
    both = {tick for tick in ticks if ours.answer(tick) and theirs.answer(tick)}
    rows = [
        {
            (account, tick): balance
            for (account, tick), balance in side.balances.items()
            if account in accounts and tick in both
            if (account, tick) in other.balances or other.state(tick, accounts) == "complete"
        }
        for side, other in ((ours, theirs), (theirs, ours))
    ]
    return shared, accounts, *rows


def differences(ours, theirs):
    return {x for x in ours.keys() | theirs.keys() if ours.get(x) != theirs.get(x)}


def places_of(rows):
    kinds = {(True, False): "removed", (False, True): "added", (True, True): "changed"}
    there = zip(rows["balance"].notna(), rows["other_balance"].notna(), strict=True)
    assert [*rows["change"]] == [kinds[each] for each in there]
    times = (rows["timestamp"].astype("int64") - START) // TICK
    ids = rows[list(ba.ACCOUNT_KEY)].astype("str").itertuples(index=False, name=None)
    return {*zip(ids, times.tolist(), strict=True)}


@settings(max_examples=12, deadline=None)
@given(held(), held() | st.none(), st.tuples(forms, forms), st.sampled_from(INTERVALS))
@example(WHOLE, None, ("day", "table"), (0, TICKS))
@example(GAPPED, None, ("day", "file"), (None, None))
@example(GAPPED, None, ("month", "hour"), (0, None))
@example(WHOLE, None, ("day", "table"), (None, 0))
@example(LOSSY, WHOLE, ("day", "table"), (None, None))
@example(PARTY, replace(LOSSY, set_aside=((3, ACCOUNTS[1]),)), ("day", "hour"), (None, None))
def test_shared_and_differing_time_equal_those_of_an_oracle_over_single_ticks(
    tmp_path_factory, ours, theirs, forms, interval
):
    theirs, folder = theirs or ours, tmp_path_factory.mktemp("diff")
    (start, end), given = interval, zip(["start", "end"], interval, strict=True)
    bounds = {name: from_microseconds(at(tick)) for name, tick in given if tick is not None}
    sides = ours.write(folder / "one", forms[0]), theirs.write(folder / "other", forms[1])
    difference = ba.diff(*sides, **bounds)
    within = [x for x in NEAR if (start is None or start <= x) and (end is None or x < end)]
    answered = [tick for tick in within if ours.answer(tick) or theirs.answer(tick)]
    begin = min(answered, default=TICKS) if start is None else start
    stop = max(answered, default=-2) + 1 if end is None else end
    asked = {*range(begin, stop)}
    shared, _, mine, its = compared(ours, theirs, asked)
    listed = ({*answered} if interval == (None, None) else asked) - shared

    assert ticks_of(difference.shared) == shared
    assert difference.compared == (len(mine), len(its))
    assert (difference.filters is None) == (not ours.accounts & theirs.accounts)
    assert places_of(difference.rows) == differences(mine, its)
    content = json.loads(difference.to_json())
    assert sum(content["rows"].values()) == len(differences(mine, its))
    assert content["accounts"] == json.loads(json.dumps([ours.filters, theirs.filters]))
    assert ticks_of([moments for moments, *_ in difference.not_shared]) == listed
    assert difference.is_same == (
        bool(shared) and not listed and ours.filters == theirs.filters and mine == its
    )
    for moments, *states in difference.not_shared:
        for tick in ticks_of([moments]):
            assert states == [ours.state(tick), theirs.state(tick)]


@settings(max_examples=10, deadline=None)
@given(anyones, anyones, st.sampled_from(FORMS[:-1]))
def test_only_time_that_another_origin_has_for_all_accounts_is_confirmed(
    tmp_path_factory, ours, theirs, form
):
    folder = tmp_path_factory.mktemp("confirm")
    archive = ours.write(folder, "day")
    shared, both, mine, its = compared(ours, theirs)
    common = [place for place in mine if mine[place] == its.get(place)]
    before = archive.coverage()
    try:
        ba.confirm(archive, theirs.write(folder / "other", form))
    except ba.NetworkMismatchError:
        assert (bool(mine), bool(its), common) == (True, True, [])
        assert archive.coverage().equals(before)
        return
    assert common or not (mine and its)
    status = archive.status()
    disputed = {tick for _, tick in differences(mine, its)}
    is_of_all = both == ours.accounts
    confirmed = {
        tick
        for tick in shared - disputed
        if is_of_all and common and ours.state(tick) == "complete"
        for one, other in [(ORIGINS[ours.answer(tick)[2]], ORIGINS[theirs.answer(tick)[2]])]
        if one and other and one != other
    }
    assert ticks_of(status.confirmed) == confirmed
    assert ticks_of(status.disputed) == disputed
    assert bool([*folder.glob("a/_disputes/*")]) == bool(disputed)


def test_a_frame_without_known_intervals_isnt_compared_and_the_remedy_is_named(tmp_path):
    archive = WHOLE.write(tmp_path, "day")
    table = archive.read()
    table.attrs = {}
    for side in (table, ba.to_table(table).balances.between(FIRST, LAST)):
        difference = ba.diff(archive, side)
        assert (difference.shared, difference.compared, difference.is_same) == ((), (0, 0), False)
        assert difference.other == "table"
        assert "ba.to_table(frame, known=[(start, end)])" in str(difference)
    stated = ba.to_table(table, known=[(FIRST, LAST)])
    assert ba.confirm(archive, stated).is_same
    assert not archive.status().confirmed


def test_a_selection_of_a_tables_rows_proves_nothing_in_any_file(tmp_path):
    archive = WHOLE.write(tmp_path, "day")
    table = archive.read()
    one = table[table["party_id"] == PARTIES[0]]
    ba.write_parquet(one, tmp_path / "ours.parquet")
    one.to_parquet(tmp_path / "pandas.parquet")
    ba.write_parquet(table, tmp_path / "whole.parquet")
    assert ba.diff(archive, tmp_path / "whole.parquet").is_same
    rows = pq.read_table(tmp_path / "whole.parquet")
    pq.write_table(rows.slice(1), tmp_path / "arrow.parquet")
    again = ba.read_parquet(tmp_path / "arrow.parquet")
    ba.write_parquet(again, tmp_path / "again.parquet")
    cut = one.balances.between()
    names = ["ours", "pandas", "arrow", "again"]
    for side in [one, again, cut, *(tmp_path / f"{name}.parquet" for name in names)]:
        assert ba.diff(archive, side).shared == ()
    assert ba.read_parquet(tmp_path / "ours.parquet").attrs["balance_analysis"]["known"]


def test_the_compared_time_is_printed_and_decides_the_exit_code(tmp_path):
    archive, other = WHOLE.write(tmp_path, "day").uri, PARTY.write(tmp_path / "other", "file")
    said = run("diff", archive, other, code=3).stdout
    assert f"other accounts than party_id {PARTIES[0]}: the first has all accounts" in said
    assert "no difference in what both have" in said
    assert f"({len(PARTY.balances)} and {len(PARTY.balances)} rows compared)" in said
    said = run("diff", archive, archive, "--since=2022-01-01", "--until=2022-02-01", code=3).stdout
    assert "nothing was compared" in said
    content = json.loads(run("diff", archive, other, "--format=json", code=3).stdout)
    assert content["filters"] == {**content["accounts"][0], "party_ids": [PARTIES[0]]}


def test_a_report_lists_what_was_compared_in_part_and_what_wasnt_compared(tmp_path):
    unproven = replace(WHOLE, answers=((0, TICKS, 1, False),)).write(tmp_path / "a", "day")
    said = str(ba.diff(unproven, WHOLE.write(tmp_path / "b", "day")))
    assert f"no difference in what both have ({len(TRUTH)} and {len(TRUTH)} rows" in said
    assert "compared in part: " in said
    assert ": unproven in the first, complete in the other" in said
    nobody = replace(WHOLE, filters=FILTERS[4], balances={}).write(tmp_path / "c", "table")
    said = str(ba.diff(PARTY.write(tmp_path / "d", "day"), nobody))
    assert "nothing was compared" in said
    assert "in part" not in said


def test_a_side_with_two_rows_of_one_account_and_time_is_refused(tmp_path):
    archive = WHOLE.write(tmp_path, "day")
    table = archive.read()
    twice = table.iloc[[*range(len(table)), 3, 3, 5]]
    with pytest.raises(ba.CheckError, match=r"repeats 3 rows; `ba.to_table\(table\)` drops equal"):
        ba.diff(archive, twice)
    assert ba.diff(archive, ba.to_table(twice)).is_same


balances = st.integers(1, 2)
OPENED = {"known": [span(0, 8)], "start": from_microseconds(at(5))}


@st.composite
def history(draw):
    """Draw a history that is known from some tick on, and whether it is known before a gap too."""
    since = draw(st.integers(0, 5))
    rows = draw(st.dictionaries(st.tuples(st.sampled_from(ACCOUNTS), st.integers(0, 6)), balances))
    gap = draw(st.booleans()) and since > 1
    return rows, since, [span(since, 8), *([span(0, since - 1)] if gap else [])]


def opened(rows, known, folder):
    """Return a table of a history from tick 5 on, with openings."""
    last = {account: tick for account, tick in sorted(rows) if tick < 5}
    kept = {x: y for x, y in rows.items() if x[1] >= min(5, last.get(x[0], 5))}
    return table_of(kept, known=known, start=OPENED["start"])


def whole_table(rows, known, folder):
    return table_of(rows, known=known)


def file_of(rows, known, folder):
    ba.write_parquet(opened(rows, known, folder), folder / "x.parquet")
    return folder / "x.parquet"


def archive_of(rows, known, folder):
    ticks = sorted(tuple(ticks_of([each])) for each in known)
    answers = [(min(each), max(each) + 1, 1, True) for each in ticks]
    since = answers[-1][0]
    # Unproven rows say nothing about who held which balance.
    answers += [(since - 1, since, 1, False)] if since else []
    return Held(rows, tuple(sorted(answers))).write(folder, "day")


@given(
    history(),
    history() | st.none(),
    st.tuples(
        st.sampled_from([opened, file_of]), st.sampled_from([opened, whole_table, archive_of])
    ),
    st.sampled_from([None, 3, 5]),
)
@example(
    ({(ACCOUNTS[0], 2): 1}, 0, [span(0, 8)]),
    ({(ACCOUNTS[0], 2): 2}, 3, [span(3, 8)]),
    (opened, archive_of),
    None,
)
@settings(max_examples=12, deadline=None)
def test_balances_at_a_tables_start_are_compared_as_far_back_as_both_are_complete(
    tmp_path_factory, one, other, forms, start
):
    """The oracle compares dictionaries of each account's last row before the start."""
    (form, another), other = forms, other or one
    folder = tmp_path_factory.mktemp("openings")
    (mine, one_since, known), (its, other_since, other_known) = one, other
    since = max(one_since, other_since)
    sides = form(mine, known, folder), another(its, other_known, folder)
    first, second = (
        {
            (account, tick): balance
            for (account, tick), balance in rows.items()
            if tick >= since and not any((account, t) in rows for t in range(tick + 1, 5))
        }
        for rows in (mine, its)
    )
    bounds = {} if start is None else {"start": from_microseconds(at(start))}
    old = [tick for rows in (mine, its)[: 1 + (another is opened)] for tick in openings_of(rows)]
    for pair, rows in ((sides, (first, second)), (sides[::-1], (second, first))):
        difference = ba.diff(*pair, **bounds)
        assert difference.shared == (span(5, 8),)
        assert places_of(difference.rows) == differences(*rows)
        assert difference.compared == (len(rows[0]), len(rows[1]))
        left = [(a, b) for (a, b), *states in difference.not_shared if "openings" in states]
        assert (min(old, default=since) < since) <= bool(left)
    later = ba.diff(*sides, start=from_microseconds(at(6)))
    assert {tick for _, tick in places_of(later.rows)} <= {6}


def openings_of(rows):
    return [max(t for x, t in rows if x == account and t < 5) for account, tick in rows if tick < 5]


def test_tables_of_one_history_with_different_starts_do_not_differ():
    rows = {(ACCOUNTS[0], tick): tick for tick in (2, 4, 6)}
    early = table_of(rows, known=[span(0, 8)], start=from_microseconds(at(3)))
    late = opened(rows, [span(0, 8)], None)
    for pair in ((early, late), (late, early)):
        difference = ba.diff(*pair)
        assert difference.rows.empty
        assert difference.compared == (2, 2)
        assert (span(2, 3), "openings", "openings") in difference.not_shared


def test_a_table_without_openings_proves_nothing_before_its_start(tmp_path):
    archive = WHOLE.write(tmp_path, "day")
    table = archive.read(start=OPENED["start"])
    assert ba.diff(archive, table, start=OPENED["start"]).is_same
    ((_, *states),) = ba.diff(archive, table).not_shared
    assert states == ["complete", "missing"]


def test_openings_that_only_one_side_has_are_not_the_same():
    opened = table_of({(ACCOUNTS[0], 0): 3, (ACCOUNTS[0], 6): 9}, **OPENED)
    bare = ba.to_table(opened.iloc[1:], known=[(OPENED["start"], from_microseconds(at(8)))])
    before = (FIRST, OPENED["start"])
    assert ba.diff(opened, bare).not_shared == ((before, "openings", "missing"),)
    assert ba.diff(opened, opened).is_same
    assert ba.diff(bare, bare).is_same
    earlier = ba.diff(opened, bare, end=from_microseconds(at(4)))
    assert [states for _, *states in earlier.not_shared] == [["openings", "missing"]]


def test_openings_of_other_accounts_or_of_a_table_that_lost_rows_prove_nothing():
    held = {(ACCOUNTS[0], 0): 3, (ACCOUNTS[1], 1): 4, (ACCOUNTS[0], 6): 9, (ACCOUNTS[1], 7): 9}
    opened = table_of(held, **OPENED)
    difference = ba.diff(*(opened.balances.select(party_ids=party) for party in PARTIES))
    assert (difference.filters, difference.compared, difference.is_same) == (None, (0, 0), False)
    assert ["openings", "openings"] in [states for _, *states in difference.not_shared]
    difference = ba.diff(opened.drop(index=0), opened)
    assert difference.rows.empty
    assert not difference.is_same
