"""The views of an archive that may grow, each of one of its states."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec

from balance_analysis.archive.snapshot import LruCache, Snapshot, read_snapshot, with_snapshot
from balance_analysis.archives import Archive
from balance_analysis.errors import SnapshotGoneError
from balance_analysis.explorer.source import KEPT_BYTES, ArchiveState, Check, State, go_on
from balance_analysis.explorer.views import Look, answer
from balance_analysis.explorer.wire import Query
from balance_analysis.names import Names

_STATES: Final = 8
"""So many states can be asked about, the newest of those that were."""


class Explorer:
    """The views of an archive, for any number of threads.

    What exports add meanwhile is there from then on.

    Parameters
    ----------
    archive
        The archive.
    cache
        Where to keep what was read or answered last, in bytes; by default one of its own.
    names
        What assets, parties, markets and accounts are called, besides what the archive tells.
    """

    def __init__(
        self, archive: Archive, *, cache: LruCache | None = None, names: Names | None = None
    ) -> None:
        self._archive, self._names = archive, names or Names()
        self._kept = LruCache(KEPT_BYTES) if cache is None else cache
        self._seen = LruCache(_STATES)

    def encode(self, view: str, query: Query, *, check: Check = go_on) -> bytes:
        """Return one view as JSON, all of it of one state. What was asked for last is kept.

        Parameters
        ----------
        view, query
            Which one, and what it is asked for.
        check
            Called between files and parts; what it raises ends the work, and nothing is kept.

        Raises
        ------
        ViewTooLargeError
            If it needs too many rows.
        SnapshotGoneError
            If the state that it is asked of is gone.
        """

        def read(state: State) -> bytes:
            def make() -> tuple[bytes, int]:
                content = msgspec.json.encode(answer(view, Look(state, query, check)))
                return content, len(content)

            key = state.version, view, replace(query, version="")
            content: bytes = self._kept.get(key, make)
            return content

        version, store = query.version, self._archive.store
        if not version:
            return with_snapshot(store, lambda now: read(self._state(now)))
        found = self._seen.peek(version)
        if found is None and (found := self._state(read_snapshot(store))).version != version:
            raise SnapshotGoneError(store.uri, version)
        return read(found)

    def _state(self, snapshot: Snapshot) -> ArchiveState:
        def make() -> tuple[ArchiveState, int]:
            return ArchiveState(self._archive.at(snapshot), self._kept, self._names), 1

        state: ArchiveState = self._seen.get(snapshot.version, make)
        return state
