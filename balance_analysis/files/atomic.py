"""Write files that appear whole or not at all.

A file is written beside its target, flushed to disk and renamed. A killed process leaves a file
called `.NAME.HEX.tmp`; nothing reads it, and it may be deleted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from balance_analysis.errors import check_type

MANIFEST: Final = "_archive.json"
"""The file that makes a folder an archive."""

DAMAGE_ERRORS: Final = (
    *(OSError, ValueError, TypeError, LookupError, ArithmeticError),
    *(NotImplementedError, RecursionError, MemoryError),
)
"""Exceptions that Arrow and the standard library raise on damaged files."""

PathLike = str | os.PathLike[str]


def check_outside(path: PathLike) -> Path:
    """Return a path's target, following links, after checking that it isn't in an archive.

    Raises
    ------
    ValueError
        If it is an archive, or lies in one.
    """
    check_type(path, (str, os.PathLike), "the path of a file")
    target = Path(os.path.realpath(path))
    if (folder := archive_around(path)) is not None:
        where = "is an archive" if folder == target else f"lies in the archive {folder}"
        raise ValueError(f"{os.fspath(path)} {where}; choose a path outside of it")
    return target


def archive_around(path: PathLike) -> Path | None:
    """Return the archive that a path is or lies in, following links, or `None`."""
    target = Path(os.path.realpath(path))
    spelled = Path(os.path.abspath(path))  # noqa: PTH100 - a folder of an archive may be a link
    folders = (target, *target.parents, *spelled.parents)
    return next((folder for folder in folders if (folder / MANIFEST).exists()), None)


def check_output(
    path: PathLike, *, inputs: Iterable[PathLike | None] = (), suffixes: Collection[str] = ()
) -> Path:
    """Return the path to write a result to: a link's target is replaced, not the link.

    Parameters
    ----------
    path
        The file; an existing one may be replaced.
    inputs
        Files and folders that the result is made from; `None` and missing ones are ignored.
    suffixes
        Allowed suffixes of the name; "" allows a name without one. By default any.

    Raises
    ------
    ValueError
        If the name has another suffix; if the path is one of the inputs, or lies in one or in an
        archive, however it is spelled or linked; or if it is a folder or not a regular file.
    OSError
        If no file can be written there.
    """
    target, name = check_outside(path), os.fspath(path)
    if suffixes and Path(path).suffix.lower() not in suffixes:
        raise ValueError(f"{name} must end with {' or '.join(filter(None, suffixes))}")
    if target.exists() and not target.is_file():
        raise ValueError(f"{name} is a folder or not a regular file; choose another path")
    for source in (source for source in inputs if source):
        places = [place for place in (target, *target.parents) if place.exists()]
        if Path(source).exists() and any(place.samefile(source) for place in places):
            fault = f"is the same file as, or lies in, the input {os.fspath(source)}"
            raise ValueError(f"{name} {fault}; name another file")
    try:
        tempfile.TemporaryFile(dir=target.parent).close()
    except OSError as error:
        fault = f"can't write to this folder ({error.strerror}); create it first or name another"
        raise OSError(error.errno, fault, str(target.parent)) from error
    return target


def replacing(path: PathLike) -> contextlib.AbstractContextManager[Path]:
    """Yield a temporary file beside `path` to write a result to; on success it replaces `path`.

    Raises
    ------
    ValueError, OSError
        As `check_output`. An OSError in the block names `path`.
    """
    return replacing_file(check_output(path))


@contextlib.contextmanager
def replacing_file(target: Path, *, is_folder: bool = False) -> Iterator[Path]:
    """Do as `replacing` does, for any file, even an archive's, or for a new folder.

    Raises
    ------
    OSError
        If it can't be written.
    """
    temporary = target.with_name(f".{target.name}.{os.urandom(4).hex()}.tmp")
    try:
        temporary.mkdir() if is_folder else temporary.touch(exist_ok=False)
        yield temporary
        for path in (*(temporary.iterdir() if is_folder else ()), temporary):
            flush(path)
        temporary.replace(target)
        flush(target.parent)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True) if is_folder else temporary.unlink(True)
        name_file(error, target)
        raise


def making_folder(path: PathLike) -> contextlib.AbstractContextManager[Path]:
    """Yield a temporary folder to write files to; on success it becomes `path`, whole.

    Raises
    ------
    ValueError, OSError
        If `path` lies in an archive, exists and isn't an empty folder, or can't be written.
    """
    target = check_outside(path)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(errno.EEXIST, "already exists; name a new folder", os.fspath(path))
    return replacing_file(target, is_folder=True)


def name_file(error: BaseException, target: Path) -> None:
    """Set the written file's name in an OSError that names no file, or only the temporary one."""
    if not isinstance(error, OSError) or error.errno is None:
        return
    temporary = str(target.with_name(f".{target.name}."))
    if error.filename is None or os.fspath(error.filename).startswith(temporary):
        error.filename = str(target)


def flush(path: Path) -> None:
    """Wait until a file, or a folder's list of files, is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
