"""The rows that a command is about: of a file, or of an archive in the same way."""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from balance_analysis.errors import ArchiveError, BalanceAnalysisError, IncompleteError
from balance_analysis.text import without_credentials

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Collection, Mapping

    import pandas as pd

    from balance_analysis.archive.archive import Archive
    from balance_analysis.filters import Filters

_WORDS: Final = {
    "asset_id": "asset",
    "party_id": "party",
    "market_id": "market",
    "account_type": "account type",
}
_ELLIPSES: Final = ("…", "...")
_NAMED: Final = 3
"""How many ids an error names that may have been meant."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of accounts, and what these held before.

    Attributes
    ----------
    table
        A table, whose attrs tell what is known.
    opening
        What the accounts held before it, as the functions of the library take it; `None` where the
        table tells that.
    """

    table: pd.DataFrame
    opening: pd.DataFrame | None

    def accounts(self) -> pd.DataFrame:
        """Return the ids of all accounts, maybe some of them twice."""
        import pandas as pd

        from balance_analysis.schema import ACCOUNT_KEY

        frames = [self.table, *([] if self.opening is None else [self.opening])]
        distinct = [frame[list(ACCOUNT_KEY)].drop_duplicates() for frame in frames]
        return pd.concat([accounts.astype("str") for accounts in distinct])

    def only(self, **ids: str) -> Rows:
        """Return those of the accounts that have some ids."""
        table, opening = self.table, self.opening
        for name, value in ids.items():
            table = table[table[name] == value]
            opening = None if opening is None else opening[opening[name] == value]
        return Rows(table, opening)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which rows of which source.

    Attributes
    ----------
    source
        A file, or an archive's address.
    filters
        Which accounts.
    start, end
        The interval, [start, end); `None` where it isn't bounded.
    partial
        Whether to take what there is where an archive isn't complete.
    say
        Says a line to the person at the terminal.
    """

    source: str
    filters: Filters
    start: dt.datetime | str | None
    end: dt.datetime | str | None
    partial: bool
    say: Callable[[str], None]

    @property
    def name(self) -> str:
        """What the source is called in messages."""
        return without_credentials(self.source)

    def bounds(self) -> dict[str, Any]:
        """Return the interval as the functions of the library take it."""
        return {"start": self.start, "end": self.end}

    def moments(self) -> tuple[dt.datetime | None, dt.datetime | None]:
        """Return the interval as moments in UTC."""
        from balance_analysis.schema import from_microseconds, to_microseconds

        start, end = (
            None if bound is None else from_microseconds(to_microseconds(bound))
            for bound in (self.start, self.end)
        )
        return start, end

    def whole(self) -> Archive | pd.DataFrame:
        """Return the source as an archive, or the table of its file, whatever the filters."""
        if is_archive(self.source):
            from balance_analysis.archive.archive import Archive

            return Archive(self.source)
        from balance_analysis.files.parquet import read_parquet

        return read_parquet(self.source)

    def archive(self, what: str) -> Archive:
        """Return the source as the archive that something needs.

        Raises
        ------
        ArchiveError
            If it is a file.
        """
        if not is_archive(self.source):
            raise ArchiveError(f"{self.name} is a file; only an archive has {what}")
        from balance_analysis.archive.archive import Archive

        return Archive(self.source)

    def accounts(self) -> pd.DataFrame:
        """Return the accounts that the filters leave, of those that have a row before the end.

        Raises
        ------
        ValueError
            If a value of a filter leaves none.
        """
        _, end = self.moments()
        found = self.filters.select(_accounts(self.source, before=end))
        if lacks := self._lacks(found):
            raise ValueError("; ".join(lacks))
        return found

    def read(self, *, into: Path | None = None) -> Rows:
        """Return the rows; where a filter leaves none of something, that is said.

        Of a file, these are all that the filters leave, whatever the interval: those before it tell
        what accounts bring into it. Of an archive, those of the interval, and what was held before.

        Raises
        ------
        ValueError
            If the filters leave no row at all and what is made of them goes `into` a file, which
            might replace a better one.
        """
        rows = self._read_archive() if is_archive(self.source) else self._read_file()
        if not self.filters.allowed():
            return rows
        accounts = rows.accounts()
        lacks = "; ".join(self._lacks(accounts))
        if lacks and accounts.empty and into is not None:
            raise ValueError(f"{lacks}. Nothing is written to {into}")
        if lacks:
            self.say(f"{lacks[0].upper()}{lacks[1:]}")
        return rows

    def _read_file(self) -> Rows:
        from balance_analysis.files.parquet import read_parquet

        table = read_parquet(self.source)
        self._tell_unknown(table)
        return Rows(self.filters.select(table), None)

    def _tell_unknown(self, table: pd.DataFrame) -> None:
        """Say what of the interval is known, if that isn't all."""
        from balance_analysis.known import known_of
        from balance_analysis.schema import ATTRS_KEY, to_microseconds
        from balance_analysis.spans import between
        from balance_analysis.text import spans_text

        known = known_of(table)
        if known is None:
            return
        load, extent = table.attrs[ATTRS_KEY], (known[0][0], known[-1][1]) if known else (0, 1)
        asked = self.start or load.get("start"), self.end or load.get("end")
        start, end = (
            otherwise if bound is None else to_microseconds(bound)
            for bound, otherwise in zip(asked, extent, strict=True)
        )
        if between(known, start, end):
            told = f"is known in {spans_text(known)} only" if known else "may be missing"
            self.say(f"{self.name}: every change {told}; what may have changed since is unknown")

    def _read_archive(self) -> Rows:
        from balance_analysis.archive.archive import Archive
        from balance_analysis.schema import from_microseconds, to_microseconds

        archive, wanted = Archive(self.source), asdict(self.filters)
        try:
            table = archive.read(**self.bounds(), **wanted)
        except IncompleteError as error:
            if not self.partial:
                raise
            self.say(f"Incomplete, as --partial allows: {error}")
            table = archive.read(**self.bounds(), partial=True, **wanted)
        if self.start is None:
            return Rows(table, None)
        before = from_microseconds(to_microseconds(self.start) - 1)
        return Rows(table, archive.balance_at(before, partial=True, **wanted))

    def _lacks(self, found: pd.DataFrame) -> list[str]:
        """Return which of the filters left no account, in words."""
        lacks = [
            (name, value)
            for name, values in self.filters.allowed().items()
            for value in values
            if not (found[name] == value).any()
        ]
        if not lacks:
            return []
        accounts = _accounts(self.source)
        unknown = [pair for pair in lacks if not (accounts[pair[0]] == pair[1]).any()]
        if not unknown and found.empty:
            return [f"no row of {self.name} matches the filters in this interval"]
        return [
            f"no row of {self.name} is of {_WORDS[name]} {value}{_hint(value, accounts[name])}"
            for name, value in unknown or lacks
        ]


def make_selection(
    source: str,
    asset_id: str | None,
    party_id: list[str] | None,
    market_id: list[str] | None,
    account_type: list[str] | None,
    *,
    start: dt.datetime | str | None,
    end: dt.datetime | str | None,
    partial: bool,
    say: Callable[[str], None],
) -> Selection:
    """Return what a command's options select.

    Raises
    ------
    ValueError
        If a bound or a filter is malformed; of a shortened id it says which ones it may be.
    """
    from balance_analysis.filters import make_filters

    try:
        filters = make_filters(
            asset_id=asset_id,
            party_ids=party_id or (),
            market_ids=market_id or (),
            account_types=account_type or (),
        )
    except ValueError as error:
        wanted = {"party_id": party_id or (), "market_id": market_id or ()}
        raise ValueError(f"{error}{_shortened(source, wanted)}") from error
    bounds = {"start": start, "end": end}
    selection = Selection(source=source, filters=filters, **bounds, partial=partial, say=say)
    selection.moments()  # raises before any work
    return selection


def is_archive(source: str) -> bool:
    """Whether a source of rows is an archive, not a file."""
    return "://" in source or Path(source).is_dir()


def _accounts(source: str, *, before: dt.datetime | None = None) -> pd.DataFrame:
    """Return the accounts of a source that have a row, before a moment if that is given."""
    from balance_analysis.schema import ACCOUNT_KEY

    if is_archive(source):
        from balance_analysis.archive.archive import Archive

        archive = Archive(source)
        end = archive.coverage()["end"].max() if before is None else before
        return archive.balance_at(end, partial=True)[list(ACCOUNT_KEY)]
    from balance_analysis.files.parquet import read_parquet

    table = read_parquet(source)
    rows = table if before is None else table[table["timestamp"] < before]
    return rows[list(ACCOUNT_KEY)].drop_duplicates()


def _shortened(source: str, wanted: Mapping[str, Collection[str]]) -> str:
    """Return a hint to ids of a source that are shortened, as tables and figures show them."""
    try:
        accounts = _accounts(source)
    except (BalanceAnalysisError, OSError, ValueError):
        return ""
    return next(
        (
            hint
            for name, values in wanted.items()
            for value in values
            if (hint := _hint(value, accounts[name]))
        ),
        "",
    )


def _hint(value: str, column: pd.Series[str]) -> str:
    """Return which ids of a column somebody may have meant, as the end of an error."""
    ids = sorted(set(column.astype("str")) - {"", value})
    head, tail = next(
        (value.split(sign, 1) for sign in _ELLIPSES if sign in value), [value.lower(), ""]
    )
    near = [known for known in ids if known.startswith(head) and known.endswith(tail)]
    near = near or difflib.get_close_matches(value, ids, n=_NAMED)
    if not near and len(ids) <= _NAMED:
        return f"; it has {', '.join(ids)}" if ids else ""
    return f"; did you mean {' or '.join(near[:_NAMED])}?" if near else ""
