"""The command that fills and mends an archive, and the one that tells its settings."""

from __future__ import annotations

import datetime as dt
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

import balance_analysis as ba
from balance_analysis.cli import options
from balance_analysis.cli.app import ARCHIVE, app, command
from balance_analysis.cli.archive import connected
from balance_analysis.cli.output import (
    BAD,
    LOCKED,
    PARTIAL,
    Messages,
    echo,
    logger,
    print_spans,
    print_table,
)
from balance_analysis.errors import RequestError
from balance_analysis.files.atomic import check_output
from balance_analysis.text import count_text, range_text, spans_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from balance_analysis.archive.runs import RunReport
    from balance_analysis.cli.settings import Value
    from balance_analysis.spans import Span

_Config = Annotated[
    Path | None, Option(metavar="FILE", help="A TOML file with [export.NAME]; then name that.")
]


@dataclass(frozen=True, kw_only=True)
class ExportOptions(options.AccountOptions):
    """The options that are settings too."""

    assets: Annotated[
        Path | None,
        Option(metavar="FILE", help="Symbols and decimals of assets, which the archive keeps."),
    ] = None
    since: Annotated[
        options.Text, Option(help="Start, if the archive begins later. [oldest row]")
    ] = None
    until: Annotated[options.Text, Option(help="End, exclusive; by default now, less --lag.")] = (
        None
    )
    lag: Annotated[options.Text, options.duration_option("How far behind now to end. [1m]")] = None
    overlap: Annotated[
        options.Text, options.duration_option("How much of the end to ask for again. [10m]")
    ] = None
    settle: Annotated[
        options.Text, options.duration_option("How long the last block must stay so. [10s]")
    ] = None
    fill_gaps: Annotated[bool | None, Option(help="Ask for what is missing or unproven.")] = None
    partition: options.PartitionIfAny = None
    page_size: Annotated[int | None, Option(min=1, help="Rows a request. [5000]")] = None
    workers: Annotated[int | None, Option(min=1, help="Requests at once. [4]")] = None
    max_requests_per_second: options.Rate = None
    on_bad_rows: Annotated[
        options.OnBadRows | None, Option(help="What becomes of them. [quarantine]")
    ] = None
    scheduler: options.Scheduler = None
    metrics_file: Annotated[
        Path | None, Option(metavar="FILE", help="Write figures for Prometheus here.")
    ] = None
    log_format: Annotated[
        Literal["text", "json"] | None, Option(help="How to write to stderr. [text]")
    ] = None


@command(panel=ARCHIVE)
def export(
    messages: Messages,
    given: ExportOptions,
    targets: Annotated[
        options.Texts, Argument(metavar="URL... ARCHIVE", help="Addresses; with --config a NAME.")
    ] = None,
    config: _Config = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print and estimate the plan; write nothing.")
    ] = False,
    repair: Annotated[bool, Option("--repair", help="Mend what `verify` finds.")] = False,
) -> None:
    """Bring an archive up to date with a node; the first run makes it.

    It ends with 3 where the node doesn't remember all that a run asks for: that part is unproven.
    """
    messages.is_json = given.log_format == "json"
    values = _resolve(targets or [], config, asdict(given))
    settings = {name: value.value for name, value in values.items()}
    for name, example in (("url", "https://node.example.org"), ("archive", "a folder")):
        if not settings[name]:
            raise ValueError(f"the setting {name} is missing: {example}; see `export --help`")
    messages.is_json = settings["log_format"] == "json"
    if dry_run and repair:
        told = options.command_line("verify", settings["archive"])
        raise ValueError(f"--repair has no --dry-run; `{told}` tells what it would mend")
    if given.scheduler is not None and (repair or dry_run):
        option = "--repair" if repair else "--dry-run"
        raise ValueError(f"{option} works without a cluster: leave --scheduler out")
    if settings["metrics_file"] is not None and not dry_run:
        folder = settings["archive"].removeprefix("file://")
        check_output(settings["metrics_file"], inputs=[config, folder])
    if repair:
        # A schedule's interval is not meant to be asked for anew whenever a file is mended.
        settings |= {"since": given.since, "until": given.until}
    run = Export(settings, messages)
    if not dry_run:
        messages.on_failure = run.failed
    rate = settings["max_requests_per_second"]
    with ba.Client(settings["url"], max_requests_per_second=rate) as client:
        code = run.plan(client) if dry_run else run.repair(client) if repair else run.load(client)
    if code:
        raise typer.Exit(code)


class Export:
    """One run of `export`, and what it tells; each way to run returns an exit code."""

    def __init__(self, settings: Mapping[str, Any], messages: Messages) -> None:
        self._settings, self._messages = settings, messages
        self._archive = ba.Archive(settings["archive"])
        self._report: RunReport | None = None

    def plan(self, client: ba.Client) -> int:
        """Print what would be asked for."""
        from balance_analysis.archive.layout import periods_between
        from balance_analysis.archive.manifest import partition_of
        from balance_analysis.cli.estimate import estimate
        from balance_analysis.schema import to_microseconds

        spans = self._export(client, dry_run=True).spans
        if not spans:
            echo("Nothing to ask for")
            return 0
        print_spans(spans)
        how = ("page_size", "workers", "max_requests_per_second")
        limits = {name: self._settings[name] for name in how}
        partition = partition_of(self._archive.store, self._settings["partition"])
        files = {
            period
            for start, end in spans
            for period in periods_between(to_microseconds(start), to_microseconds(end), partition)
        }
        echo(
            estimate(client, spans, options.filters_in(self._settings), files=len(files), **limits)
        )
        return 0

    def load(self, client: ba.Client) -> int:
        """Bring the archive up to date."""
        with connected(self._settings["scheduler"]) as cluster:
            run = self._export(client, executor=cluster)
        lacking = self._lacking(run)
        code = BAD if run.conflicts or run.bad_rows or run.damaged else PARTIAL if lacking else 0
        self._write_metrics(code)
        warn_of_conflicts(run)
        warn_of_damage(run, self._archive, url=self._settings["url"][0])
        self._tell(count_text(run.rows, "new row") if run.rows else "Nothing new")
        if code == PARTIAL:
            said = f"not all that was asked for is known: {spans_text(lacking)} is unproven"
            self._messages.fail(f"{self._archive.uri} holds what there is, but {said}", code)
        return code

    def _lacking(self, run: ba.Run) -> list[Span]:
        """Return what was asked for and isn't known to be complete now."""
        from balance_analysis.schema import to_microseconds

        state = self._archive.snapshot().coverage
        spans = [(to_microseconds(start), to_microseconds(end)) for start, end in run.spans]
        return [part for span in spans for part in state.missing(*span)]

    def repair(self, client: ba.Client) -> int:
        """Mend the archive."""
        done = ba.repair(client, self._archive, **self._how())
        code = 0 if done.left.is_whole and not done.bad_rows else BAD
        self._write_metrics(code)
        if done.is_rebuilt:
            logger.warning(
                "the coverage was lost and is made anew from the files, all of it unproven; `%s` "
                "asks the node for all that it remembers, and proves that",
                self._command("--fill-gaps"),
            )
        self._tell(
            f"Asked again for {count_text(len(done.periods), 'period')}: "
            f"{count_text(len(done.rewritten), 'file')} written anew, {len(done.changed)} with "
            "other rows"
        )
        if not done.left.is_whole:
            echo(str(done.left))
        return code

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
            self._tell(f"What was complete is committed: {count_text(report.rows, 'new row')}")
        elif report is not None:
            self._messages.content = {"event": "summary", **asdict(report)}
        if isinstance(error, KeyboardInterrupt) and not is_partial:
            self._messages.say(f"Nothing new is kept in {self._archive.uri}")
        return code

    def _export(self, client: ba.Client, **how: Any) -> ba.Run:  # noqa: ANN401 - as of `export`
        settings = self._settings
        names = ("partition", "lag", "overlap", "settle", "fill_gaps", "on_bad_rows")
        return ba.export(
            client,
            self._archive,
            progress=self._messages.shows_progress,
            **options.filters_in(settings),
            **{name: settings[name] for name in names},
            **self._how(),
            **how,
        )

    def _how(self) -> dict[str, Any]:
        """Return the arguments that `export` and `repair` have in common."""
        names, bounds = ("page_size", "workers"), (self._settings["since"], self._settings["until"])
        own = {name: self._settings[name] for name in names}
        return {**options.interval(*bounds), **own, "on_report": self._keep}

    def _command(self, *words: str) -> str:
        from balance_analysis.archive.manifest import export_command

        return export_command(self._archive.store, *words, url=self._settings["url"][0])

    def _keep(self, report: RunReport) -> None:
        self._report = report

    def _write_metrics(self, code: int) -> None:
        if (path := self._settings["metrics_file"]) is not None:
            from balance_analysis.ingest.metrics import write_metrics

            write_metrics(path, self._archive.store, report=self._report, exit_code=code)

    def _tell(self, what: str) -> None:
        """Tell how the run ended, in one line, and of its bad rows."""
        report = self._report
        if report is None:
            return
        warn_of_bad_rows(report.bad_rows, report.id)
        known = [dt.datetime.fromisoformat(each) for span in report.committed for each in span]
        asked = f" from {range_text(known[0], known[-1])}" if known else ""
        cost = f"{count_text(report.requests, 'request')}, {report.seconds:.1f} s"
        told = f"{what}{asked} in {cost}: {self._archive.uri}"
        self._messages.say(told, event="summary", **asdict(report))


def warn_of_conflicts(run: ba.Run) -> None:
    """Say what an archive held otherwise than it came now."""
    if run.conflicts:
        logger.warning(
            "%s: the archive held other balances, or rows that did not come again; it holds the "
            "newer ones now; what it held is in _runs/%s.json",
            count_text(sum(rows.num_rows for rows in run.conflicts), "conflict"),
            run.id,
        )


def warn_of_damage(run: ba.Run, archive: ba.Archive, *, url: str | None = None) -> None:
    """Say which files of an archive are not as they were written, and what mends them."""
    if run.damaged:
        from balance_analysis.archive.manifest import export_command

        logger.warning(
            "%s gone, or not as written, such as %s: `%s` tells more, `%s` mends it",
            count_text(len(run.damaged), "file"),
            run.damaged[0],
            options.command_line("verify", archive.uri),
            export_command(archive.store, "--repair", url=url),
        )


def warn_of_bad_rows(count: int, run: str) -> None:
    """Say where rows are that the table can't hold."""
    if count:
        said = count_text(count, "bad row")
        logger.warning("%s set aside, with reasons, in _quarantine/%s.jsonl", said, run)


def _resolve(
    targets: list[str], config: Path | None, given: Mapping[str, object]
) -> dict[str, Value]:
    """Return the settings of an export, with where each comes from."""
    from balance_analysis.cli.settings import resolve

    if config is not None and len(targets) > 1:
        raise ValueError(f"with --config, give its NAME alone, not {' '.join(targets)}")
    if config is not None:
        return resolve(given, environ=os.environ, config=config, name="".join(targets) or None)
    _check_targets(targets)
    named = {"url": targets[:-1], "archive": targets[-1]} if targets else {}
    return resolve({**given, **named}, environ=os.environ)


def _check_targets(targets: list[str]) -> None:
    """Raise if these are plainly not addresses of nodes and then an archive."""
    urls = [each for each in targets if options.kind_of(each) == "node"]
    others = [each for each in targets if each not in urls]
    if len(targets) == 1 and options.kind_of(targets[0]) == "archive":
        from balance_analysis.archive.manifest import export_command

        told = export_command(ba.Archive(targets[0]).store)
        raise ValueError(f"name a node's address before the archive: `{told}`")
    if urls and targets[-1] in urls and len(others) <= 1:
        told = options.command_line("export", *urls, *(others or ["archive"]))
        raise ValueError(f"the archive comes last: `{told}`")
    if len(targets) == 1:
        raise ValueError("give URL... ARCHIVE, or --config FILE NAME")
    for each in targets[:-1]:
        options.check_is("node", each)
    if targets:
        options.check_is("archive", targets[-1])


_config = typer.Typer(help="Tell which settings hold, and why.", no_args_is_help=True)
app.add_typer(_config, name="config", rich_help_panel=ARCHIVE)


@command(_config)
def show(
    messages: Messages,
    name: Annotated[
        options.Text, Argument(metavar="NAME", help="Which [export.NAME] of FILE.")
    ] = None,
    config: _Config = None,
    form: options.PrintFormat = "table",
) -> None:
    """Tell each setting of `export` and where it comes from; credentials are not shown."""
    if name is not None and config is None:
        raise ValueError(f"--config FILE is missing, which has [export.{name}]")
    values = _resolve([] if name is None else [name], config, {})
    if form == "json":
        content = {key: {"value": str(v), "from": v.origin} for key, v in values.items()}
        echo(json.dumps(content, indent=2))
        return
    columns = {
        "setting": list(values),
        "value": list(map(str, values.values())),
        "from": [value.origin for value in values.values()],
    }
    print_table(columns, left=columns)
