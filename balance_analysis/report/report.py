"""One HTML file that tells what an archive or a table holds: for a team to open each morning."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final

import pandas as pd
from markupsafe import Markup

from balance_analysis.archives import Archive
from balance_analysis.assets import AssetsLike, assets_of, read_assets
from balance_analysis.explorer.frozen import freeze
from balance_analysis.explorer.page import freeze_page
from balance_analysis.explorer.source import Key, TableSource, keys_of
from balance_analysis.files.atomic import PathLike, check_output, replacing
from balance_analysis.report.content import Source, read_source
from balance_analysis.schema import ACCOUNT_KEY, Instant, to_microseconds
from balance_analysis.text import range_text

_ROOM: Final = 3_500_000
"""Bytes of packed data that, as text and with the page around it, are less than 5 MB."""

_MOST_WARNED: Final = 20


def write_report(
    source: Archive | PathLike | pd.DataFrame,
    path: PathLike,
    *,
    start: Instant | None = None,
    end: Instant | None = None,
    accounts: pd.DataFrame | Iterable[Key] = (),
    largest: int | None = None,
    assets: AssetsLike | None = None,
) -> None:
    """Write a report on an archive or a table: the explorer, frozen into one HTML file.

    It needs no network. It shows the balances of accounts over time, and of each asset what its
    accounts hold by type, what flowed, who holds most and who moved most, over the last day, week,
    month and three months, and over all; the network's limits; and what each account did, row by
    row. Tables have every digit. The file has at most 5 MB: of more accounts than fit, it has the
    largest, and says so.

    A source is reported on as it is: what is missing, unproven or not known in it stands at the
    top, and what may have changed there is unknown. Where a sum has more than 38 digits, the page
    says so instead of that view. An archive is verified, for which all of its files are read.

    Parameters
    ----------
    source
        An archive, or its address; or a table of balance changes.
    path
        The file; one that stands there is replaced, whole. The same source and options give the
        same bytes.
    start, end
        The interval, half-open; without a time zone UTC. By default all that the archive was asked
        for, or the table was loaded for; else all that is known of the table, and its rows.
    accounts
        The accounts that the page begins with: a frame with `ACCOUNT_KEY`, or tuples of it. By
        default the largest.
    largest
        Of how many accounts of each asset the page has the history at most, by their balance at
        the end; by default of as many as fit.
    assets
        What assets are called and how many decimals they have, as `read_assets` takes it; by
        default what the archive or the table tells. Amounts of an asset that it doesn't tell of
        are in the smallest unit.

    Raises
    ------
    ArchiveError
        If there is no archive, or it can't be read.
    CheckError
        If two rows of one account and timestamp differ in balance.
    ValueError, TypeError
        If an account is not in the data, an option is malformed, or `start` is not before the end;
        or if the file would lie in an archive, or replace that of `assets`.
    OSError
        If a file can't be read or written.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "asset_id": "VOTE", "account_type": "ACCOUNT_TYPE_GENERAL", "party_id": "a1",
    ...     "market_id": "", "timestamp": pd.to_datetime(["2023-04-01", "2023-04-03"], utc=True),
    ...     "balance": [5, 7],
    ... })
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = pathlib.Path(folder, "report.html")
    ...     write_report(table, page)
    ...     page.read_text(encoding="utf-8")[:15]
    '<!doctype html>'
    """
    check_output(path, inputs=[assets] if isinstance(assets, str | os.PathLike) else ())
    page = make_report(
        source, start=start, end=end, accounts=accounts, largest=largest, assets=assets
    )
    with replacing(path) as temporary:
        temporary.write_bytes(page.encode())


def make_report(
    source: Archive | PathLike | pd.DataFrame,
    *,
    start: Instant | None = None,
    end: Instant | None = None,
    accounts: pd.DataFrame | Iterable[Key] = (),
    largest: int | None = None,
    assets: AssetsLike | None = None,
) -> str:
    """Return a report as HTML: see `write_report`."""
    if largest is not None and largest < 0:
        raise ValueError(f"largest must be at least 0, not {largest}")
    given = None if assets is None else read_assets(assets)
    keys = keys_of(accounts) if isinstance(accounts, pd.DataFrame) else accounts
    wanted = list(dict.fromkeys(keys))
    found = read_source(source, start=start, end=end)
    bounds = found.start, found.end
    begin, stop = (0 if bound is None else to_microseconds(bound) for bound in bounds)
    shown = TableSource(
        found.table,
        name=f"Balances of {found.name}",
        opening=found.opening,
        bounds=(begin, stop),
        assets=assets_of(found.table, given),
        notes=found.notes,
    )
    if wanted:
        _check_known(wanted, found)
    data = freeze(shown, room=_ROOM, first=wanted, largest=largest)
    return freeze_page(shown.name, _head(found), data)


def _check_known(wanted: list[Key], found: Source) -> None:
    frames = [found.table] if found.opening is None else [found.table, found.opening]
    known = {key for frame in frames for key in keys_of(frame.drop_duplicates([*ACCOUNT_KEY]))}
    if missing := [account for account in wanted if account not in known]:
        raise ValueError(
            f"{len(missing)} of the accounts are not in the data, the first {missing[0]!r}: take "
            f"them, frames or tuples of {ACCOUNT_KEY}, from the summary of this archive or table"
        )


def _head(found: Source) -> Markup:
    """Return what a report tells at its top, without scripts, too."""
    verdict = _verdict(found)
    warnings = list(_warnings(found))
    more = len(warnings) - _MOST_WARNED
    warnings = warnings[:_MOST_WARNED] + ([f"{more} more."] if more > 0 else [])
    items = Markup("").join(Markup("<li>{}</li>").format(each) for each in warnings)
    facts = (*found.facts, ("balance changes", f"{len(found.table):,}"), ("checked", found.checked))
    told = Markup("").join(
        Markup("<div><dt>{}</dt><dd>{}</dd></div>").format(*fact) for fact in facts
    )
    return Markup(
        '<p class="verdict{}">{}</p>{}<details><summary>What this is made of</summary>'
        '<dl class="facts">{}</dl></details>'
        "<noscript><p>{}. The charts and tables need scripts: this file has them.</p></noscript>"
    ).format(
        "" if verdict == "complete" else " bad",
        verdict,
        Markup('<ul class="warned">{}</ul>').format(items) if items else "",
        told,
        _interval(found.start, found.end),
    )


def _interval(start: object, end: object) -> str:
    if start is None:
        return "No balance changes"
    return range_text(start, end)  # type: ignore[arg-type]


def _verdict(found: Source) -> str:
    if found.problems:
        return "checks failed"
    if found.gaps:
        return "not complete"
    return "complete" if found.is_proven else "not known to be complete"


def _warnings(found: Source) -> Iterator[str]:
    yield from (f"A check failed: {problem}" for problem in found.problems)
    for start, end in found.gaps:
        yield f"{_interval(start, end)} is not known to be complete: rows of it may be missing."
    if not found.is_proven:
        yield "Nothing tells that no rows are missing; a load does, and a filled archive."
