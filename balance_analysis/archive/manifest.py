"""The manifest: the small file that describes an archive.

It has the query that the archive is bound to, the evidence for its rows, and an entry for each
file. A commit writes it last: files without an entry aren't committed. All other files are checked
against it, and it carries a digest of itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import shlex
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, get_args

import msgspec

from balance_analysis.archive import layout
from balance_analysis.archive.store import Store, is_leftover
from balance_analysis.errors import ArchiveDamagedError, ArchiveError, SnapshotGoneError
from balance_analysis.table.evidence import Evidence, from_json
from balance_analysis.table.filters import Filters
from balance_analysis.table.text import without_credentials

FORMAT: Final = 2

_DIGEST: Final = "sha256"


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """An archive's query, fixed by its first run: its accounts, and the period of a file."""

    filters: Filters
    partition: layout.Partition

    def __str__(self) -> str:
        return f"{self.filters}, a file for each {self.partition}"

    def check_holds(self, wanted: Filters) -> None:
        """Raise ArchiveError if these filters select accounts that the archive isn't bound to."""
        for name, values in self.filters.allowed().items():
            others = sorted(set(wanted.allowed().get(name, ())) - set(values))
            if others:
                raise ArchiveError(
                    f"the archive holds only accounts of {name} {', '.join(values)}, not "
                    f"{others[0]}"
                )


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file's entry in the manifest.

    Attributes
    ----------
    rows, size, sha256
        Number of rows, number of bytes, and the SHA-256 of the bytes.
    first, last
        The earliest and latest timestamp (in microseconds).
    footer
        The SHA-256 of its Parquet footer, which identifies the file without reading all of it.
    """

    rows: int
    size: int
    sha256: str
    first: int
    last: int
    footer: str

    def mismatch(self, content: bytes | None) -> str:
        """Return how a file's content differs from this entry; empty if it doesn't."""
        if content is None:
            return "is missing"
        if len(content) != self.size:
            return f"is not what was written: it has {len(content)} bytes, not {self.size}"
        digest = hashlib.sha256(content).hexdigest()
        if digest != self.sha256:
            return f"is not what was written: its SHA-256 is {digest}, not {self.sha256}"
        return ""


@dataclass(frozen=True, slots=True)
class Pending:
    """A commit under way: the name and new entry of a file, and the new evidence."""

    name: str
    file: FileEntry
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state of an archive.

    Attributes
    ----------
    partition
        The period of a file of rows.
    evidence
        The evidence for the rows; its filters are those that the archive is bound to.
    files
        The entry of each period with rows, by the period's name.
    checkpoints
        The entry of the balances at each month's start, by that moment (in microseconds).
    limits
        The entry of the network's limits, or `None` if there are none.
    pending
        The commit under way, or `None`.
    """

    partition: layout.Partition
    evidence: Evidence
    files: dict[str, FileEntry] = field(default_factory=dict)
    checkpoints: dict[int, FileEntry] = field(default_factory=dict)
    limits: FileEntry | None = None
    pending: Pending | None = None

    @property
    def query(self) -> BoundQuery:
        """The query that the archive is bound to."""
        return BoundQuery(self.evidence.filters, self.partition)

    @property
    def committed(self) -> dict[str, FileEntry]:
        """Each committed file's entry, by its name."""
        files = {self.changes_file(period): entry for period, entry in self.files.items()}
        files |= {layout.checkpoint_file(at): entry for at, entry in self.checkpoints.items()}
        return files if self.limits is None else {**files, layout.LIMITS: self.limits}

    def entries(self, name: str) -> tuple[FileEntry, ...]:
        """Return a file's committed and pending entries; a sound file matches one of them."""
        return self.with_pending(name, self.committed.get(name))

    def with_pending(self, name: str, committed: FileEntry | None) -> tuple[FileEntry, ...]:
        """Return a file's entries, as `entries` does, given its committed one."""
        pending = self.pending.file if self.pending and self.pending.name == name else None
        return tuple(entry for entry in (committed, pending) if entry is not None)

    def changes_file(self, period: str) -> str:
        """Return the name of a period's file."""
        return layout.changes_file(period, self.partition)

    def announce(self, name: str, file: FileEntry, evidence: Evidence) -> Manifest:
        """Return the state that announces a file and its evidence."""
        return replace(self, pending=Pending(name, file, evidence))

    def settle(self) -> Manifest:
        """Return the state after the pending commit."""
        if self.pending is None:
            return self
        file, period = self.pending.file, layout.period_named(self.pending.name, self.partition)
        files = self.files if period is None else dict(sorted({**self.files, period: file}.items()))
        return replace(
            self,
            evidence=self.pending.evidence,
            files=files,
            limits=file if period is None else self.limits,
            pending=None,
        )


def to_bytes(manifest: Manifest) -> bytes:
    """Return a manifest as the content of its file."""
    builtin: dict[str, Any] = msgspec.to_builtins(manifest, str_keys=True, order="deterministic")
    return sign({"format": FORMAT, **builtin})


def sign(content: dict[str, Any]) -> bytes:
    """Return the file's bytes: the content and its digest."""
    signed = {**content, _DIGEST: digest_of(content)}
    return msgspec.json.format(msgspec.json.encode(signed), indent=1) + b"\n"


def digest_of(content: object) -> str:
    """Return the SHA-256 of content as JSON with sorted keys and no whitespace."""
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()


def parse(store: Store, content: bytes | None) -> Manifest:
    """Return an archive's manifest, given the content of its file.

    Raises
    ------
    ArchiveError
        If there is no archive, or its manifest is damaged or has another format.
    """
    where = f"{store.uri}/{layout.MANIFEST}"
    if content is None:
        if any(name.startswith(layout.CHANGES) for name in store.names()):
            raise ArchiveDamagedError(f"{where} is missing: {_advice(store)}")
        why = f"it has no {layout.MANIFEST}"
        if store.folder is not None and not store.folder.exists():
            why = "there is no such folder"
        raise ArchiveError(f"{store.uri} is not an archive: {why}; `export` creates one")
    try:
        decoded = msgspec.json.decode(content)
        version = decoded.pop("format", None)
        if type(version) is int and version > FORMAT:
            raise ArchiveError(
                f"{where} has format {version}, which is newer than this package reads ({FORMAT}): "
                "update balance-analysis"
            )
        return _manifest(version, decoded)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArchiveDamagedError(f"{where} is damaged ({error}): {_advice(store)}") from error


def _manifest(version: object, decoded: dict[str, Any]) -> Manifest:
    """Return the manifest in decoded content; ValueError if it contradicts itself."""
    if decoded.pop(_DIGEST, None) != digest_of({"format": version, **decoded}):
        raise ValueError("its content doesn't match its digest")
    if missing := {attribute.name for attribute in fields(Manifest)} - decoded.keys():
        raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    manifest = msgspec.convert(decoded, Manifest, str_keys=True)
    pending = manifest.pending
    for part in (decoded, *([decoded["pending"]] if pending else [])):
        if from_json(part["evidence"]).filters != manifest.evidence.filters:
            raise ValueError("its pending evidence is of other accounts")
    names = [manifest.changes_file(period) for period in manifest.files]
    for name in [*names, *([pending.name] if pending and pending.name != layout.LIMITS else [])]:
        if layout.period_named(name, manifest.partition) is None:
            raise ValueError(f"{name!r} is not the name of a {manifest.partition}'s file")
    if list(manifest.files) != sorted(manifest.files):
        raise ValueError("its files are not in time order")
    return manifest


def _advice(store: Store) -> str:
    repair = export_command(store, "--repair")
    return f"rebuild it from the files with `{repair}`, or restore a backup of the whole archive"


def read_manifest(store: Store) -> Manifest:
    """Return an archive's current manifest; see `parse`."""
    return parse(store, store.read(layout.MANIFEST))


def partition_of(store: Store, wanted: layout.Partition | None) -> layout.Partition:
    """Return the period of a file: the wanted one, else the archive's, else a day."""
    if wanted not in (None, *get_args(layout.Partition)):
        raise ValueError(f'partition must be "day", "month" or "hour", not {wanted!r}')
    if wanted is not None or store.read(layout.MANIFEST) is None:
        return wanted or "day"
    return read_manifest(store).partition


def bound_manifest(store: Store, query: BoundQuery) -> Manifest:
    """Return the manifest of an archive that is bound to a query, or a new one.

    Raises
    ------
    ArchiveError
        If the archive is bound to another query, or the folder has other files.
    """
    content = store.read(layout.MANIFEST)
    if content is None:
        ours = (layout.LOCK, layout.HOLDER)
        others = [x for x in store.names() if x not in ours and not is_leftover(x)]
        if not others:
            return Manifest(query.partition, Evidence(query.filters))
        if not any(name.startswith(layout.CHANGES) for name in others):
            raise ArchiveError(
                f"{store.uri} is not an archive, but has files such as {others[0]}: "
                "name an empty or a new folder"
            )
    manifest = parse(store, content)
    if manifest.query != query:
        raise ArchiveError(
            f"{store.uri} is bound to another query: {manifest.query}, not {query}; export the "
            "same accounts, or into another folder"
        )
    return manifest


def export_command(store: Store, *options: str, url: str | None = None) -> str:
    """Return the command that fills or repairs an archive, ready to paste.

    Parameters
    ----------
    options
        Options besides the archive's filters.
    url
        The node; by default the last run's.
    """
    words = ["balance-analysis", "export", store.uri, url or _last_source(store)]
    with contextlib.suppress(ArchiveError, ValueError, KeyError, TypeError, AttributeError):
        query = msgspec.json.decode(store.read(layout.MANIFEST) or b"{}")["evidence"]["filters"]
        allowed = msgspec.convert(query, Filters).allowed().items()
        for name, values in allowed:
            words += [f"--{name.replace('_', '-')}={value}" for value in values]
    return without_credentials(shlex.join([*words, *options]))


def _last_source(store: Store) -> str:
    for name in sorted(store.names(layout.RUNS), reverse=True):
        with contextlib.suppress(ValueError, LookupError, TypeError, ArchiveError):
            source = str(json.loads(store.read(name) or b"")["source"])
            if source.startswith(("http://", "https://")):  # other sources are segments
                return source
    return "URL"


def current_entries(store: Store, name: str) -> tuple[FileEntry, ...]:
    """Return a file's current entries; ArchiveError if this machine can't reach the archive."""
    content = store.read(layout.MANIFEST)
    if content is None:
        raise ArchiveError(
            f"{platform.node()} can't find {store.uri}/{layout.MANIFEST}: every machine that "
            "works on an archive must reach it, in an object store or in a folder with the same "
            "path on all machines"
        )
    return parse(store, content).entries(name)


def check_not_replaced(store: Store, name: str, entries: tuple[FileEntry, ...]) -> None:
    """Raise SnapshotGoneError if a file's manifest entries have changed."""
    if current_entries(store, name) != entries:
        raise SnapshotGoneError(
            f"{store.uri}/{name} was replaced while the archive was read: read it again"
        )


def lost_files(store: Store, manifest: Manifest) -> list[str]:
    """Return the names of files that are missing or don't have the size that was written.

    Only names and sizes are compared; `verify` reads the files.

    Raises
    ------
    SnapshotGoneError
        If a run has replaced one of them since the manifest was read.
    """
    sizes, pending = store.sizes(), manifest.pending and manifest.pending.name
    committed = manifest.committed.items()
    lost = [x for x, entry in committed if x != pending and sizes.get(x) != entry.size]
    for name in lost:
        check_not_replaced(store, name, manifest.entries(name))
    return lost
