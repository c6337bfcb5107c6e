"""An archive behind the interface: over HTTP at an address, or an application to ask in process."""

from __future__ import annotations

from contextlib import contextmanager

from balance_analysis.service.app import create_app
from balance_analysis.service.server import serve
from tests.loopback.query import BALANCE_CHANGES as CHANGES
from tests.loopback.query import NETWORK_LIMITS as LIMITS

__all__ = ["CHANGES", "LIMITS", "application", "serving"]


def application(archive, **options):
    """Return the service over an archive, as any server of ASGI runs it."""
    return create_app(archive, **options)


@contextmanager
def serving(archive, **options):
    """Serve an archive from this process, whose address the `with` block gets."""
    with serve(create_app(archive, **options)) as url:
        yield url
