"""Tables of the report, column by column: text that is ready to be read, sorted and filtered."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pyarrow as pa
from markupsafe import Markup

from balance_analysis.analysis.int128 import integers_of, words_of
from balance_analysis.figures.styles import type_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from balance_analysis.assets import Assets

UNKNOWN: Final = "unknown"
NOTHING: Final = "\N{EN DASH}"
EMPTY_ID: Final = "(empty)"
_MIDNIGHT: Final = " 00:00:00"
_FINE_FROM, _LONG = 6, 8
"""Of more digits behind the point than the second, those from the first on are set smaller."""


@dataclass(frozen=True, slots=True)
class AssetUnit:
    """What amounts of an asset are shown in: its smallest unit, where `decimals` aren't known."""

    decimals: int | None = None
    symbol: str | None = None

    @property
    def label(self) -> str:
        """What stands in the head of a column."""
        if self.decimals is None:
            return "smallest unit"
        return self.symbol or "whole units"

    def write(self, amounts: Sequence[int | None]) -> list[str]:
        """Return amounts as text, in the same number of decimals, as few as all of them need.

        Examples
        --------
        >>> AssetUnit(6).write([1_234_500_000, -20_000, None])
        ['1,234.50', '-0.02', 'unknown']
        """
        decimals = self.decimals or 0
        texts = [str(abs(amount)).zfill(decimals + 1) for amount in amounts if amount]
        zeros = [len(text) - len(text.rstrip("0")) for text in texts]
        needed = decimals - min([decimals, *zeros])
        return [
            UNKNOWN if amount is None else _write(amount, decimals, needed) for amount in amounts
        ]


def _write(amount: int, decimals: int, needed: int) -> str:
    whole, fraction = divmod(abs(amount), 10**decimals)
    point = f".{str(fraction).zfill(decimals)[:needed]}" if needed else ""
    return f"{'-' if amount < 0 else ''}{whole:,}{point}"


def units_of(ids: Iterable[str], assets: Assets) -> dict[str, AssetUnit]:
    """Return what each asset is shown in."""
    labels = assets.labels(ids)
    return {
        one: AssetUnit(assets[one].decimals, label) if one in assets else AssetUnit()
        for one, label in labels.items()
    }


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its cells from the first row to the last, and its total, as text or markup."""

    label: str
    cells: Sequence[str]
    unit: str = ""
    is_number: bool = False
    total: str = ""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table of the page, `sorted_by` the column of that label."""

    caption: str
    columns: tuple[Column, ...]
    note: str = ""
    sorted_by: str = ""
    is_descending: bool = False

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.columns[0].cells)

    @property
    def rows(self) -> Iterable[tuple[str, ...]]:
        """The cells of each row."""
        return zip(*(column.cells for column in self.columns), strict=True)


def integers(column: pd.Series[Any]) -> list[int | None]:
    """Return a column of amounts as Python integers, `None` where it is NA."""
    values = pa.array(column.array)
    known = values.is_valid().to_pylist()
    numbers = integers_of(words_of(values))
    return [number if valid else None for number, valid in zip(numbers, known, strict=True)]


def amounts(
    label: str, values: Sequence[int | None], unit: AssetUnit, *, total: int | None = None
) -> Column:
    """Return a column of amounts, in the unit of their asset; `None` is unknown."""
    *cells, last = map(_refined, unit.write([*values, total]))
    return Column(label, cells, unit.label, is_number=True, total="" if total is None else last)


def _refined(text: str) -> str:
    """Return an amount with what is hardly ever looked at of its digits set smaller."""
    whole, _, fraction = text.partition(".")
    if len(fraction) <= _LONG:
        return text
    said = Markup("{}.{}<small>{}</small>")
    return said.format(whole, fraction[:_FINE_FROM], fraction[_FINE_FROM:])


def counts(label: str, values: Iterable[Any], *, total: int | None = None) -> Column:
    """Return a column of whole numbers that are no amounts; NA is unknown."""
    cells = [UNKNOWN if pd.isna(value) else f"{value:,}" for value in values]
    return Column(label, cells, is_number=True, total="" if total is None else f"{total:,}")


def ratios(label: str, values: Iterable[float | None], *, places: int = 4) -> Column:
    """Return a column of parts of a whole, in percent; `None` and NaN are unknown.

    What would be rounded to nothing or to the whole, but isn't, is "<0.0001" or ">99.9999".
    """
    return Column(label, [ratio_text(value, places) for value in values], "%", is_number=True)


def ratio_text(value: float | None, places: int = 4) -> str:
    """Return a part of a whole in percent: see `ratios`."""
    if value is None or math.isnan(value):
        return UNKNOWN
    text, least = f"{100 * value:.{places}f}", 10**-places
    if 0 < value < 1 and float(text) == 0:
        return f"<{least:.{places}f}"
    if 0 < value < 1 and float(text) == 100:  # noqa: PLR2004 - the whole
        return f">{100 - least:.{places}f}"
    return text


def moments(label: str, values: Iterable[Any]) -> Column:
    """Return a column of moments in UTC, with every digit that they have; of midnights, dates."""
    texts = [write_moment(value) for value in values]
    if all(text.endswith(_MIDNIGHT) for text in texts):
        texts = [text.removesuffix(_MIDNIGHT) for text in texts]
    return Column(label, texts, "UTC")


def write_moment(moment: Any) -> str:  # noqa: ANN401 - what pandas has for a moment, or none
    """Return a moment as text, in UTC; a dash where there is none."""
    if moment is None or pd.isna(moment):
        return NOTHING
    stamp = pd.Timestamp(moment).tz_convert("UTC").tz_localize(None)
    return stamp.isoformat(" ", "nanoseconds").rstrip("0").rstrip(".")


def words(label: str, values: Iterable[Any]) -> Column:
    """Return a column of text: whole numbers with their digits grouped, yes or no, NA empty."""
    return Column(label, [_word(value) for value in values])


def _word(value: Any) -> str:  # noqa: ANN401 - text, a number, a flag or NA
    if pd.isna(value):
        return ""
    if isinstance(value, str):
        return value
    return ("no", "yes")[bool(value)] if pd.api.types.is_bool(value) else f"{value:,}"


def types(label: str, values: Iterable[str]) -> Column:
    """Return a column of account types, as words."""
    return Column(label, [type_label(value) or EMPTY_ID for value in values])


def ids(
    label: str,
    values: Sequence[str],
    short: Mapping[str, str],
    *,
    anchors: Sequence[str] = (),
    empty: str = EMPTY_ID,
) -> Column:
    """Return a column of ids in their short forms, each with the anchor that it leads to."""
    pairs = zip(values, anchors or [""] * len(values), strict=True)
    return Column(label, [_id(value, short, anchor, empty) for value, anchor in pairs])


def _id(value: str, short: Mapping[str, str], anchor: str, empty: str) -> str:
    name = Markup('class="id" title="{}"').format(value) if value else Markup()
    text = short[value] if value else empty
    if anchor:
        return Markup('<a href="#{}" {}>{}</a>').format(anchor, name, text)
    return Markup("<span {}>{}</span>").format(name, text) if value else text
