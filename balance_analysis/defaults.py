"""What holds where a caller says nothing: in Python and on the command line."""

from __future__ import annotations

from typing import Final, Literal

PAGE_SIZE: Final = 5000
"""Rows a request: the most that nodes send from v0.73 on."""

WORKERS: Final = 4
"""Requests at once."""

LAG: Final = "1m"
OVERLAP: Final = "10m"
"""Of an export: see there."""

ON_BAD_ROWS: Final[Literal["quarantine"]] = "quarantine"
"""Of whatever fills an archive."""

HOST: Final = "127.0.0.1"
"""The address on which a service listens."""
