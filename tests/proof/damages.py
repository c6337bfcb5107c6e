"""Archives that are damaged in known ways, and nodes that can't help all of them."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

import balance_analysis as ba
from tests.archive.exporting import (
    DAY,
    HOUR,
    START,
    edit_manifest,
    node_of,
    spread_history,
)
from tests.columns import ARROW_SCHEMA
from tests.moments import from_microseconds

ROWS = spread_history(5, rows=400, accounts=20)
FIRST, SECOND, THIRD = "2023-04-28", "2023-04-29", "2023-05-01"
CHECKPOINT = "_checkpoints/2023-05-01.pq"
MANIFEST = "_archive.json"


MIDDLE = START + 30 * HOUR


def verify(folder, **options):
    return ba.Archive(folder).verify(**options)


def mend(node, folder, **options):
    with ba.Client(node.url) as client:
        return ba.repair(client, ba.Archive(folder), **options)


def name_of(period):
    return f"changes/date={period}/changes.parquet"


def rows_in(folder, name):
    return pq.read_table(folder / name).cast(ARROW_SCHEMA)


def put(folder, name, rows, **note):
    """Replace a file, and note it in the coverage as what it is now."""
    pq.write_table(rows, folder / name)
    data = (folder / name).read_bytes()
    noted = {"rows": rows.num_rows, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") :]
    noted["footer"] = hashlib.sha256(footer).hexdigest()

    def edit(content):
        named = {name_of(period): entry for period, entry in content["files"].items()}
        (named[CHECKPOINT],) = content["checkpoints"].values()
        named[name].update(noted, **note)

    edit_manifest(folder, edit)


def text(moment):
    return from_microseconds(moment).isoformat(timespec="microseconds")


def moved(rows, moment):
    """Return the last row of some, at another time."""
    time = pa.array([moment], pa.int64()).cast(ARROW_SCHEMA.field("timestamp").type)
    return rows.slice(rows.num_rows - 1).set_column(4, ARROW_SCHEMA.field("timestamp"), [time])


def with_balance(rows, place, balance):
    balances = rows["balance"].to_pylist()
    balances[place] = balance
    column = pa.array(balances, ARROW_SCHEMA.field("balance").type)
    return rows.set_column(5, ARROW_SCHEMA.field("balance"), column)


def cast_column(rows, name, kind):
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, pa.field(name, kind, nullable=False), rows[name].cast(kind))


def rewritten(name, change, **note):
    """Return what changes the rows of a file, and notes it in the manifest as what it is now."""
    return lambda folder: put(folder, name, change(rows_in(folder, name)), **note)


def note_another(**note):
    return lambda folder: edit_manifest(folder, lambda c: c["files"][SECOND].update(note))


def with_row_at(moment):
    return lambda rows: pa.concat_tables([rows, moved(rows, moment)])


def turned_around(rows):
    """Return rows of which two of one account are turned around."""
    keys = [[row[name] for name in ba.ACCOUNT_KEY] for row in rows.to_pylist()]
    place = next(i for i, (one, other) in enumerate(pairwise(keys)) if one == other)
    order = list(range(rows.num_rows))
    order[place : place + 2] = [place + 1, place]
    return rows.take(order)


def with_floats(rows):
    return cast_column(rows, "balance", pa.float64())


def flip_a_byte(folder):
    flip(folder / name_of(SECOND))


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def damage_checkpoint(folder):
    flip(folder / CHECKPOINT)


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


def announce(folder):
    """Leave what a run leaves that is killed before it replaces a file."""

    def add_pending(content):
        entry = {**content["files"][SECOND], "sha256": "0" * 64}
        content["pending"] = {"name": NAME, "file": entry, "evidence": content["evidence"]}

    edit_manifest(folder, add_pending)


NAME, EARLY, OTHER_DAY = name_of(SECOND), START - HOUR, START + 40 * HOUR

FILES = [
    (flip_a_byte, NAME, "its SHA-256 is"),
    (truncate, NAME, "bytes, not"),
    (note_another(rows=1), NAME, r"rows from \S+ to \S+, not 1 row from"),
    (note_another(first=START + 5 * HOUR), NAME, r"has \d+ rows from \S+ to \S+, not \d+ rows"),
    (
        rewritten(name_of(FIRST), with_row_at(EARLY), first=EARLY),
        name_of(FIRST),
        "1 of its rows are outside of the answered time$",
    ),
    (
        rewritten(NAME, with_row_at(OTHER_DAY), last=OTHER_DAY),
        NAME,
        "1 of its rows are not of its period",
    ),
    (
        rewritten(NAME, lambda rows: pa.concat_tables([rows, rows.slice(rows.num_rows - 1)])),
        NAME,
        "^1 of its rows repeat the account and timestamp of another$",
    ),
    (rewritten(NAME, turned_around), NAME, "^its rows are not in the order party_id"),
    (rewritten(NAME, with_floats), NAME, "column balance is double"),
    (
        rewritten(NAME, lambda rows: rows.drop_columns(["market_id"])),
        NAME,
        "has the columns asset_id, account_type, party_id, timestamp",
    ),
    (rewritten(NAME, lambda rows: rows.slice(0, 0)), NAME, "has 0 rows"),
    (damage_checkpoint, CHECKPOINT, "is not what was written"),
    (lambda folder: (folder / CHECKPOINT).unlink(), CHECKPOINT, "is missing"),
    (
        rewritten(CHECKPOINT, lambda rows: with_balance(rows, 3, 12345)),
        CHECKPOINT,
        "is not what the rows before 2023-05-01T00:00Z add up to",
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
    "holds less yet": (lambda: held_until(START + DAY), "as it is.*doesn't hold all of it"),
    "is another": (
        lambda: node_of(spread_history(6, rows=400, accounts=20)),
        "of another network",
    ),
    "has lost it": (
        lambda: changed_node(lambda _: None),
        "sends no row that the archive holds",
    ),
    "says that it lacks it": (
        lambda: lacking(ROWS, START + 10 * HOUR, START + 16 * HOUR),
        "says itself that it may",
    ),
}
