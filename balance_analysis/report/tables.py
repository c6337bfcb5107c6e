"""Tables of the report, column by column: text that is ready to be read, sorted and filtered."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from balance_analysis.figures.labels import type_label
from balance_analysis.report.amounts import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from balance_analysis.report.amounts import AssetUnit

NOTHING: Final = "\N{EN DASH}"
EMPTY_ID: Final = "(empty)"
_MIDNIGHT: Final = " 00:00:00"
_FINE_FROM, _LONG = 6, 8
"""Of more digits behind the point than the second, those from the first on are set smaller."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One field.

    Attributes
    ----------
    text
        What it says.
    fine
        The digits that follow, set smaller.
    full
        The whole id, where the text is the short form of one, or one as short as that.
    anchor
        The section of the page that it leads to.
    """

    text: str
    fine: str = ""
    full: str = ""
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes
    ----------
    label
        Its head.
    cells
        From the first row to the last.
    unit
        The unit of its amounts.
    is_number
        Whether it is set to the right and sorted by size.
    total
        What stands under it.
    """

    label: str
    cells: Sequence[Cell]
    unit: str = ""
    is_number: bool = False
    total: Cell | None = None


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table of the page.

    Attributes
    ----------
    caption
        What it shows.
    columns
        From left to right.
    note
        What is to be known of it.
    sorted_by
        The label of the column that it is sorted by.
    is_descending
        Whether that is from the largest down.
    """

    caption: str
    columns: tuple[Column, ...]
    note: str = ""
    sorted_by: str = ""
    is_descending: bool = False

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.columns[0].cells)

    @property
    def rows(self) -> Iterable[tuple[tuple[bool, Cell], ...]]:
        """The fields of each row, each with whether it is a number."""
        kinds = [column.is_number for column in self.columns]
        for cells in zip(*(column.cells for column in self.columns), strict=True):
            yield tuple(zip(kinds, cells, strict=True))

    @property
    def has_totals(self) -> bool:
        """Whether anything stands under a column."""
        return any(column.total for column in self.columns)


def amounts(
    label: str, values: Sequence[int | None], unit: AssetUnit, *, total: int | None = None
) -> Column:
    """Return a column of amounts, in the unit of their asset; `None` is unknown."""
    *cells, last = [_amount(text) for text in unit.write([*values, total])]
    return Column(label, cells, unit.label, is_number=True, total=None if total is None else last)


def _amount(text: str) -> Cell:
    whole, point, fraction = text.partition(".")
    if len(fraction) <= _LONG:
        return Cell(text)
    return Cell(whole + point + fraction[:_FINE_FROM], fraction[_FINE_FROM:])


def counts(label: str, values: Iterable[Any], *, total: int | None = None) -> Column:
    """Return a column of whole numbers that are no amounts; NA is unknown."""
    last = None if total is None else Cell(f"{total:,}")
    cells = [Cell(UNKNOWN if pd.isna(value) else f"{value:,}") for value in values]
    return Column(label, cells, is_number=True, total=last)


def ratios(label: str, values: Iterable[float | None], *, places: int = 4) -> Column:
    """Return a column of parts of a whole, in percent; `None` and NaN are unknown.

    What would be rounded to nothing or to the whole, but isn't, is "<0.0001" or ">99.9999".
    """
    return Column(label, [Cell(_ratio(value, places)) for value in values], "%", is_number=True)


def _ratio(value: float | None, places: int) -> str:
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
    return Column(label, [Cell(text) for text in texts], "UTC")


def write_moment(moment: Any) -> str:  # noqa: ANN401 - what pandas has for a moment, or none
    """Return a moment as text, in UTC; a dash where there is none."""
    if moment is None or pd.isna(moment):
        return NOTHING
    stamp = pd.Timestamp(moment).tz_convert("UTC").tz_localize(None)
    return stamp.isoformat(" ", "nanoseconds").rstrip("0").rstrip(".")


def words(label: str, values: Iterable[str]) -> Column:
    """Return a column of text."""
    return Column(label, [Cell(value) for value in values])


def types(label: str, values: Iterable[str]) -> Column:
    """Return a column of account types, as words."""
    return words(label, [type_label(value) or EMPTY_ID for value in values])


def ids(
    label: str,
    values: Sequence[str],
    short: Mapping[str, str],
    *,
    anchors: Sequence[str] = (),
    empty: str = EMPTY_ID,
) -> Column:
    """Return a column of ids in their short forms, each with where it leads to."""
    targets = anchors or [""] * len(values)
    cells = [
        Cell(short[value], full=value, anchor=anchor) if value else Cell(empty, anchor=anchor)
        for value, anchor in zip(values, targets, strict=True)
    ]
    return Column(label, cells)
