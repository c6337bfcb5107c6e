"""Names beside ids: the columns `symbol` and `label` of any frame of accounts."""

from __future__ import annotations

import pandas as pd

from balance_analysis.assets import AssetsLike
from balance_analysis.frame import check_frame
from balance_analysis.labels import LabelsLike, names_of, note_names, told_of
from balance_analysis.schema import ATTRS_KEY


def labelled(
    data: pd.DataFrame, *, assets: AssetsLike | None = None, labels: LabelsLike | None = None
) -> pd.DataFrame:
    """Return a frame with what its assets, and its accounts, are called in front.

    Parameters
    ----------
    data
        A table, or any result with columns of `ACCOUNT_KEY`.
    assets, labels
        The names, as `read_assets` and `read_labels` take them; by default those that the attrs of
        `data` tell. The attrs of the result tell them.

    Returns
    -------
    pandas.DataFrame
        A copy of `data`, with the columns `symbol` (of its asset, or the id, shortened; if it has
        `asset_id`) and `label` (as `account_labels` returns it; if it has another one) before the
        others, both category of str. Such columns that it has already are replaced.

    Raises
    ------
    ValueError
        If it has none of these columns, or names are malformed. A wide series has its accounts in
        its header: see `account_labels`, or take the long layout.

    Examples
    --------
    >>> import pandas as pd
    >>> held = pd.DataFrame({"asset_id": "VOTE", "party_id": ["a1", "b2"], "balance": [5, 7]})
    >>> labelled(held, labels={"a1": "Alice"})
      symbol  label asset_id party_id  balance
    0   VOTE  Alice     VOTE       a1        5
    1   VOTE     b2     VOTE       b2        7
    """
    check_frame(data)
    names = names_of(data, assets, labels)
    told, places = told_of(data, names)
    found = data.drop(columns=["symbol", "label"], errors="ignore")
    if [*told] != ["asset_id", "symbol", "label"]:
        found.insert(0, "label", told["label"].astype("category").array.take(places))
    if "symbol" in told:
        found.insert(0, "symbol", told["symbol"].astype("category").array.take(places))
    found.attrs[ATTRS_KEY] = note_names(found.attrs.get(ATTRS_KEY, {}), names)
    return found
