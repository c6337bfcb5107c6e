"""Cut the strings of a page out of its bytes, in columns, and make no Python object for each.

Servers render all rows of a page alike: from one to the next, only what stands in quotes differs.
So the quotes say where the values are. That all rows are like the first is compared, byte for byte,
and the first is read like any other JSON. NumPy and Arrow do it, and let other threads run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

_LONGEST_ROW: Final = 1 << 14
_LARGEST_BODY: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class CutPage:
    """A page whose rows differ in nothing but their strings.

    `skeleton` is its body without all rows but the first, and `columns` are strings of all rows as
    they stand: none has an escape.
    """

    skeleton: bytes
    columns: list[pa.StringArray]


def cut_page(body: bytes, keys: Collection[str]) -> CutPage | None:
    """Return a page with a column for each key, or `None` if its rows are not plainly alike."""
    begin, end = body.find(b"[") + 1, body.rfind(b"]")
    if b"\\" in body or not body.isascii() or len(body) > _LARGEST_BODY:
        return None
    try:
        text = body[begin : min(end, begin + _LONGEST_ROW)].decode()
        row = text[: json.JSONDecoder().raw_decode(text)[1]].encode()
    except (ValueError, RecursionError):
        return None
    pieces = row.split(b'"')
    places = [i for i in range(1, len(pieces), 2) if not pieces[i + 1].lstrip().startswith(b":")]
    names = [pieces[place - 2].decode() for place in places]
    rows = memoryview(body)[begin:end]
    quotes = np.flatnonzero(np.frombuffer(rows, np.uint8) == ord('"'))
    if any(names.count(key) != 1 for key in keys) or len(quotes) % (len(pieces) - 1):
        return None
    # Where each value begins and ends, row by row.
    edges = np.add.outer(places, (-1, 0)).ravel()
    bounds = quotes.reshape(-1, len(pieces) - 1)[:, edges] + np.resize([1, 0], len(edges))
    if not _are_alike(rows, row, bounds):
        return None
    offsets = np.append(bounds, len(rows)).astype(np.int32)
    cuts = pa.StringArray.from_buffers(bounds.size, pa.py_buffer(offsets), pa.py_buffer(rows))
    turns = [np.arange(2 * names.index(key), bounds.size, len(edges)) for key in keys]
    columns = [cuts.take(pa.array(turn)) for turn in turns]
    return CutPage(body[: begin + len(row)] + body[end:], columns)


def _are_alike(rows: memoryview, row: bytes, bounds: NDArray[np.int64]) -> bool:
    """Whether all that stands between values is as in the first row, with commas between rows."""
    head, tail = row[: bounds[0, 0]], row[bounds[0, -1] :]
    if bytes(rows[bounds[-1, -1] :]).rstrip() != tail:
        return False
    if len(bounds) > 1:
        between = bytes(rows[bounds[0, -1] : bounds[1, 0]])
        comma = between.removeprefix(tail).removesuffix(head).strip()
        if comma != b"," or not _is_one_text(rows, bounds[:-1, -1], bounds[1:, 0]):
            return False
    return all(
        _is_one_text(rows, bounds[:, i], bounds[:, i + 1]) for i in range(1, bounds.shape[1] - 1, 2)
    )


def _is_one_text(rows: memoryview, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> bool:
    """Whether all stretches of bytes are the same."""
    size = int(ends[0] - starts[0])
    at: NDArray[Any] = np.ndarray(len(rows) - size + 1, f"S{size}", rows, strides=1)
    return bool(np.all(ends - starts == size) and np.all(at[starts] == at[starts[0]]))
