"""The command that brings network history segments into an archive."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from typer import Argument, Option

import balance_analysis as ba
from balance_analysis.cli.app import ARCHIVE, command
from balance_analysis.cli.archive import connected
from balance_analysis.cli.options import AccountOptions, Scheduler, archive_argument
from balance_analysis.cli.output import BAD, PARTIAL, Messages, echo, logger, print_table
from balance_analysis.text import count_text, moment_text, spans_text


@command(panel=ARCHIVE, interrupted=PARTIAL)
def import_(
    messages: Messages,
    archive: Annotated[str, archive_argument()],
    segments: Annotated[
        list[str], Argument(metavar="SEGMENT...", help="Zips, folders of such, or patterns.")
    ],
    accounts: AccountOptions,
    partition: Annotated[
        Literal["day", "month", "hour"] | None,
        Option(help="What a file holds, chosen by an archive's first run. [day]"),
    ] = None,
    on_bad_rows: Annotated[
        Literal["quarantine", "raise"], Option(help="What becomes of them.")
    ] = "quarantine",
    scheduler: Scheduler = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Tell what is there and what is new; write nothing.")
    ] = False,
) -> None:
    """Bring network history segments into an archive; the first run makes it."""
    report = ba.diagnose_segments(segments)
    with connected(scheduler) as cluster:
        run = ba.import_segments(
            ba.Archive(archive),
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
        _print_plan(run)
        return
    if run.conflicts:
        logger.warning(
            "%s: the segments have other balances than the archive held, or left rows out; it "
            "holds the newer ones; what it held is in _runs/%s.json",
            count_text(sum(rows.num_rows for rows in run.conflicts), "conflict"),
            run.id,
        )
    if run.bad_rows:
        said = count_text(len(run.bad_rows), "bad row")
        logger.warning("%s set aside, with reasons, in _quarantine/%s.jsonl", said, run.id)
    what = count_text(run.rows, "new row") if run.rows else "Nothing new"
    where = f" of {spans_text(run.committed)}" if run.committed else ""
    messages.say(f"{what}{where} from segments of {report.chain}: {archive}")
    if run.conflicts or run.bad_rows or run.damaged:
        raise typer.Exit(BAD)
    if report.missing:
        raise typer.Exit(PARTIAL)


def _print_plan(run: ba.Run) -> None:
    if not run.spans:
        echo("Nothing to import: the archive has all of it")
        return
    columns = zip(*(map(moment_text, span) for span in run.spans), strict=True)
    print_table(dict(zip(("start", "end"), map(list, columns), strict=True)), left=("start", "end"))
