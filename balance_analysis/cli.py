"""The command line: a thin shell over the library, which alone prints and exits.

Everything heavy is imported where it is used, so that `--help` answers at once.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import os
import re
import signal
import sys
import threading
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from balance_analysis import __version__
from balance_analysis.errors import (
    ArchiveError,
    BalanceAnalysisError,
    CheckError,
    DecodeError,
    IncompleteError,
    RequestError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd

EXIT_CODES: Final[dict[type[Exception], int]] = {
    ArchiveError: 2,
    OSError: 2,
    ValueError: 2,
    IncompleteError: 3,
    RequestError: 4,
    DecodeError: 5,
    CheckError: 5,
    OverflowError: 5,
}
INTERRUPTED: Final = 130
SECONDS: Final = "%Y-%m-%d %H:%M:%S"

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGO: Final = re.compile(r"(?:now-)?(\d+)([smhdw])", re.ASCII)

logger = logging.getLogger("balance_analysis")

app = typer.Typer(
    name="balance-analysis",
    help="Load, keep, reconstruct and plot the history of account balances of a trading network.",
    epilog="Exit codes: 0 done, 1 unexpected, 2 usage, 3 incomplete, 4 source unavailable, "
    "5 bad data, 130 interrupted. Moments: 2023-04-01, 2023-04-01T12:00Z, 7d, now-1h; UTC.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class TableFormat(StrEnum):
    """How a table is printed."""

    table = "table"
    csv = "csv"
    json = "json"


class LimitsFormat(StrEnum):
    """How the limits are printed."""

    table = "table"
    json = "json"


Url = Annotated[str, typer.Argument(metavar="URL", help="The node's address.")]
Urls = Annotated[
    list[str], typer.Argument(metavar="URL...", help="A node's address, or those of several.")
]
File = Annotated[Path, typer.Argument(metavar="FILE", help="A Parquet file of `fetch`.")]
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


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("demo"),
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Do the main job on sample data: an embedded node, a load over HTTP, files, plots."""
    with _told_errors(verbose, quiet):
        from balance_analysis.analysis.units import to_units
        from balance_analysis.demo import run_demo, sample_assets

        result = run_demo(out, say=_say(quiet))
        assets = sample_assets()
        decimals = {asset: int(about["decimals"]) for asset, about in assets.items()}
        names = {asset: str(about["symbol"]) for asset, about in assets.items()}
        _print_summary(to_units(result.summary, decimals), limit=12, asset_names=names)
        _say(quiet)("Wrote " + ", ".join(str(path) for path in result.files))


@app.command()
def fetch(
    url: Urls,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="To write.")],
    since: Since = None,
    until: Until = None,
    asset_id: AssetId = None,
    party_id: PartyId = None,
    market_id: MarketId = None,
    account_type: AccountType = None,
    page_size: Annotated[int, typer.Option(min=1, help="Rows a request.")] = 5000,
    workers: Annotated[int, typer.Option(min=1, help="Requests at once.")] = 4,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where an interrupted fetch to FILE stood.")
    ] = False,
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Load all balance changes of an interval into one Parquet file, complete or not at all."""
    with _told_errors(verbose, quiet):
        start, end = _interval(since, until)
        _check_writable(output)
        from balance_analysis.archive.download import load_to_parquet, partial_path
        from balance_analysis.node.client import Client

        side = partial_path(output)
        if side.exists() and not resume:
            _say(quiet)(f"{side} holds a part of an earlier fetch; --resume would go on with it")
        with Client(url) as client, _told_part(side, quiet):
            loaded = load_to_parquet(
                client,
                output,
                start=start,
                end=end,
                asset_id=asset_id,
                party_ids=party_id or (),
                market_ids=market_id or (),
                account_types=account_type or (),
                page_size=page_size,
                workers=workers,
                progress=sys.stderr.isatty() and not quiet,
                resume=resume,
            )
        rows, requests = loaded["rows"], loaded["requests"]
        _say(quiet)(
            f"{rows:,} rows from {loaded['start']} to {loaded['end']} in {requests} "
            f"request{'' if requests == 1 else 's'}: {output}"
        )
        if not rows:
            _say(quiet)("No row matches; the file holds an empty table")


@app.command()
def summary(
    file: File,
    since: Since = None,
    until: Annotated[
        str | None, typer.Option(help="End, exclusive; by default the last row.")
    ] = None,
    asset_id: AssetId = None,
    party_id: PartyId = None,
    market_id: MarketId = None,
    account_type: AccountType = None,
    form: Annotated[
        TableFormat, typer.Option("--format", help="How to print.")
    ] = TableFormat.table,
    limit: Annotated[
        int, typer.Option(min=0, help="Accounts in a table, the most active first; 0 for all.")
    ] = 20,
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Summarise the accounts of a file: one row per account, amounts in smallest units, exact."""
    with _told_errors(verbose, quiet):
        start, end = _interval(since, until)
        from balance_analysis.analysis.summary import summarize_accounts

        table = _read(file, asset_id, party_id, market_id, account_type)
        accounts = summarize_accounts(table, start=start, end=end)
        if form is TableFormat.table:
            _print_summary(accounts, limit=limit)
        else:
            _print_exact(accounts, form)


@app.command()
def plot(
    file: File,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="PNG", help="To write.")],
    since: Since = None,
    until: Annotated[
        str | None, typer.Option(help="End, exclusive; by default the last row.")
    ] = None,
    asset_id: Annotated[
        str | None, typer.Option(help="The asset; by default the one with most rows.")
    ] = None,
    party_id: PartyId = None,
    market_id: MarketId = None,
    account_type: AccountType = None,
    decimals: Annotated[
        int | None, typer.Option(min=0, help="The asset's decimals, to draw whole units.")
    ] = None,
    unit: Annotated[str | None, typer.Option(help="What a whole unit is called.")] = None,
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Plot the balances of the accounts of one asset, as steps, to a PNG, SVG or PDF file."""
    with _told_errors(verbose, quiet):
        start, end = _interval(since, until)
        _picture_kind(output)
        _check_writable(output)
        table = _read(file, asset_id, party_id, market_id, account_type)
        if asset_id is None and not table.empty:
            asset_id = str(table["asset_id"].value_counts().idxmax())
            table = table[table["asset_id"] == asset_id]
            _say(quiet)(f"Asset {asset_id}, which has most rows; choose with --asset-id")
        _save_plot(table, output, start=start, end=end, decimals=decimals, unit=unit)
        _say(quiet)(f"Wrote {output}")


@app.command()
def limits(
    url: Url,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write JSON here as well.")
    ] = None,
    form: Annotated[
        LimitsFormat, typer.Option("--format", help="How to print.")
    ] = LimitsFormat.table,
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Show the network's limits as they are now."""
    with _told_errors(verbose, quiet):
        if output is not None:
            _check_writable(output)
        from balance_analysis.archive.files import (
            limits_to_json,
            write_network_limits,
        )
        from balance_analysis.load.limits import load_network_limits
        from balance_analysis.node.client import Client

        with Client(url) as client:
            snapshot = load_network_limits(client)
        if output is not None:
            write_network_limits(snapshot, output)
        text = limits_to_json(snapshot)
        if form is LimitsFormat.table:
            content = json.loads(text)
            content |= content.pop("extra")
            width = max(map(len, content))
            text = "".join(f"{name:{width}}  {_plain(value)}\n" for name, value in content.items())
        typer.echo(text, nl=False)


@app.command()
def doctor(
    url: Url,
    form: Annotated[
        LimitsFormat, typer.Option("--format", help="How to print.")
    ] = LimitsFormat.table,
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Tell what a node does and where it misbehaves, in at most 40 requests."""
    with _told_errors(verbose, quiet):
        from balance_analysis.node.client import Client
        from balance_analysis.node.doctor.diagnosis import diagnose_node

        with Client(url) as client:
            report = diagnose_node(client)
        typer.echo(report.to_json() if form is LimitsFormat.json else str(report))


def main() -> None:
    """Run the command line."""
    try:
        app()
    except SystemExit as end:
        if threading.active_count() == 1 or not isinstance(end.code, int):
            raise
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code)  # a request under way would be waited for until its timeout


@contextlib.contextmanager
def _told_part(side: Path, quiet: bool) -> Iterator[None]:
    """Say after a failure where what is complete has been kept."""
    before = side.stat().st_mtime_ns if side.exists() else None
    try:
        yield
    except (KeyboardInterrupt, BalanceAnalysisError):
        if side.exists() and side.stat().st_mtime_ns != before:
            _say(quiet)(f"What is complete stands in {side}; go on with --resume")
        raise


@contextlib.contextmanager
def _told_errors(verbose: int, quiet: bool) -> Iterator[None]:
    """Log to stderr, and turn an error that can be expected into one line and an exit code."""
    handler = logging.StreamHandler()
    logger.addHandler(handler)
    terminated = signal.signal(signal.SIGTERM, signal.default_int_handler)
    logger.setLevel(logging.ERROR if quiet else max(logging.WARNING - 10 * verbose, logging.DEBUG))
    try:
        yield
    except KeyboardInterrupt:
        _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        raise
    except (BalanceAnalysisError, OSError, ValueError, OverflowError) as error:
        logger.debug("where it happened", exc_info=True)
        codes = [code for kind, code in EXIT_CODES.items() if isinstance(error, kind)]
        _fail(_one_line(error), codes[0] if codes else 1)
    finally:
        logger.removeHandler(handler)
        signal.signal(signal.SIGTERM, terminated)


def _fail(message: str, code: int) -> None:
    typer.echo(f"balance-analysis: {message}", err=True)
    raise typer.Exit(code)


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split())


def _say(quiet: bool) -> Callable[[str], None]:
    return lambda line: None if quiet else typer.echo(line, err=True)


def _interval(
    since: str | None, until: str | None
) -> tuple[dt.datetime | str | None, dt.datetime | str | None]:
    """Return the bounds of the command line, relative ones resolved against one now."""
    now = dt.datetime.now(dt.UTC)
    start, end = _moment(since, now), _moment(until, now)
    if start is not None and end is not None:
        from balance_analysis.load.request import bounds

        bounds(start, end)
    return start, end


def _moment(text: str | None, now: dt.datetime) -> dt.datetime | str | None:
    if text is None:
        return None
    if text == "now":
        return now
    if ago := _AGO.fullmatch(text):
        return now - dt.timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    return text


def _check_writable(path: Path) -> None:
    """Raise before any work if a file can't be written there."""
    if path.is_dir():
        raise IsADirectoryError(21, "is a folder; name a file in it", str(path))
    if path.exists() and not path.is_file():
        raise OSError(22, "is no regular file; name one", str(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(2, "no such folder; make it first", str(path.parent))
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(13, "this folder can't be written to", str(path.parent))


def _read(
    file: Path,
    asset_id: str | None,
    party_ids: list[str] | None,
    market_ids: list[str] | None,
    account_types: list[str] | None,
) -> pd.DataFrame:
    """Return the rows of a file that the filters leave."""
    from balance_analysis.archive.files import read_parquet
    from balance_analysis.node.query import make_filters

    filters = make_filters(
        asset_id=asset_id,
        party_ids=party_ids or (),
        market_ids=market_ids or (),
        account_types=account_types or (),
    )
    table = read_parquet(file)
    selected = filters.select(table)
    if selected.empty and not table.empty:
        typer.echo(f"No row of {file} matches the filters", err=True)
    return selected


def _picture_kind(output: Path) -> str:
    kind = output.suffix.removeprefix(".").lower()
    if kind not in ("png", "svg", "pdf"):
        raise ValueError(f"{output}: name a .png, .svg or .pdf file")
    return kind


def _save_plot(
    table: pd.DataFrame,
    output: Path,
    *,
    start: dt.datetime | str | None,
    end: dt.datetime | str | None,
    decimals: int | None,
    unit: str | None,
) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.dates import date2num

    from balance_analysis.archive.writing import replacing
    from balance_analysis.figures.plots import plot_balances
    from balance_analysis.schema import from_microseconds, to_microseconds

    figure, ax = plt.subplots(figsize=(10, 4.5), layout="constrained")
    plot_balances(table, ax=ax, decimals=decimals, unit=unit, end=end)
    for side, bound in (("left", start), ("right", end)):
        if bound is not None:
            ax.set_xlim(**{side: date2num(from_microseconds(to_microseconds(bound)))})  # type: ignore[no-untyped-call]
    with replacing(output) as temporary:
        figure.savefig(temporary, format=_picture_kind(output), dpi=150)
    plt.close(figure)


def _print_exact(accounts: pd.DataFrame, form: TableFormat) -> None:
    """Print every column and digit; a balance in JSON is text, since JSON's numbers are floats."""
    if form is TableFormat.csv:
        accounts.to_csv(sys.stdout, index=False, date_format="%Y-%m-%dT%H:%M:%S.%fZ")
        return
    rows = [
        {name: _exact(value) for name, value in row.items()} for row in accounts.to_dict("records")
    ]
    typer.echo(json.dumps(rows, indent=2))


def _exact(value: object) -> object:
    if isinstance(value, dt.datetime):
        return None if value != value else value.isoformat()  # noqa: PLR0124 - NaT differs from itself
    if isinstance(value, Decimal):
        return str(value)
    return value if isinstance(value, int | str) else None


def _print_summary(
    accounts: pd.DataFrame, *, limit: int, asset_names: dict[str, str] | None = None
) -> None:
    """Print the most active accounts, one line each, ids short."""
    from balance_analysis.figures.labels import short_ids, type_label

    shown = accounts.sort_values(["changes", "rows"], ascending=False, kind="stable")
    shown = shown.head(limit) if limit else shown
    ids = {name: short_ids(shown[name]) for name in ("asset_id", "party_id", "market_id")}
    columns = {
        "asset": [
            (asset_names or {}).get(asset, ids["asset_id"][asset]) for asset in shown["asset_id"]
        ],
        "type": [type_label(name) for name in shown["account_type"]],
        "party": [ids["party_id"][party] for party in shown["party_id"]],
        "market": [ids["market_id"][market] for market in shown["market_id"]],
        "rows": [f"{count:,}" for count in shown["rows"]],
        "changes": [f"{count:,}" for count in shown["changes"]],
        **{name: [_amount(x) for x in shown[name]] for name in ("minimum", "maximum", "closing")},
        "last seen, UTC": shown["last_seen"]
        .dt.strftime("%Y-%m-%d %H:%M:%S")
        .fillna("quiet")
        .tolist(),
    }
    for line in _aligned(columns, left={"asset", "type", "party", "market"}):
        typer.echo(line)
    if len(shown) < len(accounts):
        typer.echo(f"... the {len(shown)} most active of {len(accounts):,} accounts")


def _amount(value: Any) -> str:  # noqa: ANN401 - a cell of any column
    from pandas import isna

    if isna(value):
        return "unknown"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


def _aligned(columns: dict[str, list[str]], *, left: set[str]) -> Iterator[str]:
    """Yield a table's lines, its header first."""
    cells = {
        name: [text.ljust(width) if name in left else text.rjust(width) for text in (name, *texts)]
        for name, texts in columns.items()
        for width in [max(map(len, (name, *texts)))]
    }
    return ("  ".join(line).rstrip() for line in zip(*cells.values(), strict=True))


def _plain(value: object) -> str:
    """Return a value of JSON as a person writes it."""
    words = {None: "not set", True: "yes", False: "no"}
    return words[value] if value is None or isinstance(value, bool) else str(value)
