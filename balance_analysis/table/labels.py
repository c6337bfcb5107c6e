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
from balance_analysis.table.schema import ACCOUNT_KEY, ATTRS_KEY, account_numbers, are_heads
from balance_analysis.table.text import printable

UNITS_KEY: Final = "units"
"""The key in `attrs[ATTRS_KEY]` of the whole units that a frame's amounts are in, by asset."""


def account_labels(accounts: pd.DataFrame, *, labels: LabelsLike | None = None) -> pd.Series[str]:
    """Return a readable label for each account or group of accounts; different ones differ.

    Labels leave out the asset: accounts of different assets don't share an axis.

    Parameters
    ----------
    accounts
        A table, a result, or the header of a wide series (`series.columns.to_frame()`), with at
        least one column of `ACCOUNT_KEY`. Ids are shortened as far as those in it stay distinct.
    labels
        Names that you choose, as `read_labels` takes them; by default those in the attrs of
        `accounts`.

    Returns
    -------
    pandas.Series
        One label per row (str), with the same index.

    Raises
    ------
    ValueError
        If `accounts` has no column of `ACCOUNT_KEY`.

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
    """Return a frame with the names of its assets and accounts as its first columns.

    Results of a table with names in its attrs have these columns already.

    Parameters
    ----------
    data
        A table, or any result with columns of `ACCOUNT_KEY`.
    assets, labels
        The names, as `read_assets` and `read_labels` take them; by default those in the attrs of
        `data`. They are added to the result's attrs.

    Returns
    -------
    pandas.DataFrame
        A copy of `data` with up to two columns before the others, both category of str: `symbol`
        (the asset's symbol, or its shortened id) if it has `asset_id`, and `label` (as
        `account_labels` returns it) if it has another column of `ACCOUNT_KEY`. They replace columns
        of these names.

    Raises
    ------
    ValueError
        If `data` has no column of `ACCOUNT_KEY`, or names are malformed. A wide series has its
        accounts in its header: use `account_labels`, or the long layout.

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
    """Return a frame with those first columns of `labelled` that it lacks."""
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
    """Return a frame's columns of ids, by name."""
    ids = {name: pd.Categorical(frame[name]) for name in ACCOUNT_KEY if name in frame}
    if not ids:
        raise ValueError(f"labels need at least one of the columns {', '.join(ACCOUNT_KEY)}")
    return ids


def _labels_of(ids: Mapping[str, pd.Categorical], names: Names) -> pd.Categorical:
    """Return the label of each row's account or group of accounts, with sorted categories."""
    # Rows of one account mostly follow each other, so only the first row of each run is read.
    is_head = are_heads([column.codes for column in ids.values()])
    runs = np.flatnonzero(is_head)
    codes = [column.codes[runs].astype(np.int64) + 1 for column in ids.values()]
    numbers = account_numbers(codes, [len(column.categories) + 1 for column in ids.values()])
    _, firsts, places = np.unique(numbers, return_index=True, return_inverse=True)
    texts = _texts({name: column[runs[firsts]] for name, column in ids.items()}, names)
    distinct = pd.Categorical(pd.array(texts, dtype="str"))
    row_codes: Any = np.repeat(distinct.codes[places], np.diff(runs, append=len(is_head)))
    return pd.Categorical.from_codes(row_codes, dtype=distinct.dtype, validate=False)


def _texts(columns: Mapping[str, pd.Categorical], names: Names) -> list[str]:
    """Return the labels of distinct accounts or groups of accounts, given their ids by column."""
    ids, parts = [], []
    for name, column in columns.items():
        used = column.remove_unused_categories()
        distinct = [*used.categories.astype("str"), "NA"]  # a missing id has the code -1
        ids.append(np.array(distinct, object)[used.codes])
        parts.append(np.array(_parts(name, distinct, names, columns), object)[used.codes])
    texts = [" · ".join(filter(None, row)) for row in zip(*parts, strict=True)]
    labels = {key: label for key, label in names.labels.items() if isinstance(key, tuple)}
    if labels and len(columns) == len(ACCOUNT_KEY):
        accounts = [*zip(*ids, strict=True)]
        named = distinct_names(dict(zip(accounts, texts, strict=True)), labels)
        texts = [printable(named[account]) for account in accounts]
    return texts


def _parts(
    name: str, ids: Sequence[str], names: Names, beside: Collection[str]
) -> list[str | None]:
    """Return the part of a label for each id of a column, given the columns beside it."""
    if name == "asset_id":
        return [None if len(beside) > 1 else "all accounts" for _ in ids]
    is_named = bool({"account_type", "party_id"} & {*beside})
    empty_texts = {"account_type": "no type", "party_id": "no party"}
    empty = empty_texts.get(name, None if is_named else "no market")
    prefix = "market " if name == "market_id" and "party_id" not in beside else ""
    shown = names.shown(name, ids)
    texts = [printable(shown[each]) for each in ids]
    return [f"{prefix}{text}" if text else empty for text in texts]


def units_of(frame: pd.DataFrame, asset_ids: Iterable[str]) -> dict[str, str]:
    """Return the unit of each asset's amounts in a frame.

    It is such as `tUSD` for whole units, `10^-5 tUSD` for smallest units with known decimals, else
    `smallest`.
    """
    names, units = names_of(frame), dict.fromkeys(asset_ids, "smallest")
    shown = names.shown("asset_id", units)
    for asset_id in units.keys() & names.assets.keys():
        decimals = names.assets[asset_id].decimals
        units[asset_id] = f"10^-{decimals} {shown[asset_id]}" if decimals else shown[asset_id]
    return units | {key: unit for key, unit in noted_units(frame).items() if key in units}


def noted_units(frame: pd.DataFrame) -> dict[str, str]:
    """Return the whole units in a frame's attrs, by asset; empty if it has other units."""
    units: dict[str, str] = (frame.attrs.get(ATTRS_KEY) or {}).get(UNITS_KEY, {})
    return units


def header_of(frame: pd.DataFrame) -> list[str]:
    """Return a name for each column, with names in place of ids in a wide frame's header."""
    levels, names = frame.columns.to_frame(index=False), names_of(frame)
    for name in {*ACCOUNT_KEY} & {*frame.columns.names}:
        ids = levels[name].astype("str")
        levels[name] = ids.map(names.shown(name, ids))
    texts = levels.itertuples(index=False, name=None)
    return ["/".join(map(str, text)).rstrip("/") for text in texts]
