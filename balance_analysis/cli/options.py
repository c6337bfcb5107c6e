"""The options and arguments that commands share."""

import errno
import re
import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from typer import Argument

import balance_analysis as ba
from balance_analysis.cli.output import say
from balance_analysis.errors import IncompleteError
from balance_analysis.files.atomic import MANIFEST
from balance_analysis.fill import ON_BAD_ROWS
from balance_analysis.load import PAGE_SIZE, WORKERS
from balance_analysis.table.moments import gaps_in, to_bounds
from balance_analysis.table.text import spans_text

if TYPE_CHECKING:
    import pandas as pd

# Annotations here are objects, not text, since typer would compile texts at every start.
# Every option has an environment variable; the help mentions that once.
Option: partial[Any] = partial(typer.Option, show_envvar=False)
Text = str | None
Texts = list[str] | None
PrintFormat = Annotated[Literal["table", "json"], Option("--format", help="Format to print.")]

Url = Annotated[str, Argument(metavar="URL", help="The node's address.")]
Urls = Annotated[list[str], Argument(metavar="URL...", help="Addresses of one node or several.")]
Source = Annotated[
    str, Argument(metavar="ARCHIVE_OR_FILE", help="An archive, or a file that `fetch` wrote.")
]
_ARCHIVE: Any = Argument(metavar="ARCHIVE", help="A folder, or an address such as s3://bucket/x.")
ArchiveAt = Annotated[str, _ARCHIVE]
ArchiveIfAny = Annotated[Text, _ARCHIVE]
Since = Annotated[Text, Option(help="Start, inclusive; by default the oldest row.")]
Until = Annotated[Text, Option(help="End, exclusive; by default now.")]
UntilLast = Annotated[
    Text,
    Option(help="End, exclusive; by default where the known history ends, or after the last row."),
]
SinceAll = Annotated[Text, Option(help="Start, inclusive; by default no bound.")]
UntilAll = Annotated[Text, Option(help="End, exclusive; by default no bound.")]
Partial = Annotated[bool, Option("--partial", help="Use the rows of an incomplete archive too.")]
Verbose = Annotated[
    int,
    Option("-v", "--verbose", count=True, show_default=False, help="Log more; -vv: each request."),
]
Quiet = Annotated[bool, Option("-q", "--quiet", help="Report only errors.")]
Units = Annotated[
    bool,
    Option("--units", help="Amounts as floats in whole units, not exact ones in smallest units."),
]
BY: Final = {
    "party": "party_id",
    "type": "account_type",
    "market": "market_id",
    "asset": "asset_id",
}
By = Annotated[
    Literal["party", "type", "market", "asset"] | None,
    Option(help="Group each asset's accounts by this."),
]


def _names_option(what: str, help: str) -> Any:  # noqa: A002, ANN401 - as typer's own
    variable = f"BALANCE_ANALYSIS_{what.upper()}"
    return typer.Option(metavar="FILE", envvar=variable, help=f"{help}: .toml, .csv or .json.")


AssetsFile = Annotated[Path | None, _names_option("assets", "Symbols and decimals of assets")]
LabelsFile = Annotated[Path | None, _names_option("labels", "Your names of parties and markets")]


def output_option(help: str) -> Any:  # noqa: A002, ANN401 - as typer's own
    """Return the option for a file to write."""
    return Option("-o", "--output", metavar="FILE", help=f"{help} An existing file is replaced.")


def form_option(default: str) -> Any:  # noqa: ANN401 - as typer's own
    """Return the option for the format of rows."""
    return Option("--format", help=f"Format; by default {default}, or as the name of FILE ends.")


def duration_option(help: str) -> Any:  # noqa: A002, ANN401 - as typer's own
    """Return an option for a length of time."""
    return Option(metavar="DURATION", help=help)


@dataclass(frozen=True, kw_only=True)
class AccountOptions:
    """The options that select accounts."""

    asset_id: Annotated[Text, Option(metavar="ID", help="Only this asset, by id or symbol.")] = None
    party_id: Annotated[Texts, Option(metavar="ID", help="Only this party; repeatable.")] = None
    market_id: Annotated[Texts, Option(metavar="ID", help="Only this market; repeatable.")] = None
    account_type: Annotated[Texts, Option(help="Only this type, like GENERAL; repeatable.")] = None
    assets: AssetsFile = None
    labels: LabelsFile = None

    def filters(self) -> dict[str, Any]:
        """Return the filters as arguments of library functions."""
        lists = ("party_id", "market_id", "account_type")
        named = {f"{name}s": getattr(self, name) or () for name in lists}
        return {"asset_id": self.asset_id, **named}

    def names(self) -> dict[str, Any]:
        """Return the names as arguments of library functions."""
        return {"assets": self.assets, "labels": self.labels}

    def given(self) -> dict[str, Any]:
        """Return the filters and the names as arguments of library functions."""
        return {**self.filters(), **self.names()}


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """The options for requests to a node."""

    page_size: Annotated[int, Option(min=1, help="Rows per request.")] = PAGE_SIZE
    workers: Annotated[int, Option(min=1, help="Concurrent requests.")] = WORKERS
    max_requests_per_second: Annotated[
        float | None, Option(min=0.001, metavar="N", help="Maximum rate; by default no limit.")
    ] = None

    def client(self, urls: list[str]) -> "ba.Client":
        """Return a client that keeps the rate limit."""
        return client_of(*urls, max_requests_per_second=self.max_requests_per_second)

    def sizes(self) -> dict[str, Any]:
        """Return the other options as arguments of library functions."""
        return {"page_size": self.page_size, "workers": self.workers}


@dataclass(frozen=True, kw_only=True)
class FillOptions:
    """The options for filling an archive, named as in the library."""

    partition: Annotated[
        Literal["day", "month", "hour"] | None,
        Option(help="Time that one file covers; the archive's first run sets it. [day]"),
    ] = None
    on_bad_rows: Annotated[
        Literal["quarantine", "raise"],
        Option("--on-bad-rows", help="Set malformed rows aside, or fail."),
    ] = ON_BAD_ROWS


_KINDS: Final = {
    "node": "the address of a node",
    "archive": "an archive",
    "file": "a file",
    "rows": "a file or an archive",
}
_STORES: Final = "(?:s3|gs|gcs|hdfs|viewfs|abfss?|file)://"


def command_line(*arguments: str) -> str:
    """Return a command quoted for a shell."""
    return shlex.join(["balance-analysis", *arguments])


def kind_of(text: str) -> Literal["node", "archive", "file"] | None:
    """Return what an argument names, or `None` if that is unclear."""
    if re.match("https?://", text, re.IGNORECASE):
        return "node"
    if re.match(_STORES, text) or (Path(text) / MANIFEST).exists():
        return "archive"
    return "file" if Path(text).is_file() else None


def check_is(wanted: Literal["node", "archive", "rows"], text: str) -> None:
    """Check that an argument isn't clearly of another kind.

    Raises
    ------
    ValueError
        If it is; the message says what to write instead.
    """
    kind = kind_of(text)
    if kind == wanted or kind is None or (wanted == "rows" and kind != "node"):
        return
    if kind == "node" and wanted == "archive":
        instead = f"`{command_line('export', 'archive', text)}` makes an archive of its rows"
    elif kind == "node":
        load, then = ("fetch", text, "-o", "changes.parquet"), "and then name changes.parquet"
        instead = f"load its rows first, `{command_line(*load)}`, {then}"
    else:
        name = "status" if kind == "archive" else "summary"
        instead = f"`{command_line(name, text)}` shows its contents"
    raise ValueError(f"{text} is {_KINDS[kind]}, not {_KINDS[wanted]}; {instead}")


def client_of(*urls: str, **settings: Any) -> "ba.Client":  # noqa: ANN401 - as of `Client`
    """Return a client of the nodes that arguments name; see `check_is`."""
    for url in urls:
        check_is("node", url)
    return ba.Client(urls, **settings)


def archive_at(text: str) -> "ba.Archive":
    """Return the archive that an argument names; see `check_is`."""
    check_is("archive", text)
    return ba.Archive(text)


def columns_of(by: str | None) -> str | list[str]:
    """Return the columns that identify a holder of `--by`, by default an account's."""
    return ba.ACCOUNT_KEY if by is None else BY[by]


@dataclass(frozen=True, kw_only=True)
class Selection(AccountOptions):
    """The source and the rows to read."""

    file: Source
    since: Since = None
    until: UntilLast = None
    partial: Partial = False

    @property
    def bounds(self) -> dict[str, Any]:
        """The interval as arguments of library functions."""
        return {"start": self.since, "end": self.until}

    def open(self) -> Any:  # noqa: ANN401 - an archive or a table
        """Return the archive, or the file's table, narrowed to the selected accounts.

        Raises
        ------
        IncompleteError
            If rows of the interval may be missing from the archive, unless `partial`.
        ValueError
            If a filter matches nothing known, or the source is a node.
        """
        check_is("rows", self.file)
        to_bounds(self.since, self.until)  # refuse a malformed moment before anything is read
        if is_archive(self.file):
            archive = ba.Archive(self.file).select(**self.given())
            try:
                archive.snapshot().scan(archive.filters, **self.bounds, partial=False)
            except IncompleteError as error:
                if not self.partial:
                    raise
                say(f"Incomplete: {str(error).partition(';')[0]}")
            return archive
        if not Path(self.file).exists():
            raise FileNotFoundError(errno.ENOENT, "no such file or archive", self.file)
        table = ba.read_parquet(self.file, **self.names())
        self._say_gaps(table)
        return table.balances.select(**self.filters())

    def _say_gaps(self, table: "pd.DataFrame") -> None:
        """Say in which parts of the interval a file's rows may be missing, if any."""
        from balance_analysis.table.known import read_notes
        from balance_analysis.table.schema import ATTRS_KEY

        notes = table.attrs.get(ATTRS_KEY, {})
        known = read_notes(notes).known
        if not known:
            return
        start, end = to_bounds(self.since or notes.get("start"), self.until or notes.get("end"))
        first, last = known[0][0] if start is None else start, known[-1][1] if end is None else end
        if gaps := gaps_in(known, first, last):
            say(f"{self.file}: rows may be missing in {spans_text(gaps)}; unknown balances are NA")


def select(source: Any, **filters: Any) -> Any:  # noqa: ANN401 - an archive or a table
    """Return a source of the same kind, narrowed to some accounts."""
    narrowed = source if isinstance(source, ba.Archive) else source.balances
    return narrowed.select(**filters)


def is_archive(text: str) -> bool:
    """Return whether a source is an archive, not a file."""
    return "://" in text or Path(text).is_dir()
