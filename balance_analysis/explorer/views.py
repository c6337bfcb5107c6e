"""Compute the explorer's views; balances, sums and deltas come from `analysis`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balance_analysis.analysis.balances import by_size, compare, held_at, holders, largest
from balance_analysis.analysis.flows import AMOUNTS, row_deltas, sum_flows
from balance_analysis.analysis.grid import Grid, fitting_grid, grid_at
from balance_analysis.analysis.history import History
from balance_analysis.analysis.int128 import to_balances
from balance_analysis.analysis.steps import levels_in, thinned
from balance_analysis.analysis.summaries import (
    summarize_accounts,
    summarize_parties,
    time_weighted_average,
)
from balance_analysis.analysis.totals import totals
from balance_analysis.archive.snapshot import LruCache, Snapshot, read_snapshot, with_snapshot
from balance_analysis.archives import Archive
from balance_analysis.errors import SnapshotGoneError
from balance_analysis.explorer import source, wire
from balance_analysis.table.filters import Filters
from balance_analysis.table.frame import BALANCE_DTYPE
from balance_analysis.table.moments import Span, from_microseconds
from balance_analysis.table.names import Asset, Names
from balance_analysis.table.schema import ACCOUNT_KEY
from balance_analysis.table.text import duration_text, printable, short_id, type_label

MOST_LISTED: Final = 2000
"""Maximum rows of a table in an answer; the page says if there are more."""

MOST_FOUND: Final = 30
"""Maximum accounts in a search result."""

PAGE: Final = 200
"""Rows per page of an account."""

_POINTS: Final = 300
"""Maximum points of the totals over a range."""

_BARS: Final = 100
"""Maximum number of periods in a range."""

_STATES: Final = 8
"""Number of recent states kept."""

_PERIODS: Final = ("start", "end", "average", "inflow", "outflow", "net", "changes", "unknown")
_EXPLANATION: Final = (
    *("at", "balance", "why", "carried", "state", "source", "confirmed_by"),
    *("block_height", "first_block_height", "asked_at", "first_asked_at"),
)
_CITED: Final = ("which", "timestamp", "balance", "file")


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """A query to a state.

    Attributes
    ----------
    state, query
        The data and the query.
    check
        Called between files and parts; an error that it raises ends the work.
    """

    state: source.State
    query: wire.Query
    check: source.Check = source.never_cancel

    def rows(
        self, filters: Filters | None = None, span: Span | None = None, edges: source.Edges = None
    ) -> History:
        """Return rows, by default the asset's in the query's range; see `ArchiveState.rows`."""
        filters = filters or Filters(self.query.asset or None)
        span = span or (self.query.start, self.query.end)
        return self.state.rows(filters, span, edges=edges, check=self.check)

    def at(self, moment: int) -> History:
        """Return the rows that give the asset's balances at a moment."""
        return self.rows(span=(moment + 1, moment + 1), edges=np.array([], np.int64))

    def of_accounts(self) -> History:
        """Return the rows of the query's accounts."""
        chosen = self.query.accounts
        assets, kinds, parties, markets = ({*ids} for ids in zip(*chosen, strict=True))
        asset = assets.pop() if len(assets) == 1 else None
        history = self.rows(Filters(asset, *map(tuple, map(sorted, (parties, markets, kinds)))))
        is_chosen = [account in chosen for account in wire.keys_of(history.accounts)]
        return history.select(np.array(is_chosen, bool))

    @property
    def moment(self) -> int:
        """The query's moment, by default the last one."""
        return max(self.state.end - 1, 0) if self.query.at is None else self.query.at


class Explorer:
    """The views of an archive, up to date with its exports; threads may share one instance.

    Parameters
    ----------
    archive
        The archive.
    cache
        A cache for files and answers, sized in bytes.
    names
        Names of assets, parties and markets; they override those in the archive.
    """

    def __init__(self, archive: Archive, cache: LruCache, names: Names) -> None:
        self._archive, self._kept, self._names = archive, cache, names
        self._seen = LruCache(_STATES)

    def encode(self, view: str, query: wire.Query, check: source.Check) -> bytes:
        """Return a view of one state as JSON; recent answers are cached.

        Parameters
        ----------
        view, query
            The view and its parameters.
        check
            Called between files and parts; an error that it raises ends the work, and nothing is
            cached.

        Raises
        ------
        UnknownAssetError, ViewTooLargeError
            As `answer`.
        SnapshotGoneError
            If the query's version no longer exists.
        """

        def read(state: source.State) -> bytes:
            def make() -> tuple[bytes, int]:
                content = msgspec.json.encode(answer(view, ViewRequest(state, query, check)))
                return content, len(content)

            key = state.version, view, replace(query, version="")
            content: bytes = self._kept.get(key, make)
            return content

        version, store = query.version, self._archive.store
        if not version:
            return with_snapshot(store, lambda now: read(self._state(now)))
        kept = self._seen.peek(version)
        if kept is None and (kept := self._state(read_snapshot(store))).version != version:
            raise SnapshotGoneError(f"{store.uri} is no longer in the state {version}")
        return read(kept)

    def _state(self, snapshot: Snapshot) -> source.ArchiveState:
        def make() -> tuple[source.ArchiveState, int]:
            return source.ArchiveState(self._archive.at(snapshot), self._kept, self._names), 1

        state: source.ArchiveState = self._seen.get(snapshot.version, make)
        return state


def answer(view: str, request: ViewRequest) -> dict[str, Any]:
    """Compute a view.

    Raises
    ------
    UnknownAssetError
        If no account has the asset.
    ViewTooLargeError
        If the view needs too many rows, or a sum has more than 38 digits.
    """
    state, query = request.state, request.query
    start, end = max(state.start, query.start), min(state.end, query.end)
    if start >= end:  # the whole range is outside the data
        start, end = query.start, max(query.end, query.start + 1)
    asset = _asset_of(state, query.asset) if "asset" in wire.VIEWS[view][1] else query.asset
    try:
        query = replace(query, start=start, end=end, asset=asset)
        with source.in_silence():
            return _VIEWS[view](replace(request, query=query))
    except OverflowError as error:
        raise source.ViewTooLargeError(refusal(error)) from error


def refusal(error: OverflowError) -> str:
    """Return a sentence that says why a view can't be shown."""
    reason = re.sub(r"\b\w+=(?=')", "", str(error)).partition(", which")[0]
    return f"This can't be shown: {reason}."


def _asset_of(state: source.State, text: str) -> str:
    """Return the id of the asset that a text names, or of the first asset if the text is empty."""
    ids = source.asset_ids(state)
    if text in ids or not (ids and text):
        return text or next(iter(ids), "")
    asset = ""
    with contextlib.suppress(ValueError):
        asset = state.names.find(text, "asset_id", {"asset_id": ids})[0]
    if asset not in ids:
        raise source.UnknownAssetError(
            f"no account has the asset {text[:80]!r}: see /explore/about"
        )
    return asset


def _about(request: ViewRequest) -> dict[str, Any]:
    state, assets = request.state, request.state.names.assets
    ids = source.asset_ids(state)
    labels, names = state.names.shown("asset_id", ids), state.names
    named = {asset: assets.get(asset) or Asset(asset, 0) for asset in ids}
    outline, before = state.outline, max(state.start - 1, 0)
    is_opened = outline.notes.nothing_before and bool(ids)
    is_opened |= bool(held_at(outline, np.array([before]))["balance"].notna().any())
    return {
        "name": state.name,
        "version": state.version,
        "start": state.start,
        "end": state.end,
        "gaps": source.gaps_of(state),
        "completeness": source.completeness(state),
        # The rest of each sentence is advice on loading.
        "left_out": [text.partition(";")[0] for text in outline.sum_warnings],
        "opened": is_opened,
        "labels": names.shown("party_id", names.labels),
        "assets": [
            {
                "id": asset,
                "label": labels[asset],
                "name": named[asset].name,
                "decimals": named[asset].decimals if asset in assets else None,
            }
            for asset in ids
        ],
    }


def _headline(request: ViewRequest) -> dict[str, Any]:
    edges = np.array([request.query.start, request.query.end])
    history, ends = request.rows(edges=edges), [from_microseconds(int(edge) - 1) for edge in edges]
    held = holders(history, ends[1], by="party_id")
    level = _level(history, int(edges[1]) - 1, held, of_parties=True)
    moved = compare(history, at=(ends[0], ends[1]), by="asset_id")
    return {"level": wire.to_records(level), "change": wire.to_records(moved)}


def _level(history: History, at: int, held: pd.DataFrame, *, of_parties: bool) -> pd.DataFrame:
    """Return the asset's total at a moment, and its number of holders."""
    sums = totals(history, by="asset_id", freq=grid_at(np.array([at])))[["total", "unknown"]]
    known = held["balance"].dropna()
    name = "parties" if of_parties else "holders"
    counts = {name: int((known > 0).sum()) if len(known) else None}
    if of_parties:
        counts["unknown_parties"] = int((held["unknown"] > 0).sum())
    columns = {name: pd.Series(count, sums.index, "Int64") for name, count in counts.items()}
    return sums.rename(columns={"unknown": "unknown_accounts"}).assign(**columns)


def _accounts(request: ViewRequest) -> dict[str, Any]:
    last = max(request.state.end - 1, 0)
    held = held_at(request.at(last), np.array([last]))
    rows = held[_has_words(held, request.query.text, request.state.names.labels)]
    listed = largest(rows, rows["balance"], None).head(MOST_FOUND)
    return {"count": len(rows), "accounts": _with_keys(listed, ["balance"])}


def _has_words(accounts: pd.DataFrame, text: str, labels: Mapping[str, str]) -> NDArray[np.bool_]:
    """Return a mask of accounts that have each word of a text in an id, a name or a type."""
    columns = []
    for name in ACCOUNT_KEY[1:]:
        shown = [_searchable(name, category, labels) for category in accounts[name].cat.categories]
        columns.append([shown[code] for code in accounts[name].cat.codes])
    texts = ["\n".join(parts).casefold() for parts in zip(*columns, strict=True)]
    words = {*text.casefold().split()} - {"·"}
    return np.array([all(word in text for word in words) for text in texts], bool)


def _searchable(column: str, text: str, labels: Mapping[str, str]) -> str:
    """Return all texts that the page shows for an id, joined."""
    shown = [text, printable(text), labels.get(text, "")]
    if column == "account_type":
        shown.append(type_label(text))
    if column == "market_id" and text:
        shown.append("market")
    shown.append(printable(short_id(text)))
    return "\n".join(shown)


def _with_keys(frame: pd.DataFrame, names: Iterable[str]) -> wire.Records:
    """Return a frame's columns after a column of account keys."""
    keys = [wire.write_key(account) for account in wire.keys_of(frame)]
    keyed = frame.assign(account=pd.Series(keys, index=frame.index, dtype="str"))
    return wire.to_records(keyed, ["account", *names])


def _holders(request: ViewRequest) -> dict[str, Any]:
    at, by_party = request.moment, bool(request.query.by)
    history, moment = request.at(at), from_microseconds(at)
    ranked = holders(history, moment, by="party_id" if by_party else ACCOUNT_KEY)
    level = wire.to_records(_level(history, at, ranked, of_parties=by_party))
    if by_party:
        names = ("party_id", "balance", "share", "accounts", "unknown")
        listed = wire.to_records(ranked.head(MOST_LISTED), names)
    else:
        held = held_at(history, np.array([at]))
        since = held["since"].array[by_size(held["asset_id"], held["balance"])]
        shown = ranked.assign(since=since).head(MOST_LISTED)
        listed = _with_keys(shown, ("balance", "share", "since"))
    return {"count": len(ranked), "holders": listed, "level": level}


def lines(request: ViewRequest) -> list[dict[str, Any]]:
    """Return the balances of each of a query's accounts, thinned to the query's width."""
    query, since = request.query, request.state.start
    history = request.of_accounts()
    steps = history.over(history.grid(**query.bounds))
    numbers = {key: number for number, key in enumerate(wire.keys_of(history.accounts))}

    def line(account: wire.Key) -> dict[str, Any]:
        number = numbers.get(account, len(steps))
        part = steps.part(number, min(number + 1, len(steps)))
        times, words, is_known, is_opening = levels_in(part, query.start, query.end, since=since)
        kept = thinned(times, is_known, words, columns=query.width)
        balances = pa.array(to_balances(words[kept], is_known[kept]))
        return {
            "key": wire.write_key(account),
            "times": times[kept].tolist(),
            "balances": balances.cast(pa.string()).to_pylist(),
            "opening": is_opening,
            "rows": len(times),
        }

    return [line(account) for account in query.accounts]


def _totals(request: ViewRequest) -> dict[str, Any]:
    _, grid = fitting_grid(request.query.start, request.query.end, _POINTS)
    sums = totals(request.rows(edges=grid.edges), freq=grid)
    names = ("account_type", "timestamp", "total", "known", "unknown")
    return {"totals": wire.to_records(sums, names)}


def _flows(request: ViewRequest) -> dict[str, Any]:
    query, periods = request.query, list[pd.DataFrame]()
    name, grid = fitting_grid(query.start, query.end, _BARS)
    for edges in request.state.parts(query.asset, grid.edges):
        history = request.rows(span=(int(edges[0]), int(edges[-1])))
        periods.append(sum_flows(history, Grid(edges, edges[:-1], grid.zone), ["asset_id"]))
    sums = pd.concat(periods)
    return {
        "freq": name,
        "flows": wire.to_records(sums.drop(columns=["asset_id", "is_known"])),
        "sum": _sum(sums),
    }


def _sum(periods: pd.DataFrame) -> dict[str, Any]:
    """Return the flows of all periods together; unknown unless the whole range is known."""
    changes, unknown = (int(periods[name].fillna(0).sum()) for name in ("changes", "unknown"))
    is_known = len(periods) and periods["is_known"].all() and (changes > 0 or unknown == 0)
    sums = {name: str(sum(map(int, periods[name].dropna()))) for name in AMOUNTS}
    return {name: sums[name] if is_known else None for name in sums} | {"unknown": unknown}


def _movers(request: ViewRequest) -> dict[str, Any]:
    history = request.rows(edges=np.array([request.query.start, request.query.end]))
    names = ["opening", "closing", "net"]
    accounts = summarize_accounts(history, **request.query.bounds, columns=names)
    is_unknown = accounts[names].isna().any(axis=1)
    unknown = int(is_unknown.sum())
    accounts = accounts[~is_unknown & (accounts["net"] != 0).fillna(value=False)]
    listed = largest(accounts, accounts["net"].abs(), None).head(MOST_LISTED)
    moves = zip(listed["opening"], listed["net"], strict=True)
    relative = [int(net) / int(was) if was else np.nan for was, net in moves]
    shown = listed.assign(relative=np.array(relative, np.float64))
    movers = _with_keys(shown, (*names, "relative"))
    return {"count": len(accounts), "unknown": unknown, "movers": movers}


def summaries(request: ViewRequest) -> list[dict[str, wire.Records]]:
    """Return the summary and the periods of each of a query's accounts."""
    history, query = request.of_accounts(), request.query
    _, grid = fitting_grid(query.start, query.end, _BARS)
    average = time_weighted_average(history, freq=grid, partial=True)
    is_known = average["known_share"] == 1
    flowed = sum_flows(history, grid, ACCOUNT_KEY)
    periods = flowed.assign(average=average["average"].where(is_known))
    summary = summarize_accounts(history, **query.bounds)
    edges = np.array([query.start, query.end])
    whole = sum_flows(history, Grid(edges, edges[:-1], grid.zone), ACCOUNT_KEY)
    # Report 0 rows only if the whole interval is known.
    rows = summary["rows"].astype("Int64").where(whole["changes"].notna())
    summary = summary.assign(rows=rows, changes=whole["changes"])
    facts = wire.by_account(summary, [*summary.columns.drop(ACCOUNT_KEY)], query.accounts)
    parts = wire.by_account(periods, _PERIODS, query.accounts)
    return [{"summary": one, "periods": part} for one, part in zip(facts, parts, strict=True)]


def _party(request: ViewRequest) -> dict[str, Any]:
    """Return a party's assets; transfers between its own accounts are in `internal`."""
    history = request.rows(Filters(party_ids=(request.query.party,)))
    assets: list[dict[str, Any]] = []
    for asset in dict.fromkeys(history.accounts["asset_id"].tolist()):
        part = history.select((history.accounts["asset_id"] == asset).to_numpy())
        try:
            assets.append({"id": asset, **_party_asset(part, request.query)})
        except OverflowError as error:
            assets.append({"id": asset, "refused": refusal(error)})
    return {"assets": assets}


def _party_asset(history: History, query: wire.Query) -> dict[str, wire.Records]:
    _, grid = fitting_grid(query.start, query.end, _BARS)
    names = ("opening", "closing", "net", "inflow", "outflow")
    parties = summarize_parties(history, **query.bounds)
    flowed = sum_flows(history, grid, ["asset_id", "party_id"], internal=True)
    return {
        "totals": wire.to_records(parties, ("accounts", *names, "internal")),
        "accounts": _with_keys(summarize_accounts(history, **query.bounds), names),
        "flows": wire.to_records(flowed.drop(columns=["asset_id", "party_id", "is_known"])),
    }


def row_pages(request: ViewRequest) -> list[list[dict[str, Any]]]:
    """Return pages of rows for each of a query's accounts, newest first.

    An account without rows has one empty page.
    """
    start, end = request.query.bounds.values()
    changes = row_deltas(request.of_accounts())
    changes = changes[(changes["timestamp"] >= start) & (changes["timestamp"] < end)].iloc[::-1]
    names = ("timestamp", "balance", "delta")

    def pages(listed: wire.Records) -> list[dict[str, Any]]:
        rows, columns = listed["rows"], listed["columns"]
        parts = [rows[place : place + PAGE] for place in range(0, max(len(rows), 1), PAGE)]
        counts = {"count": len(rows), "pages": -(-len(rows) // PAGE)}
        return [
            {**counts, "page": page, "rows": {"columns": columns, "rows": part}}
            for page, part in enumerate(parts)
        ]

    return [pages(listed) for listed in wire.by_account(changes, names, request.query.accounts)]


def _rows(request: ViewRequest) -> dict[str, Any]:
    """Return a page of an account's rows, or the last page if there are fewer."""
    pages = row_pages(request)[0]
    return pages[min(request.query.page, len(pages) - 1)]


def _explain(request: ViewRequest) -> dict[str, Any]:
    """Return a balance's origin, and the rows around the moment."""
    if not isinstance(request.state, source.ArchiveState):
        return {}
    at = from_microseconds(request.moment)
    explanation = request.state.archive.explain(request.query.accounts[0], at=at)
    cited = {"before": explanation.before, "its own": explanation.row, "after": explanation.after}
    rows = [{"which": name, **asdict(row)} for name, row in cited.items() if row]
    carried = None if explanation.carried is None else duration_text(explanation.carried)
    facts = {**asdict(explanation), "carried": carried}
    for name, ends in (("asked_at", explanation.asked), ("block_height", explanation.heights)):
        facts[f"first_{name}"], facts[name] = ends or (None, None)
    frames = {
        "explanation": pd.DataFrame([facts], columns=_EXPLANATION),
        "cited": pd.DataFrame(rows, columns=_CITED),
    }
    exact = {"balance": BALANCE_DTYPE}
    return {name: wire.to_records(frame.astype(exact)) for name, frame in frames.items()}


_VIEWS: Final[dict[str, Callable[[ViewRequest], dict[str, Any]]]] = {
    "about": _about,
    "version": lambda request: {"version": request.state.version},
    "headline": _headline,
    "accounts": _accounts,
    "holders": _holders,
    "series": lambda request: {"series": lines(request)},
    "totals": _totals,
    "flows": _flows,
    "movers": _movers,
    "account": lambda request: summaries(request)[0],
    "party": _party,
    "rows": _rows,
    "explain": _explain,
    "notes": lambda request: {x: wire.to_records(y) for x, y in request.state.notes.items()},
}
