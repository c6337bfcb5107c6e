"""One HTML file that tells what an archive or a table holds: for a team to open each morning."""

from __future__ import annotations

import base64
import hashlib
import os
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from balance_analysis.assets import assets_of
from balance_analysis.files.atomic import check_output, replacing
from balance_analysis.report.content import make_content, read_source
from balance_analysis.report.sections import make_page

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

    from balance_analysis.archive.archive import Archive
    from balance_analysis.assets import AssetsLike
    from balance_analysis.files.atomic import PathLike
    from balance_analysis.report.content import Account
    from balance_analysis.schema import Instant


def write_report(
    source: Archive | PathLike | pd.DataFrame,
    path: PathLike,
    *,
    start: Instant | None = None,
    end: Instant | None = None,
    accounts: pd.DataFrame | Iterable[Account] = (),
    largest: int = 10,
    assets: AssetsLike | None = None,
) -> None:
    """Write a report on an archive or a table: one HTML file that needs no network.

    It tells what is there and how complete it is, the network's limits, and of each asset what its
    accounts hold by type, what flowed, who holds most and who moved most in the last 24 hours, and
    how unevenly it is held; then the history of single accounts. Tables have every digit.

    A source is reported on as it is: what is missing, unproven or not known in it stands at the
    top, and what may have changed there is unknown. An archive is verified, for which all of its
    files are read.

    Parameters
    ----------
    source
        An archive, or a table of balance changes.
    path
        The file; one that stands there is replaced, whole. The same source and options give the
        same bytes.
    start, end
        The interval, half-open; without a time zone UTC. By default all that the archive was asked
        for, or the table was loaded for; else all that is known of the table, and its rows.
    accounts
        The accounts that have a section of their own: a frame with `ACCOUNT_KEY`, or tuples of it.
        By default the `largest`.
    largest
        How many accounts of each asset have one, by their balance at the end. Of more than twelve
        assets only those with most rows have any, and pictures.
    assets
        What assets are called and how many decimals they have, as `read_assets` takes it; by
        default what the archive or the table tells. Amounts of an asset that isn't told are in its
        smallest unit.

    Raises
    ------
    ArchiveError
        If there is no archive, or it can't be read.
    CheckError
        If two rows of one account and timestamp differ in balance.
    OverflowError
        If a sum has more than 38 digits.
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
    found = read_source(source, start=start, end=end)
    content = make_content(found, accounts=accounts, largest=largest)
    known = assets_of(found.table, assets)
    page = render(make_page(content, known))
    with replacing(path) as temporary:
        temporary.write_bytes(page.encode())


def render(page: dict[str, Any]) -> str:
    """Return the page as one HTML file that needs nothing else."""
    script, style = _template("report.js"), _template("report.css")
    policy = {
        "default-src": "'none'",
        "script-src": _hash(script),
        "style-src": _hash(style),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html").render(
        report=page,
        script=Markup(script),  # noqa: S704 - this package's own
        style=Markup(style),  # noqa: S704 - likewise
        policy="; ".join(f"{name} {value}" for name, value in policy.items()),
    )


@cache
def _template(name: str) -> str:
    folder = resources.files("balance_analysis.report") / "templates"
    return (folder / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
