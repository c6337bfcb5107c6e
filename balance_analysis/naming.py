"""Names in place of ids: as labels, as the columns `symbol` and `label`, and in headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from balance_analysis.errors import check_frame
from balance_analysis.names import AssetsLike, Labels, LabelsLike, Names, names_of, note_names
from balance_analysis.schema import ACCOUNT_KEY, ATTRS_KEY, NO_MARKET
from balance_analysis.text import told_apart, type_label

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


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
    texts, places = _texts_of(accounts, names_of(accounts, labels=labels).labels)
    series = accounts.iloc[:, 0].astype("object")
    series[:] = [texts[place] for place in places]
    return series.rename("label").astype("str")


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
        texts, places = _texts_of(data, names.labels)
        codes, distinct = pd.factorize(pd.Index(texts, dtype="str"), sort=True)
        kind = pd.CategoricalDtype(distinct)
        column = pd.Categorical.from_codes(codes[places], dtype=kind, validate=False)
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


def _texts_of(accounts: pd.DataFrame, labels: Labels) -> tuple[list[str], NDArray[Any]]:
    """Return a label of each distinct account, and which of these each row is of."""
    import numpy as np  # noqa: PLC0415 - heavy
    import pandas as pd  # noqa: PLC0415 - likewise

    ids = {name: pd.Categorical(accounts[name]) for name in ACCOUNT_KEY if name in accounts}
    if not ids:
        raise ValueError(f"labels are made of the columns {', '.join(ACCOUNT_KEY)}; it has none")
    # Rows of one account mostly stand together.
    is_head = np.ones(len(accounts), bool)
    is_head[1:] = np.logical_or.reduce([x.codes[1:] != x.codes[:-1] for x in ids.values()])
    starts = np.flatnonzero(is_head)
    heads = pd.DataFrame({name: column.codes[starts] for name, column in ids.items()})
    runs = heads.groupby([*ids], sort=False).ngroup().to_numpy()
    told: dict[str, list[str]] = {}
    for name, codes in heads.drop_duplicates().items():
        texts = [*ids[str(name)].categories.astype("str"), "NA"]
        told[str(name)] = [texts[code] for code in codes]
    found = _labels_of(told, labels)
    return found, np.repeat(runs, np.diff(starts, append=len(accounts)))


def _labels_of(told: dict[str, list[str]], labels: Labels) -> list[str]:
    """Return the labels of distinct accounts, or groups of them, from their ids by column."""
    parts: list[list[str]] = []
    if kinds := told.get("account_type"):
        words = {kind: type_label(kind) for kind in {*kinds}}
        parts.append([words[kind] for kind in kinds])
    if parties := told.get("party_id"):
        shown = labels.shown(parties)
        parts.append([shown[one] or "no party" for one in parties])
    if markets := told.get("market_id"):
        shown, word = labels.shown(markets), "" if parties else "market "
        parts.append([f"{word}{shown[one]}" if one != NO_MARKET else "" for one in markets])
    nothing = "no market" if "market_id" in told else "all accounts"
    texts = [" · ".join(filter(None, each)) or nothing for each in zip(*parts, strict=True)]
    texts = texts or [nothing] * len(told.get("asset_id", []))
    if len(told) == len(ACCOUNT_KEY) and len(labels) > len(labels.ids()):
        alike = dict(zip(zip(*told.values(), strict=True), texts, strict=True))
        texts = [*told_apart(alike, labels).values()]
    return [*map(drawable, texts)]


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
    whole = (frame.attrs.get(ATTRS_KEY) or {}).get(UNITS_KEY, {})
    return {**smallest, **{one: unit for one, unit in whole.items() if one in smallest}}


def header_of(frame: pd.DataFrame) -> list[str]:
    """Return a name for each column; of holders, in the header of a wide frame, a short one."""
    levels = frame.columns.to_frame(index=False)
    short = short_keys(levels, names_of(frame)) if {*ACCOUNT_KEY} & {*frame.columns.names} else {}
    texts = levels.assign(**short).itertuples(index=False, name=None)
    return ["/".join(map(str, text)).rstrip("/") for text in texts]


def drawable(label: str) -> str:
    """Return a label as matplotlib draws it: it leaves out what begins with an underscore."""
    if not label.isprintable():
        label = "".join(letter if letter.isprintable() else "\ufffd" for letter in label)
    return f" {label}" if label.startswith("_") else label
