"""What assets, parties, markets and accounts are called: reading names, finding ids, showing names.

The interface knows ids alone. `read_assets` and `read_labels` read names from a mapping, a frame or
a file. Tables (in their attrs), files and archives keep the `Names` that they were given.
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
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from balance_analysis.errors import check_type
from balance_analysis.table.schema import (
    ACCOUNT_KEY,
    ATTRS_KEY,
    NAMED_ASSETS,
    NETWORK_PARTY,
    NO_MARKET,
)
from balance_analysis.table.text import LONG_ID, list_text, short_ids, type_label

if TYPE_CHECKING:
    import pandas as pd

K = TypeVar("K")
V = TypeVar("V")

Named: TypeAlias = "str | tuple[str, ...]"
"""The id of a party or a market, or an account: its ids in the order of `ACCOUNT_KEY`."""

AssetsLike: TypeAlias = "Mapping[str, object] | pd.DataFrame | str | os.PathLike[str]"
"""What `read_assets` takes."""

LabelsLike: TypeAlias = "Mapping[Any, str] | pd.DataFrame | str | os.PathLike[str]"
"""What `read_labels` takes."""

Held: TypeAlias = Mapping[str, Collection[str]]
"""The ids that a table or an archive has, by column."""

_MOST_DECIMALS: Final = 77
"""Of 256 bits, the widest integers that asset contracts count in."""

_SEPARATOR: Final = "/"
"""Between the ids of an account in a file, where a key is text."""

_NOT_AN_ID: Final = re.compile(r".*(?:…|\.\.).*|0[xX].*|\d+(?:\.\d*)?[eE]\+\d+", re.DOTALL)
"""Short forms, numbers in hex as contracts print them, and what spreadsheets make of an id."""

_SHORT_ID: Final = re.compile(r"([^.…]*)(?:…|\.{2,3})([^.…]*)")
_FEWEST: Final = 4
"""Minimum number of characters of a short form."""

_KEPT: Final = 1 << 16
"""Maximum number of ids whose names are kept for the next call: some 20 MB."""

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
        The id, as the interface spells it.
    decimals
        An asset of 6 decimals has 10**6 smallest units in a whole one.
    symbol
        Such as `USDT`; empty where it has none.
    name
        Such as `Tether USD`; empty where it has none.
    """

    asset_id: str
    decimals: int
    symbol: str = ""
    name: str = ""


def read_assets(source: AssetsLike) -> dict[str, Asset]:
    """Read the symbols, names and decimals of assets.

    Parameters
    ----------
    source
        A mapping of each id to an `Asset`, to `decimals`, or to a mapping of `decimals` and maybe
        `symbol` and `name`; the path of a .toml or .json file of such a mapping (in TOML a table
        for each asset); or a DataFrame or the path of a .csv file with the columns `asset_id` and
        `decimals`, maybe `symbol` and `name`, and any others.

    Returns
    -------
    dict
        The assets by id.

    Raises
    ------
    ValueError
        If the source isn't as described, or a key is a short form of an id.
    TypeError
        If it is neither a mapping nor a frame nor a path.
    OSError
        If the file can't be read.

    Examples
    --------
    >>> read_assets({"e46b": {"symbol": "tUSD", "decimals": 6}})["e46b"]
    Asset(asset_id='e46b', decimals=6, symbol='tUSD', name='')
    """
    return _read(source, "assets", {"asset_id", "decimals"}, lambda row: row["asset_id"], _asset)


def read_labels(source: LabelsLike) -> dict[Named, str]:
    """Read own names of parties, markets and accounts.

    Parameters
    ----------
    source
        A mapping of ids of parties and markets to text, in which accounts are tuples in the order
        of `ACCOUNT_KEY`; the path of a .toml or .json file of such a mapping, in which an account
        is its four ids with slashes between, as in `"VOTE/ACCOUNT_TYPE_GENERAL/c207.../"`; or a
        DataFrame or the path of a .csv file with the column `label` and beside it `id` or columns
        of `ACCOUNT_KEY`, and any others. Each row has the id of a party or of a market, or all ids
        of an account.

    Returns
    -------
    dict
        The labels by id, or by the ids of an account. Several may have one label, which then stands
        for all of them.

    Raises
    ------
    ValueError
        If the source isn't as described, a key is a short form of an id, or a label is blank or an
        id.
    TypeError
        If it is neither a mapping nor a frame nor a path.
    OSError
        If the file can't be read.

    Examples
    --------
    >>> read_labels({"a1": "Alice", ("VOTE", "ACCOUNT_TYPE_GENERAL", "a1", ""): "Savings"})["a1"]
    'Alice'
    """
    labels = _read(source, "labels", {"label"}, _labelled_ids, _label)
    ids = {NETWORK_PARTY}.union(*((key,) if isinstance(key, str) else key for key in labels))
    for key, label in labels.items():
        if label in ids or LONG_ID.fullmatch(label):
            raise ValueError(f"the labels: {label!r}, the label of {key!r}, is an id itself")
    return labels


def _read(
    source: Any,  # noqa: ANN401 - what a caller gives
    what: str,
    columns: set[str],
    key_of: Callable[[Mapping[Any, Any]], object],
    entry: Callable[[object, Any], tuple[K, V]],
) -> dict[K, V]:
    """Return the entries of a mapping, a frame or a file by id.

    Parameters
    ----------
    source, what
        The source, and whether it has "assets" or "labels".
    columns
        The columns that a row must have.
    key_of
        Returns the key of a row.
    entry
        Checks a key and what stands beside it: a value of a mapping, or a row.
    """
    where, content = f"the {what}", source
    if hasattr(source, "to_dict"):
        content = source.astype(object).where(source.notna(), "").to_dict("records")
    elif not isinstance(source, Mapping):
        check_type(source, (str, os.PathLike), f"{what} as a mapping, a frame or a file's path")
        where, content = str(source), _read_file(Path(source), what)
    entries: dict[K, V] = {}
    is_rows = not isinstance(content, Mapping)
    for number, row in enumerate(content if is_rows else content.items(), 1):
        try:
            if is_rows and (missing := columns - row.keys()):
                raise ValueError(f"there is no column {', '.join(sorted(missing))}")  # noqa: TRY301
            given, about = (key_of(row), row) if is_rows else row
            key, value = entry(given, about)
            if entries.setdefault(key, value) != value:
                raise ValueError(f"{given!r} is already defined differently")  # noqa: TRY301
        except ValueError as error:
            place = f", row {number}" if is_rows else ""
            raise ValueError(f"{where}{place}: {error}") from error
    return entries


def _read_file(file: Path, what: str) -> Any:  # noqa: ANN401 - a mapping, or rows
    readers: dict[str, Callable[[str], Any]] = {
        ".toml": tomllib.loads,
        ".json": lambda text: json.loads(text, object_pairs_hook=_without_repeats),
        ".csv": lambda text: [*csv.DictReader(io.StringIO(text, newline=""))],
    }
    kind = file.suffix.lower()
    if kind not in readers:
        raise ValueError(f"{file}: {what} are read from a .toml, .csv or .json file")
    try:
        content = readers[kind](file.read_text(encoding="utf-8-sig"))
    except RecursionError as error:
        raise ValueError(f"{file} can't be read: it is nested too deeply") from error
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{file} can't be read: {error}") from error
    if kind == ".json" and not isinstance(content, Mapping):
        raise ValueError(f"{file} must be a JSON object of {what} by id")
    return content


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object; a key that occurs twice is an error, as in TOML."""
    for key, count in Counter(key for key, _ in pairs).items():
        if count > 1:
            raise ValueError(f"the key {key!r} occurs {count} times in one object")
    return dict(pairs)


def _asset(key: object, about: Any) -> tuple[str, Asset]:  # noqa: ANN401 - what a caller gives
    asset_id = _id(key)
    fields = asdict(about) if isinstance(about, Asset) else about
    fields = fields if isinstance(fields, Mapping) else {"decimals": fields}
    decimals = str(fields.get("decimals")).strip()
    if not re.fullmatch("[0-9]{1,2}", decimals) or int(decimals) > _MOST_DECIMALS:
        raise ValueError(
            f"asset {asset_id!r} needs decimals, a whole number from 0 to {_MOST_DECIMALS}, not "
            f"{decimals[:40]!r}"
        )
    symbol, name = (fields.get(one) or "" for one in ("symbol", "name"))
    if not (isinstance(symbol, str) and isinstance(name, str)):
        raise ValueError(f"symbol and name of asset {asset_id!r} must be text")  # noqa: TRY004 - the content is wrong
    return asset_id, Asset(asset_id, int(decimals), symbol, name)


def _label(key: object, about: Any) -> tuple[Named, str]:  # noqa: ANN401 - what a caller gives
    label = about["label"] if isinstance(about, Mapping) else about
    parts = key.split(_SEPARATOR) if isinstance(key, str) else key
    ids: tuple[str, ...] = ()
    if isinstance(parts, list | tuple) and all(isinstance(part, str) for part in parts):
        ids = tuple(_id(part.strip()) for part in parts)
    if len(ids) not in {1, len(ACCOUNT_KEY)} or not all(ids[:3]):
        raise ValueError(f"{key!r} is neither an id nor the {len(ACCOUNT_KEY)} of an account")
    if not isinstance(label, str) or not label.strip():
        raise ValueError(f"the label of {key!r} must be text, not {label!r}")
    return ids[0] if len(ids) == 1 else ids, label.strip()


def _labelled_ids(row: Mapping[Any, Any]) -> object:
    """Return the id, or the ids of the account, that a row of labels has."""
    ids = {name: row[name] for name in ("id", *ACCOUNT_KEY) if row.get(name)}
    if ids.keys() >= {*ACCOUNT_KEY[:3]}:
        return tuple(ids.get(name, NO_MARKET) for name in ACCOUNT_KEY)
    if len(ids) != 1 or ids.keys() & {*ACCOUNT_KEY[:2]}:
        raise ValueError(
            f"a label needs an id (column id, party_id or market_id) or an account (columns "
            f"{', '.join(ACCOUNT_KEY)})"
        )
    return next(iter(ids.values()))


def _id(text: object) -> str:
    """Return an id, in lower case as the interface has long ones."""
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not an id: ids are text")  # noqa: TRY004 - the content is wrong
    if _NOT_AN_ID.fullmatch(text):
        raise ValueError(f"{text!r} is not a whole id: a name needs the id as the interface has it")
    return text.lower() if LONG_ID.fullmatch(text) else text


@dataclass(frozen=True, eq=False, slots=True)
class Names:
    """The names of assets, and of parties, markets and accounts.

    Attributes
    ----------
    assets, labels
        As `read_assets` and `read_labels` return them. Nobody changes them.
    """

    assets: Mapping[str, Asset] = field(default_factory=dict)
    labels: Mapping[Named, str] = field(default_factory=dict)

    def updated(self, others: Names) -> Names:
        """Return these and others, which win where both name a thing."""
        return Names({**self.assets, **others.assets}, {**self.labels, **others.labels})

    def overridden_by(self, assets: AssetsLike | None, labels: LabelsLike | None) -> Names:
        """Return these, or in their place the assets or the labels that a caller gives."""
        return Names(
            self.assets if assets is None else read_assets(assets),
            self.labels if labels is None else read_labels(labels),
        )

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return `assets` and `labels` as JSON that `read_assets` and `read_labels` read."""
        return {
            "assets": {
                one.asset_id: {"symbol": one.symbol, "decimals": one.decimals, "name": one.name}
                for one in self.assets.values()
            },
            "labels": {
                key if isinstance(key, str) else _SEPARATOR.join(key): label
                for key, label in self.labels.items()
            },
        }

    def called(self, column: str) -> dict[str, str]:
        """Return the names of the ids in a column of `ACCOUNT_KEY`."""
        if column == "asset_id":
            return {one: asset.symbol for one, asset in self.assets.items()}
        return {key: label for key, label in self.labels.items() if isinstance(key, str)}

    def shown(self, column: str, ids: Iterable[str]) -> Mapping[str, str]:
        """Return what to show for each of some ids in a column: a name, or else a short form.

        Ids that differ are shown differently: a name that several have comes with the short form.
        """
        distinct = tuple(dict.fromkeys(ids))
        shown = _shown if len(distinct) <= _KEPT else _shown.__wrapped__
        return shown(self, column, distinct)

    def find(self, word: str, column: str, held: Held | None = None) -> list[str]:
        """Return the ids that a word stands for: several only if all of them have that very name.

        Parameters
        ----------
        word
            An id; a name, whatever its case; or a part of an id that no other id has: a short form
            such as `c2071f…76b5`, or the first four characters or more. A short form in brackets
            may follow a name that several have, as `shown` returns it.
        column
            `asset_id`, `party_id` or `market_id`.
        held
            The ids of a table or an archive, which may have no name.

        Raises
        ------
        ValueError
            If the word stands for nothing, may stand for names that differ by case, or is a part of
            several ids.
        """
        what, held = column.removesuffix("_id"), held or {}
        other = {"party": "market", "market": "party"}.get(what, "")
        elsewhere = {*held.get(f"{other}_id", ())} - {*held.get(column, ())}
        called = dict.fromkeys(held.get(column, ()), "") | self.called(column)
        known = {one: name for one, name in called.items() if one not in elsewhere}
        ids = _matching(word, what, known)
        if what == "asset":
            ids = ids or _matching(word, what, dict.fromkeys(NAMED_ASSETS, ""))
            ids = [_only(ids, word, what, known)] if ids else []
        if ids:
            return ids
        if any(called.get(one, "").casefold() == word.casefold() != "" for one in elsewhere):
            raise ValueError(f"{word!r} is the label of a {other}, not of a {what}")
        raise ValueError(
            f"{what} id {word!r} is not 64 hex digits, nor a name or a short form that is known; "
            + _hint(word, what, known)
        )


def _matching(word: str, what: str, known: Mapping[str, str]) -> list[str]:
    """Return the ids, among those known with their names, that a word stands for; maybe none."""
    if word in known:
        return [word]
    wanted = word.casefold()
    pairs = ((text, one) for one, name in known.items() for text in (one, name) if text)
    same = [(text, one) for text, one in pairs if text.casefold() == wanted]
    ids = [*dict.fromkeys(one for _, one in same)]
    if len({text for text, _ in same}) == 1:
        return ids
    name, _, short = word.removesuffix(")").rpartition(" (")
    alike = [one for one, text in known.items() if name and text.casefold() == name.casefold()]
    ids = ids or _fitting(short, alike) or _fitting(word, known)
    return [_only(ids, word, what, known)] if ids else []


def _fitting(text: str, ids: Iterable[str]) -> list[str]:
    """Return the ids that a text is a short form or the beginning of."""
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


def _only(ids: list[str], word: str, what: str, known: Mapping[str, str]) -> str:
    """Return the only one of some ids; ValueError, which lists them, if there are several."""
    if len(ids) == 1:
        return ids[0]
    named = [f"{one} ({known[one]})" if known[one] else one for one in ids]
    listed = list_text(named, _CANDIDATES, rest="and {} more")
    raise ValueError(f"{what} id {word!r} may stand for {len(ids)}: {listed}; give one of the ids")


def _hint(word: str, what: str, known: Mapping[str, str]) -> str:
    """Return what to write in place of a word that stands for nothing."""
    near = {name.casefold(): name for name in known.values() if name}
    names = sorted(near.values())
    if len(word) >= _FEWEST:
        near |= {one[: len(word)]: short for one, short in short_ids(known).items()}
    if close := [near[one] for one in difflib.get_close_matches(word.casefold(), near, cutoff=0.5)]:
        return f"did you mean {' or '.join(close)}?"
    if len(word) < _FEWEST:
        return f"a short form has {_FEWEST} characters at least"
    return f"known are {list_text(names)}" if names else _HINTS[what].format(word)


@lru_cache(maxsize=8)
def _shown(names: Names, column: str, ids: tuple[str, ...]) -> Mapping[str, str]:
    if column == "account_type":
        return {one: type_label(one) for one in ids}
    return distinct_names(short_ids(ids), names.called(column))


def distinct_names(short: Mapping[K, str], called: Mapping[K, str]) -> dict[K, str]:
    """Return the name of each thing, or without one its short form.

    A name that several things have, whatever its case, comes with the short form.
    """
    shown = {one: called.get(one) or text for one, text in short.items()}
    uses = Counter(map(str.casefold, {**called, **shown}.values()))
    return {
        one: text if text == short[one] or uses[text.casefold()] == 1 else f"{text} ({short[one]})"
        for one, text in shown.items()
    }


class _Noted(dict[str, Any]):
    """Names as JSON in attrs; pandas' deep copies of attrs share it and the `Names` it stands for.

    Attributes
    ----------
    names
        The names that this is a part of.
    """

    __slots__ = ("names",)

    def __init__(self, content: Mapping[str, Any], names: Names) -> None:
        super().__init__(content)
        self.names = names

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        return dict, ({**self},)


def read_names(assets: AssetsLike | None = None, labels: LabelsLike | None = None) -> Names:
    """Return the names that a caller gives: see `read_assets` and `read_labels`."""
    return Names().overridden_by(assets, labels)


def note_names(metadata: Mapping[str, object], names: Names) -> dict[str, object]:
    """Return attrs or a note of a load with names added, which win over those in it."""
    names = names_in(metadata).updated(names)
    return {**metadata, **{key: _Noted(x, names) for key, x in names.to_json().items() if x}}


def carried(metadata: object) -> dict[str, Any]:
    """Return the part of a table's attrs, or of a note, that has names."""
    noted = metadata if isinstance(metadata, Mapping) else {}
    return {key: noted[key] for key in ("assets", "labels") if isinstance(noted.get(key), Mapping)}


def names_in(metadata: object) -> Names:
    """Return the names in a table's attrs, or in a note of a load; maybe none."""
    noted = carried(metadata)
    known = {part.names if isinstance(part, _Noted) else None for part in noted.values()}
    names = known.pop() if len(known) == 1 else None
    return names or read_names(**noted)


def names_of(
    frame: pd.DataFrame, assets: AssetsLike | None = None, labels: LabelsLike | None = None
) -> Names:
    """Return the names that are given, or else those in a frame's attrs; maybe none."""
    names = names_in(frame.attrs.get(ATTRS_KEY))
    return names if assets is None is labels else names.overridden_by(assets, labels)


def rank_assets(rows: Mapping[str, int]) -> list[str]:
    """Return assets by their number of rows, most first: the order in which they are shown."""
    return sorted(rows, key=lambda asset: (-rows[asset], asset))
