"""The accounts that a command is about: of a file, or of an archive in the same way."""

from __future__ import annotations

import datetime as dt
import errno
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import balance_analysis as ba
from balance_analysis.cli import options
from balance_analysis.cli.output import Messages
from balance_analysis.errors import IncompleteError
from balance_analysis.text import list_text, spans_text, without_credentials

if TYPE_CHECKING:
    import pandas as pd

    from balance_analysis.analysis.history import History
    from balance_analysis.archive.snapshot import Snapshot
    from balance_analysis.archives import Archive
    from balance_analysis.filters import Filters
    from balance_analysis.names import Names


_NAMED: Final = 3
"""How many ids an error names, of those that there are."""


@dataclass(frozen=True, kw_only=True)
class Selection(options.AccountOptions):
    """Which rows of which source, as options say; malformed ones raise before any work."""

    file: options.Source
    since: options.Since = None
    until: options.UntilLast = None
    partial: options.Partial = False

    def __post_init__(self) -> None:
        options.check_is("rows", self.file)
        _ = self.bounds, self.filters

    @cached_property
    def bounds(self) -> dict[str, Any]:
        """The interval as the functions of the library take it."""
        return options.interval(self.since, self.until)

    @cached_property
    def filters(self) -> Filters:
        """Which accounts."""
        from balance_analysis.filters import make_filters

        return make_filters(**{**self.named(), **self.names.keywords()}, ids=self._ids)

    @cached_property
    def names(self) -> Names:
        """What things are called: as the source tells, and files that are given over that."""
        if self.is_archive:
            from balance_analysis.archive.sidecars import read_archive_names

            return self.with_given(read_archive_names(ba.Archive(self.file).store))
        from balance_analysis.files.parquet import read_file_names

        return self.with_given(read_file_names(self.file))

    @property
    def name(self) -> str:
        """What the source is called in messages."""
        return without_credentials(self.file)

    @property
    def is_archive(self) -> bool:
        """Whether the source is an archive, not a file."""
        return "://" in self.file or Path(self.file).is_dir()

    def whole(self) -> Archive | pd.DataFrame:
        """Return the source as an archive, or the table of its file, whatever the filters."""
        return ba.Archive(self.file) if self.is_archive else self._table()

    def asset_name(self, asset_id: str) -> str:
        """Return what an asset can be chosen by: its symbol, if it is known, or its id."""
        known = self.names.assets
        return known.label(asset_id) if asset_id in known else asset_id

    def accounts(self) -> pd.DataFrame:
        """Return the accounts that the filters leave, of those that have a row before the end.

        Raises
        ------
        ValueError
            If a value of a filter leaves none.
        """
        found = self.filters.select(self._accounts(before=self.bounds["end"]))
        if missing := self._missing(found):
            raise ValueError(missing)
        return found

    def read(self, messages: Messages, *, into: Path | None = None) -> History:
        """Return the history of the accounts, and say where a filter leaves none of something.

        Of a file it has all rows of these accounts, whatever the interval: those before it tell
        what accounts bring into it. Of an archive, those of the interval, and what was held before.

        Raises
        ------
        ValueError
            If the filters leave no row at all and what is made of them goes `into` a file, which
            might replace a better one.
        """
        history = self._read_archive(messages) if self.is_archive else self._read_file(messages)
        if self.filters.allowed() and (missing := self._missing(history.accounts)):
            if history.accounts.empty and into is not None:
                raise ValueError(f"{missing}. Nothing is written to {into}")
            messages.say(f"{missing[0].upper()}{missing[1:]}")
        return history

    def _read_file(self, messages: Messages) -> History:
        from balance_analysis.analysis.history import open_history

        table = self._table()
        self._tell_unknown(table, messages)
        return open_history(self.filters.select(table))

    def _tell_unknown(self, table: pd.DataFrame, messages: Messages) -> None:
        """Say what of the interval is known, if that isn't all."""
        from balance_analysis.known import known_of
        from balance_analysis.schema import ATTRS_KEY, to_microseconds
        from balance_analysis.spans import between

        known = known_of(table)
        if known is None:
            return
        asked, extent = table.attrs[ATTRS_KEY], (known[0][0], known[-1][1]) if known else (0, 1)
        start, end = (
            to_microseconds(bound) if (bound := given or asked.get(name)) else otherwise
            for (name, given), otherwise in zip(self.bounds.items(), extent, strict=True)
        )
        if between(known, start, end):
            lacks = "has no interval in which every change is known; all balances are unknown"
            if known:
                lacks = (
                    f"has every change only from {spans_text(known)}; balances at other times are "
                    "unknown"
                )
            messages.say(f"{self.name} {lacks}")

    def _check_is_there(self) -> None:
        if not self.is_archive and not Path(self.file).exists():
            raise FileNotFoundError(errno.ENOENT, "there is no such file or archive", self.file)

    def _table(self) -> pd.DataFrame:
        self._check_is_there()
        return ba.read_parquet(self.file, **self.names.keywords())

    def _read_archive(self, messages: Messages) -> History:
        from balance_analysis.analysis.history import open_history
        from balance_analysis.archive.snapshot import with_snapshot
        from balance_analysis.names import note_names
        from balance_analysis.schema import ATTRS_KEY

        store = ba.Archive(self.file).store
        table = with_snapshot(store, lambda now: self._read_rows(now, messages))
        table.attrs[ATTRS_KEY] = note_names(table.attrs[ATTRS_KEY], self.names)
        return open_history(table)

    def _read_rows(self, snapshot: Snapshot, messages: Messages) -> pd.DataFrame:
        from balance_analysis.archive.snapshot import TAKE

        how = {**self.bounds, "opening": True}
        try:
            return snapshot.read(self.filters, **how)
        except IncompleteError as error:
            if not self.partial:
                raise
            said = str(error).removesuffix(f"; {TAKE}")
            messages.say(f"Incomplete, as --partial allows: {said}")
            return snapshot.read(self.filters, **how, partial=True)

    def _missing(self, found: pd.DataFrame) -> str:
        """Return which of the filters left no account, in words; nothing where none is so."""
        lacks = [
            (name, value)
            for name, values in self.filters.allowed().items()
            for value in values
            if not (found[name] == value).any()
        ]
        if not lacks:
            return ""
        accounts, absent = self._accounts(), []
        for name, value in lacks:
            ids = sorted(set(accounts[name].astype("str")) - {""})
            shown = map(self.asset_name, ids) if name == "asset_id" else ids
            word = name.removesuffix("_id").replace("_", " ")
            rest = f"; it has {list_text([*shown], _NAMED) or 'none'}"
            if value in ids:
                rest = " in this interval with the other filters"
            absent.append(f"no row of {self.name} has the {word} {value}{rest}")
        return "; ".join(absent)

    def _ids(self) -> dict[str, set[str]]:
        accounts = self._accounts()
        return {str(name): {*ids.astype("str")} for name, ids in accounts.items()}

    def _accounts(self, *, before: dt.datetime | None = None) -> pd.DataFrame:
        """Return the accounts that have a row, before a moment if that is given."""
        if self.is_archive:
            from balance_analysis.archive.snapshot import with_snapshot
            from balance_analysis.filters import Filters
            from balance_analysis.frame import frame_of
            from balance_analysis.rows import canonical
            from balance_analysis.schema import to_microseconds
            from balance_analysis.spans import EVER

            last = EVER[1] if before is None else to_microseconds(before) - 1
            store = ba.Archive(self.file).store
            rows = with_snapshot(store, lambda now: now.last_rows(Filters(), last))
            return frame_of(canonical(rows))[ba.ACCOUNT_KEY]
        table = self._table()
        rows = table if before is None else table[table["timestamp"] < before]
        return rows[ba.ACCOUNT_KEY].drop_duplicates()
