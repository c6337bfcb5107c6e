"""The command line: a thin shell over the library. Only it prints and exits.

Heavy modules are imported where they are used, so that `--help` answers at once.
"""

from __future__ import annotations

from balance_analysis.cli import archive, node, tables  # noqa: F401 - they add commands
from balance_analysis.cli.app import app, main
from balance_analysis.cli.output import EXIT_CODES

__all__ = ["EXIT_CODES", "app", "main"]
