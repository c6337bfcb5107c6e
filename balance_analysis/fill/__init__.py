"""Fill an archive from a source of rows: nodes, or network history segments.

These modules decide what a run asks for, and in which order it commits. They must not know how an
archive is verified or repaired (`proof`), or how rows are drawn or served.
"""

from typing import Final, Literal

LAG: Final = "1m"
OVERLAP: Final = "10m"
"""Defaults of `export(lag=, overlap=)`, also on the command line."""

ON_BAD_ROWS: Final[Literal["quarantine"]] = "quarantine"
"""Default of `on_bad_rows` in every function that fills an archive."""
