"""Commands that look after an archive: what it holds, whether it is whole, and serving it."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from typer import Argument, Option

import balance_analysis as ba
from balance_analysis import defaults
from balance_analysis.cli import options
from balance_analysis.cli.app import ARCHIVE, command
from balance_analysis.cli.output import BAD, DISK, INTERRUPTED, PARTIAL, Messages, print_record
from balance_analysis.files.atomic import check_output
from balance_analysis.spans import Span, joined, overlap
from balance_analysis.text import count_text, moment_text, spans_text

if TYPE_CHECKING:
    from balance_analysis.evidence import Node


_COMPARABLE: Final = "An archive, a file that `fetch` wrote, a node's address, or segments."


@command(panel=ARCHIVE)
def status(
    messages: Messages,
    archive: options.ArchiveAt,
    max_age: options.MaxAge = None,
    fail_on_gaps: Annotated[
        bool,
        Option("--fail-on-gaps", help="Exit with 3 if any part is missing or unproven."),
    ] = False,
    form: options.PrintFormat = "table",
) -> None:
    """Show what an archive holds and what is missing; exit with 5 if files are gone or cut short.

    With -q, only problems are printed.
    """
    held = options.archive_at(archive)
    found = held.status()
    if not messages.quiet:
        print_record(found, form)
    if found.lost:
        lost, told = count_text(len(found.lost), "file"), options.command_line("verify", archive)
        messages.fail(f"{lost} damaged or gone; `{told}` tells more", BAD)
    wrong = [] if max_age is None else too_old(found, max_age)
    if fail_on_gaps and (found.gaps or found.unproven):
        from balance_analysis.archive.manifest import export_command

        mend = export_command(held.store, "--fill-gaps")
        lacks = spans_text(sorted(found.gaps + found.unproven))
        wrong.append(f"missing or unproven: {lacks}; `{mend}` asks a node that still remembers it")
    elif fail_on_gaps and not found.complete and not wrong:
        wrong.append("no part of it is known to be complete")
    if wrong:
        messages.fail("; ".join(wrong), PARTIAL)


def too_old(found: ba.ArchiveStatus, max_age: str) -> list[str]:
    """Return what is wrong with where an archive ends, if anything is."""
    if not found.is_older_than(max_age):
        return []
    if not found.complete:
        return [f"nothing of {found.uri} is known to be complete"]
    ended = moment_text(found.complete[-1][1])
    return [f"{found.uri} is complete only up to {ended}, more than {max_age} ago"]


@command(panel=ARCHIVE)
def verify(
    messages: Messages,
    archive: options.ArchiveAt,
    against: Annotated[
        options.Text, Option(metavar="SOURCE", help=f"Compare all rows with this: {_COMPARABLE}")
    ] = None,
    segments: Annotated[
        options.Texts,
        Option(metavar="PATH", help="Compare with these segments and their ledger; repeatable."),
    ] = None,
    confirm: Annotated[
        bool, Option("--confirm", help="Keep in the archive what the other source agrees with.")
    ] = False,
    digest: Annotated[
        options.Text, Option(metavar="HEX", help="Compare with what `digest` printed once.")
    ] = None,
    since: Annotated[
        options.Text, Option(help="Start of what is compared; by default all.")
    ] = None,
    until: Annotated[options.Text, Option(help="End of it, exclusive.")] = None,
    form: options.PrintFormat = "table",
) -> int:
    """Check that an archive is what it says; print what is wrong and which command mends it.

    It exits with 5 if anything is wrong, and with 3 if there was nothing to compare.
    """
    held, bounds = options.archive_at(archive), options.interval(since, until)
    if digest is not None and not re.fullmatch("[0-9a-fA-F]{64}", digest):
        raise ValueError(f"--digest must be 64 hex digits, not {digest!r}")
    if (since or until) and not (digest or against or segments):
        raise ValueError("--since and --until are those of --against, --segments or --digest")
    if confirm and (against is None) == (segments is None):
        raise ValueError("--confirm compares with --against or with --segments: give one")
    other: dict[str, Any] = {} if confirm else {"against": against, "segments": segments}
    found = held.verify(**other, **bounds, progress=messages.shows_progress)
    print_record(found, form)
    if not found.is_whole:
        return BAD
    if confirm and (code := confirm_by(messages, held, against or segments or "", form, **bounds)):
        return code
    if digest is not None:
        told = held.digest(**bounds).digest
        if told != digest.lower():
            messages.fail(f"{held.uri}: the digest is {told}, not {digest.lower()}", BAD)
        messages.say(f"The digest is {told}, as given")
    if found.compared_nothing:
        messages.fail(f"{held.uri}: there was nothing to compare", PARTIAL)
    return 0


def confirm_by(
    messages: Messages,
    archive: ba.Archive,
    other: str | list[str],
    form: str = "table",
    **bounds: Any,  # noqa: ANN401 - as of `confirm`
) -> int:
    """Confirm an archive by another source, and say how; return the exit code."""
    found = ba.confirm(archive, other, **bounds)
    print_record(found, form)
    if len(found.rows):
        messages.say(f"What differs is in {archive.uri}/_disputes/; the archive stays as it is")
    is_confirmed = _say_confirmed(messages, archive, found)
    return BAD if len(found.rows) else 0 if is_confirmed else PARTIAL


def _say_confirmed(messages: Messages, archive: ba.Archive, found: ba.Difference) -> bool:
    """Say which stretches of a comparison are confirmed, of which nodes' rows; return if any is."""
    from balance_analysis.schema import to_microseconds

    evidence = archive.snapshot().evidence
    shared = [(to_microseconds(start), to_microseconds(end)) for start, end in found.shared]
    by_nodes: dict[str, list[Span]] = {}
    for span, node in evidence.confirmations():
        for part in overlap([span], shared):
            answer = evidence.answer_at(part[0])
            if answer is not None:
                said = f"{_endpoint(node)} has the rows of {_endpoint(answer.node)}"
                by_nodes.setdefault(said, []).append(part)
    for said, spans in by_nodes.items():
        messages.say(f"Confirmed: {spans_text(joined(spans))}: {said}")
    if not by_nodes:
        why = "both must hold all accounts of the archive, and their rows must be of two origins"
        if found.filters != found.accounts[0]:
            why = f"{found.other} doesn't hold all accounts of the archive"
        messages.say(f"Confirmed: nothing; {why}")
    return bool(by_nodes)


def _endpoint(node: Node) -> str:
    """Return a node with the addresses that it was asked at."""
    return f"{node.name} ({', '.join(sorted(node.origin)) or 'origin unknown'})"


@command(panel=ARCHIVE)
def digest(
    _: Messages,
    archive: options.ArchiveAt,
    since: Annotated[options.Text, Option(help="Start, inclusive; by default all.")] = None,
    until: Annotated[options.Text, Option(help="End, exclusive; by default all.")] = None,
    form: options.PrintFormat = "table",
) -> None:
    """Print SHA-256 digests of an archive's history, the same for each archive of that history."""
    print_record(options.archive_at(archive).digest(**options.interval(since, until)), form)


@command(panel=ARCHIVE)
def diff(
    messages: Messages,
    one: Annotated[str, Argument(metavar="A", help=_COMPARABLE)],
    other: Annotated[str, Argument(metavar="B", help="The same.")],
    since: Annotated[options.Text, Option(help="Start, inclusive; by default all.")] = None,
    until: Annotated[options.Text, Option(help="End, exclusive; by default all.")] = None,
    output: Annotated[
        Path | None, options.output_option("Where to write each row that differs.")
    ] = None,
    form: options.PrintFormat = "table",
) -> int:
    """Compare two histories.

    It exits with 0 if they are the same, 1 if a row differs, 2 on trouble, and 3 if no row differs
    but they aren't the same: one has accounts or time that the other hasn't, or nothing is shared.
    """
    messages.on_failure = lambda _, code: code if code in {DISK, INTERRUPTED} else 2
    if output is not None:
        check_output(output, inputs=[one, other])
    found = ba.diff(one, other, **options.interval(since, until))
    if output is not None:
        ba.write_table(found.rows, output)
    print_record(found, form)
    return 0 if found.is_same else 1 if len(found.rows) else PARTIAL


@command(panel=ARCHIVE)
def serve(
    messages: Messages,
    archive: options.ArchiveIfAny = None,
    demo: Annotated[bool, Option("--demo", help="Serve the sample data instead.")] = False,
    open_: Annotated[bool, Option("--open", help="Open the page in the browser.")] = False,
    host: Annotated[str, Option(help="Address to listen on.")] = defaults.HOST,
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 3008,
    allow_origin: Annotated[
        options.Texts,
        Option(
            metavar="ORIGIN",
            help="Origin whose pages may read it, or *; repeatable. [all; none on loopback]",
        ),
    ] = None,
    assets: options.AssetsFile = None,
    labels: options.LabelsFile = None,
) -> None:
    """Serve an archive like a node, with a page to explore it in a browser."""
    if (archive is None) != demo:
        raise ValueError(
            "give an archive or --demo, not both" if demo else "give an archive, or --demo"
        )
    options.check_is("archive", archive or "")
    from balance_analysis.demo import sample_archive
    from balance_analysis.service.app import create_app
    from balance_analysis.service.server import serve_until_told

    host = host.strip("[]")
    what = archive or "the sample data"

    def tell(url: str) -> None:
        messages.say(f"Serving {what} at {url}, described at {url}/openapi.json; end with Ctrl-C")
        if open_:
            import webbrowser

            webbrowser.open(url)

    with contextlib.nullcontext(ba.Archive(archive)) if archive else sample_archive() as found:
        application = create_app(
            found, host=host, allow_origins=allow_origin, assets=assets, labels=labels
        )
        try:
            serve_until_told(application, host=host, port=port, on_up=tell)
        except OSError as error:  # the address is the option that can't be used
            raise ValueError(error.strerror) from error
