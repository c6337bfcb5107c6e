"""Names shown in place of ids: the columns `symbol` and `label`, headers, and units."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from balance_analysis.errors import check_frame
from balance_analysis.table.names import (
    AssetsLike,
    LabelsLike,
    Names,
    distinct_names,
    names_of,
    note_names,
)
from balance_analysis.table.rows import account_numbers, are_heads
from balance_analysis.table.schema import ACCOUNT_KEY, ATTRS_KEY
from balance_analysis.table.text import printable

UNITS_KEY: Final = "units"
"""The key in `attrs[ATTRS_KEY]` of the whole units of a frame's amounts, by asset."""


def account_labels(accounts: pd.DataFrame, *, labels: LabelsLike | None = None) -> pd.Series[str]:
    """Return what to call accounts, or groups of them; different ones are called differently.

    The asset is not named: accounts of different assets don't share an axis.

    Parameters
    ----------
    accounts
        One or more of the columns of `ACCOUNT_KEY`, besides any others: a table, a result, or the
        header of a wide series, `series.columns.to_frame()`. Ids are as short as they can be while
        those in it differ.
    labels
        Own names, as `read_labels` takes them; by default those in the attrs of `accounts`.

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
    column: Any = _labels_of(_ids_of(accounts), names_of(accounts, labels=labels))
    return pd.Series(column, accounts.index, name="label").astype("str")


def labelled(
    data: pd.DataFrame, *, assets: AssetsLike | None = None, labels: LabelsLike | None = None
) -> pd.DataFrame:
    """Return a frame with the names of its assets and accounts in front.

    Results of a table that carries names have these columns already.

    Parameters
    ----------
    data
        A table, or any result with columns of `ACCOUNT_KEY`.
    assets, labels
        The names, as `read_assets` and `read_labels` take them; by default those in the attrs of
        `data`. The attrs of the result have them.

    Returns
    -------
    pandas.DataFrame
        A copy of `data`, with the columns `symbol` (of its asset, or the id, shortened; if it has
        `asset_id`) and `label` (as `account_labels` returns it; if it has another one) before the
        others, both category of str. They replace columns of these names.

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
    names, has_label = names_of(data, assets, labels), {*data} & {*ACCOUNT_KEY[1:]}
    replaced = ["symbol"] * ("asset_id" in data) + ["label"] * bool(has_label)
    named = with_names(data.drop(columns=replaced, errors="ignore"), names)
    named.attrs[ATTRS_KEY] = note_names(named.attrs.get(ATTRS_KEY, {}), names)
    return named


def with_names(data: pd.DataFrame, names: Names) -> pd.DataFrame:
    """Return a frame with those columns of `labelled` in front that it doesn't have."""
    named, ids = data.copy(deep=False), _ids_of(data)
    column: Any
    if ids.keys() & {*ACCOUNT_KEY[1:]} and "label" not in data:
        column = _labels_of(ids, names)
        named.insert(0, "label", column)
    if "asset_id" in ids and "symbol" not in data:
        symbols = names.shown("asset_id", ids["asset_id"].categories.astype("str"))
        kind = pd.CategoricalDtype(pd.Index([*symbols.values()], dtype="str"))
        column = pd.Categorical.from_codes(ids["asset_id"].codes, dtype=kind, validate=False)
        named.insert(0, "symbol", column)
    return named


def _ids_of(frame: pd.DataFrame) -> dict[str, pd.Categorical]:
    """Return the columns of ids that a frame has."""
    ids = {name: pd.Categorical(frame[name]) for name in ACCOUNT_KEY if name in frame}
    if not ids:
        raise ValueError(f"labels are made of the columns {', '.join(ACCOUNT_KEY)}; it has none")
    return ids


def _labels_of(ids: Mapping[str, pd.Categorical], names: Names) -> pd.Categorical:
    """Return the label of each row's account, or group of accounts; categories are sorted."""
    # Rows of one account mostly follow each other: only the first row of each run is looked at.
    is_head = are_heads([column.codes for column in ids.values()])
    runs = np.flatnonzero(is_head)
    codes = [column.codes[runs].astype(np.int64) + 1 for column in ids.values()]
    numbers = account_numbers(codes, [len(column.categories) + 1 for column in ids.values()])
    _, firsts, places = np.unique(numbers, return_index=True, return_inverse=True)
    texts = _texts({name: column[runs[firsts]] for name, column in ids.items()}, names)
    distinct = pd.Categorical(pd.array(texts, dtype="str"))
    of_rows: Any = np.repeat(distinct.codes[places], np.diff(runs, append=len(is_head)))
    return pd.Categorical.from_codes(of_rows, dtype=distinct.dtype, validate=False)


def _texts(columns: Mapping[str, pd.Categorical], names: Names) -> list[str]:
    """Return the labels of distinct accounts, or groups of them, from their ids by column."""
    ids, parts = [], []
    for name, column in columns.items():
        used = column.remove_unused_categories()
        distinct = [*used.categories.astype("str"), "NA"]  # a missing id has the code -1
        ids.append(np.array(distinct, object)[used.codes])
        parts.append(np.array(_parts(name, distinct, names, columns), object)[used.codes])
    texts = [" · ".join(filter(None, each)) for each in zip(*parts, strict=True)]
    own = {key: label for key, label in names.labels.items() if isinstance(key, tuple)}
    if own and len(columns) == len(ACCOUNT_KEY):
        accounts = [*zip(*ids, strict=True)]
        named = distinct_names(dict(zip(accounts, texts, strict=True)), own)
        texts = [printable(named[one]) for one in accounts]
    return texts


def _parts(
    name: str, ids: Sequence[str], names: Names, beside: Collection[str]
) -> list[str | None]:
    """Return what the ids of a column add to labels, which depends on the columns beside it."""
    if name == "asset_id":
        return [None if len(beside) > 1 else "all accounts" for _ in ids]
    is_named = bool({"account_type", "party_id"} & {*beside})
    none = {"account_type": "no type", "party_id": "no party"}
    missing = none.get(name, None if is_named else "no market")
    word = "market " if name == "market_id" and "party_id" not in beside else ""
    shown = names.shown(name, ids)
    texts = [printable(shown[one]) for one in ids]
    return [f"{word}{text}" if text else missing for text in texts]


def units_of(frame: pd.DataFrame, asset_ids: Iterable[str]) -> dict[str, str]:
    """Return the unit in which a frame has the amounts of each asset.

    It is `tUSD` of whole units, `10^-5 tUSD` of the smallest where decimals are known, else
    `smallest`.
    """
    names, units = names_of(frame), dict.fromkeys(asset_ids, "smallest")
    shown = names.shown("asset_id", units)
    for one in units.keys() & names.assets.keys():
        decimals = names.assets[one].decimals
        units[one] = f"10^-{decimals} {shown[one]}" if decimals else shown[one]
    return units | {one: unit for one, unit in noted_units(frame).items() if one in units}


def noted_units(frame: pd.DataFrame) -> dict[str, str]:
    """Return the whole units that a frame's attrs note, by asset; none if it has others."""
    units: dict[str, str] = (frame.attrs.get(ATTRS_KEY) or {}).get(UNITS_KEY, {})
    return units


def header_of(frame: pd.DataFrame) -> list[str]:
    """Return a name for each column; ids in the header of a wide frame are shown by name."""
    levels, names = frame.columns.to_frame(index=False), names_of(frame)
    for name in {*ACCOUNT_KEY} & {*frame.columns.names}:
        ids = levels[name].astype("str")
        levels[name] = ids.map(names.shown(name, ids))
    texts = levels.itertuples(index=False, name=None)
    return ["/".join(map(str, text)).rstrip("/") for text in texts]
