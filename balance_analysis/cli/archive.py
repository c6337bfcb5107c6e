"""Commands that fill, check and serve an archive."""

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer import Argument

import balance_analysis as ba
from balance_analysis.cli import options
from balance_analysis.cli import output as out
from balance_analysis.cli.app import ARCHIVE, command
from balance_analysis.cli.options import Option
from balance_analysis.cli.output import BAD, INCOMPLETE, echo, fail, logger, print_record, say
from balance_analysis.errors import IncompleteError, RequestError
from balance_analysis.files.atomic import check_output
from balance_analysis.fill import LAG, OVERLAP
from balance_analysis.service import HOST
from balance_analysis.table.moments import joined, moment_text, range_text, to_spans
from balance_analysis.table.text import count_text, spans_text

if TYPE_CHECKING:
    from balance_analysis.segments.segment import Stretch


_COMPARABLE: Final = "An archive, a file that `fetch` wrote, a node's address, or segments."
_REPAIR: Final = "Repair what `verify` finds; with --since or --until, load that time again too."


@command(panel=ARCHIVE)
def export(
    context: typer.Context,
    archive: options.ArchiveAt,
    url: options.Urls,
    accounts: options.AccountOptions,
    requests: options.RequestOptions,
    filling: options.FillOptions,
    since: Annotated[
        options.Text,
        Option(help="Start, unless the archive reaches further back; by default the oldest row."),
    ] = None,
    until: Annotated[options.Text, Option(help="End, exclusive; by default --lag ago.")] = None,
    lag: Annotated[str, options.duration_option("How long before now to stop.")] = LAG,
    overlap: Annotated[
        str, options.duration_option("How much of the archive's end to request again.")
    ] = OVERLAP,
    fill_gaps: Annotated[bool, Option(help="Request missing and unproven stretches too.")] = False,
    metrics_file: Annotated[
        Path | None, Option(metavar="FILE", help="Write metrics for Prometheus to this file.")
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print the intervals to request; write nothing.")
    ] = False,
    repair: Annotated[bool, Option("--repair", help=_REPAIR)] = False,
) -> int:
    """Bring an archive up to date with a node; the first run creates it.

    Exits with 3 if the node no longer has all of the interval: the rest is then unproven.
    """
    opened = options.archive_at(archive)
    if dry_run and repair:
        line = options.command_line("verify", archive)
        raise ValueError(f"--repair has no --dry-run; `{line}` shows what it would repair")
    if metrics_file is not None and not dry_run:
        check_output(metrics_file, inputs=[archive.removeprefix("file://")])
    if repair:
        # A scheduled interval, set by the environment, shouldn't be requested for every repair.
        origins = (str(context.get_parameter_source(name)) for name in ("since", "until"))
        typed = ["COMMANDLINE" in origin for origin in origins]
        since, until = since if typed[0] else None, until if typed[1] else None
    common: dict[str, Any] = {"start": since, "end": until, **requests.sizes()}
    fills = {"lag": lag, "overlap": overlap, "fill_gaps": fill_gaps, **asdict(filling)}
    fills |= {**accounts.given(), "progress": out.shows_progress()}
    with requests.client(url) as client:
        if dry_run:
            planned = ba.export(client, opened, dry_run=True, **common, **fills)
            out.print_spans(planned.spans, none="Nothing to request")
            return 0
        report = _Report(opened, url[0], metrics_file)
        common["on_report"] = report.runs.append
        with report.measuring_failures():
            if repair:
                return report.end_repair(ba.repair(client, opened, **common))
            run = ba.export(client, opened, **common, **fills)
            return report.end_load(run, fill_gaps=fill_gaps)


@dataclass
class _Report:
    """The messages at the end of an `export`, and its metrics."""

    archive: "ba.Archive"
    url: str
    metrics_file: Path | None
    runs: "list[ba.Run]" = field(default_factory=list)

    def end_load(self, run: "ba.Run", *, fill_gaps: bool) -> int:
        """Say how many rows are new and which stretches are incomplete; return the exit code."""
        manifest, uri = self.archive.snapshot().manifest, self.archive.uri
        evidence = manifest.evidence
        spans = [*to_spans(run.spans), *[evidence.bounds] * fill_gaps]
        gaps = joined(gap for span in spans for gap in evidence.incomplete(*span))
        nothing = "Nothing new" if manifest.files else "No row matches"
        is_bad = self._say(count_text(run.rows, "new row") if run.rows else nothing)
        wrong = ""
        if gaps:
            wrong = f"{uri} is not complete for {spans_text(gaps)}"
        elif run.lagging:
            wrong = f"no node reaches the end of {uri}"
        elif not evidence.answers:
            wrong = f"{uri} covers nothing yet; set its start with `--since`"
        return self._end(BAD if is_bad else INCOMPLETE if wrong else 0, wrong)

    def end_repair(self, done: Any) -> int:  # noqa: ANN401 - of `repair`
        """Say what was repaired and what is still wrong; return the exit code."""
        from balance_analysis.archive.manifest import export_command

        if done.is_rebuilt:
            logger.warning(
                "the manifest was lost or damaged and has been rebuilt from the files: nothing is "
                "proven; `%s` asks the node again and proves what it still has",
                export_command(self.archive.store, "--fill-gaps", url=self.url),
            )
        count = count_text(len(done.periods), "period")
        result = f"{count} requested again, {len(done.changed)} with different rows"
        self._say(result if done.periods else "No rows to repair")
        if not done.left.is_whole:
            echo(str(done.left))
        is_bad = done.bad_rows or not done.left.is_whole
        return self._end(BAD if is_bad else INCOMPLETE if done.is_rebuilt else 0)

    @contextlib.contextmanager
    def measuring_failures(self) -> Iterator[None]:
        """Write the metrics of a run that fails in the block, and say what it committed.

        Raises
        ------
        IncompleteError
            Instead of a RequestError that follows a committed part.
        """
        try:
            yield
        except typer.Exit:
            raise
        except BaseException as error:
            is_partial = bool(self.runs) and self.runs[-1].outcome == "partial"
            is_cut_off = is_partial and isinstance(error, RequestError)
            code = INCOMPLETE if is_cut_off else out.exit_code(error)
            # The metrics belong to the run that holds the lock.
            if code != out.LOCKED:
                try:
                    self._measure(code)
                except OSError as other:
                    logger.warning("the metrics can't be written: %s", other)
            if is_partial:
                new = count_text(self.runs[-1].rows, "new row")
                self._say(f"Complete parts are committed: {new}")
            elif isinstance(error, KeyboardInterrupt):
                say(f"Nothing new is committed to {self.archive.uri}")
            if is_cut_off:
                raise IncompleteError(out.message_of(error)) from error
            raise

    def _end(self, code: int, wrong: str = "") -> int:
        self._measure(code)
        if wrong:
            fail(wrong, code)
        return code

    def _measure(self, code: int) -> None:
        from balance_analysis.fill.export import write_metrics

        if self.metrics_file is not None:
            run = self.runs[-1] if self.runs else None
            write_metrics(self.metrics_file, self.archive.store, report=run, exit_code=code)

    def _say(self, result: str) -> bool:
        """Warn of problems, and print the result in one line; return whether there are problems."""
        run = self.runs[-1]
        is_bad, known = warn_of(run, self.archive, url=self.url), run.committed
        times = f" from {range_text(known[0][0], known[-1][1])}" if known else ""
        cost = f"{count_text(run.requests, 'request')}, {run.seconds:.1f} s"
        say(f"{result}{times} in {cost}: {self.archive.uri}")
        return is_bad


@command(panel=ARCHIVE)
def import_(
    archive: options.ArchiveAt,
    segments: Annotated[
        list[str], Argument(metavar="SEGMENT...", help="Zip files, folders of them, or patterns.")
    ],
    accounts: options.AccountOptions,
    filling: options.FillOptions,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print the segments' blocks and what is new; write nothing.")
    ] = False,
) -> int:
    """Import network history segments into an archive; the first run creates it."""
    from balance_analysis.segments.segment import are_segments, find_stretches, missing_blocks

    if options.kind_of(archive) != "archive" and are_segments(archive):
        line = options.command_line("import", segments[-1], archive, *segments[:-1])
        raise ValueError(f"the archive comes first: `{line}`")
    stretches, opened = find_stretches(segments), ba.Archive(archive)
    run = ba.import_segments(
        opened,
        segments,
        progress=out.shows_progress(),
        dry_run=dry_run,
        **accounts.given(),
        **asdict(filling),
    )
    if dry_run:
        _print_segments(stretches)
        out.print_spans(run.spans, none="Nothing to import: the archive has all of it")
        return 0
    is_bad = warn_of(run, opened)
    what = count_text(run.rows, "new row") if run.rows else "Nothing new"
    where = f" of {spans_text(run.committed)}" if run.committed else ""
    say(f"{what}{where} from segments of {stretches[0].segments[0].chain}: {archive}")
    return BAD if is_bad else INCOMPLETE if missing_blocks(stretches) else 0


def _print_segments(stretches: "list[Stretch]") -> None:
    """Print the blocks of segments, and those missing between them."""
    from balance_analysis.segments.rows import span_of
    from balance_analysis.segments.segment import heights_text, missing_blocks

    count = count_text(sum(len(stretch.segments) for stretch in stretches), "segment")
    echo(f"chain    {stretches[0].segments[0].chain}, {count}")
    for stretch in stretches:
        times = range_text(*span_of(stretch.segments))
        echo(f"blocks   {stretch.first:,} to {stretch.last:,}, {times}")
    echo(f"missing  {heights_text(missing_blocks(stretches)) or 'none'}")
    is_known = stretches[0].is_from_first
    echo(f"before   {'nothing: the segments have the first block' if is_known else 'unknown'}")


def warn_of(run: "ba.Run", archive: "ba.Archive", *, url: str | None = None) -> bool:
    """Warn of problems with a run's rows or the archive; return whether there are any."""
    from balance_analysis.archive import layout
    from balance_analysis.archive.manifest import export_command

    if run.conflicts:
        logger.warning(
            "%s: the source sent another balance than the archive had, or no row; the archive has "
            "the new balances, and keeps rows that were not sent. Look at the first conflicts in "
            "_runs/%s.json; the old files are in _quarantine/",
            count_text(run.conflicts, "conflict"),
            run.id,
        )
    if run.damaged:
        damaged, line = run.damaged, options.command_line("verify", archive.uri)
        files = count_text(len(damaged), "file")
        message = f"{files} damaged or missing, such as {damaged[0]}: `{line}` shows the damage"
        if {*damaged} != {layout.LIMITS}:
            message += f", `{export_command(archive.store, '--repair', url=url)}` repairs it"
        logger.warning("%s", message)
    if run.bad_rows:
        count = count_text(run.bad_rows, "bad row")
        logger.warning("%s set aside, with reasons, in _quarantine/%s.jsonl", count, run.id)
    return bool(run.conflicts or run.damaged or run.bad_rows)


@command(panel=ARCHIVE)
def status(
    archive: options.ArchiveAt,
    max_age: Annotated[
        options.Text, options.duration_option("Exit with 3 if the newest complete moment is older.")
    ] = None,
    fail_on_gaps: Annotated[
        bool, Option("--fail-on-gaps", help="Exit with 3 if any part is missing or unproven.")
    ] = False,
    since: Annotated[options.Text, Option(help="Exit with 3 if a gap lies after this.")] = None,
    until: Annotated[options.Text, Option(help="Exit with 3 if a gap lies before this.")] = None,
    form: options.PrintFormat = "table",
) -> None:
    """Show an archive's contents and gaps; exit with 5 if files are missing or truncated.

    With -q, only problems are printed.
    """
    from balance_analysis.archive.snapshot import interval_of

    opened = options.archive_at(archive)
    report = opened.status()
    if not out.is_quiet():
        print_record(report, form)
    if report.lost:
        lost, line = count_text(len(report.lost), "file"), options.command_line("verify", archive)
        fail(f"{lost} damaged or missing; `{line}` shows more", BAD)
    wrong = []
    if not report.complete and (max_age is not None or fail_on_gaps or since or until):
        wrong.append(f"no part of {report.uri} is known to be complete")
    elif max_age is not None and report.is_older_than(max_age):
        ended = moment_text(report.complete[-1][1])
        wrong.append(f"{report.uri} is complete only up to {ended}, more than {max_age} ago")
    if fail_on_gaps or since or until:
        from balance_analysis.archive.manifest import export_command

        evidence, (begin, stop) = opened.snapshot().evidence, interval_of(since, until)
        first, last = evidence.bounds
        begin = begin if since else min(first, stop - 1)
        stop = stop if until else max(last, begin + 1)
        if gaps := evidence.incomplete(begin, stop):
            line = export_command(opened.store, "--fill-gaps")
            text = f"missing or unproven: {spans_text(gaps)}"
            wrong.append(f"{text}; `{line}` asks a node that still has it")
    if wrong:
        fail("; ".join(wrong), INCOMPLETE)


@command(panel=ARCHIVE)
def verify(
    archive: options.ArchiveAt,
    against: Annotated[
        options.Text,
        Option(
            metavar="SOURCE",
            help=f"Compare with SOURCE; with segments, the ledger too. {_COMPARABLE}",
        ),
    ] = None,
    confirm: Annotated[
        bool, Option("--confirm", help="Record in the archive the stretches that SOURCE confirms.")
    ] = False,
    form: options.PrintFormat = "table",
) -> int:
    """Check an archive; print each problem and what to do about it.

    Exits with 5 if anything is wrong, and with 3 if nothing could be compared or confirmed.
    """
    from balance_analysis.segments.segment import are_segments

    opened = options.archive_at(archive)
    if confirm and against is None:
        raise ValueError("--confirm needs a source to compare with: give --against SOURCE")
    other: dict[str, Any] = {}
    if against is not None and not confirm:
        other["segments" if are_segments(against) else "against"] = against
    report = opened.verify(**other, progress=out.shows_progress())
    print_record(report, form)
    if not report.is_whole:
        return BAD
    if report.compared_nothing:
        fail(f"{opened.uri}: there was nothing to compare", INCOMPLETE)
    return 0 if not confirm or against is None else _confirm(opened, against, form)


def _confirm(archive: "ba.Archive", other: str, form: str) -> int:
    """Confirm an archive by another source, print the confirmed stretches, return the exit code."""
    confirmation = ba.confirm(archive, other)
    print_record(confirmation, form)
    if len(confirmation.rows):
        line = options.command_line("verify", archive.uri, "--against", other)
        say(f"The archive's rows stay; _disputes/ has the differences; `{line}` says what to do")
    why = "nothing: the source must have all of the archive's accounts, and rows of its own origin"
    if not confirmation.shared:
        why = "nothing: no stretch is complete in both"
    say(f"Confirmed: {spans_text(confirmation.confirmed) or why}")
    return BAD if len(confirmation.rows) else 0 if confirmation.confirmed else INCOMPLETE


@command(panel=ARCHIVE)
def digest(
    archive: options.ArchiveAt,
    since: options.SinceAll = None,
    until: options.UntilAll = None,
    form: options.PrintFormat = "table",
) -> None:
    """Print SHA-256 digests of an archive's history; equal histories have equal digests."""
    print_record(options.archive_at(archive).digest(start=since, end=until), form)


@command(panel=ARCHIVE)
def diff(
    one: Annotated[str, Argument(metavar="A", help=_COMPARABLE)],
    other: Annotated[str, Argument(metavar="B", help="As for A.")],
    since: options.SinceAll = None,
    until: options.UntilAll = None,
    output: Annotated[Path | None, options.output_option("File for the rows that differ.")] = None,
    form: options.PrintFormat = "table",
) -> int:
    """Compare two histories.

    Exits with 0 if they are the same, 1 if a row differs, and 3 if no row differs but some account
    or time is only in one of them, or nothing could be compared.
    """
    if output is not None:
        check_output(output, inputs=[one, other])
    try:
        difference = ba.diff(one, other, start=since, end=until)
    except OverflowError as error:
        raise ValueError(out.message_of(error)) from error
    if output is not None:
        ba.write_table(difference.rows, output)
    print_record(difference, form)
    return 0 if difference.is_same else 1 if len(difference.rows) else INCOMPLETE


@command(panel=ARCHIVE)
def serve(
    archive: options.ArchiveIfAny = None,
    demo: Annotated[bool, Option("--demo", help="Serve the sample data instead.")] = False,
    open_: Annotated[bool, Option("--open", help="Open the page in the browser.")] = False,
    host: Annotated[str, Option(help="Address to listen on.")] = HOST,
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 3008,
    allow_origin: Annotated[
        options.Texts,
        Option(
            metavar="ORIGIN",
            help="Origin whose pages may read answers, or *; repeatable. [all; none on loopback]",
        ),
    ] = None,
    assets: options.AssetsFile = None,
    labels: options.LabelsFile = None,
) -> None:
    """Serve an archive like a node, with a page to explore it in a browser."""
    if (archive is None) != demo:
        raise ValueError("give an archive, or --demo, not both")
    from balance_analysis.demo import sample_archive
    from balance_analysis.service.app import create_app
    from balance_analysis.service.server import serve_until_signal

    host = host.strip("[]")

    def announce(url: str) -> None:
        what = archive or "the sample data"
        say(f"Serving {what} at {url}, described at {url}/openapi.json; stop with Ctrl-C")
        if open_:
            import webbrowser

            webbrowser.open(url)

    opened = contextlib.nullcontext(options.archive_at(archive)) if archive else sample_archive()
    with opened as served:
        names: dict[str, Any] = {"assets": assets, "labels": labels}
        application = create_app(served, host=host, allow_origins=allow_origin, **names)
        try:
            serve_until_signal(application, host=host, port=port, on_up=announce)
        except OSError as error:  # the address can't be used: a usage error
            raise ValueError(error.strerror) from error
