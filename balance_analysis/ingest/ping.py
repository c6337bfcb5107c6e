"""What an export tells a health-check service: that it begins, and that it is done or failed."""

from __future__ import annotations

import threading
from typing import Final, Literal
from urllib.parse import urlsplit

import requests

from balance_analysis.errors import logger
from balance_analysis.text import without_path

TRIES: Final = 2
SECONDS: Final = 3
"""How long one of them may take; all of them together as long as each."""

_LONGEST_BODY: Final = 10_000


def ping(url: str, event: Literal["start", "done", "fail"], body: str = "") -> None:
    """Tell a health-check service how a run goes; that it can't be told is a warning.

    It takes a few seconds at most, whatever the service does.

    Parameters
    ----------
    url
        Where a run that is done is told; what begins or failed, at `/start` and `/fail` below it.
    body
        What the service shows beside it.
    """
    parts = urlsplit(url)
    path = parts.path if event == "done" else f"{parts.path.rstrip('/')}/{event}"
    reasons: list[str] = []
    # No timeout bounds the look-up of a name, nor an answer that comes drop by drop.
    teller = threading.Thread(
        target=_post,
        args=(parts._replace(path=path).geturl(), body[:_LONGEST_BODY], reasons),
        daemon=True,
    )
    teller.start()
    teller.join(TRIES * SECONDS)
    reason = f"no answer in {SECONDS} s" if teller.is_alive() else "".join(reasons[-1:])
    if reason:
        logger.warning("the health check at %s can't be told: %s", without_path(url), reason)


def _post(address: str, body: str, reasons: list[str]) -> None:
    """Send a text; what went wrong is added to the reasons, and nothing if it arrived at last."""
    for _ in range(TRIES):
        try:
            answer = requests.post(address, body.encode(), timeout=SECONDS, stream=True)
        except requests.Timeout:
            reasons.append(f"no answer in {SECONDS} s")
        except requests.RequestException:  # whose text has the address
            reasons.append("it can't be reached")
        else:
            answer.close()
            if answer.ok:
                reasons.clear()
                return
            reasons.append(f"it answers {answer.status_code}")
