"""The report, section by section, in the order of the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import matplotlib as mpl

from balance_analysis.figures.flows import period_name
from balance_analysis.figures.labels import type_label
from balance_analysis.report.amounts import asset_names
from balance_analysis.report.content import MOST_DRAWN, TOP
from balance_analysis.report.parts import AccountSection, AssetSection, Part, Report
from balance_analysis.report.pictures import Artist
from balance_analysis.report.sheets import (
    account_facts,
    account_keys,
    accounts_sheet,
    concentration_sheet,
    coverage_sheet,
    digests_sheet,
    flows_sheet,
    limits_sheet,
    make_names,
    movers_sheet,
    totals_sheet,
)
from balance_analysis.report.tables import EMPTY_ID, write_moment
from balance_analysis.schema import ACCOUNT_KEY, NO_MARKET
from balance_analysis.text import count_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from balance_analysis.report.amounts import AssetUnit
    from balance_analysis.report.content import Account, AssetContent, Content
    from balance_analysis.report.sheets import Names
    from balance_analysis.report.source import Source
    from balance_analysis.report.tables import Sheet

MOST_LISTED: Final = 5000
"""How many accounts the page lists at most, of all assets together."""


def make_report(content: Content, units: Mapping[str, AssetUnit]) -> Report:
    """Return what the page of a report consists of.

    Parameters
    ----------
    content
        What it tells.
    units
        What each asset is shown in.
    """
    with mpl.rc_context():
        mpl.rcdefaults()  # what the caller has set is for the caller's figures
        return _make(content, units)


def _make(content: Content, units: Mapping[str, AssetUnit]) -> Report:
    source = content.source
    artist = Artist(content)
    has_limits = source.limits is not None and not source.limits.empty
    sections = _Sections(content, units, artist, make_names(content.assets))
    return Report(
        title=f"Balances of {source.name}",
        interval=_interval(source),
        verdict=_verdict(source),
        is_complete=source.is_complete,
        warnings=tuple(_warnings(source)),
        facts=tuple(_facts(content)),
        completeness=_completeness(source, artist),
        limits=_limits(source.limits, artist) if has_limits else None,
        assets=tuple(sections.assets()),
    )


def _interval(source: Source) -> str:
    if source.start is None:
        return "no balance changes"
    return f"{write_moment(source.start)} to {write_moment(source.end)} UTC"


def _verdict(source: Source) -> str:
    if source.problems:
        return "checks failed"
    if source.holes:
        return "not complete"
    return "complete" if source.is_proven else "not known to be complete"


def _warnings(source: Source) -> Iterator[str]:
    for hole in source.holes:
        stretch = f"{write_moment(hole.start)} to {write_moment(hole.end)} UTC"
        yield f"{stretch} {_STATES[hole.state]}."
    yield from (f"A check failed: {problem}" for problem in source.problems)
    if not source.is_proven:
        yield (
            "The table doesn't tell that no rows are missing; a load and an archive do."
            if source.coverage is None
            else "Nothing of the archive is known to be complete."
        )


_STATES: Final = {
    "gap": "was never asked for: balance changes of it are missing here",
    "unproven": "was asked for when the node may have forgotten rows of it",
    "unknown": "is not known: balance changes of it may be missing here",
}


def _facts(content: Content) -> Iterator[tuple[str, str]]:
    source = content.source
    yield from source.facts
    accounts = sum(len(asset.summary) for asset in content.assets)
    yield "balance changes", f"{len(source.table):,}"
    yield "accounts", f"{accounts:,}"
    yield "assets", f"{len(content.assets):,}"
    previous = content.previous_end
    yield "last report", "none" if previous is None else f"ended {write_moment(previous)} UTC"


def _completeness(source: Source, artist: Artist) -> Part:
    title, words = "How complete this is", f"Checks passed: {source.checked}."
    if source.problems:
        words = f"Checks failed, see above: {source.checked}."
    if source.coverage is None or source.coverage.empty:
        return Part(title, words)
    return Part(
        title,
        words,
        pictures=(artist.coverage(source.coverage),),
        sheets=(coverage_sheet(source.coverage),),
        folded=(digests_sheet(source.digests),),
    )


def _limits(limits: pd.DataFrame | None, artist: Artist) -> Part | None:
    if limits is None:
        return None
    changes = len(limits) - 1
    said = {0: "They never changed while they were watched.", 1: "They changed once."}
    return Part(
        "Network limits",
        said.get(changes, f"They changed {changes:,} times."),
        pictures=(artist.limits(limits),),
        sheets=(limits_sheet(limits),),
    )


@dataclass(slots=True)
class _Sections:
    """Makes the sections of the assets of one report."""

    content: Content
    units: Mapping[str, AssetUnit]
    artist: Artist
    names: Names

    def assets(self) -> Iterator[AssetSection]:
        """Yield the section of each asset."""
        titles = asset_names(self.units)
        room = MOST_LISTED
        for number, asset in enumerate(self.content.assets, start=1):
            later = len(self.content.assets) - number
            most = max(room - later * (MOST_LISTED // len(self.content.assets)), 1)
            room -= min(most, len(asset.summary))
            unit = self.units[asset.asset_id]
            yield AssetSection(
                anchor=f"asset-{number}",
                title=f"Asset {titles[asset.asset_id] or EMPTY_ID}",
                asset_id=asset.asset_id,
                words=_words(asset, unit),
                parts=tuple(self._parts(asset, unit, most)),
                accounts_title=self._accounts_title(asset),
                accounts=tuple(self._accounts(asset, unit)),
            )

    def _parts(self, asset: AssetContent, unit: AssetUnit, most: int) -> Iterator[Part]:
        artist = self.artist if asset.is_drawn else None
        yield Part(
            "Totals and flows",
            pictures=(artist.totals(asset, unit), artist.flows(asset, unit)) if artist else (),
            sheets=(totals_sheet(asset, unit),),
            folded=(self._flows(asset, unit),),
        )
        movers = movers_sheet(asset, unit, self.names, said=self._said())
        yield Part(
            "Movers",
            "" if len(movers) else self._none_moved(),
            sheets=(movers,) if len(movers) else (),
        )
        yield Part("Accounts", sheets=(accounts_sheet(asset, unit, self.names, most=most),))
        yield Part(
            "Concentration",
            pictures=(artist.lorenz(asset), artist.holders(asset)) if artist else (),
            sheets=(concentration_sheet(asset, unit, top=TOP),),
        )
        if artist:
            pictures = (artist.activity(asset, "calendar"), artist.activity(asset, "week"))
            yield Part("Activity", pictures=pictures)

    def _flows(self, asset: AssetContent, unit: AssetUnit) -> Sheet:
        period = period_name(self.content.freq)
        is_torn = bool(self.content.source.holes)
        return flows_sheet(asset, unit, period=period, is_cut=self.content.is_cut, is_torn=is_torn)

    def _said(self) -> str:
        """Return since when movers are told."""
        since = f"{write_moment(self.content.since)} UTC"
        if self.content.previous_end is None:
            return f"in the last 24 hours, since {since}: there was no report before this one"
        if self.content.previous_end == self.content.since:
            return f"since the last report, which ended at {since}"
        return f"since this report begins, at {since}: the last one ended before"

    def _none_moved(self) -> str:
        since = f"{write_moment(self.content.since)} UTC"
        return f"At the end no account is known to hold more or less than at {since}."

    def _accounts_title(self, asset: AssetContent) -> str:
        if not len(asset.chosen):
            return ""
        if self.content.are_chosen:
            return "Chosen accounts"
        count = len(asset.chosen)
        return "The largest account" if count == 1 else f"The {count:,} largest accounts"

    def _accounts(self, asset: AssetContent, unit: AssetUnit) -> Iterator[AccountSection]:
        keys = account_keys(asset.chosen)
        rows = asset.table.groupby(list(ACCOUNT_KEY), observed=True).indices
        for key, (_, row) in zip(keys, asset.chosen.iterrows(), strict=True):
            table = asset.table.iloc[rows.get(key, [])].reset_index(drop=True)
            opening = asset.opening
            if opening is not None:
                opening = opening[
                    (opening[list(ACCOUNT_KEY)].astype("str") == list(key)).all(axis=1)
                ]
            yield AccountSection(
                anchor=self.names.anchors[key],
                title=self._title(key),
                ids=tuple(zip(_KEY_NAMES, key[1:], strict=True)),
                facts=account_facts(row, unit),
                pictures=(self.artist.account(table, opening, unit),),
            )

    def _title(self, account: Account) -> str:
        _, account_type, party, market = account
        parts = [type_label(account_type), self.names.short[party] or EMPTY_ID]
        if market != NO_MARKET:
            parts.append(f"market {self.names.short[market]}")
        return " · ".join(parts)


_KEY_NAMES: Final = ("type", "party", "market")


def _words(asset: AssetContent, unit: AssetUnit) -> str:
    rows = count_text(len(asset.table), "balance change")
    said = [f"{rows} of {count_text(len(asset.summary), 'account')}."]
    if unit.decimals is None:
        said.append("Amounts are in the asset's smallest unit.")
    else:
        said.append(f"Amounts are in {unit.label}, of {count_text(unit.decimals, 'decimal')}.")
    if not asset.is_drawn:
        said.append(f"It has no pictures: only the {MOST_DRAWN} assets with most changes have.")
    return " ".join(said)
