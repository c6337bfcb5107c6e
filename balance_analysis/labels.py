"""What accounts are called: short words by which they are told apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from balance_analysis.schema import ACCOUNT_KEY, NO_MARKET
from balance_analysis.text import short_ids, type_label

if TYPE_CHECKING:
    import pandas as pd


def account_labels(accounts: pd.DataFrame) -> pd.Series[str]:
    """Return what to call accounts, or groups of them, by which they are told apart.

    The asset is not named: accounts of different assets don't share an axis; see `Assets.label`.

    Parameters
    ----------
    accounts
        One or more of the columns of `ACCOUNT_KEY`, besides any others: a table, what a function
        made of one, or the header of a wide series, `series.columns.to_frame()`. Labels are as
        short as tells the ids in it apart.

    Returns
    -------
    pandas.Series
        Text, a label for each row, with the same index.

    Raises
    ------
    ValueError
        If it has none of these columns.

    Examples
    --------
    >>> import pandas as pd
    >>> accounts = pd.DataFrame({
    ...     "asset_id": "VOTE",
    ...     "account_type": ["ACCOUNT_TYPE_MARGIN", "ACCOUNT_TYPE_GLOBAL_REWARD"],
    ...     "party_id": ["033acc4e3803f1160cb399b7e041735c92576db9dc4d7d94", "network"],
    ...     "market_id": ["bda439ade276efe1567fedec94ea5b9c040c5f89f72382ef", ""],
    ... })
    >>> account_labels(accounts).tolist()
    ['margin · 033acc…7d94 · bda439…82ef', 'global reward · network']
    >>> account_labels(accounts[["market_id"]]).tolist()
    ['market bda439…82ef', 'no market']
    """
    names = [name for name in ACCOUNT_KEY if name in accounts]
    if not names:
        raise ValueError(f"labels are made of the columns {', '.join(ACCOUNT_KEY)}; it has none")
    keys = accounts[names].astype("str").reset_index(drop=True)
    distinct = keys.drop_duplicates()
    short = {name: short_ids(distinct[name]) for name in ("party_id", "market_id") if name in keys}
    records: Any = distinct.to_dict("records")
    labels = [_label(ids, short) for ids in records]
    places = keys.groupby(names, sort=False, dropna=False).ngroup()
    found = places.map(dict(enumerate(labels))).astype("str").rename("label")
    return found.set_axis(accounts.index)


def short_keys(accounts: pd.DataFrame, symbols: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the ids of accounts, each as short as tells it apart; `symbols` of their assets."""
    short = {name: short_ids(accounts[name]) for name in ("party_id", "market_id")}
    return {
        "asset": list(accounts["asset_id"].map(symbols)),
        "type": list(map(type_label, accounts["account_type"])),
        "party": list(accounts["party_id"].map(short["party_id"])),
        "market": list(accounts["market_id"].map(short["market_id"])),
    }


def _label(ids: dict[str, str], short: Mapping[str, Mapping[str, str]]) -> str:
    parts = [type_label(ids["account_type"])] if "account_type" in ids else []
    if "party_id" in ids:
        parts.append(short["party_id"][ids["party_id"]] or "no party")
    if ids.get("market_id", NO_MARKET) != NO_MARKET:
        word = "" if "party_id" in ids else "market "
        parts.append(f"{word}{short['market_id'][ids['market_id']]}")
    label = " · ".join(parts) or ("no market" if "market_id" in ids else "all accounts")
    # Matplotlib leaves out what begins with an underscore; a line break would break a legend.
    label = "".join(letter if letter.isprintable() else "\ufffd" for letter in label)
    return f" {label}" if label.startswith("_") else label


def split_labels(accounts: pd.DataFrame) -> tuple[str, list[str]]:
    """Return what some accounts are called together, and each of them beside the others.

    Examples
    --------
    >>> import pandas as pd
    >>> split_labels(pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_MARGIN", "party_id": "a1",
    ...     "market_id": ["m1", "m2"],
    ... }))
    ('2 margin accounts of a1', ['market m1', 'market m2'])
    """
    if len(accounts) == 1:
        (label,) = account_labels(accounts)
        return label, [label]
    differ = [name for name in ACCOUNT_KEY[1:] if accounts[name].nunique() > 1]
    said = {
        name: account_labels(accounts[[name]]).iloc[0]
        for name in ACCOUNT_KEY[1:]
        if name not in differ and accounts[name].iloc[0]
    }
    kind = f"{said['account_type']} " if "account_type" in said else ""
    party = f" of {said['party_id']}" if "party_id" in said else ""
    market = f" in {said['market_id']}" if "market_id" in said else ""
    each = account_labels(accounts[differ]).tolist()
    return f"{len(accounts):,} {kind}accounts{party}{market}", each
