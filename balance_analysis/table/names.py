"""Names of assets, parties and markets: read names, find ids by name, show names.

The interface has ids only. `read_assets` and `read_labels` read names from a mapping, a frame or a
file. Tables (in their attrs), files and archives keep the `Names` that a caller gives.
"""

from __future__ import annotations

import csv
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
from balance_analysis.table import schema
from balance_analysis.table.text import LONG_ID, did_you_mean, list_text, short_ids, type_label

if TYPE_CHECKING:
    import pandas as pd

V = TypeVar("V")

AssetsLike: TypeAlias = "Mapping[str, object] | pd.DataFrame | str | os.PathLike[str]"
"""What `read_assets` takes."""

LabelsLike: TypeAlias = "Mapping[str, str] | pd.DataFrame | str | os.PathLike[str]"
"""What `read_labels` takes."""

Held: TypeAlias = Mapping[str, Collection[str]]
"""The ids in a table or an archive, by column."""

_MAX_DECIMALS: Final = 77
"""Decimal digits of 256 bits, the widest integers in asset contracts."""

_NOT_AN_ID: Final = re.compile(
    r".*(?:…|\.\.).*|0[xX].*|\d+(?:\.\d*)?[eE]\+\d+|[0-9a-fA-F]{4,63}", re.DOTALL
)
"""Short forms and beginnings of ids, hex numbers as contracts print them, and ids that a
spreadsheet turned into numbers."""

_SHORT_ID: Final = re.compile(r"([^.…]*)(?:…|\.{2,3})([^.…]*)")
_SHORTEST: Final = 4
"""Minimum number of characters of a short form."""

_CACHED_IDS: Final = 1 << 16
"""Maximum number of ids whose names are cached: about 20 MB."""

_CANDIDATES: Final = 5
"""Maximum number of ids that an error lists."""

_HINT: Final = (
    "give the whole id; for a symbol, give assets too (--assets FILE), for another name labels "
    "(--labels FILE); write an asset id of another form as 'id:ID'"
)


@dataclass(frozen=True, slots=True)
class Asset:
    """An asset.

    Attributes
    ----------
    asset_id
        The id, as the interface spells it.
    decimals
        Number of decimals: a whole unit has 10**decimals smallest units.
    symbol
        Such as `USDT`; empty if it has none.
    name
        Such as `Tether USD`; empty if it has none.
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
        A mapping from ids to an `Asset`, to `decimals`, or to a mapping with `decimals` and
        optionally `symbol` and `name`; the path of a .toml or .json file with such a mapping (in
        TOML, one table per asset); or a DataFrame or the path of a .csv file with the columns
        `asset_id` and `decimals`, optionally `symbol` and `name`, and any others.

    Returns
    -------
    dict
        The assets by id.

    Raises
    ------
    ValueError
        If the source isn't as described, or a key is a short form of an id.
    TypeError
        If `source` is neither a mapping nor a frame nor a path.
    OSError
        If the file can't be read.

    Examples
    --------
    >>> read_assets({"USDT": {"symbol": "tUSD", "decimals": 6}})["USDT"]
    Asset(asset_id='USDT', decimals=6, symbol='tUSD', name='')
    """
    return _read(source, "assets", {"asset_id", "decimals"}, lambda row: row["asset_id"], _asset)


def read_labels(source: LabelsLike) -> dict[str, str]:
    """Read the labels that you give to parties and markets.

    Parameters
    ----------
    source
        A mapping from ids of parties and markets to text; the path of a .toml or .json file with
        such a mapping; or a DataFrame or the path of a .csv file with the column `label`, one of
        `id`, `party_id` and `market_id` in each row, and any others.

    Returns
    -------
    dict
        The labels by id. Several ids may share a label, which then stands for all of them.

    Raises
    ------
    ValueError
        If the source isn't as described, a key is a short form of an id, or a label is blank or an
        id.
    TypeError
        If `source` is neither a mapping nor a frame nor a path.
    OSError
        If the file can't be read.

    Examples
    --------
    >>> read_labels({"a1": "Alice", "b2": "Bob"})["a1"]
    'Alice'
    """
    labels = _read(source, "labels", {"label"}, _labelled_id, _label)
    ids = {schema.NETWORK_PARTY, *labels}
    for key, label in labels.items():
        if label in ids or LONG_ID.fullmatch(label):
            raise ValueError(f"label {label!r} of {key!r} is an id itself: choose another")
    return labels


def _read(
    source: Any,  # noqa: ANN401 - what a caller gives
    what: str,
    columns: set[str],
    key_of: Callable[[Mapping[Any, Any]], object],
    entry: Callable[[object, Any], tuple[str, V]],
) -> dict[str, V]:
    """Return the entries of a mapping, a frame or a file by id.

    Parameters
    ----------
    source, what
        The source, and what it has: "assets" or "labels".
    columns
        The columns that a row must have.
    key_of
        Returns a row's key.
    entry
        Checks a key and its content: a value of a mapping, or a row.
    """
    where, content = f"the {what}", source
    if hasattr(source, "to_dict"):
        content = source.astype(object).where(source.notna(), "").to_dict("records")
    elif not isinstance(source, Mapping):
        check_type(source, (str, os.PathLike), f"{what} as a mapping, a frame or a file's path")
        where, content = str(source), _read_file(Path(source), what)
    entries: dict[str, V] = {}
    is_rows = not isinstance(content, Mapping)
    for number, row in enumerate(content if is_rows else content.items(), 1):
        try:
            if is_rows and (missing := columns - row.keys()):
                raise ValueError(f"there is no column {', '.join(sorted(missing))}")  # noqa: TRY301
            raw_key, about = (key_of(row), row) if is_rows else row
            key, value = entry(raw_key, about)
            if entries.setdefault(key, value) != value:
                raise ValueError(f"{raw_key!r} is already defined differently")  # noqa: TRY301
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
        raise ValueError(f"{file}: {what} must be in a .toml, .csv or .json file")
    try:
        content = readers[kind](file.read_text(encoding="utf-8-sig"))
    except (ValueError, csv.Error, RecursionError) as error:
        raise ValueError(f"{file} can't be read: {error}") from error
    if kind == ".json" and not isinstance(content, Mapping):
        raise ValueError(f"{file} must be a JSON object of {what} by id")
    return content


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object; raise if a key occurs twice, as in TOML."""
    for key, count in Counter(key for key, _ in pairs).items():
        if count > 1:
            raise ValueError(f"the key {key!r} occurs {count} times in one object")
    return dict(pairs)


def _asset(key: object, about: Any) -> tuple[str, Asset]:  # noqa: ANN401 - what a caller gives
    asset_id = _id(key)
    fields = asdict(about) if isinstance(about, Asset) else about
    fields = fields if isinstance(fields, Mapping) else {"decimals": fields}
    decimals = str(fields.get("decimals")).strip()
    if not re.fullmatch("[0-9]{1,2}", decimals) or int(decimals) > _MAX_DECIMALS:
        raise ValueError(
            f"asset {asset_id!r} needs decimals, a whole number from 0 to {_MAX_DECIMALS}, not "
            f"{decimals[:40]!r}"
        )
    symbol, name = (fields.get(key) or "" for key in ("symbol", "name"))
    if not (isinstance(symbol, str) and isinstance(name, str)):
        raise ValueError(f"symbol and name of asset {asset_id!r} must be text")  # noqa: TRY004 - the content is wrong
    return asset_id, Asset(asset_id, int(decimals), symbol, name)


def _label(key: object, about: Any) -> tuple[str, str]:  # noqa: ANN401 - what a caller gives
    named, label = _id(key), about.get("label") if isinstance(about, Mapping) else about
    if not isinstance(label, str) or not label.strip():
        raise ValueError(f"the label of {key!r} must be non-blank text, not {label!r}")
    return named, label.strip()


def _labelled_id(row: Mapping[Any, Any]) -> object:
    """Return the only id in a row of labels: a party's or a market's."""
    ids = {name: row[name] for name in ("id", *schema.ACCOUNT_KEY) if row.get(name)}
    if len(ids) != 1 or ids.keys() & {*schema.ACCOUNT_KEY[:2]}:
        raise ValueError(f"a label needs one id (column id, party_id or market_id), not {ids}")
    return next(iter(ids.values()))


def _id(text: object) -> str:
    """Return an id; long ones in lower case, as in the interface."""
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{text!r} is not an id: ids are text")
    text = text.strip()
    if _NOT_AN_ID.fullmatch(text):
        raise ValueError(f"{text!r} is not a whole id: write it as the interface does")
    return text.lower() if LONG_ID.fullmatch(text) else text


@dataclass(frozen=True, eq=False, slots=True)
class Names:
    """The names of assets, and of parties and markets.

    Attributes
    ----------
    assets, labels
        As `read_assets` and `read_labels` return them. Don't modify them.
    """

    assets: Mapping[str, Asset] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    def updated(self, others: Names) -> Names:
        """Return these names updated by others, which win if both have a name."""
        return Names({**self.assets, **others.assets}, {**self.labels, **others.labels})

    def overridden_by(self, assets: AssetsLike | None, labels: LabelsLike | None) -> Names:
        """Return these names with the assets, the labels or both replaced by a caller's."""
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
            "labels": dict(self.labels),
        }

    def called(self, column: str) -> dict[str, str]:
        """Return the names for a column of `ACCOUNT_KEY`, by id."""
        if column == "asset_id":
            return {key: asset.symbol for key, asset in self.assets.items()}
        return dict(self.labels)

    def shown(self, column: str, ids: Iterable[str]) -> Mapping[str, str]:
        """Return the text to show for each id of a column: its name, else its short form.

        Different ids are shown differently: a name that several share is followed by the short
        form.
        """
        distinct = tuple(dict.fromkeys(ids))
        shown = _shown if len(distinct) <= _CACHED_IDS else _shown.__wrapped__
        return shown(self, column, distinct)

    def find(self, word: str, column: str, held: Held | None = None) -> list[str]:
        """Return the ids that a word stands for; several only if they share exactly this name.

        Parameters
        ----------
        word
            An id; a name in any case; or a unique part of an id: a short form such as
            `c2071f…76b5`, or the first four or more characters. A name that several ids share may
            be followed by a short form in parentheses, as `shown` returns it.
        column
            `asset_id`, `party_id` or `market_id`.
        held
            The ids in a table or an archive, with or without names: the word stands for some of
            them. By default it stands for ids that have a name.

        Raises
        ------
        ValueError
            If the word stands for nothing, or is ambiguous: it fits names that differ by case, or
            is a part of several ids.
        """
        what, known = column.removesuffix("_id"), self.called(column)
        if held is not None:
            known = {one: known.get(one, "") for one in held.get(column, ())}
        ids = _matching(word, what, known)
        if what == "asset":
            ids = ids or _matching(word, what, dict.fromkeys(schema.NAMED_ASSETS, ""))
            ids = [_only(ids, word, what, known)] if ids else []
        if ids:
            return ids
        names = sorted(filter(None, known.values()))
        hint = f"known names: {list_text(names)}" if names else _HINT
        raise ValueError(
            f"{what} id {word!r} is not 64 hex digits, nor a known name, nor a short form of "
            f"{_SHORTEST} characters or more; {did_you_mean(word, names) or hint}"
        )


def _matching(word: str, what: str, known: Mapping[str, str]) -> list[str]:
    """Return the known ids (keys, with their names) that a word stands for; may be empty."""
    if word in known:
        return [word]
    folded = word.casefold()
    pairs = ((text, key) for key, name in known.items() for text in (key, name) if text)
    same = [(text, key) for text, key in pairs if text.casefold() == folded]
    ids = [*dict.fromkeys(key for _, key in same)]
    if len({text for text, _ in same}) == 1:
        return ids
    name, _, short = word.removesuffix(")").rpartition(" (")
    namesakes = [key for key, text in known.items() if name and text.casefold() == name.casefold()]
    ids = ids or _with_short_form(short, namesakes) or _with_short_form(word, known)
    return [_only(ids, word, what, known)] if ids else []


def _with_short_form(text: str, ids: Iterable[str]) -> list[str]:
    """Return the ids that have a text as a short form or a beginning."""
    cut = _SHORT_ID.fullmatch(text)
    head, tail = map(str.lower, cut.groups() if cut else (text, ""))
    size = len(head) + len(tail)
    return [
        full
        for full in sorted(ids)
        if len(full) >= size >= _SHORTEST
        and full.lower().startswith(head)
        and full.lower().endswith(tail)
    ]


def _only(ids: list[str], word: str, what: str, known: Mapping[str, str]) -> str:
    """Return the only id; raise ValueError, which lists the ids, if there are several."""
    if len(ids) == 1:
        return ids[0]
    named = [f"{key} ({known[key]})" if known[key] else key for key in ids]
    listed = list_text(named, _CANDIDATES)
    raise ValueError(f"{what} id {word!r} may stand for {len(ids)}: {listed}; give one of the ids")


@lru_cache(maxsize=8)
def _shown(names: Names, column: str, ids: tuple[str, ...]) -> Mapping[str, str]:
    if column == "account_type":
        return {name: type_label(name) for name in ids}
    short, called = short_ids(ids), names.called(column)
    shown = {key: called.get(key) or text for key, text in short.items()}
    # A name that several ids share, whatever its case, is followed by the short form.
    uses = Counter(map(str.casefold, {**called, **shown}.values()))
    return {
        key: text if text == short[key] or uses[text.casefold()] == 1 else f"{text} ({short[key]})"
        for key, text in shown.items()
    }


class _Noted(dict[str, Any]):
    """Names as JSON in attrs. Deep copies, which pandas makes, are the same object.

    Attributes
    ----------
    names
        The names that this JSON is a part of.
    """

    __slots__ = ("names",)

    def __init__(self, content: Mapping[str, Any], names: Names) -> None:
        super().__init__(content)
        self.names = names

    def __deepcopy__(self, _: object) -> Self:
        return self


def read_names(assets: AssetsLike | None = None, labels: LabelsLike | None = None) -> Names:
    """Return a caller's names; see `read_assets` and `read_labels`."""
    return Names().overridden_by(assets, labels)


def note_names(metadata: Mapping[str, object], names: Names) -> dict[str, object]:
    """Return metadata with names added, which replace those in it."""
    names = names_in(metadata).updated(names)
    return {**metadata, **{key: _Noted(x, names) for key, x in names.to_json().items() if x}}


def carried(metadata: object) -> dict[str, Any]:
    """Return the part of metadata that has names."""
    noted = metadata if isinstance(metadata, Mapping) else {}
    return {key: noted[key] for key in ("assets", "labels") if isinstance(noted.get(key), Mapping)}


def names_in(metadata: object) -> Names:
    """Return the names in metadata; may be empty."""
    noted = carried(metadata)
    known = {part.names if isinstance(part, _Noted) else None for part in noted.values()}
    return (known.pop() if len(known) == 1 else None) or read_names(**noted)


def names_of(
    frame: pd.DataFrame, assets: AssetsLike | None = None, labels: LabelsLike | None = None
) -> Names:
    """Return the given names, else those in a frame's attrs; may be empty."""
    names = names_in(frame.attrs.get(schema.ATTRS_KEY))
    return names if assets is None is labels else names.overridden_by(assets, labels)


def rank_assets(rows: Mapping[str, int]) -> list[str]:
    """Return assets in the order in which they are shown: those with the most rows first."""
    return sorted(rows, key=lambda asset: (-rows[asset], asset))
