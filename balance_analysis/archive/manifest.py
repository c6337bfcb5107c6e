"""What an archive is bound to and what it holds, as its two files tell."""

from __future__ import annotations

import contextlib
import json
import platform
import shlex
from dataclasses import asdict, dataclass, field, fields
from typing import Final, get_args

import msgspec

from balance_analysis.archive import layout
from balance_analysis.archive.coverage import (
    Coverage,
    FileEntry,
    LimitsNote,
    from_json,
    to_json,
)
from balance_analysis.archive.store import Store, is_leftover
from balance_analysis.errors import ArchiveDamagedError, ArchiveError, SnapshotGoneError
from balance_analysis.filters import Filters
from balance_analysis.schema import from_microseconds
from balance_analysis.text import without_credentials

Notes = tuple[FileEntry, ...] | tuple[LimitsNote, ...]
"""What a file may be: one of these."""

FORMAT_VERSION: Final = 2
"""What is made. An archive keeps its version for life; in version 1, what holds no rows has names
that other engines, pointed at the archive, take as rows."""

_EQUAL: Final = (
    "put back a copy of it; an export of the same query into an empty folder writes the same file"
)


@dataclass(frozen=True, slots=True)
class ArchiveSpec:
    """What an archive is bound to, from its first run on: which accounts, and a file's period."""

    filters: Filters
    partition: layout.Partition
    version: int = field(default=FORMAT_VERSION, compare=False)

    @property
    def limits(self) -> str:
        """The name of the file of the network's limits."""
        return "_limits.parquet" if self.version > 1 else "limits.parquet"

    @property
    def checkpoints(self) -> str:
        """The folder of the balances at months' starts."""
        return "_checkpoints/" if self.version > 1 else "checkpoints/"

    def checkpoint_file(self, moment: int) -> str:
        """Return the name of the file of the balances at a month's start, in microseconds.

        It is Parquet. Engines that take names with an underscore go by its ending.
        """
        ending = "pq" if self.version > 1 else "parquet"
        return f"{self.checkpoints}{from_microseconds(moment):%Y-%m-%d}.{ending}"

    def describe(self) -> str:
        """Return it in words."""
        allowed = self.filters.allowed().items()
        accounts = "; ".join(f"{name} {', '.join(values)}" for name, values in allowed)
        return f"{accounts or 'all accounts'}, a file for each {self.partition}"

    def check_holds(self, wanted: Filters) -> None:
        """Raise ArchiveError if accounts are asked for that the archive isn't bound to."""
        for name, values in self.filters.allowed().items():
            others = sorted(set(wanted.allowed().get(name, ())) - set(values))
            if others:
                raise ArchiveError(
                    f"the archive holds only accounts of {name} {', '.join(values)}, not "
                    f"{others[0]}"
                )


def check_seen(store: Store, name: str) -> None:
    """Raise ArchiveError if a file that an archive has is not there, on this machine."""
    if store.read(name) is None:
        raise ArchiveError(
            f"{platform.node()} does not find {store.uri}/{name}: every machine that works on an "
            "archive must reach it, in an object store or in a folder with the same path on all"
        )


def read_about(store: Store) -> ArchiveSpec:
    """Return what an archive is bound to.

    Raises
    ------
    ArchiveError
        If there is none, it is damaged, or of a newer version.
    """
    return to_about(store, store.read(layout.ABOUT))


def to_about(store: Store, content: bytes | None) -> ArchiveSpec:
    """Return what an archive is bound to, as its file tells: see `read_about`."""
    where = f"{store.uri}/{layout.ABOUT}"
    if content is None:
        _check_not_lost(store)
        why = f"it has no {layout.ABOUT}"
        if store.folder is not None and not store.folder.exists():
            why = "there is no such folder"
        raise ArchiveError(f"{store.uri} is no archive: {why}; export makes one")
    try:
        found = msgspec.json.decode(content)
        if found["format_version"] > FORMAT_VERSION:
            raise ArchiveError(
                f"{where} has format {found['format_version']}, which is newer than this package "
                f"reads ({FORMAT_VERSION}): update balance-analysis"
            )
        query = {each.name: found["query"][each.name] for each in fields(Filters)}
        how = {"partition": found["partition"], "version": found["format_version"]}
        return msgspec.convert({"filters": query, **how}, ArchiveSpec)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArchiveDamagedError(f"{where} is damaged ({error}): {_EQUAL}") from error


def _check_not_lost(store: Store) -> None:
    """Raise if there is a coverage: of more than nothing, which a run leaves that made no more."""
    content = store.read(layout.COVERAGE)
    try:
        if content is None or from_json(content, layout.COVERAGE).is_empty:
            return
    except ArchiveError:
        pass
    raise ArchiveDamagedError(f"{store.uri} has lost its {layout.ABOUT}: {_EQUAL}")


def partition_of(store: Store, wanted: layout.Partition | None) -> layout.Partition:
    """Return what a file is to hold: what is wanted, else as an archive has it, else a day."""
    if wanted not in (None, *get_args(layout.Partition)):
        raise ValueError(f'partition must be "day", "month" or "hour", not {wanted!r}')
    if wanted is not None or store.read(layout.ABOUT) is None:
        return wanted or "day"
    return read_about(store).partition


def check_empty(store: Store) -> None:
    """Raise ArchiveError if an archive can't be made here, as there are other files."""
    _check_not_lost(store)
    ours = (layout.COVERAGE, layout.LOCK, layout.HOLDER)
    strangers = [name for name in store.names() if name not in ours and not is_leftover(name)]
    if strangers:
        raise ArchiveError(
            f"{store.uri} is no archive, but has files such as {strangers[0]}: "
            "name an empty or a new folder"
        )


def check_bound(store: Store, about: ArchiveSpec) -> bool:
    """Return whether there is no archive yet; raise ArchiveError if it is bound to something else.

    It raises as well where an archive can't be made, as there are other files.
    """
    if store.read(layout.ABOUT) is None:
        check_empty(store)
        return True
    bound = read_about(store)
    if bound != about:
        raise ArchiveError(
            f"{store.uri} is bound to another query: {bound.describe()}, not "
            f"{about.describe()}; export the same, or into another folder"
        )
    return False


def write_about(store: Store, about: ArchiveSpec) -> None:
    """Make an empty archive; where other files are, raise ArchiveError."""
    check_empty(store)
    content = {
        "format_version": about.version,
        "query": asdict(about.filters),
        "partition": about.partition,
    }
    store.write(layout.COVERAGE, to_json(Coverage()))
    store.write(layout.ABOUT, (json.dumps(content, indent=1) + "\n").encode())


def to_state(
    store: Store, about: bytes | None, coverage: bytes | None
) -> tuple[ArchiveSpec, Coverage]:
    """Return what an archive is bound to, and what it holds, as its two files tell."""
    return to_about(store, about), to_coverage(store, coverage)


def to_coverage(store: Store, content: bytes | None) -> Coverage:
    """Return what an archive holds, as its file tells.

    Raises
    ------
    ArchiveError
        If there is none, or it is damaged.
    """
    said, cause = f"{store.uri} has lost its {layout.COVERAGE}", None
    if content is not None:
        try:
            return from_json(content, f"{store.uri}/{layout.COVERAGE}")
        except ArchiveDamagedError as error:
            said, cause = str(error), error
    mend = export_command(store, "--repair")
    raise ArchiveDamagedError(
        f"{said}: put back a copy of it, or rebuild it from the files with `{mend}`"
    ) from cause


def export_command(store: Store, *options: str, url: str | None = None) -> str:
    """Return the command that fills or mends an archive, as it can be pasted.

    Parameters
    ----------
    options
        What it needs besides the archive's own filters.
    url
        The node; by default the one that a run asked last.
    """
    words = ["balance-analysis", "export", url or _last_source(store), store.uri]
    with contextlib.suppress(ArchiveError):
        for name, values in read_about(store).filters.allowed().items():
            words += [f"--{name.replace('_', '-')}={value}" for value in values]
    return without_credentials(shlex.join([*words, *options]))


def _last_source(store: Store) -> str:
    for name in sorted(store.names(layout.RUNS), reverse=True):
        with contextlib.suppress(ValueError, LookupError, TypeError, ArchiveError):
            source = str(json.loads(store.read(name) or b"")["source"])
            if source.startswith(("http://", "https://")):  # others are of segments
                return source
    return "URL"


def noted_files(about: ArchiveSpec, state: Coverage) -> dict[str, Notes]:
    """Return what each file may be, by its name: as it is noted, or as it is being replaced."""
    periods = [*state.files, *([state.pending.period] if state.pending else [])]
    files = {layout.changes_file(p, about.partition): state.notes(p) for p in periods}
    checkpoints = {about.checkpoint_file(m): (note,) for m, note in state.checkpoints.items()}
    return {**files, **checkpoints, about.limits: state.limits_notes}


def noted_now(store: Store) -> dict[str, Notes]:
    """Return what each file may be by now."""
    return noted_files(*to_state(store, store.read(layout.ABOUT), store.read(layout.COVERAGE)))


def check_not_replaced(store: Store, name: str, notes: Notes) -> None:
    """Raise SnapshotGoneError if a file may be something else by now than what was noted of it."""
    if noted_now(store).get(name, ()) != notes:
        raise SnapshotGoneError(
            f"{store.uri}/{name} was replaced while the archive was read: read it again"
        )


def lost_files(store: Store, about: ArchiveSpec, state: Coverage) -> list[str]:
    """Return the files that are gone, or of another size than what was written.

    A look at names and sizes alone, which costs one listing; `verify` reads them.
    """
    sizes = store.sizes(layout.CHANGES) | store.sizes(about.checkpoints)
    expected = noted_files(about, state)
    expected.pop(about.limits)
    if state.pending is not None:
        expected.pop(layout.changes_file(state.pending.period, about.partition))
    lost = [n for n, notes in expected.items() if sizes.get(n) not in [x.size for x in notes]]
    return lost + [about.limits] * (state.snapshots > 0 and not store.has(about.limits))
