"""The command that brings network history segments into an archive."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Argument, Option

import balance_analysis as ba
from balance_analysis import defaults
from balance_analysis.cli import options
from balance_analysis.cli.app import ARCHIVE, command
from balance_analysis.cli.archive import connected
from balance_analysis.cli.export import warn_of_bad_rows, warn_of_conflicts, warn_of_damage
from balance_analysis.cli.output import BAD, PARTIAL, Messages, echo, print_spans
from balance_analysis.text import count_text, spans_text


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
    report, held = ba.diagnose_segments(segments), ba.Archive(archive)
    with connected(scheduler) as cluster:
        run = ba.import_segments(
            held,
            segments,
            partition=partition,
            on_bad_rows=on_bad_rows,
            progress=messages.shows_progress,
            dry_run=dry_run,
            executor=cluster,
            **accounts.named(),
        )
    if dry_run:
        echo(str(report))
        if run.spans:
            print_spans(run.spans)
        else:
            echo("Nothing to import: the archive has all of it")
        return
    warn_of_conflicts(run)
    warn_of_damage(run, held)
    warn_of_bad_rows(len(run.bad_rows), run.id)
    what = count_text(run.rows, "new row") if run.rows else "Nothing new"
    where = f" of {spans_text(run.committed)}" if run.committed else ""
    messages.say(f"{what}{where} from segments of {report.chain}: {archive}")
    if run.conflicts or run.bad_rows or run.damaged:
        raise typer.Exit(BAD)
    if report.missing:
        raise typer.Exit(PARTIAL)


def _check_order(archive: str, segments: list[str]) -> None:
    """Raise if the archive's place is taken by segments."""
    from balance_analysis.segments.segment import are_segments

    if options.kind_of(archive) != "archive" and are_segments(archive):
        told = options.command_line("import", segments[-1], archive, *segments[:-1])
        raise ValueError(f"the archive comes first: `{told}`")
