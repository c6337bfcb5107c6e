"""Find network history segments, order them, and read their metadata and tables as text.

A segment is a zip, or its unpacked folder, with the rows that a node wrote for a range of blocks.
"""

from __future__ import annotations

import glob
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.csv as pacsv

from balance_analysis.errors import (
    CheckError,
    DecodeError,
    IncompleteError,
    NetworkMismatchError,
    logger,
)
from balance_analysis.files.atomic import PathLike
from balance_analysis.table.evidence import SEGMENTS, Node
from balance_analysis.table.text import count_text, list_text

METADATA: Final = "metadata.json"
BALANCES: Final = "history/balances"
BLOCKS: Final = "history/blocks"
LEDGER: Final = "history/ledger"
ACCOUNTS: Final = "currentstate/accounts"
ASSETS: Final = "currentstate/assets"
LIMITS: Final = "currentstate/network_limits"

FIRST_BLOCK: Final = 1
"""The height of a network's first block."""

_NEEDED: Final = (BALANCES, BLOCKS, LEDGER, ACCOUNTS, ASSETS, LIMITS)
_CHUNK: Final = 1 << 26
"""Bytes that pyarrow reads at once: a table up to this size is one chunk."""

_LARGEST: Final = 1 << 30
"""Maximum bytes of a table: a thousand times those of the main network's 4,000 rows."""

_PACKINGS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_HIGHEST: Final = 10**18
_OLD: Final = (
    "written by a node older than v0.71, as a tar, which can't be read: take the zips of a node of "
    "v0.71 or newer, or load the rows from a node that still has them with `export`"
)

_DAMAGES: Final = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, KeyError,
)  # fmt: skip

_CONTENT_ID: Final = re.compile(r"Qm[1-9A-Za-z]{44}|baf[a-z2-7]{50,}")


class _Metadata(msgspec.Struct, rename="pascal"):
    chain_id: str = msgspec.field(name="ChainID")
    height_from: int
    height_to: int
    previous: str = msgspec.field(name="PreviousHistorySegmentID", default="")


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment.

    Attributes
    ----------
    path
        The zip or the folder.
    root
        The folder in it that has `metadata.json`: empty, or with a slash at the end.
    chain
        The network's chain id.
    first, last
        The heights of its first and its last block.
    previous
        The content id of the segment before it; empty if the metadata doesn't name it.
    """

    path: Path
    root: str
    chain: str
    first: int
    last: int
    previous: str

    def __str__(self) -> str:
        return f"the segment {self.path}"

    @property
    def node(self) -> Node:
        """The source of a chain's segments in evidence."""
        return Node(f"segments {self.chain}", frozenset({f"{SEGMENTS}{self.chain}"}))

    def read(self, name: str) -> bytes:
        """Return one of its files.

        Raises
        ------
        DecodeError
            If the file is missing, damaged or too large.
        """
        return _read(self.path, self.root + name)

    def table(self, name: str, columns: Sequence[str]) -> pa.RecordBatch:
        """Return columns of a table as text; nulls and empty texts are "".

        Raises
        ------
        DecodeError
            If the table or one of its columns is missing, or it is damaged.
        """
        content = self.read(name)
        # COPY ends each row with a newline, and an unpacked table has no checksum.
        if not content.endswith(b"\n"):
            raise DecodeError(f"{self}: the table {name} ends within a row: it is truncated")
        try:
            rows = pacsv.read_csv(
                pa.BufferReader(content),
                read_options=pacsv.ReadOptions(use_threads=False, block_size=_CHUNK),
                parse_options=pacsv.ParseOptions(newlines_in_values=name == ASSETS),
                convert_options=pacsv.ConvertOptions(
                    include_columns=list(columns), column_types=dict.fromkeys(columns, pa.string())
                ),
            )
        except (pa.ArrowException, KeyError) as error:
            raise DecodeError(f"{self}: the table {name} can't be read: {error}") from error
        arrays = [column.combine_chunks() for column in rows.columns]
        return pa.RecordBatch.from_arrays(arrays, rows.column_names)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive segments of one chain: each begins with the block after the previous one."""

    segments: tuple[Segment, ...]

    @property
    def first(self) -> int:
        """The height of the first block."""
        return self.segments[0].first

    @property
    def last(self) -> int:
        """The height of the last block."""
        return self.segments[-1].last

    @property
    def is_from_first(self) -> bool:
        """Whether it begins with the network's first block: no account held anything before."""
        return self.first <= FIRST_BLOCK

    @property
    def source(self) -> str:
        """Its name as a source of rows."""
        return f"{self.segments[0].node.name} {self.first}-{self.last}"


def heights_text(heights: Iterable[tuple[int, int]]) -> str:
    """Return ranges of heights, given as first and last, for a message."""
    return list_text([f"{a:,}" if a == b else f"{a:,} to {b:,}" for a, b in heights])


def find_stretches(paths: PathLike | Iterable[PathLike]) -> list[Stretch]:
    """Return the segments at some paths in the order of their blocks, split at gaps.

    The same segment may be given twice.

    Parameters
    ----------
    paths
        Zips, unpacked segments, folders with these at any depth, and patterns such as
        `history/*.zip`. Tars of old nodes beside them are left out, with a warning.

    Raises
    ------
    DecodeError
        If a zip isn't a segment, or is damaged, or if there are only tars.
    FileNotFoundError
        If a path doesn't exist.
    NetworkMismatchError
        If the segments are from two chains.
    CheckError
        If two different segments share a block.
    IncompleteError
        If a segment names another predecessor than the segment before it.
    """
    ordered = sorted(_find_segments(paths), key=lambda x: (x.first, x.last, x.path))
    stretches: list[list[Segment]] = []
    for segment in ordered:
        before = stretches[-1][-1] if stretches else None
        if before is not None and before.chain != segment.chain:
            raise NetworkMismatchError(
                f"{before} is of the chain {before.chain!r}, but {segment} of {segment.chain!r}: "
                "give segments of one chain"
            )
        if before is None or segment.first > before.last + 1:
            stretches.append([segment])
        elif segment.first == before.last + 1:
            _check_follows(before, segment)
            stretches[-1].append(segment)
        elif not _are_same(before, segment):
            shared = heights_text([(segment.first, min(before.last, segment.last))])
            raise CheckError(f"{before} and {segment} both have blocks {shared}: leave one out")
    return [Stretch(tuple(segments)) for segments in stretches]


def missing_blocks(stretches: list[Stretch]) -> list[tuple[int, int]]:
    """Return the first and the last height of each gap between stretches."""
    return [(before.last + 1, after.first - 1) for before, after in pairwise(stretches)]


def _check_follows(before: Segment, after: Segment) -> None:
    """Raise if a segment names another predecessor; only content ids can be compared."""
    name = before.path.name.removesuffix(".zip")
    if after.previous and _CONTENT_ID.fullmatch(name) and name != after.previous:
        raise IncompleteError(
            f"{after} names {after.previous} as the one before it, but {before} has the blocks "
            "before it: one of them is of another history"
        )


def _are_same(one: Segment, other: Segment) -> bool:
    """Return whether two segments have the same content, packed or not."""
    if (one.first, one.last) != (other.first, other.last):
        return False
    return all(one.read(name) == other.read(name) for name in (METADATA, *_NEEDED))


def _find_segments(paths: PathLike | Iterable[PathLike]) -> list[Segment]:
    named = [paths] if isinstance(paths, str | os.PathLike) else paths
    places = dict.fromkeys(place for path in named for place in _segments_at(Path(path)))
    old = [path for path in places if _is_old(path)]
    if old and len(old) == len(places):
        raise DecodeError(f"{old[0]} was {_OLD}")
    if old:
        logger.warning("%s left out, such as %s, %s", count_text(len(old), "segment"), old[0], _OLD)
    return [_open(path) for path in places if path not in old]


def are_segments(path: PathLike) -> bool:
    """Return whether a path looks like segments, without reading them: see `find_stretches`."""
    try:
        place = next(_segments_at(Path(path)))
    except FileNotFoundError:
        return False
    return place.is_dir() or zipfile.is_zipfile(place) or _is_old(place)


def _is_old(path: Path) -> bool:
    """Return whether a path is a segment that a node older than v0.71 wrote."""
    if path.is_dir() or zipfile.is_zipfile(path):
        return False
    return path.suffix == ".tar" or tarfile.is_tarfile(path)


def _segments_at(path: Path) -> Iterator[Path]:
    if not path.exists():
        matches = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 - Path.glob takes no absolute pattern
        if not matches:
            raise FileNotFoundError(f"there is no segment, folder or match of {str(path)!r}")
        for match in matches:
            yield from _segments_at(Path(match))
    elif path.is_file() or (path / METADATA).is_file():
        yield path
    else:
        inside = [*path.rglob("*.zip"), *path.rglob("*.tar")]
        inside += [file.parent for file in path.rglob(METADATA)]
        if not inside:
            raise FileNotFoundError(f"there is no segment in the folder {path}")
        yield from sorted(inside)


def _open(path: Path) -> Segment:
    try:
        names = _names_in(path)
    except (*_DAMAGES, OSError) as error:
        raise DecodeError(f"{path} is not a whole segment: {error}") from error
    roots = [name.removesuffix(METADATA) for name in names if name.endswith(METADATA)]
    if not roots:
        raise DecodeError(f"{path} is not a network history segment: it has no {METADATA}")
    root = min(roots, key=len)
    for name in _NEEDED:
        if root + name not in names:
            raise DecodeError(f"{path} is not a whole segment: it has no {name}")
    try:
        metadata = msgspec.json.decode(_read(path, root + METADATA), type=_Metadata)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"{path}: {METADATA} is not that of a segment: {error}") from error
    first, last = metadata.height_from, metadata.height_to
    if not (0 <= first <= last < _HIGHEST and metadata.chain_id):
        raise DecodeError(f"{path}: {METADATA} must name a chain and its blocks, not {metadata}")
    return Segment(path, root, metadata.chain_id, first, last, metadata.previous)


def _names_in(path: Path) -> list[str]:
    if path.is_dir():
        return [file.relative_to(path).as_posix() for file in path.rglob("*")]
    with zipfile.ZipFile(path) as packed:
        return packed.namelist()


def _read(path: Path, name: str) -> bytes:
    """Return a file of a segment; DecodeError if it is missing, damaged or too large."""
    try:
        if path.is_dir():
            _check_size((path / name).stat().st_size)
            return (path / name).read_bytes()
        with zipfile.ZipFile(path) as file:
            info = file.getinfo(name)
            _check_size(info.file_size)
            if info.compress_type not in _PACKINGS:
                raise NotImplementedError("it is compressed by another method than deflate")
            with file.open(info) as stream:
                # Read no more than stated: a zip with false sizes could fill the memory.
                return stream.read(info.file_size)
    except (*_DAMAGES, FileNotFoundError) as error:
        raise DecodeError(f"the segment {path}: {name} can't be read: {error}") from error


def _check_size(size: int) -> None:
    if size > _LARGEST:
        raise EOFError(f"it would unpack to {size:,} bytes, more than {_LARGEST:,}")
