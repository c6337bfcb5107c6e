"""Names for accounts, ids and amounts that fit into a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from balance_analysis.schema import ACCOUNT_KEY, NO_MARKET
from balance_analysis.text import short_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pandas as pd


def account_labels(accounts: pd.DataFrame) -> list[str]:
    """Return a label for each account: type, party and, if it has one, market.

    The asset is not named: accounts of different assets don't share an axis.

    Parameters
    ----------
    accounts
        One row per account, with the columns of `ACCOUNT_KEY`; all accounts that are to be told
        apart.

    Returns
    -------
    list of str
        One label per row, in the order of the rows.

    Examples
    --------
    >>> import pandas as pd
    >>> account_labels(pd.DataFrame({
    ...     "asset_id": "VOTE",
    ...     "account_type": ["ACCOUNT_TYPE_MARGIN", "ACCOUNT_TYPE_GLOBAL_REWARD"],
    ...     "party_id": ["033acc4e3803f1160cb399b7e041735c92576db9dc4d7d94", "network"],
    ...     "market_id": ["bda439ade276efe1567fedec94ea5b9c040c5f89f72382ef", ""],
    ... }))
    ['margin · 033acc…7d94 · market bda439…82ef', 'global reward · network']
    """
    keys = accounts[list(ACCOUNT_KEY)].astype("str")
    parties, markets = short_ids(keys["party_id"]), short_ids(keys["market_id"])
    labels = []
    for _, account_type, party, market in keys.itertuples(index=False):
        parts = [type_label(account_type), parties[party]]
        if market != NO_MARKET:
            parts.append(f"market {markets[market]}")
        labels.append(" · ".join(parts))
    return labels


def type_label(account_type: str) -> str:
    """Return an account type as words.

    Examples
    --------
    >>> type_label("ACCOUNT_TYPE_REWARD_MAKER_PAID_FEES")
    'reward maker paid fees'
    """
    return account_type.removeprefix("ACCOUNT_TYPE_").replace("_", " ").lower()


def axis_label(
    measure: str,
    asset_id: str | None,
    *,
    unit: str | None = None,
    whole: bool = False,
    bare: bool = False,
) -> str:
    """Return what an axis shows, in two lines: a measure in which unit, and of which asset.

    Parameters
    ----------
    measure
        What is measured, such as "balance".
    asset_id
        The asset; `None` where there is none.
    unit
        What a whole unit of the asset is called, if that is known.
    whole
        Whether amounts are in whole units; otherwise they are in the asset's smallest unit.
    bare
        Whether the measure has no unit.

    Examples
    --------
    >>> print(axis_label("balance", "VOTE"))
    balance (smallest unit)
    asset VOTE
    >>> print(axis_label("total", "993ed98f4f770d91a796faab17385511", unit="USDT", whole=True))
    total (USDT)
    asset 993ed9…5511
    >>> print(axis_label("share", "993ed98f4f770d91a796faab17385511", unit="USDT", bare=True))
    share
    asset USDT
    """
    if asset_id is None:
        return measure
    asset = short_ids([asset_id])[asset_id]
    if bare:
        return f"{measure}\nasset {unit or asset}"
    if whole:
        name = unit or "whole units"
    else:
        name = f"smallest unit of {unit}" if unit else "smallest unit"
    return f"{measure} ({name})\nasset {asset}"


def group_labels(groups: pd.DataFrame) -> list[str]:
    """Return a label for each group of accounts of one asset: what it has in common.

    Parameters
    ----------
    groups
        One row per group, with some of the columns of `ACCOUNT_KEY`; all groups that are to be told
        apart.

    Examples
    --------
    >>> import pandas as pd
    >>> group_labels(pd.DataFrame({"asset_id": ["VOTE"] * 2, "market_id": ["m1", ""]}))
    ['market m1', 'no market']
    >>> group_labels(pd.DataFrame({"asset_id": ["VOTE"]}))
    ['all accounts']
    """
    columns = [
        [words(id_) for id_ in groups[name].astype("str")]
        for name, words in (
            ("account_type", type_label),
            ("party_id", short_ids(groups.get("party_id", ())).__getitem__),
            ("market_id", _market_words(groups.get("market_id", ()))),
        )
        if name in groups
    ]
    if not columns:
        return ["all accounts"] * len(groups)
    return [" · ".join(parts) for parts in zip(*columns, strict=True)]


def _market_words(markets: Iterable[str]) -> Callable[[str], str]:
    short = short_ids(markets)
    return lambda market: "no market" if market == NO_MARKET else f"market {short[market]}"
