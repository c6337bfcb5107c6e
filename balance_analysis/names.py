"""What assets, parties, markets and accounts are called: read and found.

The interface knows ids alone. Who shows them to people, or counts in whole units, takes `Assets`
and `Labels`. Archives, files and tables (in their attrs) keep those that they were given.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from balance_analysis.errors import check_type
from balance_analysis.schema import (
    ACCOUNT_KEY,
    ATTRS_KEY,
    NAMED_ASSETS,
    NETWORK_PARTY,
    NO_MARKET,
)
from balance_analysis.text import LONG_ID, list_text, short_ids, told_apart

if TYPE_CHECKING:
    import pandas as pd

K = TypeVar("K")
V = TypeVar("V")

Named: TypeAlias = "str | tuple[str, ...]"
"""The id of a party or a market, or an account: its ids in the order of `ACCOUNT_KEY`."""

AssetsLike: TypeAlias = "Assets | Mapping[str, object] | pd.DataFrame | str | os.PathLike[str]"
"""Assets, or what `read_assets` makes them of."""

LabelsLike: TypeAlias = "Labels | Mapping[Any, str] | pd.DataFrame | str | os.PathLike[str]"
"""Labels, or what `read_labels` makes them of."""

_MOST_DECIMALS: Final = 77
"""Of 256 bits, the widest integers that asset contracts count in."""

_SEPARATOR: Final = "/"
"""Between the ids of an account in a file, where a key is text."""

_NO_ID: Final = re.compile(r".*(?:…|\.\.).*|0[xX].*|\d+(?:\.\d*)?[eE]\+\d+", re.DOTALL)
"""Short forms, numbers in hex as contracts print them, and what spreadsheets make of an id."""

_SHORT_ID: Final = re.compile(r"([^.…]*)(?:…|\.{2,3})([^.…]*)")
_FEWEST: Final = 4
"""Minimum number of characters of a short form."""

_CANDIDATES: Final = 5
"""Maximum number of ids that an error lists."""

_HINTS: Final = {
    "asset": "for a symbol, give assets too (--assets FILE); an id that a network spells otherwise "
    "passes as 'id:{}'",
    "party": "give the whole id (or `network`), or labels (--labels FILE)",
    "market": "give the whole id, or labels (--labels FILE)",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One asset.

    Attributes
    ----------
    asset_id
        As the interface spells it.
    decimals
        How many: an asset of 6 decimals has 10**6 smallest units in a whole one.
    symbol
        Such as `USDT`; empty where it has none.
    name
        Such as `Tether USD`; empty where it has none.
    """

    asset_id: str
    decimals: int
    symbol: str = ""
    name: str = ""


class _ById(Mapping[K, V]):
    """Values by id; immutable."""

    def __init__(self, told: Mapping[K, V]) -> None:
        self._told = dict(told)

    def __getitem__(self, key: K) -> V:
        return self._told[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._told)

    def __len__(self) -> int:
        return len(self._told)

    def __hash__(self) -> int:
        return hash(frozenset(self._told.items()))

    def updated(self, others: Self) -> Self:
        """Return these and others; of what both have, what the others say."""
        return type(self)({**self, **others})


class Assets(_ById[str, Asset]):
    """Assets by id; immutable. Made by `read_assets`.

    Examples
    --------
    >>> assets = read_assets({"e46b": {"symbol": "tUSD", "decimals": 6}, "ef4a": 18})
    >>> assets
    Assets(tUSD: 6 decimals, ef4a: 18 decimals)
    >>> assets.find("tusd").asset_id
    'e46b'
    """

    def __repr__(self) -> str:
        labels = self.labels(self)
        shown = (f"{labels[one]}: {self[one].decimals} decimals" for one in self)
        return f"Assets({', '.join(shown)})"

    def symbols(self) -> dict[str, str]:
        """Return the symbol of each asset, empty where it has none."""
        return {one: about.symbol for one, about in self.items()}

    def label(self, asset_id: str) -> str:
        """Return what to show for an asset: its symbol, or its id, shortened, without one."""
        return self.labels([asset_id])[asset_id]

    def labels(self, asset_ids: Iterable[str]) -> dict[str, str]:
        """Return what to show for each of some assets, by which they can be told apart.

        A symbol that several assets have stands with the id.
        """
        wanted = list(asset_ids)
        labels = told_apart(short_ids([*self, *wanted]), self.symbols())
        return {one: labels[one] for one in wanted}

    def find(self, word: str) -> Asset:
        """Return the asset of an id, a symbol or a short form of an id; an exact id comes first.

        Raises
        ------
        ValueError
            If no asset is called that, or several are; candidates are listed.
        """
        return self[Names(self).find(word, "asset_id")[0]]

    def to_json(self) -> dict[str, dict[str, str | int]]:
        """Return what `read_assets` reads, as JSON has it."""
        return {
            one.asset_id: {"symbol": one.symbol, "decimals": one.decimals, "name": one.name}
            for one in self.values()
        }


class Labels(_ById[Named, str]):
    """Own names of parties, markets and accounts; immutable. Made by `read_labels`.

    Keys are the ids of parties and markets, and for accounts tuples in the order of `ACCOUNT_KEY`.
    Several may have one label, which stands for all of them.

    Examples
    --------
    >>> read_labels({"a1": "Alice", "b2": "Desk", "c3": "Desk"})
    Labels(Alice, Desk)
    """

    def __repr__(self) -> str:
        return f"Labels({', '.join(dict.fromkeys(self.values()))})"

    def ids(self) -> dict[str, str]:
        """Return the labels of parties and markets alone, by id."""
        return {key: label for key, label in self.items() if isinstance(key, str)}

    def shown(self, ids: Iterable[str]) -> dict[str, str]:
        """Return what to show for each of some ids, by which they can be told apart."""
        return told_apart(short_ids(ids), self)

    def to_json(self) -> dict[str, str]:
        """Return what `read_labels` reads, as JSON has it."""
        return {
            key if isinstance(key, str) else _SEPARATOR.join(key): label
            for key, label in self.items()
        }


def read_assets(source: AssetsLike) -> Assets:
    """Read what assets are called and how many decimals they have.

    Parameters
    ----------
    source
        Assets, as they are; a mapping of each id to `decimals`, or to a mapping of `decimals` and,
        where there are any, `symbol` and `name`; the path of a .toml or .json file of such a
        mapping (in TOML a table for each asset); or a DataFrame or the path of a .csv file with the
        columns `asset_id` and `decimals`, and maybe `symbol` and `name`, among others.

    Raises
    ------
    ValueError
        If the source isn't as described, or a key is short for an id.
    TypeError
        If it is neither assets nor a mapping nor a frame nor a path.
    OSError
        If the file can't be read.

    Examples
    --------
    >>> read_assets({"e46b": {"symbol": "tUSD", "decimals": 6}})["e46b"]
    Asset(asset_id='e46b', decimals=6, symbol='tUSD', name='')
    """
    if isinstance(source, Assets):
        return source
    return Assets(_read(source, "assets", _asset_row, _to_id, _to_asset))


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
        If the source isn't as described, a key is short for an id, or a label is blank or an id.
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
    labels = _read(source, "labels", _label_row, _to_named, _to_label)
    ids = {NETWORK_PARTY}.union(*((key,) if isinstance(key, str) else key for key in labels))
    for key, label in labels.items():
        if label in ids or LONG_ID.fullmatch(label):
            raise ValueError(f"the labels: {label!r}, the label of {key!r}, is an id itself")
    return Labels(labels)


def _read(
    source: Any,  # noqa: ANN401 - whatever a caller gives
    what: str,
    of_row: Callable[[Mapping[Any, Any]], tuple[object, object]],
    to_key: Callable[[object], K],
    to_value: Callable[[K, object], V],
) -> dict[K, V]:
    """Return what a mapping, a frame or a file says by id: two rows may not contradict each other.

    `of_row` returns of a row, as a CSV file or a frame has it, a key and what is said of it.
    """
    where, content = f"the {what}", source
    if hasattr(source, "to_dict"):
        content = source.astype(object).where(source.notna(), "").to_dict("records")
    elif not isinstance(source, Mapping):
        kinds = (str, os.PathLike)
        check_type(source, kinds, f"{what} as a mapping, a frame or the path of a file")
        where, content = str(source), _read_file(Path(source), what)
    found: dict[K, V] = {}
    is_rows = not isinstance(content, Mapping)
    for number, row in enumerate(content if is_rows else content.items(), 1):
        place = f"{where}, row {number}" if is_rows else where
        try:
            given, told = of_row(row) if is_rows else row
            key = to_key(given)
            value = to_value(key, told)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from error
        if found.setdefault(key, value) != value:
            raise ValueError(f"{place}: above, something else is told of {given!r}")
    return found


def _read_file(file: Path, what: str) -> Any:  # noqa: ANN401 - a mapping, or rows
    is_csv = file.suffix.lower() == ".csv"
    readers: dict[str, Callable[[str], Any]] = {
        ".toml": tomllib.loads,
        ".json": partial(json.loads, object_pairs_hook=_unique),
        ".csv": lambda text: [*csv.DictReader(io.StringIO(text, newline=""))],
    }
    if (read := readers.get(file.suffix.lower())) is None:
        raise ValueError(f"{file}: {what} stand in a .toml, .csv or .json file")
    try:
        content = read(file.read_text(encoding="utf-8-sig"))
    except RecursionError as error:
        raise ValueError(f"{file} can't be read: it is nested too deeply") from error
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{file} can't be read: {error}") from error
    if not is_csv and not isinstance(content, Mapping):
        raise ValueError(f"{file} is no object of {what} by id")
    return content


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object of which no key stands twice, as in TOML."""
    for key, count in Counter(key for key, _ in pairs).items():
        if count > 1:
            raise ValueError(f"{key!r} stands twice in one object")
    return dict(pairs)


def _asset_row(row: Mapping[Any, Any]) -> tuple[object, object]:
    if missing := {"asset_id", "decimals"} - row.keys():
        raise ValueError(f"there is no column {', '.join(sorted(missing))}")
    decimals = str(row["decimals"]).strip()
    if not decimals.isdecimal():
        raise ValueError(f"decimals must be a whole number, not {decimals!r}")
    about = {key: row.get(key) for key in ("symbol", "name")}
    return row["asset_id"], {**about, "decimals": int(decimals)}


def _label_row(row: Mapping[Any, Any]) -> tuple[object, object]:
    names = [name for name in ("id", *ACCOUNT_KEY) if name in row]
    if not names or "label" not in row:
        raise ValueError(f"labels stand in a column label, beside id or {', '.join(ACCOUNT_KEY)}")
    ids = {name: row[name] for name in names if row[name]}
    if ids.keys() >= {*ACCOUNT_KEY[:3]}:
        return tuple(ids.get(name, NO_MARKET) for name in ACCOUNT_KEY), row["label"]
    if len(ids) != 1 or ids.keys() & {*ACCOUNT_KEY[:2]}:
        raise ValueError("it must have the id of a party, of a market, or all of an account")
    return next(iter(ids.values())), row["label"]


def _to_id(text: object) -> str:
    """Return an id, in lower case as the interface has long ones."""
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is no id: ids are text")  # noqa: TRY004 - the content is wrong
    if _NO_ID.fullmatch(text):
        raise ValueError(f"{text!r} is no whole id as the interface spells it: names need those")
    return text.lower() if LONG_ID.fullmatch(text) else text


def _to_named(key: object) -> Named:
    """Return what a label is of."""
    parts = key.split(_SEPARATOR) if isinstance(key, str) else key
    if isinstance(parts, list | tuple) and all(isinstance(part, str) for part in parts):
        ids = tuple(_to_id(part.strip()) for part in parts)
        if len(ids) == len(ACCOUNT_KEY) and all(ids[:3]):
            return ids
        if len(ids) == 1 and ids[0]:
            return ids[0]
    raise ValueError(f"{key!r} is neither an id nor the {len(ACCOUNT_KEY)} of an account")


def _to_asset(asset_id: str, about: object) -> Asset:
    fields = about if isinstance(about, Mapping) else {"decimals": about}
    decimals = fields.get("decimals")
    if isinstance(decimals, bool) or not isinstance(decimals, Integral):
        raise ValueError(f"asset {asset_id!r} needs decimals, a whole number")  # noqa: TRY004 - the content is wrong
    if not 0 <= int(decimals) <= _MOST_DECIMALS:
        raise ValueError(f"asset {asset_id!r} can't have {decimals} decimals")
    symbol, name = (fields.get(key) or "" for key in ("symbol", "name"))
    if not (isinstance(symbol, str) and isinstance(name, str)):
        raise ValueError(f"symbol and name of asset {asset_id!r} must be text")  # noqa: TRY004 - the content is wrong
    return Asset(asset_id, int(decimals), symbol, name)


def _to_label(key: Named, label: object) -> str:
    if not isinstance(label, str) or not label.strip():
        raise ValueError(f"the label of {key!r} must be text, not {label!r}")
    return label.strip()


def find_ids(
    word: str, what: str, called: Mapping[str, str], ids: Collection[str] = ()
) -> list[str]:
    """Return the ids that a word stands for: several only if all of them have that very name.

    Parameters
    ----------
    word
        An id, a name, whatever its case, or a part of an id that no other has: a short form such
        as `c2071f…76b5`, or the first four characters or more. Before a part in brackets may stand
        a name that several have, as `told_apart` shows it.
    what
        What the ids are of, as messages say it: asset, party or market.
    called
        Names by id.
    ids
        More ids that there are.

    Raises
    ------
    ValueError
        If the word stands for nothing, may stand for names that differ by case, or is a part of
        several ids.
    """
    known, wanted = dict.fromkeys([*called, *ids]), word.casefold()
    if word in known:
        return [word]
    pairs = ((one, text) for one in known for text in (one, called.get(one, "")))
    meant = [(one, text) for one, text in pairs if wanted and text.casefold() == wanted]
    if meant:
        found = [*dict.fromkeys(one for one, _ in meant)]
        is_plain = len({text for _, text in meant}) == 1
        return found if is_plain else [one_of(found, word, what, called)]
    name, _, behind = word.removesuffix(")").rpartition(" (")
    alike = [one for one, text in called.items() if name and text.casefold() == name.casefold()]
    if found := _fitting(behind, alike) or _fitting(word, known):
        return [one_of(found, word, what, called)]
    near = {text.casefold(): text for text in called.values() if text}
    if names := sorted(near.values()):
        hint = f"known are {list_text(names)}"
    else:
        hint = _HINTS[what].format(word)
    if len(word) >= _FEWEST:
        near |= {one[: len(word)]: short for one, short in short_ids(known).items()}
    else:
        hint = f"a short form has {_FEWEST} characters at least"
    if close := [near[x] for x in difflib.get_close_matches(wanted, near, cutoff=0.5)]:
        hint = f"did you mean {' or '.join(close)}?"
    raise ValueError(
        f"{what} id {word!r} is not 64 hex digits, nor a name or a short form that is known; {hint}"
    )


def one_of(found: Sequence[str], word: str, what: str, called: Mapping[str, str]) -> str:
    """Return the one id that was found; ValueError, which lists them, if there are several."""
    if len(found) == 1:
        return found[0]
    named = (f"{one} ({called[one]})" if called.get(one) else one for one in found)
    told = list_text([*named], _CANDIDATES, rest="and {} more")
    raise ValueError(f"{what} id {word!r} may stand for {len(found)}: {told}; give one of the ids")


def _fitting(text: str, ids: Iterable[str]) -> list[str]:
    """Return the ids that a text is short for."""
    cut = _SHORT_ID.fullmatch(text)
    head, tail = map(str.lower, cut.groups() if cut else (text, ""))
    size = len(head) + len(tail)
    return [
        one
        for one in sorted(ids)
        if len(one) >= size >= _FEWEST
        and one.lower().startswith(head)
        and one.lower().endswith(tail)
    ]


class _SharedNames(dict[str, Any]):
    """A dict that `copy.deepcopy` returns unchanged, so that pandas' copying of attrs is free."""

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        return dict, ({**self},)


@dataclass(frozen=True, slots=True)
class Names:
    """What assets, and parties, markets and accounts, are called."""

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

    def find(
        self, word: str, column: str, held: Mapping[str, Collection[str]] | None = None
    ) -> list[str]:
        """Return the ids in a column that a word stands for: see `find_ids`.

        Parameters
        ----------
        column
            `asset_id`, `party_id` or `market_id`.
        held
            The ids that there are, by column; their accounts may have none of these names.
        """
        held, what = held or {}, column.removesuffix("_id")
        if what == "asset":
            called, also = self.assets.symbols(), () if self.assets else NAMED_ASSETS
            found = find_ids(word, what, called, {*held.get(column, ()), *also})
            return [one_of(found, word, what, called)]
        other = "market" if what == "party" else "party"
        others = {*held.get(f"{other}_id", ())} - {*held.get(column, ())}
        called = {one: label for one, label in self.labels.ids().items() if one not in others}
        try:
            return find_ids(word, what, called, held.get(column, ()))
        except ValueError:
            if word.casefold() not in {str(self.labels.get(one)).casefold() for one in others}:
                raise
            raise ValueError(f"{word!r} is the label of a {other}, not of a {what}") from None


def read_names(assets: AssetsLike | None = None, labels: LabelsLike | None = None) -> Names:
    """Return the names that a caller gives: see `read_assets` and `read_labels`."""
    return Names().but(assets, labels)


def note_names(metadata: Mapping[str, object], names: Names) -> dict[str, object]:
    """Return what attrs say of a load, with names beside it."""
    now = names_in(metadata).updated(names).keywords()
    return {**metadata, **{key: _SharedNames(told.to_json()) for key, told in now.items() if told}}


def carried(metadata: object) -> dict[str, Any]:
    """Return the names alone in what a table's attrs say."""
    told = metadata if isinstance(metadata, Mapping) else {}
    return {key: told[key] for key in ("assets", "labels") if isinstance(told.get(key), Mapping)}


def names_in(metadata: object) -> Names:
    """Return the names in what a table's attrs or a file say of a load; maybe none."""
    return read_names(**carried(metadata))


def names_of(
    frame: pd.DataFrame, assets: AssetsLike | None = None, labels: LabelsLike | None = None
) -> Names:
    """Return the names that are given, or else those in a frame's attrs; maybe none."""
    return names_in(frame.attrs.get(ATTRS_KEY)).but(assets, labels)


def rank_assets(rows: Mapping[str, int]) -> list[str]:
    """Return assets by how many rows they have, most first: one is shown first everywhere."""
    return sorted(rows, key=lambda asset: (-rows[asset], asset))
