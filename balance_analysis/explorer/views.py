"""What the explorer shows, view by view, as JSON has it; every number is one of `analysis`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from balance_analysis.analysis.balances import held_at
from balance_analysis.analysis.downsampling import downsample_steps
from balance_analysis.analysis.flows import sum_flows
from balance_analysis.analysis.grid import Grid, fitting_grid
from balance_analysis.analysis.history import History
from balance_analysis.analysis.holders import by_size, holders, largest
from balance_analysis.analysis.periods import summarize_accounts
from balance_analysis.analysis.steps import Steps
from balance_analysis.analysis.totals import totals
from balance_analysis.explorer.frames import (
    BARS,
    ROW_COLUMNS,
    SUMMARY,
    account_names,
    find_rows,
    has_text,
    steps_of,
    sum_up,
    tell_accounts,
    tell_level,
    tell_origin,
    tell_parties,
    with_keys,
)
from balance_analysis.explorer.source import (
    Also,
    ArchiveState,
    Check,
    Edges,
    State,
    UnknownAssetError,
    completeness,
    go_on,
)
from balance_analysis.explorer.wire import (
    Key,
    Query,
    amounts,
    keys_of,
    records_by,
    to_records,
    write_key,
)
from balance_analysis.filters import Filters
from balance_analysis.names import Asset, find_ids, one_of
from balance_analysis.schema import ACCOUNT_KEY, from_microseconds
from balance_analysis.spans import Span, between

MOST_LISTED: Final = 5000
"""Rows of a table that an answer has at most; the page says where there are more."""

PAGE: Final = 200
"""Rows of an account on one page."""

_POINTS = 300

OF_ASSETS: Final = ("headline", "accounts", "holders", "totals", "flows", "movers")
"""The views of an asset."""

_STEP_BYTES: Final = 40
_STEPS_BYTES: Final = 4000


@dataclass(frozen=True, slots=True)
class Look:
    """One question to one state.

    Attributes
    ----------
    state, query
        What is looked at, and what is asked.
    check
        What ends the answer where nobody waits for it any more: see `ArchiveState`.
    most
        Rows of a table of accounts that an answer has at most.
    """

    state: State
    query: Query
    check: Check = go_on
    most: int = MOST_LISTED

    def rows(self, span: Span, *, edges: Edges = None, also: Also = None) -> History:
        """Return what is told of all accounts of the asset, or of all: see `ArchiveState`."""
        filters, check = Filters(self.query.asset or None), self.check
        return self.state.rows(filters, span, edges=edges, also=also, check=check)

    def of(self, accounts: Sequence[Key], start: int) -> History:
        """Return what is told from a moment on of some accounts; others may be there."""
        assets, kinds, parties, markets = zip(*accounts, strict=True)
        asset = assets[0] if len({*assets}) == 1 else None
        filters = Filters(asset, *(tuple(set(ids)) for ids in (parties, markets, kinds)))
        span = start, self.query.end
        return self.state.rows(filters, span, edges=None, also=None, check=self.check)

    def at(self, moment: int) -> History:
        """Return what tells what every account of the asset, or of all, held at a moment."""
        return self.rows((moment, moment + 1), edges=np.array([moment + 1]))

    @property
    def last(self) -> int:
        """The last moment that there is."""
        return max(self.state.end - 1, 0)


def answer(view: str, look: Look) -> dict[str, Any]:
    """Return one view; of those of an asset that of the one asked for, or else of the first.

    Raises
    ------
    UnknownAssetError
        If there is no account of the asset.
    """
    if view not in OF_ASSETS:
        return _TELL[view](_cut(look))
    asset = _asset_of(look)
    return answers(view, replace(look, query=replace(look.query, asset=asset)), [asset])[asset]


def _asset_of(look: Look) -> str:
    ids, asked = look.state.asset_ids(), look.query.asset
    if asked in ids or not (ids and asked):
        return asked or next(iter(ids), "")
    symbols = look.state.assets.symbols()
    called = {one: symbols.get(one, "") for one in ids}
    try:
        return one_of(find_ids(asked, "asset", called), asked, "asset", called)
    except ValueError as error:
        raise UnknownAssetError(
            f"there is no account of an asset {asked[:80]!r}: ask /explore/about for the assets"
        ) from error


def answers(view: str, look: Look, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return one of the views of an asset, for each of some: all of them are told together."""
    found = _TELL[view](_cut(look))
    frames = {name: part for name, part in found.items() if isinstance(part, pd.DataFrame)}
    records = records_by(frames, "asset_id", ids)
    counts = {name: part for name, part in found.items() if isinstance(part, pd.Series)}
    rest = {name: part for name, part in found.items() if isinstance(part, str)}
    return {
        asset: {**records[asset], **rest}
        | {name: int(part.get(asset, 0)) for name, part in counts.items()}
        for asset in ids
    }


def _about(look: Look) -> dict[str, Any]:
    state, assets = look.state, look.state.assets
    ids = state.asset_ids()
    labels = assets.labels(ids)
    told = {one: assets.get(one) or Asset(one, 0) for one in ids}
    before = max(state.start - 1, 0)
    opened = _are_known(Look(state, Query()).at(before), before)
    return {
        "name": state.name,
        "version": state.version,
        "start": state.start,
        "end": state.end,
        "gaps": [] if state.known is None else between(state.known, state.start, state.end),
        "completeness": completeness(state),
        "left_out": state.left_out,
        "opened": opened,
        "labels": {
            **state.labels.shown(state.labels.ids()),
            **{write_key(one): label for one, label in account_names(state.labels)},
        },
        "assets": [
            {
                "id": one,
                "label": labels[one],
                "name": told[one].name,
                "decimals": told[one].decimals if one in assets else None,
            }
            for one in ids
        ],
    }


def _version(look: Look) -> dict[str, Any]:
    return {"version": look.state.version}


def _headline(look: Look) -> dict[str, Any]:
    start, end = look.query.start, look.query.end
    history = look.rows((start, end), edges=np.array([start, end]))
    ends = [each for each in (max(start - 1, 0), end - 1) if _are_known(history, each)]
    parts = []
    for at in ends or [end - 1]:
        parties = holders(history, from_microseconds(at), by="party_id")
        parts.append(tell_level(history, at, parties))
    names = {"holders": "parties", "unknown_holders": "unknown_parties"}
    return {"headline": pd.concat(parts).rename(columns=names)}


def _are_known(history: History, at: int) -> bool:
    return bool(held_at(history, from_microseconds(at))["balance"].notna().any())


def _accounts(look: Look) -> dict[str, Any]:
    held = held_at(look.at(look.last), from_microseconds(look.last))
    rows = held[has_text(held, look.query.text, look.state.labels)]
    listed = largest(rows, rows["balance"], look.most)
    return {"count": rows["asset_id"].value_counts(), "accounts": with_keys(listed, ["balance"])}


def _holders(look: Look) -> dict[str, Any]:
    at = look.last if look.query.at is None else look.query.at
    history, moment = look.at(at), from_microseconds(at)
    found = holders(history, moment, by="party_id" if look.query.by else ACCOUNT_KEY)
    level = tell_level(history, at, found)[["asset_id", "total", "holders", "unknown"]]
    listed = found.drop(columns="cumulative_share")
    if not look.query.by:
        held = held_at(history, moment)
        since = held["since"].array[by_size(held["asset_id"], held["balance"])]
        listed = with_keys(listed.assign(since=since), ("balance", "share", "since"))
    listed = listed.groupby("asset_id", observed=True).head(look.most)
    return {"accounts": found["asset_id"].value_counts(), "holders": listed, "level": level}


def _series(look: Look) -> dict[str, Any]:
    query, steps = look.query, _steps(look)
    lines = {one: draw_line(steps[one], look) for one in query.accounts}
    return {"series": [{"key": write_key(one), **lines[one]} for one in query.accounts]}


def _steps(look: Look) -> dict[Key, Steps]:
    """Return accounts as steps in the range; files are read once for those of an asset."""
    query, version, cache = look.query, look.state.version, look.state.kept
    found: dict[Key, Steps] = {}
    for account in query.accounts:
        kept = cache.peek((version, account))
        if kept is not None and kept[0] <= query.start and query.end <= kept[1]:
            found[account] = kept[2]
    missing = [account for account in query.accounts if account not in found]
    for asset in {account[0] for account in missing}:
        own = [account for account in missing if account[0] == asset]
        for account, steps in steps_of(look.of(own, query.start), query, own).items():
            found[account] = steps
            kept = query.start, query.end, steps
            cache.put((version, account), kept, len(steps.times) * _STEP_BYTES + _STEPS_BYTES)
    return found


def _summary(look: Look) -> dict[str, Any]:
    query = look.query
    if not query.accounts:
        return {}
    assets = {account[0] for account in query.accounts}
    whole = replace(look, query=replace(query, asset=assets.pop() if len(assets) == 1 else ""))
    found = sum_up(look.of(query.accounts, query.start), shares_at(whole, query.end - 1), query)
    own = found[np.array([key in query.accounts for key in keys_of(found)], bool)]
    return {"summary": to_records(with_keys(own, SUMMARY).drop(columns="asset_id"))}


def _totals(look: Look) -> dict[str, Any]:
    query = look.query
    _, grid = fitting_grid(query.start, query.end, _POINTS)
    found = totals(look.rows((query.start, query.end), edges=grid.edges), freq=grid)
    names = ["asset_id", "account_type", "timestamp", "total", "known", "unknown"]
    return {"totals": found[names]}


def _flows(look: Look) -> dict[str, Any]:
    query, found = look.query, []
    name, grid = fitting_grid(query.start, query.end, BARS)
    also: Also = None
    # A row of the last part, so that the asset is there in the parts before its first row.
    for edges in reversed(look.state.parts(grid.edges)):
        history = look.rows((int(edges[0]), int(edges[-1])), also=also)
        also = history.rows.iloc[:1]
        part = Grid(edges, edges[:-1], grid.zone)
        found.append(sum_flows(history, part, "asset_id", full=True))
    return {"freq": name, "flows": pd.concat(found[::-1]) if found[1:] else found[0]}


def _movers(look: Look) -> dict[str, Any]:
    bounds = look.query.start, look.query.end
    history = look.rows(bounds, edges=np.array(bounds))
    columns = ["opening", "closing", "net"]
    found = summarize_accounts(history, **look.query.bounds, columns=columns)
    found = found[(found["net"] != 0).fillna(value=False)]
    found = largest(found, found["net"].abs(), None)
    moved = found["asset_id"].value_counts()
    found = found.groupby("asset_id", observed=True).head(look.most).copy()
    moves = zip(found["opening"].fillna(0), found["net"], strict=True)
    found["relative"] = [int(net) / int(was) if was else np.nan for was, net in moves]
    return {
        "accounts": moved,
        "movers": with_keys(found, ("opening", "closing", "net", "relative")),
    }


def _account(look: Look) -> dict[str, Any]:
    query = look.query
    if not query.accounts:
        return {}
    account = query.accounts[0]
    told = tell_accounts(look.of([account], query.start), query)
    return records_by(told, list(ACCOUNT_KEY), [account])[account]


def _party(look: Look) -> dict[str, Any]:
    query = look.query
    filters, span = Filters(party_ids=(query.party,)), (query.start, query.end)
    history = look.state.rows(filters, span, edges=None, also=None, check=look.check)
    return tell_parties(history, query, [query.party])[query.party]


def _rows(look: Look) -> dict[str, Any]:
    query = look.query
    if not query.accounts:
        return {}
    # How deep it fell is told from its beginning on.
    rows = find_rows(look.of(query.accounts[:1], look.state.start), query)
    shown = to_records(rows.iloc[::-1].iloc[query.page * PAGE :].head(PAGE), ROW_COLUMNS)
    return {"count": len(rows), "pages": -(-len(rows) // PAGE), "rows": shown}


def _explain(look: Look) -> dict[str, Any]:
    state, query = look.state, look.query
    if not query.accounts or not isinstance(state, ArchiveState):
        return {}
    at = look.last if query.at is None else query.at
    return tell_origin(state.archive, query.accounts[0], at)


def _notes(look: Look) -> dict[str, Any]:
    return {name: to_records(frame) for name, frame in look.state.notes().items()}


_TELL: Final[dict[str, Callable[[Look], dict[str, Any]]]] = {
    "about": _about,
    "version": _version,
    "headline": _headline,
    "accounts": _accounts,
    "holders": _holders,
    "series": _series,
    "summary": _summary,
    "totals": _totals,
    "flows": _flows,
    "movers": _movers,
    "account": _account,
    "party": _party,
    "rows": _rows,
    "explain": _explain,
    "notes": _notes,
}
"""What tells each of `VIEWS`. Those of an asset tell frames, or series by it, of all assets."""


def _cut(look: Look) -> Look:
    """Return a question whose range is within what there is."""
    query = look.query
    start, end = max(look.state.start, query.start), min(look.state.end, query.end)
    if start >= end:  # nothing of it is there, which is told of the range as it is
        start, end = query.start, max(query.end, query.start + 1)
    return replace(look, query=replace(query, start=start, end=end))


def draw_line(steps: Steps, look: Look) -> dict[str, Any]:
    """Return the steps of one account that a chart needs, and the last one before them."""
    query, since = look.query, look.state.start
    line = downsample_steps(steps, query.start, query.end, since=since, columns=query.width)
    return {
        "times": line.times.tolist(),
        "balances": amounts(line.balances),
        "opening": line.is_opening,
        "rows": line.count,
    }


def shares_at(look: Look, moment: int) -> dict[Key, float]:
    """Return which part of its asset each account of the asset, or of all, holds at a moment."""
    found = holders(look.at(moment), from_microseconds(moment))
    return dict(zip(keys_of(found), found["share"], strict=True))
