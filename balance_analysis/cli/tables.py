"""Commands that show a file or an archive: as tables, pictures and pages."""

import datetime as dt
import io
import shutil
import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from typer import Argument

import balance_analysis as ba
from balance_analysis.cli import options
from balance_analysis.cli.app import ARCHIVE, command
from balance_analysis.cli.options import Option
from balance_analysis.cli.output import UNKNOWN, echo, print_record, print_table, printable, say
from balance_analysis.files.atomic import check_output, replacing
from balance_analysis.table.moments import moment_text
from balance_analysis.table.text import (
    LONG_ID,
    count_text,
    decimal_text,
    list_text,
    short_ids,
    truncated,
)

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from balance_analysis.table.names import Asset, Names

SUMMARY: Final = ("closing", "rows", "last_seen", "maximum", "minimum")
"""Columns of a printed summary, the most important first."""

COMPARISON: Final = ("change", "after", "before", "change_percent", "state")
"""Columns of a printed comparison, the most important first."""

_WIDTHS: Final = (64, 19, 11)
"""Maximum widths of a name (in characters), tried in turn until the amounts fit beside it."""

_LONGEST: Final = 10
"""Maximum width of an amount (in characters); longer ones are rounded to units or four digits."""

_FIRST: Final = 3
"""Number of columns that must fit beside the names; names are shortened for them."""

_AS_TEXT: Final = {
    *("interval", "time with time zone", "uhugeint", "bignum", "bit", "blob"),
    *("list", "array", "struct", "map", "union"),
}
"""DuckDB types that Arrow or some file format can't store."""

Output = Annotated[
    Path | None,
    options.output_option(
        "The file to write: .csv, .json, .parquet or .xlsx. In CSV, text that a spreadsheet would "
        "run (it begins with =, +, -, @, a tab or a line break) gets an apostrophe in front."
    ),
]

FileFormat = Literal["csv", "json", "parquet", "xlsx"]


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The options of commands that print a table or write a file."""

    output: Output = None
    form: Annotated[Literal["table", FileFormat] | None, options.form_option("a table")] = None
    limit: Annotated[int, Option(min=0, help="Maximum rows printed; 0 prints all.")] = 20
    wide: Annotated[bool, Option("--wide", help="Show all columns, whole ids, all digits.")] = False

    def chosen(self, source: str) -> str:
        """Return the format of the output; see `choose_format`."""
        return choose_format(self.form, self.output, source=source, otherwise="table")

    def show(
        self,
        rows: "pd.DataFrame",
        form: str,
        first: Sequence[str],
        *,
        names: "Names | None" = None,
        units: bool = False,
        each_asset: bool = False,
    ) -> None:
        """Write all rows to a file, or print the first ones, or each asset's first ones.

        A table is as wide as the terminal, or 80 characters if there is none.

        Parameters
        ----------
        rows, form
            The rows and the output format.
        first
            The columns to fit in first, after the ids.
        names
            The names of ids and the decimals of amounts; `None` to print cells as SQL returns them,
            with amounts unchanged and missing values as NULL.
        units
            Whether to write floats in whole units.
        each_asset
            Whether the limit applies to each asset.
        """
        from pandas.api.types import is_numeric_dtype

        # Unknown units are refused in every format.
        exact, rows = rows, ba.to_units(rows, names.assets) if units and names is not None else rows
        if form != "table":
            write_exact(rows, form, self.output)
            return
        shown: Any = rows if self.wide else exact
        shown = shown.groupby("asset_id", observed=True) if each_asset else shown
        frame = shown.head(self.limit or len(rows))
        left = {str(name) for name in frame if not is_numeric_dtype(frame[name].dtype)}
        if self.wide:
            missing = "NULL" if names is None else UNKNOWN
            texts = {str(name): [_cell(cell, missing) for cell in frame[name]] for name in frame}
            print_table(texts, left=left)
        else:
            ids = [name for name in ba.ACCOUNT_KEY if name in frame and names is not None]
            texts = {str(name): _short_texts(frame, str(name), names) for name in frame}
            _print_fitting(texts, [*ids, *first], ids, left)
        if len(frame) < len(rows):
            echo(f"... {len(frame):,} of {len(rows):,} rows; --limit 0 shows all")


def _print_fitting(
    columns: dict[str, list[str]], order: list[str], ids: list[str], left: Collection[str]
) -> None:
    """Print the columns that fit side by side, in the order of `columns`.

    Columns that come first in `order` are fitted in first; ids are shortened to make room.
    """
    order = [name for name in order if name in columns]
    titles = {x: x.removeprefix("account_").removesuffix("_id") if x in ids else x for x in order}
    shown: dict[str, list[str]] = {}
    for width in _WIDTHS:
        room, shown = shutil.get_terminal_size().columns + 2, {}
        for name in order:
            texts = [truncated(x, width) if name in ids else x for x in columns[name]]
            needed = 2 + max(map(len, (titles[name], *map(printable, texts))))
            if needed <= room:
                shown[name], room = texts, room - needed
        if {*order[: len(ids) + _FIRST]} <= {*shown}:
            break
    names = [name for name in columns if name in shown]
    print_table({titles[x]: shown[x] for x in names}, left={titles[x] for x in names if x in left})
    if hidden := [name for name in columns if name in order and name not in shown and not ids]:
        echo(f"... without {list_text(hidden)}; --wide shows all columns")


def _short_texts(frame: "pd.DataFrame", name: str, names: "Names | None") -> list[str]:
    """Return a column's cells as short texts: names for ids, whole units, days for moments.

    Without `names`, cells are as SQL returns them, except that ids and account types are shortened.
    """
    from pandas.api.types import is_datetime64_any_dtype

    column = frame[name]
    if names is None:
        texts = [_cell(cell, "NULL") for cell in column]
        short = short_ids(filter(LONG_ID.fullmatch, texts))
        return [short.get(text, text.removeprefix("ACCOUNT_TYPE_")) for text in texts]
    if name in ba.ACCOUNT_KEY:
        ids = column.astype("str")
        return list(ids.map(names.shown(name, ids)))
    if "decimal" in str(column.dtype):
        known = frame["asset_id"].map(names.assets.get)
        return [_amount(*pair) for pair in zip(column, known, strict=True)]
    if is_datetime64_any_dtype(column.dtype):
        return list(column.dt.strftime("%Y-%m-%d").fillna(UNKNOWN))
    if column.dtype.kind == "f":
        return [f"{each:+z,.1f}".replace("+nan", "").replace("+0.0", "0.0") for each in column]
    return [f"{each:,}" if isinstance(each, int) else _cell(each) for each in column]


def _amount(value: Any, asset: "Asset | None") -> str:  # noqa: ANN401 - a cell
    from pandas import isna

    if isna(value):
        return UNKNOWN
    whole = Decimal(value).scaleb(0 if asset is None else -asset.decimals)
    texts = [f"{whole:,.{0 if asset is None else 2}f}", f"{whole:,.0f}", f"{whole:.3e}"]
    return next((text for text in texts if len(text) <= _LONGEST), texts[-1])


def _cell(value: Any, missing: str = UNKNOWN) -> str:  # noqa: ANN401 - a cell
    """Return a cell as text with every digit, a moment as from `moment_text`."""
    from pandas import isna

    if not isinstance(value, list | dict) and isna(value):
        return missing
    if isinstance(value, Decimal):
        return decimal_text(value)
    return moment_text(value) if isinstance(value, dt.datetime) else str(value)


@command()
def summary(
    selection: options.Selection,
    listing: TableOptions,
    units: options.Units = False,
    by: options.By = None,
) -> None:
    """Summarise the accounts of a file or an archive, one row per account.

    A printed table begins with the most active accounts, or with --by the largest holders. It is as
    wide as the terminal. Amounts are in whole units if the decimals are known; large ones have four
    digits (1.234e+22).
    """
    from balance_analysis.analysis.balances import largest
    from balance_analysis.table.names import names_of

    form, bounds = listing.chosen(selection.file), selection.bounds
    source = selection.open()
    if by is not None:
        rows = ba.summarize_parties(source, by=options.BY[by], **bounds)
        rows = largest(rows, rows["closing"], None)
    else:
        rows = ba.summarize_accounts(source, **bounds)
        if form == "table":
            rows = rows.sort_values("rows", ascending=False, kind="stable", ignore_index=True)
    names, has_groups = names_of(rows), by is not None
    listing.show(rows, form, SUMMARY, names=names, units=units, each_asset=has_groups)


@command()
def series(
    selection: options.Selection,
    output: Output = None,
    freq: Annotated[
        options.Text, Option(help="Period: 10min, 1h, 1D, MS ...; by default every change.")
    ] = None,
    layout: Annotated[
        Literal["long", "wide"],
        Option(
            help="long: one row per account and moment, with ids; wide: one column per account, "
            "under its symbol and label, or short ids."
        ),
    ] = "long",
    units: options.Units = False,
    form: Annotated[FileFormat | None, options.form_option("csv")] = None,
    by: options.By = None,
) -> None:
    """Show balances over time; unknown ones are empty."""
    chosen = choose_format(form, output, source=selection.file, otherwise="csv")
    how: dict[str, Any] = {**selection.bounds, "freq": freq, "layout": layout}
    rows = ba.balance_series(selection.open(), **how, by=options.columns_of(by))
    write_exact(ba.to_units(rows) if units else rows, chosen, output)


@command()
def compare(
    file: options.Source,
    at: Annotated[list[str], Option(metavar="MOMENT", help="A moment; give two: before, after.")],
    filters: options.AccountOptions,
    listing: TableOptions,
    units: options.Units = False,
    by: options.By = None,
    partial: options.Partial = False,
) -> None:
    """Compare the balances of a file or an archive at two moments, the largest changes first.

    A printed table is as wide as the terminal, with amounts in whole units if the decimals are
    known. Its last line counts balances that are new, gone, changed, the same and unknown.
    """
    from balance_analysis.table.names import names_of

    if len(at) != 2:  # noqa: PLR2004 - a pair
        raise ValueError("compare takes two moments: --at BEFORE --at AFTER")
    # A file would lose rows to an interval; an archive must be complete up to its end.
    until = at[1] if options.is_archive(file) else None
    selection = options.Selection(file=file, until=until, partial=partial, **asdict(filters))
    form = listing.chosen(file)
    rows = ba.compare(selection.open(), (at[0], at[1]), by=options.columns_of(by))
    listing.show(rows, form, COMPARISON, names=names_of(rows), units=units, each_asset=True)
    if form == "table":
        counts = rows["state"].value_counts(sort=False)
        echo(", ".join(f"{count:,} {state}" for state, count in counts.items()))


@command(panel=ARCHIVE)
def explain(
    archive: options.ArchiveAt,
    accounts: options.AccountOptions,
    at: Annotated[str, Option(metavar="MOMENT", help="The moment of the balance.")],
    form: options.PrintFormat = "table",
) -> None:
    """Print where one account's balance comes from: its row, its file and the node.

    The options must select one account.
    """
    opened = options.archive_at(archive)
    rows = opened.select(**accounts.given()).read(columns=ba.ACCOUNT_KEY, partial=True)
    keys = rows.drop_duplicates()
    if keys.empty:
        raise ValueError(f"{archive} has no account that the options select")
    if len(keys) > 1:
        message = f"{archive} has {count_text(len(keys), 'such account')}: select one"
        raise ValueError(f"{message} with --asset-id, --account-type, --party-id and --market-id")
    print_record(opened.explain(keys.iloc[0], at=at), form)


@command()
def sql(
    archive: options.ArchiveAt,
    query: Annotated[str, Argument(metavar="QUERY", help='A SELECT: "select * from coverage".')],
    listing: TableOptions,
) -> None:
    """Query an archive with SQL (DuckDB).

    The views are changes, accounts, assets, coverage, labels and limits. A query reads nothing but
    the archive, and writes nothing but FILE. In changes, amount is the balance in whole units.
    The view coverage has the gaps. DuckDB doesn't check files for damage; `verify` does.
    """
    import pandas as pd

    opened, form = options.archive_at(archive), listing.chosen(archive)
    rows = _run_query(opened, query).to_pandas(types_mapper=pd.ArrowDtype)
    first = [*dict.fromkeys(["timestamp", "symbol", "amount", *rows])]
    listing.show(rows, form, first)


def _run_query(archive: "ba.Archive", query: str) -> "pa.Table":
    """Return the rows of a query.

    Raises
    ------
    ValueError
        If it isn't a query, or DuckDB isn't installed.
    """
    from balance_analysis.archive.snapshot import with_snapshot
    from balance_analysis.archive.sql import views_of

    try:
        connection = with_snapshot(archive.store, lambda now: views_of(now, is_restricted=True))
    except ModuleNotFoundError as error:
        raise ValueError(str(error)) from error
    import duckdb

    try:
        statements = connection.extract_statements(query)
        if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
            raise ValueError("only a single SELECT is allowed: a query can't change an archive")
        relation = connection.sql(query)
        names = relation.columns
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two columns are called {twice[0]}; name them with `as`")
        return relation.project(*map(_readable, names, relation.types)).to_arrow_table()
    except duckdb.Error as error:
        raise ValueError(str(error).partition("\n\nLINE")[0]) from error


def _readable(name: str, kind: Any) -> Any:  # noqa: ANN401 - DuckDB's
    """Return a column, cast to text if its type is in `_AS_TEXT`."""
    import duckdb

    column = duckdb.ColumnExpression(name)
    return column.cast(duckdb.sqltypes.VARCHAR).alias(name) if kind.id in _AS_TEXT else column


def choose_format(form: str | None, output: Path | None, *, source: str, otherwise: str) -> str:
    """Return the format of the output, and check the file before any work.

    Raises
    ------
    ValueError
        If neither option nor file name gives a format, they contradict each other, or the file is
        the source or lies in an archive.
    OSError
        If the file can't be written.
    """
    if output is None:
        if form in {"parquet", "xlsx"}:
            raise ValueError(f"{form} can't be printed; name a file with -o FILE.{form}")
        return form or otherwise
    from balance_analysis.files.tables import WRITERS, check_installed

    ending = output.suffix[1:].lower()
    if form == "table":
        raise ValueError("--format table can only be printed; use csv, json, parquet or xlsx")
    if form is None and ending not in WRITERS:
        raise ValueError(f"{output} must end with .csv, .json, .parquet or .xlsx, or pass --format")
    if form is not None and ending in WRITERS and ending != form:
        raise ValueError(f"{output} must end with .{form}, or pass --format {ending}")
    check_installed(form or ending)
    check_output(output, inputs=[source])
    return form or ending


def write_exact(rows: "pd.DataFrame", form: str, output: Path | None) -> None:
    """Write all rows to stdout, or atomically to a file."""
    from balance_analysis.files.tables import write_as, write_to

    if output is not None:
        write_as(rows, form, output)
        say(f"{count_text(len(rows), 'row')}: {output}")
    elif sys.stdout.isatty():
        buffer = io.BytesIO()
        write_to(rows, form, buffer)
        echo(buffer.getvalue().decode(), nl=False)
    else:
        sys.stdout.flush()
        write_to(rows, form, sys.stdout.buffer)


PictureKind = Literal["balances", "totals", "flows", "drawdown", "activity", "coverage", "limits"]
_OF_ONE_ASSET: Final = {"balances", "totals", "flows", "drawdown"}
_OF_ARCHIVES: Final = {"coverage", "limits"}
_WITH_FREQ: Final = {"totals", "flows"}
_WITH_BY: Final = {"balances", "drawdown", "totals"}

_UNDATED: Final[dict[str, dict[str, Any]]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""Metadata without a date, so that equal pictures have equal bytes."""


@command()
def plot(
    selection: options.Selection,
    output: Annotated[Path, options.output_option("The picture to write: .png, .svg or .pdf.")],
    kind: Annotated[PictureKind, Option(help="What to show.")] = "balances",
    freq: Annotated[options.Text, Option(help="Period of flows or totals: 1h, 1D, MS.")] = None,
    by: options.By = None,
) -> None:
    """Draw a picture of a file or an archive.

    If the options don't select an asset or an account, the command selects one and names it.
    """
    check_output(output, inputs=[selection.file], suffixes=(".png", ".svg", ".pdf"))
    if freq is not None and kind not in _WITH_FREQ:
        raise ValueError(f"--kind {kind} has no periods; leave out --freq")
    if by is not None and kind not in _WITH_BY:
        raise ValueError(f"--kind {kind} has no groups; leave out --by")
    bounds = {} if kind == "coverage" else selection.bounds
    chosen = bounds | ({"freq": freq} if freq else {}) | ({"by": options.BY[by]} if by else {})
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    form = output.suffix[1:].lower()
    with plt.rc_context({"svg.hashsalt": "balance_analysis"}), replacing(output) as temporary:
        axes = getattr(ba, f"plot_{kind}")(_source_of(kind, selection, by), **chosen)
        figure = axes.get_figure(root=True)
        figure.savefig(temporary, format=form, dpi=150, metadata=_UNDATED.get(form))
        plt.close(figure)
    say(f"Wrote {output}")


def _source_of(kind: str, selection: options.Selection, by: str | None) -> Any:  # noqa: ANN401
    """Return the source of a picture, narrowed to one asset or account if it shows only one."""
    bounds = selection.bounds
    if kind in _OF_ARCHIVES:
        if any(selection.filters().values()):
            raise ValueError(f"--kind {kind} shows all accounts; leave out the account options")
        if kind == "coverage" and any(bounds.values()):
            raise ValueError("--kind coverage shows all time; leave out --since and --until")
        return options.archive_at(selection.file)
    source = selection.open()
    if kind in _OF_ONE_ASSET:
        source = _of_one_asset(source, bounds)
    return _of_one_account(source, bounds) if kind == "drawdown" and by is None else source


def _of_one_asset(source: Any, bounds: dict[str, Any]) -> Any:  # noqa: ANN401 - an archive or a table
    """Return a source narrowed to the asset with most rows in the interval."""
    from balance_analysis.table.names import names_of, rank_assets

    counts = ba.summarize_accounts(source, **bounds, columns=["rows"])
    rows = counts.groupby("asset_id", observed=True)["rows"].sum()
    if len(rows) <= 1:
        return source
    asset = rank_assets({str(name): int(count) for name, count in rows.items()})[0]
    names = names_of(counts)
    name = names.shown("asset_id", [asset])[asset] if asset in names.assets else asset
    message = f"Showing asset {name}, which has {count_text(int(rows[asset]), 'row')}"
    say(f"{message}; choose another with --asset-id")
    return options.select(source, asset_id=f"id:{asset}")


def _of_one_account(source: Any, bounds: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return a source narrowed to the account that held most in the interval."""
    accounts = ba.summarize_accounts(source, **bounds, columns=["maximum"])
    if len(accounts) <= 1:
        return source
    place = int(accounts["maximum"].fillna(-1).map(int).argmax())
    say(
        f"Showing account {ba.account_labels(accounts).iloc[place]}, which held the most; choose "
        "another with --party-id, --market-id and --account-type"
    )
    if isinstance(source, ba.Archive):
        source = source.read(**bounds, opening=True, partial=True)
    key = accounts.iloc[place][ba.ACCOUNT_KEY].tolist()
    return source[(source[ba.ACCOUNT_KEY].astype("str") == key).all(axis=1)]


@command()
def report(
    file: options.Source,
    output: Annotated[Path, options.output_option("The .html page to write.")],
    since: options.Since = None,
    until: options.UntilLast = None,
    largest: Annotated[int, Option(min=0, help="Accounts per asset with their history.")] = 20,
    party_id: Annotated[
        options.Texts, Option(metavar="ID", help="Show this party first; repeatable.")
    ] = None,
    assets: options.AssetsFile = None,
    labels: options.LabelsFile = None,
) -> None:
    """Write an HTML page to explore a file or an archive.

    The page shows how complete the data is, and needs no network.
    """
    check_output(output, inputs=[file, assets, labels], suffixes=(".html", ".htm"))
    names: dict[str, Any] = {"assets": assets, "labels": labels}
    selection = options.Selection(file=file, since=since, until=until, partial=True, **names)
    source, how = selection.open(), {**selection.bounds, **names}
    if party_id:
        chosen = options.select(source, party_ids=party_id)
        how["accounts"] = ba.summarize_accounts(chosen, columns=["rows"])[ba.ACCOUNT_KEY]
    ba.write_report(source, output, largest=largest, **how)
    say(f"Wrote {output}")
