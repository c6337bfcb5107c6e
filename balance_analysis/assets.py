"""What assets are called, and how many decimals they have.

The interface knows an asset by its id alone; who shows one to people, or counts in whole units,
takes an `Assets`. Archives, files and tables (in their attrs) keep those that they were given.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import os
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from balance_analysis.errors import check_type
from balance_analysis.presentation import rows_html
from balance_analysis.text import short_ids, told_apart

if TYPE_CHECKING:
    import pandas as pd

K = TypeVar("K")
V = TypeVar("V")

_MOST_DECIMALS: Final = 77
"""Of 256 bits, the widest integers that asset contracts count in."""


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


class ById(Mapping[K, V]):
    """What is told of things, by id; immutable."""

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


class Assets(ById[str, Asset]):
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

    def _repr_html_(self) -> str:
        rows = [(one.symbol, one.decimals, one.name, one.asset_id) for one in self.values()]
        return rows_html(f"{len(self)} assets", ["symbol", "decimals", "name", "asset_id"], rows)

    def label(self, asset_id: str) -> str:
        """Return what to show for an asset: its symbol, or its id, shortened, without one."""
        return self.labels([asset_id])[asset_id]

    def labels(self, asset_ids: Iterable[str]) -> dict[str, str]:
        """Return what to show for each of some assets, by which they can be told apart.

        A symbol that several assets have stands with the id.
        """
        wanted = list(asset_ids)
        symbols = {one.asset_id: one.symbol for one in self.values()}
        labels = told_apart(short_ids([*self, *wanted]), symbols)
        return {one: labels[one] for one in wanted}

    def find(self, text: str) -> Asset:
        """Return the asset of an id or a symbol, whatever its case; an exact id comes first.

        Raises
        ------
        ValueError
            If no asset is called that, or several are; near names are told.
        """
        found = self.matches(text)
        if len(found) == 1:
            return self[found[0]]
        if found:
            raise ValueError(
                f"{len(found)} assets have the symbol {text!r}: give one of the ids "
                f"{', '.join(found)}"
            )
        names = {one.symbol.casefold(): one.symbol for one in self.values() if one.symbol}
        close = difflib.get_close_matches(text.casefold(), names, cutoff=0.5)
        known = [names[name] for name in close] or sorted(names.values())
        hint = f"did you mean {' or '.join(known[:3])}?" if known else "none has a symbol"
        raise ValueError(f"no asset has the id or the symbol {text!r}; {hint}")

    def matches(self, text: str) -> list[str]:
        """Return the assets of an id or a symbol, whatever its case; an exact id comes first."""
        if text in self:
            return [text]
        wanted = text.casefold()
        told = {one: (one.casefold(), about.symbol.casefold()) for one, about in self.items()}
        return [one for one, names in told.items() if wanted in names]

    def to_json(self) -> dict[str, dict[str, str | int]]:
        """Return what `read_assets` reads, as JSON has it."""
        return {
            one.asset_id: {"symbol": one.symbol, "decimals": one.decimals, "name": one.name}
            for one in self.values()
        }


AssetsLike: TypeAlias = "Assets | Mapping[str, object] | pd.DataFrame | str | os.PathLike[str]"
"""Assets, or what `read_assets` makes them of."""


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
        If the source isn't as described.
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
    return _make(*read_source(source, "assets", _of_row))


def read_source(
    source: Any,  # noqa: ANN401 - whatever a caller gives
    what: str,
    of_row: Callable[[Mapping[Any, Any]], tuple[object, object]],
) -> tuple[Mapping[Any, Any], str]:
    """Return what is told of things by id, in a mapping, a frame or a file, and where that stands.

    `of_row` returns of a row, as a CSV file or a frame has it, an id and what is told of it.

    Raises
    ------
    ValueError, TypeError, OSError
        See `read_assets`.
    """
    if isinstance(source, Mapping):
        return source, f"the {what}"
    if hasattr(source, "to_dict"):
        rows = source.astype(object).where(source.notna(), "").to_dict("records")
        return _by_id(rows, of_row), f"the {what}"
    check_type(source, (str, os.PathLike), f"{what} as a mapping, a frame or the path of a file")
    file = Path(source)
    readers: dict[str, Callable[[str], object]] = {
        ".toml": tomllib.loads,
        ".json": partial(json.loads, object_pairs_hook=_unique),
        ".csv": lambda text: _by_id(csv.DictReader(io.StringIO(text, newline="")), of_row),
    }
    if (read := readers.get(file.suffix.lower())) is None:
        raise ValueError(f"{file}: {what} stand in a .toml, .csv or .json file")
    try:
        content = read(file.read_text(encoding="utf-8-sig"))
    except RecursionError as error:
        raise ValueError(f"{file} can't be read: it is nested too deeply") from error
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{file} can't be read: {error}") from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{file} is no object of {what} by id")  # noqa: TRY004 - the content is wrong
    return content, str(file)


def _by_id(
    rows: Iterable[Mapping[Any, Any]],
    of_row: Callable[[Mapping[Any, Any]], tuple[object, object]],
) -> dict[object, object]:
    found: dict[object, object] = {}
    for number, row in enumerate(rows, 1):
        try:
            key, told = of_row(row)
        except ValueError as error:
            raise ValueError(f"row {number}: {error}") from error
        if found.setdefault(key, told) != told:
            raise ValueError(f"row {number}: above, something else is told of {key!r}")
    return found


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object of which no key stands twice, as in TOML."""
    for key, count in Counter(key for key, _ in pairs).items():
        if count > 1:
            raise ValueError(f"{key!r} stands twice in one object")
    return dict(pairs)


def _of_row(row: Mapping[Any, Any]) -> tuple[object, object]:
    if missing := {"asset_id", "decimals"} - row.keys():
        raise ValueError(f"there is no column {', '.join(sorted(missing))}")
    decimals = str(row["decimals"]).strip()
    if not decimals.isdecimal():
        raise ValueError(f"decimals must be a whole number, not {decimals!r}")
    about = {key: row.get(key) for key in ("symbol", "name")}
    return row["asset_id"], {**about, "decimals": int(decimals)}


def _make(content: Mapping[Any, object], where: str) -> Assets:
    return Assets({asset_id: _asset(asset_id, about, where) for asset_id, about in content.items()})


def _asset(asset_id: str, about: object, where: str) -> Asset:
    fields = about if isinstance(about, Mapping) else {"decimals": about}
    decimals = fields.get("decimals")
    if isinstance(decimals, bool) or not isinstance(decimals, Integral):
        raise ValueError(f"{where}: asset {asset_id!r} needs decimals, a whole number")  # noqa: TRY004 - the content is wrong
    if not 0 <= int(decimals) <= _MOST_DECIMALS:
        raise ValueError(f"{where}: asset {asset_id!r} can't have {decimals} decimals")
    symbol, name = (fields.get(key) or "" for key in ("symbol", "name"))
    if not (isinstance(symbol, str) and isinstance(name, str)):
        raise ValueError(f"{where}: symbol and name of asset {asset_id!r} must be text")  # noqa: TRY004 - the content is wrong
    return Asset(asset_id, int(decimals), symbol, name)


def rank_assets(rows: Mapping[str, int]) -> list[str]:
    """Return assets by how many rows they have, most first: one is shown first everywhere."""
    return sorted(rows, key=lambda asset: (-rows[asset], asset))
