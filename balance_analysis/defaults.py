"""Default values, in Python and on the command line."""

from __future__ import annotations

from typing import Final, Literal

PAGE_SIZE: Final = 5000
"""Rows per page: the maximum of nodes from v0.73 on."""

WORKERS: Final = 4
"""Maximum number of concurrent requests."""

LAG: Final = "1m"
OVERLAP: Final = "10m"
"""Defaults of `export(lag=, overlap=)`."""

ON_BAD_ROWS: Final[Literal["quarantine"]] = "quarantine"
"""Default of `on_bad_rows` in every function that fills an archive."""

HOST: Final = "127.0.0.1"
"""Address that a service listens on."""
