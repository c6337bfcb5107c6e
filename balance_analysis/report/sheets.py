"""The tables of the report, from what was computed for it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from balance_analysis.report.amounts import integers
from balance_analysis.report.tables import (
    NOTHING,
    Cell,
    Sheet,
    amounts,
    counts,
    ids,
    moments,
    ratios,
    types,
    words,
    write_moment,
)
from balance_analysis.schema import ACCOUNT_KEY
from balance_analysis.text import short_ids

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from balance_analysis.report.amounts import AssetUnit
    from balance_analysis.report.content import Account, AssetContent
    from balance_analysis.report.source import Digest
    from balance_analysis.report.tables import Column

_MOVED: Final = ("net", "opening", "closing", "inflow", "outflow")

FLOWS_NOTE: Final = (
    "Part of the time is a gap, or unproven: rows of it are or may be missing, so what flowed in a "
    "period with such a part is unknown, and so is what came with an account's first row behind it."
)
"""What is said under what flowed."""

CUT_NOTE: Final = (
    "The first and the last period hold no more than is in the report's interval, which begins or "
    "ends amid them."
)
"""What is said under what flowed where the interval isn't whole periods of the calendar."""


@dataclass(frozen=True, slots=True)
class Names:
    """What ids and accounts are called on the page.

    Attributes
    ----------
    short
        The short form of each id of a party or a market.
    anchors
        The section of each account that has one.
    """

    short: Mapping[str, str]
    anchors: Mapping[Account, str]

    def keys(self, frame: pd.DataFrame) -> tuple[Column, ...]:
        """Return the columns that name an account: its type, party and market."""
        keys = account_keys(frame)
        anchors = [self.anchors.get(key, "") for key in keys]
        _, account_types, parties, markets = zip(*keys, strict=True) if keys else ((), (), (), ())
        names = [
            types("type", account_types),
            ids("party", parties, self.short, anchors=anchors),
        ]
        if any(markets):
            names.append(ids("market", markets, self.short, empty=""))
        return tuple(names)


def account_keys(frame: pd.DataFrame) -> list[Account]:
    """Return the account of each row."""
    return list(frame[list(ACCOUNT_KEY)].astype("str").itertuples(index=False, name=None))


def make_names(assets: Sequence[AssetContent]) -> Names:
    """Return what ids and accounts are called on the page."""
    found: dict[str, None] = {}
    for asset in assets:
        for name in ("party_id", "market_id"):
            found |= dict.fromkeys(asset.summary[name].astype("str"))
    chosen = [key for asset in assets for key in account_keys(asset.chosen)]
    anchors = {key: f"account-{number}" for number, key in enumerate(chosen, start=1)}
    return Names(short_ids(found), anchors)


def totals_sheet(asset: AssetContent, unit: AssetUnit) -> Sheet:
    """Return what accounts of each type hold together, and what flowed."""
    rows = asset.summary
    kinds = rows["account_type"].astype("str")
    order = sorted(kinds.unique())
    values = {name: integers(rows[name]) for name in ("closing", "inflow", "outflow", "net")}
    members = {kind: kinds.to_numpy() == kind for kind in order}

    def add(name: str) -> Column:
        known = [
            [value for value, is_in in zip(values[name], members[kind], strict=True) if is_in]
            for kind in order
        ]
        sums = [_sum(part) for part in known]
        return amounts(name, sums, unit, total=_sum(values[name]))

    sizes = [int(members[kind].sum()) for kind in order]
    is_unknown = rows["closing"].isna().to_numpy()
    unknown = [int((members[kind] & is_unknown).sum()) for kind in order]
    changes = [int(rows["changes"].to_numpy()[members[kind]].sum()) for kind in order]
    return Sheet(
        "Totals by account type at the end, and what flowed in the interval",
        (
            types("type", order),
            counts("accounts", sizes, total=sum(sizes)),
            add("closing"),
            counts("unknown", unknown, total=sum(unknown)),
            add("net"),
            add("inflow"),
            add("outflow"),
            counts("changes", changes, total=sum(changes)),
        ),
        note=(
            "A total is over the accounts whose balance is known at the end; those under "
            "“unknown” are missing in it. What accounts give each other counts as in and out."
        ),
    )


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def flows_sheet(
    asset: AssetContent, unit: AssetUnit, *, period: str, is_cut: bool, is_torn: bool
) -> Sheet:
    """Return what flowed in each period, and how many accounts were active."""
    found = asset.flows.merge(asset.active, on=["asset_id", "start", "end"], how="left")
    notes = ["A first row is one before which the account's balance is unknown: it adds no flow."]
    notes += [CUT_NOTE] * is_cut + [FLOWS_NOTE] * is_torn
    return Sheet(
        f"Flows and activity by {period}",
        (
            moments("from", found["start"]),
            *(amounts(name, integers(found[name]), unit) for name in ("inflow", "outflow", "net")),
            counts("changes", found["changes"]),
            counts("active accounts", found["active"]),
            counts("first rows", found["unknown"]),
        ),
        note=" ".join(notes),
        sorted_by="from",
    )


def accounts_sheet(asset: AssetContent, unit: AssetUnit, names: Names, *, most: int) -> Sheet:
    """Return the accounts of an asset, those with the largest balance first."""
    rows = asset.summary.head(most)
    closing = integers(rows["closing"])
    total = sum(value for value in integers(asset.summary["closing"]) if value)
    shares = [None if value is None or not total else value / total for value in closing]
    left_out = len(asset.summary) - len(rows)
    caption = "The only account" if len(rows) == 1 else f"All {len(rows):,} accounts, by balance"
    listed = f"The {len(rows):,} accounts with the largest balances, of {len(asset.summary):,}"
    note = ""
    if left_out:
        caption = "Accounts by balance"
        note = f"{listed}: `balance-analysis summary --format csv` prints all, with more of each."
    return Sheet(
        caption,
        (
            *names.keys(rows),
            amounts("closing", closing, unit),
            ratios("share", shares, places=2),
            amounts("net", integers(rows["net"]), unit),
            counts("changes", rows["changes"]),
            moments("last row", rows["last_seen"]),
            *(amounts(name, integers(rows[name]), unit) for name in ("inflow", "outflow")),
        ),
        note=note,
        sorted_by="closing",
        is_descending=True,
    )


def movers_sheet(asset: AssetContent, unit: AssetUnit, names: Names, *, said: str) -> Sheet:
    """Return the accounts whose balance moved most."""
    rows = asset.movers
    return Sheet(
        f"Largest movers {said}",
        (
            *names.keys(rows),
            *(amounts(name, integers(rows[name]), unit) for name in _MOVED),
            counts("changes", rows["changes"]),
        ),
    )


def concentration_sheet(asset: AssetContent, unit: AssetUnit, *, top: int) -> Sheet:
    """Return how unevenly the asset is held."""
    rows = asset.concentration
    # Each instant is the last microsecond before the moment that is meant.
    moments_meant = rows["timestamp"] + pd.Timedelta(1, "us")
    return Sheet(
        "How unevenly the asset is held",
        (
            moments("just before", moments_meant),
            amounts("held", integers(rows["total"]), unit),
            counts("holders", rows["holders"]),
            counts("unknown", rows["unknown"]),
            ratios(f"largest {top}", rows["largest"]),
            ratios("Herfindahl index", rows["herfindahl"]),
            ratios("Gini coefficient", rows["gini"]),
        ),
        note=(
            "A holder is an account with a balance above 0. The Herfindahl index is the sum of the "
            "squared shares; the Gini coefficient is 0 where all hold the same."
        ),
    )


def coverage_sheet(coverage: pd.DataFrame) -> Sheet:
    """Return the intervals that an archive knows of."""
    return Sheet(
        "Intervals of the archive",
        (
            moments("from", coverage["start"]),
            moments("to", coverage["end"]),
            words("state", coverage["state"].astype("str")),
            words("node", ["" if pd.isna(node) else node for node in coverage["source"]]),
            words("last block", [_whole(height) for height in coverage["block_height"]]),
            moments("asked", coverage["asked_at"]),
        ),
    )


def limits_sheet(limits: pd.DataFrame) -> Sheet:
    """Return every distinct snapshot of the network's limits, with what changed before it."""
    rows = limits.to_dict("records")
    told = [name for name in limits.columns if name not in _SEEN]
    changed = [
        ", ".join(_spoken(name) for name in told if not _same(row[name], before[name]))
        for before, row in pairwise(rows)
    ]
    flags = [name for name in told if limits[name].dtype == bool]
    dates = [name for name in told if name.endswith("_from")]
    extra = limits["extra"].astype("str")
    return Sheet(
        "Snapshots of the network's limits",
        (
            moments("first seen", limits["first_seen"]),
            moments("last seen", limits["last_seen"]),
            words("last block", [_whole(height) for height in limits["block_height"]]),
            *(words(_spoken(name), [_yes(flag) for flag in limits[name]]) for name in flags),
            *(moments(_spoken(name), limits[name]) for name in dates),
            *([words("other fields", extra)] if (extra != "{}").any() else []),
            words("changed", ["" for _ in rows[:1]] + changed),
        ),
    )


_SEEN: Final = ("first_seen", "last_seen", "source", "block_height")


def _same(value: Any, other: Any) -> bool:  # noqa: ANN401 - a field of the limits
    return bool(value == other) or (bool(pd.isna(value)) and bool(pd.isna(other)))


def _spoken(name: str) -> str:
    return name.replace("_", " ")


def _yes(flag: object) -> str:
    return "yes" if flag else "no"


def _whole(number: Any) -> str:  # noqa: ANN401 - an integer or NA
    return "" if pd.isna(number) else f"{number:,}"


def digests_sheet(digests: Sequence[Digest]) -> Sheet:
    """Return what tells the files of an archive from any others."""
    short = short_ids(digest.sha256 for digest in digests)
    return Sheet(
        "Files of the archive",
        (
            words("file", [digest.name for digest in digests]),
            words(
                "rows", ["" if digest.rows is None else f"{digest.rows:,}" for digest in digests]
            ),
            counts("bytes", [digest.size for digest in digests]),
            ids("SHA-256", [digest.sha256 for digest in digests], short),
        ),
    )


def account_facts(row: pd.Series[Any], unit: AssetUnit) -> tuple[tuple[str, Cell, str], ...]:
    """Return what an account did: of each fact its name, what it is, and when that was."""
    found = [row[name] for name in _AMOUNTS]
    values = [None if pd.isna(value) else int(value) for value in found]
    cells = amounts("", values, unit).cells
    facts = [
        (name, cell, write_moment(row[_WHEN[name]]) if name in _WHEN else "")
        for name, cell in zip(_AMOUNTS, cells, strict=True)
    ]
    zero = ratios("", [row["zero_share"]]).cells[0]
    return (
        *(
            (f"{name}, {unit.label}", cell, "" if when == NOTHING else when)
            for name, cell, when in facts
        ),
        ("time at 0, %", zero, ""),
        ("rows", Cell(f"{row['rows']:,}"), ""),
        ("changes", Cell(f"{row['changes']:,}"), ""),
        ("first row", Cell(write_moment(row["first_seen"])), ""),
        ("last row", Cell(write_moment(row["last_seen"])), ""),
    )


_AMOUNTS: Final = (
    *("opening", "closing", "net", "inflow", "outflow"),
    *("minimum", "maximum", "average", "drawdown"),
)
_WHEN: Final = {
    "minimum": "minimum_at",
    "maximum": "maximum_at",
    "drawdown": "drawdown_at",
}
