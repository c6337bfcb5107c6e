"""Load nodes' rows and the evidence for them, as a table, a stream or a file.

These modules choose the node to ask for each stretch. They must not know archives.
"""

from typing import Final

PAGE_SIZE: Final = 5000
"""Default rows per page: the maximum of nodes from v0.73 on."""

WORKERS: Final = 4
"""Default maximum number of concurrent requests."""
