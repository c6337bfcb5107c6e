"""The options and arguments that commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class TableFormat(StrEnum):
    """How a table is printed."""

    table = "table"
    csv = "csv"
    json = "json"


class LimitsFormat(StrEnum):
    """How the limits are printed."""

    table = "table"
    json = "json"


class LogFormat(StrEnum):
    """How lines are written to stderr."""

    text = "text"
    json = "json"


class PartitionName(StrEnum):
    """What a file of an archive holds."""

    day = "day"
    month = "month"
    hour = "hour"


Url = Annotated[str, typer.Argument(metavar="URL", help="The node's address.")]
Urls = Annotated[
    list[str], typer.Argument(metavar="URL...", help="A node's address, or those of several.")
]
Source = Annotated[
    str, typer.Argument(metavar="FILE", help="A Parquet file of `fetch`, or an archive.")
]
ArchiveUri = Annotated[
    str, typer.Argument(metavar="ARCHIVE", help="A folder, or an address such as s3://bucket/x.")
]
Partial = Annotated[
    bool, typer.Option("--partial", help="Take what there is where an archive isn't complete.")
]
Since = Annotated[str | None, typer.Option(help="Start, inclusive; by default the oldest row.")]
Until = Annotated[str | None, typer.Option(help="End, exclusive; by default now.")]
AssetId = Annotated[str | None, typer.Option(help="Only this asset.")]
PartyId = Annotated[list[str] | None, typer.Option(help="Only this party; repeatable.")]
MarketId = Annotated[list[str] | None, typer.Option(help="Only this market; repeatable.")]
AccountType = Annotated[
    list[str] | None, typer.Option(help="Only this type, such as GENERAL; repeatable.")
]
Verbose = Annotated[
    int, typer.Option("-v", "--verbose", count=True, help="Say more; -vv says every request.")
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Say nothing but errors.")]
