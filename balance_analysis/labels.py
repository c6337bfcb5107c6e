"""What accounts are called: short words by which they are told apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from balance_analysis.assets import Assets, AssetsLike, ById, read_assets, read_source
from balance_analysis.presentation import rows_html
from balance_analysis.schema import ACCOUNT_KEY, ATTRS_KEY, NETWORK_PARTY, NO_MARKET
from balance_analysis.text import LONG_ID, short_ids, told_apart, type_label

if TYPE_CHECKING:
    import os

    import pandas as pd
    from numpy.typing import NDArray

Named: TypeAlias = "str | tuple[str, ...]"
"""The id of a party or a market, or an account: its ids in the order of `ACCOUNT_KEY`."""

_SEPARATOR: Final = "/"
"""Between the ids of an account in a file, where a key is text."""

_LABELLED: Final = ("party_id", "market_id")


class Labels(ById[Named, str]):
    """Own names of parties, markets and accounts; immutable. Made by `read_labels`.

    Keys are the ids of parties and markets, and for accounts tuples in the order of `ACCOUNT_KEY`.
    Several may have one label.

    Examples
    --------
    >>> labels = read_labels({"a1": "Alice", "b2": "Desk", "c3": "Desk"})
    >>> labels
    Labels(Alice, Desk)
    >>> labels.find("desk")
    ['b2', 'c3']
    """

    def __repr__(self) -> str:
        return f"Labels({', '.join(dict.fromkeys(self.values()))})"

    def _repr_html_(self) -> str:
        rows = [(label, key) for key, label in self.to_json().items()]
        return rows_html(f"{len(self)} labels", ["label", "id"], rows)

    def ids(self) -> dict[str, str]:
        """Return the labels of parties and markets alone, by id."""
        return {key: label for key, label in self.items() if isinstance(key, str)}

    def find(self, text: str) -> list[str]:
        """Return the ids of the parties and markets that have a label, whatever its case."""
        wanted = text.casefold()
        return [one for one, label in self.ids().items() if label.casefold() == wanted]

    def shown(self, ids: Iterable[str]) -> dict[str, str]:
        """Return what to show for each of some ids, by which they can be told apart."""
        return told_apart(short_ids(ids), self)

    def to_json(self) -> dict[str, str]:
        """Return what `read_labels` reads, as JSON has it."""
        return {
            key if isinstance(key, str) else _SEPARATOR.join(key): label
            for key, label in self.items()
        }


LabelsLike: TypeAlias = "Labels | Mapping[Any, str] | pd.DataFrame | str | os.PathLike[str]"
"""Labels, or what `read_labels` makes them of."""


def read_labels(source: LabelsLike) -> Labels:
    """Read what parties, markets and accounts are called.

    Parameters
    ----------
    source
        Labels, as they are; a mapping of ids of parties and markets to text, in which accounts are
        tuples in the order of `ACCOUNT_KEY`; the path of a .toml or .json file of such a mapping,
        in which an account is its four ids with slashes between, as in
        `"VOTE/ACCOUNT_TYPE_GENERAL/c207.../"`; or a DataFrame or the path of a .csv file with the
        column `label` and beside it `id` or columns of `ACCOUNT_KEY`, among others. A row of it has
        the id of a party or of a market, or all ids of an account.

    Raises
    ------
    ValueError
        If the source isn't as described, or a label is blank, or is an id.
    TypeError
        If it is neither labels nor a mapping nor a frame nor a path.
    OSError
        If the file can't be read.

    Examples
    --------
    >>> read_labels({"a1": "Alice", ("VOTE", "ACCOUNT_TYPE_GENERAL", "a1", ""): "Savings"})["a1"]
    'Alice'
    """
    if isinstance(source, Labels):
        return source
    return _make(*read_source(source, "labels", _of_row))


def _of_row(row: Mapping[Any, Any]) -> tuple[object, object]:
    names = [name for name in ("id", *ACCOUNT_KEY) if name in row]
    if not names or "label" not in row:
        raise ValueError(f"labels stand in a column label, beside id or {', '.join(ACCOUNT_KEY)}")
    ids = {name: row[name] for name in names if row[name]}
    if ids.keys() >= {*ACCOUNT_KEY[:3]}:
        return tuple(ids.get(name, NO_MARKET) for name in ACCOUNT_KEY), row["label"]
    if len(ids) != 1 or ids.keys() & {*ACCOUNT_KEY[:2]}:
        raise ValueError("it must have the id of a party, of a market, or all of an account")
    return next(iter(ids.values())), row["label"]


def _make(content: Mapping[Any, object], where: str) -> Labels:
    labels = {_key(key, where): label for key, label in content.items()}
    ids = {NETWORK_PARTY}.union(*((key,) if isinstance(key, str) else key for key in labels))
    for key, label in labels.items():
        if not isinstance(label, str) or not label.strip():
            raise ValueError(f"{where}: the label of {key!r} must be text, not {label!r}")
        if label.strip() in ids or LONG_ID.fullmatch(label.strip()):
            raise ValueError(f"{where}: {label!r}, the label of {key!r}, is an id itself")
    return Labels({key: str(label).strip() for key, label in labels.items()})


def _key(key: object, where: str) -> Named:
    """Return what a label is of, ids in lower case as the interface has them."""
    if isinstance(key, str) and ("…" in key or ".." in key):
        raise ValueError(f"{where}: {key!r} is short for an id; labels need whole ids")
    parts = key.split(_SEPARATOR) if isinstance(key, str) else key
    if isinstance(parts, list | tuple) and all(isinstance(part, str) for part in parts):
        ids = tuple(x.lower() if LONG_ID.fullmatch(x) else x for x in map(str.strip, parts))
        if len(ids) == len(ACCOUNT_KEY) and all(ids[:3]):
            return ids
        if len(ids) == 1 and ids[0]:
            return ids[0]
    raise ValueError(f"{where}: {key!r} is neither an id nor the {len(ACCOUNT_KEY)} of an account")


class _SharedNames(dict[str, Any]):
    """What attrs have of names, of which pandas' copies of attrs, one an operation, are one."""

    def __deepcopy__(self, _: object) -> _SharedNames:
        return self

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        return dict, ({**self},)


@dataclass(frozen=True, slots=True)
class Names:
    """What assets, and parties, markets and accounts, are called: kept and told together."""

    assets: Assets = Assets({})  # noqa: RUF009 - immutable
    labels: Labels = Labels({})  # noqa: RUF009 - immutable

    def updated(self, others: Names) -> Names:
        """Return these and others; of what both name, what the others say."""
        return Names(self.assets.updated(others.assets), self.labels.updated(others.labels))

    def keywords(self) -> dict[str, Any]:
        """Return them as functions take them."""
        return {"assets": self.assets, "labels": self.labels}

    def but(self, assets: AssetsLike | None, labels: LabelsLike | None) -> Names:
        """Return these, or in their place what a caller gives."""
        return Names(
            self.assets if assets is None else read_assets(assets),
            self.labels if labels is None else read_labels(labels),
        )


def read_names(assets: AssetsLike | None = None, labels: LabelsLike | None = None) -> Names:
    """Return the names that a caller gives: see `read_assets` and `read_labels`."""
    return Names().but(assets, labels)


def note_names(metadata: Mapping[str, object], names: Names) -> dict[str, object]:
    """Return what is told of a load with names beside those that it tells of already."""
    now = names_in(metadata).updated(names).keywords()
    return {**metadata, **{key: _SharedNames(told.to_json()) for key, told in now.items() if told}}


def carried(metadata: object) -> dict[str, Any]:
    """Return the names alone in what a table's attrs tell, for those of what is made of it."""
    told = metadata if isinstance(metadata, Mapping) else {}
    return {key: told[key] for key in ("assets", "labels") if isinstance(told.get(key), Mapping)}


def names_in(metadata: object) -> Names:
    """Return the names in what a table's attrs or a file tell of a load; maybe none."""
    return read_names(**carried(metadata))


def names_of(
    frame: pd.DataFrame, assets: AssetsLike | None = None, labels: LabelsLike | None = None
) -> Names:
    """Return the names that are given, or else those that a frame's attrs tell; maybe none."""
    return names_in(frame.attrs.get(ATTRS_KEY)).but(assets, labels)


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
        Own names, as `read_labels` takes them; by default those that the attrs of `accounts` tell.

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
    told, places = told_of(accounts, names_of(accounts, labels=labels))
    return told["label"].iloc[places].set_axis(accounts.index)


def told_of(accounts: pd.DataFrame, names: Names) -> tuple[pd.DataFrame, NDArray[Any]]:
    """Return each account with its `symbol` and `label`, and which one each row is of."""
    columns = [name for name in ACCOUNT_KEY if name in accounts]
    if not columns:
        raise ValueError(f"labels are made of the columns {', '.join(ACCOUNT_KEY)}; it has none")
    keys = accounts[columns].reset_index(drop=True)
    told = keys.drop_duplicates().astype("str")
    shown = {name: names.labels.shown(told[name]) for name in _LABELLED if name in told}
    each: Any = told.to_dict("records")
    texts = [_label(ids, shown) for ids in each]
    if columns == ACCOUNT_KEY:
        alike = dict(zip(told.itertuples(index=False, name=None), texts, strict=True))
        texts = [*told_apart(alike, names.labels).values()]
    if "asset_id" in told:
        told["symbol"] = told["asset_id"].map(names.assets.labels(told["asset_id"].unique()))
    told["label"] = [*map(_drawable, texts)]
    places = keys.groupby(columns, sort=False, dropna=False, observed=True).ngroup()
    return told.astype("str"), places.to_numpy()


def short_keys(accounts: pd.DataFrame, names: Names) -> dict[str, list[str]]:
    """Return of each column of ids what these are called, or as short as tells them apart."""
    said: dict[str, Mapping[str, str]] = {}
    for name in ACCOUNT_KEY:
        if name in accounts:
            ids = {*accounts[name].astype("str")}
            told = names.assets.labels if name == "asset_id" else names.labels.shown
            said[name] = {x: type_label(x) for x in ids} if name == "account_type" else told(ids)
    return {name: [said[name][each] for each in accounts[name].astype("str")] for name in said}


def _label(ids: dict[str, str], shown: Mapping[str, Mapping[str, str]]) -> str:
    parts = [type_label(ids["account_type"])] if "account_type" in ids else []
    if "party_id" in ids:
        parts.append(shown["party_id"][ids["party_id"]] or "no party")
    if ids.get("market_id", NO_MARKET) != NO_MARKET:
        word = "" if "party_id" in ids else "market "
        parts.append(f"{word}{shown['market_id'][ids['market_id']]}")
    return " · ".join(parts) or ("no market" if "market_id" in ids else "all accounts")


def _drawable(label: str) -> str:
    # Matplotlib leaves out what begins with an underscore; a line break would break a legend.
    label = "".join(letter if letter.isprintable() else "\ufffd" for letter in label)
    return f" {label}" if label.startswith("_") else label


def group_labels(groups: pd.DataFrame, labels: LabelsLike | None = None) -> list[str]:
    """Return what to call groups of accounts, by ids and by other columns."""
    told = groups.drop(columns=ACCOUNT_KEY, errors="ignore").astype("str")
    told = told.fillna({name: f"no {name}" for name in told})
    if told.shape[1] + 1 < groups.shape[1] or told.empty:
        told.insert(0, "", account_labels(groups, labels=labels))
    return [" · ".join(map(_drawable, map(str, texts))) for texts in told.itertuples(index=False)]


def split_labels(accounts: pd.DataFrame, labels: LabelsLike | None = None) -> tuple[str, list[str]]:
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
    if len(accounts) == 1 or {*accounts} != {*ACCOUNT_KEY}:
        each = group_labels(accounts, labels)
        what = "parties" if [*accounts] == ["asset_id", "party_id"] else "holders"
        return each[0] if len(each) == 1 else f"{len(each):,} {what}", each
    differ = [name for name in ACCOUNT_KEY[1:] if accounts[name].nunique() > 1]
    said = {
        name: account_labels(accounts[[name]], labels=labels).iloc[0]
        for name in ACCOUNT_KEY[1:]
        if name not in differ and accounts[name].iloc[0]
    }
    kind = f"{said['account_type']} " if "account_type" in said else ""
    party = f" of {said['party_id']}" if "party_id" in said else ""
    market = f" in {said['market_id']}" if "market_id" in said else ""
    each = account_labels(accounts[differ], labels=labels).tolist()
    return f"{len(accounts):,} {kind}accounts{party}{market}", each
