"""The report, section by section and table by table, in the order of the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
import pandas as pd

from balance_analysis.figures.flows import period_name
from balance_analysis.figures.styles import type_label
from balance_analysis.figures.timelines import plot_coverage, plot_limits
from balance_analysis.report import tables
from balance_analysis.report.content import MOST_DRAWN, TOP, keys_of
from balance_analysis.report.pictures import Pictures
from balance_analysis.schema import ACCOUNT_KEY, NO_MARKET
from balance_analysis.text import count_text, short_ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from balance_analysis.assets import Assets
    from balance_analysis.report.content import Account, AssetContent, Bound, Content, Source
    from balance_analysis.report.pictures import Picture

MOST_LISTED: Final = 5000
"""How many accounts the page lists at most: each asset as many."""

GAPS_NOTE: Final = (
    "Part of the time is not known to be complete: rows of it are or may be missing, so what "
    "flowed in a period with such a part is unknown, what came with an account's first row behind "
    "it is in no flow, and nothing is drawn of an account from there until its next row."
)
"""What is said of each asset where the interval has gaps."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a section: pictures, tables, and those that only show when they are asked for."""

    title: str
    words: str = ""
    pictures: tuple[Picture, ...] = ()
    sheets: tuple[tables.Sheet, ...] = ()
    folded: tuple[tables.Sheet, ...] = ()


def make_page(content: Content, assets: Assets) -> dict[str, Any]:
    """Return what `report.html` shows, by its names, each asset in its unit."""
    with mpl.rc_context():
        mpl.rcdefaults()  # what the caller has set is for the caller's figures
        mpl.rcParams["text.parse_math"] = False  # a dollar in an id begins no formula
        source, pictures = content.source, Pictures(content, assets)
        parts = {"complete": _completeness(source, pictures)}
        if source.limits is not None and not source.limits.empty:
            parts["limits"] = _limits(source.limits, pictures, source.end)
        return {
            "title": f"Balances of {source.name}",
            "interval": _stretch(source.start, source.end),
            "verdict": _verdict(source),
            "warnings": list(_warnings(source)),
            "facts": list(_facts(content)),
            "parts": parts,
            "assets": list(_Assets(content, assets, pictures).sections()),
        }


def _stretch(start: Bound, end: Bound) -> str:
    if start is None:
        return "no balance changes"
    return f"{tables.write_moment(start)} to {tables.write_moment(end)} UTC"


def _verdict(source: Source) -> str:
    if source.problems:
        return "checks failed"
    if source.gaps:
        return "not complete"
    return "complete" if source.is_proven else "not known to be complete"


def _warnings(source: Source) -> Iterator[str]:
    for start, end in source.gaps:
        yield f"{_stretch(start, end)} is not known to be complete: rows of it may be missing here."
    yield from (f"A check failed: {problem}" for problem in source.problems)
    if not source.is_proven:
        yield "Nothing tells that no rows are missing; a load does, and an archive that was filled."


def _facts(content: Content) -> Iterator[tuple[str, str]]:
    yield from content.source.facts
    yield "balance changes", f"{len(content.source.table):,}"
    yield "accounts", f"{sum(len(asset.summary) for asset in content.assets):,}"
    yield "assets", f"{len(content.assets):,}"


def _completeness(source: Source, pictures: Pictures) -> Part:
    title, coverage = "How complete this is", source.coverage
    said = "Checks failed, see above" if source.problems else "Checks passed"
    text = f"{said}: {source.checked}."
    if coverage is None or coverage.empty:
        return Part(title, text)
    sheet = tables.Sheet(
        "Intervals of the archive",
        (
            tables.moments("from", coverage["start"]),
            tables.moments("to", coverage["end"]),
            tables.words("state", coverage["state"].astype("str")),
            tables.words("node", coverage["source"]),
            tables.words("last block", coverage["block_height"]),
            tables.moments("asked", coverage["asked_at"]),
        ),
    )
    drawn = pictures.draw("What is complete", plot_coverage, coverage, is_flat=True)
    return Part(title, text, (drawn,), (sheet,))


def _limits(limits: pd.DataFrame, pictures: Pictures, end: Bound) -> Part:
    told = [name for name in limits.columns if name not in _SEEN]
    sheet = tables.Sheet(
        "Snapshots of the network's limits",
        (
            tables.moments("first seen", limits["first_seen"]),
            tables.moments("last seen", limits["last_seen"]),
            tables.words("last block", limits["block_height"]),
            *(_limit(name.replace("_", " "), limits[name]) for name in told),
        ),
    )
    text = "They never changed while they were watched."
    if len(limits) > 1:
        text = f"They changed {count_text(len(limits) - 1, 'time')}."
    drawn = pictures.draw(
        "The network's limits over time", plot_limits, limits, is_flat=True, end=end
    )
    return Part("Network limits", text, (drawn,), (sheet,))


_SEEN: Final = ("first_seen", "last_seen", "source", "block_height")


def _limit(label: str, values: pd.Series[Any]) -> tables.Column:
    return tables.moments(label, values) if label.endswith(" from") else tables.words(label, values)


class _Assets:
    """Makes the sections of the assets of one report."""

    def __init__(self, content: Content, assets: Assets, pictures: Pictures) -> None:
        self._content = content
        self._units = tables.units_of([asset.asset_id for asset in content.assets], assets)
        self._pictures = pictures
        frames = [asset.summary[name].astype("str") for asset in content.assets for name in _IDS]
        self._short = short_ids(value for frame in frames for value in frame)
        chosen = [key for asset in content.assets for key in keys_of(asset.chosen)]
        self._anchors = {key: f"account-{number}" for number, key in enumerate(chosen, start=1)}

    def sections(self) -> Iterator[dict[str, Any]]:
        """Yield the section of each asset."""
        short = short_ids(self._units)
        for number, asset in enumerate(self._content.assets, start=1):
            unit, name = self._units[asset.asset_id], short[asset.asset_id] or tables.EMPTY_ID
            yield {
                "anchor": f"asset-{number}",
                "title": f"Asset {unit.symbol} ({name})" if unit.symbol else f"Asset {name}",
                "asset_id": asset.asset_id,
                "words": " ".join(self._words(asset, unit)),
                "parts": list(self._parts(asset, unit)),
                "accounts_title": self._accounts_title(len(asset.chosen)),
                "accounts": list(self._accounts(asset, unit)),
            }

    def _words(self, asset: AssetContent, unit: tables.AssetUnit) -> Iterator[str]:
        rows = count_text(len(asset.table), "balance change")
        yield f"{rows} of {count_text(len(asset.summary), 'account')}."
        places = "" if unit.decimals is None else f", of {count_text(unit.decimals, 'decimal')}"
        yield f"Unit of amounts: {unit.label}{places}."
        if not asset.is_drawn:
            yield f"It has no pictures: only the {MOST_DRAWN} assets with most changes have."
        if self._content.source.gaps:
            yield GAPS_NOTE

    def _parts(self, asset: AssetContent, unit: tables.AssetUnit) -> Iterator[Part]:
        drawn = self._pictures.of_asset(asset, unit) if asset.is_drawn else [(), ()]
        yield Part(
            "Totals and flows",
            pictures=drawn[0],
            sheets=(_totals_sheet(asset, unit),),
            folded=(_flows_sheet(asset, unit, period_name(self._content.freq)),),
        )
        yield self._movers(asset, unit)
        yield Part("Accounts", sheets=(self._accounts_sheet(asset, unit),))
        sheet = _concentration_sheet(asset, unit)
        yield Part("Concentration", pictures=drawn[1], sheets=(sheet,))

    def _movers(self, asset: AssetContent, unit: tables.AssetUnit) -> Part:
        rows, since = asset.movers, f"{tables.write_moment(self._content.since)} UTC"
        if rows.empty:
            said = f"At the end no account is known to hold more or less than at {since}."
            return Part("Movers", said)
        moved = _amounts(rows, unit, "net", "opening", "closing", "inflow", "outflow")
        columns = (*self._keys(rows), *moved, tables.counts("changes", rows["changes"]))
        return Part("Movers", sheets=(tables.Sheet(f"Largest movers since {since}", columns),))

    def _accounts_sheet(self, asset: AssetContent, unit: tables.AssetUnit) -> tables.Sheet:
        closing = tables.integers(asset.summary["closing"])
        total = sum(value for value in closing if value)
        shares = [None if value is None or not total else value / total for value in closing]
        rows = asset.summary.head(max(MOST_LISTED // len(self._content.assets), 1))
        count, note = len(rows), ""
        caption = "The only account" if count == 1 else f"All {count:,} accounts, by balance"
        if count < len(asset.summary):
            caption = "Accounts by balance"
            note = (
                f"The {count:,} accounts with the largest balances, of {len(asset.summary):,}: "
                "`balance-analysis summary --format csv` prints all, with more of each."
            )
        columns = (
            *self._keys(rows),
            tables.amounts("closing", closing[:count], unit),
            tables.ratios("share", shares[:count], places=2),
            *_amounts(rows, unit, "net"),
            tables.counts("changes", rows["changes"]),
            tables.moments("last row", rows["last_seen"]),
            *_amounts(rows, unit, "inflow", "outflow"),
        )
        return tables.Sheet(caption, columns, note, sorted_by="closing", is_descending=True)

    def _keys(self, frame: pd.DataFrame) -> list[tables.Column]:
        """Return the columns that name an account: its type, party and market."""
        keys = keys_of(frame)
        anchors = [self._anchors.get(key, "") for key in keys]
        _, account_types, parties, markets = zip(*keys, strict=True)
        columns = [
            tables.types("type", account_types),
            tables.ids("party", parties, self._short, anchors=anchors),
        ]
        if any(markets):
            columns.append(tables.ids("market", markets, self._short, empty=""))
        return columns

    def _accounts_title(self, count: int) -> str:
        if self._content.are_chosen:
            return "Scan accounts"
        return "The largest account" if count == 1 else f"The {count:,} largest accounts"

    def _accounts(self, asset: AssetContent, unit: tables.AssetUnit) -> Iterator[dict[str, Any]]:
        places = asset.table.groupby(ACCOUNT_KEY, observed=True).indices
        for account, (_, row) in zip(keys_of(asset.chosen), asset.chosen.iterrows(), strict=True):
            rows, opening = asset.table.iloc[places.get(account, [])], asset.opening
            if opening is not None:
                opening = opening[(opening[ACCOUNT_KEY].astype("str") == list(account)).all(axis=1)]
            yield {
                "anchor": self._anchors[account],
                "title": self._title(account),
                "ids": list(zip(("type", "party", "market"), account[1:], strict=True)),
                "facts": list(_account_facts(row, unit)),
                "picture": self._pictures.of_account(rows, opening, unit),
            }

    def _title(self, account: Account) -> str:
        _, account_type, party, market = account
        parts = [type_label(account_type), self._short[party] or tables.EMPTY_ID]
        return " · ".join(parts + [f"market {self._short[market]}"] * (market != NO_MARKET))


def _amounts(rows: pd.DataFrame, unit: tables.AssetUnit, *names: str) -> list[tables.Column]:
    return [tables.amounts(name, tables.integers(rows[name]), unit) for name in names]


_IDS: Final = ("party_id", "market_id")


def _totals_sheet(asset: AssetContent, unit: tables.AssetUnit) -> tables.Sheet:
    """Return what accounts of each type hold together, and what flowed."""
    groups = asset.summary.groupby("account_type", observed=True)
    kinds, frames = zip(*groups, strict=True)

    def added(name: str) -> tables.Column:
        sums = [_sum(frame[name]) for frame in frames]
        return tables.amounts(name, sums, unit, total=_sum(asset.summary[name]))

    def counted(name: str, numbers: list[int]) -> tables.Column:
        return tables.counts(name, numbers, total=sum(numbers))

    return tables.Sheet(
        "Totals by account type at the end, and what flowed in the interval",
        (
            tables.types("type", kinds),
            counted("accounts", [len(frame) for frame in frames]),
            added("closing"),
            counted("unknown", [int(frame["closing"].isna().sum()) for frame in frames]),
            *(added(name) for name in ("net", "inflow", "outflow")),
            counted("changes", [int(frame["changes"].sum()) for frame in frames]),
        ),
        note=(
            "A total is over the accounts whose balance is known at the end; those under "
            "“unknown” are missing in it. What accounts give each other counts as in and out."
        ),
    )


def _sum(column: pd.Series[Any]) -> int | None:
    known = [value for value in tables.integers(column) if value is not None]
    return sum(known) if known else None


def _flows_sheet(asset: AssetContent, unit: tables.AssetUnit, period: str) -> tables.Sheet:
    found = asset.flows
    return tables.Sheet(
        f"Flows and activity by {period}",
        (
            tables.moments("from", found["start"]),
            *_amounts(found, unit, "inflow", "outflow", "net"),
            tables.counts("changes", found["changes"]),
            tables.counts("active accounts", found["active"]),
            tables.counts("first rows", found["unknown"]),
        ),
        note=(
            "A first row is one before which the account's balance is unknown: it adds no flow. "
            "The first and the last period hold no more than is in the report's interval."
        ),
        sorted_by="from",
    )


def _concentration_sheet(asset: AssetContent, unit: tables.AssetUnit) -> tables.Sheet:
    rows = asset.concentration
    return tables.Sheet(
        "How unevenly the asset is held",
        (
            # Each instant is the last microsecond before the moment that is meant.
            tables.moments("just before", rows["timestamp"] + pd.Timedelta(1, "us")),
            tables.amounts("held", tables.integers(rows["total"]), unit),
            tables.counts("holders", rows["holders"]),
            tables.counts("unknown", rows["unknown"]),
            tables.ratios(f"largest {TOP}", rows["largest"]),
            tables.ratios("Herfindahl index", rows["herfindahl"]),
            tables.ratios("Gini coefficient", rows["gini"]),
        ),
        note=(
            "A holder is an account with a balance above 0. The Herfindahl index is the sum of the "
            "squared shares; the Gini coefficient is 0 where all hold the same."
        ),
    )


def _account_facts(row: pd.Series[Any], unit: tables.AssetUnit) -> Iterator[tuple[str, str, str]]:
    """Yield what an account did: of each fact its name, what it is, and when that was."""
    values = [None if pd.isna(row[name]) else int(row[name]) for name in _AMOUNTS]
    for name, cell in zip(_AMOUNTS, tables.amounts("", values, unit).cells, strict=True):
        when = tables.write_moment(row.get(f"{name}_at"))
        yield f"{name}, {unit.label}", cell, when.replace(tables.NOTHING, "")
    yield "time at 0, %", tables.ratio_text(row["zero_share"]), ""
    yield "rows", f"{row['rows']:,}", ""
    yield "changes", f"{row['changes']:,}", ""
    yield "first row", tables.write_moment(row["first_seen"]), ""
    yield "last row", tables.write_moment(row["last_seen"]), ""


_AMOUNTS: Final = (
    *("opening", "closing", "net", "inflow", "outflow"),
    *("minimum", "maximum", "average", "drawdown"),
)
