"""The options and arguments that commands share, and the moments and durations in them."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

TableFormat = Literal["table", "csv", "json", "parquet"]
ExactFormat = Literal["csv", "json", "parquet"]
PrintFormat = Annotated[Literal["table", "json"], typer.Option("--format", help="How to print.")]

Url = Annotated[str, typer.Argument(metavar="URL", help="The node's address.")]
ArchiveUri = Annotated[
    str, typer.Argument(metavar="ARCHIVE", help="A folder, or an address such as s3://bucket/x.")
]
Source = Annotated[
    str, typer.Argument(metavar="ARCHIVE_OR_FILE", help="An archive, or a file of `fetch`.")
]
RowsFile = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write it here: .csv, .json or .parquet. In CSV, text that a spreadsheet would run "
        "(it begins with =, +, -, @, a tab or a line break) has an apostrophe before it.",
    ),
]
Since = Annotated[str | None, typer.Option(help="Start, inclusive; by default the oldest row.")]
Until = Annotated[str | None, typer.Option(help="End, exclusive; by default now.")]
UntilLast = Annotated[str | None, typer.Option(help="End, exclusive; by default the last row.")]
Rate = Annotated[
    float | None,
    typer.Option(
        min=0.001, metavar="N", help="The most that the node is asked; by default no bound."
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="A Dask cluster to work on, as tcp://host:8786."),
]
Ids = list[str] | None


def output_option(help: str) -> Any:  # noqa: A002, ANN401 - as typer's own
    """Return the option of a file to write."""
    return typer.Option("-o", "--output", metavar="FILE", help=help)


@dataclass(frozen=True, kw_only=True)
class AccountOptions:
    """The options that say which accounts."""

    asset_id: Annotated[
        str | None, typer.Option("--asset-id", "--asset", metavar="ID", help="Only this asset.")
    ] = None
    party_id: Annotated[
        Ids,
        typer.Option("--party-id", "--party", metavar="ID", help="Only this party; repeatable."),
    ] = None
    market_id: Annotated[
        Ids,
        typer.Option("--market-id", "--market", metavar="ID", help="Only this market; repeatable."),
    ] = None
    account_type: Annotated[
        Ids, typer.Option(help="Only this type, such as GENERAL; repeatable.")
    ] = None

    def named(self) -> dict[str, Any]:
        """Return them as the functions of the library take them."""
        return {
            "asset_id": self.asset_id,
            "party_ids": self.party_id or (),
            "market_ids": self.market_id or (),
            "account_types": self.account_type or (),
        }


_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGO: Final = re.compile(r"(?:now-)?(\d+[smhdw])", re.ASCII)
_DURATION: Final = re.compile(r"(\d+)\s*([smhdw])", re.ASCII)


def interval(since: str | None, until: str | None) -> dict[str, Any]:
    """Return `start` and `end` as the library takes them, relative ones counted from one now.

    Raises
    ------
    ValueError
        If one is no moment, or the start is not before the end.
    """
    now = dt.datetime.now(dt.UTC)
    start, end = _moment(since, now), _moment(until, now)
    if start is not None and end is not None and start >= end:
        raise ValueError(
            f"start must be before end, but {start.isoformat()} is not before {end.isoformat()}"
        )
    return {"start": start, "end": end}


def _moment(text: str | None, now: dt.datetime) -> dt.datetime | None:
    if text is None or text == "now":
        return now if text else None
    if ago := _AGO.fullmatch(text):
        return now - parse_duration(ago[1])
    from balance_analysis.schema import from_microseconds, to_microseconds

    return from_microseconds(to_microseconds(text))


def parse_duration(text: str) -> dt.timedelta:
    """Return the duration that a text such as `90s`, `10m`, `2h`, `7d` or `1w` tells.

    Raises
    ------
    ValueError
        If it is none.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no duration; write 90s, 10m, 2h or 7d")
    try:
        return dt.timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError as error:
        raise ValueError(f"{text!r} is too long") from error


def format_duration(duration: dt.timedelta) -> str:
    """Return a duration of whole seconds as `parse_duration` reads it."""
    seconds = round(duration.total_seconds())
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
