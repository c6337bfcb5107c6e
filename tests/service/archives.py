"""Archives of given rows, of any partition, with any gaps, from any order of commits."""

import itertools
from dataclasses import asdict
from typing import NamedTuple
from unittest.mock import patch

import pyarrow as pa
from hypothesis import strategies as st

from balance_analysis import Archive
from balance_analysis.archive import datafile as rowfiles
from balance_analysis.archive import layout
from tests.analysis.tables import HOUR, arrow_of
from tests.archive.writing import answered, begin
from tests.loopback import Row
from tests.service.rows import ACCOUNTS, ASSETS, BASE, MARKETS, MOMENTS, PARTIES, TYPES, row_lists

START, END = BASE - 48 * HOUR, BASE + 24 * HOUR
"""What an archive of the tests covers if nothing else is said."""

SOURCE = "https://node.example"
_MADE = itertools.count()
HEIGHT = 1234


class Stretch(NamedTuple):
    """An interval that was asked for, half-open, microseconds."""

    start: int
    end: int
    proven: bool = True
    source: str = SOURCE


WHOLE = (Stretch(START, END),)


class Held(NamedTuple):
    """The content of an archive to be made.

    Attributes
    ----------
    rows
        All of them lie in the stretches.
    stretches
        The covered stretches, disjoint, in the order of the commits.
    beyond
        Rows of no stretch that an interrupted export announced.
    torn
        Whether it had replaced their file.
    row_group
        Rows of a row group: a real file of few rows has one group.
    bound
        Option and values of each filter that the archive is bound to.
    """

    rows: tuple[Row, ...] = ()
    stretches: tuple[Stretch, ...] = WHOLE
    partition: str = "day"
    beyond: tuple[Row, ...] = ()
    bound: tuple[tuple[str, tuple[str, ...]], ...] = ()
    torn: bool = True
    row_group: int = rowfiles.ROW_GROUP


def write_archive(folder, rows=(), **held):
    """Make an archive and return it."""
    held = Held(tuple(rows), **held)
    values = {name: ids[0] if name == "asset_id" else ids for name, ids in held.bound}
    with patch.object(rowfiles, "ROW_GROUP", held.row_group):
        writer = begin(folder, held.partition, **values)
        for stretch in held.stretches:
            commit(writer, held.rows, stretch)
        if held.beyond:
            _leave(writer, held.beyond, torn=held.torn)
    return Archive(folder)


def commit(writer, rows, stretch):
    """Commit a stretch period by period, as an export does."""
    inside = [row for row in rows if stretch.start <= row.time < stretch.end]
    partition, since = writer.manifest.partition, stretch.start
    for period in layout.periods_between(stretch.start, stretch.end, partition):
        first, stop = layout.period_bounds(period, partition)
        part = [row for row in inside if first <= row.time < stop]
        if part or stop >= stretch.end:
            known = writer.rows_of(period)
            # As no two runs begin at the same moment.
            asked_at = f"2023-06-01T00:00:00.{next(_MADE):06}+00:00"
            answer = (since, min(stop, stretch.end)), stretch.source, asked_at
            rows_of_period = pa.concat_tables([known, arrow_of(part)])
            _put(writer, period, rows_of_period, *answer, reached=stretch.proven, height=HEIGHT)
            since = stop


def replace_rows(writer, period, rows):
    """Replace the rows of a period that is already covered."""
    span = layout.period_bounds(period, writer.manifest.partition)
    answer = span, SOURCE, "2023-06-02T00:00:00+00:00"
    _put(writer, period, arrow_of(rows), *answer, height=HEIGHT + 1)


def _put(writer, period, rows, *answer, **how):
    held = writer.manifest.evidence
    evidence = held.updated(answered(*answer, **how, **asdict(held.filters)))
    if rows.num_rows:
        writer.put(period, rowfiles.encode_rows(rows), evidence)
    else:
        writer.set_evidence(evidence)


def _leave(writer, rows, *, torn):
    """Announce a period's file, replace it or not, and stop, as a crash may."""
    period = layout.period_of(rows[0].time, writer.manifest.partition)
    table = pa.concat_tables([writer.rows_of(period), arrow_of(rows)])
    content, note = rowfiles.encode_rows(table)
    file = layout.changes_file(period, writer.manifest.partition)
    writer.write_manifest(writer.manifest.announce(file, note, writer.manifest.evidence))
    if torn:
        writer.store.write(file, content)


_EDGES = sorted({START, END, *(BASE + moment for moment in MOMENTS), BASE + HOUR, BASE - 1500})


@st.composite
def archives(draw, max_size=30):
    """Archives with gaps, unproven stretches and the traces of a crash."""
    edges = [START, END]
    if draw(st.booleans()):
        bounds = st.lists(st.sampled_from(_EDGES), min_size=2, max_size=6, unique=True)
        edges = sorted(draw(bounds))
    kinds = st.sampled_from(("proven", "proven", "proven", "unproven", "gap")[: 2 + len(edges)])
    spans = [(*pair, draw(kinds)) for pair in itertools.pairwise(edges)]
    stretches = [Stretch(a, b, kind == "proven") for a, b, kind in spans if kind != "gap"]
    bound = draw(st.sampled_from(((), (), (), *_BOUND)))
    accounts = [account for account in ACCOUNTS if _is_bound(account, bound)]
    rows = draw(row_lists(max_size=max_size, accounts=accounts))
    inside = tuple(row for row in rows if any(s.start <= row.time < s.end for s in stretches))
    outside = [row for row in rows if row not in inside]
    partition = draw(st.sampled_from(("day", "day", "hour", "month")))
    left = draw(st.booleans()) and outside and _alike(outside, partition)
    order = tuple(draw(st.permutations(stretches)))
    torn, row_group = draw(st.booleans()), draw(st.sampled_from((2, 5, rowfiles.ROW_GROUP)))
    return Held(inside, order, partition, tuple(left or ()), bound, torn, row_group)


_BOUND = (
    (("asset_id", ASSETS[:1]),),
    (("party_ids", PARTIES[:2]), ("account_types", TYPES[:2])),
    (("market_ids", MARKETS[1:]),),
)


def _is_bound(account, bound):
    ids = dict(zip(("asset_id", "account_types", "party_ids", "market_ids"), account, strict=True))
    return all(ids[name] in values for name, values in bound)


def _alike(rows, partition):
    period = layout.period_of(rows[0].time, partition)
    return [row for row in rows if layout.period_of(row.time, partition) == period]
