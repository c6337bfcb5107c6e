"""Names for accounts and groups of them that fit into a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from balance_analysis.schema import ACCOUNT_KEY, NO_MARKET
from balance_analysis.text import short_ids

if TYPE_CHECKING:
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
    return group_labels(accounts[list(ACCOUNT_KEY)])


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
    keys = groups.astype("str")
    short = {name: short_ids(keys[name]) for name in ("party_id", "market_id") if name in keys}
    labels = []
    for ids in keys.to_dict("records"):
        parts = [type_label(ids["account_type"])] if "account_type" in ids else []
        if "party_id" in ids:
            parts.append(short["party_id"][ids["party_id"]])
        if ids.get("market_id", NO_MARKET) != NO_MARKET:
            parts.append(f"market {short['market_id'][ids['market_id']]}")
        labels.append(" · ".join(parts) or ("no market" if "market_id" in ids else "all accounts"))
    return labels


def type_label(account_type: str) -> str:
    """Return an account type as words.

    Examples
    --------
    >>> type_label("ACCOUNT_TYPE_REWARD_MAKER_PAID_FEES")
    'reward maker paid fees'
    """
    return account_type.removeprefix("ACCOUNT_TYPE_").replace("_", " ").lower()
