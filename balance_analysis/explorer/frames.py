"""What is told of accounts and parties: history in, frame out, whoever asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from balance_analysis.analysis.flows import deltas, sum_flows
from balance_analysis.analysis.grid import fitting_grid
from balance_analysis.analysis.history import History
from balance_analysis.analysis.statistics import drawdown, time_weighted_average
from balance_analysis.analysis.steps import Steps
from balance_analysis.analysis.summary import summarize_accounts, summarize_parties
from balance_analysis.explorer.wire import Key, Query, keys_of, write_key
from balance_analysis.labels import Labels
from balance_analysis.schema import ACCOUNT_KEY
from balance_analysis.text import type_label

BARS: Final = 100
"""Periods of a range, at most."""

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
    flowed = flowed.drop(columns=average.columns, errors="ignore")
    summary = summarize_accounts(history, **query.bounds)
    return {"summary": summary, "periods": pd.concat([average, flowed], axis=1)}


def tell_parties(history: History, query: Query) -> dict[str, pd.DataFrame]:
    """Return what parties, and their accounts, did in a range, and flowed in each period of it.

    What moves between accounts of one party is apart from what comes from others and goes to them.
    """
    _, grid = fitting_grid(query.start, query.end, BARS)
    by, accounts = ["asset_id", "party_id"], summarize_accounts(history, **query.bounds)
    names = ("party_id", "opening", "closing", "net", "inflow", "outflow")
    return {
        "totals": summarize_parties(history, **query.bounds)[[*by, "accounts", *PARTY]],
        "accounts": with_keys(accounts, names).drop(columns="asset_id"),
        "flows": sum_flows(history, grid, by, full=True, internal=True),
    }


def sum_up(history: History, shares: Mapping[Key, float], query: Query) -> pd.DataFrame:
    """Return what accounts did in a range, and which part of their asset they held at its end."""
    found = summarize_accounts(history, **query.bounds)
    return found.assign(share=[shares.get(key, np.nan) for key in keys_of(found)])


def find_rows(history: History, query: Query) -> pd.DataFrame:
    """Return the rows of accounts in a range, each with its delta and how deep it fell."""
    changed = deltas(history)
    changed["depth"] = drawdown(history)["depth"]
    times, bounds = changed["timestamp"], query.bounds
    rows: pd.DataFrame = changed[(times >= bounds["start"]) & (times < bounds["end"])]
    return rows


def own_columns(frame: pd.DataFrame) -> list[str]:
    """Return the columns of a frame that don't tell of which account it is."""
    return [str(name) for name in frame if name not in ACCOUNT_KEY]


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
