"""Balances and changes are known as far as segments have every block before them."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from hypothesis import example, given, settings
from hypothesis import strategies as st

import balance_analysis as ba
from tests.archive.exporting import HOUR, START
from tests.loopback import Row
from tests.moments import from_microseconds
from tests.segments.writer import make_segments

NAMES = ["aa", "bb", "cc", "dd"]
BLOCKS = 4
WIDE = {"end": "2100-01-01", "opening": True, "partial": True}


def at(block):
    return START + block * 31 * HOUR


def cells(frame, name):
    values = (None if pd.isna(value) else int(value) for value in frame[name])
    return [*zip(frame["party_id"], values, strict=True)]


histories = st.dictionaries(
    st.sampled_from(NAMES),
    st.dictionaries(st.integers(1, BLOCKS), st.integers(0, 99), min_size=1),
    min_size=1,
)


@given(
    histories,
    st.sets(st.integers(1, BLOCKS), min_size=1),
    st.sampled_from([0, 1, 100]),
    st.integers(1, BLOCKS),
    st.integers(1, BLOCKS),
)
@example(
    {"aa": {1: 5, 2: 8, 3: 9}, "bb": {2: 1, 4: 7}, "cc": {3: 3}, "dd": {1: 4}}, {1, 3, 4}, 1, 3, 3
)
@settings(max_examples=5, deadline=None)
def test_a_delta_is_known_if_all_blocks_since_the_previous_row_are(
    balances, held, first, since, when
):
    """The oracle has the balances of all blocks, whoever holds them."""
    balances = {party: dict(sorted(changes.items())) for party, changes in sorted(balances.items())}
    # A network begins with the block 0 or 1.
    first = first or int(1 not in held)
    rows = [
        Row("VOTE", "ACCOUNT_TYPE_GENERAL", party, "", at(block), balance)
        for party, changes in balances.items()
        for block, balance in changes.items()
    ]
    rows.sort(key=lambda row: row.order)
    quiet = [at(block) for block in range(1, BLOCKS + 1)]
    segments = make_segments(rows, each=1, quiet=quiet, first=first)

    def before(party, block):
        """Return the balance before a block; `None` where it isn't known."""
        earlier = [each for each in balances[party] if each < block]
        since = max(earlier, default=1)
        if not held.issuperset(range(since, block)) or (not earlier and first > 1):
            return None
        return balances[party].get(since, 0) if earlier else 0

    seen = [(party, block) for party in balances for block in balances[party] if block in held]
    known = {(x, block): before(x, block) for x, block in seen if before(x, block) is not None}
    with TemporaryDirectory() as folder:
        paths = [segment.write(Path(folder, "segments")) for segment in segments]
        part, archive = [paths[block - 1] for block in held], ba.Archive(Path(folder, "archive"))
        ba.import_segments(archive, part)
        report = archive.verify(segments=paths)
        table = archive.read(start=from_microseconds(at(since)), **WIDE)
        pair = ba.read_segments(part), archive.read(start="2020-01-01", **WIDE)
        lowest = archive.coverage()["first_block_height"].min()
        held_at = ba.balance_at(archive, from_microseconds(at(when)))
    deltas = {(x, block): balances[x][block] - held for (x, block), held in known.items()}
    changes = [(*place[:1], deltas.get(place)) for place in seen]
    for all_rows in pair:
        assert cells(ba.deltas(all_rows), "delta") == changes
    assert lowest == first + min(held) - 1
    late = [change for change, (_, block) in zip(changes, seen, strict=True) if block >= since]
    assert cells(ba.deltas(table), "delta") == late
    there = {x: before(x, when + 1) if when in held else None for x, _ in seen}
    assert cells(held_at, "balance") == [*there.items()]
    assert (report.problems, report.changes) == ((), len(known))
    assert ("is not complete there" in str(report)) == (len(held) < BLOCKS)
    unknown = re.findall("([0-9]+) changes? of accounts with unknown", str(report.not_compared))
    beyond = [x for x, block in seen if block > 1 and block - 1 not in held]
    assert sum(map(int, unknown)) == len(seen) - len(known) - len(beyond)
