"""The files of an archive, in a local folder or in an object store that pyarrow reaches.

Names are paths inside the archive, with slashes. A file appears whole or not at all: locally it is
written beside its target, flushed to disk and renamed; in an object store it is one upload.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.fs as pafs

from balance_analysis.errors import ArchiveDamagedError, ArchiveError, check_type
from balance_analysis.files.atomic import PathLike, flush, replacing_file


class Stored(Protocol):
    """An object with an archive's files, such as an `Archive`, to fill, compare or repair."""

    store: Store


_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_LEFTOVER: Final = re.compile(r"\..*\.[0-9a-f]{8}\.tmp")


def to_store(archive: Stored | PathLike) -> Store:
    """Return an archive's files, given the archive, its path or its address."""
    store: Any = getattr(archive, "store", archive)
    return store if isinstance(store, Store) else Store(store)


class Store:
    """The files under one address.

    Parameters
    ----------
    uri
        A path, or the address of a folder in an object store such as `s3://bucket/archive`. Options
        of pyarrow may follow a "?", such as `region=eu-west-1`. Credentials come from the store's
        usual places, such as the environment; an address must not contain any.

    Attributes
    ----------
    uri
        The address, as text, without the part after a "?".
    folder
        The local folder; `None` in an object store.
    guard
        Called before each write and delete; raises to prevent it. `None` allows them all.

    Raises
    ------
    ArchiveError
        If the address is malformed, or contains credentials.
    """

    def __init__(self, uri: PathLike) -> None:
        check_type(uri, (str, os.PathLike), "an Archive or the path of one")
        address = self._address = os.fspath(uri)
        self.uri: str = address.partition("?")[0]
        self.folder: Path | None = None
        self.guard: Callable[[], None] | None = None
        if _SCHEME.match(address) and not address.lower().startswith("file://"):
            if "@" in self.uri.partition("://")[2].partition("/")[0]:
                raise ArchiveError(
                    "the address of an archive must not contain credentials: pass them in the "
                    "environment or in the store's own configuration"
                )
            try:
                self._files, self._root = pafs.FileSystem.from_uri(address)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise ArchiveError(f"{self.uri} can't be used as an address: {error}") from error
        else:
            self.uri = address
            self.folder = Path(re.sub(r"^file://", "", address, flags=re.IGNORECASE))
            if self.folder.is_file():
                raise ArchiveError(f"{address} is a file, not an archive; ba.read_parquet reads it")
            self._files, self._root = pafs.LocalFileSystem(), str(self.folder)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the address; a folder is the same from any other working directory."""
        return Store, (self._address if self.folder is None else str(self.folder.absolute()),)

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or `None` if there is no file of that name.

        Raises
        ------
        OSError
            If it can't be read.
        """
        try:
            with self._files.open_input_stream(self._path(name)) as file:
                content: bytes = file.read()
        except FileNotFoundError:
            return None
        return content

    def open(self, name: str) -> pa.NativeFile:
        """Open a file for random access.

        Raises
        ------
        OSError
            If it can't be read; FileNotFoundError if there is no file of that name.
        """
        return self._files.open_input_file(self._path(name))

    def write(self, name: str, content: bytes) -> None:
        """Write a file; an existing one is replaced as a whole.

        Raises
        ------
        OSError
            If it can't be written.
        """
        self._ask_guard()
        if self.folder is None:
            with self._files.open_output_stream(self._path(name)) as file:
                file.write(content)
            return
        target = Path(self._path(name))
        if not target.parent.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            flush(target.parent.parent)
        with replacing_file(target) as temporary:
            temporary.write_bytes(content)

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        self._ask_guard()
        with contextlib.suppress(FileNotFoundError):
            self._files.delete_file(self._path(name))

    def has(self, name: str) -> bool:
        """Return whether there is a file of that name."""
        return bool(self._files.get_file_info(self._path(name)).is_file)

    def names(self, folder: str = "") -> list[str]:
        """Return the sorted names of all files in a folder, at any depth.

        Without such a folder the list is empty. Links to folders aren't followed.
        """
        return sorted(self.sizes(folder))

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the size in bytes of each file in a folder by its name: see `names`."""
        root, inside = self._path(folder.rstrip("/")).rstrip("/"), len(self._path("").rstrip("/"))
        if self.folder is None:
            selector = pafs.FileSelector(root, recursive=True, allow_not_found=True)
            infos = self._files.get_file_info(selector)
            return {info.path[inside + 1 :]: info.size for info in infos if info.is_file}
        sizes = {}
        for parent, _, files in os.walk(root, onerror=_raise_unless_gone):
            for path in (f"{parent}/{file}" for file in files):
                with contextlib.suppress(FileNotFoundError):  # a run has just replaced it
                    sizes[path[inside + 1 :]] = os.lstat(path).st_size
        return sizes

    def sweep(self) -> None:
        """Delete the leftovers of interrupted writes."""
        for name in filter(is_leftover, self.names()):
            self.delete(name)

    def place(self, name: str) -> tuple[pafs.FileSystem, str]:
        """Return a file's file system, and its path there."""
        return self._files, self._path(name)

    def _ask_guard(self) -> None:
        if self.guard is not None:
            self.guard()

    def _path(self, name: str) -> str:
        """Return a file's path; refuse links, which could lead out of the archive."""
        path = str(self._root).rstrip("/")
        for part in name.split("/"):
            path = f"{path}/{part}"
            if self.folder is not None and os.path.islink(path):  # noqa: PTH114 - much faster
                raise ArchiveDamagedError(
                    f"{path} is a symbolic link, which is never followed inside an archive: "
                    "put the file or folder itself in its place"
                )
        return path


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def is_leftover(name: str) -> bool:
    """Return whether a file is the leftover of an interrupted write."""
    return _LEFTOVER.fullmatch(name.rpartition("/")[2]) is not None
