"""One segment: the zip or folder that it is, what it says of itself, and its tables as text."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.csv as pacsv

from balance_analysis.errors import DecodeError, logger
from balance_analysis.files.atomic import PathLike
from balance_analysis.text import count_text, list_text

METADATA: Final = "metadata.json"
BALANCES: Final = "history/balances"
BLOCKS: Final = "history/blocks"
LEDGER: Final = "history/ledger"
ACCOUNTS: Final = "currentstate/accounts"
ASSETS: Final = "currentstate/assets"
LIMITS: Final = "currentstate/network_limits"

_NEEDED: Final = (BALANCES, BLOCKS, LEDGER, ACCOUNTS, ASSETS, LIMITS)
_BLOCK: Final = 1 << 26
"""Bytes that pyarrow reads at once: a table that fits is one chunk."""

_LARGEST: Final = 1 << 30
"""Bytes of a table: a thousand times those of the main network, where a segment has 4,000 rows."""

_ALWAYS_READ: Final = 1 << 24
_TIGHTEST: Final = 100
"""How many times smaller a larger table may be in the zip. A row has an id or a hash, whose digits
are half as long at best, so nodes' tables are up to 10 times smaller."""

_PACKINGS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_HIGHEST: Final = 10**18
_OLD: Final = (
    "written by a node older than v0.71, as a tar, which can't be read: take the zips of a node of "
    "v0.71 or newer, or load the rows from a node that still has them with `export`"
)

_DAMAGES: Final = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, KeyError,
)  # fmt: skip


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
        Where in it `metadata.json` stands: nothing, or a folder with a slash.
    chain
        The network's chain id.
    first, last
        The heights of its first and its last block.
    previous
        The content id of the segment before it; empty where the metadata doesn't name it.
    digest
        What tells its content from another's, packed or not.
    after
        Blocks up to this height are those of another segment, which agrees.
    """

    path: Path
    root: str
    chain: str
    first: int
    last: int
    previous: str
    digest: str
    after: int = -1

    def __str__(self) -> str:
        return f"the segment {self.path}"

    @property
    def begin(self) -> int:
        """The height of the first block that is taken of it."""
        return max(self.first, self.after + 1)

    def table(self, name: str, columns: Sequence[str]) -> pa.RecordBatch:
        """Return columns of a table as text; what is null or an empty text is "".

        Raises
        ------
        DecodeError
            If the table or a column of it is missing, or it is damaged.
        """
        try:
            rows = pacsv.read_csv(
                pa.BufferReader(_read(self.path, self.root + name)),
                read_options=pacsv.ReadOptions(use_threads=False, block_size=_BLOCK),
                parse_options=pacsv.ParseOptions(newlines_in_values=name == ASSETS),
                convert_options=pacsv.ConvertOptions(
                    include_columns=list(columns), column_types=dict.fromkeys(columns, pa.string())
                ),
            )
        except (pa.ArrowException, KeyError) as error:
            raise DecodeError(f"{self}: the table {name} can't be read: {error}") from error
        arrays = [column.combine_chunks() for column in rows.columns]
        return pa.RecordBatch.from_arrays(arrays, rows.column_names)


def heights_text(heights: Iterable[tuple[int, int]]) -> str:
    """Return ranges of heights, the first and the last of each, for a message."""
    return list_text([f"{a:,}" if a == b else f"{a:,} to {b:,}" for a, b in heights])


def find_segments(paths: PathLike | Iterable[PathLike]) -> list[Segment]:
    """Return the segments that paths name.

    Parameters
    ----------
    paths
        Zips, unpacked segments, folders that hold such at any depth, and patterns such as
        `history/*.zip`. Tars of old nodes that stand beside such are left out, with a warning.

    Raises
    ------
    DecodeError
        If a zip is no segment, or damaged, or if there are tars alone.
    FileNotFoundError
        If a path names nothing.
    """
    named = [paths] if isinstance(paths, str | os.PathLike) else paths
    found = dict.fromkeys(each for path in named for each in _segments_at(Path(path)))
    old = [path for path in found if _is_old(path)]
    if old and len(old) == len(found):
        raise DecodeError(f"{old[0]} was {_OLD}")
    if old:
        logger.warning("%s left out, such as %s, %s", count_text(len(old), "segment"), old[0], _OLD)
    return [_open(path) for path in found if path not in old]


def are_segments(path: PathLike) -> bool:
    """Whether a path names what may be segments, which are not looked at; see `find_segments`."""
    try:
        found = next(_segments_at(Path(path)))
    except FileNotFoundError:
        return False
    return found.is_dir() or zipfile.is_zipfile(found) or _is_old(found)


def _is_old(path: Path) -> bool:
    """Whether a path is a segment as nodes older than v0.71 wrote them."""
    if path.is_dir() or zipfile.is_zipfile(path):
        return False
    return path.suffix == ".tar" or tarfile.is_tarfile(path)


def _segments_at(path: Path) -> Iterator[Path]:
    if not path.exists():
        matches = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 - it takes a whole path
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
        files = dict(_files_of(path))
    except (*_DAMAGES, OSError) as error:
        raise DecodeError(f"{path} is no segment, or not all of one: {error}") from error
    roots = [name.removesuffix(METADATA) for name in files if name.endswith(METADATA)]
    if not roots:
        raise DecodeError(f"{path} is no network history segment: it has no {METADATA}")
    root = min(roots, key=len)
    for name in _NEEDED:
        if root + name not in files:
            raise DecodeError(f"{path} is not all of a segment: it has no {name}")
    chain, first, last, previous = _read_metadata(path, root, files[root + BLOCKS][0])
    content = sorted(
        (name.removeprefix(root), size_and_crc) for name, size_and_crc in files.items()
    )
    digest = hashlib.sha256(repr(content).encode()).hexdigest()
    return Segment(path, root, chain, first, last, previous, digest)


def _read_metadata(path: Path, root: str, size_of_blocks: int) -> tuple[str, int, int, str]:
    """Return the chain, the first and the last block, and the id of the segment before."""
    try:
        metadata = msgspec.json.decode(_read(path, root + METADATA), type=_Metadata)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"{path}: {METADATA} is not that of a segment: {error}") from error
    first, last = metadata.height_from, metadata.height_to
    if not (0 <= first <= last < _HIGHEST and metadata.chain_id):
        raise DecodeError(f"{path}: {METADATA} tells no chain and blocks: {metadata}")
    if last - first > size_of_blocks:
        raise DecodeError(
            f"{path}: {METADATA} tells of the blocks {first:,} to {last:,}, and the table {BLOCKS} "
            f"has {count_text(size_of_blocks, 'byte')}"
        )
    return metadata.chain_id, first, last, metadata.previous


def _read(path: Path, name: str) -> bytes:
    """Return a file of a segment; DecodeError if it is missing, damaged or too large."""
    try:
        if path.is_dir():
            _check_size((path / name).stat().st_size, _LARGEST)
            return (path / name).read_bytes()
        with zipfile.ZipFile(path) as file:
            info = file.getinfo(name)
            _check_size(
                info.file_size, max(_ALWAYS_READ, min(_LARGEST, info.compress_size * _TIGHTEST))
            )
            if info.compress_type not in _PACKINGS:
                raise NotImplementedError("it is not deflated")
            with file.open(info) as stream:
                # No more than it says, or a zip that lies of its sizes would fill the memory.
                return stream.read(info.file_size)
    except (*_DAMAGES, FileNotFoundError) as error:
        raise DecodeError(f"the segment {path}: {name} can't be read: {error}") from error


def _files_of(path: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the files of a segment, each with its size and its CRC-32."""
    if path.is_dir():
        for file in path.rglob("*"):
            if file.is_file():
                with file.open("rb") as stream:
                    parts = iter(partial(stream.read, _BLOCK), b"")
                    digest = reduce(lambda crc, part: zlib.crc32(part, crc), parts, 0)
                yield file.relative_to(path).as_posix(), (file.stat().st_size, digest)
        return
    with contextlib.closing(zipfile.ZipFile(path)) as packed:
        for info in packed.infolist():
            if not info.is_dir():
                yield info.filename, (info.file_size, info.CRC)


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise EOFError(f"it would unpack to {size:,} bytes, where at most {most:,} can be right")
