"""Write files that appear whole or not at all.

A file is written beside its place, flushed to disk and renamed. What a process that is killed
leaves there is called `.NAME.HEX.tmp`; nothing reads it, and it may be deleted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from balance_analysis.errors import check_type

MANIFEST: Final = "_archive.json"
"""The file that makes a folder an archive."""

DAMAGES: Final = (
    *(OSError, ValueError, TypeError, LookupError, ArithmeticError),
    *(NotImplementedError, RecursionError, MemoryError),
)
"""What Arrow and the standard library raise on files that were damaged."""

PathLike = str | os.PathLike[str]


def check_outside(path: PathLike) -> Path:
    """Return where a path leads; a link is followed, and no archive may be around it.

    Raises
    ------
    ValueError
        If it is an archive, or lies in one: what stands there belongs to the archive.
    """
    check_type(path, (str, os.PathLike), "the path of a file")
    target = Path(os.path.realpath(path))
    spelled = Path(os.path.abspath(path))  # noqa: PTH100 - a folder of an archive may be a link
    for folder in (target, *target.parents, *spelled.parents):
        if (folder / MANIFEST).exists():
            where = "is an archive" if folder == target else f"lies in the archive {folder}"
            raise ValueError(f"{os.fspath(path)} {where}; name a place outside of it")
    return target


def check_output(
    path: PathLike,
    *,
    inputs: Iterable[PathLike | None] = (),
    suffixes: Collection[str] = (),
) -> Path:
    """Return where a result is to be written: what a link points to is replaced, not the link.

    Parameters
    ----------
    path
        The file; one that stands there may be replaced.
    inputs
        Files and folders that the result is made of; `None`, and what is not there, are none.
    suffixes
        What the name may end with; "" allows none. By default it may be anything.

    Raises
    ------
    ValueError
        If its name ends otherwise, if it is one of the inputs or lies in one or in an archive,
        whatever the spelling or links, or if something stands there that is no regular file.
    OSError
        If no file can be written there.
    """
    target = check_outside(path)
    if suffixes and Path(path).suffix.lower() not in suffixes:
        *others, last = filter(None, suffixes)
        names = f"{', '.join(others)} or {last}" if others else last
        raise ValueError(f"{os.fspath(path)}: name a {names} file")
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder; name a file in it", str(path))
    if target.exists() and not target.is_file():
        raise ValueError(f"{os.fspath(path)} is no regular file; name one")
    places = [place for place in (target, *target.parents) if place.exists()]
    for source in inputs:
        if source is None or not Path(source).exists():
            continue
        if any(place.samefile(source) for place in places):
            where = "is the same file as" if Path(source).is_file() else "lies in"
            raise ValueError(
                f"{os.fspath(path)} {where} {os.fspath(source)}, an input; name another file"
            )
    folder = str(target.parent)
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder; make it first", folder)
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        said = f"this folder can't be written to: {error.strerror}"
        raise OSError(error.errno, said, folder) from error
    return target


@contextlib.contextmanager
def replacing(path: PathLike) -> Iterator[Path]:
    """Give a place beside `path` to write a result to; on success it becomes `path`, else it goes.

    Raises
    ------
    ValueError, OSError
        As `check_output`; an error of the system that comes in the block names `path`.
    """
    with replacing_file(check_output(path)) as temporary:
        yield temporary


@contextlib.contextmanager
def replacing_file(
    target: Path, on_failure: Callable[[Path], object] = lambda path: path.unlink(missing_ok=True)
) -> Iterator[Path]:
    """Do the same for any file: one of an archive too, which is the archive's own matter.

    `on_failure` gets what was written, where it can't become the file.

    Raises
    ------
    OSError
        If it can't be written.
    """
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.touch(exist_ok=False)
        yield temporary
        flush(temporary)
        temporary.replace(target)
        flush(target.parent)
    except BaseException as error:
        on_failure(temporary)
        name_file(error, target)
        raise


def name_file(error: BaseException, target: Path) -> None:
    """Let an error of the system tell which file was being written, where it doesn't by itself."""
    if not isinstance(error, OSError) or error.errno is None:
        return
    beside = str(target.with_name(f".{target.name}."))
    if error.filename is None or os.fspath(error.filename).startswith(beside):
        error.filename = str(target)


def flush(path: Path) -> None:
    """Wait until a file, or a folder's list of files, is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
