"""Archives that are damaged in known ways, and nodes that can't help all of them."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

import balance_analysis as ba
from tests.archive.exporting import DAY, HOUR, ROWS, START, edit_manifest, node_of, spread_history
from tests.columns import ARROW_SCHEMA
from tests.moments import from_microseconds

FIRST, SECOND = "2023-04-28", "2023-04-29"
CHECKPOINT = "_checkpoints/2023-05-01.pq"
MANIFEST = "_archive.json"


def verify(folder, **options):
    return ba.Archive(folder).verify(**options)


def name_of(period):
    return f"changes/date={period}/changes.parquet"


def rewritten(name, change, schema=ARROW_SCHEMA, **note):
    """Return what changes the rows of a file, and notes it in the manifest as what it is now."""

    def rewrite(folder):
        path = folder / name
        rows = change(pq.read_table(path).cast(ARROW_SCHEMA).to_pylist())
        pq.write_table(pa.Table.from_pylist(rows, schema), path)
        data = path.read_bytes()
        footer = data[-8 - int.from_bytes(data[-8:-4], "little") :]
        digests = {"sha256": hashlib.sha256(data), "footer": hashlib.sha256(footer)}
        noted = {key: digest.hexdigest() for key, digest in digests.items()}
        noted |= {"rows": len(rows), "size": len(data), **note}

        def edit(content):
            named = {name_of(period): entry for period, entry in content["files"].items()}
            (named[CHECKPOINT],) = content["checkpoints"].values()
            named[name].update(noted)

        edit_manifest(folder, edit)

    return rewrite


def with_row_at(moment):
    return lambda rows: [*rows, {**rows[-1], "timestamp": from_microseconds(moment)}]


def with_balance(place, balance):
    return lambda rows: [
        {**row, "balance": Decimal(balance)} if row is rows[place] else row for row in rows
    ]


def note_another(**note):
    return lambda folder: edit_manifest(folder, lambda c: c["files"][SECOND].update(note))


def turned_around(rows):
    """Return rows of which two of one account are turned around."""
    keys = [[row[name] for name in ba.ACCOUNT_KEY] for row in rows]
    place = next(i for i, (one, other) in enumerate(pairwise(keys)) if one == other)
    return [*rows[:place], rows[place + 1], rows[place], *rows[place + 2 :]]


def flip(name):
    """Return what flips a bit in the middle of a file."""

    def harm(folder):
        data = bytearray((folder / name).read_bytes())
        data[len(data) // 2] ^= 1
        (folder / name).write_bytes(data)

    return harm


def truncate(folder):
    path = folder / name_of(SECOND)
    path.write_bytes(path.read_bytes()[:-20])


def edit_answers(*spans):
    """Return what makes an archive's one answer several."""

    def split(content):
        (whole,) = content["evidence"]["answers"]
        content["evidence"]["answers"] = [{**whole, "span": span} for span in spans]

    return lambda folder: edit_manifest(folder, split)


def changed_node(change):
    """Return a node whose rows of the second day are changed, one by one; `None` drops one."""
    day = range(START + 4 * HOUR, START + 28 * HOUR)
    rows = [change(row) if row.timestamp_ns // 1000 in day else row for row in ROWS]
    return node_of([row for row in rows if row is not None])


def pruned():
    return node_of([row for row in ROWS if row.timestamp_ns >= (START + DAY) * 1000])


def prunes_meanwhile(node, moment):
    """Let a node forget what was before a moment when it is asked for more than its oldest row."""

    def prune(_, request):
        if request.params.get("pagination.first", ["1"]) != ["1"]:
            node.replace([row for row in ROWS if row.timestamp_ns >= moment * 1000])

    node.faults = prune
    return node


def lacking(rows, start, end):
    """Return a node without some rows, which says so."""
    there = [row for row in rows if not start <= row.timestamp_ns // 1000 < end]
    return node_of(there, extra_headers={"X-Incomplete": f"{start * 1000}-{end * 1000}"})


def cut_beside_another(folder):
    """Cut a file off, and leave what a run leaves that is killed before it replaces it."""

    def add_pending(content):
        entry = {**content["files"][SECOND], "sha256": "0" * 64}
        content["pending"] = {"name": NAME, "file": entry, "evidence": content["evidence"]}

    edit_manifest(folder, add_pending)
    truncate(folder)


NAME, EARLY, OTHER_DAY = name_of(SECOND), START - HOUR, START + 40 * HOUR
FLOATS = ARROW_SCHEMA.set(5, pa.field("balance", pa.float64(), nullable=False))

FILES = [
    (flip(NAME), NAME, "its SHA-256 is"),
    (truncate, NAME, "bytes, not"),
    (cut_beside_another, NAME, "bytes, not"),
    (note_another(rows=1), NAME, r"rows from \S+ to \S+, not 1 row from"),
    (note_another(first=START + 5 * HOUR), NAME, r"has \d+ rows from \S+ to \S+, not \d+ rows"),
    (
        lambda folder: edit_manifest(folder, lambda content: content["files"].pop(SECOND)),
        NAME,
        "is not in the manifest",
    ),
    (
        rewritten(name_of(FIRST), with_row_at(EARLY), first=EARLY),
        name_of(FIRST),
        "1 of its rows are outside the answered time$",
    ),
    (
        rewritten(NAME, with_row_at(OTHER_DAY), last=OTHER_DAY),
        NAME,
        "1 of its rows are outside its period",
    ),
    (
        rewritten(NAME, lambda rows: [*rows, rows[-1]]),
        NAME,
        "^1 of its rows repeat the account and timestamp of another$",
    ),
    (rewritten(NAME, turned_around), NAME, "^its rows are not in the order party_id"),
    (
        rewritten(NAME, lambda rows: [{**x, "balance": 1.0} for x in rows], FLOATS),
        NAME,
        "column balance is double",
    ),
    (
        rewritten(NAME, lambda rows: rows, ARROW_SCHEMA.remove(3)),
        NAME,
        "has the columns asset_id, account_type, party_id, timestamp",
    ),
    (rewritten(NAME, lambda rows: rows[:0]), NAME, "has 0 rows"),
    (flip(CHECKPOINT), CHECKPOINT, "is not what was written"),
    (lambda folder: (folder / CHECKPOINT).unlink(), CHECKPOINT, "is missing"),
    (
        rewritten(CHECKPOINT, with_balance(3, 12345)),
        CHECKPOINT,
        "differs from the balances before 2023-05-01T00:00Z",
    ),
]
"""What harms an archive, the file that it harms, and what is said of that."""


def held_until(moment):
    return node_of([row for row in ROWS if row.timestamp_ns < moment * 1000], head=moment)


HELPLESS = {
    "has forgotten it": (pruned, "2023-04-29 stays as it is: .* may have forgotten"),
    "forgets it": (
        lambda: prunes_meanwhile(node_of(ROWS), START + 16 * HOUR),
        "2023-04-29 stays as it is: .* may have forgotten",
    ),
    "holds less yet": (lambda: held_until(START + DAY), "as it is.*doesn't have all of them"),
    "is another": (lambda: node_of(spread_history(6, rows=400, accounts=20)), "of another network"),
    "has lost it": (lambda: changed_node(lambda _: None), "sends no row that the archive holds"),
    "says that it lacks it": (
        lambda: lacking(ROWS, START + 18 * HOUR, START + 24 * HOUR),
        "says that it may",
    ),
}
