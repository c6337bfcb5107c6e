"""What a report tells: the rows of an archive or a table, how complete they are, what is computed.

The analysis functions compute it; nothing here is drawn or written.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from balance_analysis.analysis.balances import balance_at
from balance_analysis.analysis.checks import check_table, to_table
from balance_analysis.analysis.concentration import concentration, top_movers
from balance_analysis.analysis.flows import count_active, sum_flows
from balance_analysis.analysis.history import make_history
from balance_analysis.analysis.summary import summarize_accounts
from balance_analysis.archive.archive import to_archive
from balance_analysis.archive.manifest import read_about
from balance_analysis.errors import CheckError
from balance_analysis.known import known_of, note_known
from balance_analysis.report.tables import write_moment
from balance_analysis.schema import (
    ACCOUNT_KEY,
    ATTRS_KEY,
    from_microseconds,
    to_bounds,
    to_microseconds,
)
from balance_analysis.spans import between, clipped
from balance_analysis.text import without_credentials

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from balance_analysis.analysis.history import History
    from balance_analysis.archive.archive import Archive
    from balance_analysis.files.atomic import PathLike
    from balance_analysis.schema import Instant


_MICROSECOND: Final = dt.timedelta(microseconds=1)

Bound = dt.datetime | None


@dataclass(frozen=True, slots=True)
class Source:
    """What a report is made of.

    Attributes
    ----------
    table, opening
        Its balance changes in [start, end), and what accounts held before, as `balance_at` takes
        it; `None` where no row is there.
    start, end
        The interval, half-open, UTC; `None` where there is neither a row nor a bound.
    facts
        What is known of where the rows come from: names and texts.
    is_proven
        Whether something tells which rows may be missing: an archive or a load does.
    checked, problems
        What was checked, in words, and what is wrong.
    coverage, limits
        Of an archive, as its methods of these names return them.
    """

    name: str
    table: pd.DataFrame
    opening: pd.DataFrame | None
    start: Bound
    end: Bound
    facts: tuple[tuple[str, str], ...]
    is_proven: bool
    checked: str
    problems: tuple[str, ...]
    coverage: pd.DataFrame | None = None
    limits: pd.DataFrame | None = None

    @property
    def gaps(self) -> list[tuple[dt.datetime, dt.datetime]]:
        """The parts of the interval that are not known to be complete, in time order."""
        known = known_of(self.table)
        if known is None or self.start is None or self.end is None:
            return []
        spans = between(known, to_microseconds(self.start), to_microseconds(self.end))
        return [(from_microseconds(first), from_microseconds(last)) for first, last in spans]


def read_source(
    source: Archive | PathLike | pd.DataFrame, *, start: Instant | None, end: Instant | None
) -> Source:
    """Read what a report is made of: see `write_report`."""
    bounds = to_bounds(start, end)
    begin, stop = (None if bound is None else from_microseconds(bound) for bound in bounds)
    if isinstance(source, pd.DataFrame):
        return _of_table(source, begin, stop)
    return _of_archive(to_archive(source), begin, stop)


def _of_archive(archive: Archive, start: Bound, end: Bound) -> Source:
    coverage = archive.coverage()
    first, last = coverage["start"].min(), coverage["end"].max()
    is_filled = not coverage.empty
    start = start or (first.to_pydatetime() if is_filled else None)
    end = end or (last.to_pydatetime() if is_filled else None)
    start, end = _interval(start, end)
    opening = None
    if start is not None and is_filled and first < start:
        opening = archive.opening_balances(at=start, partial=True)
    verified = archive.verify()
    return Source(
        name=without_credentials(archive.uri).rstrip("/").rpartition("/")[2] or "an archive",
        table=archive.read(start=start, end=end, partial=True),
        opening=opening,
        start=start,
        end=end,
        facts=tuple(_facts_of(archive, coverage)),
        is_proven=start is not None,
        checked=(
            f"the whole archive was read and compared with what it says of itself: "
            f"{verified.files:,} files with {verified.rows:,} rows, and its checkpoints"
        ),
        problems=tuple(f"{found.where}: {found.what}; {found.mend}" for found in verified.problems),
        coverage=coverage,
        limits=archive.limits(),
    )


def _interval(start: Bound, end: Bound) -> tuple[Bound, Bound]:
    """Return the interval of a report; none where one of its ends is not known."""
    if start is None or end is None:
        return None, None
    if start >= end:
        raise ValueError(
            f"a report must start before it ends, but it would be from {start} to {end}"
        )
    return start, end


def _facts_of(archive: Archive, coverage: pd.DataFrame) -> Iterator[tuple[str, str]]:
    yield "archive", without_credentials(archive.uri)
    yield "holds", read_about(archive.store).describe()
    asked = coverage[coverage["asked_at"].notna()]
    if asked.empty:
        yield "filled", "never"
        return
    last = asked.iloc[asked["asked_at"].argmax()]
    yield "source", without_credentials(last["source"])
    yield "last asked", f"{write_moment(last['asked_at'])} UTC"
    if pd.notna(last["block_height"]):
        yield "last block", f"{last['block_height']:,}"


def _of_table(data: pd.DataFrame, start: Bound, end: Bound) -> Source:
    table, load = to_table(data), _load_of(data)
    first, last = _extent(table, load)
    start, end = _interval(start or first, end or last)
    known, inside, opening = known_of(table), table, None
    if start is not None and end is not None:
        is_before = table["timestamp"] < start
        inside = to_table(table[~is_before & (table["timestamp"] < end)].reset_index(drop=True))
        if known is not None:
            note_known(inside, clipped(known, to_microseconds(start), to_microseconds(end)))
        if is_before.any():
            opening = balance_at(table[is_before], start - _MICROSECOND)
    return Source(
        name="a table of balance changes",
        table=inside,
        opening=opening,
        start=start,
        end=end,
        facts=tuple(_facts_of_load(load)),
        is_proven=known is not None and not load.get("quarantined"),
        checked="every rule of a table of balance changes was checked",
        problems=tuple(_broken_rules(table)),
    )


def _load_of(data: pd.DataFrame) -> dict[str, Any]:
    """Return how a table was loaded, if it is still the whole of that load."""
    load = data.attrs.get(ATTRS_KEY)
    return load if isinstance(load, dict) and load.get("rows") == len(data) else {}


def _extent(table: pd.DataFrame, load: dict[str, Any]) -> tuple[Bound, Bound]:
    if load.get("start") and load.get("end"):
        bounds = [to_microseconds(load["start"]), to_microseconds(load["end"])]
    else:
        bounds = [bound for span in known_of(table) or () for bound in span]
        if not table.empty:
            first, last = table["timestamp"].min(), table["timestamp"].max()
            bounds += [to_microseconds(first), to_microseconds(last) + 1]
    if not bounds:
        return None, None
    return from_microseconds(min(bounds)), from_microseconds(max(bounds))


def _broken_rules(table: pd.DataFrame) -> Iterator[str]:
    try:
        check_table(table)
    except CheckError as error:
        yield str(error)


def _facts_of_load(load: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if not load:
        yield "source", "not known: the table doesn't tell how it was loaded"
        return
    yield "source", without_credentials(str(load.get("source")))
    if load.get("filters"):
        yield "holds", "; ".join(f"{name} {value}" for name, value in load["filters"])
    if load.get("block_height") is not None:
        yield "last block", f"{load['block_height']:,}"
    if load.get("quarantined"):
        yield "bad rows", f"{len(load['quarantined']):,} were put aside and are missing here"


Account = tuple[str, str, str, str]

TOP: Final = 10
"""How many movers are told of each asset, and of how many holders the share."""

MOST_DRAWN: Final = 12
"""How many assets have pictures and sections of accounts at most: those with most rows."""

_SPANS: Final = ((2, "1h"), (93, "1D"), (2 * 366, "W-MON"))
"""Up to how many days each period fits: a picture then has about a hundred bars at most."""


@dataclass(frozen=True, slots=True)
class AssetContent:
    """What is told of one asset.

    Attributes
    ----------
    table, opening
        Its balance changes in the interval, and what its accounts held before.
    summary
        As of `summarize_accounts`, by closing balance, largest first, unknown ones last.
    history, flows
        The table opened, and its flows as of `flows` and `active_accounts`.
    concentration, movers
        As of `concentration` and `top_movers`.
    chosen
        The rows of `summary` that have a section of their own.
    is_drawn
        Whether it has pictures.
    """

    asset_id: str
    table: pd.DataFrame
    opening: pd.DataFrame | None
    summary: pd.DataFrame
    history: History
    flows: pd.DataFrame
    concentration: pd.DataFrame
    movers: pd.DataFrame
    chosen: pd.DataFrame
    is_drawn: bool


@dataclass(frozen=True, slots=True)
class Content:
    """What a report tells.

    Attributes
    ----------
    since
        From when on movers are told: 24 hours before the end.
    freq
        The period of flows.
    are_chosen
        Whether the accounts with sections were chosen by the caller.
    """

    source: Source
    since: dt.datetime | None
    freq: str
    assets: tuple[AssetContent, ...]
    are_chosen: bool


def make_content(
    source: Source, *, accounts: pd.DataFrame | Iterable[Account], largest: int
) -> Content:
    """Compute what a report tells.

    Raises
    ------
    ValueError
        If an account is not in the data, or `largest` is below 0.
    OverflowError
        If a sum has more than 38 digits.
    """
    if largest < 0:
        raise ValueError(f"largest must be at least 0, not {largest}")
    wanted = _to_accounts(accounts)
    start, end = source.start, source.end
    if start is None or end is None:
        _check_known(wanted, ())
        return Content(source, None, "1D", (), are_chosen=bool(wanted))
    since = max(start, end - dt.timedelta(days=1))
    summary = summarize_accounts(source.table, start=start, end=end, opening=source.opening)
    _check_known(wanted, keys_of(summary))
    freq = next((freq for days, freq in _SPANS if end - start <= dt.timedelta(days)), "MS")
    counts = source.table["asset_id"].value_counts()
    grouped = {str(asset): rows for asset, rows in summary.groupby("asset_id", observed=True)}
    busiest = sorted(grouped, key=lambda asset: (-counts.get(asset, 0), asset))[:MOST_DRAWN]
    assets = []
    for asset, rows in grouped.items():
        ranked = rows.sort_values("closing", ascending=False, kind="stable", ignore_index=True)
        is_drawn = asset in busiest
        chosen = _choose(ranked, wanted, largest if is_drawn else 0)
        moments = start, since, end
        assets.append(_of_asset(source, ranked, moments, freq, chosen, is_drawn=is_drawn))
    return Content(source, since, freq, tuple(assets), are_chosen=bool(wanted))


def _to_accounts(accounts: pd.DataFrame | Iterable[Account]) -> list[Account]:
    if isinstance(accounts, pd.DataFrame):
        accounts = keys_of(accounts)
    if isinstance(accounts, str):
        raise TypeError(f"accounts must be frames or tuples of {ACCOUNT_KEY}, not {accounts!r}")
    found = list(dict.fromkeys(accounts))
    for account in found:
        if len(account) != len(ACCOUNT_KEY) or not all(isinstance(key, str) for key in account):
            raise ValueError(f"an account is the four texts {ACCOUNT_KEY}, not {account!r}")
    return found


def keys_of(frame: pd.DataFrame) -> list[Account]:
    """Return the account of each row."""
    return list(frame[ACCOUNT_KEY].astype("str").itertuples(index=False, name=None))


def _check_known(wanted: Sequence[Account], known: Iterable[Account]) -> None:
    missing = sorted(set(wanted) - set(known))
    if missing:
        raise ValueError(
            f"{len(missing)} of the accounts are not in the data, the first {missing[0]}: take "
            "them from the summary of this archive or table"
        )


def _choose(ranked: pd.DataFrame, wanted: Sequence[Account], largest: int) -> pd.DataFrame:
    if not wanted:
        return ranked.head(largest)
    rows = {key: row for row, key in enumerate(keys_of(ranked))}
    return ranked.iloc[[rows[account] for account in wanted if account in rows]]


def _of_asset(
    source: Source,
    summary: pd.DataFrame,
    moments: tuple[dt.datetime, dt.datetime, dt.datetime],
    freq: str,
    chosen: pd.DataFrame,
    *,
    is_drawn: bool,
) -> AssetContent:
    start, since, end = moments
    asset = str(summary["asset_id"].iloc[0])
    table = _only(source.table, asset)
    opening = None if source.opening is None else _only(source.opening, asset)
    # Where nothing is missing, the last period is whole: it ends where the calendar's does.
    until = end if source.gaps else None
    history = make_history(table, opening, None, freq=freq, end=until)
    active = count_active(history, "asset_id")
    flowed = sum_flows(history, "asset_id")
    ends = [moment - _MICROSECOND for moment in (since, end) if moment > start]
    return AssetContent(
        asset_id=asset,
        table=table,
        opening=opening,
        summary=summary,
        history=history,
        flows=flowed.merge(active, on=["asset_id", "start", "end"], how="left"),
        concentration=concentration(table, ends, n=TOP, opening=opening),
        movers=top_movers(table, since, end, TOP, opening=opening),
        chosen=chosen,
        is_drawn=is_drawn,
    )


def _only(frame: pd.DataFrame, asset: str) -> pd.DataFrame:
    rows = frame[frame["asset_id"] == asset].reset_index(drop=True)
    for name in ACCOUNT_KEY:
        rows[name] = rows[name].cat.remove_unused_categories()
    return rows
