"""Write files that appear whole or not at all, and that tell what they are.

A file is written beside its place, flushed to disk and renamed. Under one key of its metadata a
Parquet file has a note in JSON.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.parquet as pq

METADATA_KEY: Final = b"balance_analysis"
FORMAT_VERSION: Final = 1
PARTIAL: Final = "partial"
"""Where the note in a file says that it holds only a part of a load, and which."""

DAMAGES: Final = (
    *(OSError, ValueError, TypeError, LookupError, ArithmeticError),
    *(NotImplementedError, RecursionError, MemoryError),
)
"""What Arrow and the standard library raise on files that were damaged."""

PathLike = str | os.PathLike[str]


def make_note(content: dict[str, Any]) -> dict[bytes, str]:
    """Return what a file's metadata tells of it, as its one key and JSON."""
    return {METADATA_KEY: json.dumps({"format_version": FORMAT_VERSION, **content}, sort_keys=True)}


def read_note(file: pq.ParquetFile) -> dict[str, Any]:
    """Return what a file's metadata tells of it; nothing of a file of another writer."""
    try:
        note = json.loads((file.metadata.metadata or {})[METADATA_KEY])
    except (KeyError, ValueError, RecursionError):
        return {}
    return note if isinstance(note, dict) else {}


def check_writable(path: PathLike) -> Path:
    """Return where a file is to be written: what a link points to is replaced, not the link.

    Raises
    ------
    OSError
        If no file can be written there.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder; name a file in it", str(path))
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "is no regular file; name one", str(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder; make it first", str(target.parent))
    if not os.access(target.parent, os.W_OK):
        folder = str(target.parent)
        raise PermissionError(errno.EACCES, "this folder can't be written to", folder)
    return target


@contextlib.contextmanager
def replacing(path: PathLike) -> Iterator[Path]:
    """Give a place beside `path` to write to; on success it becomes `path`, else it is removed.

    Raises
    ------
    OSError
        If the folder can't be written to.
    """
    target = check_writable(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    temporary.touch(exist_ok=False)
    try:
        yield temporary
        flush(temporary)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    flush(target.parent)


def flush(path: Path) -> None:
    """Wait until a file, or a folder's list of files, is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
