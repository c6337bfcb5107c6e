"""Histories of few rows, some of which is proven, in every form that can be compared."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st

import balance_analysis as ba
from balance_analysis.archive import layout
from balance_analysis.evidence import Answer, Evidence, Node, SetAside
from balance_analysis.filters import Filters
from balance_analysis.frame import to_frame
from balance_analysis.known import note_evidence, note_rows
from tests.archive.writing import begin
from tests.columns import ARROW_SCHEMA
from tests.moments import to_microseconds

TICK = 6 * 3_600_000_000
START = to_microseconds("2023-04-28T18:00")
TICKS = 14
PARTIES = ["a" * 64, "b" * 64]
ASSETS = ["c" * 64, "d" * 64]
ACCOUNTS = [(x, "ACCOUNT_TYPE_GENERAL", y, "") for x, y in itertools.product(ASSETS, PARTIES)]
FILTERS = [
    {},
    {"party_ids": (PARTIES[0],)},
    {"asset_id": ASSETS[0]},
    {"party_ids": (PARTIES[0],), "asset_id": ASSETS[0]},
    {"party_ids": (PARTIES[1],)},
]
ORIGINS = [frozenset(), frozenset({"1.1.1.1:80"}), frozenset({"2.2.2.2:80"})]


def at(tick):
    return START + tick * TICK


def span(first, last):
    return at(first), at(last)


def rows_of(balances):
    """Return rows of {(account, tick): balance} as Arrow."""
    columns = [[account[n] for account, _ in balances] for n in range(4)]
    times = [at(tick) for _, tick in balances]
    kinds = [field.type for field in ARROW_SCHEMA]
    arrays = [pa.array(column, pa.string()).dictionary_encode() for column in columns]
    arrays.append(pa.array(times, pa.int64()).cast(kinds[4]))
    arrays.append(pa.array([*balances.values()], pa.int64()).cast(kinds[5]))
    return pa.table(arrays, schema=ARROW_SCHEMA)


@dataclass(frozen=True)
class Held:
    """What one side holds: balances, and which ticks an answer of whom is of."""

    balances: dict
    answers: tuple[tuple[int, int, int, bool], ...]
    """First tick, last one exclusive, number of the origin, and whether it reached."""
    set_aside: tuple[tuple[int, object], ...]
    filters: Filters

    def answer(self, tick):
        return next((each for each in self.answers if each[0] <= tick < each[1]), None)

    def state(self, tick, filters=None):
        """Return the state of a tick, naively, for some accounts."""
        answer, filters = self.answer(tick), filters or self.filters
        if answer is None:
            return "missing"
        bad = [
            x for when, x in self.set_aside if when == tick and (x is None or filters.selects(x))
        ]
        return "complete" if answer[3] and not bad else "unproven"

    @property
    def evidence(self):
        answers = tuple(
            Answer(span(first, last), Node(f"http://n{n}", ORIGINS[n]), (n, n), None, reached)
            for first, last, n, reached in self.answers
        )
        bad = tuple(SetAside((at(tick), at(tick) + 1), account) for tick, account in self.set_aside)
        return Evidence(self.filters, answers, bad)

    def write(self, folder, form):
        """Return it as an archive, a table, or a file."""
        if form in ("table", "file"):
            table = to_frame(rows_of(self.balances))
            note_evidence(table, self.evidence)
            note_rows(table)
            if form == "table":
                return table.sample(frac=1, random_state=1)
            ba.write_parquet(table, folder / "x.parquet")
            return folder / "x.parquet"
        writer = begin(folder / "a", form, **{k: getattr(self.filters, k) for k in FILTER_NAMES})
        writer.prove(self.evidence)
        periods = {}
        for (account, tick), balance in self.balances.items():
            if self.answer(tick) is not None:
                period = layout.period_of(at(tick), form)
                periods.setdefault(period, {})[account, tick] = balance
        for period, balances in sorted(periods.items()):
            writer.commit(period, rows_of(balances), Evidence(self.filters))
        return ba.Archive(folder / "a")


FILTER_NAMES = ("asset_id", "party_ids", "market_ids", "account_types")
FORMS = ["day", "hour", "month", "table", "file"]
TRUTH = {
    (x, tick): 10 * n + tick for n, x in enumerate(ACCOUNTS) for tick in range(n % 2, TICKS, 2)
}


@st.composite
def held(draw, origins=(1, 2)):
    """Draw a side: the truth with some rows lost or changed, proven in some stretches."""
    filters = Filters(**draw(st.sampled_from(FILTERS)))
    edges = sorted(draw(st.sets(st.integers(0, TICKS), min_size=1, max_size=4)) | {0, TICKS})
    answers = tuple(
        (first, last, draw(st.sampled_from(origins)), draw(st.sampled_from([True, True, False])))
        for first, last in itertools.pairwise(edges)
        if draw(st.sampled_from([True, True, True, False]))
    )
    places = st.sets(st.sampled_from(sorted(TRUTH)), max_size=2)
    lost, changed = draw(places), draw(places)
    balances = {
        place: balance + (place in changed)
        for place, balance in TRUTH.items()
        if place not in lost and filters.selects(place[0])
    }
    ticks = [tick for tick in range(TICKS) if any(a <= tick < b for a, b, *_ in answers)]
    accounts = [None, *filter(filters.selects, ACCOUNTS)]
    bad = st.tuples(st.sampled_from(ticks or [0]), st.sampled_from(accounts))
    set_aside = draw(st.lists(bad, max_size=1 if ticks else 0))
    return Held(balances, answers, tuple(set_aside), filters)
