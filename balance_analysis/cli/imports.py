"""The command that brings network history segments into an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

import balance_analysis as ba
from balance_analysis import defaults
from balance_analysis.cli import options
from balance_analysis.cli.app import ARCHIVE, command
from balance_analysis.cli.archive import connected
from balance_analysis.cli.export import warn_of
from balance_analysis.cli.output import BAD, PARTIAL, Messages, echo, print_spans
from balance_analysis.text import count_text, spans_text

if TYPE_CHECKING:
    from balance_analysis.archive.runs import RunReport


@command(panel=ARCHIVE)
def import_(
    messages: Messages,
    archive: options.ArchiveAt,
    segments: Annotated[
        list[str], Argument(metavar="SEGMENT...", help="Zips, folders of such, or patterns.")
    ],
    accounts: options.AccountOptions,
    partition: options.PartitionIfAny = None,
    on_bad_rows: options.BadRows = defaults.ON_BAD_ROWS,
    scheduler: options.Scheduler = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Tell what is there and what is new; write nothing.")
    ] = False,
) -> None:
    """Bring network history segments into an archive; the first run makes it."""
    _check_order(archive, segments)
    found, held = ba.diagnose_segments(segments), ba.Archive(archive)
    reports: list[RunReport] = []
    with connected(scheduler) as cluster:
        run = ba.import_segments(
            held,
            segments,
            partition=partition,
            on_bad_rows=on_bad_rows,
            progress=messages.shows_progress,
            dry_run=dry_run,
            on_report=reports.append,
            executor=cluster,
            **accounts.named(),
        )
    if dry_run:
        echo(str(found))
        if run.spans:
            print_spans(run.spans)
        else:
            echo("Nothing to import: the archive has all of it")
        return
    is_bad = warn_of(reports[-1], held)
    what = count_text(run.rows, "new row") if run.rows else "Nothing new"
    where = f" of {spans_text(run.committed)}" if run.committed else ""
    messages.say(f"{what}{where} from segments of {found.chain}: {archive}")
    if is_bad or found.missing:
        raise typer.Exit(BAD if is_bad else PARTIAL)


def _check_order(archive: str, segments: list[str]) -> None:
    """Raise if the archive's place is taken by segments."""
    from balance_analysis.segments.segment import are_segments

    if options.kind_of(archive) != "archive" and are_segments(archive):
        told = options.command_line("import", segments[-1], archive, *segments[:-1])
        raise ValueError(f"the archive comes first: `{told}`")
