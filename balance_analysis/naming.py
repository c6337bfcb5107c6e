"""Names in place of ids: as labels, as the columns `symbol` and `label`, and in headers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from balance_analysis.errors import check_frame
from balance_analysis.names import AssetsLike, Labels, LabelsLike, Names, names_of, note_names
from balance_analysis.rows import account_numbers, are_heads
from balance_analysis.schema import ACCOUNT_KEY, ATTRS_KEY, NO_MARKET
from balance_analysis.text import told_apart, type_label

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


UNITS_KEY: Final = "units"
"""Where `attrs[ATTRS_KEY]` says of a frame in whole units which these are, by asset."""


def account_labels(accounts: pd.DataFrame, *, labels: LabelsLike | None = None) -> pd.Series[str]:
    """Return what to call accounts, or groups of them, by which they are told apart.

    The asset is not named: accounts of different assets don't share an axis; see `Assets.label`.

    Parameters
    ----------
    accounts
        One or more of the columns of `ACCOUNT_KEY`, besides any others: a table, what a function
        made of one, or the header of a wide series, `series.columns.to_frame()`. Labels are as
        short as tells the ids in it apart.
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

    found = _labels_of(accounts, names_of(accounts, labels=labels).labels)
    return pd.Series(found, accounts.index, name="label").astype("str")


def labelled(
    data: pd.DataFrame, *, assets: AssetsLike | None = None, labels: LabelsLike | None = None
) -> pd.DataFrame:
    """Return a frame with what its assets, and its accounts, are called in front.

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
    names = names_of(data, assets, labels)
    has_label = {*data} & {*ACCOUNT_KEY[1:]}
    own = ["symbol"] * ("asset_id" in data) + ["label"] * bool(has_label)
    found = with_names(data.drop(columns=own, errors="ignore"), names)
    found.attrs[ATTRS_KEY] = note_names(found.attrs.get(ATTRS_KEY, {}), names)
    return found


def with_names(data: pd.DataFrame, names: Names) -> pd.DataFrame:
    """Return a frame with those columns of `labelled` in front that it doesn't have."""
    import pandas as pd  # noqa: PLC0415 - heavy

    found = data.copy(deep=False)
    column: Any
    if {*data} & {*ACCOUNT_KEY[1:]} and "label" not in data:
        column = _labels_of(data, names.labels)
        found.insert(0, "label", column)
    if "asset_id" in data and "symbol" not in data:
        ids = pd.Categorical(data["asset_id"])
        symbols = names.assets.labels(ids.categories.astype("str"))
        kind = pd.CategoricalDtype(pd.Index([*symbols.values()], dtype="str"))
        column = pd.Categorical.from_codes(ids.codes, dtype=kind, validate=False)
        found.insert(0, "symbol", column)
    if not {*data} & {*ACCOUNT_KEY}:
        raise ValueError(f"labels are made of the columns {', '.join(ACCOUNT_KEY)}; it has none")
    return found


def _labels_of(accounts: pd.DataFrame, labels: Labels) -> pd.Categorical:
    """Return the label of each row's account, or group of accounts; categories are sorted."""
    import numpy as np  # noqa: PLC0415 - heavy
    import pandas as pd  # noqa: PLC0415 - likewise
    import pyarrow.compute as pc  # noqa: PLC0415 - likewise

    ids = {name: pd.Categorical(accounts[name]) for name in ACCOUNT_KEY if name in accounts}
    if not ids:
        raise ValueError(f"labels are made of the columns {', '.join(ACCOUNT_KEY)}; it has none")
    # Rows of one account mostly stand together: only the first of each run is looked at.
    runs = np.flatnonzero(are_heads([column.codes for column in ids.values()]))
    codes = [column.codes[runs].astype(np.int64) + 1 for column in ids.values()]
    numbers = account_numbers(codes, [len(column.categories) + 1 for column in ids.values()])
    places, distinct = pd.factorize(numbers)
    firsts = np.empty(len(distinct), np.int64)
    firsts[places[::-1]] = runs[::-1]
    texts = _joined({name: column[firsts] for name, column in ids.items()}, labels)
    categories = texts.unique()
    categories = categories.take(pc.sort_indices(categories))
    kind = pd.CategoricalDtype(pd.Index(pd.array(categories, dtype="str")))
    ranks = pc.index_in(texts, categories).to_numpy(zero_copy_only=False)
    of_runs = pd.Categorical.from_codes(ranks[places], dtype=kind, validate=False)
    of_rows: Any = np.repeat(of_runs.codes, np.diff(runs, append=len(accounts)))
    return pd.Categorical.from_codes(of_rows, dtype=kind, validate=False)


def _joined(ids: dict[str, pd.Categorical], labels: Labels) -> pa.Array[Any]:
    """Return the labels of distinct accounts, or groups of them, from their ids by column.

    Python looks at each distinct id once, Arrow puts the parts of labels together.
    """
    import numpy as np  # noqa: PLC0415 - heavy
    import pyarrow as pa  # noqa: PLC0415 - likewise
    import pyarrow.compute as pc  # noqa: PLC0415 - likewise

    keys: list[list[str]] = []
    parts: Any = []
    is_own = len(ids) == len(ACCOUNT_KEY) and len(labels) > len(labels.ids())
    for name, column in ids.items():
        used, codes = np.unique(column.codes, return_inverse=True)
        told = column.categories.astype("str").take(used, fill_value=np.nan).fillna("NA").tolist()
        if is_own:
            keys.append([told[code] for code in codes])
        shown = _part_of(name, told, labels, ids)
        parts.append(pa.array(shown, pa.string()).take(pa.array(codes)))
    # No row lacks all parts: Arrow leaves out such a row.
    parts.append(" · ")
    texts = pc.binary_join_element_wise(*parts, null_handling="skip")
    if is_own:
        accounts = [*zip(*keys, strict=True)]
        named = told_apart(dict(zip(accounts, texts.to_pylist(), strict=True)), labels)
        texts = pa.array([_printable(named[one]) for one in accounts], pa.string())
    return pc.if_else(
        pc.starts_with(texts, "_"), pc.binary_join_element_wise("", texts, " "), texts
    )


def _part_of(
    name: str, ids: list[str], labels: Labels, beside: Collection[str]
) -> list[str | None]:
    """Return what the ids of a column add to labels, which depends on the columns beside it."""
    if name == "asset_id":
        return [None if len(beside) > 1 else "all accounts" for _ in ids]
    if name == "account_type":
        return [_printable(type_label(one)) or "no type" for one in ids]
    shown = labels.shown(ids)
    if name == "party_id":
        return [_printable(shown[one]) or "no party" for one in ids]
    word = "" if "party_id" in beside else "market "
    none = None if {"account_type", "party_id"} & {*beside} else "no market"
    return [f"{word}{_printable(shown[one])}" if one != NO_MARKET else none for one in ids]


def short_keys(accounts: pd.DataFrame, names: Names) -> dict[str, list[str]]:
    """Return of each column of ids what these are called, or as short as tells them apart."""
    said: dict[str, Mapping[str, str]] = {}
    for name in ACCOUNT_KEY:
        if name in accounts:
            ids = {*accounts[name].astype("str")}
            told = names.assets.labels if name == "asset_id" else names.labels.shown
            said[name] = {x: type_label(x) for x in ids} if name == "account_type" else told(ids)
    return {name: [said[name][each] for each in accounts[name].astype("str")] for name in said}


def units_of(frame: pd.DataFrame, asset_ids: Iterable[str]) -> dict[str, str]:
    """Return in which unit a frame has the amounts of each asset.

    It is `tUSD` of whole units, `10^-5 tUSD` of the smallest where decimals are known, else
    `smallest`.
    """
    ids, assets = [*asset_ids], names_of(frame).assets
    labels = assets.labels(ids)
    smallest = dict.fromkeys(ids, "smallest")
    for one in smallest.keys() & assets.keys():
        decimals = assets[one].decimals
        smallest[one] = f"10^-{decimals} {labels[one]}" if decimals else labels[one]
    whole = noted_units(frame)
    return {one: whole.get(one, unit) for one, unit in smallest.items()}


def noted_units(frame: pd.DataFrame) -> dict[str, str]:
    """Return which whole units a frame's attrs note that it has, by asset; none, if others."""
    units: dict[str, str] = (frame.attrs.get(ATTRS_KEY) or {}).get(UNITS_KEY, {})
    return units


def header_of(frame: pd.DataFrame) -> list[str]:
    """Return a name for each column; of holders, in the header of a wide frame, a short one."""
    levels = frame.columns.to_frame(index=False)
    short = short_keys(levels, names_of(frame)) if {*ACCOUNT_KEY} & {*frame.columns.names} else {}
    texts = levels.assign(**short).itertuples(index=False, name=None)
    return ["/".join(map(str, text)).rstrip("/") for text in texts]


def drawable(label: str) -> str:
    """Return a label as matplotlib draws it: it leaves out what begins with an underscore."""
    label = _printable(label)
    return f" {label}" if label.startswith("_") else label


def _printable(text: str) -> str:
    """Return a text in which a mark stands for each character that can't be printed."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
