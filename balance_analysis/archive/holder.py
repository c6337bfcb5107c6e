"""Who writes to an archive, as its lock tells."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
from typing import Any

from balance_analysis.errors import ArchiveLockedError


class NoLockError(OSError):
    """An object store has no lock; the message says why."""


def myself() -> dict[str, Any]:
    """Return who this process is: `pid`, `host` and, as `since`, now, ISO 8601 in UTC."""
    since = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": platform.node(), "since": since}


def holder_of(note: bytes | None) -> dict[str, Any]:
    """Return who a note names; nothing where there is none, or it is damaged."""
    try:
        holder = json.loads(note or b"{}")
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}


def name_of(holder: dict[str, Any]) -> str:
    """Return a holder in words."""
    if not holder:
        return "another run"
    return (
        f"process {holder.get('pid')} on {holder.get('host')}, which began {holder.get('since')},"
    )


def locked(uri: str, holder: dict[str, Any], advice: str = "") -> ArchiveLockedError:
    """Return the error that tells who writes to an archive, and what to do."""
    return ArchiveLockedError(
        f"{uri} is locked: {name_of(holder)} is writing to it; try again when it is done{advice}",
        holder=holder,
    )
