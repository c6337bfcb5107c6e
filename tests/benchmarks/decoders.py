"""Other ways to decode a page: what was measured before one was kept."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.json

from balance_analysis.node.decode import decode_page
from balance_analysis.schema import ARROW_SCHEMA, FIELD_NAMES
from tests.benchmarks.floor import Page
from tests.benchmarks.floor import columns as floor_columns

if TYPE_CHECKING:
    from collections.abc import Callable

_NODE: Final = pa.struct([(name, pa.string()) for name in FIELD_NAMES.values()])
_BALANCES: Final = pa.struct([("edges", pa.list_(pa.struct([("node", _NODE)])))])
_PARSING: Final = pa.json.ParseOptions(
    explicit_schema=pa.schema([("balances", _BALANCES)]), unexpected_field_behavior="ignore"
)
_objects = msgspec.json.Decoder(Page)


def checked(body: bytes) -> pa.RecordBatch:
    """Decode as this package does."""
    return decode_page(body).rows


def objects(body: bytes) -> pa.RecordBatch:
    """Decode into one object a row, and these into columns, unchecked."""
    return floor_columns(_objects.decode(body).balances)


def arrow_json(body: bytes) -> pa.RecordBatch:
    """Decode by Arrow's reader, unchecked."""
    reading = pa.json.ReadOptions(use_threads=False, block_size=len(body) + 1)
    table = pa.json.read_json(pa.BufferReader(body), reading, _PARSING)
    nodes = table["balances"].chunk(0).field("edges").flatten().field("node")
    texts = {name: nodes.field(wire) for name, wire in FIELD_NAMES.items()}
    times = pa.compute.divide(texts["timestamp"].cast(pa.int64()), 1000)
    ids = [texts[name].dictionary_encode() for name in list(texts)[:4]]
    amounts = texts["balance"].cast(pa.decimal128(38, 0))
    return pa.RecordBatch.from_arrays(
        [*ids, times.cast(pa.timestamp("us", "UTC")), amounts], schema=ARROW_SCHEMA
    )


def spent() -> float:
    """Return the seconds of processor time of this process and of the children that it has."""
    total = time.process_time()
    for child in multiprocessing.active_children():
        user, system = Path(f"/proc/{child.pid}/stat").read_text().split()[13:15]
        total += (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return total


WAYS: Final[dict[str, Callable[[bytes], pa.RecordBatch]]] = {
    "by msgspec, checked, as this package does": checked,
    "by msgspec, unchecked": objects,
    "Arrow's JSON reader": arrow_json,
}
IN_PROCESSES: Final = "by msgspec, unchecked, in processes"
