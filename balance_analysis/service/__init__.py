"""Serve the two operations of the interface over an archive.

These modules must not know `node`: only if both are independent is their agreement evidence.
"""

from typing import Final

HOST: Final = "127.0.0.1"
"""Default address to listen on."""
