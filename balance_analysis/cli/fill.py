"""Commands that fill an archive: from a node, which also mends it, or from segments."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

import balance_analysis as ba
from balance_analysis.cli import options
from balance_analysis.cli.app import ARCHIVE, command
from balance_analysis.cli.archive import confirm_by, too_old
from balance_analysis.cli.output import (
    BAD,
    LOCKED,
    PARTIAL,
    Messages,
    echo,
    logger,
    print_spans,
)
from balance_analysis.cli.settings import ConfigFile, ExportCommand, ExportOptions
from balance_analysis.errors import RequestError
from balance_analysis.files.atomic import check_output
from balance_analysis.spans import Span, joined
from balance_analysis.text import count_text, range_text, spans_text

if TYPE_CHECKING:
    from balance_analysis.archive.runs import Run
    from balance_analysis.evidence import Evidence
    from balance_analysis.segments.segment import Stretch


@command(panel=ARCHIVE, kind=ExportCommand)
def export(
    messages: Messages,
    context: typer.Context,
    given: ExportOptions,
    targets: Annotated[
        list[str] | None,
        Argument(
            metavar="URL... ARCHIVE",
            help="Addresses of a node, then the archive; or with --config a NAME.",
        ),
    ] = None,
    config: ConfigFile = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print the intervals to request; write nothing.")
    ] = False,
    repair: Annotated[bool, Option("--repair", help="Mend what `verify` finds.")] = False,
) -> int:
    """Bring an archive up to date with a node; the first run creates it.

    It exits with 3 if the node no longer remembers all of the interval: the rest is unproven. Also
    if --confirm could confirm nothing.
    """
    messages.is_json = given.log_format == "json"
    urls, folder = given.url or [], given.archive or ""
    if targets and config is None:
        _check_targets(targets)
        *urls, folder = targets
    if not urls or not folder:
        name, example = ("archive", "a folder") if urls else ("url", "https://node.example.org")
        raise ValueError(f"the setting {name} is missing: {example}; see `export --help`")
    if dry_run and repair:
        line = options.command_line("verify", folder)
        raise ValueError(f"--repair has no --dry-run; `{line}` shows what it would mend")
    if given.metrics_file is not None and not dry_run:
        check_output(given.metrics_file, inputs=[config, folder.removeprefix("file://")])
    if repair:
        # A schedule's interval isn't to be asked for again whenever a file is mended.
        since, until = (_typed(context, name) for name in ("since", "until"))
        given = replace(given, since=since, until=until)
    second = urls[-1] if given.confirm else None
    run = Export(given, urls[0], ba.Archive(folder), messages, second)
    if not dry_run:
        messages.on_failure = run.failed
    with given.client(urls[0] if second else urls) as client:
        return run.plan(client) if dry_run else run.repair(client) if repair else run.load(client)


def _typed(context: Any, name: str) -> str | None:  # noqa: ANN401 - typer's own
    """Return what the command line itself says of an option."""
    source = context.get_parameter_source(name)
    value: str | None = context.params[name]
    return value if source and source.name == "COMMANDLINE" else None


class Export:
    """One run of `export`, and what it says; each way to run returns an exit code."""

    def __init__(
        self,
        settings: ExportOptions,
        url: str,
        archive: ba.Archive,
        messages: Messages,
        second: str | None,
    ) -> None:
        self._settings, self._messages = settings, messages
        self._url, self._archive, self._second = url, archive, second
        self._report: Run | None = None

    def plan(self, client: ba.Client) -> int:
        """Print what would be asked for."""
        print_spans(self._export(client, dry_run=True).spans, none="Nothing to ask for")
        return 0

    def load(self, client: ba.Client) -> int:
        """Bring the archive up to date."""
        run = self._export(client)
        manifest = self._archive.snapshot().manifest
        lacking = _lacking(run, manifest.evidence, fill_gaps=self._settings.fill_gaps)
        nothing = "Nothing new" if manifest.files else "No row matches"
        is_bad = self._say(count_text(run.rows, "new row") if run.rows else nothing)
        confirmed = self._confirm()
        wrong = [f"{self._second} confirms nothing"] if confirmed == PARTIAL else []
        if lacking:
            wrong.append(f"{self._archive.uri} is not complete for {spans_text(lacking)}")
        elif run.lagging:
            wrong.append(f"no node reaches the end of {self._archive.uri}")
        return self._finish(wrong, is_bad=is_bad or confirmed == BAD)

    def _finish(self, wrong: list[str], *, is_bad: bool) -> int:
        """Say what is wrong, also with where the archive ends now; return the exit code."""
        if (max_age := self._settings.max_age) is not None:
            wrong += too_old(self._archive.status(count_accounts=False), max_age)
        code, said = BAD if is_bad else PARTIAL if wrong else 0, "; ".join(wrong)
        self._write_metrics(code)
        if said:
            self._messages.fail(said, code)
        return code

    def _confirm(self) -> int:
        """Confirm what isn't yet by the second node, if one is to; return the exit code.

        That is what came now, and what came before and couldn't be confirmed then.
        """
        held = self._archive.status(count_accounts=False)
        if self._second is None or not held.complete:
            return 0
        done = held.confirmed[-1][1] if held.confirmed else held.complete[0][0]
        came = [] if self._report is None else self._report.committed[:1]
        start = min([done, *(first for first, _ in came)])
        if start >= held.complete[-1][1]:
            return 0
        return confirm_by(self._messages, self._archive, self._second, start=start)

    def repair(self, client: ba.Client) -> int:
        """Mend the archive."""
        from balance_analysis.archive.manifest import export_command

        done = ba.repair(client, self._archive, **self._how())
        if done.is_rebuilt:
            logger.warning(
                "the manifest was damaged: it was made again from the files, and nothing is "
                "proven; `%s` asks the node again and proves what it remembers",
                export_command(self._archive.store, "--fill-gaps", url=self._url),
            )
        count = count_text(len(done.periods), "period")
        said = f"{count} asked for again, {len(done.changed)} with other rows"
        self._say(said if done.periods else "Nothing to repair.")
        if not done.left.is_whole:
            echo(str(done.left))
        return self._finish([], is_bad=bool(done.bad_rows or not done.left.is_whole))

    def failed(self, error: BaseException, code: int) -> int:
        """Measure a run that failed; a source that fails midway leaves a part."""
        report = self._report
        is_partial = report is not None and report.outcome == "partial"
        if is_partial and isinstance(error, RequestError):
            code = PARTIAL
        # The figures are those of the run that holds the lock.
        if code != LOCKED:
            try:
                self._write_metrics(code)
            except OSError as other:
                logger.warning("the metrics can't be written: %s", other)
        if report is not None and is_partial:
            self._say(f"What was complete is committed: {count_text(report.rows, 'new row')}")
        elif report is not None:
            self._messages.content = {"event": "summary", **asdict(report)}
        if isinstance(error, KeyboardInterrupt) and not is_partial:
            self._messages.say(f"Nothing new is kept in {self._archive.uri}")
        return code

    def _export(self, client: ba.Client, **how: Any) -> ba.Run:  # noqa: ANN401 - as of `export`
        given = self._settings
        return ba.export(
            client,
            self._archive,
            lag=given.lag,
            overlap=given.overlap,
            fill_gaps=given.fill_gaps,
            progress=self._messages.shows_progress,
            **given.named(),
            **given.how(),
            **self._how(),
            **how,
        )

    def _how(self) -> dict[str, Any]:
        """Return the arguments that `export` and `repair` have in common."""
        bounds = options.interval(self._settings.since, self._settings.until)
        return {**bounds, **self._settings.sizes(), "on_report": self._keep}

    def _keep(self, report: Run) -> None:
        self._report = report

    def _write_metrics(self, code: int) -> None:
        if (path := self._settings.metrics_file) is not None:
            from balance_analysis.fill.export import write_metrics

            write_metrics(path, self._archive.store, report=self._report, exit_code=code)

    def _say(self, what: str) -> bool:
        """Say what is wrong, and how the run ended in one line; return whether anything is."""
        report = self._report
        if report is None:
            return False
        is_bad = warn_of(report, self._archive, url=self._url)
        known = report.committed
        asked = f" from {range_text(known[0][0], known[-1][1])}" if known else ""
        cost = f"{count_text(report.requests, 'request')}, {report.seconds:.1f} s"
        line = f"{what}{asked} in {cost}: {self._archive.uri}"
        self._messages.say(line, event="summary", **asdict(report))
        return is_bad


def _lacking(run: ba.Run, evidence: Evidence, *, fill_gaps: bool) -> list[Span]:
    """Return what was asked for and isn't complete now; with `fill_gaps` the whole archive was."""
    from balance_analysis.schema import to_microseconds

    spans = [(to_microseconds(start), to_microseconds(end)) for start, end in run.spans]
    if fill_gaps:
        spans.append(evidence.bounds)
    return joined(gap for span in spans for gap in evidence.incomplete(*span))


@command(panel=ARCHIVE)
def import_(
    messages: Messages,
    archive: options.ArchiveAt,
    segments: Annotated[
        list[str], Argument(metavar="SEGMENT...", help="Zip files, folders of them, or patterns.")
    ],
    accounts: options.AccountOptions,
    filling: options.FillOptions,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show what they hold and what is new; write nothing.")
    ] = False,
) -> int:
    """Import network history segments into an archive; the first run creates it."""
    from balance_analysis.segments.segment import find_stretches, missing_blocks

    _check_order(archive, segments)
    stretches, held = find_stretches(segments), ba.Archive(archive)
    run = ba.import_segments(
        held,
        segments,
        progress=messages.shows_progress,
        dry_run=dry_run,
        **accounts.named(),
        **filling.how(),
    )
    if dry_run:
        _print_segments(stretches)
        print_spans(run.spans, none="Nothing to import: the archive has all of it")
        return 0
    is_bad = warn_of(run, held)
    what = count_text(run.rows, "new row") if run.rows else "Nothing new"
    where = f" of {spans_text(run.committed)}" if run.committed else ""
    messages.say(f"{what}{where} from segments of {stretches[0].segments[0].chain}: {archive}")
    return BAD if is_bad else PARTIAL if missing_blocks(stretches) else 0


def _print_segments(stretches: list[Stretch]) -> None:
    """Print which blocks segments hold, and which are missing between them."""
    from balance_analysis.segments.rows import span_of
    from balance_analysis.segments.segment import heights_text, missing_blocks

    count = count_text(sum(len(stretch.segments) for stretch in stretches), "segment")
    echo(f"chain    {stretches[0].segments[0].chain}, {count}")
    for stretch in stretches:
        times = range_text(*span_of(stretch.segments))
        echo(f"blocks   {stretch.first:,} to {stretch.last:,}, {times}")
    echo(f"missing  {heights_text(missing_blocks(stretches)) or 'none in between'}")
    is_known = stretches[0].is_from_first
    echo(f"before   {'nothing: they begin with the first block' if is_known else 'unknown'}")


def warn_of(report: Run, archive: ba.Archive, *, url: str | None = None) -> bool:
    """Say what is wrong with a run's rows, or with the archive; return whether anything is."""
    from balance_analysis.archive.manifest import export_command

    if report.conflicts:
        logger.warning(
            "%s: the node sent other balances than the archive held, or no longer sent them; the "
            "archive has the new ones now, and _runs/%s.json the old ones",
            count_text(report.conflicts, "conflict"),
            report.id,
        )
    if report.damaged:
        logger.warning(
            "%s damaged or gone, such as %s: `%s` shows what is wrong, `%s` mends it",
            count_text(len(report.damaged), "file"),
            report.damaged[0],
            options.command_line("verify", archive.uri),
            export_command(archive.store, "--repair", url=url),
        )
    if report.bad_rows:
        said = count_text(report.bad_rows, "bad row")
        logger.warning("%s set aside, with reasons, in _quarantine/%s.jsonl", said, report.id)
    return bool(report.conflicts or report.damaged or report.bad_rows)


def _check_targets(targets: list[str]) -> None:
    """Raise if these are plainly not addresses of nodes and then an archive."""
    urls = [each for each in targets if options.kind_of(each) == "node"]
    others = [each for each in targets if each not in urls]
    if len(targets) == 1 and options.kind_of(targets[0]) == "archive":
        from balance_analysis.archive.manifest import export_command

        line = export_command(ba.Archive(targets[0]).store)
        raise ValueError(f"name a node's address before the archive: `{line}`")
    if urls and targets[-1] in urls and len(others) <= 1:
        line = options.command_line("export", *urls, *(others or ["archive"]))
        raise ValueError(f"the archive comes last: `{line}`")
    if len(targets) == 1:
        raise ValueError("give URL... ARCHIVE, or --config FILE NAME")
    for each in targets[:-1]:
        options.check_is("node", each)
    if targets:
        options.check_is("archive", targets[-1])


def _check_order(archive: str, segments: list[str]) -> None:
    """Raise if the archive's place is taken by segments."""
    from balance_analysis.segments.segment import are_segments

    if options.kind_of(archive) != "archive" and are_segments(archive):
        line = options.command_line("import", segments[-1], archive, *segments[:-1])
        raise ValueError(f"the archive comes first: `{line}`")
