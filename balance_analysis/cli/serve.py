"""The command that serves an archive."""

from __future__ import annotations

import contextlib
import ipaddress
from typing import TYPE_CHECKING, Annotated, Final

import typer

from balance_analysis.cli.options import Quiet, Verbose  # noqa: TC001 - typer reads annotations
from balance_analysis.cli.output import told_errors
from balance_analysis.cli.root import app
from balance_analysis.cli.times import parse_duration

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from balance_analysis.archive.archive import Archive
    from balance_analysis.service.guards import RateLimit

OFF: Final = "off"
_BURST: Final = 5
"""Seconds' worth of requests that may come at once, as with real nodes."""


@app.command()
def serve(
    archive: Annotated[
        str | None,
        typer.Argument(metavar="ARCHIVE", help="A folder, or an address such as s3://bucket/x."),
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Serve the sample data instead.")] = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 3008,
    strict_coverage: Annotated[
        bool,
        typer.Option(
            "--strict-coverage", help="Refuse what reaches beyond the coverage, with 416."
        ),
    ] = False,
    rate_limit: Annotated[
        str | None,
        typer.Option(
            metavar="N|off",
            help="Requests a second from one address. [off on loopback, elsewhere 20]",
        ),
    ] = None,
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="How long a question may take; then it is 504.")
    ] = "30s",
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Serve an archive as a node does: any client of the interface reads it."""
    with told_errors(verbose, quiet) as telling:
        if (archive is None) != demo:
            raise ValueError("name an archive to serve, or --demo, and not both")
        host = host.strip("[]")
        limit, seconds = _rate_limit(rate_limit, host), parse_duration(timeout).total_seconds()
        if not seconds:
            raise ValueError("--timeout must be more than 0")
        from balance_analysis.service.app import create_app
        from balance_analysis.service.server import serve_until_told

        with _served(archive) as found:
            application = create_app(
                found, strict_coverage=strict_coverage, timeout=seconds, rate_limit=limit
            )
            what = found.uri if archive else "the sample data"
            try:
                serve_until_told(
                    application,
                    host=host,
                    port=port,
                    on_up=lambda url: telling.say(
                        f"Serving {what} at {url}, described at {url}/docs"
                    ),
                )
            except OSError as error:  # the address is the option that can't be used
                raise ValueError(error.strerror) from error


def _served(archive: str | None) -> AbstractContextManager[Archive]:
    if archive is None:
        from balance_analysis.demo import sample_archive

        return sample_archive()
    from balance_analysis.archive.archive import Archive

    return contextlib.nullcontext(Archive(archive))


def _rate_limit(wanted: str | None, host: str) -> RateLimit | None:
    from balance_analysis.service.guards import RateLimit

    if wanted == OFF or (wanted is None and _is_loopback(host)):
        return None
    if wanted is None:
        return RateLimit()
    if not wanted.isdecimal() or not int(wanted):
        raise ValueError(f"--rate-limit must be a whole number or {OFF!r}, not {wanted!r}")
    return RateLimit(int(wanted), int(wanted) * _BURST)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
