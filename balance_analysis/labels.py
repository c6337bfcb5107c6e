"""Names shown in place of ids: the columns `symbol` and `label`, headers, and units."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from balance_analysis.errors import check_frame
from balance_analysis.names import (
    AssetsLike,
    LabelsLike,
    Names,
    distinct_names,
    names_of,
    note_names,
)
from balance_analysis.rows import account_numbers, are_heads
from balance_analysis.schema import ACCOUNT_KEY, ATTRS_KEY, NO_MARKET
from balance_analysis.text import printable

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

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
    import pandas as pd  # noqa: PLC0415 - heavy

    column = _labels_of(accounts, names_of(accounts, labels=labels))
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
    import pandas as pd  # noqa: PLC0415 - heavy

    named = data.copy(deep=False)
    column: Any
    if {*data} & {*ACCOUNT_KEY[1:]} and "label" not in data:
        column = _labels_of(data, names)
        named.insert(0, "label", column)
    if "asset_id" in data and "symbol" not in data:
        ids = pd.Categorical(data["asset_id"])
        symbols = names.shown("asset_id", ids.categories.astype("str"))
        kind = pd.CategoricalDtype(pd.Index([*symbols.values()], dtype="str"))
        column = pd.Categorical.from_codes(ids.codes, dtype=kind, validate=False)
        named.insert(0, "symbol", column)
    if not {*data} & {*ACCOUNT_KEY}:
        raise ValueError(f"labels are made of the columns {', '.join(ACCOUNT_KEY)}; it has none")
    return named


def _labels_of(accounts: pd.DataFrame, names: Names) -> Any:  # noqa: ANN401 - a Categorical
    """Return the label of each row's account, or group of accounts; categories are sorted."""
    import numpy as np  # noqa: PLC0415 - heavy
    import pandas as pd  # noqa: PLC0415 - likewise

    ids = {name: pd.Categorical(accounts[name]) for name in ACCOUNT_KEY if name in accounts}
    if not ids:
        raise ValueError(f"labels are made of the columns {', '.join(ACCOUNT_KEY)}; it has none")
    # Rows of one account mostly follow each other: only the first row of each run is looked at.
    runs = np.flatnonzero(are_heads([column.codes for column in ids.values()]))
    codes = [column.codes[runs].astype(np.int64) + 1 for column in ids.values()]
    numbers = account_numbers(codes, [len(column.categories) + 1 for column in ids.values()])
    _, firsts, places = np.unique(numbers, return_index=True, return_inverse=True)
    texts = _joined({name: column[runs[firsts]] for name, column in ids.items()}, names)
    distinct = pd.Categorical(pd.array(texts, dtype="str"))
    of_rows: Any = np.repeat(distinct.codes[places], np.diff(runs, append=len(accounts)))
    return pd.Categorical.from_codes(of_rows, dtype=distinct.dtype, validate=False)


def _joined(columns: Mapping[str, pd.Categorical], names: Names) -> pa.Array[Any]:
    """Return the labels of distinct accounts, or groups of them, from their ids by column."""
    import pyarrow as pa  # noqa: PLC0415 - heavy
    import pyarrow.compute as pc  # noqa: PLC0415 - likewise

    keys, parts = [], []
    for name, column in columns.items():
        used = column.remove_unused_categories()
        ids = [*used.categories.astype("str").to_numpy(object), "NA"]
        places = pa.array(used.codes.astype("int64") % len(ids))  # a missing id has the code -1
        keys.append((ids, places))
        parts.append(pa.array(_part(name, ids, names, columns), pa.string()).take(places))
    # Arrow leaves out the parts that a row lacks; no row lacks all.
    texts = pc.binary_join_element_wise(*parts, " · ", null_handling="skip")
    own = {key: label for key, label in names.labels.items() if isinstance(key, tuple)}
    if own and len(columns) == len(ACCOUNT_KEY):
        taken = (pa.array(ids).take(places).to_pylist() for ids, places in keys)
        accounts = [*zip(*taken, strict=True)]
        named = distinct_names(dict(zip(accounts, texts.to_pylist(), strict=True)), own)
        texts = pa.array([printable(named[one]) for one in accounts], pa.string())
    return texts


def _part(name: str, ids: list[str], names: Names, beside: Collection[str]) -> list[str | None]:
    """Return what the ids of a column add to labels, which depends on the columns beside it."""
    if name == "asset_id":
        return [None if len(beside) > 1 else "all accounts" for _ in ids]
    shown = names.shown(name, ids)
    texts = [printable(shown[one]) for one in ids]
    if name == "account_type":
        return [text or "no type" for text in texts]
    if name == "party_id":
        return [text or "no party" for text in texts]
    word = "" if "party_id" in beside else "market "
    none = None if {"account_type", "party_id"} & {*beside} else "no market"
    pairs = zip(ids, texts, strict=True)
    return [none if one == NO_MARKET else f"{word}{text}" for one, text in pairs]


def units_of(frame: pd.DataFrame, asset_ids: Iterable[str]) -> dict[str, str]:
    """Return the unit in which a frame has the amounts of each asset.

    It is `tUSD` of whole units, `10^-5 tUSD` of the smallest where decimals are known, else
    `smallest`.
    """
    ids, names, units = [*asset_ids], names_of(frame), {}
    shown = names.shown("asset_id", ids)
    for one in ids:
        if one not in names.assets:
            units[one] = "smallest"
        elif decimals := names.assets[one].decimals:
            units[one] = f"10^-{decimals} {shown[one]}"
        else:
            units[one] = shown[one]
    whole = noted_units(frame)
    return {one: whole.get(one, unit) for one, unit in units.items()}


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
