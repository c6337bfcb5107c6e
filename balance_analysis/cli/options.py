"""The options and arguments that commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class TableFormat(StrEnum):
    """How a table is printed or written."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


class ExactFormat(StrEnum):
    """How rows are printed or written, every digit kept."""

    csv = "csv"
    json = "json"
    parquet = "parquet"


class SeriesLayout(StrEnum):
    """How a series is laid out."""

    long = "long"
    wide = "wide"


class PictureKind(StrEnum):
    """What a picture shows."""

    balances = "balances"
    totals = "totals"
    flows = "flows"
    drawdown = "drawdown"
    activity = "activity"
    concentration = "concentration"
    coverage = "coverage"
    limits = "limits"


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
    str, typer.Argument(metavar="ARCHIVE_OR_FILE", help="An archive, or a file of `fetch`.")
]
ArchiveUri = Annotated[
    str, typer.Argument(metavar="ARCHIVE", help="A folder, or an address such as s3://bucket/x.")
]
Partial = Annotated[
    bool, typer.Option("--partial", help="Take what there is where an archive isn't complete.")
]
Since = Annotated[str | None, typer.Option(help="Start, inclusive; by default the oldest row.")]
Until = Annotated[str | None, typer.Option(help="End, exclusive; by default now.")]
UntilLast = Annotated[str | None, typer.Option(help="End, exclusive; by default the last row.")]
AssetId = Annotated[
    str | None, typer.Option("--asset-id", "--asset", metavar="ID", help="Only this asset.")
]
PartyId = Annotated[
    list[str] | None,
    typer.Option("--party-id", "--party", metavar="ID", help="Only this party; repeatable."),
]
MarketId = Annotated[
    list[str] | None,
    typer.Option("--market-id", "--market", metavar="ID", help="Only this market; repeatable."),
]
AccountType = Annotated[
    list[str] | None, typer.Option(help="Only this type, such as GENERAL; repeatable.")
]
Verbose = Annotated[
    int, typer.Option("-v", "--verbose", count=True, help="Say more; -vv says every request.")
]
Rate = Annotated[
    float | None,
    typer.Option(
        min=0.001, metavar="N", help="The most that the node is asked; by default no bound."
    ),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Say nothing but errors.")]
