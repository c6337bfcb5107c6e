"""What is told of accounts and parties: history in, frame out, whoever asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from balance_analysis.analysis.flows import deltas, sum_flows
from balance_analysis.analysis.grid import fitting_grid, grid_at
from balance_analysis.analysis.history import History
from balance_analysis.analysis.periods import (
    drawdown,
    summarize_accounts,
    summarize_parties,
    time_weighted_average,
)
from balance_analysis.analysis.steps import Steps
from balance_analysis.analysis.totals import totals
from balance_analysis.archives import Archive
from balance_analysis.explorer.wire import K, Key, Query, from_rows, keys_of, records_by, write_key
from balance_analysis.names import Labels
from balance_analysis.schema import ACCOUNT_KEY, from_microseconds
from balance_analysis.text import duration_text, type_label

BARS: Final = 100
"""Periods of a range, at most."""

ROW_COLUMNS: Final = ("timestamp", "balance", "delta", "depth")

SUMMARY: Final = (
    *("first_seen", "opening", "closing", "net", "share"),
    *("minimum", "minimum_at", "maximum", "maximum_at"),
)

_EXPLANATION: Final = {
    "at": "moment",
    "balance": "amount",
    "why": "text",
    "carried": "text",
    "state": "text",
    "source": "text",
    "confirmed_by": "text",
    "block_height": "count",
    "first_block_height": "count",
    "asked_at": "moment",
    "first_asked_at": "moment",
}

_CITED: Final = {
    "which": "text",
    "timestamp": "moment",
    "balance": "amount",
    "file": "text",
}

PARTY: Final = ("opening", "closing", "net", "internal", "inflow", "outflow")


def steps_of(history: History, query: Query, accounts: Iterable[Key]) -> dict[Key, Steps]:
    """Return accounts as steps, known as far as every change is in the range; maybe none."""
    steps, _ = history.over(**query.bounds)
    numbers = {key: number for number, key in enumerate(keys_of(steps.accounts))}
    places = {account: numbers.get(account, len(steps)) for account in accounts}
    return {one: steps.part(at, min(at + 1, len(steps))) for one, at in places.items()}


def tell_accounts(history: History, query: Query) -> dict[str, pd.DataFrame]:
    """Return what accounts did in a range, and in each period of it, by account."""
    _, grid = fitting_grid(query.start, query.end, BARS)
    average = time_weighted_average(history, freq=grid)
    flowed = sum_flows(history, grid, ACCOUNT_KEY, full=True)
    flowed = flowed.drop(columns=["active", *average.columns], errors="ignore")
    summary = summarize_accounts(history, **query.bounds)
    return {"summary": summary, "periods": pd.concat([average, flowed], axis=1)}


def tell_parties(
    history: History, query: Query, parties: Iterable[str]
) -> dict[str, dict[str, Any]]:
    """Return what parties, and their accounts, did in a range, and flowed in each period of it.

    What moves between accounts of one party is apart from what comes from others and goes to them.
    Of assets of which a sum is too long, each party tells that instead. All accounts are of them.
    """
    pairs = [(party, asset) for asset, _, party, _ in keys_of(history.accounts)]

    def tell(some: list[tuple[str, str]]) -> dict[tuple[str, str], Any]:
        chosen = {*some}
        rows = history.select(np.array([pair in chosen for pair in pairs], bool))
        frames = _frames_of_parties(rows, query)
        return records_by(frames, ["party_id", "asset_id"], some, keep="asset_id")

    nothing = tell([("", "")])["", ""]
    found: dict[str, dict[str, Any]] = {
        party: {"untold": {}, **{name: {**part, "rows": []} for name, part in nothing.items()}}
        for party in parties
    }
    for (party, asset), parts in apart(tell, sorted({*pairs})).items():
        if "refused" in parts:
            found[party]["untold"][asset] = parts["refused"]
        else:
            for name, part in parts.items():
                found[party][name]["rows"] += part["rows"]
    return found


def _frames_of_parties(history: History, query: Query) -> dict[str, pd.DataFrame]:
    _, grid = fitting_grid(query.start, query.end, BARS)
    by, accounts = ["asset_id", "party_id"], summarize_accounts(history, **query.bounds)
    names = ("party_id", "opening", "closing", "net", "inflow", "outflow")
    return {
        "totals": summarize_parties(history, **query.bounds)[[*by, "accounts", *PARTY]],
        "accounts": with_keys(accounts, names),
        "flows": sum_flows(history, grid, by, full=True, internal=True),
    }


def sum_up(history: History, shares: Mapping[Key, float], query: Query) -> pd.DataFrame:
    """Return what accounts did in a range, and which part of their asset they held at its end."""
    found = summarize_accounts(history, **query.bounds)
    found["share"] = [shares.get(key, np.nan) for key in keys_of(found)]
    return found[[*ACCOUNT_KEY, *SUMMARY]]


def find_rows(history: History, query: Query) -> pd.DataFrame:
    """Return the rows of accounts in a range, each with its delta and how deep it fell."""
    changed = deltas(history)
    changed["depth"] = drawdown(history)["depth"]
    times, bounds = changed["timestamp"], query.bounds
    is_in = (times >= bounds["start"]) & (times < bounds["end"])
    rows: pd.DataFrame = changed[[*ACCOUNT_KEY, *ROW_COLUMNS]][is_in]
    return rows


def tell_level(history: History, at: int, held: pd.DataFrame) -> pd.DataFrame:
    """Return what all hold of each asset at a moment, and how many of its `holders` do."""
    found = totals(history, by="asset_id", freq=grid_at(np.array([at])))
    told = {"holders": held["balance"].fillna(0) > 0, "unknown_holders": held["unknown"] > 0}
    sums = held[["asset_id"]].assign(**told).groupby("asset_id", observed=True).sum()
    return found[["asset_id", "timestamp", "total", "unknown"]].join(sums, on="asset_id")


def tell_origin(archive: Archive, account: Key, at: int) -> dict[str, Any]:
    """Return where a balance comes from, and the rows that stand around the moment."""
    found = archive.explain(account, at=from_microseconds(at))
    cited = {"before": found.before, "its own": found.row, "after": found.after}
    rows = [{"which": name, **asdict(row)} for name, row in cited.items() if row]
    carried = None if found.carried is None else duration_text(found.carried)
    told = {**asdict(found), "carried": carried}
    for name, ends in (("asked_at", found.asked), ("block_height", found.heights)):
        told[f"first_{name}"], told[name] = ends or (None, None)
    return {"explanation": from_rows(_EXPLANATION, [told]), "cited": from_rows(_CITED, rows)}


def apart(tell: Callable[[list[K]], dict[K, Any]], keys: list[K]) -> dict[K, Any]:
    """Return what is told of each key: of all together, or apart where one's can't be told.

    Of one alone of which a sum has too many digits, it is what the page says instead.
    """
    if not keys:
        return {}
    try:
        return tell(keys)
    except OverflowError as error:
        if len(keys) == 1:
            return {keys[0]: {"refused": f"This can't be shown: {error}"}}
        half = len(keys) // 2
        return apart(tell, keys[:half]) | apart(tell, keys[half:])


def account_names(labels: Labels) -> Iterator[tuple[Key, str]]:
    """Yield the accounts that have a label of their own, with it."""
    for named, label in labels.items():
        if not isinstance(named, str):
            asset, kind, party, market = named
            yield (asset, kind, party, market), label


def has_text(accounts: pd.DataFrame, text: str, labels: Labels) -> NDArray[np.bool_]:
    """Return which accounts have a text in an id or a label of theirs, or in their type."""
    wanted = text.casefold()
    named = {key for key, label in account_names(labels) if wanted in label.casefold()}
    is_found = np.array([bool(named) and key in named for key in keys_of(accounts)], bool)
    for name in ACCOUNT_KEY[1:]:
        ids = accounts[name].cat
        texts = [f"{one} {labels.get(one, '')}" for one in ids.categories]
        if name == "account_type":
            texts = [f"{one} {type_label(one)}" for one in ids.categories]
        is_found |= np.array([wanted in one.casefold() for one in texts], bool)[ids.codes]
    return is_found


def with_keys(frame: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """Return columns of a frame behind the asset and the account of each row."""
    keys = [write_key(account) for account in keys_of(frame)]
    own = frame.assign(account=pd.Series(keys, index=frame.index, dtype="str"))
    return own[["asset_id", "account", *names]]
