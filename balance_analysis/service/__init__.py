"""Serve the two operations of the interface over an archive.

It must not know the package `node`: because the two are independent, their agreement is evidence.
"""

from typing import Final

HOST: Final = "127.0.0.1"
"""Default address to listen on."""
