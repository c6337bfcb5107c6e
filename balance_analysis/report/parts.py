"""What the page consists of: sections of words, pictures and tables, ready to be written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markupsafe import Markup

    from balance_analysis.report.svg import Picture
    from balance_analysis.report.tables import Cell, Sheet


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a section.

    Attributes
    ----------
    title
        What stands above it.
    words
        What it is about.
    pictures, sheets
        What it shows, pictures first.
    folded
        Tables that only show when they are asked for.
    """

    title: str
    words: str = ""
    pictures: tuple[Picture, ...] = ()
    sheets: tuple[Sheet, ...] = ()
    folded: tuple[Sheet, ...] = ()


@dataclass(frozen=True, slots=True)
class AccountSection:
    """One account.

    Attributes
    ----------
    anchor
        What leads to it.
    title
        What it is called.
    ids
        Its type and its ids, whole, with their names.
    facts
        What it did: of each fact its name, what it is and when that was.
    pictures
        Its balance.
    """

    anchor: str
    title: str
    ids: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, Cell, str], ...]
    pictures: tuple[Picture, ...]


@dataclass(frozen=True, slots=True)
class AssetSection:
    """One asset.

    Attributes
    ----------
    anchor
        What leads to it.
    title
        What it is called.
    asset_id
        Its id, whole.
    words
        What it is about.
    parts
        What is told of all its accounts.
    accounts_title
        What stands above the accounts.
    accounts
        The accounts that have a section.
    """

    anchor: str
    title: str
    asset_id: str
    words: str
    parts: tuple[Part, ...]
    accounts_title: str
    accounts: tuple[AccountSection, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The whole page.

    Attributes
    ----------
    title
        What it is a report of.
    interval
        What it covers, in words.
    verdict
        How complete it is, in a few words.
    is_complete
        Whether all of it is known to be complete.
    warnings
        What the reader must know before anything else.
    facts
        What is known of the source: names and texts.
    completeness, limits
        The two parts before the assets; the limits' where there are any.
    assets
        The assets.
    """

    title: str
    interval: str
    verdict: str
    is_complete: bool
    warnings: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    completeness: Part
    limits: Part | None
    assets: tuple[AssetSection, ...]

    @property
    def pictures(self) -> Iterator[Markup]:
        """The markup of every picture."""
        parts = [self.completeness, *([self.limits] if self.limits else [])]
        for asset in self.assets:
            parts += asset.parts
            for account in asset.accounts:
                yield from (picture.svg for picture in account.pictures)
        for part in parts:
            yield from (picture.svg for picture in part.pictures)
