"""The options and arguments that commands share, and the moments in them."""

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
from balance_analysis import defaults
from balance_analysis.cli.output import say
from balance_analysis.errors import IncompleteError
from balance_analysis.files.atomic import MANIFEST
from balance_analysis.table.spans import between
from balance_analysis.table.text import moment_text, spans_text

if TYPE_CHECKING:
    import pandas as pd

# Annotations are objects here, not text: typer would have to compile each of them at every start.
# Every option has an environment variable; help says so once.
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
    Option(help="End, exclusive; by default the end of what is known, or just after the last row."),
]
SinceAll = Annotated[Text, Option(help="Start, inclusive; by default all.")]
UntilAll = Annotated[Text, Option(help="End, exclusive; by default all.")]
Partial = Annotated[
    bool, Option("--partial", help="Use what there is, even where an archive is incomplete.")
]
Verbose = Annotated[
    int,
    Option(
        "-v", "--verbose", count=True, show_default=False, help="Say more; -vv says every request."
    ),
]
Quiet = Annotated[bool, Option("-q", "--quiet", help="Say nothing but errors.")]
Units = Annotated[
    bool,
    Option("--units", help="Amounts as floats in whole units, not exact in the smallest unit."),
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
LabelsFile = Annotated[
    Path | None, _names_option("labels", "Own names of parties, markets and accounts")
]


def output_option(help: str) -> Any:  # noqa: A002, ANN401 - as typer's own
    """Return the option of a file to write."""
    return Option("-o", "--output", metavar="FILE", help=f"{help} An existing file is replaced.")


def form_option(default: str) -> Any:  # noqa: ANN401 - as typer's own
    """Return the option of how rows are printed or written."""
    return Option("--format", help=f"Format; by default {default}, or what the name of FILE says.")


def duration_option(help: str) -> Any:  # noqa: A002, ANN401 - as typer's own
    """Return the option of a length of time."""
    return Option(metavar="DURATION", help=help)


@dataclass(frozen=True, kw_only=True)
class AccountOptions:
    """The options that say which accounts."""

    asset_id: Annotated[Text, Option(metavar="ID", help="Only this asset; an id or a symbol.")] = (
        None
    )
    party_id: Annotated[Texts, Option(metavar="ID", help="Only this party; repeatable.")] = None
    market_id: Annotated[Texts, Option(metavar="ID", help="Only this market; repeatable.")] = None
    account_type: Annotated[Texts, Option(help="Only this type, such as GENERAL; repeatable.")] = (
        None
    )
    assets: AssetsFile = None
    labels: LabelsFile = None

    def filters(self) -> dict[str, Any]:
        """Return the filters as the functions of the library take them."""
        lists = ("party_id", "market_id", "account_type")
        named = {f"{name}s": getattr(self, name) or () for name in lists}
        return {"asset_id": self.asset_id, **named}

    def names(self) -> dict[str, Any]:
        """Return the names as the functions of the library take them."""
        return {"assets": self.assets, "labels": self.labels}

    def given(self) -> dict[str, Any]:
        """Return both."""
        return {**self.filters(), **self.names()}


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """The options that say how a node is asked."""

    page_size: Annotated[int, Option(min=1, help="Rows per request.")] = defaults.PAGE_SIZE
    workers: Annotated[int, Option(min=1, help="Requests at once.")] = defaults.WORKERS
    max_requests_per_second: Annotated[
        float | None, Option(min=0.001, metavar="N", help="Send no more; by default no limit.")
    ] = None

    def client(self, urls: list[str]) -> "ba.Client":
        """Return a client that keeps to the rate."""
        return client_of(*urls, max_requests_per_second=self.max_requests_per_second)

    def sizes(self) -> dict[str, Any]:
        """Return the other options as the functions of the library take them."""
        return {"page_size": self.page_size, "workers": self.workers}


@dataclass(frozen=True, kw_only=True)
class FillOptions:
    """The options that say how an archive is filled, named as in the library."""

    partition: Annotated[
        Literal["day", "month", "hour"] | None,
        Option(help="How much time one file holds; the first run of an archive decides. [day]"),
    ] = None
    on_bad_rows: Annotated[
        Literal["quarantine", "raise"],
        Option("--on-bad-rows", help="Set malformed rows aside, or fail."),
    ] = defaults.ON_BAD_ROWS


_KINDS: Final = {
    "node": "the address of a node",
    "archive": "an archive",
    "file": "a file",
    "rows": "a file or an archive",
}
_STORES: Final = "(?:s3|gs|gcs|hdfs|viewfs|abfss?|file)://"


def command_line(*arguments: str) -> str:
    """Return a command as it can be pasted."""
    return shlex.join(["balance-analysis", *arguments])


def kind_of(text: str) -> Literal["node", "archive", "file"] | None:
    """Return what an argument names, if that can be seen."""
    if re.match("https?://", text, re.IGNORECASE):
        return "node"
    if re.match(_STORES, text) or (Path(text) / MANIFEST).exists():
        return "archive"
    return "file" if Path(text).is_file() else None


def check_is(wanted: Literal["node", "archive", "rows"], text: str) -> None:
    """Raise if an argument is plainly something else, and say what to write instead.

    Raises
    ------
    ValueError
        If it is.
    """
    given = kind_of(text)
    if given == wanted or given is None or (wanted == "rows" and given != "node"):
        return
    if given == "node" and wanted == "archive":
        instead = f"`{command_line('export', 'archive', text)}` makes an archive of what it has"
    elif given == "node":
        load, then = ("fetch", text, "-o", "changes.parquet"), "and then name changes.parquet"
        instead = f"load its rows first, `{command_line(*load)}`, {then}"
    else:
        name = "status" if given == "archive" else "summary"
        instead = f"`{command_line(name, text)}` shows what it holds"
    raise ValueError(f"{text} is {_KINDS[given]}, not {_KINDS[wanted]}; {instead}")


def client_of(*urls: str, **how: Any) -> "ba.Client":  # noqa: ANN401 - as of `Client`
    """Return a client of the nodes that arguments name; see `check_is`."""
    for url in urls:
        check_is("node", url)
    return ba.Client(urls, **how)


def archive_at(text: str) -> "ba.Archive":
    """Return the archive that an argument names; see `check_is`."""
    check_is("archive", text)
    return ba.Archive(text)


def columns_of(by: str | None) -> str | list[str]:
    """Return the columns that make a holder, as `--by` names it; by default those of an account."""
    return ba.ACCOUNT_KEY if by is None else BY[by]


def interval(since: Text, until: Text) -> dict[str, Any]:
    """Return `start` and `end` as the library takes them, relative ones counted from one now.

    Raises
    ------
    ValueError
        If one is no moment, or the start is not before the end.
    """
    from balance_analysis.table.schema import from_microseconds, to_bounds

    bounds = to_bounds(since, until)
    start, end = (None if bound is None else from_microseconds(bound) for bound in bounds)
    if start is not None and end is not None and start >= end:
        raise ValueError(
            f"start must be before end, but {moment_text(start)} is not before {moment_text(end)}"
        )
    return {"start": start, "end": end}


@dataclass(frozen=True, kw_only=True)
class Selection(AccountOptions):
    """The source and the rows to read."""

    file: Source
    since: Since = None
    until: UntilLast = None
    partial: Partial = False

    @property
    def bounds(self) -> dict[str, Any]:
        """The interval as the functions of the library take it."""
        return interval(self.since, self.until)

    def open(self) -> Any:  # noqa: ANN401 - an archive or a table
        """Return the archive, or the table of the file, narrowed to the accounts.

        Raises
        ------
        IncompleteError
            If the archive may lack rows of the interval, unless `partial`.
        ValueError
            If a filter stands for nothing, or the source is a node.
        """
        check_is("rows", self.file)
        bounds = self.bounds
        if is_archive(self.file):
            archive = ba.Archive(self.file).select(**self.given())
            try:
                archive.scan(**bounds)
            except IncompleteError as error:
                if not self.partial:
                    raise
                say(f"Incomplete: {str(error).partition(';')[0]}")
            return archive
        if not Path(self.file).exists():
            raise FileNotFoundError(errno.ENOENT, "there is no such file or archive", self.file)
        table = ba.read_parquet(self.file, **self.names())
        self._say_unknown(table)
        return table.balances.select(**self.filters())

    def _say_unknown(self, table: "pd.DataFrame") -> None:
        """Say in which part of the interval a file lacks changes, if any."""
        from balance_analysis.table.known import read_known
        from balance_analysis.table.schema import ATTRS_KEY, to_bounds

        notes = table.attrs.get(ATTRS_KEY, {})
        known = read_known(notes)
        if not known:
            return
        start, end = to_bounds(self.since or notes.get("start"), self.until or notes.get("end"))
        first, last = known[0][0] if start is None else start, known[-1][1] if end is None else end
        if gaps := between(known, first, last):
            say(f"{self.file} lacks changes in {spans_text(gaps)}; balances there are unknown")


def select(source: Any, **filters: Any) -> Any:  # noqa: ANN401 - an archive or a table
    """Return the same kind of source, narrowed to some accounts."""
    narrowed = source if isinstance(source, ba.Archive) else source.balances
    return narrowed.select(**filters)


def is_archive(text: str) -> bool:
    """Return whether a source is an archive, not a file."""
    return "://" in text or Path(text).is_dir()
