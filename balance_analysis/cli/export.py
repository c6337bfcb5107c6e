"""One run of `export`: what it asks the library for, and how it tells what came of it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from balance_analysis.cli.dask import connected
from balance_analysis.cli.output import BAD, LOCKED, PARTIAL, Telling, logger
from balance_analysis.cli.terminal import aligned, echo
from balance_analysis.cli.times import interval
from balance_analysis.errors import ArchiveError, RequestError
from balance_analysis.text import count_text, iso_text

if TYPE_CHECKING:
    from pathlib import Path

    from distributed import Client as Cluster

    from balance_analysis.archive.archive import Archive
    from balance_analysis.archive.runs import Run, RunReport
    from balance_analysis.node.client import Client


class Export:
    """One run of `export`.

    Parameters
    ----------
    settings
        What holds for it.
    telling
        How it tells.
    """

    def __init__(self, settings: dict[str, Any], telling: Telling) -> None:
        from balance_analysis.archive.archive import Archive

        self._settings, self._telling = settings, telling
        self._metrics: Path | None = settings["metrics_file"]
        self._archive = Archive(settings["archive"])
        self._report: RunReport | None = None

    def run(self, *, dry_run: bool, repair: bool) -> None:
        """Do it, and end the command unless all is well."""
        if dry_run:
            with self._client() as client:
                self._print_plan(self._ask(client, dry_run=True))
            return
        self._telling.on_failure = self._failed
        with self._client() as client:
            if repair:
                self._repair(client)
                return
            with connected(self._settings["scheduler"]) as cluster:
                run = self._ask(client, dry_run=False, cluster=cluster)
        code = BAD if run.conflicts or run.bad_rows or run.damaged else 0
        self._measure(code)
        self._tell(run)
        if code:
            raise typer.Exit(code)

    def _client(self) -> Client:
        from balance_analysis.node.client import Client

        rate = self._settings["max_requests_per_second"]
        return Client(self._settings["url"], max_requests_per_second=rate)

    def _ask(self, client: Client, *, dry_run: bool, cluster: Cluster | None = None) -> Run:
        from balance_analysis.ingest.export import export as fill

        settings = self._settings
        start, end = interval(settings["since"], settings["until"])
        return fill(
            client,
            self._archive,
            start=start,
            end=end,
            asset_id=settings["asset_id"],
            party_ids=settings["party_id"] or (),
            market_ids=settings["market_id"] or (),
            account_types=settings["account_type"] or (),
            partition=settings["partition"] or _partition(self._archive),
            lag=settings["lag"],
            overlap=settings["overlap"],
            settle=settings["settle"],
            fill_gaps=settings["fill_gaps"],
            page_size=settings["page_size"],
            workers=settings["workers"],
            on_bad_rows=settings["on_bad_rows"],
            progress=self._shows_progress(),
            dry_run=dry_run,
            on_report=self._keep,
            executor=cluster,
        )

    def _repair(self, client: Client) -> None:
        from balance_analysis.ingest.repair import repair

        settings = self._settings
        start, end = interval(settings["since"], settings["until"])
        done = repair(
            client,
            self._archive,
            start=start,
            end=end,
            page_size=settings["page_size"],
            workers=settings["workers"],
            on_report=self._keep,
        )
        code = 0 if done.left.is_whole and not done.bad_rows else BAD
        self._measure(code)
        report = self._report
        if done.bad_rows and report is not None:
            self._warn_of_bad_rows(report)
        if done.is_rebuilt:
            logger.warning(
                "the coverage was lost and is made anew from the files, all of it unproven; "
                "`export --fill-gaps` asks a node for all that it remembers, and proves that"
            )
        self._telling.say(
            f"Asked again for {count_text(len(done.periods), 'period')}: "
            f"{count_text(len(done.rewritten), 'file')} written anew, {len(done.changed)} with "
            f"other rows: {self._archive.uri}",
            event="repair",
            periods=done.periods,
            rewritten=done.rewritten,
            changed=done.changed,
            is_rebuilt=done.is_rebuilt,
        )
        if not done.left.is_whole:
            echo(str(done.left))
        if code:
            raise typer.Exit(code)

    def _shows_progress(self) -> bool:
        telling = self._telling
        return sys.stderr.isatty() and not telling.quiet and not telling.is_json

    def _keep(self, report: RunReport) -> None:
        self._report = report

    def _failed(self, error: BaseException, code: int) -> int:
        """Measure a run that failed; a source that fails midway leaves a part."""
        report = self._report
        is_partial = report is not None and report.outcome == "partial"
        if is_partial and isinstance(error, RequestError):
            code = PARTIAL
        # The figures are those of the run that holds the lock.
        if code != LOCKED:
            try:
                self._measure(code)
            except OSError as other:
                logger.warning("the metrics can't be written: %s", other)
        if report is not None and is_partial:
            new = count_text(report.rows, "new row")
            self._say(report, f"What was complete is committed: {new}")
        elif report is not None:
            self._telling.content = {"event": "summary", **asdict(report)}
        if isinstance(error, KeyboardInterrupt) and not is_partial:
            self._telling.say(f"Nothing new is kept: {self._archive.uri} is as it was")
        return code

    def _measure(self, code: int) -> None:
        if self._metrics is None:
            return
        from balance_analysis.archive.manifest import read_coverage
        from balance_analysis.ingest.metrics import write_metrics

        try:
            state = read_coverage(self._archive.store)
        except (ArchiveError, OSError):
            state = None
        write_metrics(
            self._metrics,
            store=self._archive.store,
            state=state,
            report=self._report,
            exit_code=code,
        )

    def _tell(self, run: Run) -> None:
        report = self._report
        if report is None:
            return
        if run.conflicts:
            logger.warning(
                "%s: the node sent other balances than the archive held, or left rows out; the "
                "archive holds the newer ones; what it held is in _runs/%s.json",
                count_text(report.conflicts, "conflict"),
                run.id,
            )
        if run.bad_rows:
            self._warn_of_bad_rows(report)
        if run.damaged:
            logger.warning(
                "%s gone, or not as written, such as %s: `verify` tells more, `export --repair` "
                "mends it",
                count_text(len(run.damaged), "file"),
                run.damaged[0],
            )
        new = count_text(report.rows, "new row") if report.rows else "nothing new"
        self._say(report, f"{new[0].upper()}{new[1:]}")

    def _warn_of_bad_rows(self, report: RunReport) -> None:
        logger.warning(
            "%s set aside, with reasons, in _quarantine/%s.jsonl",
            count_text(report.bad_rows, "bad row"),
            report.id,
        )

    def _say(self, report: RunReport, what: str) -> None:
        """Say one line of summary."""
        known = report.committed
        asked = f" from {known[0][0]} to {known[-1][1]}" if known else ""
        self._telling.say(
            f"{what}{asked} in {count_text(report.requests, 'request')}, {report.seconds:.1f} s: "
            f"{self._archive.uri}",
            event="summary",
            **asdict(report),
        )

    def _print_plan(self, run: Run) -> None:
        from balance_analysis.archive.layout import periods_between

        partition = self._settings["partition"] or _partition(self._archive)
        if not run.spans:
            echo("Nothing to ask for")
            return
        columns = {
            "start": [iso_text(start) for start, _ in run.spans],
            "end": [iso_text(end) for _, end in run.spans],
            f"{partition}s": [
                f"{sum(1 for _ in periods_between(*span, partition)):,}" for span in run.spans
            ],
        }
        for line in aligned(columns, left={"start", "end"}):
            echo(line)


def _partition(archive: Archive) -> Any:  # noqa: ANN401 - a Partition
    """Return what an archive is bound to; of a new one a day."""
    from balance_analysis.archive import layout
    from balance_analysis.archive.manifest import read_about

    is_new = archive.store.read(layout.ABOUT) is None
    return "day" if is_new else read_about(archive.store).partition
